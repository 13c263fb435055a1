//! Who has which shares of the outside ports of translation: eight Leases, each of one holder. No clock, no store.
//!
//! A Lease that is not there, or without holder, is free. Claiming it is one write that only one can do. Shares are held
//! for good: a restart finds them again, a sibling that dies leaves its own untouched for a day, far longer than its last
//! confirmation is good for, so that a gateway that was only stopped, or cut off, never makes mappings in a share that
//! another one has taken. Whoever has more than its part gives up what somebody else lacks, and makes no mappings there for a
//! while before it does.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use sha2::{Digest as _, Sha256};

use super::NatSlots;
use crate::api::{Kind, NAT_SLOTS, Object, Resource as _};
use crate::election::{Lease, LeaseSpec, MicroTime};
use crate::leader::Write;

/// What the names of the Leases begin with; their number follows.
pub const SLOT_PREFIX: &str = "trieste-nat-slot-";

/// How long what takes.
#[derive(Debug, Clone, Copy)]
pub struct SlotTimes {
    /// For how long a confirmed share is ours without another confirmation.
    pub valid: Duration,
    /// After how long a silence somebody's share may be taken: longer than `valid`, and whatever clocks do.
    pub silent: Duration,
    /// How long no mappings are made in a share before it is given up.
    pub farewell: Duration,
}

impl Default for SlotTimes {
    fn default() -> Self {
        Self {
            valid: Duration::from_secs(12 * 3600),
            silent: Duration::from_secs(24 * 3600),
            farewell: Duration::from_secs(5),
        }
    }
}

/// The shares as one gateway knows them.
#[derive(Debug)]
pub struct Slots {
    namespace: String,
    hostname: String,
    times: SlotTimes,
    leases: BTreeMap<u8, Lease>,
    /// What is ours, in our order, and when it was asked for that it is.
    held: Vec<u8>,
    asked: Option<Instant>,
    leaving: Option<Leaving>,
    /// Which share comes first in our order.
    start: u8,
}

/// A share that is about to be given up.
#[derive(Debug, Clone, Copy)]
struct Leaving {
    slot: u8,
    since: Instant,
    /// Whether that was asked for: from then on it can happen at any time, whatever the answer is.
    is_asked: bool,
}

impl Slots {
    /// The gateway `hostname` knows of no share yet.
    pub fn new(namespace: &str, hostname: &str, times: SlotTimes) -> Self {
        Self {
            namespace: namespace.to_owned(),
            hostname: hostname.to_owned(),
            times,
            leases: BTreeMap::new(),
            held: Vec::new(),
            asked: None,
            leaving: None,
            start: Sha256::digest(hostname.as_bytes())[0] % NAT_SLOTS,
        }
    }

    /// Takes in all Leases of the namespace, as read from the store itself, not from a cache. `asked` is when the request
    /// was sent. It confirms what is ours only with `is_heard`: if our own heartbeat reaches others.
    pub fn handle_read(&mut self, objects: &[Object], asked: Instant, is_heard: bool) {
        let number = |object: &Object| -> Option<u8> {
            let number = object.metadata.name.strip_prefix(SLOT_PREFIX)?.parse().ok()?;
            (number < NAT_SLOTS && object.kind == Kind::Lease).then_some(number)
        };
        let mut listed = 0_u8;
        for object in objects {
            let Some(slot) = number(object) else { continue };
            if !self.leases.get(&slot).is_some_and(|known| is_version(known, object)) {
                let Ok(lease) = Lease::from_object(object) else { continue };
                self.leases.insert(slot, lease);
            }
            listed |= 1 << slot;
        }
        self.leases.retain(|slot, _| listed & (1 << slot) != 0);
        let is_ours = |slot: &u8| {
            self.leases.get(slot).is_some_and(|lease| lease.spec.holder_identity == self.hostname)
        };
        self.held = self.order().filter(is_ours).collect();
        if is_heard || self.asked.is_none() {
            self.asked = Some(asked);
        }
        if self.leaving.is_some_and(|leaving| !self.held.contains(&leaving.slot)) {
            self.leaving = None;
        }
    }

