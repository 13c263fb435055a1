//! Bytes.

use proptest::prelude::*;
use trieste_control::natdiscovery::MAX_DATAGRAM;
use trieste_control::natdiscovery::message::{ParseError, emit, parse};
use trieste_control::natdiscovery::respond::respond;

use super::*;

const RECORDED: &str = include_str!("../../data/natdiscovery/recorded.txt");

fn recorded() -> Vec<(IpAddr, IpAddr, Vec<u8>)> {
    let lines = RECORDED.lines().filter(|line| !line.starts_with('#'));
    let read = |line: &str| {
        let [from, to, hex] = line.split(' ').collect::<Vec<_>>()[..] else { panic!("{line}") };
        let bytes = (0..hex.len()).step_by(2).map(|n| u8::from_str_radix(&hex[n..n + 2], 16).unwrap());
        (ip(from), ip(to), bytes.collect())
    };
    lines.map(read).collect()
}

fn recorded_local(cluster: &str) -> Local {
    let address = if cluster == "cluster-a" { "172.31.1.11" } else { "172.31.2.11" };
    Local {
        cluster_id: cluster.to_owned(),
        cable_name: format!("submariner-cable-{cluster}-{}", address.replace('.', "-")),
        private_ips: vec![ip(address)],
        port: PORT,
    }
}

#[test]
fn every_recorded_datagram_is_read_and_written_byte_for_byte() {
    let recorded = recorded();
    assert_eq!(recorded.len(), 8);
    for (_, _, bytes) in recorded {
        assert_eq!(emit(parse(&bytes).unwrap()), bytes);
    }
}

#[test]
fn the_recorded_requests_get_the_recorded_responses() {
    let recorded = recorded();
    let bodies: Vec<_> = recorded.iter().map(|(_, _, bytes)| parse(bytes).unwrap()).collect();
    let mut answered = 0;
    for ((from, _, _), body) in recorded.iter().zip(&bodies) {
        let Body::Request(request) = body else { continue };
        let local = recorded_local(&request.receiver.as_ref().unwrap().cluster_id);
        let response = Body::Response(respond(request, &local, SocketAddr::new(*from, PORT)));
        assert!(recorded.iter().any(|(_, _, bytes)| *bytes == emit(response.clone())), "{response:?}");
        answered += 1;
    }
    assert_eq!(answered, 4);
}

#[test]
fn a_machine_sends_the_recorded_requests_but_for_the_number() {
    for (local, remote) in [("cluster-a", "cluster-b"), ("cluster-b", "cluster-a")] {
        let (local, remote) = (recorded_local(local), recorded_local(remote));
        let own = local.private_ips[0];
        let wanted: Vec<_> =
            recorded().into_iter().filter(|(from, _, bytes)| *from == own && bytes[0] == 8).collect();
        let mut machine = Machine::new(local, [1; 32], Memory::default());
        let now = Instant::now();
        let address = Some(remote.private_ips[0]);
        let remote = Remote {
            cluster_id: remote.cluster_id,
            cable_name: remote.cable_name,
            private_ip: address,
            public_ip: address,
            ..super::remote()
        };
        machine.add(remote, now).unwrap();
        machine.handle_timeout(now);
        for (_, to, bytes) in wanted {
            let transmit = machine.poll_transmit(|_| Some(own)).unwrap();
            let (Body::Request(ours), Body::Request(theirs)) =
                (parse(&transmit.payload).unwrap(), parse(&bytes).unwrap())
            else {
                panic!("not a request");
            };
            let renumbered = Request { request_number: theirs.request_number, ..ours };
            assert_eq!((transmit.to.ip(), emit(Body::Request(renumbered))), (to, bytes));
        }
        assert_eq!(machine.poll_transmit(|_| Some(own)), None);
    }
}

#[test]
fn every_type_of_response_has_its_bytes() {
    let verdicts = [
        (ResponseType::Ok, &b""[..]),
        (ResponseType::NatDetected, b"\x10\x01"),
        (ResponseType::UnknownDstCluster, b"\x10\x02"),
        (ResponseType::UnknownDstEndpoint, b"\x10\x03"),
        (ResponseType::Malformed, b"\x10\x04"),
    ];
    for (verdict, bytes) in verdicts {
        let response = Response { request_number: 1, response: verdict.into(), ..Response::default() };
        let length = u8::try_from(2 + bytes.len()).unwrap();
        let expected = [&[0x1a, length, 0x08, 0x01], bytes].concat();
        assert_eq!(emit(Body::Response(response.clone())), expected);
        assert_eq!(parse(&expected).unwrap(), Body::Response(response));
    }
}

