//! `./dev demo`: two clusters join through an encrypted cable, and every claim is shown rather than stated.

mod clusters;
mod discovery;
mod globalnet;
mod macvlan;
mod ovn;
pub mod screen;
mod several;

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use anyhow::Context;
use trieste_control::admin::{GatewayStatus, XdpWorker};

use crate::capture::{Cable as Form, Capture};
use crate::cluster::{Cluster, Settings};
use crate::command::Run;
use crate::interrupt;
use crate::lab::Lab;
use crate::netns::Namespace;
use crate::pair;
use crate::programs;
use crate::registry;
use crate::topology::{Plan, PodPlan, Topology};
use crate::traffic::{self, Responder};
use crate::wait::eventually;

pub use clusters::things_to_try;
use screen::Screen;

/// What the pods say to each other: easy to find on a wire that is not encrypted.
const MARKER: &[u8] = b"the-harbour-of-trieste-is-windy-today";
const CONNECT_TIMEOUT: Duration = Duration::from_secs(30);
const TRAFFIC_TIMEOUT: Duration = Duration::from_secs(10);
const IPERF_SECONDS: u32 = 3;

/// How to run the demo.
#[derive(Debug, Clone, clap::Args)]
pub struct Options {
    /// Leave everything up at the end, and print what to try and how to remove it.
    #[arg(long)]
    pub keep: bool,
    /// Real Kubernetes clusters, installed by the commands that users type.
    #[arg(long)]
    pub kubernetes: bool,
    /// With --kubernetes: installed by the operator's pods, which a Fabric resource in each cluster is for.
    #[arg(long, requires = "kubernetes")]
    pub operator: bool,
    /// Clusters whose pods and services have the same addresses, known to each other by global ones.
    #[arg(long, conflicts_with = "kubernetes")]
    pub globalnet: bool,
    /// Services of two clusters by name and by one address for the whole set, from a third; one cluster is cut off.
    #[arg(long, conflicts_with_all = ["kubernetes", "globalnet"])]
    pub discovery: bool,
    /// A network plugin for one of the clusters: `ovn` puts its pods behind a real OVN, as OVN-Kubernetes does; `macvlan` gives
    /// them a macvlan device beside the first one, as Spiderpool does.
    #[arg(long, value_parser = ["ovn", "macvlan"], conflicts_with_all = ["kubernetes", "globalnet", "discovery"])]
    pub plugin: Option<String>,
    /// Gateways of each cluster, all of them active: one is killed and one drained under traffic.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..=4),
        conflicts_with_all = ["kubernetes", "globalnet", "discovery", "plugin"])]
    pub gateways: u8,
    /// Nodes of each cluster without a gateway.
    #[arg(long, default_value_t = 0, value_parser = clap::value_parser!(u8).range(0..=4),
        conflicts_with_all = ["kubernetes", "globalnet", "discovery", "plugin"])]
    pub workers: u8,
    /// The cable between the clusters.
    #[arg(long, value_parser = ["wireguard", "ipsec", "vxlan"], default_value = "wireguard")]
    pub cable: String,
    /// How packets between the clusters cross the gateways' kernel: through its stack, past it by AF_XDP, or past it where nothing
    /// is copied, which is nowhere here.
    #[arg(long, value_parser = ["sockets", "af-xdp", "auto"], default_value = "sockets",
        conflicts_with_all = ["kubernetes", "globalnet", "discovery", "plugin"])]
    pub io: String,
}

impl Options {
    /// Whether the cable keeps what it carries from those on the way.
    fn encrypts(&self) -> bool {
        self.form().0 != Form::Vxlan
    }

    /// What the cable is on the wire.
    fn form(&self) -> (Form, &'static str) {
        match self.cable.as_str() {
            "ipsec" => (Form::Ipsec, "an ESP packet or an IKE message"),
            "vxlan" => (Form::Vxlan, "a VXLAN frame"),
            _ => (Form::WireGuard, "a WireGuard message"),
        }
    }
}

