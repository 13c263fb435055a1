//! Several gateways on both sides: every way there and back, what is lost with a path, and what siblings pass on.

use std::collections::BTreeMap;

use etherparse::PacketBuilder;
use trieste_packet::checksum;
use trieste_packet::wire::{be16, put16};
use trieste_packet::{Batch, Checksum, DropReason, FlowKey, Layout, LayoutKind, Packet, WorkerId};
use trieste_pipeline::{Handoff, HandoffKind, PathState, TraceQuestion};

use crate::support::mesh::{Mesh, cable, lane, own_address};
use crate::support::udp4;

const POD_1: [u8; 4] = [10, 1, 0, 9];
const POD_2: [u8; 4] = [10, 2, 0, 9];
const SYN: u8 = 2;
const SYN_ACK: u8 = 0x12;
const ACK: u8 = 0x10;

fn tcp(source: ([u8; 4], u16), destination: ([u8; 4], u16), flags: u8, payload: &[u8]) -> Vec<u8> {
    let mut builder = PacketBuilder::ipv4(source.0, destination.0, 64).tcp(source.1, destination.1, 1, 1000);
    if flags & SYN != 0 {
        builder = builder.syn();
    }
    if flags & ACK != 0 {
        builder = builder.ack(1);
    }
    let mut bytes = Vec::new();
    builder.write(&mut bytes, payload).unwrap();
    bytes
}

fn echo(source: [u8; 4], destination: [u8; 4], is_reply: bool) -> Vec<u8> {
    let builder = PacketBuilder::ipv4(source, destination, 64);
    let mut bytes = Vec::new();
    if is_reply {
        builder.icmpv4_echo_reply(7, 1).write(&mut bytes, b"echo").unwrap();
    } else {
        builder.icmpv4_echo_request(7, 1).write(&mut bytes, b"echo").unwrap();
    }
    bytes
}

/// A UDP packet of its own flow.
fn flow(number: u16, payload: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    let builder = PacketBuilder::ipv4(POD_1, POD_2, 64).udp(10_000 + number, 53);
    builder.write(&mut bytes, &vec![7; payload]).unwrap();
    bytes
}

/// Has a gateway believe that of all paths to a cluster only that to `only` works.
fn force(mesh: &Mesh, of: usize, only: usize) {
    let own = mesh.gateways[of].cluster;
    mesh.believe(of, |to| {
        let is_sibling = mesh.gateways[to].cluster == own;
        if to == only || is_sibling { PathState::Up } else { PathState::Down }
    });
}

/// Sends packets by a gateway and says at which one they came out, unchanged.
fn carried(mesh: &mut Mesh, by: usize, packet: &[u8]) -> usize {
    mesh.send(by, &[packet.to_vec()]);
    let delivered = mesh.delivered();
    assert_eq!(delivered.len(), 1, "{:?}", mesh.drops());
    assert_eq!(delivered[0].1, packet);
    delivered[0].0
}

#[test]
fn every_way_there_and_every_way_back_go_together() {
    let mut mesh = Mesh::new(&[2, 2]);
    let (ours, theirs) = (mesh.of_cluster(1), mesh.of_cluster(2));
    let pairs: Vec<(usize, usize)> = ours.iter().flat_map(|a| theirs.iter().map(|b| (*a, *b))).collect();
    let mut port = 20_000;
    for &(a, b) in &pairs {
        for &(back_a, back_b) in &pairs {
            port += 1;
            let (client, server) = ((POD_1, port), (POD_2, 80));
            let there = [
                tcp(client, server, SYN, b""),
                tcp(client, server, ACK, b"question"),
                udp4(POD_1, POD_2, 100),
                echo(POD_1, POD_2, false),
            ];
            let back = [
                tcp(server, client, SYN_ACK, b""),
                tcp(server, client, ACK, b"answer"),
                udp4(POD_2, POD_1, 100),
                echo(POD_2, POD_1, true),
            ];
            for (there, back) in there.iter().zip(&back) {
                force(&mesh, a, b);
                assert_eq!(carried(&mut mesh, a, there), b);
                force(&mesh, back_b, back_a);
                assert_eq!(carried(&mut mesh, back_b, back), back_a);
            }
        }
    }
    assert_eq!(mesh.drops(), []);
    mesh.assert_balanced();
}

