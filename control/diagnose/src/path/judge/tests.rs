//! One breakage after the other, in a connection in which all else is well.

mod cable;
mod ends;
mod filters;
mod legs;
mod objects;
mod quality;
mod world;

use trieste_control::api::ConnectionStatus;
use trieste_control::devices::VX_DEVICE;

use super::super::evidence::ServiceFacts;
use super::*;
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

fn cable_down(e: &mut Evidence) {
    for cluster in [&mut e.source, &mut e.destination] {
        statuses(cluster, |status| status.connections[0].connection.status = ConnectionStatus::Connecting);
    }
    lost_before(e, Way::There, Stop::LeavesTunnel);
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
