//! Asks both clusters and the nodes of the way, and sends the probes.

use std::net::IpAddr;
use std::time::Duration;

use futures::future::join_all;
use k8s_openapi::api::core::v1::{Pod, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::Api;
use kube::api::ListParams;
use rand_core::OsRng;
use trieste_control::steps::{Outcome, Steps};

use super::evidence::{Cluster, Evidence, PodFacts, ServiceFacts, Side, probe};
use crate::agents::{Agents, KubeAgents, ProbePod, probe_from_pod};
use crate::facts::{self, FactError, Found, Source, within};
use crate::node::token::Run;
use crate::node::{SendReport, SendRequest, Transport, WatchRequest};

/// Ours: how long nodes watch, in seconds; longer than all probes take.
const WATCH_SECONDS: u32 = 60;
/// Ours: how long an answer may take, in milliseconds.
const WAIT_MS: u32 = 1500;
/// Ours: until the last sights have come here.
const SETTLE: Duration = Duration::from_millis(700);
/// Lengths of pings that look for the path's size.
const SIZES: [u16; 14] = [600, 1000, 1200, 1280, 1340, 1380, 1400, 1420, 1440, 1460, 1480, 4000, 8000, 8800];

/// A namespace and a name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PodRef {
    /// The namespace.
    pub namespace: String,
    /// The name.
    pub name: String,
}

/// Where the connection goes to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Destination {
    /// A pod.
    Pod(PodRef),
    /// A service: its first endpoint that is ready.
    Service(PodRef),
    /// Whoever has an address.
    Address(IpAddr),
}

/// One side's API server.
#[derive(Clone)]
pub struct SideRequest {
    /// Where to ask.
    pub source: Source,
    /// The words that make `kubectl` talk to it, such as ` --context a`.
    pub kubectl: String,
}

/// Which connection.
#[derive(Clone)]
pub struct PathRequest {
    /// The pod that speaks first.
    pub source: PodRef,
    /// Where it goes to.
    pub destination: Destination,
    /// The cluster of the source.
    pub source_side: SideRequest,
    /// The cluster of the destination; absent if its API server cannot be asked.
    pub destination_side: Option<SideRequest>,
    /// Whether pods may be made to probe from.
    pub with_pods: bool,
}

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
    steps.begin("Asking the nodes on the way");
    report(&source, &mut evidence.source, Moment::Before).await;
    if let Some(agents) = &destination {
        report(agents, &mut evidence.destination, Moment::Before).await;
    }
    steps.end(Outcome::Success);
    let (Some(from), Some(to)) = (evidence.source.pod.address, evidence.destination.pod.address) else {
        return Ok(evidence);
    };
    if from.is_ipv4() != to.is_ipv4() {
        evidence.notes.push(format!("{from} and {to} are of two families: no probe was sent"));
        return Ok(evidence);
    }
    steps.begin("Sending probes, and watching them go by");
    let pods = if request.with_pods { place(request, &source, &evidence).await } else { None };
    probe_all(&source, destination.as_ref(), &mut evidence, pods).await;
    report(&source, &mut evidence.source, Moment::After).await;
    if let Some(agents) = &destination {
        report(agents, &mut evidence.destination, Moment::After).await;
    }
    steps.end(Outcome::Success);
    Ok(evidence)
}

/// Objects of both sides.
async fn read(request: &PathRequest, evidence: &mut Evidence) -> Result<(), FactError> {
    let near = &request.source_side;
    evidence.source = facts::cluster(&near.source, &near.kubectl, &mut evidence.notes).await?;
    let source_pod = near.source.pod(&request.source.namespace, &request.source.name).await?;
    set_pod(&near.source, &mut evidence.source, &request.source, source_pod, &mut evidence.notes).await;
    match &request.destination_side {
        Some(far) => {
            evidence.destination = facts::cluster(&far.source, &far.kubectl, &mut evidence.notes).await?;
            find_destination(far, &request.destination, evidence).await?;
        }
        None => {
            let text = "the destination's cluster is not looked at: name its context with --remotecontext";
            evidence.notes.push(text.to_owned());
            if let Destination::Address(address) = request.destination {
                evidence.destination.pod = of_address(address);
            }
            infer_destination(evidence);
        }
    }
    let keys = match &request.destination_side {
        Some(far) => futures::join!(near.source.preshared_key(), far.source.preshared_key()),
        None => (None, None),
    };
    evidence.same_preshared_key = match keys {
        (Some(one), Some(other)) => Some(one == other),
        (_, _) => None,
    };
    Ok(())
}

fn of_address(address: IpAddr) -> PodFacts {
    PodFacts { name: address.to_string(), address: Some(address), ..PodFacts::default() }
}

