//! What the gateways of a cluster know of each other for translation: shared by all workers of a process.
//!
//! Who owns a bucket follows from which gateways are up (the board says) and *ready*: a gateway that comes, or that
//! others had given up, has been told of the sessions of its buckets first. Each gateway says of itself in greetings
//! over the sibling cables whether it is ready, and numbers its life by *incarnations*: who is declared dead at one of
//! them has to be told everything anew, and is ready again at the next. Only who serves declares anybody dead: it has the
//! copies to go on with, and others will be told of them. Who has just started sees its siblings' cables come and go
//! while they set them up anew, and knows nothing that it could tell.
//!
//! Who has no slot of ports can begin no connection, and leaves its buckets to siblings that have one as long as there are any.
//!
//! ```text
//!   comes ──greeted by all siblings, their sessions taken over──▶ ready ──asked to leave──▶ draining
//!     ▲                                                             │
//!     └────────── a sibling says: you were dead at incarnation n ◀──┘
//! ```

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use trieste_nat::Share;
use trieste_packet::GatewayKey;

/// Siblings that are remembered: those there are, and some that have gone.
const CELLS: usize = 16;
/// How long a gateway waits for its sessions, and for the rules that allow them, before it is ready without. Ours: a
/// million sessions take less.
const READY_WITHIN: Duration = Duration::from_secs(5);
/// How long a gateway that has just started waits for siblings that it knows and cannot reach. Ours: the time of a few
/// handshakes.
const START_WITHIN: Duration = Duration::from_millis(1500);
/// How long a gateway that is asked to leave keeps its buckets because siblings have not been told everything.
const DRAIN_WITHIN: Duration = Duration::from_secs(2);
/// For ever, in nanoseconds.
const FOR_EVER: u64 = u64::MAX;

/// What one gateway says of itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Greeting {
    /// The process: another one after every start.
    pub(crate) boot: u64,
    pub(crate) incarnation: u32,
    /// Nanoseconds since it started.
    pub(crate) age: u64,
    pub(crate) is_ready: bool,
    pub(crate) is_draining: bool,
    pub(crate) share: u8,
    pub(crate) workers: u16,
    /// The boot of the receiver's that it has heard of, and the incarnation at which that was dead to it; 0 for none.
    pub(crate) heard_boot: u64,
    pub(crate) dead: u32,
}

/// What is known of a sibling. Written by the worker that owns the lane to it, unless said otherwise.
#[derive(Debug, Default)]
struct Cell {
    key: AtomicU64,
    boot: AtomicU64,
    incarnation: AtomicU32,
    is_ready: AtomicBool,
    is_draining: AtomicBool,
    share: AtomicU8,
    workers: AtomicU32,
    /// Whether its process is older than ours.
    is_elder: AtomicBool,
    /// The incarnation at which it was dead to us.
    dead: AtomicU32,
    is_up: AtomicBool,
    /// Since when we wait for it, in nanoseconds of ours.
    since: AtomicU64,
    /// Which of its workers have told us everything, one bit each; of which process, and at which incarnation of ours.
    /// By any worker.
    told: AtomicU64,
    account_of: AtomicU64,
    told_at: AtomicU32,
}

/// A sibling, for status and metrics.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SiblingStanding {
    /// Who it is.
    pub key: GatewayKey,
    /// Whether its packets come through.
    pub is_up: bool,
    /// Whether it translates.
    pub is_ready: bool,
    /// Whether it is about to leave.
    pub is_draining: bool,
    /// The slots of ports that it says are its own.
    pub share: Share,
    /// Whether it has told us of all its sessions that are ours to keep.
    pub has_told: bool,
}

