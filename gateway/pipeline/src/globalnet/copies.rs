//! Copies of sessions: what one worker tells its siblings, and what it takes from theirs.
//!
//! ```text
//!   packets ─▶ Nat ─changes─▶ streams, one for each sibling that keeps the bucket ─▶ messages ─▶ sibling cable
//!   sibling cable ─▶ its lane's worker ─▶ one worker after the other, each takes what is its ─▶ the last says "heard"
//! ```
//!
//! Beside changes a sibling is told everything when it comes, when it is to keep buckets that it did not keep before,
//! and when it has fallen behind; and now and then which sessions live, since packets do not say so one by one.

use std::time::{Duration, Instant};

use trieste_nat::{Bucket, Change, Copied, Cursor, Nat, Record, Rules, Share};
use trieste_packet::{GatewayKey, WorkerId};

use super::away::View;
use super::fleet::Fleet;
use super::message::{ENTRY_BYTES, Entry, Head};
use super::stream::{Export, Stream};

/// Changes that wait to be told, of one worker. Ours: those of a few batches of new flows while windows are full.
const CHANGES: usize = 1 << 14;
/// Sessions that are looked at in one call to tell everything. Ours: 20 to 50 microseconds.
const EXPORT_SLICE: usize = 512;
/// Sessions that are looked at in one call to forget what may be old.
const FORGET_SLICE: usize = 4096;
/// How often siblings hear which sessions live. Ours: a third of the shortest timer.
const REFRESH: Duration = Duration::from_secs(20);
/// How long a port waits at most to be free. Ours: a sibling that cannot be told for so long has been given up by then.
const QUARANTINE: Duration = Duration::from_secs(240);
/// Ports made free in one call.
const RELEASES: usize = 256;
/// A worker that was not run for so long may have been given up by its siblings. Ours: they take a tenth of a second.
const STALL: Duration = Duration::from_millis(400);
/// Streams of siblings' workers that are followed.
const INCOMING: usize = 512;

/// How far a sibling's worker has been followed.
#[derive(Debug)]
struct Incoming {
    key: GatewayKey,
    worker: u16,
    boot: u64,
    epoch: u32,
    next: u32,
    /// The account of all its sessions that it is giving.
    account: Option<Account>,
}

/// An account of all sessions of some buckets, and its number.
#[derive(Debug, Clone, Copy)]
struct Account {
    buckets: u64,
    number: u32,
}

/// Numbers for metrics and people.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SharingStats {
    /// Buckets that are this gateway's.
    pub buckets: u32,
    /// Buckets that became this gateway's because another was gone, was not ready or left.
    pub adopted: u64,
    /// Changes of sessions told to siblings, one for each of them.
    pub told: u64,
    /// Changes of siblings' sessions that were taken.
    pub taken: u64,
    /// Siblings' sessions that could not be kept: the rules forbid them, their place is taken, or there is no room.
    pub refused: u64,
    /// Messages said again.
    pub repeated: u64,
    /// How often a sibling fell behind and was told everything anew.
    pub lost: u64,
    /// Messages that siblings have not heard yet.
    pub backlog: u64,
    /// Ports that wait until siblings know that they are free.
    pub quarantined: u64,
}

/// What became of a sibling's news.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Taken {
    /// Everything before this number has been taken, all of it as it was said or not.
    Upto(u32, bool),
    /// Nothing: it will be said again.
    No,
}

/// A worker's desk for copies.
#[derive(Debug)]
pub(crate) struct Copier {
    worker: WorkerId,
    streams: Vec<Stream>,
    incoming: Vec<Incoming>,
    /// Buckets in which sessions began here that siblings may not know.
    authored: u64,
    /// An account from which what is older and not in it goes.
    forgetting: Option<(Account, Cursor)>,
    /// Saying which sessions live.
    refresh: Option<(Cursor, Instant)>,
    refreshed: Instant,
    /// Buckets owned when last looked.
    owned: u64,
    /// Buckets that are this worker's, wherever this gateway owns them, and the epoch of the rules that say so.
    mine: (u64, u64),
    slice: Vec<Record>,
    ran: Instant,
    pub(crate) greet: Option<Instant>,
    pub(crate) greeted: u64,
    stats: SharingStats,
}

impl Copier {
    pub(crate) fn new(worker: WorkerId, now: Instant) -> Self {
        Self {
            worker,
            streams: Vec::new(),
            incoming: Vec::new(),
            authored: 0,
            forgetting: None,
            refresh: None,
            refreshed: now,
            owned: 0,
            mine: (0, 0),
            slice: Vec::with_capacity(EXPORT_SLICE),
            ran: now,
            greet: None,
            greeted: 0,
            stats: SharingStats::default(),
        }
    }

