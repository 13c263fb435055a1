//! Whether this gateway leads, and what it does while it does: it is its cluster's one Endpoint, and keeps the local
//! store and the broker in step.

use std::sync::Arc;
use std::time::Instant;

use tokio::sync::{broadcast, watch};
use trieste_control::admin::{BrokerLink, BrokerStatus, RefusedCluster, Severity};
use trieste_control::api::{ClusterNetworks, HaStatus};
use trieste_control::conditions::Conditions;
use trieste_control::election::{Candidate, ElectionEvent, Term};
use trieste_control::leader::{LeaderState, LeaderStatus};
use trieste_control::recorder::Recorder;
use trieste_control::runner::ControllerRegistry;
use trieste_control::store::AnyStore;
use trieste_control::sync::{SyncConfig, SyncHandle, Syncer, WriteGuard};

use crate::shared::SyncTotals;

/// The broker's state.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct BrokerReport {
    /// Whether it answers.
    pub(crate) state: BrokerStatus,
    /// Objects that are not imported, and why.
    pub(crate) refused: Vec<RefusedCluster>,
}

/// Keeps the local store and the broker in step while this gateway leads.
pub(crate) struct LeaderTasks {
    pub(crate) candidate: Candidate,
    pub(crate) local: AnyStore,
    pub(crate) broker: AnyStore,
    pub(crate) sync: SyncConfig,
    /// The cluster's networks: nobody else may claim what is published of them.
    pub(crate) networks: watch::Receiver<ClusterNetworks>,
    pub(crate) conditions: Conditions,
    pub(crate) recorder: Recorder,
    pub(crate) totals: Arc<SyncTotals>,
    pub(crate) controllers: ControllerRegistry,
}

impl LeaderTasks {
    /// Runs a syncer whenever this gateway leads, until the candidate is dropped.
    pub(crate) async fn run(mut self, view: watch::Sender<BrokerReport>) {
        let mut leadership = self.candidate.leadership();
        let mut sync: Option<SyncHandle> = None;
        loop {
            let leads = self.candidate.is_leader(Instant::now());
            let is_outdated = self.follow_networks();
            if let Some(ended) = sync.take_if(|handle| !leads || is_outdated || handle.has_ended()) {
                ended.stop().await;
            }
            if leads && sync.is_none() {
                sync = Some(self.spawn());
            }
            self.publish(sync.as_ref(), &view);
            tokio::select! {
                changed = leadership.changed() => if changed.is_err() { return },
                () = sync_changed(sync.as_mut()) => {}
                Ok(()) = self.networks.changed() => {}
            }
        }
    }

    /// Takes the newest networks. Returns `true` if a syncer that runs was started with others.
    fn follow_networks(&mut self) -> bool {
        let published = self.networks.borrow_and_update().published();
        let is_outdated = self.sync.local_subnets != published;
        self.sync.local_subnets = published;
        is_outdated
    }

    fn spawn(&self) -> SyncHandle {
        let mut config = self.sync.clone();
        let candidate = self.candidate.clone();
        config.guard = WriteGuard::new(move || candidate.is_leader(Instant::now()));
        let handle = Syncer::spawn(self.local.clone(), self.broker.clone(), config);
        self.totals.follow(handle.stats.clone());
        self.controllers.add("broker-sync", handle.runner.metrics.clone());
        handle
    }

    fn publish(&self, sync: Option<&SyncHandle>, view: &watch::Sender<BrokerReport>) {
        let own_refusal = sync.and_then(|sync| sync.own_refusal.borrow().as_ref().map(ToString::to_string));
        self.conditions.put("RefusedByOthers", Severity::Error, &self.sync.cluster_id, own_refusal);
        let new = match sync {
            Some(sync) => {
                BrokerReport { state: sync.state.borrow().clone(), refused: sync.refused.borrow().clone() }
            }
            None => BrokerReport {
                state: BrokerStatus { state: BrokerLink::Standby, ..BrokerStatus::default() },
                refused: Vec::new(),
            },
        };
        self.conditions.replace("RefusedByBroker", Severity::Error, &self.own_refused(&new.refused));
        let message = matches!(new.state.state, BrokerLink::Away).then(|| {
            let reason = new.state.error.as_deref().unwrap_or("it does not answer");
            format!("the broker is away: {reason}; cables stay up with what is known")
        });
        self.conditions.put("BrokerAway", Severity::Warning, "", message);
        view.send_if_modified(|known| {
            let changed = *known != new;
            self.record(known, &new);
            *known = new;
            changed
        });
    }
}

impl LeaderTasks {
    /// Returns our objects that the broker's syncer refuses, and why.
    fn own_refused(&self, refused: &[RefusedCluster]) -> Vec<(String, String)> {
        let own = refused.iter().filter(|refused| refused.cluster == self.sync.cluster_id);
        own.map(|refused| (refused.endpoint.clone().unwrap_or_default(), refused.reason.clone())).collect()
    }

