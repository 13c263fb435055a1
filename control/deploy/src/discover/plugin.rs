//! Which network plugin a cluster has, and what that one's own configuration says of pods and services.

use serde_json::Value;
use trieste_control::live_networks::Source;
use trieste_control::requirements::{CILIUM, OVN_KUBERNETES, is_chained, is_ovn_kubernetes};

use super::candidates::of_source;
use super::flags::{
    CANAL, CHAINING_MODE, CILIUM_CONFIG, CLUSTER_POOL, FLANNEL, MULTI_POOL, document, entry, ipam, variable,
};
use super::found::Found;
use super::{Observed, Plugin, clouds};

/// Finds the first plugin that is there: in upstream's order, and after those the ones that upstream has no name for.
pub(super) fn find(observed: &Observed) -> Found {
    let look: [fn(&Observed) -> Option<Found>; 9] =
        [openshift, ovn_kubernetes, weave, canal, calico, flannel, kindnet, cilium, clouds::find];
    let found = look.into_iter().find_map(|look| look(observed));
    found.unwrap_or_else(|| {
        let Plugin { name, source, .. } = Plugin::default();
        Found::new(&name, source)
    })
}

fn openshift(observed: &Observed) -> Option<Found> {
    let network = observed.others.get("Network")?.iter().find(|one| one["metadata"]["name"] == "cluster")?;
    let name = match network["spec"]["networkType"].as_str()? {
        kind if is_ovn_kubernetes(kind) => OVN_KUBERNETES,
        kind if kind.eq_ignore_ascii_case("OpenShiftSDN") => "OpenShiftSDN",
        kind if kind.eq_ignore_ascii_case("Calico") => "calico",
        _ => super::GENERIC,
    };
    let source = "OpenShift's Network cluster";
    let mut found = Found::new(name, source);
    for (of, candidates) in
        [(Source::OpenShiftPods, &mut found.pods), (Source::OpenShiftServices, &mut found.services)]
    {
        candidates.extend(of_source(observed, of, source));
    }
    Some(found)
}

fn ovn_kubernetes(observed: &Observed) -> Option<Found> {
    let set = daemon_set(observed, &super::ovn::DAEMON_SETS)?;
    let mut found = Found::new(OVN_KUBERNETES, format!("DaemonSet {set}"));
    if let Some(map) = observed.config_maps.get("ovn-kubernetes/ovn-config") {
        let source = "ConfigMap ovn-kubernetes/ovn-config";
        // Each network may carry the length of a node's part: 10.128.0.0/14/23.
        let nets: Vec<String> = entry(map, "net_cidr")
            .unwrap_or_default()
            .split(',')
            .map(|net| net.split('/').take(2).collect::<Vec<_>>().join("/"))
            .collect();
        found = found.pods(source, Some(&nets.join(","))).services(source, entry(map, "svc_cidr"));
    }
    Some(found)
}

fn weave(observed: &Observed) -> Option<Found> {
    let set = daemon_set(observed, &["weave-net"])?;
    let range = object_of(observed, "weave-net").and_then(|set| variable(set, "IPALLOC_RANGE"));
    // What weave itself takes when nobody says anything.
    let range = range.or(Some("10.32.0.0/12"));
    Some(Found::new("weave-net", format!("DaemonSet {set}")).pods("weave's IPALLOC_RANGE", range))
}

fn canal(observed: &Observed) -> Option<Found> {
    let map = observed.config_maps.get("kube-system/canal-config")?;
    let source = "ConfigMap kube-system/canal-config";
    Some(Found::new(CANAL, source).pods(source, Some(&net_conf(map))))
}

fn calico(observed: &Observed) -> Option<Found> {
    let source = match daemon_set(observed, &["calico-node"]) {
        Some(set) => format!("DaemonSet {set}"),
        None if observed.config_maps.contains_key("kube-system/calico-config") => {
            "ConfigMap kube-system/calico-config".to_owned()
        }
        None => return None,
    };
    // Pools that are switched off give no addresses, those for load balancers none to pods; and those that Submariner made are
    // other clusters'.
    let mut found = Found::new("calico", source);
    found.pods.extend(of_source(observed, Source::CalicoPools, "Calico's IPPools"));
    let env = object_of(observed, "calico-node");
    let v4 = env.and_then(|set| variable(set, "CALICO_IPV4POOL_CIDR"));
    let v6 = env.and_then(|set| variable(set, "CALICO_IPV6POOL_CIDR"));
    let variables: Vec<&str> = [v4, v6].into_iter().flatten().collect();
    Some(found.pods("calico-node's CALICO_IPV4POOL_CIDR", Some(&variables.join(","))))
}