#[test]
fn all_fragments_of_a_packet_come_out_at_one_gateway_whatever_its_ports() {
    let mut mesh = Mesh::new(&[2, 2]);
    for number in 0..64 {
        let (mut first, mut later) = (flow(number, 64), udp4(POD_1, POD_2, 64));
        for (packet, field) in [(&mut first, 0x2000), (&mut later, 9)] {
            put16(packet, 6, field);
            checksum::fill_ipv4_header(&mut packet[..20]);
        }
        assert_eq!(carried(&mut mesh, 0, &first), carried(&mut mesh, 0, &later), "flow {number}");
    }
    mesh.assert_balanced();
}

/// At which gateway each flow comes out, sent by gateway 0.
fn spread(mesh: &mut Mesh, flows: u16) -> BTreeMap<u16, usize> {
    mesh.delivered();
    let packets: Vec<_> = (0..flows).map(|number| flow(number, 10)).collect();
    mesh.send(0, &packets);
    mesh.delivered().into_iter().map(|(at, packet)| (be16(&packet, 20) - 10_000, at)).collect()
}

#[test]
fn flows_are_spread_by_weight_and_a_lost_path_moves_its_own_and_no_others() {
    let mut mesh = Mesh::new(&[1, 3]);
    mesh.know(0, |to| if to == 1 { 200 } else { 100 }, |builder| builder);
    let before = spread(&mut mesh, 2000);
    let at = |spread: &BTreeMap<u16, usize>, gateway| spread.values().filter(|at| **at == gateway).count();
    assert_eq!(before.len(), 2000);
    assert!((900..1100).contains(&at(&before, 1)), "{}", at(&before, 1));
    assert!((420..580).contains(&at(&before, 2)), "{}", at(&before, 2));
    assert_eq!(spread(&mut mesh, 2000), before, "flows stay where they are");

    mesh.believe(0, |to| if to == 2 { PathState::Down } else { PathState::Up });
    let without = spread(&mut mesh, 2000);
    assert_eq!((without.len(), at(&without, 2)), (2000, 0));
    assert!(before.iter().all(|(flow, at)| *at == 2 || without[flow] == *at), "others stay");

    // It works again, but is held back; then it is up.
    mesh.believe(0, |to| if to == 2 { PathState::Held } else { PathState::Up });
    assert_eq!(spread(&mut mesh, 2000), without);
    mesh.believe(0, |_| PathState::Up);
    assert_eq!(spread(&mut mesh, 2000), before, "it takes what it had, and nothing else");

    // What drains is left at once; and it is all that there is when the others are gone.
    mesh.believe(0, |to| if to == 1 { PathState::Draining } else { PathState::Up });
    assert_eq!(at(&spread(&mut mesh, 2000), 1), 0);
    mesh.believe(0, |to| if to == 1 { PathState::Draining } else { PathState::Down });
    assert_eq!(at(&spread(&mut mesh, 2000), 1), 2000);
    mesh.believe(0, |_| PathState::Down);
    assert_eq!(spread(&mut mesh, 2000), before, "when nothing seems to work steering stays");
    assert_eq!(mesh.drops(), []);
    mesh.assert_balanced();
}

#[test]
fn a_dead_gateway_costs_its_own_flows_what_was_sent_before_anybody_knew() {
    let mut mesh = Mesh::new(&[1, 2]);
    let before = spread(&mut mesh, 1000);
    mesh.gateways[1].is_dead = true;
    let meanwhile = spread(&mut mesh, 1000);
    let of_it = before.values().filter(|at| **at == 1).count() as u64;
    assert_eq!(mesh.lost, of_it);
    assert!(before.iter().all(|(flow, at)| *at == 1 || meanwhile[flow] == *at), "others lose nothing");
    mesh.believe(0, |to| if to == 1 { PathState::Down } else { PathState::Up });
    let after = spread(&mut mesh, 1000);
    assert_eq!((after.len(), mesh.lost), (1000, of_it));
    mesh.assert_balanced();
}

