//! Watches the store's objects and parses them into the input of drivers.
//!
//! Nothing is published before every kind was listed, and the last state stays while the store cannot be read: an empty
//! cluster set would open networks that have to fail closed.
//!
//! An object that cannot be used costs only itself, and as little of that as possible: of an Endpoint with one bad
//! field the good networks are still failed closed, though not routed.

mod caches;
mod parse;

use std::collections::{BTreeMap, BTreeSet};
use std::future::pending;
use std::pin::pin;
use std::sync::Arc;
use std::time::Instant;

use futures::stream::select;
use futures::{Stream, StreamExt};
use tokio::sync::watch;
use tracing::warn;
use trieste_control::api::{EndpointSpec, Kind, ObjectKey};
use trieste_control::members::paths_namespace;
use trieste_control::services::{self, Frontend, Service};
use trieste_control::store::{Store, StoreError, StoreEvent};
use trieste_control::timer::sleep_until;
use trieste_reconcile::renew;

use crate::agent::Report;
use crate::clusterset::{self, Clusterset};
use crate::condition::Condition;
use crate::deliverer;
use crate::departures::Departures;
use crate::schedule::{GATHER, rest_after};
use crate::view::ClusterView;
use caches::Caches;

pub use caches::{Reader, StoreState};
pub use parse::{is_device_name, view};

/// The channels on which the store's state is published.
#[derive(Debug)]
pub struct Channels {
    /// Input of drivers; `None` until every kind was listed.
    pub views: watch::Sender<Option<ClusterView>>,
    /// The newest Endpoint of every other cluster, unchanged, sorted by cluster.
    pub remotes: watch::Sender<Vec<EndpointSpec>>,
    /// See [`StoreState::store_error`].
    pub store_error: watch::Sender<Option<String>>,
    /// Results of the passes, including whether there is a table of services.
    pub reports: watch::Receiver<Report>,
}

/// Watches a store and publishes changes, until one of its watches ends.
pub async fn follow(store: &impl Store, reader: &Reader, mut channels: Channels) {
    let namespace = reader.namespace.as_str();
    let mut events = pin!(objects(store, reader));
    let mut members = pin!(store.list_watch(Kind::Endpoint, &paths_namespace(namespace)));
    // From the specification of Kubernetes: where its API servers themselves listen, whatever Service leads to them.
    let servers = ObjectKey::new(Kind::EndpointSlice, "default", "kubernetes");
    let mut servers = pin!(store.watch_one(&servers));
    let mut departures = Departures::default();
    let (gateway, gateways) = watch::channel(None);
    let (foreign, mut is_foreign) = watch::channel(false);
    let mut deliverer = pin!(deliverer::follow(store, namespace, gateways, &foreign));
    let (served, mut is_served) = watch::channel(LocalServices::default());
    let (wanted, is_wanted) = watch::channel(false);
    let mut serve = pin!(serve(store, reader, is_wanted, &served));
    let (led, mut is_led) = watch::channel(Clusterset::default());
    let mut lead = pin!(clusterset::follow::follow(store, &reader.clusterset, &led));
    let mut caches = Caches::default();
    let (mut had_table, mut rests_until) = (false, Instant::now());
    loop {
        tokio::select! {
            event = events.next() => match event {
                Some((kind, event)) if caches.take(kind, &event) => {}
                Some(_) => continue,
                None => return,
            },
            event = members.next() => match event {
                Some(event) if caches.take_member(&event) => {}
                Some(_) => continue,
                None => return,
            },
            event = servers.next() => match event {
                Some(event) if caches.take_servers(&event) => {}
                Some(_) => continue,
                None => return,
            },
            () = sleep_until(departures.poll_timeout()) => {}
            // It never ends, since this end of its channel is here.
            () = &mut deliverer => return,
            () = &mut serve => return,
            () = &mut lead => return,
            _ = is_foreign.changed() => {}
            () = either_changed(&mut is_served, &mut is_led) => {}
            () = table_changed(&mut channels.reports, had_table) => {}
        }
        let gathered = gather(&mut events, &mut members, &mut caches, rests_until).await;
        let Some(began) = gathered else { return };
        had_table = channels.reports.borrow_and_update().serving.has_table;
        let mut state = caches.read(reader);
        if let Some(view) = &mut state.view {
            departures.update(&reader.cluster, &reader.hostname, view, Instant::now());
            view.is_agent_foreign = *is_foreign.borrow_and_update();
            publish(&gateway, deliverer::gateways_node(view, &reader.cluster, &reader.hostname));
            publish(&wanted, view.services.is_wanted || had_table);
            is_served.borrow_and_update().clone().add_to(view);
            view.clusterset.clone_from(&is_led.borrow_and_update());
        }
        channels.publish(state, &caches.remotes());
        rests_until = Instant::now() + rest_after(began.elapsed());
    }
}

