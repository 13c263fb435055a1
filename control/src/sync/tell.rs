//! What the syncer says of itself: state, refused objects, our own refusal, counters.

use jiff::Timestamp;
use tokio::sync::watch;

use super::plan::{self, OwnRefusal};
use super::run::Run;
use super::{BrokerLink, BrokerState, Refused};

/// Ours: so many refused objects are listed; of more, only how many there are.
const MAX_LISTED: usize = 256;

/// What a syncer has done since it was started.
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
    pub rivals: u64,
}

/// Where the syncer tells how it is.
#[derive(Debug)]
pub(super) struct Outputs {
    pub(super) state: watch::Sender<BrokerState>,
    pub(super) refused: watch::Sender<Vec<Refused>>,
    pub(super) own_refusal: watch::Sender<Option<OwnRefusal>>,
    pub(super) stats: watch::Sender<SyncStats>,
}

/// The state before anything is known.
pub(super) fn first_state() -> BrokerState {
    BrokerState { state: BrokerLink::Connecting, since: Some(Timestamp::now()), error: None, next_try: None }
}

/// Publishes what has changed.
pub(super) fn tell(outputs: &Outputs, run: &mut Run, is_fenced: bool) {
    // Before the broker's objects are known it is not known either who is refused.
    if run.broker.was_complete() && run.local.was_complete() {
        let rejects = run.desks.iter().any(|desk| desk.rejected().next().is_some());
        if std::mem::replace(&mut run.has_refusal_news, rejects) || rejects {
            tell_refused(outputs, run);
        }
        tell_own_refusal(outputs, run);
    }
    tell_state(outputs, run, is_fenced);
    outputs.stats.send_replace(run.stats);
}

fn tell_own_refusal(outputs: &Outputs, run: &Run) {
    outputs.own_refusal.send_if_modified(|known| {
        let refusal = plan::own_refusal(&run.book);
        if *known == refusal {
            return false;
        }
        match &refusal {
            Some(refusal) => tracing::warn!("{refusal}"),
            None => tracing::info!("no other cluster was there first with addresses of ours any more"),
        }
        *known = refusal;
        true
    });
}

/// Publishes the list if it changed, and logs what is new in it.
fn tell_refused(outputs: &Outputs, run: &Run) {
    let rejected = run.desks.iter().flat_map(super::desk::Desk::rejected).cloned();
    let mut refused = plan::refused(&run.book);
    refused.extend(rejected);
    refused.sort_by(|a, b| (&a.cluster, &a.endpoint).cmp(&(&b.cluster, &b.endpoint)));
    let more = refused.len().saturating_sub(MAX_LISTED);
    if more > 0 {
        refused.truncate(MAX_LISTED);
        let reason = format!("{more} more objects are refused; the first {MAX_LISTED} are listed");
        refused.push(Refused { cluster: String::new(), endpoint: None, reason });
    }
    outputs.refused.send_if_modified(|known| {
        if *known == refused {
            return false;
        }
        for new in refused.iter().filter(|new| !known.contains(new)) {
            let Refused { cluster, endpoint, reason } = new;
            tracing::warn!(cluster, endpoint, "not synced, of cluster {cluster}: {reason}");
        }
        *known = refused;
        true
    });
}

/// Publishes the state if it changed, and logs it.
fn tell_state(outputs: &Outputs, run: &Run, is_fenced: bool) {
    let Some(now) = state(run) else {
        if is_fenced {
            outputs.state.send_modify(|known| known.error = Some(FENCED.to_owned()));
        }
        return;
    };
    let (state, mut error, next_try) = now;
    if is_fenced {
        error = Some(FENCED.to_owned());
    }
    outputs.state.send_if_modified(|known| {
        let has_turned = known.state != state;
        if has_turned {
            known.since = Some(Timestamp::now());
        }
        if has_turned || known.error != error {
            log_state(state, error.as_deref());
        }
        let is_news = has_turned || known.error != error || known.next_try != next_try;
        known.state = state;
        known.error.clone_from(&error);
        known.next_try = next_try;
        is_news
    });
}

/// What is said when the guard has ended the syncer.
const FENCED: &str = "syncing has ended here: this gateway does not lead any more";

type Said = (BrokerLink, Option<String>, Option<Timestamp>);

fn state(run: &Run) -> Option<Said> {
    let [local_desk, broker_desk] = &run.desks;
    let away = |error: &str, next_try| Some((BrokerLink::Away, Some(error.to_owned()), Some(next_try)));
    // Nothing is synced without our own store, but that is not the broker's fault.
    let local_away = |error: &str, next_try| {
        Some((BrokerLink::Connecting, Some(format!("local store: {error}")), Some(next_try)))
    };
    if let Some(outage) = run.broker.outage() {
        return away(&outage.error, outage.next_try);
    }
    if let Some(trouble) = broker_desk.trouble() {
        return away(&trouble.error, trouble.next_try);
    }
    if let Some(outage) = run.local.outage() {
        return local_away(&outage.error, outage.next_try);
    }
    if let Some(trouble) = local_desk.trouble() {
        return local_away(&trouble.error, trouble.next_try);
    }
    if run.local.is_ready() && run.broker.is_ready() {
        let rival = run.desks.iter().find_map(super::desk::Desk::rival);
        return Some((BrokerLink::Synced, rival.map(str::to_owned), None));
    }
    // A try is under way. Until it has failed or succeeded, the last word stands.
    None
}

fn log_state(state: BrokerLink, error: Option<&str>) {
    match error {
        Some(error) => {
            tracing::warn!("broker {}: {error}; cables stay up with what is known", state.as_str())
        }
        None => tracing::info!("broker {}", state.as_str()),
    }
}
