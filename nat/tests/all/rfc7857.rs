//! RFC 7857 (updates to NAT requirements), one test per section that asks something of sessions. Section 10 (IP
//! identification) and 12 (hairpinned ICMP) are about packets: see `rfc5508.rs` and `src/fragment/tests.rs`.

use std::collections::BTreeSet;
use std::time::Duration;

use trieste_nat::{Change, Phase, Refusal};
use trieste_packet::wire::tcp::{ACK, RST, SYN};

use crate::support::*;

const SERVER: (std::net::Ipv4Addr, u16) = (REMOTE, 80);
const CLIENT: (std::net::Ipv4Addr, u16) = (POD, 40_000);

/// The phases that the stream of changes has told of since the last call.
fn phases(lab: &mut Lab) -> Vec<Phase> {
    let changes = lab.nat.changes().filter_map(|change| match change {
        Change::Is(record) => Some(record.phase),
        Change::Gone(_) | Change::Lost => None,
    });
    changes.collect()
}

//= https://www.rfc-editor.org/rfc/rfc7857#section-2
//= type=test
//# The TCP state machine depicted in Figure 1, adapted from
//# [RFC6146], SHOULD be implemented by a NAT for TCP session tracking
//# purposes.
#[test]
fn section2_sessions_go_through_the_states_of_figure_1() {
    let mut lab = Lab::new(rules());
    let out = lab.leave(&tcp(SYN, CLIENT, SERVER)).unwrap();
    lab.enter(&answer(&out, SYN_ACK)).unwrap();
    lab.leave(&tcp(ACK, CLIENT, SERVER)).unwrap();
    lab.enter(&answer(&out, FIN_ACK)).unwrap();
    lab.leave(&tcp(FIN_ACK, CLIENT, SERVER)).unwrap();
    lab.leave(&tcp(SYN, CLIENT, SERVER)).unwrap();
    lab.enter(&answer(&out, RST_ACK)).unwrap();
    lab.leave(&tcp(ACK, CLIENT, SERVER)).unwrap();
    let seen = phases(&mut lab);
    let expected = [
        Phase::SynOut,
        Phase::Established,
        Phase::FinIn,
        Phase::Closing,
        Phase::SynOut,
        Phase::Reset,
        Phase::Established,
    ];
    assert_eq!(seen, expected);
}

//= https://www.rfc-editor.org/rfc/rfc7857#section-2.1
//= type=test
//# This document clarifies that a NAT SHOULD provide
//# different configurable parameters for configuring the open and
//# closing idle timeouts
#[test]
fn section2_1_opening_and_closing_have_timers_of_their_own() {
    let lab = || {
        Lab::with(rules(), |config| {
            config.timers.tcp_opening = Duration::from_secs(30);
            config.timers.tcp_closing = Duration::from_secs(300);
        })
    };
    let mut opening = lab();
    opening.leave(&tcp(SYN, CLIENT, SERVER)).unwrap();
    opening.wait(32);
    assert_eq!(opening.expire(), 1);
    let mut closing = lab();
    let out = closing.leave(&tcp(SYN, CLIENT, SERVER)).unwrap();
    closing.enter(&answer(&out, RST_ACK)).unwrap();
    closing.wait(300);
    assert_eq!(closing.expire(), 0);
    closing.wait(2);
    assert_eq!(closing.expire(), 1);
}

//= https://www.rfc-editor.org/rfc/rfc7857#section-2.2
//= type=test
//# Moreover, the NAT SHOULD wait for 4 minutes
//# before deleting the session and removing any state associated with
//# it if no packets are received during that 4-minute timeout.
#[test]
fn section2_2_a_reset_passes_and_the_session_waits_four_minutes() {
    let mut lab = Lab::new(rules());
    let out = lab.leave(&tcp(SYN, CLIENT, SERVER)).unwrap();
    lab.enter(&answer(&out, SYN_ACK)).unwrap();
    assert!(lab.enter(&answer(&out, RST)).is_ok(), "it is translated");
    lab.wait(240);
    assert_eq!(lab.expire(), 0);
    lab.wait(2);
    assert_eq!(lab.expire(), 1);
}

#[test]
fn section2_2_a_reset_of_a_stranger_does_not_cost_the_connection() {
    let mut lab = Lab::new(rules());
    let out = lab.leave(&tcp(SYN, CLIENT, SERVER)).unwrap();
    lab.enter(&answer(&out, SYN_ACK)).unwrap();
    lab.enter(&answer(&out, RST)).unwrap();
    lab.wait(100);
    lab.leave(&tcp(ACK, CLIENT, SERVER)).unwrap();
    lab.wait(7000);
    assert_eq!(lab.expire(), 0, "the next packet from inside takes it back");
}

