//! `./dev demo --kubernetes`: two real clusters of two nodes, made a set by the commands that users type, and left as they
//! were.

mod left;
mod operator;

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use anyhow::Context;

use super::screen::Screen;
use super::{Options, end};
use crate::clusters::{
    Cluster, ClusterSet, ClusterShape, MEMBER, Node, Pod, PodShape, RELOADED, RESPONDER_PORT,
};
use crate::interrupt;
use crate::lab::Lab;
use crate::wait::eventually;

/// How long the first packet may take to find its way.
const FIRST_PACKET: Duration = Duration::from_secs(30);
/// The Service that is exported.
const NAME: &str = "web.shop.svc.clusterset.local";
/// Its namespace: each cluster has it, or there is no such name.
const SHOP: &str = "shop";
const PING_BYTES: usize = 56;
const TCP_BYTES: usize = 4 << 20;

/// What traffic goes between.
struct Actors {
    client: Pod,
    server: Pod,
    service: Vec<IpAddr>,
}

/// Runs it in a lab.
pub(super) fn run_in(lab: &Lab, screen: &Screen, options: &Options) -> anyhow::Result<()> {
    screen.heading(&format!("Two real Kubernetes clusters (lab {})", lab.id()));
    let title = "kubelet, containerd, kube-proxy and CoreDNS on two nodes each; our image";
    let set = screen.step_with(title, || {
        let set = ClusterSet::bare(lab, &ClusterShape::two())?;
        Ok((set.clusters.all().iter().map(describe).collect(), set))
    })?;
    let result = show(screen, &set, options);
    if result.is_err() && !interrupt::is_interrupted() {
        for cluster in set.clusters.all() {
            screen.quote(&cluster.explain());
        }
    }
    result?;
    if options.keep {
        return Ok(());
    }
    end(lab, screen, "the clusters removed again", set)
}

fn show(screen: &Screen, set: &ClusterSet, options: &Options) -> anyhow::Result<()> {
    let (east, west) = (set.clusters.cluster("east"), set.clusters.cluster("west"));
    let before = screen.step_with("what is on the nodes and in the API servers is noted", || {
        Ok((vec![], left::State::of(set)?))
    })?;
    if options.operator {
        operator::install(screen, set, options)?;
    } else {
        install(screen, set, options)?;
    }
    screen.step("all of our pods are ready", || {
        let mut names = Vec::new();
        for cluster in [east, west] {
            let pods = cluster.wait_pods(MEMBER, "")?;
            names.push(format!("{}: {} pods", cluster.name(), pods.len()));
        }
        Ok(names)
    })?;
    screen.heading("Traffic from a pod on a worker node to the other cluster");
    let actors = start_pods(screen, east, west)?;
    show_traffic(screen, &actors)?;
    names(screen, set, &actors)?;
    screen.heading("What the clusters say");
    screen.line("$ trieste show all --contexts east,west");
    let shown = set.trieste(east).args(["show", "all", "--contexts", "east,west"]).stdout()?;
    screen.quote(&shown);
    if options.operator {
        operator::edit(screen, west)?;
        operator::upgrade(screen, set, &actors)?;
    }
    if options.keep {
        east.lab().keep()?;
        screen.heading("Left up. Things to try:");
        for line in things_to_try(set, &actors.client, &actors.server, &actors.service) {
            screen.line(&line);
        }
        return Ok(());
    }
    delete_pods(screen, set)?;
    if options.operator {
        operator::uninstall(screen, set)?;
    } else {
        uninstall(screen, set)?;
    }
    screen.step("nodes and API servers are as they were", || {
        // Kubernetes deletes definitions and namespaces in its own time.
        eventually("the clusters to be as they were", FIRST_PACKET, || {
            before.compare(&left::State::of(set)?)
        })?;
        Ok(vec![before.summary()])
    })
}

