//! The controller of Spiderpool's lists. Pure.

use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;
use std::time::{Duration, Instant};

use ipnet::IpNet;
use jiff::Timestamp;
use trieste_control::api::{Kind, Object, ObjectKey};
use trieste_control::network_map::NetworkMap;
use trieste_control::runner::{Context, Controller, QueueView, Reconciled, Watch, Write};
use trieste_control::spiderpool::{ANNOTATION, Room, UNMANAGED};
use trieste_control::store::{StoreError, StoreEvent};

use super::list::{Corrected, corrected, has_ours, is_kept};
use crate::remote::RemoteNetworks;
use crate::status::{Status, Wish};

/// The controller's name in metrics and logs.
pub const NAME: &str = "spiderpool-lists";
/// The kinds of objects that have lists.
const LISTS: [Kind; 2] = [Kind::SpiderCoordinator, Kind::SpiderMultusConfig];
/// Ours: the wait after a server that has not kept a list, or somebody who has undone it several times.
const UNKEPT_WAIT: Duration = Duration::from_secs(60);
/// Ours: as often in a row, each within that time, a list is repaired at once.
const REPAIRS: u32 = 3;

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
    /// The objects with entries of ours.
    ours: BTreeSet<ObjectKey>,
    /// How many times what lists should have has changed.
    version: u64,
    /// The last write of each object.
    written: BTreeMap<ObjectKey, Written>,
    listed: BTreeSet<Kind>,
    /// The networks that lists should have; `None` where that has to be computed again.
    wanted: Option<Wanted>,
    problems: BTreeMap<ObjectKey, String>,
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

/// The last write of an object.
#[derive(Debug, Clone, Copy)]
struct Written {
    /// What [`HijackController::version`] was.
    version: u64,
    at: Instant,
    /// How many times in a row the same was written.
    repairs: u32,
    /// Whether the server has kept it as it was written.
    is_kept: bool,
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
            ours: BTreeSet::new(),
            version: 0,
            written: BTreeMap::new(),
            listed: BTreeSet::new(),
            wanted: None,
            problems: BTreeMap::new(),
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
                let gone = self.lists.keys().filter(|key| key.kind == kind).cloned();
                let mut keys: BTreeSet<ObjectKey> = gone.collect();
                keys.iter().for_each(|key| self.put(key, None));
                for object in objects {
                    let key = object.key();
                    self.put(&key, Some(object));
                    keys.insert(key);
                }
                self.written.retain(|key, _| key.kind != kind || self.lists.contains_key(key));
                keys.into_iter().collect()
            }
            StoreEvent::Applied(object) => {
                let key = object.key();
                self.put(&key, Some(object));
                vec![key]
            }
            StoreEvent::Deleted(object) => {
                self.put(&object.key(), None);
                self.written.remove(&object.key());
                vec![object.key()]
            }
            StoreEvent::Unavailable(_) | _ => Vec::new(),
        }
    }

    /// Takes in an object, or that it is gone.
    fn put(&mut self, key: &ObjectKey, object: Option<Object>) {
        // What is being deleted takes its list with it.
        let object = object.filter(|object| !object.metadata.is_terminating());
        match object.as_ref().is_some_and(has_ours) {
            true => self.ours.insert(key.clone()),
            false => self.ours.remove(key),
        };
        self.lists.remove(key);
        self.lists.extend(object.map(|object| (key.clone(), object)));
    }

    /// Returns `true` if everything was read that has to be known before something is written.
    fn has_all(&self) -> bool {
        let is_known = |kind: Kind| self.listed.contains(&kind) || self.unserved.contains(&kind);
        // Lists are emptied whatever the routes say, and filled only by them.
        let has_routes = self.wish == Wish::Nothing || self.listed.contains(&Kind::GatewayRoute);
        has_routes && LISTS.into_iter().chain([Kind::SpiderIpPool]).all(is_known)
    }

    /// Returns why an object is left as it is for the time being, and for how long.
    fn obstacle(&self, key: &ObjectKey, now: Instant) -> Option<(String, Duration)> {
        let last = self.written.get(key)?;
        let left = UNKEPT_WAIT.checked_sub(now.saturating_duration_since(last.at));
        let left = left.filter(|left| !left.is_zero())?;
        if !last.is_kept {
            let text = "the API server does not keep hijackCIDR as it was written: Spiderpool is older than version 0.8, or something \
                        else changes the object at once";
            return Some((text.to_owned(), left));
        }
        let is_undone = last.version == self.version && last.repairs > REPAIRS;
        is_undone.then(|| {
            let text = format!(
                "something takes entries out of hijackCIDR again and again; look what else manages the object, or set its annotation \
                 {ANNOTATION} to {UNMANAGED} and keep the list by hand"
            );
            (text, left)
        })
    }

    /// Takes down that an object is written.
    fn note(&mut self, key: &ObjectKey, is_kept: bool, now: Instant) {
        let last = self.written.get(key).filter(|last| {
            last.version == self.version && now.saturating_duration_since(last.at) < UNKEPT_WAIT * 2
        });
        let repairs = last.map_or(0, |last| last.repairs.saturating_add(1));
        self.written.insert(key.clone(), Written { version: self.version, at: now, repairs, is_kept });
    }

    /// Computes what lists should have, where that was not done since a change; returns what becomes of an object.
    fn plan(&mut self, key: &ObjectKey, now: Timestamp) -> Result<Corrected, String> {
        let wanted = self.wanted.get_or_insert_with(|| match self.wish {
            Wish::Everything => wanted(&self.networks, &self.pools),
            Wish::Nothing => Wanted::default(),
        });
        self.lists
            .get(key)
            .map_or_else(|| Ok(Corrected::default()), |found| corrected(found, &wanted.networks, now))
    }
}

