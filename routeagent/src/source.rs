//! The store's objects, followed and parsed into what drivers need.
//!
//! Nothing is published before every kind was listed, and an unreadable store keeps what was known: an empty cluster
//! set would open what is to stay closed.
//!
//! An object that cannot be used costs only itself, and as little of that as possible: of an Endpoint with one bad
//! field the good networks are still failed closed, though not routed.

mod caches;
mod parse;

use std::collections::BTreeMap;
use std::future::pending;
use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::stream::select;
use futures::{Stream, StreamExt};
use tokio::sync::watch;
use tokio::time::{sleep, sleep_until};
use tracing::warn;
use trieste_control::api::{EndpointSpec, Kind, ObjectKey};
use trieste_control::members::paths_namespace;
use trieste_control::services::{self, Followed, Frontend, Service};
use trieste_control::store::{Store, StoreError, StoreEvent};

use crate::agent::Report;
use crate::condition::Condition;
use crate::deliverer;
use crate::departures::Departures;
use crate::reconcile::ClusterView;
use caches::Caches;

pub use caches::{Reader, StoreState};
pub use parse::{is_device_name, view};

/// Ours: how long after an event others that belong to it are waited for.
const GATHER: Duration = Duration::from_millis(10);

/// The ends of the channels by which a store's news go out.
#[derive(Debug)]
pub struct Feed {
    /// What drivers need; `None` until every kind was listed.
    pub views: watch::Sender<Option<ClusterView>>,
    /// See [`StoreState::remotes`].
    pub remotes: watch::Sender<Vec<EndpointSpec>>,
    /// See [`StoreState::away`].
    pub away: watch::Sender<Option<String>>,
    /// What the last pass found, which says whether services matter.
    pub reports: watch::Receiver<Report>,
}

/// Follows a store for ever and publishes what is new.
pub async fn follow(store: &impl Store, reader: &Reader, mut feed: Feed) {
    let namespace = reader.namespace.as_str();
    let endpoints = store.list_watch(Kind::Endpoint, namespace).map(|event| (Kind::Endpoint, event));
    let clusters = store.list_watch(Kind::Cluster, namespace).map(|event| (Kind::Cluster, event));
    let nodes = store.list_watch(Kind::Node, "").map(|event| (Kind::Node, event));
    let mut events = select(select(endpoints, clusters), nodes);
    let members = paths_namespace(namespace);
    let mut members = pin!(store.list_watch(Kind::Endpoint, &members));
    // From the specification of Kubernetes: where its API servers themselves listen, whatever Service leads to them.
    let servers = ObjectKey::new(Kind::EndpointSlice, "default", "kubernetes");
    let mut servers = pin!(store.watch_one(&servers));
    let mut departures = Departures::default();
    let (gateway, gateways) = watch::channel(None);
    let (foreign, mut is_foreign) = watch::channel(false);
    let mut look = pin!(deliverer::follow(store, namespace, gateways, &foreign));
    let (served, mut is_served) = watch::channel(Here::default());
    let (wanted, is_wanted) = watch::channel(false);
    let mut serve = pin!(serve(store, reader, is_wanted, &served));
    let mut known = Caches::default();
    let mut had_table = false;
    loop {
        tokio::select! {
            event = events.next() => match event {
                Some((kind, event)) if known.take(kind, &event) => {}
                Some(_) => continue,
                None => return,
            },
            event = members.next() => match event {
                Some(event) if known.take_member(&event) => {}
                Some(_) => continue,
                None => return,
            },
            event = servers.next() => match event {
                Some(event) if known.take_servers(&event) => {}
                Some(_) => continue,
                None => return,
            },
            () = until(departures.poll_timeout()) => {}
            // It never ends, since this end of its channel is here.
            () = &mut look => return,
            () = &mut serve => return,
            _ = is_foreign.changed() => {}
            _ = is_served.changed() => {}
            () = told(&mut feed.reports, had_table) => {}
        }
        if !gather(&mut events, &mut members, &mut known).await {
            return;
        }
        had_table = feed.reports.borrow_and_update().serving.has_table;
        let mut state = known.read(reader);
        if let Some(view) = &mut state.view {
            departures.update(&reader.cluster, &reader.hostname, view, Instant::now());
            view.is_agent_foreign = *is_foreign.borrow_and_update();
            publish(&gateway, deliverer::gateways_node(view, &reader.cluster, &reader.hostname));
            publish(&wanted, view.services.is_wanted || had_table);
            is_served.borrow_and_update().clone().add_to(view);
        }
        feed.publish(state);
    }
}

impl Feed {
    /// Publishes what has changed. Nothing does when nothing follows from an event, such as another annotation.
    fn publish(&self, state: StoreState) {
        if let StoreState { view: None, away: Some(error), .. } = &state {
            warn!("{}", Condition::StoreAway { error: error.clone() });
        }
        if state.view.is_some() {
            publish(&self.views, state.view);
            publish(&self.remotes, state.remotes);
        }
        publish(&self.away, state.away);
    }
}