fn install(screen: &Screen, set: &ClusterSet, options: &Options) -> anyhow::Result<()> {
    screen.heading("Installed as users install it");
    screen.step("east $ trieste deploy-broker", || Ok(lines(&set.deploy_broker_with_services()?)))?;
    for cluster in set.clusters.all() {
        let (name, driver) = (cluster.name(), &options.cable);
        let title = format!("{name} $ trieste join broker-info.subm --cable-driver {driver}");
        screen.step(&title, || Ok(lines(&set.join_over(cluster, driver)?)))?;
    }
    Ok(())
}

fn describe(cluster: &Cluster) -> String {
    let list = |nets: &[ipnet::IpNet]| nets.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
    format!(
        "{:<5} pods {:<29} services {:<33} kube-proxy on {}",
        cluster.name(),
        list(cluster.pod_nets()),
        list(cluster.service_nets()),
        cluster.proxy().as_str()
    )
}

/// What a command said when it was done with each of its steps.
fn lines(text: &str) -> Vec<String> {
    let is_begun = |line: &str| line.trim_start().starts_with('•');
    let told = text.lines().map(str::trim_end).filter(|line| !line.is_empty() && !is_begun(line));
    told.map(str::to_owned).collect()
}

/// A client on a node of east without a gateway, and a server on such a node of west behind a Service.
fn start_pods(screen: &Screen, east: &Cluster, west: &Cluster) -> anyhow::Result<Actors> {
    screen.step_with("a client in east, a server and a ClusterIP Service in west", || {
        for cluster in [east, west] {
            cluster.client().create_namespace(SHOP)?;
        }
        let client = east.start_pod(PodShape::on(worker(east)?, "client"))?;
        let server = west.start_pod(PodShape::on(worker(west)?, "server").in_namespace(SHOP))?;
        let service = west.start_service_in(SHOP, "web", "server")?;
        let pods = [&client, &server]
            .map(|pod| format!("{:<6} on {}: {}", pod.name, pod.node, list(&pod.addresses)));
        let mut lines = pods.to_vec();
        lines.push(format!("web    {}", list(&service)));
        Ok((lines, Actors { client, server, service }))
    })
}

fn worker(cluster: &Cluster) -> anyhow::Result<&Node> {
    let (_, workers) = cluster.gateways_and_workers()?;
    workers.first().copied().with_context(|| format!("every node of {} is a gateway", cluster.name()))
}

