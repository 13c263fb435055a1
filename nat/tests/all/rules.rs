//! Which rule decides, and what is translated without state.

use trieste_nat::{EgressKind, IngressKind, Refusal, RulesBuilder, RulesError};
use trieste_packet::wire::tcp::SYN;

use crate::support::*;

#[test]
fn the_priority_is_pods_headless_namespace_cluster() {
    let mut lab = Lab::new(rules());
    let source = |lab: &mut Lab, pod| lab.leave(&udp((pod, 4000), (REMOTE, 53))).unwrap().source;
    assert_eq!(source(&mut lab, SELECTED_POD), SELECTED_GLOBAL);
    assert_eq!(source(&mut lab, HEADLESS_POD), HEADLESS_GLOBAL);
    assert_eq!(source(&mut lab, NAMESPACE_POD), NAMESPACE_GLOBAL);
    assert!(cluster_globals().contains(&source(&mut lab, POD)));
}

#[test]
fn of_two_rules_of_a_kind_the_first_wins() {
    let mut builder = builder(1);
    let first = builder.egress(EgressKind::Pods, "a/first", &[SELECTED_GLOBAL]).unwrap();
    let second = builder.egress(EgressKind::Pods, "a/second", &[NAMESPACE_GLOBAL]).unwrap();
    builder.member(second, POD.into());
    builder.member(first, POD.into());
    let rules = builder.build();
    assert_eq!(rules.egress_of(POD), Some(first));
}

#[test]
fn a_source_without_a_rule_is_refused_and_told() {
    let mut lab = Lab::new(rules());
    let stranger = udp(([192, 0, 2, 1].into(), 1000), (REMOTE, 53));
    assert_eq!(lab.leave(&stranger), Err(Refusal::NoGlobalIp));
    assert!(Refusal::NoGlobalIp.is_told());
    assert_eq!(lab.nat.stats().refused(Refusal::NoGlobalIp), 1);
}

#[test]
fn a_service_is_translated_one_to_one_without_state() {
    let mut lab = Lab::new(rules());
    let client = (REMOTE, 40000);
    for request in [tcp(SYN_ACK, client, (SERVICE_GLOBAL, 80)), udp(client, (SERVICE_GLOBAL, 53))] {
        let inside = lab.enter(&request).unwrap();
        assert_eq!((inside.destination, inside.destination_port), (CLUSTER_IP, request.destination_port));
        let outside = lab.leave(&answer(&inside, SYN_ACK)).unwrap();
        assert_eq!(outside, answer(&request, SYN_ACK));
    }
    for other in [ping(REMOTE, SERVICE_GLOBAL, 7), sctp(REMOTE, SERVICE_GLOBAL)] {
        let inside = lab.enter(&other).unwrap();
        assert_eq!(lab.leave(&inside.reversed()).unwrap(), other.reversed());
    }
    assert_eq!(lab.nat.stats().sessions, 0);
}

#[test]
fn the_gateway_is_reached_by_icmp_queries_only_and_asks_with_the_clusters_addresses() {
    let mut lab = Lab::new(rules());
    let probe = ping(REMOTE, GATEWAY_GLOBAL, 9);
    let inside = lab.enter(&probe).unwrap();
    assert_eq!(inside.destination, GATEWAY);
    assert_eq!(lab.leave(&inside.reversed()).unwrap(), probe.reversed());
    assert_eq!(lab.enter(&udp((REMOTE, 1), (GATEWAY_GLOBAL, 9))), Err(Refusal::NoMapping));
    let asked = lab.leave(&ping(GATEWAY, REMOTE, 9)).unwrap();
    assert!(cluster_globals().contains(&asked.source));
    assert_eq!(lab.enter(&asked.reversed()).unwrap().destination, GATEWAY);
}

