//! The tables against upstream's recorded output.

use super::*;
use trieste_control::api::{Object, Resource};

const RECORDED: &str = include_str!("../../../tests/golden/cli/show-all.txt");
const A_GATEWAYS: &str = include_str!("../../../tests/golden/plain/a-gateways.yaml");

#[test]
fn the_tables_are_upstreams_to_the_byte() {
    let gateways = recorded_gateways("283.485µs");
    assert_eq!(table(&connections(&gateways)), recorded("cluster-a", "Showing Connections"));
    assert_eq!(table(&endpoints(&gateways)), recorded("cluster-a", "Showing Endpoints"));
    assert_eq!(table(&super::gateways(&gateways)), recorded("cluster-a", "Showing Gateways"));
}

#[test]
fn the_address_is_the_one_in_use_and_without_one_the_one_that_would_be() {
    let mut connection = recorded_gateways("0s").remove(0).status.connections.remove(0);
    connection.endpoint.public_ip = "192.0.2.1".to_owned();
    connection.endpoint.private_ip = "10.0.0.1".to_owned();
    connection.using_ip = "203.0.113.1".to_owned();
    connection.using_nat = true;
    assert_eq!(remote_address(&connection), ("203.0.113.1".to_owned(), true));
    connection.using_ip.clear();
    connection.endpoint.nat_enabled = true;
    assert_eq!(remote_address(&connection), ("192.0.2.1".to_owned(), true));
    connection.endpoint.nat_enabled = false;
    assert_eq!(remote_address(&connection), ("10.0.0.1".to_owned(), false));
}

#[test]
fn a_peer_that_writes_lists_of_addresses_alone_has_addresses() {
    let mut gateway = recorded_gateways("0s").remove(0);
    let connection = &mut gateway.status.connections[0];
    connection.using_ip.clear();
    let endpoint = &mut connection.endpoint;
    endpoint.private_ip.clear();
    endpoint.public_ip.clear();
    endpoint.private_ips = vec!["fd00::7".to_owned(), "10.0.0.7".to_owned()];
    endpoint.public_ips = vec!["192.0.2.7".to_owned()];
    endpoint.nat_enabled = false;
    let rows = endpoints(std::slice::from_ref(&gateway));
    assert_eq!((rows[1].endpoint_ip.as_str(), rows[1].public_ip.as_str()), ("10.0.0.7", "192.0.2.7"));
    assert_eq!(connections(std::slice::from_ref(&gateway))[0].remote_ip, "10.0.0.7");
    gateway.status.connections[0].endpoint.nat_enabled = true;
    assert_eq!(connections(std::slice::from_ref(&gateway))[0].remote_ip, "192.0.2.7");
}

