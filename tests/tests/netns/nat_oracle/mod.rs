//! The kernel's NAT as an oracle: one script of packets through nftables' masquerade and dnat in a namespace, and
//! through ours. Same verdicts, same packets, bit for bit but for the outside port, which either may choose.
//!
//! ```text
//!             ┌─▶ TUN "inner" ─▶ forwarding, conntrack, masquerade, dnat ─▶ TUN "outer" ─▶┐
//!   a packet ─┤                        (a network namespace)                              ├─▶ the same?
//!             └─▶ trieste_nat ────────────────────────────────────────────────────────────┘
//! ```
//! Both devices are the test's own, so that it sees every packet that the kernel lets through and no other. Where the
//! two differ, and are meant to, is asserted as well: `where_the_kernel_is_no_model` has the list.

mod bed;
mod kernel;

use std::net::Ipv4Addr;

use bed::{
    Bed, Flow, GLOBAL, HEADLESS, HEADLESS_GLOBAL, INSIDE_ROUTER, OTHER_POD, OTHER_REMOTE, POD, REMOTE,
    REMOTE_ROUTER, SELECTED, SELECTED_GLOBAL, SERVICE, SERVICE_GLOBAL,
};
use trieste_packet::checksum::fill_ipv4_header;
use trieste_packet::wire::put16;
use trieste_tests::fuzz::Mutator;
use trieste_tests::guard::root_test;
use trieste_tests::translator::packets::{
    ACK, FIN, PSH, RST, SCTP, SYN, TCP, UNKNOWN, cut, error, ip, query, sctp, sctp_init, tcp, udp,
};

#[test]
fn datagrams_and_queries_leave_and_come_back_as_with_the_kernel() {
    let Some(_turn) = root_test("datagrams_and_queries_leave_and_come_back_as_with_the_kernel") else {
        return;
    };
    let mut bed = Bed::new();
    let flow = bed.leaves("a question", &udp((POD, 4000), (REMOTE, 53), b"question"));
    bed.comes_in("its answer", flow, |port| udp((REMOTE, 53), (GLOBAL, port), b"answer"));
    let same = bed.leaves("to another host", &udp((POD, 4000), (OTHER_REMOTE, 53), b"question"));
    assert_eq!(same, flow, "one inside end has one outside end");
    bed.comes_in("from there", flow, |port| udp((OTHER_REMOTE, 53), (GLOBAL, port), b"answer"));
    let other = bed.leaves("from another pod", &udp((OTHER_POD, 4001), (REMOTE, 53), b"question"));
    bed.comes_in("its answer", other, |port| udp((REMOTE, 53), (GLOBAL, port), b"answer"));

    let mut without = udp((POD, 4000), (REMOTE, 53), b"no checksum");
    put16(&mut without, 26, 0);
    bed.leaves("without a checksum", &without);
    let mut wrong = udp((POD, 4000), (REMOTE, 53), b"wrong checksum");
    wrong[26] ^= 0x5a;
    bed.leaves("with a wrong checksum", &wrong);
    bed.leaves("empty", &udp((POD, 4000), (REMOTE, 53), b""));
    let mut with_options = udp((POD, 4000), (REMOTE, 53), b"with options");
    with_options.splice(20..20, [1, 1, 1, 0]);
    with_options[0] = 0x46;
    let total = u16::try_from(with_options.len()).unwrap();
    put16(&mut with_options, 2, total);
    fill_ipv4_header(&mut with_options);
    bed.leaves("with IP options", &with_options);

    for (question, answer) in [(8, 0), (13, 14)] {
        let ping = bed.leaves("a query", &query(question, POD, REMOTE, 77));
        bed.comes_in("its answer", ping, |id| query(answer, REMOTE, GLOBAL, id));
    }
    bed.report("datagrams and queries");
}

