//! From a datagram to the IKE SA it is for, and the windows of message numbers (RFC 7296 sections 2.1 to 2.3).

use std::time::Instant;

use trieste_packet::Outer;

use super::engine::IkeEngine;
use super::payloads::{Payloads, words};
use super::sa::{IkeSa, Operation, Pending, State};
use super::{EngineLoad, IkeEvent};
use crate::ipsec::crypto::{OpenError, Opened, Whole, protect};
use crate::ipsec::wire::{
    Exchange, Header, Notify, NotifyKind, Payload, Protocol, WireError, emit, parse, parse_payloads,
};

/// Bytes from the beginning of a message to its version, flags and number.
const SPIS_BYTES: usize = 16;

impl IkeEngine {
    /// Takes a message, without marker.
    pub(super) fn receive(&mut self, message: &[u8], from: Outer, now: Instant) {
        let header = match Header::parse(message) {
            Ok((header, ..)) => header,
            Err(error) => {
                EngineLoad::count(&self.load.malformed);
                if let WireError::Version(version) = error {
                    self.refuse_version(version, message, from);
                }
                return;
            }
        };
        match (header.exchange, header.is_response, header.is_initiator) {
            (Exchange::IkeSaInit, false, true) if header.spi_r == 0 && header.message_id == 0 => {
                self.on_init_request(&header, message, from, now);
            }
            (Exchange::IkeSaInit, true, false) => self.on_init_response(&header, message, from, now),
            _ => self.receive_protected(&header, message, from, now),
        }
    }

    fn receive_protected(&mut self, header: &Header, message: &[u8], from: Outer, now: Instant) {
        let (own, theirs) =
            if header.is_initiator { (header.spi_r, header.spi_i) } else { (header.spi_i, header.spi_r) };
        if let Some(mut sa) = self.sas.remove(&own) {
            self.prefer(&mut sa, theirs, message);
            if sa.peer_spi == theirs && sa.is_initiator != header.is_initiator {
                self.open(&mut sa, message, from, now);
                self.work(&mut sa, now);
            } else {
                EngineLoad::count(&self.load.unknown_spi);
            }
            if !is_gone(&sa, now) {
                self.sas.insert(own, sa);
            }
            return;
        }
        let is_auth = header.exchange == Exchange::IkeAuth && !header.is_response && header.is_initiator;
        match self.half_open.get(own) {
            Some(half) if is_auth && half.peer_spi == theirs => {
                self.on_auth_request(own, message, from, now);
            }
            _ => EngineLoad::count(&self.load.unknown_spi),
        }
    }

    /// Opens a message for an IKE SA, and hands it on if it is new and whole.
    fn open(&mut self, sa: &mut IkeSa, message: &[u8], from: Outer, now: Instant) {
        let opened = match protect::open(message, &sa.open_key) {
            Ok(opened) => opened,
            Err(OpenError::Wire(WireError::Protection)) if sa.state == State::Authenticating => {
                return self.note_refusal(sa, message);
            }
            Err(_) => return EngineLoad::count(&self.load.bad_integrity),
        };
        let header = opened.header;
        if header.is_response {
            let is_expected = sa.pending.as_ref().is_some_and(|pending| {
                pending.id == header.message_id && pending.exchange == header.exchange
            });
            if !is_expected {
                return EngineLoad::count(&self.load.out_of_window);
            }
            sa.last_rx = now;
            if let Some(whole) = sa.reassembly.add(opened) {
                self.on_response(sa, &whole, from, now);
            }
            return;
        }
        if header.message_id == sa.expected && sa.is_authentic() {
            sa.last_rx = now;
            if let Some(pending) = &mut sa.pending {
                pending.timer.hurry(now);
            }
            if let Some(whole) = sa.reassembly.add(opened) {
                self.on_request(sa, header.exchange, &whole, from, now);
            }
        } else {
            self.on_old_request(sa, &opened, from);
        }
    }

    /// An answer to IKE_AUTH in clear: whoever it is from, it may say what is wrong, and ends nothing.
    fn note_refusal(&mut self, sa: &IkeSa, message: &[u8]) {
        EngineLoad::count(&self.load.unauthenticated_errors);
        let payloads = parse(message).map(|parsed| parsed.payloads).unwrap_or_default();
        let Some(reason) = Payloads(&payloads).error().map(|notify| words(notify.kind)) else { return };
        let Some(peer) = sa.lane.and_then(|lane| self.peers.get_mut(&lane)) else { return };
        if peer.error.as_ref() != Some(&reason) {
            peer.error = Some(reason.clone());
            let lane = peer.lane();
            self.tell(IkeEvent::Failed { lane, reason });
        }
    }

    //= https://www.rfc-editor.org/rfc/rfc7296#section-2.1
    //# The
    //# responder MUST remember each response until it receives a
    //# request whose sequence number is larger than or equal to the sequence
    //# number in the response plus its window size
    fn on_old_request(&mut self, sa: &IkeSa, opened: &Opened, from: Outer) {
        let is_last = opened.header.message_id.wrapping_add(1) == sa.expected;
        if !is_last || sa.answered.is_empty() {
            return EngineLoad::count(&self.load.out_of_window);
        }
        // Of a request in pieces the first one alone is answered (RFC 7383 section 2.6.1).
        if opened.fragment.is_none_or(|fragment| fragment.number == 1) {
            EngineLoad::count(&self.load.repeated_responses);
            self.transmit(&sa.answered, from);
        }
    }

