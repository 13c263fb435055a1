//! The controller of IPPools. Pure.

use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;
use std::time::{Duration, Instant};

use ipnet::IpNet;
use trieste_control::api::{Kind, Object, has_closed_routes};
use trieste_control::network_map::outermost;
use trieste_control::remote_pool::name;
use trieste_control::runner::{Context, Controller, QueueView, Reconciled, Watch, Write};
use trieste_control::store::{StoreError, StoreEvent};

use super::pool_index::PoolIndex;
use super::{corrected, is_masquerading, is_ours, network, pool, roks};
use crate::remote::{Change, RemoteNetworks};
use crate::status::{Status, Wish};

/// The controller's name in metrics and logs.
pub const NAME: &str = "calico-pools";
/// When to look again whether a pool of ours that has to go is gone.
const LATER: Duration = Duration::from_millis(250);
/// What has to be listed before anything is written.
const NEEDED: [Kind; 2] = [Kind::GatewayRoute, Kind::IpPool];

/// Keeps a pool for each network of a remote cluster, and on IBM's ROKS the mode of the default pool.
#[derive(Debug)]
pub struct PoolsController {
    namespace: String,
    wish: Wish,
    remote: RemoteNetworks,
    /// The network of each pool that there should be, by the GatewayRoute that it is for.
    wanted: BTreeMap<String, BTreeMap<String, IpNet>>,
    pools: PoolIndex,
    listed: BTreeSet<Kind>,
    /// Whether the API server has no IPPools, as where Calico keeps them in a store of its own.
    is_unserved: bool,
    /// Whether the cluster is one of IBM's ROKS; `None` before the Services were listed.
    is_roks: Option<bool>,
    /// Why Services may not be read, as with the rights of an earlier version.
    unread_services: Option<String>,
    problems: BTreeMap<String, String>,
}

impl PoolsController {
    /// Returns a controller that has observed nothing. `namespace` is that of the GatewayRoute objects.
    #[must_use]
    pub fn new(namespace: &str, wish: Wish) -> Self {
        Self {
            namespace: namespace.to_owned(),
            wish,
            remote: RemoteNetworks::default(),
            wanted: BTreeMap::new(),
            pools: PoolIndex::default(),
            listed: BTreeSet::new(),
            is_unserved: false,
            is_roks: None,
            unread_services: None,
            problems: BTreeMap::new(),
        }
    }

    /// Returns the names of all pools that there are of ours or should be, and the default pool's.
    fn keys(&self) -> Vec<String> {
        let there = self.pools.iter().filter(|(_, pool)| is_ours(pool)).map(|(name, _)| name);
        let all: BTreeSet<&String> = self.wanted.keys().chain(there).collect();
        all.into_iter().cloned().chain([roks::DEFAULT_POOL.to_owned()]).collect()
    }

    fn has_all(&self) -> bool {
        NEEDED.iter().all(|kind| self.listed.contains(kind))
    }

    /// Takes in what a GatewayRoute names now; returns the names of the pools that it concerned and concerns.
    fn put_routes(&mut self, change: &Change) -> Vec<String> {
        // Networks that are closed and no cluster's need no pool.
        if has_closed_routes(&change.route) {
            return Vec::new();
        }
        let pools = |networks: &BTreeSet<IpNet>| -> BTreeMap<String, IpNet> {
            let outermost = outermost(networks.iter().copied()).into_iter();
            outermost.map(|network| (name(&change.route, network), network)).collect()
        };
        let (before, after) = (pools(&change.before), pools(&change.after));
        for pool in before.keys() {
            let is_last = self.wanted.get_mut(pool).is_some_and(|by| {
                by.remove(&change.route);
                by.is_empty()
            });
            if is_last {
                self.wanted.remove(pool);
            }
        }
        for (pool, network) in &after {
            self.wanted.entry(pool.clone()).or_default().insert(change.route.clone(), *network);
        }
        before.into_keys().chain(after.into_keys()).collect()
    }

    fn observe_routes(&mut self, event: StoreEvent) -> Vec<String> {
        let had_none = self.wanted.is_empty();
        let mut pools: Vec<String> =
            self.remote.observe(event).iter().flat_map(|change| self.put_routes(change)).collect();
        let is_roks = self.is_roks == Some(true);
        pools.extend((is_roks && had_none && !self.wanted.is_empty()).then(|| roks::DEFAULT_POOL.to_owned()));
        pools
    }

