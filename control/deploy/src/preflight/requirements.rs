//! What this version needs, and what it cannot do yet.

use std::net::IpAddr;

use serde_json::Value;
use trieste_control::requirements::{
    OLDEST_KUBERNETES as OLDEST, PluginSupport, is_calico, is_cilium, is_ovn_kubernetes, promise,
};

use super::Finding;
use crate::discover::Plugin;
use crate::object_ref::ObjectRef;
use crate::objects::ActiveGateways;

/// Since when a broker can tell members' objects apart (ValidatingAdmissionPolicy, version v1).
pub(crate) const POLICIES_SINCE: (u32, u32) = (1, 30);

/// Looks at the version of Kubernetes; (0, 0) is one that the server does not tell.
pub fn version(major: u32, minor: u32, text: &str) -> Finding {
    let shown: String = text.escape_debug().take(64).collect();
    match (major, minor) {
        (0, 0) => Finding::good(format!("Kubernetes does not tell its version (\"{shown}\")")),
        found if found >= OLDEST => Finding::good(format!("Kubernetes version \"{shown}\" is supported")),
        _ => Finding::bad(
            format!("Kubernetes \"{shown}\" is older than {}.{}", OLDEST.0, OLDEST.1),
            "upgrade it, or try in spite of it with --ignore-requirements",
        ),
    }
}

/// The cable drivers that this version has.
const WIREGUARD: &str = "wireguard";
const IPSEC: &str = "libreswan";
const VXLAN: &str = "vxlan";

/// A cable driver's name as Endpoints have it: lower case, `ipsec` under upstream's name. The empty text is upstream's way
/// to name its default.
#[must_use]
pub fn canonical(driver: &str) -> String {
    match driver.to_ascii_lowercase().as_str() {
        "" | "ipsec" => IPSEC.to_owned(),
        other => other.to_owned(),
    }
}

/// Looks at the kind of cable, and whether the nodes have the addresses that it needs.
pub fn cable(driver: &str, nodes: &[Value]) -> Vec<Finding> {
    let next = "join with --cable-driver wireguard or libreswan";
    let open = "the vxlan cable neither encrypts nor authenticates: whoever is on the way between the clusters can read \
                and change all traffic";
    match canonical(driver).as_str() {
        WIREGUARD | IPSEC => Vec::new(),
        VXLAN if is_ipv6_only(nodes) => vec![Finding::bad(
            "the vxlan cable goes from one IPv4 address to another, and no node of this cluster has one",
            next,
        )],
        VXLAN => {
            vec![Finding::suspect(
                open,
                "use it on networks that you trust, or join with another cable driver",
            )]
        }
        _ => {
            vec![Finding::bad(format!("`{}` is no cable driver that is known", driver.escape_debug()), next)]
        }
    }
}

/// Says whether nodes have addresses, and none of them IPv4.
fn is_ipv6_only(nodes: &[Value]) -> bool {
    let addresses = |node: &Value| node["status"]["addresses"].as_array().cloned().unwrap_or_default();
    let internal = nodes.iter().flat_map(addresses).filter(|address| address["type"] == "InternalIP");
    let all: Vec<IpAddr> = internal.filter_map(|address| address["address"].as_str()?.parse().ok()).collect();
    !all.is_empty() && all.iter().all(IpAddr::is_ipv6)
}

/// The kinds of cable that a gateway offers, by their canonical names, the newer one first.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Offer {
    /// The gateway's cluster.
    pub cluster: String,
    /// The kinds.
    pub drivers: Vec<String>,
}

impl Offer {
    /// Says whether there is a cable between two gateways.
    pub fn suits(&self, other: &Self) -> bool {
        self.drivers.iter().any(|driver| other.drivers.contains(driver))
    }
}

/// Chooses what a cluster offers besides `own`: the driver `before` while it changes from that, and on until all others have
/// the new one. `former` is what it has offered besides so far.
pub fn former_driver(
    own: &str,
    before: Option<&str>,
    former: Option<&str>,
    others: &[Offer],
) -> Option<String> {
    let own = canonical(own);
    let have_all = others.iter().all(|other| other.drivers.contains(&own));
    let kept = former.filter(|_| !have_all).map(canonical);
    before.map(canonical).filter(|before| *before != own).or(kept).filter(|former| *former != own)
}

