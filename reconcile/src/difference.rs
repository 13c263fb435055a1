//! Lists of objects that follow a newer version of themselves.

use std::cmp::Ordering;
use std::collections::BTreeSet;

/// The differences between two versions of a list: as few as there are where both are in the same order, and never too few.
#[derive(Debug, Default)]
pub struct Difference {
    /// Places in the old list that have nothing in the new one.
    gone: BTreeSet<usize>,
    /// Places in the new list that have nothing in the old one.
    come: BTreeSet<usize>,
}

impl Difference {
    /// Compares two versions of a list. What has stayed is equal, and in the same order in both.
    pub fn between<T: PartialEq>(old: &[T], new: &[&T], order: impl Fn(&T, &T) -> Ordering) -> Self {
        let order = |(_, old): &(usize, &T), (_, new): &(usize, &T)| (old != new).then(|| order(old, new));
        let (gone, come) = differences(old.iter().enumerate(), new.iter().copied().enumerate(), order);
        let places = |found: Vec<(usize, &T)>| found.into_iter().map(|(at, _)| at).collect();
        Self { gone: places(gone), come: places(come) }
    }

    /// Returns `true` if there are none.
    pub fn is_empty(&self) -> bool {
        self.gone.is_empty() && self.come.is_empty()
    }

    /// Returns the objects that have gone from the old list.
    pub fn gone<'a, T>(&'a self, old: &'a [T]) -> impl Iterator<Item = &'a T> {
        self.gone.iter().filter_map(|at| old.get(*at))
    }

    /// Returns the objects that have come to the new list.
    pub fn come<'a, T>(&'a self, new: &'a [&'a T]) -> impl Iterator<Item = &'a T> {
        self.come.iter().filter_map(|at| new.get(*at).copied())
    }

    /// Makes the old list the new one; what has stayed is not copied.
    pub fn apply<T: Clone>(&self, old: &mut Vec<T>, new: &[&T]) {
        if self.is_empty() {
            return;
        }
        let all = std::mem::take(old).into_iter().enumerate();
        let mut stayed = all.filter(|(at, _)| !self.gone.contains(at)).map(|(_, object)| object);
        old.extend(new.iter().enumerate().filter_map(|(at, object)| match self.come.contains(&at) {
            true => Some((*object).clone()),
            false => stayed.next(),
        }));
    }
}

/// Returns what the old one of two versions has alone, and what the new one has, both being in the same order. `order` returns
/// `None` for what is the same in both.
pub fn differences<T>(
    old: impl Iterator<Item = T>,
    new: impl Iterator<Item = T>,
    order: impl Fn(&T, &T) -> Option<Ordering>,
) -> (Vec<T>, Vec<T>) {
    let (mut old, mut new) = (old.peekable(), new.peekable());
    let (mut gone, mut come) = (Vec::new(), Vec::new());
    loop {
        let order = match (old.peek(), new.peek()) {
            (None, None) => return (gone, come),
            (Some(_), None) => Some(Ordering::Less),
            (None, Some(_)) => Some(Ordering::Greater),
            (Some(old), Some(new)) => order(old, new),
        };
        let of_old = old.next_if(|_| order.is_none_or(Ordering::is_le));
        let of_new = new.next_if(|_| order.is_none_or(Ordering::is_ge));
        if order.is_some() {
            gone.extend(of_old);
            come.extend(of_new);
        }
    }
}

/// Makes a list a newer version of itself; returns `true` if anything has changed.
pub fn renew<T: Clone + PartialEq>(
    list: &mut Vec<T>,
    newer: &[&T],
    order: impl Fn(&T, &T) -> Ordering,
) -> bool {
    let difference = Difference::between(list, newer, order);
    difference.apply(list, newer);
    !difference.is_empty()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_list_follows_any_other(old: Vec<u8>, new: Vec<u8>, is_sorted: bool) {
            let (mut old, mut new) = (old, new);
            if is_sorted {
                old.sort_unstable();
                new.sort_unstable();
            }
            let wanted: Vec<&u8> = new.iter().collect();
            let difference = Difference::between(&old, &wanted, Ord::cmp);
            let [gone, come] = [difference.gone.len(), difference.come.len()];
            prop_assert_eq!(old.len() - gone, new.len() - come);
            prop_assert_eq!(difference.is_empty(), old == new);
            difference.apply(&mut old, &wanted);
            prop_assert_eq!(old, new);
        }
    }
}
