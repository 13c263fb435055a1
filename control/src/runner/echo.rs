//! Own writes, between their answer and the watch's event of them.
//!
//! A controller observes the result of each of its writes at once. The watch may still deliver events from before the
//! write: to believe them would undo what is known. So an event about an object that was written here is withheld until
//! that of the write comes, or for [`ECHO_TIMEOUT`], since a store may report several changes as one.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use super::Watch;
use crate::api::{Object, ObjectKey};
use crate::store::StoreEvent;

/// How long events about an object that was written are withheld at most.
pub const ECHO_TIMEOUT: Duration = Duration::from_secs(2);

/// The objects whose writes have been answered and not been reported by their watch. Bounded by the writes of
/// [`ECHO_TIMEOUT`].
#[derive(Debug, Default)]
pub(super) struct PendingEchoes {
    pending: BTreeMap<(usize, ObjectKey), PendingEcho>,
}

#[derive(Debug)]
struct PendingEcho {
    written: Object,
    until: Instant,
    /// The newest event of the watch meanwhile.
    withheld: Option<(Watch, StoreEvent)>,
}

impl PendingEchoes {
    /// Records that `written` is what the store of this number answered.
    pub(super) fn wrote(&mut self, store: usize, written: Object, now: Instant) {
        let pending = PendingEcho { until: now + ECHO_TIMEOUT, withheld: None, written };
        self.pending.insert((store, pending.written.key()), pending);
    }

    /// Records that an object was deleted.
    pub(super) fn deleted(&mut self, store: usize, key: ObjectKey) {
        self.pending.remove(&(store, key));
    }

    /// Returns the event as it is to be observed; `None` if it is withheld.
    pub(super) fn filter(&mut self, watch: &Watch, event: StoreEvent) -> Option<StoreEvent> {
        match event {
            StoreEvent::Applied(object) => {
                let key = (watch.store, object.key());
                match self.pending.get_mut(&key) {
                    Some(pending) if !is_same(&pending.written, &object) => {
                        pending.withheld = Some((watch.clone(), StoreEvent::Applied(object)));
                        None
                    }
                    _ => {
                        self.pending.remove(&key);
                        Some(StoreEvent::Applied(object))
                    }
                }
            }
            StoreEvent::Deleted(object) => {
                let key = (watch.store, object.key());
                match self.pending.get(&key) {
                    // An incarnation before ours.
                    Some(pending) if pending.written.metadata.uid != object.metadata.uid => None,
                    _ => {
                        self.pending.remove(&key);
                        Some(StoreEvent::Deleted(object))
                    }
                }
            }
            StoreEvent::Listed(objects) => Some(StoreEvent::Listed(self.filter_list(watch, objects))),
            StoreEvent::Unavailable(_) => Some(event),
        }
    }

    /// Returns the list as it would be after the writes that it may be older than.
    fn filter_list(&mut self, watch: &Watch, mut objects: Vec<Object>) -> Vec<Object> {
        if self.pending.is_empty() {
            return objects;
        }
        let positions: BTreeMap<ObjectKey, usize> =
            objects.iter().enumerate().map(|(position, object)| (object.key(), position)).collect();
        self.pending.retain(|(store, key), pending| {
            if *store != watch.store || !watch.covers(key) {
                return true;
            }
            let listed = positions.get(key).and_then(|position| objects.get_mut(*position));
            if listed.as_ref().is_some_and(|listed| is_same(listed, &pending.written)) {
                return false;
            }
            let event = match listed {
                Some(listed) => StoreEvent::Applied(std::mem::replace(listed, pending.written.clone())),
                None => {
                    objects.push(pending.written.clone());
                    StoreEvent::Deleted(pending.written.clone())
                }
            };
            pending.withheld = Some((watch.clone(), event));
            true
        });
        objects
    }

    /// Returns when [`PendingEchoes::expire`] has something to return.
    pub(super) fn deadline(&self) -> Option<Instant> {
        self.pending.values().map(|pending| pending.until).min()
    }

