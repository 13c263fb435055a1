//! What OVN-Kubernetes' nodes get. Names and addresses as in `driver/tests.rs`.

use super::*;
use crate::driver::tests::state;
use crate::hostnet::{Hop, Sysctl};
use crate::state::ResolvedRoute;

/// A node with its management port.
fn node(hostname: &str) -> ClusterState {
    let mut state = state("ovnkubernetes", hostname);
    let pods = if hostname == "a-gw1" { 1 } else { 3 };
    for network in [format!("10.1.{pods}.2/24"), format!("fd00:1:0:{pods}::2/64"), "fe80::2/64".to_owned()] {
        let (device, network) = (MANAGEMENT_PORT.to_owned(), network.parse().unwrap());
        state.addresses.insert(DeviceAddress { device, network });
    }
    state.mtus.insert(MANAGEMENT_PORT.to_owned(), 1400);
    state
}

fn routes(state: &ClusterState) -> Vec<String> {
    let routes = Ovn.desired(state).hostnet.routes;
    routes.iter().filter(|route| route.hop != Hop::Unreachable).map(ToString::to_string).collect()
}

#[test]
fn plugin_ovn_a_gateway_sends_out_of_its_device_and_hands_to_ovn_what_comes_by_it() {
    let state = node("a-gw1");
    assert_eq!(
        routes(&state),
        [
            "10.1.0.0/16 via 10.1.1.1 dev ovn-k8s-mp0 table 149",
            "100.65.0.0/16 via 10.1.1.1 dev ovn-k8s-mp0 table 149",
            "fd00:1::/48 via fd00:1:0:1::1 dev ovn-k8s-mp0 table 149",
            "fd00:65::/112 via fd00:1:0:1::1 dev ovn-k8s-mp0 table 149",
            "10.2.0.0/16 dev submariner src 10.1.1.2 table 150",
            "fd00:2::/48 dev submariner src fd00:1:0:1::2 table 150 mtu 1420",
        ]
    );
    let hostnet = Ovn.desired(&state).hostnet;
    let rules: Vec<_> = hostnet.rules.iter().map(ToString::to_string).collect();
    assert_eq!(
        rules,
        [
            "IPv4 rule pref 140 fwmark 0x540000/0xff0000 iif lo lookup main",
            "IPv6 rule pref 140 fwmark 0x540000/0xff0000 iif lo lookup main",
            "IPv4 rule pref 149 iif submariner lookup 149",
            "IPv6 rule pref 149 iif submariner lookup 149",
            "IPv4 rule pref 150 lookup 150",
            "IPv6 rule pref 150 lookup 150",
        ]
    );
    // No device between nodes, no services of ours: OVN has both.
    assert_eq!((hostnet.vxlan, hostnet.services), (None, crate::services::DesiredServices::default()));
    assert_eq!(hostnet.sysctls.get(&Sysctl::of(Family::V4, "submariner", "forwarding")), Some(&1));
    let guard = hostnet.guard.unwrap();
    assert_eq!(guard.inlets, ["lo", "submariner"].map(str::to_owned).into());
    assert_eq!(guard.uplinks, ["br-ex".to_owned()].into());
    assert_eq!(hostnet.pass.outward, ["submariner".to_owned()].into());
    assert_eq!(hostnet.pass, Pass { inward: hostnet.pass.outward.clone(), ..hostnet.pass.clone() });
}

#[test]
fn plugin_ovn_another_nodes_own_packets_go_to_ovn_and_enter_from_there() {
    let state = node("a-w1");
    assert_eq!(
        routes(&state),
        [
            "10.2.0.0/16 via 10.1.3.1 dev ovn-k8s-mp0 src 10.1.3.2 table 150",
            "fd00:2::/48 via fd00:1:0:3::1 dev ovn-k8s-mp0 src fd00:1:0:3::2 table 150",
        ]
    );
    let hostnet = Ovn.desired(&state).hostnet;
    assert_eq!(
        hostnet.rules,
        Family::ALL.into_iter().flat_map(|family| [Rule::mark(family), Rule::gateway(family)]).collect()
    );
    assert!(hostnet.vxlan.is_none() && hostnet.pass == Pass::default());
    let guard = hostnet.guard.unwrap();
    assert_eq!(guard.inlets, ["lo", MANAGEMENT_PORT].map(str::to_owned).into());
    assert_eq!(guard.delivery, Delivery::Inlets);
}