    /// Has the translation say what changes, as long as there are siblings.
    pub(crate) fn attend(nat: &mut Nat, has_siblings: bool, share: Share) {
        nat.keep_copies(if has_siblings { CHANGES } else { 0 });
        nat.set_quarantine(has_siblings);
        nat.set_share(share);
    }

    /// Notes the time, and whether it is long since it was noted last.
    pub(crate) fn wake(&mut self, now: Instant) {
        if now.saturating_duration_since(self.ran) > STALL {
            self.authored = 0;
        }
        self.ran = now;
    }

    /// Notes whose buckets are whose.
    pub(crate) fn see(&mut self, view: &View) {
        let owned = view.owned();
        if self.owned != 0 {
            self.stats.adopted += u64::from((owned & !self.owned).count_ones());
        }
        self.owned = owned;
        self.stats.buckets = owned.count_ones();
    }

    /// Begins or ends streams: `siblings` are all there are, with their lives where they can be reached.
    pub(crate) fn follow(
        &mut self,
        siblings: impl Iterator<Item = (GatewayKey, Option<(u64, u32)>)>,
        (boot, time): (u64, u32),
    ) {
        let mut seen = 0;
        for (key, life) in siblings {
            let at = match self.streams[seen..].iter().position(|stream| stream.key == key) {
                Some(at) => seen + at,
                None => {
                    self.streams.push(Stream::new(key, self.worker.0, boot));
                    self.streams.len() - 1
                }
            };
            self.streams.swap(seen, at);
            let stream = &mut self.streams[seen];
            seen += 1;
            let process = |life: Option<(u64, u32)>| life.map(|(boot, _)| boot);
            if process(stream.life) != process(life) {
                stream.restart(life, time);
            } else if stream.life != life {
                stream.life = life;
                stream.dirty();
            }
        }
        self.streams.truncate(seen);
    }

    /// Puts what has changed into streams.
    pub(crate) fn collect(&mut self, nat: &mut Nat, rules: &Rules, view: &View, fleet: &Fleet) {
        if !nat.has_copies() {
            return;
        }
        let owned = view.owned();
        for change in nat.copies() {
            let (record, entry) = match &change {
                Change::Is(record) => (record, Entry::Is(*record)),
                Change::Gone(record) => (record, Entry::Gone(*record)),
                Change::Lost => {
                    self.streams.iter_mut().filter(|stream| stream.life.is_some()).for_each(Stream::lose);
                    continue;
                }
            };
            let bit = rules.bucket_of(record).bit();
            if matches!(change, Change::Is(_)) {
                self.authored |= bit;
            } else if owned & bit == 0 {
                // An end in somebody else's bucket is only that nobody has come by here.
                continue;
            }
            for stream in self.streams.iter_mut().filter(|stream| stream.life.is_some()) {
                if concerns(stream.key, record, bit, view, fleet.share_of(stream.key)) {
                    if stream.push(&entry) {
                        self.stats.told += 1;
                    } else {
                        stream.lose();
                    }
                }
            }
        }
    }

    /// Goes on with telling everything, where that is to be done, and with saying which sessions live.
    pub(crate) fn tell(&mut self, nat: &Nat, rules: &Rules, view: &View, fleet: &Fleet, now: Instant) {
        if self.mine.1 != rules.epoch() {
            let is_mine = |bucket: &Bucket| rules.owner(*bucket) == self.worker;
            let mine = Bucket::all().filter(is_mine).fold(0, |mine, bucket| mine | bucket.bit());
            self.mine = (mine, rules.epoch());
        }
        for at in 0..self.streams.len() {
            self.begin_export(at, view, fleet);
            self.export(at, nat, rules, now);
        }
        self.refresh(nat, rules, view, fleet, now);
    }

    fn begin_export(&mut self, at: usize, view: &View, fleet: &Fleet) {
        let stream = &mut self.streams[at];
        let Some(place) = view.place_of(stream.key).filter(|_| stream.life.is_some()) else { return };
        if stream.export.is_some() {
            return;
        }
        let ours = (view.owned() | self.authored) & self.mine.0;
        let wanted = ours & view.division().held_by(place);
        let share = fleet.share_of(stream.key);
        let more = share.without(stream.clean_share);
        let buckets = wanted & !stream.clean;
        if stream.is_told && buckets == 0 && more == Share::NONE {
            return;
        }
        // In a message of its own, which is not said again where a later one is because what is old was in its way.
        if !stream.close() || !stream.push(&Entry::Begin(buckets)) || !stream.close() {
            return;
        }
        stream.export = Some(Export { buckets, share, cursor: Cursor::default() });
    }

