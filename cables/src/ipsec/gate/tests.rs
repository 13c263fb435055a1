//! One gate, an inbox, and whoever sends.

#![expect(clippy::disallowed_methods, reason = "a virtual clock has to start somewhere")]

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use crossbeam::channel::{Receiver, bounded};
use proptest::prelude::*;
use trieste_packet::{LaneId, Outer};

mod flood;
mod site;

use super::*;
use crate::ipsec::ike::Directory;
use crate::ipsec::wire::{self, Header, KeyExchange, Notify, NotifyKind, Payload};

const HONEST: &str = "192.0.2.7:4500";
/// Where a peer is.
const PEER: &str = "192.0.2.9";

/// Our SPI of an IKE SA, as the gate sees it.
const ESTABLISHED: u64 = 77;
/// Our SPI of what [`HONEST`] has begun.
const HALF_OPEN: u64 = 78;

struct Setting {
    gate: IpsecGate,
    peers: Receiver<Input>,
    inbox: Receiver<Input>,
    load: Arc<EngineLoad>,
    now: Instant,
}

impl Setting {
    fn new() -> Self {
        let ((strangers, inbox), (to_peers, peers)) = (bounded(1024), bounded(1024));
        let (load, now) = (Arc::new(EngineLoad::default()), Instant::now());
        load.directory.store(Arc::new(Directory::new(
            vec![ESTABLISHED],
            vec![(HALF_OPEN, outer(HONEST).peer.ip())],
            vec![PEER.parse().unwrap()],
        )));
        let inboxes = Inboxes { peers: to_peers, strangers };
        let shared = GateShared::new([7; 32].into(), inboxes, Arc::clone(&load));
        Self { gate: IpsecGate::new(shared, now), peers, inbox, load, now }
    }

    fn admit(&mut self, datagram: &[u8], from: &str) -> Admission {
        self.gate.admit(datagram, &outer(from), self.now)
    }

    /// Until cookies are asked for.
    fn use_up_the_second(&mut self) {
        for spi_i in 1..=LIMIT_PER_SECOND {
            assert_eq!(self.admit(&request(spi_i, None), "198.51.100.1:4500"), Admission::Taken);
        }
        self.inbox.try_iter().for_each(drop);
    }

    /// The cookie that a request is answered with.
    fn asked(&mut self, spi_i: u64, from: &str) -> Vec<u8> {
        let Admission::Reply(answer) = self.admit(&request(spi_i, None), from) else { panic!("no cookie") };
        cookie(&answer, spi_i)
    }
}

fn outer(from: &str) -> Outer {
    Outer { peer: from.parse().unwrap(), ..Outer::NONE }
}

/// An `IKE_SA_INIT` request with marker.
fn request(spi_i: u64, cookie: Option<&[u8]>) -> Vec<u8> {
    let header = Header {
        spi_i,
        spi_r: 0,
        exchange: Exchange::IkeSaInit,
        is_initiator: true,
        is_response: false,
        message_id: 0,
    };
    let mut payloads: Vec<Payload> =
        cookie.iter().map(|cookie| Payload::notify(NotifyKind::Cookie, cookie.to_vec())).collect();
    payloads.push(Payload::Ke(KeyExchange { group: 31, data: vec![1; 32] }));
    payloads.push(Payload::Nonce(spi_i.to_be_bytes().repeat(4)));
    [&MARKER, wire::emit(&header, &payloads).as_slice()].concat()
}

/// A request for the IKE SA of this SPI of ours.
fn message(exchange: Exchange, spi_r: u64) -> Vec<u8> {
    let header = Header::parse(&request(1, None)[4..]).unwrap().0;
    let header = Header { exchange, spi_r, message_id: 1, ..header };
    [&MARKER, wire::emit(&header, &[]).as_slice()].concat()
}

/// Of somebody else each time.
fn many(from: u32) -> Outer {
    Outer { peer: SocketAddr::from((Ipv4Addr::from(from), 4500)), ..Outer::NONE }
}

