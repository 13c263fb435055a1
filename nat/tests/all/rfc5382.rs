//! RFC 5382 (TCP), one test per requirement. Requirement 9 is about packets: see `rfc5508.rs`.

use std::collections::BTreeSet;

use trieste_nat::{Facts, Refusal};
use trieste_packet::wire::tcp::{ACK, FIN, RST, SYN};

use crate::support::*;

const SERVER: (std::net::Ipv4Addr, u16) = (REMOTE, 80);
const CLIENT: (std::net::Ipv4Addr, u16) = (POD, 40_000);

/// Opens a connection from inside; returns a packet of it as it leaves.
#[expect(clippy::unwrap_used, reason = "a helper of tests")]
fn connected(lab: &mut Lab) -> Facts {
    let syn = lab.leave(&tcp(SYN, CLIENT, SERVER)).unwrap();
    lab.enter(&answer(&syn, SYN_ACK)).unwrap();
    lab.leave(&tcp(ACK, CLIENT, SERVER)).unwrap()
}

/// Whether the session is there after so many seconds without packets.
fn lives_for(lab: &mut Lab, seconds: u64) -> bool {
    lab.wait(seconds);
    lab.expire();
    lab.nat.stats().sessions > 0
}

//= https://www.rfc-editor.org/rfc/rfc5382#section-4.1
//= type=test
//# A NAT MUST have an "Endpoint-Independent Mapping" behavior
//# for TCP.
#[test]
fn req1_one_inside_end_has_one_outside_end_whoever_it_talks_to() {
    let mut lab = Lab::new(rules());
    let mut outside = BTreeSet::new();
    for to in [(REMOTE, 80), (REMOTE, 81), (OTHER_REMOTE, 80)] {
        let out = lab.leave(&tcp(SYN, CLIENT, to)).unwrap();
        outside.insert((out.source, out.source_port));
    }
    assert_eq!(outside.len(), 1);
}

#[test]
fn req2_a_connection_opens_carries_and_closes() {
    let mut lab = Lab::new(rules());
    let out = connected(&mut lab);
    lab.enter(&answer(&out, ACK)).unwrap();
    lab.leave(&tcp(FIN_ACK, CLIENT, SERVER)).unwrap();
    lab.enter(&answer(&out, ACK)).unwrap();
    lab.enter(&answer(&out, FIN_ACK)).unwrap();
    lab.leave(&tcp(ACK, CLIENT, SERVER)).unwrap();
    assert!(lives_for(&mut lab, 239), "retransmissions of the last packets still find their way");
    assert!(!lives_for(&mut lab, 3));
}

//= https://www.rfc-editor.org/rfc/rfc5382#section-4.2
//= type=test
//# A NAT MUST handle the TCP simultaneous-
//# open mode of connection initiation.
#[test]
fn req2a_a_connection_that_both_ends_open_is_one() {
    let mut lab = Lab::new(rules());
    let out = lab.leave(&tcp(SYN, CLIENT, SERVER)).unwrap();
    let inside = lab.enter(&answer(&out, SYN)).unwrap();
    assert_eq!(inside.destination, POD);
    lab.leave(&tcp(SYN_ACK, CLIENT, SERVER)).unwrap();
    lab.enter(&answer(&out, SYN_ACK)).unwrap();
    assert!(lives_for(&mut lab, 7439), "it is established");
    assert_eq!(lab.nat.stats().sessions, 1);
}

#[test]
fn req2b_connections_from_outside_open_where_they_are_permitted() {
    let mut lab = Lab::new(rules());
    // A headless target may be asked by anybody.
    let syn = tcp(SYN, (REMOTE, 50_000), (HEADLESS_GLOBAL, 5432));
    let inside = lab.enter(&syn).unwrap();
    lab.leave(&answer(&inside, SYN_ACK)).unwrap();
    lab.enter(&Facts { kind: tcp(ACK, SERVER, SERVER).kind, ..syn }).unwrap();
    // A mapping may be asked by those whom it has sent to.
    let out = connected(&mut lab);
    let second = tcp(SYN, (REMOTE, 50_001), (out.source, out.source_port));
    let inside = lab.enter(&second).unwrap();
    assert_eq!((inside.destination, inside.destination_port), CLIENT);
    assert_eq!(lab.leave(&answer(&inside, SYN_ACK)).unwrap(), answer(&second, SYN_ACK));
    let stray = tcp(ACK, (REMOTE, 50_002), (out.source, out.source_port));
    assert_eq!(lab.enter(&stray), Err(Refusal::NoSession), "but not in the middle of nothing");
    assert!(lives_for(&mut lab, 7439));
    assert_eq!(lab.nat.stats().sessions, 3);
}

