//! Who has which shares of the outside ports of translation: eight Leases, each of one holder. No clock, no store.
//!
//! A Lease that is not there, or without holder, is free. Claiming it is one write that only one can do. Shares are held
//! for good: a restart finds them again, a sibling that dies leaves its own untouched for a day, far longer than its last
//! confirmation is good for, so that a gateway that was only stopped, or cut off, never makes mappings in a share that
//! another one has taken. Who leaves for good gives its own up, and those of a host that was taken out of the cluster are
//! free. Whoever has more than its part gives up what somebody else lacks, and makes no mappings there for a while before it
//! does.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use jiff::Timestamp;
use sha2::{Digest as _, Sha256};

use super::NatSlots;
use crate::api::{Kind, NAT_SLOTS, Object, Resource as _};
use crate::election::{Lease, LeaseSpec, MicroTime};
use crate::runner::Write;

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
    /// The Leases that had our name when they were first read, with their versions: somebody said so who is no more, and
    /// what he asked for last may still be on its way.
    found: Option<BTreeMap<u8, Option<String>>>,
    /// What is ours, in our order, and when it was asked for that it is.
    held: Vec<u8>,
    asked: Option<Instant>,
    leaving: Option<Leaving>,
    /// Which share comes first in our order.
    start: u8,
}

/// How many shares a gateway has at least, and at most, when all is settled.
#[derive(Debug, Clone, Copy)]
struct Part {
    least: usize,
    most: usize,
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
    /// Makes the shares of the gateway `hostname`, which knows of none yet.
    pub fn new(namespace: &str, hostname: &str, times: SlotTimes) -> Self {
        Self {
            namespace: namespace.to_owned(),
            hostname: hostname.to_owned(),
            times,
            leases: BTreeMap::new(),
            found: None,
            held: Vec::new(),
            asked: None,
            leaving: None,
            start: Sha256::digest(hostname.as_bytes())[0] % NAT_SLOTS,
        }
    }

    /// Takes in all Leases of the namespace, as read from the store itself, not from a cache. `asked` is when the request
    /// was sent. It confirms what is ours only with `is_acked`: if our own heartbeat reaches others.
    pub fn handle_read(&mut self, objects: &[Object], asked: Instant, is_acked: bool) {
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
        if self.found.is_none() {
            let version = |(slot, lease): (u8, &Lease)| (slot, lease.metadata.resource_version.clone());
            self.found = Some(self.named().map(version).collect());
        }
        let is_ours =
            |slot: &u8| self.named().any(|(named, lease)| named == *slot && self.is_sure(named, lease));
        self.held = self.order().filter(is_ours).collect();
        if is_acked || self.asked.is_none() {
            self.asked = Some(asked);
        }
        if self.leaving.is_some_and(|leaving| !self.held.contains(&leaving.slot)) {
            self.leaving = None;
        }
    }

    /// Returns the shares in which mappings may be made, with until when that is sure; the first is also what is published. `None`
    /// until the first is ours.
    pub fn slots(&self) -> Option<NatSlots> {
        let leaving = self.leaving.map(|leaving| leaving.slot);
        let held = self.held.iter().filter(|slot| Some(**slot) != leaving);
        let held = held.fold(0, |mask, slot| mask | 1 << slot);
        let until = self.asked? + self.times.valid;
        (held != 0).then_some(NatSlots { held, until })
    }

    /// Returns the share that this gateway keeps whatever happens.
    pub fn first(&self) -> Option<u8> {
        self.held.first().copied()
    }

    /// Returns the Leases with our name.
    fn named(&self) -> impl Iterator<Item = (u8, &Lease)> {
        let all = self.leases.iter().map(|(slot, lease)| (*slot, lease));
        all.filter(|(_, lease)| lease.spec.holder_identity == self.hostname)
    }

    /// Returns `true` if a Lease with our name has been written in our life: then no earlier request can change it any more.
    fn is_sure(&self, slot: u8, lease: &Lease) -> bool {
        let found = self.found.as_ref().and_then(|found| found.get(&slot));
        found.is_none_or(|version| *version != lease.metadata.resource_version)
    }

