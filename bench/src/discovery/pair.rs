//! Two clusters and their broker: from what is done in one to the answers of the other's DNS server.
//!
//! ```text
//!   here: API server, agent ──veth──┐
//!                                   ├─ broker: API server
//!   there: API server, agent, DNS ──┘
//! ```

use std::time::{Duration, Instant};

use trieste_tests::cluster::{BROKER_NAMESPACE, NAMESPACE};
use trieste_tests::daemon::Daemon;
use trieste_tests::interrupt::pause;
use trieste_tests::kubernetes::{ApiServer, Options as ServerOptions};
use trieste_tests::lab::Lab;
use trieste_tests::netns::Namespace;

use super::Options;
use super::pair_row::{Row, Times};
use super::resolver::Resolver;
use super::row::Used;
use super::servers::{self, Member};
use super::shape::{self, OWN, OWN_SERVICES, Written};

/// The cluster that imports.
const THERE: &str = "there";
const HERE_ADDRESS: [u8; 4] = [10, 255, 9, 1];
const THERE_ADDRESS: [u8; 4] = [10, 255, 9, 2];
const BROKER_ADDRESS: [u8; 4] = [10, 255, 9, 3];
/// How often each change is made.
const CHANGES: u32 = 20;
/// So many exports at once.
const MANY: u32 = 100;
/// How long the broker is cut off.
const CUT_OFF: Duration = Duration::from_secs(15);
/// Between a change and the next one, so that none waits for what an earlier one has cost.
const BETWEEN: Duration = Duration::from_secs(2);

/// Everything that runs. Fields are in the order in which they have to end.
pub(super) struct Pair<'a> {
    options: &'a Options,
    resolver: Resolver,
    programs: [Daemon; 3],
    here: ApiServer,
    _there: ApiServer,
    _broker: ApiServer,
    wire: Namespace,
}

impl<'a> Pair<'a> {
    /// Starts all of it, and measures.
    ///
    /// # Errors
    /// The first thing that does not work.
    pub(super) fn measure(lab: &Lab, options: &'a Options) -> anyhow::Result<Row> {
        let mut pair = Self::start(lab, options)?;
        pair.export_one(0)?;
        let memory = pair.memory()?;
        let exported = pair.rounds(|pair, round| pair.export_one(1 + round))?;
        let withdrawn = pair.rounds(|pair, round| pair.withdraw(1 + round))?;
        let not_ready = pair.rounds(|pair, _| {
            pair.turn_ready(true)?;
            pair.turn_ready(false)
        })?;
        let ready = pair.rounds(|pair, _| {
            pair.turn_ready(false)?;
            pair.turn_ready(true)
        })?;
        let many_s = pair.many()?;
        let back_s = pair.broker_is_cut_off()?;
        Ok(Row { exported, withdrawn, ready, not_ready, many_s, back_s, memory })
    }

    fn start(lab: &Lab, options: &'a Options) -> anyhow::Result<Self> {
        let [own, other, wire] = [OWN, THERE, "broker"].map(|name| lab.namespace(name));
        let (own, other, wire) = (own?, other?, wire?);
        let [own_ip, other_ip, broker_ip] =
            [HERE_ADDRESS, THERE_ADDRESS, BROKER_ADDRESS].map(std::net::IpAddr::from);
        wire.ip(&format!("link add br0 type bridge\nlink set br0 up\naddr add {broker_ip}/24 dev br0"))?;
        for (namespace, address) in [(&own, own_ip), (&other, other_ip)] {
            let port = format!("to-{}", address.to_string().rsplit('.').next().unwrap_or_default());
            namespace.ip(&format!("link add eth0 type veth peer name {port} netns {}", wire.name()))?;
            namespace.ip(&format!("link set eth0 up\naddr add {address}/24 dev eth0"))?;
            wire.ip(&format!("link set {port} master br0\nlink set {port} up"))?;
        }
        let services = ServerOptions { services: OWN_SERVICES.parse()?, ..ServerOptions::default() };
        let here = ApiServer::start_with(lab, "here-api", &own, own_ip, services)?;
        let there = ApiServer::start(lab, "there-api", &other, other_ip)?;
        let broker = ApiServer::start(lab, "broker-api", &wire, broker_ip)?;
        for server in [&here, &there, &broker] {
            servers::define(server.client())?;
        }
        broker.client().create_namespace(BROKER_NAMESPACE)?;
        for server in [&here, &there] {
            server.client().create_namespace(NAMESPACE)?;
            server.client().create_namespace(&shape::namespace(0))?;
        }
        let clusters = [(shape::own_cluster(), None), (shape::importing_cluster(THERE), None)];
        servers::write_all(broker.client(), &clusters)?;
        let resolver = Resolver::new(&other, &other_ip.to_string())?;
        let exporter = Member { id: OWN, namespace: &own, own: &here, broker: &broker };
        let importer = Member { id: THERE, namespace: &other, own: &there, broker: &broker };
        let programs = [exporter.agent(lab)?, importer.agent(lab)?, importer.dns(lab)?];
        let pair = Self { options, resolver, programs, here, _there: there, _broker: broker, wire };
        let made: Vec<Written> =
            (0..1 + CHANGES + MANY + 1).flat_map(shape::own_service).map(|object| (object, None)).collect();
        servers::write_all(pair.here.client(), &made)?;
        Ok(pair)
    }

