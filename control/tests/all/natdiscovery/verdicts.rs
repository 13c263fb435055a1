//! Answers to requests.

use trieste_control::natdiscovery::respond::{MAX_NAME, respond};

use super::*;

fn verdict(request: &Request, from: SocketAddr) -> (ResponseType, [bool; 3]) {
    let response = respond(request, &local(), from);
    assert_eq!(response.request_number, request.request_number);
    assert_eq!(response.sender, Some(details("a")));
    assert_eq!(response.received_src, Some(from.into()));
    let flags = [response.src_ip_nat_detected, response.src_port_nat_detected, response.dst_ip_nat_detected];
    (response.response(), flags)
}

#[test]
fn an_unchanged_request_is_ok() {
    assert_eq!(verdict(&request(), at(PRIVATE)), (ResponseType::Ok, [false; 3]));
    assert_eq!(respond(&request(), &local(), at(PRIVATE)).receiver, Some(details("b")));
}

#[test]
fn a_request_without_one_of_its_parts_is_malformed() {
    let whole = request();
    let without = [
        Request { sender: None, ..whole.clone() },
        Request { receiver: None, ..whole.clone() },
        Request { using_src: None, ..whole.clone() },
        Request { using_dst: None, ..whole.clone() },
        // The parts come first: it would be for another cluster.
        Request { using_dst: None, receiver: Some(details("c")), ..whole },
    ];
    for request in without {
        assert_eq!(verdict(&request, at("203.0.113.1")), (ResponseType::Malformed, [false; 3]));
        assert_eq!(respond(&request, &local(), at(PRIVATE)).receiver, request.sender);
    }
}

#[test]
fn a_request_for_another_cluster_or_cable_is_told_so_and_nothing_else() {
    let other_cable = EndpointDetails { endpoint_id: cable("old"), ..details("a") };
    let other_cluster = EndpointDetails { cluster_id: "c".to_owned(), endpoint_id: cable("old") };
    let to = |receiver| Request { receiver: Some(receiver), ..request() };
    assert_eq!(verdict(&to(other_cluster), at(PUBLIC)), (ResponseType::UnknownDstCluster, [false; 3]));
    assert_eq!(verdict(&to(other_cable), at(PUBLIC)), (ResponseType::UnknownDstEndpoint, [false; 3]));
}

#[test]
fn every_change_on_the_way_is_seen() {
    let whole = request();
    let nat = ResponseType::NatDetected;
    assert_eq!(verdict(&whole, at(PUBLIC)), (nat, [true, false, false]));
    let other_port = SocketAddr::new(ip(PRIVATE), 61_000);
    assert_eq!(verdict(&whole, other_port), (nat, [false, true, false]));
    let to_public = Request { using_dst: Some(pair("198.51.100.1", 4490)), ..whole.clone() };
    assert_eq!(verdict(&to_public, at(PRIVATE)), (nat, [false, false, true]));
    assert_eq!(verdict(&to_public, SocketAddr::new(ip(PUBLIC), 1)), (nat, [true; 3]));
    let silent = Request { using_src: Some(pair("", 4490)), ..whole.clone() };
    assert_eq!(verdict(&silent, at(PUBLIC)), (ResponseType::Ok, [false; 3]), "no address is no claim");
    let empty = Request { using_dst: Some(pair("", 4490)), ..whole.clone() };
    assert_eq!(verdict(&empty, at(PRIVATE)), (nat, [false, false, true]));
    let nonsense = Request { using_src: Some(pair("what", 4490 + 65_536)), ..whole };
    assert_eq!(verdict(&nonsense, at(PRIVATE)), (nat, [true, true, false]));
}

#[test]
fn ipv6_addresses_are_compared_as_addresses() {
    let request = Request {
        using_src: Some(pair("FD00:0::0B", 4490)),
        using_dst: Some(pair("fd00:0:0::a", 4490)),
        ..request()
    };
    assert_eq!(verdict(&request, at("fd00::b")), (ResponseType::Ok, [false; 3]));
    assert_eq!(verdict(&request, at("fd00::c")), (ResponseType::NatDetected, [true, false, false]));
    let mapped = verdict(&super::request(), at(&format!("::ffff:{PRIVATE}")));
    assert_eq!(mapped.0, ResponseType::Ok, "an IPv4 address in IPv6 clothes is the same");
}