#[test]
fn a_headless_pod_answers_with_the_address_it_was_asked_at_whatever_rule_it_has() {
    let mut builder = builder(1);
    let pods = builder.egress(EgressKind::Pods, "shop/some", &[SELECTED_GLOBAL]).unwrap();
    builder.member(pods, HEADLESS_POD.into());
    builder.ingress(IngressKind::HeadlessPod, "shop/pod-db-0", HEADLESS_GLOBAL, HEADLESS_POD).unwrap();
    builder.ingress(IngressKind::HeadlessEndpoints, "shop/ep-x", SERVICE_GLOBAL, HEADLESS_POD).unwrap();
    let mut lab = Lab::new(builder.build());
    for (global, client_port) in [(HEADLESS_GLOBAL, 40000), (SERVICE_GLOBAL, 40001)] {
        let request = tcp(SYN, (REMOTE, client_port), (global, 5432));
        let inside = lab.enter(&request).unwrap();
        assert_eq!((inside.destination, inside.destination_port), (HEADLESS_POD, 5432));
        let reply = lab.leave(&answer(&inside, SYN_ACK)).unwrap();
        assert_eq!(reply, answer(&request, SYN_ACK));
    }
    let own = lab.leave(&udp((HEADLESS_POD, 5432), (REMOTE, 53))).unwrap();
    assert_eq!(own.source, SELECTED_GLOBAL, "what it begins itself follows the priorities");
}

#[test]
fn a_headless_pod_keeps_its_ports_and_is_answered() {
    let mut lab = Lab::new(rules());
    let own = udp((HEADLESS_POD, 777), (REMOTE, 53));
    let outside = lab.leave(&own).unwrap();
    assert_eq!((outside.source, outside.source_port), (HEADLESS_GLOBAL, 777));
    assert_eq!(lab.enter(&outside.reversed()).unwrap(), own.reversed());
    let asked = lab.leave(&ping(HEADLESS_POD, REMOTE, 5)).unwrap();
    assert_eq!(lab.enter(&asked.reversed()).unwrap(), ping(HEADLESS_POD, REMOTE, 5).reversed());
}

#[test]
fn an_answer_to_nothing_does_not_leave() {
    let mut lab = Lab::new(rules());
    lab.leave(&ping(POD, REMOTE, 5)).unwrap();
    let unasked = ping(REMOTE, POD, 5).reversed();
    assert_eq!(lab.leave(&unasked), Err(Refusal::NoSession), "though a question of that identifier is open");
    assert_eq!(lab.enter(&ping(REMOTE, cluster_globals()[0], 5)), Err(Refusal::NoMapping));
}

#[test]
fn a_target_that_would_not_know_whom_it_answers_is_not_asked() {
    let mut builder = builder(1);
    builder.ingress(IngressKind::HeadlessPod, "shop/pod-db-0", HEADLESS_GLOBAL, HEADLESS_POD).unwrap();
    builder.ingress(IngressKind::HeadlessEndpoints, "shop/ep-x", SERVICE_GLOBAL, HEADLESS_POD).unwrap();
    let mut lab = Lab::new(builder.build());
    lab.enter(&udp((REMOTE, 40000), (HEADLESS_GLOBAL, 53))).unwrap();
    assert_eq!(lab.enter(&udp((REMOTE, 40000), (SERVICE_GLOBAL, 53))), Err(Refusal::TupleInUse));
    lab.enter(&udp((REMOTE, 40001), (SERVICE_GLOBAL, 53))).unwrap();
}

#[test]
fn protocols_without_ports_are_translated_by_addresses() {
    let mut lab = Lab::new(plain_rules(1, &[SELECTED_GLOBAL]));
    let out = lab.leave(&sctp(POD, REMOTE)).unwrap();
    assert_eq!(out, sctp(SELECTED_GLOBAL, REMOTE));
    assert_eq!(lab.enter(&out.reversed()).unwrap(), sctp(REMOTE, POD));
    assert_eq!(lab.leave(&sctp(OTHER_POD, REMOTE)), Err(Refusal::TupleInUse), "one pod per remote address");
    let other = lab.leave(&sctp(OTHER_POD, OTHER_REMOTE)).unwrap();
    assert_eq!(lab.enter(&other.reversed()).unwrap(), sctp(OTHER_REMOTE, OTHER_POD));
    assert_eq!(lab.nat.stats().mappings, 2);
}

