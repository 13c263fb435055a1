//! Which networks stand in objects that gateways can follow.

use std::collections::BTreeSet;

use ipnet::IpNet;
use serde_json::{Value, json};
use trieste_control::api::Object;
use trieste_control::live_networks::{Source, TrackedLists};
use trieste_control::requirements::{is_calico, is_cilium, is_ovn_kubernetes};

use super::Observed;
use super::flags::{CANAL, CLUSTER_POOL, FLANNEL, KUBE_PROXY, KUBEADM, MULTI_POOL, ipam};

/// Returns the sources that there are, with their networks. `chosen` names where those of pods, and those of services, were found.
pub(super) fn find(observed: &Observed, plugin: &str, chosen: &[String; 2]) -> TrackedLists {
    let of = |source: Source| {
        let found = networks(observed, source);
        let is_used = is_served(source, plugin) && is_used(observed, source, chosen);
        (!found.is_empty() && is_used).then_some((source, found))
    };
    TrackedLists(Source::ALL.into_iter().filter_map(of).collect())
}

/// Returns the plugins' ConfigMaps that are there, whatever they say: one that was followed is followed on.
pub(super) fn present(observed: &Observed) -> BTreeSet<Source> {
    let is_plugins = |source: &Source| !source.is_of_installer() && map_of(observed, *source).is_some();
    Source::ALL.into_iter().filter(is_plugins).collect()
}

fn map_of(observed: &Observed, source: Source) -> Option<&Value> {
    let key = source.object()?;
    observed.config_maps.get(&format!("{}/{}", key.namespace, key.name))
}

/// Returns `true` if a source is where the cluster has its networks from.
fn is_used(observed: &Observed, source: Source, [pods, services]: &[String; 2]) -> bool {
    match source {
        Source::CiliumPools => ipam(observed) == Some(MULTI_POOL),
        Source::CiliumMap => ipam(observed).is_some_and(|mode| mode.starts_with(CLUSTER_POOL)),
        Source::FlannelSystemMap => map_of(observed, Source::FlannelMap).is_none(),
        // What components were started with: others may know better, also of one family.
        Source::KubeProxyMap => pods == KUBE_PROXY,
        Source::KubeadmPodsMap => pods == KUBEADM,
        Source::KubeadmServicesMap => services == KUBEADM,
        Source::CalicoPools
        | Source::ServiceCidrs
        | Source::OpenShiftPods
        | Source::OpenShiftServices
        | Source::FlannelMap
        | Source::CanalMap
        | Source::OvnPodsMap
        | Source::OvnServicesMap => true,
    }
}

/// Returns the networks that a source names; none if they cannot be read.
pub(super) fn networks(observed: &Observed, source: Source) -> BTreeSet<IpNet> {
    let map = map_of(observed, source);
    let others = observed.others.get(source.kind().as_str()).into_iter().flatten();
    let objects: Vec<Object> = others.chain(map).filter_map(|value| read(source, value)).collect();
    source.found(&objects, &BTreeSet::new()).unwrap_or_default()
}

/// Returns `true` if a source may say something with this plugin: objects of others may be left from before.
pub(crate) fn is_served(source: Source, plugin: &str) -> bool {
    match source {
        Source::CalicoPools => is_calico(plugin),
        Source::CiliumPools | Source::CiliumMap => is_cilium(plugin),
        Source::FlannelMap | Source::FlannelSystemMap => plugin == FLANNEL,
        Source::CanalMap => plugin == CANAL,
        Source::OvnPodsMap | Source::OvnServicesMap => is_ovn_kubernetes(plugin),
        Source::ServiceCidrs
        | Source::OpenShiftPods
        | Source::OpenShiftServices
        | Source::KubeProxyMap
        | Source::KubeadmPodsMap
        | Source::KubeadmServicesMap => true,
    }
}

/// Reads an object; lists of an API server do not repeat what it is.
fn read(source: Source, value: &Value) -> Option<Object> {
    let mut value = value.clone();
    value["apiVersion"] = source.kind().api_version().into();
    value["kind"] = source.kind().as_str().into();
    if let Some(key) = source.object() {
        value["metadata"] = json!({"namespace": &*key.namespace, "name": &*key.name});
    }
    serde_json::from_value(value).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_followed_that_stand_in_objects_and_pools_with_calico_alone() {
        let mut observed = Observed::default();
        let range =
            |name: &str, cidrs: &[&str]| json!({"metadata": {"name": name}, "spec": {"cidrs": cidrs}});
        let ranges =
            vec![range("kubernetes", &["10.96.0.0/16", "fd00:96::/112"]), range("more", &["10.98.0.0/24"])];
        let pool = |name: &str, cidr: &str, labels: Value| json!({"metadata": {"name": name, "labels": labels}, "spec": {"cidr": cidr, "natOutgoing": true}});
        let remote = pool("b", "10.2.0.0/16", json!({"submariner.io/ippool": "true"}));
        let pools = vec![pool("default", "10.1.0.0/16", json!({})), remote];
        observed.others.insert("IPPool", pools);
        let services = r#""services":["10.96.0.0/16","10.98.0.0/24","fd00:96::/112"]"#;
        for (ranges, plugin, expected) in [
            (Vec::new(), "generic", "{}".to_owned()),
            (ranges.clone(), "generic", format!("{{{services}}}")),
            (Vec::new(), "calico", "{\"pods\":[\"10.1.0.0/16\"]}".to_owned()),
            (ranges, "calico", format!("{{\"pods\":[\"10.1.0.0/16\"],{services}}}")),
        ] {
            observed.others.insert("ServiceCIDR", ranges);
            assert_eq!(find(&observed, plugin, &Default::default()).value(), expected, "{plugin}");
        }
    }
}
