//! One breakage after the other, in a connection in which all else is well.

mod ends;
mod world;

use trieste_control::admin::{BrokerLink, DropCount, RefusedCluster};
use trieste_control::api::ConnectionStatus;
use trieste_control::devices::VX_DEVICE;

use super::super::evidence::{PolicyFacts, ServiceFacts};
use super::*;
use crate::agents::AgentError;
use crate::node::wire::Refusal;
use crate::node::{ClosedChain, SendError, SentPacket};
use world::*;

/// The verdict's cause and hop.
fn verdict(evidence: &Evidence) -> (Health, Cause, Hop) {
    let diagnosis = judge(evidence);
    let verdict = diagnosis.verdict.unwrap_or_else(|| panic!("no verdict; {:#?}", diagnosis.hops));
    assert!(!verdict.reason.is_empty() && !verdict.remedy.is_empty(), "{verdict:?}");
    (diagnosis.health, verdict.cause, verdict.hop)
}

/// A world that is broken like this is judged so.
#[track_caller]
fn broken(change: impl FnOnce(&mut Evidence), cause: Cause, hop: Hop) {
    let mut evidence = healthy();
    change(&mut evidence);
    assert_eq!(verdict(&evidence), (Health::Broken, cause, hop), "{:#?}", judge(&evidence).verdict);
}

#[test]
fn all_is_well() {
    let diagnosis = judge(&healthy());
    assert_eq!(diagnosis.verdict, None);
    assert_eq!(diagnosis.health, Health::Healthy);
    assert_eq!(diagnosis.hops.len(), Hop::ALL.len());
    assert!(diagnosis.hops.iter().all(|hop| hop.state == HopState::Good), "{:#?}", diagnosis.hops);
    assert_eq!(diagnosis.measured.rtt_us, Some(700));
    assert_eq!(diagnosis.measured.path_mtu_bytes, Some(1400));
    assert_eq!(diagnosis.measured.source_seen, POD_A.parse().ok());
}

#[test]
fn pods_on_gateway_nodes_have_a_shorter_way() {
    let mut evidence = healthy();
    evidence.source.worker.clone_from(&evidence.source.gateway);
    let diagnosis = judge(&evidence);
    assert!(diagnosis.hops.iter().all(|hop| hop.hop != Hop::SourceVxlan));
}

#[test]
fn sets_of_any_number_of_gateways_are_well_whichever_of_them_the_probe_goes_by() {
    let ways: [&[Way]; 4] = [&[], &[Way::There], &[Way::Back], &[Way::There, Way::Back]];
    for (near, far) in ways.iter().flat_map(|near| ways.iter().map(move |far| (*near, *far))) {
        for sides in [&[Side::Source][..], &[Side::Destination], &[Side::Source, Side::Destination]] {
            let mut evidence = healthy();
            for side in sides {
                add_gateway(&mut evidence, *side, if *side == Side::Source { near } else { far });
            }
            evidence.pair_gateways();
            let diagnosis = judge(&evidence);
            assert_eq!(diagnosis.verdict, None, "{sides:?}: {near:?}, {far:?}");
            assert!(diagnosis.hops.iter().all(|hop| hop.state == HopState::Good), "{:#?}", diagnosis.hops);
        }
    }
}

#[test]
fn the_gateway_is_named_that_the_probe_has_gone_by() {
    let mut evidence = healthy();
    add_gateway(&mut evidence, Side::Source, &[Way::There]);
    add_gateway(&mut evidence, Side::Destination, &[Way::There]);
    evidence.pair_gateways();
    evidence.probes.insert(probe::PING, Ok(unanswered()));
    for (name, node) in &mut evidence.destination.nodes {
        let is_gone = name == "b-gw2" || name == "b-w1";
        node.watch.as_mut().unwrap().sights.retain(|_| !is_gone);
    }
    let diagnosis = judge(&evidence);
    let verdict = diagnosis.verdict.unwrap();
    assert_eq!((diagnosis.health, verdict.hop), (Health::Broken, Hop::Cable), "{verdict:#?}");
    assert!(verdict.evidence.iter().any(|text| text.contains("a-gw2")), "{verdict:#?}");
}