    fn export(&mut self, at: usize, nat: &Nat, rules: &Rules, now: Instant) {
        let stream = &mut self.streams[at];
        let (Some(export), Some((_, incarnation))) = (stream.export, stream.life) else { return };
        let count = stream.room().saturating_sub(1).min(EXPORT_SLICE);
        if count == 0 {
            return;
        }
        let next = nat.export(export.cursor, count, now, &mut self.slice);
        let ours = self.owned | self.authored;
        for record in self.slice.drain(..) {
            let bit = rules.bucket_of(&record).bit();
            let is_new_port = export.share.without(stream.clean_share).has_port(record.outside_port);
            if export.buckets & bit != 0 || (ours & bit != 0 && is_new_port) {
                self.stats.told += 1;
                // There was room for all of them.
                let _ = stream.push(&Entry::Is(record));
            }
        }
        match next {
            Some(cursor) => stream.export = Some(Export { cursor, ..export }),
            None if stream.push(&Entry::End(incarnation)) => {
                stream.export = None;
                stream.clean |= export.buckets;
                stream.clean_share = export.share;
                stream.is_told = true;
            }
            None => {}
        }
    }

    fn refresh(&mut self, nat: &Nat, rules: &Rules, view: &View, fleet: &Fleet, now: Instant) {
        if self.refresh.is_none() && now.saturating_duration_since(self.refreshed) >= REFRESH {
            self.refresh = Some((Cursor::default(), self.refreshed));
            self.refreshed = now;
        }
        let Some((cursor, since)) = self.refresh else { return };
        let told = self.streams.iter().filter(|stream| stream.is_told && stream.life.is_some());
        let count = told.map(Stream::room).min().unwrap_or(EXPORT_SLICE).min(EXPORT_SLICE);
        if count == 0 {
            return;
        }
        let next = nat.export_since(cursor, count, Some(since), now, &mut self.slice);
        for record in self.slice.drain(..) {
            let bit = rules.bucket_of(&record).bit();
            if self.owned & bit == 0 {
                continue;
            }
            for stream in self.streams.iter_mut().filter(|stream| stream.is_told && stream.life.is_some()) {
                if concerns(stream.key, &record, bit, view, fleet.share_of(stream.key)) {
                    self.stats.told += 1;
                    let _ = stream.push(&Entry::Is(record));
                }
            }
        }
        self.refresh = next.map(|cursor| (cursor, since));
    }

    /// Hands out the messages that are to be sent, by `send`, which says whether it could.
    pub(crate) fn flush(&mut self, told: u64, now: Instant, mut send: impl FnMut(GatewayKey, &[u8]) -> bool) {
        for stream in self.streams.iter_mut().filter(|stream| stream.life.is_some()) {
            let key = stream.key;
            stream.flush(told, now, |body| send(key, body));
        }
    }

    /// Makes ports free that siblings know to be free. Says whether siblings know everything.
    pub(crate) fn release(&mut self, nat: &mut Nat, view: &View, now: Instant) -> bool {
        let heard = self.streams.iter().map(Stream::heard).min().unwrap_or(u64::MAX);
        nat.release(heard, now.checked_sub(QUARANTINE), RELEASES);
        let mut is_settled = true;
        for stream in self.streams.iter().filter(|stream| stream.life.is_some()) {
            if !stream.is_settled() {
                is_settled = false;
            } else if let Some(place) = view.place_of(stream.key) {
                // Who owns the bucket knows all that was begun here.
                self.authored &= !view.division().owned_by(place);
            }
        }
        is_settled
    }

    /// A sibling has taken what it was told.
    pub(crate) fn hear(&mut self, key: GatewayKey, head: &Head, is_all_done: bool, now: Instant) {
        if let Some(stream) = self.streams.iter_mut().find(|stream| stream.key == key) {
            stream.hear(head, is_all_done, now, QUARANTINE);
        }
    }

    /// Takes a sibling's news as far as they are this worker's.
    pub(crate) fn take(
        &mut self,
        (key, head, entries): (GatewayKey, &Head, &[u8]),
        nat: &mut Nat,
        rules: &Rules,
        now: Instant,
    ) -> Taken {
        if self.forgetting.is_some() {
            return Taken::No;
        }
        let Some(at) = self.incoming(key, head) else { return Taken::No };
        let next = self.incoming[at].next;
        if head.number > next {
            return Taken::No;
        }
        if head.number < next {
            // Heard before, and what was said of it is lost.
            return Taken::Upto(next, false);
        }
        let Some(is_all_done) = self.take_entries(at, entries, nat, rules, now) else { return Taken::No };
        self.incoming[at].next += 1;
        Taken::Upto(head.number + 1, is_all_done)
    }

