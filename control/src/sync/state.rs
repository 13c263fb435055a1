//! All that is known of both stores, kept up to date event by event, and what is to be written because of it.
//!
//! An event costs what it concerns: the object's own name, and those whose claims overlap its claims. Names whose
//! decision may be another one now are handed out once by [`SyncState::take_dirty`]; the decision itself is in `decide.rs`.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use ipnet::IpNet;
use jiff::Timestamp;

use super::claims::{Claims, Conflict};
use super::facts;
use super::name::Name;
use super::quota::ObjectQuota;
use super::side::Side;
use super::withheld::{self, Owner};
use super::written::WrittenVersions;
use super::{Refused, SyncLimits};
use crate::api::{Kind, Object, cut, overlap};
use crate::claims::Allowed;
use crate::sets;
use crate::store::StoreEvent;

/// Ours: so many times the objects that are taken are remembered, with the reasons why they are not.
const REMEMBERED: usize = 4;

/// The settings that do not change while a syncer runs.
#[derive(Debug, Clone)]
pub(super) struct Scope {
    pub(super) cluster_id: String,
    pub(super) local_namespace: String,
    pub(super) broker_namespace: String,
    pub(super) local_subnets: Vec<IpNet>,
    pub(super) limits: SyncLimits,
    pub(super) allowed: Allowed,
    /// Whether ours goes to the broker.
    pub(super) exports: bool,
}

/// An object on the broker, and what there is to say of it by itself.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) object: Object,
    pub(super) standing: Standing,
}

/// The standing of a broker's object.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Standing {
    /// Labelled with our ID, or with none.
    NotForeign,
    /// Another cluster's, and it makes sense. It claims these subnets; `overlap` is where it claims what is ours.
    Foreign { subnets: Vec<IpNet>, overlap: Option<(IpNet, IpNet)> },
    /// Another cluster's, refused.
    Refused(String),
}

/// See the module.
#[derive(Debug)]
pub(super) struct SyncState {
    pub(super) scope: Scope,
    pub(super) local: BTreeMap<Name, Object>,
    pub(super) broker: BTreeMap<Name, Entry>,
    pub(super) claims: Claims,
    pub(super) written: WrittenVersions,
    pub(super) refused: BTreeMap<Name, Refused>,
    quota: ObjectQuota,
    ages: BTreeMap<Arc<str>, BTreeSet<(Kind, Timestamp, Name)>>,
    /// How many objects each other cluster has on the broker, and how many copies of theirs we have.
    present: BTreeMap<Owner, usize>,
    copies: BTreeMap<Kind, usize>,
    /// How many originals of ours there are.
    originals: BTreeMap<Kind, usize>,
    /// Clusters that have had none of a kind on the broker before, since the last look.
    arrived: BTreeSet<Owner>,
    ages_by_name: BTreeMap<Name, (Arc<str>, Timestamp)>,
    aged: BTreeSet<Arc<str>>,
    dirty: BTreeSet<Name>,
    /// Withdrawn since the last judgement; and those of them that somebody else profits from.
    withdrawn: BTreeSet<Name>,
    urgent: BTreeSet<Name>,
    overflow: bool,
}

impl SyncState {
    pub(super) fn new(mut scope: Scope) -> Self {
        scope.local_subnets.iter_mut().for_each(|net| *net = net.trunc());
        let mut state = Self {
            scope,
            local: BTreeMap::new(),
            broker: BTreeMap::new(),
            claims: Claims::default(),
            written: WrittenVersions::default(),
            refused: BTreeMap::new(),
            quota: ObjectQuota::default(),
            ages: BTreeMap::new(),
            present: BTreeMap::new(),
            copies: BTreeMap::new(),
            originals: BTreeMap::new(),
            arrived: BTreeSet::new(),
            ages_by_name: BTreeMap::new(),
            aged: BTreeSet::new(),
            dirty: BTreeSet::new(),
            withdrawn: BTreeSet::new(),
            urgent: BTreeSet::new(),
            overflow: false,
        };
        state.claims.claim(&state.own(), &state.scope.cluster_id, &state.scope.local_subnets);
        state
    }

