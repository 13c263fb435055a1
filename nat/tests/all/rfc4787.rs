//! RFC 4787 (UDP), one test per requirement. Requirements 12b, 13 and 14 are about packets rather than sessions: see
//! `rfc5508.rs`, `src/fragment/tests.rs`, and the pipeline's tests of sizes.

use std::collections::BTreeSet;

use trieste_nat::Refusal;

use crate::support::*;

//= https://www.rfc-editor.org/rfc/rfc4787#section-4.1
//= type=test
//# A NAT MUST have an "Endpoint-Independent Mapping" behavior.
#[test]
fn req1_one_inside_end_has_one_outside_end_whoever_it_talks_to() {
    let mut lab = Lab::new(rules());
    let first = lab.leave(&udp((POD, 5000), (REMOTE, 53))).unwrap();
    for to in [(REMOTE, 54), (OTHER_REMOTE, 53), (OTHER_REMOTE, 9999)] {
        let next = lab.leave(&udp((POD, 5000), to)).unwrap();
        assert_eq!((next.source, next.source_port), (first.source, first.source_port));
    }
    let other = lab.leave(&udp((POD, 5001), (REMOTE, 53))).unwrap();
    assert_ne!(other.source_port, first.source_port);
    assert_eq!((lab.nat.stats().mappings, lab.nat.stats().sessions), (2, 5));
}

//= https://www.rfc-editor.org/rfc/rfc4787#section-4.1
//= type=test
//# It is RECOMMENDED that a NAT have an "IP address pooling" behavior
//# of "Paired".
#[test]
fn req2_an_inside_address_has_one_outside_address_for_all_its_ports() {
    let mut lab = Lab::new(rules());
    let mut used = BTreeSet::new();
    for pod in 0..64 {
        let pod = [10, 1, 1, pod].into();
        let flows = (2000..2100).map(|port| udp((pod, port), (REMOTE, 53)));
        let outside: BTreeSet<_> = flows.map(|flow| lab.leave(&flow).unwrap().source).collect();
        assert_eq!(outside.len(), 1);
        used.extend(outside);
        let by_tcp = lab.leave(&tcp(2, (pod, 2000), (REMOTE, 80))).unwrap().source;
        assert!(used.contains(&by_tcp));
    }
    assert_eq!(used.len(), 8, "and all outside addresses are used");
}

//= https://www.rfc-editor.org/rfc/rfc4787#section-4.2.1
//= type=test
//# A NAT MUST NOT have a "Port assignment" behavior of "Port
//# overloading".
#[test]
fn req3_no_two_inside_ends_have_one_outside_end() {
    let mut lab = Lab::new(plain_rules(1, &[SELECTED_GLOBAL]));
    let mut used = BTreeSet::new();
    for pod in [POD, OTHER_POD, SELECTED_POD, NAMESPACE_POD] {
        for port in 1024..11_024 {
            let outside = lab.leave(&udp((pod, port), (REMOTE, 53))).unwrap();
            assert!(used.insert((outside.source, outside.source_port)), "{outside:?}");
        }
    }
}

//= https://www.rfc-editor.org/rfc/rfc4787#section-4.2.1
//= type=test
//# If the host's source port was in the range 0-1023, it is
//# RECOMMENDED the NAT's source port be in the same range.
#[test]
fn req3a_ports_stay_below_or_above_1024() {
    let mut lab = Lab::new(rules());
    for port in (1..1024_u16).chain((1024..65_535).step_by(97)) {
        let pod = [10, 1, 2, port.to_le_bytes()[0]].into();
        let outside = lab.leave(&udp((pod, port), (REMOTE, 53))).unwrap();
        assert_eq!(outside.source_port < 1024, port < 1024, "{port} became {}", outside.source_port);
        assert_ne!(outside.source_port, 0);
    }
}

/// Requirement 4 RECOMMENDS that parity be kept; RFC 7857 section 8 lets a NAT leave it off. It is off: the low six
/// bits of the outside port say who owns the flow.
#[test]
fn req4_parity_is_not_kept_since_the_low_bits_say_who_owns_the_flow() {
    let mut lab = Lab::new(rules());
    let flows = (2000..4000).map(|port| udp((POD, port), (REMOTE, 53)));
    let kept = flows.filter(|flow| {
        let outside = lab.leave(flow).unwrap();
        assert_eq!(lab.rules.bucket_inbound(&outside.reversed()), lab.rules.bucket_outbound(flow));
        outside.source_port % 2 == flow.source_port % 2
    });
    assert!((800..1200).contains(&kept.count()));
}

