//! One of the two stores: what is known of it, whether it answers, and when it is tried again.

use std::pin::Pin;
use std::time::Duration;

use futures::stream::{BoxStream, SelectAll};
use futures::{Stream, StreamExt};
use jiff::Timestamp;
use rand_core::OsRng;
use tokio::time::Instant;

use super::Backoff;
use super::plan::KINDS;
use crate::api::{Kind, Object};
use crate::store::{Mirror, Store, StoreError, StoreEvent};

/// A store, followed.
pub(super) struct Link<S> {
    pub(super) store: S,
    namespace: String,
    events: SelectAll<BoxStream<'static, (Kind, StoreEvent)>>,
    mirrors: Vec<(Kind, Mirror)>,
    backoff: Backoff,
    outage: Option<Outage>,
}

/// Why a store is not followed at present.
#[derive(Debug, Clone)]
pub(super) struct Outage {
    /// What it said.
    pub(super) error: String,
    /// When it is tried again, on two clocks: one to wait by, one to show.
    retry: Instant,
    pub(super) next_try: Timestamp,
}

impl<S: Store> Link<S> {
    pub(super) fn new(store: S, namespace: String, backoff: Backoff) -> Self {
        let mut link =
            Self { store, namespace, events: SelectAll::new(), mirrors: Vec::new(), backoff, outage: None };
        link.open();
        link
    }

    /// Waits until something is known that was not known before, or the store's state has changed. Can be cancelled.
    pub(super) async fn changed(&mut self) {
        loop {
            if let Some(outage) = &self.outage {
                tokio::time::sleep_until(outage.retry).await;
                self.outage = None;
                self.open();
            }
            let Some((kind, event)) = self.events.next().await else {
                return self.fail_with("the store's events have ended".to_owned());
            };
            if let StoreEvent::Unavailable(error) = &event {
                return self.fail(error);
            }
            let was_complete = self.is_complete();
            let mirror = self.mirror(kind);
            if mirror.apply(&event) || (!was_complete && self.is_complete()) {
                return;
            }
        }
    }

    /// Takes in the result of an own write, so that the next plan knows of it before the store's events say so.
    pub(super) fn note(&mut self, event: &StoreEvent) {
        let kind = match event {
            StoreEvent::Applied(object) | StoreEvent::Deleted(object) => object.kind,
            StoreEvent::Listed(_) | StoreEvent::Unavailable(_) => return,
        };
        self.mirror(kind).apply(event);
    }

    /// Stops following the store until the next try.
    pub(super) fn fail(&mut self, error: &StoreError) {
        self.fail_with(error.to_string());
    }

    /// Whether everything is known, as far as the store's word goes.
    pub(super) fn is_ready(&self) -> bool {
        self.outage.is_none() && self.is_complete()
    }

    /// Everything that was planned went through: the next outage starts with short waits again.
    pub(super) fn succeed(&mut self) {
        if self.is_ready() {
            self.backoff.reset();
        }
    }

    pub(super) fn outage(&self) -> Option<&Outage> {
        self.outage.as_ref()
    }

    /// Everything that is known.
    pub(super) fn objects(&self) -> impl Iterator<Item = &Object> {
        self.mirrors.iter().flat_map(|(_, mirror)| mirror.objects())
    }

    /// Starts to follow from new lists. What was known stays until they are complete, but does not count.
    fn open(&mut self) {
        self.mirrors = KINDS.map(|kind| (kind, Mirror::new())).to_vec();
        self.events = KINDS
            .map(|kind| tagged(kind, self.store.list_watch(kind, &self.namespace)))
            .into_iter()
            .collect();
    }

    fn fail_with(&mut self, error: String) {
        let wait = self.backoff.next_wait(&mut OsRng);
        let next_try = Timestamp::now() + jiff::SignedDuration::try_from(wait).unwrap_or(FALLBACK_WAIT);
        self.outage = Some(Outage { error, retry: Instant::now() + wait, next_try });
        self.events.clear();
    }

    fn is_complete(&self) -> bool {
        self.mirrors.iter().all(|(_, mirror)| mirror.is_complete())
    }

    fn mirror(&mut self, kind: Kind) -> &mut Mirror {
        let found = self.mirrors.iter_mut().find(|(of, _)| *of == kind);
        &mut found.expect("events are only of the kinds that are watched").1
    }
}

/// Waits are seconds; one that does not fit is a misconfiguration that must not stop us.
const FALLBACK_WAIT: jiff::SignedDuration = jiff::SignedDuration::from_secs(60);

fn tagged(
    kind: Kind,
    events: impl Stream<Item = StoreEvent> + Send + 'static,
) -> Pin<Box<dyn Stream<Item = (Kind, StoreEvent)> + Send>> {
    events.map(move |event| (kind, event)).boxed()
}

/// Ours: how soon a plan is made again after a lost race. The event that tells of the winner mostly comes first.
pub(super) const RACE_WAIT: Duration = Duration::from_millis(200);
