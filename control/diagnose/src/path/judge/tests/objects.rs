//! What the objects of both clusters say.

use trieste_control::admin::{BrokerLink, RefusedCluster};

use super::*;

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
