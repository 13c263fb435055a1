//! Two clusters with the same networks inside talk by global IPs: all protocols, errors, limits, any number of workers.

use std::time::Duration;

use trieste_packet::checksum::{fill_ipv4_header, pseudo_sum};
use trieste_packet::wire::{be16, be32, put16, tcp};
use trieste_packet::{Checksum, DropReason, FlowKey, Layout, LayoutKind};
use trieste_pipeline::TraceQuestion;

use crate::support::globalnet::*;

const WEB: ([u8; 4], u16) = ([242, 2, 0, SERVICE_GLOBAL], 80);

#[test]
fn every_protocol_crosses_and_comes_back_as_it_was() {
    for workers in [1, 2, 4] {
        let (mut a, mut b) = clusters(&Shape::workers(workers));
        for bytes in [0, 1, 64, 1372] {
            let payload = vec![7; bytes];
            let sent = [
                udp((POD, 4000), WEB, &payload),
                tcp((POD, 4000), WEB, tcp::SYN, &payload),
                echo(POD, WEB.0, 77, &payload),
                sctp(POD, WEB.0, &payload),
            ];
            for packet in sent {
                a.send(std::slice::from_ref(&packet));
                carry(&mut a, &mut b);
                let arrived = b.one();
                let (source, _, destination, _) = ends(&arrived);
                assert!(CLUSTER_EGRESS.map(|last| global(1, last)).contains(&source), "{source:?}");
                assert_eq!(destination, SERVICE);
                let mut answer = turned_round(&arrived);
                if answer[9] == 6 {
                    answer = tcp((SERVICE, 80), (source, be16(&arrived, 20)), tcp::SYN | tcp::ACK, &payload);
                }
                b.send(std::slice::from_ref(&answer));
                carry(&mut b, &mut a);
                let returned = a.one();
                let (source, from_port, destination, to_port) = ends(&returned);
                assert_eq!((source, destination), (WEB.0, POD));
                if returned[9] != 6 {
                    assert_eq!(returned, turned_round(&packet), "bit for bit");
                }
                if packet[9] != 132 {
                    let (_, sent_from, _, sent_to) = ends(&packet);
                    assert_eq!((from_port, to_port), (sent_to, sent_from));
                }
            }
        }
        assert_eq!((a.drops(), b.drops()), (0, 0), "{:?} {:?}", a.drop_reasons(), b.drop_reasons());
        a.assert_balanced();
        b.assert_balanced();
    }
}

#[test]
fn pods_leave_by_their_own_rule_and_headless_pods_answer_from_where_they_were_asked() {
    let (mut a, mut b) = clusters(&Shape::workers(2));
    a.send(&[udp((OTHER_POD, 4000), WEB, b"x")]);
    carry(&mut a, &mut b);
    assert_eq!(ends(&b.one()).0, global(1, POD_EGRESS));

    let headless = global(2, HEADLESS);
    let question = udp((POD, 4000), (headless, 53), b"question");
    a.send(std::slice::from_ref(&question));
    carry(&mut a, &mut b);
    let arrived = b.one();
    assert_eq!((ends(&arrived).2, ends(&arrived).3), (HEADLESS_POD, 53));
    b.send(&[turned_round(&arrived)]);
    carry(&mut b, &mut a);
    assert_eq!(a.one(), turned_round(&question));
}

#[test]
fn the_gateways_probe_one_another_by_global_ips() {
    let (mut a, mut b) = clusters(&Shape::workers(2));
    let probe = echo(NODE, global(2, GATEWAY_GLOBAL), 5, b"probe");
    a.send(std::slice::from_ref(&probe));
    carry(&mut a, &mut b);
    let arrived = b.one();
    assert_eq!(ends(&arrived).2, NODE);
    b.send(&[turned_round(&arrived)]);
    carry(&mut b, &mut a);
    assert_eq!(a.one(), turned_round(&probe));
    // ICMP only.
    a.send(&[udp((NODE, 1), (global(2, GATEWAY_GLOBAL), 2), b"no")]);
    carry(&mut a, &mut b);
    assert_eq!(b.dropped(DropReason::NoMapping), 1);
}

