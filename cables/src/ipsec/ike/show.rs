//! What the engine tells of itself: reports and secrets.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::atomic::Ordering;
use std::time::Instant;

use trieste_packet::LaneId;

use super::child::{Child, ChildState};
use super::engine::IkeEngine;
use super::init::Attempt;
use super::negotiate;
use super::peer::{Peer, Planned};
use super::sa::{IkeSa, Operation, Pending, State};
use super::{ChildReport, IkeReport, PeerReport, SaSecrets};
use crate::ipsec::crypto::IkeAead;

impl IkeEngine {
    /// What is known of every peer, in the order of their lanes.
    #[must_use]
    pub fn report(&self, now: Instant) -> Vec<PeerReport> {
        let mut by_lane: BTreeMap<LaneId, OfPeer<'_>> = BTreeMap::new();
        for sa in self.sas.values() {
            if let Some(lane) = sa.lane {
                by_lane.entry(lane).or_default().sas.push(sa);
            }
        }
        for attempt in self.attempts.values() {
            by_lane.entry(attempt.lane).or_default().attempts.push(attempt);
        }
        let report = |peer: &Peer| {
            let of_peer = by_lane.get(&peer.lane());
            of_peer.map_or_else(|| OfPeer::default().report(peer, now), |of_peer| of_peer.report(peer, now))
        };
        self.peers.values().map(report).collect()
    }
    /// The keys of all SAs, for captures.
    #[must_use]
    pub fn secrets(&self) -> Vec<SaSecrets> {
        self.sas.values().filter(|sa| sa.lane.is_some()).flat_map(|sa| self.secrets_of(sa)).collect()
    }

    fn secrets_of(&self, sa: &IkeSa) -> Vec<SaSecrets> {
        let (initiator_spi, responder_spi) = sa.spis();
        let mut secrets = vec![SaSecrets::Ike {
            initiator_spi,
            responder_spi,
            cipher: word(sa.keys.suite.aead),
            sk_ei: sa.keys.sk_ei.clone(),
            sk_er: sa.keys.sk_er.clone(),
        }];
        let is_raw = sa
            .lane
            .and_then(|lane| self.peers.get(&lane)?.path)
            .is_some_and(|path| path.outer.peer.port() == 0);
        let port = |port: u16| if is_raw { 0 } else { port };
        let unspecified = IpAddr::V4(Ipv4Addr::UNSPECIFIED);
        let here = SocketAddr::new(sa.outer.local.unwrap_or(unspecified), port(self.config.port));
        let there = SocketAddr::new(sa.outer.peer.ip(), port(sa.outer.peer.port()));
        for child in sa.children.values() {
            let (suite, has_esn) = (child.offer.suite, child.offer.esn == Some(true));
            let one = |source, destination, spi, keys| SaSecrets::Esp {
                source,
                destination,
                spi,
                suite,
                has_esn,
                keys,
            };
            secrets.push(one(there, here, child.inbound, child.inbound_keys.clone()));
            secrets.push(one(here, there, child.outbound, child.outbound_keys.clone()));
        }
        secrets
    }
}

/// The SAs of one peer, and the attempts to make them.
#[derive(Default)]
struct OfPeer<'a> {
    sas: Vec<&'a IkeSa>,
    attempts: Vec<&'a Attempt>,
}

impl OfPeer<'_> {
    fn report(&self, peer: &Peer, now: Instant) -> PeerReport {
        let sas = || self.sas.iter().copied();
        let mut ikes: Vec<IkeReport> = sas().filter_map(|sa| report_ike(peer, sa, now)).collect();
        ikes.extend(self.attempts.iter().filter_map(|attempt| {
            let planned = peer.planned.get(attempt.plan)?;
            Some(IkeReport {
                initiator_spi: attempt.spi,
                responder_spi: 0,
                is_initiator: true,
                state: "connecting",
                algorithms: String::new(),
                local_id: planned.plan.local_id.to_string(),
                remote_id: planned.plan.remote_id.to_string(),
                address: attempt.outer.peer,
                is_local_nat: false,
                is_remote_nat: false,
                age: now.saturating_duration_since(attempt.begun),
                rekey_in: None,
                pending: None,
            })
        }));
        let mut children: Vec<ChildReport> =
            sas().flat_map(|sa| sa.children.values().map(|child| report_child(sa, child, now))).collect();
        children.extend(peer.planned.iter().flat_map(missing));
        PeerReport {
            lane: peer.lane(),
            name: peer.config.name.clone(),
            mode: peer.mode.as_str(),
            is_trieste: peer.is_trieste,
            is_up: peer.is_up,
            address: sas().find(|sa| sa.is_established()).map(|sa| sa.outer.peer).or(peer.config.address),
            encapsulation: peer.path.map(|path| if path.outer.peer.port() == 0 { "esp" } else { "udp" }),
            handshake_age: peer.last_handshake.map(|at| now.saturating_duration_since(at)),
            handshakes: peer.handshakes,
            ikes,
            children,
            error: peer.error.clone(),
        }
    }
}

