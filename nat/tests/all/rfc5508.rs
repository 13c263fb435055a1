//! RFC 5508, NAT behavioral requirements for ICMP: a test for each.

use std::time::Duration;
use trieste_nat::{Config, Limits, Refusal, Timers};
use trieste_packet::checksum::fill_ipv4_header;
use trieste_packet::wire::{Inner, be16, put16};
use trieste_packet::{DropReason, icmp};

use crate::bed::{
    self, Bed, GLOBAL, INSIDE_ROUTER, OTHER_POD, OTHER_REMOTE, POD, REMOTE, REMOTE_ROUTER, SERVICE,
    SERVICE_GLOBAL, Stop, assert_right, destination, error, mend, query, quoted, source, source_port, tcp,
    udp,
};

const SYN: u8 = 0x02;
const NOT_FORWARDED: Stop = Stop::Dropped(DropReason::NatUntranslatable);

//= https://www.rfc-editor.org/rfc/rfc5508#section-3.1
//= type=test
//# REQ-1: Unless explicitly overridden by local policy, a NAT device
//# MUST permit ICMP Queries and their associated responses, when
//# the Query is initiated from a private host to the external
//# hosts.
#[test]
fn req1_queries_pass_and_their_answers_come_back() {
    let mut bed = Bed::new();
    for (question, answer) in [(8, 0), (13, 14)] {
        let out = bed.outbound(&query(question, POD, REMOTE, 700)).unwrap();
        assert_eq!((source(&out), destination(&out)), (GLOBAL, REMOTE));
        assert_right(&out);
        let back = bed.inbound(&query(answer, REMOTE, GLOBAL, source_port(&out))).unwrap();
        assert_eq!((source(&back), destination(&back), source_port(&back)), (REMOTE, POD, 700));
        assert_right(&back);
    }
    let unasked =
        query(0, REMOTE, GLOBAL, source_port(&bed.outbound(&query(8, POD, REMOTE, 700)).unwrap()) ^ 64);
    assert!(matches!(bed.inbound(&unasked), Err(Stop::Refused(_))), "an answer that nobody waits for");
}

//= https://www.rfc-editor.org/rfc/rfc5508#section-3.1
//= type=test
//# a) NAT mapping of ICMP Query Identifiers SHOULD be external-host
//# independent.
#[test]
fn req1a_the_identifier_does_not_depend_on_the_external_host() {
    let mut bed = Bed::new();
    let first = source_port(&bed.outbound(&query(8, POD, REMOTE, 700)).unwrap());
    assert_eq!(source_port(&bed.outbound(&query(8, POD, OTHER_REMOTE, 700)).unwrap()), first);
    assert_ne!(source_port(&bed.outbound(&query(8, POD, REMOTE, 701)).unwrap()), first);
    assert_ne!(source_port(&bed.outbound(&query(8, OTHER_POD, REMOTE, 700)).unwrap()), first);
}

//= https://www.rfc-editor.org/rfc/rfc5508#section-3.2
//= type=test
//# REQ-2: An ICMP Query session timer MUST NOT expire in less than 60
//# seconds.
#[test]
fn req2_a_query_is_remembered_for_sixty_seconds() {
    let mut bed = Bed::new();
    let out = bed.outbound(&query(8, POD, REMOTE, 700)).unwrap();
    let answer = query(0, REMOTE, GLOBAL, source_port(&out));
    bed.pass(60);
    assert!(bed.inbound(&answer).is_ok());
    bed.pass(200);
    assert!(matches!(bed.inbound(&answer), Err(Stop::Refused(_))));
}

//= https://www.rfc-editor.org/rfc/rfc5508#section-3.2
//= type=test
//# a) It is RECOMMENDED that the ICMP Query session timer be made
//# configurable.
#[test]
fn req2a_the_timer_is_configurable() {
    let timers = Timers { icmp: Duration::from_secs(600), ..Timers::default() };
    let mut bed = Bed::with(Config { timers, ..Config::default() });
    let out = bed.outbound(&query(8, POD, REMOTE, 700)).unwrap();
    bed.pass(600);
    assert!(bed.inbound(&query(0, REMOTE, GLOBAL, source_port(&out))).is_ok());
}

//= https://www.rfc-editor.org/rfc/rfc5508#section-4.1
//= type=test
//# REQ-3: When an ICMP Error packet is received, if the ICMP checksum
//# fails to validate, the NAT SHOULD silently drop the ICMP Error
//# packet.
#[test]
fn req3_errors_with_a_wrong_checksum_are_dropped() {
    let mut bed = Bed::new();
    let out = bed.outbound(&udp((POD, 4000), (REMOTE, 53))).unwrap();
    let mut bytes = error(REMOTE_ROUTER, (3, 1), &out, 576);
    assert!(bed.inbound(&bytes).is_ok());
    bytes[22] ^= 0x40;
    assert_eq!(bed.inbound(&bytes), Err(NOT_FORWARDED));
}

