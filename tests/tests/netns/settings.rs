//! A cluster's settings change while its gateway runs, under traffic.
//!
//! ```text
//!   west pod ─▶ west gateway ══ WAN bridge ══ east gateway ─▶ cni0 ─▶ east pod
//!                                                  ▲ settings in its directory
//! ```

use std::time::Duration;

use trieste_tests::flow::Flow;
use trieste_tests::guard::root_test;
use trieste_tests::pair::Pair;
use trieste_tests::topology::{Families, Topology};
use trieste_tests::wait::eventually;

const SOON: Duration = Duration::from_secs(30);
/// How often the flow is probed.
const PACE: Duration = Duration::from_millis(10);

fn wait_logged(pair: &Pair, text: &str) {
    eventually(text, SOON, || {
        let log = pair.east.gateway()?.log_text();
        anyhow::ensure!(log.contains(text), "{log}");
        Ok(())
    })
    .unwrap();
}

fn wait_condition(pair: &Pair, name: &str, part: &str) {
    eventually(part, SOON, || {
        let conditions = pair.east.status()?.conditions;
        let found = conditions.iter().any(|one| one.name == name && one.message.contains(part));
        anyhow::ensure!(found, "{conditions:?}");
        Ok(())
    })
    .unwrap();
}

#[test]
fn settings_change_under_traffic_and_a_bad_value_keeps_the_one_before() {
    let name = "settings_change_under_traffic_and_a_bad_value_keeps_the_one_before";
    let Some(_turn) = root_test(name) else { return };
    for driver in ["wireguard", "libreswan"] {
        let topology = Topology::two_clusters().with_underlay(Families::V4);
        let mut pair = Pair::connected_with(&topology, &[&format!("cable-driver: {driver}")]).unwrap();
        let east = pair.pod_namespace("east");
        let to = (east, pair.pod("east").v4().unwrap());
        let flow = Flow::start(pair.pod_namespace("west"), to, &[], PACE).unwrap();
        flow.wait_through(SOON).unwrap();
        let process = pair.east.gateway().unwrap().id().pid;
        let mark = flow.now();

        pair.east
            .set(&[
                ("path-probe-interval", "50"),
                ("health-check-interval", "2"),
                ("log-level", "info,trieste_gateway=debug"),
                ("weight", "70"),
                ("globalnet.udp-timeout", "400"),
                ("ipsec.dpd-delay", "7"),
            ])
            .unwrap();
        wait_logged(&pair, "interval: 50ms");
        let has_weight = |pair: &Pair| {
            std::fs::read_dir(pair.east.store().join("submariner-operator/endpoints"))
                .unwrap()
                .filter_map(|entry| std::fs::read_to_string(entry.unwrap().path()).ok())
                .filter(|text| text.contains("cluster_id: east"))
                .any(|text| text.lines().any(|line| line.contains("trieste.weight") && line.contains("70")))
        };
        eventually("the Endpoint to have the weight", SOON, || {
            anyhow::ensure!(has_weight(&pair), "it does not");
            Ok(())
        })
        .unwrap();

        pair.east.set(&[("path-probe-interval", "4"), ("wrokers", "2"), ("workers", "2")]).unwrap();
        wait_condition(
            &pair,
            "SettingRefused",
            "path-probe-interval: `4` is not a number of milliseconds from 5 to 1000; `50` stays",
        );
        wait_condition(&pair, "UnknownSetting", "wrokers: is no setting");
        wait_condition(&pair, "RestartPending", "workers of ConfigMap trieste-settings");
        assert!(!pair.east.gateway().unwrap().log_text().contains("interval: 4ms"));
        let seen = flow.since(mark).unwrap();
        assert_eq!(seen.lost, 0, "{driver}: {seen:?}");
        assert_eq!(pair.east.gateway().unwrap().id().pid, process);

        // The next process begins with what waited.
        pair.east.set(&[("workers", "2")]).unwrap();
        pair.east.kill_gateway().unwrap();
        pair.east.start_gateway().unwrap();
        flow.wait_through(SOON).unwrap();
        wait_logged(&pair, "workers=2");
    }
}
