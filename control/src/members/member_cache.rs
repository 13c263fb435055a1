//! The further Endpoints of one namespace, each read once for each of its versions. What an event costs follows what it
//! changes: a broker has those of a thousand clusters.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::Member;
use crate::api::{Object, label};
use crate::store::{Cache, StoreEvent};

/// A copy of one watch of further Endpoints.
#[derive(Debug)]
pub(super) struct MemberCache {
    cluster_id: String,
    objects: Cache,
    /// The names of objects that carry the label of this cluster.
    own: BTreeSet<String>,
    /// The gateways that are listed, in the order of the list.
    listed: BTreeMap<Position, Member>,
    /// Where the gateway of an object stands, by the object's name.
    positions: BTreeMap<String, Position>,
    /// The list as it was published last; `None` if it has changed since.
    list: Option<Arc<[Member]>>,
}

/// Where a gateway stands in the list: its cluster and its cable.
type Position = (String, String);

/// What an event has changed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Changes {
    /// Whether an object of this cluster, or of the name that was asked about, is another one than before.
    pub(super) own: bool,
    /// Whether the list is another one than before.
    pub(super) list: bool,
}

impl MemberCache {
    /// Returns a cache of nothing for a gateway of this cluster.
    pub(super) fn new(cluster_id: &str) -> Self {
        Self {
            cluster_id: cluster_id.to_owned(),
            objects: Cache::new(),
            own: BTreeSet::new(),
            listed: BTreeMap::new(),
            positions: BTreeMap::new(),
            list: None,
        }
    }

    /// Takes in an event. `own_name` is the name of this gateway's object; gateways that `is_listed` are in the list.
    pub(super) fn apply(
        &mut self,
        event: StoreEvent,
        own_name: Option<&str>,
        is_listed: impl Fn(&Member) -> bool,
    ) -> Changes {
        let is_first = !self.is_complete();
        let names = self.objects.changes(event);
        let is_first = is_first && self.is_complete();
        let mut changes = Changes { own: is_first, list: is_first };
        for name in names {
            let object = self.objects.get(&name);
            let label = object.and_then(|object| object.metadata.labels.get(label::PATHS_CLUSTER_ID));
            let is_own = label == Some(&self.cluster_id);
            let member = object.and_then(Member::read).filter(&is_listed);
            let was_own = if is_own { !self.own.insert(name.clone()) } else { self.own.remove(&name) };
            changes.own |= is_own || was_own || own_name == Some(&*name);
            changes.list |= self.list(name, member);
        }
        if changes.list {
            self.list = None;
        }
        changes
    }

    /// Puts the gateway of an object into the list, or removes it. Returns `true` if the list has changed.
    fn list(&mut self, name: String, member: Option<Member>) -> bool {
        let former = self.positions.remove(&name).and_then(|position| self.listed.remove(&position));
        let has_changed = former != member;
        if let Some(member) = member {
            let position = (member.cluster_id().to_owned(), member.cable_name().to_owned());
            self.positions.insert(name, position.clone());
            self.listed.insert(position, member);
        }
        has_changed
    }

    /// Makes the list anew if it has changed. A gateway costs a pointer.
    pub(super) fn refresh(&mut self) {
        if self.list.is_none() && self.is_complete() {
            self.list = Some(self.listed.values().cloned().collect());
        }
    }

    /// Returns the gateways that are listed, by cluster and cable name, as of the last [`MemberCache::refresh`]; `None`
    /// before a complete list was observed, and while it is to be refreshed.
    pub(super) const fn members(&self) -> Option<&Arc<[Member]>> {
        self.list.as_ref()
    }

    /// Returns the objects that this gateway's plans depend on: those of its cluster, and that of this name.
    pub(super) fn own_objects(&self, own_name: Option<&str>) -> Vec<&Object> {
        let named = own_name.filter(|name| !self.own.contains(*name));
        let names = self.own.iter().map(String::as_str).chain(named);
        names.filter_map(|name| self.objects.get(name)).collect()
    }

    /// Returns the object of this name.
    pub(super) fn get(&self, name: &str) -> Option<&Object> {
        self.objects.get(name)
    }

