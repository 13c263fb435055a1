//! IKE_SA_INIT as responder (RFC 7296 section 1.2).

use std::time::Instant;

use trieste_packet::Outer;

use super::engine::IkeEngine;
use super::half_open::HalfOpen;
use super::init::{VENDOR_ID, ke};
use super::natdetection::{self, Spis};
use super::payloads::Payloads;
use super::{EngineLoad, negotiate};
use crate::ipsec::crypto::{Group, KeyAgreement, Reassembly};
use crate::ipsec::wire::{Exchange, Header, NotifyKind, Payload, emit, parse};

/// Most bytes of an IKE_SA_INIT request that are kept. Ours; libreswan 4 sends 868.
const MAX_REQUEST_BYTES: usize = 3072;
/// Half-open IKE SAs from which on there is much to do. Ours: a second's worth of what is taken without a cookie.
const CROWD: usize = 50;

impl IkeEngine {
    /// Takes an IKE_SA_INIT request.
    pub(super) fn on_init_request(&mut self, header: &Header, message: &[u8], from: Outer, now: Instant) {
        EngineLoad::count(&self.load.init_requests);
        if let Some(half) = self.half_open.of_request(header.spi_i, message) {
            EngineLoad::count(&self.load.repeated_responses);
            let response = half.response.clone();
            return self.transmit(&[response], from);
        }
        // Without cables there is nobody to talk to.
        if self.peers.is_empty() || message.len() > MAX_REQUEST_BYTES || header.spi_i == 0 {
            return EngineLoad::count(&self.load.malformed);
        }
        let payloads = match parse(message) {
            Ok(parsed) => parsed.payloads,
            Err(error) => {
                EngineLoad::count(&self.load.malformed);
                let (kind, data) = error.answer();
                return self.refuse_init(header, kind, data, from);
            }
        };
        let payloads = Payloads(&payloads);
        if !self.make_room(payloads, from) {
            return EngineLoad::count(&self.load.half_open_refused);
        }
        match self.answer_init(header, payloads, message, from, now) {
            Ok(half) => {
                let response = half.response.clone();
                self.half_open.insert(half);
                self.transmit(&[response], from);
            }
            Err((kind, data)) => self.refuse_init(header, kind, data, from),
        }
    }

    /// Whether one more may be half-open. One that carries a cookie may push out the oldest: where there are so many, the
    /// gate lets only right cookies pass.
    fn make_room(&mut self, payloads: Payloads<'_>, from: Outer) -> bool {
        if self.half_open.has_room(from.peer.ip(), &self.config) {
            return true;
        }
        let has_cookie = payloads.notify(NotifyKind::Cookie).is_some();
        let is_full = self.half_open.len() >= self.config.half_open.0;
        let is_evicted = has_cookie && is_full && self.half_open.evict();
        if is_evicted {
            EngineLoad::count(&self.load.half_open_evicted);
        }
        is_evicted && self.half_open.has_room(from.peer.ip(), &self.config)
    }

    fn answer_init(
        &mut self,
        header: &Header,
        payloads: Payloads<'_>,
        message: &[u8],
        from: Outer,
        now: Instant,
    ) -> Result<HalfOpen, (NotifyKind, Vec<u8>)> {
        let syntax = || (NotifyKind::InvalidSyntax, Vec::new());
        let (Some(proposals), Some(theirs), Some(ni)) =
            (payloads.proposals(), payloads.ke(), payloads.nonce())
        else {
            return Err(syntax());
        };
        let groups = self.groups_for(payloads, from);
        let (proposal, suite) = negotiate::choose_ike(&self.config, &groups, proposals, theirs.group)
            .map_err(|refusal| {
                if theirs.group == Group::Modp2048.number() && groups.len() < self.config.groups.len() {
                    EngineLoad::count(&self.load.modp_refused);
                }
                refusal.answer()
            })?;
        if theirs.data.len() != suite.group.public_bytes() {
            return Err(syntax());
        }
        let (spi, nr) = (self.new_spi(), self.nonce());
        let agreement = KeyAgreement::generate(suite.group, &mut *self.rng);
        let spis = Spis { initiator: header.spi_i, responder: 0 };
        let (local, is_feigned) = self.our_side(from);
        let nat = natdetection::detect(payloads.0, spis, local, from.peer);
        let has_fragments = payloads.notify(NotifyKind::FragmentationSupported).is_some();
        let mut answer = vec![
            Payload::Sa(vec![suite.proposal(proposal.number, None)]),
            ke(&agreement),
            Payload::Nonce(nr.clone()),
        ];
        let spis = Spis { responder: spi, ..spis };
        answer.extend(natdetection::notifies(spis, local, from.peer, is_feigned));
        if has_fragments {
            answer.push(Payload::notify(NotifyKind::FragmentationSupported, Vec::new()));
        }
        let is_kin = payloads.has_vendor(VENDOR_ID);
        if is_kin {
            answer.push(Payload::VendorId(VENDOR_ID.to_vec()));
        }
        let response = emit(&init_response(header.spi_i, spi), &answer);
        Ok(HalfOpen {
            spi,
            peer_spi: header.spi_i,
            from,
            request: message.to_vec(),
            response,
            suite,
            agreement,
            peer_public: theirs.data.clone(),
            nonces: (ni.clone(), nr),
            nat,
            has_fragments,
            is_kin,
            made: now,
            keys: None,
            reassembly: Reassembly::default(),
            answered: Vec::new(),
        })
    }

    /// Returns the groups that are taken of `from`. While there is much to do a stranger is taken at no MODP group, which
    /// costs many times as much as a curve: INVALID_KE_PAYLOAD names it a curve (RFC 7296 section 1.2). A cookie shows
    /// that there is much to do, since only then one is asked for.
    fn groups_for(&self, payloads: Payloads<'_>, from: Outer) -> Vec<Group> {
        let is_busy = payloads.notify(NotifyKind::Cookie).is_some() || self.half_open.len() >= CROWD;
        let is_cheap = |group: &Group| *group != Group::Modp2048;
        let groups = self.config.groups.iter().copied();
        let is_peer = || self.peer_addresses().any(|other| other == from.peer.ip().to_canonical());
        if is_busy && !is_peer() { groups.filter(is_cheap).collect() } else { groups.collect() }
    }

    /// Our address as `from` should see it, and whether it is to believe in a NAT: who it is cannot be known yet, but by
    /// its address.
    fn our_side(&self, from: Outer) -> (std::net::SocketAddr, bool) {
        let is_at = |peer: &&super::peer::Peer| {
            peer.config.address.is_some_and(|address| address.ip() == from.peer.ip())
        };
        let peer = self.peers.values().find(is_at).or_else(|| self.peers.values().next());
        let unspecified =
            || std::net::SocketAddr::new(std::net::Ipv4Addr::UNSPECIFIED.into(), self.config.port);
        let local = peer.map_or_else(unspecified, |peer| peer.local_address(&from, self.config.port));
        (local, self.peers.values().filter(is_at).any(super::peer::Peer::is_nat_feigned))
    }

    /// An error in clear: shorter than what it answers.
    fn refuse_init(&mut self, header: &Header, kind: NotifyKind, data: Vec<u8>, from: Outer) {
        let response = emit(&init_response(header.spi_i, 0), &[Payload::notify(kind, data)]);
        self.transmit(&[response], from);
    }
}

fn init_response(spi_i: u64, spi_r: u64) -> Header {
    Header {
        spi_i,
        spi_r,
        exchange: Exchange::IkeSaInit,
        is_initiator: false,
        is_response: true,
        message_id: 0,
    }
}
