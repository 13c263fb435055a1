//! What the servers and the heartbeat read of a running gateway.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use arc_swap::ArcSwap;
use trieste_control::admin::GatewayStatus;
use trieste_control::api::{Gateway, Resource as _};

use crate::metrics::{MetricsExtra, ProcessStats};
use crate::status;

/// The newest status and the numbers beside it.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) status: ArcSwap<GatewayStatus>,
    pub(crate) established: Mutex<Vec<(String, Duration)>>,
    pub(crate) workers: Mutex<Vec<(u32, trieste_pipeline::Counters)>>,
    pub(crate) iterations: AtomicU64,
    pub(crate) failure: Mutex<String>,
    pub(crate) namespace: String,
}

impl Shared {
    pub(crate) fn fail(&self, failure: &str) {
        failure.clone_into(&mut self.failure.lock().unwrap_or_else(PoisonError::into_inner));
        let mut status = GatewayStatus::clone(&self.status.load());
        failure.clone_into(&mut status.failure);
        self.status.store(Arc::new(status));
    }

    pub(crate) fn extra(&self) -> MetricsExtra {
        MetricsExtra {
            sync_iterations: self.iterations.load(Ordering::Relaxed),
            established: self.established.lock().unwrap_or_else(PoisonError::into_inner).clone(),
            workers: self.workers.lock().unwrap_or_else(PoisonError::into_inner).clone(),
            process: ProcessStats::read(),
        }
    }

    pub(crate) fn gateway(&self) -> serde_json::Value {
        let status = self.status.load();
        let gateway = Gateway::new(&self.namespace, &status.hostname, status::published(&status));
        gateway.map(|gateway| gateway.to_object().to_value()).unwrap_or_default()
    }
}
