//! Opening a frame: is it from the peer's station, for ours, and a packet?

use std::time::Instant;

use trieste_packet::{DropReason, Outer};
use trieste_vxlan::{HEAD_BYTES, Head, Mac, Protocol, Vni};

use super::station::Station;
use crate::boundary::CableStats;
use crate::opening::{Fate, Opener, inner_packet};

/// Opens the frames of one batch.
pub(super) struct VxlanOpener<'a> {
    pub(super) station: &'a mut Station,
    pub(super) stats: &'a mut CableStats,
    pub(super) now: Instant,
    /// Whether the peer's station is another than before.
    pub(super) has_moved: bool,
}

/// Checks a frame's stations. Whom it is from is learnt also from frames for others: upstream's device sends those to
/// everybody. `has_moved` is set when that is another station than before.
pub(super) fn check(
    head: &Head,
    station: &mut Station,
    now: Instant,
    has_moved: &mut bool,
) -> Result<(), DropReason> {
    // What comes back has gone round; the kernel's device drops it as well.
    if head.source == station.ends.mac {
        return Err(DropReason::OwnStation);
    }
    if head.vni != Vni::GATEWAYS || !head.source.is_station() {
        return Err(DropReason::UnknownDatagram);
    }
    *has_moved |= station.hear(head.source, now);
    let is_ours = head.destination == station.ends.mac || head.destination.is_group();
    if is_ours { Ok(()) } else { Err(DropReason::OtherStation) }
}

impl Opener for VxlanOpener<'_> {
    const HEAD_BYTES: usize = HEAD_BYTES;

    #[inline]
    fn open(&mut self, message: &mut [u8], _from: &Outer) -> Fate {
        let bytes = message.len() as u64;
        let Some((head, text)) = Head::parse(message) else { return Fate::Lost(DropReason::UnknownDatagram) };
        let checked = check(&head, self.station, self.now, &mut self.has_moved);
        if let Err(reason) = checked {
            return Fate::Lost(reason);
        }
        if head.destination.is_group() {
            return self.ignore(&head);
        }
        let version = match head.protocol {
            Protocol::Ipv4 => 4,
            Protocol::Ipv6 => 6,
            Protocol::Arp => return Fate::Lost(DropReason::BadHandshake),
            //= https://www.rfc-editor.org/rfc/rfc7348#section-6.1
            //# Decapsulated VXLAN frames with the inner VLAN tag SHOULD be discarded unless configured otherwise.
            Protocol::Other(_) => return Fate::Lost(DropReason::NotIp),
        };
        // Behind the packet there may be what an Ethernet frame is padded with.
        let Some(packet) = inner_packet(version, text) else { return Fate::Lost(DropReason::BadInner) };
        self.stats.rx_packets += 1;
        self.stats.rx_bytes += bytes;
        Fate::Packet(packet.len())
    }
}

impl VxlanOpener<'_> {
    /// Nothing that is for a group crosses clusters. A kernel that has not been told otherwise looks for neighbours and
    /// routers over IPv6 now and then: no news, and no loss.
    fn ignore(&self, head: &Head) -> Fate {
        match (head.protocol, head.destination) {
            (Protocol::Ipv6, Mac([0x33, 0x33, ..])) => Fate::Consumed,
            _ => Fate::Lost(DropReason::NotUnicast),
        }
    }
}
