//! An agent and a DNS server, and what is done to them.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use serde_json::Value;
use trieste_tests::cluster::BROKER_NAMESPACE;
use trieste_tests::daemon::Daemon;
use trieste_tests::interrupt::pause;
use trieste_tests::kubernetes::{ApiServer, Watch};
use trieste_tests::lab::Lab;
use trieste_tests::wait::eventually;

use super::Options;
use super::resolver::Resolver;
use super::row::{Change, Row, Used};
use super::servers::{self, OWN_ADDRESS, Servers};
use super::shape::{self, Shape, Written};

/// How often each change is made.
const CHANGES: u32 = 7;
/// So many exports at once.
const MANY: u32 = 100;
/// How long programs have had nothing to write when they are through.
const SETTLED: Duration = Duration::from_millis(1500);

/// Everything that runs. Fields are in the order in which they have to end.
pub(super) struct Bed<'a> {
    options: &'a Options,
    shape: Shape,
    resolver: Resolver,
    agent: Daemon,
    dns: Daemon,
    servers: Servers,
    lab: Lab,
}

impl<'a> Bed<'a> {
    /// Writes what the other clusters export, starts agent and DNS server, and measures.
    ///
    /// # Errors
    /// The first thing that does not work.
    pub(super) fn measure(lab: &Lab, options: &'a Options, services: u32) -> anyhow::Result<Row> {
        let clusters = options.clusters.min(services);
        let endpoints = options.endpoints.unwrap_or_else(|| services.saturating_mul(10));
        let shape = Shape::new(clusters, services, endpoints)?;
        let servers = Servers::start(lab, (services + 4 * (MANY + CHANGES)) / 50 + 1)?;
        let foreign: Vec<Written> = (0..services).flat_map(|number| shape.service(number, 0)).collect();
        let began = Instant::now();
        let members: Vec<Written> = (0..clusters).map(|number| (shape::cluster(number), None)).collect();
        servers::write_all(servers.broker.client(), &members)?;
        servers::write_all(servers.broker.client(), &[(shape::own_cluster(), None)])?;
        servers::write_all(servers.broker.client(), &foreign)?;
        let written_s = began.elapsed().as_secs_f64();
        let resolver = Resolver::new(&servers.namespace, &own_address())?;
        let began = Instant::now();
        let (agent, dns) = (servers.member().agent(lab)?, servers.member().dns(lab)?);
        let mut bed = Self { options, shape, resolver, agent, dns, servers, lab: lab.clone() };
        bed.wait_all()?;
        let all_s = began.elapsed().as_secs_f64();
        bed.settle()?;
        let rest = bed.rest()?;
        let one_more = bed.one_more()?;
        let changed = bed.change_endpoint()?;
        let own = bed.export_own()?;
        let ready = bed.readiness()?;
        let (many_s, many_own_s) = (bed.many()?, bed.many_own()?);
        let again_s = bed.restart()?;
        let (removed_s, after) = bed.remove(&foreign)?;
        Ok(Row {
            services,
            clusters,
            endpoints: shape.all_endpoints(),
            written_s,
            all_s,
            again_s,
            rest_s: options.rest as f64,
            rest,
            one_more,
            changed,
            own,
            ready,
            many_s,
            many_own_s,
            removed_s,
            after,
        })
    }

    fn end(&self) -> Instant {
        Instant::now() + Duration::from_secs(self.options.patience)
    }

    /// Waits until every service of the others is answered.
    fn wait_all(&mut self) -> anyhow::Result<()> {
        let end = self.end();
        (0..self.shape.services).try_for_each(|number| {
            self.agent.check()?;
            self.resolver.wait_answer(&shape::domain(number), end)
        })
    }

    /// Waits until nothing is written any more; returns how much each server was sent so far.
    fn settle(&self) -> anyhow::Result<[u64; 2]> {
        let count = || -> anyhow::Result<[u64; 2]> {
            let of = |server: &ApiServer| Ok::<u64, anyhow::Error>(servers::writes(server)?.values().sum());
            Ok([of(&self.servers.own)?, of(&self.servers.broker)?])
        };
        let (mut before, end) = (count()?, self.end());
        loop {
            pause(SETTLED)?;
            let after = count()?;
            if before == after {
                return Ok(after);
            }
            anyhow::ensure!(Instant::now() < end, "the agent goes on writing: {before:?}, then {after:?}");
            before = after;
        }
    }

    fn usage(&self) -> anyhow::Result<Used> {
        Used::of([self.agent.id(), self.dns.id()])
    }

