//! The other gateways, as the control loop knows them: who they are, whether this one is handing its flows over, and what
//! is remembered of both.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use tokio::sync::watch;
use trieste_control::admin::{DrainStatus, Severity};
use trieste_control::api::{Endpoint, Object, Resource as _, backend_config, ensure_valid_name};
use trieste_control::members::{Member, Members, MembersHandle, NatSlots};
use trieste_control::publish::Spared;
use trieste_pipeline::PathState;

use super::{Control, without_bookkeeping};
use crate::engine::Engine;
use crate::notice::Stage;

/// How long nothing has to come for a gateway to be drained.
const QUIET: Duration = Duration::from_secs(3);

/// How long after its start a gateway waits for its node's route agent before it takes flows that others could carry.
const PATIENCE: Duration = Duration::from_secs(5);

/// How long a gateway that has just started carries flows before it says that it is ready: then the other ends, too, use its
/// paths, and whoever replaces gateways one by one may go on with the next.
const SETTLES: Duration = Duration::from_secs(3);

/// How long after its start a gateway is ready at the latest, whatever remote clusters do.
const READY_BY: Duration = Duration::from_secs(20);

/// What this gateway and the others tell each other.
pub(crate) struct Peers {
    /// The others.
    pub(crate) handle: MembersHandle,
    /// Whether this one is to get no new flows.
    pub(crate) draining: watch::Sender<bool>,
    /// The cables to siblings that are not dead.
    pub(crate) heard: watch::Sender<BTreeSet<String>>,
}

impl Peers {
    /// Whose Gateway objects stay however old: those of siblings whose cables live. They cannot write, and carry on.
    pub(crate) fn spared(&self) -> Spared {
        let (members, heard) = (self.handle.members.clone(), self.heard.subscribe());
        Spared::new(move |name| {
            let heard = heard.borrow();
            members.borrow().siblings.iter().any(|member| {
                let host = &member.endpoint.spec.hostname;
                heard.contains(member.cable_name()) && ensure_valid_name(host) == name
            })
        })
    }
}

/// How far this gateway has handed its flows over.
#[derive(Debug, Default)]
pub(super) struct Drain {
    /// Whether somebody has asked for it.
    is_asked: bool,
    /// Whether this gateway is about to stop.
    is_leaving: bool,
    since: Option<Timestamp>,
    /// When this gateway has started, until its node is ready for it.
    started: Option<Instant>,
    /// Whether it is known by now who the others are.
    knows_others: bool,
    /// What was said last: whether others are to be preferred.
    declines: Option<bool>,
    /// Since when this gateway could carry what its siblings carry, and by when it is taken for ready anyway.
    carries_since: Option<Instant>,
    ready_by: Option<Instant>,
    /// How many packets had come, and since when no more have.
    packets: u64,
    quiet_since: Option<Instant>,
}

impl Drain {
    /// Whether flows are to be handed over.
    fn is_wanted(&self) -> bool {
        self.is_asked || self.is_leaving
    }
}

/// What is remembered of the other gateways over a restart.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "kebab-case")]
pub struct RememberedMembers {
    /// Whether all gateways of this cluster are active.
    pub is_multi: bool,
    /// The further Endpoints of the other gateways of this cluster.
    pub siblings: Vec<Object>,
    /// The further Endpoints of remote clusters.
    pub remote: Vec<Object>,
    /// The shares of the outside ports that are ours, and until when.
    pub slots: Option<(u8, Timestamp)>,
}

impl RememberedMembers {
    /// What is to be remembered.
    #[must_use]
    pub fn of(members: &Members, now: Instant, wall: Timestamp) -> Self {
        let objects = |members: &[Member]| {
            members.iter().map(|member| without_bookkeeping(&member.endpoint.to_object())).collect()
        };
        // To the hour, or every confirmation would be written down.
        let until = |slots: NatSlots| {
            let left = slots.until.saturating_duration_since(now);
            let until = wall.as_second().saturating_add(i64::try_from(left.as_secs()).unwrap_or(0));
            Timestamp::from_second(until - until.rem_euclid(3600)).ok()
        };
        Self {
            is_multi: members.is_multi,
            siblings: objects(&members.siblings),
            remote: objects(&members.remote),
            slots: members.slots.and_then(|slots| Some((slots.held, until(slots)?))),
        }
    }

