//! The controller of IPPools. Pure.

use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;
use std::time::{Duration, Instant};

use ipnet::IpNet;
use trieste_control::api::{GatewayRoute, Kind, Object, Resource as _, has_closed_routes};
use trieste_control::runner::{Context, Controller, QueueView, Reconciled, Watch, Write};
use trieste_control::store::{StoreError, StoreEvent};

use super::pool_index::PoolIndex;
use super::{corrected, is_masquerading, is_ours, name, network, outermost, pool};
use crate::status::Status;

/// When to look again whether a pool of ours that has to go is gone.
const LATER: Duration = Duration::from_millis(250);

/// What there should be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wish {
    /// A pool for each remote network.
    Pools,
    /// None.
    Nothing,
}

/// Networks by the names of their pools, or why they cannot be read.
type Read = Result<BTreeMap<String, IpNet>, String>;

/// Keeps a pool for each network of a remote cluster.
#[derive(Debug)]
pub struct PoolsController {
    namespace: String,
    wish: Wish,
    /// The networks of each GatewayRoute that could be read, by the names of their pools.
    routes: BTreeMap<String, BTreeMap<String, IpNet>>,
    /// Why GatewayRoutes cannot be read; what they said before stays.
    unread: BTreeMap<String, String>,
    /// The network of each pool that there should be, by the GatewayRoute that it is for.
    wanted: BTreeMap<String, BTreeMap<String, IpNet>>,
    pools: PoolIndex,
    listed: BTreeSet<Kind>,
    /// Whether the API server has no IPPools, as where Calico keeps them in a store of its own.
    is_unserved: bool,
    problems: BTreeMap<String, String>,
}

impl PoolsController {
    /// Returns a controller that has observed nothing. `namespace` is that of the GatewayRoute objects.
    #[must_use]
    pub fn new(namespace: &str, wish: Wish) -> Self {
        Self {
            namespace: namespace.to_owned(),
            wish,
            routes: BTreeMap::new(),
            unread: BTreeMap::new(),
            wanted: BTreeMap::new(),
            pools: PoolIndex::default(),
            listed: BTreeSet::new(),
            is_unserved: false,
            problems: BTreeMap::new(),
        }
    }

    /// Returns the names of all pools that there are of ours or should be.
    fn keys(&self) -> Vec<String> {
        let there = self.pools.iter().filter(|(_, pool)| is_ours(pool)).map(|(name, _)| name);
        let all: BTreeSet<&String> = self.wanted.keys().chain(there).collect();
        all.into_iter().cloned().collect()
    }

    /// Takes in a GatewayRoute, or that it is gone; returns the names of the pools that it concerned and concerns.
    fn put_routes(&mut self, object: &str, read: Option<Read>) -> Vec<String> {
        self.unread.remove(object);
        let read = match read {
            Some(Err(problem)) => {
                self.unread.insert(object.to_owned(), problem);
                return Vec::new();
            }
            Some(Ok(read)) => Some(read),
            None => None,
        };
        if self.routes.get(object) == read.as_ref() {
            return Vec::new();
        }
        let before = self.routes.remove(object).unwrap_or_default();
        for pool in before.keys() {
            let is_last = self.wanted.get_mut(pool).is_some_and(|by| {
                by.remove(object);
                by.is_empty()
            });
            if is_last {
                self.wanted.remove(pool);
            }
        }
        let mut keys: Vec<String> = before.into_keys().collect();
        for (pool, network) in read.iter().flatten() {
            self.wanted.entry(pool.clone()).or_default().insert(object.to_owned(), *network);
            keys.push(pool.clone());
        }
        self.routes.extend(read.map(|read| (object.to_owned(), read)));
        keys
    }

