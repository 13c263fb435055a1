//! State of a running gateway, for the servers and the heartbeat.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use jiff::Timestamp;
use tokio::sync::watch;
use trieste_control::admin::GatewayStatus;
use trieste_control::api::{Gateway, PublishedStatus, Resource as _};
use trieste_control::natdiscovery;
use trieste_control::recorder::Recorder;
use trieste_control::runner::ControllerRegistry;
use trieste_control::store::AnyStore;
use trieste_control::sync::SyncStats;

use crate::admin::Health;
use crate::admin::health::Progress;
use crate::globalnet::view::GlobalnetView;
use crate::ike::IkeNumbers;
use crate::metrics::{MetricsExtra, ProcessStats};
use crate::notice::NoticeNumbers;
use crate::status::{Document, published};

/// The newest status and the numbers beside it.
#[derive(Debug)]
pub(crate) struct Shared {
    document: ArcSwap<Document>,
    pub(crate) established: Mutex<Vec<(String, Duration)>>,
    pub(crate) workers: Mutex<Vec<(u32, trieste_pipeline::Counters)>>,
    pub(crate) discovery: Mutex<natdiscovery::Counters>,
    pub(crate) notices: Mutex<NoticeNumbers>,
    pub(crate) ike: Mutex<Option<IkeNumbers>>,
    pub(crate) iterations: AtomicU64,
    pub(crate) failure: Mutex<String>,
    pub(crate) namespace: String,
    sources: Sources,
    globalnet: Arc<GlobalnetView>,
    liveness: Liveness,
}

/// Sources of further metrics, which are read at each request.
#[derive(Debug)]
pub(crate) struct Sources {
    pub(crate) store: AnyStore,
    pub(crate) broker: Option<AnyStore>,
    pub(crate) recorder: Recorder,
    pub(crate) sync: Arc<SyncTotals>,
    pub(crate) controllers: ControllerRegistry,
    /// Whether there were Endpoints to start from before any store had answered.
    pub(crate) started_from_memory: bool,
}

/// Liveness of the control loop, and whether the own store has ever answered.
#[derive(Debug)]
struct Liveness {
    newest: Mutex<Instant>,
    has_listed: AtomicBool,
    is_settled: AtomicBool,
}

impl Shared {
    /// Returns the state before the control loop has run.
    pub(crate) fn new(
        document: Document,
        namespace: &str,
        sources: Sources,
        globalnet: Arc<GlobalnetView>,
    ) -> Self {
        Self {
            document: ArcSwap::from_pointee(document),
            established: Mutex::default(),
            workers: Mutex::default(),
            discovery: Mutex::default(),
            notices: Mutex::default(),
            ike: Mutex::default(),
            iterations: AtomicU64::new(0),
            failure: Mutex::default(),
            namespace: namespace.to_owned(),
            sources,
            globalnet,
            liveness: Liveness {
                newest: Mutex::new(Instant::now()),
                has_listed: AtomicBool::new(false),
                is_settled: AtomicBool::new(false),
            },
        }
    }

    /// Publishes a new status document; `is_synced` says whether the own store answers.
    pub(crate) fn publish(&self, document: Document, is_synced: bool) {
        if is_synced {
            self.liveness.has_listed.store(true, Ordering::Relaxed);
        }
        *self.liveness.newest.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
        self.document.store(Arc::new(document));
    }

    /// Returns the content of the Gateway object, by the newest status document.
    pub(crate) fn published(&self) -> PublishedStatus {
        self.document().published()
    }

    /// Returns the newest status document, read or not.
    pub(crate) fn document(&self) -> Arc<Document> {
        self.document.load_full()
    }

    /// Returns the newest status document.
    pub(crate) fn status(&self) -> Arc<GatewayStatus> {
        self.document.load_full().read()
    }

    pub(crate) fn fail(&self, failure: &str) {
        failure.clone_into(&mut self.failure.lock().unwrap_or_else(PoisonError::into_inner));
        let mut status = GatewayStatus::clone(&self.status());
        failure.clone_into(&mut status.failure);
        self.document.store(Arc::new(Document::ready(status)));
    }

