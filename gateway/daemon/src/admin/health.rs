//! Whether the process works, and whether it can carry traffic: what a kubelet asks.
//!
//! *Live* is about this process alone: whatever is wrong outside of it is not mended by a restart, which would cost
//! the traffic that still flows. So neither a store that is away nor peers that are silent make it unhealthy.

use std::time::Duration;

use trieste_control::admin::{BrokerLink, GatewayStatus, WorkerState};

/// Ours: the status document is put together twice a second, and a worker begins a turn every second; who has not done so for
/// this long hangs.
pub const STALE_AFTER: Duration = Duration::from_secs(15);

/// The two verdicts, each with its reason in one line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Health {
    /// Whether the process works; if not, it should be restarted.
    pub live: Result<String, String>,
    /// Whether packets have tables to go by, and siblings may rely on it. A passive gateway is as ready as an active one.
    pub ready: Result<String, String>,
}

/// How far a gateway has come since its start.
#[derive(Debug, Clone, Copy)]
pub struct Progress {
    /// Whether tables were made at least once, from the own store or from memory.
    pub has_tables: bool,
    /// Whether a sibling may be stopped as far as this gateway is concerned.
    pub is_settled: bool,
}

impl Health {
    /// Returns the verdicts about a status document of this age.
    #[must_use]
    pub fn of(status: &GatewayStatus, age: Duration, progress: Progress) -> Self {
        let live = live(status, age);
        let ready = live.clone().and_then(|_| ready(status, progress));
        Self { live, ready }
    }
}

fn live(status: &GatewayStatus, age: Duration) -> Result<String, String> {
    if !status.failure.is_empty() {
        return Err(one_line(&status.failure));
    }
    if age > STALE_AFTER {
        return Err(format!("the control loop has not been heard of for {} s", age.as_secs()));
    }
    let ended = status.workers.iter().find(|worker| worker.state == WorkerState::Stopped);
    if let Some(worker) = ended {
        let why = worker.last_error.as_deref().unwrap_or("nobody knows why");
        return Err(one_line(&format!("worker {} has ended: {why}", worker.id)));
    }
    let silent = status.workers.iter().find(|worker| worker.silent_s > STALE_AFTER.as_secs_f64());
    if let Some(worker) = silent {
        return Err(format!("worker {} has not been heard of for {:.0} s", worker.id, worker.silent_s));
    }
    Ok("live".to_owned())
}

fn ready(status: &GatewayStatus, progress: Progress) -> Result<String, String> {
    if status.store.state == BrokerLink::None {
        return Err("starting".to_owned());
    }
    if progress.has_tables && !progress.is_settled {
        return Err("other gateways carry its flows until its paths are up".to_owned());
    }
    if progress.has_tables {
        return Ok(format!("ready, {}", status.ha_status));
    }
    let why = status.store.error.as_deref().unwrap_or("it has not answered yet");
    Err(one_line(&format!("nothing is remembered, and this cluster's own store is needed: {why}")))
}

fn one_line(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status() -> GatewayStatus {
        serde_json::from_str(
            r#"{"version":"1","pid":7,"started":"2026-11-21T05:48:28Z","cluster":"a","hostname":"h","haStatus":"passive",
            "endpoint":{"cluster_id":"a","cable_name":"c","hostname":"h","subnets":[],"private_ip":"10.0.0.1",
            "backend":"wireguard"},"workers":[{"id":0,"cpu":0,"state":"running","packets":0,"restarts":0}],
            "store":{"state":"synced"}}"#,
        )
        .unwrap()
    }

    const FRESH: Duration = Duration::from_millis(400);

    fn of(status: &GatewayStatus, has_tables: bool) -> Health {
        Health::of(status, FRESH, Progress { has_tables, is_settled: true })
    }

    #[test]
    fn a_passive_gateway_that_knows_its_peers_is_live_and_ready() {
        let health = of(&status(), true);
        assert_eq!(health, Health { live: Ok("live".to_owned()), ready: Ok("ready, passive".to_owned()) });
    }

    #[test]
    fn who_cannot_replace_a_sibling_yet_is_not_ready() {
        let is_ready = |is_settled| {
            Health::of(&status(), FRESH, Progress { has_tables: true, is_settled }).ready.is_ok()
        };
        assert_eq!((is_ready(false), is_ready(true)), (false, true));
    }

    #[test]
    fn a_control_loop_that_hangs_and_a_worker_that_has_ended_are_neither() {
        let health =
            Health::of(&status(), Duration::from_secs(16), Progress { has_tables: true, is_settled: true });
        assert!(health.live.as_ref().unwrap_err().contains("16 s"), "{health:?}");
        assert_eq!(health.live, health.ready);
        let mut status = status();
        status.workers[0].state = WorkerState::Stopped;
        status.workers[0].last_error = Some("TUN\nis gone".to_owned());
        let health = of(&status, true);
        assert_eq!(health.live, Err("worker 0 has ended: TUN is gone".to_owned()));
        status.workers[0].state = WorkerState::Running;
        status.workers[0].silent_s = 15.7;
        assert_eq!(of(&status, true).live, Err("worker 0 has not been heard of for 16 s".to_owned()));
        status.failure = "all workers ended".to_owned();
        assert_eq!(of(&status, true).ready, Err("all workers ended".to_owned()));
    }

    #[test]
    fn a_store_that_is_away_matters_only_to_who_remembers_nothing() {
        let mut status = status();
        status.store.state = BrokerLink::Away;
        status.store.error = Some("refused".to_owned());
        assert!(of(&status, true).ready.is_ok());
        let health = of(&status, false);
        assert!(health.live.is_ok());
        assert!(health.ready.unwrap_err().contains("refused"));
        status.store.state = BrokerLink::None;
        assert_eq!(of(&status, true).ready, Err("starting".to_owned()));
    }
}
