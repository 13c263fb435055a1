//! What many exported services cost a cluster with globalnet: how long until every one has its global address, what one more
//! costs then, and what gateway and route agents use at rest. With endpoints, the cluster has two active gateways, so that
//! packets for services go to their nodes, and every gateway and route agent follows all of them.

use std::collections::VecDeque;
use std::fmt;
use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

use serde::Serialize;
use serde_json::{Value, json};
use trieste_tests::cluster::Settings;
use trieste_tests::globalnet::{EGRESS, Objects, allocated, export, service};
use trieste_tests::interrupt::pause;
use trieste_tests::kubernetes::Client;
use trieste_tests::lab::Lab;
use trieste_tests::mesh::{CONNECT_TIMEOUT, Mesh};
use trieste_tests::topology::Topology;
use trieste_tests::wait::eventually;

use super::Options;
use super::figures::{Bar, Figure, Growth, Point};
use super::results::{STEP_S, Used, figure};
use super::store::{self, Broker, StoreKind};

/// Namespace of services and exports.
const NAMESPACE: &str = "default";
/// How often addresses are looked for; a look takes as long again.
const TICK: Duration = Duration::from_millis(20);
/// Endpoints of one slice, as Kubernetes' own controller makes them.
const SLICE: u32 = 100;
/// How many endpoints change, one after the other.
const CHANGES: u32 = 10;
/// Between two of them.
const BETWEEN: Duration = Duration::from_millis(500);

/// Seconds that one more export may take.
const ONE_MORE: Bar = Bar::Below(0.3);

/// A cluster with globalnet, and where its objects are written. Fields are in the order in which they have to end.
pub(super) struct Bed<'a> {
    options: &'a Options,
    objects: ClusterObjects,
    mesh: Mesh,
    /// Its API servers, if there are any, end last.
    _broker: Broker,
}

/// Where the cluster's objects are.
enum ClusterObjects {
    Directory(Objects),
    ApiServer(Client),
}

/// One number of exports.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Row {
    exports: u32,
    endpoints: u32,
    rest_s: f64,
    /// Seconds that it took to write services, exports and slices.
    written_s: f64,
    /// Seconds from then until the last export had its address.
    last_allocated_s: f64,
    /// The same for one more, at once after them.
    one_more_s: f64,
    /// The same for one more, after the rest.
    one_more_at_rest_s: f64,
    /// At rest.
    rest: Used,
    /// Processor time of the gateway for each endpoint that changed, milliseconds; without endpoints nothing changes.
    one_endpoint_cpu_ms: f64,
    /// Memory of the gateway before there were exports, MiB.
    before_mib: f64,
}

