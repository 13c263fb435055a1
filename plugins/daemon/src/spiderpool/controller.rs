//! The controller of Spiderpool's lists. Pure.

use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;
use std::time::{Duration, Instant};

use ipnet::IpNet;
use jiff::Timestamp;
use trieste_control::api::{Kind, Object, ObjectKey};
use trieste_control::network_map::{NetworkMap, outermost};
use trieste_control::runner::{Context, Controller, QueueView, Reconciled, Watch, Write};
use trieste_control::store::{StoreError, StoreEvent};

use super::list::{corrected, has_ours, is_kept};
use crate::remote::RemoteNetworks;
use crate::status::Status;

/// The kinds of objects that have lists.
const LISTS: [Kind; 2] = [Kind::SpiderCoordinator, Kind::SpiderMultusConfig];
/// Ours: the most networks in a list. A pod gets as many routes when its network is made, and an annotation names them all, of
/// which Kubernetes takes 256 KiB an object.
const MAX_NETWORKS: usize = 8_192;
/// Ours: the wait after a server that has not kept a list.
const UNKEPT_WAIT: Duration = Duration::from_secs(60);

/// What there should be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wish {
    /// Each remote network, in each list that is in force.
    Networks,
    /// None of them.
    Nothing,
}

/// Keeps remote networks in Spiderpool's lists.
#[derive(Debug)]
pub struct HijackController {
    namespace: String,
    wish: Wish,
    remote: RemoteNetworks,
    /// How many GatewayRoutes name each network.
    networks: BTreeMap<IpNet, usize>,
    pools: Pools,
    lists: BTreeMap<ObjectKey, Object>,
    listed: BTreeSet<Kind>,
    /// The networks that lists should have; `None` where that has to be computed again.
    wanted: Option<Wanted>,
    problems: BTreeMap<ObjectKey, String>,
    /// The objects of which the server has not kept the last list.
    unkept: BTreeSet<ObjectKey>,
    /// The kinds that the API server does not have.
    unserved: BTreeSet<Kind>,
}

/// The networks of SpiderIPPools.
#[derive(Debug, Default)]
struct Pools {
    by_name: BTreeMap<String, IpNet>,
    /// How many pools have a network.
    counts: NetworkMap<usize>,
}

/// What lists should have.
#[derive(Debug, Default)]
struct Wanted {
    networks: Vec<IpNet>,
    /// What they should have and cannot.
    problems: Vec<(String, String)>,
}

impl Pools {
    fn put(&mut self, name: &str, network: Option<IpNet>) -> bool {
        let before = self.by_name.remove(name);
        if let Some(before) = before
            && let Some(count) = self.counts.get_mut(&before)
        {
            *count = count.saturating_sub(1);
            if *count == 0 {
                self.counts.remove(&before);
            }
        }
        if let Some(network) = network {
            *self.counts.entry(network) += 1;
            self.by_name.insert(name.to_owned(), network);
        }
        before != network
    }

    fn observe(&mut self, event: StoreEvent) -> bool {
        match event {
            StoreEvent::Listed(objects) => {
                let before = std::mem::take(self).by_name;
                for object in &objects {
                    self.put(&object.metadata.name, subnet(object));
                }
                before != self.by_name
            }
            StoreEvent::Applied(object) => self.put(&object.metadata.name, subnet(&object)),
            StoreEvent::Deleted(object) => self.put(&object.metadata.name, None),
            StoreEvent::Unavailable(_) | _ => false,
        }
    }

    fn overlapping(&self, network: IpNet) -> Option<IpNet> {
        self.counts.overlapping(network).next().map(|(pool, _)| pool)
    }
}

/// Returns the network that a pool's addresses are in; pods may have some of a pool that is switched off.
fn subnet(pool: &Object) -> Option<IpNet> {
    let text = pool.body.get("spec")?.get("subnet")?.as_str()?;
    text.trim().parse::<IpNet>().ok().map(|network| network.trunc())
}