#[test]
fn a_train_is_translated_as_one_packet() {
    for workers in [1, 3] {
        let (mut a, mut b) = clusters(&Shape::workers(workers));
        let payload: Vec<u8> = (0..40_000u32).map(|byte| (byte % 253) as u8).collect();
        a.send(&[tcp((POD, 4000), WEB, tcp::SYN, b"")]);
        carry(&mut a, &mut b);
        b.delivered();
        let mut bytes = tcp((POD, 4000), WEB, tcp::ACK, &payload);
        let pseudo = pseudo_sum(&bytes, 6, bytes.len() - 20).folded();
        put16(&mut bytes, 36, pseudo);
        a.send_packet(&bytes, |packet| {
            packet.layout = Layout::train(LayoutKind::Tcp, 40, 1380, 29);
            packet.checksum = Checksum::Partial { start: 20, field: 36 };
        });
        carry(&mut a, &mut b);
        let delivered = b.delivered();
        let joined: Vec<u8> = delivered.iter().flat_map(|segment| segment[40..].to_vec()).collect();
        assert_eq!((delivered.len(), joined), (29, payload));
        for segment in &delivered {
            assert_eq!(ends(segment).2, SERVICE);
        }
        a.assert_balanced();
        b.assert_balanced();
    }
}

#[test]
fn fragments_in_any_order_follow_their_first() {
    for workers in [1, 2, 4] {
        let (mut a, mut b) = clusters(&Shape::workers(workers));
        for (size, id) in [(3000usize, 1u16), (9000, 2)] {
            let payload: Vec<u8> = (0..=250).cycle().take(size).collect();
            for packet in [udp((POD, 4000 + id), WEB, &payload), echo(POD, WEB.0, id, &payload)] {
                let mut pieces = fragments(&packet, 1400);
                pieces.reverse();
                // Each by another queue.
                let sent: Vec<_> = (0..).map(|at| at % usize::from(workers)).zip(pieces).collect();
                a.send_by(&sent);
                carry(&mut a, &mut b);
                let arrived = reassembled(b.delivered());
                let (source, _, destination, _) = ends(&arrived);
                assert_eq!((source[..2].to_vec(), destination), (vec![242, 1], SERVICE));
                assert_eq!(arrived[28..], payload);
                // The answer is fragmented by our own gateway, whose packets are too big for the path.
                let answer = turned_round(&arrived);
                b.send(std::slice::from_ref(&answer));
                carry(&mut b, &mut a);
                let returned = reassembled(a.delivered());
                assert_eq!(ends(&returned).2, POD);
                assert_eq!(returned[28..], payload);
            }
        }
        assert_eq!((a.drops(), b.drops()), (0, 0), "{:?} {:?}", a.drop_reasons(), b.drop_reasons());
        a.assert_balanced();
        b.assert_balanced();
    }
}

#[test]
fn later_fragments_without_a_first_wait_are_counted_as_held_and_end() {
    let (mut a, _b) = clusters(&Shape::workers(1));
    let pieces = fragments(&udp((POD, 4000), WEB, &[7; 3000]), 1400);
    a.send(&pieces[1..]);
    assert_eq!(a.lines[0].snapshot(a.now).held, 2);
    a.assert_balanced();
    a.wait(Duration::from_secs(10));
    assert_eq!((a.lines[0].snapshot(a.now).held, a.dropped(DropReason::NatFragment)), (0, 2));
    a.assert_balanced();
}

