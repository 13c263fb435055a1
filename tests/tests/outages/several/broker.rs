//! The broker is away, at the start of a gateway and while it runs; and somebody floods it.

use std::time::Duration;

use serde_json::json;
use trieste_control::admin::BrokerLink;
use trieste_control::api::Object;
use trieste_control::store::{DirStore, Store as _};
use trieste_tests::cluster::BROKER_NAMESPACE;
use trieste_tests::flow::Probing;
use trieste_tests::guard::root_test;
use trieste_tests::wait::eventually;

use super::{Bed, INTERVAL};

#[test]
fn a_broker_that_is_away_costs_no_packet_and_a_gateway_starts_without_it() {
    let name = "a_broker_that_is_away_costs_no_packet_and_a_gateway_starts_without_it";
    let Some(_turn) = root_test(name) else { return };
    let mut bed = Bed::start(&[]);
    let (broker, away) = (bed.mesh.lab.directory().join("broker"), bed.mesh.lab.directory().join("away"));
    let flows = bed.flows();
    let probing = Probing::start_every(INTERVAL, &flows).unwrap();
    std::thread::sleep(Duration::from_millis(500));
    probing.mark();

    std::fs::rename(&broker, &away).unwrap();
    std::thread::sleep(Duration::from_secs(4));
    let outages = probing.finish();
    assert_eq!(outages.lost(), 0, "{}", outages.line());

    // It has all of its paths again from what it remembers.
    let east = bed.mesh.side_mut("east");
    east.kill_gateway(1).unwrap();
    east.start_gateway(1).unwrap();
    bed.mesh.settle().unwrap();

    let flows = bed.flows();
    let probing = Probing::start_every(INTERVAL, &flows).unwrap();
    std::thread::sleep(Duration::from_millis(500));
    probing.mark();
    std::fs::rename(&away, &broker).unwrap();
    eventually("the broker to be followed again", Duration::from_secs(40), || {
        let links: Vec<_> = (0..2).map(|gateway| bed.mesh.side("east").status(gateway)).collect();
        let links = links.into_iter().collect::<anyhow::Result<Vec<_>>>()?;
        let is_synced = links.iter().any(|status| status.broker.state == BrokerLink::Synced);
        anyhow::ensure!(is_synced, "{:?}", links.iter().map(|status| &status.broker).collect::<Vec<_>>());
        Ok(())
    })
    .unwrap();
    let outages = probing.finish();
    assert_eq!(outages.lost(), 0, "{}", outages.line());
    bed.mesh.settle().unwrap();
}

#[test]
fn a_flood_of_junk_on_the_broker_costs_no_packet() {
    let Some(_turn) = root_test("a_flood_of_junk_on_the_broker_costs_no_packet") else { return };
    let mut bed = Bed::start(&[]);
    let broker = DirStore::open(bed.mesh.lab.directory().join("broker")).unwrap();
    let flows = bed.flows();
    let probing = Probing::start_every(INTERVAL, &flows).unwrap();
    std::thread::sleep(Duration::from_millis(500));
    probing.mark();

    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        for number in 0..1000 {
            broker.create(junk(number)).await.unwrap();
        }
    });
    eventually("junk to be refused", Duration::from_secs(40), || {
        for (cluster, gateway) in [("east", 0), ("west", 0)] {
            let refused = bed.mesh.side(cluster).status(gateway)?.refused;
            let count = refused.iter().filter(|refused| refused.cluster == "junk").count();
            anyhow::ensure!(count >= 200, "{cluster}: {count} are");
        }
        Ok(())
    })
    .unwrap();

    let outages = probing.finish();
    assert_eq!(outages.lost(), 0, "{}", outages.line());
}

fn junk(number: u32) -> Object {
    let (name, net) =
        (format!("junk-{number:04}"), format!("10.{}.{}.0/24", 128 + number / 250, number % 250));
    let object = json!({
        "apiVersion": "submariner.io/v1", "kind": "Endpoint",
        "metadata": {"name": name, "namespace": BROKER_NAMESPACE, "labels": {"submariner-io/clusterID": "junk"}},
        "spec": {"cluster_id": "junk", "cable_name": format!("submariner-cable-{name}"), "hostname": name,
            "subnets": [net], "private_ip": "172.31.9.1", "public_ip": "", "nat_enabled": false, "healthCheckIP": "",
            "backend": "wireguard", "backend_config": {"udp-port": "4500", "natt-discovery-port": "0",
                "publicKey": "QUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUE="}},
    });
    Object::from_value(object).unwrap()
}
