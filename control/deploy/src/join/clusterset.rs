//! The blocks of which a cluster gives addresses that stand for services in all clusters: one of each family that the broker has a
//! range of.

use ipnet::IpNet;

use crate::objects::MemberOptions;
use crate::preflight::{Finding, Others};
use crate::shares::{self, Allocations, CLUSTERSET_IPS, CLUSTERSET_IPV6, Foreign, Kind, Wish};

/// What is asked of the addresses that stand for services in all clusters.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ClustersetIps {
    /// Whether services have one whose exports say nothing of it; what the broker says if nothing is asked.
    pub is_default: Option<bool>,
    /// The blocks that this cluster gives them of; at most one of each family.
    pub cidrs: Vec<IpNet>,
}

/// A block that is wanted.
#[derive(Debug, Clone)]
pub(super) struct Block {
    pub(super) kind: &'static Kind,
    pub(super) wish: Wish,
    /// What it must not overlap.
    pub(super) foreign: Foreign,
}

/// Chooses the blocks, and whether services have such an address by themselves, and puts both into the member's choices. Returns
/// the blocks in the order in which the member has them, and what to tell.
///
/// A cluster has one also where such addresses are off: an export may ask for one. Then what is in the way is a doubt, as it is for
/// one of IPv6 that nobody has asked for.
pub(super) fn choose(
    options: &ClustersetIps,
    member: &mut MemberOptions,
    ([ipv4, ipv6], others): ([Option<&Allocations>; 2], &Others),
) -> (Vec<Block>, Vec<Finding>) {
    member.clusterset_ip_cidrs.clear();
    member.clusterset_ip_ranges.clear();
    let is_asked_for = options.is_default == Some(true) || !options.cidrs.is_empty();
    let without_effect = |why: &str, next: &str| {
        let text = format!("{why}: --enable-clusterset-ip and --clusterset-ip-cidr have no effect");
        (Vec::new(), is_asked_for.then(|| Finding::suspect(text, next)).into_iter().collect())
    };
    if !member.has_service_discovery() {
        return without_effect("this cluster takes no part in service discovery", "");
    }
    let Some(ipv4) = ipv4 else {
        return without_effect("the broker has no clusterset IPs", "run trieste deploy-broker there again");
    };
    member.clusterset_ips_by_default = options.is_default.unwrap_or_else(|| ipv4.is_enabled());
    let inside: Vec<IpNet> =
        [member.service_cidrs.as_slice(), &member.cluster_cidrs, &member.global_cidrs].concat();
    let foreign = Foreign::of(&member.cluster_id, &inside, &others.0);
    let (mut blocks, mut findings) = (Vec::new(), Vec::new());
    for (kind, allocations) in [(&CLUSTERSET_IPS, Some(ipv4)), (&CLUSTERSET_IPV6, ipv6)] {
        let of_family = |net: &&IpNet| matches!(net, IpNet::V6(_)) == kind.is_ipv6;
        let mut named = options.cidrs.iter().filter(of_family);
        let wish = Wish { cidr: named.next().copied(), size: None };
        if let Some(second) = named.next() {
            let text =
                format!("{} names two blocks of one family, the second of which is {second}", kind.flag);
            findings.push(Finding::bad(text, "say one of each family"));
        }
        let Some(allocations) = allocations else {
            findings.extend(wish.cidr.map(|cidr| {
                let text =
                    format!("the broker has no {}: {} {cidr} has no effect", kind.addresses, kind.flag);
                Finding::suspect(text, "run trieste deploy-broker there again")
            }));
            continue;
        };
        // Others' addresses are theirs, whatever block this cluster gets.
        member.clusterset_ip_ranges.push(allocations.range());
        let is_needed = wish.cidr.is_some() || member.clusterset_ips_by_default && !kind.is_ipv6;
        match shares::choose(allocations, &member.cluster_id, wish, &foreign) {
            Ok(share) => {
                member.clusterset_ip_cidrs.push(share.cidr);
                blocks.push(Block { kind, wish, foreign: foreign.clone() });
                findings.push(share.finding(wish));
            }
            Err(why) => findings.push(why.unless_ignored(!is_needed)),
        }
    }
    (blocks, findings)
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use trieste_control::steps::Outcome;

    use super::*;
    use crate::objects::{BrokerAccess, Secret};

    fn there(is_enabled: bool, entries: &str) -> Allocations {
        let map = json!({"data": {"clustersetIPEnabled": is_enabled.to_string(), "clusterinfo": entries,
            "clustersetIPCidrRange": "\"243.0.0.0/8\"", "clustersetIPClusterSize": "4096"}});
        Allocations::read(&map, &CLUSTERSET_IPS).unwrap()
    }

    fn member() -> MemberOptions {
        let mut member =
            MemberOptions::new("east", BrokerAccess::new("b:1", None, Secret::default()), Secret::new("k"));
        member.service_discovery = true;
        member
    }

    fn say(is_default: Option<bool>, cidr: Option<&str>) -> ClustersetIps {
        let cidrs = cidr.into_iter().flat_map(|cidrs| cidrs.split(','));
        ClustersetIps { is_default, cidrs: cidrs.map(|cidr| cidr.parse().unwrap()).collect() }
    }

    fn there6(entries: &str) -> Allocations {
        let map = json!({"data": {"clustersetIPEnabled": "true", "clusterinfo": entries,
            "clustersetIPCidrRange": "\"fd00:243::/48\"", "clustersetIPClusterSize": "65536"}});
        Allocations::read(&map, &CLUSTERSET_IPV6).unwrap()
    }

    /// Returns the block, whether services have addresses by themselves, and what is told.
    fn chosen(
        options: &ClustersetIps,
        member: MemberOptions,
        there: Option<&Allocations>,
    ) -> (String, bool, Vec<Finding>) {
        chosen_of(options, member, [there, None])
    }

    fn chosen_of(
        options: &ClustersetIps,
        mut member: MemberOptions,
        there: [Option<&Allocations>; 2],
    ) -> (String, bool, Vec<Finding>) {
        let (wanted, findings) = choose(options, &mut member, (there, &Others(Vec::new())));
        assert_eq!(wanted.len(), member.clusterset_ip_cidrs.len());
        // Of others' addresses it is told whatever block it gets itself.
        let ranges = there.iter().flatten().count();
        assert!([0, ranges].contains(&member.clusterset_ip_ranges.len()));
        assert!(wanted.len() <= member.clusterset_ip_ranges.len());
        let cidrs: Vec<String> = member.clusterset_ip_cidrs.iter().map(ToString::to_string).collect();
        (cidrs.join(","), member.clusterset_ips_by_default, findings)
    }

    #[test]
    fn a_cluster_gets_the_first_free_block_and_the_brokers_default_or_its_own() {
        let others = r#"[{"cluster_id": "west", "global_cidr": ["243.0.0.0/20"]}]"#;
        for (said, broker, expected) in
            [(None, false, false), (None, true, true), (Some(true), false, true), (Some(false), true, false)]
        {
            let (cidr, is_default, findings) =
                chosen(&say(said, None), member(), Some(&there(broker, others)));
            assert_eq!((cidr.as_str(), is_default), ("243.0.16.0/20", expected));
            assert_eq!(findings[0].text, "Allocated clusterset IP CIDR 243.0.16.0/20");
        }
        let before = r#"[{"cluster_id": "east", "global_cidr": ["243.7.0.0/20"]}]"#;
        assert_eq!(chosen(&say(None, None), member(), Some(&there(false, before))).0, "243.7.0.0/20");
        let (cidr, _, findings) =
            chosen(&say(None, Some("243.8.0.0/24")), member(), Some(&there(false, before)));
        assert_eq!((cidr.as_str(), findings[0].outcome), ("243.8.0.0/24", Outcome::Warning));
        assert!(findings[0].text.contains("services keep their clusterset IPs"), "{:?}", findings[0]);
    }

    #[test]
    fn a_cluster_gets_a_block_of_each_family_that_the_broker_has_a_range_of() {
        let four = there(false, "[]");
        let six = there6(r#"[{"cluster_id": "west", "global_cidr": ["fd00:243::/112"]}]"#);
        let both = [Some(&four), Some(&six)];
        let (cidrs, is_default, findings) = chosen_of(&say(None, None), member(), both);
        assert_eq!((cidrs.as_str(), is_default), ("243.0.0.0/20,fd00:243::1:0/112", false));
        assert_eq!(findings[1].text, "Allocated IPv6 clusterset IP CIDR fd00:243::1:0/112");
        let blocks = "fd00:243::ab:0:0:0/80,243.7.0.0/20";
        let (cidrs, _, findings) = chosen_of(&say(None, Some(blocks)), member(), both);
        assert_eq!(cidrs, "243.7.0.0/20,fd00:243:0:0:ab::/80");
        assert!(findings.iter().all(|finding| finding.outcome == Outcome::Success), "{findings:?}");
        for (block, why) in [
            ("fd00:244::/112", "is not in the broker's range fd00:243::/48"),
            ("fd00:243::/127", "too small"),
            ("fd00:243::8000/113", "which is given to cluster west"),
            ("fd00:243::5:0/112,fd00:243::6:0/112", "two blocks of one family"),
        ] {
            let (_, _, findings) = chosen_of(&say(None, Some(block)), member(), both);
            let found = findings.iter().find(|finding| finding.outcome == Outcome::Failure);
            assert!(found.is_some_and(|found| found.text.contains(why)), "{block}: {findings:?}");
        }
        // Where one of IPv6 cannot be, that is a doubt unless it was asked for.
        let mut inside = member();
        inside.service_cidrs = vec!["fd00:243::/32".parse().unwrap()];
        let (cidrs, _, findings) = chosen_of(&say(Some(true), None), inside, both);
        assert_eq!((cidrs.as_str(), findings[1].outcome), ("243.0.0.0/20", Outcome::Warning));
        let (cidrs, _, findings) =
            chosen_of(&say(None, Some("fd00:243::7:0/112")), member(), [Some(&four), None]);
        assert_eq!((cidrs.as_str(), findings[0].outcome), ("243.0.0.0/20", Outcome::Success));
        assert!(
            findings.iter().any(|finding| finding.text.contains("has no IPv6 clusterset IPs")),
            "{findings:?}"
        );
    }

    #[test]
    fn a_block_that_cannot_be_is_refused_only_where_one_is_needed() {
        let empty = there(false, "[]");
        for (cidr, why) in [
            ("244.0.0.0/20", "is not in the broker's range 243.0.0.0/8"),
            ("243.0.0.0/31", "too small: its first and its last address are given to no service"),
        ] {
            let (none, _, findings) = chosen(&say(None, Some(cidr)), member(), Some(&empty));
            assert_eq!((none.as_str(), findings[0].outcome), ("", Outcome::Failure));
            assert!(findings[0].text.contains(why), "{:?}", findings[0]);
        }
        let mut inside = member();
        inside.cluster_cidrs = vec!["243.0.0.0/8".parse().unwrap()];
        let (none, _, findings) = chosen(&say(None, None), inside.clone(), Some(&empty));
        assert_eq!((none.as_str(), findings[0].outcome), ("", Outcome::Warning));
        let (_, _, findings) = chosen(&say(None, None), inside, Some(&there(true, "[]")));
        assert_eq!(findings[0].outcome, Outcome::Failure);
    }

    #[test]
    fn who_has_no_services_or_no_such_broker_is_told_if_it_asks() {
        let mut declines = member();
        declines.declines_service_discovery = true;
        let allocations = there(true, "[]");
        for (member, there) in [(declines, Some(&allocations)), (member(), None)] {
            assert_eq!(chosen(&say(None, None), member.clone(), there), (String::new(), false, Vec::new()));
            let (_, _, findings) = chosen(&say(Some(true), None), member, there);
            assert_eq!((findings.len(), findings[0].outcome), (1, Outcome::Warning));
            assert!(findings[0].text.ends_with("have no effect"));
        }
    }
}
