//! Globalnet's part of the control loop: what the controllers say becomes rules, and what stands in the way a condition.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::watch;
use trieste_control::admin::Severity;
use trieste_control::api::ensure_valid_name;
use trieste_control::globalnet::GlobalnetState;
use trieste_control::members::{Members, paths_namespace};
use trieste_nat::Share;

use super::Control;
use crate::engine::Engine;
use crate::globalnet::Controllers;
use crate::globalnet::sessions::{SnapshotWriter, Source};
use crate::tables::{Own, Translation, compile};

/// The condition of rules that objects ask for and that cannot be.
const REFUSED_RULE: &str = "GlobalnetRule";
/// The condition of timers that are shorter than the standards allow.
const TIMERS: &str = "GlobalnetTimers";
/// The condition of a gateway that has no share of the outside ports.
const NO_PORTS: &str = "NoOutsidePorts";
/// How long a new gateway may wait for its share: a sibling that has all of them releases one within seconds.
const SHARE_WITHIN: Duration = Duration::from_secs(20);

/// The controllers' state, if there are any.
pub(super) type States = Option<watch::Receiver<Option<Arc<GlobalnetState>>>>;

/// Waits until the controllers' state changes; for ever without controllers.
pub(super) async fn changed(states: &mut States) {
    if let Some(receiver) = states {
        if receiver.changed().await.is_ok() {
            return;
        }
        tracing::error!("Globalnet's controllers have ended; translation continues with the last rules");
        *states = None;
    }
    std::future::pending().await
}

/// Sets the outside ports at which this gateway may make mappings: all if it is alone, else those of its own slots.
pub(super) fn share_ports(engine: &Engine, members: &Members) {
    let (share, until) = match members.slots {
        Some(slots) => (Share::from_bits(slots.held), Some(slots.until)),
        // Not known yet: who has siblings may meet their ports.
        None if !members.siblings.is_empty() => (Share::NONE, None),
        None => (Share::ALL, None),
    };
    engine.membership().set_share(share, until);
}