//= https://www.rfc-editor.org/rfc/rfc7857#section-3
//= type=test
//# If destination addresses and ports are different for outgoing
//# connections started by local clients, a NAT MAY assign the same
//# external port as the source ports for the connections.
#[test]
fn section3_above_the_fill_level_tcp_ports_are_shared_towards_different_addresses() {
    let mut lab = Lab::new(plain_rules(1, &[SELECTED_GLOBAL]));
    let mut by_pair = BTreeSet::new();
    let mut shared = 0;
    // 90000 connections by one global address, to 30 remote addresses.
    for number in 0..90_000_u32 {
        let [low, high, third, _] = number.to_le_bytes();
        let client = ([10, 2, third, high].into(), 20_000 + u16::from(low));
        let server = ([242, 2, 0, 1 + u8::try_from(number % 30).unwrap()].into(), 80);
        let Ok(outside) = lab.leave(&tcp(SYN, client, server)) else { continue };
        assert!(by_pair.insert((outside.source_port, outside.destination)), "one towards each address");
        let arrived = lab.enter(&answer(&outside, SYN_ACK)).unwrap();
        assert_eq!((arrived.destination, arrived.destination_port), client, "answers find their own");
        shared += 1;
    }
    assert!(shared > 85_000, "{shared} of 90000 on 64511 ports");
    let stats = lab.nat.stats();
    assert!(stats.shared > 10_000, "{}", stats.shared);
    lab.wait(10_000);
    while lab.expire() > 0 {}
    let stats = lab.nat.stats();
    assert_eq!((stats.sessions, stats.mappings, stats.shared), (0, 0, 0));
    assert!(stats.addresses.is_empty(), "every port is free again");
}

#[test]
fn section3_a_shared_port_is_one_mappings_alone_towards_each_address() {
    let mut lab = Lab::with(plain_rules(1, &[SELECTED_GLOBAL]), |config| {
        // Share at once.
        config.limits.share_tcp_above_percent = 0;
    });
    let mut first = None;
    let mut meets = None;
    for number in 0..20_000_u16 {
        let flow = tcp(SYN, (POD, 2000 + number), ([242, 3, number.to_be_bytes()[0], 1].into(), 80));
        let outside = lab.leave(&flow).unwrap();
        let Some((mapped, other_outside)) = first else {
            first = Some((flow, outside));
            continue;
        };
        let other: trieste_nat::Facts = other_outside;
        if outside.source_port == other.source_port && outside.destination != other.destination {
            meets = Some((mapped, flow));
            break;
        }
    }
    let (one, two) = meets.expect("with sharing from the start, two of them meet");
    let towards_the_other = tcp(SYN, (one.source, one.source_port), (two.destination, 81));
    assert_eq!(lab.leave(&towards_the_other), Err(Refusal::TupleInUse));
}

/// Section 4: pooling is paired whatever the protocol, so that it is never a question of ports that are left.
#[test]
fn section4_pairing_holds_for_every_protocol_and_is_not_given_up_when_ports_run_out() {
    let mut lab = Lab::with(rules(), |config| {
        config.limits.mappings_per_source = u32::MAX;
        config.limits.sessions_per_source = u32::MAX;
        config.limits.share_tcp_above_percent = 100;
    });
    let global = lab.leave(&ping(POD, REMOTE, 1)).unwrap().source;
    let mut refused = 0;
    for port in 1024..=u16::MAX {
        match lab.leave(&tcp(SYN, (POD, port), SERVER)) {
            Ok(outside) => assert_eq!(outside.source, global),
            Err(refusal) => {
                assert_eq!(refusal, Refusal::NoPort);
                refused += 1;
            }
        }
    }
    assert!((1..6000).contains(&refused), "{refused}: buckets fill a little unevenly");
    assert_eq!(lab.leave(&udp((POD, 1024), SERVER)).unwrap().source, global);
}

/// Sections 5 and 6: each protocol has mappings and filters of its own.
#[test]
fn section5_and_6_mappings_and_filters_of_protocols_are_independent() {
    let mut lab = Lab::new(rules());
    let by_udp = lab.leave(&udp(CLIENT, SERVER)).unwrap();
    let to = (by_udp.source, by_udp.source_port);
    assert_eq!(lab.enter(&tcp(SYN, SERVER, to)), Err(Refusal::UnsolicitedSyn));
    assert_eq!(lab.enter(&tcp(ACK, SERVER, to)), Err(Refusal::NoMapping));
    lab.leave(&tcp(SYN, CLIENT, SERVER)).unwrap();
    assert_eq!(lab.nat.stats().mappings, 2);
}