fn word(aead: IkeAead) -> &'static str {
    match aead {
        IkeAead::Aes128Gcm16 => "aes128gcm16",
        IkeAead::Aes256Gcm16 => "aes256gcm16",
        IkeAead::ChaCha20Poly1305 => "chacha20poly1305",
    }
}

fn report_ike(peer: &Peer, sa: &IkeSa, now: Instant) -> Option<IkeReport> {
    let planned = peer.planned.get(sa.plan)?;
    let state = match sa.state {
        State::Authenticating => "authenticating",
        State::Established | State::Waiting => "established",
        State::Replaced(_) => "rekeyed",
        State::Doomed => "deleting",
        State::Closed(_) => return None,
    };
    let (initiator_spi, responder_spi) = sa.spis();
    Some(IkeReport {
        initiator_spi,
        responder_spi,
        is_initiator: sa.is_initiator,
        state,
        algorithms: sa.keys.suite.to_string(),
        local_id: planned.plan.local_id.to_string(),
        remote_id: planned.plan.remote_id.to_string(),
        address: sa.outer.peer,
        is_local_nat: sa.nat.is_local,
        is_remote_nat: sa.nat.is_remote,
        age: now.saturating_duration_since(sa.established),
        rekey_in: sa.is_established().then(|| sa.rekey_at.saturating_duration_since(now)),
        pending: sa.pending.as_ref().map(|pending| pending.operation.as_str()),
    })
}

fn report_child(sa: &IkeSa, child: &Child, now: Instant) -> ChildReport {
    let is_renewing = matches!(
        &sa.pending,
        Some(Pending { operation: Operation::Child(offer), .. }) if offer.old == Some(child.inbound)
    );
    let state = match child.state {
        ChildState::Installed if is_renewing => "rekeying",
        ChildState::Installed => "installed",
        ChildState::Replaced => "rekeyed",
        ChildState::Doomed => "deleting",
    };
    let count = |counter: &std::sync::atomic::AtomicU64| counter.load(Ordering::Relaxed);
    let meter = &child.meter;
    ChildReport {
        inbound: Some(child.inbound),
        outbound: Some(child.outbound),
        selectors: child.selectors.to_string(),
        state,
        algorithms: negotiate::words(&child.offer),
        is_sealing: meter.is_sealing.load(Ordering::Relaxed),
        rx_bytes: count(&meter.rx_bytes),
        rx_packets: count(&meter.rx_packets),
        tx_bytes: count(&meter.tx_bytes),
        tx_packets: count(&meter.tx_packets),
        bad_packets: count(&meter.bad),
        replayed_packets: count(&meter.replayed),
        age: Some(now.saturating_duration_since(meter.made())),
        rekey_in: (child.state == ChildState::Installed)
            .then(|| child.rekey_at.saturating_duration_since(now)),
        error: child.error.clone(),
    }
}

/// Pairs of subnets that lack a child SA.
fn missing(planned: &Planned) -> Vec<ChildReport> {
    let missing = planned.wanted.iter().filter(|wanted| wanted.live.is_empty());
    missing
        .map(|wanted| ChildReport {
            selectors: wanted.selectors.to_string(),
            state: if wanted.error.is_some() { "failed" } else { "connecting" },
            error: wanted.error.clone(),
            ..ChildReport::default()
        })
        .collect()
}
