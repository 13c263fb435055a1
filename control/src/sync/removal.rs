//! Not believing at once that others have left.

use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};

use super::grace::Grace;
use crate::api::Kind;

/// Ours: for how many times the wait somebody who left is remembered: removals that are due by then may queue for a slow store.
const REMEMBERED_WAITS: u32 = 8;

/// The broker's state of the owner of a copy that it does not have any more.
#[derive(Debug, Clone, Copy)]
pub(super) struct Absence<'a> {
    pub(super) kind: Kind,
    /// The cluster whose copy it is.
    pub(super) origin: &'a str,
    /// Whether the broker can be read, and has been without a break.
    pub(super) is_read: bool,
    /// Whether it has taken everything of ours.
    pub(super) has_ours: bool,
    /// Whether it has no object of this kind of anybody else.
    pub(super) is_emptied: bool,
    /// Whether it has no object of this kind of this cluster.
    pub(super) has_departed: bool,
    /// Whether somebody else gets what the owner had.
    pub(super) is_urgent: bool,
}

/// Since when whom has been missing.
#[derive(Debug)]
pub(super) struct RemovalGrace {
    empty_grace: Duration,
    departure_wait: Duration,
    emptied: BTreeMap<Kind, Grace>,
    departed: BTreeMap<(Kind, String), Instant>,
    /// The same, the earliest first; what is over already may still be among them.
    by_time: VecDeque<(Instant, (Kind, String))>,
}

impl RemovalGrace {
    pub(super) fn new(empty_grace: Duration, departure_wait: Duration) -> Self {
        Self {
            empty_grace,
            departure_wait,
            emptied: BTreeMap::new(),
            departed: BTreeMap::new(),
            by_time: VecDeque::new(),
        }
    }

    /// Starts all periods anew: only an absence without a break counts.
    pub(super) fn reset(&mut self) {
        self.emptied.clear();
        self.clear_departed();
    }

    /// Ends the absence of an owner who is back; when it goes again, it begins anew.
    pub(super) fn welcome(&mut self, kind: Kind, origin: &str) {
        self.departed.remove(&(kind, origin.to_owned()));
    }

    /// Permits the removal of a copy at `now`, or returns when to ask again, if time alone can change the answer.
    ///
    /// # Errors
    /// Until when it is kept; `None` when that depends on something else than time.
    pub(super) fn ask(&mut self, absence: &Absence<'_>, now: Instant) -> Result<(), Option<Instant>> {
        if !absence.is_read {
            return Err(None);
        }
        self.ask_emptied(absence, now)?;
        self.miss(absence.kind, absence.origin, absence.has_departed && !absence.is_urgent, now)
    }

    /// Permits the removal of an object at `now` whose owner may have departed altogether, or returns when to ask
    /// again.
    ///
    /// # Errors
    /// Until when it is kept.
    pub(super) fn miss(
        &mut self,
        kind: Kind,
        origin: &str,
        has_departed: bool,
        now: Instant,
    ) -> Result<(), Option<Instant>> {
        let key = (kind, origin.to_owned());
        if !has_departed {
            self.departed.remove(&key);
            return Ok(());
        }
        let since = *self.departed.entry(key.clone()).or_insert_with(|| {
            self.by_time.push_back((now, key.clone()));
            now
        });
        self.remove_expired(&key, now);
        let until = since + self.departure_wait;
        if now < until { Err(Some(until)) } else { Ok(()) }
    }

    /// Removes all who left: nothing of theirs is left to be removed.
    pub(super) fn clear_departed(&mut self) {
        self.departed.clear();
        self.by_time.clear();
    }

    /// Removes those who left long ago, but for one who is asked about.
    fn remove_expired(&mut self, but: &(Kind, String), now: Instant) {
        let (wait, mut kept) = (self.departure_wait, None);
        let is_over = |entry: &mut (Instant, _)| now.duration_since(entry.0) >= wait * REMEMBERED_WAITS;
        while let Some((since, key)) = self.by_time.pop_front_if(is_over) {
            let is_present = self.departed.get(&key) == Some(&since);
            if is_present && *but == key {
                kept = Some((since, key));
            } else if is_present {
                self.departed.remove(&key);
            }
        }
        if let Some(kept) = kept {
            self.by_time.push_front(kept);
        }
    }