#[test]
fn errors_come_back_to_who_sent_what_they_quote() {
    for workers in [1, 2, 4] {
        let (mut a, mut b) = clusters(&Shape::workers(workers));
        let packets = [
            udp((POD, 4000), WEB, b"hello"),
            tcp((POD, 4001), WEB, tcp::SYN, b""),
            echo(POD, WEB.0, 9, b"x"),
        ];
        for packet in packets {
            a.send(std::slice::from_ref(&packet));
            carry(&mut a, &mut b);
            let arrived = b.one();
            // The service itself says so, and then a router in front of it.
            for from in [SERVICE, [172, 16, 0, 1]] {
                b.send(&[unreachable(from, &arrived)]);
                carry(&mut b, &mut a);
                let error = a.one();
                let (source, _, destination, _) = ends(&error);
                assert_eq!((source, destination), (WEB.0, POD));
                assert_eq!(
                    (&error[20..22], &error[28..]),
                    (&[3, 3][..], &packet[..]),
                    "the quoted packet is as it was"
                );
            }
        }
        assert_eq!((a.drops(), b.drops()), (0, 0), "{:?} {:?}", a.drop_reasons(), b.drop_reasons());
        // About a flow that is not there: dropped without a word.
        let mut stranger = udp((global(1, 1), 9), (SERVICE, 99), b"never sent");
        stranger[15] = 77;
        fill_ipv4_header(&mut stranger);
        b.send(&[unreachable(SERVICE, &stranger)]);
        carry(&mut b, &mut a);
        assert!(a.delivered().is_empty());
        a.assert_balanced();
        b.assert_balanced();
    }
}

#[test]
fn too_big_quotes_what_the_pod_sent() {
    for workers in [1, 2] {
        let (mut a, _b) = clusters(&Shape::workers(workers));
        for packet in [
            udp((POD, 4000), WEB, &[7; 1400]),
            tcp((POD, 4001), WEB, tcp::SYN, &[7; 1400]),
            echo(POD, WEB.0, 9, &[7; 1400]),
        ] {
            assert_eq!(be16(&packet, 6), 0x4000, "DF is set");
            a.send(std::slice::from_ref(&packet));
            let error = a.one();
            assert_eq!(ends(&error).2, POD);
            assert_eq!((error[20], error[21], be16(&error, 26)), (3, 4, MTU));
            assert_eq!(error[28..], packet[..548]);
        }
        assert_eq!(a.dropped(DropReason::TooBig), 3);
        a.assert_balanced();
    }
}

#[test]
fn without_a_global_ip_and_without_room_the_source_is_told_and_others_go_on() {
    let mut shape = Shape::workers(1);
    shape.nat.limits.sessions = 2;
    let (mut a, mut b) = clusters(&shape);
    let flow = |port: u16| udp((POD, port), WEB, b"x");
    a.send(&[flow(1), flow(2), flow(3)]);
    let error = a.one();
    assert_eq!((error[20], error[21], be32(&error, 24)), (3, 13, 0));
    assert_eq!(error[28..], flow(3)[..]);
    assert_eq!(a.dropped(DropReason::NatSessionLimit), 1);
    a.send(&[flow(1), flow(2)]);
    carry(&mut a, &mut b);
    assert_eq!(b.delivered().len(), 4);
    assert_eq!(a.lines[0].counters.prohibited, 1);

    let mut shape = Shape::workers(1);
    shape.has_cluster_egress = false;
    let (mut a, _b) = clusters(&shape);
    a.send(&[flow(1)]);
    let error = a.one();
    assert_eq!((error[20], error[21]), (3, 13));
    assert_eq!(a.dropped(DropReason::NoGlobalIp), 1);
    a.assert_balanced();
}

#[test]
fn what_may_not_cross_is_dropped_with_the_reason() {
    let (mut a, mut b) = clusters(&Shape::workers(2));
    let outbound = [
        (udp((POD, 1), ([10, 0, 9, 9], 2), b"x"), DropReason::NoRoute),
        (udp(([192, 168, 0, 1], 1), WEB, b"x"), DropReason::SourceNotLocal),
        (unreachable(POD, &udp((WEB.0, 80), (POD, 5), b"never came")), DropReason::NoMapping),
    ];
    for (packet, reason) in outbound {
        let before = a.dropped(reason);
        a.send(&[packet]);
        assert_eq!(a.dropped(reason), before + 1, "{reason:?}: {:?}", a.drop_reasons());
    }
    let inbound = [
        (udp((POD, 1), (global(2, 99), 2), b"x"), DropReason::NoMapping),
        (udp((POD, 1), (global(2, CLUSTER_EGRESS[0]), 2), b"x"), DropReason::NoMapping),
    ];
    for (packet, reason) in inbound {
        let before = b.dropped(reason);
        a.send(&[packet]);
        carry(&mut a, &mut b);
        assert_eq!(b.dropped(reason), before + 1, "{reason:?}: {:?}", b.drop_reasons());
    }
    a.assert_balanced();
    b.assert_balanced();
}