    /// Returns the writes that make shares that were ours before a restart ours again; after them, read anew.
    pub fn confirmations(&self, wall: Timestamp) -> Vec<Write> {
        let found = self.named().filter(|(slot, lease)| !self.is_sure(*slot, lease));
        let again = |(_, lease): (u8, &Lease)| {
            let mut lease = lease.clone();
            lease.spec.acquire_time = Some(MicroTime::new(wall));
            Write::Update(lease.to_object())
        };
        found.map(again).collect()
    }

    /// Returns the hosts that have shares and are not among those that are there.
    pub fn absent<'a>(&'a self, gateways: &'a [&str]) -> BTreeSet<&'a str> {
        let holders = self.leases.values().map(|lease| lease.spec.holder_identity.as_str());
        holders.filter(|holder| !holder.is_empty() && !gateways.contains(holder)).collect()
    }

    /// Returns the one write that is due, if any; after it, read anew. `gateways` are the hosts that are there, ours among them;
    /// `is_gone` says of others whether their shares may be taken.
    pub fn plan(
        &mut self,
        gateways: &[&str],
        is_gone: impl Fn(&str) -> bool,
        now: Instant,
        wall: Timestamp,
    ) -> Option<Write> {
        self.asked?;
        if self.leaving.is_some_and(|leaving| leaving.is_asked) {
            return self.release_leaving(now);
        }
        let Part { least, most } = self.part(gateways, &is_gone);
        let others = || gateways.iter().filter(|host| **host != self.hostname).map(|host| self.count(host));
        let is_short = others().any(|count| count < least);
        let (held, is_full) = (self.held.len(), self.takeable(&is_gone).next().is_none());
        if held < least || (held < most && !is_short) {
            self.leaving = None;
            return self.claim(is_gone, wall);
        }
        let is_wanted = is_full && ((held > least && is_short) || held > most);
        if !is_wanted {
            self.leaving = None;
            return None;
        }
        let last = *self.held.last()?;
        self.leaving.get_or_insert(Leaving { slot: last, since: now, is_asked: false });
        self.release_leaving(now)
    }

    /// Returns how many shares a gateway gets of those that nobody absent keeps from all.
    fn part(&self, gateways: &[&str], is_gone: &impl Fn(&str) -> bool) -> Part {
        let is_kept = |lease: &&Lease| {
            let holder = lease.spec.holder_identity.as_str();
            !holder.is_empty() && !gateways.contains(&holder) && !is_gone(holder)
        };
        let there = usize::from(NAT_SLOTS) - self.leases.values().filter(is_kept).count();
        let gateways = gateways.len().max(1);
        Part { least: (there / gateways).max(1), most: there.div_ceil(gateways).max(1) }
    }

    /// Returns the writes that release all that is ours, for a gateway that makes no mappings any more and will not come back.
    pub fn release(&self) -> Vec<Write> {
        let given = self.named().map(|(_, lease)| {
            let mut given = lease.clone();
            given.spec.holder_identity.clear();
            Write::Update(given.to_object())
        });
        given.collect()
    }

    /// Returns the write that releases the share that is leaving, once nobody uses it any more.
    fn release_leaving(&mut self, now: Instant) -> Option<Write> {
        let leaving = self.leaving.as_mut()?;
        if now.saturating_duration_since(leaving.since) < self.times.farewell {
            return None;
        }
        leaving.is_asked = true;
        let mut given = self.leases.get(&leaving.slot)?.clone();
        given.spec.holder_identity.clear();
        Some(Write::Update(given.to_object()))
    }

    /// Returns `true` while a share is being released.
    pub fn is_leaving(&self) -> bool {
        self.leaving.is_some()
    }

