//! What a trace says of random packets, beside what then becomes of them.

use etherparse::{IpNumber, PacketBuilder};
use trieste_packet::wire::{protocol, tcp};
use trieste_packet::{DropReason, FlowKey};
use trieste_pipeline::{PathState, Trace, TraceQuestion};
use trieste_simulator::Random;

use crate::services;
use crate::support::globalnet::{self as net, Shape, Site, clusters, ends};
use crate::support::mesh::{self, Mesh};
use crate::support::{self as plain, End, joined};

/// Packets of each test.
const PACKETS: usize = 3000;
/// What gateways speak with each other (`inside`), and SCTP for all that has no ports here.
const PROTOCOLS: [u8; 6] = [protocol::UDP, protocol::TCP, protocol::TCP, protocol::ICMP, 253, 132];

/// A packet and the question about it.
fn draw(random: &mut Random, sources: &[[u8; 4]], destinations: &[[u8; 4]]) -> (TraceQuestion, Vec<u8>) {
    let source = sources[random.below(sources.len())];
    let destination = destinations[random.below(destinations.len())];
    let protocol = PROTOCOLS[random.below(PROTOCOLS.len())];
    let ports = (random.between(5000, 5100), [80, 443][random.below(2)]);
    let is_answer = protocol == protocol::TCP && random.percent(50);
    let (ports, bytes) = match protocol {
        protocol::UDP => (ports, net::udp((source, ports.0), (destination, ports.1), b"x")),
        protocol::TCP => {
            let flags = if is_answer { tcp::ACK } else { tcp::SYN };
            (ports, net::tcp((source, ports.0), (destination, ports.1), flags, b""))
        }
        protocol::ICMP => ((ports.0, 0), net::echo(source, destination, ports.0, b"x")),
        other => {
            let mut bytes = Vec::new();
            let builder = PacketBuilder::ipv4(source, destination, 64);
            builder.write(&mut bytes, IpNumber(other), &[0; 16]).unwrap();
            ((0, 0), bytes)
        }
    };
    let flow = FlowKey::new(source.into(), destination.into(), protocol, ports.0, ports.1);
    (TraceQuestion { flow, is_outbound: true, is_answer }, bytes)
}

/// The only drop reason that has grown, if one has.
fn grown(before: &[(DropReason, u64)], after: &[(DropReason, u64)]) -> Option<DropReason> {
    let count = |all: &[(DropReason, u64)], reason: DropReason| -> u64 {
        all.iter().filter(|(each, _)| *each == reason).map(|(_, count)| count).sum()
    };
    let mut more = after.iter().filter(|(reason, _)| count(after, *reason) > count(before, *reason));
    let first = more.next().map(|(reason, _)| *reason);
    assert!(more.all(|(reason, _)| Some(*reason) == first), "{before:?}, {after:?}");
    first
}

fn drops(end: &End) -> Vec<(DropReason, u64)> {
    end.line.drops.iter().map(|(_, reason, count)| (reason, count)).collect()
}

/// Whether a trace of a packet that is dropped says where, and what else it says.
fn assert_told(trace: &Trace, question: &TraceQuestion) {
    assert_eq!(trace.result.is_none(), trace.dropped.is_some(), "{question:?}: {trace:?}");
    if let Some(reason) = trace.dropped {
        let last = trace.steps.last().map(|step| step.decision.as_str());
        assert_eq!(last, Some(format!("dropped: {}", reason.as_str()).as_str()), "{question:?}: {trace:?}");
    }
}

#[test]
fn what_is_not_translated_goes_where_its_trace_says() {
    let (mut a, mut b) = joined(&["10.1.0.0/16", "192.168.0.0/16"], &["10.2.0.0/16", "172.16.0.0/12"]);
    let sources = [plain::POD_A, [192, 168, 0, 7], [10, 1, 0, 1], [10, 7, 0, 1], [8, 8, 8, 8]];
    let destinations =
        [plain::POD_B, [172, 16, 0, 3], [10, 2, 0, 1], [10, 1, 0, 9], [9, 9, 9, 9], [224, 0, 0, 5]];
    let destinations = [&destinations[..], &[[255; 4], [0; 4]]].concat();
    let (mut random, mut passed, mut refused) = (Random::new(11), 0, [0, 0]);
    for _ in 0..PACKETS {
        let (question, bytes) = draw(&mut random, &sources, &destinations);
        let (trace, before) = (a.trace(&question), drops(&a));
        assert_told(&trace, &question);
        let packet = a.packet(&bytes);
        a.send(vec![packet]);
        assert_eq!(trace.dropped, grown(&before, &drops(&a)), "{question:?}: {trace:?}");
        // What a refused packet's sender is told.
        a.delivered();
        if trace.dropped.is_some() {
            refused[0] += 1;
            continue;
        }
        let question = TraceQuestion { is_outbound: false, ..question };
        let (trace, before) = (b.trace(&question), drops(&b));
        assert_told(&trace, &question);
        plain::carry(&mut a, &mut b, plain::A, |_| {});
        assert_eq!(trace.dropped, grown(&before, &drops(&b)), "{question:?}: {trace:?}");
        assert_eq!(b.delivered().len(), usize::from(trace.dropped.is_none()), "{question:?}: {trace:?}");
        refused[1] += usize::from(trace.dropped.is_some());
        passed += usize::from(trace.dropped.is_none());
    }
    assert!(passed > 100 && refused.iter().all(|count| *count > 100), "{passed} passed, {refused:?} refused");
}

