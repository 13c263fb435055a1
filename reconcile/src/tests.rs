//! The laws, for a table in memory and for planners that break them.

use std::collections::BTreeMap;

use proptest::prelude::*;

use crate::laws::{Model, check};
use crate::{Host, Step, diff, pass, steps, uninstall};

/// An entry: its key, its value, and whether it is ours.
type Entry = (u8, u8, bool);

/// A table that takes several entries of one key, as the kernel does with routes. `FAULT` is what is wrong with its planner.
#[derive(Debug, Clone, Default, PartialEq)]
struct Table<const FAULT: char>(Vec<Entry>);

impl<const FAULT: char> Host for Table<FAULT> {
    type Wanted = BTreeMap<u8, u8>;
    type Observed = Vec<Entry>;
    type Change = Step<Entry, Entry>;
    type Error = &'static str;

    fn observe(&self) -> Result<Vec<Entry>, &'static str> {
        Ok(self.0.clone())
    }

    fn plan(wanted: &BTreeMap<u8, u8>, observed: &Vec<Entry>) -> Vec<Step<Entry, Entry>> {
        let wanted = wanted.iter().map(|(key, value)| (*key, (*key, *value, true)));
        let there = observed.iter().map(|entry| (entry.0, *entry));
        let is_ours = |entry: &Entry| entry.2 || FAULT == 'f';
        let mut steps = diff(wanted, there, is_ours, |there, wanted| there.1 == wanted.1);
        steps.retain(|step| match step {
            Step::Add(_) | Step::Change(..) => true,
            Step::Remove(_) => FAULT != 'u',
            Step::Blocked(..) => FAULT == 'b',
        });
        steps
    }

    fn apply(&mut self, change: &Step<Entry, Entry>) -> Result<(), &'static str> {
        let at = |there: &Entry| self.0.iter().position(|entry| entry == there).ok_or("not there");
        match change {
            Step::Add(entry) if self.0.iter().any(|there| there.0 == entry.0) => return Err("taken"),
            Step::Add(entry) => self.0.push(*entry),
            Step::Change(from, to) => {
                let at = at(from)?;
                self.0[at] = *to;
            }
            Step::Remove(entry) => drop(self.0.remove(at(entry)?)),
            Step::Blocked(..) => return Err("blocked"),
        }
        Ok(())
    }
}

impl<const FAULT: char> Model for Table<FAULT> {
    type Foreign = Vec<Entry>;

    fn foreign(&self) -> Vec<Entry> {
        self.0.iter().filter(|entry| !entry.2).copied().collect()
    }

    fn ours(&self) -> Vec<String> {
        self.0.iter().filter(|entry| entry.2).map(|entry| format!("{entry:?}")).collect()
    }
}

proptest! {
    #[test]
    fn every_table_keeps_the_laws(
        there in prop::collection::vec((0..4u8, 0..3u8, any::<bool>()), 0..8),
        wanted in prop::collection::btree_map(0..4u8, 0..3u8, 0..4),
        number in any::<usize>(),
    ) {
        prop_assert_eq!(check(&Table::<' '>(there), &wanted, number), Ok(()));
    }
}

#[test]
fn a_planner_that_breaks_a_law_is_named_with_it() {
    let there = vec![(0, 0, false), (1, 1, true), (2, 2, true)];
    let wanted = [(0, 9), (1, 9), (3, 9)].into();
    let error = |outcome: Result<(), String>| outcome.unwrap_err();
    assert_eq!(check(&Table::<' '>(there.clone()), &wanted, 0), Ok(()));
    assert!(error(check(&Table::<'f'>(there.clone()), &wanted, 0)).contains("changes what is not ours"));
    assert!(error(check(&Table::<'u'>(there.clone()), &wanted, 0)).contains("an uninstallation leaves"));
    assert!(error(check(&Table::<'b'>(there), &wanted, 0)).contains("cannot be made"));
}

#[test]
fn a_pass_goes_on_after_a_failure_and_the_next_one_is_due() {
    let mut table = Table::<'b'>(vec![(0, 0, false)]);
    let wanted = [(0, 9), (1, 9)].into();
    let first = pass(&mut table, &wanted).unwrap();
    assert_eq!((first.made, first.errors), (vec![Step::Add((1, 9, true))], vec!["blocked"]));
    assert!(!pass(&mut table, &wanted).unwrap().is_settled());
    table.0.remove(0);
    assert_eq!(pass(&mut table, &wanted).unwrap().made, [Step::Add((0, 9, true))]);
    assert!(pass(&mut table, &wanted).unwrap().is_settled());
    uninstall(&mut table).unwrap();
    assert_eq!(table.0, []);
}

#[test]
fn of_several_in_one_place_the_right_one_stays() {
    let at = |there: &[(u8, bool)]| {
        steps(Some(5), there.to_vec(), |(_, is_ours)| *is_ours, |(value, _), wanted| value == wanted)
    };
    assert_eq!(at(&[]), [Step::Add(5)]);
    assert_eq!(at(&[(5, true)]), []);
    assert_eq!(at(&[(5, false)]), [], "another's serves as well");
    assert_eq!(at(&[(5, false), (5, true), (5, true)]), [Step::Remove((5, true))]);
    assert_eq!(at(&[(1, true), (5, true)]), [Step::Remove((1, true))]);
    assert_eq!(at(&[(1, true), (2, true)]), [Step::Change((1, true), 5), Step::Remove((2, true))]);
    assert_eq!(at(&[(1, true), (2, false)]), [Step::Blocked(5, (2, false))]);
}

#[test]
fn changes_that_go_together_are_made_together_but_for_those_that_wait() {
    let mut pass: crate::Pass<u8, &str> = crate::Pass::new([1, 3, 5, 2, 7, 9, 4]);
    let are_odd = |last: &u8, next: &u8| last % 2 == 1 && next % 2 == 1;
    let waits = |change: &u8, failed: &[u8]| *change == 9 && failed.contains(&3);
    let mut batches = Vec::new();
    loop {
        let batch = pass.next_changes(waits, are_odd);
        if batch.is_empty() {
            break;
        }
        for change in &batch {
            pass.record(*change, if *change == 3 { Err("refused") } else { Ok(()) });
        }
        batches.push(batch);
    }
    assert_eq!(batches, [&[1, 3, 5][..], &[2], &[7], &[4]]);
    assert_eq!((pass.waiting, pass.failed, pass.made), (vec![9], vec![3], vec![1, 5, 2, 7, 4]));
}