#[test]
fn source_pod_is_missing_or_not_ready() {
    let missing = |e: &mut Evidence| {
        e.source.pod.missing = true;
        e.probes.clear();
    };
    broken(missing, Cause::PodMissing, Hop::SourcePod);
    let change = |e: &mut Evidence| {
        e.source.pod.not_ready = Some("it is Pending".to_owned());
        e.probes.clear();
    };
    broken(change, Cause::PodNotReady, Hop::SourcePod);
}

#[test]
fn destination_is_missing_or_not_ready() {
    let missing = |e: &mut Evidence| {
        e.destination.pod.missing = true;
        e.probes.clear();
    };
    broken(missing, Cause::PodMissing, Hop::DestinationPod);
    let not_ready = |e: &mut Evidence| {
        e.destination.pod.not_ready = Some("it is Running (unready)".to_owned());
        lost_before(e, Way::There, Stop::Delivered);
    };
    broken(not_ready, Cause::PodNotReady, Hop::DestinationPod);
    let service = ServiceFacts { name: "shop/web".to_owned(), not_ready: 1, ..ServiceFacts::default() };
    let without = |e: &mut Evidence| {
        e.service = Some(service);
        e.destination.pod.address = None;
        e.probes.clear();
    };
    broken(without, Cause::ServiceWithoutEndpoints, Hop::DestinationPod);
}

#[test]
fn a_pod_that_answers_pings_and_is_not_ready_is_said_to_be_so() {
    let mut evidence = healthy();
    evidence.destination.pod.not_ready = Some("it is Running".to_owned());
    assert_eq!(verdict(&evidence), (Health::Impaired, Cause::PodNotReady, Hop::DestinationPod));
}

#[test]
fn node_is_not_ready() {
    let change = |e: &mut Evidence| {
        e.source.nodes.get_mut("a-w1").unwrap().not_ready = Some("Kubelet stopped".to_owned());
        e.probes.clear();
    };
    broken(change, Cause::NodeNotReady, Hop::SourceNode);
}

#[test]
fn gateway_is_not_labelled_or_does_not_work() {
    let unlabelled = |e: &mut Evidence| {
        e.source.gateway_nodes.clear();
        lost_before(e, Way::There, Stop::EntersTunnel);
    };
    broken(unlabelled, Cause::NoGatewayNode, Hop::SourceGateway);
    let dead = |e: &mut Evidence| {
        e.destination.gateway_pods[0].1 = Some("it is Running (CrashLoopBackOff)".to_owned());
        lost_before(e, Way::There, Stop::LeavesTunnel);
    };
    broken(dead, Cause::GatewayDown, Hop::DestinationGateway);
    let killed = |e: &mut Evidence| {
        later(&mut e.source, "a-gw1", |report| {
            report.gateway = None;
            report.gateway_error = Some("nobody answers: the gateway's process has ended".to_owned());
        });
        lost_before(e, Way::There, Stop::EntersTunnel);
    };
    broken(killed, Cause::GatewayDown, Hop::SourceGateway);
    let stale = |e: &mut Evidence| {
        e.destination.gateway_nodes.clear();
        let id = e.destination.id.clone();
        let own = e.destination.endpoints.iter_mut().find(|endpoint| endpoint.cluster_id == id).unwrap();
        own.subnets = vec!["192.0.2.0/24".to_owned()];
        lost_before(e, Way::There, Stop::LeavesTunnel);
    };
    broken(stale, Cause::NoGatewayNode, Hop::DestinationGateway);
}

#[test]
fn cluster_is_no_member() {
    let change = |e: &mut Evidence| {
        e.destination.joined = false;
        e.destination.endpoints.clear();
        e.destination.id.clear();
        e.source.endpoints.truncate(1);
        lost_before(e, Way::There, Stop::EntersTunnel);
    };
    broken(change, Cause::NotJoined, Hop::ClusterSet);
}