    /// Returns the name under which we claim our own subnets.
    fn own(&self) -> Name {
        Name::new(Kind::Cluster, &self.scope.cluster_id)
    }

    /// Takes in what a store's watch says of one kind.
    pub(super) fn learn(&mut self, side: Side, kind: Kind, event: StoreEvent) {
        match event {
            StoreEvent::Listed(objects) => {
                let listed: BTreeSet<Name> = objects.iter().map(Name::of).collect();
                for name in self.names(side, kind).into_iter().filter(|name| !listed.contains(name)) {
                    self.remove(side, &name);
                }
                self.written.keep_listed(side, kind, &listed);
                if side == Side::Broker {
                    self.overflow = false;
                }
                objects.into_iter().for_each(|object| self.observe(side, object));
            }
            StoreEvent::Applied(object) => self.observe(side, object),
            StoreEvent::Deleted(object) => {
                let name = Name::of(&object);
                let uid = self.object(side, &name).and_then(|known| known.metadata.uid.as_ref());
                // Late news of an earlier incarnation must not remove the present one.
                let is_another =
                    object.metadata.uid.is_some() && uid.is_some() && uid != object.metadata.uid.as_ref();
                if !is_another {
                    self.written.remove(side, &name);
                    self.remove(side, &name);
                }
            }
            StoreEvent::Unavailable(_) => {}
        }
    }

    fn observe(&mut self, side: Side, object: Object) {
        let name = Name::of(&object);
        let is_changed = self.object(side, &name).is_none_or(|known| !is_same_version(known, &object));
        if is_changed || (side == Side::Broker && self.quota.has_refused(&name)) {
            self.put(side, name, object);
        }
    }

    /// Takes in an object as it is now.
    pub(super) fn put(&mut self, side: Side, name: Name, object: Object) {
        self.take_out(side, &name);
        match side {
            Side::Local => {
                if self.is_copy(&object) {
                    *self.copies.entry(object.kind).or_default() += 1;
                } else if self.is_own(&object) {
                    *self.originals.entry(object.kind).or_default() += 1;
                }
                self.local.insert(name.clone(), object);
            }
            Side::Broker => self.put_on_broker(&name, object),
        }
        self.refresh(&name);
        self.dirty.insert(name);
    }

    fn put_on_broker(&mut self, name: &Name, mut object: Object) {
        if self.broker.len() >= self.scope.limits.objects.saturating_mul(REMEMBERED) {
            if !self.overflow {
                tracing::warn!(object = %name.name, "the broker has more objects than can be remembered; the rest is ignored");
            }
            self.overflow = true;
            self.quota.leave(name);
            return;
        }
        if !self.is_copy(&object) {
            self.quota.leave(name);
            self.broker.insert(name.clone(), Entry { object, standing: Standing::NotForeign });
            return;
        }
        let origin = object.metadata.origin().unwrap_or_default().to_owned();
        let owner = withheld::owner(object.kind, Some(&origin));
        let count = self.present.entry(owner.clone()).or_default();
        *count += 1;
        if *count == 1 {
            self.arrived.insert(owner);
        }
        let facts = match &object.withheld {
            Some(reason) => Err(reason.clone()),
            None => facts::read(&object, &origin, &self.scope.limits, &self.scope.allowed)
                .map_err(|error| error.to_string()),
        };
        let standing = match facts {
            Ok(subnets) => {
                let overlap = overlap(&subnets, &self.scope.local_subnets);
                Standing::Foreign { subnets, overlap }
            }
            Err(reason) => {
                object = object.outline();
                Standing::Refused(cut(&reason, 300))
            }
        };
        let age = age_of(&object);
        let is_foreign = matches!(standing, Standing::Foreign { .. });
        self.broker.insert(name.clone(), Entry { object, standing });
        if !is_foreign {
            self.quota.leave(name);
            return;
        }
        for (displaced, reason) in self.quota.enter(name, &origin, age, &self.scope.limits) {
            self.refuse(&displaced, reason);
        }
    }

