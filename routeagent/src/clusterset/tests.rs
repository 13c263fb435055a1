use std::collections::BTreeMap;
use std::sync::Arc;

use trieste_control::services::{Frontend, Protocol};

use super::*;
use crate::services::Pick;

const FOUR: &str = "243.0.0.0/8";
const SIX: &str = "fd00:243::/48";

fn node(ranges: &[&str], pods: &str) -> Node {
    let networks = |texts: &[&str]| texts.iter().map(|text| text.parse().unwrap()).collect();
    Node { clusterset_range: networks(ranges), pod_networks: networks(&[pods]), ..Node::default() }
}

/// Clusterset IPs of both families.
fn known() -> Clusterset {
    let lead = |(ip, target): (&str, &str)| {
        let frontend = Frontend { address: ip.parse().unwrap(), protocol: Protocol::Tcp, port: 80 };
        let pick = Pick::weighted(Protocol::Tcp, true, &[((target.parse().unwrap(), 80), 1)]).unwrap();
        (frontend, Arc::new(pick))
    };
    let leads = [("243.0.0.7", "10.2.0.9"), ("fd00:243::7", "fd00:2::9")].map(lead);
    let ips = VirtualIps { leads: BTreeMap::from(leads), ..VirtualIps::default() };
    Clusterset { ips: Some(ips.into()), error: None }
}

/// Returns the ranges and addresses that are led.
fn led(desired: &DesiredClusterset) -> Vec<String> {
    let DesiredClusterset::Rules(rules) = desired else { return Vec::new() };
    let ranges = rules.range.iter().map(ToString::to_string);
    ranges.chain(rules.ips.leads.keys().map(|frontend| frontend.address.to_string())).collect()
}

#[test]
fn ranges_of_both_families_are_led() {
    let (wanted, conditions) = desired(&node(&[FOUR, SIX], "10.1.0.0/16"), &known());
    assert_eq!(led(&wanted), [FOUR, SIX, "243.0.0.7", "fd00:243::7"]);
    assert!(conditions.is_empty());
}

#[test]
fn a_range_in_the_own_networks_is_left_alone_and_that_of_the_other_family_led() {
    for (pods, left) in [("fd00:243::/64", FOUR), ("243.1.0.0/16", SIX)] {
        let (wanted, conditions) = desired(&node(&[FOUR, SIX], pods), &known());
        let ip = if left == FOUR { "243.0.0.7" } else { "fd00:243::7" };
        assert_eq!(led(&wanted), [left, ip]);
        let network = pods.parse().unwrap();
        let other = if left == FOUR { SIX } else { FOUR }.parse().unwrap();
        assert_eq!(conditions, [Condition::ClustersetRange { range: other, network }]);
        let (wanted, _) = desired(&node(&[FOUR, SIX], pods), &Clusterset::default());
        assert_eq!(wanted, DesiredClusterset::AsItIs { range: [left.parse().unwrap()].into() });
    }
    let (wanted, conditions) = desired(&node(&[FOUR], "243.1.0.0/16"), &known());
    assert_eq!((wanted, conditions.len()), (DesiredClusterset::Absent, 1));
}