/// Returns what lists should have. A network inside of another one is wanted as well: the wider one may go before it.
fn wanted(networks: &BTreeMap<IpNet, usize>, pools: &Pools) -> Wanted {
    let mut wanted = Wanted::default();
    for network in networks.keys() {
        match pools.overlapping(*network) {
            None => wanted.networks.push(*network),
            Some(pool) => {
                let text = format!(
                    "it overlaps {pool}, in which SpiderIPPools give pods of this cluster addresses: pods keep their way to their \
                     own network, and do not reach that of the remote cluster; give the clusters different networks or use globalnet"
                );
                wanted.problems.push((format!("remote network {network}"), text));
            }
        }
    }
    wanted
}

impl Controller for HijackController {
    type Key = ObjectKey;
    type Status = Status;
    type Input = Infallible;

    fn name(&self) -> &'static str {
        NAME
    }

    fn watches(&self) -> BTreeSet<Watch> {
        let everywhere = LISTS.into_iter().chain([Kind::SpiderIpPool]);
        everywhere
            .map(|kind| Watch::new(0, kind, ""))
            .chain([Watch::new(0, Kind::GatewayRoute, &*self.namespace)])
            .collect()
    }

    fn observe(&mut self, watch: &Watch, event: StoreEvent, _: Instant) -> Vec<ObjectKey> {
        let was_ready = self.has_all();
        match &event {
            StoreEvent::Unavailable(error) if error.is_unserved() => {
                self.unserved.insert(watch.kind);
            }
            StoreEvent::Listed(_) => {
                self.listed.insert(watch.kind);
                self.unserved.remove(&watch.kind);
            }
            StoreEvent::Unavailable(_) | StoreEvent::Applied(_) | StoreEvent::Deleted(_) | _ => {}
        }
        let (is_wanted_anew, keys) = match watch.kind {
            Kind::GatewayRoute => (self.observe_routes(event), Vec::new()),
            Kind::SpiderIpPool => (self.pools.observe(event), Vec::new()),
            kind @ (Kind::SpiderCoordinator | Kind::SpiderMultusConfig | _) => {
                (false, self.observe_lists(kind, event))
            }
        };
        if is_wanted_anew {
            self.wanted = None;
            self.version += 1;
        }
        if is_wanted_anew || self.has_all() != was_ready {
            self.lists.keys().cloned().collect()
        } else {
            keys
        }
    }

    fn reconcile(&mut self, key: &ObjectKey, context: &Context) -> Reconciled {
        self.problems.remove(key);
        if !self.has_all() {
            return Reconciled::await_change();
        }
        match self.plan(key, context.wall) {
            Ok(Corrected { object: None, left_out }) => {
                if let Some(last) = self.written.get_mut(key) {
                    last.is_kept = true;
                }
                if left_out > 0 {
                    self.problems.insert(key.clone(), no_room(left_out));
                }
                Reconciled::await_change()
            }
            Ok(Corrected { object: Some(object), .. }) => match self.obstacle(key, context.now) {
                // Whatever else changes is looked at meanwhile.
                Some((problem, wait)) => {
                    self.problems.insert(key.clone(), problem);
                    Reconciled::requeue(wait)
                }
                None => Reconciled::write(vec![Write::Update(object)]),
            },
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
        now: Instant,
    ) {
        if let (Some(written), Ok(StoreEvent::Applied(kept))) = (write.object(), outcome) {
            self.note(key, is_kept(written, kept), now);
        }
    }

    fn status(&self, view: &QueueView<'_>) -> Status {
        let of_lists = self.problems.iter().map(|(key, problem)| (subject(key), problem.clone()));
        let wanted = self.wanted.iter().flat_map(|wanted| wanted.problems.iter().cloned());
        // What is emptied is not filled by routes.
        let is_filling = self.wish == Wish::Everything;
        let of_routes = self.remote.problems().filter(|_| is_filling);
        let problems: BTreeSet<_> =
            of_lists.chain(wanted).chain(Status::refused(view)).chain(of_routes).collect();
        let outage = Status::outage(view, |watch| {
            let is_of_routes = watch.kind == Kind::GatewayRoute;
            if is_of_routes { is_filling } else { !self.unserved.contains(&watch.kind) }
        });
        let has = |kind: &Kind| self.listed.contains(kind) || self.unserved.contains(kind);
        let is_quiet = view.is_idle && outage.is_none();
        Status {
            count: LISTS.iter().all(has).then_some(self.ours.len()),
            is_done: self.has_all() && is_quiet && problems.is_empty(),
            problems,
            outage,
        }
    }
}

/// Says that a list lacks networks for want of room.
fn no_room(count: usize) -> String {
    format!(
        "its annotation has room for {} KiB: {count} remote networks are left out, which pods with a second device do not reach",
        Room::BYTES >> 10
    )
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
