//! Packets on their way to a node: one Ethernet frame each, in VXLAN.

use std::net::SocketAddr;

use trieste_cables::Jobs;
use trieste_cables::seal_train::SealTrain;
use trieste_packet::segment::{Segmenter, finish_single};
use trieste_packet::wire::{tos, version};
use trieste_packet::{LayoutKind, Outer, Packet};
use trieste_vxlan::{HEAD_BYTES, Head, Protocol, Vni};

use super::table::{NodeId, Services};

/// Sends a packet or train to a node. Returns how many packets that was.
///
/// The outer packet may be fragmented where it is larger than the underlay, as those of cables may: too large packets of
/// clusters with larger frames arrive, and the node's kernel tells their senders.
pub(super) fn send(mut packet: Packet, node: NodeId, services: &Services, jobs: &mut Jobs<'_>) -> u64 {
    let Some(own) = services.own() else { return 0 };
    let to = services.node(node);
    let cable = packet.decision.cable;
    let is_ipv4 = version(packet.bytes()) == 4;
    let head = Head {
        vni: Vni::NODES,
        destination: to.mac,
        source: own.mac,
        protocol: if is_ipv4 { Protocol::Ipv4 } else { Protocol::Ipv6 },
    };
    let head = head.emit();
    // The mark of congestion goes along (RFC 6040, normal mode), the class of traffic does not, as with the kernel's VXLAN.
    let outer = Outer {
        peer: SocketAddr::new(to.address, services.port()),
        local: Some(own.address),
        tos: tos(packet.bytes()) & 3,
    };
    if packet.layout.kind == LayoutKind::Single && packet.buf.headroom() >= HEAD_BYTES {
        if let Err(reason) = finish_single(&mut packet) {
            jobs.drops.discard(packet, reason, jobs.pool);
            return 0;
        }
        packet.buf.prepend(HEAD_BYTES).copy_from_slice(&head);
        packet.outer = outer;
        jobs.emit(packet, cable);
        return 1;
    }
    let mut train = SealTrain::new(outer, cable);
    let mut sent = 0;
    let cut = Segmenter::new(&mut packet).map(|mut segmenter| {
        while let Some(segment) = segmenter.next_segment() {
            let is_written = train.append(HEAD_BYTES + segment.len(), jobs, |bytes| {
                let (front, rest) = bytes.split_at_mut(HEAD_BYTES);
                front.copy_from_slice(&head);
                rest.copy_from_slice(segment);
                true
            });
            sent += u64::from(is_written);
        }
    });
    train.flush(jobs);
    match cut {
        Ok(()) => jobs.pool.recycle(packet.buf),
        Err(reason) => jobs.drops.discard(packet, reason, jobs.pool),
    }
    sent
}
