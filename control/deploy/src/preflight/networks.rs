//! Whether a cluster's addresses are its own.

use ipnet::IpNet;
use trieste_control::api::{ClusterNetworks, ClusterSpec, overlap};
use trieste_control::claims::Allowed;
use trieste_control::spiderpool::unannounced as unannounced_pools;

use super::Finding;
use crate::discover::Network;

/// Most networks of pools that are named.
const MOST: usize = 8;

/// The other clusters of the broker: what each says of itself.
#[derive(Debug, Clone, Default)]
pub struct Others(pub Vec<ClusterSpec>);

/// Looks at our networks, the global ones included, and everybody else's.
pub fn networks(id: &str, own: &Network, global: &[IpNet], others: &Others) -> Vec<Finding> {
    let warnings = own.warnings.iter().map(|warning| (warning.clone(), String::new()));
    let warnings = warnings.chain(not_taken(own, global)).chain(unannounced(own, global));
    let mut findings: Vec<Finding> = warnings.map(|(text, next)| Finding::suspect(text, next)).collect();
    for (what, flag, subnets) in
        [("pod", "--clustercidr", &own.pods), ("service", "--servicecidr", &own.services)]
    {
        if subnets.cidrs.is_empty() {
            findings.push(Finding::bad(
                format!("the {what} CIDRs of this cluster are not written anywhere that trieste looks"),
                format!("say them with {flag}"),
            ));
        }
    }
    let extra = ClusterNetworks {
        pods: [own.pods.cidrs.as_slice(), &own.services.cidrs].concat(),
        extra: own.extra.clone(),
        ..ClusterNetworks::default()
    };
    if let Some(error) = extra.check().err().filter(|_| !own.extra.is_empty()) {
        let text = format!("the extra CIDRs of this cluster cannot be announced: {error}");
        findings.push(Finding::bad(text, "say others with --extra-cidrs"));
    }
    if let Some((pods, services)) = overlap(&own.pods.cidrs, &own.services.cidrs) {
        findings.push(Finding::bad(
            format!("the pod CIDR {pods} and the service CIDR {services} of this cluster overlap"),
            "say the right ones with --clustercidr and --servicecidr",
        ));
    }
    // Also with globalnet: what another cluster publishes without it must not be ours.
    let mine = global.iter().chain(&own.services.cidrs).chain(&own.pods.cidrs).chain(&own.extra);
    let mine: Vec<IpNet> = mine.copied().collect();
    let clashes = others.0.iter().filter(|other| other.cluster_id != id);
    let clashes = clashes.filter_map(|other| clash(&mine, !global.is_empty(), other));
    let before = findings.len();
    findings.extend(clashes);
    if findings.len() == before && !mine.is_empty() {
        findings.push(Finding::good("No CIDR is another cluster's"));
    }
    findings
}

/// Returns which of our networks other Trieste clusters do not take by default, and what they have to be told.
fn not_taken(own: &Network, global: &[IpNet]) -> Option<(String, String)> {
    let own =
        own.services.cidrs.iter().chain(&own.pods.cidrs).chain(&own.extra).filter(|_| global.is_empty());
    let refused = global.iter().chain(own).filter(|net| Allowed::default().check(net).is_err());
    let refused: Vec<String> = refused.map(ToString::to_string).collect();
    (!refused.is_empty()).then(|| {
        let flag = format!("--allow-remote-cidrs {}", refused.join(","));
        (
            format!("other Trieste clusters take {} only if they are told to", refused.join(", ")),
            format!("there, join with {flag}: by default members may have private space alone"),
        )
    })
}

/// Returns which networks of Spiderpool's pods are not announced, and what to do. With global addresses others are announced on
/// purpose.
fn unannounced(own: &Network, global: &[IpNet]) -> Option<(String, String)> {
    let spiderpool = own.spiderpool.as_ref().filter(|_| global.is_empty())?;
    let announced = [own.pods.cidrs.as_slice(), &own.services.cidrs, &own.extra].concat();
    let pools = spiderpool.pools.iter().map(|pool| (pool.network, pool.name.as_str()));
    let missing = unannounced_pools(pools, &announced);
    let named = missing.iter().take(MOST).map(|(network, name)| format!("{network} (SpiderIPPool {name})"));
    let named: Vec<String> = named.collect();
    let more = missing.len().saturating_sub(MOST);
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    (!missing.is_empty()).then(|| {
        (
            format!(
                "the cluster does not announce {}{more}: pods' addresses in these networks are not reachable from other clusters",
                named.join(", ")
            ),
            "pass them as --extra-cidrs, which takes all such networks of the cluster".to_owned(),
        )
    })
}