impl HijackController {
    /// Returns a controller that has observed nothing. `namespace` is that of the GatewayRoute objects.
    #[must_use]
    pub fn new(namespace: &str, wish: Wish) -> Self {
        Self {
            namespace: namespace.to_owned(),
            wish,
            remote: RemoteNetworks::default(),
            networks: BTreeMap::new(),
            pools: Pools::default(),
            lists: BTreeMap::new(),
            listed: BTreeSet::new(),
            wanted: None,
            problems: BTreeMap::new(),
            unkept: BTreeSet::new(),
            unserved: BTreeSet::new(),
        }
    }

    fn observe_routes(&mut self, event: StoreEvent) -> bool {
        let changes = self.remote.observe(event);
        for change in &changes {
            for network in &change.before {
                if let Some(count) = self.networks.get_mut(network) {
                    *count = count.saturating_sub(1);
                }
            }
            change.after.iter().for_each(|network| *self.networks.entry(*network).or_default() += 1);
            for network in &change.before {
                if self.networks.get(network) == Some(&0) {
                    self.networks.remove(network);
                }
            }
        }
        !changes.is_empty()
    }

    fn observe_lists(&mut self, kind: Kind, event: StoreEvent) -> Vec<ObjectKey> {
        match event {
            StoreEvent::Listed(objects) => {
                let gone = self.lists.extract_if(.., |key, _| key.kind == kind).map(|(key, _)| key);
                let mut keys: BTreeSet<ObjectKey> = gone.collect();
                for object in objects {
                    keys.insert(object.key());
                    self.lists.insert(object.key(), object);
                }
                keys.into_iter().collect()
            }
            StoreEvent::Applied(object) => {
                let key = object.key();
                self.lists.insert(key.clone(), object);
                vec![key]
            }
            StoreEvent::Deleted(object) => {
                self.lists.remove(&object.key());
                vec![object.key()]
            }
            StoreEvent::Unavailable(_) | _ => Vec::new(),
        }
    }

    /// Computes what lists should have, where that was not done since a change; returns what to write for an object.
    fn plan(&mut self, key: &ObjectKey, now: Timestamp) -> Result<Option<Object>, String> {
        let wanted = self.wanted.get_or_insert_with(|| match self.wish {
            Wish::Networks => wanted(&self.networks, &self.pools),
            Wish::Nothing => Wanted::default(),
        });
        let found = self.lists.get(key).filter(|object| !object.metadata.is_terminating());
        found.map_or(Ok(None), |found| corrected(found, &wanted.networks, now))
    }
}

fn wanted(networks: &BTreeMap<IpNet, usize>, pools: &Pools) -> Wanted {
    let mut wanted = Wanted::default();
    for network in outermost(networks.keys().copied()) {
        if let Some(pool) = pools.overlapping(network) {
            let text = format!(
                "it overlaps {pool}, in which SpiderIPPools give pods of this cluster addresses: pods keep their way to their own \
                 network, and do not reach that of the remote cluster; give the clusters different networks or use globalnet"
            );
            wanted.problems.push((format!("remote network {network}"), text));
        } else if wanted.networks.len() < MAX_NETWORKS {
            wanted.networks.push(network);
        } else {
            let text = format!(
                "there are more than {MAX_NETWORKS} in hijackCIDR lists: pods with a second device do not reach it"
            );
            wanted.problems.push((format!("remote network {network}"), text));
        }
    }
    wanted
}

impl Controller for HijackController {
    type Key = ObjectKey;
    type Status = Status;
    type Input = Infallible;

