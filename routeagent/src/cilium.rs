//! CiliumNode objects: which networks a node's pods have where Cilium gives them out. Pure.
//!
//! With its own pools Cilium does not look at what Kubernetes assigns to nodes (`spec.podCIDRs`), which may be another node's
//! network by Cilium's count. Where pods have addresses of the cloud's network (ENI, Azure), nodes have no networks, whatever older
//! versions write there, and the plugin delivers.

use std::collections::{BTreeMap, BTreeSet};

use ipnet::IpNet;
use serde_json::Value;
use trieste_control::api::Object;
use trieste_control::store::StoreEvent;

use crate::condition::Condition;
use crate::nodes::{MAX_NODES, shown};

/// Ours: most networks of one node. With pools of its own Cilium gives a node another network when one is full.
const MAX_NETWORKS: usize = 64;

/// The networks of nodes' pods, by the nodes' names, kept up to date from a store's events.
#[derive(Debug, Default)]
pub struct CiliumNodes {
    known: BTreeMap<String, Read>,
    left_out: usize,
    is_complete: bool,
}

/// The parsed content of a CiliumNode.
#[derive(Debug, Default, PartialEq, Eq)]
struct Read {
    networks: BTreeSet<IpNet>,
    problems: Vec<String>,
}

impl CiliumNodes {
    /// Applies an event of one watch of all CiliumNodes. Returns `true` if a network has changed.
    pub fn take(&mut self, event: &StoreEvent) -> bool {
        match event {
            StoreEvent::Listed(objects) => {
                let before = std::mem::take(self);
                self.is_complete = true;
                for object in objects {
                    self.put(object);
                }
                !before.is_complete || before.known != self.known || before.left_out != self.left_out
            }
            StoreEvent::Applied(object) => self.put(object),
            StoreEvent::Deleted(object) => self.known.remove(&object.metadata.name).is_some(),
            StoreEvent::Unavailable(_) | _ => false,
        }
    }

    /// Returns `true` once all were listed.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.is_complete
    }

    /// Returns the networks of a node's pods; none if Cilium has none of that node.
    #[must_use]
    pub fn networks(&self, node: &str) -> BTreeSet<IpNet> {
        self.known.get(node).map(|read| read.networks.clone()).unwrap_or_default()
    }

    /// Returns conditions for objects, or fields of them, that cannot be used.
    pub fn conditions(&self) -> impl Iterator<Item = Condition> {
        let bad = self.known.iter().flat_map(|(name, read)| {
            let object = format!("CiliumNode {name}");
            read.problems
                .iter()
                .map(move |problem| Condition::BadObject { object: object.clone(), problem: problem.clone() })
        });
        bad.chain((self.left_out > 0).then_some(Condition::TooManyNodes { left_out: self.left_out }))
    }

    fn put(&mut self, object: &Object) -> bool {
        let name = &object.metadata.name;
        if self.known.len() >= MAX_NODES && !self.known.contains_key(name) {
            self.left_out += 1;
            return self.left_out == 1;
        }
        let read = read(object);
        let has_changed = self.known.get(name) != Some(&read);
        if has_changed {
            self.known.insert(name.clone(), read);
        }
        has_changed
    }
}

/// Reads `spec.ipam`: `podCIDRs` of one pool for the whole cluster, and `pools.allocated` of several.
fn read(object: &Object) -> Read {
    let mut read = Read { problems: object.withheld.iter().cloned().collect(), ..Read::default() };
    let Some(spec) = object.body.get("spec") else { return read };
    let ipam = &spec["ipam"];
    let has = |field: &Value| field.as_object().is_some_and(|field| !field.is_empty());
    let pools: Vec<&Value> = ipam["pools"]["allocated"].as_array().into_iter().flatten().collect();
    // Beside other pools, and where pods have addresses of the cloud's network, older versions write a network that they do not use.
    let is_used = pools.is_empty()
        && ![&ipam["pools"], &ipam["pool"], &spec["eni"], &spec["azure"], &spec["alibaba-cloud"]]
            .into_iter()
            .any(has);
    let cluster_pool = is_used.then_some(("spec.ipam.podCIDRs", &ipam["podCIDRs"]));
    let pools = pools.into_iter().map(|pool| ("spec.ipam.pools.allocated", &pool["cidrs"]));
    let lists = cluster_pool.into_iter().chain(pools);
    let texts = lists.flat_map(|(field, list)| {
        list.as_array().into_iter().flatten().map(move |text: &Value| (field, text))
    });
    let mut left_out = 0;
    for (index, (field, text)) in texts.enumerate() {
        if index >= MAX_NETWORKS {
            left_out += 1;
            continue;
        }
        match text.as_str().and_then(|text| text.parse::<IpNet>().ok()) {
            Some(network) => drop(read.networks.insert(network.trunc())),
            None => read.problems.push(format!("{field}: {} is no network", shown(&text.to_string()))),
        }
    }
    if left_out > 0 {
        let problem = format!("spec.ipam has {left_out} networks more than the {MAX_NETWORKS} that are used");
        read.problems.push(problem);
    }
    read
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use trieste_control::api::{Kind, ObjectMeta};

    use super::*;

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