fn flannel(observed: &Observed) -> Option<Found> {
    let (name, map) = ["kube-flannel/kube-flannel-cfg", "kube-system/kube-flannel-cfg"]
        .into_iter()
        .find_map(|name| Some((name, observed.config_maps.get(name)?)))?;
    let source = format!("ConfigMap {name}");
    let nets = net_conf(map);
    Some(Found::new(FLANNEL, source.clone()).pods(&source, Some(&nets)))
}

fn kindnet(observed: &Observed) -> Option<Found> {
    let set = daemon_set(observed, &["kindnet"])?;
    let subnet = object_of(observed, "kindnet").and_then(|set| variable(set, "POD_SUBNET"));
    Some(Found::new("kindnet", format!("DaemonSet {set}")).pods("kindnet's POD_SUBNET", subnet))
}

/// Upstream has no name for it and takes it for any other.
fn cilium(observed: &Observed) -> Option<Found> {
    let map = observed.config_maps.get(CILIUM_CONFIG)?;
    let source = "ConfigMap kube-system/cilium-config";
    let cloud = clouds::find(observed);
    if cloud.is_some() && is_chained(entry(map, CHAINING_MODE)) {
        return cloud;
    }
    let also = cloud.map_or_else(String::new, |cloud| format!("; {}", cloud.plugin.source));
    let mut found = Found::new(CILIUM, format!("{source}{also}"));
    let mode = ipam(observed).unwrap_or_default();
    if mode.starts_with(CLUSTER_POOL) {
        let pools: Vec<&str> = ["cluster-pool-ipv4-cidr", "cluster-pool-ipv6-cidr"]
            .into_iter()
            .filter_map(|key| entry(map, key))
            .collect();
        found = found.pods(source, Some(&pools.join(",")));
    }
    let pools = of_source(observed, Source::CiliumPools, "Cilium's CiliumPodIPPools");
    let has_pools = pools.is_some();
    if mode == MULTI_POOL {
        found.pods.extend(pools);
    }
    let of_mode = match mode {
        "eni" | "azure" | "alibabacloud" => format!(
            ". With ipam {mode} pods have addresses of the cloud's network, and Cilium delivers what comes from remote clusters: \
             have one gateway active (--active-gateways one)"
        ),
        "delegated-plugin" => ". With ipam delegated-plugin another plugin gives pods their addresses (on AKS Azure CNI), which CiliumNode \
             objects do not name, and Cilium delivers what comes from remote clusters: have one gateway active (--active-gateways one)"
            .to_owned(),
        MULTI_POOL if !has_pools => {
            ". With ipam multi-pool pods' CIDRs are those of CiliumPodIPPools, of which none was found: pass all CIDRs as --clustercidr"
                .to_owned()
        }
        _ => String::new(),
    };
    found.warning = Some(format!(
        "Cilium was found: neither upstream nor this version was tried with it. Where its eBPF programs route pods' \
         packets past the node's netfilter, Trieste's packet filter does not see those; where they masquerade, remote CIDRs have to \
         be excepted: trieste diagnose cni tells{of_mode}"
    ));
    Some(found)
}

/// Flannel's networks of both families.
fn net_conf(map: &Value) -> String {
    let conf = document(map, "net-conf.json").unwrap_or_default();
    let nets = ["Network", "IPv6Network"].into_iter().filter_map(|key| conf[key].as_str());
    nets.collect::<Vec<_>>().join(",")
}

/// The first DaemonSet of one of these names, as `namespace/name`.
fn daemon_set(observed: &Observed, names: &[&str]) -> Option<String> {
    let is_named = |set: &&Value| set["metadata"]["name"].as_str().is_some_and(|name| names.contains(&name));
    let set = &observed.daemon_sets.iter().find(is_named)?["metadata"];
    Some(format!("{}/{}", set["namespace"].as_str().unwrap_or_default(), set["name"].as_str()?))
}

fn object_of<'a>(observed: &'a Observed, name: &str) -> Option<&'a Value> {
    observed.daemon_sets.iter().find(|set| set["metadata"]["name"].as_str() == Some(name))
}