/// Looks at the other clusters' kinds of cable, as their Endpoints say. Where nobody has one of ours, a cluster that was no
/// member before would be alone; one that was changes its driver.
pub fn drivers(ours: &Offer, others: &[Offer], was_member: bool) -> Vec<Finding> {
    let (same, strange): (Vec<_>, Vec<_>) = others.iter().partition(|other| ours.suits(other));
    let own = ours.drivers.first().map(String::as_str).unwrap_or_default();
    if let Some(theirs) =
        strange.first().and_then(|other| other.drivers.first()).filter(|_| same.is_empty() && !was_member)
    {
        let theirs = theirs.escape_debug();
        let text = format!(
            "cables are made between clusters of one driver: here {own}, in all others of the set {theirs}"
        );
        let next = format!("join with --cable-driver {theirs}");
        return vec![Finding::bad(text, next)];
    }
    let shown = |others: &[&Offer]| -> String {
        let shown = others.iter().take(16).map(|Offer { cluster, drivers }| {
            format!("{} ({})", cluster.escape_debug(), drivers.join(" or ").escape_debug())
        });
        shown.collect::<Vec<_>>().join(", ")
    };
    let mut findings = Vec::new();
    if !strange.is_empty() {
        findings.push(Finding::suspect(
            format!(
                "cables are made between clusters of one driver, here {own}; there will be none to {}",
                shown(&strange)
            ),
            "let all clusters of the set use the same: --cable-driver, of subctl join and of trieste join",
        ));
    }
    if let Some(former) = ours.drivers.get(1) {
        let have_not = |other: &&Offer| !other.drivers.iter().any(|driver| driver == own);
        let late: Vec<&Offer> = same.into_iter().filter(have_not).collect();
        let until = if late.is_empty() {
            "join once more when all gateways have started again, and it is offered no longer".to_owned()
        } else {
            format!(
                "these are connected by it until they join with --cable-driver {own}: {}; then join here once more, and \
                 it is offered no longer",
                shown(&late)
            )
        };
        findings.push(Finding::good(format!("The cable driver changes from {former} to {own}: {until}")));
    }
    findings
}

/// Looks at the network plugin.
pub fn plugin(plugin: &Plugin) -> Vec<Finding> {
    let name = plugin.name.as_str();
    match trieste_control::requirements::plugin(name) {
        PluginSupport::Served if is_calico(name) => {
            let text = "Calico gets an IPPool (disabled, natOutgoing false) for each remote CIDR: trieste-plugin-sync makes \
                        and removes them, and leaves alone what others have made";
            vec![Finding::good(text)]
        }
        PluginSupport::Served => Vec::new(),
        PluginSupport::Generic if is_cilium(name) => {
            let text = "Cilium: route agents learn from CiliumNode objects which pods are on which node. No version was tried with a \
                        real Cilium";
            vec![Finding::suspect(
                text,
                "trieste diagnose cni tells whether it masquerades towards remote CIDRs",
            )]
        }
        // Discovery warns of it.
        PluginSupport::Generic if plugin.called.is_some() => Vec::new(),
        PluginSupport::Generic | PluginSupport::Unknown => {
            let generic = crate::discover::GENERIC;
            let text = format!("the network plugin was not recognised and is treated as \"{generic}\"");
            vec![Finding::suspect(text, "it may or may not work; trieste diagnose all tells")]
        }
    }
}

/// Looks at how many gateways are active with a network plugin whose answers may come by another one.
pub fn active_gateways(plugin: &str, chosen: Option<ActiveGateways>) -> Vec<Finding> {
    if promise(plugin).has_several_gateways {
        return Vec::new();
    }
    let is_ovn = is_ovn_kubernetes(plugin);
    let why = match is_ovn {
        true => "OVN sends a remote network's packets to one next hop",
        false => "it gives pods addresses that Kubernetes does not know by node",
    };
    match chosen {
        None => vec![Finding::good(format!("One gateway at a time will be active with {plugin}: {why}"))],
        Some(ActiveGateways::One) => Vec::new(),
        Some(ActiveGateways::All) if is_ovn => {
            let next = "say --active-gateways one, which stays the choice of later joins";
            vec![Finding::bad(format!("several active gateways do not work with {plugin}: {why}"), next)]
        }
        Some(ActiveGateways::All) => {
            let text = format!(
                "with several active gateways and {plugin} answers are lost that come by another one: {why}"
            );
            vec![Finding::suspect(text, "leave --active-gateways away, or say one")]
        }
    }
}

