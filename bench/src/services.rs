//! What one change of a cluster's services costs each route agent and each gateway, in memory, by how many services there are.

use std::collections::BTreeMap;
use std::hint::black_box;
use std::net::{IpAddr, Ipv4Addr};
use std::time::{Duration, Instant};

use clap::Args;
use serde::Serialize;
use serde_json::{Value, json};
use trieste_control::api::{Kind, Object, ObjectMeta};
use trieste_control::services::{Frontend, Service, ServiceIndex};
use trieste_control::store::StoreEvent;
use trieste_gateway::tables;
use trieste_pipeline::services::ServicesBuilder;

use crate::machine::Circumstances;
use crate::report::{Table, print, print_json};

/// Endpoints of each service.
const ENDPOINTS: usize = 5;
/// Ours: how many changes are measured, of which the middle one counts.
const CHANGES: usize = 101;

/// What to measure.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Numbers of services, each with two ports and five pods.
    #[arg(long, value_delimiter = ',', default_values_t = [10, 100, 1_000, 10_000])]
    services: Vec<usize>,
    /// Number of nodes that the pods are on.
    #[arg(long, default_value_t = 500)]
    nodes: usize,
    /// Prints JSON.
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Serialize)]
struct Results {
    circumstances: Circumstances,
    rows: Vec<Row>,
}

/// Microseconds of one change: a pod of a service becomes ready, or not ready.
#[derive(Debug, Serialize)]
struct Row {
    services: usize,
    /// Reading the object, and finding what it concerns.
    index_us: f64,
    /// What the route agent of one node does with it.
    agent_us: f64,
    /// What a gateway does with it, until workers have the snapshot.
    gateway_us: f64,
    /// Working all of it out, as at a start, in milliseconds: index, one node, one gateway.
    start_ms: [f64; 3],
}

/// Measures and prints.
///
/// # Errors
/// Numbers for which there are no addresses.
pub(crate) fn run(options: &Options) -> anyhow::Result<()> {
    let rows: anyhow::Result<Vec<Row>> =
        options.services.iter().map(|services| measure(*services, options.nodes)).collect();
    let results = Results { circumstances: Circumstances::read(), rows: rows? };
    if options.json {
        return print_json(&results);
    }
    let columns = [
        "services",
        "index, µs",
        "route agent, µs",
        "gateway, µs",
        "at a start, ms: index",
        "route agent",
        "gateway",
    ];
    let mut table = Table::new(&columns);
    for row in &results.rows {
        let start = row.start_ms.iter().map(|ms| format!("{ms:.1}"));
        let change = [row.index_us, row.agent_us, row.gateway_us].map(|us| format!("{us:.1}"));
        table.row([row.services.to_string()].into_iter().chain(change).chain(start).collect());
    }
    print(&table.text())
}

fn measure(services: usize, nodes: usize) -> anyhow::Result<Row> {
    anyhow::ensure!(services > 0 && services <= 10_000, "from 1 to 10000 services, not {services}");
    anyhow::ensure!(nodes > 0 && nodes <= 10_000, "from 1 to 10000 nodes, not {nodes}");
    let mut index = ServiceIndex::default();
    let started = Instant::now();
    index.take(Kind::Service, &StoreEvent::Listed((0..services).map(service).collect()));
    let slices: Vec<Object> = (0..services).map(|nth| slice(nth, nodes, true)).collect();
    index.take(Kind::EndpointSlice, &StoreEvent::Listed(slices));
    let all = index.take_changed();
    let by_index = started.elapsed();

    let (mut here, started) = (BTreeMap::new(), Instant::now());
    all.iter().for_each(|at| on_node(&mut here, at, &index));
    let by_agent = started.elapsed();

    let addresses: BTreeMap<String, IpAddr> = (0..nodes).map(|nth| (node(nth), address(172, nth))).collect();
    let started = Instant::now();
    let mut builder = tables::delivery(&["10.96.0.0/12".parse()?], address(172, 0), &addresses);
    all.iter().for_each(|at| set(&mut builder, at, &index, &addresses));
    let mut snapshot = builder.build(1);
    let by_gateway = started.elapsed();

    let mut times: [Vec<Duration>; 3] = Default::default();
    for nth in 0..CHANGES {
        let event = StoreEvent::Applied(slice(nth % services, nodes, nth / services % 2 == 1));
        let started = Instant::now();
        anyhow::ensure!(index.take(Kind::EndpointSlice, &event), "nothing has changed");
        let changed = index.take_changed();
        times[0].push(started.elapsed());
        let started = Instant::now();
        changed.iter().for_each(|at| on_node(&mut here, at, &index));
        times[1].push(started.elapsed());
        let started = Instant::now();
        changed.iter().for_each(|at| set(&mut builder, at, &index, &addresses));
        snapshot = black_box(builder.build(2));
        times[2].push(started.elapsed());
    }
    anyhow::ensure!(snapshot.len() == 2 * services, "{} addresses and ports", snapshot.len());
    let [index_us, agent_us, gateway_us] = times.map(|mut all| {
        all.sort_unstable();
        all[CHANGES / 2].as_secs_f64() * 1e6
    });
    let start_ms = [by_index, by_agent, by_gateway].map(|time| time.as_secs_f64() * 1e3);
    Ok(Row { services, index_us, agent_us, gateway_us, start_ms })
}