/// Watches what every view is made of.
fn objects(store: &impl Store, reader: &Reader) -> impl Stream<Item = (Kind, StoreEvent)> {
    let namespace = reader.namespace.as_str();
    let endpoints = store.list_watch(Kind::Endpoint, namespace).map(|event| (Kind::Endpoint, event));
    let clusters = store.list_watch(Kind::Cluster, namespace).map(|event| (Kind::Cluster, event));
    let nodes = store.list_watch(Kind::Node, "").map(|event| (Kind::Node, event));
    let ciliums = match reader.has_cilium {
        true => store.list_watch(Kind::CiliumNode, "").map(|event| (Kind::CiliumNode, event)).left_stream(),
        false => futures::stream::pending().right_stream(),
    };
    select(select(endpoints, clusters), select(nodes, ciliums))
}

/// Waits until one of two values changes.
async fn either_changed<A, B>(one: &mut watch::Receiver<A>, other: &mut watch::Receiver<B>) {
    tokio::select! {
        _ = one.changed() => {}
        _ = other.changed() => {}
    }
}

impl Channels {
    /// Publishes the values that have changed.
    fn publish(&self, state: StoreState, remotes: &[&EndpointSpec]) {
        if let StoreState { view: None, store_error: Some(error), .. } = &state {
            let condition = Condition::StoreAway { error: error.clone() };
            warn!(condition = condition.name(), detail = %condition, "condition set");
        }
        if let Some(view) = state.view {
            self.views.send_if_modified(|last| match last {
                Some(last) => last.renew(&view),
                None => last.replace(view).is_none(),
            });
            let order = |one: &EndpointSpec, other: &EndpointSpec| one.cluster_id.cmp(&other.cluster_id);
            self.remotes.send_if_modified(|last| renew(last, remotes, order));
        }
        publish(&self.store_error, state.store_error);
    }
}

/// Handles the events together that arrive within [`GATHER`], or before `rests_until`. Returns when that ended; `None` if a
/// stream has ended.
async fn gather(
    events: &mut (impl Stream<Item = (Kind, StoreEvent)> + Unpin),
    members: &mut (impl Stream<Item = StoreEvent> + Unpin),
    caches: &mut Caches,
    rests_until: Instant,
) -> Option<Instant> {
    let until = rests_until.max(Instant::now() + GATHER);
    let mut gathered = pin!(tokio::time::sleep_until(until.into()));
    loop {
        tokio::select! {
            event = events.next() => match event {
                Some((kind, event)) => drop(caches.take(kind, &event)),
                None => return None,
            },
            event = members.next() => match event {
                Some(event) => drop(caches.take_member(&event)),
                None => return None,
            },
            () = &mut gathered => return Some(Instant::now()),
        }
    }
}

/// The services with back ends on this node, and why they cannot be read.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct LocalServices {
    services: Option<Arc<BTreeMap<Frontend, Service>>>,
    error: Option<String>,
}

impl LocalServices {
    /// Adds them to the input of drivers.
    fn add_to(self, view: &mut ClusterView) {
        let is_kube_proxys = self.services.is_none() && !view.services.is_asymmetric;
        view.services.here = self.services;
        let condition = |error| Condition::ServicesAway { error, is_kube_proxys };
        view.conditions.extend(self.error.map(condition));
    }
}

