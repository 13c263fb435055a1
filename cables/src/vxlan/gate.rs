//! Lets in what comes from a known peer's address, and bounds what has to be answered.

use std::sync::Arc;
use std::time::Instant;

use arc_swap::ArcSwap;
use arc_swap::cache::Cache;
use trieste_packet::{DropReason, HashKey, Outer};
use trieste_vxlan::{Head, Protocol, Vni};

use super::known::{Known, Table};
use crate::boundary::{Admission, Gate, Message};
use crate::shares::Shares;

/// ARP packets per second that one address may send. Ours: a kernel sends one a second for each neighbour that it looks
/// for, and upstream's device sends all of them to everybody.
const ARP_PER_SECOND: u32 = 200;

/// The gate of one worker.
pub(super) struct VxlanGate {
    known: Cache<Arc<ArcSwap<Table>>, Arc<Table>>,
    shares: Shares,
}

impl VxlanGate {
    pub(super) fn new(known: &Known, now: Instant) -> Self {
        // No secret: only addresses of peers get this far, and nobody chooses those to fall together.
        let shares = Shares::new(HashKey::new(0), ARP_PER_SECOND, now);
        Self { known: known.reader(), shares }
    }
}

impl Gate for VxlanGate {
    fn classify(&mut self, datagram: &[u8], from: &Outer) -> Message {
        let Some((head, _)) = Head::parse(datagram).filter(|(head, _)| head.vni == Vni::GATEWAYS) else {
            return Message::Unknown;
        };
        // Any port: a kernel's is a hash of the inner flow, and a NAT may have changed it.
        let Some(lane) = self.known.load().find(from.peer.ip(), head.source) else {
            return Message::Stranger;
        };
        if head.protocol == Protocol::Arp { Message::Control(lane) } else { Message::Data(lane) }
    }

    fn admit(&mut self, _datagram: &[u8], from: &Outer, now: Instant) -> Admission {
        if self.shares.is_within(from.peer.ip(), now) {
            Admission::Pass(None)
        } else {
            Admission::Refuse(DropReason::HandshakeLimit)
        }
    }

    fn handle_timeout(&mut self, _now: Instant) {}
}
