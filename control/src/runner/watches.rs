//! The watches of a controller, as one stream of events.

use std::collections::{BTreeMap, BTreeSet};

use futures::FutureExt as _;
use futures::stream::{self, AbortHandle, Abortable, BoxStream, SelectAll, StreamExt as _};

use super::{StorePort, Watch};
use crate::api::ObjectKey;
use crate::store::StoreEvent;

/// The most events that are taken at once.
const BATCH: usize = 1024;

/// The report of a stream: an event, or its end (`None`).
pub(super) type Report = (Watch, Option<StoreEvent>);

/// Streams of events, one for each watch. A stream is polled when it has something, however many there are.
#[derive(Default)]
pub(super) struct Watches {
    open: BTreeMap<Watch, AbortHandle>,
    events: SelectAll<BoxStream<'static, Report>>,
}

impl Watches {
    /// Opens and closes streams so that these are watched. Returns the watches that were closed.
    pub(super) fn set(&mut self, wanted: &BTreeSet<Watch>, stores: &[Box<dyn StorePort>]) -> Vec<Watch> {
        let closed: Vec<Watch> = self.open.keys().filter(|watch| !wanted.contains(watch)).cloned().collect();
        for watch in &closed {
            self.open.remove(watch).iter().for_each(AbortHandle::abort);
        }
        for watch in wanted {
            if self.open.contains_key(watch) {
                continue;
            }
            let Some(store) = stores.get(watch.store) else { continue };
            let (handle, registration) = AbortHandle::new_pair();
            let (of, ended) = (watch.clone(), watch.clone());
            let events = store.watch(watch).map(move |event| (of.clone(), Some(event)));
            let events = events.chain(stream::iter([(ended, None)]));
            self.events.push(Abortable::new(events, registration).boxed());
            self.open.insert(watch.clone(), handle);
        }
        closed
    }

    /// Closes the streams of a store. Returns its watches.
    pub(super) fn close(&mut self, store: usize) -> Vec<Watch> {
        let closed: Vec<Watch> = self.open.keys().filter(|watch| watch.store == store).cloned().collect();
        for watch in &closed {
            self.open.remove(watch).iter().for_each(AbortHandle::abort);
        }
        closed
    }

    /// Returns `true` if a stream is open.
    pub(super) fn is_open(&self, watch: &Watch) -> bool {
        self.open.contains_key(watch)
    }

    /// Returns the watch of a store that reports objects of this key.
    pub(super) fn covering(&self, store: usize, key: &ObjectKey) -> Option<Watch> {
        let of_namespace = Watch::new(store, key.kind, key.namespace.clone());
        let of_all = Watch::new(store, key.kind, "");
        [Watch::one(store, key), of_namespace, of_all].into_iter().find(|watch| self.open.contains_key(watch))
    }

    /// Waits for events; returns those that are there. Can be cancelled.
    pub(super) async fn next(&mut self) -> Vec<Report> {
        let Some(first) = self.events.next().await else { return std::future::pending().await };
        let mut batch = vec![first];
        while batch.len() < BATCH
            && let Some(Some(event)) = self.events.next().now_or_never()
        {
            batch.push(event);
        }
        batch.retain(|(watch, _)| self.open.contains_key(watch));
        batch
    }
}
