//! Node objects: what the route agent needs of them, and no more.
//!
//! A kubelet writes its Node every few seconds. What is kept here is what routes follow from, so that a heartbeat
//! changes nothing; and it is bounded, since a Node is as large as the list of its images.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use ipnet::IpNet;
use serde_json::Value;
use trieste_control::api::{Kind, Object, ObjectMeta, label};

use crate::node_index::{Content, NodeIndex, Read};
use crate::state::ClusterNode;

/// Ours: most addresses, and most pod networks, of one node. One per family is usual.
const MAX_PER_NODE: usize = 8;
/// Ours: key of the taint that keeps pods off a node until it is closed (`taint.rs`).
pub const TAINT: &str = "trieste.io/not-ready";
/// From the specification: the annotation with a fixed MSS (api §8.1).
const CLAMP_MSS: &str = "submariner.io/tcp-clamp-mss";
/// From the specification: a node's addresses on the switch between zones (api §8.5).
const TRANSIT: &str = "k8s.ovn.org/node-transit-switch-port-ifaddr";
/// Ours: longest such annotation that is read, bytes.
const MAX_TRANSIT: usize = 1024;

/// The nodes of the own cluster, by name.
pub type Nodes = NodeIndex<ClusterNode>;

/// Returns `true` if a Node has the taint [`TAINT`].
#[must_use]
pub fn is_tainted(node: &Object) -> bool {
    let taints = node.body.get("spec").and_then(|spec| spec.get("taints"));
    taints.and_then(Value::as_array).into_iter().flatten().any(is_our_taint)
}

/// Returns `true` for the taint [`TAINT`], whatever its effect.
#[must_use]
pub fn is_our_taint(taint: &Value) -> bool {
    taint["key"].as_str() == Some(TAINT)
}

/// Returns `true` if a node's kubelet reports it Ready.
#[must_use]
pub fn is_ready(object: &Object) -> bool {
    let conditions = object.body.get("status").and_then(|status| status["conditions"].as_array());
    conditions.into_iter().flatten().any(|condition| {
        condition["type"].as_str() == Some("Ready") && condition["status"].as_str() == Some("True")
    })
}

impl Content for ClusterNode {
    const KIND: Kind = Kind::Node;

    fn read(object: &Object) -> Read<Self> {
        let mut problems: Vec<String> = object.withheld.iter().cloned().collect();
        let metadata = &object.metadata;
        let content = Self {
            name: metadata.name.clone(),
            hostname: metadata.labels.get(label::HOSTNAME).unwrap_or(&metadata.name).clone(),
            addresses: addresses(object, &mut problems),
            pod_networks: pod_networks(object, &mut problems),
            clamp_mss: clamp_mss(metadata, &mut problems),
            transit_addresses: transit_addresses(metadata, &mut problems),
            is_tainted: is_tainted(object),
        };
        Read { content, problems }
    }
}

fn addresses(object: &Object, problems: &mut Vec<String>) -> BTreeSet<IpAddr> {
    let all = object.body.get("status").and_then(|status| status["addresses"].as_array());
    let internal = all.into_iter().flatten().filter(|address| address["type"].as_str() == Some("InternalIP"));
    let texts: Vec<&Value> = internal.map(|address| &address["address"]).collect();
    parsed("status.addresses", &texts, problems)
}

/// Reads the pod networks. `podCIDRs` repeats `podCIDR`; older objects have the latter alone.
fn pod_networks(object: &Object, problems: &mut Vec<String>) -> BTreeSet<IpNet> {
    let Some(spec) = object.body.get("spec") else { return BTreeSet::new() };
    let all: Vec<&Value> = spec["podCIDRs"].as_array().into_iter().flatten().collect();
    let first: Vec<&Value> = spec.get("podCIDR").into_iter().collect();
    let networks: BTreeSet<IpNet> = match all.is_empty() {
        true => parsed("spec.podCIDR", &first, problems),
        false => parsed("spec.podCIDRs", &all, problems),
    };
    networks.iter().map(IpNet::trunc).collect()
}