#[test]
fn the_flags_of_a_response_have_their_bytes() {
    let response = Response {
        src_ip_nat_detected: true,
        src_port_nat_detected: true,
        dst_ip_nat_detected: true,
        received_src: Some(pair("::1", -1)),
        ..Response::default()
    };
    let expected =
        b"\x1a\x18\x28\x01\x30\x01\x38\x01\x42\x10\x0a\x03::1\x10\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01";
    let bytes = emit(Body::Response(response.clone()));
    assert_eq!(bytes, expected);
    assert_eq!(parse(&bytes).unwrap(), Body::Response(response));
}

#[test]
fn the_version_is_ignored_and_unknown_fields_are_skipped() {
    let bytes = emit(Body::Request(request()));
    assert_eq!(bytes[..2], [0x08, 0x01]);
    let unknown = [0xfa, 0x01, 0x02, 0xff, 0xff];
    for version in [&b""[..], b"\x08\x00", b"\x08\x01", b"\x08\x63"] {
        let datagram = [version, &bytes[2..], &unknown].concat();
        assert_eq!(parse(&datagram).unwrap(), Body::Request(request()));
    }
}

#[test]
fn what_is_larger_than_2048_bytes_or_empty_is_refused() {
    let padded = |total: usize| {
        let mut bytes = emit(Body::Request(request()));
        let rest = total - bytes.len() - 4;
        let length = [(rest % 128) | 0x80, rest / 128].map(|byte| u8::try_from(byte).unwrap());
        bytes.extend([0xfa, 0x01]);
        bytes.extend(length);
        bytes.resize(total, 0);
        bytes
    };
    assert_eq!(parse(&padded(MAX_DATAGRAM)).unwrap(), Body::Request(request()));
    assert!(matches!(parse(&padded(MAX_DATAGRAM + 1)), Err(ParseError::TooLarge(2049))));
    assert!(matches!(parse(b""), Err(ParseError::Empty)));
    assert!(matches!(parse(b"\x08\x01"), Err(ParseError::Empty)));
    assert!(matches!(parse(b"\x12\x05\x08"), Err(ParseError::NotProtobuf(_))));
    assert!(matches!(parse(b"\x12\x04\x12\x02\x0a\xff"), Err(ParseError::NotProtobuf(_))), "no UTF-8");
}

fn any_details() -> impl Strategy<Value = Option<EndpointDetails>> {
    prop::option::of(("\\PC{0,40}", "\\PC{0,40}"))
        .prop_map(|ids| ids.map(|(cluster_id, endpoint_id)| EndpointDetails { cluster_id, endpoint_id }))
}

fn any_pair() -> impl Strategy<Value = Option<IpPortPair>> {
    prop::option::of(("\\PC{0,40}", any::<i32>()))
        .prop_map(|pair| pair.map(|(ip, port)| IpPortPair { ip, port }))
}

fn any_body() -> impl Strategy<Value = Body> {
    let request = (any::<u64>(), any_details(), any_details(), any_pair(), any_pair());
    let response = (any::<u64>(), any::<i32>(), any_details(), any_details(), any::<[bool; 3]>(), any_pair());
    prop_oneof![
        request.prop_map(|(request_number, sender, receiver, using_src, using_dst)| {
            Body::Request(Request { request_number, sender, receiver, using_src, using_dst })
        }),
        response.prop_map(|(request_number, response, sender, receiver, flags, received_src)| {
            let [src_ip_nat_detected, src_port_nat_detected, dst_ip_nat_detected] = flags;
            Body::Response(Response {
                request_number,
                response,
                sender,
                receiver,
                src_ip_nat_detected,
                src_port_nat_detected,
                dst_ip_nat_detected,
                received_src,
            })
        }),
    ]
}

proptest! {
    #[test]
    fn what_is_written_is_read_again(body in any_body()) {
        prop_assert_eq!(parse(&emit(body.clone())).unwrap(), body);
    }

    /// Any bytes have an outcome, and only responses to requests of ours may select.
    #[test]
    fn no_bytes_make_a_machine_panic_or_select(
        datagrams in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..300), 0..20),
    ) {
        let mut bench = Bench::new();
        bench.add(remote());
        bench.sent();
        for datagram in &datagrams {
            bench.machine.handle_datagram(datagram, at(PRIVATE), None, bench.now);
        }
        prop_assert_eq!(bench.selected(), []);
        let total: u64 = Outcome::ALL.iter().map(|outcome| bench.machine.counters().received(*outcome)).sum();
        prop_assert_eq!(total, datagrams.len() as u64);
    }
}
