//! Whether Cilium masquerades what pods send to other clusters.
//!
//! Where netfilter masquerades, our chain `keep-source` comes first. Cilium's eBPF programs see packets after that: a network is
//! spared by `ipv4-native-routing-cidr` and `ipv6-native-routing-cidr`, and with `enable-ip-masq-agent` by the list of the
//! ConfigMap `ip-masq-agent` (Cilium's manual, Masquerading), which is what `--fix` writes.

mod fix;
mod list;
mod settings;

use ipnet::IpNet;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use trieste_control::requirements::is_chained;
use trieste_control::steps::{Outcome, Steps};

use self::list::DEFAULT_LIST;
use self::settings::{Data, LIST, NAMESPACE, SETTINGS, has_agent, list_of, masqueraded};
use super::fix::Remedy;
use super::{CheckError, Checked};
use crate::facts::{FactError, Found, within};

/// Who else writes the list.
const BY_FIX: &str = "trieste diagnose cni --fix does that";
/// Reads Cilium's settings; `None` if the cluster has none.
///
/// # Errors
/// When the API server does not say.
pub(super) async fn settings(checked: &Checked) -> Result<Option<Data>, CheckError> {
    Ok(data(checked, SETTINGS).await?)
}

/// Returns `true` unless Cilium is behind another plugin, whose name such a cluster has.
pub(super) fn gives_addresses(settings: &Data) -> bool {
    !is_chained(settings.get("cni-chaining-mode").map(String::as_str))
}

/// Looks for remote networks towards which Cilium masquerades, after it has written what excepts them if that was asked for.
///
/// # Errors
/// When the API server does not say.
pub(super) async fn masquerade(
    checked: &Checked,
    settings: Option<&Data>,
    remote: &[IpNet],
    remedy: Remedy,
    steps: &mut dyn Steps,
) -> Result<(), CheckError> {
    match (remedy, settings) {
        (Remedy::Written, Some(settings)) => fix::fix(checked, settings, remote, steps).await,
        (Remedy::Written, None) | (Remedy::Explained, _) => {}
    }
    steps.begin("Cilium detected, checking that it does not masquerade towards other clusters");
    let Some(settings) = settings else {
        let text =
            format!("there is no ConfigMap {NAMESPACE}/{SETTINGS}: how Cilium masquerades is not known");
        steps.remark(Outcome::Warning, &text);
        steps.end(Outcome::Success);
        return Ok(());
    };
    if remote.is_empty() {
        steps.remark(
            Outcome::Warning,
            "no active gateway is connected to another cluster: there is nothing to check yet",
        );
    }
    let list = data(checked, LIST).await?;
    for (outcome, text) in problems(settings, list.as_ref(), remote) {
        steps.remark(outcome, &text);
    }
    steps.end(Outcome::Success);
    Ok(())
}

/// Reads a ConfigMap of Cilium's; `None` if there is none.
async fn data(checked: &Checked, name: &str) -> Result<Option<Data>, FactError> {
    let maps = Api::<ConfigMap>::namespaced(checked.source.client.clone(), NAMESPACE);
    Ok(match within("Cilium's settings", maps.get(name)).await? {
        Found::There(map) => Some(map.data.unwrap_or_default()),
        Found::Missing => None,
    })
}

