//! Headers, codes and sizes.

use domain::base::iana::{Class, Opcode, Rcode};
use domain::base::{Header, Message, MessageBuilder, Name, Rtype};
use trieste_dns::{Outcome, Transport, answer};

use crate::fixture::{Server, query};

const WEB: &str = "web.shop.svc.clusterset.local";

fn server() -> Server {
    let mut server = Server::new();
    server.import("web");
    server.export("web", "east", &["10.2.0.1"], true);
    server
}

fn headless(pods: u8) -> Server {
    let mut server = Server::new();
    server.import_headless("db");
    let texts: Vec<_> = (0..pods).map(|pod| (format!("db-{pod}"), format!("10.2.1.{pod}"))).collect();
    let hosts: Vec<_> = texts.iter().map(|(host, address)| (host.as_str(), address.as_str())).collect();
    server.export_hosts("db", "east", &hosts);
    server
}

/// A query with a changed header.
fn changed(change: impl FnOnce(&mut Header)) -> Vec<u8> {
    let mut query = query(WEB, Rtype::A);
    change(Header::for_message_slice_mut(&mut query));
    query
}

#[test]
fn header_bits_are_copied_or_set() {
    let server = server();
    for (rd, cd) in [(false, false), (true, false), (false, true)] {
        let query = changed(|header| {
            header.set_rd(rd);
            header.set_cd(cd);
            header.set_ad(true);
            header.set_tc(true);
        });
        let reply = server.send(&query, Transport::Udp).unwrap();
        let header = Message::from_octets(&reply.bytes[..]).unwrap().header();
        assert_eq!(
            (header.id(), header.rd(), header.cd(), header.aa(), header.tc()),
            (7, rd, cd, true, false)
        );
    }
}

#[test]
fn responses_get_no_answer() {
    assert_eq!(server().send(&changed(|header| header.set_qr(true)), Transport::Udp), None);
    assert_eq!(server().send(&[0; 11], Transport::Udp), None);
    assert_eq!(server().send(&[], Transport::Tcp), None);
}

#[test]
fn other_operations_are_not_implemented() {
    for opcode in [Opcode::IQUERY, Opcode::STATUS, Opcode::NOTIFY, Opcode::UPDATE, Opcode::from_int(15)] {
        let reply = server().send(&changed(|header| header.set_opcode(opcode)), Transport::Udp).unwrap();
        assert_eq!(reply.rcode, Rcode::NOTIMP);
        assert_eq!(reply.bytes.len(), 12);
        assert_eq!(Message::from_octets(&reply.bytes[..]).unwrap().header().opcode(), opcode);
    }
}

#[test]
fn what_is_no_single_question_is_malformed() {
    let server = server();
    let code = |query: &[u8]| server.send(query, Transport::Udp).unwrap().rcode;
    let mut two = MessageBuilder::new_vec().question();
    for _ in 0..2 {
        two.push((Name::vec_from_str(WEB).unwrap(), Rtype::A)).unwrap();
    }
    assert_eq!(code(&two.finish()), Rcode::FORMERR);
    assert_eq!(code(&MessageBuilder::new_vec().finish()), Rcode::FORMERR, "no question");
    let whole = query(WEB, Rtype::A);
    for length in 12..whole.len() {
        assert_eq!(code(&whole[..length]), Rcode::FORMERR, "cut at {length}");
    }
    let mut missing = whole;
    missing[11] = 1;
    assert_eq!(code(&missing), Rcode::FORMERR, "an additional record that is not there");
}

#[test]
fn names_that_go_in_circles_are_malformed() {
    let server = server();
    for name in [&b"\xc0\x0c"[..], b"\xc0\x0e\xc0\x0c", b"\x01a\xc0\x0c", b"\xc0\xff", b"\x80", b"\x40"] {
        let query = [&[0, 7, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0][..], name, &[0, 1, 0, 1]].concat();
        let reply = server.send(&query, Transport::Udp).unwrap();
        assert_eq!((reply.rcode, reply.bytes.len()), (Rcode::FORMERR, 12), "{name:?}");
    }
}