#[test]
fn connections_open_carry_and_close_as_with_the_kernel() {
    let Some(_turn) = root_test("connections_open_carry_and_close_as_with_the_kernel") else { return };
    let mut bed = Bed::new();
    let (pod, far) = ((POD, 5000), (REMOTE, 80));
    let flow = bed.leaves("SYN", &tcp(pod, far, SYN, (100, 0), b""));
    let back =
        |flags, numbers, data: &'static [u8]| move |port| tcp(far, (GLOBAL, port), flags, numbers, data);
    bed.comes_in("SYN, ACK", flow, back(SYN | ACK, (900, 101), b""));
    bed.leaves("ACK", &tcp(pod, far, ACK, (101, 901), b""));
    bed.leaves("a request", &tcp(pod, far, ACK | PSH, (101, 901), b"GET / HTTP/1.0\r\n\r\n"));
    bed.comes_in("an answer", flow, back(ACK | PSH, (901, 119), b"200"));
    bed.comes_in("FIN", flow, back(ACK | FIN, (904, 119), b""));
    bed.leaves("FIN", &tcp(pod, far, ACK | FIN, (119, 905), b""));
    bed.comes_in("the last ACK", flow, back(ACK, (905, 120), b""));

    let pod = (POD, 5001);
    let flow = bed.leaves("SYN", &tcp(pod, far, SYN, (100, 0), b""));
    bed.comes_in("refused", flow, back(RST | ACK, (0, 101), b""));

    // Both open at the same moment.
    let (pod, far) = ((POD, 5002), (REMOTE, 5002));
    let back = |flags, numbers| move |port| tcp(far, (GLOBAL, port), flags, numbers, b"");
    let flow = bed.leaves("SYN", &tcp(pod, far, SYN, (100, 0), b""));
    bed.comes_in("SYN the other way", flow, back(SYN, (700, 0)));
    bed.leaves("SYN, ACK", &tcp(pod, far, SYN | ACK, (100, 701), b""));
    bed.comes_in("SYN, ACK the other way", flow, back(SYN | ACK, (700, 101)));
    bed.leaves("data", &tcp(pod, far, ACK | PSH, (101, 701), b"hello"));
    bed.report("connections");
}

#[test]
fn errors_from_outside_reach_the_sender_as_with_the_kernel() {
    let Some(_turn) = root_test("errors_from_outside_reach_the_sender_as_with_the_kernel") else { return };
    let mut bed = Bed::new();
    let all: [Vec<u8>; 4] = [
        udp((POD, 4000), (REMOTE, 53), b"some words of a question"),
        tcp((POD, 4001), (REMOTE, 80), SYN, (100, 0), b""),
        query(8, POD, REMOTE, 78),
        query(13, POD, REMOTE, 79),
    ];
    for sent in &all {
        let flow = bed.leaves("a packet", sent);
        for (kind, from) in [
            ((3, 1), REMOTE_ROUTER),
            ((3, 3), REMOTE),
            ((3, 4), REMOTE_ROUTER),
            ((11, 0), REMOTE_ROUTER),
            ((12, 0), REMOTE),
        ] {
            for quoted in [28, 576] {
                bed.comes_in("an error", flow, |port| error(from, kind, &bed::outside(sent, port), quoted));
            }
        }
        bed.comes_in("still an answer", flow, |port| bed::answer(sent, port));
    }
    bed.report("errors from outside");
}

#[test]
fn errors_from_inside_leave_as_with_the_kernel() {
    let Some(_turn) = root_test("errors_from_inside_leave_as_with_the_kernel") else { return };
    let mut bed = Bed::new();
    for sent in [udp((POD, 4000), (REMOTE, 53), b"question"), query(8, POD, REMOTE, 78)] {
        let flow = bed.leaves("a packet", &sent);
        bed.comes_in("its answer", flow, |port| bed::answer(&sent, port));
        let delivered = bed::delivered(&sent);
        for sender in [POD, INSIDE_ROUTER] {
            for kind in [(3, 3), (3, 1), (11, 0), (11, 1)] {
                bed.goes_out("an error about the answer", &error(sender, kind, &delivered, 576));
            }
        }
    }
    bed.report("errors from inside");
}

