//! Which driver serves which plugin, and what all of them keep.

use std::collections::BTreeSet;
use std::sync::Arc;

use trieste_control::requirements::{Deliverer, PLUGINS, promise};

use trieste_control::admin::Severity;

use super::registry::{DRIVERS, serving};
use super::*;
use crate::constants::{TABLE_DELIVERY, VX_DEVICE};
use crate::family::Family;
use crate::hostnet::{Hop, Rule};
use crate::services::DesiredServices;
use crate::state::{Cluster, ClusterNode, DeviceAddress, Endpoint, Node, ResolvedRoute};

/// A node of cluster `a` with networks of both families, which knows cluster `b` with one of each and cluster `c`, whose
/// gateway is gone.
pub(super) fn state(plugin: &str, hostname: &str) -> ClusterState {
    let nets = |texts: &[&str]| texts.iter().map(|text| text.parse().unwrap()).collect::<Vec<IpNet>>();
    let mut own = Endpoint::new("a-cable", "a", "a-gw1");
    own.addresses = vec!["172.31.1.11".parse().unwrap()];
    let mut other = Endpoint::new("b-cable", "b", "b-gw1");
    other.subnets = nets(&["10.2.0.0/16", "fd00:2::/48"]);
    let node = |name: &str, host: u8| ClusterNode {
        name: name.into(),
        hostname: name.into(),
        addresses: [format!("172.31.1.{host}").parse().unwrap()].into(),
        ..ClusterNode::default()
    };
    let host = if hostname == "a-gw1" { 11 } else { 21 };
    let way = ResolvedRoute { device: "br-ex".into(), via: None, source: None };
    ClusterState {
        node: Node {
            cluster: "a".into(),
            hostname: hostname.into(),
            pod_networks: nets(&["10.1.0.0/16", "fd00:1::/48"]),
            service_networks: nets(&["100.65.0.0/16", "fd00:65::/112"]),
            tun: "submariner".into(),
            plugin: plugin.into(),
            ..Node::default()
        },
        endpoints: vec![own, other],
        clusters: vec![Cluster { id: "c".into(), created: 1, networks: nets(&["10.3.0.0/16"]) }],
        nodes: vec![node("a-gw1", 11), node("a-w1", 21)],
        addresses: [("br-ex", format!("172.31.1.{host}/24"))]
            .map(|(device, network)| DeviceAddress {
                device: device.into(),
                network: network.parse().unwrap(),
            })
            .into(),
        resolved_routes: [("8.8.8.8".parse().unwrap(), way)].into(),
        mtus: [("br-ex".to_owned(), 1500)].into(),
        ..ClusterState::default()
    }
}

#[test]
fn plugin_detect_each_name_has_its_driver_and_unknown_ones_the_last() {
    for (plugin, driver) in [
        ("OVNKubernetes", "ovn-kubernetes"),
        ("ovnkubernetes", "ovn-kubernetes"),
        ("generic", "kubeproxy"),
        ("Calico", "calico"),
        ("canal-flannel", "kubeproxy"),
        ("cilium", "kubeproxy"),
        ("OpenShiftSDN", "kubeproxy"),
        ("", "kubeproxy"),
        ("somebody-elses", "kubeproxy"),
    ] {
        assert_eq!(serving(plugin).name(), driver, "{plugin}");
    }
    assert_eq!(DRIVERS.last().map(|driver| driver.plugins()), Some(Plugins::Others));
    let names: BTreeSet<_> = DRIVERS.iter().map(|driver| driver.name()).collect();
    assert_eq!(names.len(), DRIVERS.len());
}

/// Gateways and commands go by what is promised with each plugin; drivers do it.
#[test]
fn plugin_promises_are_what_drivers_do_for_each_plugin() {
    for (plugin, _) in PLUGINS {
        let (promised, driver) = (promise(plugin), serving(plugin));
        let mut state = state(plugin, "a-gw1");
        state.nodes[1].pod_networks = ["10.1.3.0/24".parse().unwrap()].into();
        state.services.is_wanted = true;
        state.services.here = Some(Arc::default());
        state.members = ["a-gw1", "a-gw2"].map(|name| Endpoint::new(name, "a", name)).into();
        let desired = driver.desired(&state);
        let mut routes = desired.hostnet.routes.iter();
        let delivers =
            routes.any(|route| route.table == TABLE_DELIVERY && route.hop.device() == Some(VX_DEVICE));
        assert_eq!(delivers, promised.delivery == Deliverer::Gateway, "{plugin}");
        let translates = matches!(desired.hostnet.services, DesiredServices::Rules { .. });
        assert_eq!(translates, promised.services == Deliverer::Gateway, "{plugin}");
        let is_one = |condition: &Condition| matches!(condition, Condition::OneGatewayOnly { .. });
        let uses_all = !desired.conditions.iter().any(is_one);
        assert_eq!(delivers && uses_all, promised.has_several_gateways, "{plugin}");
    }
}

/// Names of drivers' plugins are names of discovery.
#[test]
fn plugin_promises_are_made_for_every_plugin_that_a_driver_names() {
    let names = DRIVERS.into_iter().filter_map(|driver| match driver.plugins() {
        Plugins::Named(names) => Some(names),
        Plugins::Others => None,
    });
    for name in names.flatten() {
        assert!(PLUGINS.iter().any(|(known, _)| known == name), "{name}");
    }
}

