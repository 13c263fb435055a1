//! Everybody who asks or answers in a real cluster with Globalnet, and what they are known as.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use anyhow::Context;
use serde_json::{Value, json};

use super::{Cluster, Node, Pod, PodShape, RESPONDER_PORT};
use crate::globalnet::{Actors, Client, EGRESS, Server, Site, allocated, egress};

/// How long addresses may take to be given.
const SOON: Duration = Duration::from_secs(60);
const TEAM: &str = "team";
/// The headless service of every site, with its servers.
pub const HEADLESS: &str = "db";
const PORT: u16 = 80;

/// Makes pods, services, exports and egress addresses in a cluster with Globalnet, on its first gateway's node and its
/// first worker, and waits for the addresses that Globalnet gives.
///
/// # Errors
/// The first thing that does not come.
pub fn globalnet_site(cluster: &Cluster) -> anyhow::Result<Site> {
    let (gateways, workers) = cluster.gateways_and_workers()?;
    let nodes = [gateways[0], workers[0]];
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": TEAM}});
    cluster.apply(&namespace.to_string())?;
    let pods: Vec<_> = nodes
        .iter()
        .enumerate()
        .map(|(number, node)| pods(cluster, node, number))
        .collect::<Result<_, _>>()?;
    cluster.apply(&list(&objects()).to_string())?;
    let all = given(cluster, &format!("clusterglobalegressips/{EGRESS}"))?;
    let team = given(cluster, &format!("namespaces/{TEAM}/globalegressips/all"))?;
    let chosen = given(cluster, "namespaces/default/globalegressips/some")?;
    let mut site = Vec::new();
    for (number, [server, plain, member, some, host]) in pods.into_iter().enumerate() {
        let known_as = |name: &str| given(cluster, &format!("namespaces/default/globalingressips/{name}"));
        let client = |pod: Pod, leaves_as: &[Ipv4Addr]| Client {
            name: pod.name.clone(),
            netns: pod.netns().clone(),
            leaves_as: leaves_as.to_vec(),
        };
        site.push(Actors {
            server: Server {
                name: server.name.clone(),
                netns: server.netns().clone(),
                service: SocketAddr::new(known_as(&format!("web-{number}"))?[0].into(), PORT),
                headless: SocketAddr::new(
                    known_as(&format!("pod-server-{number}"))?[0].into(),
                    RESPONDER_PORT,
                ),
            },
            plain: client(plain, &all),
            team: client(member, &team),
            chosen: client(some, &chosen),
            host: client(host, &all),
        });
    }
    let [gateway, worker] = site.try_into().ok().context("two nodes")?;
    Ok(Site { gateway, worker })
}

/// A server, a plain pod, one of the team, a chosen one, and one in the node's network.
fn pods(cluster: &Cluster, node: &Node, number: usize) -> anyhow::Result<[Pod; 5]> {
    let on = |role: &str| PodShape::on(node, &format!("{role}-{number}"));
    let shapes = [
        on("server").with_app(HEADLESS),
        on("plain"),
        on("member").in_namespace(TEAM),
        on("some").with_app("chosen"),
        PodShape::host(node, &format!("host-{number}")),
    ];
    cluster.start_pods(&shapes)?.try_into().ok().context("five pods")
}

fn objects() -> Vec<Value> {
    let port = |protocol: &str| json!({"name": protocol.to_lowercase(), "protocol": protocol, "port": PORT, "targetPort": RESPONDER_PORT});
    let service = |name: &str, selector: Value, is_headless: bool| {
        let mut service = json!({"apiVersion": "v1", "kind": "Service",
            "metadata": {"name": name, "namespace": "default"},
            "spec": {"selector": selector, "ports": [port("TCP"), port("UDP")]}});
        if is_headless {
            service["spec"]["clusterIP"] = json!("None");
        }
        service
    };
    let export = |name: &str| json!({"apiVersion": "multicluster.x-k8s.io/v1alpha1", "kind": "ServiceExport", "metadata": {"name": name, "namespace": "default"}});
    vec![
        service("web-0", json!({"pod": "server-0"}), false),
        service("web-1", json!({"pod": "server-1"}), false),
        service(HEADLESS, json!({"app": HEADLESS}), true),
        export("web-0"),
        export("web-1"),
        export(HEADLESS),
        egress(TEAM, "all", 2, None),
        egress("default", "some", 1, Some("chosen")),
    ]
}

/// Waits for the addresses in an object's status.
fn given(cluster: &Cluster, path: &str) -> anyhow::Result<Vec<Ipv4Addr>> {
    let path = format!("/apis/submariner.io/v1/{path}");
    cluster.wait(&format!("addresses in {path}"), SOON, || allocated(&cluster.client().get(&path)?))
}

fn list(items: &[Value]) -> Value {
    json!({"apiVersion": "v1", "kind": "List", "items": items})
}