#[test]
fn a_name_of_255_bytes_is_answered() {
    let server = server();
    let labels = ["a".repeat(63), "b".repeat(63), "c".repeat(63), "d".repeat(31)].join(".");
    let longest = format!("{labels}.web.shop.svc.clusterset.local");
    assert_eq!(Name::vec_from_str(&longest).unwrap().len(), 255);
    let reply = server.send(&query(&longest, Rtype::A), Transport::Udp).unwrap();
    assert_eq!((reply.rcode, reply.authorities.len()), (Rcode::NXDOMAIN, 1));
    assert!(reply.bytes.len() <= 512);
}

#[test]
fn other_zones_classes_and_transfers_are_refused() {
    let server = server();
    for question in ["example.com", "local", ".", "xclusterset.local", "1.0.0.10.in-addr.arpa"] {
        let reply = server.ask(question, Rtype::A);
        assert_eq!((reply.rcode, reply.is_authoritative), (Rcode::REFUSED, false), "{question}");
    }
    for rtype in [Rtype::AXFR, Rtype::IXFR] {
        assert_eq!(server.ask("clusterset.local", rtype).rcode, Rcode::REFUSED);
    }
    let mut chaos = MessageBuilder::new_vec().question();
    chaos.push((Name::vec_from_str("version.bind").unwrap(), Rtype::TXT, Class::CH)).unwrap();
    assert_eq!(server.send(&chaos.finish(), Transport::Udp).unwrap().rcode, Rcode::REFUSED);
}

#[test]
fn a_question_for_anything_gets_as_little_as_possible() {
    let reply =
        headless(200).send(&query("db.shop.svc.clusterset.local", Rtype::ANY), Transport::Udp).unwrap();
    assert_eq!(reply.answers.len(), 1);
    assert!(reply.answers[0].contains(" HINFO "), "{reply:?}");
    assert!(!reply.is_truncated && reply.bytes.len() < 100);
}

#[test]
fn over_udp_what_does_not_fit_is_left_out_and_said() {
    let server = headless(100);
    let question = query("db.shop.svc.clusterset.local", Rtype::A);
    let udp = server.send(&question, Transport::Udp).unwrap();
    assert!(udp.is_truncated && udp.bytes.len() <= 512, "{}", udp.bytes.len());
    assert_eq!(udp.answers.len(), 29, "whole records, for clients that do not ask again");
    let tcp = server.send(&question, Transport::Tcp).unwrap();
    assert_eq!((tcp.is_truncated, tcp.answers.len()), (false, 100));
}

#[test]
fn over_tcp_an_answer_ends_at_64_kib() {
    let mut server = Server::new();
    server.import_headless("db");
    for slice in 0..9_u16 {
        let endpoints = (0..1_000_u16).map(|pod| trieste_dns::Endpoint {
            addresses: vec![std::net::IpAddr::from([
                10,
                2,
                slice.to_be_bytes()[1] * 4 + pod.to_be_bytes()[0],
                pod.to_be_bytes()[1],
            ])],
            host: None,
            is_ready: true,
        });
        let slice_of_pods = trieste_dns::Slice { endpoints: endpoints.collect(), ..Default::default() };
        let name = crate::fixture::name("db");
        let id = crate::fixture::label("east");
        server.apply(trieste_dns::Change::Slice(name, id, slice.to_string().into(), slice_of_pods));
    }
    let reply = server.ask("db.shop.svc.clusterset.local", Rtype::A);
    assert!(reply.answers.len() > 4_000 && reply.bytes.len() <= 65_535, "{}", reply.answers.len());
    assert!(!reply.is_truncated, "there is nowhere else to ask");
}

#[test]
fn addresses_beside_ports_are_left_out_first() {
    let server = headless(6);
    let question = "_http._tcp.db.shop.svc.clusterset.local";
    let udp = server.send(&query(question, Rtype::SRV), Transport::Udp).unwrap();
    assert!(!udp.is_truncated && udp.answers.len() == 6, "{udp:?}");
    assert!(udp.additional.len() < 6 && udp.bytes.len() <= 512);
    assert_eq!(server.ask(question, Rtype::SRV).additional.len(), 6);
}

#[test]
fn a_reply_buffer_is_used_again() {
    let server = server();
    let mut reply = Vec::with_capacity(65_535);
    let first = reply.as_ptr();
    for question in [WEB, "x.example.com", "clusterset.local"] {
        let query = query(question, Rtype::A);
        let outcome = answer(&query, Transport::Tcp, &server.records, &server.settings, &mut reply);
        assert!(matches!(outcome, Outcome::Reply(_)));
        assert_eq!(reply.as_ptr(), first, "nothing was allocated");
    }
}
