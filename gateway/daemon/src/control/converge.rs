//! Cables, discovery and probes that fit what is known of the gateways.

use std::sync::Arc;
use std::time::{Duration, Instant};

use trieste_control::admin::Severity;
use trieste_control::api::{Endpoint, EndpointSpec, Object};
use trieste_control::members::targets;
use trieste_control::natdiscovery::Selection;
use trieste_control::notice::GatewayKey;

use super::{Control, translate};
use crate::engine::{Engine, Gateways};
use crate::tables::{Choice, Peer};

/// How long the cables of a gateway that no longer leads outlive the Endpoint of the one that does: what peers and
/// workers send by the old way is still delivered meanwhile.
const HANDOVER: Duration = Duration::from_secs(3);

impl Control<'_> {
    /// Makes everything fit what is known.
    pub(super) async fn converge(&mut self, engine: &mut Engine) {
        let now = Instant::now();
        self.state.is_dirty = true;
        if self.candidate.is_leader(now) {
            engine.set_active(true, now).await;
        }
        // Before the own store has answered, what is remembered of it stands.
        let endpoints = if self.state.mirror.is_complete() {
            self.state.begun_with = Vec::new();
            self.read_mirror()
        } else {
            self.state.begun_with.clone()
        };
        self.connect(engine, &endpoints, now).await;
        self.watch_health(engine);
        self.hand_over(engine).await;
        self.refresh(engine).await;
    }

    /// Makes cables fit the Endpoints. Discovery asks only those that the engine admits: what is refused must not stand
    /// in the way of anybody else's answers.
    pub(super) async fn connect(&mut self, engine: &mut Engine, endpoints: &[Arc<Endpoint>], now: Instant) {
        let members = self.members();
        let targets = targets(&self.config.cluster_id, endpoints, &members);
        translate::share_ports(engine, &members);
        let own = endpoints.iter().find(|endpoint| endpoint.spec.cluster_id == self.config.cluster_id);
        let gateways = Gateways {
            targets: &targets,
            siblings: &members.siblings,
            leader: own.map(|own| own.spec.cable_name.as_str()),
        };
        let selections = self.discovery.selections();
        let choice = |selection: &Selection| Choice { ip: selection.ip, use_nat: selection.use_nat };
        {
            let chosen = selections.borrow();
            engine.admit(&gateways, |name| chosen.get(name).map(choice));
        }
        self.state.remotes.follow(&self.discovery, engine.peers());
        // What is known at once needs no further pass.
        if selections.has_changed().unwrap_or(false) {
            let chosen = selections.borrow();
            engine.choose(|name| chosen.get(name).map(choice));
        }
        engine.converge(now).await;
    }

    /// Sets the cables that notices to route agents report about, if there are others.
    pub(super) fn set_notice_subjects(&mut self, engine: &Engine) {
        if self.state.noted.replace(engine.cable_set()) == Some(engine.cable_set()) {
            return;
        }
        let (near, remote) = engine.far_ends();
        let siblings = near.into_iter().map(|(name, cable)| (GatewayKey::of_cable(name), cable)).collect();
        self.notices.set_paths(siblings, remote);
        self.unreachable.set_clusters(engine.cables_by_cluster());
        self.names.store(Arc::new(engine.cable_names()));
    }

    /// Removes the cables once another gateway has taken over.
    pub(super) async fn hand_over(&mut self, engine: &mut Engine) {
        let now = Instant::now();
        let is_superseded = !self.candidate.is_leader(now) && engine.is_active() && self.has_successor();
        if !is_superseded {
            self.state.superseded = None;
            return;
        }
        let since = *self.state.superseded.get_or_insert(now);
        if now.duration_since(since) >= HANDOVER {
            self.state.superseded = None;
            self.recorder.record(
                Severity::Info,
                "HandedOver",
                "another gateway of this cluster has taken over",
            );
            engine.set_active(false, now).await;
            self.state.is_dirty = true;
            self.watch_health(engine);
        }
    }

    /// Returns `true` if another gateway's Endpoint stands for this cluster.
    pub(super) fn has_successor(&self) -> bool {
        self.state.mirror.is_complete() && self.others_sole_endpoints().next().is_some()
    }

    /// Returns sole Endpoints of this cluster that belong to other gateways, parsed or not.
    pub(super) fn others_sole_endpoints(&self) -> impl Iterator<Item = &Object> {
        self.state.mirror.others_sole(&self.node.hostname)
    }

    fn read_mirror(&mut self) -> Vec<Arc<Endpoint>> {
        let (endpoints, unreadable) = self.state.mirror.read();
        self.conditions.replace("UnreadableObject", Severity::Warning, &unreadable);
        endpoints
    }

    /// Pings the peers of the cables that there are.
    pub(super) fn watch_health(&mut self, engine: &Engine) {
        let Some(probes) = &self.probes else { return };
        let lacks_address = self.lacks_address();
        let peers = || engine.own_peers().filter(|_| !lacks_address);
        let known = &mut self.state.pinged;
        if known.iter().map(Arc::as_ptr).eq(peers().map(Arc::as_ptr)) {
            return;
        }
        *known = peers().cloned().collect();
        // All that pinging needs of them.
        let subject = |peer: &Arc<Peer>| EndpointSpec {
            cluster_id: peer.spec.cluster_id.clone(),
            cable_name: peer.spec.cable_name.clone(),
            health_check_ip: peer.spec.health_check_address().to_owned(),
            ..EndpointSpec::default()
        };
        probes.follow(known.iter().map(subject).collect());
    }
}