/// Looks at whether the broker gives out global addresses, and this cluster takes or asks for some.
pub fn globalnet(is_enabled: bool, takes_part: bool, is_asked_for: bool) -> Vec<Finding> {
    match (is_enabled, takes_part) {
        (true, true) => Vec::new(),
        (true, false) => vec![Finding::suspect(
            "the broker uses globalnet, and this cluster takes no part in it",
            "it reaches the others by their global addresses, and they reach it by its own",
        )],
        (false, _) if is_asked_for => vec![Finding::suspect(
            "the broker has no globalnet: --globalnet-cidr and --globalnet-cluster-size have no effect",
            "it gets one with trieste deploy-broker --globalnet",
        )],
        (false, _) => Vec::new(),
    }
}

/// Looks at an image's reference.
pub fn image(reference: &str) -> Vec<Finding> {
    if is_reference(reference) {
        return Vec::new();
    }
    vec![Finding::bad(
        format!("`{}` is no reference to an image", reference.escape_debug()),
        "such as registry.example.com/trieste:0.1.0; see --image, --repository and --version",
    )]
}

/// `[registry[:port]/]path[:tag][@digest]`.
fn is_reference(text: &str) -> bool {
    let (name, digest) = text.split_once('@').map_or((text, None), |(name, digest)| (name, Some(digest)));
    let after_slash = name.rfind('/').map_or(0, |at| at + 1);
    let (path, tag) = match name[after_slash..].split_once(':') {
        Some((last, tag)) => (&name[..after_slash + last.len()], Some(tag)),
        None => (name, None),
    };
    let word = |text: &str, extra: &[char]| {
        !text.is_empty()
            && text.starts_with(|c: char| c.is_ascii_alphanumeric() || c == '_')
            && text.chars().all(|c| c.is_ascii_alphanumeric() || extra.contains(&c))
    };
    let mut parts = path.split('/').enumerate();
    let parts_good = parts.all(|(index, part)| match index {
        // The registry may have a port and, as a host's name, capitals.
        0 if path.contains('/') => word(part, &['.', '-', '_', ':', '[', ']']) || part.starts_with('['),
        _ => word(part, &['.', '-', '_']) && !part.contains(|c: char| c.is_ascii_uppercase()),
    });
    let tag_good = tag.is_none_or(|tag| tag.len() <= 128 && word(tag, &['.', '-', '_']));
    let digest_good = digest.is_none_or(|digest| {
        digest
            .strip_prefix("sha256:")
            .is_some_and(|hex| hex.len() == 64 && hex.chars().all(|c| c.is_ascii_hexdigit()))
    });
    parts_good && tag_good && digest_good
}

/// Says which rights are missing: (verb, example of what could not be done).
pub fn rights(missing: &[(&str, ObjectRef, String)]) -> Vec<Finding> {
    let describe = |(verb, place, resource): &(&str, ObjectRef, String)| {
        let group = if place.group().is_empty() { String::new() } else { format!(".{}", place.group()) };
        let namespace = place.namespace.as_ref().map_or_else(String::new, |name| format!(" in {name}"));
        format!("{verb} {resource}{group}{namespace}")
    };
    let shown: Vec<String> = missing.iter().map(describe).collect();
    if shown.is_empty() {
        return vec![Finding::good("These credentials have the rights that are needed")];
    }
    vec![Finding::bad(
        format!("these credentials may not: {}", shown.join(", ")),
        "use those of an administrator (--context), or ask one for these rights",
    )]
}

#[cfg(test)]
mod tests {
    use super::*;
    use trieste_control::requirements::PLUGINS;
    use trieste_control::steps::Outcome;