#[test]
fn a_gateway_that_has_gone_took_its_endpoint_with_it() {
    let change = |e: &mut Evidence| {
        e.destination.gateway_nodes.clear();
        e.source.endpoints.truncate(1);
        statuses(&mut e.source, |status| status.connections.clear());
        lost_before(e, Way::There, Stop::LeavesWorker);
    };
    broken(change, Cause::NoGatewayNode, Hop::DestinationGateway);
}

#[test]
fn networks_overlap() {
    let change = |e: &mut Evidence| {
        e.destination.networks = vec!["10.1.128.0/17".parse().unwrap()];
        lost_before(e, Way::There, Stop::LeavesWorker);
    };
    broken(change, Cause::NetworksOverlap, Hop::ClusterSet);
    let refused = |e: &mut Evidence| {
        let reason = "10.1.0.0/16 overlaps with 10.0.0.0/8 of c".to_owned();
        let refusal = RefusedCluster { cluster: "b".to_owned(), endpoint: None, reason };
        statuses(&mut e.source, |status| {
            status.connections.clear();
            status.refused = vec![refusal.clone()];
        });
        lost_before(e, Way::There, Stop::LeavesTunnel);
    };
    broken(refused, Cause::NetworksOverlap, Hop::ClusterSet);
    // What is refused is not kept either: the overlap comes before what follows from it.
    let unknown = |e: &mut Evidence| {
        change(e);
        e.source.endpoints.truncate(1);
        statuses(&mut e.source, |status| status.connections.clear());
    };
    broken(unknown, Cause::NetworksOverlap, Hop::ClusterSet);
}

#[test]
fn broker_is_away_and_the_cluster_unknown() {
    let unknown = |e: &mut Evidence| {
        e.source.endpoints.truncate(1);
        statuses(&mut e.source, |status| status.connections.clear());
        lost_before(e, Way::There, Stop::LeavesWorker);
    };
    broken(unknown, Cause::ClusterUnknown, Hop::ClusterSet);
    for is_ours in [true, false] {
        let away = |e: &mut Evidence| {
            unknown(e);
            let cluster = if is_ours { &mut e.source } else { &mut e.destination };
            statuses(cluster, |status| status.broker.state = BrokerLink::Away);
        };
        broken(away, Cause::BrokerAway, Hop::ClusterSet);
    }
}

#[test]
fn a_broker_that_is_away_breaks_no_connection_that_is_there() {
    let mut evidence = healthy();
    statuses(&mut evidence.source, |status| status.broker.state = BrokerLink::Away);
    let diagnosis = judge(&evidence);
    assert_eq!((diagnosis.health, diagnosis.cause()), (Health::Impaired, Some(Cause::BrokerAway)));
}

#[test]
fn pod_network_is_not_published() {
    let change = |e: &mut Evidence| {
        e.source.pod.address = "10.77.0.1".parse().ok();
        lost_before(e, Way::There, Stop::LeavesTunnel);
    };
    broken(change, Cause::AddressNotPublished, Hop::ClusterSet);
}

#[test]
fn route_agent_does_not_work_on_the_worker() {
    let change = |e: &mut Evidence| {
        let node = e.source.nodes.get_mut("a-w1").unwrap();
        (node.before, node.after, node.watch) = (None, None, None);
        let namespace = "submariner-operator".to_owned();
        node.problem = Some(AgentError::NoPod { node: "a-w1".to_owned(), namespace });
        e.probes.insert(probe::PING, Err("no pod".to_owned()));
        e.probes.remove(&probe::SIZES);
    };
    broken(change, Cause::RouteAgentDown, Hop::SourceNode);
}

#[test]
fn route_of_the_worker_is_removed() {
    let change = |e: &mut Evidence| {
        reports(&mut e.source, "a-w1", |report| report.routes.truncate(1));
        lost_before(e, Way::There, Stop::LeavesWorker);
    };
    broken(change, Cause::RouteMissing, Hop::SourceNode);
}