#[test]
fn plugin_ovn_by_the_external_bridge_a_gateway_hands_to_submariners_router_and_others_go_to_ovn_as_ever() {
    let mut state = node("a-gw1");
    state.node.has_submariner_router = true;
    let missing = |state: &ClusterState| -> Vec<(String, Family)> {
        let conditions = Ovn.desired(state).conditions.into_iter();
        let missing = conditions.filter_map(|condition| {
            let Condition::NoManagementPort { device, family } = condition else { return None };
            Some((device, family))
        });
        missing.collect()
    };
    assert_eq!(missing(&state), [("br-local".to_owned(), Family::V4)]);
    assert!(!routes(&state).iter().any(|route| route.contains("table 149")), "nothing enters OVN elsewhere");
    for network in ["169.254.33.1/24", "fe80::1/64", "fd33::7/64"] {
        let network = network.parse().unwrap();
        state.addresses.insert(DeviceAddress { device: "br-local".into(), network });
    }
    state.mtus.insert("br-local".to_owned(), 1500);
    assert_eq!(missing(&state), []);
    assert_eq!(
        routes(&state),
        [
            "10.1.0.0/16 via 169.254.33.7 dev br-local table 149 mtu 1400",
            "100.65.0.0/16 via 169.254.33.7 dev br-local table 149 mtu 1400",
            "fd00:1::/48 via fd33::8 dev br-local table 149 mtu 1400",
            "fd00:65::/112 via fd33::8 dev br-local table 149 mtu 1400",
            "10.2.0.0/16 dev submariner src 10.1.1.2 table 150",
            "fd00:2::/48 dev submariner src fd00:1:0:1::2 table 150 mtu 1420",
        ]
    );
    let hostnet = Ovn.desired(&state).hostnet;
    // Pods' packets are not from a remote cluster: what comes by the bridge with such a source is forged.
    assert_eq!(hostnet.guard.unwrap().inlets, ["lo", "submariner"].map(str::to_owned).into());

    let mut other = node("a-w1");
    let before = Ovn.desired(&other);
    other.node.has_submariner_router = true;
    assert_eq!(Ovn.desired(&other), before);
}

#[test]
fn plugin_ovn_without_a_gateway_everything_is_refused() {
    let mut state = node("a-w1");
    state.endpoints.retain(|endpoint| endpoint.cluster != "a");
    assert_eq!(routes(&state), Vec::<String>::new());
    let closed: Vec<_> = Ovn.desired(&state).hostnet.guard.unwrap().remote.into_iter().collect();
    assert_eq!(closed, ["10.2.0.0/15", "fd00:2::/48"].map(|net| net.parse().unwrap()));
}

#[test]
fn plugin_ovn_the_next_hop_is_what_the_kernel_says_and_follows_the_port() {
    let mut state = node("a-gw1");
    let known = ResolvedRoute {
        device: MANAGEMENT_PORT.into(),
        via: Some("10.1.1.254".parse().unwrap()),
        source: Some("10.1.1.2".parse().unwrap()),
    };
    assert_eq!(
        Ovn.lookups(&state),
        ["10.1.255.254", "fd00:1::ffff:ffff:ffff:ffff:ffff"].map(|text| text.parse().unwrap()).into()
    );
    let far = "10.1.255.254".parse().unwrap();
    state.resolved_routes.insert(far, known.clone());
    assert_eq!(routes(&state)[0], "10.1.0.0/16 via 10.1.1.254 dev ovn-k8s-mp0 table 149");
    // By another device: not OVN's.
    state.resolved_routes.insert(far, ResolvedRoute { device: "br-ex".into(), ..known });
    assert_eq!(routes(&state)[0], "10.1.0.0/16 via 10.1.1.1 dev ovn-k8s-mp0 table 149");
    // The node gets another network.
    state.addresses.retain(|own| own.device != MANAGEMENT_PORT);
    let network = "10.1.9.2/24".parse().unwrap();
    state.addresses.insert(DeviceAddress { device: MANAGEMENT_PORT.into(), network });
    state.resolved_routes.clear();
    assert_eq!(routes(&state)[0], "10.1.0.0/16 via 10.1.9.1 dev ovn-k8s-mp0 table 149");
}