impl Control<'_> {
    pub(super) fn globalnet_states(&self) -> States {
        self.globalnet.controllers.as_ref().map(|controllers| controllers.state.clone())
    }

    /// Continues with the remembered state of the last process.
    pub(super) async fn remember_globalnet(&mut self, engine: &mut Engine, state: Option<GlobalnetState>) {
        if !self.globalnet.view.is_enabled() {
            return;
        }
        let timers: Vec<(String, String)> =
            self.config.globalnet.below_standard().into_iter().map(|text| (text.clone(), text)).collect();
        self.conditions.replace(TIMERS, Severity::Warning, &timers);
        if let Some(state) = state.filter(|state| self.is_of_ours(state)) {
            self.state.globalnet.state = Some(Arc::new(state));
            self.state.globalnet.is_remembered = true;
            engine.membership().expect_rules();
            self.translate(engine).await;
        }
    }

    /// Returns `true` if the state's global CIDR is the configured one.
    fn is_of_ours(&self, state: &GlobalnetState) -> bool {
        let ours = self.config.networks.global.first().map(ToString::to_string);
        state.global_cidr.map(|cidr| cidr.to_string()) == ours
    }

    /// Applies the controllers' newest state.
    pub(super) async fn take_globalnet(&mut self, engine: &mut Engine) {
        let Some(state) = self.globalnet.controllers.as_ref().and_then(Controllers::state) else { return };
        self.state.globalnet.state = Some(state);
        self.state.globalnet.is_remembered = false;
        self.state.is_dirty = true;
        let before = self.state.globalnet.epoch;
        self.translate(engine).await;
        engine.discard_unrestored();
        engine.membership().rules_have_come(self.state.globalnet.epoch != before, Instant::now());
    }

    /// Compiles rules from the newest state and this gateway's address, if either has changed.
    pub(super) async fn translate(&mut self, engine: &mut Engine) {
        let own = Own {
            name: ensure_valid_name(&self.node.hostname),
            inside: self.config.health_check_ip.or(self.state.found.inside).and_then(v4),
        };
        let known = &mut self.state.globalnet;
        let Some(state) = known.state.clone() else { return };
        known.own = own;
        self.report_problems(&state);
        let known = &mut self.state.globalnet;
        let is_same = |(before, own): &(Arc<GlobalnetState>, Own)| {
            *own == known.own && gives_same_rules(before, &state)
        };
        if known.compiled.as_ref().is_some_and(is_same) {
            let translation = engine.translation().cloned();
            return self.globalnet.view.set(state, translation);
        }
        known.epoch += 1;
        let translation = compile(known.epoch, &state, &known.own, self.globalnet.owners).map(Arc::new);
        known.compiled = Some((Arc::clone(&state), known.own.clone()));
        self.report_refused(translation.as_deref());
        engine.set_translation(translation.clone(), self.state.globalnet.is_remembered).await;
        self.globalnet.view.set(state, translation);
        self.keep_sessions(engine);
    }

    /// Starts the snapshot writer with the first rules: before, it would overwrite the last process's sessions.
    fn keep_sessions(&self, engine: &Engine) {
        let view = &self.globalnet.view;
        let Some(files) = self.globalnet.files.as_ref().filter(|_| !view.has_writer()) else { return };
        let source = |worker: &crate::worker::WorkerHandle| {
            let changes = Arc::clone(worker.changes()?);
            let worker = worker.clone();
            Some(Source { changes, wake: Box::new(move || worker.wake()) })
        };
        let sources = engine.workers().iter().filter_map(source).collect();
        match SnapshotWriter::spawn(files.clone(), sources, view.snapshot(), self.conditions.clone()) {
            Ok(writer) => view.set_writer(Some(writer)),
            Err(error) => {
                let message = format!("translated connections would not outlive a restart: {error}");
                self.conditions.set("SessionsNotKept", Severity::Warning, "", message);
            }
        }
    }

    fn report_refused(&self, translation: Option<&Translation>) {
        let refused = translation.map(|translation| translation.refused.as_slice()).unwrap_or_default();
        let entries: Vec<(String, String)> =
            refused.iter().map(|rule| (rule.name.clone(), rule.reason.clone())).collect();
        self.conditions.replace(REFUSED_RULE, Severity::Warning, &entries);
    }

    /// Reports the state's problems as conditions.
    fn report_problems(&mut self, state: &GlobalnetState) {
        let mut by_name: BTreeMap<&'static str, Vec<(String, String)>> = BTreeMap::new();
        for problem in &state.problems {
            let entry = (problem.subject.clone(), problem.message.clone());
            by_name.entry(problem.name).or_default().push(entry);
        }
        let before = std::mem::take(&mut self.state.globalnet.problems);
        for name in before.iter().filter(|name| !by_name.contains_key(*name)) {
            self.conditions.replace(name, Severity::Warning, &[]);
        }
        for (name, entries) in &by_name {
            self.conditions.replace(name, Severity::Warning, entries);
        }
        self.state.globalnet.problems = by_name.into_keys().collect();
    }

    /// Reports a gateway that has waited for a share of the ports for long, and cannot translate new connections.
    fn check_ports(&mut self, now: Instant) {
        let lacks_ports = self.lacks_ports();
        let since = &mut self.state.globalnet.lacks_ports;
        *since = lacks_ports.then(|| since.unwrap_or(now));
        let is_late = since.is_some_and(|since| now.duration_since(since) >= SHARE_WITHIN);
        let message = is_late.then(|| {
            format!(
                "this gateway has no share of the outside ports: its siblings translate for it, and new connections are \
                 refused (nat_not_ready) where none of them has any. Is the API server reachable, and who holds the Leases \
                 trieste-nat-slot-0 to 7 in {}?",
                paths_namespace(&self.config.namespace)
            )
        });
        self.conditions.put(NO_PORTS, Severity::Warning, "", message);
    }

    /// Publishes the controllers' status.
    pub(super) fn refresh_globalnet(&mut self, now: Instant) {
        if self.globalnet.controllers.is_none() {
            return;
        }
        self.check_ports(now);
        let Some(controllers) = &self.globalnet.controllers else { return };
        let mut status = controllers.status(&self.conditions);
        status.is_remembered = self.state.globalnet.is_remembered;
        self.globalnet.view.set_controllers(status);
    }
}

fn v4(address: IpAddr) -> Option<Ipv4Addr> {
    match address {
        IpAddr::V4(address) => Some(address),
        IpAddr::V6(_) => None,
    }
}

/// Returns `true` if two states give the same rules; the fill of the pool and problems may differ.
fn gives_same_rules(a: &GlobalnetState, b: &GlobalnetState) -> bool {
    (a.global_cidr, &a.inside, &a.egress, &a.ingress, &a.gateways)
        == (b.global_cidr, &b.inside, &b.egress, &b.ingress, &b.gateways)
}