#[test]
fn what_is_translated_goes_where_its_trace_says() {
    let (mut a, mut b) = clusters(&Shape::workers(1));
    let own = |last: u8| net::global(1, last);
    let far = |last: u8| net::global(2, last);
    let sources = [
        net::POD,
        net::OTHER_POD,
        net::HEADLESS_POD,
        net::SERVICE,
        net::NODE,
        [8, 8, 8, 8],
        own(net::HEADLESS),
    ];
    let destinations = [
        far(net::SERVICE_GLOBAL),
        far(net::HEADLESS),
        far(net::GATEWAY_GLOBAL),
        far(77),
        own(net::SERVICE_GLOBAL),
        own(net::HEADLESS),
        [242, 9, 0, 1],
        [10, 2, 0, 9],
        [224, 0, 0, 5],
    ];
    let (mut random, mut passed, mut refused, mut turned) = (Random::new(12), 0, [0, 0], 0);
    for _ in 0..PACKETS {
        let (question, bytes) = draw(&mut random, &sources, &destinations);
        let (now, before) = (a.now, a.drop_reasons());
        let trace = a.lines[0].trace(&question, now);
        assert_told(&trace, &question);
        a.send(&[bytes]);
        assert_eq!(trace.dropped, grown(&before, &a.drop_reasons()), "{question:?}: {trace:?}");
        let came_back = a.delivered();
        if trace.dropped.is_some() {
            refused[0] += 1;
            continue;
        }
        // The port of a first packet is drawn; from then on it is known.
        let known = a.lines[0].trace(&question, now);
        assert_told(&known, &question);
        let Some(flow) = known.result else { panic!("{question:?} has passed: {known:?}") };
        if known.steps.iter().any(|step| step.decision == "back inside") {
            assert_ends(&came_back, flow, &question);
            turned += 1;
            continue;
        }
        let question = TraceQuestion { flow, is_outbound: false, ..question };
        let trace = arrive(&mut a, &mut b, &question);
        refused[1] += usize::from(trace.dropped.is_some());
        passed += usize::from(trace.dropped.is_none());
    }
    let counts = format!("{passed} passed, {refused:?} refused, {turned} turned back");
    assert!(passed > 100 && turned > 20 && refused.iter().all(|count| *count > 100), "{counts}");
}

/// Two gateways on either side, whose paths come and go: the trace names the one that a packet leaves by, also where a sibling
/// has to help.
#[test]
fn packets_of_several_gateways_go_by_the_path_that_their_trace_names() {
    let mut mesh = Mesh::new(&[2, 2]);
    let sources = [[10, 1, 0, 9], [10, 1, 7, 7]];
    let destinations = [[10, 2, 0, 9], [10, 2, 3, 4], mesh::own_address(2, 2), mesh::own_address(3, 2)];
    let states = [PathState::Up, PathState::Up, PathState::Down, PathState::Unwatched, PathState::Draining];
    let (mut random, mut by_path, mut by_sibling) = (Random::new(13), [0; 4], 0);
    for _ in 0..PACKETS {
        let (by, drawn) = (random.below(2), [(); 4].map(|()| states[random.below(states.len())]));
        mesh.believe(by, |to| if to < 2 { PathState::Up } else { drawn[to] });
        mesh.believe(1 - by, |_| PathState::Up);
        let (question, bytes) = draw(&mut random, &sources, &destinations);
        let now = mesh.now;
        let trace = mesh.gateways[by].line.trace(&question, now);
        assert_told(&trace, &question);
        let (before, relayed) = (mesh.drops(), mesh.gateways[by].line.counters.relayed_out);
        mesh.send(by, &[bytes]);
        let delivered = mesh.delivered();
        let is_relayed = mesh.gateways[by].line.counters.relayed_out > relayed;
        let Some(step) = trace.steps.iter().find(|step| step.stage == "steer") else {
            assert!(delivered.is_empty() && mesh.drops() != before, "{question:?}: {trace:?}");
            continue;
        };
        assert_eq!(is_relayed, step.decision.contains("to sibling"), "{question:?}: {trace:?}");
        let [(at, _)] = delivered[..] else { panic!("{question:?}: {trace:?}: {:?}", mesh.drops()) };
        if is_relayed {
            by_sibling += 1;
        } else {
            let named = format!(" of cable {},", mesh::cable(at).0);
            assert!(step.decision.contains(&named), "it came out at {at}: {question:?}: {trace:?}");
            by_path[at] += 1;
        }
    }
    assert!(
        by_path[2].min(by_path[3]) > 100 && by_sibling > 50,
        "{by_path:?} by path, {by_sibling} by a sibling"
    );
}

