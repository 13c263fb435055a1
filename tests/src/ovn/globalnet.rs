//! Two clusters with the same addresses, known to each other by global ones, of which `east` has OVN-Kubernetes.

use std::net::{Ipv4Addr, SocketAddr};

use crate::cluster::{Cluster, NAMESPACE};
use crate::globalnet::{Actors, Client, Flow, Objects, PODS, SIZES, actors, inhabit, proxy};
use crate::lab::Lab;
use crate::ovn::pair::{OvnPair, OvnTopology};
use crate::topology::Topology;
use crate::traffic::Responder;

/// Bytes of a datagram that is not cut in pieces on the way to the management port.
const WHOLE: usize = 1300;

/// Such a pair, each cluster one node, and who is on it. The fields are in the order in which they have to end.
#[derive(Debug)]
pub struct GlobalOvnPair {
    /// Who is behind OVN.
    pub east: Actors,
    /// Who is on the other cluster's node.
    pub west: Actors,
    _responders: Vec<Responder>,
    /// The clusters.
    pub pair: OvnPair,
}

impl GlobalOvnPair {
    /// Starts everything, with this line in the gateways' configuration, and waits until globalnet has given all addresses and OVN
    /// leads to the global ones.
    ///
    /// # Errors
    /// The first thing that does not work.
    pub fn start(lab: &Lab, line: &str, topology: OvnTopology) -> anyhow::Result<Self> {
        let plan = lab.build(&Topology::two_alike().with_pods(u8::try_from(PODS.len())?))?;
        let pair = OvnPair::start_with(lab, &plan, &[line.to_owned()], topology)?;
        let mut responders = Vec::new();
        let of_east = inhabit(&pair.east, &mut responders, |services| {
            services.iter().zip(0..).try_for_each(|(service, number)| {
                let frontend = SocketAddr::new(service.address.into(), proxy::PORT);
                pair.ovn.add_service(&format!("web-{number}"), frontend, service.to.into())
            })
        })?;
        let of_west = inhabit(&pair.west, &mut responders, |services| {
            let plan = pair.west.plan();
            proxy::load(&plan.gateway().namespace, &plan.pod_cidrs[0], services)
        })?;
        let [east, west] = [(&pair.east, &of_east), (&pair.west, &of_west)]
            .map(|(cluster, ports)| actors(cluster, ports, 0));
        pair.wait_policies()?;
        Ok(Self { east: east?, west: west?, _responders: responders, pair })
    }

    /// Returns who asks whom: pods behind OVN and their node the other cluster's service and pod, its pods one behind OVN, and pods
    /// behind OVN another of them by its global address.
    #[must_use]
    pub fn flows(&self) -> Vec<Flow<'_>> {
        let (east, west) = (&self.east, &self.west);
        let flow = |id, what, client, server, is_headless| Flow { id, what, client, server, is_headless };
        vec![
            flow("out-1", "pod behind OVN → service", &east.plain, &west.server, false),
            flow("out-2", "namespace's pod behind OVN → service", &east.team, &west.server, false),
            flow("out-3", "chosen pod behind OVN → service", &east.chosen, &west.server, false),
            flow("out-4", "pod behind OVN → headless pod", &east.plain, &west.server, true),
            flow("out-5", "node with OVN → service", &east.host, &west.server, false),
            flow("in-1", "pod → headless pod behind OVN", &west.plain, &east.server, true),
            flow("own-1", "pod behind OVN → own headless pod", &east.plain, &east.server, true),
        ]
    }

    /// Returns who asks the service of OVN's load balancer.
    #[must_use]
    pub fn clients_of_balancer(&self) -> [(&'static str, &'static str, &Client); 4] {
        [
            ("in-2", "pod → service of OVN's load balancer", &self.west.plain),
            ("in-3", "chosen pod → service of OVN's load balancer", &self.west.chosen),
            ("in-4", "node → service of OVN's load balancer", &self.west.host),
            ("own-2", "pod behind OVN → own service", &self.east.plain),
        ]
    }

    /// Asks that service, TCP with every size and UDP without fragments: the switch in user space does not balance those, whoever
    /// sends them. Returns the address that the server has seen.
    ///
    /// # Errors
    /// The first exchange that fails, or that comes from another address.
    pub fn ask_balancer(&self, client: &Client) -> anyhow::Result<Ipv4Addr> {
        let to = self.east.server.service;
        let first = client.udp(to, SIZES[0])?;
        anyhow::ensure!(client.leaves_as.contains(&first), "{} is seen as {first}", client.name);
        for bytes in SIZES {
            let seen = client.tcp(to, bytes)?;
            anyhow::ensure!(seen == first, "seen as {seen} after {first}: one source has one address");
        }
        let seen = client.udp(to, WHOLE)?;
        anyhow::ensure!(seen == first, "seen as {seen} after {first}: one source has one address");
        Ok(first)
    }

    /// Reads what a cluster's GatewayRoute objects say: their names, networks and next hops.
    ///
    /// # Errors
    /// If one cannot be read.
    pub fn gateway_routes(cluster: &Cluster) -> anyhow::Result<Vec<String>> {
        let folder = cluster.store().join(NAMESPACE).join("gatewayroutes");
        let mut lines = Vec::new();
        for entry in std::fs::read_dir(folder)? {
            let file = entry?.path();
            let Some(name) =
                file.file_stem().and_then(|stem| stem.to_str()).filter(|stem| !stem.starts_with('.'))
            else {
                continue;
            };
            let object = Objects::of(cluster).read("gatewayroutes", NAMESPACE, name)?;
            lines.push(format!(
                "{name}: {} via {}",
                object["spec"]["remoteCIDRs"], object["spec"]["nextHops"]
            ));
        }
        lines.sort();
        Ok(lines)
    }
}
