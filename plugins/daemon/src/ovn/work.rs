//! The loop: reads, asks the controller what to do, does it.

use std::collections::{BTreeMap, BTreeSet};
use std::future::pending;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use futures::StreamExt as _;
use futures::future::BoxFuture;
use futures::stream::{BoxStream, select_all};
use rand_core::OsRng;
use tokio::sync::watch;
use trieste_control::api::Kind;
use trieste_control::backoff::Backoff;
use trieste_control::election::Candidate;
use trieste_control::store::{AnyStore, Store as _, StoreEvent};
use trieste_control::timer::sleep_until;
use trieste_ovn::controller::{Controller, Next, State};
use trieste_ovn::wanted::Topology;
use trieste_ovn::{Chassis, Rows, Wanted, northbound_spec, southbound_spec};
use trieste_ovsdb::client::Client;
use trieste_ovsdb::options::{ClientOptions, Status as ClientStatus};
use trieste_ovsdb::outcome::TransactError;
use trieste_ovsdb::replica::Replica;

use super::OvnConfig;
use super::facts::{Facts, KINDS};
use crate::status::Status;

/// Ours: the first and the longest wait after a transaction that failed.
const RETRY: (Duration, Duration) = (Duration::from_millis(250), Duration::from_secs(30));
/// Ours: how long changes of objects are gathered before what is wanted is computed.
const GATHER: Duration = Duration::from_millis(100);

/// Ours: how long there is no socket of a database until a removal takes it that there is no database. OVN starts anew within
/// that.
const ABSENT: Duration = Duration::from_secs(20);

type Outcome = Result<(), TransactError>;

/// Keeps the northbound database as it should be; with `is_removing`, without anything of ours. Does not end by itself.
pub async fn run(
    store: AnyStore,
    namespace: String,
    config: OvnConfig,
    candidate: Option<Candidate>,
    is_removing: bool,
    status: watch::Sender<Status>,
) {
    let mut worker = Worker::new(config, is_removing);
    let mut events = events(&store, &namespace, is_removing);
    let mut leadership = candidate.as_ref().map(Candidate::leadership);
    let mut retry = Backoff::new(RETRY.0, RETRY.1);
    let mut outages: BTreeMap<Kind, String> = BTreeMap::new();
    let mut database = worker.northbound.client.status();
    let mut was_leading = false;
    let mut gathered: Option<Instant> = None;
    loop {
        let may_write = candidate.as_ref().is_none_or(|candidate| candidate.term(clock()).is_some());
        if may_write && !was_leading {
            // Somebody else may have written meanwhile.
            worker.controller.handle_new_wanted();
        }
        was_leading = may_write;
        let deadline = if may_write { worker.drive(clock()) } else { None };
        worker.status(outages.values().next().cloned(), may_write, clock()).publish(&status);
        let ends = gathered.is_none().then(|| worker.facts.next_end()).flatten();
        let next_status = worker.next_status().filter(|at| *at > clock());
        let deadline = [deadline, gathered, ends, next_status].into_iter().flatten().min();
        tokio::select! {
            Some((kind, event)) = events.next() => {
                match &event {
                    StoreEvent::Unavailable(error) => drop(outages.insert(kind, format!("{kind}: {error}"))),
                    StoreEvent::Listed(_) | StoreEvent::Applied(_) | StoreEvent::Deleted(_) | _ => {
                        outages.remove(&kind);
                    }
                }
                if worker.facts.take(kind, &event, clock()) {
                    gathered.get_or_insert_with(|| clock() + GATHER);
                }
            }
            changed = worker.northbound.replica.changed() => match changed {
                Ok(()) => worker.follow_northbound(),
                // The client has ended, which it does not by itself.
                Err(_) => return,
            },
            Ok(()) = database.changed() => {}
            () = changed(worker.southbound.as_mut().map(|database| &mut database.replica)) => worker.follow_southbound(),
            outcome = finished(&mut worker.in_flight) => {
                // What it has written is there by now; the next plan has to know.
                if worker.northbound.replica.has_changed().unwrap_or(false) {
                    worker.follow_northbound();
                }
                worker.in_flight = None;
                let wait = if outcome.is_ok() { retry.reset(); Duration::ZERO } else { retry.next_wait(&mut OsRng) };
                worker.controller.handle_outcome(outcome.as_ref().copied(), clock(), wait);
            }
            () = sleep_until(deadline) => {
                if gathered.or(ends).is_some_and(|at| at <= clock()) {
                    gathered = None;
                    worker.renew_wanted();
                }
            }
            () = changed(leadership.as_mut()) => {}
        }
    }
}

