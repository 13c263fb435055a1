//! CiliumNode objects: which networks a node's pods have where Cilium gives them out. Pure.
//!
//! With its own pools Cilium does not look at what Kubernetes assigns to nodes (`spec.podCIDRs`), which may be another node's
//! network by Cilium's count. Where pods have addresses of the cloud's network (ENI, Azure), nodes have no networks, whatever older
//! versions write there, and the plugin delivers.

use std::collections::BTreeSet;

use ipnet::IpNet;
use serde_json::Value;
use trieste_control::api::{Kind, Object};

use crate::node_index::{Content, NodeIndex, Read};
use crate::nodes::shown;

/// Ours: most networks of one node. With pools of its own Cilium gives a node another network when one is full.
const MAX_NETWORKS: usize = 64;

/// The networks of nodes' pods, by the nodes' names.
pub type CiliumNodes = NodeIndex<CiliumNode>;

/// A node as Cilium has it.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct CiliumNode {
    /// The networks of its pods.
    pub networks: BTreeSet<IpNet>,
}

impl NodeIndex<CiliumNode> {
    /// Returns the networks of a node's pods; none if Cilium has none of that node.
    #[must_use]
    pub fn networks(&self, node: &str) -> BTreeSet<IpNet> {
        self.get(node).map(|node| node.networks.clone()).unwrap_or_default()
    }
}

impl Content for CiliumNode {
    const KIND: Kind = Kind::CiliumNode;

    fn read(object: &Object) -> Read<Self> {
        let mut networks = BTreeSet::new();
        let mut problems: Vec<String> = object.withheld.iter().cloned().collect();
        let texts: Vec<(&str, &Value)> = object.body.get("spec").map(texts).unwrap_or_default();
        for (field, text) in texts.iter().take(MAX_NETWORKS) {
            match text.as_str().and_then(|text| text.parse::<IpNet>().ok()) {
                Some(network) => drop(networks.insert(network.trunc())),
                None => problems.push(format!("{field}: {} is no network", shown(&text.to_string()))),
            }
        }
        let left_out = texts.len().saturating_sub(MAX_NETWORKS);
        if left_out > 0 {
            problems.push(format!(
                "spec.ipam has {left_out} networks more than the {MAX_NETWORKS} that are used"
            ));
        }
        Read { content: Self { networks }, problems }
    }
}

