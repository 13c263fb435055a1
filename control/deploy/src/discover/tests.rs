use serde_json::{Value, json};
use trieste_control::requirements::CILIUM;

use super::*;

mod clouds;
mod ovn;
mod spiderpool;

pub(super) fn nets(list: &[&str]) -> Vec<IpNet> {
    list.iter().map(|text| text.parse().unwrap()).collect()
}

fn pod(component: &str, flags: &[&str]) -> Value {
    json!({"metadata": {"name": format!("{component}-node1"), "labels": {"component": component}},
        "spec": {"containers": [{"command": flags}]}})
}

pub(super) fn daemon_set(namespace: &str, name: &str, env: &[(&str, &str)]) -> Value {
    let env: Vec<Value> = env.iter().map(|(name, value)| json!({"name": name, "value": value})).collect();
    json!({"metadata": {"namespace": namespace, "name": name},
        "spec": {"template": {"spec": {"containers": [{"env": env}]}}}})
}

pub(super) fn config_map(observed: &mut Observed, name: &str, key: &str, text: &str) {
    observed.config_maps.insert(name.to_owned(), json!({"data": {key: text}}));
}

pub(super) fn node(name: &str, cidrs: &[&str]) -> Value {
    json!({"metadata": {"name": name}, "spec": {"podCIDR": cidrs[0], "podCIDRs": cidrs}})
}

pub(super) fn found(observed: &Observed) -> Network {
    infer(observed, &Given::default())
}

#[test]
fn kubeadms_cluster_of_two_families_is_known_from_any_one_source() {
    let whole = nets(&["10.244.0.0/16", "fd00:244::/56"]);
    let list = "10.244.0.0/16,fd00:244::/56";
    let kubeadm = format!(
        "kind: ClusterConfiguration\nnetworking:\n  podSubnet: {list}\n  serviceSubnet: 10.96.0.0/12,fd00:96::/112\n"
    );
    let proxy = format!("kind: KubeProxyConfiguration\nclusterCIDR: {list}\n");
    let flag = format!("--cluster-cidr={list}");

    let mut from_kubeadm = Observed::default();
    config_map(&mut from_kubeadm, "kube-system/kubeadm-config", "ClusterConfiguration", &kubeadm);
    let mut from_proxy = Observed::default();
    config_map(&mut from_proxy, "kube-system/kube-proxy", "config.conf", &proxy);
    let from_manager =
        Observed { pods: vec![pod("kube-controller-manager", &["kcm", &flag])], ..Observed::default() };
    let from_flag = Observed { pods: vec![pod("kube-proxy", &["kube-proxy", &flag])], ..Observed::default() };

    for (observed, source) in [
        (&from_kubeadm, "kubeadm's ConfigMap"),
        (&from_proxy, "kube-proxy's ConfigMap"),
        (&from_manager, "kube-controller-manager's --cluster-cidr"),
        (&from_flag, "kube-proxy's --cluster-cidr"),
    ] {
        let network = found(observed);
        assert_eq!(network.pods, Subnets { cidrs: whole.clone(), source: source.to_owned() });
        assert_eq!(network.warnings, Vec::<String>::new(), "{source}");
    }
    assert_eq!(found(&from_kubeadm).services.cidrs, nets(&["10.96.0.0/12", "fd00:96::/112"]));
}

#[test]
fn services_come_from_the_service_cidr_objects_first_and_all_of_them_count() {
    let mut observed = Observed {
        pods: vec![pod("kube-apiserver", &["--service-cluster-ip-range=10.96.0.0/16"])],
        ..Observed::default()
    };
    observed.others.insert(
        "ServiceCIDR",
        vec![
            json!({"metadata": {"name": "kubernetes"}, "spec": {"cidrs": ["10.96.0.0/16", "fd00:96::/112"]}}),
            json!({"metadata": {"name": "more"}, "spec": {"cidrs": ["10.97.0.0/16"]}}),
        ],
    );
    let network = found(&observed);
    assert_eq!(network.services.cidrs, nets(&["10.96.0.0/16", "10.97.0.0/16", "fd00:96::/112"]));
    assert_eq!(network.services.source, "the ServiceCIDR objects");
    assert_eq!(network.warnings, Vec::<String>::new());
}

