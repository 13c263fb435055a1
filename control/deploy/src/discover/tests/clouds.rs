use serde_json::{Value, json};
use trieste_control::requirements::{CILIUM, PluginSupport, plugin};

use super::super::*;
use super::{config_map, daemon_set, found, nets, node};

const SNAT: (&str, &str) = ("AWS_VPC_K8S_CNI_EXTERNALSNAT", "true");

/// Returns a cluster with a DaemonSet of the cloud, and nodes.
fn cluster(set: &str, env: &[(&str, &str)], nodes: Vec<Value>) -> Observed {
    Observed { daemon_sets: vec![daemon_set("kube-system", set, env)], nodes, ..Observed::default() }
}

/// Returns a node to which Kubernetes assigns no network.
fn bare(labels: &Value) -> Value {
    json!({"metadata": {"name": "a", "labels": labels}, "spec": {}})
}

#[test]
fn plugin_detect_clouds_have_their_warnings_and_a_name_that_others_have() {
    let overlay = json!({"kubernetes.azure.com/podnetwork-type": "overlay"});
    let former = json!({"kubernetes.azure.com/azure-cni-overlay": "true"});
    let block = json!({"kubernetes.azure.com/podnetwork-type": "vnetblock"});
    let bare_one = || vec![bare(&json!({}))];
    let with_network = || vec![node("a", &["10.7.0.0/24"])];
    let with_both = |labels: &Value| {
        let mut node = node("a", &["10.7.0.0/24"]);
        node["metadata"]["labels"] = labels.clone();
        vec![node]
    };
    let (security, external) = ("source/destination check", "AWS_VPC_K8S_CNI_EXTERNALSNAT");
    for (set, env, nodes, called, of, delivers, others) in [
        ("aws-node", &[][..], bare_one(), "AWS VPC CNI", "the VPC", true, &[security][..]),
        ("aws-node", &[SNAT][..], bare_one(), "AWS VPC CNI", "the VPC", true, &[security, external][..]),
        ("azure-cns", &[][..], bare_one(), "Azure CNI", "the VNet", true, &["IP forwarding"][..]),
        ("azure-npm", &[][..], with_network(), "Azure CNI", "the VNet", true, &["IP forwarding"][..]),
        ("azure-cns", &[][..], vec![bare(&block)], "Azure CNI", "the VNet", true, &[][..]),
        ("azure-cns", &[][..], vec![bare(&overlay)], "Azure CNI", "an overlay", true, &["podCidr"][..]),
        ("azure-cns", &[][..], with_both(&former), "Azure CNI", "an overlay", false, &["podCidr"][..]),
        ("netd", &[][..], with_network(), "GKE", "the VPC", false, &["range for pods"][..]),
        ("netd", &[][..], bare_one(), "GKE", "the VPC", true, &["firewall rules"][..]),
        ("anetd", &[][..], with_network(), "GKE Dataplane V2", "the VPC", false, &[][..]),
    ] {
        let network = found(&cluster(set, env, nodes));
        assert_eq!(network.plugin.called, Some(called), "{set}");
        assert_eq!(network.plugin.source, format!("{called}: DaemonSet kube-system/{set}"));
        assert_eq!(plugin(&network.plugin.name), PluginSupport::Generic, "{set}");
        let warning = network.warnings.iter().find(|warning| warning.starts_with(called)).unwrap();
        assert_eq!(warning.contains("--active-gateways one"), delivers, "{warning}");
        assert_eq!(warning.contains(external), others.contains(&external), "{warning}");
        let has = |text: &&str| warning.contains(*text);
        assert!([of, "--clustercidr"].iter().chain(others).all(has), "{warning}");
    }
}

#[test]
fn plugin_detect_clouds_have_networks_from_the_sources_of_all_plugins() {
    let networks = |observed: &Observed| found(observed).pods.cidrs;
    let mut azure = cluster("azure-cns", &[], vec![bare(&json!({}))]);
    config_map(&mut azure, "kube-system/kube-proxy", "config.conf", "clusterCIDR: 10.244.0.0/16\n");
    assert_eq!(networks(&azure), nets(&["10.244.0.0/16"]));
    let gke = cluster("netd", &[], vec![node("a", &["10.4.0.0/24"]), node("b", &["10.4.1.0/24"])]);
    assert_eq!(networks(&gke), nets(&["10.4.0.0/23"]));
    assert_eq!(networks(&cluster("aws-node", &[], vec![bare(&json!({}))])), nets(&[]));
}

#[test]
fn plugin_detect_clouds_are_those_of_their_namespace_behind_other_plugins() {
    for set in ["aws-node", "azure-cns", "azure-npm", "netd", "anetd"] {
        let elsewhere = Observed { daemon_sets: vec![daemon_set("shop", set, &[])], ..Observed::default() };
        assert_eq!(found(&elsewhere).plugin, Plugin::default());
        let mut with_calico = cluster(set, &[], Vec::new());
        with_calico.daemon_sets.push(daemon_set("kube-system", "calico-node", &[]));
        assert_eq!(
            (found(&with_calico).plugin.name.as_str(), found(&with_calico).plugin.called),
            ("calico", None)
        );
    }
}

#[test]
fn plugin_detect_clouds_with_cilium_are_ciliums_unless_it_is_behind_their_plugin() {
    for (set, mode, is_ciliums) in [
        ("anetd", "", true),
        ("azure-cns", "none", true),
        ("aws-node", "portmap", true),
        ("aws-node", "aws-cni", false),
        ("azure-cns", "generic-veth", false),
        ("", "generic-veth", true),
    ] {
        let mut observed = cluster(set, &[], Vec::new());
        config_map(&mut observed, "kube-system/cilium-config", "ipam", "cluster-pool");
        let data = &mut observed.config_maps.get_mut("kube-system/cilium-config").unwrap()["data"];
        data["cluster-pool-ipv4-cidr"] = json!("10.0.0.0/8");
        data["cni-chaining-mode"] = json!(mode);
        let network = found(&observed);
        let (name, pods) = if is_ciliums { (CILIUM, &["10.0.0.0/8"][..]) } else { (GENERIC, &[][..]) };
        assert_eq!(network.plugin.name, name, "{set} {mode}");
        assert_eq!(network.pods.cidrs, nets(pods), "{set} {mode}");
        let is_named = network.plugin.source.contains(&format!("DaemonSet kube-system/{set}"));
        assert_eq!(is_named, !set.is_empty(), "{}", network.plugin.source);
    }
}
