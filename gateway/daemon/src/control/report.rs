//! Outputs of the control loop: the status document, and the remembered state.

use std::collections::BTreeMap;
use std::sync::PoisonError;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use trieste_control::admin::{BrokerLink, BrokerStatus, Severity};
use trieste_control::health::{PingResults, Probes};

use super::Control;
use crate::engine::{CableStates, Engine};
use crate::ike::IkeHandle;
use crate::memory::{Remembered, RememberedMembers, RememberedNetworks};
use crate::status::{Document, Live, Peers, Source};

/// How long a cable is in error before discovery of its peer's address starts again.
const REDISCOVER_AFTER: Duration = Duration::from_secs(30);

impl Control<'_> {
    /// Reports the files of a directory store that cannot be used.
    pub(crate) async fn report_files(&self) {
        // It waits for a reader of a directory.
        let store = self.store.clone();
        let problems = tokio::task::spawn_blocking(move || store.problems()).await.unwrap_or_default();
        let files = problems.iter().map(|problem| (problem.path.display().to_string(), problem.to_string()));
        self.conditions.replace("UnreadableFile", Severity::Warning, &files.collect::<Vec<_>>());
    }

    pub(crate) async fn refresh(&mut self, engine: &mut Engine) {
        let now = Instant::now();
        self.accept_flows(engine, now);
        let is_settled = self.is_settled(engine, now);
        self.shared.settle(is_settled);
        self.refresh_globalnet(now);
        self.publish_live_siblings(engine);
        self.report_older_leader();
        let drain = self.drain_status(engine, now);
        let mut endpoint = self.endpoint.borrow().clone();
        Self::mark_drain(&mut endpoint, drain.as_ref());
        engine.observe(now, Timestamp::now().as_second());
        self.set_notice_subjects(engine);
        let broker = self.broker.borrow().clone();
        let failure = self.shared.failure.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let mut election = self.candidate.status().borrow().clone();
        election.is_leader = self.candidate.is_leader(now);
        let live = Live {
            endpoint,
            is_multi: self.members().is_multi,
            is_announced: self.is_announced(now),
            drain,
            broker: if self.config.broker.is_some() { broker.state } else { BrokerStatus::default() },
            refused: broker.refused,
            store: self.state.link.clone(),
            election,
            conditions: self.conditions.list(),
            events: self.recorder.recent(),
            failure,
        };
        let pinged = self.probes.as_ref().map(Probes::views);
        let source = Source::of(&self.fixed, engine, live, now);
        self.rediscover(source.cables(), pinged.as_deref(), now);
        *self.shared.workers.lock().unwrap_or_else(PoisonError::into_inner) = source.counters().collect();
        let peers = Peers { discovery: self.discovery.reader(), pinged };
        let source = source.with_peers(self.names.load_full(), peers);
        self.shared.publish(Document::of(source), self.state.link.state == BrokerLink::Synced);
        *self.shared.discovery.lock().unwrap_or_else(PoisonError::into_inner) = self.discovery.counters();
        *self.shared.notices.lock().unwrap_or_else(PoisonError::into_inner) = self.notices.numbers();
        *self.shared.ike.lock().unwrap_or_else(PoisonError::into_inner) =
            engine.ike().map(IkeHandle::numbers);
        self.publish_established(engine);
        self.remember(engine);
    }

    /// Returns `true` if this gateway leads, and the own store has confirmed it in this term.
    fn is_announced(&self, now: Instant) -> bool {
        let term = self.candidate.term(now);
        term.is_some() && *self.announced.borrow() == term
    }

    /// Publishes when cables came up, if one did since the last time.
    fn publish_established(&mut self, engine: &Engine) {
        if self.state.established.replace(engine.established_set()) == Some(engine.established_set()) {
            return;
        }
        let seconds = |at: i64| Duration::from_secs(u64::try_from(at).unwrap_or_default());
        let established = engine.established().into_iter().map(|(name, at)| (name, seconds(at))).collect();
        *self.shared.established.lock().unwrap_or_else(PoisonError::into_inner) = established;
    }

    /// Starts discovery again for peers that have been in error for a while, which may have another reachable address.
    fn rediscover(&mut self, cables: &CableStates, pinged: Option<&PingResults>, now: Instant) {
        let verdict = |cable: &str| pinged.and_then(|views| views.get(cable)).map(|view| view.status);
        let known = &mut self.state.in_error;
        if !cables.failing(verdict).eq(known.iter().map(|(cable, _)| cable.as_str())) {
            let before: BTreeMap<&str, Instant> =
                known.iter().map(|(cable, since)| (cable.as_str(), *since)).collect();
            let since = |cable: &str| before.get(cable).copied().unwrap_or(now);
            *known = cables.failing(verdict).map(|cable| (cable.to_owned(), since(cable))).collect();
        }
        for (cable, since) in known {
            if now.duration_since(*since) >= REDISCOVER_AFTER {
                *since = now;
                self.discovery.rediscover(cable);
            }
        }
    }

    /// Saves the state for a restart, if it has changed.
    pub(super) fn remember(&mut self, engine: &Engine) {
        let Some(memory) = &self.memory else { return };
        if !self.state.mirror.is_complete() || !std::mem::take(&mut self.state.is_dirty) {
            return;
        }
        let public = self.public_ip.public_ip.borrow().remembered();
        memory.set(Remembered {
            was_active: engine.is_active(),
            endpoints: self.state.mirror.remembered(),
            node: self.config.node_name.is_some().then(|| self.state.found.settings.clone()),
            networks: Some(RememberedNetworks {
                settings: self.state.announcement.object.is_none().then(|| self.config.networks.clone()),
                in_force: self.state.found.networks.clone(),
            }),
            was_gateway: self.state.was_gateway,
            public_ip: public.as_ref().map(|public| public.address),
            public_ip_resolver: public.map(|public| public.resolver),
            members: RememberedMembers::of(
                &self.peers.handle.members.borrow(),
                &mut self.state.member_objects,
                Instant::now(),
                Timestamp::now(),
            ),
            globalnet: self.state.globalnet.remembered(),
        });
    }
}