#[test]
fn req2c_half_closed_connections_live_as_long_as_open_ones() {
    for from_inside in [true, false] {
        let mut lab = Lab::new(rules());
        let out = connected(&mut lab);
        if from_inside {
            lab.leave(&tcp(FIN_ACK, CLIENT, SERVER)).unwrap();
        } else {
            lab.enter(&answer(&out, FIN_ACK)).unwrap();
        }
        assert!(lives_for(&mut lab, 7000));
        lab.enter(&answer(&out, ACK)).unwrap();
        assert!(lives_for(&mut lab, 7000));
    }
}

#[test]
fn req2d_the_same_ends_connect_again_after_closing() {
    let mut lab = Lab::new(rules());
    let out = connected(&mut lab);
    lab.leave(&tcp(FIN_ACK, CLIENT, SERVER)).unwrap();
    lab.enter(&answer(&out, FIN_ACK)).unwrap();
    let again = connected(&mut lab);
    assert_eq!(again, out, "by the same outside end");
    assert!(lives_for(&mut lab, 7439));
}

#[test]
fn req2e_a_connection_that_was_not_seen_to_open_goes_on_from_inside() {
    let mut lab = Lab::new(rules());
    let out = lab.leave(&tcp(ACK, CLIENT, SERVER)).unwrap();
    assert!(lives_for(&mut lab, 239), "as one that opens");
    lab.enter(&answer(&out, ACK)).unwrap();
    assert!(lives_for(&mut lab, 7439), "as one that is open");
    assert!(!lives_for(&mut lab, 3));
    assert_eq!(lab.leave(&tcp(RST, CLIENT, SERVER)), Err(Refusal::NoSession), "its end begins nothing");
}

//= https://www.rfc-editor.org/rfc/rfc5382#section-4.3
//= type=test
//# If a more stringent filtering behavior is most important,
//# it is RECOMMENDED that a NAT have an "Address-Dependent
//# Filtering" behavior.
#[test]
fn req3_filtering_is_by_address() {
    let mut lab = Lab::new(rules());
    let out = connected(&mut lab);
    let to = (out.source, out.source_port);
    assert_eq!(lab.enter(&tcp(SYN, (OTHER_REMOTE, 80), to)), Err(Refusal::UnsolicitedSyn));
    assert_eq!(lab.enter(&tcp(ACK, (OTHER_REMOTE, 80), to)), Err(Refusal::Filtered));
    assert!(lab.enter(&tcp(SYN, (REMOTE, 81), to)).is_ok());
}

//= https://www.rfc-editor.org/rfc/rfc5382#section-4.3
//= type=test
//# A NAT MUST NOT respond to an unsolicited inbound SYN packet
//# for at least 6 seconds after the packet is received.
#[test]
fn req4_an_unsolicited_syn_is_answered_after_six_seconds_if_nobody_asks() {
    let mut lab = Lab::new(rules());
    let to = lab.leave(&udp((POD, 5000), (OTHER_REMOTE, 53))).unwrap().source;
    let syn = tcp(SYN, SERVER, (to, 5555));
    assert_eq!(lab.enter(&syn), Err(Refusal::UnsolicitedSyn));
    let packet: Vec<u8> = (0..100).collect();
    assert!(lab.nat.hold_unsolicited(&syn, &packet, lab.now));
    lab.wait(5);
    assert!(lab.nat.poll_unsolicited(&lab.rules, lab.now).is_none());
    lab.wait(1);
    let held = lab.nat.poll_unsolicited(&lab.rules, lab.now).unwrap();
    assert_eq!((held.flow, held.packet()), (syn, &packet[..68]));
    assert!(lab.nat.poll_unsolicited(&lab.rules, lab.now).is_none());
}

//= https://www.rfc-editor.org/rfc/rfc5382#section-4.3
//= type=test
//# If during this interval the NAT receives and translates an outbound
//# SYN for the connection the NAT MUST silently drop the original
//# unsolicited inbound SYN packet.
#[test]
fn req4_the_inside_may_open_towards_it_meanwhile() {
    let mut lab = Lab::new(rules());
    let out = lab.leave(&tcp(SYN, CLIENT, (OTHER_REMOTE, 80))).unwrap();
    let syn = tcp(SYN, SERVER, (out.source, out.source_port));
    assert_eq!(lab.enter(&syn), Err(Refusal::UnsolicitedSyn));
    assert!(lab.nat.hold_unsolicited(&syn, &[0; 40], lab.now));
    lab.wait(3);
    assert_eq!(lab.leave(&tcp(SYN, CLIENT, SERVER)).unwrap(), syn.reversed());
    lab.wait(3);
    assert!(lab.nat.poll_unsolicited(&lab.rules, lab.now).is_none());
}

#[test]
fn req4_what_is_held_is_bounded() {
    let mut lab = Lab::with(rules(), |config| config.limits.unsolicited = 4);
    let syn = tcp(SYN, SERVER, (cluster_globals()[0], 5555));
    let held = (0..10).filter(|_| lab.nat.hold_unsolicited(&syn, &[], lab.now)).count();
    assert_eq!(held, 4);
}

