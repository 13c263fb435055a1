//! A simulated gateway: the machines of the real one, and the little that drives them.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use ipnet::IpNet;
use jiff::Timestamp;
use trieste_control::api::{
    ClusterNetworks, ClusterSpec, EndpointSpec, HaStatus, Kind, Object, ObjectKey, PublishedStatus,
    cable_name,
};
use trieste_control::claims::Allowed;
use trieste_control::election::{
    ElectionConfig, Elector, Failure, Leadership, Lease, Request, Term, Timings,
};
use trieste_control::leader::Announcer;
use trieste_control::publish::{GATEWAY_INTERVAL, GatewayTracker, GatewayWrite};
use trieste_control::runner::Write;
use trieste_control::store::{Cache, StoreError, StoreEvent};
use trieste_control::sync::{Plan, Side, View, plan};
use trieste_simulator::Random;

use super::store::Op;

pub(crate) const LOCAL: &str = "submariner-operator";
pub(crate) const BROKER: &str = "submariner-k8s-broker";

/// What a node follows: the Lease, then kinds of its own store, then kinds of the broker.
pub(crate) const STREAMS: [(Side, Kind); 6] = [
    (Side::Local, Kind::Lease),
    (Side::Local, Kind::Cluster),
    (Side::Local, Kind::Endpoint),
    (Side::Local, Kind::Gateway),
    (Side::Broker, Kind::Cluster),
    (Side::Broker, Kind::Endpoint),
];

/// Why something was asked for.
#[derive(Debug, Clone)]
pub(crate) enum Purpose {
    ReadLease,
    WriteLease,
    Announce,
    Sync,
    Gateway,
    Stale(Box<Object>),
}

/// A request on its way.
#[derive(Debug)]
pub(crate) enum Call {
    ReadLease,
    WriteLease(Lease, bool),
    Object(Side, Op),
}

/// An answer on its way, or that there was none.
#[derive(Debug)]
pub(crate) enum Answer {
    LeaseRead(Result<Option<Lease>, Failure>),
    LeaseWritten(Result<Lease, Failure>),
    Object(Result<Option<Object>, StoreError>),
}

/// A cluster, as its gateways are configured.
#[derive(Debug, Clone)]
pub(crate) struct Member {
    pub(crate) id: String,
    pub(crate) spec: ClusterSpec,
    pub(crate) subnets: Vec<IpNet>,
}

/// One plan's worth of waiting.
#[derive(Debug, Default)]
struct Job {
    is_busy: bool,
    is_due: bool,
    not_before: u64,
}

pub(crate) struct Node {
    pub(crate) cluster: usize,
    pub(crate) host: String,
    pub(crate) member: Member,
    pub(crate) own: EndpointSpec,
    pub(crate) elector: Elector,
    announcer: Announcer,
    tracker: GatewayTracker,
    mirrors: [Cache; 6],
    announce: Job,
    sync: Job,
    gateway: Job,
    wants_proof: bool,
    stale: Vec<Object>,
    planned: VecDeque<(Side, Write)>,
    has_news: bool,
    term: Option<Term>,
    base: Instant,
    offset: Duration,
    wall: Timestamp,
}

impl Node {
    pub(crate) fn new(
        cluster: usize,
        number: usize,
        member: &Member,
        base: Instant,
        random: &mut Random,
        millis: u64,
    ) -> Self {
        let host = format!("{}-gw{number}", member.id);
        let address = format!("192.0.{cluster}.{}", number + 1);
        let own = EndpointSpec {
            cluster_id: member.id.clone(),
            cable_name: cable_name(&member.id, address.parse().expect("an address")),
            hostname: host.clone(),
            subnets: member.subnets.iter().map(IpNet::to_string).collect(),
            private_ip: address,
            backend: "wireguard".to_owned(),
            ..EndpointSpec::default()
        };
        let config = ElectionConfig::gateway(LOCAL, &host, Timings::default());
        Self {
            cluster,
            elector: Elector::new(config, random.draw()),
            announcer: Announcer::new(LOCAL, &member.spec.cluster_id, &networks(&member.spec)),
            tracker: GatewayTracker::new(LOCAL, &host).expect("the host has a name"),
            mirrors: std::array::from_fn(|_| Cache::new()),
            announce: Job::default(),
            sync: Job::default(),
            gateway: Job { not_before: millis, ..Job::default() },
            wants_proof: false,
            stale: Vec::new(),
            planned: VecDeque::new(),
            has_news: false,
            term: None,
            host,
            member: member.clone(),
            own,
            base,
            offset: Duration::from_millis(random.between(0, 1_000_000)),
            wall: Timestamp::from_second(random.between(1_600_000_000, 2_000_000_000)).expect("a time"),
        }
    }

    /// What its own clock shows.
    pub(crate) fn now(&self, millis: u64) -> Instant {
        self.base + self.offset + Duration::from_millis(millis)
    }

    pub(crate) fn leadership(&self, millis: u64) -> Option<Leadership> {
        self.elector.leadership(self.now(millis))
    }

