//! The translation of one worker.

use std::time::{Duration, Instant};

use crate::config::Config;
use crate::facts::Facts;
use crate::record::Change;
use crate::refusal::{REFUSALS, Refusal};
use crate::rewrite::{Rewrite, Side};
use crate::rules::Rules;
use crate::session::{End, Key, Session};
use crate::share::Share;
use crate::stats::{AddressStats, Stats};
use crate::table::{BEGINNING, Table};
use crate::unsolicited::{Held, Unsolicited};

/// A session, and from which end its flow comes; what a flow cache keeps beside the rewrite.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Handle {
    index: u32,
    /// Generation of the session in the upper 31 bits; the lowest says whether the flow is outbound.
    tag: u32,
}

/// What was decided for a flow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Translation {
    /// What to write into each of its packets.
    pub rewrite: Rewrite,
    /// The session to touch for each of its packets; `None` where nothing is kept.
    pub session: Option<Handle>,
}

/// The translation of one worker: mappings, sessions, ports. Rules come in with every call.
///
/// Order of calls: [`in2out`](Self::in2out) or [`out2in`](Self::out2in) once per flow and again whenever
/// [`touch`](Self::touch), called for each further train, says `false` and whenever the rules have changed;
/// [`expire`](Self::expire) once per batch; [`changes`](Self::changes) and
/// [`poll_unsolicited`](Self::poll_unsolicited) now and then.
///
/// Memory is reserved for [`Limits::sessions`](crate::Limits::sessions) at construction and used as sessions come.
#[derive(Debug)]
pub struct Nat {
    pub(crate) table: Table,
    held: Held,
    pub(crate) refused: [u64; REFUSALS],
    start: Instant,
    now: Instant,
}

impl Nat {
    /// Nothing translated yet. `seed` keys the hashes of what packets choose; `now` is where time begins.
    #[must_use]
    pub fn new(config: Config, seed: u64, now: Instant) -> Self {
        Self {
            table: Table::new(&config.timers, config.limits, seed),
            held: Held::new(config.limits.unsolicited, config.timers.unsolicited_syn),
            refused: [0; REFUSALS],
            start: now,
            now,
        }
    }

    /// Goes by other timers and limits from now on. Sessions stay: one that a shorter timer has ended goes with its next packet,
    /// or when its former time is over. How many sessions there may be, and how many changes wait, stays as it is: that is
    /// memory that was set aside.
    pub fn set_config(&mut self, config: Config) {
        self.table.set_config(&config.timers, config.limits);
        self.held.set_wait(config.timers.unsolicited_syn);
    }

    /// Notes one more packet (or train) of a session; `tcp_flags` are those of the whole train, 0 for other
    /// protocols. `false` when the session is gone or its time is over: decide again.
    #[must_use]
    pub fn touch(&mut self, handle: Handle, tcp_flags: u8, now: Instant) -> bool {
        self.tick(now);
        let Some(session) = self.table.sessions.slots().get(crate::index::at(handle.index)) else {
            return false;
        };
        if session.generation != handle.tag >> 1 || !session.is_live() || self.table.is_over(session) {
            return false;
        }
        self.table.advance(handle.index, handle.tag & 1 == 1, tcp_flags);
        true
    }

    /// Looks at a session without any effect but that it is fetched: for those of a whole batch, one after the other,
    /// before each is touched. The value means nothing.
    #[must_use]
    pub fn look_ahead(&self, handle: Handle) -> u32 {
        self.table.sessions.slots().get(crate::index::at(handle.index)).map_or(0, |session| session.last_seen)
    }

    /// Removes sessions whose time is over; looks at `budget` sessions at most. Call it once per batch. Returns how
    /// many went.
    pub fn expire(&mut self, now: Instant, budget: usize) -> usize {
        self.tick(now);
        let looked_at = (0..budget).map_while(|_| self.table.expire_one());
        looked_at.filter(|is_over| *is_over).count()
    }