#[test]
fn an_older_servers_refusal_names_the_range_and_a_newer_ones_does_not() {
    let older = "Service \"x\" is invalid: spec.clusterIPs: Invalid value: [\"1.1.1.1\"]: failed to allocate IP \
        1.1.1.1: the provided IP (1.1.1.1) is not in the valid range. The range of valid IPs is 10.96.0.0/12";
    let newer = "Service \"x\" is invalid: spec.clusterIPs: Invalid value: [\"1.1.1.1\"]: failed to allocate IP 1.1.1.1";
    let services =
        |text: &str| found(&Observed { refusal: Some(text.to_owned()), ..Observed::default() }).services;
    assert_eq!(services(older).cidrs, nets(&["10.96.0.0/12"]));
    assert_eq!(services(newer), Subnets::default());
}

#[test]
fn plugin_detect_each_one_is_known_by_what_it_leaves() {
    let with_set = |set: Value| Observed { daemon_sets: vec![set], ..Observed::default() };
    let with_map = |name: &str, key: &str, text: &str| {
        let mut observed = Observed::default();
        config_map(&mut observed, name, key, text);
        observed
    };
    let net_conf =
        r#"{"Network": "10.7.0.0/16", "IPv6Network": "fd00:7::/56", "Backend": {"Type": "vxlan"}}"#;
    let mut calico = with_set(daemon_set("calico-system", "calico-node", &[]));
    calico.others.insert(
        "IPPool",
        vec![
            json!({"metadata": {"name": "default"}, "spec": {"cidr": "10.7.0.0/16"}}),
            json!({"metadata": {"name": "six"}, "spec": {"cidr": "fd00:7::/56"}}),
            json!({"metadata": {"name": "off"}, "spec": {"cidr": "10.8.0.0/16", "disabled": true}}),
            json!({"metadata": {"name": "remote", "labels": {"submariner.io/ippool": "true"}},
                "spec": {"cidr": "10.9.0.0/16"}}),
        ],
    );
    let openshift = |kind: &str| {
        let networks = json!([{"cidr": "10.128.0.0/14", "hostPrefix": 23}]);
        let network = json!({"metadata": {"name": "cluster"}, "spec": {"networkType": kind, "clusterNetwork": networks}});
        Observed { others: [("Network", vec![network])].into(), ..Observed::default() }
    };
    let both = ["10.7.0.0/16", "fd00:7::/56"];
    let cases = [
        (
            "kindnet",
            with_set(daemon_set("kube-system", "kindnet", &[("POD_SUBNET", "10.7.0.0/16,fd00:7::/56")])),
            &both[..],
        ),
        ("flannel", with_map("kube-flannel/kube-flannel-cfg", "net-conf.json", net_conf), &both[..]),
        ("canal-flannel", with_map("kube-system/canal-config", "net-conf.json", net_conf), &both[..]),
        ("calico", calico, &both[..]),
        ("weave-net", with_set(daemon_set("kube-system", "weave-net", &[])), &["10.32.0.0/12"][..]),
        ("OVNKubernetes", with_set(daemon_set("ovn-kubernetes", "ovnkube-node", &[])), &[][..]),
        ("OpenShiftSDN", openshift("OpenShiftSDN"), &["10.128.0.0/14"][..]),
        ("OpenShiftSDN", openshift("openshiftsdn"), &["10.128.0.0/14"][..]),
        ("generic", openshift("SomebodyElses"), &["10.128.0.0/14"][..]),
        ("generic", Observed::default(), &[][..]),
    ];
    for (name, observed, pods) in cases {
        let network = found(&observed);
        assert_eq!(network.plugin.name, name);
        assert_eq!(network.pods.cidrs, nets(pods), "{name}");
    }
}

