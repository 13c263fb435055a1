//! The DNS front: queries as datagrams and as pieces of a stream, between changes of the records.
//!
//! Input: steps of a kind byte each. No answer is longer than the client reads, all have the query's number and are
//! responses, and a stream holds no more than a message and its answers.

use std::time::{Duration, Instant};

use trieste_dns::{
    Change, ClusterState, Endpoint, Import, Label, Outcome, Port, Protocol, Records, ServiceKind,
    ServiceName, Settings, Slice, Stream, StreamTimes, Transport, Writer, Zone, answer,
};

use super::Reader;

/// The most that a datagram may have, and without EDNS.
const UDP_BYTES: usize = 1_232;
const UDP_BYTES_WITHOUT_EDNS: usize = 512;
/// What a stream may hold: a message, its answers, and the last of them.
const STREAM_BYTES: usize = 1 << 19;

pub(super) fn target(data: &[u8]) {
    let mut reader = Reader::new(data);
    let zones =
        vec![Zone::new("clusterset.local").expect("a zone"), Zone::new("example.org").expect("a zone")];
    let mut settings = Settings::new(zones, 5).expect("settings");
    settings.networks =
        ["243.0.0.0/20", "fd00:243::/48"].map(|network| network.parse().expect("a network")).to_vec();
    let (mut writer, records) = Writer::new(label("west"));
    let mut now = Instant::now();
    let mut stream = Stream::new(StreamTimes::default(), now);
    let mut reply = Vec::new();
    while !reader.is_empty() {
        match reader.byte() % 8 {
            0 => now += Duration::from_millis(reader.u16().into()),
            1 => change(&mut writer, reader.byte()),
            2..=4 => {
                let length = usize::from(reader.u16()) % (UDP_BYTES + 1);
                let query = reader.take(length);
                let outcome = answer(query, Transport::Udp, &records, &settings, &mut reply);
                check(query, outcome, &reply, UDP_BYTES);
            }
            5 => {
                let written = usize::from(reader.u16());
                stream.handle_written(written, now);
                pass(&mut stream, &records, &settings, now);
            }
            _ => {
                let length = usize::from(reader.u16()) % 4_096;
                if stream.wants_input() {
                    stream.handle_input(reader.take(length), now);
                }
                pass(&mut stream, &records, &settings, now);
            }
        }
        stream.handle_timeout(false, now);
        assert!(stream.held() <= STREAM_BYTES, "{} bytes", stream.held());
        assert!(stream.end().is_some() || stream.poll_timeout(false) > now);
    }
}

fn pass(stream: &mut Stream, records: &Records, settings: &Settings, now: Instant) {
    stream.answer(now, |query, reply| {
        let outcome = answer(query, Transport::Tcp, records, settings, reply);
        check(query, outcome, reply, usize::from(u16::MAX));
        matches!(outcome, Outcome::Reply(_))
    });
}

/// Checks what holds for every answer.
fn check(query: &[u8], outcome: Outcome, reply: &[u8], most: usize) {
    match outcome {
        Outcome::Drop(_) => assert!(query.len() < 12 || query[2] & 0x80 != 0, "a query without an answer"),
        Outcome::Reply(summary) => {
            assert!((12..=most).contains(&reply.len()), "{} bytes", reply.len());
            assert_eq!(reply[..2], query[..2], "another query's number");
            assert!(reply[2] & 0x80 != 0, "no response");
            assert!(summary.is_truncated || reply[2] & 2 == 0);
            // Without additional records there is no EDNS.
            let has_edns = query[10..12] != [0, 0];
            assert!(has_edns || most > UDP_BYTES || reply.len() <= UDP_BYTES_WITHOUT_EDNS);
        }
    }
}

/// Changes the records: bits choose what.
fn change(writer: &mut Writer, bits: u8) {
    let cluster = label(["west", "east", "south", "tcp"][usize::from(bits & 3)]);
    let service = ServiceName::parse("shop", if bits & 4 == 0 { "web" } else { "db" }).expect("a service");
    let kind = if bits & 4 == 0 { ServiceKind::ClusterSetIp } else { ServiceKind::Headless };
    let change = match bits >> 5 {
        0 => Change::ImportRemoved(service),
        1 => {
            let ips = [(8, "243.0.0.9"), (16, "fd00:243::9")].into_iter().filter(|(bit, _)| bits & bit != 0);
            let ips = ips.map(|(_, ip)| ip.parse().expect("an address")).collect();
            Change::Import(service, Import { kind, ips, ..Import::default() })
        }
        2 => Change::Import(
            service,
            Import { kind, routing: "nearest".parse().expect("a word"), ..Import::default() },
        ),
        3 => Change::SliceRemoved(service, cluster, "s".into()),
        4 => Change::Cluster(cluster, Some(ClusterState { is_up: bits & 8 == 0, rtt: None })),
        5 => Change::Synced,
        _ => Change::Slice(service, cluster, "s".into(), slice(bits)),
    };
    writer.apply(change).expect("within all bounds");
}

fn slice(bits: u8) -> Slice {
    let pods = if bits & 8 == 0 { 2 } else { 120 };
    let endpoint = |pod: u8| Endpoint {
        addresses: vec![[10, 2, 0, pod].into(), [0xfd02, 0, 0, 0, 0, 0, 0, pod.into()].into()],
        host: (!pod.is_multiple_of(3)).then(|| label(&format!("db-{pod}"))),
        is_ready: !pod.is_multiple_of(5) || bits & 16 == 0,
    };
    let port = |name, number, protocol| Port { name: Some(label(name)), protocol, number };
    Slice {
        endpoints: (0..pods).map(endpoint).collect(),
        ports: vec![port("http", 80, Protocol::Tcp), port("dns", 53, Protocol::Udp)],
        publishes_not_ready: false,
    }
}

fn label(text: &str) -> Label {
    Label::new(text).expect("a label")
}
