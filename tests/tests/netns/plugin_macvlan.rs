//! Pods with a macvlan device on their node, in a cluster with real gateways: what they send goes by their node and
//! `vx-submariner`, what is for them leaves the gateway's node by the macvlan network.
//!
//! ```text
//!   mac pod ─ veth0 ─▶ east node ─▶ vx-submariner ─▶ east gateway ══ WAN ══ west gateway ─▶ pod, service
//!       net1 ◀─────────── 172.20.1.0/24 ◀─────────────────┘ ◀═════════════════════
//! ```

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use trieste_tests::capture::Capture;
use trieste_tests::guard::root_test;
use trieste_tests::lab::Lab;
use trieste_tests::macvlan::{MacvlanPair, NETWORKS, SERVICE_PORT};
use trieste_tests::netns::Namespace;
use trieste_tests::topology::{Families, Topology};
use trieste_tests::traffic::{self, Responder};
use trieste_tests::wait::eventually;

const SOON: Duration = Duration::from_secs(60);
/// The longest that one exchange may take.
const TRAFFIC: Duration = Duration::from_secs(5);
/// Inner addresses of both clusters, in tcpdump's words.
const INNER: &str =
    "net 10.0.0.0/8 or net 172.20.1.0/24 or net fd00:1::/48 or net fd00:2::/48 or net fd00:20::/64";

#[test]
fn plugin_macvlan_pods_talk_with_another_cluster_with_every_cable_and_one_gateway_or_several() {
    let name = "plugin_macvlan_pods_talk_with_another_cluster_with_every_cable_and_one_gateway_or_several";
    let Some(_turn) = root_test(name) else { return };
    for (cable, gateways) in
        [("wireguard", 1), ("wireguard", 2), ("libreswan", 2), ("vxlan", 2), ("vxlan", 1)]
    {
        check(cable, gateways);
    }
}

fn check(cable: &str, gateways: u8) {
    let lab = Lab::new().unwrap();
    let plan =
        lab.build(&Topology::two_clusters().with_underlay(Families::V4).with_nodes(gateways, 1)).unwrap();
    let pair = MacvlanPair::start(&lab, &plan, &[format!("cable-driver: {cable}")]).unwrap();
    pair.mesh.wait_traffic().unwrap_or_else(|error| {
        lab.show_logs();
        panic!("{cable}, {gateways}: {error:#}")
    });
    let wire = Capture::start(&lab, &plan.wan, "br0", "").unwrap();
    pair.announce(&NETWORKS).unwrap();

    let west = &plan.cluster("west").nodes.last().unwrap().pods[0];
    for pod in &pair.pods {
        let about = format!("{cable}, {gateways} gateways, {}", pod.name);
        let responder = Responder::start(&pod.namespace).unwrap();
        let services = pair.services.iter().map(|ip| SocketAddr::new(*ip, SERVICE_PORT));
        for to in pair.targets().into_iter().chain(services) {
            let own = pod.addresses.into_iter().find(|own| own.is_ipv4() == to.is_ipv4()).unwrap();
            assert_sees(&about, &pod.namespace, to, own);
        }
        for (to, seen) in pod.addresses.into_iter().zip(west.ips()) {
            assert_sees(&about, &west.namespace, SocketAddr::new(to, responder.port()), seen);
        }
    }
    let frames = wire.finish().unwrap();
    assert_eq!(frames.count(INNER).unwrap(), 0, "{cable}: in clear on the WAN");

    // What is withdrawn is closed.
    pair.announce(&[]).unwrap();
    let responder = Responder::start(&pair.pods[0].namespace).unwrap();
    for to in pair.pods[0].addresses.map(|to| SocketAddr::new(to, responder.port())) {
        eventually("the network to be closed", SOON, || {
            let sent = traffic::send_tcp(&west.namespace, to, b"x", Duration::from_millis(500));
            anyhow::ensure!(sent.is_err(), "{to} is reached");
            Ok(())
        })
        .unwrap();
    }
}

/// Sends by TCP, in more than one segment, and by UDP; the other end has to see this address.
fn assert_sees(about: &str, from: &Namespace, to: SocketAddr, own: IpAddr) {
    let bytes = traffic::pattern(100_000);
    let receipt = eventually("an answer", SOON, || traffic::send_tcp(from, to, &bytes, TRAFFIC));
    let receipt = receipt.unwrap_or_else(|error| panic!("{about} to {to}: {error:#}"));
    receipt.check_bytes(&bytes).unwrap();
    assert_eq!(receipt.seen_as.ip(), own, "{about} to {to}");
    // A service is TCP's alone.
    if to.port() != SERVICE_PORT {
        let bytes = traffic::pattern(1000);
        let receipt = eventually("an answer", SOON, || traffic::send_udp(from, to, &bytes, TRAFFIC)).unwrap();
        receipt.check_bytes(&bytes).unwrap();
        assert_eq!(receipt.seen_as.ip(), own, "{about} to {to}, UDP");
    }
}
