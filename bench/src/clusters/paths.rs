//! The ways through the clusters, and how busy the machine was meanwhile.

use std::time::{Duration, Instant};

use crate::stat::Busy;

/// From which node to which.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Path {
    /// The cable alone.
    GatewayToGateway,
    /// `vx-submariner` of the sender's cluster, then the cable.
    WorkerToGateway,
    /// The cable, then `vx-submariner` of the receiver's cluster.
    GatewayToWorker,
    /// Both.
    WorkerToWorker,
    /// From a worker to the gateway node of its own cluster, by the network plugin: nothing of ours.
    OwnCluster,
}

impl Path {
    /// All of them.
    pub(super) const ALL: [Self; 5] = [
        Self::GatewayToGateway,
        Self::WorkerToGateway,
        Self::GatewayToWorker,
        Self::WorkerToWorker,
        Self::OwnCluster,
    ];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::GatewayToGateway => "gateway-gateway",
            Self::WorkerToGateway => "worker-gateway",
            Self::GatewayToWorker => "gateway-worker",
            Self::WorkerToWorker => "worker-worker",
            Self::OwnCluster => "own-cluster",
        }
    }
}

/// How much of the machine was used.
#[derive(Debug)]
pub(super) struct Load {
    /// Seconds of CPU that were not idle.
    pub(super) busy: f64,
    /// Seconds by the clock.
    pub(super) wall: f64,
}

/// A reading that has begun.
pub(super) struct Begun {
    at: Instant,
    busy: f64,
}

impl Load {
    /// Reads for so long, with the hands off.
    ///
    /// # Errors
    /// When the kernel does not say.
    pub(super) fn watch(duration: Duration) -> anyhow::Result<Self> {
        let begun = Self::begin()?;
        std::thread::sleep(duration);
        begun.end()
    }

    /// Begins to read.
    ///
    /// # Errors
    /// When the kernel does not say.
    pub(super) fn begin() -> anyhow::Result<Begun> {
        Ok(Begun { at: Instant::now(), busy: Busy::read()?.total() })
    }

    /// The share of all CPUs.
    pub(super) fn share(&self) -> f64 {
        let cpus = std::thread::available_parallelism().map_or(1.0, |count| count.get() as f64);
        self.busy / (self.wall * cpus)
    }
}

impl Begun {
    /// What was used since.
    ///
    /// # Errors
    /// When the kernel does not say.
    pub(super) fn end(self) -> anyhow::Result<Load> {
        Ok(Load { busy: Busy::read()?.total() - self.busy, wall: self.at.elapsed().as_secs_f64() })
    }
}