    /// Takes in Services: by the gateways' a cluster is one of ROKS or is not.
    fn observe_services(&mut self, event: &StoreEvent) -> Vec<String> {
        let is_gateways = |name: &str| name == roks::GATEWAY_SERVICE;
        let is_roks = match event {
            StoreEvent::Listed(services) => services.iter().any(roks::is_of_ibm),
            StoreEvent::Applied(service) if is_gateways(&service.metadata.name) => roks::is_of_ibm(service),
            StoreEvent::Deleted(service) if is_gateways(&service.metadata.name) => false,
            StoreEvent::Unavailable(error @ StoreError::Forbidden { .. }) => {
                self.unread_services = Some(error.to_string());
                return Vec::new();
            }
            StoreEvent::Applied(_) | StoreEvent::Deleted(_) | StoreEvent::Unavailable(_) | _ => {
                return Vec::new();
            }
        };
        self.unread_services = None;
        let before = self.is_roks.replace(is_roks);
        let is_changed = before != self.is_roks;
        is_changed.then(|| roks::DEFAULT_POOL.to_owned()).into_iter().collect()
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
        let of_each = self.wanted.get(pool).filter(|_| self.wish == Wish::Everything)?;
        of_each.values().next().copied()
    }

    /// Returns what to write for a pool, or why nothing can be.
    fn plan(&self, name: &str) -> Result<Step, String> {
        let found = self.pools.get(name);
        if let Some(pool) = found.filter(|pool| name == roks::DEFAULT_POOL && !is_ours(pool)) {
            return self.plan_default(pool);
        }
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

    /// Returns what to write for the pool of the cluster's own pods. Its mode stays until an uninstallation, also where the cluster is
    /// no longer one of ROKS: a Service that is made anew is to disturb no pod.
    fn plan_default(&self, pool: &Object) -> Result<Step, String> {
        let wanted = match self.wish {
            Wish::Nothing => roks::restored(pool),
            // Without remote networks there is nothing to do, nor for a worker that has been left behind by an uninstallation.
            Wish::Everything if self.is_roks == Some(true) && !self.wanted.is_empty() => roks::managed(pool)?,
            Wish::Everything => None,
        };
        Ok(Step::of(wanted.map(Write::Update)))
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
        NAME
    }

    fn watches(&self) -> BTreeSet<Watch> {
        let own = |kind| Watch::new(0, kind, &*self.namespace);
        // What is undone is at the pool, wherever the cluster is.
        let services = (self.wish == Wish::Everything).then(|| own(Kind::Service));
        let needed = [own(Kind::GatewayRoute), Watch::new(0, Kind::IpPool, "")];
        needed.into_iter().chain(services).collect()
    }

    fn does_without(&self, watch: &Watch, error: &StoreError) -> bool {
        let is_forbidden = matches!(error, StoreError::Forbidden { .. });
        (watch.kind == Kind::IpPool && error.is_unserved()) || (watch.kind == Kind::Service && is_forbidden)
    }

    fn observe(&mut self, watch: &Watch, event: StoreEvent, _: Instant) -> Vec<String> {
        if watch.kind == Kind::IpPool {
            self.is_unserved = match &event {
                StoreEvent::Unavailable(error) => error.is_unserved(),
                StoreEvent::Listed(_) | StoreEvent::Applied(_) | StoreEvent::Deleted(_) | _ => false,
            };
        }
        let is_first = matches!(event, StoreEvent::Listed(_)) && self.listed.insert(watch.kind);
        let concerned = if watch.kind == Kind::IpPool {
            self.observe_pools(event)
        } else if watch.kind == Kind::Service {
            self.observe_services(&event)
        } else {
            self.observe_routes(event)
        };
        if is_first { self.keys() } else { concerned }
    }

    fn reconcile(&mut self, name: &String, _: &Context) -> Reconciled {
        if !self.has_all() {
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
        let unserved = self.is_unserved.then(|| {
            let text = "the API server has none: where Calico keeps its pools elsewhere, make one for each remote network there, \
                        disabled and without natOutgoing";
            ("IPPools".to_owned(), text.to_owned())
        });
        let services = self.unread_services.iter().map(|reason| {
            let text = format!("whether the cluster is one of IBM's ROKS is not known, {reason}: join again, which gives the right");
            ("Services".to_owned(), text)
        });
        let problems: BTreeSet<_> = by_pool
            .chain(self.remote.problems())
            .chain(Status::refused(view))
            .chain(unserved)
            .chain(services)
            .collect();
        let outage = Status::outage(view, |watch| {
            let is_unserved = self.is_unserved && watch.kind == Kind::IpPool;
            let is_unread = self.unread_services.is_some() && watch.kind == Kind::Service;
            !(is_unserved || is_unread)
        });
        let ours = self.pools.iter().filter(|(_, pool)| is_ours(pool) || roks::is_managed(pool));
        Status {
            count: (self.listed.contains(&Kind::IpPool) || self.is_unserved).then(|| ours.count()),
            is_done: self.is_unserved && self.wish == Wish::Nothing
                || self.has_all() && view.is_idle && problems.is_empty() && outage.is_none(),
            problems,
            outage,
        }
    }
}

#[cfg(test)]
mod tests;