    /// Returns `true` once a complete list was observed.
    pub(super) fn is_complete(&self) -> bool {
        self.objects.is_complete()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::EndpointSpec;
    use crate::members::{further_name, plan_own};
    use crate::runner::Write;

    fn object(cluster: &str, number: u32, version: u32) -> Object {
        let spec = EndpointSpec {
            cluster_id: cluster.to_owned(),
            cable_name: format!("submariner-cable-{cluster}-192-0-2-{number}"),
            hostname: format!("gw{number}"),
            ..EndpointSpec::default()
        };
        let writes = plan_own("ns", &spec, true, &[]).unwrap();
        let [Write::Create(object)] = &writes[..] else { panic!("{writes:?}") };
        let mut object = object.clone();
        object.metadata.resource_version = Some(version.to_string());
        object
    }

    struct Rig(MemberCache);

    impl Rig {
        fn apply(&mut self, event: StoreEvent) -> (bool, bool) {
            let own = object("a", 1, 0).metadata.name;
            let changes = self.0.apply(event, Some(&own), |member| member.cluster_id() != "a");
            self.0.refresh();
            (changes.own, changes.list)
        }

        fn names(&self) -> Vec<String> {
            let name = |member: &Member| format!("{}/{}", member.cluster_id(), member.endpoint.spec.hostname);
            self.0.members().unwrap().iter().map(name).collect()
        }
    }

    #[test]
    fn an_event_changes_what_it_is_about_and_the_list_is_in_order() {
        let mut rig = Rig(MemberCache::new("a"));
        assert_eq!(rig.apply(StoreEvent::Applied(object("c", 1, 1))), (false, true));
        assert_eq!(rig.0.members(), None, "there was no list yet");
        assert_eq!(rig.apply(StoreEvent::Listed(Vec::new())), (true, true), "an empty list is one");
        assert_eq!(rig.names(), [""; 0]);
        let all = vec![object("c", 1, 1), object("b", 2, 1), object("b", 1, 1), object("a", 2, 1)];
        assert_eq!(rig.apply(StoreEvent::Listed(all.clone())), (true, true));
        assert_eq!(rig.names(), ["b/gw1", "b/gw2", "c/gw1"]);
        assert_eq!(rig.apply(StoreEvent::Listed(all)), (false, false));
        assert_eq!(rig.apply(StoreEvent::Applied(object("b", 2, 2))), (false, true));
        assert_eq!(rig.apply(StoreEvent::Applied(object("a", 2, 2))), (true, false));
        assert_eq!(rig.apply(StoreEvent::Deleted(object("b", 1, 1))), (false, true));
        assert_eq!(rig.names(), ["b/gw2", "c/gw1"]);
        assert_eq!(rig.0.own_objects(None).len(), 1);
    }

    #[test]
    fn what_does_not_change_is_shared_by_one_list_and_the_next() {
        let mut rig = Rig(MemberCache::new("a"));
        let _ = rig.apply(StoreEvent::Listed((1..=9).map(|number| object("b", number, 1)).collect()));
        let before = Arc::clone(rig.0.members().unwrap());
        let _ = rig.apply(StoreEvent::Applied(object("a", 2, 1)));
        assert!(Arc::ptr_eq(&before, rig.0.members().unwrap()), "the list is as it was");
        let _ = rig.apply(StoreEvent::Applied(object("b", 5, 2)));
        let after = rig.0.members().unwrap();
        let shared = before.iter().zip(after.iter()).filter(|(a, b)| Arc::ptr_eq(&a.endpoint, &b.endpoint));
        assert_eq!(shared.count(), 8);
    }

    #[test]
    fn an_object_of_our_name_is_planned_with_whatever_its_label_is() {
        let mut rig = Rig(MemberCache::new("a"));
        let name = further_name("submariner-cable-a-192-0-2-1").unwrap();
        let mut foreign = object("a", 1, 1);
        foreign.metadata.labels.insert(label::PATHS_CLUSTER_ID.to_owned(), "b".to_owned());
        assert_eq!(rig.apply(StoreEvent::Listed(vec![foreign.clone()])), (true, true));
        assert_eq!(rig.0.own_objects(Some(&name)), [&foreign]);
        assert!(rig.0.own_objects(None).is_empty());
        assert_eq!(rig.apply(StoreEvent::Applied(object("a", 1, 2))), (true, false));
        assert_eq!(rig.0.own_objects(Some(&name)).len(), 1, "and once only");
    }
}