#[test]
fn probes_of_a_gateway_take_its_own_path_whatever_is_believed_of_it() {
    let mut mesh = Mesh::new(&[2, 2]);
    for to in mesh.of_cluster(2) {
        let probe = echo(POD_1, own_address(to, 2), false);
        for state in [PathState::Up, PathState::Down] {
            mesh.believe(0, |other| if other == to { state } else { PathState::Up });
            assert_eq!(carried(&mut mesh, 0, &probe), to);
        }
    }
}

/// Gateway 0 has no path that works; its sibling, gateway 1, has.
fn stranded() -> Mesh {
    let mesh = Mesh::new(&[2, 2]);
    mesh.believe(0, |to| if to == 1 { PathState::Up } else { PathState::Down });
    mesh.believe(1, |_| PathState::Up);
    mesh
}

#[test]
fn a_gateway_without_a_path_passes_packets_on_to_its_sibling() {
    let mut mesh = stranded();
    let packets: Vec<_> = (0..500).map(|number| flow(number, 400)).collect();
    mesh.send(0, &packets);
    let delivered = mesh.delivered();
    assert_eq!(delivered.len(), 500, "{:?}", mesh.drops());
    assert!([2, 3].iter().all(|to| delivered.iter().filter(|(at, _)| at == to).count() > 150));
    let relayed = |mesh: &Mesh, of: usize| {
        let counters = mesh.gateways[of].line.counters;
        (counters.relayed_out, counters.relayed_in)
    };
    assert_eq!((relayed(&mesh, 0), relayed(&mesh, 1)), ((500, 0), (0, 500)));
    // What the sibling is sent from inside itself is nothing that it passes on.
    mesh.send(1, &packets);
    assert_eq!(mesh.delivered().len(), 500);
    assert_eq!((relayed(&mesh, 0), relayed(&mesh, 1)), ((500, 0), (0, 500)));
    // And back with its own path.
    mesh.believe(0, |_| PathState::Up);
    mesh.send(0, &packets);
    assert_eq!((mesh.delivered().len(), relayed(&mesh, 0)), (500, (500, 0)));
    assert_eq!(mesh.drops(), []);
    mesh.assert_balanced();
}

#[test]
fn what_was_passed_on_never_goes_back() {
    let mut mesh = stranded();
    // Both believe that the other has what they lack: the packet takes a path of the sibling's own all the same.
    mesh.believe(1, |to| if to == 0 { PathState::Up } else { PathState::Down });
    mesh.send(0, &[flow(1, 10)]);
    assert_eq!(mesh.delivered().len(), 1);
    assert_eq!(mesh.gateways[1].line.counters.relayed_out, 0);
    // With none of its own it is dropped, whatever was decided for packets of the same flow from inside.
    mesh.know(1, |to| u16::from(to == 0) * 100, |builder| builder);
    mesh.send(1, &[flow(1, 10)]);
    assert_eq!((mesh.delivered().len(), mesh.gateways[1].line.counters.relayed_out), (1, 1));
    // Now 0 takes its own dead paths for what 1 passes on; and 1 drops what 0 passes on.
    mesh.send(0, &[flow(1, 10)]);
    assert_eq!(mesh.delivered(), []);
    assert_eq!(mesh.drops(), [(1, DropReason::NoOwnPath, 1)]);
    mesh.assert_balanced();
}

/// Has gateway 0 seal a packet for its sibling as it is, without asking anybody; what is delivered, and how often the
/// sibling has refused one for this reason.
fn foist(mesh: &mut Mesh, packet: &[u8], reason: DropReason) -> (usize, u64) {
    let line = &mut mesh.gateways[0].line;
    let mut packet = Packet::new(line.pool.alloc_copy(packet).unwrap());
    (packet.decision.lane, packet.decision.cable) = (lane(1), cable(1));
    line.handed_over([Handoff { to: WorkerId(0), kind: HandoffKind::Seal, packet }], mesh.now);
    mesh.carry();
    let delivered = mesh.delivered();
    (delivered.len(), mesh.gateways[1].line.drops.of(reason))
}

