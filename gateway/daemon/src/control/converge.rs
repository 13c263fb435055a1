//! Cables, discovery and probes that fit what is known of the gateways.

use std::time::{Duration, Instant};

use trieste_control::admin::Severity;
use trieste_control::api::{Endpoint, Object};
use trieste_control::members::targets;
use trieste_control::natdiscovery::Remote;
use trieste_control::notice::GatewayKey;

use super::{Control, translate};
use crate::engine::{Engine, Gateways};
use crate::tables::{Choice, Choices};

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
        if self.state.mirror.is_complete() {
            let endpoints = self.read_mirror();
            self.connect(engine, &endpoints, now).await;
        }
        self.watch_health(engine);
        self.hand_over(engine).await;
        self.refresh(engine).await;
    }

    /// Makes cables fit the Endpoints. Discovery asks only those that the engine admits: what is refused must not stand
    /// in the way of anybody else's answers.
    pub(super) async fn connect(&self, engine: &mut Engine, endpoints: &[Endpoint], now: Instant) {
        let before = self.choices();
        let members = self.members();
        let targets = targets(&self.config.cluster_id, endpoints, &members);
        translate::share_ports(engine, &members);
        let own = endpoints.iter().find(|endpoint| endpoint.spec.cluster_id == self.config.cluster_id);
        let gateways = Gateways {
            targets: &targets,
            siblings: &members.siblings,
            leader: own.map(|own| own.spec.cable_name.as_str()),
        };
        engine.reconcile(&gateways, &before, now).await;
        let remotes: Vec<Remote> =
            engine.peers().iter().map(|peer| Remote::new(&peer.facts, &peer.spec)).collect();
        self.discovery.set_remotes(&remotes);
        let known_at_once = self.choices();
        if known_at_once != before {
            engine.reconcile(&gateways, &known_at_once, now).await;
        }
    }

    /// Sets the cables that notices to route agents report about.
    pub(super) fn set_notice_subjects(&self, engine: &Engine) {
        let (near, remote) = engine.far_ends();
        let siblings = near.into_iter().map(|(name, cable)| (GatewayKey::of_cable(name), cable)).collect();
        self.notices.set_paths(siblings, remote);
    }

    /// Applies changes of the other gateways.
    pub(super) async fn take_members(&mut self, engine: &mut Engine) {
        self.publish_endpoint();
        self.take_others(engine);
        let now = Instant::now();
        // Before the own store has answered, what is remembered of it stands.
        if self.state.mirror.is_complete() {
            self.converge(engine).await;
        } else {
            let endpoints = self.state.begun_with.clone();
            self.connect(engine, &endpoints, now).await;
            self.watch_health(engine);
        }
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
        self.state.mirror.objects().filter(|object| {
            let spec = object.body.get("spec");
            let text = |key: &str| spec.and_then(|spec| spec.get(key)).and_then(|value| value.as_str());
            object.metadata.origin().is_none()
                && text("cluster_id") == Some(self.config.cluster_id.as_str())
                && text("hostname").is_some_and(|name| name != self.node.hostname)
        })
    }

    fn read_mirror(&mut self) -> Vec<Endpoint> {
        let (endpoints, unreadable) = self.state.mirror.read();
        self.conditions.replace("UnreadableObject", Severity::Warning, &unreadable);
        endpoints
    }

    fn choices(&self) -> Choices {
        let selections = self.discovery.selections();
        let chosen = selections.borrow();
        chosen
            .iter()
            .map(|(cable, selection)| {
                (cable.clone(), Choice { ip: selection.ip, use_nat: selection.use_nat })
            })
            .collect()
    }

    /// Pings the peers of the cables that there are.
    pub(super) fn watch_health(&self, engine: &Engine) {
        let Some(probes) = &self.probes else { return };
        let peers = engine.own_peers().filter(|_| !self.lacks_address());
        probes.follow(peers.map(|peer| peer.spec.clone()).collect());
    }
}