#[test]
fn services_are_asked_and_answer_as_with_the_kernel() {
    let Some(_turn) = root_test("services_are_asked_and_answer_as_with_the_kernel") else { return };
    let mut bed = Bed::new();
    let (client, global, inside) = ((REMOTE, 9000), (SERVICE_GLOBAL, 80), (SERVICE, 80));
    bed.goes_in("SYN", &tcp(client, global, SYN, (1, 0), b""));
    bed.goes_out("SYN, ACK", &tcp(inside, client, SYN | ACK, (2, 2), b""));
    bed.goes_in("a request", &tcp(client, global, ACK | PSH, (2, 3), b"GET"));
    bed.goes_out("an answer", &tcp(inside, client, ACK | PSH, (3, 5), b"200"));
    bed.goes_in("a question", &udp(client, (SERVICE_GLOBAL, 53), b"question"));
    bed.goes_out("an error", &error(SERVICE, (3, 3), &udp(client, (SERVICE, 53), b"question"), 576));
    bed.goes_out("an answer", &udp((SERVICE, 53), client, b"answer"));
    bed.goes_in("an error", &error(REMOTE, (3, 3), &udp((SERVICE_GLOBAL, 53), client, b"answer"), 576));
    bed.goes_in("a ping", &query(8, REMOTE, SERVICE_GLOBAL, 5));
    bed.goes_out("a pong", &query(0, SERVICE, REMOTE, 5));
    bed.report("services");
}

#[test]
fn pods_with_addresses_of_their_own_leave_and_answer_as_with_the_kernel() {
    let Some(_turn) = root_test("pods_with_addresses_of_their_own_leave_and_answer_as_with_the_kernel")
    else {
        return;
    };
    let mut bed = Bed::new();
    let flow =
        bed.leaves_as("a selected pod", &udp((SELECTED, 4000), (REMOTE, 53), b"question"), SELECTED_GLOBAL);
    bed.comes_in("its answer", flow, |port| udp((REMOTE, 53), (SELECTED_GLOBAL, port), b"answer"));
    bed.goes_out("its error", &error(SELECTED, (3, 3), &udp((REMOTE, 53), (SELECTED, 4000), b"answer"), 576));

    // Asked at one address and leaving by another: it answers from where it was asked.
    let (client, global, inside) = ((REMOTE, 9000), (HEADLESS_GLOBAL, 5432), (HEADLESS, 5432));
    bed.goes_in("SYN", &tcp(client, global, SYN, (1, 0), b""));
    bed.goes_out("SYN, ACK", &tcp(inside, client, SYN | ACK, (2, 2), b""));
    bed.goes_in("a request", &tcp(client, global, ACK | PSH, (2, 3), b"select 1"));
    bed.goes_out("an answer", &tcp(inside, client, ACK | PSH, (3, 10), b"1"));
    bed.goes_in("a ping", &query(8, REMOTE, HEADLESS_GLOBAL, 5));
    bed.goes_out("a pong", &query(0, HEADLESS, REMOTE, 5));
    bed.goes_in("a question", &udp(client, (HEADLESS_GLOBAL, 53), b"question"));
    bed.goes_out("an error", &error(HEADLESS, (3, 3), &udp(client, (HEADLESS, 53), b"question"), 576));
    let own = tcp((HEADLESS, 40_000), (OTHER_REMOTE, 80), SYN, (1, 0), b"");
    let flow = bed.leaves_as("a connection of its own", &own, SELECTED_GLOBAL);
    bed.comes_in("its answer", flow, |port| {
        tcp((OTHER_REMOTE, 80), (SELECTED_GLOBAL, port), SYN | ACK, (7, 2), b"")
    });
    bed.report("pods with addresses of their own");
}