    /// The place of a stream, at its beginning if it is a new one.
    fn incoming(&mut self, key: GatewayKey, head: &Head) -> Option<usize> {
        let is_it = |incoming: &Incoming| incoming.key == key && incoming.worker == head.worker;
        let fresh =
            Incoming { key, worker: head.worker, boot: head.boot, epoch: head.epoch, next: 0, account: None };
        match self.incoming.iter().position(is_it) {
            Some(at) => {
                let there = &mut self.incoming[at];
                let is_newer = there.boot != head.boot || head.epoch > there.epoch;
                if is_newer && head.number == 0 {
                    *there = fresh;
                }
                (there.boot == head.boot && there.epoch == head.epoch).then_some(at)
            }
            None if head.number == 0 => {
                if self.incoming.len() >= INCOMING {
                    self.incoming.remove(0);
                }
                self.incoming.push(fresh);
                Some(self.incoming.len() - 1)
            }
            None => None,
        }
    }

    /// Takes what a message says. `None` when what is old here is in the way: it goes first, and the message is said again.
    fn take_entries(
        &mut self,
        at: usize,
        entries: &[u8],
        nat: &mut Nat,
        rules: &Rules,
        now: Instant,
    ) -> Option<bool> {
        let mut is_all_done = true;
        for entry in entries.chunks_exact(ENTRY_BYTES).filter_map(Entry::read) {
            match entry {
                Entry::Is(record) | Entry::Gone(record) => {
                    let bucket = rules.bucket_of(&record);
                    if rules.owner(bucket) != self.worker {
                        continue;
                    }
                    self.stats.taken += 1;
                    let is_its = self.owned & bucket.bit() == 0;
                    if matches!(entry, Entry::Is(_)) {
                        if nat.copy(&record, is_its, rules, now) == Copied::Refused {
                            if self.remove_unlisted(at, nat) {
                                return None;
                            }
                            self.stats.refused += 1;
                        }
                    } else if is_its {
                        nat.uncopy(&record, now);
                    } else {
                        is_all_done = false;
                    }
                }
                Entry::Begin(buckets) => {
                    let account = Account { buckets, number: nat.begin_account() };
                    self.incoming[at].account = Some(account);
                }
                Entry::End(_) => {
                    self.remove_unlisted(at, nat);
                }
            }
        }
        Some(is_all_done)
    }

    /// Begins to forget what is older than the account that a sibling gives and not in it, once. Says whether there may be
    /// such a session.
    fn remove_unlisted(&mut self, at: usize, nat: &Nat) -> bool {
        let Some(account) = self.incoming[at].account.take() else { return false };
        let old = account.buckets & !self.owned & !self.authored;
        let is_any = old != 0 && nat.session_count() > 0;
        if is_any {
            self.forgetting = Some((Account { buckets: old, ..account }, Cursor::default()));
        }
        is_any
    }

    /// Goes on with forgetting what is old.
    pub(crate) fn forget(&mut self, nat: &mut Nat, rules: &Rules, now: Instant) {
        if let Some((account, cursor)) = self.forgetting {
            let old = (account.buckets, account.number);
            let next = nat.forget(cursor, FORGET_SLICE, old, rules, now);
            self.forgetting = next.map(|cursor| (account, cursor));
        }
    }

    /// When there is something to do next.
    pub(crate) fn poll_timeout(&self, now: Instant) -> Option<Instant> {
        let is_busy = self.forgetting.is_some()
            || self.refresh.is_some()
            || self.streams.iter().any(|stream| stream.export.is_some() && stream.room() > 1);
        if is_busy {
            return Some(now);
        }
        let again = self.streams.iter().filter_map(Stream::poll_timeout);
        again.chain(self.greet).min()
    }

    pub(crate) fn stats(&self, nat: Option<&Nat>) -> SharingStats {
        let sum = |of: fn(&Stream) -> u64| self.streams.iter().map(of).sum();
        SharingStats {
            repeated: sum(|stream| stream.repeated),
            lost: sum(|stream| stream.lost),
            backlog: sum(|stream| stream.backlog() as u64),
            quarantined: nat.map_or(0, |nat| nat.quarantined() as u64),
            ..self.stats
        }
    }
}

/// Whether a sibling keeps a session: its bucket's, and those at ports that it gives out itself.
fn concerns(key: GatewayKey, record: &Record, bit: u64, view: &View, share: Share) -> bool {
    let holds = view.place_of(key).is_some_and(|place| view.division().held_by(place) & bit != 0);
    holds || (!record.headless && share.has_port(record.outside_port))
}