//= https://www.rfc-editor.org/rfc/rfc4787#section-4.3
//= type=test
//# A NAT UDP mapping timer MUST NOT expire in less than two minutes,
//# unless REQ-5a applies.
#[test]
fn req5_a_mapping_lives_for_five_minutes_without_packets() {
    let mut lab = Lab::new(rules());
    let outside = lab.leave(&udp((POD, 5000), (REMOTE, 53))).unwrap();
    lab.wait(299);
    assert_eq!(lab.expire(), 0);
    lab.enter(&outside.reversed()).unwrap();
    lab.wait(302);
    assert_eq!(lab.expire(), 1);
    assert_eq!(lab.enter(&outside.reversed()), Err(Refusal::NoMapping));
    assert_eq!(lab.nat.stats().mappings, 0);
}

#[test]
fn req5b_the_timer_is_configurable() {
    let mut lab = Lab::with(rules(), |config| config.timers.udp = std::time::Duration::from_millis(1500));
    lab.leave(&udp((POD, 5000), (REMOTE, 53))).unwrap();
    lab.wait(1);
    assert_eq!(lab.expire(), 0);
    lab.wait(2);
    assert_eq!(lab.expire(), 1, "rounded up to whole seconds");
}

//= https://www.rfc-editor.org/rfc/rfc4787#section-4.3
//= type=test
//# The NAT mapping Refresh Direction MUST have a "NAT Outbound
//# refresh behavior" of "True".
#[test]
fn req6_packets_keep_the_mapping_and_the_rest_goes_its_way() {
    let mut lab = Lab::new(rules());
    let flow = udp((POD, 5000), (REMOTE, 53));
    let out = lab.in2out(&flow).unwrap();
    let idle = lab.leave(&udp((POD, 5001), (REMOTE, 53))).unwrap();
    for _ in 0..10 {
        lab.wait(200);
        lab.expire();
        assert!(lab.nat.touch(out.session.unwrap(), 0, lab.now), "a touch is a packet");
    }
    assert_eq!(lab.nat.stats().sessions, 1);
    assert_eq!(lab.enter(&idle.reversed()), Err(Refusal::NoMapping));
    let back = applied(&flow, &out.rewrite).reversed();
    for _ in 0..10 {
        lab.wait(200);
        lab.expire();
        lab.enter(&back).unwrap();
    }
    assert_eq!(lab.in2out(&flow).unwrap().rewrite, out.rewrite);
}

//= https://www.rfc-editor.org/rfc/rfc4787#section-4.4
//= type=test
//# Be able to translate and forward traffic between
//# all internal nodes and all external nodes whose IP addresses
//# numerically conflict with the internal network.
#[test]
fn req7_two_clusters_with_the_same_addresses_talk() {
    // Both clusters are 10.1.0.0/16 inside; each knows the other by its global addresses alone.
    let mut east = Lab::new(rules());
    let mut builder = builder(1);
    builder.ingress(trieste_nat::IngressKind::HeadlessPod, "shop/pod-a", REMOTE, POD).unwrap();
    let mut west = Lab::new(builder.build());
    let sent = udp((POD, 5000), (REMOTE, 53));
    let on_the_wire = east.leave(&sent).unwrap();
    let arrived = west.enter(&on_the_wire).unwrap();
    assert_eq!(arrived.destination, POD, "the same address as the sender's, in the other cluster");
    let answered = west.leave(&arrived.reversed()).unwrap();
    assert_eq!(answered, on_the_wire.reversed());
    assert_eq!(east.enter(&answered).unwrap(), sent.reversed());
}

//= https://www.rfc-editor.org/rfc/rfc4787#section-5
//= type=test
//# If a more stringent filtering behavior is most
//# important, it is RECOMMENDED that a NAT have "Address-Dependent
//# Filtering" behavior.
#[test]
fn req8_who_was_sent_to_may_send_from_any_port_and_nobody_else_may() {
    let mut lab = Lab::new(rules());
    let outside = lab.leave(&udp((POD, 5000), (REMOTE, 53))).unwrap();
    let to = (outside.source, outside.source_port);
    let other_port = lab.enter(&udp((REMOTE, 54), to)).unwrap();
    assert_eq!((other_port.destination, other_port.destination_port), (POD, 5000));
    assert_eq!(lab.enter(&udp((OTHER_REMOTE, 53), to)), Err(Refusal::Filtered));
    lab.leave(&udp((POD, 5000), (OTHER_REMOTE, 1))).unwrap();
    lab.enter(&udp((OTHER_REMOTE, 53), to)).unwrap();
    // The right to send ends with the last session towards that address.
    lab.wait(400);
    lab.expire();
    assert_eq!(lab.enter(&udp((REMOTE, 54), to)), Err(Refusal::NoMapping));
}

