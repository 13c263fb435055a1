//! Watches services and the nodes that accept packets for them, and publishes them to the workers.
//!
//! ```text
//!   RouteAgent objects ─▶ Nodes: who takes packets, at which address ─┐
//!                           │ this node does?                         ├─▶ snapshot ─▶ workers
//!                           └─▶ Services, EndpointSlices: changes ────┘
//! ```
//!
//! Route agents decide whether packets for services go straight to their nodes: they announce it in their objects once the
//! node is ready. Unless this node's route agent announces it, packets go to kube-proxy, and no service is even read.
//!
//! The snapshot outlives the process: nobody else knows the connections that it leads, and the API server may not answer.

mod memory;
mod nodes;

use std::collections::{BTreeMap, BTreeSet};
use std::future::pending;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Instant;

use arc_swap::ArcSwap;
use futures::StreamExt as _;
use tokio::sync::watch;
use trieste_control::admin::Severity;
use trieste_control::api::{ClusterNetworks, Kind};
use trieste_control::conditions::Conditions;
use trieste_control::services::{Frontend, ServiceIndex, ServiceWatch};
use trieste_control::store::{AnyStore, Store as _, StoreError, StoreEvent};
use trieste_control::timer::sleep_until;
use trieste_pipeline::services::{Services, ServicesBuilder};

pub(crate) use memory::{RememberedServices, ServicesMemory, remove_files};
use memory::{Source, Writer};
use nodes::{AFTER_STOP, Nodes};

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

/// What has changed since the last snapshot.
enum Changed {
    /// Nodes or networks: anything may be another.
    All,
    /// What stands behind these.
    Some(BTreeSet<Frontend>),
}

/// What snapshots are built from.
#[derive(Default)]
struct State {
    nodes: Nodes,
    /// The nodes' addresses by name.
    addresses: Arc<BTreeMap<String, IpAddr>>,
    /// There while this node's route agent takes packets for services.
    service_watch: Option<ServiceWatch>,
    builder: Option<ServicesBuilder>,
    generation: u64,
    /// Until when they count although they may not be read any more.
    forbidden_until: Option<Instant>,
}

impl Following {
    /// Watches until the store's stream ends.
    pub(crate) async fn run(mut self) {
        let mut events = self.store.list_watch(Kind::RouteAgent, &self.namespace);
        let nodes = Nodes::remembered(std::mem::take(&mut self.remembered));
        let mut state = State { nodes, ..State::default() };
        let writer = self.memory.take().map(|memory| memory.keep(self.conditions.clone()));
        let mut networks = self.networks.clone();
        let mut changed = Changed::All;
        loop {
            if matches!(changed, Changed::All) {
                self.follow_nodes(&mut state);
            }
            self.publish(&mut state, &changed, writer.as_ref());
            changed = loop {
                tokio::select! {
                    event = events.next() => match event {
                        Some(event) => {
                            self.report_unknown(&event);
                            if state.nodes.take(&event, Instant::now()) {
                                break Changed::All;
                            }
                        }
                        None => return,
                    },
                    changed = next(&mut state.service_watch) => match changed {
                        Some(changed) => break Changed::Some(changed),
                        None => return,
                    },
                    Ok(()) = networks.changed() => break Changed::All,
                    () = sleep_until(state.nodes.next_end()) => if state.nodes.end(Instant::now()) {
                        break Changed::All;
                    },
                    () = sleep_until(state.forbidden_until.filter(|until| Instant::now() < *until)) => {
                        break Changed::All;
                    }
                }
            };
        }
    }

    /// Follows services while this node takes packets for them.
    fn follow_nodes(&self, state: &mut State) {
        state.addresses = Arc::new(state.nodes.addresses());
        let is_on = state.addresses.contains_key(&self.node);
        if is_on != state.service_watch.is_some() {
            tracing::info!(is_on, "packets for services go straight to the nodes that serve them");
            state.service_watch = is_on.then(|| ServiceWatch::start(&self.store));
        }
    }

