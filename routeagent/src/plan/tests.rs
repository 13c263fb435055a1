mod laws;
pub(crate) mod model;
mod strategies;

use std::collections::BTreeMap;

use ipnet::IpNet;
use trieste_vxlan::Vxlan;

use super::settings::{forwarding, host_conditions, reverse_path};
use super::*;
use crate::constants::RULE_PROTOCOL;
use crate::family::Family;
use crate::hostnet::{Guard, Sysctl};
use crate::observed::{Link, ObservedRule, VxlanLink};

#[test]
fn an_empty_node_is_closed_before_it_is_opened() {
    assert_eq!(
        steps(&desired(), &live()),
        [
            "add unreachable 10.2.0.0/16 table 150 metric 4278198272",
            "add unreachable 10.2.0.0/16 table main metric 4278198272",
            "build nftables table inet trieste guarding 0 networks",
            "add 10.2.0.0/16 dev submariner table 150",
            "add IPv4 rule pref 140 fwmark 0x540000/0xff0000 iif lo lookup main",
            "add IPv4 rule pref 150 lookup 150",
        ]
    );
}

#[test]
fn uninstalling_removes_what_leads_somewhere_before_what_refuses() {
    let observed = model::apply(live(), &plan(&desired(), &live()));
    assert_eq!(
        steps(&HostNet::default(), &observed),
        [
            "remove IPv4 rule pref 150 lookup 150",
            "remove IPv4 rule pref 140 fwmark 0x540000/0xff0000 iif lo lookup main",
            "remove nftables table inet trieste",
            "remove 10.2.0.0/16 table 150 dev submariner metric 0",
            "remove 10.2.0.0/16 table 150 metric 4278198272",
            "remove 10.2.0.0/16 table main metric 4278198272",
        ]
    );
}

#[test]
fn a_node_that_stops_being_a_gateway_is_closed_before_its_rules_go() {
    let network = net("10.2.0.0/16");
    let mut gateway = desired();
    // As where a remote gateway is inside its own network: the gateway table alone closes it.
    gateway.routes.remove(&Route::unreachable(TABLE_MAIN, network));
    let observed = model::apply(live(), &plan(&gateway, &live()));
    let routes = [Route::unreachable(TABLE_MAIN, network)].into();
    let other = HostNet { routes, guard: Some(Guard::default()), ..HostNet::default() };
    assert_eq!(
        steps(&other, &observed),
        [
            "add unreachable 10.2.0.0/16 table main metric 4278198272",
            "remove IPv4 rule pref 150 lookup 150",
            "remove IPv4 rule pref 140 fwmark 0x540000/0xff0000 iif lo lookup main",
            "remove 10.2.0.0/16 table 150 dev submariner metric 0",
            "remove 10.2.0.0/16 table 150 metric 4278198272",
        ]
    );
}

#[test]
fn a_node_that_stops_being_a_gateway_is_led_to_the_others_before_its_rules_go() {
    let network = net("10.2.0.0/16");
    let observed = model::apply(live(), &plan(&desired(), &live()));
    let routes =
        [Route::leading(TABLE_MAIN, network, device("eth0")), Route::unreachable(TABLE_MAIN, network)].into();
    let worker = HostNet { routes, guard: Some(Guard::default()), ..HostNet::default() };
    assert_eq!(
        steps(&worker, &observed),
        [
            "add 10.2.0.0/16 dev eth0 table main",
            "remove IPv4 rule pref 150 lookup 150",
            "remove IPv4 rule pref 140 fwmark 0x540000/0xff0000 iif lo lookup main",
            "remove 10.2.0.0/16 table 150 dev submariner metric 0",
            "remove 10.2.0.0/16 table 150 metric 4278198272",
        ]
    );
}

#[test]
fn without_the_device_only_the_refusals_are_installed() {
    let plan = plan(&desired(), &Observed::default());
    assert!(!plan.changes.iter().any(|change| change.to_string().contains("submariner")));
    assert_eq!(plan.conditions, [Condition::NoDevice { device: "submariner".into(), exists: false }].into());
}

#[test]
fn a_route_of_someone_else_is_neither_replaced_nor_removed() {
    let mut observed = live();
    let wanted = Route::gateway(net("10.2.0.0/16"), device("submariner"));
    let mut foreign = ObservedRoute::from_route(&Route::gateway(net("10.2.0.0/16"), device("eth0")));
    foreign.protocol = 3;
    observed.routes.push(foreign);
    let plan = plan(&desired(), &observed);
    assert!(plan.conditions.contains(&Condition::Occupied(wanted.clone())));
    assert!(!plan.changes.contains(&Change::AddRoute(wanted.clone())));
    assert!(!plan.changes.contains(&Change::ReplaceRoute(wanted)));
}

