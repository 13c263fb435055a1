//! Who allocates global IPs: the gateway that leads its cluster, under a Lease of Globalnet's own, upstream's. Everybody
//! reads what is allocated.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::task::JoinHandle;
use trieste_control::admin::{ControllersStatus, Severity};
use trieste_control::api::ensure_valid_name;
use trieste_control::conditions::Conditions;
use trieste_control::election::{self, Candidate, ElectionConfig};
use trieste_control::globalnet::{self, GlobalnetConfig, GlobalnetHandle, GlobalnetPhase, GlobalnetState};
use trieste_control::store::AnyStore;

use crate::config::Config;

/// Conditions of what keeps the controllers from their work.
const AWAY: &str = "GlobalnetAway";
const REFUSED: &str = "GlobalnetWriteRefused";

/// Globalnet's controllers and their election. Dropped, they end; what they have written stays.
pub(crate) struct Duty {
    pub(crate) handle: GlobalnetHandle,
    candidate: Candidate,
    follower: JoinHandle<()>,
}

impl Drop for Duty {
    fn drop(&mut self) {
        self.follower.abort();
    }
}

impl Duty {
    /// Begins to read the objects, and to write them while `leader` leads. `None` without a global CIDR.
    pub(crate) fn start(
        config: &Config,
        hostname: &str,
        is_pinged: bool,
        store: &AnyStore,
        leader: &Candidate,
    ) -> Option<Self> {
        if config.global_cidrs.is_empty() {
            return None;
        }
        let election = ElectionConfig::globalnet(&config.namespace, hostname);
        let candidate = election::spawn(store.clone(), election);
        // Until it is known who is the active gateway.
        candidate.set_eligible(leader.is_leader(Instant::now()));
        let follower = tokio::spawn(follow(leader.clone(), candidate.clone()));
        let globalnet = GlobalnetConfig {
            namespace: config.namespace.clone(),
            cluster_id: config.cluster_id.clone(),
            gateway: is_pinged.then(|| ensure_valid_name(hostname)),
        };
        let handle = globalnet::spawn(store.clone(), globalnet, candidate.clone());
        Some(Self { handle, candidate, follower })
    }

    /// The newest state, once all of it is known.
    pub(crate) fn state(&self) -> Option<Arc<GlobalnetState>> {
        self.handle.state.borrow().clone()
    }

    /// What the controllers do, for the document; what keeps them from it is a condition.
    pub(crate) fn status(&self, conditions: &Conditions) -> ControllersStatus {
        let status = self.handle.status.borrow().clone();
        let election = self.candidate.status().borrow().clone();
        conditions.put(
            AWAY,
            Severity::Warning,
            "",
            status.problem.as_ref().map(|problem| {
                format!(
                    "global IPs cannot be allocated or followed: {problem}; what is translated stays as it is"
                )
            }),
        );
        let refused: Vec<(String, String)> =
            status.refused.iter().map(|problem| (problem.subject.clone(), problem.message.clone())).collect();
        conditions.replace(REFUSED, Severity::Warning, &refused);
        ControllersStatus {
            is_running: matches!(status.phase, GlobalnetPhase::Writing | GlobalnetPhase::Settled),
            phase: phase(status.phase).to_owned(),
            holder: election.holder,
            problem: status.problem,
            is_remembered: false,
        }
    }

    /// Gives the Lease back before a stop.
    pub(crate) async fn release(&self, within: Duration) {
        self.candidate.release(within).await;
    }
}

fn phase(phase: GlobalnetPhase) -> &'static str {
    match phase {
        GlobalnetPhase::Off => "off",
        GlobalnetPhase::Standby => "standby",
        GlobalnetPhase::Writing => "writing",
        GlobalnetPhase::Settled => "settled",
        GlobalnetPhase::Starting | _ => "starting",
    }
}

/// Only the active gateway may allocate, until the election of gateways has ended.
async fn follow(leader: Candidate, candidate: Candidate) {
    let mut leadership = leader.leadership();
    let mut is_eligible = None;
    loop {
        let leads = leader.is_leader(Instant::now());
        if is_eligible != Some(leads) {
            candidate.set_eligible(leads);
            is_eligible = Some(leads);
        }
        if leadership.changed().await.is_err() {
            return;
        }
    }
}