    pub(crate) fn extra(&self) -> MetricsExtra {
        let Sources { store, broker, recorder, sync, controllers, started_from_memory } = &self.sources;
        let broker = broker.as_ref().and_then(AnyStore::requests).map(|requests| ("broker", requests));
        MetricsExtra {
            now: Timestamp::now(),
            sync_iterations: self.iterations.load(Ordering::Relaxed),
            established: self.established.lock().unwrap_or_else(PoisonError::into_inner).clone(),
            workers: self.workers.lock().unwrap_or_else(PoisonError::into_inner).clone(),
            process: ProcessStats::read(),
            requests: store
                .requests()
                .map(|requests| ("local", requests))
                .into_iter()
                .chain(broker)
                .collect(),
            sync: sync.sum(),
            controllers: controllers.snapshot(Instant::now()),
            discovery: *self.discovery.lock().unwrap_or_else(PoisonError::into_inner),
            notices: *self.notices.lock().unwrap_or_else(PoisonError::into_inner),
            events: recorder.counts(),
            started_from_memory: *started_from_memory,
            globalnet: self.globalnet.is_enabled().then(|| self.globalnet.status()),
            ike: self.ike.lock().unwrap_or_else(PoisonError::into_inner).clone(),
        }
    }

    pub(crate) fn health(&self) -> Health {
        let age = self.liveness.newest.lock().unwrap_or_else(PoisonError::into_inner).elapsed();
        let has_tables = self.sources.started_from_memory || self.liveness.has_listed.load(Ordering::Relaxed);
        let is_settled = self.liveness.is_settled.load(Ordering::Relaxed);
        Health::of(&self.status(), age, Progress { has_tables, is_settled })
    }

    /// Sets whether siblings may rely on this gateway.
    pub(crate) fn settle(&self, is_settled: bool) {
        self.liveness.is_settled.store(is_settled, Ordering::Relaxed);
    }

    pub(crate) fn gateway(&self) -> serde_json::Value {
        let status = self.status();
        let gateway = Gateway::new(&self.namespace, &status.hostname, published(&status));
        gateway.map(|gateway| gateway.to_object().to_value()).unwrap_or_default()
    }
}

/// Counters of all syncers of this process: there is one for each time that this gateway leads.
#[derive(Debug, Default)]
pub(crate) struct SyncTotals(Mutex<(SyncStats, Option<watch::Receiver<SyncStats>>)>);

impl SyncTotals {
    /// Adds a new syncer. The last one has ended.
    pub(crate) fn follow(&self, stats: watch::Receiver<SyncStats>) {
        let sum = self.sum();
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = (sum, Some(stats));
    }

    /// Returns the sum of all syncers.
    pub(crate) fn sum(&self) -> SyncStats {
        let totals = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (mut sum, current) =
            (totals.0, totals.1.as_ref().map(|stats| *stats.borrow()).unwrap_or_default());
        sum.events += current.events;
        sum.decisions += current.decisions;
        sum.judgements += current.judgements;
        sum.local_writes += current.local_writes;
        sum.broker_writes += current.broker_writes;
        sum.races += current.races;
        sum.failures += current.failures;
        sum.write_conflicts += current.write_conflicts;
        sum
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_do_not_go_back_when_a_syncer_ends() {
        let totals = SyncTotals::default();
        let mut stats = SyncStats::default();
        stats.events = 3;
        stats.races = 1;
        let (sender, receiver) = watch::channel(stats);
        totals.follow(receiver);
        assert_eq!(totals.sum(), stats);
        drop(sender);
        let (sender, receiver) = watch::channel(SyncStats::default());
        totals.follow(receiver);
        assert_eq!(totals.sum(), stats);
        sender.send_replace(stats);
        assert_eq!((totals.sum().events, totals.sum().races), (6, 2));
    }
}
