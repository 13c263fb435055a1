//! Asks both clusters and the nodes of the way, and sends the probes.

use std::net::IpAddr;
use std::time::Duration;

use futures::future::join_all;
use trieste_control::steps::{Outcome, Steps};

use super::evidence::{Cluster, Evidence, Side, probe};
use super::read::read;
use super::request::PathRequest;
use crate::agents::{
    AgentError, AgentImage, Agents, KubeAgents, ProbePod, Sweep, Watching, probe_from_pod, sweep_probe_pods,
};
use crate::facts::FactError;
use crate::node::document::NodeReport;
use crate::node::token::Run;
use crate::node::{SendReport, SendRequest, Transport, WatchRequest};

/// Ours: how long nodes watch, in seconds; longer than all probes take.
const WATCH_SECONDS: u32 = 60;
/// Ours: how long an answer may take, in milliseconds.
const WAIT_MS: u32 = 1000;
/// Ours: the most that is waited for, on a path that is slow or busy.
const MOST_WAIT_MS: u32 = 5000;
/// Ours: until the last sights have come here.
const SETTLE: Duration = Duration::from_millis(700);
/// Lengths of pings that look for the path's size.
const SIZES: [u16; 14] = [600, 1000, 1200, 1280, 1340, 1380, 1400, 1420, 1440, 1460, 1480, 4000, 8000, 8800];

/// Gathers everything about a connection.
///
/// # Errors
/// When an API server refuses or fails for what nothing can be said without.
pub async fn gather(request: &PathRequest, steps: &mut dyn Steps) -> Result<Evidence, FactError> {
    let mut evidence = Evidence::default();
    steps.begin("Reading what both clusters know");
    read(request, &mut evidence).await?;
    steps.end(Outcome::Success);
    let source =
        KubeAgents::new(request.source_side.source.client.clone(), &request.source_side.source.namespace);
    let destination = request
        .destination_side
        .as_ref()
        .map(|side| KubeAgents::new(side.source.client.clone(), &side.source.namespace));
    let from_to = ends(&mut evidence);
    steps.begin("Asking the nodes on the way");
    let run = request.run;
    let watch = from_to.map(|_| WatchRequest { run, seconds: WATCH_SECONDS, ports: ports(&evidence) });
    let (near, far, pods) = futures::join!(
        before(Some(&source), &evidence.source, watch.as_ref()),
        before(destination.as_ref(), &evidence.destination, watch.as_ref()),
        async {
            match from_to {
                Some(_) if request.with_pods && !evidence.source.pod.host_network => {
                    place(request, &source, &evidence).await
                }
                Some(_) | None => None,
            }
        },
    );
    let near = keep_reports(&mut evidence.source, near);
    let far = keep_reports(&mut evidence.destination, far);
    steps.end(Outcome::Success);
    if from_to.is_none() {
        return Ok(evidence);
    }
    steps.begin("Sending probes, and watching them go by");
    send_all(&Plan { run, evidence: &evidence }, &source, destination.as_ref(), pods)
        .await
        .keep(&mut evidence);
    // What went by last is on its way here meanwhile.
    let (near_after, far_after, ()) = futures::join!(
        report(Some(&source), &evidence.source),
        report(destination.as_ref(), &evidence.destination),
        tokio::time::sleep(SETTLE),
    );
    for (cluster, reports, watches) in
        [(&mut evidence.source, near_after, near), (&mut evidence.destination, far_after, far)]
    {
        keep_after(cluster, reports);
        for (name, watching) in watches {
            keep(cluster, &mut evidence.notes, name, watching);
        }
    }
    steps.end(Outcome::Success);
    Ok(evidence)
}

/// Where probes go from and to, if there is something to probe.
fn ends(evidence: &mut Evidence) -> Option<(IpAddr, IpAddr)> {
    let from = evidence.source.pod.address?;
    // A service with a global IP is tried by that, whatever its pods' addresses are.
    let service = evidence.service_address().filter(|_| evidence.destination.is_global);
    let to = evidence.address(Side::Destination, Side::Source).or(service)?;
    if from.is_ipv4() != to.is_ipv4() {
        evidence.notes.push(format!("{from} and {to} are of two families: no probe was sent"));
        return None;
    }
    Some((from, to))
}

/// Takes away what a run that was given up has left behind.
pub async fn give_up(request: &PathRequest) {
    let side = &request.source_side.source;
    sweep_probe_pods(&side.client, &request.source.namespace, Sweep::Of(request.run)).await;
}

