//! The broker is away, at the start of a gateway and while it runs; and somebody floods it.

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use trieste_control::admin::BrokerLink;
use trieste_tests::cluster::BROKER_NAMESPACE;
use trieste_tests::guard::root_test;
use trieste_tests::put_whole;
use trieste_tests::wait::eventually;

use super::{Bed, probe};

/// Endpoints that somebody floods the broker with.
const JUNK: u32 = 1000;
/// And such ones that cost much to read.
const LARGE_JUNK: u32 = 300;

#[test]
fn a_broker_that_is_away_costs_no_packet_and_a_gateway_starts_without_it() {
    let name = "a_broker_that_is_away_costs_no_packet_and_a_gateway_starts_without_it";
    let Some(_turn) = root_test(name) else { return };
    let mut bed = Bed::start(&[]);
    let (broker, away) = (bed.mesh.lab.directory().join("broker"), bed.mesh.lab.directory().join("away"));
    let flows = bed.flows();
    let probing = probe(&flows);

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
    let probing = probe(&flows);
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
    let folder = bed.mesh.lab.directory().join("broker").join(BROKER_NAMESPACE).join("endpoints");

    let failed = bed.undisturbed(|bed| {
        let flows = bed.flows();
        let probing = probe(&flows);
        for number in 0..JUNK {
            put_whole(&folder.join(format!("junk-{number:04}.yaml")), &junk(number).to_string()).unwrap();
        }
        wait_junk(bed, "the rest of the junk to be refused", |refused| refused >= 200);
        let outages = probing.finish();
        for number in 0..JUNK {
            std::fs::remove_file(folder.join(format!("junk-{number:04}.yaml"))).unwrap();
        }
        wait_junk(bed, "nothing to be refused", |refused| refused == 0);
        if outages.lost() == 0 { Vec::new() } else { vec![outages.line()] }
    });

    assert!(failed.is_empty(), "{failed:#?}");
}

/// By hand, ten thousand of the large ones, with programs as they are shipped: `TRIESTE_JUNK=10000
/// TRIESTE_BIN=FOLDER`, an absolute path.
#[test]
fn objects_that_are_refused_for_their_sizes_cost_no_memory_and_no_time_to_stop() {
    let name = "objects_that_are_refused_for_their_sizes_cost_no_memory_and_no_time_to_stop";
    let Some(_turn) = root_test(name) else { return };
    let most: u32 =
        std::env::var("TRIESTE_JUNK").ok().and_then(|text| text.parse().ok()).unwrap_or(LARGE_JUNK);
    let mut bed = Bed::start(&[]);
    let folder = bed.mesh.lab.directory().join("broker").join(BROKER_NAMESPACE).join("endpoints");
    let before = resident(&bed);

    // Of 100,000 bytes, of values that take 80 times their text in memory, and just below what an object may take.
    for (number, kind) in (0..most).zip((0..3).cycle()) {
        let mut object = junk(number);
        object["spec"]["cluster_id"] = json!("another");
        object["spec"]["note"] = match kind {
            0 => json!("x".repeat(100_000)),
            1 => json!(vec![json!({"a": 0}); 3_500]),
            _ => json!("x".repeat(24 << 10)),
        };
        put_whole(&folder.join(format!("junk-{number:05}.yaml")), &object.to_string()).unwrap();
    }
    // A build for tests decodes some megabytes of YAML a second, and each gateway decodes all of it.
    let patience = Duration::from_secs(60 + u64::from(most / 10));
    wait_junk_for(&bed, "all of them to be refused", patience, |refused| refused >= 200);
    eventually("the gateways to have read all of them", patience, || {
        let before = resident(&bed);
        std::thread::sleep(Duration::from_secs(1));
        let after = resident(&bed);
        anyhow::ensure!(
            before.iter().zip(&after).all(|(a, b)| a.abs_diff(*b) < 1 << 20),
            "{before:?}, {after:?}"
        );
        Ok(())
    })
    .unwrap();
    let after = resident(&bed);

    println!("{most} objects: resident {before:?} bytes before, {after:?} after");
    for (before, after) in before.iter().zip(&after) {
        assert!(*after < before + (64 << 20), "{before} bytes before, {after} after");
    }
    bed.mesh.settle().unwrap();
    // Each write of a directory looks at all of its files, slowly so in a build for tests: there a second is for the usual
    // number.
    let is_shipped = std::env::var_os("TRIESTE_BIN").is_some();
    let limit = if most > LARGE_JUNK && !is_shipped { patience } else { Duration::from_secs(1) };
    let began = Instant::now();
    bed.mesh.side_mut("east").stop_gateway(0, limit).unwrap();
    println!("{most} objects: stopped within {:?}", began.elapsed());
}

/// What the gateways hold of the machine's memory, in bytes.
fn resident(bed: &Bed) -> Vec<u64> {
    let sides = bed.mesh.sides.iter();
    let gateways = sides.flat_map(|side| (0..2).map(|gateway| side.gateway(gateway).unwrap().id()));
    gateways.map(|id| id.resident_bytes().unwrap()).collect()
}

/// Waits until the leaders of both clusters refuse so many Endpoints.
fn wait_junk(bed: &Bed, what: &str, is_good: impl Fn(usize) -> bool) {
    wait_junk_for(bed, what, Duration::from_secs(60), is_good);
}

fn wait_junk_for(bed: &Bed, what: &str, patience: Duration, is_good: impl Fn(usize) -> bool) {
    eventually(what, patience, || {
        for side in &bed.mesh.sides {
            let counts: anyhow::Result<Vec<_>> =
                (0..2).map(|gateway| Ok(side.status(gateway)?.refused.len())).collect();
            let most = counts?.into_iter().max().unwrap_or_default();
            anyhow::ensure!(is_good(most), "{} refuses {most}", side.plan().id);
        }
        Ok(())
    })
    .unwrap();
}

fn junk(number: u32) -> Value {
    let (name, net) =
        (format!("junk-{number:04}"), format!("10.{}.{}.0/24", 128 + number / 250, number % 250));
    json!({
        "apiVersion": "submariner.io/v1", "kind": "Endpoint",
        "metadata": {"name": name, "namespace": BROKER_NAMESPACE, "labels": {"submariner-io/clusterID": "junk"}},
        "spec": {"cluster_id": "junk", "cable_name": format!("submariner-cable-{name}"), "hostname": name,
            "subnets": [net], "private_ip": "172.31.9.1", "public_ip": "", "nat_enabled": false, "healthCheckIP": "",
            "backend": "wireguard", "backend_config": {"udp-port": "4500", "natt-discovery-port": "0",
                "publicKey": "QUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUE="}},
    })
}
