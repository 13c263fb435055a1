//! `./dev demo --discovery`: services of two clusters by name and by a clusterset IP from a third one, and what becomes of both
//! when a cluster is cut off. Directories stand for API servers, and one rule on a node for kube-proxy; all else is what runs in
//! a cluster.

use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use serde_json::{Value, json};

use super::screen::Screen;
use super::{Options, describe, end};
use crate::cluster::{BROKER_NAMESPACE, Cluster, NAMESPACE, Settings};
use crate::daemon::Daemon;
use crate::globalnet::Objects;
use crate::lab::Lab;
use crate::programs;
use crate::topology::{ClusterPlan, Plan, PodPlan, Topology};
use crate::traffic::{self, Responder};
use crate::wait::eventually;

const RANGE: &str = "243.0.0.0/8";
const BY_NAME: &str = "web.shop.svc.clusterset.local";
const BY_IP: &str = "api.shop.svc.clusterset.local";
const PATIENCE: Duration = Duration::from_secs(30);
const BYTES: &[u8] = b"what a client asks for";

/// A cluster, and the two programs of service discovery beside its gateway.
struct Site {
    cluster: Cluster,
    /// They end with the demo.
    _programs: [Daemon; 2],
}

/// A cluster that serves: its pod's server.
struct Served<'a> {
    plan: &'a ClusterPlan,
    responder: Responder,
}

/// Runs it in a lab.
pub(super) fn run_in(lab: &Lab, screen: &Screen, options: &Options) -> anyhow::Result<()> {
    screen.heading(&format!(
        "Three clusters, {} cables, service discovery (lab {})",
        options.cable,
        lab.id()
    ));
    let plan = screen.step_with("network namespaces: a WAN, three gateway nodes, six pods", || {
        let plan = lab.build(&topology())?;
        Ok((plan.clusters.iter().map(describe).collect(), plan))
    })?;
    let mut sites =
        screen.step_with("gateway, route agent, discovery agent and DNS server in each", || {
            let sites: Vec<Site> = plan
                .clusters
                .iter()
                .map(|cluster| Site::start(lab, cluster, options))
                .collect::<anyhow::Result<_>>()?;
            for site in &sites {
                site.cluster.wait_connected(2, PATIENCE)?;
            }
            Ok((vec!["they know of each other only through the broker, a directory".to_owned()], sites))
        })?;
    let client = Client { lab, plan: &plan, pod: plan.cluster("east").pod(0) };

    screen.heading("Services `web` and `api` of namespace `shop`, in west and in south");
    let served = screen.step_with("exported in both; `api` with a clusterset IP", || {
        let served = [serve(&plan, &sites[1])?, serve(&plan, &sites[2])?];
        Ok((served.iter().map(Served::describe).collect(), served))
    })?;
    let [west, south] = &served;
    screen.heading(&format!("{}, a pod of east", client.pod.name));
    screen.step(&format!("$ nslookup {BY_NAME}, four times"), || client.wait_answers(&[west, south]))?;
    let address = screen.step_with(&format!("$ nslookup {BY_IP}"), || {
        let address = eventually("a clusterset IP", PATIENCE, || Ok(client.ask(BY_IP)?[0]))?;
        Ok((vec![format!("{address}, in every cluster")], address))
    })?;
    screen.step(&format!("TCP to {address}, twenty connections"), || {
        client.wait_reached(address, &[west, south])
    })?;

    screen.heading("West's gateway is killed");
    sites[1].cluster.kill_gateway()?;
    screen.step("its name is answered no more", || client.wait_answers(&[south]))?;
    screen.step(&format!("and {address} leads to south alone"), || client.wait_reached(address, &[south]))?;
    screen.heading("West's gateway is started again");
    sites[1].cluster.start_gateway()?;
    screen.step("both are answered", || client.wait_answers(&[west, south]))?;
    screen.step(&format!("and reached at {address}"), || client.wait_reached(address, &[west, south]))?;

    if options.keep {
        lab.keep()?;
        screen.heading("Left up. Things to try:");
        for line in client.suggestions(address)? {
            screen.line(&line);
        }
        return Ok(());
    }
    drop(served);
    end(lab, screen, "everything removed again", sites)
}

fn topology() -> Topology {
    let mut topology = Topology::two_clusters();
    let mut south = topology.clusters[1].clone();
    (south.id, south.network) = ("south".to_owned(), 3);
    topology.clusters.push(south);
    topology
}

