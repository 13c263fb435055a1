//! Sessions of a sibling: what another gateway of the cluster says of its buckets is kept here, so that this one can go
//! on with them.
//!
//! What is taken over is no news: it is in [`Nat::changes`], for the disk, and not in [`Nat::copies`], for siblings.

use std::time::Instant;

use trieste_packet::wire::protocol;

use crate::index::at;
use crate::nat::Nat;
use crate::owner::Bucket;
use crate::record::{Change, Cursor, Record};
use crate::rules::Rules;
use crate::session::{End, Key, Session};

/// What became of a sibling's word.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Copied {
    /// The session is here from now on.
    Begun,
    /// It was here already, and is now as the sibling says.
    Updated,
    /// It cannot be: the rules forbid it, its place is taken, or a limit is reached.
    Refused,
}

impl Nat {
    /// Keeps so many changes for [`copies`](Self::copies); 0 keeps none. Allocates, unless it is so already.
    pub fn keep_copies(&mut self, limit: usize) {
        if self.table.copies.limit() != limit {
            self.table.copies.set_limit(limit);
        }
    }

    /// Whether a port that no mapping has any more waits until siblings know that: they keep copies. What waits already
    /// goes on waiting.
    pub fn set_quarantine(&mut self, is_on: bool) {
        self.table.quarantine.is_on = is_on;
    }

    /// Number of changes that [`copies`](Self::copies) has had so far, those that were lost included.
    #[must_use]
    pub fn copies_told(&self) -> u64 {
        self.table.copies.told
    }

    /// Makes the ports free that have waited long enough: all who keep copies have heard the first `heard` changes, or
    /// the port went before `since`. Looks at `budget` of them at most. Returns how many went.
    pub fn release(&mut self, heard: u64, since: Option<Instant>, budget: usize) -> usize {
        let second = since.map_or(0, |since| self.second_at(since));
        let mut released = 0;
        while released < budget
            && let Some((pool, end)) = self.table.quarantine.pop(heard, second)
        {
            self.table.pools.let_go(pool, &end);
            released += 1;
        }
        released
    }

    /// Ports that wait to be free.
    #[must_use]
    pub fn quarantined(&self) -> usize {
        self.table.quarantine.len()
    }

    /// Takes what packets have changed here since the last call, oldest first. When more happened than was kept it
    /// begins with [`Change::Lost`].
    pub fn copies(&mut self) -> impl Iterator<Item = Change> + '_ {
        self.table.copies.take()
    }

    /// Whether there are [`copies`](Self::copies) to take.
    #[must_use]
    pub fn has_copies(&self) -> bool {
        !self.table.copies.is_empty()
    }

    /// Takes what a sibling says of a session. `is_its` says that the session's bucket is the sibling's: then another session
    /// here in the same place gives way; else what is here stays.
    pub fn copy(&mut self, record: &Record, is_its: bool, rules: &Rules, now: Instant) -> Copied {
        self.tick(now);
        self.table.is_copying = true;
        let copied = self.copied(record, is_its, rules);
        self.table.is_copying = false;
        copied
    }

    fn copied(&mut self, record: &Record, is_its: bool, rules: &Rules) -> Copied {
        let (outside, inside) = keys(record);
        if let Some(index) = self.table.find(&outside) {
            let session = *self.table.sessions.get(index);
            let is_same = session.inside_key() == inside && session.is_headless() == record.headless;
            if is_same && self.is_allowed(&session, rules) {
                return self.update(index, record, is_its);
            }
            if !is_its {
                return Copied::Refused;
            }
            self.table.end(index);
        }
        if is_its && let Some(index) = self.table.find_from_inside(&inside) {
            self.table.end(index);
        }
        if self.begin_restored(record, rules) { Copied::Begun } else { Copied::Refused }
    }

    fn update(&mut self, index: u32, record: &Record, is_its: bool) -> Copied {
        let accounts = self.table.accounts;
        self.table.sessions.get_mut(index).account = accounts;
        let session = *self.table.sessions.get(index);
        let is_tcp = session.protocol == protocol::TCP;
        if record.seconds_left == 0 || is_tcp != (record.phase != crate::Phase::Plain) {
            return Copied::Refused;
        }
        let left = self.table.deadline(&session).saturating_sub(self.table.second);
        if is_its || record.seconds_left > left {
            let is_news = session.phase != record.phase;
            self.table.sessions.get_mut(index).phase = record.phase;
            self.table.age(index, record.seconds_left);
            if is_news {
                self.table.note(index);
            }
        }
        Copied::Updated
    }

    /// A sibling says that a session of one of its buckets has ended. Returns whether it was here.
    pub fn uncopy(&mut self, record: &Record, now: Instant) -> bool {
        self.tick(now);
        let (outside, inside) = keys(record);
        let Some(index) = self.table.find(&outside) else { return false };
        if self.table.sessions.get(index).inside_key() != inside {
            return false;
        }
        self.table.is_copying = true;
        self.table.end(index);
        self.table.is_copying = false;
        true
    }

    /// A sibling begins to give an account of all sessions of some buckets. What is here stays until it has ended, so that
    /// nothing is lost, and no port is somebody else's, where its end never comes. Returns the account's number for
    /// [`forget`](Self::forget).
    pub fn begin_account(&mut self) -> u32 {
        self.table.accounts = self.table.accounts.wrapping_add(1);
        self.table.accounts
    }

    /// Ends the sessions of some buckets (one bit for each) among the next `count` places that are older than an account
    /// and not in it: whoever has the buckets has said what there is. Returns where to go on, `None` at the end.
    pub fn forget(
        &mut self,
        cursor: Cursor,
        count: usize,
        (buckets, account): (u64, u32),
        rules: &Rules,
        now: Instant,
    ) -> Option<Cursor> {
        self.tick(now);
        let places = self.table.sessions.slots().len();
        let from = at(cursor.0).min(places);
        let to = from.saturating_add(count.max(1)).min(places);
        self.table.is_copying = true;
        for place in from..to {
            let session = self.table.sessions.slots()[place];
            // Numbers go round: older is up to half of them behind.
            let is_older = session.account.wrapping_sub(account) > u32::MAX / 2;
            if session.is_live() && is_older && buckets & bucket_of(&session, rules).bit() != 0 {
                self.table.end(u32::try_from(place).expect("no more places than 32 bits count"));
            }
        }
        self.table.is_copying = false;
        (to < places).then(|| Cursor(u32::try_from(to).expect("no more places than 32 bits count")))
    }
}

fn keys(record: &Record) -> (Key, Key) {
    let end = |address, port| End { protocol: record.protocol, address, port };
    let key = |end| Key { end, remote: record.remote, remote_port: record.remote_port };
    (key(end(record.outside, record.outside_port)), key(end(record.inside, record.inside_port)))
}

fn bucket_of(session: &Session, rules: &Rules) -> Bucket {
    let has_ports = matches!(session.protocol, protocol::TCP | protocol::UDP | protocol::ICMP);
    if has_ports && !session.is_headless() {
        return Bucket::of_port(session.outside_port);
    }
    rules.inside_bucket(session.protocol, session.inside, session.inside_port, has_ports)
}
