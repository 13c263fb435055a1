//! The syncer's loop: follow both stores, plan, apply, tell.

use std::future::pending;
use std::time::Duration;

use jiff::Timestamp;
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

use super::apply::{Outcome, apply};
use super::grace::Grace;
use super::link::Link;
use super::plan::{Action, KINDS, Side, View, plan};
use super::rivals::Rivals;
use super::{Backoff, BrokerLink, BrokerState, Refused, SyncConfig};
use crate::api::{Kind, Object};
use crate::store::Store;

/// Where the syncer tells how it is.
#[derive(Debug)]
pub(super) struct Outputs {
    pub(super) state_sender: watch::Sender<BrokerState>,
    pub(super) refused_sender: watch::Sender<Vec<Refused>>,
}

/// The state before anything is known.
pub(super) fn first_state() -> BrokerState {
    BrokerState { state: BrokerLink::Connecting, since: Some(Timestamp::now()), error: None, next_try: None }
}

/// Syncs for ever.
pub(super) async fn run<L: Store, B: Store>(local: L, broker: B, config: SyncConfig, outputs: Outputs) {
    let backoff = Backoff::new(config.retry_initial, config.retry_max);
    let mut local = Link::new(local, config.local_namespace.clone(), backoff.clone());
    let mut broker = Link::new(broker, config.broker_namespace.clone(), backoff);
    let mut rivals = Rivals::default();
    let mut grace = <[Grace; 2]>::default();
    let mut again: Option<Instant> = None;
    loop {
        tokio::select! {
            () = local.changed() => {}
            () = broker.changed() => {}
            () = wait_until(again) => {}
        }
        let mut outcome = Outcome::default();
        if local.is_ready() && broker.is_ready() {
            outcome = sync(&mut local, &mut broker, &mut rivals, &mut grace, &config, &outputs).await;
        } else {
            grace.iter_mut().for_each(Grace::reset);
        }
        again = outcome.again_in.map(|wait| Instant::now() + wait);
        tell_state(&outputs, &local, &broker, outcome.rival);
    }
}

async fn wait_until(time: Option<Instant>) {
    match time {
        Some(time) => sleep_until(time).await,
        None => pending().await,
    }
}

/// Plans and applies once.
async fn sync<L: Store, B: Store>(
    local: &mut Link<L>,
    broker: &mut Link<B>,
    rivals: &mut Rivals,
    grace: &mut [Grace; 2],
    config: &SyncConfig,
    outputs: &Outputs,
) -> Outcome {
    let kept = keep(local, broker, grace, config);
    let mut plan = {
        let ours: Vec<&Object> = local.objects().collect();
        let theirs: Vec<&Object> = broker.objects().collect();
        plan(&View {
            cluster_id: &config.cluster_id,
            local_namespace: &config.local_namespace,
            broker_namespace: &config.broker_namespace,
            local_subnets: &config.local_subnets,
            local: &ours,
            broker: &theirs,
        })
    };
    plan.actions.retain(|action| {
        let Action::Delete(Side::Local, key) = action else { return true };
        !kept.iter().any(|(kind, _)| *kind == key.kind)
    });
    let mut outcome = apply(plan.actions, local, broker, rivals).await;
    kept.iter().for_each(|(_, left)| outcome.again(*left));
    local.succeed();
    broker.succeed();
    let mut refused = plan.refused;
    refused.append(&mut outcome.rejected);
    tell_refused(outputs, refused);
    outcome
}

/// The kinds of which the broker has lost all foreign objects at once, and how much longer their copies are kept. Kind
/// by kind, because the kinds' events come one after the other when both are lost.
fn keep<L: Store, B: Store>(
    local: &Link<L>,
    broker: &Link<B>,
    graces: &mut [Grace; 2],
    config: &SyncConfig,
) -> Vec<(Kind, Duration)> {
    let is_foreign = |object: &Object, kind| {
        object.kind == kind && object.metadata.origin().is_some_and(|id| id != config.cluster_id)
    };
    let mut kept = Vec::new();
    for (kind, grace) in KINDS.into_iter().zip(graces) {
        let is_emptied = local.objects().any(|object| is_foreign(object, kind))
            && !broker.objects().any(|object| is_foreign(object, kind));
        let is_news = !grace.is_running();
        let Some(left) = grace.left(is_emptied, config.empty_grace, Instant::now()) else { continue };
        if is_news {
            tracing::warn!(%kind, "the broker has lost the {kind} objects of all other clusters; ours are kept for {left:?}");
        }
        kept.push((kind, left));
    }
    kept
}

/// Publishes the list if it changed, and logs what is new in it.
fn tell_refused(outputs: &Outputs, refused: Vec<Refused>) {
    outputs.refused_sender.send_if_modified(|known| {
        if *known == refused {
            return false;
        }
        for new in refused.iter().filter(|new| !known.contains(new)) {
            let Refused { cluster, endpoint, reason } = new;
            tracing::warn!(cluster, endpoint, "not connecting to cluster {cluster}: {reason}");
        }
        *known = refused;
        true
    });
}

/// Publishes the state if it changed, and logs it.
fn tell_state<L: Store, B: Store>(
    outputs: &Outputs,
    local: &Link<L>,
    broker: &Link<B>,
    rival: Option<String>,
) {
    let (state, error, next_try) = match (broker.outage(), local.outage()) {
        (Some(outage), _) => (BrokerLink::Away, Some(outage.error.clone()), Some(outage.next_try)),
        // Nothing is synced without our own store, but that is not the broker's fault.
        (None, Some(outage)) => {
            (BrokerLink::Connecting, Some(format!("local store: {}", outage.error)), Some(outage.next_try))
        }
        (None, None) if local.is_ready() && broker.is_ready() => (BrokerLink::Synced, rival, None),
        // A try is under way. Until it has failed or succeeded, the last word stands.
        (None, None) => return,
    };
    outputs.state_sender.send_if_modified(|known| {
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

fn log_state(state: BrokerLink, error: Option<&str>) {
    match error {
        Some(error) => {
            tracing::warn!("broker {}: {error}; cables stay up with what is known", state.as_str())
        }
        None => tracing::info!("broker {}", state.as_str()),
    }
}