    fn rest(&self) -> anyhow::Result<Used> {
        pause(Duration::from_secs(self.options.rest))?;
        let before = self.usage()?;
        pause(Duration::from_secs(self.options.rest))?;
        Ok(self.usage()?.since(&before))
    }

    /// Makes a change again and again, and counts what the programs write.
    fn change(
        &mut self,
        mut make: impl FnMut(&mut Self, u32) -> anyhow::Result<[Duration; 2]>,
    ) -> anyhow::Result<Change> {
        let before = self.settle()?;
        let times: Vec<[Duration; 2]> =
            (0..CHANGES).map(|number| make(self, number)).collect::<anyhow::Result<_>>()?;
        let after = self.settle()?;
        let writes = [0, 1].map(|server| (after[server] - before[server]) as f64 / f64::from(CHANGES));
        Ok(Change::of(&times, writes))
    }

    /// Returns a headless service that is not there from the start.
    fn later(&self, number: u32) -> u32 {
        self.shape.services / 2 * 2 + 1 + 2 * number
    }

    /// Another cluster exports one more service: until it is answered.
    fn one_more(&mut self) -> anyhow::Result<Change> {
        self.change(|bed, round| {
            let number = bed.later(round);
            let began = Instant::now();
            servers::write_all(bed.servers.broker.client(), &bed.shape.service(number, 0))?;
            bed.resolver.wait_answer(&shape::domain(number), bed.end())?;
            Ok([began.elapsed(); 2])
        })
    }

    /// An endpoint of a service of another cluster is replaced: until that is answered.
    fn change_endpoint(&mut self) -> anyhow::Result<Change> {
        let number = self.later(0);
        self.change(|bed, round| {
            let slice = bed.shape.service(number, round + 1).split_off(1);
            let mut wanted = bed.shape.addresses(number, round + 1);
            wanted.sort_unstable();
            let began = Instant::now();
            servers::write_all(bed.servers.broker.client(), &slice)?;
            bed.resolver.wait(&shape::domain(number), bed.end(), |found| {
                let mut found = found.to_vec();
                found.sort_unstable();
                found == wanted
            })?;
            Ok([began.elapsed(); 2])
        })
    }

    /// Exports a service of this cluster: until its objects are on the broker, and until it is answered here.
    fn export_own(&mut self) -> anyhow::Result<Change> {
        self.make_own(0..CHANGES)?;
        self.change(|bed, number| {
            let broker = Followed::open(&bed.servers.broker)?;
            let began = Instant::now();
            bed.servers.own.client().apply(&shape::own_export(number))?;
            broker.wait_added(1, bed.end())?;
            let published = began.elapsed();
            bed.resolver.wait_answer(&shape::own_domain(number), bed.end())?;
            Ok([published, began.elapsed()])
        })
    }

    /// A back end of an own service stops being ready, and is so again: until the broker has it, and until it is answered.
    fn readiness(&mut self) -> anyhow::Result<Change> {
        self.change(|bed, round| {
            let (number, is_ready) = (0, round % 2 == 1);
            let broker = Followed::open(&bed.servers.broker)?;
            let began = Instant::now();
            bed.servers.own.client().apply(&shape::own_slice(number, is_ready))?;
            bed.resolver.wait(&shape::own_domain(number), bed.end(), |found| found.is_empty() != is_ready)?;
            let answered = began.elapsed();
            broker.wait_slice(bed.end(), |slice| slice["endpoints"][0]["conditions"]["ready"] == is_ready)?;
            Ok([began.elapsed(), answered])
        })
    }

    /// Others export many services at once: until all are answered, with the time for writing them and without.
    fn many(&mut self) -> anyhow::Result<[f64; 2]> {
        let numbers = (0..MANY).map(|number| self.later(CHANGES + number));
        let numbers: Vec<u32> = numbers.collect();
        let all: Vec<Written> = numbers.iter().flat_map(|number| self.shape.service(*number, 0)).collect();
        let (began, end) = (Instant::now(), self.end());
        servers::write_all(self.servers.broker.client(), &all)?;
        let written = began.elapsed().as_secs_f64();
        numbers.iter().try_for_each(|number| self.resolver.wait_answer(&shape::domain(*number), end))?;
        let took = began.elapsed().as_secs_f64();
        servers::remove_all(self.servers.broker.client(), &all)?;
        Ok([took, took - written])
    }