#[test]
fn vxlan_device_is_removed_or_switched_off() {
    let removed = |e: &mut Evidence| {
        reports(&mut e.source, "a-w1", |report| report.links.retain(|link| link.name != VX_DEVICE));
        lost_before(e, Way::There, Stop::LeavesWorker);
    };
    broken(removed, Cause::VxlanDeviceMissing, Hop::SourceNode);
    let down = |e: &mut Evidence| {
        reports(&mut e.source, "a-gw1", |report| report.links[1].up = false);
        lost_before(e, Way::There, Stop::EntersGateway);
    };
    broken(down, Cause::VxlanDeviceDown, Hop::SourceGateway);
    let remote = |e: &mut Evidence| {
        reports(&mut e.destination, "b-w1", |report| report.links[1].up = false);
        lost_before(e, Way::There, Stop::EntersWorker);
    };
    broken(remote, Cause::VxlanDeviceDown, Hop::DestinationNode);
}

#[test]
fn forwarding_entry_is_missing() {
    let change = |e: &mut Evidence| {
        reports(&mut e.destination, "b-gw1", |report| report.neighbours.clear());
        lost_before(e, Way::There, Stop::ForwardedCarried);
    };
    broken(change, Cause::ForwardingEntryMissing, Hop::DestinationVxlan);
}

#[test]
fn port_4800_is_blocked_by_the_network_or_by_a_node() {
    let network = |e: &mut Evidence| lost_before(e, Way::There, Stop::ArrivesCarried);
    broken(network, Cause::VxlanPortBlocked, Hop::SourceVxlan);
    let node = |e: &mut Evidence| {
        reports(&mut e.source, "a-gw1", |report| report.filters.drops.push(drops_port("input", 4800)));
        lost_before(e, Way::There, Stop::EntersGateway);
    };
    broken(node, Cause::VxlanPortBlocked, Hop::SourceVxlan);
    let way_out = |e: &mut Evidence| {
        reports(&mut e.source, "a-w1", |report| report.filters.drops.push(drops_port("output", 4800)));
        lost_before(e, Way::There, Stop::LeavesCarried);
    };
    broken(way_out, Cause::VxlanPortBlocked, Hop::SourceVxlan);
}

#[test]
fn reverse_path_filter_is_strict() {
    let change = |e: &mut Evidence| {
        let key = "ipv4/conf/vx-submariner/rp_filter";
        reports(&mut e.source, "a-gw1", |report| drop(report.sysctls.insert(key.to_owned(), "1".to_owned())));
        later(&mut e.source, "a-gw1", |report| *report.counters.get_mut("IPReversePathFilter").unwrap() = 3);
        lost_before(e, Way::There, Stop::EntersTunnel);
    };
    broken(change, Cause::ReversePathFilter, Hop::SourceGateway);
}

#[test]
fn node_does_not_forward() {
    let off = |report: &mut crate::node::document::NodeReport| {
        report.sysctls.insert("ipv4/ip_forward".to_owned(), "0".to_owned());
    };
    let gateway = |e: &mut Evidence| {
        reports(&mut e.source, "a-gw1", off);
        lost_before(e, Way::There, Stop::EntersTunnel);
    };
    broken(gateway, Cause::ForwardingOff, Hop::SourceGateway);
    // Probes that a node sends itself are not forwarded by it; the answer is.
    let worker = |e: &mut Evidence| {
        reports(&mut e.source, "a-w1", off);
        lost_before(e, Way::Back, Stop::Delivered);
    };
    broken(worker, Cause::ForwardingOff, Hop::SourceNode);
}