fn list(addresses: &[IpAddr]) -> String {
    addresses.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

fn show_traffic(screen: &Screen, actors: &Actors) -> anyhow::Result<()> {
    let Actors { client, server, service } = actors;
    screen.step("the first answer", || {
        for ip in &server.addresses {
            eventually(&format!("an answer from {ip}"), FIRST_PACKET, || client.ping(*ip, PING_BYTES))?;
        }
        Ok(vec![])
    })?;
    screen.step("ping client → server", || {
        let told = |ip: &IpAddr| {
            let ping = client.ping(*ip, PING_BYTES)?;
            let average = ping.average_ms.unwrap_or_default();
            Ok(format!("{ip:<15} {} of {} answered, {average:.2} ms on average", ping.received, ping.sent))
        };
        server.addresses.iter().map(told).collect()
    })?;
    screen.step("TCP client → server, 4 MiB each", || tcp(client, &server.addresses, RESPONDER_PORT))?;
    screen.step("TCP client → Service web, 4 MiB each", || tcp(client, service, 80))
}

fn tcp(client: &Pod, to: &[IpAddr], port: u16) -> anyhow::Result<Vec<String>> {
    let one = |ip: &IpAddr| {
        let receipt = client.tcp(SocketAddr::new(*ip, port), TCP_BYTES)?;
        let (seen, own) = (receipt.seen_as.ip(), client.address_like(*ip)?);
        anyhow::ensure!(seen == own, "{ip} saw the bytes come from {seen}, not from {own}");
        Ok(format!(
            "{ip:<15} {} bytes arrived unchanged, and the server saw them come from {seen}",
            receipt.bytes
        ))
    };
    to.iter().map(one).collect()
}

/// The Service by its name, in the other cluster; a name whose cluster is cut off has no answer.
fn names(screen: &Screen, set: &ClusterSet, actors: &Actors) -> anyhow::Result<()> {
    let (west, client) = (set.clusters.cluster("west"), &actors.client);
    screen.heading("The Service by its name");
    screen.step("west $ trieste export service web -n shop", || {
        set.export_in(SHOP, west, "export", "web")?;
        Ok(vec![])
    })?;
    let answered = |addresses: &[IpAddr], within: Duration| {
        client.wait_resolved(NAME, addresses, within)?;
        let shown = if addresses.is_empty() { "no address".to_owned() } else { list(addresses) };
        Ok(vec![format!("{NAME}: {shown}")])
    };
    let title = "client $ nslookup, once the cluster's CoreDNS has read its Corefile (up to two minutes)";
    screen.step(title, || answered(&actors.service, RELOADED))?;
    screen.step("client $ nc to the Service by its name", || {
        let output = client.exec(&["nc", "-w", "5", NAME, "80"])?;
        anyhow::ensure!(output.status.success(), "{}{}", output.stdout, output.stderr);
        Ok(vec!["connected".to_owned()])
    })?;
    let (gateways, _) = west.gateways_and_workers()?;
    let links = |state: &str| {
        gateways.iter().try_for_each(|node| {
            let run = set.clusters.fabric().run("ip").args(["link", "set", node.port().as_str(), state]);
            run.output()?.success().map(drop)
        })
    };
    links("down")?;
    let begun = std::time::Instant::now();
    screen.step("west is cut off: no answer is better than one that does not work", || {
        let mut lines = answered(&[], FIRST_PACKET)?;
        lines.push(format!("{:.1} s after the link went down", begun.elapsed().as_secs_f32()));
        Ok(lines)
    })?;
    links("up")?;
    screen.step("west is back", || answered(&actors.service, FIRST_PACKET * 2))
}

fn delete_pods(screen: &Screen, set: &ClusterSet) -> anyhow::Result<()> {
    screen.heading("Uninstalled");
    screen.step("our own pods and the Service are deleted", || {
        set.export_in(SHOP, set.clusters.cluster("west"), "unexport", "web")?;
        for cluster in set.clusters.all() {
            cluster.kubectl(&["delete", "pods", "--all", "--namespace", "default"])?.success()?;
            cluster.kubectl(&["delete", "namespace", SHOP])?.success()?;
        }
        Ok(vec![])
    })
}

/// West first: the cluster with the broker stays until nobody needs it.
fn uninstall(screen: &Screen, set: &ClusterSet) -> anyhow::Result<()> {
    for name in ["west", "east"] {
        let title = format!("{name} $ trieste uninstall --yes");
        screen.step(&title, || Ok(lines(&set.uninstall(set.clusters.cluster(name))?)))?;
    }
    Ok(())
}

/// Lines that can be typed once the demo is over and its clusters are left up; the first one is the way in.
pub fn things_to_try(set: &ClusterSet, client: &Pod, server: &Pod, service: &[IpAddr]) -> Vec<String> {
    let east = set.clusters.cluster("east");
    let inside = format!(
        "ip netns exec {} env HOME={} KUBECONFIG={}",
        set.clusters.fabric().name(),
        east.lab().directory().display(),
        set.clusters.kubeconfig().display()
    );
    let (kubectl, trieste) = (east.kubectl_path(), set.program());
    let (kubectl, trieste) = (kubectl.display(), trieste.display());
    let (server, client) = (server.addresses[0], &client.name);
    vec![
        "# a shell from which both clusters are reached, with the two programs".to_owned(),
        format!("{inside} bash"),
        format!("alias kubectl='{kubectl} kubectl' trieste='{trieste}'"),
        String::new(),
        "kubectl --context west get pods --all-namespaces -o wide".to_owned(),
        format!("kubectl exec {client} -- responder ask tcp {server}:{RESPONDER_PORT} 3000"),
        format!("kubectl exec {client} -- responder ask tcp {}:80 3000      # the Service", service[0]),
        "trieste show all --contexts east,west".to_owned(),
        "trieste diagnose all --contexts east,west".to_owned(),
        "trieste uninstall --context west".to_owned(),
        String::new(),
        "./dev clean      removes it all".to_owned(),
    ]
}
