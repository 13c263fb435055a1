//! Ends that are not plain pods: global IPs, and nodes' networks.

use super::*;

#[test]
fn with_globalnet_all_is_well_and_both_addresses_are_named() {
    let mut evidence = healthy();
    globalnet(&mut evidence);
    let diagnosis = judge(&evidence);
    assert_eq!((diagnosis.health, &diagnosis.verdict), (Health::Healthy, &None));
    assert!(diagnosis.hops.iter().all(|hop| hop.state == HopState::Good), "{:#?}", diagnosis.hops);
    assert_eq!(diagnosis.measured.source_seen, GLOBAL_A.parse().ok());
    let detail = |hop: Hop| &diagnosis.hops.iter().find(|report| report.hop == hop).unwrap().detail;
    assert_eq!(detail(Hop::SourcePod), &format!("shop/web-a ({POD_A}, for other clusters {GLOBAL_A})"));
    assert_eq!(detail(Hop::DestinationPod), &format!("shop/web-b ({POD_B}, for other clusters {GLOBAL_B})"));
}

#[test]
fn with_globalnet_routes_lead_to_global_addresses_until_the_other_gateway() {
    let without_routes = |node: &str, table: &str, way: Way, stop: Stop| {
        let mut evidence = healthy();
        lost_before(&mut evidence, way, stop);
        globalnet(&mut evidence);
        let cluster = if node.starts_with('a') { &mut evidence.source } else { &mut evidence.destination };
        reports(cluster, node, |report| {
            report.routes.retain(|route| route.table != table || route.destination.prefix_len() == 0);
        });
        judge(&evidence).verdict.unwrap()
    };
    for (node, table, way, stop, hop, address) in [
        ("a-w1", "main", Way::There, Stop::LeavesWorker, Hop::SourceNode, GLOBAL_B),
        ("a-gw1", "150", Way::There, Stop::EntersTunnel, Hop::SourceGateway, GLOBAL_B),
        ("b-gw1", "149", Way::There, Stop::LeavesGateway, Hop::DestinationGateway, POD_B),
        ("b-w1", "main", Way::Back, Stop::LeavesWorker, Hop::DestinationNode, GLOBAL_A),
        ("b-gw1", "150", Way::Back, Stop::EntersTunnel, Hop::DestinationGateway, GLOBAL_A),
        ("a-gw1", "149", Way::Back, Stop::LeavesGateway, Hop::SourceGateway, POD_A),
    ] {
        let found = without_routes(node, table, way, stop);
        assert_eq!((found.hop, found.cause), (hop, Cause::RouteMissing), "{node}, {table}: {found:?}");
        assert!(found.reason.contains(&format!("route to {address} ")), "{node}, {table}: {found:?}");
    }
}

#[test]
fn with_globalnet_what_is_not_exported_has_no_address_and_the_remedy_exports_it() {
    let unexported = |evidence: &mut Evidence| {
        globalnet(evidence);
        evidence.destination.pod.outside = None;
        evidence.probes.clear();
    };
    broken(unexported, Cause::NoGlobalIp, Hop::DestinationPod);
    let mut evidence = healthy();
    unexported(&mut evidence);
    let remedy = judge(&evidence).verdict.unwrap().remedy;
    assert!(remedy.contains("headless service") && !remedy.contains("--clustercidr"), "{remedy}");

    let service = |outside: Option<&str>| ServiceFacts {
        name: "shop/web".to_owned(),
        address: "100.65.0.9".parse().ok(),
        outside: outside.map(|address| address.parse().unwrap()),
        port: Some(80),
        ready: 1,
        ..ServiceFacts::default()
    };
    evidence.service = Some(service(None));
    let found = judge(&evidence).verdict.unwrap();
    assert_eq!(found.cause, Cause::NoGlobalIp);
    assert!(found.remedy.contains("`trieste export service web -n shop --context "), "{}", found.remedy);

    // Exported: tried by a connection alone.
    evidence.service = Some(service(Some("242.2.0.9")));
    evidence.probes.insert(probe::SERVICE, Ok(answered(1)));
    let diagnosis = judge(&evidence);
    assert_eq!(
        (diagnosis.health, diagnosis.measured.answered),
        (Health::Healthy, 1),
        "{:?}",
        diagnosis.verdict
    );
    assert!(diagnosis.hops.iter().all(|hop| hop.state == HopState::Good), "{:#?}", diagnosis.hops);
    evidence.probes.insert(probe::SERVICE, Ok(unanswered()));
    assert_eq!(verdict(&evidence), (Health::Broken, Cause::ServiceUnreachable, Hop::DestinationPod));

    // An address that nobody has.
    evidence.service = None;
    evidence.probes.clear();
    evidence.destination.pod = Default::default();
    evidence.destination.pod.name = "242.2.0.77".to_owned();
    let found = judge(&evidence).verdict.unwrap();
    assert!(found.cause == Cause::NoGlobalIp && found.reason.contains("242.2.0.77"), "{found:?}");
}

