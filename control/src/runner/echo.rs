//! Own writes, from their start to the watch's event of them.
//!
//! A controller observes the result of each of its writes at once. The watch may still deliver events from before the
//! write: to believe them would undo what is known. The versions that own writes have replaced are dropped whenever they
//! come. Where an own write may have replaced versions that nobody here has seen ([`Write::Annotate`]; a list), events
//! about the object are withheld until that of the write comes, or for [`ECHO_TIMEOUT`], since a store may report several
//! changes as one. A watch may also be ahead: a result that it has overtaken is not observed.

use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};

use super::Watch;
use super::write::Write;
use crate::api::{Object, ObjectKey};
use crate::store::StoreEvent;

/// How long events about an object that was written are withheld at most.
pub const ECHO_TIMEOUT: Duration = Duration::from_secs(2);
/// How many versions of one object a watch may lag behind, or be ahead. Beyond it a late event costs a lost race.
const MAX_LAG: usize = 64;

/// The objects that are being written, or whose writes have been answered and not been reported by their watch. Bounded
/// by the objects that are written.
#[derive(Debug, Default)]
pub(super) struct PendingEchoes {
    in_flight: BTreeMap<(usize, ObjectKey), InFlight>,
    pending: BTreeMap<(usize, ObjectKey), PendingEcho>,
    /// When each of `pending` expires, soonest first; entries of those that are gone are dropped on the way.
    expiries: VecDeque<(Instant, (usize, ObjectKey))>,
    /// Versions that own writes have replaced and the watch has still to deliver, oldest first.
    superseded: BTreeMap<(usize, ObjectKey), Vec<String>>,
}

/// A write that has not been answered, and what the watch has reported of its object meanwhile.
#[derive(Debug)]
struct InFlight {
    /// The version that the write replaces; `None` if it creates.
    base: Option<String>,
    /// Whether the write fails if the newest version is another one than `base`.
    is_exact: bool,
    /// Whether something newer than `base` was reported, and the versions.
    is_overtaken: bool,
    reported: Vec<String>,
}

#[derive(Debug)]
struct PendingEcho {
    written: Object,
    until: Instant,
    /// Whether all versions that were replaced are listed as superseded: events of others are newer.
    is_exact: bool,
    /// The newest event of the watch meanwhile.
    withheld: Option<(Watch, StoreEvent)>,
}

impl PendingEchoes {
    /// Records that a write to the store of this number is sent.
    pub(super) fn start(&mut self, store: usize, write: &Write) {
        let in_flight = InFlight {
            base: write.base().map(str::to_owned),
            is_exact: write.is_exact(),
            is_overtaken: false,
            reported: Vec::new(),
        };
        self.in_flight.insert((store, write.key()), in_flight);
    }

    /// Records that a write has failed.
    pub(super) fn abort(&mut self, store: usize, write: &Write) {
        self.in_flight.remove(&(store, write.key()));
    }

    /// Records the result of a write. Returns `true` if it is to be observed: the watch has not reported it yet, nor
    /// anything newer.
    pub(super) fn finish(&mut self, store: usize, write: &Write, result: &StoreEvent, now: Instant) -> bool {
        let key = (store, write.key());
        let in_flight = self.in_flight.remove(&key);
        let base = write.base();
        let written = match result {
            StoreEvent::Applied(written) => Some(written),
            // One with finalizers is still there: events say what becomes of it.
            StoreEvent::Deleted(deleted) if deleted.metadata.has_finalizers() => return false,
            StoreEvent::Deleted(_) => None,
            StoreEvent::Listed(_) | StoreEvent::Unavailable(_) => return false,
        };
        let version = written.and_then(|written| written.metadata.resource_version.as_ref());
        let is_overtaken = in_flight.is_some_and(|in_flight| {
            in_flight.is_overtaken || version.is_some_and(|version| in_flight.reported.contains(version))
        });
        if is_overtaken {
            self.pending.remove(&key);
            self.superseded.remove(&key);
            return false;
        }
        if version.is_some() && version.map(String::as_str) == base {
            // It changed nothing: there will be no event, and nothing was replaced.
            return true;
        }
        if let Some(base) = base {
            let superseded = self.superseded.entry(key.clone()).or_default();
            superseded.push(base.to_owned());
            if superseded.len() > MAX_LAG {
                superseded.remove(0);
            }
        }
        match written.cloned() {
            Some(written) => {
                let until = now + ECHO_TIMEOUT;
                self.expiries.push_back((until, key.clone()));
                let pending = PendingEcho { until, is_exact: write.is_exact(), withheld: None, written };
                self.pending.insert(key, pending);
            }
            None => drop(self.pending.remove(&key)),
        }
        true
    }

