//! What drops packets: nodes, network policies, gateways.

use trieste_control::admin::DropCount;

use super::super::super::evidence::PolicyFacts;
use super::*;
use crate::node::ClosedChain;

#[test]
fn filter_drops_forwarded_packets() {
    let rule = |e: &mut Evidence| {
        reports(&mut e.source, "a-gw1", |report| report.filters.drops.push(drops_pings("forward")));
        lost_before(e, Way::There, Stop::EntersTunnel);
    };
    broken(rule, Cause::FilterDrop, Hop::SourceGateway);
    let policy = |e: &mut Evidence| {
        let chain = ClosedChain { name: "ip filter FORWARD".to_owned(), hook: "forward".to_owned() };
        reports(&mut e.destination, "b-w1", |report| report.filters.closed.push(chain.clone()));
        lost_before(e, Way::There, Stop::Delivered);
    };
    broken(policy, Cause::FilterDrop, Hop::DestinationNode);
    // Of a rule that is not understood only the counter tells.
    let counted = |e: &mut Evidence| {
        let mut rule = drops_port("forward", 0);
        rule.matches[0].field = "other".to_owned();
        rule.matches.pop();
        rule.packets = Some(10);
        reports(&mut e.destination, "b-gw1", |report| report.filters.drops.push(rule.clone()));
        later(&mut e.destination, "b-gw1", |report| report.filters.drops[0].packets = Some(13));
        lost_before(e, Way::There, Stop::LeavesGateway);
    };
    broken(counted, Cause::FilterDrop, Hop::DestinationGateway);
}

#[test]
fn gateway_drops_packets_and_says_why() {
    let change = |e: &mut Evidence| {
        lost_before(e, Way::There, Stop::LeavesTunnel);
        let drop = DropCount { reason: "source_not_allowed".to_owned(), cable: None, worker: 0, packets: 3 };
        later(&mut e.destination, "b-gw1", |report| {
            report.gateway.as_mut().unwrap().drops = vec![drop.clone()]
        });
    };
    broken(change, Cause::GatewayDrop, Hop::DestinationGateway);
}

#[test]
fn network_policy_stands_in_the_way() {
    let change = |e: &mut Evidence| {
        let policy = PolicyFacts { name: "shop/deny".to_owned(), ingress: true, egress: false };
        e.destination.policies.push(policy);
        lost_before(e, Way::There, Stop::Delivered);
    };
    broken(change, Cause::NetworkPolicy, Hop::DestinationNode);
}

#[test]
fn packets_come_by_the_wrong_device_or_from_a_network_that_the_node_has_not_heard_of() {
    for (counter, node, cause, hop) in [
        ("spoofed4", "b-w1", Cause::SourceGuardDrop, Hop::DestinationNode),
        ("unclosed4", "b-w1", Cause::SourceNotClosed, Hop::DestinationNode),
        ("unclosed4", "b-gw1", Cause::SourceNotClosed, Hop::DestinationGateway),
    ] {
        let change = |e: &mut Evidence| {
            let count = |report: &mut crate::node::document::NodeReport, packets| {
                report.filters.counters.insert(counter.to_owned(), packets);
            };
            reports(&mut e.destination, node, |report| count(report, 0));
            later(&mut e.destination, node, |report| count(report, 3));
            lost_before(e, Way::There, Stop::LeavesGateway);
        };
        broken(change, cause, hop);
    }
}