#[test]
fn rule_or_table_is_removed() {
    let rule = |e: &mut Evidence| {
        reports(&mut e.source, "a-gw1", |report| report.rules.retain(|rule| rule.table != "150"));
        lost_before(e, Way::There, Stop::EntersTunnel);
    };
    broken(rule, Cause::RuleMissing, Hop::SourceGateway);
    let table = |e: &mut Evidence| {
        reports(&mut e.source, "a-gw1", |report| report.routes.retain(|route| route.table != "150"));
        lost_before(e, Way::There, Stop::EntersTunnel);
    };
    broken(table, Cause::RouteMissing, Hop::SourceGateway);
    let delivery = |e: &mut Evidence| {
        reports(&mut e.destination, "b-gw1", |report| report.routes.retain(|route| route.table != "149"));
        lost_before(e, Way::There, Stop::LeavesGateway);
    };
    broken(delivery, Cause::RouteMissing, Hop::DestinationGateway);
}

#[test]
fn tunnel_device_is_down_or_gone() {
    let down = |e: &mut Evidence| {
        reports(&mut e.source, "a-gw1", |report| report.links[2].up = false);
        lost_before(e, Way::There, Stop::EntersTunnel);
    };
    broken(down, Cause::TunnelDeviceDown, Hop::SourceGateway);
    let gone = |e: &mut Evidence| {
        reports(&mut e.source, "a-gw1", |report| drop(report.links.pop()));
        lost_before(e, Way::There, Stop::EntersTunnel);
    };
    broken(gone, Cause::TunnelDeviceMissing, Hop::SourceGateway);
}