    /// Returns the event as it is to be observed; `None` if it is withheld, or older than what is known.
    pub(super) fn filter(&mut self, watch: &Watch, event: StoreEvent) -> Option<StoreEvent> {
        match event {
            StoreEvent::Applied(object) => {
                let key = (watch.store, object.key());
                if self.is_superseded(&key, &object) {
                    return None;
                }
                match self.pending.get_mut(&key) {
                    Some(pending) if !pending.is_exact && !is_same(&pending.written, &object) => {
                        pending.withheld = Some((watch.clone(), StoreEvent::Applied(object)));
                        None
                    }
                    _ => {
                        self.report(&key, Some(&object));
                        self.pending.remove(&key);
                        // Watches deliver in order: whatever was replaced is past.
                        self.superseded.remove(&key);
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
                        self.report(&key, None);
                        self.pending.remove(&key);
                        self.superseded.remove(&key);
                        Some(StoreEvent::Deleted(object))
                    }
                }
            }
            StoreEvent::Listed(objects) => Some(StoreEvent::Listed(self.filter_list(watch, objects))),
            StoreEvent::Unavailable(_) => Some(event),
        }
    }

    fn is_superseded(&self, key: &(usize, ObjectKey), object: &Object) -> bool {
        let superseded = self.superseded.get(key);
        superseded.is_some_and(|versions| {
            versions.iter().any(|version| object.metadata.resource_version.as_ref() == Some(version))
        })
    }

    /// Notes for a write under way that the watch reports this of its object; `None` if it is gone.
    fn report(&mut self, key: &(usize, ObjectKey), object: Option<&Object>) {
        let Some(in_flight) = self.in_flight.get_mut(key) else { return };
        let version = object.and_then(|object| object.metadata.resource_version.clone());
        in_flight.is_overtaken |= in_flight.is_exact && version != in_flight.base;
        in_flight.reported.extend(version);
        if in_flight.reported.len() > MAX_LAG {
            in_flight.reported.remove(0);
        }
    }

    /// Returns the list as it would be after the writes that it may be older than.
    fn filter_list(&mut self, watch: &Watch, mut objects: Vec<Object>) -> Vec<Object> {
        let is_listed = |(store, key): &(usize, ObjectKey)| *store == watch.store && watch.covers(key);
        if self.pending.is_empty() && self.in_flight.is_empty() && self.superseded.is_empty() {
            return objects;
        }
        let positions: BTreeMap<ObjectKey, usize> =
            objects.iter().enumerate().map(|(position, object)| (object.key(), position)).collect();
        let in_flight: Vec<_> = self.in_flight.keys().filter(|key| is_listed(key)).cloned().collect();
        for key in in_flight {
            let listed = positions.get(&key.1).and_then(|position| objects.get(*position));
            if listed.is_none_or(|listed| !self.is_superseded(&key, listed)) {
                self.report(&key, listed);
            }
        }
        let superseded = std::mem::take(&mut self.superseded);
        let (of_watch, others) = superseded.into_iter().partition(|(key, _)| is_listed(key));
        self.superseded = others;
        let of_watch: BTreeMap<_, Vec<String>> = of_watch;
        self.pending.retain(|key, pending| {
            if !is_listed(key) {
                return true;
            }
            let listed = positions.get(&key.1).and_then(|position| objects.get_mut(*position));
            let version = listed.as_ref().and_then(|listed| listed.metadata.resource_version.clone());
            let is_older = version.is_some_and(|version| {
                of_watch.get(key).is_some_and(|superseded| superseded.contains(&version))
            });
            let is_current = listed.as_ref().is_some_and(|listed| is_same(listed, &pending.written));
            if is_current || listed.is_some() && pending.is_exact && !is_older {
                return false;
            }
            let event = match listed {
                Some(listed) => StoreEvent::Applied(std::mem::replace(listed, pending.written.clone())),
                None => {
                    objects.push(pending.written.clone());
                    StoreEvent::Deleted(pending.written.clone())
                }
            };
            pending.withheld = (!is_older).then(|| (watch.clone(), event));
            true
        });
        objects
    }