    fn refuse(&mut self, name: &Name, reason: String) {
        let Some(mut entry) = self.broker.remove(name) else { return };
        entry = Entry { object: entry.object.outline(), standing: Standing::Refused(reason) };
        self.broker.insert(name.clone(), entry);
        self.refresh(name);
        self.dirty.insert(name.clone());
    }

    /// Removes an object that is gone.
    pub(super) fn remove(&mut self, side: Side, name: &Name) {
        if !self.take_out(side, name) {
            return;
        }
        match side {
            Side::Local => drop(self.urgent.remove(name)),
            Side::Broker => self.quota.leave(name),
        }
        self.refresh(name);
        self.dirty.insert(name.clone());
    }

    fn take_out(&mut self, side: Side, name: &Name) -> bool {
        let object = match side {
            Side::Local => self.local.remove(name),
            Side::Broker => self.broker.remove(name).map(|entry| entry.object),
        };
        let Some(object) = object else { return false };
        let is_copy = self.is_copy(&object);
        match side {
            Side::Local if is_copy => *self.copies.entry(name.kind).or_default() -= 1,
            Side::Local if self.is_own(&object) => *self.originals.entry(name.kind).or_default() -= 1,
            Side::Local => {}
            Side::Broker => {
                let key = withheld::owner(name.kind, object.metadata.origin());
                if let Some(count) = self.present.get_mut(&key).filter(|_| is_copy) {
                    *count -= 1;
                    if *count == 0 {
                        self.present.remove(&key);
                    }
                }
            }
        }
        true
    }

    /// Brings up to date what `name` says of ages and claims.
    fn refresh(&mut self, name: &Name) {
        self.refresh_age(name);
        if name.kind != Kind::Endpoint {
            return;
        }
        match self.broker.get(name) {
            Some(Entry { object, standing: Standing::Foreign { subnets, .. } }) if !self.is_taken(name) => {
                self.withdrawn.remove(name);
                self.claims.claim(name, object.metadata.origin().unwrap_or_default(), subnets);
            }
            _ if self.claims.withdraw(name) => drop(self.withdrawn.insert(name.clone())),
            _ => {}
        }
    }

    /// Returns `true` if an object of ours, or one put here by hand, has this name.
    pub(super) fn is_taken(&self, name: &Name) -> bool {
        self.local.get(name).is_some_and(|object| !self.is_copy(object))
    }

    /// Returns `true` if an object is labelled with another cluster's ID.
    pub(super) fn is_copy(&self, object: &Object) -> bool {
        object.metadata.origin().is_some_and(|origin| origin != self.scope.cluster_id)
    }

    /// Brings up to date whose age the broker's object of this name tells: its cluster's, if it makes sense; ours, if it
    /// is, or will be, a copy of one of our originals.
    fn refresh_age(&mut self, name: &Name) {
        let now = self.broker.get(name).and_then(|entry| {
            let origin = entry.object.metadata.origin().unwrap_or_default();
            let is_ours = self.local.get(name).is_some_and(|local| self.is_own(local));
            let is_leaders = !self.scope.exports && origin == self.scope.cluster_id;
            let owner = match entry.standing {
                _ if is_ours || is_leaders => self.scope.cluster_id.as_str(),
                Standing::Foreign { .. } => origin,
                Standing::NotForeign | Standing::Refused(_) => return None,
            };
            Some((Arc::<str>::from(owner), age_of(&entry.object)))
        });
        if self.ages_by_name.get(name) == now.as_ref() {
            return;
        }
        if let Some((owner, age)) = self.ages_by_name.remove(name) {
            sets::remove(&mut self.ages, &owner, &(name.kind, age, name.clone()));
            self.aged.insert(owner);
        }
        if let Some((owner, age)) = now {
            self.ages.entry(Arc::clone(&owner)).or_default().insert((name.kind, age, name.clone()));
            self.aged.insert(Arc::clone(&owner));
            self.ages_by_name.insert(name.clone(), (owner, age));
        }
    }