fn on_the_way(cluster: &Cluster) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    for name in cluster.worker.as_deref().into_iter().chain(cluster.gateway_names()) {
        if !names.iter().any(|known| known == name) {
            names.push(name.to_owned());
        }
    }
    names
}

type Reported = Result<NodeReport, AgentError>;
type Watched = Result<Watching, AgentError>;

/// Asks the nodes; none of a cluster without agents.
async fn report<A: Agents>(agents: Option<&A>, cluster: &Cluster) -> Vec<(String, Reported)> {
    let Some(agents) = agents else { return Vec::new() };
    let names = on_the_way(cluster);
    let reports = join_all(names.iter().map(|name| agents.report(name))).await;
    names.into_iter().zip(reports).collect()
}

/// Asks the nodes, and has them watch from then on; none of a cluster without agents.
async fn before<A: Agents>(
    agents: Option<&A>,
    cluster: &Cluster,
    watch: Option<&WatchRequest>,
) -> Vec<(String, Reported, Option<Watched>)> {
    let Some(agents) = agents else { return Vec::new() };
    let asked = on_the_way(cluster).into_iter().map(async |name| {
        let watching = async {
            match watch {
                Some(request) => Some(agents.watch(&name, request).await),
                None => None,
            }
        };
        let (report, watching) = futures::join!(agents.report(&name), watching);
        (name, report, watching)
    });
    join_all(asked).await
}

fn keep_reports(
    cluster: &mut Cluster,
    asked: Vec<(String, Reported, Option<Watched>)>,
) -> Vec<(String, Watched)> {
    let mut watches = Vec::new();
    for (name, report, watching) in asked {
        let node = cluster.nodes.entry(name.clone()).or_default();
        match report {
            Ok(report) => node.before = Some(report),
            Err(error) => node.problem = Some(error),
        }
        watches.extend(watching.map(|watching| (name, watching)));
    }
    watches
}

fn keep_after(cluster: &mut Cluster, reports: Vec<(String, Reported)>) {
    for (name, report) in reports {
        let node = cluster.nodes.entry(name).or_default();
        match report {
            Ok(report) => node.after = Some(report),
            Err(error) => node.problem = Some(error),
        }
    }
}

/// Sends all probes while both sides' nodes watch.
async fn send_all<A: Agents>(
    plan: &Plan<'_>,
    source: &A,
    destination: Option<&A>,
    pods: Option<Pods>,
) -> Results {
    let from_pod = async {
        match &pods {
            Some(pods) => futures::join!(pods.ping(plan), pods.service(plan)),
            None => (None, plan.service(source).await),
        }
    };
    let (mut sent, (ping, service)) = futures::join!(plan.walk(source, destination), from_pod);
    sent.extend(ping.map(|result| (probe::POD, result)));
    sent.extend(service.map(|result| (probe::SERVICE, result)));
    Results(sent)
}

/// What became of all probes.
struct Results(Vec<(u16, Sent)>);

impl Results {
    fn keep(self, evidence: &mut Evidence) {
        evidence.probes.extend(self.0);
        if evidence.source.pod.host_network {
            // What the kernel chose.
            let chosen = evidence.probe(probe::PING).and_then(|report| report.source);
            evidence.source.pod.address = chosen.or(evidence.source.pod.address);
        }
        for (number, result) in &evidence.probes {
            if let Err(why) = result {
                let note = format!("probe {number} was not sent: {why}");
                if !evidence.notes.contains(&note) {
                    evidence.notes.push(note);
                }
            }
        }
    }
}

fn keep(cluster: &mut Cluster, notes: &mut Vec<String>, name: String, watching: Watched) {
    let node = cluster.nodes.entry(name).or_default();
    match watching {
        Ok(watching) => node.watch = Some(watching.stop()),
        Err(error) => {
            notes.push(error.to_string());
            node.problem = Some(error);
        }
    }
}

/// Ports of cables and of NAT discovery of both.
fn ports(evidence: &Evidence) -> Vec<u16> {
    let mut ports = vec![4500, 4490];
    for endpoint in evidence.source.endpoints.iter().chain(&evidence.destination.endpoints) {
        let named = ["udp-port", "natt-discovery-port"].into_iter();
        ports.extend(named.filter_map(|key| endpoint.backend_config.get(key)?.parse::<u16>().ok()));
    }
    ports.sort_unstable();
    ports.dedup();
    ports.truncate(12);
    ports
}