impl<'a> Bed<'a> {
    pub(super) fn start(
        lab: &Lab,
        options: &'a Options,
        driver: &str,
        store: StoreKind,
    ) -> anyhow::Result<Self> {
        let gateways = if options.endpoints > 0 { 2 } else { 1 };
        let topology = Topology::two_alike().with_nodes(gateways, 2 - gateways);
        let settings = Settings { names_nodes: true, ..store::settings(lab, driver) };
        let (mesh, broker) = store::start(lab, &topology, store, settings)?;
        eventually("the clusters' cable", CONNECT_TIMEOUT, || {
            let status = mesh.side("east").status(0)?;
            let is_up = status.connections.iter().any(|cable| cable.lane.last_handshake_age_s.is_some());
            anyhow::ensure!(is_up, "it has not been up");
            Ok(())
        })?;
        let objects = match &broker {
            Broker::Directory(_) => ClusterObjects::Directory(Objects::at(mesh.side("east").store())),
            Broker::ApiServer(servers) => {
                ClusterObjects::ApiServer(servers.cluster("east").server.client().clone())
            }
        };
        eventually("the cluster's own addresses", CONNECT_TIMEOUT, || {
            allocated(&objects.read("clusterglobalegressips", "", EGRESS)?)
        })?;
        objects.put(
            "namespaces",
            &json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}),
        )?;
        Ok(Self { options, objects, mesh, _broker: broker })
    }

    pub(super) fn measure(self, exports: u32) -> anyhow::Result<Row> {
        let before = self.usage()?;
        let began = Instant::now();
        (0..exports).try_for_each(|number| self.export(number))?;
        let slices = self.options.endpoints.div_ceil(SLICE);
        (0..slices).try_for_each(|slice| self.put_slice(slice, exports, 0))?;
        let written = began.elapsed();
        let last_allocated = self.wait_allocated((0..exports).collect())?;
        self.export(exports)?;
        let one_more = self.wait_allocated([exports].into())?;
        let resting = || pause(Duration::from_secs(self.options.rest));
        resting()?;
        let rest = self.usage()?;
        resting()?;
        let rest = self.usage()?.since(&rest);
        self.export(exports + 1)?;
        let one_more_at_rest = self.wait_allocated([exports + 1].into())?;
        Ok(Row {
            exports,
            endpoints: self.options.endpoints,
            rest_s: self.options.rest as f64,
            written_s: written.as_secs_f64(),
            last_allocated_s: last_allocated.as_secs_f64(),
            one_more_s: one_more.as_secs_f64(),
            one_more_at_rest_s: one_more_at_rest.as_secs_f64(),
            rest,
            one_endpoint_cpu_ms: if slices > 0 { self.change_endpoints(exports, &rest)? } else { 0.0 },
            before_mib: before.mib(),
        })
    }

    /// Writes a service and its export.
    fn export(&self, number: u32) -> anyhow::Result<()> {
        let name = name_of(number);
        self.objects.put("services", &service(&name, ("app", &name), Some(cluster_ip(number))))?;
        self.objects.put("serviceexports", &export(&name))
    }

    /// Writes a slice of the endpoints of one of the services; slices are shared out among them.
    fn put_slice(&self, slice: u32, exports: u32, change: u32) -> anyhow::Result<()> {
        let nodes: Vec<&str> =
            self.mesh.plan.cluster("east").nodes.iter().map(|node| node.name.as_str()).collect();
        let count = SLICE.min(self.options.endpoints - slice * SLICE);
        let service = name_of(slice % exports.max(1));
        self.objects.put("endpointslices", &slice_of(slice, count, change, &service, &nodes))
    }

    /// Waits until these exports have their addresses; returns for how long. Each is looked at until it has one, so that
    /// looking costs what there is to find.
    fn wait_allocated(&self, mut left: VecDeque<u32>) -> anyhow::Result<Duration> {
        let (began, patience) = (Instant::now(), Duration::from_secs(self.options.patience));
        loop {
            while let Some(&first) = left.front() {
                let object = self.objects.read("globalingressips", NAMESPACE, &name_of(first));
                if object.and_then(|object| allocated(&object)).is_err() {
                    break;
                }
                left.pop_front();
            }
            if left.is_empty() {
                return Ok(began.elapsed());
            }
            anyhow::ensure!(
                began.elapsed() < patience,
                "after {patience:?} {} exports have no address, or are behind one that has none",
                left.len()
            );
            pause(TICK)?;
        }
    }

    /// Changes endpoints one by one; returns what each cost the gateway, milliseconds of processor time beyond what it uses at
    /// rest.
    fn change_endpoints(&self, exports: u32, rest: &Used) -> anyhow::Result<f64> {
        let (before, began) = (self.gateway_cpu_s()?, Instant::now());
        for change in 1..=CHANGES {
            self.put_slice(0, exports, change)?;
            pause(BETWEEN)?;
        }
        let at_rest = rest.cpu[0] / 100.0 * began.elapsed().as_secs_f64();
        Ok((self.gateway_cpu_s()? - before - at_rest) * 1e3 / f64::from(CHANGES))
    }

    fn gateway_cpu_s(&self) -> anyhow::Result<f64> {
        self.mesh.side("east").gateway(0)?.id().cpu_seconds()
    }

    fn usage(&self) -> anyhow::Result<Used> {
        Used::of_side(self.mesh.side("east"))
    }
}

impl ClusterObjects {
    fn put(&self, folder: &str, object: &Value) -> anyhow::Result<()> {
        match self {
            Self::Directory(objects) => objects.put(folder, object),
            Self::ApiServer(client) => client.apply(object).map(drop),
        }
    }