#[test]
fn a_pod_with_its_nodes_network_has_no_device_of_its_own() {
    let mut evidence = healthy();
    on_host_network(&mut evidence, Side::Source);
    let diagnosis = judge(&evidence);
    assert_eq!((diagnosis.health, &diagnosis.verdict), (Health::Healthy, &None));

    // Its packets do not come back.
    let lost = |evidence: &mut Evidence| {
        lost_before(evidence, Way::Back, Stop::EntersWorker);
        on_host_network(evidence, Side::Source);
    };
    let mut evidence = healthy();
    lost(&mut evidence);
    let found = judge(&evidence).verdict.unwrap();
    assert_eq!((found.hop, found.way), (Hop::SourceVxlan, Way::Back), "{found:?}");

    // As a destination it is not reached by its node's address, but by a service.
    let mut evidence = healthy();
    on_host_network(&mut evidence, Side::Destination);
    evidence.destination.pod.address = "172.31.2.21".parse().ok();
    let found = judge(&evidence).verdict.unwrap();
    assert_eq!(found.cause, Cause::AddressNotPublished);
    assert!(found.remedy.contains("service:"), "{found:?}");
}

#[test]
fn both_ends_speak_a_family_that_both_have() {
    let ips =
        |texts: &[&str]| -> Vec<std::net::IpAddr> { texts.iter().map(|ip| ip.parse().unwrap()).collect() };
    let (near, far) = (["10.1.1.5", "fd00:1::5"], ["fd00:2::7", "10.2.1.7"]);
    for (source, destination, expected) in [
        (&near[..], &far[..], ("10.1.1.5", "10.2.1.7")),
        (&near[1..], &far[..], ("fd00:1::5", "fd00:2::7")),
        (&near[..], &far[..1], ("fd00:1::5", "fd00:2::7")),
        // Nothing in common: that is said elsewhere.
        (&near[..1], &far[..1], ("10.1.1.5", "fd00:2::7")),
    ] {
        let mut evidence = healthy();
        for (pod, all) in [(&mut evidence.source.pod, source), (&mut evidence.destination.pod, destination)] {
            pod.addresses = ips(all);
            pod.address = pod.addresses.first().copied();
        }
        evidence.choose_family();
        let chosen =
            [&evidence.source, &evidence.destination].map(|end| end.pod.address.unwrap().to_string());
        assert_eq!(chosen, [expected.0, expected.1], "{source:?}, {destination:?}");
    }

    // Global IPs are IPv4, and a service has its own families.
    let mut evidence = healthy();
    globalnet(&mut evidence);
    evidence.source.pod.addresses = ips(&["fd00:1::5", "10.1.1.5"]);
    evidence.choose_family();
    assert_eq!(evidence.source.pod.address, Some(ips(&["10.1.1.5"])[0]));
    let mut evidence = healthy();
    evidence.source.pod.addresses = ips(&near);
    evidence.destination.pod.addresses = ips(&far);
    let addresses = ips(&["fd00:99::1"]);
    evidence.service =
        Some(ServiceFacts { address: addresses.first().copied(), addresses, ..ServiceFacts::default() });
    evidence.choose_family();
    assert_eq!(evidence.source.pod.address, Some(ips(&["fd00:1::5"])[0]));
    assert_eq!(evidence.destination.pod.address, Some(ips(&["fd00:2::7"])[0]));
}