/// Returns what is wrong: networks that are masqueraded, and settings that cannot be read.
fn problems(settings: &Data, list: Option<&Data>, remote: &[IpNet]) -> Vec<(Outcome, String)> {
    let (masqueraded, unread) = masqueraded(settings, list, remote);
    let mut found: Vec<(Outcome, String)> = unread.map(|text| (Outcome::Warning, text)).into_iter().collect();
    if masqueraded.is_empty() {
        return found;
    }
    let masqueraded: Vec<String> = masqueraded.iter().map(ToString::to_string).collect();
    let names = masqueraded.join(", ");
    let has_list = list_of(list).is_some();
    let entry = |networks: &[&str]| format!("nonMasqueradeCIDRs: [\"{}\"]", networks.join("\", \""));
    let missing: Vec<&str> = masqueraded.iter().map(String::as_str).collect();
    let mend = match (has_agent(settings), has_list) {
        (true, true) => {
            format!("add them to nonMasqueradeCIDRs in the ConfigMap {NAMESPACE}/{LIST}; {BY_FIX}")
        }
        // A list takes the place of the one that nobody has written.
        (true, false) => format!(
            "give the ConfigMap {NAMESPACE}/{LIST} an entry `config` with {}, and the cluster's own networks where they are not in these; {BY_FIX}",
            entry(&[&DEFAULT_LIST[..], &missing].concat())
        ),
        (false, false) => format!(
            "set enable-ip-masq-agent to true in {NAMESPACE}/{SETTINGS} and give the ConfigMap {NAMESPACE}/{LIST} an entry `config` \
             with {} and the cluster's own networks",
            entry(&missing)
        ),
        (false, true) => format!(
            "set enable-ip-masq-agent to true in {NAMESPACE}/{SETTINGS} and add them, with the cluster's own networks, to \
             nonMasqueradeCIDRs in the ConfigMap {NAMESPACE}/{LIST}"
        ),
    };
    let text = format!(
        "Cilium's eBPF programs masquerade what pods send to {names}: other clusters see the nodes' addresses, and refuse them. To \
         except these networks, {mend}"
    );
    found.push((Outcome::Failure, text));
    found
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    fn map(entries: &[(&str, &str)]) -> BTreeMap<String, String> {
        entries.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
    }

    fn remote() -> Vec<IpNet> {
        ["10.2.0.0/16", "100.66.0.0/16", "fd00:2::/48"].map(|text| text.parse().unwrap()).into()
    }

    #[test]
    fn plugin_cilium_behind_another_plugin_is_no_reason_to_join_again() {
        for (settings, expected) in [
            (map(&[]), true),
            (map(&[("cni-chaining-mode", "none")]), true),
            (map(&[("cni-chaining-mode", "aws-cni")]), false),
        ] {
            assert_eq!(gives_addresses(&settings), expected, "{settings:?}");
        }
    }

    #[test]
    fn plugin_cilium_networks_that_its_programs_masquerade_are_named() {
        let bpf = ("enable-bpf-masquerade", "true");
        let v6 = ("enable-ipv6", "true");
        let agent = ("enable-ip-masq-agent", "true");
        let some = map(&[("config", "nonMasqueradeCIDRs: [10.0.0.0/8, 'fd00::/8']\nmasqLinkLocal: false\n")]);
        let cases = [
            // By netfilter, behind our chain.
            (map(&[("enable-ipv4-masquerade", "true")]), None, None),
            (map(&[bpf, v6]), None, Some("send to 10.2.0.0/16, 100.66.0.0/16, fd00:2::/48:")),
            // No pod has an address of that family.
            (map(&[bpf]), None, Some("send to 10.2.0.0/16, 100.66.0.0/16:")),
            (map(&[bpf, v6, ("enable-ipv4-masquerade", "false")]), None, Some("send to fd00:2::/48:")),
            (
                map(&[
                    bpf,
                    v6,
                    ("ipv4-native-routing-cidr", "10.0.0.0/8"),
                    ("ipv6-native-routing-cidr", "fd00::/8"),
                ]),
                None,
                Some("send to 100.66.0.0/16:"),
            ),
            // The list of nobody has private networks of IPv4.
            (map(&[bpf, v6, agent]), None, Some("send to fd00:2::/48:")),
            (map(&[bpf, v6, agent]), Some(&some), Some("send to 100.66.0.0/16:")),
            (map(&[bpf, v6, agent, ("native-routing-cidr", "100.64.0.0/10")]), Some(&some), None),
        ];
        for (settings, list, expected) in cases {
            let found = problems(&settings, list, &remote());
            assert_eq!(found.len(), usize::from(expected.is_some()), "{settings:?}: {found:?}");
            if let Some(expected) = expected {
                assert!(found[0].0 == Outcome::Failure && found[0].1.contains(expected), "{found:?}");
                let has_agent = settings.contains_key(agent.0);
                assert_ne!(found[0].1.contains("set enable-ip-masq-agent"), has_agent, "{found:?}");
                // A list takes the place of the one that nobody has written.
                let is_whole = found[0].1.contains("[\"10.0.0.0/8\"");
                assert_eq!(is_whole, has_agent && list.is_none(), "{found:?}");
            }
        }
    }

    #[test]
    fn plugin_cilium_a_list_that_cannot_be_read_is_named() {
        let settings = map(&[("enable-bpf-masquerade", "true"), ("enable-ip-masq-agent", "true")]);
        let found = problems(&settings, Some(&map(&[("config", "nonMasqueradeCIDRs: 7")])), &remote());
        assert!(found[0].1.contains("kube-system/ip-masq-agent cannot be read"), "{found:?}");
        assert_eq!(found.len(), 2);
    }
}
