use std::collections::BTreeSet;

use trieste_vxlan::Mac;

use super::super::KubeProxy;
use super::super::tests::{cluster, routes};
use crate::condition::Condition;
use crate::constants::VX_DEVICE;
use crate::driver::{Desired, Driver};
use crate::family::Family;
use crate::hostnet::Sysctl;
use crate::nexthops::{Nexthop, Role, group_id};
use crate::state::{ClusterState, Endpoint};

#[test]
fn a_worker_spreads_over_all_gateways_what_is_for_clusters_that_know_several() {
    let desired = KubeProxy.desired(&several("a-w1"));
    let others = group_id(Role::Others, Family::V4);
    assert_eq!(
        routes(&desired),
        [
            format!("10.2.0.0/16 nhid {others} src 10.1.3.1 table main mtu 8920"),
            "unreachable 10.2.0.0/16 table main metric 4278198272".to_owned(),
            // Upstream's cluster knows the leader alone.
            "10.3.0.0/16 via 240.31.1.11 dev vx-submariner src 10.1.3.1 table main mtu 8920".to_owned(),
            "unreachable 10.3.0.0/16 table main metric 4278198272".to_owned(),
            format!("fd00:2::/48 nhid {} table main mtu 8920", others + 1),
            "unreachable fd00:2::/48 table main metric 4278198272".to_owned(),
        ]
    );
    assert_eq!(vias(&desired, others), ["240.31.1.11", "240.31.1.22"]);
    assert_eq!(vias(&desired, others + 1), ["fe80::54:acff:fe1f:10b", "fe80::54:acff:fe1f:116"]);
    let vxlan = desired.hostnet.vxlan.unwrap();
    let any: BTreeSet<String> = vxlan
        .forwards
        .iter()
        .filter(|entry| entry.mac == Mac::ANY)
        .map(|entry| entry.to.to_string())
        .collect();
    assert_eq!(any, ["172.31.1.11".to_owned(), "172.31.1.22".to_owned()].into());
    assert_eq!(desired.hostnet.guard.unwrap().vxlan, [4800].into(), "notices come as answers");
    assert!(desired.conditions.is_empty(), "{:?}", desired.conditions);
}

#[test]
fn there_are_next_hops_of_a_family_while_a_remote_network_is_of_it() {
    let mut state = several("a-gw1");
    for endpoint in state.endpoints.iter_mut().filter(|endpoint| endpoint.cluster != "a") {
        endpoint.subnets.retain(|net| Family::of_net(net) == Family::V4);
    }
    let desired = KubeProxy.desired(&state);
    let families: BTreeSet<Family> =
        desired.hostnet.nexthop_groups.nexthops.values().map(|nexthop| nexthop.family).collect();
    assert_eq!(families, [Family::V4].into());
    let off = Sysctl::of(Family::V6, VX_DEVICE, "disable_ipv6");
    assert_eq!(desired.hostnet.sysctls[&off], 1, "what is off takes no next hop");
}

#[test]
fn only_the_group_follows_who_lives() {
    let (all, mut state) = (KubeProxy.desired(&several("a-w1")), several("a-w1"));
    state.live = Some([state.members[1].key()].into());
    let one = KubeProxy.desired(&state);
    let others = group_id(Role::Others, Family::V4);
    assert_eq!(vias(&one, others), ["240.31.1.22"]);
    assert_eq!(
        (&one.hostnet.routes, &one.hostnet.nexthop_groups),
        (&all.hostnet.routes, &all.hostnet.nexthop_groups)
    );
}

#[test]
fn a_gateways_node_takes_its_own_device_first_and_the_others_behind_it() {
    let desired = KubeProxy.desired(&several("a-gw1"));
    let (first, others) = (group_id(Role::First, Family::V4), group_id(Role::Others, Family::V4));
    let of_gateway: Vec<String> = routes(&desired).into_iter().filter(|r| r.contains("table 150")).collect();
    assert_eq!(
        of_gateway,
        [
            format!("10.2.0.0/16 nhid {first} src 10.1.1.1 table 150"),
            format!("10.2.0.0/16 nhid {others} src 10.1.1.1 table 150 metric 100"),
            "unreachable 10.2.0.0/16 table 150 metric 4278198272".to_owned(),
            "10.3.0.0/16 dev submariner src 10.1.1.1 table 150".to_owned(),
            "unreachable 10.3.0.0/16 table 150 metric 4278198272".to_owned(),
            format!("fd00:2::/48 nhid {} table 150", first + 1),
            format!("fd00:2::/48 nhid {} table 150 metric 1124", others + 1),
            "unreachable fd00:2::/48 table 150 metric 4278198272".to_owned(),
        ]
        .map(|line| if line.starts_with("fd00:2::/48 nhid") {
            format!("{line} mtu 8920")
        } else {
            line
        })
    );
    assert_eq!(devices(&desired, first), ["submariner"]);
    assert_eq!(vias(&desired, others), ["240.31.1.22"]);
    let guard = desired.hostnet.guard.unwrap();
    assert_eq!(guard.vxlan, [4800, 4801].into());
    let texts = |nets: &BTreeSet<ipnet::IpNet>| nets.iter().map(ToString::to_string).collect::<Vec<_>>();
    assert_eq!(texts(&guard.onward), ["10.2.0.0/15", "fd00:2::/48"]);
    assert_eq!(texts(&guard.behind).len(), 4, "{:?}", guard.behind);
    assert_eq!(guard.siblings, [Mac::of_node("172.31.1.22".parse().unwrap())].into());
}

