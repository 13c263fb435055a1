//! INFORMATIONAL: deletions, signs of life, and what the peer wants us to know (RFC 7296 sections 1.4 and 2.4).

use std::time::Instant;

use super::engine::IkeEngine;
use super::payloads::{Payloads, words};
use super::sa::{IkeSa, Operation, State};
use crate::ipsec::Spi;
use crate::ipsec::wire::{Delete, Exchange, NotifyKind, Payload, Protocol};

impl IkeEngine {
    /// Takes an INFORMATIONAL request; an empty answer is a sign of life.
    pub(super) fn on_informational_request(
        &mut self,
        sa: &mut IkeSa,
        payloads: Payloads<'_>,
        now: Instant,
    ) -> Vec<Payload> {
        //= https://www.rfc-editor.org/rfc/rfc7296#section-3.10.1
        //# Unrecognized error types
        //# in a request and status types in a request or response MUST be
        //# ignored
        let is_fatal = |kind| matches!(kind, NotifyKind::AuthenticationFailed | NotifyKind::InvalidSyntax);
        let fatal = payloads.notifies().find(|notify| is_fatal(notify.kind));
        let mut reason = "the peer has deleted it".to_owned();
        if let Some(notify) = fatal {
            reason = words(notify.kind);
            if let Some(peer) = sa.lane.and_then(|lane| self.peers.get_mut(&lane)) {
                peer.error = Some(reason.clone());
            }
        }
        let is_ike = payloads.deletes().any(|delete| delete.protocol == Protocol::Ike);
        if is_ike || fatal.is_some() {
            self.on_ike_deleted(sa, &reason, now);
            return Vec::new();
        }
        let named: Vec<Spi> = payloads
            .deletes()
            .filter(|delete| delete.protocol == Protocol::Esp)
            .flat_map(|delete| delete.spis.iter().copied())
            .collect();
        let deleted = self.on_children_deleted(sa, &named, now);
        if deleted.is_empty() { Vec::new() } else { vec![Payload::Delete(Delete::esp(deleted))] }
    }

    /// The peer has deleted the IKE SA.
    fn on_ike_deleted(&mut self, sa: &mut IkeSa, reason: &str, now: Instant) {
        self.adopt_rival(sa, now);
        self.drop_sa(sa, true, reason, now);
        sa.state = State::Closed(now + self.config.give_up / 2);
    }

    /// The peer has deleted child SAs, which it names by its own SPIs. Returns ours of those that go with it.
    //= https://www.rfc-editor.org/rfc/rfc7296#section-1.4.1
    //# If by chance both ends of a set
    //# of SAs independently decide to close them, each may send a Delete
    //# payload and the two requests may cross in the network.  If a node
    //# receives a delete request for SAs for which it has already issued a
    //# delete request, it MUST delete the outgoing SAs while processing the
    //# request and the incoming SAs while processing the response.  In that
    //# case, the responses MUST NOT include Delete payloads for the deleted
    //# SAs
    fn on_children_deleted(&mut self, sa: &mut IkeSa, named: &[Spi], now: Instant) -> Vec<Spi> {
        let asked = match sa.pending.as_ref().map(|pending| &pending.operation) {
            Some(Operation::DeleteChildren(spis)) => spis.clone(),
            _ => Vec::new(),
        };
        let mut deleted = Vec::new();
        for theirs in named {
            let found = sa.children.values().find(|child| child.outbound == *theirs);
            let Some(ours) = found.map(|child| child.inbound) else { continue };
            // What we have asked to be deleted is not sealed with any more, and goes with the answer.
            if asked.contains(&ours) {
                continue;
            }
            self.put_off(sa, ours, now);
            self.remove_child(sa, ours, true, "the peer has deleted the child SA", now);
            deleted.push(ours);
        }
        deleted
    }

    /// What the peer deletes it need not have back at once.
    fn put_off(&mut self, sa: &IkeSa, spi: Spi, now: Instant) {
        let config = &self.config;
        let Some(child) = sa.children.get(&spi) else { return };
        let planned = sa.lane.and_then(|lane| self.peers.get_mut(&lane)?.planned.get_mut(sa.plan));
        let Some(planned) = planned else { return };
        for index in &child.serves {
            if let Some(wanted) = planned.wanted.get_mut(*index) {
                wanted.backoff.failed(config, now);
            }
        }
    }

    /// Sends what deletes child SAs.
    pub(super) fn delete_children(&mut self, sa: &mut IkeSa, spis: Vec<Spi>, now: Instant) {
        let payloads = [Payload::Delete(Delete::esp(spis.clone()))];
        self.inform(sa, &payloads, Operation::DeleteChildren(spis), now);
    }

    /// Sends what deletes the IKE SA.
    pub(super) fn delete_ike(&mut self, sa: &mut IkeSa, now: Instant) {
        let mut payloads = std::mem::take(&mut sa.farewell);
        payloads.push(Payload::Delete(Delete::ike()));
        self.inform(sa, &payloads, Operation::DeleteIke, now);
    }

    /// Asks for a sign of life.
    pub(super) fn probe(&mut self, sa: &mut IkeSa, now: Instant) {
        sa.wants_probe = false;
        self.inform(sa, &[], Operation::Probe, now);
    }

    fn inform(&mut self, sa: &mut IkeSa, payloads: &[Payload], operation: Operation, now: Instant) {
        let datagrams = sa.request(Exchange::Informational, payloads, operation, &self.config, now);
        sa.last_tx = now;
        self.transmit(&datagrams, sa.outer);
    }
}