/// Runs the demo from beginning to end.
///
/// # Errors
/// The first step that fails; the lab is gone then, unless it was to be kept.
pub fn run(options: &Options) -> anyhow::Result<()> {
    let screen = Screen::default();
    for program in
        ["trieste-gateway", "trieste-routeagent", "trieste-discovery", "trieste-plugin-sync", "trieste"]
    {
        programs::path(program)?;
    }
    remove_crashed(&screen)?;

    let lab = Lab::new()?;
    let run = match options {
        Options { kubernetes: true, .. } => clusters::run_in,
        Options { globalnet: true, .. } => globalnet::run_in,
        Options { discovery: true, .. } => discovery::run_in,
        Options { plugin: Some(plugin), .. } if plugin == "macvlan" => macvlan::run_in,
        Options { plugin: Some(_), .. } => ovn::run_in,
        Options { gateways: 2.., .. } => several::run_in,
        Options { .. } => run_in,
    };
    let result = run(&lab, &screen, options);
    if let Err(error) = &result
        && !interrupt::is_interrupted()
    {
        // Before the logs, which are long.
        eprintln!("failed: {error:#}");
        lab.show_logs();
    }
    result
}

fn run_in(lab: &Lab, screen: &Screen, options: &Options) -> anyhow::Result<()> {
    let kind = if options.encrypts() { "one encrypted cable" } else { "one cable WITHOUT encryption" };
    screen.heading(&format!("Two clusters, {kind} (lab {})", lab.id()));
    let plan = screen.step_with("network namespaces: a WAN, two gateway nodes, four pods", || {
        let plan = lab.build(&Topology::two_clusters())?;
        Ok((plan.clusters.iter().map(describe).collect(), plan))
    })?;
    let (east, west) = start(screen, lab, &plan, options)?;

    screen.heading("Traffic from pod to pod");
    show_traffic(screen, lab, &plan, options)?;
    screen.heading("Throughput (iperf3, one TCP stream)");
    show_throughput(screen, lab, &plan, options)?;
    screen.heading("What each gateway says");
    screen.step("both gateways have judged their connection (they do so every ten seconds)", || {
        for cluster in [&east, &west] {
            cluster.wait_connected(1, CONNECT_TIMEOUT)?;
        }
        Ok(vec![])
    })?;
    for cluster in [&east, &west] {
        let words = ["show", "all"];
        screen.line(&format!("$ trieste show all --socket {}", cluster.socket().display()));
        screen.quote(&cluster.trieste(&words)?.stdout()?);
    }
    if options.io != "sockets" {
        screen.heading("Past the kernel's stack: how outer packets crossed it");
        for (name, cluster) in [("east", &east), ("west", &west)] {
            screen.step(&format!("{name}'s gateway: where outer packets leave the kernel"), || {
                shown_rings(&cluster.status()?, &options.io)
            })?;
        }
    }
    screen.heading("Inside east's gateway: packets as they left the cable");
    show_capture(screen, &plan, &east)?;

    if options.keep {
        lab.keep()?;
        screen.heading("Left up. Things to try:");
        for line in suggestions(lab, &plan, &east)? {
            screen.line(&line);
        }
        return Ok(());
    }
    end(lab, screen, "everything removed again", (east, west))
}

/// Describes where a gateway's outer packets have left the kernel.
///
/// # Errors
/// AF_XDP was chosen, and nothing has come or gone by its rings.
fn shown_rings(status: &GatewayStatus, io: &str) -> anyhow::Result<Vec<String>> {
    let xdp = status.xdp.as_ref().context("the gateway has no AF_XDP")?;
    let mut lines =
        vec![format!("{} by {}", if xdp.interface.is_empty() { "-" } else { &xdp.interface }, xdp.mode)];
    lines.extend(xdp.steps.iter().map(|step| format!("no {}: {}", step.mode, step.reason)));
    let sum = |count: fn(&XdpWorker) -> u64| xdp.workers.iter().map(count).sum::<u64>();
    let received = sum(|worker| worker.received_in_place + worker.received_copied);
    let sent = sum(|worker| worker.sent_in_place + worker.sent_copied);
    let by_sockets = sum(|worker| worker.by_sockets.values().sum());
    anyhow::ensure!(
        io != "af-xdp" || (received > 0 && sent > 0),
        "{received} received and {sent} sent by the rings"
    );
    if !xdp.workers.is_empty() {
        lines.push(format!(
            "{received} datagrams received and {sent} sent by the rings, {by_sockets} sent by sockets"
        ));
    }
    Ok(lines)
}

/// Ends who still works in the lab, removes it and says so.
fn end(lab: &Lab, screen: &Screen, step: &str, who: impl Sized) -> anyhow::Result<()> {
    let removed = screen.step_with(step, || {
        drop(who);
        Ok((vec![], lab.clone().remove()?))
    })?;
    screen.heading(&format!(
        "Done in {:.0} s; {} namespaces removed, nothing left behind.",
        screen.elapsed_seconds(),
        removed.namespaces
    ));
    Ok(())
}