/// Returns how long answers are waited for, in milliseconds, on a path whose slowest round trip is known in microseconds.
fn patience(trip_us: u64) -> u32 {
    let some_trips = u32::try_from(trip_us.saturating_mul(4) / 1000).unwrap_or(u32::MAX);
    some_trips.clamp(WAIT_MS, MOST_WAIT_MS)
}

/// What is sent.
struct Plan<'a> {
    run: Run,
    evidence: &'a Evidence,
}

type Sent = Result<SendReport, String>;

impl Plan<'_> {
    fn request(&self, number: u16, to: IpAddr) -> SendRequest {
        SendRequest {
            run: self.run,
            probe: number,
            destination: to,
            source: None,
            transport: Transport::Icmp,
            port: 0,
            sizes: vec![100; 3],
            wait_ms: WAIT_MS,
            plain: false,
        }
    }

    fn to_service(&self) -> Option<SendRequest> {
        let port = self.evidence.service.as_ref()?.port?;
        let request = self.request(probe::SERVICE, self.evidence.service_address()?);
        Some(SendRequest { transport: Transport::Tcp, port, wait_ms: 5000, ..request })
    }

    /// Connects to the service from the source's node: as its pod does if that has the node's network, and the best that
    /// can be had where no pod may be made.
    async fn service<A: Agents>(&self, agents: &A) -> Option<Sent> {
        let (worker, request) = (self.evidence.source.worker.as_ref()?, self.to_service()?);
        Some(agents.send(worker, &request).await.map_err(|error| error.to_string()))
    }

    /// All probes that nodes send.
    async fn walk<A: Agents>(&self, source: &A, destination: Option<&A>) -> Vec<(u16, Sent)> {
        let there = self.between_gateways(source, Side::Source);
        let back = async {
            match destination {
                Some(agents) => self.between_gateways(agents, Side::Destination).await,
                None => Vec::new(),
            }
        };
        let (mut sent, there, back) = futures::join!(self.pings(source), there, back);
        sent.extend(there);
        sent.extend(back);
        sent
    }

    /// In the source pod's name: small ones, then growing ones if the small ones pass.
    async fn pings<A: Agents>(&self, agents: &A) -> Vec<(u16, Sent)> {
        let source = &self.evidence.source;
        let (Some(worker), Some(to)) =
            (&source.worker, self.evidence.address(Side::Destination, Side::Source))
        else {
            return Vec::new();
        };
        // A pod with its node's network has the kernel choose the source, as for all that the node sends.
        let address = source.pod.address.filter(|_| !source.pod.host_network);
        let ping = SendRequest { source: address, ..self.request(probe::PING, to) };
        let pinged = self.ping(agents, worker, &ping).await;
        let passes = pinged.as_ref().is_ok_and(|report| report.answered() > 0);
        let mut sent = Vec::new();
        if passes {
            let trips = pinged.iter().flat_map(|report| &report.sent).filter_map(|packet| packet.answered_us);
            let wait_ms = patience(trips.max().unwrap_or(0));
            let sizes = SendRequest { sizes: self.sizes(), probe: probe::SIZES, wait_ms, ..ping };
            let sized = agents.send(worker, &sizes).await.map_err(|error| error.to_string());
            sent.push((probe::SIZES, self.again(agents, worker, &sizes, sized).await));
        }
        sent.push((probe::PING, pinged));
        sent
    }

    /// Sends small ones, and once more if none was answered: they leave within a moment, and one in which gateways take over
    /// from each other takes them all.
    ///
    /// It is the same flow, which takes a way that stays broken again. Of what is sent then only the packets with new numbers
    /// are kept: a late answer to the first ones is none to these.
    async fn ping<A: Agents>(&self, agents: &A, worker: &str, request: &SendRequest) -> Sent {
        let mut report = agents.send(worker, request).await.map_err(|error| error.to_string())?;
        if report.answered() > 0 {
            return Ok(report);
        }
        let again = SendRequest { sizes: request.sizes.repeat(2), ..request.clone() };
        if let Ok(again) = agents.send(worker, &again).await {
            report.sent.extend(again.sent.into_iter().skip(request.sizes.len()));
        }
        Ok(report)
    }

    /// Sends once more what was lost: of a path that is only busy some of it passes, of one that is too small none.
    async fn again<A: Agents>(&self, agents: &A, worker: &str, request: &SendRequest, sized: Sent) -> Sent {
        let mut report = sized?;
        let lost = report.lost_sizes();
        if lost.is_empty() {
            return Ok(report);
        }
        let again = SendRequest {
            probe: probe::SIZES_REPEATED,
            sizes: lost.into_iter().flat_map(|size| [size, size]).collect(),
            ..request.clone()
        };
        if let Ok(again) = agents.send(worker, &again).await {
            report.take_answers(&again);
        }
        Ok(report)
    }

    /// Each size twice, up to what the node's default device takes.
    fn sizes(&self) -> Vec<u16> {
        let report = self.evidence.source.worker().and_then(|node| node.before.as_ref());
        let mtu =
            report.and_then(|report| report.link(report.default_device()?)).map_or(1500, |link| link.mtu);
        let mtu = u16::try_from(mtu).unwrap_or(u16::MAX);
        let sizes = SIZES.into_iter().filter(|size| *size < mtu).chain([mtu]);
        sizes.flat_map(|size| [size, size]).collect()
    }

    async fn between_gateways<A: Agents>(&self, agents: &A, side: Side) -> Vec<(u16, Sent)> {
        let (own, other) = (self.evidence.side(side), self.evidence.side(side.other()));
        let Some(gateway) = &own.gateway else { return Vec::new() };
        let numbers = match side {
            Side::Source => [probe::CABLE_THERE, probe::UNDERLAY_THERE, probe::DISCOVERY_THERE],
            Side::Destination => [probe::CABLE_BACK, probe::UNDERLAY_BACK, probe::DISCOVERY_BACK],
        };
        let Some((address, config)) = peer(own, other) else { return Vec::new() };
        let port =
            |key: &str, usual: u16| config.get(key).and_then(|port| port.parse().ok()).unwrap_or(usual);
        let [cable, underlay, discovery] = numbers;
        let udp = |number: u16, port: u16| SendRequest {
            transport: Transport::Udp,
            port,
            sizes: vec![120; 3],
            wait_ms: 500,
            ..self.request(number, address)
        };
        let mut requests =
            vec![(cable, udp(cable, port("udp-port", 4500))), (underlay, self.request(underlay, address))];
        let port = port("natt-discovery-port", 4490);
        if port != 0 {
            requests.push((discovery, udp(discovery, port)));
        }
        let sent = requests.iter().map(async |(number, request)| {
            (*number, agents.send(gateway, request).await.map_err(|error| error.to_string()))
        });
        join_all(sent).await
    }
}