#[test]
fn a_route_of_ours_that_leads_elsewhere_is_replaced_in_one_step() {
    let mut observed = live();
    let wanted = Route::gateway(net("10.2.0.0/16"), device("submariner"));
    observed.routes.push(ObservedRoute::from_route(&Route::gateway(net("10.2.0.0/16"), device("eth0"))));
    let plan = plan(&desired(), &observed);
    assert!(plan.changes.contains(&Change::ReplaceRoute(wanted)));
}

#[test]
fn a_double_rule_is_reduced_to_one() {
    let mut observed = model::apply(live(), &plan(&desired(), &live()));
    observed.rules.push(ours(Rule::gateway(Family::V4)));
    assert_eq!(plan(&desired(), &observed).changes, [Change::RemoveRule(Rule::gateway(Family::V4))]);
}

#[test]
fn a_rule_that_upstream_left_serves_and_is_not_removed() {
    let upstreams = ObservedRule { rule: Rule::gateway(Family::V4), protocol: 0 };
    let mut observed = live();
    observed.rules.push(upstreams.clone());
    assert!(!plan(&desired(), &observed).changes.contains(&Change::AddRule(upstreams.rule.clone())));
    let after = model::apply(observed.clone(), &plan(&HostNet::default(), &observed));
    assert_eq!(after.rules, [upstreams]);
}

#[test]
fn a_kernel_without_ipv6_is_not_asked_for_it() {
    let mut observed = live();
    observed.families = [Family::V4].into();
    let mut desired = desired();
    desired.routes.insert(Route::unreachable(TABLE_MAIN, net("fd00:2::/48")));
    desired.rules.insert(Rule::gateway(Family::V6));
    let plan = plan(&desired, &observed);
    assert!(!plan.changes.iter().any(|change| change.to_string().contains("fd00")));
    assert!(!plan.changes.contains(&Change::AddRule(Rule::gateway(Family::V6))));
}

#[test]
fn settings_are_written_only_where_they_differ() {
    let mut desired = HostNet::default();
    for (key, value) in [("rp_filter", 0), ("accept_local", 1), ("forwarding", 1)] {
        desired.sysctls.insert(Sysctl::of(Family::V4, "submariner", key), value);
    }
    let mut observed = live();
    observed.sysctls.insert(Sysctl::of(Family::V4, "submariner", "rp_filter"), 2);
    observed.sysctls.insert(Sysctl::of(Family::V4, "submariner", "accept_local"), 1);
    let plan = plan(&desired, &observed);
    assert_eq!(plan.changes, [Change::Set(Sysctl::of(Family::V4, "submariner", "rp_filter"), 0)]);
}

#[test]
fn a_node_that_does_not_forward_is_told_so() {
    let mut observed = live();
    observed.sysctls.insert(forwarding(Family::V4), 0);
    observed.sysctls.insert(reverse_path(), 1);
    assert_eq!(
        host_conditions(&desired(), &observed),
        [Condition::ForwardingOff(Family::V4), Condition::StrictReversePath].into()
    );
    assert!(host_conditions(&HostNet::default(), &observed).is_empty());
}

/// Returns the changes of a plan, in their order, as people read them.
fn steps(desired: &HostNet, observed: &Observed) -> Vec<String> {
    plan(desired, observed).changes.iter().map(ToString::to_string).collect()
}

fn net(text: &str) -> IpNet {
    text.parse().unwrap()
}

fn device(name: &str) -> Hop {
    Hop::Device { name: name.into(), source: None }
}

/// A node with eth0 and a TUN.
fn live() -> Observed {
    let link = |index| Link { index, is_up: true, ..Link::default() };
    Observed {
        links: BTreeMap::from([("eth0".into(), link(2)), ("submariner".into(), link(3))]),
        ..Observed::default()
    }
}

fn desired() -> HostNet {
    let network = net("10.2.0.0/16");
    HostNet {
        rules: [Rule::mark(Family::V4), Rule::gateway(Family::V4)].into(),
        routes: [
            Route::gateway(network, device("submariner")),
            Route::unreachable(TABLE_GATEWAY, network),
            Route::unreachable(TABLE_MAIN, network),
        ]
        .into(),
        guard: Some(Guard::default()),
        ..HostNet::default()
    }
}

fn link_of(vxlan: &Vxlan) -> Link {
    let kind = VxlanLink { vni: 100, port: 4800, local: Some(vxlan.local), ..VxlanLink::default() };
    Link { index: 9, is_up: true, mtu: vxlan.mtu, mac: Some(vxlan.mac()), vxlan: Some(kind) }
}

fn ours(rule: Rule) -> ObservedRule {
    ObservedRule { rule, protocol: RULE_PROTOCOL }
}
