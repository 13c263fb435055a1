//! Statuses and gateways: who is given which addresses, in the order in which the objects were made.

use std::collections::BTreeMap;

use jiff::Timestamp;

use super::ledger::{Given, Ledger};
use super::objects::Objects;
use super::units::{Outputs, Turn, Unit};
use super::writing::Writing;
use super::{egress, gateways, ingress};
use crate::api::{Kind, Object, ObjectKey};

/// Kinds that have addresses; of objects of one age the first is served first.
const ORDER: [Kind; 4] =
    [Kind::ClusterGlobalEgressIp, Kind::Gateway, Kind::GlobalEgressIp, Kind::GlobalIngressIp];

impl Turn {
    /// Returns the turn of an object of this key; `None` if its kind has no addresses.
    pub(super) fn of(object: &Object, key: ObjectKey) -> Option<Self> {
        let rank = ORDER.iter().position(|kind| *kind == object.kind)?;
        let created = object.metadata.creation_timestamp.unwrap_or(Timestamp::MAX);
        Some(Self { created, rank: u8::try_from(rank).unwrap_or(u8::MAX), key })
    }
}

/// The order of allocation. An object's result is a matter of the object alone, unless it asks the pool for addresses:
/// then those before it come first, and whatever changes the pool changes what it comes to.
#[derive(Debug, Default)]
pub(super) struct Allocations {
    turns: BTreeMap<ObjectKey, Turn>,
    /// The units that ask the pool.
    waiting: BTreeMap<Turn, Waiting>,
    has_other_waiting: bool,
    /// The state of the pool that the last ones were served from.
    served: Option<u64>,
}

/// An object that asks for addresses.
#[derive(Debug)]
struct Waiting {
    number: u32,
    /// The addresses given last, since when it has not changed.
    given: Option<Given>,
}

impl Allocations {
    /// Returns `true` if an object is given addresses here.
    pub(super) fn has(&self, key: &ObjectKey) -> bool {
        self.turns.contains_key(key)
    }

    /// Decides about an object again, which may be gone.
    pub(super) fn update(
        &mut self,
        key: &ObjectKey,
        (objects, ledger): (&Objects, &mut Ledger),
        now: Timestamp,
        outputs: &mut Outputs,
    ) {
        let object = objects.at(key).filter(|object| !object.metadata.is_terminating());
        let turn = object.and_then(|object| Turn::of(object, key.clone()));
        let before = self.turns.remove(key);
        if before != turn
            && let Some(before) = before
        {
            self.has_other_waiting |= self.waiting.remove(&before).is_some();
            outputs.remove(&Unit::Addresses(before));
        }
        let (Some(object), Some(turn)) = (object, turn) else { return };
        self.turns.insert(key.clone(), turn.clone());
        let mut writing = Writing::new(now);
        let asked = ledger.probe(|ledger| serve(object, objects, ledger, &mut writing));
        if let Some(number) = asked {
            self.waiting.insert(turn, Waiting { number, given: None });
            self.has_other_waiting = true;
        } else {
            self.has_other_waiting |= self.waiting.remove(&turn).is_some();
            outputs.set(Unit::Addresses(turn), writing);
        }
    }

    /// Serves those that wait, unless nothing has changed for them. Returns how many were served other than before.
    pub(super) fn serve(
        &mut self,
        objects: &Objects,
        ledger: &mut Ledger,
        now: Timestamp,
        outputs: &mut Outputs,
    ) -> usize {
        if !self.has_other_waiting && self.served == Some(ledger.version()) {
            return 0;
        }
        let mut served = 0;
        for (turn, waiting) in &mut self.waiting {
            let given = ledger.exchange(&turn.key, waiting.number);
            if waiting.given.as_ref() == Some(&given) {
                continue;
            }
            let Some(object) = objects.at(&turn.key) else { continue };
            let mut writing = Writing::new(now);
            waiting.given = Some(given.clone());
            ledger.with_given(given, |ledger| serve(object, objects, ledger, &mut writing));
            outputs.set(Unit::Addresses(turn.clone()), writing);
            served += 1;
        }
        ledger.take_back();
        (self.has_other_waiting, self.served) = (false, Some(ledger.version()));
        served
    }
}

fn serve(object: &Object, objects: &Objects, ledger: &mut Ledger, writing: &mut Writing) {
    let done = if object.kind == Kind::ClusterGlobalEgressIp {
        egress::cluster(object, ledger, writing)
    } else if object.kind == Kind::GlobalEgressIp {
        egress::namespaced(object, ledger, writing)
    } else if object.kind == Kind::GlobalIngressIp {
        ingress::status(object, objects, ledger, writing)
    } else {
        gateways::own(object, ledger, writing);
        Ok(())
    };
    writing.check(object, done);
}