//= https://www.rfc-editor.org/rfc/rfc5508#section-4.1
//= type=test
//# a) If the IP checksum of the embedded packet fails to validate, the
//# NAT SHOULD silently drop the Error packet; and
#[test]
fn req3a_errors_that_quote_a_wrong_header_are_dropped() {
    let mut bed = Bed::new();
    let mut out = bed.outbound(&udp((POD, 4000), (REMOTE, 53))).unwrap();
    out[11] ^= 1;
    assert_eq!(bed.inbound(&error(REMOTE_ROUTER, (3, 1), &out, 576)), Err(NOT_FORWARDED));
}

//= https://www.rfc-editor.org/rfc/rfc5508#section-4.1
//= type=test
//# b) If the embedded packet includes IP options, the NAT device MUST
//# traverse past the IP options to locate the start of the transport
//# header for the embedded packet; and
#[test]
fn req3b_options_of_the_quoted_packet_are_walked() {
    let mut bed = Bed::new();
    let with_options = |mut bytes: Vec<u8>| {
        bytes.splice(20..20, [7, 7, 4, 0, 0, 0, 0, 0]);
        bytes[0] = 0x47;
        let total = u16::try_from(bytes.len()).unwrap();
        put16(&mut bytes, 2, total);
        fill_ipv4_header(&mut bytes);
        bytes
    };
    let sent = with_options(udp((POD, 4000), (REMOTE, 53)));
    let out = bed.outbound(&sent).unwrap();
    let back = bed.inbound(&error(REMOTE_ROUTER, (11, 0), &out, 576)).unwrap();
    assert_eq!(quoted(&back), sent);
    assert_right(&back);
}

//= https://www.rfc-editor.org/rfc/rfc5508#section-4.1
//= type=test
//# c) The NAT device SHOULD NOT validate the transport checksum of the
//# embedded packet within an ICMP Error message, even when it is
//# possible to do so; and
#[test]
fn req3c_the_quoted_transport_checksum_is_not_checked_and_stays_as_wrong_as_it_was() {
    let mut bed = Bed::new();
    let mut sent = udp((POD, 4000), (REMOTE, 53));
    sent[26] ^= 0x11;
    let out = bed.outbound(&sent).unwrap();
    let back = bed.inbound(&error(REMOTE_ROUTER, (3, 1), &out, 576)).unwrap();
    assert_eq!(quoted(&back), sent, "wrong on the way out, and back to what it was");
}

//= https://www.rfc-editor.org/rfc/rfc5508#section-4.1
//= type=test
//# d) If the ICMP Error payload contains ICMP extensions [ICMP-EXT],
//# the NAT device MUST exclude the optional zero-padding and the ICMP
//# extensions when evaluating transport checksum for the embedded
//# packet.
#[test]
fn req3d_extensions_are_kept_as_they_are() {
    let mut bed = Bed::new();
    let sent = tcp((POD, 4000), (REMOTE, 80), SYN);
    let mut padded = bed.outbound(&sent).unwrap();
    let quoted_bytes = padded.len();
    padded.resize(128, 0);
    let extension = [0x20, 0, 0xdd, 0x09, 0, 8, 1, 1, 0x12, 0x34, 0x51, 0xff];
    padded.extend_from_slice(&extension);
    let mut bytes = error(REMOTE_ROUTER, (11, 0), &padded, 200);
    bytes[25] = 32;
    mend(&mut bytes);
    let back = bed.inbound(&bytes).unwrap();
    assert_eq!(&quoted(&back)[..quoted_bytes], sent);
    assert!(quoted(&back)[quoted_bytes..128].iter().all(|&byte| byte == 0));
    assert_eq!(&quoted(&back)[128..], extension);
    assert_eq!(back[25], 32);
    assert_right(&back);
}