    pub(crate) fn observe_lease(&mut self, lease: Option<Lease>, millis: u64) {
        let now = self.now(millis);
        self.elector.handle_observed(lease, now);
    }

    pub(crate) fn observe(&mut self, stream: usize, event: &StoreEvent, millis: u64) {
        let now = self.now(millis);
        if STREAMS[stream].1 == Kind::Gateway {
            return self.tracker.handle_event(event, now);
        }
        if self.mirrors[stream].apply(event) {
            self.announce.is_due |= STREAMS[stream].0 == Side::Local;
            // What comes together is looked at together.
            (self.sync.is_due, self.has_news) = (true, true);
            self.sync.not_before = self.sync.not_before.max(millis + 30);
        }
    }

    /// When it wants to act again, after it has acted at this time, on the true clock. What waits for news is not due.
    pub(crate) fn next_wake(&self, millis: u64) -> u64 {
        let elector = self.elector.poll_timeout().map(|at| {
            let since = at.saturating_duration_since(self.base + self.offset);
            u64::try_from(since.as_millis()).expect("a short time") + 1
        });
        let jobs = [&self.announce, &self.sync].into_iter();
        let jobs =
            jobs.filter(|job| self.term.is_some() && job.is_due && !job.is_busy).map(|job| job.not_before);
        let gateway = (!self.gateway.is_busy).then_some(self.gateway.not_before);
        let jobs = jobs.chain(gateway).filter(|when| *when > millis);
        elector.into_iter().chain(jobs).min().unwrap_or(u64::MAX)
    }

    /// Everything that it wants to ask for at this time.
    pub(crate) fn act(&mut self, millis: u64) -> Vec<(Purpose, Call)> {
        let now = self.now(millis);
        let mut calls = Vec::new();
        self.elector.handle_timeout(now);
        while self.elector.poll_event().is_some() {}
        let held = self.elector.leadership(now);
        if held.map(|held| held.term) != self.term {
            self.term = held.map(|held| held.term);
            (self.announce.is_due, self.sync.is_due, self.has_news) = (true, true, true);
            self.planned.clear();
        }
        if let Some(held) = held {
            calls.extend(self.announce(&held, millis));
            calls.extend(self.sync(millis));
        }
        calls.extend(self.beat(millis, held.is_some()));
        if let Some(request) = self.elector.poll_request(now, self.wall + Duration::from_millis(millis)) {
            calls.push(match request {
                Request::Create(lease) => (Purpose::WriteLease, Call::WriteLease(lease, true)),
                Request::Update(lease) => (Purpose::WriteLease, Call::WriteLease(lease, false)),
                _ => (Purpose::ReadLease, Call::ReadLease),
            });
        }
        calls
    }

    pub(crate) fn answer(&mut self, purpose: &Purpose, answer: Answer, millis: u64) {
        let now = self.now(millis);
        let answer = match answer {
            Answer::LeaseRead(answer) => return self.elector.handle_read(answer, now),
            Answer::LeaseWritten(answer) => {
                self.announce.is_due |= std::mem::take(&mut self.wants_proof);
                return self.elector.handle_written(answer, now);
            }
            Answer::Object(answer) => answer,
        };
        match purpose {
            Purpose::ReadLease | Purpose::WriteLease => {}
            Purpose::Announce => settle(&mut self.announce, &answer, millis),
            Purpose::Sync => {
                settle(&mut self.sync, &answer, millis);
                if answer.is_err() {
                    self.planned.clear();
                    self.has_news = true;
                }
            }
            Purpose::Stale(object) => {
                self.gateway.is_busy = false;
                self.tracker.handle_removed(object, &answer.map(drop), now);
            }
            Purpose::Gateway => {
                self.gateway.is_busy = false;
                let was_read = std::mem::take(&mut self.gateway.is_due);
                match answer {
                    Err(error) if error.is_race() => self.gateway.is_due = true,
                    // It was read after a lost race, and is written again at once.
                    Ok(found) if was_read => {
                        self.tracker.handle_read(found.as_ref());
                        self.gateway.not_before = millis;
                    }
                    answer => {
                        let stored =
                            answer.and_then(|object| object.ok_or_else(|| unreachable!("it was written")));
                        self.tracker.handle_written(&stored, now);
                    }
                }
                self.stale = if self.term.is_some() { self.tracker.stale(now) } else { Vec::new() };
            }
        }
    }

    /// Takes in what an own write did, before the watch tells it.
    pub(crate) fn note(&mut self, side: Side, event: &StoreEvent) {
        let (StoreEvent::Applied(object) | StoreEvent::Deleted(object)) = event else { return };
        let stream = STREAMS.iter().position(|stream| *stream == (side, object.kind));
        if let Some(stream) = stream.filter(|_| object.kind != Kind::Gateway) {
            self.has_news |= self.mirrors[stream].apply(event);
            self.sync.is_due |= self.has_news;
        }
    }