/// A gateway that sends packets for services to the nodes that serve them.
#[test]
fn packets_for_services_go_to_the_node_that_their_trace_names() {
    let (mut a, mut b, _) = services::ends();
    let destinations = [services::AWAY, services::HERE, [10, 2, 96, 99], plain::POD_B];
    let (mut random, mut framed, mut here) = (Random::new(14), 0, 0);
    for _ in 0..PACKETS {
        let destination = destinations[random.below(destinations.len())];
        let (source_port, port) = (random.between(5000, 5100), [services::PORT, 80][random.below(2)]);
        let bytes = net::udp((plain::POD_A, source_port), (destination, port), b"x");
        let flow = FlowKey::new(plain::POD_A.into(), destination.into(), protocol::UDP, source_port, port);
        let question = TraceQuestion { flow, is_outbound: false, is_answer: false };
        let trace = b.trace(&question);
        assert_told(&trace, &question);
        let packet = a.packet(&bytes);
        a.send(vec![packet]);
        plain::carry(&mut a, &mut b, plain::A, |_| {});
        let (nodes, delivered) = (services::framed(&mut b), b.delivered());
        let step = trace.steps.iter().find(|step| step.stage == "deliver").expect("it is delivered");
        match nodes.as_slice() {
            [(node, ..)] => {
                assert!(step.decision.starts_with(&format!("to node {node} ")), "{question:?}: {trace:?}");
                assert!(delivered.is_empty());
                framed += 1;
            }
            [] => {
                assert!(step.decision.starts_with("to the TUN device"), "{question:?}: {trace:?}");
                assert_eq!(delivered, [bytes]);
                here += 1;
            }
            more => panic!("one packet, and {} frames", more.len()),
        }
    }
    assert!(framed > 200 && here > 200, "{framed} to other nodes, {here} here");
}

/// What comes of a packet at the other site, as it is traced there.
fn arrive(from: &mut Site, to: &mut Site, question: &TraceQuestion) -> Trace {
    let (now, before) = (to.now, to.drop_reasons());
    let trace = to.lines[0].trace(question, now);
    assert_told(&trace, question);
    net::carry(from, to);
    assert_eq!(trace.dropped, grown(&before, &to.drop_reasons()), "{question:?}: {trace:?}");
    let arrived = to.delivered();
    match trace.result {
        Some(flow) => assert_ends(&arrived, flow, question),
        None => assert!(arrived.is_empty(), "{question:?}: {trace:?}"),
    }
    trace
}

fn assert_ends(packets: &[Vec<u8>], flow: FlowKey, question: &TraceQuestion) {
    assert_eq!(packets.len(), 1, "{question:?}");
    let octets = |address| match address {
        std::net::IpAddr::V4(v4) => v4.octets(),
        std::net::IpAddr::V6(_) => unreachable!("all are IPv4"),
    };
    let (source, destination) = (octets(flow.source()), octets(flow.destination()));
    if !matches!(flow.protocol, protocol::TCP | protocol::UDP) {
        assert_eq!(
            (&packets[0][12..16], &packets[0][16..20]),
            (&source[..], &destination[..]),
            "{question:?}"
        );
        return;
    }
    let (from, from_port, to, to_port) = ends(&packets[0]);
    assert_eq!(
        (from, from_port, to, to_port),
        (source, flow.source_port, destination, flow.destination_port)
    );
}