/// A database, and what of it is known.
struct Database {
    client: Client,
    replica: watch::Receiver<Replica>,
    last: Replica,
}

impl Database {
    /// Returns why it cannot be read at present.
    fn outage(&self, name: &str) -> Option<String> {
        match &*self.client.status().borrow() {
            ClientStatus::Synced { .. } => None,
            ClientStatus::Connecting => Some(format!("{name} database: connecting")),
            ClientStatus::Failed { remote, error } => Some(format!("{name} database at {remote}: {error}")),
        }
    }
}

struct Worker {
    facts: Facts,
    wanted: Option<Wanted>,
    is_removing: bool,
    northbound: Database,
    southbound: Option<Database>,
    rows: Rows,
    chassis: Chassis,
    controller: Controller,
    in_flight: Option<BoxFuture<'static, Outcome>>,
    is_settled: bool,
    /// Whether what an earlier process has closed is known.
    has_adopted: bool,
    /// Since when this node has had no socket of a database; `None` if it has one.
    without_socket: Option<Instant>,
    /// Where this node's own database would have its socket; `None` where the database is another machine's.
    sockets: Option<Vec<PathBuf>>,
}

impl Worker {
    fn new(config: OvnConfig, is_removing: bool) -> Self {
        let sockets = config.sockets();
        let options = ClientOptions { tls: Some(config.tls), ..ClientOptions::default() };
        let (client, replica) = Client::spawn(&config.northbound, northbound_spec(), options.clone());
        let northbound = Database { client, replica, last: Replica::default() };
        let needs_chassis = config.topology == Topology::SubmarinerRouter && !is_removing;
        let southbound = needs_chassis.then(|| {
            let (client, replica) = Client::spawn(&config.southbound, southbound_spec(), options);
            Database { client, replica, last: Replica::default() }
        });
        Self {
            facts: Facts::new(&config.cluster, &config.node, config.networks, config.topology),
            wanted: None,
            is_removing,
            northbound,
            southbound,
            rows: Rows::new(),
            chassis: Chassis::new(),
            controller: Controller::new(),
            in_flight: None,
            is_settled: false,
            has_adopted: false,
            without_socket: None,
            sockets,
        }
    }

    /// Drives the controller: sends its next transaction. Returns when to ask again without a change.
    fn drive(&mut self, now: Instant) -> Option<Instant> {
        if self.northbound.last.is_synced() && self.wanted.is_some() && !self.has_adopted {
            self.has_adopted = true;
            self.facts.close(self.rows.closed_networks(), now);
            self.renew_wanted();
        }
        let replica = &self.northbound.last;
        let has_chassis = self.southbound.as_ref().is_none_or(|database| database.last.is_synced());
        let has_all = self.is_removing || (self.wanted.is_some() && has_chassis);
        self.is_settled = false;
        if !replica.is_synced() || !has_all {
            return None;
        }
        let state = State {
            wanted: self.wanted.as_ref().filter(|_| !self.is_removing),
            rows: &self.rows,
            chassis: &self.chassis,
            schema: replica.version(),
        };
        match self.controller.poll_transaction(&state, now) {
            Next::Transact(transaction) => {
                let (client, generation) = (self.northbound.client.clone(), replica.generation());
                self.in_flight = Some(Box::pin(async move {
                    client.transact_on(generation, transaction.operations).await.map(drop)
                }));
                None
            }
            Next::AwaitRetry(at) => Some(at),
            Next::AwaitOutcome => None,
            Next::AwaitChange => {
                self.is_settled = true;
                None
            }
        }
    }