/// All that is shared.
#[derive(Debug)]
pub struct Fleet {
    key: GatewayKey,
    boot: u64,
    base: Instant,
    generation: AtomicU64,
    incarnation: AtomicU32,
    is_ready: AtomicBool,
    /// Whether it had buckets when it was last looked at.
    has_served: AtomicBool,
    /// Since when this gateway is asked to leave, in nanoseconds; 0 for not.
    leaves: AtomicU64,
    is_draining: AtomicBool,
    /// Whether the rules are those of before a restart, and others are about to come.
    expects_rules: AtomicBool,
    share: AtomicU8,
    share_until: AtomicU64,
    /// Workers whose siblings have not been told everything yet, one bit each.
    unsettled: AtomicU64,
    cells: [Cell; CELLS],
}

impl Fleet {
    /// Of a gateway that is known by `key` to its siblings. `boot` is drawn anew for every process; `now` is where its
    /// life begins.
    #[must_use]
    pub fn new(key: GatewayKey, boot: u64, now: Instant) -> Arc<Self> {
        Arc::new(Self {
            key,
            boot: boot.max(1),
            base: now,
            generation: AtomicU64::new(1),
            incarnation: AtomicU32::new(1),
            is_ready: AtomicBool::new(false),
            has_served: AtomicBool::new(false),
            leaves: AtomicU64::new(0),
            is_draining: AtomicBool::new(false),
            expects_rules: AtomicBool::new(false),
            share: AtomicU8::new(Share::ALL.bits()),
            share_until: AtomicU64::new(FOR_EVER),
            unsettled: AtomicU64::new(0),
            cells: Default::default(),
        })
    }

    /// Says at which outside ports new mappings may be made, and until when that is sure; `None` for ever.
    pub fn set_share(&self, share: Share, until: Option<Instant>) {
        let until = until.map_or(FOR_EVER, |until| self.nanos(until));
        // The nearer end first: nobody sees a new share under an old, longer time.
        if until < self.share_until.load(Ordering::Acquire) {
            self.share_until.store(until, Ordering::Release);
        }
        let is_news = self.share.swap(share.bits(), Ordering::AcqRel) != share.bits();
        self.share_until.store(until, Ordering::Release);
        if is_news {
            self.touch();
        }
    }

    /// The slots at whose ports new mappings may be made now.
    #[must_use]
    pub fn share(&self, now: Instant) -> Share {
        let is_sure = self.nanos(now) < self.share_until.load(Ordering::Acquire);
        if is_sure { self.held() } else { Share::NONE }
    }

    /// The slots that are this gateway's, sure or not.
    #[must_use]
    pub fn held(&self) -> Share {
        Share::from_bits(self.share.load(Ordering::Acquire))
    }

    /// Says that the rules are those of before a restart: sessions that newer ones allow cannot be taken over by them, so
    /// this gateway is not ready with what it is told meanwhile.
    pub fn expect_rules(&self) {
        self.expects_rules.store(true, Ordering::Release);
    }

    /// Says that all workers have the rules of now; `are_others` than those of before. Then siblings tell anew what could
    /// not be taken over.
    pub fn rules_have_come(&self, are_others: bool, now: Instant) {
        let was_waiting = self.expects_rules.swap(false, Ordering::AcqRel);
        if was_waiting && are_others && !self.is_ready() {
            self.begin_anew(self.incarnation(), now);
            self.touch();
        }
    }

    /// Goes on after an incarnation: everything has to be told to it anew.
    fn begin_anew(&self, after: u32, now: Instant) {
        self.incarnation.store(after.saturating_add(1), Ordering::Release);
        self.is_ready.store(false, Ordering::Release);
        self.has_served.store(false, Ordering::Release);
        for cell in &self.cells {
            cell.told.store(0, Ordering::Release);
            cell.since.store(self.nanos(now), Ordering::Release);
        }
    }

    /// Asks this gateway to leave its buckets to the others, or to stay after all.
    pub fn set_draining(&self, leaves: bool, now: Instant) {
        let since = if leaves { self.nanos(now).max(1) } else { 0 };
        if leaves && self.leaves.load(Ordering::Acquire) != 0 {
            return;
        }
        self.leaves.store(since, Ordering::Release);
        if !leaves && self.is_draining.swap(false, Ordering::AcqRel) && self.is_ready() {
            self.declare_dead();
        }
        self.touch();
    }

