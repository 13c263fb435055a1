//! A large cluster set, made of objects alone: 200 remote clusters, 1,000 nodes, 1,000 endpoint updates (at night 5,000) through a real
//! broker and a real API server into one gateway process. Prints memory, CPU and time; asserts that requests are
//! proportional to updates.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use base64::Engine as _;
use serde_json::{Value, json};
use trieste_tests::cluster::BROKER_NAMESPACE;
use trieste_tests::guard::root_test;
use trieste_tests::kubernetes::{ApiServer, Client, Fleet, Place};
use trieste_tests::process::ProcessId;
use trieste_tests::wait::eventually;

const CLUSTERS: usize = 200;
const NODES: usize = 1_000;
/// Updates of every cluster, and at night (`./dev test --nightly`).
const ROUNDS: usize = 5;
const ROUNDS_AT_NIGHT: usize = 25;
const TIMEOUT: Duration = Duration::from_secs(120);
/// Ours: what 200 connected clusters may cost a gateway, in bytes. Each has a cable, its counters and four copies of its
/// Endpoint: in the syncer, in the leader, in the control loop, and to be remembered.
const MEMORY: u64 = 64 << 20;

#[test]
fn two_hundred_clusters_and_thousands_of_updates_cost_one_write_each() {
    let Some(_turn) = root_test("two_hundred_clusters_and_thousands_of_updates_cost_one_write_each") else {
        return;
    };
    let mut fleet = Fleet::new(1).unwrap();
    let east = Place::Cluster("east");
    for index in 0..NODES {
        east.client(&fleet.lab).post("/api/v1/nodes", &node(index)).unwrap();
    }
    fleet.start("east", 0).unwrap();
    fleet.wait_active("east", 0).unwrap();
    let gateway = ProcessId::of(fleet.gateway("east", 0).status().unwrap().pid.cast_signed()).unwrap();
    let alone = Usage::of(gateway);

    let started = Instant::now();
    let broker = fleet.lab.broker.client();
    for index in 0..CLUSTERS {
        broker.post(&path("clusters", ""), &cluster(index)).unwrap();
        broker.post(&path("endpoints", ""), &endpoint(index, 0)).unwrap();
    }
    let written = started.elapsed();
    eventually("every cluster's cable", TIMEOUT, || {
        let count = fleet.gateway("east", 0).status()?.connections.len();
        anyhow::ensure!(count == CLUSTERS, "there are {count}");
        Ok(())
    })
    .unwrap();
    let joined = Usage::of(gateway);
    println!(
        "{CLUSTERS} clusters: written to the broker in {written:.1?}, all connected to after {:.1?}; {}",
        started.elapsed(),
        joined.since(&alone)
    );

    let before = writes(&fleet.lab.cluster("east").server);
    let started = Instant::now();
    let rounds = rounds();
    for round in 1..=rounds {
        for index in 0..CLUSTERS {
            let change = json!({"spec": {"backend_config": {"round": round.to_string()}}});
            broker.patch(&path("endpoints", &endpoint_name(index)), &change).unwrap();
        }
    }
    let written = started.elapsed();
    eventually("every cluster's last update", TIMEOUT, || last_round(east.client(&fleet.lab))).unwrap();
    let updated = Usage::of(gateway);
    let after = writes(&fleet.lab.cluster("east").server);
    let updates = CLUSTERS * rounds;
    println!(
        "{updates} updates: written to the broker in {written:.1?}, all here after {:.1?}; {}",
        started.elapsed(),
        updated.since(&joined)
    );
    let requests: BTreeMap<_, _> = after
        .iter()
        .map(|(key, count)| (key.clone(), count - before.get(key).unwrap_or(&0)))
        .filter(|(_, count)| *count > 0)
        .collect();
    println!("requests to the cluster's own API server meanwhile: {requests:?}");

    let of_endpoints: u64 =
        requests.iter().filter(|((_, resource), _)| resource == "endpoints").map(|(_, count)| count).sum();
    assert!(of_endpoints <= updates as u64 + 50, "{of_endpoints} requests for {updates} updates");
    assert!(updated.resident < alone.resident + MEMORY, "{} bytes", updated.resident);
}