#[test]
fn an_answer_goes_back_from_the_address_that_was_asked_to_where_it_came_from() {
    let mut bench = Bench::new();
    let from = SocketAddr::new(ip("203.0.113.9"), 1024);
    let payload = message::emit(Body::Request(request()));
    // No peer is known, and nobody knows whether we lead: it is answered all the same.
    let outcome = bench.machine.handle_datagram(&payload, from, Some(ip("192.0.2.77")), bench.now);
    assert_eq!(outcome, Outcome::AnsweredNat);
    let expected = Body::Response(respond(&request(), &local(), from));
    let payload = message::emit(expected);
    assert_eq!(bench.sent(), [Transmit { to: from, from: Some(ip("192.0.2.77")), payload }]);
}

#[test]
fn what_cannot_be_answered_is_not() {
    let mut bench = Bench::new();
    let payload = message::emit(Body::Request(request()));
    let sources =
        ["0.0.0.0:4490", "224.0.0.1:4490", "255.255.255.255:4490", "192.0.2.1:0", "[ff02::1]:4490", "[::]:1"];
    for source in sources {
        let outcome = bench.machine.handle_datagram(&payload, source.parse().unwrap(), None, bench.now);
        assert_eq!(outcome, Outcome::Unanswerable, "{source}");
    }
    assert_eq!(bench.sent(), []);
}

#[test]
fn names_that_are_too_long_are_not_echoed() {
    let long = EndpointDetails { endpoint_id: "x".repeat(MAX_NAME + 1), ..details("b") };
    let request = Request { sender: Some(long), ..request() };
    let response = respond(&request, &local(), at(PRIVATE));
    assert_eq!((response.response(), response.receiver.clone()), (ResponseType::Malformed, None));
    assert!(message::emit(Body::Response(response)).len() < 120);
}

#[test]
fn a_flood_is_answered_within_limits_and_a_peer_s_share_is_its_own() {
    let mut bench = Bench::new();
    bench.add(remote());
    bench.sent();
    let payload = message::emit(Body::Request(request()));
    let mut answers = 0;
    for n in 0..20_000_u32 {
        let from = SocketAddr::new(IpAddr::from((0x0a00_0000 + n).to_be_bytes()), PORT);
        bench.machine.handle_datagram(&payload, from, None, bench.now);
        answers += bench.sent().len();
    }
    assert_eq!(answers, 200);
    assert_eq!(bench.machine.counters().received(Outcome::Limited), 19_800);
    for _ in 0..20 {
        let outcome = bench.machine.handle_datagram(&payload, at(PRIVATE), None, bench.now);
        assert_eq!(outcome, Outcome::AnsweredOk);
    }
    let outcome = bench.machine.handle_datagram(&payload, at(PRIVATE), None, bench.now);
    assert_eq!(outcome, Outcome::Limited, "but that is bounded too");
}

#[test]
fn malformed_requests_are_answered_less_often_and_strangers_not_at_all() {
    let mut bench = Bench::new();
    bench.add(remote());
    bench.sent();
    let payload = message::emit(Body::Request(Request { using_src: None, ..request() }));
    for n in 0..100 {
        let outcome = bench.machine.handle_datagram(&payload, at(PRIVATE), None, bench.now);
        let expected = if n < 4 { Outcome::AnsweredMalformed } else { Outcome::Limited };
        assert_eq!(outcome, expected);
    }
    assert_eq!(bench.sent().len(), 4);
    let stranger = SocketAddr::from(([198, 51, 100, 7], PORT));
    let outcome = bench.machine.handle_datagram(&payload, stranger, None, bench.now);
    assert_eq!((outcome, bench.sent().len()), (Outcome::MalformedByStranger, 0));
}

#[test]
fn answers_that_nobody_fetches_do_not_pile_up() {
    let mut bench = Bench::new();
    let payload = message::emit(Body::Request(request()));
    for n in 0..10_000_u32 {
        let from = SocketAddr::new(IpAddr::from((0x0a00_0000 + n).to_be_bytes()), PORT);
        bench.advance(Duration::from_millis(5));
        bench.machine.handle_datagram(&payload, from, None, bench.now);
    }
    assert_eq!(bench.sent().len(), 256);
    assert_eq!(bench.machine.counters().overflow, 10_000 - 256);
}
