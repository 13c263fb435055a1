use super::super::VxlanKind;
use super::*;
use crate::boundary::{Admission, CableError, CableKind, Gate, Message, Site, Tunnel};
use etherparse::PacketBuilder;
use std::collections::BTreeMap;
use std::net::IpAddr;
use trieste_packet::{Batch, Layout, LayoutKind, Packet, Pool, PoolConfig};

const PEER_MAC: Mac = Mac([0x52, 0xb7, 0x07, 0xa9, 0x18, 0x4e]);
const OUR_MAC: Mac = Mac([0x02, 0x54, 241, 30, 1, 10]);
const PEER: &str = "172.31.2.10:51234";

#[expect(clippy::disallowed_methods, reason = "an Instant cannot be made from a number")]
fn start() -> Instant {
    Instant::now()
}

fn site(address: &str, config: BTreeMap<String, String>) -> Site {
    let mut site = Site::from(config);
    site.private_ip = address.parse().unwrap();
    site
}

fn outer(from: &str) -> Outer {
    Outer { peer: from.parse().unwrap(), ..Outer::NONE }
}

/// Our end (172.30.1.10) of a cable to 172.31.2.10, and its gate.
struct End {
    kind: VxlanKind,
    gate: Box<dyn Gate>,
    tunnel: Box<dyn Tunnel>,
    pool: Pool,
    drops: Drops,
    consumed: u64,
    now: Instant,
}

impl End {
    /// To a peer that says nothing of its station.
    fn new() -> Self {
        Self::to(BTreeMap::new())
    }

    fn to(peer_config: BTreeMap<String, String>) -> Self {
        let now = start();
        let kind = VxlanKind::new("submariner", now);
        let mut config = LaneConfig::new(
            LaneId(0x100),
            CableId(1),
            Some("172.31.2.10:4500".parse().unwrap()),
            BTreeMap::new(),
        );
        config.local = site("172.30.1.10", BTreeMap::new());
        config.remote = site("172.31.2.10", peer_config);
        let tunnel = kind.connect(&config, now).unwrap();
        let pool = Pool::new(PoolConfig { slots: 64, ..PoolConfig::default() });
        Self { gate: kind.gate(), kind, tunnel, pool, drops: Drops::default(), consumed: 0, now }
    }

    fn packet(&mut self, bytes: &[u8]) -> Packet {
        Packet::new(self.pool.alloc_copy(bytes).unwrap())
    }

    fn seal(&mut self, packets: Vec<Packet>) -> Vec<Packet> {
        self.work(packets, |tunnel, jobs, now| tunnel.seal(jobs, now))
    }

    fn open(&mut self, datagrams: Vec<Packet>) -> Vec<Packet> {
        self.work(datagrams, |tunnel, jobs, now| tunnel.open(jobs, now))
    }

