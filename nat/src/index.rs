//! Slots with links, and chained hash indices over them: what sessions, mappings and filters live in.
//!
//! Memory is reserved for the limit at construction and touched as it is used. An index never grows, moves or cleans
//! up, so that no packet ever waits for that; the chains are as long as the keyed hash is bad.

/// The end of a list, and the link of what is in none.
pub(crate) const NONE: u32 = u32::MAX;

/// What can be chained, in one index or in two. A slot that is free is chained by its first link.
pub(crate) trait Linked {
    fn link(&self, chain: Chain) -> u32;
    fn set_link(&mut self, chain: Chain, next: u32);
}

/// Which of an item's links an index uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Chain {
    First,
    Second,
}

/// Slots that are used again, up to a limit.
#[derive(Debug)]
pub(crate) struct Slab<T> {
    slots: Vec<T>,
    free: u32,
    used: u32,
    limit: u32,
}

impl<T: Linked + Copy> Slab<T> {
    pub(crate) fn new(limit: u32) -> Self {
        Self { slots: Vec::with_capacity(at(limit)), free: NONE, used: 0, limit }
    }

    /// Number of slots in use.
    pub(crate) fn used(&self) -> u32 {
        self.used
    }

    pub(crate) fn is_full(&self) -> bool {
        self.used >= self.limit
    }

    /// Every slot that was ever used, in order; the caller knows which are live.
    pub(crate) fn slots(&self) -> &[T] {
        &self.slots
    }

    pub(crate) fn get(&self, index: u32) -> &T {
        &self.slots[at(index)]
    }

    pub(crate) fn get_mut(&mut self, index: u32) -> &mut T {
        &mut self.slots[at(index)]
    }

    /// What stands in a slot that is to be used next, or `None` in a new one; `Err` when the limit is reached.
    pub(crate) fn insert(&mut self, make: impl FnOnce(Option<&T>) -> T) -> Option<u32> {
        if self.is_full() {
            return None;
        }
        self.used += 1;
        if self.free == NONE {
            let index = u32::try_from(self.slots.len()).ok()?;
            self.slots.push(make(None));
            return Some(index);
        }
        let index = self.free;
        let slot = &mut self.slots[at(index)];
        self.free = slot.link(Chain::First);
        *slot = make(Some(slot));
        Some(index)
    }

    /// Gives a slot back. It must be in no chain.
    pub(crate) fn remove(&mut self, index: u32) {
        self.slots[at(index)].set_link(Chain::First, self.free);
        self.free = index;
        self.used -= 1;
    }
}

/// A chained hash index over a [`Slab`]. Holds indices plus one, so that fresh memory is empty.
#[derive(Debug)]
pub(crate) struct Index {
    heads: Vec<u32>,
    mask: u64,
    chain: Chain,
}

impl Index {
    pub(crate) fn new(limit: u32, chain: Chain) -> Self {
        let heads = at(limit.max(1)).next_power_of_two();
        Self { heads: vec![0; heads], mask: heads as u64 - 1, chain }
    }

    fn head(&self, hash: u64) -> usize {
        usize::try_from(hash & self.mask).expect("masked to the number of heads")
    }

    pub(crate) fn find<T: Linked + Copy>(
        &self,
        slab: &Slab<T>,
        hash: u64,
        is_it: impl Fn(&T) -> bool,
    ) -> Option<u32> {
        let mut index = self.heads[self.head(hash)].wrapping_sub(1);
        while index != NONE {
            let slot = slab.get(index);
            if is_it(slot) {
                return Some(index);
            }
            index = slot.link(self.chain);
        }
        None
    }

    pub(crate) fn insert<T: Linked + Copy>(&mut self, slab: &mut Slab<T>, hash: u64, index: u32) {
        let head = self.head(hash);
        slab.get_mut(index).set_link(self.chain, self.heads[head].wrapping_sub(1));
        self.heads[head] = index.wrapping_add(1);
    }

    pub(crate) fn remove<T: Linked + Copy>(&mut self, slab: &mut Slab<T>, hash: u64, index: u32) {
        let head = self.head(hash);
        let next = slab.get(index).link(self.chain);
        let mut before = self.heads[head].wrapping_sub(1);
        if before == index {
            self.heads[head] = next.wrapping_add(1);
            return;
        }
        while before != NONE {
            let link = slab.get(before).link(self.chain);
            if link == index {
                slab.get_mut(before).set_link(self.chain, next);
                return;
            }
            before = link;
        }
    }
}

/// A 32-bit index as a position.
pub(crate) fn at(index: u32) -> usize {
    usize::try_from(index).expect("pointers have at least 32 bits")
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[derive(Debug, Clone, Copy)]
    struct Item {
        link: u32,
        value: u64,
    }

    impl Linked for Item {
        fn link(&self, _chain: Chain) -> u32 {
            self.link
        }

        fn set_link(&mut self, _chain: Chain, next: u32) {
            self.link = next;
        }
    }

    /// Bad on purpose, so that chains are long.
    fn hash(value: u64) -> u64 {
        value / 7
    }

    #[test]
    fn the_index_finds_what_was_put_in_and_nothing_else() {
        let (mut slab, mut index) = (Slab::new(500), Index::new(16, Chain::First));
        let mut model = BTreeMap::new();
        let mut state = 1_u64;
        for _ in 0..20_000 {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let value = (state >> 33) % 700;
            let found = index.find(&slab, hash(value), |item: &Item| item.value == value);
            assert_eq!(found, model.get(&value).copied());
            if let Some(at) = found {
                index.remove(&mut slab, hash(value), at);
                slab.remove(at);
                model.remove(&value);
            } else if let Some(at) = slab.insert(|_| Item { link: NONE, value }) {
                index.insert(&mut slab, hash(value), at);
                model.insert(value, at);
            } else {
                assert!(slab.is_full() && model.len() == 500);
            }
            assert_eq!(at(slab.used()), model.len());
        }
        assert_eq!(slab.slots().len(), 500.min(slab.slots().len()), "no more places than allowed");
    }
}