    fn end(&self) -> Instant {
        Instant::now() + Duration::from_secs(self.options.patience)
    }

    /// Makes a change again and again, with time between.
    fn rounds(
        &mut self,
        mut change: impl FnMut(&mut Self, u32) -> anyhow::Result<Duration>,
    ) -> anyhow::Result<Times> {
        let mut times = Vec::new();
        for round in 0..CHANGES {
            pause(BETWEEN)?;
            self.programs.iter().try_for_each(Daemon::check)?;
            times.push(change(self, round)?);
        }
        Ok(Times::of(times))
    }

    fn export_one(&mut self, number: u32) -> anyhow::Result<Duration> {
        let (begun, end) = (Instant::now(), self.end());
        self.here.client().apply(&shape::own_export(number))?;
        self.resolver.wait_answer(&shape::own_domain(number), end)?;
        Ok(begun.elapsed())
    }

    fn withdraw(&mut self, number: u32) -> anyhow::Result<Duration> {
        let (begun, end) = (Instant::now(), self.end());
        servers::remove_all(self.here.client(), &[(shape::own_export(number), None)])?;
        self.resolver.wait(&shape::own_domain(number), end, <[String]>::is_empty)?;
        Ok(begun.elapsed())
    }

    /// Sets whether the back end of the first service is ready, and waits until the answers follow.
    fn turn_ready(&mut self, is_ready: bool) -> anyhow::Result<Duration> {
        let (begun, end) = (Instant::now(), self.end());
        self.here.client().apply(&shape::own_slice(0, is_ready))?;
        self.resolver.wait(&shape::own_domain(0), end, |found| found.is_empty() != is_ready)?;
        Ok(begun.elapsed())
    }

    /// Exports many services at once: until all are answered, with the time for writing the exports and without.
    fn many(&mut self) -> anyhow::Result<[f64; 2]> {
        let numbers = 1 + CHANGES..1 + CHANGES + MANY;
        let exports: Vec<Written> = numbers.clone().map(|number| (shape::own_export(number), None)).collect();
        pause(BETWEEN)?;
        let (begun, end) = (Instant::now(), self.end());
        servers::write_all(self.here.client(), &exports)?;
        let written = begun.elapsed();
        for number in numbers {
            self.resolver.wait_answer(&shape::own_domain(number), end)?;
        }
        Ok([begun.elapsed(), begun.elapsed() - written].map(|time| time.as_secs_f64()))
    }

    /// Exports a service while nobody reaches the broker: from when it is reached again to the answer.
    fn broker_is_cut_off(&mut self) -> anyhow::Result<f64> {
        let number = 1 + CHANGES + MANY;
        pause(BETWEEN)?;
        self.wire.ip("link set br0 down")?;
        self.here.client().apply(&shape::own_export(number))?;
        pause(CUT_OFF)?;
        self.wire.ip("link set br0 up")?;
        let (begun, end) = (Instant::now(), self.end());
        self.resolver.wait_answer(&shape::own_domain(number), end)?;
        Ok(begun.elapsed().as_secs_f64())
    }

    /// Returns what agent and DNS server of the importing cluster use with one service.
    fn memory(&self) -> anyhow::Result<Used> {
        pause(Duration::from_secs(self.options.rest))?;
        let [_, agent, dns] = &self.programs;
        let before = Used::of([agent.id(), dns.id()])?;
        pause(Duration::from_secs(self.options.rest))?;
        Ok(Used::of([agent.id(), dns.id()])?.since(&before))
    }
}