    fn name(&self) -> &'static str {
        "spiderpool-lists"
    }

    fn watches(&self) -> BTreeSet<Watch> {
        let everywhere = LISTS.into_iter().chain([Kind::SpiderIpPool]);
        everywhere
            .map(|kind| Watch::new(0, kind, ""))
            .chain([Watch::new(0, Kind::GatewayRoute, &*self.namespace)])
            .collect()
    }

    fn does_without(&self, watch: &Watch, error: &StoreError) -> bool {
        watch.kind != Kind::GatewayRoute && error.is_unserved()
    }

    fn observe(&mut self, watch: &Watch, event: StoreEvent, _: Instant) -> Vec<ObjectKey> {
        match &event {
            StoreEvent::Unavailable(error) if error.is_unserved() => {
                self.unserved.insert(watch.kind);
            }
            StoreEvent::Listed(_) | StoreEvent::Applied(_) | StoreEvent::Deleted(_) => {
                self.unserved.remove(&watch.kind);
            }
            StoreEvent::Unavailable(_) | _ => {}
        }
        let is_first = matches!(event, StoreEvent::Listed(_)) && self.listed.insert(watch.kind);
        let (is_wanted_anew, keys) = match watch.kind {
            Kind::GatewayRoute => (self.observe_routes(event), Vec::new()),
            Kind::SpiderIpPool => (self.pools.observe(event), Vec::new()),
            kind @ (Kind::SpiderCoordinator | Kind::SpiderMultusConfig | _) => {
                (false, self.observe_lists(kind, event))
            }
        };
        if is_wanted_anew {
            self.wanted = None;
        }
        if is_first || is_wanted_anew { self.lists.keys().cloned().collect() } else { keys }
    }

    fn reconcile(&mut self, key: &ObjectKey, context: &Context) -> Reconciled {
        self.problems.remove(key);
        let is_known =
            |watch: &Watch| self.listed.contains(&watch.kind) || self.unserved.contains(&watch.kind);
        if !self.watches().iter().all(is_known) {
            return Reconciled::await_change();
        }
        match self.plan(key, context.wall) {
            Ok(None) => {
                self.unkept.remove(key);
                Reconciled::await_change()
            }
            Ok(Some(_)) if self.unkept.remove(key) => {
                let reason = format!(
                    "{} {}: the API server does not keep spec's hijackCIDR as it was written: Spiderpool is older than version 0.8, or \
                     something else changes the object at once",
                    key.kind, key.name
                );
                Reconciled::hold(reason, UNKEPT_WAIT)
            }
            Ok(Some(object)) => Reconciled::write(vec![Write::Update(object)]),
            Err(problem) => {
                self.problems.insert(key.clone(), problem);
                Reconciled::await_change()
            }
        }
    }

    fn written(
        &mut self,
        key: &ObjectKey,
        write: &Write,
        outcome: Result<&StoreEvent, &StoreError>,
        _: Instant,
    ) {
        if let (Some(written), Ok(StoreEvent::Applied(kept))) = (write.object(), outcome)
            && !is_kept(written, kept)
        {
            self.unkept.insert(key.clone());
        }
    }

    fn status(&self, view: &QueueView<'_>) -> Status {
        let of_lists = self.problems.iter().map(|(key, problem)| (subject(key), problem.clone()));
        let wanted = self.wanted.iter().flat_map(|wanted| wanted.problems.iter().cloned());
        let refused = view.refused.iter().map(|(key, reason)| (key.to_string(), (*reason).to_owned()));
        let held = view.hold.map(|reason| ("hijackCIDR lists".to_owned(), reason.to_owned()));
        let problems: BTreeSet<_> =
            of_lists.chain(wanted).chain(refused).chain(held).chain(self.remote.problems()).collect();
        let mut outages = view.outages.iter().filter(|(watch, _)| !self.unserved.contains(&watch.kind));
        let unreadable = outages.next().map(|(watch, reason)| format!("{}: {reason}", watch.kind));
        let unwritable = || view.unavailable.iter().flatten().next().map(|&reason| reason.to_owned());
        let outage = unreadable.or_else(unwritable);
        let has = |kind: &Kind| self.listed.contains(kind) || self.unserved.contains(kind);
        let has_lists = LISTS.iter().all(has);
        let has_all = has_lists && has(&Kind::SpiderIpPool) && self.listed.contains(&Kind::GatewayRoute);
        let ours = self.lists.values().filter(|object| has_ours(object)).count();
        let is_quiet = view.is_idle && outage.is_none();
        Status {
            count: has_lists.then_some(ours),
            is_done: has_all && is_quiet && problems.is_empty(),
            problems,
            outage,
        }
    }
}

/// Returns an object's name for people.
fn subject(key: &ObjectKey) -> String {
    match key.namespace.is_empty() {
        true => format!("{} {}", key.kind, key.name),
        false => format!("{} {}/{}", key.kind, key.namespace, key.name),
    }
}

#[cfg(test)]
mod tests;
