//! Whether ports pass, by probes of our own that are seen to arrive.

use std::net::IpAddr;
use std::time::Duration;

use rand_core::OsRng;
use trieste_control::devices::VX_DEVICE;
use trieste_control::steps::{Outcome, Steps};

use super::{CheckError, Checked, SINGLE_NODE};
use crate::agents::Agents as _;
use crate::facts;
use crate::node::token::Run;
use crate::node::wire::VX_PORT;
use crate::node::{Direction, SendRequest, Transport, WatchReport, WatchRequest};
use crate::path::evidence::Cluster;

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
    let (Some(gateway), Some(target)) = (&cluster.gateway, remote_address(&cluster)) else {
        let why = if cluster.gateway.is_none() {
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
    let watching = checked.agents.watch(gateway, &watch).await?;
    let workers: Vec<&String> =
        cluster.nodes.keys().filter(|node| *node != gateway).take(MAX_WORKERS).collect();
    let numbered = (1..).zip(&workers);
    for (number, worker) in numbered.clone() {
        if let Err(error) = checked.agents.send(worker, &request(run, number, target)).await {
            steps.remark(Outcome::Failure, &error.to_string());
        }
    }
    tokio::time::sleep(SETTLE).await;
    let seen = watching.stop();
    for (number, worker) in numbered {
        let (outcome, text) = judge_worker(&seen, number, worker, gateway);
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
    let is_ovn = cluster.network_plugin == "OVNKubernetes";
    is_ovn.then(|| (Outcome::Success, "Skipping this check as OVNKubernetes needs no VXLAN".to_owned()))
}

/// Any address of another cluster, the health check's first.
fn remote_address(cluster: &Cluster) -> Option<IpAddr> {
    let remote = cluster.endpoints.iter().find(|endpoint| endpoint.cluster_id != cluster.id)?;
    let subnet =
        || remote.subnets.iter().find_map(|net| net.parse::<ipnet::IpNet>().ok()).map(|net| net.addr());
    remote.health_check_address().parse().ok().or_else(subnet)
}

fn judge_worker(seen: &WatchReport, probe: u16, worker: &str, gateway: &str) -> (Outcome, String) {
    let arrived = |is: &dyn Fn(&crate::node::Sighting) -> bool| {
        seen.sights.iter().any(|sight| sight.seen.probe == probe && sight.way == Direction::In && is(sight))
    };
    if arrived(&|sight| sight.device == VX_DEVICE) {
        return (
            Outcome::Success,
            format!("Traffic of node {worker:?} reaches the gateway node {gateway:?}"),
        );
    }
    if arrived(&|sight| sight.seen.carrier.is_some()) {
        let text = format!(
            "UDP/{VX_PORT} traffic of node {worker:?} arrives at the gateway node {gateway:?} and is dropped there. \
             Please check that its firewall configuration allows UDP/{VX_PORT} traffic"
        );
        return (Outcome::Failure, text);
    }
    let text = format!(
        "Traffic of node {worker:?} does not reach the gateway node {gateway:?}. Please check that your firewall \
         configuration allows UDP/{VX_PORT} traffic between nodes; `trieste diagnose path` from a pod on that node tells more"
    );
    (Outcome::Failure, text)
}

/// Whether a port of the local gateway is reached from the remote gateway's node.
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
    let problem = match (&near.gateway, &far.gateway, target(&near, &far, which)) {
        (None, _, _) => Some(format!("there is no active gateway in cluster {:?}", local.name)),
        (_, None, _) => Some(format!("there is no active gateway in cluster {:?}", remote.name)),
        (_, _, None) => Some(format!("cluster {:?} has no Endpoint with an address", local.name)),
        (Some(here), Some(there), Some((address, port))) => {
            let run = Run::random(&mut OsRng);
            let watch = WatchRequest { run, seconds: 60, ports: vec![port] };
            let watching = local.agents.watch(here, &watch).await?;
            let probe = SendRequest { transport: Transport::Udp, port, ..request(run, 1, address) };
            remote.agents.send(there, &probe).await?;
            tokio::time::sleep(SETTLE).await;
            let seen = watching.stop();
            let has_arrived =
                seen.sights.iter().any(|sight| sight.way == Direction::In && sight.seen.carrier.is_none());
            (!has_arrived).then(|| {
                format!(
                    "UDP/{port} traffic from node {there:?} to {address} does not arrive. Please check that your firewall \
                     configuration allows UDP/{port} traffic on the {here:?} node"
                )
            })
        }
    };
    if let Some(problem) = problem {
        steps.remark(Outcome::Failure, &problem);
    }
    steps.end(Outcome::Success);
    Ok(())
}

/// The address that the remote gateway uses towards the local one, and the port.
fn target(near: &Cluster, far: &Cluster, which: Port) -> Option<(IpAddr, u16)> {
    let endpoint = near.endpoint()?;
    let using = far.connection(&near.id).and_then(|connection| connection.using_ip.parse().ok());
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
        assert_eq!(judge_worker(&sight(VX_DEVICE, false), 3, "w1", "gw1").0, Outcome::Success);
        let (outcome, text) = judge_worker(&sight("eth0", true), 3, "w1", "gw1");
        assert!(outcome == Outcome::Failure && text.contains("dropped there"), "{text}");
        let (outcome, text) = judge_worker(&sight(VX_DEVICE, false), 4, "w2", "gw1");
        assert!(outcome == Outcome::Failure && text.contains("UDP/4800"), "{text}");
    }
}
