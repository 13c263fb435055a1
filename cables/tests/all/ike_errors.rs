//! What strangers and the clumsy send to an engine, and what it answers.

use std::net::SocketAddr;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use trieste_cables::Site;
use trieste_cables::ipsec::ike::{IkeEngine, Input};
use trieste_cables::ipsec::wire::{Exchange, Header, NotifyKind, Payload, emit, parse};
use trieste_cables::ipsec::{TRIESTE, link};
use trieste_packet::{LaneId, Outer};
use trieste_simulator::Random;

use crate::ike::{Net, config, peer, site};

const SETTINGS: &[(&str, &str)] = &[(TRIESTE, "1")];

fn sites() -> (Site, Site) {
    (site("a", "10.0.0.1", &["10.1.0.0/16"], SETTINGS), site("b", "10.0.0.2", &["10.2.0.0/16"], SETTINGS))
}

fn at(site: &Site) -> SocketAddr {
    SocketAddr::new(site.private_ip, 4500)
}

/// A gateway that has begun, and one that waits; with the request that is under way.
fn begun() -> (Net, Vec<u8>) {
    let mut net = Net::new(1);
    net.add("10.0.0.1", config("secret"));
    net.add("10.0.0.2", config("secret"));
    let (here, there) = sites();
    net.connect(0, peer(1, &here, &there));
    net.connect(1, peer(2, &there, &here));
    let request = net.log[0].2.clone();
    (net, request)
}

/// Gives the second gateway a message of the first; returns what it says.
fn say(net: &mut Net, message: Vec<u8>) -> Vec<Vec<u8>> {
    let (here, there) = sites();
    let from = Outer { peer: at(&here), local: Some(there.private_ip), tos: 0 };
    let before = net.log.len();
    net.input(1, Input::Datagram { message, from });
    net.log[before..].iter().map(|(_, _, message)| message.clone()).collect()
}

fn notify(message: &[u8]) -> (NotifyKind, Vec<u8>) {
    let parsed = parse(message).expect("an answer in clear");
    let [Payload::Notify(notify)] = parsed.payloads.as_slice() else { panic!("{parsed:?}") };
    (notify.kind, notify.data.clone())
}

fn with_length(mut message: Vec<u8>) -> Vec<u8> {
    let length = u32::try_from(message.len()).expect("a short message");
    message[24..28].copy_from_slice(&length.to_be_bytes());
    message
}

/// Puts an unknown payload in front of all others.
fn with_unknown(request: &[u8], flags: u8) -> Vec<u8> {
    let mut message = request.to_vec();
    let first = std::mem::replace(&mut message[16], 200);
    message.splice(28..28, [first, flags, 0, 4]);
    with_length(message)
}

#[test]
fn unknown_payloads_are_skipped_unless_they_are_critical() {
    let (mut net, request) = begun();
    let answers = say(&mut net, with_unknown(&request, 0x80));
    assert_eq!(answers.len(), 1);
    assert_eq!(notify(&answers[0]), (NotifyKind::UnsupportedCriticalPayload, vec![200]));
    let answers = say(&mut net, with_unknown(&request, 0));
    assert!(parse(&answers[0]).is_ok_and(|answer| answer.payloads.len() > 3), "a whole answer");
}

#[test]
fn newer_versions_are_told_ours_and_nothing_else_is_answered() {
    let (mut net, request) = begun();
    let mut newer = request;
    newer[17] = 0x30;
    let answers = say(&mut net, newer.clone());
    assert_eq!(notify(&answers[0]), (NotifyKind::InvalidMajorVersion, vec![2]));
    assert!(answers[0].len() < newer.len(), "never more than was sent");
    newer[19] |= 0x20;
    assert!(say(&mut net, newer.clone()).is_empty(), "no answer to an answer");
    newer[17] = 0x10;
    assert!(say(&mut net, newer).is_empty(), "older versions are let be");
}

#[test]
fn malformed_requests_get_a_short_answer_or_none() {
    let (mut net, request) = begun();
    let header = Header::parse(&request).expect("a header").0;
    let nothing = emit(&header, &[]);
    assert_eq!(notify(&say(&mut net, nothing)[0]).0, NotifyKind::InvalidSyntax);
    let cut = with_length(request[..request.len() - 3].to_vec());
    assert_eq!(notify(&say(&mut net, cut)[0]).0, NotifyKind::InvalidSyntax);
    assert!(say(&mut net, request[..request.len() - 3].to_vec()).is_empty(), "its length is wrong");
    assert!(say(&mut net, Vec::new()).is_empty());
    let load = net.nodes[1].engine.load();
    assert_eq!(load.half_open.load(Ordering::Relaxed), 0);
}