async fn set_pod(
    source: &Source,
    cluster: &mut Cluster,
    asked: &PodRef,
    pod: Option<Pod>,
    notes: &mut Vec<String>,
) {
    let Some(pod) = pod else {
        let name = format!("{}/{}", asked.namespace, asked.name);
        cluster.pod = PodFacts { name, missing: true, known: true, ..PodFacts::default() };
        return;
    };
    cluster.pod = facts::pod_facts(&pod);
    cluster.worker = pod.spec.as_ref().and_then(|spec| spec.node_name.clone());
    match source.policies(&pod).await {
        Ok(policies) => cluster.policies = policies,
        Err(error) => notes.push(error.to_string()),
    }
}

async fn find_destination(
    far: &SideRequest,
    asked: &Destination,
    evidence: &mut Evidence,
) -> Result<(), FactError> {
    match asked {
        Destination::Pod(name) => {
            let pod = far.source.pod(&name.namespace, &name.name).await?;
            set_pod(&far.source, &mut evidence.destination, name, pod, &mut evidence.notes).await;
        }
        Destination::Address(address) => match far.source.pod_at(*address).await? {
            Some(pod) => {
                let metadata = &pod.metadata;
                let name = PodRef {
                    namespace: metadata.namespace.clone().unwrap_or_default(),
                    name: metadata.name.clone().unwrap_or_default(),
                };
                set_pod(&far.source, &mut evidence.destination, &name, Some(pod), &mut evidence.notes).await;
            }
            None => evidence.destination.pod = of_address(*address),
        },
        Destination::Service(name) => find_service(far, name, evidence).await?,
    }
    Ok(())
}

async fn find_service(far: &SideRequest, asked: &PodRef, evidence: &mut Evidence) -> Result<(), FactError> {
    let name = format!("{}/{}", asked.namespace, asked.name);
    let client = far.source.client.clone();
    let services = Api::<Service>::namespaced(client.clone(), &asked.namespace);
    let Found::There(service) = within(&format!("service {name}"), services.get(&asked.name)).await? else {
        evidence.service =
            Some(ServiceFacts { name: name.clone(), missing: true, ..ServiceFacts::default() });
        evidence.destination.pod = PodFacts { name, ..PodFacts::default() };
        return Ok(());
    };
    let slices = Api::<EndpointSlice>::namespaced(client, &asked.namespace);
    let params = ListParams::default().labels(&format!("kubernetes.io/service-name={}", asked.name));
    let slices = match within("endpoint slices", slices.list(&params)).await? {
        Found::There(list) => list.items,
        Found::Missing => Vec::new(),
    };
    let endpoints = slices.iter().flat_map(|slice| slice.endpoints.iter());
    let is_ready = |endpoint: &k8s_openapi::api::discovery::v1::Endpoint| {
        endpoint.conditions.as_ref().and_then(|conditions| conditions.ready).unwrap_or(true)
    };
    let (ready, not_ready): (Vec<_>, Vec<_>) = endpoints.partition(|endpoint| is_ready(endpoint));
    let spec = service.spec.unwrap_or_default();
    let is_tcp = |port: &&k8s_openapi::api::core::v1::ServicePort| {
        port.protocol.as_deref().is_none_or(|protocol| protocol == "TCP")
    };
    let port = spec.ports.iter().flatten().find(is_tcp).and_then(|port| u16::try_from(port.port).ok());
    evidence.service = Some(ServiceFacts {
        name: name.clone(),
        missing: false,
        address: spec.cluster_ip.and_then(|address| address.parse().ok()),
        port,
        ready: ready.len(),
        not_ready: not_ready.len(),
    });
    evidence.destination.pod = PodFacts { name, ..PodFacts::default() };
    let first = ready.first().and_then(|endpoint| endpoint.addresses.first()?.parse::<IpAddr>().ok());
    if let Some(address) = first {
        match far.source.pod_at(address).await? {
            Some(pod) => {
                set_pod(&far.source, &mut evidence.destination, asked, Some(pod), &mut evidence.notes).await;
            }
            None => evidence.destination.pod = of_address(address),
        }
    }
    Ok(())
}

/// Who the destination belongs to, as far as the source's cluster knows.
fn infer_destination(evidence: &mut Evidence) {
    let Some(address) = evidence.destination.pod.address else { return };
    let has = |endpoint: &&trieste_control::api::EndpointSpec| {
        let subnets = endpoint.subnets.iter().filter_map(|net| net.parse::<ipnet::IpNet>().ok());
        subnets.into_iter().any(|net| net.contains(&address))
    };
    let holder = evidence.source.endpoints.iter().find(has).map(|endpoint| endpoint.cluster_id.clone());
    evidence.destination.id = holder.unwrap_or_default();
}