#[test]
fn global_addresses_belong_to_one_rule() {
    let mut builder = builder(1);
    builder.egress(EgressKind::Cluster, "cluster", &cluster_globals()).unwrap();
    let taken = cluster_globals()[2];
    let error = builder.egress(EgressKind::Namespace, "shop/all", &[NAMESPACE_GLOBAL, taken]).unwrap_err();
    assert_eq!(
        error.to_string(),
        "global address 242.1.0.3 of shop/all belongs to cluster already, which keeps it"
    );
    builder.egress(EgressKind::Namespace, "shop/all", &[NAMESPACE_GLOBAL]).unwrap();
    assert!(builder.ingress(IngressKind::Service, "shop/web", taken, CLUSTER_IP).is_err());
    let none = builder.egress(EgressKind::Pods, "shop/none", &[]);
    assert!(matches!(none, Err(RulesError::NoAddress { .. })));
    let headless = builder.egress(EgressKind::HeadlessPod, "shop/x", &[SERVICE_GLOBAL]);
    assert!(matches!(headless, Err(RulesError::HeadlessEgress { .. })));
}

#[test]
fn answers_find_the_owner_of_their_flow() {
    let mut lab = Lab::new(rules());
    let owners = RulesBuilder::owners_among(4);
    for port in 1024..3000 {
        for flow in [
            udp((POD, port), (REMOTE, 53)),
            tcp(SYN, (SELECTED_POD, port), (REMOTE, 80)),
            ping(NAMESPACE_POD, REMOTE, port),
            udp((HEADLESS_POD, port), (REMOTE, 53)),
            sctp(POD, REMOTE),
        ] {
            let outside = lab.leave(&flow).unwrap();
            let back = outside.reversed();
            assert_eq!(lab.rules.bucket_outbound(&flow), lab.rules.bucket_inbound(&back), "{flow:?}");
            assert_eq!(lab.rules.owner_inbound(&back), lab.rules.owner_outbound(&flow));
            assert!(owners.contains(&lab.rules.owner_inbound(&back)));
        }
    }
}

#[test]
fn an_explanation_says_what_decides() {
    let mut lab = Lab::new(rules());
    let flow = udp((NAMESPACE_POD, 4000), (REMOTE, 53));
    let before = lab.nat.explain_outbound(&flow, &lab.rules, lab.now);
    assert_eq!((before.outcome.unwrap().address, before.is_live), (NAMESPACE_GLOBAL, false));
    assert!(before.steps.iter().any(|step| step.contains("namespace shop/all")), "{:?}", before.steps);
    assert_eq!(lab.nat.stats().sessions, 0, "nothing is made");
    let outside = lab.leave(&flow).unwrap();
    let after = lab.nat.explain_outbound(&flow, &lab.rules, lab.now);
    assert_eq!((after.outcome.unwrap().port, after.is_live), (outside.source_port, true));
    let inbound = lab.nat.explain_inbound(&outside.reversed(), &lab.rules, lab.now);
    assert_eq!(inbound.outcome.unwrap().address, NAMESPACE_POD);
    let filtered = udp((OTHER_REMOTE, 53), (outside.source, outside.source_port));
    let filtered = lab.nat.explain_inbound(&filtered, &lab.rules, lab.now);
    assert_eq!(filtered.outcome, Err(Refusal::Filtered));
    let service = lab.nat.explain_inbound(&udp((REMOTE, 1), (SERVICE_GLOBAL, 80)), &lab.rules, lab.now);
    assert_eq!(service.outcome.unwrap().address, CLUSTER_IP);
    let nobody = udp(([192, 0, 2, 1].into(), 1), (REMOTE, 53));
    assert_eq!(lab.nat.explain_outbound(&nobody, &lab.rules, lab.now).outcome, Err(Refusal::NoGlobalIp));
}