    /// Returns when [`PendingEchoes::expire`] has something to return.
    pub(super) fn deadline(&self) -> Option<Instant> {
        self.expiries.front().map(|(until, _)| *until)
    }

    /// Returns the withheld events whose time is over, which are to be observed now.
    pub(super) fn expire(&mut self, now: Instant) -> Vec<(Watch, StoreEvent)> {
        let mut late = Vec::new();
        while let Some((until, key)) = self.expiries.front() {
            let is_pending = self.pending.get(key).is_some_and(|pending| pending.until == *until);
            if is_pending && now < *until {
                break;
            }
            if is_pending && let Some(pending) = self.pending.remove(key) {
                late.extend(pending.withheld);
            }
            self.expiries.pop_front();
        }
        late
    }

    /// Drops what is pending of a watch that has ended.
    pub(super) fn remove_watch(&mut self, watch: &Watch) {
        let is_other = |(store, key): &(usize, ObjectKey)| *store != watch.store || !watch.covers(key);
        self.pending.retain(|key, _| is_other(key));
        self.superseded.retain(|key, _| is_other(key));
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
        assert!(echoes.finish(0, &annotate(), &StoreEvent::Applied(object("2")), now));
        (echoes, now)
    }

    /// Creates a write that does not name the version it replaces.
    fn annotate() -> Write {
        Write::Annotate { key: object("1").key(), annotation: "a", value: None }
    }

    /// Updates version 1 to version 2, while the watch reports these versions.
    fn updated(meanwhile: &[&str]) -> (PendingEchoes, bool) {
        let mut echoes = PendingEchoes::default();
        let update = Write::Update(object("1"));
        echoes.start(0, &update);
        for version in meanwhile {
            assert!(echoes.filter(&watch(), StoreEvent::Applied(object(version))).is_some());
        }
        let is_newest = echoes.finish(0, &update, &StoreEvent::Applied(object("2")), Instant::now());
        (echoes, is_newest)
    }

    #[test]
    fn events_from_before_a_write_are_withheld_until_its_own_comes() {
        let (mut echoes, _) = written();
        assert!(echoes.filter(&watch(), StoreEvent::Applied(object("1"))).is_none());
        assert!(echoes.filter(&watch(), StoreEvent::Applied(object("2"))).is_some());
        assert!(echoes.filter(&watch(), StoreEvent::Applied(object("3"))).is_some());
        assert!(echoes.expire(Instant::now()).is_empty());
        assert_eq!(echoes.deadline(), None);
    }

    #[test]
    fn a_write_whose_event_never_comes_is_overtaken_in_time() {
        let (mut echoes, now) = written();
        assert!(echoes.filter(&watch(), StoreEvent::Applied(object("3"))).is_none());
        assert!(echoes.expire(now + ECHO_TIMEOUT - Duration::from_millis(1)).is_empty());
        let late = echoes.expire(now + ECHO_TIMEOUT);
        assert!(matches!(&late[..], [(_, StoreEvent::Applied(late))] if *late == object("3")));
        assert!(echoes.expire(Instant::now()).is_empty());
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
        assert!(echoes.expire(Instant::now()).is_empty());
        assert_eq!(echoes.deadline(), None);
    }

