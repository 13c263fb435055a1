//! The lab plays the route agent of a node: it follows the Endpoints of its cluster, with the route agent's own
//! rights, and routes what is remote to the gateway that the cluster's Endpoint names. Our own route agent does not
//! know API servers yet; when it does, it takes this one's place.
//!
//! Like upstream's, it knows nothing of cables: on the gateway's node itself, routes lead to the device that the
//! Endpoint calls its `interface-name`.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::Context;
use ipnet::IpNet;
use serde_json::Value;

use super::client::{Client, Watch};
use crate::cluster::NAMESPACE;
use crate::netns::Namespace;
use crate::topology::NodePlan;

/// How long it waits for an event before it looks whether the gateway's device is still the same.
const TICK: Duration = Duration::from_millis(100);

/// How long a watch is believed without a word: after a partition it may be dead without knowing it.
const PATIENCE: Duration = Duration::from_secs(15);

/// Its routes, among the kernel's others (`ip route show proto 150`).
const PROTOCOL: u8 = 150;

/// A played route agent; its routes stay when it is dropped, as a real one's would.
#[derive(Debug)]
pub(super) struct RouteAgent {
    is_over: Arc<AtomicBool>,
}

impl RouteAgent {
    /// Starts it on a node of this cluster.
    pub(super) fn start(cluster_id: &str, node: &NodePlan, kubeconfig: PathBuf) -> anyhow::Result<Self> {
        let is_over = Arc::new(AtomicBool::new(false));
        let (over, cluster_id, node) = (Arc::clone(&is_over), cluster_id.to_owned(), node.clone());
        std::thread::Builder::new().name(format!("routes-{}", node.name)).spawn(move || {
            let mut routes = Routes { node, installed: BTreeMap::new() };
            while !over.load(Ordering::Relaxed) {
                // The server may be away, and with it the watch: what is installed stays, and it starts anew.
                let _ = follow(&cluster_id, &mut routes, &kubeconfig, &over);
                std::thread::sleep(TICK);
            }
        })?;
        Ok(Self { is_over })
    }
}

impl Drop for RouteAgent {
    fn drop(&mut self) {
        // Nobody waits for the thread: it may be waiting itself, for a server that is cut off.
        self.is_over.store(true, Ordering::Relaxed);
    }
}

/// Lists, then follows changes until the watch ends.
fn follow(cluster_id: &str, routes: &mut Routes, kubeconfig: &Path, over: &AtomicBool) -> anyhow::Result<()> {
    let client = Client::new(Some(&routes.node.namespace), kubeconfig)?;
    let path = format!("/apis/submariner.io/v1/namespaces/{NAMESPACE}/endpoints");
    let mut list = client.get(&path)?;
    let version =
        list["metadata"]["resourceVersion"].as_str().context("a list without a version")?.to_owned();
    let items: Vec<Value> = serde_json::from_value(list["items"].take())?;
    let mut endpoints: BTreeMap<String, Value> =
        items.into_iter().map(|endpoint| (name_of(&endpoint), endpoint)).collect();
    let watch: Watch = client.watch(&path, &version)?;
    let mut heard = Instant::now();
    while !over.load(Ordering::Relaxed) && heard.elapsed() < PATIENCE {
        routes.install(&wanted(cluster_id, &routes.node, &endpoints));
        let Some(event) = watch.poll(TICK)? else { continue };
        heard = Instant::now();
        let endpoint = event["object"].clone();
        match event["type"].as_str().unwrap_or_default() {
            "ADDED" | "MODIFIED" => drop(endpoints.insert(name_of(&endpoint), endpoint)),
            "DELETED" => drop(endpoints.remove(&name_of(&endpoint))),
            _ => anyhow::bail!("the watch says {event}"),
        }
    }
    Ok(())
}

fn name_of(object: &Value) -> String {
    object["metadata"]["name"].as_str().unwrap_or_default().to_owned()
}

/// Where a prefix leads.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Hop {
    /// To the gateway's node.
    Node(IpAddr),
    /// Into the gateway's device on this node.
    Device(String),
}

