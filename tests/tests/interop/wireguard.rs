//! Our gateway against other people's WireGuard, each side as initiator and as responder, over IPv4 and IPv6.
//!
//! ```text
//!   east pods ── trieste-gateway ══ WAN ══ wireguard-go | boringtun-cli ── west pods
//! ```
//! The foreign peer is known to our gateway by an Endpoint file on the broker, as any member of a cluster set is.

use std::net::SocketAddr;
use std::time::Duration;

use trieste_tests::broker::ForeignEndpoint;
use trieste_tests::capture::{Capture, Frames};
use trieste_tests::cluster::{Cluster, Settings, psk_base64};
use trieste_tests::fault::Fault;
use trieste_tests::guard::root_test;
use trieste_tests::lab::Lab;
use trieste_tests::pair::CONNECT_TIMEOUT;
use trieste_tests::peer::{KeyPair, Peer, PeerConfig};
use trieste_tests::topology::{Families, Plan, Topology};
use trieste_tests::traffic::{self, Responder};
use trieste_tests::wait::eventually;

const PORT: u16 = 4500;
const TIMEOUT: Duration = Duration::from_secs(30);

/// Who starts the handshake.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Initiator {
    Ours,
    Theirs,
}

#[test]
fn wireguard_go_over_ipv4() {
    both_roles("wireguard-go", Families::V4, "wireguard_go_over_ipv4");
}

#[test]
fn wireguard_go_over_ipv6() {
    both_roles("wireguard-go", Families::V6, "wireguard_go_over_ipv6");
}

#[test]
fn boringtun_over_ipv4() {
    both_roles("boringtun-cli", Families::V4, "boringtun_over_ipv4");
}

#[test]
fn boringtun_over_ipv6() {
    both_roles("boringtun-cli", Families::V6, "boringtun_over_ipv6");
}

fn both_roles(peer: &str, underlay: Families, test: &str) {
    let Some(_turn) = root_test(test) else { return };
    for initiator in [Initiator::Ours, Initiator::Theirs] {
        let lab = Lab::new().unwrap();
        let plan = lab.build(&Topology::two_clusters().with_underlay(underlay)).unwrap();
        let wire = Capture::start(&lab, &plan.wan, "br0", "").unwrap();
        let (east, _peer, _deaf) = connect(&lab, &plan, peer, initiator);

        assert_pods_exchange_everything(&plan);

        let status = east.status().unwrap();
        assert!(status.connections[0].lane.rx_bytes > 0 && status.connections[0].lane.tx_bytes > 0);
        let frames = wire.finish().unwrap();
        let kinds = frames.kinds(PORT);
        assert!(kinds.cable > 0 && kinds.others.is_empty(), "{kinds}");
        let responder = if initiator == Initiator::Ours { "west" } else { "east" };
        assert_only_responder(&frames, &plan, responder);
    }
}

/// Starts both and lets only one of them initiate: the other side either does not know where we are, or never sees our
/// initiations, also those that it has not answered when the cable is up, for as long as the fault is kept.
fn connect(lab: &Lab, plan: &Plan, name: &str, initiator: Initiator) -> (Cluster, Peer, Option<Fault>) {
    let (east, west) = (plan.cluster("east"), plan.cluster("west"));
    let keys = KeyPair::generate().unwrap();
    let settings = Settings::of(lab);
    let gateway = Cluster::start(lab, east, &settings).unwrap();
    let status = eventually("the gateway to answer", TIMEOUT, || gateway.status()).unwrap();
    let our_key = status
        .endpoint
        .backend_config
        .get("publicKey")
        .expect("a WireGuard gateway publishes its key")
        .clone();
    let address = |cluster: &trieste_tests::topology::ClusterPlan| {
        SocketAddr::new(cluster.gateway().underlay_address(), PORT)
    };
    let config = PeerConfig {
        name: name.to_owned(),
        namespace: west.gateway().namespace.clone(),
        local: address(west),
        remote: (initiator == Initiator::Theirs).then(|| address(east)),
        addresses: Vec::new(),
        subnets: east.subnets(),
        private_key: keys.private.clone(),
        remote_public_key: our_key,
        psk: Some(psk_base64()),
        keepalive: (initiator == Initiator::Theirs).then_some(1),
        mtu: 1420,
    };
    let deaf = Fault::ingress(
        &west.gateway().namespace,
        "eth0",
        &format!("udp dport {PORT} @th,64,8 1 counter drop"),
    );
    let deaf = (initiator == Initiator::Theirs).then(|| deaf.unwrap());
    let peer = Peer::start(lab, &config).unwrap();
    let foreign = ForeignEndpoint {
        cluster_id: "west".to_owned(),
        hostname: west.gateway().name.clone(),
        private_ip: west.gateway().underlay_address(),
        udp_port: PORT,
        public_key: keys.public,
        subnets: west.subnets(),
    };
    foreign.publish(&settings.broker.expect("the lab has a broker")).unwrap();
    gateway.wait_handshakes(1, CONNECT_TIMEOUT).unwrap();
    (gateway, peer, deaf)
}

fn assert_pods_exchange_everything(plan: &Plan) {
    let (east, west) = (plan.cluster("east").pod(0), plan.cluster("west").pod(0));
    for (from, to) in [(east, west), (west, east)] {
        let responder = Responder::start(&to.namespace).unwrap();
        for address in to.ips() {
            // The foreign daemon may lose some while others keep the machine busy: every ping, but not at once.
            eventually(&format!("three of three pings, {} to {address}", from.name), TIMEOUT, || {
                let ping = traffic::ping(&from.namespace, address, 3, &[])?;
                anyhow::ensure!(ping.received == 3, "{ping:?}");
                Ok(())
            })
            .unwrap();
            let target = SocketAddr::new(address, responder.port());
            let bytes: Vec<u8> =
                (0..2_000_000_u32).map(|n| n.wrapping_mul(2_654_435_761).to_be_bytes()[0]).collect();
            traffic::send_tcp(&from.namespace, target, &bytes, TIMEOUT).unwrap().check(&bytes).unwrap();
            // The last does not fit the cable: the pod must learn its MTU, and fragments must pass.
            for size in [1, 64, 1300, 3000] {
                let receipt = traffic::send_udp(&from.namespace, target, &bytes[..size], TIMEOUT).unwrap();
                receipt.check(&bytes[..size]).unwrap();
            }
        }
    }
}

/// Handshake responses (type 2) came from this cluster's gateway alone.
fn assert_only_responder(frames: &Frames, plan: &Plan, responder: &str) {
    for cluster in &plan.clusters {
        let address = cluster.gateway().underlay_address();
        let payload = if address.is_ipv4() { "udp[8]" } else { "ip6[48]" };
        let responses = frames.count(&format!("udp and src host {address} and {payload} = 2")).unwrap();
        assert_eq!(responses > 0, cluster.id == responder, "{responses} responses from {}", cluster.id);
    }
}