/// What is true of every driver, on gateways and other nodes, whatever else it does.
#[test]
fn every_driver_fails_closed_routes_what_has_a_gateway_and_drops_forged_sources() {
    let routed: BTreeSet<IpNet> = ["10.2.0.0/16", "fd00:2::/48"].map(|net| net.parse().unwrap()).into();
    let closed: BTreeSet<IpNet> = routed.iter().copied().chain(["10.3.0.0/16".parse().unwrap()]).collect();
    for driver in DRIVERS {
        for hostname in ["a-gw1", "a-w1"] {
            let mut state = state("generic", hostname);
            let own: Vec<&str> = match hostname {
                "a-gw1" => vec!["10.1.1.2/24", "fd00:1:0:1::2/64"],
                _ => vec!["10.1.3.2/24", "fd00:1:0:3::2/64"],
            };
            for network in own {
                for device in ["cni0", "ovn-k8s-mp0"] {
                    let network = network.parse().unwrap();
                    state.addresses.insert(DeviceAddress { device: device.into(), network });
                }
            }
            let about = format!("{} on {hostname}", driver.name());
            let desired = driver.desired(&state);
            let refused = desired.hostnet.routes.iter().filter(|route| route.hop == Hop::Unreachable);
            let refused: BTreeSet<IpNet> = refused.map(|route| route.destination).collect();
            assert!(refused.is_superset(&closed), "{about}: {refused:?}");
            let is_of_ours = |net: &IpNet| state.node.pod_networks.iter().any(|all| all.contains(net));
            let led = desired.hostnet.routes.iter().filter(|route| route.hop != Hop::Unreachable);
            let led: BTreeSet<IpNet> = led.map(|route| route.destination).collect();
            let led: BTreeSet<IpNet> = led.into_iter().filter(|net| closed.contains(net)).collect();
            assert_eq!(led, routed, "{about}");
            assert!(!led.iter().any(is_of_ours), "{about}");
            let guard = desired.hostnet.guard.unwrap();
            assert_eq!(guard.remote, crate::networks::disjoint(&closed), "{about}");
            assert!(!guard.inlets.contains("br-ex") && guard.inlets.contains("lo"), "{about}");
            let rules = &desired.hostnet.rules;
            let has_table = rules.contains(&Rule::gateway(Family::V4));
            assert_eq!(has_table, rules.contains(&Rule::mark(Family::V4)), "{about}");
            assert!(has_table || hostname == "a-w1", "{about}");
        }
    }
}

/// Spiderpool may be beside any plugin.
#[test]
fn plugin_detect_what_a_plugins_database_needs_is_said_where_the_leader_is() {
    for driver in DRIVERS {
        for hostname in ["a-gw1", "a-w1"] {
            let state = state("generic", hostname);
            let zone = driver.remember(state.clone(), driver.desired(&state)).zone();
            assert_eq!(zone.is_some(), hostname == "a-gw1", "{} on {hostname}", driver.name());
            let Some(zone) = zone else { continue };
            let named: Vec<_> = zone.by_name().into_keys().collect();
            assert_eq!(named, ["b", "c"], "{}", driver.name());
        }
    }
}

#[test]
fn plugin_detect_a_worker_that_is_missing_is_named_where_the_leader_is() {
    for (plugin, hostname, has_synchronizer, severity) in [
        ("OVNKubernetes", "a-gw1", false, Some(Severity::Error)),
        ("calico", "a-gw1", false, Some(Severity::Warning)),
        ("OVNKubernetes", "a-gw1", true, None),
        ("OVNKubernetes", "a-w1", false, None),
        ("generic", "a-gw1", false, None),
    ] {
        let mut state = state(plugin, hostname);
        state.node.has_synchronizer = has_synchronizer;
        let condition = missing_synchronizer(serving(plugin), &state);
        let about = format!("{plugin} on {hostname}, {has_synchronizer}");
        assert_eq!(condition.as_ref().map(Condition::severity), severity, "{about}");
        let text = condition.map_or_else(String::new, |condition| condition.to_string());
        assert_eq!(text.contains("TRIESTE_PLUGIN_SYNC"), severity.is_some(), "{about}: {text}");
    }
}

/// A driver without a memory of its own is asked again.
#[test]
fn an_answer_alone_follows_nothing() {
    #[derive(Debug)]
    struct Plain;
    impl Driver for Plain {
        fn name(&self) -> &'static str {
            "plain"
        }
        fn plugins(&self) -> Plugins {
            Plugins::Named(&["plain"])
        }
        fn device_to_gateway(&self) -> &'static str {
            "plain0"
        }
        fn desired(&self, _: &ClusterState) -> Desired {
            Desired::default()
        }
    }
    let state = state("plain", "a-gw1");
    let mut memory = Plain.remember(state.clone(), Plain.desired(&state));
    assert_eq!(memory.desired(), &Desired::default());
    assert_eq!(memory.follow(&state, &ClusterView::default()), None);
    assert_eq!(memory.close(&BTreeSet::new()), None);
    assert!(memory.vanished().is_empty() && Plain.lookups(&state).is_empty());
}