#[test]
fn plugin_detect_openshift_and_ovn_say_both_sorts_of_networks() {
    let mut openshift = Observed::default();
    openshift.others.insert(
        "Network",
        vec![json!({"metadata": {"name": "cluster"}, "spec": {"networkType": "OVNKubernetes",
            "clusterNetwork": [{"cidr": "10.128.0.0/14", "hostPrefix": 23}], "serviceNetwork": ["172.30.0.0/16"]}})],
    );
    let mut ovn = Observed {
        daemon_sets: vec![daemon_set("ovn-kubernetes", "ovnkube-node", &[])],
        ..Observed::default()
    };
    config_map(&mut ovn, "ovn-kubernetes/ovn-config", "net_cidr", "10.128.0.0/14/23,fd01::/48/64");
    let map = ovn.config_maps.get_mut("ovn-kubernetes/ovn-config").unwrap();
    map["data"]["svc_cidr"] = json!("172.30.0.0/16");

    let network = found(&openshift);
    assert_eq!(
        (network.plugin.name.as_str(), network.pods.cidrs),
        ("OVNKubernetes", nets(&["10.128.0.0/14"]))
    );
    assert_eq!(network.services.cidrs, nets(&["172.30.0.0/16"]));
    let network = found(&ovn);
    assert_eq!(network.pods.cidrs, nets(&["10.128.0.0/14", "fd01::/48"]));
    assert_eq!(network.services.cidrs, nets(&["172.30.0.0/16"]));
}

#[test]
fn plugin_detect_openshifts_network_is_followed_for_pods_and_services() {
    let mut observed = Observed::default();
    let spec = json!({
        "networkType": "OVNKubernetes", "serviceNetwork": ["172.30.0.0/16"],
        "clusterNetwork": [{"cidr": "10.128.0.0/14", "hostPrefix": 23}],
    });
    observed.others.insert("Network", vec![json!({"metadata": {"name": "cluster"}, "spec": spec})]);
    let followed = r#"{"openshift-pods":["10.128.0.0/14"],"openshift-services":["172.30.0.0/16"]}"#;
    assert_eq!(found(&observed).followed.value(), followed);
}

#[test]
fn plugin_detect_cilium_is_found_with_a_warning() {
    let mut observed = Observed::default();
    config_map(&mut observed, "kube-system/cilium-config", "ipam", "cluster-pool");
    observed.config_maps.get_mut("kube-system/cilium-config").unwrap()["data"]["cluster-pool-ipv4-cidr"] =
        json!("10.7.0.0/16");
    let network = found(&observed);
    assert_eq!((network.plugin.name.as_str(), network.pods.cidrs), (CILIUM, nets(&["10.7.0.0/16"])));
    assert!(network.warnings.iter().any(|warning| warning.contains("Cilium")), "{:?}", network.warnings);
    for (mode, advice) in [
        ("eni", "--active-gateways one"),
        ("delegated-plugin", "--active-gateways one"),
        ("multi-pool", "--clustercidr"),
        ("kubernetes", "diagnose cni tells"),
    ] {
        config_map(&mut observed, "kube-system/cilium-config", "ipam", mode);
        let warnings = found(&observed).warnings;
        assert!(warnings.iter().any(|warning| warning.contains(advice)), "{mode}: {warnings:?}");
    }
}