    /// Returns a free share, else one of somebody who is gone.
    fn claim(&self, is_gone: impl Fn(&str) -> bool, wall: Timestamp) -> Option<Write> {
        let slot = self.takeable(&is_gone).next()?;
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

    /// Shares that are free, then those of who is gone.
    fn takeable(&self, is_gone: impl Fn(&str) -> bool) -> impl Iterator<Item = u8> {
        let holder = |slot: &u8| self.leases.get(slot).map_or("", |lease| &lease.spec.holder_identity);
        let free = self.order().filter(move |slot| holder(slot).is_empty());
        let left = self.order().filter(move |slot| {
            let holder = holder(slot);
            !holder.is_empty() && holder != self.hostname && is_gone(holder)
        });
        free.chain(left)
    }

    fn count(&self, host: &str) -> usize {
        self.leases.values().filter(|lease| lease.spec.holder_identity == host).count()
    }

    /// Returns all shares in an order of this gateway's own, so that gateways seldom want the same one at once.
    fn order(&self) -> impl Iterator<Item = u8> + use<> {
        let start = self.start;
        (0..NAT_SLOTS).map(move |step| (start + step) % NAT_SLOTS)
    }
}

/// Returns `true` if a Lease that was read before says what this object says.
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
        fn turn(&mut self, slots: &mut Slots, gateways: &[&str], second: u64, gone: &[&str]) {
            for _ in 0..20 {
                if !self.step(slots, gateways, second, gone) {
                    return;
                }
            }
            panic!("it never ends");
        }

        /// Lets one gateway read, and write once. Gives whether it has.
        fn step(&mut self, slots: &mut Slots, gateways: &[&str], second: u64, gone: &[&str]) -> bool {
            let listed: Vec<Object> = self.leases.values().cloned().collect();
            slots.handle_read(&listed, self.at(second), true);
            let again = slots.confirmations(Timestamp::from_second(1).unwrap());
            if !again.is_empty() {
                again.iter().for_each(|write| self.write(write));
                return true;
            }
            let is_gone = |host: &str| gone.contains(&host);
            let write = slots.plan(gateways, is_gone, self.at(second), Timestamp::UNIX_EPOCH);
            write.iter().for_each(|write| self.write(write));
            write.is_some()
        }

        fn write(&mut self, write: &Write) {
            let mut object = write.object().cloned().expect("shares are created and updated");
            self.version += 1;
            let is_known = self.leases.contains_key(&object.metadata.name);
            assert_eq!(matches!(write, Write::Update(_)), is_known);
            object.metadata.resource_version = Some(self.version.to_string());
            self.leases.insert(object.metadata.name.clone(), object);
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
        world.turn(&mut a, &["gw1"], 0, &[]);
        assert_eq!(a.slots().unwrap().held, 0xff);
        let both = ["gw1", "gw2"];
        let first = a.first();
        world.turn(&mut b, &both, 1, &[]);
        assert_eq!(held(&b), 0, "all are taken");
        for second in 2..60 {
            world.turn(&mut a, &both, second, &[]);
            world.turn(&mut b, &both, second, &[]);
            let (a, b) = (a.slots().unwrap().held, b.slots().map_or(0, |slots| slots.held));
            assert_eq!(a & b, 0, "one share has two holders");
        }
        assert_eq!((held(&a), held(&b)), (4, 4));
        assert_eq!(a.first(), first, "what is published never changes");
    }

    #[test]
    fn no_mapping_is_made_in_a_share_for_a_while_before_it_is_given_up() {
        let (mut world, mut a) = (World::new(), slots("gw1"));
        world.turn(&mut a, &["gw1"], 0, &[]);
        let before = world.leases.clone();
        world.turn(&mut a, &["gw1", "gw2"], 1, &[]);
        assert_eq!((held(&a), &world.leases), (7, &before));
        world.turn(&mut a, &["gw1", "gw2"], 5, &[]);
        assert_eq!(world.leases, before);
        world.turn(&mut a, &["gw1", "gw2"], 6, &[]);
        assert_ne!(world.leases, before);
    }

    #[test]
    fn a_dead_gateways_shares_are_left_alone_until_it_is_gone_and_it_gives_up_using_them_sooner() {
        let (mut world, mut a, mut b) = (World::new(), slots("gw1"), slots("gw2"));
        world.turn(&mut a, &["gw1"], 0, &[]);
        world.turn(&mut b, &["gw2"], 1, &[]);
        assert_eq!((held(&b), b.absent(&["gw2"])), (0, ["gw1"].into()));
        world.turn(&mut b, &["gw2"], 2, &["gw1"]);
        assert_eq!(held(&b), 8);
        let gap = SlotTimes::default().silent - SlotTimes::default().valid;
        assert!(gap >= Duration::from_secs(3600));
        assert_eq!(a.slots().unwrap().until, world.at(0) + SlotTimes::default().valid);
    }