/// When a report is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Moment {
    Before,
    After,
}

fn on_the_way(cluster: &Cluster) -> Vec<String> {
    let mut names: Vec<String> = cluster.worker.iter().chain(&cluster.gateway).cloned().collect();
    names.dedup();
    names
}

async fn report<A: Agents>(agents: &A, cluster: &mut Cluster, moment: Moment) {
    let names = on_the_way(cluster);
    let reports = join_all(names.iter().map(|name| agents.report(name))).await;
    for (name, report) in names.into_iter().zip(reports) {
        let node = cluster.nodes.entry(name).or_default();
        match (report, moment) {
            (Ok(report), Moment::Before) => node.before = Some(report),
            (Ok(report), Moment::After) => node.after = Some(report),
            (Err(error), _) => node.problem = Some(error),
        }
    }
}

/// Sends all probes while both sides' nodes watch.
pub(crate) async fn probe_all<A: Agents>(
    source: &A,
    destination: Option<&A>,
    evidence: &mut Evidence,
    pods: Option<Pods>,
) {
    let run = Run::random(&mut OsRng);
    let ports = ports(evidence);
    let watch = WatchRequest { run, seconds: WATCH_SECONDS, ports };
    let near = watch_all(source, &evidence.source, &watch).await;
    let far = match destination {
        Some(agents) => watch_all(agents, &evidence.destination, &watch).await,
        None => Vec::new(),
    };
    let plan = Plan { run, evidence };
    let from_pod = async {
        match &pods {
            Some(pods) => futures::join!(pods.ping(&plan), pods.service(&plan)),
            None => (None, None),
        }
    };
    let (ways, (ping, service)) = futures::join!(plan.walk(source, destination), from_pod);
    evidence.probes.extend(ways);
    evidence.probes.extend(ping.map(|result| (probe::POD, result)));
    evidence.probes.extend(service.map(|result| (probe::SERVICE, result)));
    for (number, result) in &evidence.probes {
        if let Err(why) = result {
            let note = format!("probe {number} was not sent: {why}");
            if !evidence.notes.contains(&note) {
                evidence.notes.push(note);
            }
        }
    }
    tokio::time::sleep(SETTLE).await;
    for (name, watching) in near {
        keep(&mut evidence.source, &mut evidence.notes, name, watching);
    }
    for (name, watching) in far {
        keep(&mut evidence.destination, &mut evidence.notes, name, watching);
    }
}

type Watched = Result<crate::agents::Watching, crate::agents::AgentError>;

async fn watch_all<A: Agents>(
    agents: &A,
    cluster: &Cluster,
    request: &WatchRequest,
) -> Vec<(String, Watched)> {
    let names = on_the_way(cluster);
    let watching = join_all(names.iter().map(|name| agents.watch(name, request))).await;
    names.into_iter().zip(watching).collect()
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
        let (Some(worker), Some(to)) = (&source.worker, self.evidence.destination.pod.address) else {
            return Vec::new();
        };
        let ping = SendRequest { source: source.pod.address, ..self.request(probe::PING, to) };
        let pinged = agents.send(worker, &ping).await.map_err(|error| error.to_string());
        let passes = pinged.as_ref().is_ok_and(|report| report.answered() > 0);
        let mut sent = vec![(probe::PING, pinged)];
        if passes {
            let sizes = SendRequest { sizes: self.sizes(), probe: probe::SIZES, ..ping };
            sent.push((probe::SIZES, agents.send(worker, &sizes).await.map_err(|error| error.to_string())));
        }
        sent
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
    let image = agents.image(&node).await.ok()??;
    let place = ProbePod {
        namespace: request.source.namespace.clone(),
        node,
        image,
        host_network: evidence.source.pod.host_network,
    };
    Some(Pods { client: request.source_side.source.client.clone(), place })
}

impl Pods {
    async fn ping(&self, plan: &Plan<'_>) -> Option<Sent> {
        let to = plan.evidence.destination.pod.address?;
        Some(self.send(&plan.request(probe::POD, to)).await)
    }

    async fn service(&self, plan: &Plan<'_>) -> Option<Sent> {
        let service = plan.evidence.service.as_ref()?;
        let request = plan.request(probe::SERVICE, service.address?);
        let request =
            SendRequest { transport: Transport::Tcp, port: service.port?, wait_ms: 5000, ..request };
        Some(self.send(&request).await)
    }

    async fn send(&self, request: &SendRequest) -> Sent {
        probe_from_pod(&self.client, &self.place, request).await.map_err(|error| error.to_string())
    }
}