    fn follow_northbound(&mut self) {
        let replica = self.northbound.replica.borrow_and_update().clone();
        let mut matters = false;
        for difference in replica.differences(&self.northbound.last) {
            matters |= self.rows.follow(&difference);
        }
        match replica.is_synced() && replica.generation() == self.northbound.last.generation() {
            true if matters => self.controller.handle_change(),
            // Pods come and go.
            true => {}
            // What was sent in another session is in this replica, or never will be.
            false => {
                self.in_flight = None;
                self.controller.handle_disconnect();
            }
        }
        self.northbound.last = replica;
    }

    fn follow_southbound(&mut self) {
        let Some(database) = &mut self.southbound else { return };
        let replica = database.replica.borrow_and_update().clone();
        for difference in replica.differences(&database.last) {
            self.chassis.follow(&difference);
        }
        database.last = replica;
        self.controller.handle_change();
    }

    fn renew_wanted(&mut self) {
        let wanted = self.facts.wanted(clock());
        if wanted != self.wanted {
            self.wanted = wanted;
            self.controller.handle_new_wanted();
        }
    }

    /// Returns since when this node has had no socket of a database; `None` if it has one, or needs none.
    fn without_socket(&mut self, is_reachable: bool, now: Instant) -> Option<Instant> {
        let is_missing = |paths: &Vec<PathBuf>| !paths.iter().any(|path| path.exists());
        let is_without = !is_reachable && self.sockets.as_ref().is_some_and(is_missing);
        self.without_socket = is_without.then(|| self.without_socket.unwrap_or(now));
        self.without_socket
    }

    fn status(&mut self, store_outage: Option<String>, may_write: bool, now: Instant) -> Status {
        // A node without OVN, or whose OVN is not there yet: nothing is wrong with the worker.
        let northbound = self.northbound.outage("northbound");
        let without = self.without_socket(northbound.is_none(), now);
        let southbound = self.southbound.as_ref().and_then(|database| database.outage("southbound"));
        let unreachable = northbound.or(southbound);
        let is_unknown = self.wanted.is_none() && !self.is_removing;
        let unread = is_unknown.then(|| "the cluster's objects were not read yet".to_owned());
        let outage = unreachable.filter(|_| without.is_none()).or(store_outage).or(unread);
        let unread = self.facts.problems().iter();
        let mut problems: BTreeSet<_> =
            unread.map(|(subject, problem)| (subject.clone(), problem.clone())).collect();
        // Who does not write does not plan either.
        if may_write {
            let conditions = self.controller.conditions();
            problems.extend(conditions.iter().map(|condition| ("OVN".to_owned(), condition.to_string())));
        }
        problems
            .extend(without.map(|_| ("OVN".to_owned(), "this node has no northbound database".to_owned())));
        // While OVN starts anew there is no socket either.
        let has_none = without.is_some_and(|since| now >= since + ABSENT);
        let is_settled = (self.is_settled && self.in_flight.is_none()) || (has_none && self.is_removing);
        let is_read = self.northbound.last.is_synced() || without.is_some();
        Status {
            count: is_read.then(|| self.rows.count_ours()),
            is_done: outage.is_none() && is_settled,
            problems,
            outage,
        }
    }

    /// Returns when the status changes though nothing happens.
    fn next_status(&self) -> Option<Instant> {
        self.without_socket.filter(|_| self.is_removing).map(|since| since + ABSENT)
    }
}

/// Watches everything that rows follow from; nothing where rows are removed.
fn events(store: &AnyStore, namespace: &str, is_removing: bool) -> BoxStream<'static, (Kind, StoreEvent)> {
    if is_removing {
        return futures::stream::pending().boxed();
    }
    let watch = |kind: Kind| {
        let namespace = if kind == Kind::Node { "" } else { namespace };
        store.list_watch(kind, namespace).map(move |event| (kind, event)).boxed()
    };
    select_all(KINDS.map(watch)).boxed()
}

/// Waits for a change of what there is; without it, or when its sender is gone, for ever.
async fn changed<T>(receiver: Option<&mut watch::Receiver<T>>) {
    if let Some(receiver) = receiver
        && receiver.changed().await.is_ok()
    {
        return;
    }
    pending().await
}

async fn finished(in_flight: &mut Option<BoxFuture<'static, Outcome>>) -> Outcome {
    match in_flight {
        Some(future) => future.await,
        None => pending().await,
    }
}

fn clock() -> Instant {
    Instant::now()
}