    /// What was known then. What has expired meanwhile is forgotten.
    #[must_use]
    pub fn members(&self, now: Instant, wall: Timestamp) -> Members {
        let read = |objects: &[Object]| objects.iter().filter_map(Member::read).collect();
        let slots = self.slots.and_then(|(held, until)| {
            let left = u64::try_from(until.as_second() - wall.as_second()).ok()?;
            Some(NatSlots { held, until: now + Duration::from_secs(left) })
        });
        Members { is_multi: self.is_multi, siblings: read(&self.siblings), remote: read(&self.remote), slots }
    }
}

impl Control<'_> {
    /// The other gateways. Where one leads this cluster that knows one gateway per cluster, it is as if there were none:
    /// it and its peers go by one Endpoint.
    pub(super) fn members(&self) -> Members {
        let mut members = self.peers.handle.members.borrow().clone();
        if members.is_multi && self.has_older_leader() {
            members.is_multi = false;
        }
        if !members.is_multi {
            members.siblings.clear();
            members.slots = None;
        }
        members
    }

    /// Whether there are others in this cluster, as [`Self::members`] counts them.
    fn has_siblings(&self) -> bool {
        self.shares_with_siblings().is_some()
    }

    /// Returns whether this gateway shares the outside ports with others and has no share yet.
    pub(super) fn lacks_ports(&self) -> bool {
        self.shares_with_siblings().is_some_and(|slots| slots.is_none())
    }

    /// Returns this gateway's shares of the outside ports, where there are others in this cluster.
    fn shares_with_siblings(&self) -> Option<Option<NatSlots>> {
        let members = self.peers.handle.members.borrow();
        let has_siblings = members.is_multi && !members.siblings.is_empty() && !self.has_older_leader();
        has_siblings.then_some(members.slots)
    }

    /// Whether another gateway of this cluster leads that does not know of several at once.
    fn has_older_leader(&self) -> bool {
        let is_older = |object: &&Object| {
            Endpoint::from_object(object).is_ok_and(|endpoint| !endpoint.spec.knows_paths())
        };
        self.state.mirror.is_complete() && self.others_soles().any(|object| is_older(&object))
    }

    /// Reports a leader of this cluster that does not know of several gateways at once.
    pub(super) fn report_older_leader(&self) {
        let is_told = self.peers.handle.members.borrow().is_multi;
        let message = (is_told && self.has_older_leader()).then(|| {
            "a gateway of this cluster leads that knows one gateway per cluster (upstream's, or an older version of \
             Trieste): the others stand by until it is gone or upgraded"
                .to_owned()
        });
        self.conditions.put("OlderLeader", Severity::Info, "", message);
    }

    /// Tells which siblings' cables live, for those who judge who has vanished.
    pub(super) fn tell_heard(&self, engine: &Engine) {
        let is_alive = |name: &str| {
            engine.lane(name).is_some_and(|lane| {
                let state = engine.paths().state(lane.cable);
                matches!(state, PathState::Up | PathState::Draining | PathState::Held)
            })
        };
        let names = engine.siblings().iter().map(|peer| peer.facts.cable_name.clone());
        let heard: BTreeSet<String> = names.filter(|name| is_alive(name)).collect();
        self.peers.heard.send_if_modified(|known| {
            let is_news = *known != heard;
            *known = heard;
            is_news
        });
    }

    /// Follows what somebody has written onto our Gateway object.
    pub(super) fn take_drain(&mut self, own: &Object, engine: &Engine) {
        let asked = own.metadata.is_asked_to_drain();
        if asked != self.state.drain.is_asked {
            self.state.drain.is_asked = asked;
            self.settle_drain(engine);
        }
    }

    /// Hands all flows over before a stop. Gives whether there is anybody to take them.
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

    /// Begins in the background: a path is up before the node's filter and routes are, and what came by it would be lost.
    pub(super) fn begin(&mut self, engine: &Engine, now: Instant) {
        self.state.drain.started = Some(now);
        self.state.drain.ready_by = Some(now + READY_BY);
        self.settle_flows(engine);
    }

    /// Whether a sibling may be stopped as far as this gateway is concerned: it takes flows and has had a way to every remote
    /// cluster for a while. Once it is ready it stays so; who has no siblings is ready at once.
    pub(super) fn is_settled(&mut self, engine: &Engine, now: Instant) -> bool {
        let Some(ready_by) = self.state.drain.ready_by else { return true };
        let mut ways: BTreeMap<&str, bool> = BTreeMap::new();
        for peer in engine.own_peers() {
            let has_way = engine.lane(&peer.facts.cable_name).is_some_and(|lane| {
                let state = engine.paths().state(lane.cable);
                state.is_usable() || state == PathState::Draining
            });
            *ways.entry(&peer.facts.cluster_id).or_default() |= has_way;
        }
        let is_alone = !self.has_siblings();
        let drain = &mut self.state.drain;
        let is_new = drain.declines == Some(true) && !drain.is_wanted();
        let carries = !is_new && ways.values().all(|has_way| *has_way);
        drain.carries_since = carries.then(|| drain.carries_since.unwrap_or(now));
        let is_settled = drain.carries_since.is_some_and(|since| is_alone || now >= since + SETTLES);
        let knows_none = is_alone && (drain.knows_others || drain.started.is_none());
        if is_settled || now >= ready_by || knows_none || !self.config.all_gateways_active {
            drain.ready_by = None;
        }
        drain.ready_by.is_none()
    }

    /// The others are known, or known anew.
    pub(super) fn take_others(&mut self, engine: &Engine) {
        self.state.drain.knows_others = true;
        self.settle_flows(engine);
    }

    /// Comes forward once the node's route agent has greeted this gateway, or does not for long.
    pub(super) fn come_forward(&mut self, engine: &Engine, now: Instant) {
        let is_ready = |started: Instant| self.notices.is_greeted() || now >= started + PATIENCE;
        if self.state.drain.started.is_some_and(is_ready) {
            self.state.drain.started = None;
            engine.paths().shut(false);
            self.settle_flows(engine);
        }
    }

    /// Says whether others are to be preferred to this gateway. Where there are no others it is not asked for.
    fn settle_flows(&mut self, engine: &Engine) {
        let has_others = self.has_siblings();
        let drain = &mut self.state.drain;
        let is_new = drain.started.is_some() && (has_others || !drain.knows_others);
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

    /// How far this gateway has handed its flows over; `None` where it need not.
    pub(super) fn look_at_drain(&mut self, engine: &Engine, now: Instant) -> Option<DrainStatus> {
        let drain = &mut self.state.drain;
        let since = drain.since?;
        let packets = engine.carried();
        if drain.packets != packets || drain.quiet_since.is_none() {
            drain.packets = packets;
            drain.quiet_since = Some(now);
        }
        let is_done = drain.quiet_since.is_some_and(|quiet| now.duration_since(quiet) >= QUIET);
        Some(DrainStatus { since, is_done })
    }

    /// What our own Endpoint says in the Gateway object of a drain: for `trieste show gateways`.
    pub(super) fn mark_drain(endpoint: &mut trieste_control::api::EndpointSpec, drain: Option<&DrainStatus>) {
        if let Some(drain) = drain {
            let state = if drain.is_done { backend_config::DRAINED } else { backend_config::DRAINING };
            endpoint.backend_config.insert(backend_config::STATE.to_owned(), state.to_owned());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use trieste_control::api::EndpointSpec;
    use trieste_control::leader::Write;
    use trieste_control::members::plan_own;

    #[test]
    fn what_is_remembered_of_the_others_is_read_back_and_shares_expire() {
        let spec = EndpointSpec {
            cluster_id: "b".to_owned(),
            cable_name: "submariner-cable-b-192-0-2-1".to_owned(),
            hostname: "gw1".to_owned(),
            ..EndpointSpec::default()
        };
        let writes = plan_own("ns", &spec, true, &[]).unwrap();
        let [Write::Create(object)] = &writes[..] else { panic!("{writes:?}") };
        let (now, wall) = (Instant::now(), Timestamp::from_second(1_800_000_000).unwrap());
        let hours = |hours: u64| Duration::from_secs(hours * 3600);
        let members = Members {
            is_multi: true,
            siblings: Vec::new(),
            remote: vec![Member::read(object).unwrap()],
            slots: Some(NatSlots { held: 0b1010, until: now + hours(12) }),
        };
        let remembered = RememberedMembers::of(&members, now, wall);
        let text = serde_json::to_string(&remembered).unwrap();
        let read: RememberedMembers = serde_json::from_str(&text).unwrap();
        let soon = read.members(now, wall);
        assert_eq!((soon.is_multi, soon.remote.len()), (true, 1));
        assert_eq!(soon.slots.map(|slots| slots.held), Some(0b1010));
        assert!(soon.slots.unwrap().until <= now + hours(12));
        let late = read.members(now, wall + jiff::SignedDuration::from_hours(13));
        assert_eq!(late.slots, None);
    }
}
