//! What to do where something is wanted, and where something is there.

use std::collections::BTreeMap;

/// One step to what is wanted. `W` is what is wanted, `H` what is there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step<W, H> {
    /// Nothing stands there.
    Add(W),
    /// What is ours there becomes what is wanted.
    Change(H, W),
    /// What is ours there goes: nobody wants it, or another one serves.
    Remove(H),
    /// Something stands there that is neither ours nor as wanted. Nothing is done, not even with what is ours beside it: a
    /// change could hit either.
    Blocked(W, H),
}

/// Compares what is wanted in one place with everything that stands there: at most one is wanted, but several may be there.
///
/// Of those that are as wanted one of ours stays, else one of somebody else serves as well. Of those that are not, the first
/// of ours is changed. All others of ours go.
pub fn steps<W, H>(
    wanted: Option<W>,
    there: impl IntoIterator<Item = H>,
    is_ours: impl Fn(&H) -> bool,
    is_right: impl Fn(&H, &W) -> bool,
) -> Vec<Step<W, H>> {
    let (mut ours, mut others): (Vec<H>, Vec<H>) = there.into_iter().partition(is_ours);
    let mut steps = Vec::new();
    if let Some(wanted) = wanted {
        let right = ours.iter().position(|there| is_right(there, &wanted));
        match right {
            Some(at) => drop(ours.remove(at)),
            None if others.iter().any(|there| is_right(there, &wanted)) => {}
            None if !others.is_empty() => return vec![Step::Blocked(wanted, others.remove(0))],
            None if ours.is_empty() => steps.push(Step::Add(wanted)),
            None => steps.push(Step::Change(ours.remove(0), wanted)),
        }
    }
    steps.extend(ours.into_iter().map(Step::Remove));
    steps
}

/// Compares all that is wanted with all that is there, by the places where it stands. Steps to what is wanted come first, in
/// its order; then goes what nobody wants, in the order of its places.
pub fn diff<K: Ord, W, H>(
    wanted: impl IntoIterator<Item = (K, W)>,
    there: impl IntoIterator<Item = (K, H)>,
    is_ours: impl Fn(&H) -> bool,
    is_right: impl Fn(&H, &W) -> bool,
) -> Vec<Step<W, H>> {
    let mut by_key: BTreeMap<K, Vec<H>> = BTreeMap::new();
    for (key, there) in there {
        by_key.entry(key).or_default().push(there);
    }
    let mut all = Vec::new();
    for (key, wanted) in wanted {
        let there = by_key.remove(&key).unwrap_or_default();
        all.extend(steps(Some(wanted), there, &is_ours, &is_right));
    }
    for there in by_key.into_values() {
        all.extend(steps(None, there, &is_ours, &is_right));
    }
    all
}