/// Sends to a pod or service until the first answer; returns the address that it saw.
fn seen_by(from: &Namespace, to: SocketAddr) -> anyhow::Result<IpAddr> {
    let send = || traffic::send_tcp(from, to, MARKER, TRAFFIC_TIMEOUT);
    let receipt = eventually("an answer", pair::CONNECT_TIMEOUT, send)?;
    receipt.check(MARKER)?;
    Ok(receipt.seen_as.ip())
}

fn remove_crashed(screen: &Screen) -> anyhow::Result<()> {
    for claim in registry::abandoned()?.into_iter().filter(|claim| !claim.record().kept) {
        let id = claim.record().id.clone();
        let removed = claim.remove()?;
        screen.line(&format!(
            "removed lab {id} of a run that crashed: {} processes, {} namespaces",
            removed.processes, removed.namespaces
        ));
    }
    Ok(())
}

fn describe(cluster: &crate::topology::ClusterPlan) -> String {
    let pods: Vec<_> = cluster.pod_cidrs.iter().map(ToString::to_string).collect();
    format!("{:<5} gateway {:<11} pods {}", cluster.id, cluster.gateway().underlay_address(), pods.join(", "))
}

fn start(screen: &Screen, lab: &Lab, plan: &Plan, options: &Options) -> anyhow::Result<(Cluster, Cluster)> {
    let mut settings = Settings::of(lab);
    settings.extra.push(format!("cable-driver: {}", options.cable));
    settings.extra.push(format!("io: {}", options.io));
    let start_one = |id: &str| Cluster::start(lab, plan.cluster(id), &settings);
    let clusters =
        screen.step_with("trieste-gateway and trieste-routeagent started in each cluster", || {
            let clusters = (start_one("east")?, start_one("west")?);
            Ok((vec!["they know of each other only through the broker, a directory".to_owned()], clusters))
        })?;
    screen.step("the clusters find each other and shake hands", || {
        let mut lines = Vec::new();
        for cluster in [&clusters.0, &clusters.1] {
            let status = cluster.wait_handshakes(1, CONNECT_TIMEOUT)?;
            for cable in &status.connections {
                lines.push(format!(
                    "{} → {}: {} to {}",
                    status.cluster,
                    cable.connection.endpoint.cluster_id,
                    cable.connection.endpoint.backend,
                    cable.lane.outer_address.map_or_else(|| "?".to_owned(), |address| address.to_string()),
                ));
            }
        }
        Ok(lines)
    })?;
    Ok(clusters)
}

fn show_traffic(screen: &Screen, lab: &Lab, plan: &Plan, options: &Options) -> anyhow::Result<()> {
    let (cable, name) = options.form();
    let (east, west) = (plan.cluster("east").pod(0), plan.cluster("west").pod(0));
    let wire = Capture::start(lab, &plan.wan, "br0", "")?;
    for (from, to) in [(east, west), (west, east)] {
        screen.step(&format!("ping {} → {}", from.name, to.name), || {
            to.ips().into_iter().map(|address| ping(from, address)).collect()
        })?;
    }
    let responder = Responder::start(&west.namespace)?;
    screen.step(&format!("TCP {} → {}, 4 MiB each", east.name, west.name), || {
        let bytes = MARKER.repeat((4 << 20) / MARKER.len());
        west.ips()
            .into_iter()
            .map(|address| tcp(east, SocketAddr::new(address, responder.port()), &bytes))
            .collect()
    })?;
    screen.step(&format!("UDP {} → {}, 1200 bytes each", east.name, west.name), || {
        let bytes = MARKER.repeat(1200 / MARKER.len());
        west.ips()
            .into_iter()
            .map(|address| udp(east, SocketAddr::new(address, responder.port()), &bytes))
            .collect()
    })?;
    screen.step("meanwhile on the wire between the clusters (tcpdump on the WAN bridge)", || {
        let frames = wire.finish()?;
        let kinds = frames.kinds_with(cable, 4500);
        let leaked = frames.count_with(&MARKER[..16]);
        anyhow::ensure!(
            kinds.others.is_empty() && (leaked == 0) == options.encrypts(),
            "{leaked} frames hold what the pods said; {kinds}"
        );
        let said = String::from_utf8_lossy(MARKER);
        Ok(vec![
            format!("{} frames, {:.1} MB, every one {name}", kinds.cable, frames.wire_bytes as f64 / 1e6),
            format!("(and {} of ARP and neighbour discovery between the nodes)", kinds.neighbours),
            if options.encrypts() {
                format!("what the pods said (\"{said}\") is in none of them")
            } else {
                format!(
                    "what the pods said (\"{said}\") is for EVERYBODY on the way to read, in {leaked} of them"
                )
            },
        ])
    })
}

