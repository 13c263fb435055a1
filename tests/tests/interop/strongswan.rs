//! strongSwan with strongSwan: shows that the recipe holds before our own gateway takes a side.
//!
//! ```text
//!   east pods ── charon ══ WAN ══ charon ── west pods        UDP 4500 from the first message on, or raw ESP
//! ```

use std::net::SocketAddr;
use std::time::Duration;

use ipnet::IpNet;
use trieste_tests::capture::Capture;
use trieste_tests::guard::root_test;
use trieste_tests::lab::Lab;
use trieste_tests::strongswan::{Child, Connection, Encapsulation, Release, Start, Strongswan};
use trieste_tests::topology::{ClusterPlan, Families, Plan, Topology};
use trieste_tests::traffic;
use trieste_tests::wait::eventually;

const PORT: u16 = 4500;
const TIMEOUT: Duration = Duration::from_secs(30);

#[test]
fn strongswans_carry_pods_in_udp_and_renew_and_recover() {
    let Some(_turn) = root_test("strongswans_carry_pods_in_udp_and_renew_and_recover") else { return };
    let lab = Lab::new().unwrap();
    let plan = lab.build(&Topology::two_clusters().with_underlay(Families::V4)).unwrap();
    let wire = Capture::start(&lab, &plan.wan, "br0", "").unwrap();
    let (mut east, west) = pair(&lab, &plan, Release::Installed, Encapsulation::Forced);

    east.initiate("pods").unwrap();
    assert_pods_reach_each_other(&plan);
    let first = west.wait_children(1, TIMEOUT).unwrap();
    assert!(first.children[0].is_encapsulated && first.children[0].bytes_in > 0, "{first:?}");
    east.rekey_child("pods").unwrap();
    west.rekey_ike().unwrap();
    let second = eventually("new SAs", TIMEOUT, || {
        let sa = west.wait_children(1, TIMEOUT)?;
        anyhow::ensure!(sa.id != first.id && sa.children[0].spi_in != first.children[0].spi_in, "{sa:?}");
        Ok(sa)
    })
    .unwrap();
    assert_pods_reach_each_other(&plan);

    east.kill().unwrap();
    east.restart().unwrap();
    east.load(&connection(&plan, ["east", "west"], Encapsulation::Forced)).unwrap();
    east.initiate("pods").unwrap();
    assert_pods_reach_each_other(&plan);
    assert_ne!(west.wait_children(1, TIMEOUT).unwrap().id, second.id);
    west.terminate().unwrap();
    assert!(east.sas().unwrap().is_empty());

    let frames = wire.finish().unwrap();
    let marked = frames.count("udp and src port 4500 and dst port 4500 and udp[8:4] = 0").unwrap();
    let ike_on_500 = frames.count("udp port 500").unwrap();
    assert!(marked >= 8 && ike_on_500 == 0, "{marked} IKE messages with a marker, {ike_on_500} on port 500");
}

#[test]
fn strongswan_6_sends_esp_without_udp() {
    let Some(_turn) = root_test("strongswan_6_sends_esp_without_udp") else { return };
    let lab = Lab::new().unwrap();
    let plan = lab.build(&Topology::two_clusters().with_underlay(Families::V4)).unwrap();
    let wire = Capture::start(&lab, &plan.wan, "br0", "").unwrap();
    let (east, west) = pair(&lab, &plan, Release::Trixie, Encapsulation::AsDetected);

    east.initiate("pods").unwrap();
    assert_pods_reach_each_other(&plan);

    assert!(!west.wait_children(1, TIMEOUT).unwrap().children[0].is_encapsulated);
    let frames = wire.finish().unwrap();
    assert!(frames.count("ip proto 50").unwrap() >= 4);
    assert_eq!(frames.count("udp port 4500 and udp[8:4] != 0").unwrap(), 0);
}

fn pair(lab: &Lab, plan: &Plan, release: Release, encapsulation: Encapsulation) -> (Strongswan, Strongswan) {
    let start = |[own, other]: [&str; 2]| {
        let namespace = &plan.cluster(own).gateway().namespace;
        let strongswan = Strongswan::start(lab, own, namespace, release).unwrap();
        strongswan.load(&connection(plan, [own, other], encapsulation)).unwrap();
        strongswan
    };
    (start(["east", "west"]), start(["west", "east"]))
}

fn connection(plan: &Plan, [own, other]: [&str; 2], encapsulation: Encapsulation) -> Connection {
    let (own, other) = (plan.cluster(own), plan.cluster(other));
    let address = |cluster: &ClusterPlan| SocketAddr::new(cluster.gateway().underlay_address(), PORT);
    let v4 =
        |nets: &[IpNet]| nets.iter().filter(|net| matches!(net, IpNet::V4(_))).copied().collect::<Vec<_>>();
    Connection {
        local: address(own),
        remote: Some(address(other)),
        local_id: address(own).ip().to_string(),
        remote_id: address(other).ip().to_string(),
        psk: "between strongSwans".to_owned(),
        proposals: "aes256gcm16-prfsha256-x25519".to_owned(),
        encapsulation,
        dpd_s: 2,
        rekey_s: 0,
        fragments: true,
        remembers_all: false,
        children: vec![Child {
            name: "pods".to_owned(),
            local: v4(&own.pod_cidrs),
            remote: v4(&other.pod_cidrs),
            proposals: "aes128gcm16-x25519".to_owned(),
            start: Start::Never,
            rekey_s: 0,
        }],
    }
}

fn assert_pods_reach_each_other(plan: &Plan) {
    let (east, west) = (plan.cluster("east").pod(0), plan.cluster("west").pod(0));
    for (from, to) in [(east, west), (west, east)] {
        eventually(&format!("{} to reach {}", from.name, to.name), TIMEOUT, || {
            let ping = traffic::ping(&from.namespace, to.v4().unwrap(), 2, &[])?;
            anyhow::ensure!(ping.received == 2, "{ping:?}");
            Ok(())
        })
        .unwrap();
    }
}