//= https://www.rfc-editor.org/rfc/rfc5508#section-4.2.1
//= type=test
//# REQ-4: If a NAT device receives an ICMP Error packet from an
//# external realm, and the NAT device does not have an active
//# mapping for the embedded payload, the NAT SHOULD silently drop
//# the ICMP Error packet.
#[test]
fn req4_errors_from_outside_about_nothing_of_ours_are_dropped() {
    let mut bed = Bed::new();
    let out = bed.outbound(&udp((POD, 4000), (REMOTE, 53))).unwrap();
    let never_sent = udp((GLOBAL, source_port(&out) ^ 64), (REMOTE, 53));
    assert_eq!(bed.inbound(&error(REMOTE, (3, 3), &never_sent, 576)), Err(Stop::Silent));
    let to_nobody = udp((GLOBAL, source_port(&out)), (OTHER_REMOTE, 53));
    assert_eq!(bed.inbound(&error(OTHER_REMOTE, (3, 3), &to_nobody, 576)), Err(Stop::Silent));
    assert_eq!(bed.sessions(), 1);
}

//= https://www.rfc-editor.org/rfc/rfc5508#section-4.2.1
//= type=test
//# a) Revert the IP and transport headers of the embedded IP packet to
//# their original form, using the matching mapping; and
//# b) Leave the ICMP Error type and code unchanged; and
//# c) Modify the destination IP address of the outer IP header to be
//# same as the source IP address of the embedded packet after
//# translation.
#[test]
fn req4abc_errors_from_outside_reach_the_sender_with_what_it_sent() {
    let mut bed = Bed::new();
    let all = [
        udp((POD, 4000), (REMOTE, 53)),
        tcp((POD, 4001), (REMOTE, 80), SYN),
        query(8, POD, REMOTE, 4002),
        query(13, POD, REMOTE, 4002),
    ];
    for sent in all {
        let out = bed.outbound(&sent).unwrap();
        for (kind, from) in
            [((3, 4), REMOTE_ROUTER), ((11, 0), REMOTE_ROUTER), ((12, 0), REMOTE), ((3, 3), REMOTE)]
        {
            let mut bytes = error(from, kind, &out, 576);
            put16(&mut bytes, 26, 1400);
            mend(&mut bytes);
            let back = bed.inbound(&bytes).unwrap();
            assert_eq!(quoted(&back), sent, "{kind:?}");
            assert_eq!((back[20], back[21], bed::mtu_of(&back)), (kind.0, kind.1, 1400));
            assert_eq!((source(&back), destination(&back)), (from, POD));
            assert_right(&back);
        }
    }
}

//= https://www.rfc-editor.org/rfc/rfc5508#section-4.2.2
//= type=test
//# REQ-5: If a NAT device receives an ICMP Error packet from the private
//# realm, and the NAT does not have an active mapping for the embedded
//# payload, the NAT SHOULD silently drop the ICMP Error packet.
#[test]
fn req5_errors_from_inside_about_nothing_of_ours_are_dropped() {
    let mut bed = Bed::new();
    assert_eq!(bed.outbound(&error(POD, (3, 3), &udp((REMOTE, 53), (POD, 4000)), 576)), Err(Stop::Silent));
    bed.outbound(&udp((POD, 4000), (REMOTE, 53))).unwrap();
    let from_another = udp((OTHER_REMOTE, 53), (POD, 4000));
    assert_eq!(bed.outbound(&error(POD, (3, 3), &from_another, 576)), Err(Stop::Silent));
    assert_eq!(bed.sessions(), 1);
}

//= https://www.rfc-editor.org/rfc/rfc5508#section-4.2.2
//= type=test
//# c) If the NAT enforces Basic NAT function [NAT-TRAD], and the NAT
//# has active mapping for the IP address that sent the ICMP Error,
//# translate the source IP address of the ICMP Error packet with the
//# public IP address in the mapping.  In all other cases, translate the
//# source IP address of the ICMP Error packet with its own public IP
//# address.
#[test]
fn req5abc_errors_from_inside_leave_with_the_global_address_and_what_was_received() {
    let mut bed = Bed::new();
    let port = source_port(&bed.outbound(&udp((POD, 4000), (REMOTE, 53))).unwrap());
    let came = udp((REMOTE, 53), (GLOBAL, port));
    let delivered = bed.inbound(&came).unwrap();
    for sender in [POD, INSIDE_ROUTER] {
        let out = bed.outbound(&error(sender, (3, 3), &delivered, 576)).unwrap();
        assert_eq!(quoted(&out), came);
        assert_eq!((source(&out), destination(&out), out[20], out[21]), (GLOBAL, REMOTE, 3, 3));
        assert_right(&out);
    }
    // One to one: the service answers in its own name.
    let asked = udp((REMOTE, 9000), (SERVICE_GLOBAL, 53));
    let delivered = bed.inbound(&asked).unwrap();
    assert_eq!(destination(&delivered), SERVICE);
    let out = bed.outbound(&error(SERVICE, (3, 3), &delivered, 576)).unwrap();
    assert_eq!((source(&out), quoted(&out)), (SERVICE_GLOBAL, &asked[..]));
    assert_right(&out);
}