//= https://www.rfc-editor.org/rfc/rfc7857#section-7.1
//= type=test
//# In the case of NAT outbound refresh behavior, ICMP Errors or
//# TCP RST outbound packets sent as a response to inbound packets
//# SHOULD NOT refresh the mapping.
#[test]
fn section7_resets_and_strangers_do_not_make_a_session_live_longer() {
    let mut lab = Lab::new(rules());
    let out = lab.leave(&tcp(SYN, CLIENT, SERVER)).unwrap();
    lab.leave(&tcp(RST, CLIENT, SERVER)).unwrap();
    for _ in 0..4 {
        lab.wait(60);
        lab.enter(&answer(&out, ACK)).unwrap();
        lab.leave(&tcp(RST, CLIENT, SERVER)).unwrap();
    }
    lab.wait(2);
    assert_eq!(lab.expire(), 1);
    // What only the remote end has begun is not kept by its SYNs either.
    let syn = tcp(SYN, (REMOTE, 50_000), (HEADLESS_GLOBAL, 5432));
    for _ in 0..5 {
        lab.enter(&syn).unwrap();
        lab.wait(60);
    }
    lab.expire();
    assert_eq!(lab.nat.stats().ended, 2);
}

/// Section 8 lets parity be left off: see `rfc4787.rs`.
#[test]
fn section8_parity_is_off() {
    let mut lab = Lab::new(rules());
    let parities: BTreeSet<_> = (0..64)
        .map(|number| lab.leave(&udp((POD, 2000 + 2 * number), SERVER)).unwrap().source_port % 2)
        .collect();
    assert_eq!(parities.len(), 2);
}

//= https://www.rfc-editor.org/rfc/rfc7857#section-9
//= type=test
//# A NAT SHOULD follow the recommendations specified in Section 4 of
//# [RFC6056]
#[test]
fn section9_outside_ports_are_random_over_their_range() {
    let mut lab = Lab::new(rules());
    let ports: Vec<_> = (0..4000)
        .map(|number| lab.leave(&udp((POD, 10_000 + number), SERVER)).unwrap().source_port)
        .collect();
    let mut sixteenths = [0; 16];
    for port in &ports {
        sixteenths[usize::from(port >> 12)] += 1;
    }
    assert!(sixteenths.iter().all(|count| (170..330).contains(count)), "{sixteenths:?}");
    let steps: BTreeSet<_> = ports.windows(2).map(|pair| pair[1].wrapping_sub(pair[0])).collect();
    assert!(steps.len() > 3500, "the next one does not follow from the last");
    let mut builder = trieste_nat::RulesBuilder::new(
        1,
        trieste_nat::OwnerKey([8; 16]),
        trieste_nat::RulesBuilder::owners_among(4),
    );
    let cluster = builder.egress(trieste_nat::EgressKind::Cluster, "cluster", &cluster_globals()).unwrap();
    builder.member(cluster, "10.1.0.0/16".parse().unwrap());
    let mut other = Lab::new(builder.build());
    let others: Vec<_> = (0..100)
        .map(|number| other.leave(&udp((POD, 10_000 + number), SERVER)).unwrap().source_port)
        .collect();
    assert_ne!(ports[..100], others[..], "and not without the key");
}

//= https://www.rfc-editor.org/rfc/rfc7857#section-11
//= type=test
//# ICMP Query mappings MAY be deleted once the last session
//# using the mapping is deleted.
#[test]
fn section11_a_query_mapping_ends_with_its_last_session() {
    let mut lab = Lab::new(rules());
    lab.leave(&ping(POD, REMOTE, 7)).unwrap();
    lab.wait(40);
    let second = lab.leave(&ping(POD, OTHER_REMOTE, 7)).unwrap();
    lab.wait(30);
    assert_eq!(lab.expire(), 1);
    assert_eq!(lab.nat.stats().mappings, 1);
    assert_eq!(lab.leave(&ping(POD, OTHER_REMOTE, 7)).unwrap(), second);
    lab.wait(62);
    assert_eq!(lab.expire(), 1);
    assert_eq!(lab.nat.stats().mappings, 0);
}