    #[test]
    fn versions_that_were_replaced_are_dropped_whenever_they_come_and_newer_ones_are_not_withheld() {
        let (mut echoes, is_newest) = updated(&["1"]);
        assert!(is_newest);
        assert!(echoes.expire(Instant::now() + 2 * ECHO_TIMEOUT).is_empty());
        assert!(echoes.filter(&watch(), StoreEvent::Applied(object("1"))).is_none(), "late as it is");
        assert!(
            echoes.filter(&watch(), StoreEvent::Applied(object("3"))).is_some(),
            "2 and 3 were one event"
        );
        assert!(echoes.superseded.is_empty() && echoes.deadline().is_none());
    }

    #[test]
    fn a_result_that_the_watch_has_overtaken_is_not_observed() {
        for meanwhile in [&["2"][..], &["2", "3"], &["3"]] {
            let (echoes, is_newest) = updated(meanwhile);
            assert!(!is_newest, "{meanwhile:?}");
            assert!(echoes.superseded.is_empty() && echoes.deadline().is_none());
        }
        // Others write an object that is annotated all the time.
        for (meanwhile, is_newest) in [("1", true), ("2", false)] {
            let mut echoes = PendingEchoes::default();
            echoes.start(0, &annotate());
            assert!(echoes.filter(&watch(), StoreEvent::Applied(object(meanwhile))).is_some());
            let result = StoreEvent::Applied(object("2"));
            assert_eq!(echoes.finish(0, &annotate(), &result, Instant::now()), is_newest);
        }
    }

    #[test]
    fn a_write_that_changed_nothing_awaits_no_event_and_a_deleted_object_does_not_come_back() {
        let (mut echoes, now) = (PendingEchoes::default(), Instant::now());
        let (update, delete) = (Write::Update(object("2")), Write::Delete(object("2")));
        echoes.start(0, &update);
        assert!(echoes.finish(0, &update, &StoreEvent::Applied(object("2")), now));
        assert!(echoes.superseded.is_empty() && echoes.deadline().is_none());
        echoes.start(0, &delete);
        assert!(echoes.finish(0, &delete, &StoreEvent::Deleted(object("2")), now));
        assert!(echoes.filter(&watch(), StoreEvent::Applied(object("2"))).is_none());
        assert!(echoes.filter(&watch(), StoreEvent::Deleted(object("2"))).is_some());
        assert!(echoes.superseded.is_empty());
    }

    #[test]
    fn a_watch_may_lag_behind_several_writes() {
        let (mut echoes, now) = (PendingEchoes::default(), Instant::now());
        for (base, result) in [("5", "6"), ("6", "7")] {
            let update = Write::Update(object(base));
            echoes.start(0, &update);
            assert!(echoes.finish(0, &update, &StoreEvent::Applied(object(result)), now));
        }
        for (late, is_observed) in [("5", false), ("6", false), ("7", true), ("9", true)] {
            let event = echoes.filter(&watch(), StoreEvent::Applied(object(late)));
            assert_eq!(event.is_some(), is_observed, "version {late}");
        }
        // Somebody was faster to write again than the answer was to come.
        let update = Write::Update(object("9"));
        echoes.start(0, &update);
        assert!(echoes.filter(&watch(), StoreEvent::Applied(object("11"))).is_some());
        assert!(!echoes.finish(0, &update, &StoreEvent::Applied(object("10")), now));
        // A list is as new as the watch, or newer.
        echoes.start(0, &update);
        assert!(echoes.finish(0, &update, &StoreEvent::Applied(object("12")), now));
        let listed = echoes.filter(&watch(), StoreEvent::Listed(vec![object("13")]));
        assert!(matches!(listed, Some(StoreEvent::Listed(objects)) if objects == [object("13")]));
        assert!(echoes.expire(now).is_empty());
        assert!(echoes.superseded.is_empty() && echoes.deadline().is_none());
    }
}