    /// Records events for changes.
    fn record(&self, before: &BrokerReport, now: &BrokerReport) {
        match (before.state.state, now.state.state) {
            (BrokerLink::Away, BrokerLink::Away) => {}
            (_, BrokerLink::Away) => {
                let reason = now.state.error.as_deref().unwrap_or("it does not answer");
                self.recorder.record(
                    Severity::Warning,
                    "BrokerAway",
                    format!("the broker is away: {reason}"),
                );
            }
            (BrokerLink::Away, BrokerLink::Synced) => {
                self.recorder.record(Severity::Info, "BrokerBack", "the broker answers again");
            }
            _ => {}
        }
        for refused in now.refused.iter().filter(|refused| !before.refused.contains(refused)) {
            let what = refused.endpoint.as_deref().unwrap_or("its Endpoints");
            let message = format!("cluster {}, {what}: {}", refused.cluster, refused.reason);
            self.recorder.record(Severity::Warning, "ClusterRefused", message);
        }
    }
}

/// Waits until a syncer's state changes; for ever without one.
async fn sync_changed(sync: Option<&mut SyncHandle>) {
    let Some(sync) = sync else { return std::future::pending().await };
    tokio::select! {
        // A sender that is gone means that the syncer has ended: the caller looks.
        _ = sync.state.changed() => {}
        _ = sync.refused.changed() => {}
        _ = sync.own_refusal.changed() => {}
    }
}

/// Publishes whether this gateway is the active one, until the candidate is dropped.
pub(crate) async fn publish_ha_status(candidate: Candidate, status: watch::Sender<HaStatus>) {
    let mut leadership = candidate.leadership();
    loop {
        let leads = candidate.is_leader(Instant::now());
        let now = if leads { HaStatus::Active } else { HaStatus::Passive };
        status.send_if_modified(|known| std::mem::replace(known, now) != now);
        if leadership.changed().await.is_err() {
            return;
        }
    }
}

/// Publishes what keeps a leader from being its cluster's one Endpoint, and the term in which it became so, until the leader
/// is dropped.
pub(crate) async fn watch_leader(
    mut status: watch::Receiver<LeaderStatus>,
    announced: watch::Sender<Option<Term>>,
    conditions: Conditions,
) {
    loop {
        let LeaderStatus { state, term, problem } = status.borrow_and_update().clone();
        conditions.put("NotAnnounced", Severity::Error, "", problem);
        // While the store is unavailable the last announcement stays.
        announced.send_if_modified(|known| {
            let has_changed = state == LeaderState::Announced && *known != term;
            if has_changed {
                *known = term;
            }
            has_changed
        });
        if status.changed().await.is_err() {
            return;
        }
    }
}

/// Takes down every change of leadership, until the candidate is gone.
pub(crate) async fn record(
    mut events: broadcast::Receiver<ElectionEvent>,
    hostname: String,
    recorder: Recorder,
) {
    loop {
        match events.recv().await {
            Ok(ElectionEvent::Acquired { term }) => recorder.record(
                Severity::Info,
                "LeadershipAcquired",
                format!("{hostname} is the active gateway, term {term}"),
            ),
            Ok(ElectionEvent::Lost { term, reason }) => recorder.record(
                Severity::Warning,
                "LeadershipLost",
                format!("{hostname} is no longer the active gateway, its term {term} has ended: {reason}; its cables stay up until another gateway takes over"),
            ),
            Ok(_) | Err(broadcast::error::RecvError::Lagged(_)) => {}
            Err(broadcast::error::RecvError::Closed) => return,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn what_was_announced_in_a_term_stays_so_while_the_store_is_away() {
        let at = |state, term: i64| LeaderStatus { state, term: Term::new(term), problem: None };
        let (sender, status) = watch::channel(LeaderStatus::default());
        let (announcing, mut announced) = watch::channel(None);
        let task = tokio::spawn(watch_leader(status, announcing, Conditions::new()));

        sender.send_replace(at(LeaderState::Announced, 1));
        announced.wait_for(|term| *term == Term::new(1)).await.unwrap();
        for unsaid in [at(LeaderState::Announcing, 1), LeaderStatus::default(), at(LeaderState::Fenced, 2)] {
            sender.send_replace(unsaid);
            tokio::task::yield_now().await;
            assert_eq!(*announced.borrow(), Term::new(1));
        }
        sender.send_replace(at(LeaderState::Announced, 2));
        announced.wait_for(|term| *term == Term::new(2)).await.unwrap();
        drop(sender);
        task.await.unwrap();
    }
}
