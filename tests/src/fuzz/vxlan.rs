//! Datagrams from a known address and from others: nothing of a stranger gets in, everything is accounted for, and what is
//! sent goes to the peer alone and is no longer than what was received.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::{Duration, Instant};

use trieste_cables::vxlan::VxlanKind;
use trieste_cables::{Admission, CableKind, Jobs, LaneConfig, Message, Site, Tunnel};
use trieste_packet::{Batch, CableId, Drops, LaneId, Layout, Outer, Packet, Pool, PoolConfig};
use trieste_vxlan::{ARP_BYTES, Arp, HEAD_BYTES, Head};

use super::Reader;

const OURS: Ipv4Addr = Ipv4Addr::new(172, 31, 1, 11);
const PEER: Ipv4Addr = Ipv4Addr::new(172, 31, 2, 11);
const STRANGER: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);
const LANE: LaneId = LaneId(0x100);

/// A byte of flags, two of length, and the datagram; again and again. Bit 0: from a stranger; bit 1: twice as a train; bits
/// 2 to 7: so many quarters of a second later.
pub(super) fn target(data: &[u8]) {
    let start = Instant::now();
    let kind = VxlanKind::new("submariner", start);
    let mut gate = kind.gate();
    let site = |address| Site { private_ip: IpAddr::V4(address), ..Site::from(BTreeMap::new()) };
    let peer = SocketAddr::new(IpAddr::V4(PEER), 4500);
    let mut config = LaneConfig::new(LANE, CableId(1), Some(peer), BTreeMap::new());
    (config.local, config.remote) = (site(OURS), site(PEER));
    let mut tunnel = kind.connect(&config, start).expect("both have addresses of their own");
    let (mut drops, mut now, mut reader) = (Drops::default(), start, Reader::new(data));
    while !reader.is_empty() {
        let flags = reader.byte();
        let length = usize::from(reader.u16() % 2048);
        let datagram = reader.take(length);
        law_of_frames(datagram);
        now += Duration::from_millis(250) * u32::from(flags >> 2);
        let is_stranger = flags & 1 != 0;
        let from = if is_stranger { STRANGER } else { PEER };
        let outer = Outer { peer: SocketAddr::new(IpAddr::V4(from), 50_000), ..Outer::NONE };
        match gate.classify(datagram, &outer) {
            Message::Data(lane) => {
                assert!(lane == LANE && !is_stranger, "nothing of a stranger's is let in");
                open(&mut *tunnel, datagram, flags & 2 != 0, outer, &mut drops, now);
            }
            Message::Control(_) => {
                assert!(!is_stranger, "nothing of a stranger's is let in");
                if gate.admit(datagram, &outer, now) == Admission::Pass(None) {
                    tunnel.handle_datagram(datagram, &outer, now, &mut drops);
                }
            }
            Message::Stranger => assert!(is_stranger, "the peer's address is known"),
            Message::Unknown => {}
            Message::Greeting | Message::Negotiation | Message::Keepalive => unreachable!("VXLAN has none"),
        }
        tunnel.handle_timeout(now, &mut drops);
        while let Some(transmit) = tunnel.poll_transmit() {
            assert_eq!(transmit.outer.peer, peer, "to the peer and to nobody else");
            assert_eq!(transmit.payload.len(), HEAD_BYTES + ARP_BYTES);
        }
        while tunnel.poll_event().is_some() {}
    }
}

/// What was read is written as it was, but for what is reserved.
fn law_of_frames(datagram: &[u8]) {
    let Some((head, text)) = Head::parse(datagram) else { return };
    assert_eq!(Head::parse(&head.emit()).map(|(again, _)| again), Some(head));
    assert_eq!(head.emit()[8..], datagram[8..HEAD_BYTES]);
    if let Some(arp) = Arp::parse(text) {
        assert_eq!(arp.emit(), text[..ARP_BYTES]);
    }
}

fn open(
    tunnel: &mut dyn Tunnel,
    datagram: &[u8],
    is_train: bool,
    outer: Outer,
    drops: &mut Drops,
    now: Instant,
) {
    let mut pool = Pool::new(PoolConfig { slots: 4, slot_bytes: 8192 });
    let (mut output, mut consumed, before) = (Batch::with_limit(4), 0, drops.total());
    let count = if is_train { 2 } else { 1 };
    let mut packet = Packet::new(pool.alloc_copy(&datagram.repeat(count)).expect("4096 bytes fit"));
    packet.outer = outer;
    if is_train {
        packet.layout = Layout::datagrams(u16::try_from(datagram.len()).expect("below 2048"), 2);
    }
    let mut input = vec![packet];
    let jobs =
        &mut Jobs { input: &mut input, output: &mut output, pool: &mut pool, drops, consumed: &mut consumed };
    tunnel.open(jobs, now);
    let opened: u64 = output.as_slice().iter().map(Packet::segments).sum();
    assert_eq!(drops.total() - before + consumed + opened, count as u64, "all is accounted for");
}