/// The routes that these Endpoints ask for on this node. Without a gateway of its own a cluster has none.
fn wanted(cluster_id: &str, node: &NodePlan, endpoints: &BTreeMap<String, Value>) -> BTreeMap<IpNet, Hop> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let is_own = |endpoint: &&Value| endpoint["spec"]["cluster_id"] == cluster_id;
    let Some(own) = endpoints.values().find(is_own) else { return BTreeMap::new() };
    let hop = if own["spec"]["hostname"] == node.name.as_str() {
        Hop::Device(text(&own["spec"]["backend_config"]["interface-name"]))
    } else {
        match text(&own["spec"]["private_ip"]).parse() {
            Ok(address) => Hop::Node(address),
            Err(_) => return BTreeMap::new(),
        }
    };
    let remote = endpoints.values().filter(|endpoint| !is_own(endpoint));
    remote
        .flat_map(|endpoint| endpoint["spec"]["subnets"].as_array().into_iter().flatten())
        .filter_map(|subnet| Some((subnet.as_str()?.parse().ok()?, hop.clone())))
        .collect()
}

/// What this agent has put on its node.
#[derive(Debug)]
struct Routes {
    node: NodePlan,
    /// With the index of the device: a device that has come back is another one, and its routes are gone.
    installed: BTreeMap<IpNet, (Hop, Option<u32>)>,
}

impl Routes {
    fn install(&mut self, wanted: &BTreeMap<IpNet, Hop>) {
        let gone: Vec<IpNet> =
            self.installed.keys().filter(|prefix| !wanted.contains_key(prefix)).copied().collect();
        for prefix in gone {
            let _ = self.node.namespace.ip(&format!("route del {prefix} proto {PROTOCOL}"));
            self.installed.remove(&prefix);
        }
        let mut lines = String::new();
        let mut fresh = Vec::new();
        for (prefix, hop) in wanted {
            let index = match hop {
                Hop::Node(_) => None,
                Hop::Device(device) => match device_index(&self.node.namespace, device) {
                    Some(index) => Some(index),
                    None => continue, // its turn comes when the device does
                },
            };
            let state = (hop.clone(), index);
            if self.installed.get(prefix) == Some(&state) {
                continue;
            }
            let via = match hop {
                Hop::Node(IpAddr::V6(address)) if matches!(prefix, IpNet::V4(_)) => {
                    format!("via inet6 {address}")
                }
                Hop::Node(address) => format!("via {address}"),
                Hop::Device(device) => format!("dev {device}"),
            };
            let own = self.node.bridge.iter().find(|own| own.addr().is_ipv4() == prefix.addr().is_ipv4());
            let source = own.map_or_else(String::new, |own| format!(" src {}", own.addr()));
            let _ = writeln!(lines, "route replace {prefix} {via}{source} proto {PROTOCOL}");
            fresh.push((*prefix, state));
        }
        if !lines.is_empty() && self.node.namespace.ip(&lines).is_ok() {
            self.installed.extend(fresh);
        }
    }
}

fn device_index(namespace: &Namespace, device: &str) -> Option<u32> {
    namespace
        .enter(|| {
            let socket =
                rustix::net::socket(rustix::net::AddressFamily::INET, rustix::net::SocketType::DGRAM, None)?;
            Ok(rustix::net::netdevice::name_to_index(socket, device)?)
        })
        .ok()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::topology::{Plan, Topology};

    #[test]
    fn workers_lead_to_the_gateway_and_its_node_into_the_device() {
        let plan = Plan::new("tl000000", &Topology::two_clusters().with_nodes(2, 1)).unwrap();
        let east = plan.cluster("east");
        let endpoint = |cluster: &str, hostname: &str, address: &str, subnet: &str| {
            json!({"spec": {"cluster_id": cluster, "hostname": hostname, "private_ip": address,
                "subnets": [subnet, "no prefix"], "backend_config": {"interface-name": "submariner"}}})
        };
        let mut endpoints = BTreeMap::from([
            ("own".to_owned(), endpoint("east", "east-gw1", "172.31.1.1", "10.1.0.0/16")),
            ("other".to_owned(), endpoint("west", "west-gw1", "172.31.2.1", "10.2.0.0/16")),
        ]);
        let prefix: IpNet = "10.2.0.0/16".parse().unwrap();

        let on_gateway = wanted("east", &east.gateways()[0], &endpoints);
        let on_worker = wanted("east", &east.workers()[0], &endpoints);
        endpoints.remove("own");
        let without = wanted("east", &east.workers()[0], &endpoints);

        assert_eq!(on_gateway, BTreeMap::from([(prefix, Hop::Device("submariner".to_owned()))]));
        assert_eq!(on_worker, BTreeMap::from([(prefix, Hop::Node("172.31.1.1".parse().unwrap()))]));
        assert!(without.is_empty());
    }
}
