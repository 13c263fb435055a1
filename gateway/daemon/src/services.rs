//! Watches services and the nodes that accept packets for them, and publishes them to the workers.
//!
//! ```text
//!   RouteAgent objects ─▶ Nodes: who takes packets, at which address ─┐
//!                           │ this node does?                         ├─▶ snapshot ─▶ workers
//!                           └─▶ Services, EndpointSlices ─▶ catalogue ┘
//! ```
//!
//! Route agents decide whether packets for services go straight to their nodes: they announce it in their objects once the
//! node is ready. Unless this node's route agent announces it, packets go to kube-proxy, and no service is even read.

use std::collections::BTreeMap;
use std::future::{Future, pending};
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use futures::StreamExt as _;
use tokio::sync::watch;
use trieste_control::admin::Severity;
use trieste_control::api::{ClusterNetworks, Kind, Object, Resource as _, RouteAgent};
use trieste_control::conditions::Conditions;
use trieste_control::services::{Watched, follow};
use trieste_control::store::{AnyStore, Store as _, StoreError, StoreEvent};
use trieste_control::timer::sleep_until;
use trieste_pipeline::services::Services;

use crate::tables;

/// How long a node counts after its route agent has removed its object, as it does when it stops: its rules in the kernel
/// stay, and a new agent is about to start. If the node is gone, so are its back ends.
const AFTER_STOP: Duration = Duration::from_secs(120);
/// Largest number of nodes.
const MOST_NODES: usize = 10_000;

/// The watch of services and nodes.
pub(crate) struct Following {
    pub(crate) store: AnyStore,
    pub(crate) namespace: String,
    /// The name of this node's object.
    pub(crate) node: String,
    /// The cluster's networks, those of cluster IPs among them.
    pub(crate) networks: watch::Receiver<ClusterNetworks>,
    /// The snapshot that workers deliver by.
    pub(crate) services: Arc<ArcSwap<Services>>,
    pub(crate) conditions: Conditions,
}

type WatchTask = Pin<Box<dyn Future<Output = ()> + Send>>;

impl Following {
    /// Watches until the store's stream ends.
    pub(crate) async fn run(self) {
        let mut events = self.store.list_watch(Kind::RouteAgent, &self.namespace);
        let (sender, mut known) = watch::channel(Watched::default());
        let sender = Arc::new(sender);
        let mut nodes = Nodes::default();
        let mut networks = self.networks.clone();
        let mut watch_task: Option<WatchTask> = None;
        let mut generation = 0;
        loop {
            let is_on = nodes.address(&self.node).is_some();
            if is_on != watch_task.is_some() {
                tracing::info!(is_on, "packets for services go straight to the nodes that serve them");
                watch_task = is_on.then(|| self.watch_task(&sender));
                if !is_on {
                    sender.send_replace(Watched::default());
                }
            }
            generation += 1;
            self.publish(generation, &nodes, &known.borrow_and_update());
            loop {
                let has_changed = tokio::select! {
                    event = events.next() => match event {
                        Some(event) => {
                            self.report_unknown(&event);
                            nodes.take(&event, Instant::now())
                        }
                        None => return,
                    },
                    _ = known.changed() => true,
                    Ok(()) = networks.changed() => true,
                    () = polled(&mut watch_task) => { watch_task = None; true }
                    () = sleep_until(nodes.next_end()) => nodes.end(Instant::now()),
                };
                if has_changed {
                    break;
                }
            }
        }
    }

    fn watch_task(&self, sender: &Arc<watch::Sender<Watched>>) -> WatchTask {
        let (store, sender) = (self.store.clone(), Arc::clone(sender));
        Box::pin(async move { follow(&store, &sender).await })
    }

    /// Reports missing rights to watch route agents. An unavailable store is reported elsewhere.
    fn report_unknown(&self, event: &StoreEvent) {
        let message = match event {
            StoreEvent::Unavailable(error @ StoreError::Forbidden { .. }) => Some(format!(
                "{error}; packets for services of this cluster go to kube-proxy on this node and not straight to their nodes"
            )),
            StoreEvent::Unavailable(_) => return,
            StoreEvent::Listed(_) | StoreEvent::Applied(_) | StoreEvent::Deleted(_) | _ => None,
        };
        self.conditions.put("RouteAgentsNotKnown", Severity::Info, "", message);
    }