    #[test]
    fn versions_since_1_22_are_enough() {
        assert_eq!(version(1, 36, "v1.36.3").text, "Kubernetes version \"v1.36.3\" is supported");
        assert_eq!(version(1, 22, "v1.22.0").outcome, Outcome::Success);
        assert_eq!(version(1, 21, "v1.21.9").outcome, Outcome::Failure);
        assert_eq!(version(0, 0, "v0.0.0-master").outcome, Outcome::Success);
    }

    #[test]
    fn cables_that_are_not_there_yet_are_refused_by_name() {
        assert!(["", "WireGuard", "libreswan", "ipsec"].iter().all(|driver| cable(driver, &[]).is_empty()));
        assert_eq!(cable("VXLAN", &[])[0].outcome, Outcome::Warning);
        assert_eq!(cable("tin can", &[])[0].outcome, Outcome::Failure);
        let others = [offer("west", &["libreswan"]), offer("north", &["wireguard"])];
        for was_member in [true, false] {
            let found = |own: &str| drivers(&offer("east", &[own]), &others, was_member)[0].text.clone();
            assert!(found("wireguard").ends_with("none to west (libreswan)"));
            assert!(found("libreswan").ends_with("none to north (wireguard)"));
            assert_eq!(drivers(&offer("east", &["wireguard"]), &others[1..], was_member), []);
            assert_eq!(drivers(&offer("east", &["vxlan"]), &[], was_member), []);
        }
    }

    #[test]
    fn the_former_driver_is_offered_until_all_have_the_newer_one() {
        let [old, changing, new] = [&["libreswan"] as &[&str], &["wireguard", "libreswan"], &["wireguard"]]
            .map(|all| offer("west", all));
        let former = |before, former, others: &[Offer]| former_driver("wireguard", before, former, others);
        let before = Some("ipsec".to_owned());
        let libreswan = Some("libreswan".to_owned());
        assert_eq!(former(before.as_deref(), None, std::slice::from_ref(&old)), libreswan, "it changes");
        assert_eq!(
            former(before.as_deref(), None, std::slice::from_ref(&new)),
            libreswan,
            "so do its own gateways"
        );
        let again = |others: &[Offer]| former(Some("wireguard"), Some("libreswan"), others);
        assert_eq!(again(&[new.clone(), old.clone()]), libreswan);
        assert_eq!(again(&[new, changing]), None, "all have it");
        assert_eq!(former(None, None, std::slice::from_ref(&old)), None, "a newcomer has no former one");
        assert_eq!(former(Some("wireguard"), None, &[old]), None);
    }

    #[test]
    fn a_cluster_that_changes_is_told_who_has_not() {
        let ours = offer("east", &["wireguard", "libreswan"]);
        let found = drivers(&ours, &[offer("west", &["libreswan"]), offer("north", &["vxlan"])], true);
        assert!(found[0].text.ends_with("none to north (vxlan)"), "{found:?}");
        assert!(found[1].text.contains("until they join with --cable-driver wireguard: west (libreswan)"));
        let all = drivers(&ours, &[offer("west", &["wireguard", "libreswan"])], true);
        assert_eq!((all.len(), all[0].outcome), (1, Outcome::Success));
        assert!(all[0].text.contains("join once more"), "{all:?}");
    }

    fn offer(cluster: &str, drivers: &[&str]) -> Offer {
        Offer {
            cluster: cluster.to_owned(),
            drivers: drivers.iter().map(|driver| (*driver).to_owned()).collect(),
        }
    }

    #[test]
    fn a_newcomer_whose_driver_nobody_has_is_refused_and_a_member_may_change_its_own() {
        let others = [offer("west", &["libreswan"]), offer("north", &["libreswan"])];
        let ours = offer("east", &["wireguard"]);
        let refused = &drivers(&ours, &others, false)[0];
        assert_eq!(refused.outcome, Outcome::Failure);
        assert!(refused.text.contains("here wireguard") && refused.next.contains("--cable-driver libreswan"));
        assert_eq!(drivers(&ours, &others, true)[0].outcome, Outcome::Warning);
    }

