//! All that is known of both stores, by service.
//!
//! An event costs what it concerns: the object's own service, the services of a namespace that came or went, or those of a cluster
//! whose networks changed. Which service an object is of, and in what part, is said by its kind, its labels and where it is; what is
//! of none is not kept.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::IpAddr;

use trieste_control::api::{Kind, Object, ObjectKey};
use trieste_control::sets;
use trieste_control::store::{StoreError, StoreEvent};
use trieste_control::sync::Networks;

use crate::admit;
use crate::aggregate;
use crate::clusterset::ClustersetIps;
use crate::config::AgentConfig;
use crate::family::{Family, PerFamily};
use crate::name::{BROKER, ServiceName};
use crate::owned;
use crate::place;
use crate::row::{Row, Slot};

/// Ours: most slices of one other cluster. Beyond them, none of its is taken in.
pub(crate) const MAX_SLICES_OF_ONE: usize = 20_000;
/// Ours: most objects that are remembered as refused; the rest is refused all the same.
const MAX_REFUSED: usize = 32;

/// See the module.
#[derive(Debug)]
pub(crate) struct State {
    pub(crate) config: AgentConfig,
    rows: BTreeMap<ServiceName, Row>,
    places: BTreeMap<(usize, ObjectKey), (ServiceName, Slot)>,
    namespaces: BTreeSet<String>,
    /// The kinds of each store that were listed since they could not be read.
    listed: BTreeSet<(usize, Kind)>,
    /// Whether everything of the broker has been listed at some time.
    pub(crate) has_read_broker: bool,
    /// The slices of each other cluster on the broker, by name.
    foreign: BTreeMap<String, BTreeSet<String>>,
    /// The addresses for all clusters.
    pub(crate) clusterset: ClustersetIps,
    /// The imports on the broker whose address for all clusters does not count, by name.
    held: BTreeSet<String>,
    /// Which addresses are whose.
    pub(crate) networks: Networks,
    /// Whether other clusters take this cluster's IPv6 addresses, as far as services were planned.
    are_ours_taken: bool,
    /// How many imports on the broker are another cluster's too, and how many copies of imports here.
    shared_imports: usize,
    shared_copies: usize,
    counts: BTreeMap<Slot, usize>,
    /// Objects of other clusters that are left alone, or copied without some addresses, and why.
    refused: BTreeMap<ObjectKey, String>,
}

impl State {
    pub(crate) fn new(config: AgentConfig) -> Self {
        Self {
            networks: Networks::new(&config.cluster_id),
            are_ours_taken: true,
            held: BTreeSet::new(),
            clusterset: ClustersetIps::new(&config.clusterset_ip_cidrs, &config.clusterset_ip_ranges),
            config,
            rows: BTreeMap::new(),
            places: BTreeMap::new(),
            namespaces: BTreeSet::new(),
            listed: BTreeSet::new(),
            has_read_broker: false,
            foreign: BTreeMap::new(),
            shared_imports: 0,
            shared_copies: 0,
            counts: BTreeMap::new(),
            refused: BTreeMap::new(),
        }
    }

