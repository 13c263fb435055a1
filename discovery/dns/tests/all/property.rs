//! Laws that hold for every query.

use std::sync::LazyLock;

use domain::base::Rtype;
use proptest::prelude::*;
use trieste_dns::{Outcome, Transport, answer};

use crate::fixture::{Server, parse, query_with};

/// Made once: no law changes it.
static SERVER: LazyLock<Server> = LazyLock::new(server);

fn server() -> Server {
    let mut server = Server::new();
    server.import("web");
    server.export("web", "east", &["10.2.0.1", "fd02::1"], true);
    server.import_headless("db");
    let texts: Vec<_> = (0..60).map(|pod| (format!("db-{pod}"), format!("10.2.1.{pod}"))).collect();
    let hosts: Vec<_> = texts.iter().map(|(host, address)| (host.as_str(), address.as_str())).collect();
    server.export_hosts("db", "east", &hosts);
    server
}

/// Asks, and checks what holds for every answer.
fn check(server: &Server, query: &[u8], most: usize) {
    for (transport, most) in [(Transport::Udp, most), (Transport::Tcp, 65_535)] {
        let mut reply = Vec::new();
        match answer(query, transport, &server.records, &server.settings, &mut reply) {
            Outcome::Reply(summary) => {
                assert!(reply.len() <= most, "{} bytes, {most} are allowed", reply.len());
                let parsed = parse(&reply);
                assert_eq!(reply[..2], query[..2], "the query's number");
                assert!(!parsed.is_truncated || summary.is_truncated);
            }
            Outcome::Drop(_) => assert!(query.len() < 12 || query[2] & 0x80 != 0),
        }
    }
}

fn label() -> impl Strategy<Value = String> {
    prop_oneof![
        Just("web".to_owned()),
        Just("db".to_owned()),
        Just("shop".to_owned()),
        Just("svc".to_owned()),
        Just("east".to_owned()),
        Just("_tcp".to_owned()),
        Just("_http".to_owned()),
        Just("db-7".to_owned()),
        Just("243".to_owned()),
        Just("in-addr".to_owned()),
        Just("arpa".to_owned()),
        "[a-zA-Z0-9_-]{1,20}",
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn any_bytes_are_survived(bytes in proptest::collection::vec(any::<u8>(), 0..600)) {
        check(&SERVER, &bytes, 1_232);
    }

    #[test]
    fn any_name_is_answered_within_what_was_asked(
        labels in proptest::collection::vec(label(), 0..8),
        in_zone in any::<bool>(),
        rtype in prop_oneof![Just(1_u16), Just(28), Just(33), Just(255), Just(12), any::<u16>()],
        size in proptest::option::of(any::<u16>()),
    ) {
        let zone = if in_zone { ".clusterset.local" } else { "" };
        let question = format!("{}{zone}.", labels.join("."));
        let question = if question == "." { "." } else { question.trim_start_matches('.') };
        let query = query_with(question, Rtype::from_int(rtype), |additional| {
            if let Some(size) = size {
                additional.opt(|opt| { opt.set_udp_payload_size(size); Ok(()) }).unwrap();
            }
        });
        check(&SERVER, &query, usize::from(size.unwrap_or(0).clamp(512, 1_232)));
    }

    #[test]
    fn a_changed_byte_is_survived(at in 0_usize..80, byte in any::<u8>(), cut in 0_usize..80) {
        let mut query = query_with("_http._tcp.db.shop.svc.clusterset.local", Rtype::SRV, |additional| {
            additional.opt(|opt| { opt.set_udp_payload_size(1_232); Ok(()) }).unwrap();
        });
        let length = query.len();
        query[at % length] = byte;
        query.truncate(length - cut % 4);
        check(&SERVER, &query, 1_232);
    }
}