/// What a process has used.
struct Usage {
    at: Instant,
    cpu: f64,
    resident: u64,
}

impl Usage {
    fn of(process: ProcessId) -> Self {
        let (cpu, resident) = (process.cpu_seconds().unwrap(), process.resident_bytes().unwrap());
        Self { at: Instant::now(), cpu, resident }
    }

    fn since(&self, before: &Self) -> String {
        format!(
            "gateway: {:.2} s CPU in {:.1?}, resident {} KiB (before: {} KiB)",
            self.cpu - before.cpu,
            self.at.duration_since(before.at),
            self.resident >> 10,
            before.resident >> 10
        )
    }
}

/// Requests that change Endpoints or read them once; the test itself only lists.
fn writes(server: &ApiServer) -> BTreeMap<(String, String), u64> {
    let mut requests = server.requests().unwrap();
    requests.retain(|(verb, resource), _| resource == "endpoints" && verb != "LIST" && verb != "WATCH");
    requests
}

fn last_round(client: &Client) -> anyhow::Result<()> {
    let endpoints = client.list("/apis/submariner.io/v1/namespaces/submariner-operator/endpoints")?;
    let last = rounds().to_string();
    let is_last = |object: &&Value| object["spec"]["backend_config"]["round"] == last.as_str();
    let count = endpoints.iter().filter(is_last).count();
    anyhow::ensure!(count == CLUSTERS, "{count} are here");
    Ok(())
}

fn path(plural: &str, name: &str) -> String {
    let path = format!("/apis/submariner.io/v1/namespaces/{BROKER_NAMESPACE}/{plural}/{name}");
    path.trim_end_matches('/').to_owned()
}

fn cluster_id(index: usize) -> String {
    format!("remote-{index:03}")
}

fn cable_name(index: usize) -> String {
    format!("submariner-cable-{}-192-0-2-1", cluster_id(index))
}

fn endpoint_name(index: usize) -> String {
    format!("{}-{}", cluster_id(index), cable_name(index))
}

fn metadata(name: &str, index: usize) -> Value {
    json!({"name": name, "namespace": BROKER_NAMESPACE, "labels": {"submariner-io/clusterID": cluster_id(index)}})
}

fn cluster(index: usize) -> Value {
    let id = cluster_id(index);
    json!({
        "apiVersion": "submariner.io/v1", "kind": "Cluster", "metadata": metadata(&id, index),
        "spec": {"cluster_id": id, "color_codes": ["blue"], "service_cidr": [], "global_cidr": [],
            "cluster_cidr": [format!("10.{}.{}.0/18", 128 + index / 4, index % 4 * 64)]},
    })
}

fn endpoint(index: usize, round: usize) -> Value {
    let key: Vec<u8> = (0..32).map(|byte| u8::try_from((index + byte) % 256).unwrap()).collect();
    json!({
        "apiVersion": "submariner.io/v1", "kind": "Endpoint", "metadata": metadata(&endpoint_name(index), index),
        "spec": {
            "cluster_id": cluster_id(index), "cable_name": cable_name(index), "hostname": "gw", "nat_enabled": false,
            "private_ip": "192.0.2.1", "public_ip": "", "subnets": [format!("10.{}.{}.0/18", 128 + index / 4, index % 4 * 64)],
            "backend": "wireguard",
            "backend_config": {
                "natt-discovery-port": "0", "udp-port": "4500", "round": round.to_string(),
                "publicKey": base64::engine::general_purpose::STANDARD.encode(key),
            },
        },
    })
}

fn node(index: usize) -> Value {
    json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": format!("node-{index:04}")}})
}

fn rounds() -> usize {
    if std::env::var_os("TRIESTE_NIGHTLY").is_some() { ROUNDS_AT_NIGHT } else { ROUNDS }
}