    fn publish(&self, generation: u64, nodes: &Nodes, known: &Watched) {
        let message = known.unavailable.as_ref().map(|error| {
            format!("services cannot be read: {error}; packets for them go where their back ends were known to be, else to kube-proxy on this node")
        });
        self.conditions.put("ServicesNotKnown", Severity::Warning, "", message);
        let before = self.services.load();
        let next = match (nodes.address(&self.node), &known.catalogue) {
            (Some(own), Some(catalogue)) => tables::deliver(
                generation,
                &self.networks.borrow().services,
                own,
                &nodes.addresses(),
                catalogue,
                &before,
            ),
            _ if before.is_empty() => return,
            _ => Services::default(),
        };
        let is_cut =
            known.catalogue.as_ref().is_some_and(|catalogue| catalogue.is_cut) || next.left_out() > 0;
        let message = is_cut.then(|| {
            "this cluster has more services or back ends than a gateway delivers to; kube-proxy on this node has the rest, which does not work with several active gateways".to_owned()
        });
        self.conditions.put("TooManyServices", Severity::Warning, "", message);
        self.services.store(Arc::new(next));
    }
}

/// Nodes that accept packets for services.
#[derive(Debug, Default)]
struct Nodes {
    nodes: BTreeMap<String, Node>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Node {
    address: IpAddr,
    /// Until when it counts without its object; `None` with it.
    until: Option<Instant>,
}

impl Nodes {
    /// Applies an event; returns `true` if the snapshot may have changed.
    fn take(&mut self, event: &StoreEvent, now: Instant) -> bool {
        match event {
            StoreEvent::Listed(objects) => {
                let listed: BTreeMap<&str, IpAddr> = objects.iter().filter_map(read).collect();
                let mut has_changed = false;
                for (name, node) in &mut self.nodes {
                    if !listed.contains_key(name.as_str()) && node.until.is_none() {
                        node.until = Some(now + AFTER_STOP);
                        has_changed = true;
                    }
                }
                listed
                    .into_iter()
                    .fold(has_changed, |has_changed, (name, address)| self.put(name, address) || has_changed)
            }
            StoreEvent::Applied(object) => match read(object) {
                Some((name, address)) => self.put(name, address),
                None => self.fade(&object.metadata.name, now),
            },
            StoreEvent::Deleted(object) => self.fade(&object.metadata.name, now),
            // The last state stays; an unavailable store is reported elsewhere.
            StoreEvent::Unavailable(_) | _ => false,
        }
    }

    fn put(&mut self, name: &str, address: IpAddr) -> bool {
        let node = Node { address, until: None };
        if self.nodes.len() >= MOST_NODES && !self.nodes.contains_key(name) {
            return false;
        }
        self.nodes.insert(name.to_owned(), node).is_none_or(|before| before.address != address)
    }

    fn fade(&mut self, name: &str, now: Instant) -> bool {
        if let Some(node) = self.nodes.get_mut(name) {
            node.until.get_or_insert(now + AFTER_STOP);
        }
        // It still counts, for now.
        false
    }

    fn next_end(&self) -> Option<Instant> {
        self.nodes.values().filter_map(|node| node.until).min()
    }

    fn end(&mut self, now: Instant) -> bool {
        let before = self.nodes.len();
        self.nodes.retain(|_, node| node.until.is_none_or(|until| now < until));
        self.nodes.len() != before
    }

    fn address(&self, name: &str) -> Option<IpAddr> {
        self.nodes.get(name).map(|node| node.address)
    }

    fn addresses(&self) -> BTreeMap<String, IpAddr> {
        self.nodes.iter().map(|(name, node)| (name.clone(), node.address)).collect()
    }
}

/// Returns a node's name, and the address at which it accepts packets for services.
fn read(object: &Object) -> Option<(&str, IpAddr)> {
    let agent = RouteAgent::from_object(object).ok()?;
    Some((object.metadata.name.as_str(), agent.services_address()?))
}

async fn polled(watch_task: &mut Option<WatchTask>) {
    match watch_task {
        Some(watch_task) => watch_task.await,
        None => pending().await,
    }
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
        assert!(!nodes.end(start + AFTER_STOP / 2) && nodes.address("w1").is_some());
        assert!(!nodes.take(&StoreEvent::Applied(agent("w1", Some("172.31.9.3"))), start), "it is back");
        assert_eq!(nodes.next_end(), None);
        nodes.take(&StoreEvent::Applied(agent("w1", None)), start);
        assert!(nodes.end(start + AFTER_STOP) && nodes.address("w1").is_none());
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
}