//= https://www.rfc-editor.org/rfc/rfc5508#section-4.3
//= type=test
//# REQ-6: While processing an ICMP Error packet pertaining to an ICMP
//# Query or Query response message, a NAT device MUST NOT refresh or
//# delete the NAT Session that pertains to the embedded payload within
//# the ICMP Error packet.
#[test]
fn req6_errors_neither_refresh_nor_end_sessions() {
    let mut bed = Bed::new();
    let out = bed.outbound(&query(8, POD, REMOTE, 700)).unwrap();
    let about_it = error(REMOTE_ROUTER, (3, 1), &out, 576);
    let answer = query(0, REMOTE, GLOBAL, source_port(&out));
    for _ in 0..50 {
        assert!(bed.inbound(&about_it).is_ok());
    }
    bed.pass(59);
    assert!(bed.inbound(&about_it).is_ok());
    assert_eq!(bed.sessions(), 1, "not ended");
    bed.pass(10);
    assert_eq!(bed.sessions(), 0, "not refreshed");
    assert_eq!(bed.inbound(&about_it), Err(Stop::Silent));
    assert!(bed.inbound(&answer).is_err());
}

//= https://www.rfc-editor.org/rfc/rfc5508#section-5
//= type=test
//# REQ-7: NAT devices enforcing Basic NAT [NAT-TRAD] MUST support the
//# traversal of hairpinned ICMP Query sessions.
#[test]
fn req7_hairpinned_queries_pass() {
    let mut bed = Bed::new();
    let there = bed.hairpin(&query(8, POD, SERVICE_GLOBAL, 700)).unwrap();
    assert_eq!((source(&there), destination(&there)), (GLOBAL, SERVICE));
    let back = bed.hairpin(&query(0, SERVICE, GLOBAL, source_port(&there))).unwrap();
    assert_eq!((source(&back), destination(&back), source_port(&back)), (SERVICE_GLOBAL, POD, 700));
    assert_right(&back);
}

//= https://www.rfc-editor.org/rfc/rfc5508#section-5
//= type=test
//# a) When forwarding a hairpinned ICMP Error message, the NAT device
//# MUST translate the destination IP address of the outer IP header to
//# be same as the source IP address of the embedded IP packet after the
//# translation.
#[test]
fn req7a_hairpinned_errors_reach_who_sent_what_they_quote() {
    let mut bed = Bed::new();
    for sent in [udp((POD, 4000), (SERVICE_GLOBAL, 53)), query(8, POD, SERVICE_GLOBAL, 700)] {
        let there = bed.hairpin(&sent).unwrap();
        for sender in [SERVICE, INSIDE_ROUTER] {
            let back = bed.hairpin(&error(sender, (3, 3), &there, 576)).unwrap();
            assert_eq!((source(&back), destination(&back)), (SERVICE_GLOBAL, POD));
            assert_eq!(quoted(&back), sent);
            assert_right(&back);
        }
    }
}

//= https://www.rfc-editor.org/rfc/rfc5508#section-6
//= type=test
//# REQ-8: When a NAT device is unable to establish a NAT Session for a
//# new transport-layer (TCP, UDP, ICMP, etc.) flow due to resource
//# constraints or administrative restrictions, the NAT device SHOULD
//# send an ICMP destination unreachable message, with a code of 13
//# (Communication administratively prohibited) to the sender, and drop
//# the original packet.
#[test]
fn req8_whoever_gets_no_session_may_be_told_that_it_is_prohibited() {
    let limits = Limits { sessions: 2, ..Limits::default() };
    let mut bed = Bed::with(Config { limits, ..Config::default() });
    let mut refused = None;
    for port in 4000..4100 {
        let sent = udp((POD, port), (REMOTE, 53));
        if let Err(Stop::Refused(refusal)) = bed.outbound(&sent) {
            refused = Some((refusal, sent));
            break;
        }
    }
    let (refusal, sent) = refused.expect("the limit is reached");
    assert_eq!(refusal, Refusal::SessionLimit);
    assert!(refusal.is_told());
    let inner = Inner::parse(&sent).unwrap();
    assert!(icmp::may_answer(&sent, &inner));
    let mut pool = trieste_packet::Pool::new(trieste_packet::PoolConfig { slots: 1, slot_bytes: 2048 });
    let mut out = pool.alloc().unwrap();
    assert!(icmp::prohibited(&sent, &inner, INSIDE_ROUTER.into(), &mut out));
    let told = out.bytes();
    assert_eq!((told[20], told[21], destination(told)), (3, 13, POD));
    assert_eq!(quoted(told), sent, "in the form that the sender knows");
    // Without an address by the rules it is the same; what comes from outside is never told.
    let Err(Stop::Refused(refusal)) = bed.outbound(&udp((OTHER_REMOTE, 1), (REMOTE, 53))) else {
        panic!("nobody's source has no global address")
    };
    assert_eq!((refusal, refusal.is_told()), (Refusal::NoGlobalIp, true));
    for silent in [Refusal::NoMapping, Refusal::Filtered, Refusal::UnsolicitedSyn] {
        assert!(!silent.is_told(), "{silent:?}");
    }
}

