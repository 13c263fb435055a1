//! The broker is away: at the start of a gateway, and while it runs.

use std::time::Duration;

use trieste_control::admin::BrokerLink;
use trieste_tests::guard::root_test;
use trieste_tests::outage::Probing;
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