fn ping(from: &PodPlan, to: IpAddr) -> anyhow::Result<String> {
    let ping = traffic::ping(&from.namespace, to, 5, &[])?;
    anyhow::ensure!(ping.received == ping.sent, "{to}: {} of {} answered", ping.received, ping.sent);
    let average = ping.average_ms.unwrap_or_default();
    Ok(format!("{to:<15} {} of {} answered, {average:.2} ms on average", ping.received, ping.sent))
}

fn tcp(from: &PodPlan, to: SocketAddr, bytes: &[u8]) -> anyhow::Result<String> {
    let receipt = traffic::send_tcp(&from.namespace, to, bytes, TRAFFIC_TIMEOUT)?;
    receipt.check(bytes)?;
    Ok(format!(
        "{} bytes arrived unchanged, and the server saw them come from {}",
        receipt.bytes,
        receipt.seen_as.ip()
    ))
}

fn udp(from: &PodPlan, to: SocketAddr, bytes: &[u8]) -> anyhow::Result<String> {
    let receipt = traffic::send_udp(&from.namespace, to, bytes, TRAFFIC_TIMEOUT)?;
    receipt.check(bytes)?;
    Ok(format!(
        "{} bytes arrived unchanged, and the server saw them come from {}",
        receipt.bytes,
        receipt.seen_as.ip()
    ))
}

fn show_throughput(screen: &Screen, lab: &Lab, plan: &Plan, options: &Options) -> anyhow::Result<()> {
    let (east, west) = (plan.cluster("east").pod(0), plan.cluster("west").pod(0));
    for (title, extra) in [("east → west", &[][..]), ("west → east", &["-R"][..])] {
        screen.step(title, || {
            let target = (&west.namespace, west.v4().context("the demo's pods have IPv4")?);
            let gbit_s = traffic::iperf3(lab, &east.namespace, target, IPERF_SECONDS, extra)?;
            let work =
                if options.encrypts() { "encrypted and decrypted" } else { "put into frames and taken out" };
            Ok(vec![format!("{gbit_s:.2} Gbit/s, {work} by two gateways on this machine")])
        })?;
    }
    Ok(())
}

fn show_capture(screen: &Screen, plan: &Plan, east: &Cluster) -> anyhow::Result<()> {
    let (from, to) = (plan.cluster("east").pod(1), plan.cluster("west").pod(1));
    let (trieste, socket) = (programs::path("trieste")?, east.socket());
    let command = "capture --point inner-rx,opened --proto icmp";
    screen.line(&format!("$ trieste {command} -w - | tcpdump -n -r -"));
    let pipeline = format!(
        "'{}' {command} --socket '{}' -w - | tcpdump -n -l -c 4 -r - 2>/dev/null",
        trieste.display(),
        socket.display()
    );
    let run = Run::new("sh").args(["-c", &pipeline]).timeout(Duration::from_secs(10));
    let target = to.v4().context("the demo's pods have IPv4")?;
    let (captured, pinged) = std::thread::scope(|scope| {
        let captured = scope.spawn(|| run.stdout());
        let pinged = traffic::ping(&from.namespace, target, 40, &[]);
        (captured.join().expect("running a command does not panic"), pinged)
    });
    pinged?;
    let captured = captured?;
    anyhow::ensure!(captured.lines().count() >= 4, "the capture shows too little:\n{captured}");
    screen.quote(&captured);
    Ok(())
}

fn suggestions(lab: &Lab, plan: &Plan, east: &Cluster) -> anyhow::Result<Vec<String>> {
    let (pod, target) = (plan.cluster("east").pod(0), plan.cluster("west").pod(0));
    let trieste = programs::path("trieste")?;
    let (trieste, socket) = (trieste.display(), east.socket());
    let socket = socket.display();
    let address = target.v4().context("the demo's pods have IPv4")?;
    Ok(vec![
        format!("ip netns exec {} ping {address}", pod.namespace.name()),
        format!("{trieste} show all --socket {socket}"),
        format!("{trieste} status --socket {socket}"),
        format!("{trieste} capture --socket {socket} -w - | tcpdump -n -r -"),
        format!("ip netns exec {} tcpdump -n -i br0      (the wire between the clusters)", plan.wan.name()),
        format!("tail -f {}/*.log", lab.directory().join("logs").display()),
        String::new(),
        "./dev clean      removes it all".to_owned(),
    ])
}
