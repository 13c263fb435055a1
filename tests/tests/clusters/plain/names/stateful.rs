//! Pods of a StatefulSet by their host names, and a set that grows and shrinks.

use std::net::IpAddr;

use trieste_tests::clusters::{Asker, Pod, RESPONDER_PORT};
use trieste_tests::wait::eventually;

use crate::shared::{SOON, Two};

const SET: &str = "set";
const NAME: &str = "set.default.svc.clusterset.local";

/// Asks for a set of the other cluster that has two pods, three and one.
pub(super) fn followed(two: &Two, asker: &Pod) {
    let west = two.west();
    let host = |number: usize| format!("set-{number}.west.{NAME}");
    let all = |pods: &[Pod]| -> Vec<IpAddr> { pods.iter().flat_map(|pod| pod.addresses.clone()).collect() };
    let pods = west.start_stateful(SET, 2).unwrap();
    two.set.export(west, "export", SET).unwrap();
    asker.wait_resolved(NAME, &all(&pods), SOON).unwrap();
    for (number, pod) in pods.iter().enumerate() {
        asker.wait_resolved(&host(number), &pod.addresses, SOON).unwrap();
        let seen = asker.reach(&host(number), RESPONDER_PORT).unwrap();
        assert!(asker.addresses.contains(&seen.ip()), "seen as {seen}");
    }
    asker.reach(NAME, RESPONDER_PORT).unwrap();

    let client = Asker::new(two.east(), asker).unwrap();
    let targets = |count: usize| -> Vec<String> {
        (0..count).map(|number| format!("0 50 {RESPONDER_PORT} {}.", host(number))).collect()
    };
    for name in [format!("_tcp._tcp.{NAME}"), format!("tcp.tcp.west.{NAME}")] {
        client.wait_records(&["SRV", &name], &targets(2), SOON).unwrap();
    }
    // Names of the own cluster, reversed ones among them, are its own DNS's as before.
    let own = two.east().service_nets()[0].hosts().next().unwrap().to_string();
    assert_eq!(client.records(&["-x", &own]).unwrap(), ["kubernetes.default.svc.cluster.local."]);
    two.say("pods of a set by their host names");

    for count in [3, 1] {
        let pods = west.start_stateful(SET, count).unwrap();
        asker.wait_resolved(NAME, &all(&pods), SOON).unwrap();
        client.wait_records(&["SRV", &format!("_udp._udp.{NAME}")], &targets(count), SOON).unwrap();
    }
    let gone = eventually("a pod's name to go", SOON, || {
        let told = client.dig(&[&host(1)])?;
        anyhow::ensure!(told.contains("NXDOMAIN"), "{told}");
        Ok(())
    });
    gone.unwrap();
    two.set.export(west, "unexport", SET).unwrap();
    west.kubectl(&["delete", "statefulset,service", SET, "--wait=false"]).unwrap().success().unwrap();
    two.say("a set that grew and shrank");
}