fn on_node(here: &mut BTreeMap<Frontend, Service>, at: &Frontend, index: &ServiceIndex) {
    match index.service(at).and_then(|service| service.on_node(&node(7))) {
        Some(service) => drop(here.insert(*at, service)),
        None => drop(here.remove(at)),
    }
}

fn set(builder: &mut ServicesBuilder, at: &Frontend, index: &ServiceIndex, nodes: &BTreeMap<String, IpAddr>) {
    let backends = index.service(at).map(|service| tables::backends(at, &service, nodes)).unwrap_or_default();
    builder.set(tables::frontend(at), &backends);
}

fn node(nth: usize) -> String {
    format!("node-{nth:05}")
}

fn address(first: u8, nth: usize) -> IpAddr {
    let [.., b, c, d] = nth.to_be_bytes();
    Ipv4Addr::new(first, b.wrapping_add(16), c, d).into()
}

fn service(nth: usize) -> Object {
    let port = |name: &str, port: u16| json!({"name": name, "port": port, "protocol": "TCP"});
    let spec = json!({"clusterIPs": [address(10, (96 - 16) << 16 | nth)], "ports": [port("web", 80), port("tls", 443)]});
    object(Kind::Service, &format!("service-{nth}"), json!({"spec": spec}))
}

/// The endpoints of a service, on nodes of its own; the first is ready or not.
fn slice(nth: usize, nodes: usize, is_ready: bool) -> Object {
    let endpoint = |which: usize| {
        json!({"addresses": [address(11, nth * ENDPOINTS + which)], "nodeName": node((nth * 7 + which * 13) % nodes),
            "conditions": {"ready": is_ready || which > 0}})
    };
    let ports = [("web", 8080), ("tls", 8443)]
        .map(|(name, port)| json!({"name": name, "port": port, "protocol": "TCP"}));
    let endpoints: Vec<Value> = (0..ENDPOINTS).map(endpoint).collect();
    let body = json!({"addressType": "IPv4", "ports": ports, "endpoints": endpoints});
    let mut slice = object(Kind::EndpointSlice, &format!("service-{nth}-1"), body);
    slice.metadata.labels.insert("kubernetes.io/service-name".to_owned(), format!("service-{nth}"));
    slice
}

fn object(kind: Kind, name: &str, body: Value) -> Object {
    let Value::Object(body) = body else { unreachable!("a body is an object") };
    Object { body: body.into(), ..Object::new(kind, ObjectMeta::new("shop", name)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_size_is_measured_and_one_too_large_is_refused() {
        let row = measure(20, 7).unwrap();
        assert_eq!(row.services, 20);
        assert!(row.index_us > 0.0 && row.start_ms.iter().all(|ms| *ms > 0.0));
        assert!(measure(10_001, 7).is_err() && measure(0, 7).is_err());
    }
}