fn clamp_mss(metadata: &ObjectMeta, problems: &mut Vec<String>) -> Option<u16> {
    let text = metadata.annotations.get(CLAMP_MSS)?;
    let parsed = text.parse().ok().filter(|mss| *mss > 0);
    if parsed.is_none() {
        problems.push(format!("annotation {CLAMP_MSS}: `{}` is not a number of bytes", shown(text)));
    }
    parsed
}

/// Reads OVN-Kubernetes' annotation: `{"ipv4":"100.88.0.2/16","ipv6":"fd97::2/64"}`.
fn transit_addresses(metadata: &ObjectMeta, problems: &mut Vec<String>) -> BTreeSet<IpAddr> {
    let Some(text) = metadata.annotations.get(TRANSIT) else { return BTreeSet::new() };
    let read: Option<BTreeMap<String, IpNet>> =
        Some(text).filter(|text| text.len() <= MAX_TRANSIT).and_then(|text| serde_json::from_str(text).ok());
    let Some(read) = read else {
        problems.push(format!("annotation {TRANSIT}: `{}` has no addresses by family", shown(text)));
        return BTreeSet::new();
    };
    ["ipv4", "ipv6"].iter().filter_map(|family| read.get(*family)).map(IpNet::addr).collect()
}

fn parsed<T: std::str::FromStr + Ord>(
    field: &str,
    texts: &[&Value],
    problems: &mut Vec<String>,
) -> BTreeSet<T> {
    let mut values = BTreeSet::new();
    for (index, text) in texts.iter().take(MAX_PER_NODE).enumerate() {
        match text.as_str().and_then(|text| text.parse().ok()) {
            Some(value) => {
                values.insert(value);
            }
            None => problems
                .push(format!("{field}[{index}]: {} is no address or network", shown(&text.to_string()))),
        }
    }
    if texts.len() > MAX_PER_NODE {
        problems.push(format!("{field} has {} entries, only {MAX_PER_NODE} are used", texts.len()));
    }
    values
}

