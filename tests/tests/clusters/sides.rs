//! Who asks and who answers in joined clusters, and when those with several gateways are well.

use std::net::IpAddr;

use trieste_tests::clusters::{Cluster, MEMBER, Node, Pod, PodShape, RESPONDER_PORT};
use trieste_tests::mesh::carriers::{Carriers, Gateway};

use crate::shared::{SOON, Two};

/// Port of the services.
pub(crate) const SERVICE_PORT: u16 = 80;
/// The annotation by which a route agent says that it takes packets for services.
const TAKES_SERVICES: &str = "trieste.io/services";

impl Two {
    /// Their pods and services.
    pub(crate) fn sides(&self) -> [Side<'_>; 2] {
        self.in_both(Side::new).try_into().ok().unwrap()
    }

    /// A node without a pod has no address in the pod networks: as a gateway it could not be pinged.
    pub(crate) fn inhabit_all(&self) {
        self.in_both(|cluster| {
            cluster.start_pods(&cluster.nodes().iter().map(also).collect::<Vec<_>>()).unwrap()
        });
    }

    /// Waits until all gateways have all paths, and all nodes take packets for services.
    ///
    /// # Errors
    /// If they do not soon.
    pub(crate) fn settle(&self) -> anyhow::Result<()> {
        for cluster in self.set.clusters.all() {
            cluster.wait("all paths", SOON, || has_paths(cluster))?;
            cluster.wait("route agents to take services", SOON, || takes_services(cluster))?;
        }
        Ok(())
    }

    /// Notes which gateways carry what.
    pub(crate) fn carriers(&self) -> Carriers {
        let gateway = |node: &Node| Gateway { name: node.name().to_owned(), netns: node.netns().clone() };
        let gateways = |cluster: &Cluster| cluster.nodes()[1..].iter().map(gateway).collect();
        let all = self.set.clusters.all().iter().map(gateways).collect();
        Carriers::watch_all(all, &[RESPONDER_PORT, SERVICE_PORT]).unwrap()
    }
}

/// One cluster, and who asks and answers on its worker and on its first gateway's node.
pub(crate) struct Side<'a> {
    pub(crate) cluster: &'a Cluster,
    pub(crate) on_worker: Actor<'a>,
    pub(crate) on_gateway: Actor<'a>,
    pub(crate) host_on_worker: Actor<'a>,
    pub(crate) host_on_gateway: Actor<'a>,
}

/// A pod that asks and answers, and its service.
pub(crate) struct Actor<'a> {
    pub(crate) pod: Pod,
    pub(crate) node: &'a Node,
    pub(crate) is_host: bool,
    pub(crate) service: Vec<IpAddr>,
}

impl<'a> Side<'a> {
    fn new(cluster: &'a Cluster) -> Self {
        let (worker, gateway) = (cluster.node(1), cluster.node(2));
        let shapes = [
            PodShape::on(worker, "on-ngw"),
            PodShape::on(gateway, "on-gw"),
            PodShape::host(worker, "host-ngw"),
            PodShape::host(gateway, "host-gw"),
            also(cluster.node(3)),
        ];
        let mut pods = cluster.start_pods(&shapes).unwrap().into_iter();
        let mut actor = |node: &'a Node, is_host: bool| {
            let pod = pods.next().unwrap();
            let service = cluster.start_service(&format!("svc-{}", pod.name), &pod.name).unwrap();
            Actor { pod, node, is_host, service }
        };
        Self {
            cluster,
            on_worker: actor(worker, false),
            on_gateway: actor(gateway, false),
            host_on_worker: actor(worker, true),
            host_on_gateway: actor(gateway, true),
        }
    }

    /// All of them, with what upstream's lists call them.
    pub(crate) fn actors(&self) -> [(&'static str, &Actor<'a>); 4] {
        [
            ("pod nGW", &self.on_worker),
            ("pod GW", &self.on_gateway),
            ("host nGW", &self.host_on_worker),
            ("host GW", &self.host_on_gateway),
        ]
    }
}

impl Actor<'_> {
    /// Whether a server of the other cluster may see it as this: a pod as itself, a node as one of its addresses in the
    /// pod network.
    pub(crate) fn expects(&self, seen: IpAddr) -> anyhow::Result<()> {
        let is_right = if self.is_host {
            self.node.pod_cidrs().iter().any(|net| net.contains(&seen))
        } else {
            self.pod.addresses.contains(&seen)
        };
        anyhow::ensure!(is_right, "{} is seen as {seen}", self.pod.name);
        Ok(())
    }
}

fn also(node: &Node) -> PodShape {
    PodShape::on(node, &format!("also-{}", node.name()))
}

/// Whether each gateway reports a connection with every gateway of the other cluster, all of them up.
fn has_paths(cluster: &Cluster) -> anyhow::Result<()> {
    let wanted = cluster.nodes().len() - 1;
    let path = format!("/apis/submariner.io/v1/namespaces/{MEMBER}/gateways");
    let objects = cluster.client().list(&path)?;
    anyhow::ensure!(objects.len() == wanted, "there are {} Gateway objects", objects.len());
    for object in &objects {
        let connections = object["status"]["connections"].as_array().cloned().unwrap_or_default();
        let others = connections.iter().filter(|entry| entry["endpoint"]["cluster_id"] != cluster.name());
        let good = others.filter(|entry| entry["status"] == "connected").count();
        anyhow::ensure!(good == wanted, "{}: {connections:?}", object["metadata"]["name"]);
    }
    Ok(())
}

fn takes_services(cluster: &Cluster) -> anyhow::Result<()> {
    let agents = cluster.client().list(&format!("/apis/submariner.io/v1/namespaces/{MEMBER}/routeagents"))?;
    let takes = |agent: &&serde_json::Value| agent["metadata"]["annotations"][TAKES_SERVICES].is_string();
    let count = agents.iter().filter(takes).count();
    anyhow::ensure!(count == cluster.nodes().len(), "{count} of {} route agents do", agents.len());
    Ok(())
}
