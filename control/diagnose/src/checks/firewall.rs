//! Whether ports pass, by probes of our own that are seen to arrive.

use std::net::IpAddr;
use std::time::Duration;

use futures::future::try_join_all;
use rand_core::OsRng;
use trieste_control::api::EndpointSpec;
use trieste_control::devices::VX_DEVICE;
use trieste_control::requirements::is_ovn_kubernetes;
use trieste_control::steps::{Outcome, Steps};
use trieste_vxlan::VX_PORT;

use super::{CheckError, Checked, SINGLE_NODE};
use crate::agents::Agents as _;
use crate::facts;
use crate::node::token::Run;
use crate::node::{Direction, SendRequest, Transport, WatchReport, WatchRequest};
use crate::path::evidence::{Cluster, GatewayNode};

/// Ours: workers that are tried.
const MAX_WORKERS: usize = 20;
/// Ours: until the last sights have come here.
const SETTLE: Duration = Duration::from_millis(700);

/// A port between gateways.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Port {
    /// The cable's.
    Tunnel,
    /// NAT discovery's.
    NatDiscovery,
}

impl Port {
    const fn key(self) -> (&'static str, u16) {
        match self {
            Self::Tunnel => ("udp-port", 4500),
            Self::NatDiscovery => ("natt-discovery-port", 4490),
        }
    }

    fn title(self, cluster: &str) -> String {
        match self {
            Self::Tunnel => {
                format!("Checking if tunnels can be setup on the gateway node of cluster {cluster:?}")
            }
            Self::NatDiscovery => {
                format!("Checking if nat-discovery port is opened on the gateway node of cluster {cluster:?}")
            }
        }
    }
}

fn request(run: Run, probe: u16, destination: IpAddr) -> SendRequest {
    SendRequest {
        run,
        probe,
        destination,
        source: None,
        transport: Transport::Icmp,
        port: 0,
        sizes: vec![120; 3],
        wait_ms: 700,
        plain: false,
    }
}

/// Whether what workers send to other clusters reaches the gateway over UDP 4800.
///
/// # Errors
/// When the API server or the gateway's node does not say.
pub async fn intra_cluster(checked: &Checked, steps: &mut dyn Steps) -> Result<(), CheckError> {
    steps.begin("Checking that firewall configuration allows intra-cluster VXLAN traffic");
    let cluster = facts::cluster(&checked.source, &checked.kubectl, &mut Vec::new()).await?;
    if let Some((outcome, why)) = unneeded(&cluster) {
        steps.remark(outcome, &why);
        steps.end(Outcome::Success);
        return Ok(());
    }
    let gateways: Vec<&str> = cluster.gateway_names().collect();
    let Some(target) = remote_address(&cluster).filter(|_| !gateways.is_empty()) else {
        let why = if gateways.is_empty() {
            "Unable to obtain a gateway node: there is no active gateway"
        } else {
            "Unable to obtain a remote endpoint: no other cluster is known"
        };
        steps.remark(Outcome::Failure, why);
        steps.end(Outcome::Success);
        return Ok(());
    };
    let run = Run::random(&mut OsRng);
    let watch = WatchRequest { run, seconds: 60, ports: Vec::new() };
    // A node sends each flow by one gateway, and chooses which.
    let watching = try_join_all(gateways.iter().map(|gateway| checked.agents.watch(gateway, &watch))).await?;
    let workers: Vec<&String> =
        cluster.nodes.keys().filter(|node| !gateways.contains(&node.as_str())).take(MAX_WORKERS).collect();
    let numbered = (1..).zip(&workers);
    for (number, worker) in numbered.clone() {
        if let Err(error) = checked.agents.send(worker, &request(run, number, target)).await {
            steps.remark(Outcome::Failure, &error.to_string());
        }
    }
    tokio::time::sleep(SETTLE).await;
    let mut seen: Vec<(&str, WatchReport)> = Vec::new();
    for (gateway, watch) in gateways.into_iter().zip(watching) {
        seen.push((gateway, watch.stop()));
    }
    for (number, worker) in numbered {
        let (outcome, text) = judge_worker(&seen, number, worker);
        steps.remark(outcome, &text);
    }
    steps.end(Outcome::Success);
    Ok(())
}

