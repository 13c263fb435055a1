//! Following one of the two stores: its events, whether it answers, and when it is tried again.

use std::time::Duration;

use futures::StreamExt;
use futures::stream::{self, BoxStream, SelectAll};
use jiff::Timestamp;
use rand_core::OsRng;
use tokio::time::{Instant, sleep_until};

use super::book::Book;
use super::name::KINDS;
use super::plan::Side;
use super::port::Port;
use crate::api::Kind;
use crate::backoff::Backoff;
use crate::store::StoreEvent;

/// Ours: so many events are taken in at most before anything is decided.
const BATCH: usize = 1024;

/// Events that were ready together; `None` is the end of a stream.
pub(super) type Batch = Vec<(Kind, Option<StoreEvent>)>;

/// A store, followed.
pub(super) struct Link {
    pub(super) port: Box<dyn Port>,
    side: Side,
    namespace: String,
    events: BoxStream<'static, Batch>,
    listed: [bool; KINDS.len()],
    was_complete: bool,
    opened: Instant,
    answer_within: Duration,
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

impl Link {
    pub(super) fn new(
        port: Box<dyn Port>,
        side: Side,
        namespace: String,
        backoff: Backoff,
        answer_within: Duration,
    ) -> Self {
        let mut link = Self {
            port,
            side,
            namespace,
            events: stream::pending().boxed(),
            listed: [false; KINDS.len()],
            was_complete: false,
            opened: Instant::now(),
            answer_within,
            backoff,
            outage: None,
        };
        link.open();
        link
    }

    /// Waits for events; no events mean that the store's state has changed. Can be cancelled.
    pub(super) async fn next(&mut self) -> Batch {
        if let Some(outage) = &self.outage {
            sleep_until(outage.retry).await;
            self.outage = None;
            self.open();
        }
        let answer_within = self.answer_within;
        let silence = (!self.is_complete()).then_some(self.opened + answer_within);
        tokio::select! {
            batch = self.events.next() => batch.unwrap_or_default(),
            () = wait_until(silence) => {
                self.fail(format!("there was no list within {answer_within:?}"));
                Batch::new()
            }
        }
    }

    /// Enters events in the book, up to the first that says that the store is away. Gives the number of those entered.
    pub(super) fn take(&mut self, batch: Batch, book: &mut Book) -> u64 {
        let mut count = 0;
        for (kind, event) in batch {
            match event {
                None => {
                    self.fail("the store's events have ended".to_owned());
                    break;
                }
                Some(StoreEvent::Unavailable(error)) => {
                    self.fail(error.to_string());
                    break;
                }
                Some(event) => {
                    if matches!(event, StoreEvent::Listed(_)) {
                        KINDS.iter().zip(&mut self.listed).for_each(|(of, listed)| *listed |= *of == kind);
                    }
                    book.learn(self.side, kind, event);
                    count += 1;
                }
            }
        }
        self.was_complete |= self.is_complete();
        count
    }

    /// Whether everything is known, as far as the store's word goes.
    pub(super) fn is_ready(&self) -> bool {
        self.outage.is_none() && self.is_complete()
    }

    /// Whether everything has been known at some time.
    pub(super) fn was_complete(&self) -> bool {
        self.was_complete
    }

    /// Everything went through: the next outage starts with short waits again.
    pub(super) fn settle(&mut self) {
        if self.is_ready() {
            self.backoff.reset();
        }
    }

    pub(super) fn outage(&self) -> Option<&Outage> {
        self.outage.as_ref()
    }

    /// Starts to follow from new lists. What was known stays, and counts until they are there.
    pub(super) fn open(&mut self) {
        self.listed = [false; KINDS.len()];
        self.opened = Instant::now();
        let follow = |kind| {
            let events = self.port.follow(kind, &self.namespace);
            events.map(move |event| (kind, Some(event))).chain(stream::iter([(kind, None)])).boxed()
        };
        self.events = KINDS.map(follow).into_iter().collect::<SelectAll<_>>().ready_chunks(BATCH).boxed();
    }

    fn fail(&mut self, error: String) {
        let wait = self.backoff.next_wait(&mut OsRng);
        let next_try = Timestamp::now() + jiff::SignedDuration::try_from(wait).unwrap_or(FALLBACK_WAIT);
        self.outage = Some(Outage { error, retry: Instant::now() + wait, next_try });
        self.events = stream::pending().boxed();
    }

    fn is_complete(&self) -> bool {
        self.listed.iter().all(|listed| *listed)
    }
}

/// Waits are seconds; one that does not fit is a misconfiguration that must not stop us.
const FALLBACK_WAIT: jiff::SignedDuration = jiff::SignedDuration::from_secs(60);

pub(super) async fn wait_until(time: Option<Instant>) {
    match time {
        Some(time) => sleep_until(time).await,
        None => std::future::pending().await,
    }
}
