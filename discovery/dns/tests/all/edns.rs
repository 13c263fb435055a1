//! EDNS: sizes, versions, options.

use domain::base::iana::{OptRcode, Rcode};
use domain::base::message_builder::AdditionalBuilder;
use domain::base::{Message, Rtype, Ttl};
use trieste_dns::Transport;

use crate::fixture::{Reply, Server, query, query_with};

const DB: &str = "db.shop.svc.clusterset.local";

fn server() -> Server {
    let mut server = Server::new();
    server.import_headless("db");
    let addresses: Vec<_> = (0..100).map(|pod| format!("10.2.1.{pod}")).collect();
    let hosts: Vec<_> = addresses.iter().map(|address| ("", address.as_str())).collect();
    server.export_hosts("db", "east", &hosts);
    server
}

fn opt(additional: &mut AdditionalBuilder<Vec<u8>>, size: u16, version: u8) {
    additional
        .opt(|opt| {
            opt.set_udp_payload_size(size);
            opt.set_version(version);
            opt.push_raw_option(65_001.into(), 4, |target| {
                domain::dep::octseq::OctetsBuilder::append_slice(target, b"what")
            })
        })
        .unwrap();
}

fn ask(server: &Server, size: u16) -> Reply {
    server.send(&query_with(DB, Rtype::A, |additional| opt(additional, size, 0)), Transport::Udp).unwrap()
}

/// The size and code of a response's OPT record.
fn edns(reply: &Reply) -> Option<(u16, OptRcode)> {
    let message = Message::from_octets(&reply.bytes[..]).unwrap();
    message.opt().map(|opt| (opt.udp_payload_size(), message.opt_rcode()))
}

#[test]
fn an_answer_is_as_long_as_the_client_reads_and_1232_bytes_at_most() {
    let server = server();
    for (size, most) in
        [(0, 512), (511, 512), (512, 512), (700, 700), (1_232, 1_232), (4_096, 1_232), (u16::MAX, 1_232)]
    {
        let reply = ask(&server, size);
        assert!(reply.is_truncated && reply.bytes.len() <= most, "{size}: {}", reply.bytes.len());
        assert!(reply.bytes.len() > most - 16, "{size}: {} is less than fits", reply.bytes.len());
        assert_eq!(edns(&reply), Some((1_232, OptRcode::NOERROR)));
    }
}

#[test]
fn without_edns_there_is_none_in_the_response() {
    let reply = server().send(&query(DB, Rtype::A), Transport::Udp).unwrap();
    assert_eq!(edns(&reply), None);
}

#[test]
fn other_versions_are_bad() {
    let query = query_with(DB, Rtype::A, |additional| opt(additional, 1_232, 1));
    let reply = server().send(&query, Transport::Udp).unwrap();
    assert_eq!(edns(&reply), Some((1_232, OptRcode::BADVERS)));
    assert!(reply.answers.is_empty());
}

#[test]
fn a_second_opt_record_or_a_broken_one_is_malformed() {
    let server = server();
    let two = query_with(DB, Rtype::A, |additional| {
        opt(additional, 1_232, 0);
        opt(additional, 1_232, 0);
    });
    assert_eq!(server.send(&two, Transport::Udp).unwrap().rcode, Rcode::FORMERR);
    let named = query_with(DB, Rtype::A, |additional| {
        let name = domain::base::Name::vec_from_str("a").unwrap();
        let data = domain::base::opt::Opt::<Vec<u8>>::empty();
        additional.push((name, domain::base::iana::Class::IN, Ttl::ZERO, data)).unwrap();
    });
    assert_eq!(server.send(&named, Transport::Udp).unwrap().rcode, Rcode::FORMERR);
    let mut cut = query_with(DB, Rtype::A, |additional| opt(additional, 1_232, 0));
    cut.truncate(cut.len() - 1);
    assert_eq!(server.send(&cut, Transport::Udp).unwrap().rcode, Rcode::FORMERR);
}

#[test]
fn refusals_have_edns_too() {
    let query = query_with("example.com", Rtype::A, |additional| opt(additional, 1_232, 0));
    let reply = server().send(&query, Transport::Udp).unwrap();
    assert_eq!((reply.rcode, edns(&reply)), (Rcode::REFUSED, Some((1_232, OptRcode::REFUSED))));
}
