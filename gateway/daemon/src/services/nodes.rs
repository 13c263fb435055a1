//! Nodes that accept packets for services, by the objects of their route agents. Pure.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::time::{Duration, Instant};

use trieste_control::api::{Object, Resource as _, RouteAgent};
use trieste_control::store::{StoreError, StoreEvent};

/// How long a node counts after its route agent has removed its object, as it does when it stops, while the API server
/// answers: the node's rules stay in the kernel, and a new agent is about to start. Ours: time enough to pull an image; then
/// the back ends in those rules are too old. If the node is gone, so are its back ends.
pub(super) const AFTER_STOP: Duration = Duration::from_secs(600);
/// How long a node counts whose route agent runs and does not say whether it takes packets, as it does when it has just
/// started.
const UNSAID: Duration = Duration::from_secs(120);
/// Largest number of nodes.
const MOST_NODES: usize = 10_000;

/// Nodes that accept packets for services.
#[derive(Debug, Default)]
pub(super) struct Nodes {
    nodes: BTreeMap<String, Node>,
    /// Whether route agents cannot be read at present: none that starts can say so.
    is_unavailable: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Node {
    address: IpAddr,
    /// Until when it counts without its object; `None` with it.
    until: Option<Instant>,
}

impl Nodes {
    /// Begins with those of the process before.
    pub(super) fn remembered(nodes: BTreeMap<String, IpAddr>) -> Self {
        let node = |(name, address)| (name, Node { address, until: None });
        Self { nodes: nodes.into_iter().take(MOST_NODES).map(node).collect(), is_unavailable: false }
    }

    /// Applies an event; returns `true` if the snapshot may have changed.
    pub(super) fn take(&mut self, event: &StoreEvent, now: Instant) -> bool {
        let was_unavailable = std::mem::replace(&mut self.is_unavailable, is_unavailable(event));
        if was_unavailable && !self.is_unavailable {
            self.nodes
                .values_mut()
                .filter_map(|node| node.until.as_mut())
                .for_each(|until| *until = now + AFTER_STOP);
        }
        match event {
            StoreEvent::Listed(objects) => {
                let listed: BTreeSet<&str> =
                    objects.iter().map(|object| object.metadata.name.as_str()).collect();
                let stopped = self.nodes.iter_mut().filter(|(name, _)| !listed.contains(name.as_str()));
                stopped.for_each(|(_, node)| node.stop(now));
                objects.iter().fold(false, |has_changed, object| self.apply(object, now) | has_changed)
            }
            StoreEvent::Applied(object) => self.apply(object, now),
            StoreEvent::Deleted(object) => {
                if let Some(node) = self.nodes.get_mut(&object.metadata.name) {
                    node.until = Some(now + AFTER_STOP);
                }
                false
            }
            StoreEvent::Unavailable(StoreError::Forbidden { .. }) => {
                // Nobody may say any more that nodes take packets.
                self.nodes.values_mut().for_each(|node| node.stop(now));
                false
            }
            // The last state stays; an unavailable store is reported elsewhere.
            StoreEvent::Unavailable(_) | _ => false,
        }
    }

    fn apply(&mut self, object: &Object, now: Instant) -> bool {
        let name = object.metadata.name.as_str();
        let agent = RouteAgent::from_object(object).ok();
        match agent.as_ref().map(|agent| (agent.services_address(), agent.takes_no_services())) {
            Some((Some(address), _)) => self.put(name, address),
            Some((None, true)) => self.nodes.remove(name).is_some(),
            _ => {
                if let Some(node) = self.nodes.get_mut(name) {
                    node.until = Some(node.until.map_or(now + UNSAID, |until| until.min(now + UNSAID)));
                }
                false
            }
        }
    }

    fn put(&mut self, name: &str, address: IpAddr) -> bool {
        let node = Node { address, until: None };
        if self.nodes.len() >= MOST_NODES && !self.nodes.contains_key(name) {
            return false;
        }
        self.nodes.insert(name.to_owned(), node).is_none_or(|before| before.address != address)
    }

    /// Returns when the first of the nodes whose route agents have stopped no longer counts.
    pub(super) fn next_end(&self) -> Option<Instant> {
        if self.is_unavailable {
            return None;
        }
        self.nodes.values().filter_map(|node| node.until).min()
    }

    /// Removes those that no longer count; returns `true` if there were some.
    pub(super) fn end(&mut self, now: Instant) -> bool {
        let before = self.nodes.len();
        self.nodes.retain(|_, node| node.until.is_none_or(|until| now < until));
        self.nodes.len() != before
    }

    /// Returns the addresses of all by name.
    pub(super) fn addresses(&self) -> BTreeMap<String, IpAddr> {
        self.nodes.iter().map(|(name, node)| (name.clone(), node.address)).collect()
    }
}

impl Node {
    /// Lets it end, if it does not yet. It still counts, for now.
    fn stop(&mut self, now: Instant) {
        self.until.get_or_insert(now + AFTER_STOP);
    }
}

/// Returns `true` for a store that does not answer: nobody can say anything there.
fn is_unavailable(event: &StoreEvent) -> bool {
    matches!(event, StoreEvent::Unavailable(error) if !matches!(error, StoreError::Forbidden { .. }))
}

#[cfg(test)]
mod tests {
    use trieste_control::api::{RouteAgentStatus, annotation};