//= https://www.rfc-editor.org/rfc/rfc5508#section-7
//= type=test
//# REQ-9: A NAT device MAY implement a policy control that prevents ICMP
//# messages being generated toward certain interface(s).
#[test]
fn req9_nothing_is_said_to_who_comes_from_outside() {
    let mut bed = Bed::new();
    let port = source_port(&bed.outbound(&udp((POD, 4000), (REMOTE, 53))).unwrap());
    let strangers = [
        udp((OTHER_REMOTE, 53), (GLOBAL, port)),
        udp((REMOTE, 53), (GLOBAL, port ^ 64)),
        query(0, REMOTE, GLOBAL, 99),
        tcp((REMOTE, 80), (GLOBAL, 4000), SYN),
    ];
    for bytes in strangers {
        let Err(Stop::Refused(refusal)) = bed.inbound(&bytes) else { panic!("a stranger came in") };
        assert!(!refusal.is_told(), "{refusal:?}");
    }
}

//= https://www.rfc-editor.org/rfc/rfc5508#section-7
//= type=test
//# a.  MUST support:
//#        1.  Destination Unreachable Message, as described in Section 7.1 of
//#            this document.
//#        2.  Time Exceeded Message, as described in Section 7.2 of this
//#            document.
//#        3.  Echo Request/Reply Messages, as described in REQ-1.
#[test]
fn req10a_unreachable_exceeded_and_echo_are_supported_in_both_directions() {
    let mut bed = Bed::new();
    let out = bed.outbound(&query(8, POD, REMOTE, 700)).unwrap();
    let delivered = bed.inbound(&query(0, REMOTE, GLOBAL, source_port(&out))).unwrap();
    for code in 0..=15 {
        assert!(bed.inbound(&error(REMOTE_ROUTER, (3, code), &out, 28)).is_ok());
        assert!(bed.outbound(&error(POD, (3, code), &delivered, 28)).is_ok());
    }
    for code in 0..=1 {
        assert!(bed.inbound(&error(REMOTE_ROUTER, (11, code), &out, 28)).is_ok());
        assert!(bed.outbound(&error(INSIDE_ROUTER, (11, code), &delivered, 28)).is_ok());
    }
}

//= https://www.rfc-editor.org/rfc/rfc5508#section-7
//= type=test
//# c.  SHOULD NOT support:
//#        1.  Source Quench, as specified in [RFC1812].
//#        2.  Information Request/Reply, as specified in [RFC1812].
#[test]
fn req10c_source_quench_and_information_requests_are_dropped() {
    let mut bed = Bed::new();
    let out = bed.outbound(&udp((POD, 4000), (REMOTE, 53))).unwrap();
    assert_eq!(bed.inbound(&error(REMOTE_ROUTER, (4, 0), &out, 576)), Err(NOT_FORWARDED));
    for icmp_type in [15, 16, 17, 18] {
        assert_eq!(bed.outbound(&query(icmp_type, POD, REMOTE, 700)), Err(NOT_FORWARDED));
    }
}

//= https://www.rfc-editor.org/rfc/rfc5508#section-8
//= type=test
//# REQ-11: A NAT device MAY drop or appropriately handle Non-QueryError
//# ICMP messages.
#[test]
fn req11_messages_that_are_neither_query_nor_error_are_dropped_both_ways() {
    let mut bed = Bed::new();
    let out = bed.outbound(&udp((POD, 4000), (REMOTE, 53))).unwrap();
    // Redirect, router advertisement and solicitation, experimental.
    for icmp_type in [5, 9, 10, 253] {
        assert_eq!(bed.inbound(&error(REMOTE_ROUTER, (icmp_type, 0), &out, 576)), Err(NOT_FORWARDED));
        assert_eq!(bed.outbound(&query(icmp_type, POD, REMOTE, 700)), Err(NOT_FORWARDED));
    }
    assert_eq!(be16(&bed.outbound(&udp((POD, 4000), (REMOTE, 53))).unwrap(), 20), source_port(&out));
}