#[test]
fn plugin_detect_cilium_with_several_pools_says_all_networks_of_pods_and_gateways_follow_them() {
    let mut observed = Observed::default();
    config_map(&mut observed, "kube-system/cilium-config", "ipam", "multi-pool");
    let pool = |name: &str, cidrs: &[&str]| json!({"metadata": {"name": name}, "spec": {"ipv4": {"cidrs": cidrs, "maskSize": 27}}});
    observed.others.insert(
        "CiliumPodIPPool",
        vec![pool("default", &["10.10.0.0/16"]), pool("mars", &["10.20.0.0/16", "10.30.0.0/16"])],
    );
    let network = found(&observed);
    assert_eq!(network.pods.cidrs, nets(&["10.10.0.0/16", "10.20.0.0/16", "10.30.0.0/16"]));
    assert_eq!(network.pods.source, "Cilium's CiliumPodIPPools");
    assert!(
        network.warnings.iter().all(|warning| !warning.contains("--clustercidr")),
        "{:?}",
        network.warnings
    );
    let followed = r#"{"cilium-pods":["10.10.0.0/16","10.20.0.0/16","10.30.0.0/16"]}"#;
    assert_eq!(network.followed.value(), followed);
}

#[test]
fn nodes_add_up_and_say_that_they_are_a_part() {
    let observed = Observed {
        nodes: vec![
            node("a", &["10.244.0.0/24", "fd00:244::/64"]),
            node("b", &["10.244.1.0/24", "fd00:244:0:1::/64"]),
            node("c", &["10.244.9.0/24"]),
        ],
        ..Observed::default()
    };
    let network = found(&observed);
    assert_eq!(network.pods.cidrs, nets(&["10.244.0.0/23", "10.244.9.0/24", "fd00:244::/63"]));
    assert!(
        network.warnings.iter().any(|warning| warning.contains("--clustercidr")),
        "{:?}",
        network.warnings
    );
}

#[test]
fn a_family_that_one_source_lacks_comes_from_the_next() {
    let observed = Observed {
        daemon_sets: vec![daemon_set("kube-system", "kindnet", &[("POD_SUBNET", "10.244.0.0/16")])],
        nodes: vec![node("a", &["10.244.0.0/24", "fd00:244::/64"])],
        ..Observed::default()
    };
    let network = found(&observed);
    assert_eq!(network.pods.cidrs, nets(&["10.244.0.0/16", "fd00:244::/64"]));
    assert_eq!(network.pods.source, "kindnet's POD_SUBNET and the nodes' podCIDRs");
    let whole = "IPv6 pod CIDRs are only known from what the nodes have today; new nodes may get others: --clustercidr says \
                 the whole";
    assert_eq!(network.warnings, [whole]);
}

#[test]
fn sources_that_contradict_one_another_are_a_warning_and_the_users_word_wins() {
    let observed = Observed {
        pods: vec![pod("kube-controller-manager", &["--cluster-cidr=10.1.0.0/16"])],
        nodes: vec![node("a", &["10.9.0.0/24"])],
        ..Observed::default()
    };
    let network = found(&observed);
    assert_eq!(network.pods.cidrs, nets(&["10.1.0.0/16"]));
    assert_eq!(network.warnings.len(), 1, "{:?}", network.warnings);
    assert!(network.warnings[0].contains("10.9.0.0/24 by the nodes' podCIDRs"), "{}", network.warnings[0]);

    let given = Given { pods: nets(&["10.9.0.0/16"]), services: vec![], ..Given::default() };
    let network = infer(&observed, &given);
    assert_eq!(network.pods, Subnets { cidrs: given.pods, source: "--clustercidr".to_owned() });
    assert_eq!(network.warnings.len(), 1, "{:?}", network.warnings);
    assert!(
        network.warnings[0].contains("10.1.0.0/16 by kube-controller-manager"),
        "{}",
        network.warnings[0]
    );
}