/// A peer gateway's address as its cable uses it, and its settings.
fn peer<'a>(
    own: &'a Cluster,
    other: &'a Cluster,
) -> Option<(IpAddr, &'a std::collections::BTreeMap<String, String>)> {
    let endpoint = own.endpoint_of(&other.id).or_else(|| other.endpoint())?;
    let using = own.connection(&other.id).and_then(|connection| connection.using_ip.parse().ok());
    let address = using.or_else(|| endpoint.gateway_ip().parse().ok())?;
    Some((address, &endpoint.backend_config))
}

/// Where probe pods run.
pub(crate) struct Pods {
    client: kube::Client,
    place: ProbePod,
}

async fn place(request: &PathRequest, agents: &KubeAgents, evidence: &Evidence) -> Option<Pods> {
    let node = evidence.source.worker.clone()?;
    let client = request.source_side.source.client.clone();
    let namespace = &request.source.namespace;
    let (image, ()) = futures::join!(agents.image(&node), sweep_probe_pods(&client, namespace, Sweep::Stale));
    let AgentImage { name: image, pull_secrets } = image.ok()??;
    let place = ProbePod { namespace: namespace.clone(), node, image, pull_secrets };
    Some(Pods { client, place })
}

impl Pods {
    async fn ping(&self, plan: &Plan<'_>) -> Option<Sent> {
        let to = plan.evidence.address(Side::Destination, Side::Source)?;
        Some(self.send(&plan.request(probe::POD, to)).await)
    }

    async fn service(&self, plan: &Plan<'_>) -> Option<Sent> {
        Some(self.send(&plan.to_service()?).await)
    }

    async fn send(&self, request: &SendRequest) -> Sent {
        probe_from_pod(&self.client, &self.place, request).await.map_err(|error| error.to_string())
    }
}

#[cfg(test)]
mod tests;
