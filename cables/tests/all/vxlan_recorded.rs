//! An exchange between two of upstream's gateways, recorded, with one of ours in the place of the first.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Instant;

use pcap_file::pcap::PcapReader;
use trieste_cables::vxlan::VxlanKind;
use trieste_cables::{Admission, CableKind, Gate, Jobs, LaneConfig, Message, Site, Tunnel};
use trieste_packet::{Batch, CableId, Drops, LaneId, Outer, Packet, Pool, PoolConfig};
use trieste_vxlan::{Head, Mac, Protocol, Vni};

const RECORDED: &[u8] = include_bytes!("../vectors/vxlan/upstream.pcap");
/// Frames of Ethernet, IPv4 and UDP: where the sender's address and port are, and the payload.
const SOURCE: usize = 26;
const SOURCE_PORT: usize = 34;
const PAYLOAD: usize = 42;
const FIRST: Ipv4Addr = Ipv4Addr::new(172, 31, 1, 11);
const SECOND: Ipv4Addr = Ipv4Addr::new(172, 31, 2, 11);
/// The station of the first gateway's device then, and of ours.
const THEN: Mac = Mac([0x16, 0x68, 0xa5, 0xba, 0x6b, 0x9e]);
const OURS: Mac = Mac([0x02, 0x54, 241, 31, 1, 11]);

/// What was sent: by whom, from which port, and the datagram with our station in the place of the first gateway's.
fn recorded() -> Vec<(Ipv4Addr, u16, Vec<u8>)> {
    let mut reader = PcapReader::new(RECORDED).unwrap();
    let mut all = Vec::new();
    while let Some(packet) = reader.next_packet() {
        let frame = packet.unwrap().data().to_vec();
        let source: [u8; 4] = frame[SOURCE..SOURCE + 4].try_into().unwrap();
        let port = u16::from_be_bytes([frame[SOURCE_PORT], frame[SOURCE_PORT + 1]]);
        let mut datagram = frame[PAYLOAD..].to_vec();
        let places: Vec<usize> =
            (8..datagram.len().min(50)).filter(|&at| datagram[at..].starts_with(&THEN.0)).collect();
        for at in places {
            datagram[at..at + 6].copy_from_slice(&OURS.0);
        }
        all.push((source.into(), port, datagram));
    }
    all
}

fn site(address: Ipv4Addr) -> Site {
    Site { private_ip: IpAddr::V4(address), ..Site::from(std::collections::BTreeMap::new()) }
}

struct Gateway {
    gate: Box<dyn Gate>,
    tunnel: Box<dyn Tunnel>,
    pool: Pool,
    drops: Drops,
    consumed: u64,
    now: Instant,
}

impl Gateway {
    #[expect(clippy::disallowed_methods, reason = "an Instant cannot be made from a number")]
    fn new() -> Self {
        let now = Instant::now();
        let kind = VxlanKind::new("submariner", now);
        let peer = SocketAddr::new(IpAddr::V4(SECOND), 4500);
        let mut config =
            LaneConfig::new(LaneId(1), CableId(1), Some(peer), std::collections::BTreeMap::new());
        (config.local, config.remote) = (site(FIRST), site(SECOND));
        let tunnel = kind.connect(&config, now).unwrap();
        let pool = Pool::new(PoolConfig { slots: 8, ..PoolConfig::default() });
        Self { gate: kind.gate(), tunnel, pool, drops: Drops::default(), consumed: 0, now }
    }

    fn work(&mut self, bytes: &[u8], outer: Outer, is_sealing: bool) -> Vec<Vec<u8>> {
        let mut packet = Packet::new(self.pool.alloc_copy(bytes).unwrap());
        packet.outer = outer;
        let (mut input, mut output) = (vec![packet], Batch::with_limit(8));
        let jobs = &mut Jobs {
            input: &mut input,
            output: &mut output,
            pool: &mut self.pool,
            drops: &mut self.drops,
            consumed: &mut self.consumed,
        };
        if is_sealing {
            self.tunnel.seal(jobs, self.now)
        } else {
            self.tunnel.open(jobs, self.now)
        }
        output.drain().map(|packet| packet.bytes().to_vec()).collect()
    }

    /// Takes a datagram of the second gateway; gives the packets in it.
    fn receive(&mut self, datagram: &[u8], port: u16) -> Vec<Vec<u8>> {
        let from = Outer { peer: SocketAddr::new(IpAddr::V4(SECOND), port), ..Outer::NONE };
        match self.gate.classify(datagram, &from) {
            Message::Data(LaneId(1)) => self.work(datagram, from, false),
            Message::Control(LaneId(1)) => {
                assert_eq!(self.gate.admit(datagram, &from, self.now), Admission::Pass(None));
                self.tunnel.handle_datagram(datagram, &from, self.now, &mut self.drops);
                Vec::new()
            }
            Message::Data(_)
            | Message::Control(_)
            | Message::Greeting
            | Message::Negotiation
            | Message::Keepalive
            | Message::Stranger
            | Message::Unknown => panic!("what upstream sends is known"),
        }
    }

    fn sent(&mut self) -> Vec<Vec<u8>> {
        std::iter::from_fn(|| self.tunnel.poll_transmit()).map(|transmit| transmit.payload).collect()
    }
}

#[test]
fn we_open_all_that_upstream_sent_and_send_byte_for_byte_what_it_answered() {
    let mut ours = Gateway::new();
    let (mut packets, mut answers, mut solicitations) = (0, 0, 0);
    for (source, port, datagram) in recorded() {
        let (head, text) = Head::parse(&datagram).unwrap();
        assert_eq!(head.vni, Vni::GATEWAYS);
        match (source == FIRST, head.protocol) {
            (false, Protocol::Ipv4) => {
                assert_eq!(ours.receive(&datagram, port), [text]);
                packets += 1;
            }
            (false, _) => assert!(ours.receive(&datagram, port).is_empty()),
            (true, Protocol::Ipv4) => {
                let sealed = ours.work(text, Outer::NONE, true);
                assert_eq!(sealed, [&datagram[..]]);
                packets += 1;
            }
            // We ask more often than the kernel, and by broadcast.
            (true, Protocol::Arp) if text[7] == 1 => {}
            (true, Protocol::Arp) => {
                let sent = ours.sent();
                assert!(sent.contains(&datagram), "{sent:02x?}");
                answers += 1;
            }
            (true, _) => solicitations += 1,
        }
    }
    assert_eq!((packets, answers, solicitations), (50, 1, 1));
    assert_eq!((ours.drops.total(), ours.consumed), (0, 4), "what is for groups is no loss");
    let stats = ours.tunnel.stats(ours.now);
    assert!(stats.is_up && stats.handshakes == 1, "{stats:?}");
}