    /// This cluster does: until all are on the broker and answered here.
    fn many_own(&mut self) -> anyhow::Result<f64> {
        let numbers = CHANGES..CHANGES + MANY;
        self.make_own(numbers.clone())?;
        self.settle()?;
        let broker = Followed::open(&self.servers.broker)?;
        let exports: Vec<Written> = numbers.clone().map(|number| (shape::own_export(number), None)).collect();
        let (began, end) = (Instant::now(), self.end());
        servers::write_all(self.servers.own.client(), &exports)?;
        broker.wait_added(MANY as usize, end)?;
        numbers
            .into_iter()
            .try_for_each(|number| self.resolver.wait_answer(&shape::own_domain(number), end))?;
        Ok(began.elapsed().as_secs_f64())
    }

    fn make_own(&self, numbers: std::ops::Range<u32>) -> anyhow::Result<()> {
        let all: Vec<Written> = numbers.flat_map(shape::own_service).map(|object| (object, None)).collect();
        servers::write_all(self.servers.own.client(), &all)
    }

    /// Kills both programs and starts them again: until all is answered.
    fn restart(&mut self) -> anyhow::Result<f64> {
        self.settle()?;
        self.agent.id().end(Duration::ZERO);
        self.dns.id().end(Duration::ZERO);
        let began = Instant::now();
        self.dns = self.servers.member().dns(&self.lab)?;
        self.wait_all_without_agent()?;
        let took = began.elapsed().as_secs_f64();
        self.agent = self.servers.member().agent(&self.lab)?;
        Ok(took)
    }

    fn wait_all_without_agent(&mut self) -> anyhow::Result<()> {
        let end = self.end();
        (0..self.shape.services).try_for_each(|number| self.resolver.wait_answer(&shape::domain(number), end))
    }

    /// Takes everything back: until nothing is answered and the broker has nothing of this cluster; and what memory is used then.
    fn remove(&mut self, foreign: &[Written]) -> anyhow::Result<(f64, Used)> {
        self.settle()?;
        let own: Vec<Written> = (0..CHANGES + MANY).map(|number| (shape::own_export(number), None)).collect();
        servers::remove_all(self.servers.broker.client(), foreign)?;
        servers::remove_all(self.servers.own.client(), &own)?;
        let (began, end) = (Instant::now(), self.end());
        (0..self.shape.services)
            .try_for_each(|number| self.resolver.wait(&shape::domain(number), end, <[String]>::is_empty))?;
        let patience = Duration::from_secs(self.options.patience);
        eventually("the broker to have nothing of this cluster", patience, || {
            let left = self.servers.broker.client().list(&broker_path("endpointslices"))?;
            let is_own = |slice: &&Value| {
                slice["metadata"]["name"].as_str().is_some_and(|name| name.starts_with("own"))
            };
            let left = left.iter().filter(is_own).count();
            anyhow::ensure!(left == 0, "{left} slices are left");
            Ok(())
        })?;
        let took = began.elapsed().as_secs_f64();
        self.settle()?;
        Ok((took, self.usage()?))
    }
}

/// What comes to the broker from now on.
struct Followed {
    slices: Watch,
    imports: Watch,
}

impl Followed {
    fn open(broker: &ApiServer) -> anyhow::Result<Self> {
        let open = |plural: &str| {
            let path = broker_path(plural);
            let list = broker.client().get(&format!("{path}?limit=1"))?;
            let version = list["metadata"]["resourceVersion"].as_str().context("a list has a version")?;
            broker.client().watch(&path, version)
        };
        Ok(Self { slices: open("endpointslices")?, imports: open("serviceimports")? })
    }

    /// Waits for so many new slices and imports.
    fn wait_added(&self, count: usize, end: Instant) -> anyhow::Result<()> {
        for watch in [&self.imports, &self.slices] {
            let mut names = BTreeSet::new();
            while names.len() < count {
                let event = watch.next(end.saturating_duration_since(Instant::now()))?;
                let event = event.context("the watch has ended")?;
                if event["type"] == "ADDED" {
                    names.insert(event["object"]["metadata"]["name"].to_string());
                }
            }
        }
        Ok(())
    }

    /// Waits for a slice like this.
    fn wait_slice(&self, end: Instant, is_so: impl Fn(&Value) -> bool) -> anyhow::Result<()> {
        loop {
            let event = self.slices.next(end.saturating_duration_since(Instant::now()))?;
            if is_so(&event.context("the watch has ended")?["object"]) {
                return Ok(());
            }
        }
    }
}

fn broker_path(plural: &str) -> String {
    let group =
        if plural == "endpointslices" { "discovery.k8s.io/v1" } else { "multicluster.x-k8s.io/v1alpha1" };
    format!("/apis/{group}/namespaces/{BROKER_NAMESPACE}/{plural}")
}

fn own_address() -> String {
    std::net::IpAddr::from(OWN_ADDRESS).to_string()
}