#[test]
fn other_protocols_are_translated_by_address_as_with_the_kernel() {
    let Some(_turn) = root_test("other_protocols_are_translated_by_address_as_with_the_kernel") else {
        return;
    };
    let mut bed = Bed::new();
    bed.goes_out("unknown", &ip(UNKNOWN, POD, REMOTE, b"of a protocol that nobody knows"));
    bed.goes_in("its answer", &ip(UNKNOWN, REMOTE, GLOBAL, b"answer"));
    bed.goes_out("SCTP", &sctp((POD, 6000), (REMOTE, 6001), &sctp_init()));
    let about = sctp((GLOBAL, 6000), (REMOTE, 6001), &sctp_init());
    assert_eq!(about[9], SCTP);
    bed.goes_in("an error about it", &error(REMOTE, (3, 2), &about, 576));
    bed.report("other protocols");
}

#[test]
fn fragments_pass_in_and_out_of_order_as_with_the_kernel() {
    let Some(_turn) = root_test("fragments_pass_in_and_out_of_order_as_with_the_kernel") else { return };
    let mut bed = Bed::new();
    let body: Vec<u8> = (0..3000_u32).map(|at| at.to_le_bytes()[0]).collect();
    let flow = bed.leaves("first of all, in one piece", &udp((POD, 4000), (REMOTE, 53), b"question"));
    let orders: [&[usize]; 4] = [&[0, 1, 2], &[2, 1, 0], &[1, 0, 2], &[2, 0, 1]];
    for (number, order) in (1_u16..).zip(orders) {
        let numbered = |mut packet: Vec<u8>| {
            put16(&mut packet, 4, number);
            fill_ipv4_header(&mut packet);
            let pieces = cut(&packet, 1400);
            order.iter().map(|&at| pieces[at].clone()).collect::<Vec<_>>()
        };
        bed.leave_in_pieces("a datagram", &numbered(udp((POD, 4000), (REMOTE, 53), &body)));
        bed.come_in_pieces("a datagram", flow, |port| numbered(udp((REMOTE, 53), (GLOBAL, port), &body)));
        bed.leave_in_pieces("a large ping", &numbered(ip(UNKNOWN, POD, REMOTE, &body)));
    }
    bed.report("fragments");
}

#[test]
fn what_nobody_asked_for_is_dropped_as_with_the_kernel() {
    let Some(_turn) = root_test("what_nobody_asked_for_is_dropped_as_with_the_kernel") else { return };
    let mut bed = Bed::new();
    let flow = bed.leaves("a question", &udp((POD, 4000), (REMOTE, 53), b"question"));
    bed.is_dropped_in("from another host", flow, |port| udp((OTHER_REMOTE, 53), (GLOBAL, port), b"x"));
    bed.is_dropped_in("to another port", flow, |port| udp((REMOTE, 53), (GLOBAL, port ^ 64), b"x"));
    bed.is_dropped_in("of another protocol", flow, |port| {
        tcp((REMOTE, 53), (GLOBAL, port), SYN, (1, 0), b"")
    });
    bed.is_dropped_in("an answer without question", flow, |port| query(0, REMOTE, GLOBAL, port));
    bed.is_dropped_in("unknown", flow, |_| ip(UNKNOWN, REMOTE, GLOBAL, b"x"));
    bed.is_dropped_in("an error about what was never sent", flow, |port| {
        error(REMOTE, (3, 3), &udp((GLOBAL, port ^ 64), (REMOTE, 53), b"x"), 576)
    });
    bed.is_dropped_in("an error to somebody else", flow, |port| {
        let mut wrong = error(REMOTE, (3, 3), &udp((GLOBAL, port), (REMOTE, 53), b"question"), 576);
        wrong[19] = 2;
        fill_ipv4_header(&mut wrong);
        wrong
    });
    bed.is_dropped_in("an error with a wrong checksum", flow, |port| {
        let mut wrong = error(REMOTE, (3, 3), &udp((GLOBAL, port), (REMOTE, 53), b"question"), 576);
        wrong[22] ^= 1;
        wrong
    });
    bed.is_dropped_out(
        "an error about what never came",
        &error(POD, (3, 3), &udp((REMOTE, 54), (POD, 4009), b"x"), 576),
    );
    bed.is_dropped_out("a pong without ping", &query(0, POD, REMOTE, 3));
    bed.is_dropped_out("a reset of no connection", &tcp((POD, 4003), (REMOTE, 80), RST, (1, 0), b""));
    bed.report("dropped");
}