    /// The shares in which mappings may be made, with until when that is sure; the first is also what is published. `None`
    /// until the first is ours.
    pub fn slots(&self) -> Option<NatSlots> {
        let leaving = self.leaving.map(|leaving| leaving.slot);
        let held = self.held.iter().filter(|slot| Some(**slot) != leaving);
        let held = held.fold(0, |mask, slot| mask | 1 << slot);
        let until = self.asked? + self.times.valid;
        (held != 0).then_some(NatSlots { held, until })
    }

    /// The share that this gateway keeps whatever happens.
    pub fn first(&self) -> Option<u8> {
        self.held.first().copied()
    }

    /// The one write that is due, if any; after it, read anew. `gateways` are the hosts that are there, ours among them;
    /// `silence` is for how long nothing has been heard of a host.
    pub fn plan(
        &mut self,
        gateways: &[&str],
        silence: impl Fn(&str) -> Option<Duration>,
        now: Instant,
        wall: Timestamp,
    ) -> Option<Write> {
        self.asked?;
        if self.leaving.is_some_and(|leaving| leaving.is_asked) {
            return self.give_up(now);
        }
        let part = usize::from(NAT_SLOTS) / gateways.len().clamp(1, usize::from(NAT_SLOTS));
        if self.held.len() < part {
            self.leaving = None;
            return self.claim(silence, wall);
        }
        let lacks = |host: &&&str| **host != self.hostname && self.count(host) < part;
        let is_wanted = gateways.iter().any(|host| lacks(&host)) && self.free().next().is_none();
        if self.held.len() <= part || !is_wanted {
            self.leaving = None;
            return None;
        }
        let last = *self.held.last()?;
        self.leaving.get_or_insert(Leaving { slot: last, since: now, is_asked: false });
        self.give_up(now)
    }

    /// Gives the share up that is about to be, when nobody uses it any more.
    fn give_up(&mut self, now: Instant) -> Option<Write> {
        let leaving = self.leaving.as_mut()?;
        if now.saturating_duration_since(leaving.since) < self.times.farewell {
            return None;
        }
        leaving.is_asked = true;
        let mut given = self.leases.get(&leaving.slot)?.clone();
        given.spec.holder_identity.clear();
        Some(Write::Update(given.to_object()))
    }

    /// Whether it is waited for a share to be given up.
    pub fn is_leaving(&self) -> bool {
        self.leaving.is_some()
    }

    /// A free share, else one of somebody who has been gone for long.
    fn claim(&self, silence: impl Fn(&str) -> Option<Duration>, wall: Timestamp) -> Option<Write> {
        let is_gone = |slot: &u8| {
            let holder = self.leases.get(slot).map(|lease| lease.spec.holder_identity.as_str());
            holder.is_some_and(|holder| {
                holder != self.hostname && silence(holder).is_some_and(|silence| silence >= self.times.silent)
            })
        };
        let slot = self.free().next().or_else(|| self.order().find(is_gone))?;
        let spec = LeaseSpec {
            holder_identity: self.hostname.clone(),
            acquire_time: Some(MicroTime::new(wall)),
            ..LeaseSpec::default()
        };
        Some(match self.leases.get(&slot) {
            None => {
                Write::Create(Lease::new(&self.namespace, &format!("{SLOT_PREFIX}{slot}"), spec).to_object())
            }
            Some(lease) => Write::Update(Lease { spec, ..lease.clone() }.to_object()),
        })
    }

    fn free(&self) -> impl Iterator<Item = u8> {
        let is_free =
            |slot: &u8| self.leases.get(slot).is_none_or(|lease| lease.spec.holder_identity.is_empty());
        self.order().filter(is_free)
    }

    fn count(&self, host: &str) -> usize {
        self.leases.values().filter(|lease| lease.spec.holder_identity == host).count()
    }

    /// All shares in an order of this gateway's own, so that gateways seldom want the same one at once.
    fn order(&self) -> impl Iterator<Item = u8> + use<> {
        let start = self.start;
        (0..NAT_SLOTS).map(move |step| (start + step) % NAT_SLOTS)
    }
}