impl Site {
    fn start(lab: &Lab, plan: &ClusterPlan, options: &Options) -> anyhow::Result<Self> {
        let mut settings = Settings::of(lab);
        settings.extra.push(format!("cable-driver: {}", options.cable));
        settings.wrap = vec!["env".to_owned(), format!("TRIESTE_CLUSTERSET_IP_RANGE={RANGE}")];
        let cluster = Cluster::start(lab, plan, &settings)?;
        let broker = settings.broker.context("the demo has a broker")?;
        let store = format!("dir:{}", cluster.store().display());
        Objects::of(&cluster).namespace("shop")?;
        let program = programs::path("trieste-discovery")?.to_string_lossy().into_owned();
        let start = |verb: &str, arguments: &[&str]| {
            let run = plan.gateway().namespace.run(&program).arg(verb);
            let run = run.args(["--cluster-id", &plan.id, "--store", &store, "--namespace", NAMESPACE]);
            Daemon::start(lab, &format!("{}-discovery-{verb}", plan.id), &run.args(arguments))
        };
        let block = format!("243.0.{}.0/24", plan.number()?);
        let agent = start(
            "agent",
            &[
                "--broker",
                &format!("dir:{}", broker.display()),
                "--broker-namespace",
                BROKER_NAMESPACE,
                "--clusterset-ip-cidrs",
                &block,
                "--clusterset-ip-range",
                RANGE,
                "--metrics",
                "off",
            ],
        )?;
        let server = server_of(plan).to_string();
        let off = ["--health", "off", "--ready", "off", "--metrics", "off", "--drain", "0"];
        let dns = start("dns", &[&["--listen", &server], &off[..]].concat())?;
        Ok(Self { cluster, _programs: [agent, dns] })
    }
}

impl ClusterPlan {
    /// Returns the cluster's number, by which its addresses differ from others'.
    fn number(&self) -> anyhow::Result<u8> {
        match self.pod_cidrs[0].network() {
            IpAddr::V4(address) => Ok(address.octets()[1]),
            IpAddr::V6(_) => anyhow::bail!("the demo's pods have IPv4"),
        }
    }
}

/// Returns where a cluster's DNS server answers its pods: at its node's address among them.
fn server_of(plan: &ClusterPlan) -> IpAddr {
    plan.gateway().bridge[0].addr()
}

/// Has a cluster serve both services with its first pod, and export them.
fn serve<'a>(plan: &'a Plan, site: &Site) -> anyhow::Result<Served<'a>> {
    let plan = plan.cluster(&site.cluster.plan().id);
    let responder = Responder::start(&plan.pod(0).namespace)?;
    let served = Served { plan, responder };
    let target = SocketAddr::new(served.pod()?, served.responder.port());
    let objects = Objects::of(&site.cluster);
    let ports = json!([{"name": "http", "protocol": "TCP", "port": 80}]);
    for (name, address) in [("web", served.address(10)?), ("api", served.address(11)?)] {
        let metadata = json!({"name": name, "namespace": "shop"});
        objects.put(
            "services",
            &json!({"apiVersion": "v1", "kind": "Service", "metadata": metadata,
            "spec": {"type": "ClusterIP", "clusterIP": address, "clusterIPs": [address], "ports": ports}}),
        )?;
        objects.put(
            "endpointslices",
            &json!({"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
            "metadata": {"name": format!("{name}-1"), "namespace": "shop", "labels": {"kubernetes.io/service-name": name}},
            "addressType": "IPv4", "endpoints": [{"addresses": [target.ip()], "conditions": {"ready": true}}],
            "ports": [{"name": "http", "protocol": "TCP", "port": target.port()}]}),
        )?;
        // What kube-proxy does.
        plan.gateway().namespace.nft(&format!(
            "table ip kube-proxy {{ chain {name} {{ type nat hook prerouting priority -100; \
             ip daddr {address} tcp dport 80 dnat to {target}; }}; }}"
        ))?;
        let asked = if name == "api" { "true" } else { "false" };
        objects.put(
            "serviceexports",
            &json!({"apiVersion": "multicluster.x-k8s.io/v1alpha1",
            "kind": "ServiceExport", "metadata": {"name": name, "namespace": "shop",
            "creationTimestamp": "2026-01-01T00:00:00Z",
            "annotations": {"lighthouse.submariner.io/use-clusterset-ip": asked}}}),
        )?;
    }
    Ok(served)
}