fn cookie(answer: &[u8], spi_i: u64) -> Vec<u8> {
    let message = wire::parse(&answer[4..]).unwrap();
    assert_eq!((message.header.spi_i, message.header.spi_r, message.header.message_id), (spi_i, 0, 0));
    assert!(message.header.is_response && !message.header.is_initiator);
    let [Payload::Notify(Notify { kind: NotifyKind::Cookie, data, .. })] = &message.payloads[..] else {
        panic!("a cookie and nothing else")
    };
    data.clone()
}

#[test]
fn messages_are_told_apart_by_their_first_bytes() {
    let mut gate = Setting::new().gate;
    assert_eq!(gate.classify(&[0xff], &Outer::NONE), Message::Keepalive);
    assert_eq!(gate.classify(&[0xff, 0, 1, 2], &Outer::NONE), Message::Data(LaneId(0xff_0001)));
    assert_eq!(gate.classify(&[0, 0, 0, 0, 9], &Outer::NONE), Message::Negotiation);
    assert_eq!(gate.classify(&[0, 0, 0], &Outer::NONE), Message::Unknown);
    assert_eq!(gate.classify(&[], &Outer::NONE), Message::Unknown);
}

#[test]
fn few_requests_pass_without_a_cookie() {
    let mut setting = Setting::new();
    setting.use_up_the_second();
    assert!(matches!(setting.admit(&request(1, None), HONEST), Admission::Reply(_)));
    setting.now += Duration::from_secs(1);
    assert_eq!(setting.admit(&request(1, None), HONEST), Admission::Taken);
    let Ok(Input::Datagram { message, from }) = setting.inbox.try_recv() else { panic!("a datagram") };
    assert_eq!((message, from), (request(1, None)[4..].to_vec(), outer(HONEST)));
}

#[test]
fn a_busy_slow_half_makes_the_gate_ask_for_cookies() {
    let mut setting = Setting::new();
    setting.load.half_open.store(HALF_OPEN_LIMIT, Ordering::Relaxed);
    let cookie = setting.asked(1, HONEST);
    assert_eq!(setting.admit(&request(1, Some(&cookie)), HONEST), Admission::Taken);
    setting.load.half_open.store(0, Ordering::Relaxed);
    let other = message(Exchange::IkeAuth, HALF_OPEN);
    for _ in 0..300 {
        assert_eq!(setting.admit(&other, HONEST), Admission::Taken);
    }
    assert!(matches!(setting.admit(&request(2, None), HONEST), Admission::Reply(_)), "the inbox fills");
    assert_eq!(setting.load.cookies_sent.load(Ordering::Relaxed), 2);
}

#[test]
fn a_cookie_is_good_for_its_request_its_address_and_a_minute_or_two() {
    let mut setting = Setting::new();
    setting.use_up_the_second();
    let cookie = setting.asked(1, HONEST);
    let mut wrong = cookie.clone();
    *wrong.last_mut().unwrap() ^= 1;
    for (spi_i, from, cookie) in [
        (2, HONEST, &cookie),
        (1, "192.0.2.8:4500", &cookie),
        (1, HONEST, &wrong),
        (1, HONEST, &cookie[..32].to_vec()),
        (1, HONEST, &vec![cookie[0]]),
    ] {
        let answer = setting.admit(&request(spi_i, Some(cookie)), from);
        assert!(matches!(answer, Admission::Reply(_)), "{spi_i} {from}: {answer:?}");
    }
    assert_eq!(
        setting.admit(&request(1, Some(&cookie)), "192.0.2.7:1025"),
        Admission::Taken,
        "ports may change"
    );
    setting.now += Duration::from_secs(60);
    assert_eq!(setting.admit(&request(1, Some(&cookie)), HONEST), Admission::Taken);
    setting.now += Duration::from_secs(60);
    assert!(
        matches!(setting.admit(&request(1, Some(&cookie)), HONEST), Admission::Reply(_)),
        "even if it is calm"
    );
}