/// Watches services while `is_wanted` is `true`, and publishes those with back ends on this node: none on a node without a
/// name.
async fn serve(
    store: &impl Store,
    reader: &Reader,
    mut is_wanted: watch::Receiver<bool>,
    served: &watch::Sender<LocalServices>,
) {
    let Some(node) = &reader.node_name else { return pending().await };
    loop {
        if is_wanted.wait_for(|wanted| *wanted).await.is_err() {
            return pending().await;
        }
        let mut service_watch = services::ServiceWatch::start(store);
        let mut here: Arc<BTreeMap<Frontend, Service>> = Arc::default();
        loop {
            let changed = tokio::select! {
                changed = service_watch.next() => match changed {
                    Some(changed) => changed,
                    None => return,
                },
                ended = is_wanted.wait_for(|wanted| !*wanted) => if ended.is_ok() { break } else { return },
            };
            let away = service_watch.unavailable().map(str::to_owned);
            let services = service_watch.services().map(|index| {
                follow_here(&mut here, index, &changed, node);
                Arc::clone(&here)
            });
            // One kind after the other is refused, by turns: what was said first stays until all is known.
            let before = served.borrow().error.clone().filter(|_| services.is_none());
            publish(served, LocalServices { services, error: before.or(away) });
        }
        publish(served, LocalServices::default());
    }
}

/// Brings those with back ends on this node up to date, where they may have changed.
fn follow_here(
    here: &mut Arc<BTreeMap<Frontend, Service>>,
    index: &services::ServiceIndex,
    changed: &BTreeSet<Frontend>,
    node: &str,
) {
    for at in changed {
        let service = index.service(at).and_then(|service| service.on_node(node));
        if here.get(at) == service.as_ref() {
            continue;
        }
        let here = Arc::make_mut(here);
        match service {
            Some(service) => drop(here.insert(*at, service)),
            None => drop(here.remove(at)),
        }
    }
}

/// Waits until a pass reports the table of services as made or removed since.
async fn table_changed(reports: &mut watch::Receiver<Report>, had_table: bool) {
    if reports.wait_for(|report| report.serving.has_table != had_table).await.is_err() {
        pending::<()>().await;
    }
}

fn publish<T: PartialEq>(channel: &watch::Sender<T>, value: T) {
    channel.send_if_modified(|last| {
        let has_changed = *last != value;
        *last = value;
        has_changed
    });
}

/// Reads a store once.
///
/// # Errors
///
/// The store cannot be read.
pub async fn read(store: &impl Store, reader: &Reader) -> Result<ClusterView, StoreError> {
    let namespace = reader.namespace.as_str();
    let mut caches = Caches::default();
    caches.take(Kind::Endpoint, &StoreEvent::Listed(store.list(Kind::Endpoint, namespace).await?));
    let ciliums = reader.has_cilium.then_some((Kind::CiliumNode, ""));
    for (kind, namespace) in [(Kind::Cluster, namespace), (Kind::Node, "")].into_iter().chain(ciliums) {
        let event = match store.list(kind, namespace).await {
            Err(error) if error.is_unserved() && kind == Kind::CiliumNode => StoreEvent::Unavailable(error),
            Err(error @ StoreError::Forbidden { .. }) => StoreEvent::Unavailable(error),
            objects => StoreEvent::Listed(objects?),
        };
        caches.take(kind, &event);
    }
    // Without them one gateway is active.
    if let Ok(members) = store.list(Kind::Endpoint, &paths_namespace(namespace)).await {
        caches.take_member(&StoreEvent::Listed(members));
    }
    let mut view = caches.view(reader).unwrap_or_default();
    view.services.here = here(store, reader).await?;
    if let Some(node) = deliverer::gateways_node(&view, &reader.cluster, &reader.hostname) {
        view.is_agent_foreign =
            deliverer::agent_is_foreign(store, namespace, &node).await.unwrap_or_default();
    }
    Ok(view)
}

/// Reads the services with back ends on this node; `None` where they may not be read, or the node has no name.
async fn here(
    store: &impl Store,
    reader: &Reader,
) -> Result<Option<Arc<BTreeMap<Frontend, Service>>>, StoreError> {
    let Some(node) = &reader.node_name else { return Ok(None) };
    let mut index = services::ServiceIndex::default();
    for kind in [Kind::Service, Kind::EndpointSlice] {
        match store.list(kind, "").await {
            Ok(objects) => drop(index.take(kind, &StoreEvent::Listed(objects))),
            Err(StoreError::Forbidden { .. }) => return Ok(None),
            Err(error) => return Err(error),
        }
    }
    let mut here = Arc::default();
    follow_here(&mut here, &index, &index.frontends().copied().collect(), node);
    Ok(Some(here))
}

#[cfg(test)]
mod tests;
