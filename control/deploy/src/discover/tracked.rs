//! Which networks stand in objects that gateways can follow.

use std::collections::BTreeSet;

use ipnet::IpNet;
use serde_json::Value;
use trieste_control::api::Object;
use trieste_control::live_networks::{Source, TrackedLists};
use trieste_control::requirements::{is_calico, is_cilium};

use super::Observed;
use super::flags::{MULTI_POOL, ipam};

/// Returns the sources that there are, with their networks.
pub(super) fn find(observed: &Observed, plugin: &str) -> TrackedLists {
    let of = |source: Source| {
        let found = networks(observed, source);
        let is_unused = source == Source::CiliumPools && ipam(observed) != Some(MULTI_POOL);
        (!found.is_empty() && !is_unused && is_served(source, plugin)).then_some((source, found))
    };
    TrackedLists(Source::ALL.into_iter().filter_map(of).collect())
}

/// Returns the networks that a source names.
pub(super) fn networks(observed: &Observed, source: Source) -> BTreeSet<IpNet> {
    let objects = observed.others.get(source.kind().as_str()).into_iter().flatten();
    let objects: Vec<Object> = objects.filter_map(|value| read(source, value)).collect();
    source.found(&objects, &BTreeSet::new())
}

/// Returns `true` if a source may say something with this plugin: objects of others may be left from before.
pub(crate) fn is_served(source: Source, plugin: &str) -> bool {
    match source {
        Source::CalicoPools => is_calico(plugin),
        Source::CiliumPools => is_cilium(plugin),
        Source::ServiceCidrs | Source::OpenShiftPods | Source::OpenShiftServices => true,
    }
}

/// Reads an object; lists of an API server do not repeat what it is.
fn read(source: Source, value: &Value) -> Option<Object> {
    let mut value = value.clone();
    value["apiVersion"] = source.kind().api_version().into();
    value["kind"] = source.kind().as_str().into();
    serde_json::from_value(value).ok()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

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
            assert_eq!(find(&observed, plugin).value(), expected, "{plugin}");
        }
    }
}
