use std::net::IpAddr;
use std::sync::Arc;

use trieste_control::services::{Frontend, Protocol};

use super::*;
use crate::services::{Pick, render::render};

fn rules(leads: &[(&str, &[&str])]) -> ClustersetRules {
    let lead = |(ip, targets): &(&str, &[&str])| {
        let frontend = Frontend { address: ip.parse().unwrap(), protocol: Protocol::Tcp, port: 80 };
        let targets: Vec<_> = targets.iter().map(|target| ((target.parse().unwrap(), 80), 1)).collect();
        (frontend, Arc::new(Pick::weighted(Protocol::Tcp, true, &targets).unwrap()))
    };
    let pods = ["10.1.3.10".parse::<IpAddr>().unwrap()].into();
    ClustersetRules {
        range: ["243.0.0.0/8".parse().unwrap()].into(),
        ips: Arc::new(VirtualIps { leads: leads.iter().map(lead).collect(), pods }),
    }
}

#[test]
fn what_leads_nowhere_is_refused_before_anything_is_known() {
    let range: BTreeSet<IpNet> = ["243.0.0.0/8".parse().unwrap()].into();
    let unknown = DesiredClusterset::AsItIs { range };
    let built = clusterset_change(&unknown, &ObservedServices::Absent).unwrap();
    let text = render(&built).to_string();
    assert!(text.contains("host-unreachable") && text.contains("243.0.0.0"), "{text}");
    let there = ObservedServices::Present(table(&rules(&[("243.0.0.7", &["100.66.0.1"])])));
    assert_eq!(clusterset_change(&unknown, &there), None, "what a former process led stays");
    assert_eq!(clusterset_change(&unknown, &ObservedServices::Unknown), None);
}

#[test]
fn an_address_that_leads_elsewhere_leaves_the_others_alone() {
    let before = rules(&[("243.0.0.7", &["100.66.0.1", "100.67.0.1"]), ("243.0.0.8", &["100.66.0.2"])]);
    let after = rules(&[("243.0.0.7", &["100.67.0.1"]), ("243.0.0.8", &["100.66.0.2"])]);
    let there = ObservedServices::Present(table(&before));
    assert_eq!(clusterset_change(&DesiredClusterset::Rules(before), &there), None);
    let change = clusterset_change(&DesiredClusterset::Rules(after), &there).unwrap();
    let text = render(&change).to_string();
    assert!(text.contains("243.0.0.7") && !text.contains("243.0.0.8"), "{text}");
    assert!(!text.contains("hook"), "chains that are entered stay: {text}");
}

#[test]
fn without_a_range_there_is_no_table() {
    let there = ObservedServices::Present(table(&rules(&[])));
    let removal = clusterset_change(&DesiredClusterset::Absent, &there).unwrap();
    assert_eq!(removal.to_string(), "remove nftables table inet trieste-clusterset");
    assert_eq!(clusterset_change(&DesiredClusterset::Absent, &ObservedServices::Absent), None);
}