    fn observe_routes(&mut self, event: StoreEvent) -> Vec<String> {
        match event {
            StoreEvent::Listed(objects) => {
                let gone: Vec<String> = {
                    let listed: BTreeSet<&str> =
                        objects.iter().map(|object| object.metadata.name.as_str()).collect();
                    let known = self.routes.keys().chain(self.unread.keys());
                    known.filter(|name| !listed.contains(name.as_str())).cloned().collect()
                };
                let mut keys: Vec<String> =
                    gone.iter().flat_map(|name| self.put_routes(name, None)).collect();
                for object in &objects {
                    keys.extend(self.put_routes(&object.metadata.name, networks(object)));
                }
                keys
            }
            StoreEvent::Applied(object) => self.put_routes(&object.metadata.name, networks(&object)),
            StoreEvent::Deleted(object) => self.put_routes(&object.metadata.name, None),
            StoreEvent::Unavailable(_) | _ => Vec::new(),
        }
    }

    /// Takes in pools. One of somebody else's concerns all.
    fn observe_pools(&mut self, event: StoreEvent) -> Vec<String> {
        let (object, is_there) = match event {
            StoreEvent::Listed(objects) => {
                let ours = self.pools.iter().filter(|(_, pool)| is_ours(pool));
                let gone: Vec<String> = ours.map(|(name, _)| name.clone()).collect();
                self.pools = PoolIndex::default();
                objects.into_iter().for_each(|object| drop(self.pools.put(object)));
                return [gone, self.keys()].concat();
            }
            StoreEvent::Applied(object) => (object, true),
            StoreEvent::Deleted(object) => (object, false),
            StoreEvent::Unavailable(_) | _ => return Vec::new(),
        };
        let (name, is_of_us) = (object.metadata.name.clone(), is_ours(&object));
        let before = match is_there {
            true => self.pools.put(object),
            false => self.pools.remove(&name),
        };
        match is_of_us && before.as_ref().is_none_or(is_ours) {
            true => vec![name],
            false => self.keys().into_iter().chain([name]).collect(),
        }
    }

    /// Returns the network that a pool of this name should be for.
    fn wanted(&self, pool: &str) -> Option<IpNet> {
        let of_each = self.wanted.get(pool).filter(|_| self.wish == Wish::Pools)?;
        of_each.values().next().copied()
    }

    /// Returns what to write for a pool, or why nothing can be.
    fn plan(&self, name: &str) -> Result<Step, String> {
        let found = self.pools.get(name);
        let removal = || found.filter(|pool| is_ours(pool)).map(|pool| Write::Delete(pool.clone()));
        let Some(wanted) = self.wanted(name) else { return Ok(Step::of(removal())) };
        let mut others = self.pools.overlapping(wanted).filter(|pool| pool.metadata.name != name);
        let mut foreign = self.pools.overlapping(wanted).filter(|pool| !is_ours(pool));
        if let Some(foreign) = foreign.next() {
            let whose = format!("IPPool {}", foreign.metadata.name);
            return match network(foreign).is_some_and(|net| net.contains(&wanted))
                && !is_masquerading(foreign)
            {
                // Somebody has made it by hand.
                true => Ok(Step::of(removal())),
                false => Err(format!(
                    "{whose} overlaps {wanted} of a remote cluster, so that Calico takes no pool for that, and pods' \
                     addresses are masqueraded towards it; change or remove {whose}, or give the clusters different networks"
                )),
            };
        }
        if let Some(other) = others.next() {
            let other = &other.metadata.name;
            // One of ours, which has to go first, if it has to.
            return match self.wanted(other) {
                None => Ok(Step::Later),
                Some(_) => Err(format!(
                    "{wanted} of a remote cluster overlaps that of IPPool {other}, so that Calico takes no pool for it; give \
                     the clusters different networks or use globalnet"
                )),
            };
        }
        Ok(Step::of(match found {
            None => Some(Write::Create(pool(name, wanted))),
            Some(found) => corrected(found, wanted).map(Write::Update),
        }))
    }
}

/// What is done for a pool.
enum Step {
    Write(Box<Write>),
    /// Nothing, until another one has gone.
    Later,
    Done,
}

impl Step {
    fn of(write: Option<Write>) -> Self {
        write.map_or(Self::Done, |write| Self::Write(Box::new(write)))
    }
}