    fn work(
        &mut self,
        mut input: Vec<Packet>,
        work: impl FnOnce(&mut dyn Tunnel, &mut Jobs<'_>, Instant),
    ) -> Vec<Packet> {
        let mut output = Batch::with_limit(256);
        let mut jobs = Jobs {
            input: &mut input,
            output: &mut output,
            pool: &mut self.pool,
            drops: &mut self.drops,
            consumed: &mut self.consumed,
        };
        work(&mut *self.tunnel, &mut jobs, self.now);
        output.drain().collect()
    }

    /// Takes a datagram as the pipeline does; what came out of it.
    fn receive(&mut self, datagram: &[u8], from: &str) -> Vec<Packet> {
        let from = outer(from);
        match self.gate.classify(datagram, &from) {
            Message::Data(_) => {
                let mut packet = self.packet(datagram);
                packet.outer = from;
                self.open(vec![packet])
            }
            Message::Control(_) => {
                assert_eq!(self.gate.admit(datagram, &from, self.now), Admission::Pass(None));
                self.tunnel.handle_datagram(datagram, &from, self.now, &mut self.drops);
                Vec::new()
            }
            Message::Greeting | Message::Negotiation | Message::Keepalive => panic!("VXLAN has none"),
            Message::Stranger | Message::Unknown => {
                self.drops.count(CableId(0), DropReason::UnknownPeer, 1);
                Vec::new()
            }
        }
    }

    fn sent(&mut self) -> Vec<(Head, Arp)> {
        let parse = |transmit: Transmit| {
            assert_eq!(transmit.outer.peer, "172.31.2.10:4500".parse().unwrap(), "to that peer alone");
            let (head, text) = Head::parse(&transmit.payload).unwrap();
            assert_eq!((head.vni, head.source), (Vni::GATEWAYS, OUR_MAC));
            (head, Arp::parse(text).unwrap())
        };
        std::iter::from_fn(|| self.tunnel.poll_transmit()).map(parse).collect()
    }

    fn pass(&mut self, span: Duration) {
        self.now += span;
        self.tunnel.handle_timeout(self.now, &mut self.drops);
    }

    fn is_up(&self) -> bool {
        self.tunnel.stats(self.now).is_up
    }
}

fn ours() -> std::net::Ipv4Addr {
    "241.30.1.10".parse().unwrap()
}

fn theirs() -> std::net::Ipv4Addr {
    "241.31.2.10".parse().unwrap()
}

/// A frame from the peer's station.
fn frame(source: Mac, destination: Mac, protocol: Protocol, text: &[u8]) -> Vec<u8> {
    let head = Head { vni: Vni::GATEWAYS, destination, source, protocol };
    [&head.emit()[..], text].concat()
}

fn inbound(payload: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    let builder = PacketBuilder::ipv4([10, 2, 0, 2], [10, 1, 0, 1], 64).udp(7, 8);
    builder.write(&mut bytes, payload).unwrap();
    bytes
}

fn outbound(payload: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    let builder = PacketBuilder::ipv4([10, 1, 0, 1], [10, 2, 0, 2], 64).udp(8, 7);
    builder.write(&mut bytes, payload).unwrap();
    bytes
}

#[test]
fn the_first_packet_waits_for_the_peers_station_and_no_longer() {
    let mut end = End::new();
    let packet = end.packet(&outbound(b"hello"));
    assert!(end.seal(vec![packet]).is_empty());
    assert_eq!(end.tunnel.stats(end.now).held, 1);
    end.pass(Duration::ZERO);
    let sent = end.sent();
    assert_eq!(sent.len(), 2);
    assert_eq!(sent[0].1, Arp::announcement(ours(), OUR_MAC));
    assert_eq!((sent[1].0.destination, sent[1].1), (Mac::BROADCAST, Arp::request(ours(), OUR_MAC, theirs())));

    let reply = sent[1].1.reply(PEER_MAC).datagram(Vni::GATEWAYS, OUR_MAC);
    end.receive(&reply, PEER);
    assert_eq!(end.tunnel.poll_event(), Some(CableEvent::LaneUp));
    let sealed = end.seal(Vec::new());
    let expected = frame(OUR_MAC, PEER_MAC, Protocol::Ipv4, &outbound(b"hello"));
    assert_eq!(sealed.iter().map(Packet::bytes).collect::<Vec<_>>(), [&expected[..]]);
    assert_eq!((end.tunnel.stats(end.now).held, end.is_up()), (0, true));
    assert_eq!(end.tunnel.stats(end.now).handshakes, 1);
}

#[test]
fn what_waits_for_a_station_that_never_answers_is_dropped_in_time() {
    let mut end = End::new();
    let packet = end.packet(&outbound(b"hello"));
    end.seal(vec![packet]);
    for _ in 0..22 {
        end.pass(Duration::from_millis(250));
    }
    assert_eq!((end.drops.of(DropReason::HeldExpired), end.tunnel.stats(end.now).held), (1, 0));
}

#[test]
fn a_peer_that_derives_its_station_is_sent_to_at_once() {
    let mut end = End::to(VxlanKind::new("submariner", start()).backend_config());
    let packet = end.packet(&outbound(b"hello"));
    let sealed = end.seal(vec![packet]);
    let station = Mac([0x02, 0x54, 241, 31, 2, 10]);
    assert_eq!(sealed[0].bytes(), frame(OUR_MAC, station, Protocol::Ipv4, &outbound(b"hello")));
    assert_eq!(sealed[0].outer.peer, "172.31.2.10:4500".parse().unwrap());
    assert!(!end.is_up(), "it has not answered");
}

#[test]
fn requests_for_our_address_are_answered_and_those_for_others_are_not() {
    let mut end = End::new();
    end.pass(Duration::ZERO);
    end.sent();
    // The kernel asks with the address of the packet that it wants to send, here one of its cluster's.
    let asker = "10.2.0.1".parse().unwrap();
    let request = Arp::request(asker, PEER_MAC, ours());
    end.receive(&request.datagram(Vni::GATEWAYS, Mac::BROADCAST), PEER);
    let sent = end.sent();
    assert_eq!(sent.len(), 1);
    assert_eq!((sent[0].0.destination, sent[0].1), (PEER_MAC, request.reply(OUR_MAC)));
    let other = Arp::request(theirs(), PEER_MAC, "241.32.3.10".parse().unwrap());
    end.receive(&other.datagram(Vni::GATEWAYS, Mac::BROADCAST), PEER);
    assert_eq!((end.sent(), end.drops.total()), (vec![], 0));
    let claim = Arp::request(ours(), PEER_MAC, theirs());
    end.receive(&claim.datagram(Vni::GATEWAYS, Mac::BROADCAST), PEER);
    assert_eq!((end.sent(), end.drops.of(DropReason::OwnStation)), (vec![], 1));
}

#[test]
fn data_comes_from_any_port_of_a_known_address_and_from_no_other() {
    let mut end = End::new();
    let datagram = frame(PEER_MAC, OUR_MAC, Protocol::Ipv4, &inbound(b"hello"));
    for port in [4500, 1, 65535] {
        let opened = end.receive(&datagram, &format!("172.31.2.10:{port}"));
        assert_eq!(opened[0].bytes(), inbound(b"hello"));
    }
    assert!(end.is_up(), "whoever sends answers");
    assert!(end.receive(&datagram, "172.31.2.11:4500").is_empty());
    assert_eq!(end.drops.of(DropReason::UnknownPeer), 1);
    end.kind.set_peer(LaneId(0x100), "172.31.2.11:4500".parse().unwrap());
    assert_eq!(end.receive(&datagram, "172.31.2.11:4500").len(), 1);
    drop(end.tunnel);
    assert_eq!(end.gate.classify(&datagram, &outer(PEER)), Message::Stranger);
}

#[test]
fn frames_for_other_stations_and_our_own_are_dropped_and_counted() {
    let mut end = End::new();
    let packet = inbound(b"x");
    let flooded = Mac([2, 0, 0, 0, 0, 7]);
    let group = Mac([0x01, 0, 0x5e, 0, 0, 1]);
    for (source, destination, protocol, reason) in [
        (PEER_MAC, flooded, Protocol::Ipv4, DropReason::OtherStation),
        (OUR_MAC, OUR_MAC, Protocol::Ipv4, DropReason::OwnStation),
        (PEER_MAC, group, Protocol::Ipv4, DropReason::NotUnicast),
        (PEER_MAC, OUR_MAC, Protocol::Other(0x8100), DropReason::NotIp),
        (PEER_MAC, OUR_MAC, Protocol::Ipv6, DropReason::BadInner),
        (Mac::BROADCAST, OUR_MAC, Protocol::Ipv4, DropReason::UnknownDatagram),
    ] {
        let before = end.drops.of(reason);
        assert!(end.receive(&frame(source, destination, protocol, &packet), PEER).is_empty());
        assert_eq!(end.drops.of(reason), before + 1, "{source} to {destination}, {protocol:?}");
    }
    assert_eq!(end.drops.total(), 6);
    let solicitation = frame(PEER_MAC, Mac([0x33, 0x33, 0, 0, 0, 2]), Protocol::Ipv6, &[0x60; 48]);
    assert!(end.receive(&solicitation, PEER).is_empty());
    assert_eq!((end.consumed, end.drops.total()), (1, 6), "no loss");
}

#[test]
fn a_station_that_changes_is_followed_with_its_next_frame() {
    let mut end = End::new();
    let other = Mac([0x9a, 1, 2, 3, 4, 5]);
    for source in [PEER_MAC, other] {
        end.receive(&frame(source, OUR_MAC, Protocol::Ipv4, &inbound(b"x")), PEER);
        let packet = end.packet(&outbound(b"y"));
        let sealed = end.seal(vec![packet]);
        assert_eq!(Head::parse(sealed[0].bytes()).unwrap().0.destination, source);
    }
    // A frame for somebody else says as well who it is from.
    end.receive(&frame(PEER_MAC, other, Protocol::Ipv4, &inbound(b"x")), PEER);
    let packet = end.packet(&outbound(b"y"));
    let sealed = end.seal(vec![packet]);
    assert_eq!(Head::parse(sealed[0].bytes()).unwrap().0.destination, PEER_MAC);
}

#[test]
fn a_silent_peer_is_down_until_it_is_heard() {
    let mut end = End::new();
    let datagram = frame(PEER_MAC, OUR_MAC, Protocol::Ipv4, &inbound(b"x"));
    end.receive(&datagram, PEER);
    assert_eq!(end.tunnel.poll_event(), Some(CableEvent::LaneUp));
    for _ in 0..40 {
        end.pass(Duration::from_millis(250));
    }
    assert_eq!((end.is_up(), end.tunnel.poll_event()), (false, Some(CableEvent::Down)));
    let packet = end.packet(&outbound(b"y"));
    assert_eq!(end.seal(vec![packet]).len(), 1, "what is to be sent is sent all the same");
    end.receive(&datagram, PEER);
    assert_eq!((end.is_up(), end.tunnel.poll_event()), (true, Some(CableEvent::LaneUp)));
}

/// Lets time go by for an end whose peer says nothing; gives the questions' times.
fn run_alone(end: &mut End, span: Duration) -> Vec<Instant> {
    let (until, mut asked) = (end.now + span, Vec::new());
    loop {
        let questions = end.sent().into_iter().filter(|(_, arp)| arp.sender != arp.target);
        asked.extend(questions.map(|_| end.now));
        let due = end.tunnel.poll_timeout().unwrap();
        if due > until {
            end.now = until;
            return asked;
        }
        end.pass(due.saturating_duration_since(end.now));
    }
}

#[test]
fn a_peer_that_is_silent_for_long_is_asked_rarely_until_it_is_heard_or_sent_to() {
    const MINUTE: Duration = Duration::from_secs(60);
    let mut end = End::to(VxlanKind::new("submariner", start()).backend_config());
    let early = run_alone(&mut end, MINUTE);
    assert!((73..=76).contains(&early.len()), "20 in five seconds, then every second: {}", early.len());
    run_alone(&mut end, MINUTE);
    assert!(end.tunnel.stats(end.now).is_silent);
    let late = run_alone(&mut end, 8 * MINUTE);
    assert!((22..=25).contains(&late.len()), "every twenty seconds: {}", late.len());

    // A packet, which is sent all the same, has it asked; at most every five seconds.
    run_alone(&mut end, Duration::from_secs(6));
    let packet = end.packet(&outbound(b"hello"));
    assert_eq!(end.seal(vec![packet]).len(), 1);
    let asked = run_alone(&mut end, Duration::from_secs(4));
    assert!(asked.len() <= 1, "{asked:?}");

    let now = end.now;
    end.receive(&frame(Mac::of_vtep(theirs()), OUR_MAC, Protocol::Ipv4, &inbound(b"hello")), PEER);
    let stats = end.tunnel.stats(now);
    assert!(stats.is_up && !stats.is_silent);
    // Lost again, it is asked as quickly as any.
    let lost = run_alone(&mut end, MINUTE);
    assert!((70..=76).contains(&lost.len()), "{}", lost.len());
    run_alone(&mut end, MINUTE);
    assert!(end.tunnel.stats(end.now).is_silent);
    end.tunnel.set_peer(Some("172.31.2.11:4500".parse().unwrap()), end.now);
    assert!(!end.tunnel.stats(end.now).is_silent, "it has moved");
}

#[test]
fn a_thousand_new_peers_are_asked_once_in_ten_seconds_then_twenty_times_a_second_and_silent_ones_sixteen_times()
 {
    let now = start();
    let kind = VxlanKind::new("submariner", now);
    let mut lanes: Vec<Box<dyn Tunnel>> = (0..1000u32)
        .map(|number| {
            let [.., third, fourth] = number.to_be_bytes();
            let peer = IpAddr::from([10, 9, third, fourth]);
            let mut config = LaneConfig::new(LaneId(number << 8), CableId(1), None, BTreeMap::new());
            config.peer = Some((peer, 4500).into());
            config.local = site("172.30.1.10", BTreeMap::new());
            config.remote = site(&peer.to_string(), BTreeMap::new());
            kind.connect(&config, now).unwrap()
        })
        .collect();
    let mut queue: std::collections::BTreeSet<(Instant, usize)> =
        (0..1000).map(|lane| (lanes[lane].poll_timeout().unwrap(), lane)).collect();
    let mut sent = vec![0; 400];
    while let Some((at, lane)) = queue.pop_first() {
        let second = usize::try_from((at - now).as_secs()).unwrap();
        if second >= sent.len() {
            break;
        }
        lanes[lane].handle_timeout(at, &mut Drops::default());
        sent[second] += std::iter::from_fn(|| lanes[lane].poll_transmit()).count();
        let due = lanes[lane].poll_timeout().unwrap();
        assert!(due > at, "a time-out at which nothing is due");
        queue.insert((due, lane));
    }
    // With what each says of itself, twice.
    assert!(sent[5..10].iter().all(|count| *count <= 101 + 20), "{sent:?}");
    assert!(sent[10..89].iter().all(|count| *count <= 21), "{sent:?}");
    assert!(sent[120..].iter().all(|count| *count <= 17), "{sent:?}");
}

#[test]
fn a_train_is_cut_into_frames_that_leave_as_a_train_and_come_in_as_one() {
    let mut end = End::to(VxlanKind::new("submariner", start()).backend_config());
    let mut bytes = Vec::new();
    let payload: Vec<u8> = (0..3000u32).map(|n| (n % 251) as u8).collect();
    PacketBuilder::ipv4([10, 1, 0, 1], [10, 2, 0, 2], 64)
        .tcp(1, 2, 3, 4)
        .write(&mut bytes, &payload)
        .unwrap();
    let mut train = end.packet(&bytes);
    train.layout = Layout::train(LayoutKind::Tcp, 40, 1000, 3);
    let sealed = end.seal(vec![train]);
    assert_eq!(sealed.len(), 1);
    let layout = sealed[0].layout;
    assert_eq!((layout.kind, layout.stride_bytes, layout.count), (LayoutKind::Datagrams, 1062, 3));
    let mut stream = Vec::new();
    for index in 0..3 {
        let (start, end) = sealed[0].segment_range(index);
        let (head, packet) = Head::parse(&sealed[0].bytes()[start..end]).unwrap();
        assert_eq!((head.protocol, head.source), (Protocol::Ipv4, OUR_MAC));
        assert!(trieste_packet::checksum::transport_is_valid(packet, 20));
        stream.extend_from_slice(&packet[40..]);
    }
    assert_eq!(stream, payload);
    assert_eq!(end.tunnel.stats(end.now).tx_packets, 3);

    let message = frame(PEER_MAC, OUR_MAC, Protocol::Ipv4, &inbound(&[7; 1000]));
    let mut received = end.packet(&message.repeat(3));
    let stride = u16::try_from(message.len()).unwrap();
    (received.layout, received.outer) = (Layout::datagrams(stride, 3), outer(PEER));
    let opened = end.open(vec![received]);
    assert_eq!((opened.len(), opened[0].segments()), (1, 3));
    assert_eq!(opened[0].layout.kind, LayoutKind::Packets);
    assert_eq!(&opened[0].bytes()[..1028], inbound(&[7; 1000]));
}

#[test]
fn addresses_that_make_no_vtep_of_their_own_are_refused() {
    let kind = VxlanKind::new("submariner", start());
    let remote = |address: &str| site(address, BTreeMap::new());
    assert_eq!(kind.identity(&remote("10.1.2.3")), kind.identity(&remote("172.1.2.3")));
    assert_ne!(kind.identity(&remote("10.1.2.3")), kind.identity(&remote("10.1.2.4")));
    let v6 = "fd00::1".parse::<IpAddr>().unwrap();
    assert!(matches!(kind.identity(&remote("fd00::1")), Err(CableError::NoVtep(ip)) if IpAddr::V6(ip) == v6));
    let mut config = LaneConfig::new(LaneId(1), CableId(1), None, BTreeMap::new());
    (config.local, config.remote) = (remote("10.1.2.3"), remote("172.1.2.3"));
    assert!(matches!(kind.connect(&config, start()).err(), Some(CableError::OwnVtep(_))));
}