    /// What the syncer would write, from what the stores really hold.
    pub(crate) fn sync_plan(&self, local: &[&Object], broker: &[&Object]) -> Plan {
        plan(&View {
            cluster_id: &self.member.id,
            local_namespace: LOCAL,
            broker_namespace: BROKER,
            local_subnets: &self.member.subnets,
            allowed: &Allowed::default(),
            local,
            broker,
        })
    }

    fn announce(&mut self, held: &Leadership, millis: u64) -> Option<(Purpose, Call)> {
        let is_known = self.mirrors[1].is_complete() && self.mirrors[2].is_complete();
        if self.announce.is_busy || !self.announce.is_due || millis < self.announce.not_before || !is_known {
            return None;
        }
        let now = self.now(millis);
        let local: Vec<&Object> = self.mirrors[1].objects().chain(self.mirrors[2].objects()).collect();
        let plan = self.announcer.plan(&self.own, held, &local, now).expect("our own specs are right");
        if let Some(fence) = plan.fenced {
            self.elector.raise_term(fence.term, now);
        }
        if plan.wants_proof {
            self.elector.confirm(now);
            self.wants_proof = true;
        }
        let Some(write) = plan.writes.into_iter().next() else {
            self.announce.is_due = false;
            return None;
        };
        self.announce.is_busy = true;
        let op = match write {
            Write::Create(object) => Op::Create(object),
            Write::Update(object) => Op::Update(object),
            Write::Delete(object) => Op::Delete(object),
            Write::UpdateStatus(_) | Write::Annotate { .. } => panic!("never planned"),
        };
        Some((Purpose::Announce, Call::Object(Side::Local, op)))
    }

    fn sync(&mut self, millis: u64) -> Option<(Purpose, Call)> {
        let is_known = [1, 2, 4, 5].iter().all(|stream| self.mirrors[*stream].is_complete());
        if self.sync.is_busy || !self.sync.is_due || millis < self.sync.not_before || !is_known {
            return None;
        }
        // What was written comes back as news.
        if self.planned.is_empty() && std::mem::take(&mut self.has_news) {
            let side = |streams: [usize; 2]| -> Vec<&Object> {
                streams.into_iter().flat_map(|stream| self.mirrors[stream].objects()).collect()
            };
            let plan = self.sync_plan(&side([1, 2]), &side([4, 5]));
            self.planned = plan.writes.into();
        }
        let Some((side, write)) = self.planned.pop_front() else {
            self.sync.is_due = false;
            return None;
        };
        self.sync.is_busy = true;
        let op = match write {
            Write::Create(object) => Op::Create(object),
            Write::Update(object) => Op::Update(object),
            Write::Delete(object) => Op::Delete(object),
            Write::UpdateStatus(_) | Write::Annotate { .. } => panic!("a copy has one body: {write:?}"),
        };
        Some((Purpose::Sync, Call::Object(side, op)))
    }

    fn beat(&mut self, millis: u64, is_active: bool) -> Option<(Purpose, Call)> {
        if self.gateway.is_busy {
            return None;
        }
        if let Some(object) = self.stale.pop() {
            self.gateway.is_busy = true;
            let call = Call::Object(Side::Local, Op::Delete(object.clone()));
            return Some((Purpose::Stale(Box::new(object)), call));
        }
        if self.gateway.is_due {
            self.gateway.is_busy = true;
            let key = ObjectKey::new(Kind::Gateway, LOCAL, &self.host);
            return Some((Purpose::Gateway, Call::Object(Side::Local, Op::Get(key))));
        }
        if millis < self.gateway.not_before {
            return None;
        }
        self.gateway.not_before = millis + u64::try_from(GATEWAY_INTERVAL.as_millis()).expect("small");
        self.gateway.is_busy = true;
        let status = PublishedStatus {
            version: "1".to_owned(),
            ha_status: if is_active { HaStatus::Active } else { HaStatus::Passive },
            local_endpoint: EndpointSpec::default(),
            status_failure: String::new(),
            connections: Vec::new(),
            extra: serde_json::Map::new(),
        };
        let wall = self.wall + Duration::from_millis(millis);
        let op = match self.tracker.beat(&status, wall) {
            GatewayWrite::Create(object) => Op::Create(object),
            GatewayWrite::Update(object) => Op::Update(object),
            GatewayWrite::Annotate { .. } => {
                unreachable!("a status without connections goes with every beat")
            }
        };
        Some((Purpose::Gateway, Call::Object(Side::Local, op)))
    }
}

/// A job goes on after its write, sooner or later.
fn settle(job: &mut Job, answer: &Result<Option<Object>, StoreError>, millis: u64) {
    job.is_busy = false;
    job.is_due = true;
    job.not_before = match answer {
        Ok(_) => millis,
        Err(error) if error.is_race() => millis + 200,
        Err(_) => millis + 1_000,
    };
}

fn networks(spec: &ClusterSpec) -> ClusterNetworks {
    let facts = spec.parse().expect("members have networks");
    ClusterNetworks {
        pods: facts.cluster_cidr,
        services: facts.service_cidr,
        extra: Vec::new(),
        global: facts.global_cidr,
    }
}