#[test]
fn a_sibling_passes_on_packets_of_ours_for_others_and_packets_of_others_for_us() {
    let mut mesh = Mesh::new(&[2, 3]);
    let [ours, theirs, strange] = [[10, 1, 0, 8], [10, 2, 0, 9], [192, 0, 2, 8]];
    let cases = [
        ("ours for others", ours, theirs, DropReason::NoOwnPath, (1, 0)),
        ("others' for us", theirs, POD_1, DropReason::SourceNotAllowed, (1, 0)),
        ("ours for us", ours, POD_1, DropReason::SourceNotAllowed, (0, 1)),
        ("nobody's for us", strange, POD_1, DropReason::SourceNotAllowed, (0, 2)),
        ("nobody's for others", strange, theirs, DropReason::SourceNotLocal, (0, 1)),
        ("others' for others", theirs, [10, 2, 0, 7], DropReason::SourceNotLocal, (0, 2)),
        ("others' for nobody", theirs, strange, DropReason::DestinationNotLocal, (0, 1)),
    ];
    for (what, source, destination, reason, expected) in cases {
        assert_eq!(foist(&mut mesh, &udp4(source, destination, 10), reason), expected, "{what}");
    }
    mesh.assert_balanced();
}

#[test]
fn a_train_is_passed_on_and_what_is_too_big_for_the_siblings_path_is_answered_there() {
    let mut mesh = stranded();
    let whole = tcp((POD_1, 5000), (POD_2, 80), ACK, &[9; 5000]);
    let line = &mut mesh.gateways[0].line;
    let mut train = Packet::new(line.pool.alloc_copy(&whole).unwrap());
    train.layout = Layout::train(LayoutKind::Tcp, 40, 1000, 5);
    train.checksum = Checksum::Partial { start: 20, field: 36 };
    let mut batch = Batch::new();
    batch.push(train).unwrap();
    line.outbound(&mut batch, mesh.now);
    mesh.carry();
    let delivered = mesh.delivered();
    assert_eq!(delivered.iter().map(|(_, packet)| packet.len() - 40).sum::<usize>(), 5000);
    assert_eq!(mesh.gateways[1].line.counters.relayed_in, 5);

    // The sibling has found out that its paths are narrower than the cable between us.
    for to in [2, 3] {
        mesh.gateways[1].board.set_mtu(cable(to), Some(1000));
    }
    let mut big = flow(1, 1200);
    put16(&mut big, 6, 0x4000);
    checksum::fill_ipv4_header(&mut big);
    mesh.send(0, &[big]);
    let delivered = mesh.delivered();
    assert_eq!(delivered.len(), 1);
    let (at, error) = &delivered[0];
    assert_eq!((*at, error[9], error[20], error[21], be16(error, 26)), (1, 1, 3, 4, 1000));
    assert_eq!(mesh.drops(), [(1, DropReason::TooBig, 1)]);
    mesh.assert_balanced();
}

#[test]
fn trace_says_which_path_and_why() {
    let mut mesh = Mesh::new(&[2, 2]);
    let ask = |mesh: &mut Mesh, destination: [u8; 4]| {
        let flow = FlowKey::new(POD_1.into(), destination.into(), 17, 5000, 53);
        let question = TraceQuestion { flow, is_outbound: true, is_answer: false };
        let now = mesh.now;
        let trace = mesh.gateways[0].line.trace(&question, now);
        assert_eq!(trace.result, Some(flow));
        let step = trace.steps.into_iter().find(|step| step.stage == "steer").unwrap();
        format!("{}: {}", step.decision, step.why)
    };
    mesh.believe(0, |_| PathState::Up);
    let said = ask(&mut mesh, POD_2);
    assert!(said.contains("2 of 2 paths work") && said.contains("weight 100, up"), "{said}");
    let said = ask(&mut mesh, own_address(3, 2));
    assert!(said.contains("cable 4") && said.contains("this path's gateway"), "{said}");
    mesh.believe(0, |to| if to == 1 { PathState::Up } else { PathState::Down });
    let said = ask(&mut mesh, POD_2);
    assert!(said.contains("to sibling submariner-cable-192-0-2-1"), "{said}");
    assert!(said.contains("none of our 2 paths works"), "{said}");
    mesh.believe(0, |_| PathState::Down);
    let said = ask(&mut mesh, POD_2);
    assert!(said.contains("steering stays") && said.contains("down"), "{said}");
    assert_eq!(mesh.gateways[0].line.counters.tun_in, 0, "nothing has been sent");
}