    /// Returns the withheld events whose time is over, which are to be observed now.
    pub(super) fn expire(&mut self, now: Instant) -> Vec<(Watch, StoreEvent)> {
        let is_late = |pending: &PendingEcho| pending.until <= now;
        let late: Vec<_> =
            self.pending.iter().filter(|(_, pending)| is_late(pending)).map(|(key, _)| key.clone()).collect();
        late.iter().filter_map(|key| self.pending.remove(key)?.withheld).collect()
    }

    /// Drops what is pending of a watch that has ended.
    pub(super) fn remove_watch(&mut self, watch: &Watch) {
        self.pending.retain(|(store, key), _| *store != watch.store || !watch.covers(key));
    }
}

/// Returns `true` if both are one version of one object.
fn is_same(a: &Object, b: &Object) -> bool {
    a.metadata.resource_version == b.metadata.resource_version && a.metadata.uid == b.metadata.uid
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::{Kind, ObjectMeta};

    fn object(version: &str) -> Object {
        let mut object = Object::new(Kind::Cluster, ObjectMeta::new("ns", "a"));
        object.metadata.resource_version = Some(version.to_owned());
        object.metadata.uid = Some("1".to_owned());
        object
    }

    fn watch() -> Watch {
        Watch::new(0, Kind::Cluster, "ns")
    }

    fn written() -> (PendingEchoes, Instant) {
        let (mut echoes, now) = (PendingEchoes::default(), Instant::now());
        echoes.wrote(0, object("2"), now);
        (echoes, now)
    }

    #[test]
    fn events_from_before_a_write_are_withheld_until_its_own_comes() {
        let (mut echoes, _) = written();
        assert!(echoes.filter(&watch(), StoreEvent::Applied(object("1"))).is_none());
        assert!(echoes.filter(&watch(), StoreEvent::Applied(object("2"))).is_some());
        assert!(echoes.filter(&watch(), StoreEvent::Applied(object("3"))).is_some());
        assert_eq!(echoes.deadline(), None);
    }

    #[test]
    fn a_write_whose_event_never_comes_is_overtaken_in_time() {
        let (mut echoes, now) = written();
        assert!(echoes.filter(&watch(), StoreEvent::Applied(object("3"))).is_none());
        assert!(echoes.expire(now + ECHO_TIMEOUT - Duration::from_millis(1)).is_empty());
        let late = echoes.expire(now + ECHO_TIMEOUT);
        assert!(matches!(&late[..], [(_, StoreEvent::Applied(late))] if *late == object("3")));
        assert_eq!(echoes.deadline(), None);
    }

    #[test]
    fn a_list_from_before_a_write_does_not_undo_it() {
        for listed in [vec![object("1")], Vec::new()] {
            let (mut echoes, now) = written();
            let event = echoes.filter(&watch(), StoreEvent::Listed(listed.clone()));
            assert!(matches!(event, Some(StoreEvent::Listed(objects)) if objects == [object("2")]));
            let late = echoes.expire(now + ECHO_TIMEOUT);
            match (&late[..], listed.is_empty()) {
                ([(_, StoreEvent::Applied(late))], false) => assert_eq!(*late, object("1")),
                ([(_, StoreEvent::Deleted(_))], true) => {}
                other => panic!("{other:?}"),
            }
        }
    }

    #[test]
    fn a_deletion_of_an_earlier_incarnation_is_dropped_and_one_of_ours_is_observed() {
        let (mut echoes, _) = written();
        let mut earlier = object("1");
        earlier.metadata.uid = Some("0".to_owned());
        assert!(echoes.filter(&watch(), StoreEvent::Deleted(earlier)).is_none());
        assert!(echoes.filter(&watch(), StoreEvent::Deleted(object("2"))).is_some());
        assert_eq!(echoes.deadline(), None);
    }
}