//= https://www.rfc-editor.org/rfc/rfc4787#section-6
//= type=test
//# A NAT Hairpinning behavior MUST be "External source IP address
//# and port".
#[test]
fn req9_inside_ends_reach_each_other_by_their_outside_ends() {
    let mut lab = Lab::new(rules());
    let outside_of = |lab: &mut Lab, end| {
        let outside = lab.leave(&udp(end, (REMOTE, 3478))).unwrap();
        (outside.source, outside.source_port)
    };
    let (a, b) = ((POD, 5000), (OTHER_POD, 6000));
    let (a_outside, b_outside) = (outside_of(&mut lab, a), outside_of(&mut lab, b));
    assert!(lab.rules.is_global(b_outside.0));
    // The first is filtered, as it would be from outside; it opens the way for the other's.
    let refused = lab.leave(&udp(a, b_outside)).unwrap();
    assert_eq!(lab.enter(&refused), Err(Refusal::Filtered));
    let turned = lab.leave(&udp(b, a_outside)).unwrap();
    assert_eq!(lab.enter(&turned).unwrap(), udp(b_outside, a));
    let again = lab.leave(&udp(a, b_outside)).unwrap();
    assert_eq!(lab.enter(&again).unwrap(), udp(a_outside, b));
    // And to a service of our own, by its global address.
    let own = lab.leave(&udp(a, (SERVICE_GLOBAL, 53))).unwrap();
    assert_eq!(lab.enter(&own).unwrap(), udp(a_outside, (CLUSTER_IP, 53)));
}

/// No protocol is looked into beyond its ports: what a payload says is never known here.
#[test]
fn req10_there_are_no_application_level_gateways() {
    let mut lab = Lab::new(rules());
    for port in [21, 53, 69, 500, 554, 1720, 1723, 5060] {
        let outside = lab.leave(&udp((POD, 5000), (REMOTE, port))).unwrap();
        assert_eq!((outside.destination, outside.destination_port), (REMOTE, port));
        assert_eq!(
            lab.enter(&udp((OTHER_REMOTE, port), (outside.source, outside.source_port))),
            Err(Refusal::Filtered)
        );
    }
}

//= https://www.rfc-editor.org/rfc/rfc4787#section-8
//= type=test
//# A NAT MUST have deterministic behavior, i.e., it MUST NOT
//# change the NAT translation (Section 4) or the Filtering
//# (Section 5) Behavior at any point in time, or under any particular
//# conditions.
#[test]
fn req11_a_table_that_is_full_changes_nothing_for_what_is_there() {
    let mut lab = Lab::with(rules(), |config| config.limits.sessions = 2000);
    let first = lab.leave(&udp((POD, 5000), (REMOTE, 53))).unwrap();
    let mut refused = 0;
    for port in 10_000..14_000 {
        refused += u32::from(lab.leave(&udp((OTHER_POD, port), (REMOTE, 53))) == Err(Refusal::SessionLimit));
    }
    assert_eq!(refused, 2001);
    assert_eq!(lab.leave(&udp((POD, 5000), (REMOTE, 53))).unwrap(), first);
    assert_eq!(lab.enter(&first.reversed()).unwrap().destination, POD);
    let to = (first.source, first.source_port);
    assert_eq!(lab.enter(&udp((OTHER_REMOTE, 53), to)), Err(Refusal::Filtered));
}

//= https://www.rfc-editor.org/rfc/rfc4787#section-9
//= type=test
//# Receipt of any sort of ICMP message MUST NOT terminate the
//# NAT mapping.
#[test]
fn req12_looking_up_a_quoted_packet_changes_nothing() {
    let mut lab = Lab::new(rules());
    let flow = udp((POD, 5000), (REMOTE, 53));
    let outside = lab.leave(&flow).unwrap();
    lab.wait(299);
    let before = lab.nat.stats();
    let quoted = lab.nat.peek_inbound(&outside.reversed(), &lab.rules, lab.now).unwrap();
    assert_eq!(applied(&outside.reversed(), &quoted), flow.reversed());
    assert!(lab.nat.peek_outbound(&flow, &lab.rules, lab.now).is_some());
    assert_eq!(lab.nat.stats(), before);
    lab.wait(3);
    assert_eq!(lab.expire(), 1, "it lived no longer either");
}