    /// Reads an object of ours; `namespace` is empty for kinds without.
    fn read(&self, plural: &str, namespace: &str, name: &str) -> anyhow::Result<Value> {
        match self {
            Self::Directory(objects) => objects.read(plural, namespace, name),
            Self::ApiServer(client) if namespace.is_empty() => {
                client.get(&format!("/apis/submariner.io/v1/{plural}/{name}"))
            }
            Self::ApiServer(client) => {
                client.get(&format!("/apis/submariner.io/v1/namespaces/{namespace}/{plural}/{name}"))
            }
        }
    }
}

impl Row {
    /// Returns all figures with what they may be.
    pub(super) fn point(&self) -> Point {
        let bare = |name, value, resolution, growth| Figure { name, value, resolution, growth, bar: None };
        let mut figures = vec![
            bare("last allocated, s", self.last_allocated_s, STEP_S, Growth::Total),
            figure("one more export, s", self.one_more_s, STEP_S, Growth::PerChange, ONE_MORE),
            figure("one more at rest, s", self.one_more_at_rest_s, STEP_S, Growth::PerChange, ONE_MORE),
            bare("one endpoint, CPU ms", self.one_endpoint_cpu_ms, 0.0, Growth::Free),
        ];
        figures.extend(self.rest.figures(self.rest_s, ["another's, %", "another's, MiB"]));
        Point { size: self.exports, figures }
    }
}

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} exports with {} endpoints:", self.exports, self.endpoints)?;
        for figure in self.point().figures {
            write!(f, " {} {:.2};", figure.name, figure.value)?;
        }
        write!(f, " written in {:.1} s; gateway {:.1} MiB before", self.written_s, self.before_mib)
    }
}

fn name_of(number: u32) -> String {
    format!("web-{number}")
}

/// Returns the cluster IP of a service: 10.101.0.10, which two alike clusters have theirs from, and those after it.
fn cluster_ip(number: u32) -> Ipv4Addr {
    Ipv4Addr::from(u32::from(Ipv4Addr::new(10, 101, 0, 10)) + number)
}

/// Returns a slice of endpoints in the pods' network, on all nodes in turn; the first one has another address after each change.
fn slice_of(slice: u32, count: u32, change: u32, service: &str, nodes: &[&str]) -> Value {
    let pods = u32::from(Ipv4Addr::new(10, 1, 10, 0));
    let endpoints: Vec<Value> = (0..count)
        .map(|index| {
            let moved = if index == 0 { change } else { 0 };
            // Nobody else has what an endpoint moves to.
            let address = pods + if moved > 0 { 61_000 + moved } else { slice * SLICE + index };
            json!({
                "addresses": [Ipv4Addr::from(address)],
                "conditions": {"ready": true, "serving": true, "terminating": false},
                "nodeName": nodes[index as usize % nodes.len()],
            })
        })
        .collect();
    json!({
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {"name": format!("{service}-{slice}"), "namespace": NAMESPACE,
            "labels": {"kubernetes.io/service-name": service}},
        "addressType": "IPv4",
        "endpoints": endpoints,
        "ports": [{"name": "tcp", "protocol": "TCP", "port": 8080}, {"name": "udp", "protocol": "UDP", "port": 8080}],
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endpoints_differ_and_one_moves() {
        let address = |slice: &Value, index: usize| slice["endpoints"][index]["addresses"][0].clone();
        let (one, other) =
            (slice_of(0, 100, 0, "web-0", &["a", "b"]), slice_of(1, 50, 0, "web-1", &["a", "b"]));
        assert_eq!((address(&one, 99), address(&other, 0)), (json!("10.1.10.99"), json!("10.1.10.100")));
        assert_eq!(other["endpoints"].as_array().unwrap().len(), 50);
        assert_eq!(
            (&one["endpoints"][0]["nodeName"], &one["endpoints"][1]["nodeName"]),
            (&json!("a"), &json!("b"))
        );

        let moved = slice_of(0, 100, 1, "web-0", &["a", "b"]);
        assert_ne!(address(&moved, 0), address(&one, 0));
        assert_eq!(address(&moved, 1), address(&one, 1));
    }

    #[test]
    fn services_have_addresses_of_their_network() {
        assert_eq!(cluster_ip(0).to_string(), "10.101.0.10");
        assert_eq!(cluster_ip(20_000).to_string(), "10.101.78.42");
    }
}
