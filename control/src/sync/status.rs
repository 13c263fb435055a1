//! The published status of the syncer: state, refused objects, our own refusal, counters.

use std::sync::Arc;

use jiff::Timestamp;
use tokio::sync::watch;

use super::plan::{self, OwnRefusal};
use super::side::Side;
use super::state::SyncState;
use super::{BrokerLink, BrokerState, Refused};
use crate::runner::QueueView;

/// The most refused objects that are listed; of more, only how many there are.
const MAX_LISTED: usize = 256;

/// The error of a syncer that its guard has ended.
const FENCED: &str = "syncing has ended here: this gateway does not lead any more";

/// The counters of a syncer since it was started.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct SyncStats {
    /// Events of both stores; a list is one.
    pub events: u64,
    /// Objects that were decided about.
    pub decisions: u64,
    /// Endpoints that were compared with others' claims.
    pub judgements: u64,
    /// Requests to the local store that create, update or delete, failed ones included.
    pub local_writes: u64,
    /// Requests to the broker that create, update or delete, failed ones included.
    pub broker_writes: u64,
    /// Writes that somebody else was faster than.
    pub races: u64,
    /// Writes that a store failed to answer, or did not allow.
    pub failures: u64,
    /// Writes that were put off because somebody else keeps undoing them.
    pub write_conflicts: u64,
}

/// Where the syncer publishes how it is.
#[derive(Debug)]
pub(super) struct Outputs {
    pub(super) state: watch::Sender<BrokerState>,
    pub(super) refused: watch::Sender<Vec<Refused>>,
    pub(super) own_refusal: watch::Sender<Option<OwnRefusal>>,
    pub(super) stats: watch::Sender<SyncStats>,
}

/// Returns the state before anything is known.
pub(super) fn first_state() -> BrokerState {
    BrokerState { state: BrokerLink::Connecting, since: Some(Timestamp::now()), error: None, next_try: None }
}

/// How the syncer is.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Snapshot {
    /// The state; `None` while a try is under way: until it has failed or succeeded, the last one stands.
    pub(super) link: Option<LinkState>,
    /// The refused objects; `None` until they are known.
    pub(super) refused: Option<Arc<Vec<Refused>>>,
    pub(super) own_refusal: Option<OwnRefusal>,
    pub(super) stats: SyncStats,
    /// Whether the guard has ended the syncer.
    pub(super) is_fenced: bool,
}

/// Whether the broker answers.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct LinkState {
    state: BrokerLink,
    error: Option<String>,
    next_try: Option<Timestamp>,
}

/// Returns the state, given whether everything can be read.
pub(super) fn link_state(view: &QueueView<'_>, is_read: bool) -> Option<LinkState> {
    let outage = |side: Side| {
        let store = side.store();
        let closed = view.closed.get(store).copied().flatten();
        let unavailable = view.unavailable.get(store).copied().flatten();
        closed.or_else(|| unavailable.zip(view.next_writes.get(store).copied().flatten()))
    };
    if let Some((error, next_try)) = outage(Side::Broker) {
        let error = Some(error.to_owned());
        return Some(LinkState { state: BrokerLink::Away, error, next_try: Some(next_try) });
    }
    // Nothing is synced without our own store, but that is not the broker's fault.
    if let Some((error, next_try)) = outage(Side::Local) {
        let error = Some(format!("local store: {error}"));
        return Some(LinkState { state: BrokerLink::Connecting, error, next_try: Some(next_try) });
    }
    let error = view.hold.map(str::to_owned);
    is_read.then_some(LinkState { state: BrokerLink::Synced, error, next_try: None })
}

/// Returns all that is refused, by cluster and name: what we do not take, and what a store did not take.
pub(super) fn list_refused<'a>(
    state: &SyncState,
    rejected: impl Iterator<Item = &'a Refused>,
) -> Vec<Refused> {
    let mut refused = plan::refused(state);
    refused.extend(rejected.cloned());
    refused.sort_by(|a, b| (&a.cluster, &a.endpoint).cmp(&(&b.cluster, &b.endpoint)));
    let more = refused.len().saturating_sub(MAX_LISTED);
    if more > 0 {
        refused.truncate(MAX_LISTED);
        let reason = format!("{more} more objects are refused; the first {MAX_LISTED} are listed");
        refused.push(Refused { cluster: String::new(), endpoint: None, reason });
    }
    refused
}

impl Outputs {
    /// Publishes what has changed.
    pub(super) fn publish(&self, snapshot: &Snapshot) {
        if let Some(refused) = &snapshot.refused {
            self.publish_refused(refused);
            self.publish_own_refusal(snapshot.own_refusal.as_ref());
        }
        self.publish_state(snapshot);
        self.stats.send_replace(snapshot.stats);
    }

    fn publish_own_refusal(&self, refusal: Option<&OwnRefusal>) {
        self.own_refusal.send_if_modified(|published| {
            if published.as_ref() == refusal {
                return false;
            }
            match refusal {
                Some(refusal) => tracing::warn!(reason = %refusal, "refused by the other clusters"),
                None => tracing::info!("no longer refused by the other clusters"),
            }
            *published = refusal.cloned();
            true
        });
    }

    /// Publishes the list if it changed, and logs the new ones.
    fn publish_refused(&self, refused: &[Refused]) {
        self.refused.send_if_modified(|published| {
            if *published == refused {
                return false;
            }
            for new in refused.iter().filter(|new| !published.contains(new)) {
                let Refused { cluster, endpoint, reason } = new;
                tracing::warn!(cluster, endpoint, reason, "endpoint not synced");
            }
            *published = refused.to_vec();
            true
        });
    }

    /// Publishes the state if it changed, and logs it.
    fn publish_state(&self, snapshot: &Snapshot) {
        let Some(LinkState { state, error, next_try }) = &snapshot.link else {
            if snapshot.is_fenced {
                self.state.send_modify(|published| published.error = Some(FENCED.to_owned()));
            }
            return;
        };
        let error = if snapshot.is_fenced { Some(FENCED.to_owned()) } else { error.clone() };
        self.state.send_if_modified(|published| {
            let has_turned = published.state != *state;
            if has_turned {
                published.since = Some(Timestamp::now());
            }
            if has_turned || published.error != error {
                log_state(*state, error.as_deref());
            }
            let has_changed = has_turned || published.error != error || published.next_try != *next_try;
            published.state = *state;
            published.error.clone_from(&error);
            published.next_try = *next_try;
            has_changed
        });
    }
}

fn log_state(state: BrokerLink, error: Option<&str>) {
    let state = state.as_str();
    match error {
        Some(error) => {
            tracing::warn!(
                state,
                error,
                "broker link changed; cables stay up with the endpoints known so far"
            )
        }
        None => tracing::info!(state, "broker link changed"),
    }
}