fn clash(mine: &[IpNet], is_global: bool, other: &ClusterSpec) -> Option<Finding> {
    let facts = match other.parse() {
        Ok(facts) => facts,
        Err(error) => {
            let id: String = other.cluster_id.escape_debug().take(63).collect();
            let text = format!("the Cluster object of {id} on the broker cannot be read: {error}");
            return Some(Finding::suspect(text, "its CIDRs were not compared with ours"));
        }
    };
    let (ours, theirs) = overlap(mine, &facts.published_subnets())?;
    Some(Finding::bad(
        format!("our {ours} overlaps {theirs} of cluster {}", facts.cluster_id),
        if is_global && facts.global_cidr.is_empty() {
            "that cluster takes no part in globalnet: join it again without --globalnet=false first"
        } else {
            "give one of the two clusters other CIDRs, or use globalnet (trieste deploy-broker --globalnet); if these \
             are not this cluster's, say the right ones with --clustercidr and --servicecidr"
        },
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::discover::{Pool, Spiderpool, Subnets};
    use trieste_control::steps::Outcome;

    fn subnets(list: &[&str]) -> Subnets {
        Subnets { cidrs: nets(list), source: String::new() }
    }

    fn nets(list: &[&str]) -> Vec<IpNet> {
        list.iter().map(|text| text.parse().unwrap()).collect()
    }

    fn own(pods: &[&str], services: &[&str]) -> Network {
        Network { pods: subnets(pods), services: subnets(services), ..Network::default() }
    }

    fn other(id: &str, cidr: &str) -> ClusterSpec {
        ClusterSpec::new(id, &[], &nets(&[cidr]))
    }

    fn failures(own: &Network, others: Vec<ClusterSpec>) -> Vec<String> {
        let findings = networks("east", own, &[], &Others(others));
        let bad = |finding: &Finding| finding.outcome == Outcome::Failure;
        findings.into_iter().filter(bad).map(|finding| finding.text).collect()
    }

    #[test]
    fn an_overlap_names_both_cidrs_and_the_cluster_and_every_one_is_said() {
        let own = own(&["10.1.0.0/16"], &["10.96.0.0/16"]);
        let others =
            vec![other("east", "10.1.0.0/16"), other("west", "10.1.5.0/24"), other("north", "10.0.0.0/8")];
        assert_eq!(
            failures(&own, others),
            [
                "our 10.1.0.0/16 overlaps 10.1.5.0/24 of cluster west",
                "our 10.96.0.0/16 overlaps 10.0.0.0/8 of cluster north"
            ]
        );
    }

    #[test]
    fn a_cluster_of_global_addresses_claims_those_alone() {
        let mut global = other("west", "10.1.0.0/16");
        global.global_cidr = vec!["242.0.0.0/16".to_owned()];
        assert_eq!(failures(&own(&["10.1.0.0/16"], &["10.96.0.0/16"]), vec![global]), Vec::<String>::new());
    }

    #[test]
    fn with_global_addresses_only_a_cluster_without_them_is_in_the_way() {
        let own = own(&["10.1.0.0/16"], &["10.96.0.0/16"]);
        let mut west = other("west", "10.1.0.0/16");
        let next = |west: &ClusterSpec| {
            let findings = networks("east", &own, &nets(&["242.1.0.0/16"]), &Others(vec![west.clone()]));
            findings.into_iter().find(|finding| finding.outcome == Outcome::Failure).map(|found| found.next)
        };
        assert!(next(&west).unwrap().contains("takes no part in globalnet"));
        west.global_cidr = vec!["242.0.0.0/16".to_owned()];
        assert_eq!(next(&west), None);
        west.global_cidr = vec!["242.1.128.0/17".to_owned()];
        assert!(next(&west).is_some());
    }

    #[test]
    fn networks_that_others_do_not_take_by_default_are_said_with_what_to_do_there() {
        let doubts = |own: &Network, global: &[IpNet]| -> Vec<(String, String)> {
            let findings = networks("east", own, global, &Others::default());
            let doubts = findings.into_iter().filter(|finding| finding.outcome == Outcome::Warning);
            doubts.map(|finding| (finding.text, finding.next)).collect()
        };
        let public = own(&["100.1.0.0/16", "10.1.0.0/16"], &["2001:db8::/32"]);
        let [(text, next)] = &doubts(&public, &[])[..] else { panic!("{:?}", doubts(&public, &[])) };
        assert!(
            text.contains("100.1.0.0/16") && text.contains("2001:db8::/32") && !text.contains("10.1."),
            "{text}"
        );
        assert!(next.contains("--allow-remote-cidrs"), "{next}");
        // What the others see is the global CIDR.
        assert_eq!(doubts(&public, &nets(&["242.1.0.0/16"])), []);
    }

    #[test]
    fn plugin_spiderpool_networks_of_pools_that_are_not_announced_are_a_warning() {
        let pool =
            |(index, net): (usize, &&str)| Pool { name: format!("p{index}"), network: net.parse().unwrap() };
        let warnings = |pools: &[&str], extra: &[&str], global: &[&str]| -> Vec<String> {
            let pools = pools.iter().enumerate().map(pool).collect();
            let spiderpool = Some(Spiderpool { coordinators: vec!["default".to_owned()], pools });
            let own = own(&["10.1.0.0/16"], &["10.96.0.0/16"]);
            let own = Network { spiderpool, extra: nets(extra), ..own };
            let findings = networks("east", &own, &nets(global), &Others::default());
            assert!(findings.iter().all(|finding| finding.outcome != Outcome::Failure), "{findings:?}");
            let warnings = findings.iter().filter(|finding| finding.outcome == Outcome::Warning);
            warnings.map(Finding::line).collect()
        };
        let text = |named: &str| {
            format!(
                "the cluster does not announce {named}: pods' addresses in these networks are not reachable from other clusters; pass \
                 them as --extra-cidrs, which takes all such networks of the cluster"
            )
        };
        for (pools, extra, named) in [
            (&[][..], &[][..], None),
            (&["10.1.4.0/24", "10.96.7.0/24"], &[], None),
            (&["172.20.1.0/24"], &[], Some("172.20.1.0/24 (SpiderIPPool p0)")),
            (&["172.20.1.0/24"], &["172.20.1.0/24"], None),
            // Two halves are the whole; one is not.
            (&["172.20.0.0/23"], &["172.20.0.0/24", "172.20.1.0/24"], None),
            (&["172.20.0.0/23"], &["172.20.0.0/24"], Some("172.20.0.0/23 (SpiderIPPool p0)")),
            // Pools of one network are one; a family that is not announced at all is left out on purpose.
            (
                &["172.20.1.0/24", "172.20.1.0/24", "fd00:20::/64"],
                &[],
                Some("172.20.1.0/24 (SpiderIPPool p0)"),
            ),
            (&["fd00:20::/64"], &["fd00:21::/64"], Some("fd00:20::/64 (SpiderIPPool p0)")),
        ] {
            assert_eq!(warnings(pools, extra, &[]), Vec::from_iter(named.map(text)), "{pools:?} {extra:?}");
            assert_eq!(warnings(pools, extra, &["242.0.0.0/16"]), Vec::<String>::new(), "with globalnet");
        }
        let many: Vec<String> = (0..10).map(|index| format!("172.20.{index}.0/24")).collect();
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        assert!(warnings(&many, &[], &[])[0].contains("172.20.7.0/24 (SpiderIPPool p7) and 2 more:"));
    }

    #[test]
    fn what_is_missing_or_overlaps_within_the_cluster_is_said_with_the_flag() {
        assert_eq!(failures(&own(&[], &["10.96.0.0/16"]), vec![]).len(), 1);
        assert_eq!(failures(&own(&["10.96.0.0/12"], &["10.96.0.0/16"]), vec![]).len(), 1);
    }

    #[test]
    fn a_cluster_that_cannot_be_read_does_not_keep_others_out() {
        let broken = ClusterSpec { cluster_cidr: vec!["x".to_owned()], ..other("west", "10.9.0.0/16") };
        let own = own(&["10.1.0.0/16"], &["10.96.0.0/16"]);
        let findings = networks("east", &own, &[], &Others(vec![broken]));
        assert_eq!(findings.len(), 1);
        assert_eq!(findings[0].outcome, Outcome::Warning);
    }
}