/// Returns a foreign text for use in a message: shortened, and without control characters.
pub(crate) fn shown(text: &str) -> String {
    text.chars().take(64).flat_map(char::escape_debug).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use trieste_control::store::StoreEvent;

    use super::*;
    use crate::condition::Condition;
    use crate::node_index::MAX_NODES;

    #[test]
    fn a_node_is_read_with_both_families_and_its_own_name() {
        let read = ClusterNode::read(&node(&json!({})));
        let expected = ClusterNode {
            name: "n1".to_owned(),
            hostname: "worker-1".to_owned(),
            addresses: ["172.31.1.21", "fd00:31::21"].map(|text| text.parse().unwrap()).into(),
            pod_networks: ["10.1.3.0/24", "fd00:1:3::/64"].map(|text| text.parse().unwrap()).into(),
            clamp_mss: Some(1300),
            transit_addresses: BTreeSet::new(),
            is_tainted: false,
        };
        assert_eq!(read, Read { content: expected, problems: Vec::new() });
    }

    #[test]
    fn a_heartbeat_is_no_news_and_a_new_address_is() {
        let mut nodes = Nodes::default();
        assert!(nodes.take(&StoreEvent::Listed(vec![node(&json!({}))])));
        let beat = json!({"conditions": [{"type": "Ready", "status": "False", "lastHeartbeatTime": "now"}]});
        assert!(!nodes.take(&StoreEvent::Applied(node(&beat))));
        let moved = json!({"addresses": [{"type": "InternalIP", "address": "172.31.1.99"}]});
        assert!(nodes.take(&StoreEvent::Applied(node(&moved))));
        assert!(!nodes.take(&StoreEvent::Listed(vec![node(&moved)])));
        assert!(nodes.take(&StoreEvent::Deleted(node(&moved))) && nodes.iter().count() == 0);
    }

    #[test]
    fn what_makes_no_sense_is_named_and_the_rest_is_used() {
        let mut nodes = Nodes::default();
        let bad = json!({"addresses": [{"type": "InternalIP", "address": "x"}, {"type": "InternalIP", "address": "10.0.0.1"},
            {"type": "Hostname", "address": "worker-1"}]});
        let mut object = node(&bad);
        object.metadata.annotations.insert(CLAMP_MSS.to_owned(), "no\u{1b}".to_owned());
        nodes.take(&StoreEvent::Listed(vec![object]));
        assert_eq!(nodes.iter().next().unwrap().addresses.len(), 1);
        let texts: Vec<String> = nodes.conditions().map(|condition| condition.to_string()).collect();
        assert!(
            texts.iter().any(|text| text.contains("Node n1") && text.contains("status.addresses[0]")),
            "{texts:?}"
        );
        assert!(
            texts.iter().any(|text| text.contains("tcp-clamp-mss") && !text.contains('\u{1b}')),
            "{texts:?}"
        );
    }

    #[test]
    fn plugin_ovn_addresses_between_zones_are_read_and_what_is_none_is_named() {
        let long = format!("{{\"ipv4\":\"100.88.0.2/16\",\"x\":\"{}\"}}", "1".repeat(MAX_TRANSIT));
        let both = r#"{"ipv4":"100.88.0.2/16","ipv6":"fd97::2/64"}"#;
        let cases: [(&str, &[&str]); 5] = [
            (both, &["100.88.0.2", "fd97::2"]),
            (r#"{"ipv4":"100.88.0.2/16"}"#, &["100.88.0.2"]),
            (r#"{"ipv4":"x"}"#, &[]),
            ("[]", &[]),
            (&long, &[]),
        ];
        for (text, expected) in cases {
            let mut object = node(&json!({}));
            object.metadata.annotations.insert(TRANSIT.to_owned(), text.to_owned());
            let read = ClusterNode::read(&object);
            let expected: BTreeSet<IpAddr> = expected.iter().map(|text| text.parse().unwrap()).collect();
            assert_eq!(read.problems.is_empty(), !expected.is_empty(), "{text}");
            assert_eq!(read.content.transit_addresses, expected, "{text}");
        }
    }

    #[test]
    fn nodes_and_addresses_are_bounded() {
        let many: Vec<_> = (0..=MAX_NODES)
            .map(|number| Object::new(Kind::Node, ObjectMeta::new("", format!("n{number:05}"))))
            .collect();
        let mut nodes = Nodes::default();
        nodes.take(&StoreEvent::Listed(many));
        assert_eq!(nodes.iter().count(), MAX_NODES);
        assert_eq!(nodes.conditions().collect::<Vec<_>>(), [Condition::TooManyNodes { left_out: 1 }]);
        let addresses: Vec<_> =
            (0..20).map(|last| json!({"type": "InternalIP", "address": format!("10.0.0.{last}")})).collect();
        let read = ClusterNode::read(&node(&json!({"addresses": addresses})));
        assert_eq!((read.content.addresses.len(), read.problems.len()), (MAX_PER_NODE, 1));
    }

    #[test]
    fn ready_is_what_the_kubelet_says() {
        let with =
            |status: &str| is_ready(&node(&json!({"conditions": [{"type": "Ready", "status": status}]})));
        assert!(with("True") && !with("Unknown") && !is_ready(&node(&json!({}))));
    }

    /// Returns a Node with these fields of its status instead of the usual ones.
    fn node(status: &Value) -> Object {
        let mut object = json!({
            "apiVersion": "v1", "kind": "Node",
            "metadata": {"name": "n1", "labels": {label::HOSTNAME: "worker-1"}, "annotations": {CLAMP_MSS: "1300"}},
            "spec": {"podCIDR": "10.1.3.0/24", "podCIDRs": ["10.1.3.0/24", "fd00:1:3::1/64"]},
            "status": {"addresses": [{"type": "InternalIP", "address": "172.31.1.21"},
                {"type": "InternalIP", "address": "fd00:31::21"}, {"type": "ExternalIP", "address": "192.0.2.1"}]},
        });
        object["status"].as_object_mut().unwrap().extend(status.as_object().unwrap().clone());
        Object::from_value(object).unwrap()
    }
}