#[test]
fn a_node_whose_gateway_is_called_dead_sends_to_the_others() {
    let mut state = several("a-gw1");
    state.live = Some([state.members[1].key()].into());
    let desired = KubeProxy.desired(&state);
    assert_eq!(vias(&desired, group_id(Role::First, Family::V4)), ["240.31.1.22"]);
}

#[test]
fn a_gateway_that_does_not_lead_sends_to_the_leader_what_is_for_upstreams_clusters() {
    let mut state = several("a-w2");
    state.addresses = several("a-gw1").addresses;
    let own = "172.31.1.22/24".parse().unwrap();
    state.addresses.insert(crate::state::DeviceAddress { device: "eth0".into(), network: own });
    let desired = KubeProxy.desired(&state);
    let upstreams: Vec<String> = routes(&desired).into_iter().filter(|r| r.starts_with("10.3.")).collect();
    assert_eq!(upstreams, ["10.3.0.0/16 via 240.31.1.11 dev vx-submariner src 10.1.1.1 table 150"]);
    // It is a gateway all the same: it delivers, and takes its own device for the others.
    let delivery = routes(&desired).into_iter().filter(|route| route.ends_with("table 149")).count();
    assert_eq!(delivery, 4);
    assert_eq!(devices(&desired, group_id(Role::First, Family::V4)), ["submariner"]);
}

#[test]
fn without_groups_in_the_kernel_one_live_gateway_is_taken() {
    let mut state = several("a-w1");
    state.has_nexthops = false;
    let to = |state: &ClusterState| routes(&KubeProxy.desired(state))[0].clone();
    assert!(to(&state).contains("via 240.31.1."), "{}", to(&state));
    for member in state.members.clone() {
        state.live = Some([member.key()].into());
        let via = Mac::of_node(member.private_address().unwrap()).0;
        assert!(to(&state).contains(&format!("via 240.31.1.{}", via[5])), "{}", to(&state));
    }
    assert!(KubeProxy.desired(&state).hostnet.nexthop_groups.nexthops.is_empty());
}

#[test]
fn one_gateway_that_tells_of_itself_changes_nothing() {
    let mut state = cluster("a-w1", &["10.2.0.0/16"]);
    let before = KubeProxy.desired(&state);
    state.has_nexthops = true;
    state.members = vec![state.endpoints[0].clone()];
    assert_eq!(KubeProxy.desired(&state), before);
    assert_eq!(state.notice_senders().len(), 1, "its notices are followed before a second one comes");
}

#[test]
fn the_node_of_a_gateway_that_is_alone_takes_hellos() {
    let mut state = several("a-gw1");
    state.members.truncate(1);
    let guard = KubeProxy.desired(&state).hostnet.guard.unwrap();
    assert_eq!(guard.vxlan, [4800, 4801].into());
}

#[test]
fn a_second_gateway_gets_nothing_before_it_has_said_that_it_is_ready() {
    let mut state = several("a-w1");
    state.live = Some([state.members[0].key()].into());
    let desired = KubeProxy.desired(&state);
    assert_eq!(vias(&desired, group_id(Role::Others, Family::V4)), ["240.31.1.11"]);
}

#[test]
fn while_no_gateway_leads_packets_go_on() {
    let (mut state, before) = (several("a-w1"), KubeProxy.desired(&several("a-w1")));
    state.endpoints.remove(0);
    let desired = KubeProxy.desired(&state);
    assert_eq!(desired.hostnet.groups, before.hostnet.groups);
    assert_eq!(desired.hostnet.nexthop_groups, before.hostnet.nexthop_groups);
    assert!(routes(&desired)[0].starts_with("10.2.0.0/16 nhid"));
    // Upstream's clusters have to wait for a leader; their traffic is refused meanwhile.
    assert!(!desired.conditions.contains(&Condition::NoIpv4BetweenNodes));
    assert!(!routes(&desired).iter().any(|route| route.starts_with("10.3.0.0/16 via")));
}

/// Cluster `a` with the gateways `a-gw1`, which leads, and `a-w2`; `b` knows both, `c` is upstream's.
fn several(seen_from: &str) -> ClusterState {
    let mut state = cluster(seen_from, &["10.2.0.0/16", "fd00:2::/48"]);
    state.has_nexthops = true;
    state.endpoints[0].has_multipath = true;
    state.endpoints[0].interface = Some("submariner".into());
    state.endpoints[1].has_multipath = true;
    let mut upstreams = Endpoint::new("c-cable", "c", "c-gw1");
    upstreams.subnets = vec!["10.3.0.0/16".parse().unwrap()];
    state.endpoints.push(upstreams);
    let mut second = Endpoint { name: "trieste-a-w2".into(), ..Endpoint::new("x", "a", "a-w2") };
    second.addresses = vec!["172.31.1.22".parse().unwrap()];
    second.interface = Some("submariner".into());
    state.members = vec![state.endpoints[0].clone(), second];
    state
}

fn of_group(desired: &Desired, id: u32) -> Vec<&Nexthop> {
    desired.hostnet.groups[&id]
        .iter()
        .map(|member| &desired.hostnet.nexthop_groups.nexthops[member])
        .collect()
}

fn vias(desired: &Desired, id: u32) -> Vec<String> {
    let of_group = of_group(desired, id);
    assert!(of_group.iter().all(|nexthop| nexthop.device == VX_DEVICE));
    let vias: BTreeSet<String> =
        of_group.iter().filter_map(|nexthop| nexthop.via).map(|via| via.to_string()).collect();
    vias.into_iter().collect()
}

fn devices(desired: &Desired, id: u32) -> Vec<&str> {
    of_group(desired, id).iter().map(|nexthop| nexthop.device.as_str()).collect()
}