#[test]
fn messages_for_ike_sas_that_are_not_there_are_not_answered() {
    let (mut net, request) = begun();
    let header = Header::parse(&request).expect("a header").0;
    for exchange in [Exchange::IkeAuth, Exchange::CreateChildSa, Exchange::Informational] {
        for is_response in [false, true] {
            let header = Header { spi_r: 77, exchange, is_response, message_id: 1, ..header };
            assert!(say(&mut net, emit(&header, &[])).is_empty());
        }
    }
    assert_eq!(net.nodes[1].engine.load().unknown_spi.load(Ordering::Relaxed), 6);
}

#[test]
fn the_same_request_gets_the_same_answer_and_another_one_of_its_spi_its_own() {
    let (mut net, request) = begun();
    let first = say(&mut net, request.clone());
    assert_eq!(say(&mut net, request.clone()), first);
    let mut parsed = parse(&request).expect("a request");
    parsed.payloads.push(Payload::VendorId(vec![1; 16]));
    let other = say(&mut net, emit(&parsed.header, &parsed.payloads));
    let spi = |message: &[u8]| Header::parse(message).expect("a header").0.spi_r;
    assert_ne!(spi(&other[0]), spi(&first[0]));
    assert_eq!(net.nodes[1].engine.load().half_open.load(Ordering::Relaxed), 2);
}

#[test]
fn refusals_that_nobody_vouches_for_end_nothing() {
    let (mut net, request) = begun();
    let header = Header::parse(&request).expect("a header").0;
    let header = Header { is_initiator: false, is_response: true, ..header };
    let (here, there) = sites();
    let from = Outer { peer: at(&there), local: Some(here.private_ip), tos: 0 };
    for kind in [NotifyKind::NoProposalChosen, NotifyKind::InvalidSyntax, NotifyKind::Other(9999)] {
        let message = emit(&header, &[Payload::notify(kind, Vec::new())]);
        net.input(0, Input::Datagram { message, from });
    }
    assert_eq!(net.nodes[0].report(net.now()).error.as_deref(), Some("notify 9999 (peer)"));
    net.run(Duration::from_millis(200));
    assert!(net.nodes.iter().all(|node| node.report(net.now()).is_up));
    assert_eq!(net.nodes[0].report(net.now()).error, None);
}

/// Somebody who sees our requests, answers faster than the peer, and does not know the secret.
struct Impostor {
    engine: IkeEngine,
    seen: usize,
}

impl Impostor {
    fn new(now: Instant) -> Self {
        let mut engine = IkeEngine::new(config("a guess"), Box::new(Random::new(99).stream()), now);
        let (here, there) = sites();
        let mut cable = peer(3, &there, &here);
        cable.address = None;
        let (to_lane, _, news) = link::link(LaneId(3));
        engine.handle_input(Input::Connect(Box::new(cable), to_lane, news), now);
        Self { engine, seen: 0 }
    }

    /// Answers all that the first gateway has sent since last time.
    fn meddle(&mut self, net: &mut Net) {
        let (here, there) = sites();
        let sent: Vec<_> = net.log[self.seen..].to_vec();
        self.seen = net.log.len();
        let from = Outer { peer: at(&here), local: Some(there.private_ip), tos: 0 };
        for (_, _, message) in sent.into_iter().filter(|(_, sender, _)| *sender == at(&here)) {
            self.engine.handle_input(Input::Datagram { message, from }, net.now());
        }
        let back = Outer { peer: at(&there), local: Some(here.private_ip), tos: 0 };
        while let Some(transmit) = self.engine.poll_transmit() {
            net.input(0, Input::Datagram { message: transmit.payload[4..].to_vec(), from: back });
        }
    }
}

#[test]
fn an_impostor_that_answers_first_delays_nothing() {
    let (mut net, _) = begun();
    let mut impostor = Impostor::new(net.now());
    impostor.meddle(&mut net);
    let report = net.nodes[0].report(net.now());
    assert_eq!(report.ikes[0].state, "authenticating", "it was faster than the peer");
    net.run(Duration::from_millis(200));
    assert!(net.nodes.iter().all(|node| node.report(net.now()).is_up));
    assert_eq!(net.nodes[0].report(net.now()).ikes.len(), 1);
}

#[test]
fn an_impostor_that_refuses_what_it_cannot_prove_ends_nothing() {
    let (mut net, _) = begun();
    let mut impostor = Impostor::new(net.now());
    impostor.meddle(&mut net);
    // The peer's answer is there, and ours to it under way.
    net.run(Duration::from_millis(11));
    impostor.meddle(&mut net);
    net.run(Duration::from_millis(200));
    assert!(
        net.nodes.iter().all(|node| node.report(net.now()).is_up),
        "{:#?}",
        net.nodes[0].report(net.now())
    );
}
