//! Pods of real clusters reach pods and services of another cluster, installed the way users install it: the list that
//! upstream's end-to-end tests go through (DP-1..11, ST-1, RD-1..5), with more sizes, protocols and both families, and
//! with the source address looked at everywhere.
//!
//! ```text
//!  east (kube-proxy on iptables)                         west (kube-proxy on nftables)
//!  east-1 client, host ─┐                               ┌─ west-1 server
//!  east-2 gateway ──────┼───── encrypted cable ─────────┤
//!  east-3 passive ──────┘                               └─ west-2 gateway
//! ```
//!
//! Upstream's words: GW is the gateway's node, nGW any other; each has a pod of ours, and one in the node's network.

mod flows;
mod redundancy;

use std::net::IpAddr;
use std::time::{Duration, Instant};

use serde_json::Value;
use trieste_tests::clusters::{Cluster, ClusterSet, ClusterShape, MEMBER, Node, Pod, PodShape, ProxyMode};
use trieste_tests::guard::root_test;
use trieste_tests::lab::Lab;
use trieste_tests::table::Table;
use trieste_tests::wait::eventually;

/// How long a set may take to become connected, or a gateway to be replaced.
const SOON: Duration = Duration::from_secs(60);

#[test]
fn pods_reach_the_other_cluster_from_and_to_every_node_and_through_every_handover() {
    let name = "pods_reach_the_other_cluster_from_and_to_every_node_and_through_every_handover";
    let Some(_turn) = root_test(name) else { return };
    let clock = Instant::now();
    let lab = Lab::new().unwrap();
    let shapes = [
        ClusterShape::new("east", 1).with_nodes(3).with_proxy(ProxyMode::Iptables),
        ClusterShape::new("west", 2),
    ];
    let set = ClusterSet::joined(&lab, &shapes).unwrap();
    eprintln!("joined after {:.1?}", clock.elapsed());
    let scene = Scene::new(&lab, &set);
    let mut table = Table::default();
    eprintln!("pods ready and connected after {:.1?}", clock.elapsed());

    flows::run(&scene, &mut table);
    eprintln!("flows checked after {:.1?}", clock.elapsed());
    redundancy::run(&scene, &mut table);

    eprintln!("all checked after {:.1?}:\n{table}", clock.elapsed());
    table.assert_no_failure();
}

/// A set of two clusters with a pod on every kind of node.
pub(crate) struct Scene<'a> {
    lab: &'a Lab,
    east: Side<'a>,
    west: Side<'a>,
}

/// One cluster's nodes and pods, and a Service for each of its pods.
pub(crate) struct Side<'a> {
    cluster: &'a Cluster,
    gateway: &'a Node,
    worker: &'a Node,
    on_gateway: Pod,
    on_worker: Pod,
    host_on_gateway: Pod,
    host_on_worker: Pod,
    service_of_gateway: Vec<IpAddr>,
    service_of_worker: Vec<IpAddr>,
}

impl<'a> Scene<'a> {
    fn new(lab: &'a Lab, set: &'a ClusterSet) -> Self {
        let side = |name: &str| Side::new(set.clusters.cluster(name));
        let (east, west) = std::thread::scope(|scope| {
            let east = scope.spawn(|| side("east"));
            (east.join().unwrap(), side("west"))
        });
        let scene = Self { lab, east, west };
        for (side, other) in scene.sides() {
            eventually("gateways to be connected", SOON, || side.connection(other)).unwrap();
        }
        scene
    }

    fn sides(&self) -> [(&Side<'a>, &Side<'a>); 2] {
        [(&self.east, &self.west), (&self.west, &self.east)]
    }
}

impl<'a> Side<'a> {
    fn new(cluster: &'a Cluster) -> Self {
        let (gateways, workers) = cluster.gateways_and_workers().unwrap();
        let (gateway, worker) = (gateways[0], workers[0]);
        let shapes = [
            PodShape::on(gateway, "on-gw"),
            PodShape::on(worker, "on-ngw"),
            PodShape::host(gateway, "host-gw"),
            PodShape::host(worker, "host-ngw"),
        ];
        let [on_gateway, on_worker, host_on_gateway, host_on_worker] =
            cluster.start_pods(&shapes).unwrap().try_into().unwrap();
        // A node without a pod has no address in the pod networks: as a gateway it could not be pinged.
        for (number, other) in workers.iter().enumerate().skip(1) {
            cluster.start_pod(PodShape::on(other, &format!("also-{number}"))).unwrap();
        }
        let service = |app: &str| cluster.start_service(&format!("svc-{app}"), app).unwrap();
        Self {
            cluster,
            gateway,
            worker,
            on_gateway,
            on_worker,
            host_on_gateway,
            host_on_worker,
            service_of_gateway: service("on-gw"),
            service_of_worker: service("on-ngw"),
        }
    }

    /// Its Gateway objects.
    fn gateways(&self) -> anyhow::Result<Vec<Value>> {
        self.cluster.client().list(&format!("/apis/submariner.io/v1/namespaces/{MEMBER}/gateways"))
    }

    /// The active gateway's connection with another cluster, connected and with a round trip measured.
    fn connection(&self, other: &Side<'_>) -> anyhow::Result<Value> {
        let gateways = self.gateways()?;
        let active = gateways.iter().find(|gateway| is_active(gateway));
        let status = &active.ok_or_else(|| anyhow::anyhow!("no gateway is active"))?["status"];
        let connections = status["connections"].as_array().cloned().unwrap_or_default();
        let name = other.cluster.name();
        let found = connections.into_iter().find(|entry| entry["endpoint"]["cluster_id"] == name);
        let found = found.ok_or_else(|| anyhow::anyhow!("there is no connection with {name}"))?;
        anyhow::ensure!(found["status"] == "connected", "{found}");
        let average = found["latencyRTT"]["average"].as_str().unwrap_or_default();
        anyhow::ensure!(!["", "0s"].contains(&average), "no round trip was measured yet: {found}");
        Ok(found)
    }

    /// The name and the restarts of our pod of this kind on a node.
    fn own_pod(&self, app: &str, node: &Node) -> anyhow::Result<(String, u64)> {
        let path = format!("/api/v1/namespaces/{MEMBER}/pods?labelSelector=app%3D{app}");
        let pods = self.cluster.client().list(&path)?;
        let found = pods.iter().find(|pod| {
            pod["spec"]["nodeName"] == node.name() && pod["metadata"]["deletionTimestamp"].is_null()
        });
        let pod = found.ok_or_else(|| anyhow::anyhow!("{app} has no pod on {}", node.name()))?;
        let container = &pod["status"]["containerStatuses"][0];
        anyhow::ensure!(container["ready"] == true, "{app} on {} is not ready", node.name());
        let name = pod["metadata"]["name"].as_str().unwrap_or_default();
        Ok((name.to_owned(), container["restartCount"].as_u64().unwrap_or_default()))
    }
}

/// Whether a Gateway object says that its gateway is active.
fn is_active(gateway: &Value) -> bool {
    gateway["status"]["haStatus"] == "active"
}