#[test]
fn a_cookie_in_another_place_is_checked_too() {
    let mut setting = Setting::new();
    let mut message = wire::parse(&request(1, Some(&[1; 33]))[4..]).unwrap();
    message.payloads.rotate_left(1);
    let datagram = [&MARKER, wire::emit(&message.header, &message.payloads).as_slice()].concat();
    assert!(matches!(setting.admit(&datagram, HONEST), Admission::Reply(_)));
}

#[test]
fn all_workers_make_the_same_cookies_and_share_one_limit() {
    let mut setting = Setting::new();
    let mut other = IpsecGate::new(setting.gate.shared.clone(), setting.now);
    setting.now += Duration::from_secs(500);
    setting.use_up_the_second();
    let Admission::Reply(answer) = other.admit(&request(1, None), &outer(HONEST), setting.now) else {
        panic!("the other gate's requests count here too")
    };
    assert_eq!(setting.admit(&request(1, Some(&cookie(&answer, 1))), HONEST), Admission::Taken);
}

#[test]
fn who_owns_an_address_has_a_share_and_no_more() {
    let mut setting = Setting::new();
    setting.use_up_the_second();
    let mut passed = 0;
    for spi_i in 1..200 {
        // Addresses of one network are one source.
        let from = format!("[2001:db8::{spi_i:x}]:4500");
        let cookie = setting.asked(spi_i, &from);
        passed += u32::from(setting.admit(&request(spi_i, Some(&cookie)), &from) == Admission::Taken);
    }
    assert_eq!(passed, GREETINGS_PER_SECOND);
    let cookie = setting.asked(1, HONEST);
    assert_eq!(setting.admit(&request(1, Some(&cookie)), HONEST), Admission::Taken);
}

#[test]
fn what_cannot_be_answered_is_refused() {
    let mut setting = Setting::new();
    let refused = Admission::Refuse(DropReason::BadHandshake);
    let good = request(1, None);
    let changed = |at: usize, byte: u8| {
        let mut datagram = good.clone();
        datagram[at] = byte;
        datagram
    };
    assert_eq!(setting.admit(&good, "192.0.2.7:0"), refused, "raw ESP carries no IKE");
    assert_eq!(setting.admit(&request(0, None), HONEST), refused, "no SPI");
    assert_eq!(setting.admit(&changed(4 + 15, 1), HONEST), refused, "a responder's SPI in the first request");
    assert_eq!(setting.admit(&changed(4 + 23, 1), HONEST), refused, "not the first message");
    assert_eq!(setting.admit(&changed(4 + 19, 0), HONEST), refused, "not from the initiator");
    assert_eq!(setting.admit(&good[..good.len() - 1], HONEST), refused, "cut short");
    assert_eq!(setting.admit(&good[..3], HONEST), Admission::Refuse(DropReason::UnknownDatagram));
    assert!(setting.inbox.is_empty());
    assert_eq!(setting.load.gate_refused.load(Ordering::Relaxed), 6);
    assert_eq!(
        setting.admit(&changed(4 + 17, 0x30), HONEST),
        Admission::Taken,
        "of IKEv3: there is an answer"
    );
    setting.load.half_open.store(HALF_OPEN_LIMIT, Ordering::Relaxed);
    assert_eq!(setting.admit(&changed(4 + 17, 0x30), HONEST), refused, "but not in a flood");
}

#[test]
fn a_full_inbox_refuses_and_forgets() {
    let mut setting = Setting::new();
    let datagram = message(Exchange::Informational, ESTABLISHED);
    let mut taken = 0;
    for number in 0..2000u32 {
        let admission = setting.gate.admit(&datagram, &many(0x0a00_0000 + number), setting.now);
        taken += u32::from(admission == Admission::Taken);
    }
    assert_eq!((taken, setting.peers.len(), setting.inbox.len()), (1024, 1024, 0));
    let mut setting = Setting::new();
    for _ in 0..MESSAGES_PER_SECOND {
        assert_eq!(setting.admit(&datagram, HONEST), Admission::Taken);
    }
    assert_eq!(setting.admit(&datagram, HONEST), Admission::Refuse(DropReason::HandshakeLimit));
}

