//! The foreign peers among themselves: shows that the harness works before our own gateway takes a side.

use std::net::SocketAddr;
use std::time::Duration;

use trieste_tests::capture::Capture;
use trieste_tests::guard::root_test;
use trieste_tests::lab::Lab;
use trieste_tests::peer::{KeyPair, Peer, PeerConfig};
use trieste_tests::topology::{ClusterPlan, Families, Topology};
use trieste_tests::traffic;
use trieste_tests::wait::eventually;

#[test]
fn wireguard_go_and_boringtun_carry_pods_over_both_underlays() {
    let Some(_turn) = root_test("wireguard_go_and_boringtun_carry_pods_over_both_underlays") else { return };
    for underlay in [Families::V4, Families::V6] {
        let lab = Lab::new().unwrap();
        let plan = lab.build(&Topology::two_clusters().with_underlay(underlay)).unwrap();
        let (east, west) = (plan.cluster("east"), plan.cluster("west"));
        let (east_keys, west_keys) = (KeyPair::generate().unwrap(), KeyPair::generate().unwrap());
        let wire = Capture::start(&lab, &plan.wan, "br0", "").unwrap();
        let east_peer =
            Peer::start(&lab, &config("wireguard-go", east, west, &east_keys, &west_keys, true)).unwrap();
        let _west_peer =
            Peer::start(&lab, &config("boringtun-cli", west, east, &west_keys, &east_keys, false)).unwrap();

        for address in west.pod(0).ips() {
            eventually("the pods to reach each other", Duration::from_secs(10), || {
                let ping = traffic::ping(&east.pod(0).namespace, address, 1, &["-p", "6d61726b"])?;
                anyhow::ensure!(ping.received == 1, "no answer from {address}");
                Ok(())
            })
            .unwrap();
        }

        east_peer.kill().unwrap();
        assert!(east_peer.processes().unwrap().is_empty());
        let kinds = wire.finish().unwrap().kinds(4500);
        assert!(kinds.cable >= 6 && kinds.others.is_empty(), "{kinds}");
    }
}

fn config(
    name: &str,
    own: &ClusterPlan,
    other: &ClusterPlan,
    own_keys: &KeyPair,
    other_keys: &KeyPair,
    is_initiator: bool,
) -> PeerConfig {
    let address = |cluster: &ClusterPlan| SocketAddr::new(cluster.gateway().underlay_address(), 4500);
    PeerConfig {
        name: name.to_owned(),
        namespace: own.gateway().namespace.clone(),
        local: address(own),
        remote: is_initiator.then(|| address(other)),
        addresses: Vec::new(),
        subnets: other.subnets(),
        private_key: own_keys.private.clone(),
        remote_public_key: other_keys.public.clone(),
        psk: None,
        keepalive: None,
        mtu: 1420,
    }
}
