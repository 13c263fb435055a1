//! Sessions out of here and back: for the snapshot on disk, and for whoever takes a bucket over.

use std::time::Instant;

use trieste_packet::wire::protocol;

use crate::index::{NONE, at};
use crate::journal::record;
use crate::nat::{Nat, epoch_of};
use crate::owner::Bucket;
use crate::record::{Cursor, Phase, Record};
use crate::rules::Rules;
use crate::session::{End, Key, Session};
use crate::table::Start;

impl Nat {
    /// Appends the sessions among the next `count` places to `out`, going on at `cursor`. Returns where to go on,
    /// `None` at the end. A session that begins or ends meanwhile is in the export or in
    /// [`changes`](Self::changes), or in both.
    pub fn export(
        &self,
        cursor: Cursor,
        count: usize,
        now: Instant,
        out: &mut Vec<Record>,
    ) -> Option<Cursor> {
        self.export_since(cursor, count, None, now, out)
    }

    /// The same of those sessions alone that have had packets since a time: whoever keeps copies learns from it which
    /// of them live.
    pub fn export_since(
        &self,
        cursor: Cursor,
        count: usize,
        since: Option<Instant>,
        now: Instant,
        out: &mut Vec<Record>,
    ) -> Option<Cursor> {
        let second = self.table.second.max(self.second_at(now));
        let since = since.map_or(0, |since| self.second_at(since));
        let slots = self.table.sessions.slots();
        let from = at(cursor.0).min(slots.len());
        let to = from.saturating_add(count.max(1)).min(slots.len());
        let is_meant = |session: &&Session| session.is_live() && session.last_seen >= since;
        let records = slots[from..to].iter().filter(is_meant);
        let records = records.map(|session| record(session, second, self.table.deadline(session)));
        out.extend(records.filter(|record| record.seconds_left > 0));
        (to < slots.len()).then(|| Cursor(u32::try_from(to).expect("no more places than 32 bits count")))
    }

    /// Takes a session over from elsewhere, or from before a restart. `false` when it is no possible one, the rules
    /// forbid it, its place is taken, or a limit is reached. Its bucket ([`Rules::bucket_of`]) must be this worker's.
    pub fn restore(&mut self, record: &Record, rules: &Rules, now: Instant) -> bool {
        self.tick(now);
        self.table.is_copying = true;
        let is_restored = self.begin_restored(record, rules);
        self.table.is_copying = false;
        is_restored
    }

    pub(crate) fn begin_restored(&mut self, record: &Record, rules: &Rules) -> bool {
        let inside = End { protocol: record.protocol, address: record.inside, port: record.inside_port };
        let outside = End { protocol: record.protocol, address: record.outside, port: record.outside_port };
        let key = Key { end: outside, remote: record.remote, remote_port: record.remote_port };
        if !is_possible(record, rules)
            || !rules.allows(record.inside, record.outside, record.headless)
            || self.table.find(&key).is_some()
            || self.table.find_from_inside(&Key { end: inside, ..key }).is_some()
        {
            return false;
        }
        let mapping = if record.headless { Some(NONE) } else { self.restored_mapping(&inside, &key, rules) };
        let Some(mapping) = mapping else { return false };
        let start =
            Start { inside, key, mapping, phase: record.phase, is_outbound: true, epoch: epoch_of(rules) };
        match self.table.begin(&start) {
            Ok(index) => {
                self.table.age(index, record.seconds_left);
                true
            }
            Err(_) => {
                if mapping != NONE {
                    self.table.abandon(mapping);
                }
                false
            }
        }
    }

    /// The mapping of a session that is restored: the one that is there if it is the same, else a new one at the
    /// port that it had. TCP ports may be shared, towards different remote addresses.
    fn restored_mapping(&mut self, inside: &End, key: &Key, rules: &Rules) -> Option<u32> {
        let outside = key.end;
        let there = self.table.mapping_of(inside);
        if self.table.filter_of(&outside, key.remote).is_some_and(|other| Some(other) != there) {
            return None;
        }
        match there {
            Some(mapping) => (self.table.mappings.get(mapping).outside_end() == outside).then_some(mapping),
            None if outside.protocol != protocol::TCP && !self.is_free(&outside) => None,
            None => self.table.map_at(inside, &outside, epoch_of(rules)).ok(),
        }
    }
}

impl Nat {
    /// Whether nobody has a port. One that waits to be free comes out for whoever had it.
    fn is_free(&mut self, outside: &End) -> bool {
        if !self.table.pools.is_used(outside) {
            return true;
        }
        let Some(pool) = self.table.quarantine.take(outside) else { return false };
        self.table.pools.let_go(pool, outside);
        !self.table.pools.is_used(outside)
    }
}

/// Whether there can be such a session under these rules: what is read back may be old, or anything.
fn is_possible(record: &Record, rules: &Rules) -> bool {
    let has_phases = record.protocol == protocol::TCP;
    let has_remote_port = matches!(record.protocol, protocol::TCP | protocol::UDP);
    let has_ports = has_remote_port || record.protocol == protocol::ICMP;
    let ports_are_right = if record.headless || !has_ports {
        record.inside_port == record.outside_port && (has_ports || record.inside_port == 0)
    } else {
        let bucket = rules.inside_bucket(record.protocol, record.inside, record.inside_port, true);
        Bucket::of_port(record.outside_port) == bucket && (record.outside_port > 0 || !has_remote_port)
    };
    has_phases == (record.phase != Phase::Plain)
        && (has_remote_port || record.remote_port == 0)
        && ports_are_right
        && record.seconds_left > 0
}