/// Where there is nothing to check.
fn unneeded(cluster: &Cluster) -> Option<(Outcome, String)> {
    if cluster.nodes.len() == 1 {
        return Some((Outcome::Success, SINGLE_NODE.to_owned()));
    }
    let is_ovn = is_ovn_kubernetes(&cluster.network_plugin);
    is_ovn.then(|| (Outcome::Success, "Skipping this check as OVNKubernetes needs no VXLAN".to_owned()))
}

/// Any address of another cluster, the health check's first.
fn remote_address(cluster: &Cluster) -> Option<IpAddr> {
    let remote = cluster.endpoints.iter().find(|endpoint| endpoint.cluster_id != cluster.id)?;
    let subnet =
        || remote.subnets.iter().find_map(|net| net.parse::<ipnet::IpNet>().ok()).map(|net| net.addr());
    remote.health_check_address().parse().ok().or_else(subnet)
}

/// Says how far a worker's probe came; `seen` is what each gateway's node has seen.
fn judge_worker(seen: &[(&str, WatchReport)], probe: u16, worker: &str) -> (Outcome, String) {
    let arrived = |is: &dyn Fn(&crate::node::Sighting) -> bool| {
        let has = |report: &WatchReport| {
            report
                .sights
                .iter()
                .any(|sight| sight.seen.probe == probe && sight.way == Direction::In && is(sight))
        };
        seen.iter().find(|(_, report)| has(report)).map(|(gateway, _)| *gateway)
    };
    if let Some(gateway) = arrived(&|sight| sight.device == VX_DEVICE) {
        return (
            Outcome::Success,
            format!("Traffic of node {worker:?} reaches the gateway node {gateway:?}"),
        );
    }
    if let Some(gateway) = arrived(&|sight| sight.seen.carrier.is_some()) {
        let text = format!(
            "UDP/{VX_PORT} traffic of node {worker:?} arrives at the gateway node {gateway:?} and is dropped there. \
             Please check that its firewall configuration allows UDP/{VX_PORT} traffic"
        );
        return (Outcome::Failure, text);
    }
    let gateways: Vec<String> = seen.iter().map(|(gateway, _)| format!("{gateway:?}")).collect();
    let text = format!(
        "Traffic of node {worker:?} does not reach the gateway node {}. Please check that your firewall \
         configuration allows UDP/{VX_PORT} traffic between nodes; `trieste diagnose path` from a pod on that node tells more",
        gateways.join(" or ")
    );
    (Outcome::Failure, text)
}

/// Says whether a port of each local gateway is reached from each remote gateway's node.
///
/// # Errors
/// When an API server or a node does not say.
pub async fn inter_cluster(
    local: &Checked,
    remote: &Checked,
    which: Port,
    steps: &mut dyn Steps,
) -> Result<(), CheckError> {
    steps.begin(&which.title(&local.name));
    let near = facts::cluster(&local.source, &local.kubectl, &mut Vec::new()).await?;
    let far = facts::cluster(&remote.source, &remote.kubectl, &mut Vec::new()).await?;
    for (cluster, name) in [(&near, &local.name), (&far, &remote.name)] {
        if gateways(cluster).is_empty() {
            steps.remark(Outcome::Failure, &format!("there is no active gateway in cluster {name:?}"));
            steps.end(Outcome::Success);
            return Ok(());
        }
    }
    for here in gateways(&near) {
        for problem in reach(local, remote, (&near, &far), &here, which).await? {
            steps.remark(Outcome::Failure, &problem);
        }
    }
    steps.end(Outcome::Success);
    Ok(())
}

/// The gateways of a cluster; of one that does not say who it is, the node alone.
fn gateways(cluster: &Cluster) -> Vec<GatewayNode> {
    let of = |node: &str| GatewayNode { node: node.to_owned(), hostname: node.to_owned() };
    if cluster.active_gateways.is_empty() {
        return cluster.gateway_names().map(of).collect();
    }
    cluster.active_gateways.clone()
}

