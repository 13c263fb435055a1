//! A plan that is kept and follows what changes comes to what a plan of all objects comes to.

use std::collections::{BTreeMap, BTreeSet};

use trieste_control::api::{Object, ObjectKey};
use trieste_control::globalnet::{GlobalnetConfig, Objects, Planner, Scope};
use trieste_control::runner::Write;
use trieste_control::store::StoreEvent;

use super::world::{NS, World};

/// A planner that follows a world by what has changed in it.
pub(crate) struct Kept {
    pub(crate) planner: Planner,
    /// What it has been told of.
    seen: BTreeMap<ObjectKey, Object>,
    listed: BTreeSet<Scope>,
}

impl Kept {
    /// Returns one that follows nothing yet.
    pub(crate) fn new(world: &World) -> Self {
        let config = GlobalnetConfig {
            namespace: NS.to_owned(),
            cluster_id: "cluster-a".to_owned(),
            gateway: world.gateway.map(str::to_owned),
        };
        Self {
            planner: Planner::new(config, Objects::default()),
            seen: BTreeMap::new(),
            listed: BTreeSet::new(),
        }
    }

    /// Tells it what has changed, and what else it needs.
    pub(crate) fn follow(&mut self, world: &World) {
        loop {
            self.planner.update(world.now);
            let needs = self.planner.needs().clone();
            self.listed.retain(|scope| needs.contains(scope));
            self.seen.retain(|key, _| needs.iter().any(|scope| is_within(key, scope)));
            let served = needs.iter().filter(|(kind, _)| !world.unserved.contains(kind));
            let events: usize = served.map(|scope| self.tell(scope, world)).sum();
            if events == 0 {
                return;
            }
        }
    }

    fn tell(&mut self, scope: &Scope, world: &World) -> usize {
        let of_scope = world.objects.iter().filter(|(key, _)| is_within(key, scope));
        let current: BTreeMap<ObjectKey, Object> =
            of_scope.map(|(key, object)| (key.clone(), object.clone())).collect();
        let mut events = Vec::new();
        if self.listed.insert(scope.clone()) {
            events.push(StoreEvent::Listed(current.values().cloned().collect()));
        } else {
            let seen = self.seen.iter().filter(|(key, _)| is_within(key, scope));
            let gone = seen.filter(|(key, _)| !current.contains_key(key));
            events.extend(gone.map(|(_, object)| StoreEvent::Deleted(object.clone())));
            let other = current.iter().filter(|(key, object)| self.seen.get(*key) != Some(object));
            events.extend(other.map(|(_, object)| StoreEvent::Applied(object.clone())));
        }
        self.seen.retain(|key, _| !is_within(key, scope));
        self.seen.extend(current);
        let count = events.len();
        for event in events {
            self.planner.observe(scope, event);
        }
        count
    }

    /// Asserts that it comes to what a plan of all objects comes to.
    pub(crate) fn assert_is_plan_of(&mut self, world: &World) {
        self.follow(world);
        let outcome = world.plan();
        let (writes, is_more) = self.planner.take_writes(usize::MAX);
        assert!(!is_more);
        assert_eq!(self.planner.has_writes(), !outcome.writes.is_empty());
        assert_eq!(by_key(writes), by_key(outcome.writes));
        assert_eq!(**self.planner.state(), outcome.state);
        assert_eq!(self.planner.needs(), &outcome.needs);
        assert_eq!(self.planner.is_complete(), outcome.is_complete);
    }
}

fn by_key(writes: Vec<Write>) -> BTreeMap<ObjectKey, Write> {
    let count = writes.len();
    let by_key: BTreeMap<ObjectKey, Write> = writes.into_iter().map(|write| (write.key(), write)).collect();
    assert_eq!(by_key.len(), count, "one write per object");
    by_key
}

fn is_within(key: &ObjectKey, (kind, namespace): &Scope) -> bool {
    key.kind == *kind && (namespace.is_empty() || key.namespace == *namespace)
}
