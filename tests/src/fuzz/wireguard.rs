//! Datagrams from strangers: told apart and admitted or refused; none is opened, none makes a tunnel come up.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Instant;

use trieste_cables::wireguard::WireguardKind;
use trieste_cables::{Admission, CableKind, Jobs, LaneConfig, Message};
use trieste_packet::{Batch, CableId, Drops, LaneId, Outer, Packet, Pool, PoolConfig};

use super::Reader;

const STRANGER: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1));

pub(super) fn target(data: &[u8]) {
    let now = Instant::now();
    let kind = WireguardKind::new([7; 32].into(), "psk", "submariner", now);
    let mut gate = kind.gate();
    let peer = WireguardKind::new([9; 32].into(), "psk", "submariner", now);
    let config = LaneConfig::new(LaneId(0x100), CableId(1), None, peer.backend_config());
    let mut tunnel = kind.connect(&config, now).expect("the other's configuration is good");
    let mut drops = Drops::default();
    let outer = Outer { peer: SocketAddr::new(STRANGER, 4500), ..Outer::NONE };
    let mut reader = Reader::new(data);
    while !reader.is_empty() {
        let length = usize::from(reader.u16() % 2048);
        let datagram = reader.take(length);
        match gate.classify(datagram, &outer) {
            Message::Data(_) => open(&mut *tunnel, datagram, &mut drops, now),
            Message::Control(_) | Message::Greeting => match gate.admit(datagram, &outer, now) {
                Admission::Pass(_) => tunnel.handle_datagram(datagram, &outer, now, &mut drops),
                Admission::Reply(cookie) => {
                    assert_eq!(cookie.len(), 64, "an answer is a cookie, never larger")
                }
                Admission::Refuse(_) => {}
                Admission::Taken => unreachable!("a lane has its own slow half"),
            },
            Message::Negotiation | Message::Keepalive | Message::Stranger => {
                unreachable!("WireGuard has none")
            }
            Message::Unknown => {}
        }
        while let Some(transmit) = tunnel.poll_transmit() {
            assert!(transmit.payload.len() <= 148, "control messages are small");
        }
    }
    assert!(!tunnel.stats(now).is_up, "no stranger makes a tunnel come up");
}

fn open(tunnel: &mut dyn trieste_cables::Tunnel, datagram: &[u8], drops: &mut Drops, now: Instant) {
    let mut pool = Pool::new(PoolConfig { slots: 2, slot_bytes: 4096 });
    let (mut output, mut consumed, before) = (Batch::with_limit(4), 0, drops.total());
    let buf = pool.alloc_copy(datagram).expect("2048 bytes fit");
    let mut input = vec![Packet::new(buf)];
    let jobs =
        &mut Jobs { input: &mut input, output: &mut output, pool: &mut pool, drops, consumed: &mut consumed };
    tunnel.open(jobs, now);
    assert!(output.is_empty(), "nothing of a stranger's opens");
    assert_eq!(drops.total() + consumed, before + 1, "and it is counted");
}