impl Served<'_> {
    fn describe(&self) -> String {
        let text = || {
            anyhow::Ok(format!("web {}, api {}, pod {}", self.address(10)?, self.address(11)?, self.pod()?))
        };
        format!("{:<5} {}", self.plan.id, text().unwrap_or_else(|error| error.to_string()))
    }

    /// Returns a cluster IP.
    fn address(&self, last: usize) -> anyhow::Result<IpAddr> {
        self.plan.service_cidrs[0].hosts().nth(last).context("the service network is larger")
    }

    fn pod(&self) -> anyhow::Result<IpAddr> {
        self.plan.pod(0).v4().context("the demo's pods have IPv4")
    }
}

/// Who asks.
struct Client<'a> {
    lab: &'a Lab,
    plan: &'a Plan,
    pod: &'a PodPlan,
}

impl Client<'_> {
    /// Asks the own cluster's DNS server for a name's addresses.
    fn ask(&self, name: &str) -> anyhow::Result<Vec<IpAddr>> {
        let program = programs::path("trieste-discovery")?;
        let server = server_of(self.plan.cluster("east")).to_string();
        let run = self
            .pod
            .namespace
            .run(&program.to_string_lossy())
            .args(["ask", name, "--server", &server, "--json"]);
        let said: Value = serde_json::from_str(&run.stdout()?)?;
        let records = said["answers"].as_array().into_iter().flatten();
        let addresses: Vec<IpAddr> = records.filter_map(|record| record[1].as_str()?.parse().ok()).collect();
        ensure!(!addresses.is_empty(), "{name} has no address: {said}");
        Ok(addresses)
    }

    /// Asks until the addresses of these clusters are answered in turn, and no others.
    fn wait_answers(&self, clusters: &[&Served<'_>]) -> anyhow::Result<Vec<String>> {
        let mut wanted =
            clusters.iter().map(|served| served.address(10)).collect::<anyhow::Result<Vec<_>>>()?;
        wanted.sort_unstable();
        let begun = Instant::now();
        let answers = eventually("the answers", PATIENCE, || {
            let answers: Vec<IpAddr> =
                (0..4).map(|_| Ok(self.ask(BY_NAME)?[0])).collect::<anyhow::Result<_>>()?;
            let mut found = answers.clone();
            found.sort_unstable();
            found.dedup();
            ensure!(found == wanted, "they are {found:?}");
            Ok(answers)
        })?;
        let answers: Vec<String> = answers.iter().map(ToString::to_string).collect();
        Ok(vec![format!("{} (after {:.1} s)", answers.join(", "), begun.elapsed().as_secs_f64())])
    }

    /// Connects until the pods of these clusters answer, and no others; each sees the client's own address.
    fn wait_reached(&self, address: IpAddr, clusters: &[&Served<'_>]) -> anyhow::Result<Vec<String>> {
        let begun = Instant::now();
        let counts = eventually("the connections", PATIENCE, || {
            let before: Vec<u64> = clusters.iter().map(|served| served.responder.connections()).collect();
            for _ in 0..20 {
                let to = SocketAddr::new(address, 80);
                traffic::send_tcp(&self.pod.namespace, to, BYTES, Duration::from_secs(2))?.check(BYTES)?;
            }
            let counts: Vec<u64> = clusters
                .iter()
                .zip(before)
                .map(|(served, before)| served.responder.connections() - before)
                .collect();
            ensure!(counts.iter().sum::<u64>() == 20 && counts.iter().all(|count| *count > 0), "{counts:?}");
            Ok(counts)
        })?;
        let each = clusters.iter().zip(counts).map(|(served, count)| format!("{} {count}", served.plan.id));
        let each: Vec<String> = each.collect();
        Ok(vec![format!(
            "{}; seen as {} (after {:.1} s)",
            each.join(", "),
            self.pod.addresses[0].addr(),
            begun.elapsed().as_secs_f64()
        )])
    }

    fn suggestions(&self, address: IpAddr) -> anyhow::Result<Vec<String>> {
        let east = self.plan.cluster("east");
        let (pod, node) = (self.pod.namespace.name(), east.gateway().namespace.name());
        let program = programs::path("trieste-discovery")?;
        Ok(vec![
            format!("ip netns exec {pod} {} ask {BY_NAME} --server {}", program.display(), server_of(east)),
            format!("ip netns exec {pod} nc {address} 80"),
            format!("ip netns exec {node} nft list table inet trieste-clusterset"),
            format!("ls {}/*/state/store/shop/*", self.lab.directory().display()),
            format!("tail -f {}/*.log", self.lab.directory().join("logs").display()),
            String::new(),
            "./dev clean      removes it all".to_owned(),
        ])
    }
}