/// A few thousand packets of many flows at once, in no order: questions, answers, errors about either.
#[test]
fn a_random_script_has_the_same_verdicts_and_packets() {
    let Some(_turn) = root_test("a_random_script_has_the_same_verdicts_and_packets") else { return };
    const SEED: u64 = 0x6f72_6163_6c65;
    let mut bed = Bed::new();
    let mut random = Mutator::new(SEED);
    let mut flows: Vec<(Vec<u8>, Flow, bool)> = Vec::new();
    for step in 0..4000_u16 {
        let choice = random.below(10);
        if flows.len() < 8 || choice == 0 {
            // Every inside port once: the kernel gives two pods one outside port when their peers differ.
            let (port, host) = (10_000 + step, u8::try_from(random.below(250)).unwrap());
            let pod = Ipv4Addr::new(10, 1, 1, host);
            let far = Ipv4Addr::new(242, 1, 1, u8::try_from(random.below(250)).unwrap());
            let sent = match random.below(3) {
                0 => tcp((pod, port), (far, 443), SYN, (1, 0), b""),
                1 => query(8, pod, far, port),
                _ => udp((pod, port), (far, 53), &vec![7; random.below(300)]),
            };
            let flow = bed.leaves("a new flow", &sent);
            flows.push((sent, flow, false));
            continue;
        }
        let at = random.below(flows.len());
        let (sent, flow, has_answer) = flows[at].clone();
        match choice {
            1..=4 => {
                bed.comes_in("an answer", flow, |port| bed::answer(&sent, port));
                flows[at].2 = true;
            }
            5 | 6 => {
                let kind = [(3, 1), (3, 4), (11, 0)][random.below(3)];
                bed.comes_in("an error", flow, |port| {
                    error(REMOTE_ROUTER, kind, &bed::outside(&sent, port), 576)
                });
            }
            7 if has_answer => {
                let sender = if random.below(2) == 0 { INSIDE_ROUTER } else { bed::source(&sent) };
                bed.goes_out("an error of ours", &error(sender, (3, 1), &bed::delivered(&sent), 576));
            }
            8 => bed.is_dropped_in("a stranger", flow, |port| udp((OTHER_REMOTE, 1), (GLOBAL, port), b"x")),
            _ => {
                if sent[9] != TCP {
                    bed.leaves("another question", &sent);
                }
            }
        }
    }
    eprintln!("{} flows, seed {SEED:#x}", flows.len());
    bed.report("random");
}

/// Where the kernel does otherwise, and which rule says that we are right to.
#[test]
fn where_the_kernel_is_no_model() {
    let Some(_turn) = root_test("where_the_kernel_is_no_model") else { return };
    let mut bed = Bed::new();
    let flow = bed.leaves("a question", &udp((POD, 4000), (REMOTE, 53), b"question"));
    let about = |port| udp((GLOBAL, port), (REMOTE, 53), b"question");
    // RFC 4787 REQ-8: filtering may look at the address alone; the kernel looks at the port as well.
    bed.differs_in("another port of a known host", (false, true), flow, |port| {
        udp((REMOTE, 54), (GLOBAL, port), b"x")
    });
    // RFC 5508 REQ-3a: the quoted header's checksum is verified; the kernel does not look at it.
    bed.differs_in("a wrong quoted header", (true, false), flow, |port| {
        let mut wrong = about(port);
        wrong[11] ^= 1;
        error(REMOTE, (3, 3), &wrong, 576)
    });
    // RFC 5508 REQ-10c, RFC 6633: no source quench.
    bed.differs_in("a source quench", (true, false), flow, |port| error(REMOTE, (4, 0), &about(port), 576));
}
