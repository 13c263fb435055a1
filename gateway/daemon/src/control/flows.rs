//! Whether this gateway takes flows: while it starts, while it is drained, before it stops.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use trieste_control::admin::{DrainStatus, Severity};
use trieste_control::api::{Object, backend_config};
use trieste_control::members::Publication;
use trieste_pipeline::PathState;

use super::Control;
use crate::engine::Engine;
use crate::notice::Stage;

/// How long nothing has to come for a gateway to be drained.
const QUIET_PERIOD: Duration = Duration::from_secs(3);
/// How long a gateway that has just started waits for its node's route agent, from when that can know of it, before it takes
/// flows that others could carry.
const AGENT_TIMEOUT: Duration = Duration::from_secs(5);
/// How long a gateway that has just started carries flows before it says that it is ready: then the other ends, too, use its
/// paths, and a rolling update may go on with the next gateway.
const SETTLE_PERIOD: Duration = Duration::from_secs(3);
/// How long after its start a gateway accepts flows and is ready at the latest, whatever stores and remote clusters do.
const READY_TIMEOUT: Duration = Duration::from_secs(20);

impl Control<'_> {
    /// Follows the request for a drain on our Gateway object.
    pub(super) fn take_drain(&mut self, own: &Object, engine: &Engine) {
        let asked = own.metadata.is_asked_to_drain();
        if asked != self.state.drain.is_asked {
            self.state.drain.is_asked = asked;
            self.settle_drain(engine);
        }
    }

    /// Hands all flows over before a stop. Returns `true` if there is a sibling to take them.
    pub(super) fn drain_to_stop(&mut self, engine: &Engine) -> bool {
        self.state.drain.is_leaving = true;
        self.settle_drain(engine);
        self.has_siblings()
    }

    fn settle_drain(&mut self, engine: &Engine) {
        let drain = &mut self.state.drain;
        let is_draining = drain.is_wanted();
        if is_draining != drain.since.is_some() {
            drain.since = is_draining.then(Timestamp::now);
            drain.quiet_since = None;
            let (reason, message) = match (is_draining, drain.is_leaving) {
                (true, true) => ("Draining", "flows are handed over before a stop"),
                (true, false) => ("Draining", "flows are handed over, as somebody has asked for"),
                (false, _) => ("Undrained", "this gateway takes flows again"),
            };
            self.recorder.record(Severity::Info, reason, message);
        }
        // `trieste show gateways` says it at once, and not with the next heartbeat.
        self.state.is_dirty = true;
        engine.set_draining(is_draining);
        self.settle_flows(engine);
        self.peers.draining.send_if_modified(|known| std::mem::replace(known, is_draining) != is_draining);
    }

    /// Starts without accepting flows: a path is up before the node's filter and routes are, and its packets would be lost.
    pub(super) fn begin(&mut self, engine: &Engine, now: Instant) {
        self.state.drain.started = Some(now);
        self.state.drain.ready_by = Some(now + READY_TIMEOUT);
        self.settle_flows(engine);
    }

    /// Returns `true` if a sibling may be stopped as far as this gateway is concerned: it accepts flows and has had a path to
    /// every remote cluster for a while. Once ready it stays so; without siblings it is ready at once.
    pub(super) fn is_settled(&mut self, engine: &Engine, now: Instant) -> bool {
        let Some(ready_by) = self.state.drain.ready_by else { return true };
        let mut reached: BTreeMap<&str, bool> = BTreeMap::new();
        for peer in engine.own_peers() {
            let has_path = engine.lane(&peer.facts.cable_name).is_some_and(|lane| {
                let state = engine.paths().state(lane.cable);
                state.is_usable() || state == PathState::Draining
            });
            *reached.entry(&peer.facts.cluster_id).or_default() |= has_path;
        }
        let is_alone = !self.has_siblings();
        let drain = &mut self.state.drain;
        let is_new = drain.declines == Some(true) && !drain.is_wanted();
        let carries = !is_new && reached.values().all(|has_path| *has_path);
        drain.carries_since = carries.then(|| drain.carries_since.unwrap_or(now));
        let is_settled = drain.carries_since.is_some_and(|since| is_alone || now >= since + SETTLE_PERIOD);
        let is_sole = is_alone && (drain.has_members || drain.started.is_none());
        if is_settled || now >= ready_by || is_sole || !self.config.all_gateways_active {
            drain.ready_by = None;
        }
        drain.ready_by.is_none()
    }

    /// Follows a change of the other gateways.
    pub(super) fn take_others(&mut self, engine: &Engine) {
        self.state.drain.has_members = true;
        self.settle_flows(engine);
    }

    /// Accepts flows once the node's route agent has sent a hello, or [`AGENT_TIMEOUT`] after it could have.
    pub(super) fn accept_flows(&mut self, engine: &Engine, now: Instant) {
        let publication = self.peers.handle.members.borrow().publication;
        let Some(started) = self.state.drain.started else { return };
        let since = match publication {
            // An API server that is slow delays what all agents know, our node's and those that would send to us.
            Publication::Pending if self.config.all_gateways_active => None,
            Publication::Pending | Publication::Refused => Some(started),
            Publication::Done => Some(*self.state.drain.published.get_or_insert(now)),
        };
        let deadline = since.map_or(started + READY_TIMEOUT, |since| since + AGENT_TIMEOUT);
        if self.notices.has_hello() || now >= deadline {
            self.state.drain.started = None;
            engine.paths().shut(false);
            self.settle_flows(engine);
        }
    }

    /// Announces whether other gateways are preferred to this one, where there are others.
    fn settle_flows(&mut self, engine: &Engine) {
        let has_others = self.has_siblings();
        let drain = &mut self.state.drain;
        let is_new = drain.started.is_some() && (has_others || !drain.has_members);
        let declines = is_new || drain.is_wanted();
        if drain.declines.replace(declines) != Some(declines) {
            engine.decline(declines);
        }
        self.notices.set_stage(match (is_new, declines) {
            (true, _) => Stage::Starting,
            (false, true) => Stage::Draining,
            (false, false) => Stage::Serving,
        });
    }

    /// Returns the progress of handing flows over; `None` without a drain.
    pub(super) fn drain_status(&mut self, engine: &Engine, now: Instant) -> Option<DrainStatus> {
        let drain = &mut self.state.drain;
        let since = drain.since?;
        let packets = engine.carried();
        if drain.packets != packets || drain.quiet_since.is_none() {
            drain.packets = packets;
            drain.quiet_since = Some(now);
        }
        let is_done = drain.quiet_since.is_some_and(|quiet| now.duration_since(quiet) >= QUIET_PERIOD);
        Some(DrainStatus { since, is_done })
    }

    /// Marks a drain in our Endpoint inside the Gateway object, for `trieste show gateways`.
    pub(super) fn mark_drain(endpoint: &mut trieste_control::api::EndpointSpec, drain: Option<&DrainStatus>) {
        if let Some(drain) = drain {
            let state = if drain.is_done { backend_config::DRAINED } else { backend_config::DRAINING };
            endpoint.backend_config.insert(backend_config::STATE.to_owned(), state.to_owned());
        }
    }
}