    /// Whether this gateway has left its buckets to the others.
    #[must_use]
    pub fn is_draining(&self) -> bool {
        self.is_draining.load(Ordering::Acquire)
    }

    /// Whether this gateway has the sessions of its buckets.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        self.is_ready.load(Ordering::Acquire)
    }

    /// Returns whether this gateway has buckets, as far as it is up to itself.
    pub(crate) fn is_serving(&self) -> bool {
        self.is_able_itself() && !self.is_draining()
    }

    /// Returns whether this gateway has the sessions of its buckets, and ports for new ones where a sibling has any.
    fn is_able_itself(&self) -> bool {
        self.is_ready() && (self.held() != Share::NONE || !self.cells.iter().any(Cell::has_ports))
    }

    /// Who this gateway is.
    #[must_use]
    pub fn key(&self) -> GatewayKey {
        self.key
    }

    /// The siblings that have been heard of.
    pub fn siblings(&self) -> impl Iterator<Item = SiblingStanding> + '_ {
        let known = self.cells.iter().filter(|cell| cell.boot.load(Ordering::Acquire) != 0);
        known.map(|cell| SiblingStanding {
            key: GatewayKey(cell.key.load(Ordering::Acquire)),
            is_up: cell.is_up.load(Ordering::Acquire),
            is_ready: cell.is_able(),
            is_draining: cell.is_draining.load(Ordering::Acquire),
            share: Share::from_bits(cell.share.load(Ordering::Acquire)),
            has_told: self.has_told(cell),
        })
    }

    /// A number that grows with time, for what is begun anew in one process.
    pub(crate) fn epoch(&self, now: Instant) -> u32 {
        // Of 17 milliseconds each; 32 bits last two years.
        u32::try_from(self.nanos(now) >> 24).unwrap_or(u32::MAX - 1)
    }

    pub(crate) fn boot(&self) -> u64 {
        self.boot
    }

    pub(crate) fn incarnation(&self) -> u32 {
        self.incarnation.load(Ordering::Acquire)
    }

    /// Grows with everything that owners of buckets depend on.
    pub(crate) fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    fn touch(&self) {
        self.generation.fetch_add(1, Ordering::AcqRel);
    }

    fn nanos(&self, at: Instant) -> u64 {
        u64::try_from(at.saturating_duration_since(self.base).as_nanos()).unwrap_or(FOR_EVER - 1)
    }

    fn cell(&self, key: GatewayKey) -> Option<&Cell> {
        self.cells.iter().find(|cell| cell.key.load(Ordering::Acquire) == key.0)
    }

    /// The cell of a sibling; one that nobody uses any more when it is new.
    fn claim(&self, key: GatewayKey, is_known: impl Fn(GatewayKey) -> bool) -> Option<&Cell> {
        if let Some(cell) = self.cell(key) {
            return Some(cell);
        }
        for cell in &self.cells {
            let before = cell.key.load(Ordering::Acquire);
            if before != 0 && is_known(GatewayKey(before)) {
                continue;
            }
            if cell.key.compare_exchange(before, key.0, Ordering::AcqRel, Ordering::Acquire).is_ok() {
                cell.forget();
                return Some(cell);
            }
        }
        None
    }

    /// What this gateway says to a sibling.
    pub(crate) fn greeting(&self, to: GatewayKey, workers: u16, now: Instant) -> Greeting {
        let cell = self.cell(to);
        Greeting {
            boot: self.boot,
            incarnation: self.incarnation(),
            age: self.nanos(now),
            is_ready: self.is_able_itself(),
            is_draining: self.is_draining(),
            share: self.held().bits(),
            workers,
            heard_boot: cell.map_or(0, |cell| cell.boot.load(Ordering::Acquire)),
            dead: cell.map_or(0, |cell| cell.dead.load(Ordering::Acquire)),
        }
    }

    /// Takes what a sibling says of itself, and of us.
    pub(crate) fn hear(
        &self,
        from: GatewayKey,
        greeting: &Greeting,
        now: Instant,
        is_known: impl Fn(GatewayKey) -> bool,
    ) {
        let Some(cell) = self.claim(from, is_known) else { return };
        let mut is_news = false;
        if cell.boot.swap(greeting.boot, Ordering::AcqRel) != greeting.boot {
            cell.dead.store(0, Ordering::Release);
            cell.since.store(self.nanos(now), Ordering::Release);
            is_news = true;
        }
        let elder = (greeting.age, from.0) > (self.nanos(now), self.key.0);
        cell.is_elder.store(elder, Ordering::Release);
        is_news |= cell.incarnation.swap(greeting.incarnation, Ordering::AcqRel) != greeting.incarnation;
        is_news |= cell.is_ready.swap(greeting.is_ready, Ordering::AcqRel) != greeting.is_ready;
        is_news |= cell.is_draining.swap(greeting.is_draining, Ordering::AcqRel) != greeting.is_draining;
        is_news |= cell.share.swap(greeting.share, Ordering::AcqRel) != greeting.share;
        cell.workers.store(greeting.workers.into(), Ordering::Release);
        let own = self.incarnation();
        if greeting.heard_boot == self.boot && greeting.dead >= own {
            // It may have given our buckets to others and knows what has become of them.
            self.begin_anew(greeting.dead, now);
            is_news = true;
        }
        if is_news {
            self.touch();
        }
    }

    /// Says whether a sibling's packets come through. Who was up and is not any more is dead to a gateway that serves.
    pub(crate) fn set_up(
        &self,
        key: GatewayKey,
        is_up: bool,
        now: Instant,
        is_known: impl Fn(GatewayKey) -> bool,
    ) {
        let Some(cell) = self.claim(key, is_known) else { return };
        // Asked with every batch, so it writes only what is news: other workers read the same cache line.
        if cell.is_up.load(Ordering::Acquire) == is_up {
            return;
        }
        cell.is_up.store(is_up, Ordering::Release);
        cell.since.store(self.nanos(now), Ordering::Release);
        if !is_up && self.is_serving() {
            cell.declare_dead();
        }
        self.touch();
    }

    /// This gateway serves from now on, whoever is not there.
    fn declare_dead(&self) {
        let is_away = |cell: &&Cell| !cell.is_up.load(Ordering::Acquire);
        self.cells.iter().filter(is_away).for_each(Cell::declare_dead);
    }

    /// Whether a sibling may have buckets, by its own word and by what we have seen.
    pub(crate) fn is_able(&self, key: GatewayKey) -> bool {
        self.cell(key).is_some_and(Cell::is_able)
    }

    /// The slots that a sibling has.
    pub(crate) fn share_of(&self, key: GatewayKey) -> Share {
        self.cell(key).map_or(Share::NONE, |cell| Share::from_bits(cell.share.load(Ordering::Acquire)))
    }

    /// The process of a sibling and its incarnation, by which is known whether it has to be told everything; `None` as
    /// long as it has said nothing.
    pub(crate) fn life_of(&self, key: GatewayKey) -> Option<(u64, u32)> {
        let cell = self.cell(key)?;
        let boot = cell.boot.load(Ordering::Acquire);
        (boot != 0).then(|| (boot, cell.incarnation.load(Ordering::Acquire)))
    }

    /// A worker of a sibling's process has told us everything. Its greeting may be behind that.
    pub(crate) fn has_ended(&self, key: GatewayKey, (boot, worker): (u64, u16), incarnation: u32) {
        let Some(cell) = self.cell(key) else { return };
        if incarnation != self.incarnation() {
            return;
        }
        let is_other = cell.account_of.swap(boot, Ordering::AcqRel) != boot;
        if cell.told_at.swap(incarnation, Ordering::AcqRel) != incarnation || is_other {
            cell.told.store(0, Ordering::Release);
        }
        cell.told.fetch_or(1 << (worker % 64), Ordering::AcqRel);
    }

    fn has_told(&self, cell: &Cell) -> bool {
        let workers = cell.workers.load(Ordering::Acquire);
        workers > 0
            && cell.account_of.load(Ordering::Acquire) == cell.boot.load(Ordering::Acquire)
            && cell.told_at.load(Ordering::Acquire) == self.incarnation()
            && cell.told.load(Ordering::Acquire).count_ones() >= workers.min(64)
    }

    /// Says whether a worker has told its siblings everything.
    pub(crate) fn set_settled(&self, worker: u16, is_settled: bool) {
        let bit = 1 << (worker % 64);
        let was_settled = self.unsettled.load(Ordering::Acquire) & bit == 0;
        if is_settled == was_settled {
            return;
        }
        if is_settled {
            self.unsettled.fetch_and(!bit, Ordering::AcqRel);
        } else {
            self.unsettled.fetch_or(bit, Ordering::AcqRel);
        }
    }

    /// Looks whether this gateway has become ready, or may leave. `siblings` are all that the tables have.
    pub(crate) fn settle(&self, siblings: impl Iterator<Item = GatewayKey>, now: Instant) {
        let nanos = self.nanos(now);
        let starts = nanos < limit(START_WITHIN);
        if !self.is_ready() {
            let must_be_told = self.incarnation() > 1;
            let expects_rules = self.expects_rules.load(Ordering::Acquire) && nanos < limit(READY_WITHIN);
            let mut waits = false;
            for key in siblings {
                waits |= match self.cell(key) {
                    Some(cell) if cell.is_up.load(Ordering::Acquire) => {
                        let has_heard = cell.boot.load(Ordering::Acquire) != 0;
                        let knows_more = must_be_told || cell.is_elder.load(Ordering::Acquire);
                        let is_late = nanos >= cell.since.load(Ordering::Acquire) + limit(READY_WITHIN);
                        expects_rules || (!is_late && (!has_heard || (knows_more && !self.has_told(cell))))
                    }
                    _ => starts,
                };
            }
            if !waits {
                self.is_ready.store(true, Ordering::Release);
                self.touch();
            }
        }
        let serves = self.is_serving();
        if self.has_served.load(Ordering::Acquire) != serves {
            self.has_served.store(serves, Ordering::Release);
            if serves {
                self.declare_dead();
            }
            self.touch();
        }
        let leaves = self.leaves.load(Ordering::Acquire);
        if leaves != 0 && !self.is_draining() {
            let is_settled = self.unsettled.load(Ordering::Acquire) == 0;
            if is_settled || nanos >= leaves + limit(DRAIN_WITHIN) {
                self.is_draining.store(true, Ordering::Release);
                self.touch();
            }
        }
    }
}

impl Cell {
    fn forget(&self) {
        self.boot.store(0, Ordering::Release);
        self.incarnation.store(0, Ordering::Release);
        self.is_ready.store(false, Ordering::Release);
        self.is_draining.store(false, Ordering::Release);
        self.share.store(0, Ordering::Release);
        self.dead.store(0, Ordering::Release);
        self.is_up.store(false, Ordering::Release);
        self.told.store(0, Ordering::Release);
    }

    /// It has to be told everything anew.
    fn declare_dead(&self) {
        self.dead.fetch_max(self.incarnation.load(Ordering::Acquire), Ordering::AcqRel);
    }

    fn is_able(&self) -> bool {
        self.is_ready.load(Ordering::Acquire)
            && !self.is_draining.load(Ordering::Acquire)
            && self.incarnation.load(Ordering::Acquire) > self.dead.load(Ordering::Acquire)
    }

    /// Returns whether it can begin connections.
    fn has_ports(&self) -> bool {
        let has_share = self.share.load(Ordering::Acquire) != Share::NONE.bits();
        has_share && self.is_up.load(Ordering::Acquire) && self.is_able()
    }
}

fn limit(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(FOR_EVER / 2)
}
