//! The watches behind clusterset IPs.
//!
//! Imports are followed as soon as the set has a range for such addresses; slices and gateways from the first import that has
//! one, and all slices of the own cluster from the first that the own cluster exports. A node of a set without clusterset IPs
//! follows one kind of few objects.

use std::time::{Duration, Instant};

use futures::future::pending;
use futures::stream::{BoxStream, StreamExt as _};
use ipnet::IpNet;
use tokio::sync::watch;
use tracing::{info, warn};
use trieste_control::api::{Kind, label};
use trieste_control::store::{Store, StoreError, StoreEvent};
use trieste_control::timer::sleep_until;

use super::index::{ClustersetIndex, MAX_LEADS};
use super::virtual_ips::Clusterset;

/// Ours: what changes in quick succession is one change.
const GATHER: Duration = Duration::from_millis(20);
/// Ours: how much longer than the work the rest after it is, so that a set that changes all the time takes a fifth of a core.
const REST: u32 = 4;

/// Where clusterset IPs come from.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Origin {
    /// The own cluster.
    pub cluster: String,
    /// Namespace of the Gateways, and of imports and slices whose own namespace is missing.
    pub namespace: String,
    /// The set's range.
    pub range: Vec<IpNet>,
}

/// A watch that may not have begun.
type Events = Option<BoxStream<'static, StoreEvent>>;

/// Follows a store for ever and publishes where clusterset IPs lead.
pub async fn follow(store: &impl Store, origin: &Origin, known: &watch::Sender<Clusterset>) {
    let Some(mut index) = ClustersetIndex::new(&origin.cluster, &origin.range) else {
        return pending().await;
    };
    index = index.with_displaced_in(&origin.namespace);
    let mut errors = Errors::default();
    let mut imports: Events = Some(store.list_watch(Kind::ServiceImport, "").boxed());
    let (mut exported, mut gateways, mut slices): (Events, Events, Events) = (None, None, None);
    let mut due: Option<Instant> = None;
    let mut rests_until = Instant::now();
    loop {
        if index.has_any() && exported.is_none() {
            let managed = (label::MANAGED_BY, label::LIGHTHOUSE_AGENT);
            exported = Some(store.list_watch_labelled(Kind::EndpointSlice, "", managed).boxed());
            gateways = Some(store.list_watch(Kind::Gateway, &origin.namespace).boxed());
        }
        if index.needs_pods() && slices.is_none() {
            slices = Some(store.list_watch(Kind::EndpointSlice, "").boxed());
        } else if !index.needs_pods() && slices.take().is_some() {
            index.clear_slices();
            errors.slices = None;
        }
        let timeout = index.poll_timeout();
        tokio::select! {
            event = next(&mut imports) => {
                errors.imports = error_of(&event);
                // A cluster without the kind has no imports.
                let event = if !index.has_imports() && event.is_absence() { StoreEvent::Listed(Vec::new()) } else { event };
                log(index.handle_imports(event));
            }
            event = next(&mut exported) => {
                errors.exported = error_of(&event);
                log(index.handle_exported(event));
            }
            event = next(&mut gateways) => {
                errors.gateways = error_of(&event);
                let is_absent = !index.has_gateways() && event.is_absence();
                index.handle_gateways((!is_absent).then_some(event), Instant::now());
            }
            event = next(&mut slices) => {
                errors.slices = error_of(&event);
                index.handle_slices(&event);
            }
            () = sleep_until(timeout), if timeout.is_some() => index.handle_timeout(Instant::now()),
            () = sleep_until(due), if due.is_some() => {
                due = None;
                let began = Instant::now();
                publish(&index, &errors, known);
                rests_until = Instant::now() + began.elapsed() * REST;
                continue;
            }
        }
        due = due.or_else(|| Some(rests_until.max(Instant::now() + GATHER)));
    }
}

/// Publishes where clusterset IPs lead, if it has changed. Once known, they stay as they are until all is known again.
fn publish(index: &ClustersetIndex, errors: &Errors, known: &watch::Sender<Clusterset>) {
    let error = errors.first().or_else(|| match index.left_out() {
        0 => None,
        count => Some(format!("{count} services are left out, as a whole or in part: there are more than {MAX_LEADS} addresses and ports")),
    });
    known.send_if_modified(|known| {
        let is_other = index.is_complete() && known.ips.as_ref().is_none_or(|ips| **ips != *index.ips());
        if is_other {
            known.ips = Some(index.ips().clone().into());
            info!(led = index.ips().leads.len(), "clusterset IPs lead elsewhere");
        }
        let is_changed = is_other || known.error != error;
        known.error = error;
        is_changed
    });
}

/// Why kinds cannot be read at present.
#[derive(Debug, Default)]
struct Errors {
    imports: Option<String>,
    exported: Option<String>,
    gateways: Option<String>,
    slices: Option<String>,
}

impl Errors {
    fn first(&self) -> Option<String> {
        let Self { imports, exported, gateways, slices } = self;
        [imports, exported, gateways, slices].into_iter().find_map(Clone::clone)
    }
}

fn error_of(event: &StoreEvent) -> Option<String> {
    match event {
        StoreEvent::Unavailable(StoreError::NotFound(_)) => None,
        StoreEvent::Unavailable(error) => Some(error.to_string()),
        StoreEvent::Listed(_) | StoreEvent::Applied(_) | StoreEvent::Deleted(_) | _ => None,
    }
}

fn log(unusable: Vec<(String, trieste_discovery_objects::read::Unusable)>) {
    for (object, reason) in unusable {
        warn!(object, %reason, "object cannot be used");
    }
}

/// Waits for the next event; for ever where there is no watch, or it has ended.
async fn next(events: &mut Events) -> StoreEvent {
    let event = match events {
        Some(events) => events.next().await,
        None => pending().await,
    };
    match event {
        Some(event) => event,
        None => pending().await,
    }
}