    use super::*;

    fn agent(name: &str, address: Option<&str>) -> Object {
        let status = RouteAgentStatus { version: "v1".to_owned(), ..RouteAgentStatus::default() };
        let mut agent = RouteAgent::new("ns", name, status).unwrap();
        agent.metadata.annotations.insert(annotation::ROUTE_AGENT.to_owned(), "v1".to_owned());
        let address = address.map(|address| (annotation::SERVICES.to_owned(), address.to_owned()));
        agent.metadata.annotations.extend(address);
        agent.to_object()
    }

    #[test]
    fn a_node_counts_for_a_while_after_its_route_agent_has_stopped() {
        let (mut nodes, start) = (Nodes::default(), Instant::now());
        let list = vec![agent("w1", Some("172.31.9.3")), agent("w2", None), agent("w3", Some("nonsense"))];
        assert!(nodes.take(&StoreEvent::Listed(list), start));
        assert_eq!(nodes.addresses().len(), 1);
        assert!(!nodes.take(&StoreEvent::Deleted(agent("w1", Some("172.31.9.3"))), start));
        assert_eq!(nodes.next_end(), Some(start + AFTER_STOP));
        nodes.take(&StoreEvent::Applied(agent("w1", None)), start);
        assert_eq!(nodes.next_end(), Some(start + UNSAID), "it runs again, and does not know yet");
        nodes.take(&StoreEvent::Deleted(agent("w1", None)), start);
        assert!(!nodes.end(start + AFTER_STOP / 2) && nodes.addresses().contains_key("w1"));
        assert!(!nodes.take(&StoreEvent::Applied(agent("w1", Some("172.31.9.3"))), start), "it is back");
        assert_eq!(nodes.next_end(), None);
        nodes.take(&StoreEvent::Applied(agent("w1", None)), start);
        assert!(nodes.end(start + UNSAID) && !nodes.addresses().contains_key("w1"));
    }

    #[test]
    fn a_list_that_does_not_name_a_node_any_more_is_a_deletion_that_was_missed() {
        let (mut nodes, start) = (Nodes::default(), Instant::now());
        nodes.take(&StoreEvent::Applied(agent("w1", Some("172.31.9.3"))), start);
        nodes.take(&StoreEvent::Listed(Vec::new()), start);
        assert!(nodes.next_end().is_some());
        assert!(nodes.take(&StoreEvent::Applied(agent("w2", Some("fd31::3"))), start));
        assert!(nodes.take(&StoreEvent::Applied(agent("w2", Some("fd31::4"))), start), "another address");
    }

    #[test]
    fn while_route_agents_cannot_be_read_no_node_ends() {
        let remembered = BTreeMap::from([("w1".to_owned(), "172.31.9.3".parse().unwrap())]);
        let (mut nodes, start) = (Nodes::remembered(remembered), Instant::now());
        let unavailable = || {
            StoreEvent::Unavailable(StoreError::Unavailable {
                operation: "list".to_owned(),
                source: std::io::ErrorKind::TimedOut.into(),
            })
        };
        nodes.take(&unavailable(), start);
        assert!(nodes.addresses().contains_key("w1"), "nobody has said that it has stopped");
        nodes.take(&StoreEvent::Listed(Vec::new()), start);
        assert_eq!(nodes.next_end(), Some(start + AFTER_STOP));
        nodes.take(&unavailable(), start + AFTER_STOP / 2);
        assert_eq!(nodes.next_end(), None);
        let back = start + AFTER_STOP * 3;
        nodes.take(&StoreEvent::Applied(agent("w2", None)), back);
        assert_eq!(nodes.next_end(), Some(back + AFTER_STOP));
    }

    #[test]
    fn a_node_whose_agent_says_that_it_takes_none_counts_no_more() {
        let (mut nodes, start) = (Nodes::default(), Instant::now());
        nodes.take(&StoreEvent::Applied(agent("w1", Some("172.31.9.3"))), start);
        assert!(nodes.take(&StoreEvent::Applied(agent("w1", Some("none"))), start));
        assert!(nodes.addresses().is_empty() && nodes.next_end().is_none());
    }

    #[test]
    fn without_the_right_to_read_route_agents_all_nodes_end() {
        let (mut nodes, start) = (Nodes::default(), Instant::now());
        nodes.take(&StoreEvent::Applied(agent("w1", Some("172.31.9.3"))), start);
        let source = std::io::ErrorKind::PermissionDenied.into();
        let forbidden = StoreError::Forbidden { operation: "list".to_owned(), source };
        nodes.take(&StoreEvent::Unavailable(forbidden), start);
        assert!(nodes.addresses().contains_key("w1"), "for now");
        assert!(nodes.end(start + AFTER_STOP) && nodes.addresses().is_empty());
    }
}