    #[test]
    fn however_gateways_begin_all_shares_are_somebodys_in_even_parts() {
        for count in 1..=10_usize {
            let names: Vec<String> = (1..=count).map(|number| format!("gw{number}")).collect();
            let hosts: Vec<&str> = names.iter().map(String::as_str).collect();
            // At once, or one after the other.
            for gap in [0, 30] {
                let (mut world, mut all) =
                    (World::new(), hosts.iter().map(|host| slots(host)).collect::<Vec<_>>());
                for second in 0..600 {
                    let begun = (0..count).filter(|number| *number as u64 * gap <= second).count();
                    for gateway in &mut all[..begun] {
                        world.step(gateway, &hosts[..begun], second, &[]);
                    }
                }
                let counts: Vec<u32> = all.iter().map(held).collect();
                let gateways = u32::try_from(count).unwrap();
                let (least, most) = (8 / gateways, 8_u32.div_ceil(gateways));
                assert_eq!(counts.iter().sum::<u32>(), 8, "{counts:?}");
                assert!(counts.iter().all(|held| (least..=most).contains(held)), "{counts:?}");
            }
        }
    }

    #[test]
    fn what_the_dead_keep_is_not_asked_of_the_living() {
        let (mut world, mut a, mut b) = (World::new(), slots("gw1"), slots("gw2"));
        for second in 0..60 {
            world.turn(&mut a, &["gw1", "gw2"], second, &[]);
            world.turn(&mut b, &["gw1", "gw2"], second, &[]);
        }
        let mut c = slots("gw3");
        for second in 60..120 {
            world.turn(&mut a, &["gw1", "gw3"], second, &[]);
            world.turn(&mut c, &["gw1", "gw3"], second, &[]);
        }
        assert_eq!((held(&a), held(&c)), (2, 2), "half of what the second does not keep");
    }

    #[test]
    fn who_leaves_for_good_leaves_everything() {
        let (mut world, mut a, mut b) = (World::new(), slots("gw1"), slots("gw2"));
        world.turn(&mut a, &["gw1"], 0, &[]);
        a.release().iter().for_each(|write| world.write(write));
        world.turn(&mut b, &["gw2"], 1, &[]);
        assert_eq!(held(&b), 8);
        let listed: Vec<Object> = world.leases.values().cloned().collect();
        a.handle_read(&listed, world.at(2), true);
        assert_eq!((a.slots(), a.release()), (None, vec![]));
    }

    #[test]
    fn shares_of_the_process_before_are_ours_once_we_have_said_so() {
        let (mut world, mut a) = (World::new(), slots("gw1"));
        world.turn(&mut a, &["gw1"], 0, &[]);
        let late = a.release();
        let listed = |world: &World| world.leases.values().cloned().collect::<Vec<_>>();
        let mut again = slots("gw1");
        again.handle_read(&listed(&world), world.at(1), true);
        assert_eq!((again.slots(), again.confirmations(Timestamp::UNIX_EPOCH).len()), (None, 8));
        for write in again.confirmations(Timestamp::from_second(1).unwrap()) {
            world.write(&write);
        }
        again.handle_read(&listed(&world), world.at(2), true);
        assert_eq!(again.slots().unwrap().held, 0xff);
        assert_eq!(again.confirmations(Timestamp::UNIX_EPOCH), vec![]);
        // What the one before has asked for comes too late.
        for write in late {
            let late = write.object().unwrap();
            let lease = &world.leases[&late.metadata.name];
            assert_ne!(lease.metadata.resource_version, late.metadata.resource_version);
        }
    }

    #[test]
    fn who_is_not_heard_by_others_confirms_nothing() {
        let (mut world, mut a) = (World::new(), slots("gw1"));
        world.turn(&mut a, &["gw1"], 0, &[]);
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
