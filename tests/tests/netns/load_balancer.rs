//! Two clusters behind load balancers, each with two gateways: the leader alone is called by the load balancer's address, and
//! every gateway has a path all the same, with each cable; also after another one leads.
//!
//! ```text
//!   east-gw1 (leader) ◀── 172.31.9.1:4500 ──┐   ┌── 172.31.9.2:4500 ──▶ west-gw1 (leader)
//!   east-gw2 ──── calls 172.31.9.2 ─────────┴───┴─── calls 172.31.9.1 ──── west-gw2
//! ```
//! A node takes no calls to its own address, and none is made to another cluster's node: as behind NAT.

use std::time::Duration;

use trieste_tests::cluster::{BROKER_NAMESPACE, NAMESPACE};
use trieste_tests::guard::root_test;
use trieste_tests::lab::Lab;
use trieste_tests::mesh::Mesh;
use trieste_tests::put_whole;
use trieste_tests::topology::{Families, Topology};
use trieste_tests::wait::eventually;

/// How long a leader and its Endpoint may take; beside other tests.
const SOON: Duration = Duration::from_secs(45);
/// A cluster, its load balancer's address, its nodes' network and the other's.
const SITES: [Site; 2] = [
    Site { id: "east", balancer: "172.31.9.1", others: "172.31.2.0/24" },
    Site { id: "west", balancer: "172.31.9.2", others: "172.31.1.0/24" },
];

struct Site {
    id: &'static str,
    balancer: &'static str,
    others: &'static str,
}

#[test]
fn behind_load_balancers_on_both_sides_the_leader_is_called_and_every_gateway_has_a_path() {
    let name = "behind_load_balancers_on_both_sides_the_leader_is_called_and_every_gateway_has_a_path";
    let Some(_turn) = root_test(name) else { return };
    for driver in ["wireguard", "libreswan", "vxlan"] {
        let lab = Lab::new().unwrap();
        let topology = Topology::two_clusters().with_underlay(Families::V4).with_nodes(2, 0);
        let cable = format!("cable-driver: {driver}");
        let extra = [
            &*cable,
            "public-ip: lb:submariner-gateway",
            "nat-enabled: true",
            "lease-duration: 4",
            "renew-deadline: 3",
            "retry-period: 1",
        ];
        let mut mesh = Mesh::start(&lab, &topology, &extra).unwrap();
        let leaders = SITES.map(|site| {
            close(&mesh, &site);
            publish_service(&mesh, &site);
            let leader = leader(&mesh, &site, None);
            lead_to(&mesh, &site, leader);
            leader
        });
        for (site, leader) in SITES.iter().zip(leaders) {
            assert_published(&mesh, site, leader);
        }
        mesh.wait_traffic().unwrap_or_else(|error| panic!("{driver}: {error:#}"));

        let east = &SITES[0];
        mesh.side_mut("east").kill_gateway(leaders[0]).unwrap();
        let next = leader(&mesh, east, Some(leaders[0]));
        release(&mesh, east, leaders[0]);
        lead_to(&mesh, east, next);
        mesh.side_mut("east").start_gateway(leaders[0]).unwrap();
        assert_published(&mesh, east, next);
        mesh.wait_traffic().unwrap_or_else(|error| panic!("{driver}, another leader: {error:#}"));
    }
}

/// Nodes take what comes by the load balancer, and answers.
fn close(mesh: &Mesh, site: &Site) {
    for node in mesh.side(site.id).plan().gateways() {
        let Site { balancer, others, .. } = site;
        node.namespace
            .nft(&format!(
                "table ip balancer {{\n chain in {{\n  type filter hook input priority 0;\n  \
                 ip saddr {others} udp dport {{ 4490, 4500 }} ct direction original ct original ip daddr != {balancer} drop\n }}\n \
                 chain out {{\n  type filter hook output priority 0;\n  \
                 ip daddr {others} udp dport {{ 4490, 4500 }} ct direction original drop\n }}\n}}\n"
            ))
            .unwrap();
    }
}