    fn ask_emptied(&mut self, absence: &Absence<'_>, now: Instant) -> Result<(), Option<Instant>> {
        let kind = absence.kind;
        let grace = self.emptied.entry(kind).or_default();
        if absence.is_emptied && !absence.has_ours {
            // A broker without anybody, us included, has lost its objects; it has yet to show that it keeps any.
            grace.reset();
            return Err(None);
        }
        let is_changed = !grace.is_running();
        let Some(left) = grace.left(absence.is_emptied, self.empty_grace, now) else { return Ok(()) };
        if is_changed {
            tracing::warn!(%kind, kept_for = ?left, "the broker has lost all other clusters' objects; our copies are kept");
        }
        Err(Some(now + left))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GONE: Absence<'static> = Absence {
        kind: Kind::Endpoint,
        origin: "b",
        is_read: true,
        has_ours: true,
        is_emptied: false,
        has_departed: true,
        is_urgent: false,
    };

    fn removal_grace() -> RemovalGrace {
        RemovalGrace::new(Duration::from_secs(60), Duration::from_secs(3))
    }

    #[test]
    fn a_cluster_is_missed_for_three_seconds_and_a_replaced_endpoint_not_at_all() {
        let (mut removal_grace, start) = (removal_grace(), Instant::now());
        let at = |second| start + Duration::from_secs(second);
        assert_eq!(removal_grace.ask(&GONE, at(0)), Err(Some(at(3))));
        assert_eq!(removal_grace.ask(&GONE, at(2)), Err(Some(at(3))));
        assert_eq!(removal_grace.ask(&GONE, at(3)), Ok(()));
        let replaced = Absence { has_departed: false, ..GONE };
        assert_eq!(removal_grace.ask(&replaced, at(3)), Ok(()));
        assert_eq!(removal_grace.ask(&GONE, at(4)), Err(Some(at(7))), "it was replaced meanwhile");
        removal_grace.welcome(Kind::Endpoint, "b");
        assert_eq!(removal_grace.ask(&GONE, at(8)), Err(Some(at(11))), "it was back meanwhile");
    }

    #[test]
    fn those_who_left_long_ago_are_forgotten_but_for_one_whose_removal_is_asked_for() {
        let (mut removal_grace, start) = (removal_grace(), Instant::now());
        let at = |second| start + Duration::from_secs(second);
        let of = |origin| Absence { origin, ..GONE };
        for origin in ["b", "c", "d"] {
            assert_eq!(removal_grace.ask(&of(origin), at(0)), Err(Some(at(3))));
        }
        assert_eq!(removal_grace.ask(&of("c"), at(23)), Ok(()), "its removal was under way for long");
        assert_eq!(removal_grace.departed.len(), 3);
        assert_eq!(removal_grace.ask(&of("c"), at(24)), Ok(()));
        assert_eq!((removal_grace.departed.len(), removal_grace.by_time.len()), (1, 1));
        removal_grace.clear_departed();
        assert_eq!((removal_grace.departed.len(), removal_grace.by_time.len()), (0, 0));
        assert_eq!(removal_grace.ask(&of("b"), at(25)), Err(Some(at(28))));
    }

    #[test]
    fn a_cluster_whose_addresses_another_one_gets_goes_at_once() {
        let urgent = Absence { is_urgent: true, ..GONE };
        assert_eq!(removal_grace().ask(&urgent, Instant::now()), Ok(()));
    }

    #[test]
    fn a_namespace_that_loses_its_objects_one_by_one_takes_nobody_along() {
        let (mut removal_grace, start) = (removal_grace(), Instant::now());
        assert!(removal_grace.ask(&GONE, start).is_err(), "the first goes, others are there");
        let emptied = Absence { is_emptied: true, has_ours: false, ..GONE };
        for second in [1, 100, 10_000] {
            let asked = removal_grace.ask(&emptied, start + Duration::from_secs(second));
            assert_eq!(asked, Err(None), "it does not take ours: it is broken");
        }
        let refilled = Absence { has_ours: true, ..emptied };
        let later = start + Duration::from_secs(10_001);
        assert_eq!(removal_grace.ask(&refilled, later), Err(Some(later + Duration::from_secs(60))));
    }

    #[test]
    fn a_broker_that_cannot_be_read_says_nothing_about_who_left() {
        let (mut removal_grace, now) = (removal_grace(), Instant::now());
        let unread = Absence { is_read: false, ..GONE };
        assert_eq!(removal_grace.ask(&unread, now), Err(None));
        assert!(removal_grace.ask(&GONE, now).is_err());
        removal_grace.reset();
        let later = now + Duration::from_secs(5);
        assert_eq!(removal_grace.ask(&GONE, later), Err(Some(later + Duration::from_secs(3))));
    }
}
