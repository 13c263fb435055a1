//! Health checks through the tunnel, in both roles: a peer that asks from its tunnel address is answered through the
//! tunnel and gets nothing else, and our own probes judge a connection as upstream's do.

use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

use trieste_control::admin::CableStatus;
use trieste_control::api::{ConnectionStatus, GoDuration};
use trieste_tests::broker::ForeignEndpoint;
use trieste_tests::capture::Capture;
use trieste_tests::cluster::{Cluster, Settings, psk_base64};
use trieste_tests::guard::{root_test, slack};
use trieste_tests::lab::Lab;
use trieste_tests::pair::{CONNECT_TIMEOUT, Pair};
use trieste_tests::peer::{KeyPair, Peer, PeerConfig};
use trieste_tests::topology::{Families, Plan, Topology};
use trieste_tests::traffic::{self, Ping};
use trieste_tests::wait::eventually;

const TIMEOUT: Duration = Duration::from_secs(60);
/// The address of upstream's VXLAN device on a node whose address is 172.31.2.1.
const TUNNEL: &str = "241.31.2.1";
/// An address of that kind, of nobody we know.
const STRANGE: &str = "241.9.9.9";
/// East's health-check address: its node's, inside the pods' network.
const HEALTH_CHECK: &str = "10.1.1.1";

#[test]
fn a_peers_probe_from_its_tunnel_address_is_answered_through_the_tunnel_and_nothing_else_is_let_in() {
    let name =
        "a_peers_probe_from_its_tunnel_address_is_answered_through_the_tunnel_and_nothing_else_is_let_in";
    let Some(_turn) = root_test(name) else { return };
    let lab = Lab::new().unwrap();
    let plan = lab.build(&Topology::two_clusters().with_underlay(Families::V4)).unwrap();
    let wire = Capture::start(&lab, &plan.wan, "br0", "").unwrap();
    let (east, _peer) = connect(&lab, &plan);
    let asks = |source: &str, target: &str, more: &[&str], count| {
        let far = &plan.cluster("west").gateway().namespace;
        let target: IpAddr = target.parse().unwrap();
        traffic::ping(far, target, count, &[&["-I", source], more].concat()).unwrap()
    };
    assert_eq!(east.status().unwrap().endpoint.health_check_ip, HEALTH_CHECK);

    for source in [TUNNEL, "172.31.2.1"] {
        let ping = asks(source, HEALTH_CHECK, &[], 3);
        assert_eq!(ping.received, 3, "from {source}");
        eprintln!("probes from {source}: {:.3} ms on average", ping.average_ms.unwrap());
        // All that a cable takes: 1420 bytes with both headers.
        assert_eq!(asks(source, HEALTH_CHECK, &["-s", "1392", "-M", "do"], 2).received, 2, "from {source}");
    }

    let before = drops(&east, "source_not_allowed");
    let pod = plan.cluster("east").pod(0).v4().unwrap().to_string();
    assert_eq!(asks(TUNNEL, &pod, &[], 2).received, 0, "a pod is no health-check address");
    assert_eq!(asks(STRANGE, HEALTH_CHECK, &[], 2).received, 0, "nobody's tunnel address");
    shout(&plan, SocketAddr::new(HEALTH_CHECK.parse().unwrap(), 9), 3);
    eventually("seven drops", TIMEOUT, || {
        let new = drops(&east, "source_not_allowed") - before;
        anyhow::ensure!(new == 7, "{new} packets of seven");
        Ok(())
    })
    .unwrap();

    let Ping { sent, received, .. } = asks(TUNNEL, HEALTH_CHECK, &["-i", "0.01"], 100);
    let limited = drops(&east, "icmp_limit");
    eprintln!("a hundred probes in a second: {received} answered, {limited} beyond the limit");
    assert!((15..=60).contains(&received), "{received} of {sent}");
    eventually("the rest counted", TIMEOUT, || {
        let limited = drops(&east, "icmp_limit");
        let missing = u64::from(sent - received);
        // On a busy machine the last answers come when ping has ended.
        anyhow::ensure!(
            (missing.saturating_sub(2)..=missing).contains(&limited),
            "{limited} limited, {received} of {sent} answered"
        );
        Ok(())
    })
    .unwrap();

    let frames = wire.finish().unwrap();
    let kinds = frames.kinds(4500);
    assert!(kinds.cable > 0 && kinds.others.is_empty(), "{kinds}");
    assert_eq!(frames.count("icmp").unwrap(), 0);
    assert!(east.status().unwrap().conservation.holds());
}

