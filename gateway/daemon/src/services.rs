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
//!
//! The snapshot outlives the process: nobody else knows the connections that it leads, and the API server may not answer.

mod memory;
mod nodes;

use std::collections::BTreeMap;
use std::future::{Future, pending};
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Instant;

use arc_swap::ArcSwap;
use futures::StreamExt as _;
use tokio::sync::watch;
use trieste_control::admin::Severity;
use trieste_control::api::{ClusterNetworks, Kind};
use trieste_control::conditions::Conditions;
use trieste_control::services::{Watched, follow};
use trieste_control::store::{AnyStore, Store as _, StoreError, StoreEvent};
use trieste_control::timer::sleep_until;
use trieste_pipeline::services::Services;

pub(crate) use memory::{RememberedServices, ServicesMemory, remove_files};
use memory::{Source, Writer};
use nodes::Nodes;

use crate::tables;

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
    /// The nodes that the process before delivered to, and where they accept packets.
    pub(crate) remembered: BTreeMap<String, IpAddr>,
    /// Where it is kept; `None` without a state directory.
    pub(crate) memory: Option<ServicesMemory>,
    pub(crate) conditions: Conditions,
}

type WatchTask = Pin<Box<dyn Future<Output = ()> + Send>>;

impl Following {
    /// Watches until the store's stream ends.
    pub(crate) async fn run(mut self) {
        let mut events = self.store.list_watch(Kind::RouteAgent, &self.namespace);
        let (sender, mut known) = watch::channel(Watched::default());
        let sender = Arc::new(sender);
        let mut nodes = Nodes::remembered(std::mem::take(&mut self.remembered));
        let writer = self.memory.take().map(|memory| memory.keep(self.conditions.clone()));
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
            self.publish(generation, &nodes, &known.borrow_and_update(), writer.as_ref());
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

    /// Publishes the snapshot. Until the services are known it stays as the process before has left it.
    fn publish(&self, generation: u64, nodes: &Nodes, known: &Watched, writer: Option<&Writer>) {
        let message = known.unavailable.as_ref().map(|error| {
            format!("services cannot be read: {error}; packets for them go where their back ends were known to be, else to kube-proxy on this node")
        });
        self.conditions.put("ServicesNotKnown", Severity::Warning, "", message);
        let before = self.services.load();
        let next = match (nodes.address(&self.node), &known.catalogue) {
            (Some(own), Some(catalogue)) => {
                let nodes = nodes.addresses();
                let networks = &self.networks.borrow().services;
                let by_node = tables::by_node(catalogue, &nodes);
                let next = tables::deliver(generation, networks, own, &nodes, by_node, &before);
                if let Some(writer) = writer {
                    writer.set(Some(Source { nodes, catalogue: Arc::clone(catalogue) }));
                }
                next
            }
            (Some(_), None) => return,
            (None, _) => {
                if let Some(writer) = writer {
                    writer.set(None);
                }
                Services::default()
            }
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

async fn polled(watch_task: &mut Option<WatchTask>) {
    match watch_task {
        Some(watch_task) => watch_task.await,
        None => pending().await,
    }
}
