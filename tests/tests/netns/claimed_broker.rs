//! A member that claims the broker's network does not get the gateway's connection to the broker into its cable: with
//! the mark of its sockets the gateway's node refuses what it would otherwise route there.

use std::net::TcpListener;
use std::time::Duration;

use ipnet::IpNet;
use trieste_tests::broker::ForeignEndpoint;
use trieste_tests::capture::Capture;
use trieste_tests::cluster::{Cluster, Settings};
use trieste_tests::guard::root_test;
use trieste_tests::lab::Lab;
use trieste_tests::peer::KeyPair;
use trieste_tests::topology::Topology;
use trieste_tests::wait::eventually;

const BROKER: &str = "10.77.0.1";
const CLAIM: &str = "10.77.0.0/16";
const TIMEOUT: Duration = Duration::from_secs(60);

#[test]
fn a_broker_whose_network_a_member_claims_is_not_looked_for_in_its_cable() {
    let name = "a_broker_whose_network_a_member_claims_is_not_looked_for_in_its_cable";
    let Some(_turn) = root_test(name) else { return };
    let lab = Lab::new().unwrap();
    let plan = lab.build(&Topology::two_clusters()).unwrap();
    plan.wan.ip(&format!("addr add {BROKER}/32 dev br0")).unwrap();
    let broker = plan.wan.enter(|| Ok(TcpListener::bind((BROKER, 0))?)).unwrap();
    broker.set_nonblocking(true).unwrap();
    let port = broker.local_addr().unwrap().port();
    let mut settings = Settings::of(&lab);
    settings.broker = None;
    settings.extra = [
        "broker: k8s".to_owned(),
        format!("broker-server: \"{BROKER}:{port}\""),
        "broker-token: token".to_owned(),
        "broker-insecure: true".to_owned(),
        "broker-namespace: submariner-k8s-broker".to_owned(),
    ]
    .into();
    let east = Cluster::start(&lab, plan.cluster("east"), &settings).unwrap();
    let node = &east.node().namespace;
    // Whoever comes is sent away, so that the gateway comes again.
    eventually("a connection to the broker", TIMEOUT, || Ok(broker.accept()?)).unwrap();
    let wire = Capture::start(&lab, node, "submariner", "").unwrap();

    let west = plan.cluster("west");
    let foreign = ForeignEndpoint {
        cluster_id: "west".to_owned(),
        hostname: west.gateway().name.clone(),
        private_ip: west.gateway().underlay_address(),
        udp_port: 4500,
        public_key: KeyPair::generate().unwrap().public,
        subnets: vec![CLAIM.parse::<IpNet>().unwrap()],
    };
    foreign.publish_own(&east.store()).unwrap();
    eventually("the claim to be routed", TIMEOUT, || {
        let route = node.run("ip").args(["route", "get", BROKER]).output()?.stdout;
        anyhow::ensure!(route.contains("dev submariner"), "{route}");
        Ok(())
    })
    .unwrap();
    drop(broker);
    eventually("an attempt that ends on the node", TIMEOUT, || {
        anyhow::ensure!(east.gateway()?.log_text().contains("No route to host"), "none yet");
        Ok(())
    })
    .unwrap();
    assert_eq!(wire.finish().unwrap().count(&format!("host {BROKER}")).unwrap(), 0);
}