#[test]
fn what_strangers_send_takes_nothing_from_peers() {
    let mut setting = Setting::new();
    // For SPIs that nobody has, and for what another one has begun.
    for number in 0..200_000u32 {
        let spi = if number % 2 == 0 { u64::from(number) + 1000 } else { HALF_OPEN };
        let datagram = message(Exchange::IkeAuth, spi);
        let admission = setting.gate.admit(&datagram, &many(number), setting.now);
        assert_eq!(admission, Admission::Refuse(DropReason::UnknownReceiver));
        // In the name of whom it would harm most.
        let forged = message(Exchange::Informational, spi + 1000);
        let admission = setting.gate.admit(&forged, &outer(HONEST), setting.now);
        assert_eq!(admission, Admission::Refuse(DropReason::UnknownReceiver));
    }
    assert!(setting.inbox.is_empty() && setting.peers.is_empty());
    assert_eq!(setting.load.unknown_spi.load(Ordering::Relaxed), 400_000);
    // What one has begun itself is bounded by its own share, and is not among peers' messages.
    let begun = message(Exchange::IkeAuth, HALF_OPEN);
    let passed: u32 = (0..1000).map(|_| u32::from(setting.admit(&begun, HONEST) == Admission::Taken)).sum();
    assert_eq!(passed, MESSAGES_PER_SECOND);
    assert!(setting.peers.is_empty());
    let peers = message(Exchange::CreateChildSa, ESTABLISHED);
    assert_eq!(setting.admit(&peers, HONEST), Admission::Taken, "another share");
    assert_eq!(setting.peers.len(), 1);
}

#[test]
fn requests_with_right_cookies_are_few_in_a_second_and_peers_have_their_own() {
    let mut setting = Setting::new();
    setting.use_up_the_second();
    let mut passed = 0;
    for number in 0..4000u32 {
        // Of as many sites as there are requests: no source is above its share.
        let from = format!("[2001:db8:{number:x}::1]:4500");
        let cookie = setting.asked(u64::from(number) + 1, &from);
        let admission = setting.admit(&request(u64::from(number) + 1, Some(&cookie)), &from);
        passed += u64::from(admission == Admission::Taken);
    }
    assert_eq!(passed, PROVEN_PER_SECOND);
    let peer = format!("{PEER}:4500");
    let cookie = setting.asked(1, &peer);
    assert_eq!(setting.admit(&request(1, Some(&cookie)), &peer), Admission::Taken);
    let stranger = setting.asked(1, HONEST);
    assert_eq!(
        setting.admit(&request(1, Some(&stranger)), HONEST),
        Admission::Refuse(DropReason::HandshakeLimit)
    );
    setting.now += Duration::from_secs(1);
    assert_eq!(setting.admit(&request(1, Some(&stranger)), HONEST), Admission::Taken);
}

proptest! {
    #[test]
    fn an_answer_is_never_larger_than_what_it_answers(
        bytes in proptest::collection::vec(any::<u8>(), 0..120),
        nonce in proptest::collection::vec(any::<u8>(), 0..80),
    ) {
        let mut setting = Setting::new();
        setting.load.half_open.store(HALF_OPEN_LIMIT, Ordering::Relaxed);
        let header = Header::parse(&request(1, None)[4..]).unwrap().0;
        let short = [&MARKER, wire::emit(&header, &[Payload::Nonce(nonce)]).as_slice()].concat();
        let behind_marker = [&MARKER, bytes.as_slice()].concat();
        for datagram in [short, bytes, behind_marker] {
            if let Admission::Reply(answer) = setting.admit(&datagram, HONEST) {
                prop_assert!(answer.len() <= datagram.len());
            }
        }
    }
}