    fn on_response(&mut self, sa: &mut IkeSa, whole: &Whole, from: Outer, now: Instant) {
        let Some(Pending { operation, .. }) = sa.pending.take() else { return };
        let payloads = match parse_payloads(whole.first, &whole.body) {
            Ok(payloads) => payloads,
            Err(error) => {
                self.count_invalid();
                let (kind, data) = error.answer();
                // As if it had refused: nothing that it says can be relied upon.
                vec![Payload::notify(kind, data)]
            }
        };
        self.follow(sa, from);
        let payloads = Payloads(&payloads);
        match operation {
            Operation::Auth(offer) => self.on_auth_response(sa, *offer, payloads, now),
            Operation::Child(offer) => self.on_child_response(sa, *offer, payloads, now),
            Operation::RekeyIke(offer) => self.on_ike_response(sa, *offer, payloads, now),
            Operation::DeleteChildren(spis) => {
                for spi in spis {
                    self.remove_child(sa, spi, true, "deleted", now);
                }
            }
            Operation::DeleteIke => {
                self.drop_sa(sa, true, "deleted", now);
                sa.state = State::Closed(now);
            }
            Operation::Probe => {}
        }
    }

    fn on_request(&mut self, sa: &mut IkeSa, exchange: Exchange, whole: &Whole, from: Outer, now: Instant) {
        self.follow(sa, from);
        let answer = match parse_payloads(whole.first, &whole.body) {
            Ok(payloads) => self.answer(sa, exchange, Payloads(&payloads), now),
            Err(error) => {
                self.count_invalid();
                let (kind, data) = error.answer();
                self.end_if_fatal(sa, kind, now);
                vec![Payload::notify(kind, data)]
            }
        };
        sa.last_tx = now;
        let datagrams = sa.respond(exchange, &answer, &self.config).to_vec();
        self.transmit(&datagrams, from);
    }

    fn answer(
        &mut self,
        sa: &mut IkeSa,
        exchange: Exchange,
        payloads: Payloads<'_>,
        now: Instant,
    ) -> Vec<Payload> {
        match exchange {
            Exchange::Informational => self.on_informational_request(sa, payloads, now),
            Exchange::CreateChildSa => {
                let proposals = payloads.proposals();
                let first = proposals.and_then(|proposals| proposals.first());
                match first.map(|proposal| proposal.protocol) {
                    Some(Protocol::Ike) => self.on_ike_request(sa, payloads, now),
                    Some(_) => self.on_child_request(sa, payloads, now),
                    None => self.invalid(sa, now),
                }
            }
            Exchange::IkeSaInit | Exchange::IkeAuth | Exchange::Other(_) => self.invalid(sa, now),
        }
    }

    fn invalid(&mut self, sa: &mut IkeSa, now: Instant) -> Vec<Payload> {
        self.count_invalid();
        self.end_if_fatal(sa, NotifyKind::InvalidSyntax, now);
        vec![Payload::Notify(Notify::new(NotifyKind::InvalidSyntax, Vec::new()))]
    }

    //= https://www.rfc-editor.org/rfc/rfc7296#section-2.21.3
    //# this error notification is
    //# considered fatal in both peers, meaning that the IKE SA is deleted
    //# without needing an explicit Delete payload
    fn end_if_fatal(&mut self, sa: &mut IkeSa, kind: NotifyKind, now: Instant) {
        if kind == NotifyKind::InvalidSyntax {
            self.drop_sa(sa, true, "the peer sent a malformed request", now);
            sa.state = State::Closed(now + self.config.give_up / 2);
        }
    }

    /// A peer behind a NAT may move: an authentic, new message from elsewhere says where it is.
    //= https://www.rfc-editor.org/rfc/rfc7296#section-2.23
    //# When such a validated
    //# packet is found, a host that does not support other methods of
    //# recovery such as IKEv2 Mobility and Multihoming (MOBIKE) [MOBIKE],
    //# and that is not behind a NAT, SHOULD send all packets (including
    //# retransmission packets) to the IP address and port in the validated
    //# packet
    fn follow(&mut self, sa: &mut IkeSa, from: Outer) {
        if from.local.is_some() {
            sa.outer.local = from.local;
        }
        if sa.nat.is_remote && !sa.nat.is_local && from.peer != sa.outer.peer {
            sa.outer.peer = from.peer;
            self.update_path(sa);
        }
    }

    //= https://www.rfc-editor.org/rfc/rfc7296#section-2.5
    //# it MUST drop the message and SHOULD send an
    //# unauthenticated Notify message of type INVALID_MAJOR_VERSION
    //# containing the highest (closest) version number it supports.
    fn refuse_version(&mut self, version: u8, message: &[u8], from: Outer) {
        let spi = |at: usize| {
            message.get(at..at + 8).and_then(|spi| Some(u64::from_be_bytes(spi.try_into().ok()?)))
        };
        let flags = message.get(SPIS_BYTES + 3).copied().unwrap_or_default();
        let (Some(spi_i), Some(spi_r)) = (spi(0), spi(8)) else { return };
        // Only the first message of somebody newer: an answer to anything else could go round for ever.
        let is_request = flags & 0x20 == 0;
        if version <= 2 || !is_request || spi_r != 0 {
            return;
        }
        let header = Header {
            spi_i,
            spi_r,
            exchange: Exchange::IkeSaInit,
            is_initiator: false,
            is_response: true,
            message_id: 0,
        };
        let response = emit(&header, &[Payload::notify(NotifyKind::InvalidMajorVersion, vec![2])]);
        self.transmit(&[response], from);
    }
}

/// Whether nothing is to be kept of it.
pub(super) fn is_gone(sa: &IkeSa, now: Instant) -> bool {
    matches!(sa.state, State::Closed(until) if until <= now)
}