/// Whether a Lease that was read before says what this object says.
fn is_version(known: &Lease, object: &Object) -> bool {
    known.metadata.resource_version.is_some() && known.metadata.is_version_of(&object.metadata)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A store of Leases, and two gateways.
    struct World {
        start: Instant,
        leases: BTreeMap<String, Object>,
        version: u32,
    }

    impl World {
        fn new() -> Self {
            Self { start: Instant::now(), leases: BTreeMap::new(), version: 0 }
        }

        fn at(&self, second: u64) -> Instant {
            self.start + Duration::from_secs(second)
        }

        /// Lets one gateway read, and write until it wants nothing.
        fn turn(&mut self, slots: &mut Slots, gateways: &[&str], second: u64, silent: u64) {
            for _ in 0..20 {
                let listed: Vec<Object> = self.leases.values().cloned().collect();
                slots.handle_read(&listed, self.at(second), true);
                let silence = |_: &str| Some(Duration::from_secs(silent));
                let Some(write) = slots.plan(gateways, silence, self.at(second), Timestamp::UNIX_EPOCH)
                else {
                    return;
                };
                let mut object = write.object().clone();
                self.version += 1;
                let is_known = self.leases.contains_key(&object.metadata.name);
                assert_eq!(matches!(write, Write::Update(_)), is_known);
                object.metadata.resource_version = Some(self.version.to_string());
                self.leases.insert(object.metadata.name.clone(), object);
            }
            panic!("it never ends");
        }
    }

    fn slots(host: &str) -> Slots {
        Slots::new("ns", host, SlotTimes::default())
    }

    fn held(slots: &Slots) -> u32 {
        slots.slots().map_or(0, |slots| slots.held.count_ones())
    }

    #[test]
    fn whoever_is_alone_has_all_shares_and_gives_half_of_them_to_the_next_one() {
        let (mut world, mut a, mut b) = (World::new(), slots("gw1"), slots("gw2"));
        world.turn(&mut a, &["gw1"], 0, 0);
        assert_eq!(a.slots().unwrap().held, 0xff);
        let both = ["gw1", "gw2"];
        let first = a.first();
        world.turn(&mut b, &both, 1, 0);
        assert_eq!(held(&b), 0, "all are taken");
        for second in 2..60 {
            world.turn(&mut a, &both, second, 0);
            world.turn(&mut b, &both, second, 0);
            let (a, b) = (a.slots().unwrap().held, b.slots().map_or(0, |slots| slots.held));
            assert_eq!(a & b, 0, "one share has two holders");
        }
        assert_eq!((held(&a), held(&b)), (4, 4));
        assert_eq!(a.first(), first, "what is published never changes");
    }

    #[test]
    fn no_mapping_is_made_in_a_share_for_a_while_before_it_is_given_up() {
        let (mut world, mut a) = (World::new(), slots("gw1"));
        world.turn(&mut a, &["gw1"], 0, 0);
        let before = world.leases.clone();
        world.turn(&mut a, &["gw1", "gw2"], 1, 0);
        assert_eq!((held(&a), &world.leases), (7, &before));
        world.turn(&mut a, &["gw1", "gw2"], 5, 0);
        assert_eq!(world.leases, before);
        world.turn(&mut a, &["gw1", "gw2"], 6, 0);
        assert_ne!(world.leases, before);
    }

    #[test]
    fn a_dead_gateways_shares_are_left_alone_for_a_day_and_it_itself_gives_up_using_them_sooner() {
        let (mut world, mut a, mut b) = (World::new(), slots("gw1"), slots("gw2"));
        world.turn(&mut a, &["gw1"], 0, 0);
        world.turn(&mut b, &["gw2"], 1, 23 * 3600);
        assert_eq!(held(&b), 0);
        world.turn(&mut b, &["gw2"], 2, 24 * 3600);
        assert_eq!(held(&b), 8);
        let gap = SlotTimes::default().silent - SlotTimes::default().valid;
        assert!(gap >= Duration::from_secs(3600));
        assert_eq!(a.slots().unwrap().until, world.at(0) + SlotTimes::default().valid);
    }

    #[test]
    fn who_is_not_heard_by_others_confirms_nothing() {
        let (mut world, mut a) = (World::new(), slots("gw1"));
        world.turn(&mut a, &["gw1"], 0, 0);
        let listed: Vec<Object> = world.leases.values().cloned().collect();
        let until = a.slots().unwrap().until;
        a.handle_read(&listed, world.at(100), false);
        assert_eq!(a.slots().unwrap().until, until);
        a.handle_read(&listed, world.at(100), true);
        assert!(a.slots().unwrap().until > until);
        a.handle_read(&[], world.at(101), true);
        assert_eq!(a.slots(), None, "somebody has removed the Leases");
    }
}
