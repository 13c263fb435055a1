//! Names of services whose clusters have the same addresses: answered by global addresses, and reached.

use std::net::IpAddr;

use anyhow::{Context, ensure};
use trieste_tests::clusters::{Asker, Cluster, GLOBALNET_HEADLESS, Pod, RELOADED, RESPONDER_PORT};
use trieste_tests::globalnet::{Client, Site, allocated};
use trieste_tests::table::Table;

use crate::shared::{SOON, Two, in_parallel};
use crate::sides::SERVICE_PORT;

const ZONE: &str = "default.svc.clusterset.local";
/// A StatefulSet of the last cluster alone.
const SET: &str = "set";

/// One cluster's client, and what it asks for.
struct Side<'a> {
    cluster: &'a Cluster,
    client: &'a Client,
    pod: Pod,
    /// The cluster's own servers.
    servers: Vec<Pod>,
    site: &'a Site,
}

/// Goes through all kinds of services, from each cluster to the other.
pub(crate) fn of_sites(two: &Two, sites: [&Site; 2], table: &Table) {
    let side = |cluster, site| Side::new(cluster, site).unwrap();
    let [east, west] = [side(two.east(), sites[0]), side(two.west(), sites[1])];
    in_parallel(&[(&east, &west), (&west, &east)], |(from, to)| {
        let id = from.cluster.name();
        table.row(id, "name of a service", || from.service(to));
        table.row(id, "name of a headless service", || from.headless(to));
        table.row(id, "names of pods", || from.pods(to));
        table.row(id, "name of a service of both", || from.own_first());
    });
    table.row("east", "names of a StatefulSet", || east.stateful(&west, two));
    table.row("both", "show, trace, diagnose", || commands(two, &east));
    two.say("names");
}

impl<'a> Side<'a> {
    fn new(cluster: &'a Cluster, site: &'a Site) -> anyhow::Result<Self> {
        let client = &site.worker.plain;
        let pod = |name: &str| cluster.pod("default", name);
        let servers = [&site.gateway.server, &site.worker.server].map(|server| pod(&server.name));
        let servers = servers.into_iter().collect::<anyhow::Result<_>>()?;
        Ok(Self { cluster, client, pod: pod(&client.name)?, servers, site })
    }

    /// By the global address of the service, at which it is reached.
    fn service(&self, to: &Self) -> anyhow::Result<String> {
        let name = format!("{}.web-0.{ZONE}", to.cluster.name());
        // The first answer waits for CoreDNS to read its Corefile.
        self.pod.wait_resolved(&name, &[to.site.gateway.server.service.ip()], RELOADED)?;
        self.reach(&name, SERVICE_PORT)
    }

    /// By the global addresses of the other cluster's pods, beside the own ones' own addresses.
    fn headless(&self, to: &Self) -> anyhow::Result<String> {
        let theirs = to.headless_ips();
        let name = format!("{GLOBALNET_HEADLESS}.{ZONE}");
        let prefixed = format!("{}.{name}", to.cluster.name());
        self.pod.wait_resolved(&prefixed, &theirs, SOON)?;
        let own = self.servers.iter().flat_map(|pod| pod.addresses.clone());
        self.pod.wait_resolved(&name, &theirs.iter().copied().chain(own).collect::<Vec<_>>(), SOON)?;
        self.reach(&prefixed, RESPONDER_PORT)
    }

    /// Each by its global address, and by the records of its ports.
    fn pods(&self, to: &Self) -> anyhow::Result<String> {
        let name = format!("{}.{GLOBALNET_HEADLESS}.{ZONE}", to.cluster.name());
        let (mut seen, mut targets) = (Vec::new(), Vec::new());
        for (pod, address) in to.servers.iter().zip(to.headless_ips()) {
            let host = format!("{}.{name}", pod.name);
            self.pod.wait_resolved(&host, &[address], SOON)?;
            seen.push(self.reach(&host, RESPONDER_PORT)?);
            targets.push(format!("0 50 {RESPONDER_PORT} {host}."));
        }
        let client = Asker::new(self.cluster, &self.pod)?;
        client.wait_records(&["SRV", &format!("_tcp._tcp.{name}")], &targets, SOON)?;
        Ok(seen.join(", "))
    }

    /// By one that both have, the own cluster's is reached.
    fn own_first(&self) -> anyhow::Result<String> {
        let name = format!("web-1.{ZONE}");
        let own = self.site.worker.server.service.ip();
        self.pod.wait_resolved(&name, &[own], SOON)?;
        Ok(format!("{own} has seen {}", self.pod.reach(&name, SERVICE_PORT)?))
    }

    /// By one that the other cluster alone has: its pods have names that stay, and addresses of Globalnet's.
    fn stateful(&self, to: &Self, two: &Two) -> anyhow::Result<String> {
        let pods = to.cluster.start_stateful(SET, 2)?;
        two.set.export(to.cluster, "export", SET)?;
        let (name, mut all) = (format!("{SET}.{ZONE}"), Vec::new());
        for pod in &pods {
            let path = format!("/apis/submariner.io/v1/namespaces/default/globalingressips/pod-{}", pod.name);
            let given =
                to.cluster.wait("a global address", SOON, || allocated(&to.cluster.client().get(&path)?))?;
            let address = IpAddr::from(*given.first().context("no address")?);
            let host = format!("{}.{}.{name}", pod.name, to.cluster.name());
            self.pod.wait_resolved(&host, &[address], SOON)?;
            self.reach(&host, RESPONDER_PORT)?;
            all.push(address);
        }
        self.pod.wait_resolved(&name, &all, SOON)?;
        let seen = self.reach(&name, RESPONDER_PORT)?;
        two.set.export(to.cluster, "unexport", SET)?;
        self.pod.wait_resolved(&name, &[], SOON)?;
        to.cluster.kubectl(&["delete", "statefulset,service", SET, "--wait=false"])?.success()?;
        Ok(seen)
    }

    fn headless_ips(&self) -> Vec<IpAddr> {
        [&self.site.gateway, &self.site.worker].map(|actors| actors.server.headless.ip()).to_vec()
    }

    /// Asks the C library, connects, and looks whom the server has seen.
    fn reach(&self, name: &str, port: u16) -> anyhow::Result<String> {
        let seen = self.pod.reach(name, port)?.ip();
        ensure!(self.client.leaves_as.iter().any(|one| seen == IpAddr::from(*one)), "{name} has seen {seen}");
        Ok(format!("seen as {seen}"))
    }
}

/// What is shown of services; the way of a packet to a name; and the walk that ends with a question in the agents' pods.
fn commands(two: &Two, east: &Side<'_>) -> anyhow::Result<String> {
    let run = |words: &[&str]| -> anyhow::Result<String> {
        two.set.trieste(two.east()).args(words).output()?.success()
    };
    let shown = run(&["show", "services"])?;
    let is_whole =
        |line: &str| line.contains("/web-0 ") && line.contains("east 1/1") && line.contains("west 1/1");
    ensure!(shown.lines().any(is_whole), "{shown}");
    let (source, name) = (east.pod.addresses[0].to_string(), format!("west.web-0.{ZONE}"));
    let traced = run(&["trace", &source, &name, "--context", "east"])?;
    ensure!(traced.contains("of cluster west"), "{traced}");
    let walked = run(&["diagnose", "service-discovery"])?;
    ensure!(walked.matches("✓ Asking the DNS").count() == 2, "{walked}");
    Ok("shown, traced, asked".to_owned())
}
