//! Two clusters of namespaces with the same addresses, and everybody who asks or answers in them.

use std::net::{IpAddr, Ipv4Addr, SocketAddr, SocketAddrV4};

use anyhow::Context;

use super::{Actors, Client, Objects, Server, Site, proxy};
use crate::cluster::Cluster;
use crate::lab::Lab;
use crate::pair::Pair;
use crate::topology::{ClusterPlan, NodePlan, PodPlan, Topology};
use crate::traffic::Responder;

/// The pods of each node, in this order.
pub const PODS: [&str; 4] = ["server", "plain", "team", "chosen"];
/// The namespace that has addresses of its own.
const TEAM: &str = "team";
/// The headless service of all servers.
const HEADLESS: &str = "db";

/// `east` and `west`, each a gateway node and a worker. The fields are in the order in which they have to end.
#[derive(Debug)]
pub struct Scene {
    /// Who is in `east`.
    pub east: Site,
    /// Who is in `west`.
    pub west: Site,
    _responders: Vec<Responder>,
    /// The clusters.
    pub pair: Pair,
}

impl Scene {
    /// Starts everything and waits until globalnet has given all addresses, and gateways translate to them.
    ///
    /// # Errors
    /// The first thing that does not work.
    pub fn start(extra: &[&str]) -> anyhow::Result<Self> {
        Self::start_in(&Lab::new()?, extra)
    }

    /// The same in a lab.
    ///
    /// # Errors
    /// The first thing that does not work.
    pub fn start_in(lab: &Lab, extra: &[&str]) -> anyhow::Result<Self> {
        let pods = u8::try_from(PODS.len())?;
        let topology = Topology::two_alike().with_nodes(1, 1).with_pods(pods);
        let mut pair = Pair::connected_in(lab, &topology, extra)?;
        let mut responders = Vec::new();
        let result = Self::people(&mut pair, &mut responders);
        if result.is_err() {
            pair.lab.show_logs();
        }
        let (east, west) = result?;
        Ok(Self { east, west, _responders: responders, pair })
    }

    fn people(pair: &mut Pair, responders: &mut Vec<Responder>) -> anyhow::Result<(Site, Site)> {
        let mut ports = Vec::new();
        for cluster in [&mut pair.east, &mut pair.west] {
            cluster.start_workers()?;
            ports.push(inhabit(cluster, responders, |services| {
                let plan = cluster.plan();
                let mut nodes = plan.nodes.iter();
                nodes.try_for_each(|node| proxy::load(&node.namespace, &plan.pod_cidrs[0], services))
            })?);
        }
        let (east, west) = (site(&pair.east, &ports[0])?, site(&pair.west, &ports[1])?);
        east.wait_translated(&west)?;
        west.wait_translated(&east)?;
        Ok((east, west))
    }
}

/// The cluster IP of the service of node `number`, from 0.
fn cluster_ip(plan: &ClusterPlan, number: usize) -> anyhow::Result<Ipv4Addr> {
    let IpAddr::V4(first) = plan.service_cidrs[0].network() else {
        anyhow::bail!("services have IPv4 first")
    };
    Ok(Ipv4Addr::from(u32::from(first) + 10 + u32::try_from(number)?))
}

/// Puts all objects there and starts the servers, with services by `balance`; returns their ports, node by node.
///
/// # Errors
/// The first thing that does not work.
pub fn inhabit(
    cluster: &Cluster,
    responders: &mut Vec<Responder>,
    balance: impl Fn(&[proxy::Service]) -> anyhow::Result<()>,
) -> anyhow::Result<Vec<u16>> {
    let (objects, plan) = (Objects::of(cluster), cluster.plan());
    // As users do: they come when the cluster has joined, and what is there first is served first.
    objects.cluster_egress()?;
    for namespace in ["default", TEAM] {
        objects.namespace(namespace)?;
    }
    let (mut ports, mut services) = (Vec::new(), Vec::new());
    for (number, node) in plan.nodes.iter().enumerate() {
        for (role, pod) in PODS.iter().zip(&node.pods) {
            let namespace = if *role == TEAM { TEAM } else { "default" };
            let app = if *role == PODS[0] { HEADLESS } else { role };
            objects.pod(namespace, &format!("{role}-{number}"), app, v4(pod)?)?;
        }
        let responder = Responder::start(&node.pods[0].namespace)?;
        let (address, to) =
            (cluster_ip(plan, number)?, SocketAddrV4::new(v4(&node.pods[0])?, responder.port()));
        services.push(proxy::Service { address, to });
        ports.push(responder.port());
        responders.push(responder);
        let name = format!("web-{number}");
        objects.service(&name, ("pod", &format!("server-{number}")), Some(address))?;
        objects.export(&name)?;
    }
    objects.service(HEADLESS, ("app", HEADLESS), None)?;
    balance(&services)?;
    objects.export(HEADLESS)?;
    objects.egress(TEAM, "all", 2, None)?;
    objects.egress("default", "some", 1, Some("chosen"))?;
    Ok(ports)
}

fn site(cluster: &Cluster, ports: &[u16]) -> anyhow::Result<Site> {
    Ok(Site { gateway: actors(cluster, ports, 0)?, worker: actors(cluster, ports, 1)? })
}

/// Returns who is on node `number`, from 0, of a cluster whose servers have these ports, once globalnet has given all addresses.
///
/// # Errors
/// If they are not given soon.
pub fn actors(cluster: &Cluster, ports: &[u16], number: usize) -> anyhow::Result<Actors> {
    let (objects, node): (_, &NodePlan) = (Objects::of(cluster), &cluster.plan().nodes[number]);
    let all = objects.cluster_egress()?;
    let (team, chosen) = (objects.egress_of(TEAM, "all")?, objects.egress_of("default", "some")?);
    let client = |pod: usize, leaves_as: &[Ipv4Addr]| Client {
        name: node.pods[pod].name.clone(),
        netns: node.pods[pod].namespace.clone(),
        leaves_as: leaves_as.to_vec(),
    };
    let host = Client { name: node.name.clone(), netns: node.namespace.clone(), leaves_as: all.clone() };
    let service = objects.ingress_of(&format!("web-{number}"))?;
    let headless = objects.ingress_of(&format!("pod-server-{number}"))?;
    Ok(Actors {
        plain: client(1, &all),
        team: client(2, &team),
        chosen: client(3, &chosen),
        host,
        server: Server {
            name: node.pods[0].name.clone(),
            netns: node.pods[0].namespace.clone(),
            service: SocketAddr::new(service.into(), proxy::PORT),
            headless: SocketAddr::new(headless.into(), ports[number]),
        },
    })
}

fn v4(pod: &PodPlan) -> anyhow::Result<Ipv4Addr> {
    let address = pod.addresses.iter().map(ipnet::IpNet::addr);
    let v4 = address.filter_map(|ip| if let IpAddr::V4(ip) = ip { Some(ip) } else { None }).next();
    v4.with_context(|| format!("pod {} has no IPv4 address", pod.name))
}