#[test]
fn plugin_ovn_a_port_without_an_address_is_a_condition_and_closes() {
    for hostname in ["a-gw1", "a-w1"] {
        let mut state = node(hostname);
        let families = |state: &ClusterState| -> Vec<Family> {
            let conditions = Ovn.desired(state).conditions.into_iter();
            let missing = conditions.filter_map(|condition| {
                if let Condition::NoManagementPort { family, .. } = condition { Some(family) } else { None }
            });
            missing.collect()
        };
        assert_eq!(families(&state), []);
        state.addresses.retain(|own| own.device != MANAGEMENT_PORT || own.network.addr().is_ipv4());
        assert_eq!(families(&state), [Family::V6]);
        state.addresses.retain(|own| own.device != MANAGEMENT_PORT);
        assert_eq!(families(&state), [Family::V4]);
        // A cluster without IPv6 needs no port of it.
        state.node.pod_networks.retain(|net| Family::of_net(net) == Family::V6);
        state.node.pod_networks.clear();
        assert_eq!(families(&state), []);
    }
}

#[test]
fn plugin_ovn_several_gateways_are_a_condition() {
    let mut state = node("a-gw1");
    state.members = ["a-gw1", "a-gw2"].map(|name| Endpoint::new(name, "a", name)).into();
    let is_said = |state: &ClusterState| {
        let mut conditions = Ovn.desired(state).conditions.into_iter();
        conditions.any(|condition| matches!(condition, Condition::OneGatewayOnly { .. }))
    };
    assert!(is_said(&state));
    state.members.clear();
    assert!(!is_said(&state));
}

#[test]
fn plugin_ovn_globalnet_changes_the_size_of_segments_alone() {
    let mut state = node("a-gw1");
    // Upstream's Globalnet translates beside upstream's gateway.
    state.endpoints.iter_mut().for_each(|endpoint| endpoint.is_triestes = true);
    let before = Ovn.desired(&state);
    state.node.has_globalnet = true;
    let mut after = Ovn.desired(&state);
    let clamp = after.hostnet.guard.as_mut().and_then(|guard| guard.clamp.take());
    assert_eq!((clamp, after), (Some(1500 - 120 - 40), before));
}

#[test]
fn plugin_ovn_globalnet_segments_fit_the_management_port_unless_the_node_says_their_size() {
    let mut state = node("a-gw1");
    state.node.has_globalnet = true;
    let clamp = |state: &ClusterState| Ovn.desired(state).hostnet.guard.unwrap().clamp;
    for endpoint in &mut state.endpoints {
        endpoint.backend = "vxlan".to_owned();
        endpoint.interface = Some("submariner".to_owned());
    }
    assert_eq!(clamp(&state), Some(1400 - 40));
    state.mtus.insert(MANAGEMENT_PORT.to_owned(), 1500);
    assert_eq!(clamp(&state), Some(1500 - 50 - 40));
    state.mtus.remove(MANAGEMENT_PORT);
    assert_eq!(clamp(&state), Some(1500 - 50 - 40));
    state.mtus.insert(MANAGEMENT_PORT.to_owned(), 1400);
    state.nodes.iter_mut().for_each(|node| node.clamp_mss = Some(1390));
    assert_eq!(clamp(&state), Some(1390));
}