    #[test]
    fn a_vxlan_cable_needs_a_node_with_an_ipv4_address() {
        let node = |addresses: &[&str]| {
            let all = addresses.iter().map(|ip| serde_json::json!({"type": "InternalIP", "address": ip}));
            serde_json::json!({"status": {"addresses": all.collect::<Vec<_>>()}})
        };
        let (v6, dual) = (node(&["fd00::1"]), node(&["fd00::2", "10.0.0.2"]));
        assert_eq!(cable("vxlan", std::slice::from_ref(&v6))[0].outcome, Outcome::Failure);
        assert_eq!(cable("vxlan", &[v6.clone(), dual])[0].outcome, Outcome::Warning);
        assert_eq!(cable("wireguard", &[v6]), []);
    }

    #[test]
    fn one_gateway_at_a_time_is_active_where_the_plugin_gives_addresses() {
        assert_eq!(active_gateways("kindnet", None), []);
        assert_eq!(active_gateways("calico", Some(ActiveGateways::One)), []);
        assert_eq!(active_gateways("calico", None)[0].outcome, Outcome::Success);
        assert_eq!(active_gateways("calico", Some(ActiveGateways::All))[0].outcome, Outcome::Warning);
    }

    #[test]
    fn plugin_promises_are_what_join_goes_by_with_each_plugin() {
        for (plugin, _) in PLUGINS {
            let has_nothing =
                [None, Some(ActiveGateways::All)].map(|chosen| active_gateways(plugin, chosen).is_empty());
            assert_eq!(has_nothing, [promise(plugin).has_several_gateways; 2], "{plugin}");
        }
    }

    #[test]
    fn plugin_ovn_has_one_active_gateway_and_no_other_choice() {
        for plugin in ["OVNKubernetes", "ovnkubernetes"] {
            let found = |chosen| active_gateways(plugin, chosen).into_iter().map(|finding| finding.outcome);
            assert_eq!(found(None).collect::<Vec<_>>(), [Outcome::Success]);
            assert_eq!(found(Some(ActiveGateways::One)).count(), 0);
            assert_eq!(found(Some(ActiveGateways::All)).collect::<Vec<_>>(), [Outcome::Failure]);
            let refused = &active_gateways(plugin, Some(ActiveGateways::All))[0];
            assert!(refused.text.contains("one next hop") && refused.next.contains("--active-gateways"));
        }
    }

    #[test]
    fn plugins_are_known_in_any_case() {
        let named = |name: &str| Plugin { name: name.to_owned(), ..Plugin::default() };
        assert_eq!(plugin(&named("Kindnet")), []);
        assert_eq!(plugin(&named("generic"))[0].outcome, Outcome::Warning);
        assert_eq!(plugin(&Plugin { called: Some("AWS VPC CNI"), ..named("generic") }), []);
        assert_eq!(plugin(&named("OVNKubernetes")), []);
        let calico = plugin(&named("Calico"));
        assert!(
            calico[0].outcome == Outcome::Success && calico[0].text.contains("trieste-plugin-sync makes")
        );
    }

    #[test]
    fn who_takes_no_part_in_globalnet_is_told_what_that_means() {
        assert_eq!(globalnet(true, true, true), []);
        assert_eq!(globalnet(true, false, false)[0].outcome, Outcome::Warning);
        assert_eq!(globalnet(false, true, true)[0].outcome, Outcome::Warning);
        assert_eq!(globalnet(false, true, false), []);
    }

    #[test]
    fn references_are_told_from_other_texts() {
        for good in [
            "trieste",
            "localhost/trieste:0.1.0",
            "registry.example.com:5000/a/trieste",
            "[fd00::1]:5000/trieste:1",
            "quay.io/x/trieste@sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef",
        ] {
            assert_eq!(image(good), [], "{good}");
        }
        for bad in ["", "a b", "x/Trieste", "trieste:", "x//y", "https://x/y", "t@sha256:12", "-x"] {
            assert_eq!(image(bad).len(), 1, "{bad}");
        }
    }

    #[test]
    fn missing_rights_are_listed() {
        let place = ObjectRef::namespaced("apps/v1", "DaemonSet", "ns", "x");
        let findings = rights(&[("create", place, "daemonsets".to_owned())]);
        assert_eq!(findings[0].text, "these credentials may not: create daemonsets.apps in ns");
    }
}