#[test]
fn filter_drops_forwarded_packets() {
    let rule = |e: &mut Evidence| {
        let mut rule = drops_port("forward", 0);
        rule.matches[0].values = vec!["icmp".to_owned()];
        rule.matches.pop();
        reports(&mut e.source, "a-gw1", |report| report.filters.drops.push(rule.clone()));
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

fn cable_down(e: &mut Evidence) {
    for cluster in [&mut e.source, &mut e.destination] {
        statuses(cluster, |status| status.connections[0].connection.status = ConnectionStatus::Connecting);
    }
    lost_before(e, Way::There, Stop::LeavesTunnel);
}

#[test]
fn port_4500_is_blocked_by_the_network_or_by_a_node() {
    let network = |e: &mut Evidence| {
        cable_down(e);
        lose_datagrams(e, probe::CABLE_THERE);
        lose_datagrams(e, probe::CABLE_BACK);
    };
    broken(network, Cause::CablePortBlocked, Hop::Cable);
    let node = |e: &mut Evidence| {
        cable_down(e);
        reports(&mut e.destination, "b-gw1", |report| report.filters.drops.push(drops_port("input", 4500)));
    };
    broken(node, Cause::CablePortBlocked, Hop::Cable);
}

#[test]
fn gateways_do_not_reach_each_other() {
    let change = |e: &mut Evidence| {
        cable_down(e);
        for number in [probe::CABLE_THERE, probe::CABLE_BACK] {
            lose_datagrams(e, number);
        }
        for number in [probe::UNDERLAY_THERE, probe::UNDERLAY_BACK] {
            e.probes.insert(number, Ok(unanswered()));
        }
    };
    broken(change, Cause::UnderlayUnreachable, Hop::Cable);
}

#[test]
fn nat_does_not_pass_the_port_on() {
    let change = |e: &mut Evidence| {
        cable_down(e);
        lose_datagrams(e, probe::CABLE_THERE);
        lose_datagrams(e, probe::CABLE_BACK);
        statuses(&mut e.source, |status| {
            status.connections[0].connection.using_ip = "203.0.113.5".to_owned()
        });
    };
    broken(change, Cause::NatWithoutPortForward, Hop::Cable);
    let remembered = |e: &mut Evidence| {
        cable_down(e);
        lose_datagrams(e, probe::CABLE_THERE);
        lose_datagrams(e, probe::CABLE_BACK);
        e.probes.insert(probe::UNDERLAY_THERE, Ok(unanswered()));
        for endpoint in e.destination.endpoints.iter_mut().filter(|endpoint| endpoint.cluster_id == "b") {
            endpoint.public_ip = "203.0.113.5".to_owned();
        }
    };
    broken(remembered, Cause::NatWithoutPortForward, Hop::Cable);
}

#[test]
fn preshared_keys_differ() {
    let secrets = |e: &mut Evidence| {
        cable_down(e);
        e.same_preshared_key = Some(false);
    };
    broken(secrets, Cause::PresharedKeyMismatch, Hop::Cable);
    let handshakes = |e: &mut Evidence| {
        cable_down(e);
        e.same_preshared_key = None;
        let drop = |packets| DropCount { reason: "bad_tag".to_owned(), cable: None, worker: 0, packets };
        statuses(&mut e.source, |status| status.drops = vec![drop(5)]);
        later(&mut e.source, "a-gw1", |report| report.gateway.as_mut().unwrap().drops = vec![drop(8)]);
    };
    broken(handshakes, Cause::PresharedKeyMismatch, Hop::Cable);
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
fn nat_discovery_is_blocked() {
    let mut evidence = healthy();
    lose_datagrams(&mut evidence, probe::DISCOVERY_THERE);
    statuses(&mut evidence.source, |status| {
        status.connections[0].discovery.as_mut().unwrap().state = "fallback".to_owned();
    });
    assert_eq!(verdict(&evidence), (Health::Impaired, Cause::NatDiscoveryBlocked, Hop::Cable));
    // Where the guess is wrong it is what breaks the cable.
    let change = |e: &mut Evidence| {
        *e = evidence;
        cable_down(e);
    };
    broken(change, Cause::NatDiscoveryBlocked, Hop::Cable);
}

#[test]
fn large_packets_vanish() {
    let change = |e: &mut Evidence| {
        let Some(Ok(report)) = e.probes.get_mut(&probe::SIZES) else { panic!("no sizes") };
        let (mut number, mut size) = (2, 1200);
        report.sent.truncate(1);
        while size <= 1400 {
            report.sent.push(SentPacket { number, size, ..SentPacket::default() });
            (number, size) = (number + 1, size + 100);
        }
    };
    broken(change, Cause::MtuBlackHole, Hop::SourceVxlan);
}

#[test]
fn a_black_hole_may_take_every_size_but_that_of_small_pings() {
    let mut evidence = healthy();
    let Some(Ok(report)) = evidence.probes.get_mut(&probe::SIZES) else { panic!("no sizes") };
    report.sent = vec![SentPacket { number: 1, size: 600, ..SentPacket::default() }];
    assert_eq!(verdict(&evidence).1, Cause::MtuBlackHole);
}

#[test]
fn a_size_that_somebody_names_is_no_black_hole() {
    let mut evidence = healthy();
    let Some(Ok(report)) = evidence.probes.get_mut(&probe::SIZES) else { panic!("no sizes") };
    let from = "240.1.1.11".parse().unwrap();
    let error = Some(SendError { from, reason: Refusal::TooBig, mtu: Some(1412) });
    report.sent.push(SentPacket { number: 3, size: 1440, error, ..SentPacket::default() });
    report.sent.push(SentPacket { number: 4, size: 1460, ..SentPacket::default() });
    let diagnosis = judge(&evidence);
    assert_eq!((diagnosis.health, diagnosis.measured.path_mtu_bytes), (Health::Healthy, Some(1412)));
}

#[test]
fn source_is_masqueraded() {
    let mut evidence = healthy();
    translated(&mut evidence, "172.31.1.21");
    assert_eq!(verdict(&evidence).1, Cause::SourceMasqueraded);
    assert_eq!(judge(&evidence).health, Health::Impaired);
    let change = |e: &mut Evidence| {
        lost_before(e, Way::There, Stop::LeavesTunnel);
        translated(e, "172.31.1.21");
    };
    broken(change, Cause::SourceMasqueraded, Hop::SourceNode);
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
fn packets_come_by_the_wrong_device() {
    let change = |e: &mut Evidence| {
        let count = |report: &mut crate::node::document::NodeReport, packets| {
            report.filters.counters.insert("spoofed4".to_owned(), packets);
        };
        reports(&mut e.destination, "b-w1", |report| count(report, 0));
        later(&mut e.destination, "b-w1", |report| count(report, 3));
        lost_before(e, Way::There, Stop::LeavesGateway);
    };
    broken(change, Cause::SourceGuardDrop, Hop::DestinationNode);
}

#[test]
fn pod_does_not_answer() {
    broken(|e| lost_before(e, Way::There, Stop::Answered), Cause::PodSilent, Hop::DestinationPod);
}

#[test]
fn the_way_back_is_walked_too() {
    let change = |e: &mut Evidence| {
        reports(&mut e.destination, "b-w1", |report| report.routes.truncate(1));
        lost_before(e, Way::Back, Stop::LeavesWorker);
    };
    broken(change, Cause::RouteMissing, Hop::DestinationNode);
    let mut evidence = healthy();
    change(&mut evidence);
    assert_eq!(judge(&evidence).verdict.unwrap().way, Way::Back);
}

#[test]
fn only_the_health_check_fails() {
    let mut evidence = healthy();
    statuses(&mut evidence.source, |status| {
        status.connections[0].connection.status = ConnectionStatus::Error
    });
    assert_eq!(verdict(&evidence), (Health::Impaired, Cause::HealthCheckOnly, Hop::Cable));
}

#[test]
fn a_pod_beside_the_source_is_cut_off() {
    let change = |e: &mut Evidence| drop(e.probes.insert(probe::POD, Ok(unanswered())));
    broken(change, Cause::PodCutOff, Hop::SourceNode);
    let forwarding = |e: &mut Evidence| {
        change(e);
        let mut rule = drops_port("forward", 0);
        rule.matches[0].values = vec!["icmp".to_owned()];
        rule.matches.pop();
        reports(&mut e.source, "a-w1", |report| report.filters.drops.push(rule.clone()));
    };
    broken(forwarding, Cause::FilterDrop, Hop::SourceNode);
}

#[test]
fn a_service_whose_pods_answer_may_not() {
    let change = |e: &mut Evidence| {
        e.service = Some(ServiceFacts {
            name: "shop/web".to_owned(),
            address: "100.2.0.9".parse().ok(),
            port: Some(80),
            ready: 1,
            ..ServiceFacts::default()
        });
        e.probes.insert(probe::SERVICE, Ok(unanswered()));
    };
    broken(change, Cause::ServiceUnreachable, Hop::DestinationPod);
}

#[test]
fn without_the_other_cluster_an_answer_is_proof_and_silence_is_located_as_far_as_one_sees() {
    let blind = |evidence: &mut Evidence| {
        evidence.destination.visible = false;
        evidence.destination.nodes.clear();
        (evidence.destination.worker, evidence.destination.gateway) = (None, None);
        for number in [probe::CABLE_BACK, probe::UNDERLAY_BACK, probe::DISCOVERY_BACK] {
            evidence.probes.remove(&number);
        }
        evidence.same_preshared_key = None;
    };
    let mut evidence = healthy();
    blind(&mut evidence);
    assert_eq!(judge(&evidence).health, Health::Healthy, "{:#?}", judge(&evidence).verdict);
    let mut evidence = healthy();
    cable_down(&mut evidence);
    blind(&mut evidence);
    assert_eq!(verdict(&evidence), (Health::Broken, Cause::CableDown, Hop::Cable));
}

#[test]
fn hops_behind_the_broken_one_are_not_reached() {
    let mut evidence = healthy();
    lost_before(&mut evidence, Way::There, Stop::ArrivesCarried);
    let states: Vec<HopState> = judge(&evidence).hops.iter().map(|hop| hop.state).collect();
    assert_eq!(states[..4], [HopState::Good, HopState::Good, HopState::Good, HopState::Broken]);
    assert!(states[4..].iter().all(|state| *state == HopState::NotReached), "{states:?}");
}
