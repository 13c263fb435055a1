//! A foreign program judges how our gateway translates: coturn's client behind it asks coturn's server before it
//! (RFC 5780, STUN with two addresses and two ports).
//!
//! ```text
//!   east (242.1.0.0/16)                              west, which keeps its addresses
//!   pod: turnutils_natdiscovery ── our NAT ── cable ── turnserver at 10.2.1.10 and 10.2.1.200
//! ```

use std::time::Duration;

use trieste_tests::daemon::Daemon;
use trieste_tests::globalnet::Objects;
use trieste_tests::guard::root_test;
use trieste_tests::pair::Pair;
use trieste_tests::topology::Topology;
use trieste_tests::traffic;
use trieste_tests::wait::eventually;

/// The server's second address, beside that of its pod.
const SECOND: &str = "10.2.1.200";

#[test]
fn a_foreign_stun_client_finds_endpoint_independent_mapping_and_address_dependent_filtering() {
    let name = "a_foreign_stun_client_finds_endpoint_independent_mapping_and_address_dependent_filtering";
    let Some(_turn) = root_test(name) else { return };
    let mut topology = Topology::two_alike();
    topology.clusters[1].network = 2;
    topology.clusters[1].is_global = false;
    let pair = Pair::connected_with(&topology, &[]).unwrap();
    let (client, server) = (pair.pod("east"), pair.pod("west"));
    let egress = Objects::of(&pair.east).cluster_egress().unwrap();
    server.namespace.ip(&format!("addr add {SECOND}/24 dev eth0")).unwrap();
    let first = server.v4().unwrap();
    let folder = pair.lab.directory();
    let file = |name: &str| folder.join(name).to_string_lossy().into_owned();
    let run = server.namespace.run("turnserver");
    let run = run.args(["--listening-ip", &first.to_string(), "--listening-ip", SECOND]);
    // Not the machine's configuration: Debian's switches off what is asked for here.
    let run = run.args([
        "-c",
        "/dev/null",
        "--no-auth",
        "--no-tls",
        "--no-dtls",
        "--no-cli",
        "--log-file",
        "stdout",
    ]);
    let run = run.args(["--userdb", &file("turn.db"), "--pidfile", &file("turn.pid")]);
    let stun = Daemon::start(&pair.lab, "turnserver", &run).unwrap();
    eventually("the way to both addresses", Duration::from_secs(20), || {
        stun.check()?;
        for address in [first, SECOND.parse()?] {
            let ping = traffic::ping(&client.namespace, address, 1, &[])?;
            anyhow::ensure!(ping.received == 1, "{address} does not answer");
        }
        Ok(())
    })
    .unwrap();

    // Until the server listens on all its sockets, answers are missing.
    let told = eventually("the client to be answered", Duration::from_secs(40), || {
        let ask = client.namespace.run("turnutils_natdiscovery").args(["-m", "-f", &first.to_string()]);
        let output = ask.timeout(Duration::from_secs(60)).output()?;
        let text = format!("{}{}", output.stdout, output.stderr);
        anyhow::ensure!(text.contains("Mapping!") && text.contains("Filtering!"), "{text}");
        Ok(text)
    })
    .unwrap();

    assert!(told.contains("Endpoint Independent Mapping"), "{told}");
    assert!(told.contains("Address Dependent Filtering"), "{told}");
    let reflexive = told.lines().filter(|line| line.contains("reflexive"));
    let is_ours = |line: &str| egress.iter().any(|address| line.contains(&address.to_string()));
    assert!(reflexive.clone().count() > 0 && reflexive.clone().all(is_ours), "{told}");
}
