//! Decisions, remembered per flow.
//!
//! An entry carries the epoch of the tables that it was decided by; after a change every flow decides again when
//! its next packet comes. The cache is two maps: when the young one is full it becomes the old one, and the old
//! one's memory is used again. So it is bounded, forgets what is idle, and writes no time per packet.

use hashbrown::HashMap;
use trieste_packet::{Decision, DropReason, FlowKey, KeyedState};

use crate::tables::LaneEnd;

/// Flows in one generation. Ours: two generations of 32768 flows are about 7 MiB when full.
pub(crate) const GENERATION: usize = 32_768;

/// What was decided for a flow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Outbound: the way it takes.
    Take(Decision),
    /// Inbound: it may come by a lane with this far end.
    Accept(LaneEnd),
    /// It is dropped.
    Refuse(DropReason),
}

#[derive(Debug, Clone, Copy)]
struct Entry {
    epoch: u64,
    verdict: Verdict,
}

/// A bounded cache of verdicts.
#[derive(Debug)]
pub(crate) struct Flows {
    young: HashMap<FlowKey, Entry, KeyedState>,
    old: HashMap<FlowKey, Entry, KeyedState>,
}

impl Flows {
    /// An empty cache. `seed` keys the hash, so that nobody outside can choose flows that collide.
    pub(crate) fn new(seed: u64) -> Self {
        let state = KeyedState::new(seed);
        Self { young: HashMap::with_hasher(state.clone()), old: HashMap::with_hasher(state) }
    }

    /// The verdict for a flow under the tables of `epoch`, if there is one.
    pub(crate) fn lookup(&mut self, key: &FlowKey, epoch: u64) -> Option<Verdict> {
        if let Some(entry) = self.young.get(key) {
            return (entry.epoch == epoch).then_some(entry.verdict);
        }
        let entry = *self.old.get(key)?;
        if entry.epoch != epoch {
            return None;
        }
        self.learn(*key, epoch, entry.verdict);
        Some(entry.verdict)
    }

    /// Remembers a verdict.
    pub(crate) fn learn(&mut self, key: FlowKey, epoch: u64, verdict: Verdict) {
        if self.young.len() >= GENERATION && !self.young.contains_key(&key) {
            std::mem::swap(&mut self.young, &mut self.old);
            self.young.clear();
        }
        self.young.insert(key, Entry { epoch, verdict });
    }

    /// Forgets everything.
    pub(crate) fn clear(&mut self) {
        self.young.clear();
        self.old.clear();
    }

    /// Number of flows remembered.
    pub(crate) fn len(&self) -> usize {
        self.young.len() + self.old.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(port: u16, host: u8) -> FlowKey {
        FlowKey::new([10, 0, 0, host].into(), [10, 0, 0, 2].into(), 6, port, 80)
    }

    #[test]
    fn a_new_epoch_forgets_the_verdict() {
        let mut flows = Flows::new(1);
        flows.learn(key(1, 1), 7, Verdict::Refuse(DropReason::NoRoute));
        assert_eq!(flows.lookup(&key(1, 1), 7), Some(Verdict::Refuse(DropReason::NoRoute)));
        assert_eq!(flows.lookup(&key(1, 1), 8), None);
        assert_eq!(flows.lookup(&key(2, 1), 7), None);
    }

    #[test]
    fn the_cache_is_bounded_and_keeps_what_is_used() {
        let mut flows = Flows::new(1);
        let verdict = Verdict::Accept(LaneEnd::Cluster(trieste_packet::ClusterId(1)));
        flows.learn(key(0, 200), 1, verdict);
        for host in 0..4 {
            for port in 0..u16::MAX {
                flows.learn(key(port, host), 1, verdict);
                if port % 1000 == 0 {
                    assert_eq!(flows.lookup(&key(0, 200), 1), Some(verdict));
                }
            }
            assert!(flows.len() <= 2 * GENERATION);
        }
    }
}