/// Has the load balancer lead to a gateway, as one with `externalTrafficPolicy: Local` does: with the caller's source.
fn lead_to(mesh: &Mesh, site: &Site, gateway: usize) {
    let node = mesh.side(site.id).gateway_node(gateway);
    let own = node.underlay_address();
    let Site { balancer, .. } = site;
    node.namespace.ip(&format!("addr add {balancer}/32 dev eth0")).unwrap();
    node.namespace
        .nft(&format!(
            "table ip forward {{\n chain pre {{\n  type nat hook prerouting priority -100;\n  \
             ip daddr {balancer} udp dport {{ 4490, 4500 }} dnat to {own}\n }}\n}}\n"
        ))
        .unwrap();
    // Callers ask anew who has the address.
    for other in mesh.sides.iter().flat_map(|side| side.plan().gateways()) {
        let forget = format!("ip neigh del {balancer} dev eth0 2>/dev/null; true");
        other.namespace.run("sh").args(["-c", &forget]).stdout().unwrap();
    }
}

fn release(mesh: &Mesh, site: &Site, gateway: usize) {
    let node = mesh.side(site.id).gateway_node(gateway);
    node.namespace.ip(&format!("addr del {}/32 dev eth0", site.balancer)).unwrap();
    node.namespace.nft("delete table ip forward").unwrap();
}

/// What a cloud's controller has written.
fn publish_service(mesh: &Mesh, site: &Site) {
    let object = serde_json::json!({
        "apiVersion": "v1", "kind": "Service",
        "metadata": {"name": "submariner-gateway", "namespace": NAMESPACE},
        "spec": {"type": "LoadBalancer"},
        "status": {"loadBalancer": {"ingress": [{"ip": site.balancer}]}},
    });
    let folder = mesh.side(site.id).store().join(NAMESPACE).join("services");
    std::fs::create_dir_all(&folder).unwrap();
    put_whole(&folder.join("submariner-gateway.yaml"), &object.to_string()).unwrap();
}

/// Waits for a leader; after another one is gone, for the next.
fn leader(mesh: &Mesh, site: &Site, gone: Option<usize>) -> usize {
    eventually(&format!("a leader of {}", site.id), SOON, || {
        let side = mesh.side(site.id);
        let leads = |gateway: &usize| {
            let status = side.status(*gateway).ok();
            status.and_then(|status| status.election).is_some_and(|election| election.is_leader)
        };
        let found = [0, 1].into_iter().filter(|gateway| gone != Some(*gateway)).find(leads);
        anyhow::ensure!(found.is_some(), "nobody leads");
        Ok(found.unwrap_or_default())
    })
    .unwrap()
}

/// The leader publishes the load balancer's address on the broker, and the other gateway does not.
fn assert_published(mesh: &Mesh, site: &Site, leader: usize) {
    let broker = mesh.lab.directory().join("broker");
    eventually(&format!("the Endpoints of {} to tell their addresses", site.id), SOON, || {
        let mut told = Vec::new();
        for file in std::fs::read_dir(broker.join(BROKER_NAMESPACE).join("endpoints"))? {
            let object: serde_json::Value = serde_saphyr::from_str(&std::fs::read_to_string(file?.path())?)?;
            let spec = &object["spec"];
            if spec["cluster_id"] != site.id {
                continue;
            }
            let is_leaders = spec["hostname"] == mesh.side(site.id).gateway_node(leader).name.as_str();
            let balanced = spec["backend_config"]["using-loadbalancer"] == "true";
            anyhow::ensure!(balanced == is_leaders, "{spec}");
            let public = spec["public_ip"].as_str().unwrap_or_default();
            anyhow::ensure!((public == site.balancer) == is_leaders, "{spec}");
            told.push(is_leaders);
        }
        anyhow::ensure!(told.contains(&true) && told.contains(&false), "not all are there: {told:?}");
        Ok(())
    })
    .unwrap();
}