/// Sends a datagram from each remote gateway to one local gateway, and says what of it does not arrive.
async fn reach(
    local: &Checked,
    remote: &Checked,
    (near, far): (&Cluster, &Cluster),
    here: &GatewayNode,
    which: Port,
) -> Result<Vec<String>, CheckError> {
    let near = Cluster { gateway: Some(here.node.clone()), ..near.clone() };
    let ways = gateways(far).into_iter().map(|there| {
        let far = Cluster {
            gateway: Some(there.node.clone()),
            far_gateway: Some(here.hostname.clone()),
            ..far.clone()
        };
        let target = target(&near, &far, which);
        (there, target)
    });
    let ways: Vec<(GatewayNode, Option<(IpAddr, u16)>)> = ways.collect();
    let Some(ports) =
        ways.iter().map(|(_, target)| target.map(|(_, port)| port)).collect::<Option<Vec<u16>>>()
    else {
        return Ok(vec![format!(
            "gateway {:?} of cluster {:?} has no Endpoint with an address",
            here.node, local.name
        )]);
    };
    let run = Run::random(&mut OsRng);
    let watching = local.agents.watch(&here.node, &WatchRequest { run, seconds: 60, ports }).await?;
    let numbered = (1..).zip(&ways);
    let sent = numbered.clone().filter_map(|(number, (there, target))| {
        let (address, port) = (*target)?;
        let probe = SendRequest { transport: Transport::Udp, port, ..request(run, number, address) };
        Some(async move { remote.agents.send(&there.node, &probe).await })
    });
    try_join_all(sent).await?;
    tokio::time::sleep(SETTLE).await;
    let seen = watching.stop();
    let has_arrived = |number: u16| {
        seen.sights.iter().any(|sight| {
            sight.seen.probe == number && sight.way == Direction::In && sight.seen.carrier.is_none()
        })
    };
    let lost = numbered.filter(|(number, _)| !has_arrived(*number));
    Ok(lost
        .filter_map(|(_, (there, target))| {
            let (address, port) = (*target)?;
            Some(format!(
                "UDP/{port} traffic from node {:?} to {address} does not arrive. Please check that your firewall \
                 configuration allows UDP/{port} traffic on the {:?} node",
                there.node, here.node
            ))
        })
        .collect())
}

/// Returns the address that the remote gateway uses towards the local one, and the port.
fn target(near: &Cluster, far: &Cluster, which: Port) -> Option<(IpAddr, u16)> {
    let is_here = |endpoint: &&EndpointSpec| Some(endpoint.hostname.as_str()) == far.far_gateway.as_deref();
    let connection = far.connection(&near.id).filter(|connection| is_here(&&connection.endpoint));
    // A gateway whose Endpoint cannot be read is known by what the other side says of it.
    let endpoint = near
        .endpoint()
        .filter(is_here)
        .or_else(|| connection.map(|connection| &connection.endpoint))
        .or_else(|| near.endpoint().filter(|_| near.active_gateways.len() < 2))?;
    let using = connection.and_then(|connection| connection.using_ip.parse().ok());
    let address = using.or_else(|| {
        let plain = if endpoint.nat_enabled { endpoint.public_address() } else { endpoint.private_address() };
        plain.parse().ok()
    })?;
    let (key, usual) = which.key();
    Some((address, endpoint.backend_config.get(key).and_then(|port| port.parse().ok()).unwrap_or(usual)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::node::Sighting;
    use crate::node::wire::{Carrier, Seen, What};
    use jiff::Timestamp;

    fn sight(device: &str, is_carried: bool) -> WatchReport {
        let (source, destination) = ([10, 0, 0, 1].into(), [10, 2, 0, 1].into());
        let carrier = is_carried.then_some(Carrier { source, destination });
        let seen = Seen {
            probe: 3,
            number: Some(1),
            source,
            destination,
            ttl: 1,
            length: 120,
            what: What::EchoRequest,
            carrier,
        };
        let sight =
            Sighting { time: Timestamp::UNIX_EPOCH, device: device.to_owned(), way: Direction::In, seen };
        WatchReport { sights: vec![sight], ..WatchReport::default() }
    }

    #[test]
    fn a_worker_is_judged_by_how_far_its_probe_came() {
        assert_eq!(judge_worker(&[("gw1", sight(VX_DEVICE, false))], 3, "w1").0, Outcome::Success);
        let (outcome, text) = judge_worker(&[("gw1", sight("eth0", true))], 3, "w1");
        assert!(outcome == Outcome::Failure && text.contains("dropped there"), "{text}");
        let (outcome, text) = judge_worker(&[("gw1", sight(VX_DEVICE, false))], 4, "w2");
        assert!(outcome == Outcome::Failure && text.contains("UDP/4800"), "{text}");
    }
}