/// Takes in the events that arrive within [`GATHER`], which are one change. Returns `false` if a stream has ended.
async fn gather(
    events: &mut (impl Stream<Item = (Kind, StoreEvent)> + Unpin),
    members: &mut (impl Stream<Item = StoreEvent> + Unpin),
    caches: &mut Caches,
) -> bool {
    let mut gathered = pin!(sleep(GATHER));
    loop {
        tokio::select! {
            event = events.next() => match event {
                Some((kind, event)) => drop(caches.take(kind, &event)),
                None => return false,
            },
            event = members.next() => match event {
                Some(event) => drop(caches.take_member(&event)),
                None => return false,
            },
            () = &mut gathered => return true,
        }
    }
}

/// What is known of the services with back ends on this node.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Here {
    services: Option<Arc<BTreeMap<Frontend, Service>>>,
    away: Option<String>,
}

impl Here {
    /// Adds it to what drivers need.
    fn add_to(self, view: &mut ClusterView) {
        view.services.here = self.services;
        view.conditions.extend(self.away.map(|error| Condition::ServicesAway { error }));
    }
}

/// Follows services while somebody wants to know, and publishes what of them is on this node. A node without a name has
/// none.
async fn serve(
    store: &impl Store,
    reader: &Reader,
    mut is_wanted: watch::Receiver<bool>,
    served: &watch::Sender<Here>,
) {
    let Some(node) = &reader.node_name else { return pending().await };
    loop {
        if is_wanted.wait_for(|wanted| *wanted).await.is_err() {
            return pending().await;
        }
        let (known, mut news) = watch::channel(Followed::default());
        let mut follower = pin!(services::follow(store, &known));
        loop {
            tokio::select! {
                () = &mut follower => return,
                ended = is_wanted.wait_for(|wanted| !*wanted) => if ended.is_ok() { break } else { return },
                _ = news.changed() => {}
            }
            let Followed { catalogue, away } = news.borrow_and_update().clone();
            let services = catalogue.map(|catalogue| Arc::new(catalogue.on_node(node)));
            publish(served, Here { services, away });
        }
        publish(served, Here::default());
    }
}

/// Waits until a pass has found something else about the table of services than was acted upon.
async fn told(reports: &mut watch::Receiver<Report>, had_table: bool) {
    if reports.wait_for(|report| report.serving.has_table != had_table).await.is_err() {
        pending::<()>().await;
    }
}

fn publish<T: PartialEq>(channel: &watch::Sender<T>, value: T) {
    channel.send_if_modified(|last| {
        let is_news = *last != value;
        *last = value;
        is_news
    });
}

/// Reads a store once.
///
/// # Errors
///
/// The store cannot be read.
pub async fn read(store: &impl Store, reader: &Reader) -> Result<ClusterView, StoreError> {
    let namespace = reader.namespace.as_str();
    let mut known = Caches::default();
    known.take(Kind::Endpoint, &StoreEvent::Listed(store.list(Kind::Endpoint, namespace).await?));
    for (kind, namespace) in [(Kind::Cluster, namespace), (Kind::Node, "")] {
        let event = match store.list(kind, namespace).await {
            Err(error @ StoreError::Forbidden { .. }) => StoreEvent::Unavailable(error),
            objects => StoreEvent::Listed(objects?),
        };
        known.take(kind, &event);
    }
    // Without them one gateway is active.
    if let Ok(members) = store.list(Kind::Endpoint, &paths_namespace(namespace)).await {
        known.take_member(&StoreEvent::Listed(members));
    }
    let mut view = known.view(reader).unwrap_or_default();
    view.services.here = here(store, reader).await?;
    if let Some(node) = deliverer::gateways_node(&view, &reader.cluster, &reader.hostname) {
        view.is_agent_foreign = deliverer::look(store, namespace, &node).await.unwrap_or_default();
    }
    Ok(view)
}

/// Reads the services with back ends on this node; `None` where they may not be read, or the node has no name.
async fn here(
    store: &impl Store,
    reader: &Reader,
) -> Result<Option<Arc<BTreeMap<Frontend, Service>>>, StoreError> {
    let Some(node) = &reader.node_name else { return Ok(None) };
    let mut book = services::Book::default();
    for kind in [Kind::Service, Kind::EndpointSlice] {
        match store.list(kind, "").await {
            Ok(objects) => drop(book.take(kind, &StoreEvent::Listed(objects))),
            Err(StoreError::Forbidden { .. }) => return Ok(None),
            Err(error) => return Err(error),
        }
    }
    Ok(Some(Arc::new(book.catalogue().on_node(node))))
}

async fn until(when: Option<Instant>) {
    match when {
        Some(when) => sleep_until(when.into()).await,
        None => pending().await,
    }
}

#[cfg(test)]
mod tests;