    /// When [`expire`](Self::expire) has something to look at again.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        let second = self.table.wheel.next_occupied()?;
        self.start.checked_add(Duration::from_secs(u64::from(second.saturating_sub(BEGINNING))))
    }

    /// Keeps the beginning of an inbound packet that was refused as [`Refusal::UnsolicitedSyn`], so that an ICMP error
    /// can be made when nobody inside has asked for it in time. `false` when too many are held.
    pub fn hold_unsolicited(&mut self, flow: &Facts, packet: &[u8], now: Instant) -> bool {
        self.held.push(flow, packet, now)
    }

    /// A held packet that nobody has asked for in time: to be answered with ICMP type 3 code 3.
    pub fn poll_unsolicited(&mut self, rules: &Rules, now: Instant) -> Option<Unsolicited> {
        loop {
            let held = self.held.pop(now)?;
            if self.peek_inbound(&held.flow, rules, now).is_none() {
                return Some(held);
            }
        }
    }

    /// Says at which outside ports new mappings may be made; all of them at the beginning. Mappings that are there,
    /// and those taken over, keep theirs.
    pub fn set_share(&mut self, share: Share) {
        self.table.share = share;
    }

    /// The slots whose ports new mappings get.
    #[must_use]
    pub fn share(&self) -> Share {
        self.table.share
    }

    /// Takes what has changed since the last call, oldest first.
    pub fn changes(&mut self) -> impl Iterator<Item = Change> + '_ {
        self.table.journal.take()
    }

    /// Number of sessions.
    #[must_use]
    pub fn session_count(&self) -> u32 {
        self.table.sessions.used()
    }

    /// What there is and was, for metrics.
    #[must_use]
    pub fn stats(&self) -> Stats {
        let mut addresses: Vec<AddressStats> = self
            .table
            .pools
            .iter()
            .map(|pool| {
                let [tcp_ports, udp_ports, icmp_ids] = pool.used;
                AddressStats {
                    address: pool.address,
                    sessions: pool.sessions,
                    tcp_ports,
                    udp_ports,
                    icmp_ids,
                }
            })
            .collect();
        addresses.sort_unstable_by_key(|stats| stats.address);
        Stats {
            sessions: self.table.sessions.used(),
            mappings: self.table.mappings.used(),
            session_limit: self.table.limits.sessions,
            begun: self.table.begun,
            ended: self.table.ended,
            shared: self.table.pools.shared(),
            changes_lost: self.table.journal.lost,
            refused: self.refused,
            addresses,
        }
    }

    /// Sets the time. Nearly every call has the one of its batch, which was set before.
    pub(crate) fn tick(&mut self, now: Instant) {
        if now == self.now {
            return;
        }
        self.now = now;
        self.table.second = self.table.second.max(self.second_at(now));
    }

    pub(crate) fn second_at(&self, now: Instant) -> u32 {
        let seconds = now.saturating_duration_since(self.start).as_secs();
        u32::try_from(seconds).map_or(u32::MAX, |seconds| BEGINNING.saturating_add(seconds))
    }

    /// Counts what is refused.
    pub(crate) fn counted<T>(&mut self, result: Result<T, Refusal>) -> Result<T, Refusal> {
        if let Err(refusal) = &result {
            self.refused[*refusal as usize] += 1;
        }
        result
    }

    /// The session with a key as seen from outside. One whose time is over, or that the rules forbid, is ended on the way.
    ///
    /// # Errors
    /// [`Refusal::Forbidden`] when the rules have forbidden it.
    pub(crate) fn live(&mut self, key: &Key, rules: &Rules) -> Result<Option<u32>, Refusal> {
        self.judged(self.table.find(key), rules)
    }

    /// The session with a key as seen from inside, likewise.
    pub(crate) fn live_from_inside(&mut self, key: &Key, rules: &Rules) -> Option<u32> {
        self.judged(self.table.find_from_inside(key), rules).unwrap_or(None)
    }

    fn judged(&mut self, found: Option<u32>, rules: &Rules) -> Result<Option<u32>, Refusal> {
        let Some(index) = found else { return Ok(None) };
        let session = *self.table.sessions.get(index);
        if self.table.is_over(&session) {
            self.table.end(index);
            return Ok(None);
        }
        let epoch = epoch_of(rules);
        if session.epoch != epoch {
            if !self.is_allowed(&session, rules) {
                self.table.end(index);
                return Err(Refusal::Forbidden);
            }
            self.table.sessions.get_mut(index).epoch = epoch;
        }
        Ok(Some(index))
    }

    /// Whether the rules still allow a session and the mapping that it has.
    pub(crate) fn is_allowed(&self, session: &Session, rules: &Rules) -> bool {
        let headless = session.is_headless();
        rules.allows(session.inside, session.outside, headless)
            && (headless || !self.table.mappings.get(session.mapping).is_forbidden)
    }

    /// The mapping of an inside end, if the rules still allow it.
    pub(crate) fn allowed_mapping(&mut self, inside: &End, rules: &Rules) -> Option<u32> {
        let index = self.table.mapping_of(inside)?;
        self.still_allows(index, rules).then_some(index)
    }

    /// Whether the rules still allow a mapping; one that they do not is hidden.
    pub(crate) fn still_allows(&mut self, index: u32, rules: &Rules) -> bool {
        let epoch = epoch_of(rules);
        let mapping = self.table.mappings.get_mut(index);
        if mapping.is_forbidden {
            return false;
        }
        if mapping.epoch != epoch {
            if !rules.allows(mapping.inside, mapping.outside, false) {
                self.table.forbid(index);
                return false;
            }
            mapping.epoch = epoch;
        }
        true
    }

    /// Goes on with a session: one packet more.
    pub(crate) fn go_on(&mut self, index: u32, flow: &Facts, is_outbound: bool) -> Translation {
        self.table.advance(index, is_outbound, flow.flags());
        self.translation(index, is_outbound)
    }

    /// What a session's packets get.
    pub(crate) fn translation(&self, index: u32, is_outbound: bool) -> Translation {
        let session = self.table.sessions.get(index);
        let handle = Handle { index, tag: session.generation << 1 | u32::from(is_outbound) };
        Translation { rewrite: rewrite_of(session, is_outbound), session: Some(handle) }
    }
}

/// What is written into a session's packets.
pub(crate) fn rewrite_of(session: &Session, is_outbound: bool) -> Rewrite {
    let inside = (session.inside, session.inside_port);
    let outside = (session.outside, session.outside_port);
    if is_outbound {
        Rewrite::new(Side::Source, inside, outside)
    } else {
        Rewrite::new(Side::Destination, outside, inside)
    }
}

/// The low bits of the rules' epoch: what sessions and mappings remember of it.
pub(crate) fn epoch_of(rules: &Rules) -> u32 {
    u32::try_from(rules.epoch() & u64::from(u32::MAX)).expect("masked to 32 bits")
}
