//! Packets that siblings have sent because their translation is ours.

use trieste_packet::wire::Inner;
use trieste_packet::{Batch, Packet};

use crate::ecn;
use crate::owner::{Crossing, Handoff, HandoffKind};
use crate::pipeline::Pipeline;
use crate::tables::Tables;

impl Pipeline {
    /// Takes out of a batch that has been opened and parsed what siblings have sent to be translated here. It goes on as
    /// what workers hand over does.
    pub(crate) fn set_relayed_apart(&mut self, batch: &mut Batch, tables: &Tables) {
        let is_siblings = |packet: &Packet| tables.is_siblings(packet.decision.lane);
        if tables.siblings().is_empty() || !batch.as_slice().iter().any(is_siblings) {
            return;
        }
        let (mut read, mut kept) = (0, 0);
        let headers = &mut self.headers;
        let check = |packet: &mut Packet| {
            let inner = headers[read];
            read += 1;
            if is_siblings(packet) && inner.flow.is_ipv4() {
                return Err(ecn::mark(packet).map(|()| crossing(&inner, tables)));
            }
            headers[kept] = inner;
            kept += 1;
            Ok(())
        };
        let (to, arrivals) = (self.config.worker, &mut self.arrivals);
        let (counters, drops, pool) = (&mut self.counters, &mut self.drops, &mut self.pool);
        batch.retain_or(check, |packet, sorted| match sorted {
            Ok(crossing) => {
                counters.relayed_in += packet.segments();
                arrivals.push(Handoff { to, kind: HandoffKind::Translate(crossing, None), packet });
            }
            Err(reason) => drops.discard(packet, reason, pool),
        });
        headers.truncate(kept);
    }
}

/// What a sibling has sent a packet for: its source is to be translated, or its destination.
fn crossing(inner: &Inner, tables: &Tables) -> Crossing {
    if !tables.is_local(inner.flow.destination()) {
        Crossing::RelayedOut
    } else if tables.is_local(inner.flow.source()) {
        Crossing::RelayedBack
    } else if tables.cluster_of(inner.flow.source()).is_some() {
        Crossing::RelayedIn
    } else {
        Crossing::RelayedOut
    }
}
