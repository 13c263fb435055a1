//! The filter: what may come in and leave by which device.

use super::*;

#[test]
fn what_came_from_a_remote_cluster_leaves_by_no_uplink_unless_the_plugin_delivers() {
    let uplinks = |state: &ClusterState| KubeProxy.desired(state).hostnet.guard.unwrap().uplinks;
    let eth0: BTreeSet<String> = ["eth0".to_owned()].into();
    for node in ["a-gw1", "a-w1"] {
        let mut state = cluster(node, &["10.2.0.0/16"]);
        assert_eq!(uplinks(&state), eth0, "{node}: the device with the node's address");
        let default = ResolvedRoute { device: "eth1".into(), ..ResolvedRoute::default() };
        state.resolved_routes =
            state.lookup_addresses().into_iter().map(|address| (address, default.clone())).collect();
        assert!(uplinks(&state).contains("eth1"), "{node}: the default route's");

        state.resolved_routes.values_mut().for_each(|way| way.device = "cni0".into());
        assert_eq!(uplinks(&state), eth0, "{node}: pods are behind the other");

        state.node.plugin = "calico".into();
        assert!(uplinks(&state).is_empty(), "{node}");
    }
    // The gateway leaves to the plugin what is for a node whose pods Kubernetes does not know; that node alone lets it in.
    for (node, expected) in [("a-gw1", BTreeSet::new()), ("a-w1", eth0), ("a-w2", BTreeSet::new())] {
        let mut state = cluster(node, &["10.2.0.0/16"]);
        state.nodes[2].pod_networks.clear();
        assert_eq!(uplinks(&state), expected, "{node}");
    }
    let mut state = cluster("a-gw1", &["10.2.0.0/16"]);
    state.endpoints[0].backend = "libreswan".into();
    assert!(uplinks(&state).is_empty(), "IPsec's packets are the plugin's to deliver");
}

#[test]
fn pods_that_kubernetes_does_not_know_by_node_are_reached_by_the_plugin() {
    let mut state = cluster("a-w1", &["10.2.0.0/16"]);
    state.node.plugin = "calico".into();
    let desired = KubeProxy.desired(&state);
    assert_eq!(desired.hostnet.guard.unwrap().delivery, Delivery::Plugin);
    assert!(desired.conditions.iter().any(|c| matches!(c, Condition::PluginDelivers { .. })));

    let mut state = cluster("a-gw1", &["10.2.0.0/16"]);
    state.node.plugin = "calico".into();
    let desired = KubeProxy.desired(&state);
    assert!(!routes(&desired).iter().any(|route| route.contains("149")));
    assert_eq!(desired.hostnet.guard.unwrap().delivery, Delivery::Inlets);
}

#[test]
fn nested_networks_are_merged_for_the_guard() {
    let guard = KubeProxy.desired(&gateway(&["10.2.0.0/16", "10.2.3.0/24"])).hostnet.guard.unwrap();
    assert_eq!(guard.remote, ["10.2.0.0/16".parse().unwrap()].into());
}

#[test]
fn every_node_keeps_the_sources_of_what_crosses_clusters_from_being_masqueraded() {
    for node in ["a-gw1", "a-w1"] {
        let guard = KubeProxy.desired(&cluster(node, &["10.2.0.0/16", "fd00:2::/48"])).hostnet.guard.unwrap();
        let own: BTreeSet<_> =
            ["10.1.0.0/16", "fd00:1::/48", "100.65.0.0/16"].map(|net| net.parse().unwrap()).into();
        assert!(guard.local.is_superset(&own), "{node}: {:?}", guard.local);
        assert_eq!(guard.remote.len(), 2, "{node}");
    }
}