    /// Reports missing rights to watch route agents. An unavailable store is reported elsewhere.
    fn report_unknown(&self, event: &StoreEvent) {
        let message = match event {
            StoreEvent::Unavailable(error @ StoreError::Forbidden { .. }) => Some(format!(
                "{error}; packets for services of this cluster go to kube-proxy on this node and not straight to their nodes, those known until now after ten minutes"
            )),
            StoreEvent::Unavailable(_) => return,
            StoreEvent::Listed(_) | StoreEvent::Applied(_) | StoreEvent::Deleted(_) | _ => None,
        };
        self.conditions.put("RouteAgentsNotKnown", Severity::Info, "", message);
    }

    /// Leaves all packets for services to kube-proxy, now and after a restart.
    fn leave_all(&self, writer: Option<&Writer>) {
        self.conditions.put("TooManyServices", Severity::Warning, "", None);
        if !self.services.load().is_empty() {
            self.services.store(Arc::default());
        }
        if let Some(writer) = writer {
            writer.set(None);
        }
    }

    /// Publishes the snapshot. Until the services are known it stays as the process before has left it.
    fn publish(&self, state: &mut State, changed: &Changed, writer: Option<&Writer>) {
        let service_watch = state.service_watch.as_ref();
        let message = service_watch.and_then(ServiceWatch::unavailable).map(|error| {
            format!("services cannot be read: {error}; packets for them go where their back ends were known to be, else to kube-proxy on this node")
        });
        self.conditions.put("ServicesNotKnown", Severity::Warning, "", message);
        let is_forbidden = service_watch.is_some_and(ServiceWatch::is_forbidden);
        let now = Instant::now();
        let until = is_forbidden.then(|| state.forbidden_until.unwrap_or(now + AFTER_STOP));
        state.forbidden_until = until;
        if service_watch.is_none() || until.is_some_and(|until| until <= now) {
            state.builder = None;
            self.leave_all(writer);
            return;
        }
        let index = service_watch.and_then(ServiceWatch::services);
        let Some((&own, index)) = state.addresses.get(&self.node).zip(index) else { return };
        let mut builder = match (changed, state.builder.take()) {
            (Changed::Some(changed), Some(builder)) if builder.left_out() == 0 => {
                if changed.is_empty() {
                    state.builder = Some(builder);
                    return;
                }
                set(builder, changed, index, &state.addresses)
            }
            // What there was no room for may have some now.
            (_, before) => {
                let empty = tables::delivery(&self.networks.borrow().services, own, &state.addresses);
                let empty = before.into_iter().fold(empty, ServicesBuilder::with_tables_of);
                set(empty, index.frontends(), index, &state.addresses)
            }
        };
        let message = (index.is_cut() || builder.left_out() > 0).then(|| {
            "this cluster has more services or back ends than a gateway delivers to; kube-proxy on this node has the rest, which does not work with several active gateways".to_owned()
        });
        self.conditions.put("TooManyServices", Severity::Warning, "", message);
        state.generation += 1;
        let services = Arc::new(builder.build(state.generation));
        state.builder = Some(builder);
        self.services.store(Arc::clone(&services));
        if let Some(writer) = writer {
            writer.set(Some(Source { nodes: Arc::clone(&state.addresses), services }));
        }
    }
}

/// Sets what stands behind these addresses and ports.
fn set<'a>(
    mut builder: ServicesBuilder,
    all: impl IntoIterator<Item = &'a Frontend>,
    index: &ServiceIndex,
    nodes: &BTreeMap<String, IpAddr>,
) -> ServicesBuilder {
    for at in all {
        match index.service(at) {
            Some(service) => builder.set(tables::frontend(at), &tables::backends(at, &service, nodes)),
            None => builder.remove(tables::frontend(at)),
        }
    }
    builder
}

/// Waits for what has changed; for ever if nothing is followed.
async fn next(service_watch: &mut Option<ServiceWatch>) -> Option<BTreeSet<Frontend>> {
    match service_watch {
        Some(service_watch) => service_watch.next().await,
        None => pending().await,
    }
}