/// Returns the networks of `spec.ipam` with their fields: `podCIDRs` of one pool for the whole cluster, and `pools.allocated` of
/// several.
fn texts(spec: &Value) -> Vec<(&'static str, &Value)> {
    let ipam = &spec["ipam"];
    let has = |field: &Value| field.as_object().is_some_and(|field| !field.is_empty());
    // Beside other pools, and where pods have addresses of the cloud's network, older versions write a network that they do not use.
    let others = [&ipam["pools"], &ipam["pool"], &spec["eni"], &spec["azure"], &spec["alibaba-cloud"]];
    let cluster_pool = (!others.into_iter().any(has)).then_some(("spec.ipam.podCIDRs", &ipam["podCIDRs"]));
    let pools = ipam["pools"]["allocated"].as_array().into_iter().flatten();
    let pools = pools.map(|pool| ("spec.ipam.pools.allocated", &pool["cidrs"]));
    let lists = cluster_pool.into_iter().chain(pools);
    lists
        .flat_map(|(field, list)| list.as_array().into_iter().flatten().map(move |text| (field, text)))
        .collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use trieste_control::api::ObjectMeta;
    use trieste_control::store::StoreEvent;

    use super::*;
    use crate::condition::Condition;
    use crate::node_index::MAX_NODES;

    fn cilium_node(name: &str, ipam: &Value) -> Object {
        let mut object = Object::new(Kind::CiliumNode, ObjectMeta::new("", name));
        object.body.insert("spec".to_owned(), json!({"ipam": ipam, "health": {"ipv4": "10.0.1.7"}}));
        object
    }

    fn nets(texts: &[&str]) -> BTreeSet<IpNet> {
        texts.iter().map(|text| text.parse().unwrap()).collect()
    }

    #[test]
    fn plugin_cilium_networks_are_those_of_its_pools() {
        let several = json!({"pools": {"allocated": [
            {"pool": "default", "cidrs": ["10.10.0.0/27", "10.10.9.0/27"]}, {"pool": "fast", "cidrs": ["fd00:10::/112"]}]}});
        let cases = [
            (
                json!({"podCIDRs": ["10.0.1.0/24", "fd00:1:0:1::9/64"]}),
                nets(&["10.0.1.0/24", "fd00:1:0:1::/64"]),
            ),
            (several, nets(&["10.10.0.0/27", "10.10.9.0/27", "fd00:10::/112"])),
            // ENI: addresses, and no networks but one that nobody uses.
            (json!({"pool": {"192.168.1.5": {}}, "podCIDRs": ["10.32.0.0/16"]}), nets(&[])),
            (
                json!({"podCIDRs": ["10.32.0.0/16"], "pools": {"allocated": [{"pool": "default", "cidrs": ["10.10.0.0/27"]}]}}),
                nets(&["10.10.0.0/27"]),
            ),
            (json!(null), nets(&[])),
        ];
        for (ipam, expected) in cases {
            let mut nodes = CiliumNodes::default();
            nodes.take(&StoreEvent::Listed(vec![cilium_node("n1", &ipam)]));
            assert_eq!((nodes.networks("n1"), nodes.conditions().count()), (expected, 0), "{ipam}");
            assert_eq!(nodes.networks("n2"), nets(&[]));
        }
    }

    #[test]
    fn plugin_cilium_health_is_no_news_and_a_network_that_comes_or_goes_is() {
        let mut nodes = CiliumNodes::default();
        assert!(!nodes.is_complete() && nodes.take(&StoreEvent::Listed(Vec::new())) && nodes.is_complete());
        let one = cilium_node("n1", &json!({"podCIDRs": ["10.0.1.0/24"]}));
        assert!(nodes.take(&StoreEvent::Applied(one.clone())));
        let mut other = one.clone();
        other.body["spec"]["health"] = json!({"ipv4": "10.0.1.8"});
        assert!(
            !nodes.take(&StoreEvent::Applied(other)) && !nodes.take(&StoreEvent::Listed(vec![one.clone()]))
        );
        let more = cilium_node("n1", &json!({"podCIDRs": ["10.0.1.0/24", "10.0.9.0/24"]}));
        assert!(nodes.take(&StoreEvent::Applied(more)));
        assert!(nodes.take(&StoreEvent::Deleted(one)) && nodes.networks("n1").is_empty());
    }

    #[test]
    fn plugin_cilium_what_makes_no_sense_is_named_and_the_rest_is_used() {
        let many: Vec<String> = (0..=MAX_NETWORKS).map(|third| format!("10.0.{third}.0/24")).collect();
        for (ipam, count, expected) in [
            (json!({"podCIDRs": ["x\\u001b", "10.0.1.0/24"]}), 1, "is no network"),
            (json!({"podCIDRs": many}), MAX_NETWORKS, "1 networks more"),
        ] {
            let mut nodes = CiliumNodes::default();
            nodes.take(&StoreEvent::Listed(vec![cilium_node("n1", &ipam)]));
            assert_eq!(nodes.networks("n1").len(), count, "{ipam}");
            let text = nodes.conditions().next().unwrap().to_string();
            assert!(text.contains("CiliumNode n1") && text.contains(expected), "{text}");
        }
        let too_many =
            (0..=MAX_NODES).map(|number| cilium_node(&format!("n{number}"), &json!(null))).collect();
        let mut nodes = CiliumNodes::default();
        nodes.take(&StoreEvent::Listed(too_many));
        assert_eq!(nodes.conditions().collect::<Vec<_>>(), [Condition::TooManyNodes { left_out: 1 }]);
    }
}
