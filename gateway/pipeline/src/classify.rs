//! Headers and verdicts: who a packet is from, whom it is for, and whether it may go there.

use std::net::IpAddr;

use trieste_packet::wire::Inner;
use trieste_packet::{Batch, DropReason, Drops, FlowKey, LayoutKind, Packet, Pool};

use crate::flow::{Flows, Verdict};
use crate::inside;
use crate::probe::{self, Fate, Probes};
use crate::steer::{Origin, Steering};
use crate::tables::{LaneEnd, Selection, Tables};

/// Reads the headers of every packet of the batch into `headers`, side by side. Packets that are not valid leave
/// the batch.
pub(crate) fn parse(batch: &mut Batch, headers: &mut Vec<Inner>, pool: &mut Pool, drops: &mut Drops) {
    headers.clear();
    prefetch_headers(batch.as_slice());
    filter(batch, pool, drops, |packet| {
        headers.push(parse_packet(packet)?);
        Ok(())
    });
}

/// Has the first bytes of all packets fetched at once, rather than waiting for each when it is looked at.
pub(crate) fn prefetch_headers(packets: &[Packet]) {
    for packet in packets {
        packet.buf.prefetch(1);
    }
}

/// Checks one packet's headers, and cuts what is behind it.
pub(crate) fn parse_packet(packet: &mut Packet) -> Result<Inner, DropReason> {
    let inner = Inner::parse(packet.bytes())?;
    if packet.layout.kind == LayoutKind::Single {
        // What is behind the packet's own length is padding.
        packet.buf.truncate(usize::from(inner.total_bytes));
    }
    if is_unicast(inner.flow.destination()) { Ok(inner) } else { Err(DropReason::NotUnicast) }
}

/// Returns whether an address is that of a single host.
pub(crate) fn is_unicast(destination: IpAddr) -> bool {
    match destination {
        IpAddr::V4(v4) => !(v4.is_multicast() || v4.is_broadcast() || v4.is_unspecified()),
        IpAddr::V6(v6) => !(v6.is_multicast() || v6.is_unspecified()),
    }
}

/// Gives every outbound packet its decision. Packets without one leave the batch, and `headers` with it.
pub(crate) fn outbound(
    batch: &mut Batch,
    headers: &mut Vec<Inner>,
    steering: &Steering<'_>,
    (flows, version): (&mut Flows, u64),
    pool: &mut Pool,
    drops: &mut Drops,
) {
    filter_both(batch, headers, pool, drops, |packet, inner| {
        outbound_one(packet, inner, steering, (flows, version))
    });
}

/// Gives one outbound packet its decision.
pub(crate) fn outbound_one(
    packet: &mut Packet,
    inner: &Inner,
    steering: &Steering<'_>,
    (flows, version): (&mut Flows, u64),
) -> Result<(), DropReason> {
    let way = inner.way();
    let verdict = flows.lookup(&way, version).unwrap_or_else(|| {
        let verdict = decide_outbound(&way, steering);
        flows.learn(way, version, verdict);
        verdict
    });
    match verdict {
        Verdict::Take(decision) => {
            packet.decision = decision;
            Ok(())
        }
        Verdict::Refuse(reason) => Err(reason),
        Verdict::Accept(_) => Err(DropReason::NoRoute),
    }
}

/// What nobody but gateways may send: their messages to each other.
pub(crate) const RESERVED_PROTOCOL: u8 = inside::PROTOCOL;

fn decide_outbound(way: &FlowKey, steering: &Steering<'_>) -> Verdict {
    if way.protocol == RESERVED_PROTOCOL {
        return Verdict::Refuse(DropReason::ReservedProtocol);
    }
    let paths = match steering.tables.select(way.source(), way.destination()) {
        Selection::Paths(paths) => paths,
        Selection::NoRoute => return Verdict::Refuse(DropReason::NoRoute),
        Selection::SourceNotLocal => return Verdict::Refuse(DropReason::SourceNotLocal),
    };
    steering.take(way, paths, Origin::Inside).map_or_else(Verdict::Refuse, Verdict::Take)
}

/// Lets only those inbound packets stay whose source belongs to the peer that sealed them and whose destination is
/// ours. Probes from tunnel addresses become replies in `replies`.
pub(crate) fn inbound(
    batch: &mut Batch,
    headers: &mut Vec<Inner>,
    tables: &Tables,
    (flows, version): (&mut Flows, u64),
    drops: &mut Drops,
    probes: &mut Probes<'_>,
) {
    let (mut read, mut kept) = (0, 0);
    let check = |packet: &mut Packet| {
        let inner = headers[read];
        read += 1;
        let lane = tables.lane(packet.decision.lane).ok_or(Fate::Drop(DropReason::NoLane))?;
        packet.decision.mtu_bytes = lane.mtu_bytes;
        inbound_one(&inner, lane.end, tables, (flows, version))
            .map_err(|reason| probe::judge(packet, &inner, tables, reason))?;
        headers[kept] = inner;
        kept += 1;
        Ok(())
    };
    batch.retain_or(check, |packet, fate| match fate {
        Fate::Drop(reason) => drops.discard(packet, reason, probes.pool),
        Fate::Answer => probes.answer(packet, drops),
    });
    headers.truncate(kept);
}

/// Whether a packet that `from` sealed may come in.
pub(crate) fn inbound_one(
    inner: &Inner,
    from: LaneEnd,
    tables: &Tables,
    (flows, version): (&mut Flows, u64),
) -> Result<(), DropReason> {
    if flows.lookup(&inner.flow, version) != Some(Verdict::Accept(from)) {
        decide_inbound(inner, from, tables)?;
        flows.learn(inner.flow, version, Verdict::Accept(from));
    }
    Ok(())
}

fn decide_inbound(inner: &Inner, from: LaneEnd, tables: &Tables) -> Result<(), DropReason> {
    if !tables.may_send(from, inner.flow.source()) {
        return Err(DropReason::SourceNotAllowed);
    }
    let destination = inner.flow.destination();
    if tables.is_local(destination) {
        return Ok(());
    }
    if tables.cluster_of(destination).is_some() {
        return Err(DropReason::Loop);
    }
    Err(DropReason::DestinationNotLocal)
}

/// Keeps the packets that `check` accepts; counts the others.
pub(crate) fn filter(
    batch: &mut Batch,
    pool: &mut Pool,
    drops: &mut Drops,
    check: impl FnMut(&mut Packet) -> Result<(), DropReason>,
) {
    batch.retain_or(check, |packet, reason| drops.discard(packet, reason, pool));
}

/// The same for packets and their headers side by side.
pub(crate) fn filter_both(
    batch: &mut Batch,
    headers: &mut Vec<Inner>,
    pool: &mut Pool,
    drops: &mut Drops,
    mut check: impl FnMut(&mut Packet, &Inner) -> Result<(), DropReason>,
) {
    let (mut read, mut kept) = (0, 0);
    filter(batch, pool, drops, |packet| {
        let index = read;
        read += 1;
        check(packet, &headers[index])?;
        if kept != index {
            headers[kept] = headers[index];
        }
        kept += 1;
        Ok(())
    });
    headers.truncate(kept);
}