#[test]
fn a_source_that_somebody_inside_made_up_ends_no_flow_of_the_peers() {
    let (mut a, mut b) = clusters(&Shape::workers(1));
    let headless = global(2, HEADLESS);
    a.send(&[udp((POD, 4000), (headless, 53), b"question")]);
    carry(&mut a, &mut b);
    let (peer, port, ..) = ends(&b.one());

    // The same ends as those of the peer's next flow.
    b.send(&[udp((peer, port), (headless, 54), b"made up")]);
    assert_eq!(b.dropped(DropReason::SourceNotLocal), 1, "{:?}", b.drop_reasons());
    a.send(&[udp((POD, 4000), (headless, 54), b"question")]);
    carry(&mut a, &mut b);
    let (seen, seen_port, ..) = ends(&b.one());
    assert_eq!((seen, seen_port), (peer, port));
    assert_eq!(b.drops(), 1, "{:?}", b.drop_reasons());
    b.assert_balanced();
}

#[test]
fn the_order_of_a_flow_survives_every_handing_over() {
    let (mut a, mut b) = clusters(&Shape::workers(4));
    let packets: Vec<_> = (0..400u16)
        .map(|number| {
            // A flow always comes by the same queue.
            let flow = number % 7;
            (usize::from(flow % 4), udp((POD, 4000 + flow), WEB, &number.to_be_bytes()))
        })
        .collect();
    for some in packets.chunks(50) {
        a.send_by(some);
        carry(&mut a, &mut b);
    }
    let mut newest = std::collections::BTreeMap::new();
    let delivered = b.delivered();
    assert_eq!(delivered.len(), 400);
    for packet in delivered {
        let number = be16(&packet, 28);
        let (source, port, ..) = ends(&packet);
        let before = newest.insert((source, port), number);
        assert!(before.is_none_or(|before| before < number), "{before:?} then {number}");
    }
    assert_eq!(newest.len(), 7);
    a.assert_balanced();
    b.assert_balanced();
}

#[test]
fn pods_reach_their_own_clusters_global_ips() {
    for workers in [1, 4] {
        let (mut a, _b) = clusters(&Shape::workers(workers));
        let question = udp((POD, 4000), (global(1, SERVICE_GLOBAL), 80), b"x");
        a.send(std::slice::from_ref(&question));
        let arrived = a.one();
        let (source, _, destination, port) = ends(&arrived);
        assert_eq!((source[..3].to_vec(), destination, port), (vec![242, 1, 0], SERVICE, 80));
        a.send(&[turned_round(&arrived)]);
        assert_eq!(a.one(), turned_round(&question));
        a.send(&[unreachable(SERVICE, &arrived)]);
        let error = a.one();
        assert_eq!((ends(&error).0, ends(&error).2), (global(1, SERVICE_GLOBAL), POD));
        assert_eq!(error[28..], question[..]);
        assert_eq!(a.drops(), 0, "{:?}", a.drop_reasons());
        a.assert_balanced();
    }
}

#[test]
fn a_panic_and_other_tables_leave_flows_as_they_are() {
    let shape = Shape::workers(2);
    let (mut a, mut b) = clusters(&shape);
    let packet = udp((POD, 4000), WEB, b"x");
    a.send(std::slice::from_ref(&packet));
    carry(&mut a, &mut b);
    let before = ends(&b.one());
    for line in &mut a.lines {
        line.counters.tun_in += 1;
        line.recover(a.now);
    }
    a.send(std::slice::from_ref(&packet));
    carry(&mut a, &mut b);
    assert_eq!(ends(&b.one()), before);
    change_tables(&a, &b, &shape, 2);
    a.send(std::slice::from_ref(&packet));
    carry(&mut a, &mut b);
    assert_eq!(ends(&b.one()), before);
    assert_eq!((a.sessions(), a.dropped(DropReason::WorkerPanic)), (1, 2));
    a.assert_balanced();
}