#[test]
fn where_several_gateways_have_cables_each_row_says_whose_it_is_and_no_endpoint_is_shown_twice() {
    let mut gateways = recorded_gateways("0s");
    gateways.truncate(1);
    gateways.push(gateways[0].clone());
    gateways[1].status.local_endpoint.hostname = "a-gw2".to_owned();
    gateways[1].status.local_endpoint.private_ip = "172.31.1.12".to_owned();
    let shown: Vec<String> = connections(&gateways).iter().map(|row| row.cells()[0].clone()).collect();
    assert_eq!(shown, ["b-gw1 from a-gw1", "b-gw1 from a-gw2"]);
    let remote = endpoints(&gateways).iter().filter(|row| row.r#type == "remote").count();
    assert_eq!((remote, endpoints(&gateways).len()), (1, 3));
}

#[test]
fn a_gateway_that_hands_its_flows_over_says_how_far_it_is() {
    let mut gateway = recorded_gateways("0s").remove(0);
    for (state, shown) in [("draining", "draining"), ("drained", "drained"), ("else", "active")] {
        let settings = &mut gateway.status.local_endpoint.backend_config;
        settings.insert("trieste.state".to_owned(), state.to_owned());
        assert_eq!(gateways(std::slice::from_ref(&gateway))[0].ha_status, shown);
    }
}

#[test]
fn a_summary_counts_or_names_the_failure() {
    let mut gateway = recorded_gateways("0s").remove(0);
    let mut second = gateway.status.connections[0].clone();
    second.status = ConnectionStatus::Error;
    gateway.status.connections.push(second);
    assert_eq!(summary(&gateway), "1 connections out of 2 are established");
    gateway.status.status_failure = "no TUN".to_owned();
    assert_eq!(summary(&gateway), "no TUN");
}

#[test]
fn subnets_that_do_not_fit_are_counted_and_none_is_cut() {
    let mut gateway = recorded_gateways("0s").remove(0);
    gateway.status.connections[0].endpoint.subnets =
        ["100.2.0.0/16", "10.2.0.0/16", "fd00:2::/112", "fd00:10:2::/48"].map(str::to_owned).into();
    let text = table(&connections(std::slice::from_ref(&gateway)));
    let row = text.lines().nth(1).unwrap();
    assert!(row.contains(" 100.2.0.0/16, 10.2.0.0/16, +2 more   connected"), "{row}");
    let items = |items: &[&str]| items.iter().map(|item| (*item).to_owned()).collect::<Vec<_>>();
    // As upstream shows them while they fit.
    let (fit, long) =
        (items(&["100.2.0.0/16", "10.2.0.0/16", "10.3.0.0/12"]), "fd00:1111:2222:3333:4444:5555:6666:0/112");
    assert_eq!(whole_items(&fit, 40), "100.2.0.0/16, 10.2.0.0/16, 10.3.0.0/12");
    assert_eq!(whole_items(&items(&[long]), 40), long);
    assert_eq!(whole_items(&items(&[long, "10.2.0.0/16"]), 40), format!("{long}, +1 more"));
    assert_eq!(whole_items(&[], 40), "");
    assert_eq!(table(&connections(&[])), "", "without rows not even a heading");
}

/// The recorded Gateway objects, with the round-trip time that was current when the tables were recorded.
fn recorded_gateways(average: &str) -> Vec<Gateway> {
    let list: serde_json::Value = serde_saphyr::from_str(A_GATEWAYS).unwrap();
    let parse = |item: &serde_json::Value| {
        let mut gateway = Gateway::from_object(&Object::from_value(item.clone()).unwrap()).unwrap();
        for connection in &mut gateway.status.connections {
            connection.latency_rtt.as_mut().unwrap().average = average.to_owned();
        }
        gateway
    };
    list["items"].as_array().unwrap().iter().map(parse).collect()
}

/// The recorded table under a heading.
fn recorded(cluster: &str, step: &str) -> String {
    let after = |text: &'static str, mark: &str| text.split_once(mark).unwrap().1;
    let block = after(after(RECORDED, &format!("Cluster \"{cluster}\"\n")), &format!(" ✓ {step}\n"));
    let (table, _) = block.split_once("\n\n").unwrap();
    format!("{table}\n")
}

#[test]
fn a_cluster_without_a_cable_is_named_with_the_reason() {
    let gateways = recorded_gateways("0s");
    let own = gateways[0].status.local_endpoint.clone();
    let remote = |cluster: &str, backend: &str, private_ip: &str| {
        let mut spec = own.clone();
        cluster.clone_into(&mut spec.cluster_id);
        backend.clone_into(&mut spec.backend);
        private_ip.clone_into(&mut spec.private_ip);
        Endpoint { metadata: Default::default(), spec, extra: Default::default() }
    };
    let connected = gateways[0].status.connections[0].endpoint.cluster_id.clone();
    let all = [
        remote(&own.cluster_id, "vxlan", "10.0.0.1"),
        remote(&connected, "vxlan", "10.0.0.1"),
        remote("north", "libreswan", "10.0.0.2"),
        remote("south", &own.backend, "10.0.0.3"),
    ];
    let told = unconnected(&gateways, &all);
    assert_eq!(told.len(), 2, "{told:?}");
    assert!(told[0].starts_with("north: no cable; it uses the cable driver libreswan"), "{told:?}");
    assert!(told[1].starts_with("south: no cable; trieste status"), "{told:?}");
    assert_eq!(unconnected(&[], &all), Vec::<String>::new());

    let mut vxlan = gateways;
    for gateway in &mut vxlan {
        "vxlan".clone_into(&mut gateway.status.local_endpoint.backend);
    }
    let told = unconnected(&vxlan, &[remote("east", "vxlan", "fd00::1")]);
    assert!(told[0].contains("IPv4 address"), "{told:?}");
}

#[test]
fn what_a_gateway_object_has_no_space_for_is_counted_and_not_taken_for_clusters_without_a_cable() {
    let mut all = recorded_gateways("0s");
    let mut spec = all[0].status.local_endpoint.clone();
    "north".clone_into(&mut spec.cluster_id);
    let known = [Endpoint { metadata: Default::default(), spec, extra: Default::default() }];
    assert_eq!(remarks(&all, &known).len(), 1, "north has no cable");
    let annotate = |gateway: &mut Gateway, text: &str| {
        let key = trieste_control::api::annotation::CONNECTIONS_LEFT_OUT.to_owned();
        gateway.metadata.annotations.insert(key, text.to_owned());
    };
    annotate(&mut all[0], r#"{"connected":1400,"others":0}"#);
    let text = remarks(&all, &known);
    assert!(text.len() == 1 && text[0].starts_with("… and 1400 more of "), "{text:?}");
    assert!(!text[0].contains("that are not"), "{text:?}");
    let summary = |gateway: &Gateway| gateways(std::slice::from_ref(gateway)).remove(0).summary;
    assert_eq!(summary(&all[0]), "All connections (1401) are established");
    annotate(&mut all[0], r#"{"connected":1400,"others":3}"#);
    assert!(
        remarks(&all, &known)[0].contains("connected and 3 that are not: "),
        "{:?}",
        remarks(&all, &known)
    );
    assert_eq!(summary(&all[0]), "1401 connections out of 1404 are established");
    annotate(&mut all[0], "many");
    assert_eq!(summary(&all[0]), "All connections (1) are established");
}
