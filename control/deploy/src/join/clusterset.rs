//! The block of which a cluster gives addresses that stand for services in all clusters.

use ipnet::{IpNet, Ipv4Net};

use crate::objects::MemberOptions;
use crate::preflight::{Finding, Others};
use crate::shares::{self, Allocations, Foreign, Wish};

/// What is asked of the addresses that stand for services in all clusters.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ClustersetIps {
    /// Whether services have one whose exports say nothing of it; what the broker says if nothing is asked.
    pub is_default: Option<bool>,
    /// The block that this cluster gives them of.
    pub cidr: Option<Ipv4Net>,
}

/// Chooses the block, and whether services have such an address by themselves, and puts both into the member's choices. Returns
/// what is wanted and what it must not overlap, if there is to be a block, and what to tell.
///
/// A cluster has one also where such addresses are off: an export may ask for one. Then what is in the way is a doubt.
pub(super) fn choose(
    options: &ClustersetIps,
    member: &mut MemberOptions,
    (allocations, others): (Option<&Allocations>, &Others),
) -> (Option<(Wish, Foreign)>, Vec<Finding>) {
    let is_asked_for = options.is_default == Some(true) || options.cidr.is_some();
    let without_effect = |why: &str, next: &str| {
        let text = format!("{why}: --enable-clusterset-ip and --clusterset-ip-cidr have no effect");
        (None, is_asked_for.then(|| Finding::suspect(text, next)).into_iter().collect())
    };
    if !member.has_service_discovery() {
        return without_effect("this cluster takes no part in service discovery", "");
    }
    let Some(allocations) = allocations else {
        return without_effect("the broker has no clusterset IPs", "run trieste deploy-broker there again");
    };
    let inside: Vec<IpNet> =
        [member.service_cidrs.as_slice(), &member.cluster_cidrs, &member.global_cidrs].concat();
    let foreign = Foreign::of(&member.cluster_id, &inside, &others.0);
    let wish = Wish { cidr: options.cidr, size: None };
    member.clusterset_ips_by_default = options.is_default.unwrap_or_else(|| allocations.is_enabled());
    let is_needed = member.clusterset_ips_by_default || options.cidr.is_some();
    match shares::choose(allocations, &member.cluster_id, wish, &foreign) {
        Ok(share) => {
            member.clusterset_ip_cidrs = vec![share.cidr.into()];
            member.clusterset_ip_range = Some(allocations.range());
            (Some((wish, foreign)), vec![share.finding(wish)])
        }
        Err(why) => (None, vec![why.unless_ignored(!is_needed)]),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use trieste_control::steps::Outcome;

    use super::*;
    use crate::objects::{BrokerAccess, Secret};
    use crate::shares::CLUSTERSET_IPS;

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
        ClustersetIps { is_default, cidr: cidr.map(|cidr| cidr.parse().unwrap()) }
    }

    /// Returns the block, whether services have addresses by themselves, and what is told.
    fn chosen(
        options: ClustersetIps,
        mut member: MemberOptions,
        there: Option<&Allocations>,
    ) -> (String, bool, Vec<Finding>) {
        let (wanted, findings) = choose(&options, &mut member, (there, &Others(Vec::new())));
        assert_eq!(wanted.is_some(), !member.clusterset_ip_cidrs.is_empty());
        assert_eq!(wanted.is_some(), member.clusterset_ip_range.is_some());
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
                chosen(say(said, None), member(), Some(&there(broker, others)));
            assert_eq!((cidr.as_str(), is_default), ("243.0.16.0/20", expected));
            assert_eq!(findings[0].text, "Allocated clusterset IP CIDR 243.0.16.0/20");
        }
        let before = r#"[{"cluster_id": "east", "global_cidr": ["243.7.0.0/20"]}]"#;
        assert_eq!(chosen(say(None, None), member(), Some(&there(false, before))).0, "243.7.0.0/20");
        let (cidr, _, findings) =
            chosen(say(None, Some("243.8.0.0/24")), member(), Some(&there(false, before)));
        assert_eq!((cidr.as_str(), findings[0].outcome), ("243.8.0.0/24", Outcome::Warning));
        assert!(findings[0].text.contains("services keep their clusterset IPs"), "{:?}", findings[0]);
    }

    #[test]
    fn a_block_that_cannot_be_is_refused_only_where_one_is_needed() {
        let empty = there(false, "[]");
        for (cidr, why) in [
            ("244.0.0.0/20", "is not in the broker's range 243.0.0.0/8"),
            ("243.0.0.0/31", "too small: its first and its last address are given to no service"),
        ] {
            let (none, _, findings) = chosen(say(None, Some(cidr)), member(), Some(&empty));
            assert_eq!((none.as_str(), findings[0].outcome), ("", Outcome::Failure));
            assert!(findings[0].text.contains(why), "{:?}", findings[0]);
        }
        let mut inside = member();
        inside.cluster_cidrs = vec!["243.0.0.0/8".parse().unwrap()];
        let (none, _, findings) = chosen(say(None, None), inside.clone(), Some(&empty));
        assert_eq!((none.as_str(), findings[0].outcome), ("", Outcome::Warning));
        let (_, _, findings) = chosen(say(None, None), inside, Some(&there(true, "[]")));
        assert_eq!(findings[0].outcome, Outcome::Failure);
    }

    #[test]
    fn who_has_no_services_or_no_such_broker_is_told_if_it_asks() {
        let mut declines = member();
        declines.declines_service_discovery = true;
        let allocations = there(true, "[]");
        for (member, there) in [(declines, Some(&allocations)), (member(), None)] {
            assert_eq!(chosen(say(None, None), member.clone(), there), (String::new(), false, Vec::new()));
            let (_, _, findings) = chosen(say(Some(true), None), member, there);
            assert_eq!((findings.len(), findings[0].outcome), (1, Outcome::Warning));
            assert!(findings[0].text.ends_with("have no effect"));
        }
    }
}