    /// Updates the times at which clusters joined: the Cluster object's age on the broker, or the oldest Endpoint's if
    /// there is none. The Cluster object outlives restarts and fail-overs; Endpoints do not.
    fn update_ages(&mut self) {
        for origin in std::mem::take(&mut self.aged) {
            let age = self.ages.get(&origin).and_then(BTreeSet::first).map(|(_, age, _)| *age);
            self.claims.age(&origin, age);
        }
    }

    /// Drains the names whose decisions may be others now.
    pub(super) fn take_dirty(&mut self) -> BTreeSet<Name> {
        self.update_ages();
        let withdrawn = std::mem::take(&mut self.withdrawn);
        let turned = self.claims.evaluate();
        if turned.iter().any(|name| self.claims.conflict(name).is_none() && !withdrawn.contains(name)) {
            self.urgent.extend(withdrawn.into_iter().filter(|name| self.local.contains_key(name)));
        }
        if turned.contains(&self.own()) {
            let overlapping =
                |entry: &Entry| matches!(entry.standing, Standing::Foreign { overlap: Some(_), .. });
            self.dirty
                .extend(self.broker.iter().filter(|(_, e)| overlapping(e)).map(|(name, _)| name.clone()));
        }
        self.dirty.extend(turned);
        std::mem::take(&mut self.dirty)
    }

    /// Asks to decide about `name` again.
    pub(super) fn touch(&mut self, name: &Name) {
        self.dirty.insert(name.clone());
    }

    pub(super) fn object(&self, side: Side, name: &Name) -> Option<&Object> {
        match side {
            Side::Local => self.local.get(name),
            Side::Broker => self.broker.get(name).map(|entry| &entry.object),
        }
    }

    /// Returns the conflict for which others refuse us, if they do.
    pub(super) fn own_conflict(&self) -> Option<&Conflict> {
        self.claims.conflict(&self.own())
    }

    /// Returns `true` if the broker has lost all others' objects of a kind, although we have copies.
    pub(super) fn is_emptied(&self, kind: Kind) -> bool {
        self.copies.get(&kind).is_some_and(|count| *count > 0)
            && self.present.range((kind, Arc::from(""))..).next().is_none_or(|((found, _), _)| *found != kind)
    }

    /// Returns `true` if the broker has no object of this owner.
    pub(super) fn has_departed(&self, owner: &Owner) -> bool {
        !self.present.contains_key(owner)
    }

    /// Returns `true` if there is an original of ours of this kind.
    pub(super) fn has_original(&self, kind: Kind) -> bool {
        self.originals.get(&kind).is_some_and(|count| *count > 0)
    }

    /// Drains the clusters that had no object of a kind on the broker for a while, and have one now.
    pub(super) fn take_arrived(&mut self) -> BTreeSet<Owner> {
        std::mem::take(&mut self.arrived)
    }

    /// Returns `true` if somebody profits from the removal of this copy.
    pub(super) fn is_urgent(&self, name: &Name) -> bool {
        self.urgent.contains(name)
    }

    /// Returns `true`, once, if a new list of the broker's objects may bring in some that were refused.
    pub(super) fn wants_list(&mut self) -> bool {
        let most = self.scope.limits.objects.saturating_mul(REMEMBERED);
        self.quota.take_room() || (self.overflow && self.broker.len() < most - most / 10)
    }

    fn names(&self, side: Side, kind: Kind) -> Vec<Name> {
        let is_kind = |name: &&Name| name.kind == kind;
        match side {
            Side::Local => self.local.keys().filter(is_kind).cloned().collect(),
            Side::Broker => self.broker.keys().filter(is_kind).cloned().collect(),
        }
    }
}

/// Compares versions: equal ones of one incarnation mean equal objects.
fn is_same_version(known: &Object, object: &Object) -> bool {
    let (have, got) = (&known.metadata, &object.metadata);
    match (&have.resource_version, &got.resource_version) {
        (Some(a), Some(b)) => a == b && have.uid == got.uid,
        _ => known == object,
    }
}

pub(super) fn age_of(object: &Object) -> Timestamp {
    object.metadata.creation_timestamp.unwrap_or(Timestamp::MAX)
}

#[cfg(test)]
mod tests;
