//! What was decided for translated flows.
//!
//! There may be a million of them, so a flow costs one cache line here, and its session one more. Both are fetched for a
//! whole batch at once ([`Memo::sessions_ahead`]): loads that do not wait for one another take little longer than one.
//! Memory is reserved once and used as flows come; when all places are taken, the flow that was learnt first goes.

use trieste_nat::Handle;
use trieste_packet::HashKey;

use super::{Key, Plan};

/// Flows that are remembered. Ours: as many as a worker may have sessions by default.
const PLACES: usize = 1 << 20;
/// Chains, so that most have one flow.
const HEADS: usize = 2 * PLACES;
/// From this many flows on they are fetched ahead. Measured: with 1000 flows, whose lines the packets between two looks have
/// pushed out of the core's cache, a train costs less than half of what it does without.
const AHEAD_FROM: usize = 64;
/// No place; heads and links hold places plus one, so that fresh memory is empty.
const NOTHING: u32 = 0;

/// A flow.
#[derive(Debug, Clone, Copy)]
#[repr(align(64))]
struct Place {
    key: Key,
    /// Epoch of the tables, its low bits.
    epoch: u32,
    /// The next of the chain.
    link: u32,
    plan: Plan,
}

// One cache line, asserted where it is claimed.
const _: () = assert!(size_of::<Place>() == 64);

/// A bounded store of plans.
#[derive(Debug)]
pub(crate) struct Memo {
    hash_key: HashKey,
    heads: Vec<u32>,
    places: Vec<Place>,
    /// The place that is taken next when there is no free one.
    oldest: usize,
}

impl Memo {
    /// An empty store. `seed` keys the hash, so that nobody outside can choose flows that collide.
    pub(crate) fn new(seed: u64) -> Self {
        Self {
            hash_key: HashKey::new(seed),
            heads: vec![NOTHING; HEADS],
            places: Vec::with_capacity(PLACES),
            oldest: 0,
        }
    }

    /// The hash of a flow, to look it up by.
    pub(crate) fn hash(&self, key: &Key) -> u64 {
        self.hash_key.hash(key.addresses, key.rest)
    }

    /// The plan for a flow under the tables of `epoch`, if there is one.
    pub(crate) fn lookup(&self, hash: u64, key: &Key, epoch: u64) -> Option<Plan> {
        let place = self.find(hash, key)?;
        let place = &self.places[place];
        (place.epoch == low(epoch)).then_some(place.plan)
    }

    /// Remembers a plan.
    pub(crate) fn learn(&mut self, hash: u64, key: Key, epoch: u64, plan: Plan) {
        if let Some(place) = self.find(hash, &key) {
            let place = &mut self.places[place];
            (place.epoch, place.plan) = (low(epoch), plan);
            return;
        }
        let head = head(hash);
        if self.places.len() < PLACES {
            self.places.push(Place { key, epoch: low(epoch), link: self.heads[head], plan });
            self.heads[head] = number(self.places.len());
            return;
        }
        let at = self.oldest;
        self.oldest = (at + 1) % PLACES;
        self.unlink(at);
        self.places[at] = Place { key, epoch: low(epoch), link: self.heads[head], plan };
        self.heads[head] = number(at + 1);
    }

    /// Fetches the flows with these hashes and hands out the sessions of those that may be there, to be fetched next.
    /// Nothing but time is gained by it, and nothing while there are few flows.
    pub(crate) fn sessions_ahead(&self, hashes: &[u64], sessions: &mut Vec<Handle>) {
        sessions.clear();
        if self.places.len() < AHEAD_FROM {
            return;
        }
        for hashes in hashes.chunks(64) {
            let mut found = [NOTHING; 64];
            for (found, hash) in found.iter_mut().zip(hashes) {
                *found = self.heads[head(*hash)];
            }
            for &found in &found[..hashes.len()] {
                let Some(place) = position(found).and_then(|at| self.places.get(at)) else { continue };
                if let Plan::Go { session: Some(session), .. } = place.plan {
                    sessions.push(session);
                }
            }
        }
    }

    /// Forgets everything.
    pub(crate) fn clear(&mut self) {
        self.heads.fill(NOTHING);
        self.places.clear();
        self.oldest = 0;
    }

    /// Number of flows remembered.
    pub(crate) fn len(&self) -> usize {
        self.places.len()
    }

    fn find(&self, hash: u64, key: &Key) -> Option<usize> {
        let mut next = self.heads[head(hash)];
        while let Some(at) = position(next) {
            let place = &self.places[at];
            if place.key == *key {
                return Some(at);
            }
            next = place.link;
        }
        None
    }

    fn unlink(&mut self, at: usize) {
        let (gone, link) = (number(at + 1), self.places[at].link);
        let head = head(self.hash(&self.places[at].key));
        if self.heads[head] == gone {
            self.heads[head] = link;
            return;
        }
        let mut next = self.heads[head];
        while let Some(before) = position(next) {
            next = self.places[before].link;
            if next == gone {
                self.places[before].link = link;
                return;
            }
        }
    }
}

#[expect(clippy::cast_possible_truncation, reason = "masked to the number of heads")]
fn head(hash: u64) -> usize {
    hash as usize & (HEADS - 1)
}

fn position(number: u32) -> Option<usize> {
    usize::try_from(number).ok()?.checked_sub(1)
}

fn number(places: usize) -> u32 {
    u32::try_from(places).expect("there are fewer places than 2^32")
}

#[expect(clippy::cast_possible_truncation, reason = "the low bits are meant")]
fn low(epoch: u64) -> u32 {
    epoch as u32
}

#[cfg(test)]
mod tests {
    use super::*;
    use trieste_packet::{DropReason, WorkerId};

    fn key(number: u64) -> Key {
        Key { addresses: number, rest: 1 }
    }

    fn owner(memo: &Memo, number: u64, epoch: u64) -> Option<u16> {
        let key = key(number);
        match memo.lookup(memo.hash(&key), &key, epoch)? {
            Plan::Hand(worker) => Some(worker.0),
            Plan::Go { .. } | Plan::Away { .. } | Plan::Refuse(_) => None,
        }
    }

    fn learn(memo: &mut Memo, number: u64, epoch: u64) {
        let worker = WorkerId(u16::try_from(number % 60_000).unwrap());
        memo.learn(memo.hash(&key(number)), key(number), epoch, Plan::Hand(worker));
    }

    #[test]
    fn a_flow_is_what_was_learnt_last_under_these_tables() {
        let mut memo = Memo::new(1);
        learn(&mut memo, 7, 1);
        assert_eq!((owner(&memo, 7, 1), owner(&memo, 7, 2), owner(&memo, 8, 1)), (Some(7), None, None));
        let hash = memo.hash(&key(7));
        memo.learn(hash, key(7), 2, Plan::Refuse(DropReason::NoRoute));
        assert!(matches!(memo.lookup(hash, &key(7), 2), Some(Plan::Refuse(DropReason::NoRoute))));
        assert_eq!(memo.len(), 1);
        memo.clear();
        assert!(memo.lookup(hash, &key(7), 2).is_none());
    }

    #[test]
    fn the_oldest_go_when_all_places_are_taken_and_nobody_else_is_lost() {
        let mut memo = Memo::new(1);
        let (places, more) = (PLACES as u64, 5000);
        for number in 0..places + more {
            learn(&mut memo, number, 1);
        }
        assert_eq!(memo.len(), PLACES);
        for number in (0..places + more).step_by(97) {
            let expected = (number >= more).then(|| u16::try_from(number % 60_000).unwrap());
            assert_eq!(owner(&memo, number, 1), expected, "{number}");
        }
    }
}