impl Controller for PoolsController {
    type Key = String;
    type Status = Status;
    type Input = Infallible;

    fn name(&self) -> &'static str {
        "calico-pools"
    }

    fn watches(&self) -> BTreeSet<Watch> {
        [Watch::new(0, Kind::GatewayRoute, &*self.namespace), Watch::new(0, Kind::IpPool, "")].into()
    }

    fn does_without(&self, watch: &Watch, error: &StoreError) -> bool {
        watch.kind == Kind::IpPool && error.is_unserved()
    }

    fn observe(&mut self, watch: &Watch, event: StoreEvent, _: Instant) -> Vec<String> {
        if watch.kind == Kind::IpPool {
            self.is_unserved = match &event {
                StoreEvent::Unavailable(error) => error.is_unserved(),
                StoreEvent::Listed(_) | StoreEvent::Applied(_) | StoreEvent::Deleted(_) | _ => false,
            };
        }
        let is_first = matches!(event, StoreEvent::Listed(_)) && self.listed.insert(watch.kind);
        let concerned = match watch.kind == Kind::IpPool {
            true => self.observe_pools(event),
            false => self.observe_routes(event),
        };
        if is_first { self.keys() } else { concerned }
    }

    fn reconcile(&mut self, name: &String, _: &Context) -> Reconciled {
        let has_all = self.listed.len() == self.watches().len();
        if !has_all {
            return Reconciled::await_change();
        }
        self.problems.remove(name);
        match self.plan(name) {
            Ok(Step::Write(write)) => Reconciled::write(vec![*write]),
            Ok(Step::Later) => Reconciled::requeue(LATER),
            Ok(Step::Done) => Reconciled::await_change(),
            Err(problem) => {
                self.problems.insert(name.clone(), problem);
                Reconciled::await_change()
            }
        }
    }

    fn status(&self, view: &QueueView<'_>) -> Status {
        let by_pool = self.problems.iter().map(|(pool, problem)| (format!("IPPool {pool}"), problem.clone()));
        let unread =
            self.unread.iter().map(|(name, problem)| (format!("GatewayRoute {name}"), problem.clone()));
        let refused = view.refused.iter().map(|(key, reason)| (key.to_string(), (*reason).to_owned()));
        let unserved = self.is_unserved.then(|| {
            let text = "the API server has none: where Calico keeps its pools elsewhere, make one for each remote network there, \
                        disabled and without natOutgoing";
            ("IPPools".to_owned(), text.to_owned())
        });
        let problems: BTreeSet<_> = by_pool.chain(unread).chain(refused).chain(unserved).collect();
        let mut outages =
            view.outages.iter().filter(|(watch, _)| !(self.is_unserved && watch.kind == Kind::IpPool));
        let unreadable = outages.next().map(|(watch, reason)| format!("{}: {reason}", watch.kind));
        let unwritable = || view.unavailable.iter().flatten().next().map(|&reason| reason.to_owned());
        let outage = unreadable.or_else(unwritable);
        let has_all = self.listed.len() == self.watches().len();
        let ours = self.pools.iter().filter(|(_, pool)| is_ours(pool));
        Status {
            count: (self.listed.contains(&Kind::IpPool) || self.is_unserved).then(|| ours.count()),
            is_done: self.is_unserved && self.wish == Wish::Nothing
                || has_all && view.is_idle && problems.is_empty() && outage.is_none(),
            problems,
            outage,
        }
    }
}

/// Reads a GatewayRoute: the networks by the names of their pools; `None` if it has none that need one.
fn networks(object: &Object) -> Option<Read> {
    let cluster = object.metadata.name.as_str();
    if has_closed_routes(cluster) {
        return None;
    }
    let read = GatewayRoute::from_object(object).and_then(|routes| routes.spec.parse());
    Some(match read {
        Ok(facts) => {
            let networks = outermost(&facts.remote_cidrs).into_iter();
            Ok(networks.map(|network| (name(cluster, network), network)).collect())
        }
        Err(error) => Err(error.to_string()),
    })
}

#[cfg(test)]
mod tests;