#[test]
fn plugin_detect_config_maps_are_followed_where_networks_were_found_in_them() {
    let map = |data: Value| json!({"data": data});
    let net_conf =
        map(json!({"net-conf.json": r#"{"Network": "10.7.0.0/16", "IPv6Network": "fd00:7::/56"}"#}));
    let cilium = |mode: &str| map(json!({"ipam": mode, "cluster-pool-ipv4-cidr": "10.7.0.0/16 10.8.0.0/16"}));
    let ovn = map(json!({"net_cidr": "10.128.0.0/14/23", "svc_cidr": "172.30.0.0/16"}));
    let kubeadm = map(json!({"ClusterConfiguration":
        "networking:\n  podSubnet: 10.7.0.0/16\n  serviceSubnet: 10.96.0.0/12\n"}));
    let proxy = map(json!({"config.conf": "clusterCIDR: 10.7.0.0/16\n"}));
    let broken = map(json!({"net-conf.json": r#"{"Network": "10.7.0.0/16", "IPv6Network": "7"}"#}));
    let kubeadm_both = r#"{"kubeadm-map-pods":["10.7.0.0/16"],"kubeadm-map-services":["10.96.0.0/12"]}"#;
    let system = ("kube-system/kube-flannel-cfg", &net_conf);
    for (maps, set, expected) in [
        (
            &[("kube-flannel/kube-flannel-cfg", &net_conf), system][..],
            None,
            r#"{"flannel-map":["10.7.0.0/16","fd00:7::/56"]}"#,
        ),
        (&[system], None, r#"{"flannel-system-map":["10.7.0.0/16","fd00:7::/56"]}"#),
        (
            &[("kube-system/canal-config", &net_conf), system],
            None,
            r#"{"canal-map":["10.7.0.0/16","fd00:7::/56"]}"#,
        ),
        (&[("kube-flannel/kube-flannel-cfg", &broken)], None, "{}"),
        (
            &[("kube-system/cilium-config", &cilium("cluster-pool"))],
            None,
            r#"{"cilium-map":["10.7.0.0/16","10.8.0.0/16"]}"#,
        ),
        (&[("kube-system/cilium-config", &cilium("kubernetes"))], None, "{}"),
        (
            &[("ovn-kubernetes/ovn-config", &ovn)],
            Some("ovnkube-node"),
            r#"{"ovn-map-pods":["10.128.0.0/14"],"ovn-map-services":["172.30.0.0/16"]}"#,
        ),
        (&[("ovn-kubernetes/ovn-config", &ovn)], None, "{}"),
        // Where nothing better is known.
        (&[("kube-system/kubeadm-config", &kubeadm)], None, kubeadm_both),
        (
            &[("kube-system/kubeadm-config", &kubeadm), ("kube-system/kube-proxy", &proxy)],
            None,
            r#"{"kube-proxy-map":["10.7.0.0/16"],"kubeadm-map-services":["10.96.0.0/12"]}"#,
        ),
        (
            &[("kube-system/kubeadm-config", &kubeadm), system],
            None,
            r#"{"flannel-system-map":["10.7.0.0/16","fd00:7::/56"],"kubeadm-map-services":["10.96.0.0/12"]}"#,
        ),
    ] {
        let mut observed = Observed::default();
        for (name, map) in maps {
            observed.config_maps.insert((*name).to_owned(), (*map).clone());
        }
        observed.daemon_sets.extend(set.map(|set| daemon_set("ovn-kubernetes", set, &[])));
        assert_eq!(found(&observed).followed.value(), expected, "{maps:?}");
    }
}

#[test]
fn plugin_detect_what_components_were_started_with_is_better_known_by_themselves() {
    let kubeadm = json!({"data": {"ClusterConfiguration":
        "networking:\n  podSubnet: 10.7.0.0/16\n  serviceSubnet: 10.96.0.0/12\n"}});
    let mut observed = Observed {
        pods: vec![pod("kube-controller-manager", &["kcm", "--cluster-cidr=10.7.0.0/16"])],
        ..Observed::default()
    };
    observed.config_maps.insert("kube-system/kubeadm-config".to_owned(), kubeadm);
    observed.others.insert(
        "ServiceCIDR",
        vec![json!({"metadata": {"name": "kubernetes"}, "spec": {"cidrs": ["10.96.0.0/12"]}})],
    );
    assert_eq!(found(&observed).followed.value(), r#"{"services":["10.96.0.0/12"]}"#);
}