    /// Returns the kinds that are watched in a store.
    pub(crate) fn kinds(&self, store: usize) -> &'static [Kind] {
        const LOCAL_KINDS: [Kind; 6] = [
            Kind::Namespace,
            Kind::Service,
            Kind::ServiceExport,
            Kind::EndpointSlice,
            Kind::ServiceImport,
            Kind::GlobalIngressIp,
        ];
        const BROKER_KINDS: [Kind; 3] = [Kind::Cluster, Kind::EndpointSlice, Kind::ServiceImport];
        match (store, self.config.has_globalnet) {
            (BROKER, _) => &BROKER_KINDS,
            (_, true) => &LOCAL_KINDS,
            (_, false) => &LOCAL_KINDS[..5],
        }
    }

    /// Returns `true` if all of a store is known.
    pub(crate) fn is_complete(&self, store: usize) -> bool {
        self.kinds(store).iter().all(|kind| self.listed.contains(&(store, *kind)))
    }

    pub(crate) fn row(&self, name: &ServiceName) -> Option<&Row> {
        self.rows.get(name)
    }

    /// Returns what is wrong with the addresses for all clusters that a service has on the broker.
    pub(crate) fn ip_problems(&self, name: &ServiceName) -> PerFamily<Option<String>> {
        let import = self.rows.get(name).and_then(|row| row.aggregate.as_ref());
        PerFamily::new(|family| self.clusterset.problem_of(import?, family, &self.networks))
    }

    /// Gives a service an address of a family for all clusters, if there is one: where the broker has lost it, that which it had.
    /// Returns whether that is news.
    pub(crate) fn give_address(&mut self, name: &ServiceName, family: Family) -> bool {
        let copy = self.rows.get(name).and_then(|row| row.import.as_ref());
        let former: Option<IpAddr> = copy.and_then(|copy| owned::clusterset_ip(copy, family));
        self.clusterset.give(name, family, former, &self.networks)
    }

    /// Returns every service of which anything is known.
    pub(crate) fn names(&self) -> impl Iterator<Item = &ServiceName> {
        self.rows.keys()
    }

    pub(crate) fn has_namespace(&self, namespace: &str) -> bool {
        self.namespaces.contains(namespace)
    }

    /// Returns the service that has an object of this name, if it is another one.
    pub(crate) fn other_holder(
        &self,
        store: usize,
        key: ObjectKey,
        name: &ServiceName,
    ) -> Option<&ServiceName> {
        self.places.get(&(store, key)).map(|(holder, _)| holder).filter(|holder| *holder != name)
    }

    /// Returns the part that an object has of some service, if it is read.
    pub(crate) fn slot_of(&self, store: usize, key: &ObjectKey) -> Option<Slot> {
        self.places.get(&(store, key.clone())).map(|(_, slot)| *slot)
    }

    /// Adds the services that would give an import of theirs the name of this object: while one has it, the others wait.
    fn touch_namesakes(&self, slot: Slot, import: &str, touched: &mut BTreeSet<ServiceName>) {
        let name = match slot {
            Slot::Aggregate => Some(import),
            Slot::LocalImport => {
                import.strip_suffix(&self.config.cluster_id).and_then(|name| name.strip_suffix('-'))
            }
            Slot::Export
            | Slot::Service
            | Slot::Source
            | Slot::Ingress
            | Slot::Own
            | Slot::Import
            | Slot::Copy
            | Slot::DisplacedImport
            | Slot::DisplacedCopy
            | Slot::Published
            | Slot::Foreign => None,
        };
        let dashes = name.into_iter().flat_map(|name| name.match_indices('-').map(move |(at, _)| (name, at)));
        let services = dashes.map(|(name, at)| ServiceName::new(&name[at + 1..], &name[..at]));
        touched.extend(services.filter(|service| self.rows.contains_key(service)));
    }

    /// Returns how many objects are in this part of a service.
    pub(crate) fn count(&self, slot: Slot) -> usize {
        self.counts.get(&slot).copied().unwrap_or_default()
    }

    /// Returns objects of other clusters that are not taken as they are, and why; at most [`MAX_REFUSED`].
    pub(crate) fn refused(&self) -> impl Iterator<Item = (&ObjectKey, &str)> {
        self.refused.iter().map(|(key, reason)| (key, reason.as_str()))
    }

    /// Returns `true` if the broker has nothing of any other cluster, while there are copies of what others had.
    pub(crate) fn is_emptied(&self) -> bool {
        let copies = self.count(Slot::Copy) + self.count(Slot::DisplacedCopy) + self.shared_copies;
        self.foreign.is_empty() && self.shared_imports == 0 && copies > 0
    }

    /// Returns the services of which there are copies here.
    pub(crate) fn copied(&self) -> BTreeSet<ServiceName> {
        self.rows.iter().filter(|(_, row)| row.is_copied()).map(|(name, _)| name.clone()).collect()
    }

    /// Takes in an event. Returns the services that it concerns.
    pub(crate) fn observe(&mut self, store: usize, kind: Kind, event: StoreEvent) -> BTreeSet<ServiceName> {
        let mut touched = BTreeSet::new();
        match event {
            StoreEvent::Unavailable(error) if is_unneeded(store, kind, &error) => {
                tracing::warn!(
                    %error,
                    "clusters on the broker cannot be read: addresses are not held against their networks"
                );
                self.note_listed(store, kind, &mut touched);
            }
            StoreEvent::Unavailable(_) => drop(self.listed.remove(&(store, kind))),
            StoreEvent::Listed(objects) if kind == Kind::Cluster => {
                self.note_listed(store, kind, &mut touched);
                self.networks.list(&objects);
                self.check_changed(&mut touched);
            }
            StoreEvent::Applied(cluster) if kind == Kind::Cluster => {
                self.networks.put(&cluster);
                self.check_changed(&mut touched);
            }
            StoreEvent::Deleted(cluster) if kind == Kind::Cluster => {
                self.networks.remove(&cluster.metadata.name);
                self.check_changed(&mut touched);
            }
            StoreEvent::Listed(objects) => self.list(store, kind, objects, &mut touched),
            StoreEvent::Applied(object) if kind == Kind::Namespace => {
                self.set_namespace(&object.metadata.name, !object.metadata.is_terminating(), &mut touched);
            }
            StoreEvent::Deleted(object) if kind == Kind::Namespace => {
                self.set_namespace(&object.metadata.name, false, &mut touched);
            }
            StoreEvent::Applied(object) => self.put(store, object, &mut touched),
            StoreEvent::Deleted(object) => {
                let known = self.known(store, &object.key()).and_then(|known| known.metadata.uid.as_ref());
                let uid = object.metadata.uid.as_ref();
                // Late news of an earlier incarnation must not remove the present one.
                if known.is_none() || uid.is_none() || known == uid {
                    self.remove(store, &object.key(), &mut touched);
                }
            }
            _ => {}
        }
        touched
    }

    /// Notes that all of a kind is known, as far as it is to be.
    fn note_listed(&mut self, store: usize, kind: Kind, touched: &mut BTreeSet<ServiceName>) {
        self.listed.insert((store, kind));
        if store == BROKER && !self.has_read_broker && self.is_complete(BROKER) {
            self.has_read_broker = true;
            // Of copies nothing could be said before.
            touched.append(&mut self.copied());
        }
    }

    fn list(&mut self, store: usize, kind: Kind, objects: Vec<Object>, touched: &mut BTreeSet<ServiceName>) {
        self.note_listed(store, kind, touched);
        if kind == Kind::Namespace {
            let present = objects.iter().filter(|object| !object.metadata.is_terminating());
            let present: BTreeSet<String> = present.map(|object| object.metadata.name.clone()).collect();
            for namespace in self.namespaces.symmetric_difference(&present).cloned().collect::<Vec<_>>() {
                self.set_namespace(&namespace, present.contains(&namespace), touched);
            }
            return;
        }
        let listed: BTreeSet<ObjectKey> = objects.iter().map(Object::key).collect();
        let first = (store, ObjectKey::new(kind, "", ""));
        let known = self.places.range(first..).map(|(place, _)| place);
        let known = known.take_while(|(of, key)| *of == store && key.kind == kind);
        let gone: Vec<ObjectKey> =
            known.map(|(_, key)| key).filter(|key| !listed.contains(key)).cloned().collect();
        gone.iter().for_each(|key| self.remove(store, key, touched));
        if (store, kind) == (BROKER, Kind::ServiceImport) {
            let names: BTreeSet<&str> = listed.iter().map(|key| key.name.as_str()).collect();
            let (mut settled, changed) = self.clusterset.list(|name| names.contains(name));
            touched.append(&mut settled);
            self.check_imports(changed, touched);
        }
        self.refused.retain(|key, _| store != BROKER || key.kind != kind || listed.contains(key));
        objects.into_iter().for_each(|object| self.put(store, object, touched));
    }

    fn set_namespace(&mut self, namespace: &str, is_there: bool, touched: &mut BTreeSet<ServiceName>) {
        let has_changed = match is_there {
            true => self.namespaces.insert(namespace.to_owned()),
            false => self.namespaces.remove(namespace),
        };
        if has_changed {
            let of_namespace = self.rows.range(ServiceName::new(namespace, "")..).map(|(name, _)| name);
            touched.extend(of_namespace.take_while(|name| name.namespace == namespace).cloned());
        }
    }

    fn known(&self, store: usize, key: &ObjectKey) -> Option<&Object> {
        let (name, slot) = self.places.get(&(store, key.clone()))?;
        self.rows.get(name)?.get(*slot, &key.name)
    }

    fn put(&mut self, store: usize, object: Object, touched: &mut BTreeSet<ServiceName>) {
        let key = object.key();
        let is_known = |known: &Object| {
            known.metadata.resource_version.is_some() && known.metadata.is_version_of(&object.metadata)
        };
        if self.known(store, &key).is_some_and(is_known) {
            return;
        }
        let is_logged = self.refused.contains_key(&key);
        self.take_out(store, &key, touched);
        if (store, object.kind) == (BROKER, Kind::ServiceImport) {
            let changed = self.clusterset.put(&object);
            self.check_imports(changed, touched);
        }
        let placed = match store {
            BROKER => place::on_broker(&self.config, &object),
            _ => place::here(&self.config, &object),
        };
        let Some((name, slot)) = placed else { return };
        if store == BROKER && !self.admit(slot, &key, &object, is_logged) {
            return;
        }
        if is_import_copy(slot) && self.is_shared(&object) {
            self.shared_copies += 1;
        }
        touched.insert(name.clone());
        self.note_seen(slot, &name);
        self.touch_namesakes(slot, &key.name, touched);
        *self.counts.entry(slot).or_default() += 1;
        let row = self.rows.entry(name.clone()).or_default();
        row.put(slot, object);
        row.share_body(slot, &key.name);
        self.places.insert((store, key), (name, slot));
    }

    fn remove(&mut self, store: usize, key: &ObjectKey, touched: &mut BTreeSet<ServiceName>) {
        self.take_out(store, key, touched);
        if (store, key.kind) == (BROKER, Kind::ServiceImport) {
            let changed = self.clusterset.remove(&key.name);
            self.check_imports(changed, touched);
        }
    }

    /// Removes an object that is not there any more, or is to be taken in as it is now.
    fn take_out(&mut self, store: usize, key: &ObjectKey, touched: &mut BTreeSet<ServiceName>) {
        if store == BROKER {
            self.refused.remove(key);
        }
        if let Some(known) = self.known(store, key) {
            let origin = known.metadata.origin().unwrap_or_default().to_owned();
            let is_shared = self.is_shared(known);
            let slot = self.places.get(&(store, key.clone())).map(|(_, slot)| *slot);
            if slot == Some(Slot::Foreign) {
                sets::remove(&mut self.foreign, &origin, &key.name);
            } else if slot == Some(Slot::Aggregate) {
                self.held.remove(&key.name);
                self.shared_imports -= usize::from(is_shared);
            } else if slot.is_some_and(is_import_copy) && is_shared {
                self.shared_copies -= 1;
            }
        }
        let Some((name, slot)) = self.places.remove(&(store, key.clone())) else { return };
        if let Some(count) = self.counts.get_mut(&slot) {
            *count -= 1;
        }
        if let Some(row) = self.rows.get_mut(&name) {
            row.take(slot, &key.name);
            if row.is_empty() {
                self.rows.remove(&name);
            }
        }
        self.note_seen(slot, &name);
        self.touch_namesakes(slot, &key.name, touched);
        touched.insert(name);
    }

    /// Takes in that something has become of an object: of the broker's import, what a write with a lost reply has done is known.
    fn note_seen(&mut self, slot: Slot, name: &ServiceName) {
        if slot == Slot::Aggregate {
            self.clusterset.note_unconfirmed(name, false);
        }
    }

    fn is_shared(&self, import: &Object) -> bool {
        aggregate::is_shared(import, &self.config.cluster_id)
    }

    /// Checks an object of the broker before it is taken in, and counts it.
    fn admit(&mut self, slot: Slot, key: &ObjectKey, object: &Object, is_logged: bool) -> bool {
        let verdict = if slot == Slot::Foreign {
            admit::check_slice(object, &self.config.cluster_id)
        } else if slot == Slot::Aggregate {
            admit::check_aggregate(object)
        } else {
            return true;
        };
        let origin = object.metadata.origin().unwrap_or_default();
        let verdict = match verdict {
            Ok(()) if self.foreign.get(origin).is_some_and(|slices| slices.len() >= MAX_SLICES_OF_ONE) => {
                Err(format!("cluster {origin} has more than {MAX_SLICES_OF_ONE} slices"))
            }
            verdict => verdict,
        };
        if let Err(reason) = verdict {
            self.refuse(key, reason, is_logged);
            return false;
        }
        if slot == Slot::Foreign {
            self.foreign.entry(origin.to_owned()).or_default().insert(key.name.clone());
        } else {
            self.shared_imports += usize::from(self.is_shared(object));
        }
        let problem = self.problem(object);
        self.note_held(key, problem.is_some());
        if let Some(reason) = problem {
            self.refuse(key, reason, is_logged);
        }
        true
    }

    /// Remembers that an object is not taken as it is. It is logged once.
    fn refuse(&mut self, key: &ObjectKey, reason: String, is_logged: bool) {
        if self.refused.len() < MAX_REFUSED {
            if !is_logged {
                tracing::warn!(object = %key, reason = %reason, "object of another cluster refused");
            }
            self.refused.insert(key.clone(), reason);
        }
    }

    /// Judges the addresses of clusters anew whose networks have changed.
    fn check_changed(&mut self, touched: &mut BTreeSet<ServiceName>) {
        let changed = self.networks.take_changed();
        let are_ours_taken = self.networks.untaken().is_none();
        if self.are_ours_taken != are_ours_taken {
            // It concerns what this cluster exports, and nothing else.
            self.are_ours_taken = are_ours_taken;
            let exported = self.rows.iter().filter(|(_, row)| row.export.is_some());
            touched.extend(exported.map(|(name, _)| name.clone()));
        }
        if changed.is_empty() {
            return;
        }
        let is_of_all = changed.contains(&self.config.cluster_id);
        let slices = self.foreign.iter().filter(|(cluster, _)| is_of_all || changed.contains(*cluster));
        let slices = slices.flat_map(|(_, slices)| slices).map(|name| (Kind::EndpointSlice, name));
        let key = |(kind, name): (Kind, &String)| ObjectKey::new(kind, &self.config.broker_namespace, name);
        // An import is every cluster's: it is planned again if its address was some cluster's own, or is now.
        let is_held = |name: &&String| {
            let import = self.known(BROKER, &key((Kind::ServiceImport, *name)));
            self.held.contains(*name) || import.is_some_and(|import| self.problem(import).is_some())
        };
        let imports = self.clusterset.imports().filter(is_held).map(|name| (Kind::ServiceImport, name));
        for key in slices.chain(imports).map(key).collect::<Vec<_>>() {
            self.check_again(&key, touched);
        }
        touched.extend(self.clusterset.blocked().cloned());
    }

    /// Judges imports anew of which another one has changed whose address it is.
    fn check_imports(&mut self, names: BTreeSet<String>, touched: &mut BTreeSet<ServiceName>) {
        for name in names {
            let key = ObjectKey::new(Kind::ServiceImport, &self.config.broker_namespace, &name);
            self.check_again(&key, touched);
        }
    }

    /// Returns what is wrong with the addresses of an object on the broker.
    fn problem(&self, object: &Object) -> Option<String> {
        match object.kind == Kind::ServiceImport {
            true => self.clusterset.problem(object, &self.networks),
            false => owned::problem(object, &self.networks),
        }
    }

    fn check_again(&mut self, key: &ObjectKey, touched: &mut BTreeSet<ServiceName>) {
        let Some((name, _)) = self.places.get(&(BROKER, key.clone())) else { return };
        touched.insert(name.clone());
        let problem = self.known(BROKER, key).and_then(|object| self.problem(object));
        let is_logged = self.refused.remove(key).is_some();
        self.note_held(key, problem.is_some());
        if let Some(reason) = problem {
            self.refuse(key, reason, is_logged);
        }
    }

    /// Notes whether an import's address for all clusters does not count.
    fn note_held(&mut self, key: &ObjectKey, is_held: bool) {
        if key.kind == Kind::ServiceImport && is_held {
            self.held.insert(key.name.clone());
        } else {
            self.held.remove(&key.name);
        }
    }
}

/// Returns whether a part of a service is a copy of the broker's import.
fn is_import_copy(slot: Slot) -> bool {
    matches!(slot, Slot::Import | Slot::DisplacedImport)
}

/// Returns whether the agent does without a kind that a store does not let it read: the Clusters of a set without gateways, whose
/// broker need not have their definition.
pub(crate) fn is_unneeded(store: usize, kind: Kind, error: &StoreError) -> bool {
    let is_refusal = if let StoreError::Unavailable { source, .. } = error {
        source.kind() == io::ErrorKind::NotFound
    } else {
        matches!(error, StoreError::Forbidden { .. })
    };
    store == BROKER && kind == Kind::Cluster && is_refusal
}