#[test]
fn idle_flows_end_a_bounded_number_at_a_time() {
    let (mut a, _b) = clusters(&Shape::workers(1));
    let packets: Vec<_> = (0..300u16).map(|port| udp((POD, 1000 + port), WEB, b"x")).collect();
    a.send(&packets);
    assert_eq!(a.sessions(), 300);
    a.now += Duration::from_secs(400);
    assert!(a.lines[0].poll_timeout().unwrap() <= a.now);
    a.send(&[udp((POD, 9), WEB, b"x")]);
    let left = a.sessions();
    assert!((301 - 64..301).contains(&left), "{left}");
    for _ in 0..4 {
        a.wait(Duration::from_secs(1));
    }
    assert_eq!(a.sessions(), 1);
    assert_eq!(a.lines[0].counters.sessions_expired, 300);
}

#[test]
fn a_connection_that_nobody_waits_for_is_answered_after_six_seconds() {
    let (mut a, mut b) = clusters(&Shape::workers(2));
    // A pod has talked to the other cluster's service; a headless pod there tries to open a connection to it.
    a.send(&[tcp((POD, 4000), WEB, tcp::SYN, b"")]);
    carry(&mut a, &mut b);
    let (source, port, ..) = ends(&b.one());
    b.send(&[tcp((HEADLESS_POD, 999), (source, port), tcp::SYN, b"")]);
    carry(&mut b, &mut a);
    assert!(a.delivered().is_empty());
    assert_eq!(a.dropped(DropReason::NatFiltered), 1, "{:?}", a.drop_reasons());
    a.wait(Duration::from_secs(5));
    carry(&mut a, &mut b);
    assert!(b.delivered().is_empty(), "nothing is said for six seconds");
    a.wait(Duration::from_secs(2));
    carry(&mut a, &mut b);
    let error = b.one();
    assert_eq!((ends(&error).0, ends(&error).2), (source, HEADLESS_POD));
    assert_eq!((error[20], error[21]), (3, 3));
    assert_eq!(error[28..68], tcp((HEADLESS_POD, 999), (source, port), tcp::SYN, b"")[..]);
    a.assert_balanced();
    b.assert_balanced();
}

#[test]
fn a_trace_says_what_would_happen_and_changes_nothing() {
    let (mut a, mut b) = clusters(&Shape::workers(1));
    let flow = FlowKey::new(POD.into(), WEB.0.into(), 17, 4000, 80);
    let question = TraceQuestion { flow, is_outbound: true, is_answer: false };
    let now = a.now;
    let before = a.lines[0].trace(&question, now);
    assert!(!before.is_live && before.dropped.is_none(), "{before:?}");
    assert_eq!(a.sessions(), 0);
    let stages: Vec<_> = before.steps.iter().map(|step| step.stage).collect();
    assert_eq!(stages, ["classify", "nat", "steer"]);

    a.send(&[udp((POD, 4000), WEB, b"x")]);
    carry(&mut a, &mut b);
    let (source, port, ..) = ends(&b.one());
    let live = a.lines[0].trace(&question, now);
    assert!(live.is_live, "{live:?}");
    let result = live.result.unwrap();
    assert_eq!((result.source(), result.source_port), (source.into(), port));

    let flow = FlowKey::new(global(1, 1).into(), global(2, 99).into(), 17, 1, 2);
    let question = TraceQuestion { flow, is_outbound: false, is_answer: false };
    let refused = b.lines[0].trace(&question, now);
    assert_eq!((refused.dropped, refused.result), (Some(DropReason::NoMapping), None));
    let flow = FlowKey::new([192, 168, 1, 1].into(), WEB.0.into(), 17, 1, 2);
    let question = TraceQuestion { flow, is_outbound: true, is_answer: false };
    assert_eq!(a.lines[0].trace(&question, now).dropped, Some(DropReason::SourceNotLocal));
}