#[test]
fn our_probes_show_the_round_trip_and_their_silence_is_an_error_until_they_are_answered() {
    let name = "our_probes_show_the_round_trip_and_their_silence_is_an_error_until_they_are_answered";
    let Some(_turn) = root_test(name) else { return };
    let pair = Pair::connected(Families::V4).unwrap();
    let west = pair.west.node().namespace.clone();
    let cable = || pair.east.status().unwrap().connections.remove(0);
    let becomes = |status: ConnectionStatus| -> CableStatus {
        eventually(&format!("{status:?}"), TIMEOUT, || {
            let cable = cable();
            anyhow::ensure!(cable.connection.status == status, "{:?}", cable.connection);
            Ok(cable)
        })
        .unwrap()
    };

    becomes(ConnectionStatus::Connected);
    let latency = cable().connection.latency_rtt.unwrap();
    eprintln!("round trip of our probes: {latency:?}");
    for value in [&latency.last, &latency.min, &latency.average, &latency.max] {
        let value: GoDuration = value.parse().unwrap();
        assert!((1..1_000_000_000).contains(&value.as_nanos()), "{latency:?}");
    }
    let shown = pair.east.trieste(&["show", "connections"]).unwrap().stdout().unwrap();
    assert!(shown.contains("connected"), "{shown}");

    west.nft(
        "table inet silence {\n chain in {\n  type filter hook input priority 0;\n  \
         iifname \"submariner\" meta l4proto { icmp, ipv6-icmp } drop\n }\n}\n",
    )
    .unwrap();
    let start = Instant::now();
    let failed = becomes(ConnectionStatus::Error);
    eprintln!("silence is an error after {} ms", start.elapsed().as_millis());
    assert!(start.elapsed() > Duration::from_secs(4), "more than five probes have to be lost");
    assert_eq!(
        failed.connection.status_message,
        "Failed to successfully ping the remote endpoint IP \"10.2.1.1\""
    );
    assert_eq!(failed.connection.endpoint.health_check_ip, "10.2.1.1");
    let pod = pair.pod("west").v4().unwrap();
    assert_eq!(traffic::ping(pair.pod_namespace("east"), pod, 3, &[]).unwrap().received, 3, "pods go on");

    west.nft("delete table inet silence").unwrap();
    let start = Instant::now();
    let healed = becomes(ConnectionStatus::Connected);
    eprintln!("an answer heals after {} ms", start.elapsed().as_millis());
    assert_eq!(healed.connection.status_message, "");
    assert!(start.elapsed() < Duration::from_secs(2) + slack(), "{:?}", start.elapsed());
}

/// East's gateway, and a foreign one in west whose interface has tunnel addresses.
fn connect(lab: &Lab, plan: &Plan) -> (Cluster, Peer) {
    let (east, west) = (plan.cluster("east"), plan.cluster("west"));
    let keys = KeyPair::generate().unwrap();
    let settings = Settings::of(lab);
    let gateway = Cluster::start(lab, east, &settings).unwrap();
    let status = eventually("the gateway to answer", TIMEOUT, || gateway.status()).unwrap();
    let address = west.gateway().underlay_address();
    let config = PeerConfig {
        name: "wireguard-go".to_owned(),
        namespace: west.gateway().namespace.clone(),
        local: SocketAddr::new(address, 4500),
        remote: Some(SocketAddr::new(east.gateway().underlay_address(), 4500)),
        addresses: [TUNNEL, STRANGE].map(|ip| format!("{ip}/32").parse().unwrap()).to_vec(),
        subnets: east.subnets(),
        private_key: keys.private,
        remote_public_key: status.endpoint.backend_config["publicKey"].clone(),
        psk: Some(psk_base64()),
        keepalive: None,
        mtu: 1420,
    };
    let peer = Peer::start(lab, &config).unwrap();
    let foreign = ForeignEndpoint {
        cluster_id: "west".to_owned(),
        hostname: west.gateway().name.clone(),
        private_ip: address,
        udp_port: 4500,
        public_key: keys.public,
        subnets: west.subnets(),
    };
    foreign.publish(&settings.broker.unwrap()).unwrap();
    gateway.wait_handshakes(1, CONNECT_TIMEOUT).unwrap();
    (gateway, peer)
}

/// Sends datagrams from the tunnel address.
fn shout(plan: &Plan, to: SocketAddr, count: usize) {
    let far = &plan.cluster("west").gateway().namespace;
    far.enter(|| {
        let socket = UdpSocket::bind((TUNNEL, 0))?;
        for _ in 0..count {
            socket.send_to(b"let me in", to)?;
        }
        Ok(())
    })
    .unwrap();
}

fn drops(cluster: &Cluster, reason: &str) -> u64 {
    let drops = cluster.status().unwrap().drops;
    drops.iter().filter(|drop| drop.reason == reason).map(|drop| drop.packets).sum()
}
