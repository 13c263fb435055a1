//! The ways through the clusters, and how busy the machine was meanwhile.

use std::time::{Duration, Instant};

use anyhow::Context;

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
        Ok(Begun { at: Instant::now(), busy: busy()? })
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
        Ok(Load { busy: busy()? - self.busy, wall: self.at.elapsed().as_secs_f64() })
    }
}

/// CPU seconds since boot that were neither idle nor waiting; those stolen by other machines count.
fn busy() -> anyhow::Result<f64> {
    let stat = std::fs::read_to_string("/proc/stat").context("reading /proc/stat")?;
    let ticks = stat.lines().next().and_then(busy_ticks).context("/proc/stat has another form")?;
    Ok(ticks / rustix::param::clock_ticks_per_second() as f64)
}

/// `cpu USER NICE SYSTEM IDLE WAITING IRQ SOFTIRQ STOLEN ...`; what guests used is in the first two already.
fn busy_ticks(line: &str) -> Option<f64> {
    let ticks: Vec<f64> = line.split_whitespace().skip(1).map_while(|field| field.parse().ok()).collect();
    Some([0, 1, 2, 5, 6, 7].iter().filter_map(|&field| ticks.get(field)).sum::<f64>())
        .filter(|_| ticks.len() >= 8)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn idle_and_waiting_are_not_busy() {
        assert_eq!(busy_ticks("cpu  1 2 4 1000 2000 8 16 32 64 128"), Some(63.0));
        assert_eq!(busy_ticks("cpu  1 2"), None);
    }
}