//= https://www.rfc-editor.org/rfc/rfc5382#section-5
//= type=test
//# In such cases, the value of the "established connection
//# idle-timeout" MUST NOT be less than 2 hours 4 minutes.
#[test]
fn req5_open_connections_live_for_two_hours_and_four_minutes() {
    let mut lab = Lab::new(rules());
    let out = connected(&mut lab);
    assert!(lives_for(&mut lab, 7440));
    lab.enter(&answer(&out, ACK)).unwrap();
    assert!(lives_for(&mut lab, 7440), "from their last packet on");
    assert!(!lives_for(&mut lab, 2));
}

//= https://www.rfc-editor.org/rfc/rfc5382#section-5
//= type=test
//# The value of the "transitory connection idle-timeout" MUST NOT be
//# less than 4 minutes.
#[test]
fn req5_connections_that_open_or_close_live_for_four_minutes() {
    let mut lab = Lab::new(rules());
    lab.leave(&tcp(SYN, CLIENT, SERVER)).unwrap();
    assert!(lives_for(&mut lab, 240));
    assert!(!lives_for(&mut lab, 2));
    let out = connected(&mut lab);
    lab.wait(1000);
    lab.leave(&tcp(FIN_ACK, CLIENT, SERVER)).unwrap();
    lab.enter(&answer(&out, FIN_ACK)).unwrap();
    assert!(lives_for(&mut lab, 240));
    assert!(!lives_for(&mut lab, 2), "though the wheel had planned to look much later");
}

/// As for UDP: no payload is known here.
#[test]
fn req6_there_are_no_application_level_gateways() {
    let mut lab = Lab::new(rules());
    let control = lab.leave(&tcp(SYN, CLIENT, (REMOTE, 21))).unwrap();
    let data = tcp(SYN, (REMOTE, 20), (control.source, control.source_port + 1));
    assert_eq!(lab.enter(&data), Err(Refusal::UnsolicitedSyn));
}

//= https://www.rfc-editor.org/rfc/rfc5382#section-7.1
//= type=test
//# A NAT MUST NOT have a "Port assignment" behavior of "Port
//# overloading" for TCP.
#[test]
fn req7_below_the_fill_level_no_two_inside_ends_have_one_outside_end() {
    let mut lab = Lab::new(plain_rules(1, &[SELECTED_GLOBAL]));
    let mut used = BTreeSet::new();
    for pod in [POD, OTHER_POD, SELECTED_POD, NAMESPACE_POD] {
        for port in 1024..11_024 {
            let outside = lab.leave(&tcp(SYN, (pod, port), SERVER)).unwrap();
            assert!(used.insert((outside.source, outside.source_port)), "{outside:?}");
        }
    }
    assert_eq!(lab.nat.stats().shared, 0);
}

//= https://www.rfc-editor.org/rfc/rfc5382#section-7.2
//= type=test
//# A NAT MUST support "hairpinning" for TCP.
#[test]
fn req8_inside_ends_connect_to_each_other_by_their_outside_ends() {
    let mut lab = Lab::new(rules());
    let server = (OTHER_POD, 8080);
    let server_outside = lab.leave(&tcp(SYN, server, SERVER)).unwrap();
    let client_outside = lab.leave(&tcp(SYN, CLIENT, SERVER)).unwrap();
    let server_outside = (server_outside.source, server_outside.source_port);
    let client_outside = (client_outside.source, client_outside.source_port);
    lab.leave(&tcp(SYN, server, client_outside)).unwrap();
    let syn = lab.leave(&tcp(SYN, CLIENT, server_outside)).unwrap();
    assert_eq!(lab.enter(&syn).unwrap(), tcp(SYN, client_outside, server));
    let answered = lab.leave(&tcp(SYN_ACK, server, client_outside)).unwrap();
    assert_eq!(lab.enter(&answered).unwrap(), tcp(SYN_ACK, server_outside, CLIENT));
}

//= https://www.rfc-editor.org/rfc/rfc5382#section-7.3
//= type=test
//# Receipt of any sort of ICMP message MUST NOT terminate the
//# NAT mapping or TCP connection for which the ICMP was generated.
#[test]
fn req10_looking_up_a_quoted_packet_changes_nothing() {
    let mut lab = Lab::new(rules());
    let out = connected(&mut lab);
    let before = lab.nat.stats();
    for flags in [SYN, ACK, FIN, RST] {
        assert!(lab.nat.peek_inbound(&answer(&out, flags), &lab.rules, lab.now).is_some());
        assert!(lab.nat.peek_outbound(&tcp(flags, CLIENT, SERVER), &lab.rules, lab.now).is_some());
    }
    assert_eq!(lab.nat.stats(), before);
    assert!(lives_for(&mut lab, 7440));
}
