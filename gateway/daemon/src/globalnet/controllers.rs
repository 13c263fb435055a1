//! Who allocates global IPs: the gateway that leads its cluster, under a Lease of Globalnet's own, upstream's. Everybody
//! reads what is allocated.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::watch;
use tokio::task::JoinHandle;
use trieste_control::admin::{ControllersStatus, Severity};
use trieste_control::api::ensure_valid_name;
use trieste_control::conditions::Conditions;
use trieste_control::election::{self, Candidate, ElectionConfig};
use trieste_control::globalnet::{self, GlobalnetConfig, GlobalnetHandle, GlobalnetPhase, GlobalnetState};
use trieste_control::runner::ControllerMetrics;
use trieste_control::store::AnyStore;

use super::process::{Received, Server, Work};
use crate::config::Config;

/// Conditions of what keeps the controllers from their work.
const AWAY: &str = "GlobalnetAway";
const REFUSED: &str = "GlobalnetWriteRefused";

/// Globalnet's controllers and their election. Dropped, they end; what they have written stays.
pub(crate) struct Controllers {
    /// The newest state: a Globalnet process's while there is one, else that of our own controllers.
    pub(crate) state: watch::Receiver<Option<Arc<GlobalnetState>>>,
    handle: GlobalnetHandle,
    candidate: Candidate,
    process: Server,
    followers: [JoinHandle<()>; 2],
}

impl Drop for Controllers {
    fn drop(&mut self) {
        self.followers.iter().for_each(JoinHandle::abort);
    }
}

impl Controllers {
    /// Begins to read the objects, and to write them while `leader` leads. `None` without a global CIDR.
    pub(crate) fn start(
        config: &Config,
        hostname: &str,
        is_pinged: bool,
        store: &AnyStore,
        leader: &Candidate,
    ) -> Option<Self> {
        if !config.has_globalnet() {
            return None;
        }
        let election = ElectionConfig::globalnet_of_gateway(&config.namespace, hostname);
        let candidate = election::spawn(store.clone(), election);
        // Until it is known who is the active gateway, and whether our account may do this work at all.
        candidate.set_eligible(false);
        let globalnet = GlobalnetConfig {
            namespace: config.namespace.clone(),
            cluster_id: config.cluster_id.clone(),
            gateway: is_pinged.then(|| ensure_valid_name(hostname)),
        };
        let handle = globalnet::spawn(store.clone(), globalnet, candidate.clone());
        let process = Server::open(&config.namespace, &config.cluster_id, hostname, store);
        let (sender, state) = watch::channel(None);
        let sources = (handle.state.clone(), process.received.clone());
        let choosing = tokio::spawn(choose(sources.clone(), sender));
        let following = tokio::spawn(follow(leader.clone(), sources, candidate.clone()));
        Some(Self { state, handle, candidate, process, followers: [choosing, following] })
    }

    /// Returns what the controller of this gateway counts.
    pub(crate) fn metrics(&self) -> ControllerMetrics {
        self.handle.runner.metrics.clone()
    }

    /// Returns the newest state, once it is complete.
    pub(crate) fn state(&self) -> Option<Arc<GlobalnetState>> {
        self.state.borrow().clone()
    }

    /// Returns the controllers' status; obstacles are conditions.
    pub(crate) fn status(&self, conditions: &Conditions) -> ControllersStatus {
        let received = self.process.received.borrow().clone();
        let of_process = received.work.filter(|_| received.is_connected);
        let is_process = of_process.is_some();
        let work = of_process.unwrap_or_else(|| self.own_work(received.problem));
        conditions.put(
            AWAY,
            Severity::Warning,
            "",
            work.problem.as_ref().map(|problem| {
                format!(
                    "global IPs cannot be allocated or followed: {problem}; what is translated stays as it is"
                )
            }),
        );
        conditions.replace(REFUSED, Severity::Warning, &work.refused);
        let is_writing = |phase: GlobalnetPhase| work.phase == phase.as_str();
        ControllersStatus {
            is_running: is_writing(GlobalnetPhase::Writing) || is_writing(GlobalnetPhase::Settled),
            phase: work.phase,
            holder: work.holder,
            problem: work.problem,
            is_remembered: false,
            is_process,
        }
    }

    /// Returns what our own controllers do. Where they may not read the objects, somebody else has to.
    fn own_work(&self, socket: Option<String>) -> Work {
        let holder = self.candidate.status().borrow().holder.clone();
        let mut work = Work::of(&self.handle.status.borrow(), holder);
        if self.handle.state.borrow().is_none() {
            work.problem = work.problem.map(|problem| match socket {
                None => format!(
                    "{problem}; no Globalnet process tells of them either (start this image as submariner-globalnet on \
                     this node, or give the gateway's account that right)"
                ),
                Some(socket) => format!("{problem}; {socket}"),
            });
        }
        work
    }

    /// Releases the Lease before a stop.
    pub(crate) async fn release(&self, within: Duration) {
        self.candidate.release(within).await;
    }
}

/// The states of our own controllers, and of a process.
type Sources = (watch::Receiver<Option<Arc<GlobalnetState>>>, watch::Receiver<Received>);

/// Chooses whose state counts. There is one from the first that there was: what is translated stays while nobody says
/// anything.
async fn choose((mut own, mut received): Sources, chosen: watch::Sender<Option<Arc<GlobalnetState>>>) {
    loop {
        let of_process = {
            let received = received.borrow_and_update();
            received.state.clone().filter(|_| received.is_connected)
        };
        if let Some(state) = of_process.or_else(|| own.borrow_and_update().clone()) {
            chosen.send_if_modified(|known| {
                let has_changed = known.as_ref() != Some(&state);
                *known = Some(state);
                has_changed
            });
        }
        tokio::select! {
            changed = own.changed() => if changed.is_err() { return },
            changed = received.changed() => if changed.is_err() { return },
        }
    }
}

/// Lets only the active gateway allocate, until the candidate is dropped; if its account may, and no separate Globalnet
/// process does it here.
async fn follow(leader: Candidate, (mut own, mut received): Sources, candidate: Candidate) {
    let mut leadership = leader.leadership();
    let mut is_eligible = Some(false);
    loop {
        let may_read = own.borrow_and_update().is_some();
        let leads =
            leader.is_leader(Instant::now()) && may_read && !received.borrow_and_update().is_connected;
        if is_eligible != Some(leads) {
            candidate.set_eligible(leads);
            is_eligible = Some(leads);
        }
        tokio::select! {
            changed = leadership.changed() => if changed.is_err() { return },
            changed = own.changed() => if changed.is_err() { return },
            changed = received.changed() => if changed.is_err() { return },
        }
    }
}
