//! Mappings, sessions and all that hangs on them, kept consistent: a session that begins or ends takes its filter,
//! its mapping, its port, its timer and its share of the limits along.

use std::net::Ipv4Addr;

use hashbrown::HashMap;
use trieste_packet::wire::protocol;
use trieste_packet::{HashKey, KeyedState, siphash};

use crate::config::{Limits, Timers};
use crate::index::{Chain, Index, NONE, Slab};
use crate::journal::Journal;
use crate::mapping::{Filter, Mapping};
use crate::phase::Seconds;
use crate::ports::{Class, Place, Pools, any_port};
use crate::quarantine::Quarantine;
use crate::record::Phase;
use crate::refusal::Refusal;
use crate::session::{End, Key, Session};
use crate::share::Share;
use crate::wheel::Wheel;

/// Used ports that are looked at to find one that can be shared. Ours: at a fill of 90 % and more, with few remote
/// addresses in common, the first one nearly always can.
const SHARE_ATTEMPTS: u64 = 8;

/// The second at which time begins: what is restored may be older than the process.
pub(crate) const BEGINNING: u32 = 1 << 30;

/// What one inside address has.
#[derive(Debug, Clone, Copy, Default)]
struct Usage {
    mappings: u32,
    sessions: u32,
}

/// A session that is to begin.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Start {
    pub(crate) inside: End,
    pub(crate) key: Key,
    /// Its mapping; [`NONE`] for a headless target's.
    pub(crate) mapping: u32,
    pub(crate) phase: Phase,
    pub(crate) is_outbound: bool,
    /// Epoch of the rules that allow it.
    pub(crate) epoch: u32,
}

#[derive(Debug)]
pub(crate) struct Table {
    pub(crate) limits: Limits,
    seconds: Seconds,
    hash_key: HashKey,
    sip: (u64, u64),
    drawn: u64,
    /// Whole seconds since the beginning, as of the last call.
    pub(crate) second: u32,
    pub(crate) sessions: Slab<Session>,
    by_outside: Index,
    by_sender: Index,
    pub(crate) mappings: Slab<Mapping>,
    by_inside: Index,
    filters: Slab<Filter>,
    by_remote: Index,
    pub(crate) pools: Pools,
    sources: HashMap<Ipv4Addr, Usage, KeyedState>,
    pub(crate) wheel: Wheel,
    pub(crate) journal: Journal,
    /// The same for siblings: what happened here, but not what was taken over from elsewhere.
    pub(crate) copies: Journal,
    /// Ports that siblings may still know as somebody's.
    pub(crate) quarantine: Quarantine,
    /// Set while something is taken over.
    pub(crate) is_copying: bool,
    /// How many accounts of all their sessions siblings have begun to give.
    pub(crate) accounts: u32,
    /// The slots whose ports may be given out.
    pub(crate) share: Share,
    pub(crate) begun: u64,
    pub(crate) ended: u64,
}

impl Table {
    pub(crate) fn new(timers: &Timers, limits: Limits, seed: u64) -> Self {
        let hash_key = HashKey::new(seed);
        let state = KeyedState::new(hash_key.hash(seed, 0));
        // Links and generations need a few values of their own.
        let most = limits.sessions.min(u32::MAX / 4);
        Self {
            limits,
            seconds: Seconds::new(timers),
            hash_key,
            sip: (seed, seed.rotate_left(32) ^ 0x9e37_79b9_7f4a_7c15),
            drawn: 0,
            second: BEGINNING,
            sessions: Slab::new(most),
            by_outside: Index::new(most, Chain::First),
            by_sender: Index::new(most, Chain::Second),
            mappings: Slab::new(most),
            by_inside: Index::new(most, Chain::First),
            filters: Slab::new(most),
            by_remote: Index::new(most, Chain::First),
            pools: Pools::new(&state),
            sources: HashMap::with_hasher(state.clone()),
            wheel: Wheel::new(BEGINNING),
            journal: Journal::new(limits.changes),
            copies: Journal::new(0),
            quarantine: Quarantine::new(&state),
            is_copying: false,
            accounts: 0,
            share: Share::ALL,
            begun: 0,
            ended: 0,
        }
    }

    /// Takes other timers and limits, but for what memory was set aside for.
    pub(crate) fn set_config(&mut self, timers: &Timers, limits: Limits) {
        self.seconds = Seconds::new(timers);
        let Limits { sessions, changes, unsolicited, .. } = self.limits;
        self.limits = Limits { sessions, changes, unsolicited, ..limits };
    }

    /// The next number that nobody outside can guess.
    fn draw(&mut self) -> u64 {
        self.drawn = self.drawn.wrapping_add(1);
        let [a, b, c, d, e, f, g, _] = self.drawn.to_le_bytes();
        siphash::of_seven(self.sip.0, self.sip.1, [a, b, c, d, e, f, g])
    }

    // --- sessions ---------------------------------------------------------------------------------------------

    /// The session with a key as seen from outside, expired or not.
    pub(crate) fn find(&self, key: &Key) -> Option<u32> {
        self.by_outside.find(&self.sessions, key.hash(&self.hash_key), |session| session.key() == *key)
    }

    /// The newest session with a key as seen from inside, expired or not.
    pub(crate) fn find_from_inside(&self, key: &Key) -> Option<u32> {
        self.by_sender.find(&self.sessions, key.hash(&self.hash_key), |session| session.inside_key() == *key)
    }

    /// The second at which a session has expired: never before its whole time is over, since the packet may have
    /// come at the end of its second.
    pub(crate) fn deadline(&self, session: &Session) -> u32 {
        session.last_seen + 1 + self.seconds.of(session.protocol, session.phase)
    }

    pub(crate) fn is_over(&self, session: &Session) -> bool {
        self.second >= self.deadline(session)
    }

    /// Begins a session. Its mapping exists, its key is free, and no other mapping has its filter.
    pub(crate) fn begin(&mut self, start: &Start) -> Result<u32, Refusal> {
        self.count_session(start)?;
        let pool = match start.mapping {
            NONE => self.pools.of(start.key.end.address),
            mapping => self.mappings.get(mapping).pool,
        };
        let (second, accounts) = (self.second, self.accounts);
        let made = self.sessions.insert(|before| Session {
            generation: before.map_or(0, |before| before.generation),
            last_seen: second,
            scheduled: 0,
            earlier: NONE,
            later: NONE,
            link: NONE,
            inside_link: NONE,
            mapping: start.mapping,
            epoch: start.epoch,
            pool,
            account: accounts,
            inside: start.inside.address,
            outside: start.key.end.address,
            remote: start.key.remote,
            inside_port: start.inside.port,
            outside_port: start.key.end.port,
            remote_port: start.key.remote_port,
            protocol: start.inside.protocol,
            phase: start.phase,
        });
        let index = made.expect("a session that was counted has a place");
        self.by_outside.insert(&mut self.sessions, start.key.hash(&self.hash_key), index);
        let from_inside = Key { end: start.inside, ..start.key };
        self.by_sender.insert(&mut self.sessions, from_inside.hash(&self.hash_key), index);
        self.pools.enter(pool);
        if start.mapping != NONE {
            self.mappings.get_mut(start.mapping).sessions += 1;
            if has_filter(start.inside.protocol) {
                self.add_filter(start);
            }
        }
        let deadline = self.deadline(self.sessions.get(index));
        self.wheel.schedule(&mut self.sessions, index, deadline);
        self.begun += 1;
        self.note(index);
        Ok(index)
    }

    /// Ends a session, and its mapping with the last one.
    pub(crate) fn end(&mut self, index: u32) {
        let session = *self.sessions.get(index);
        let deadline = self.deadline(&session);
        self.journal.gone(&session, self.second, deadline);
        if !self.is_copying {
            self.copies.gone(&session, self.second, deadline);
        }
        self.wheel.cancel(&mut self.sessions, index);
        self.by_outside.remove(&mut self.sessions, session.key().hash(&self.hash_key), index);
        self.by_sender.remove(&mut self.sessions, session.inside_key().hash(&self.hash_key), index);
        if !session.is_headless() {
            if has_filter(session.protocol) {
                self.remove_filter(&session);
            }
            self.leave_mapping(session.mapping);
        }
        self.pools.leave(session.pool);
        self.discount(session.inside, |usage| usage.sessions -= 1);
        let slot = self.sessions.get_mut(index);
        slot.generation = (session.generation + 1) & (u32::MAX >> 1);
        slot.pool = NONE;
        self.sessions.remove(index);
        self.ended += 1;
    }

    /// Notes one more packet of a session: its phase, its time.
    pub(crate) fn advance(&mut self, index: u32, is_outbound: bool, flags: u8) {
        let second = self.second;
        let session = self.sessions.get_mut(index);
        let next = session.phase.next(is_outbound, flags);
        if next != session.phase {
            session.phase = next;
            session.last_seen = second;
            self.reschedule(index);
            self.note(index);
        } else if session.last_seen != second && session.phase.is_refreshed_by(is_outbound, flags) {
            session.last_seen = second;
        }
    }

    /// Moves a session on the wheel when it has to be looked at earlier than was planned.
    fn reschedule(&mut self, index: u32) {
        let session = *self.sessions.get(index);
        let deadline = self.deadline(&session);
        if deadline < session.scheduled {
            self.wheel.cancel(&mut self.sessions, index);
            self.wheel.schedule(&mut self.sessions, index, deadline);
        }
    }

    /// Gives a session that was just restored the time that it has left.
    pub(crate) fn age(&mut self, index: u32, seconds_left: u32) {
        let session = *self.sessions.get(index);
        let whole = self.seconds.of(session.protocol, session.phase);
        // The running second counts as left.
        let age = (whole + 1).saturating_sub(seconds_left);
        self.sessions.get_mut(index).last_seen = self.second.saturating_sub(age);
        self.reschedule(index);
    }

    /// Looks at one session whose time may be over, up to the present second: ends it, or puts it where its time is.
    /// `None` when there is none.
    pub(crate) fn expire_one(&mut self) -> Option<bool> {
        let index = self.wheel.due(self.second)?;
        let session = *self.sessions.get(index);
        let is_over = self.is_over(&session);
        if is_over {
            self.end(index);
        } else {
            self.wheel.cancel(&mut self.sessions, index);
            let deadline = self.deadline(&session);
            self.wheel.schedule(&mut self.sessions, index, deadline);
        }
        Some(is_over)
    }

    /// Says what a session is.
    pub(crate) fn note(&mut self, index: u32) {
        let session = self.sessions.get(index);
        let deadline = self.deadline(session);
        self.journal.is(session, self.second, deadline);
        if !self.is_copying {
            self.copies.is(session, self.second, deadline);
        }
    }

    // --- limits -----------------------------------------------------------------------------------------------

    /// Counts a session in, unless there are as many as may be. Strangers may use part of what there is, so that the
    /// inside can always begin something.
    fn count_session(&mut self, start: &Start) -> Result<(), Refusal> {
        let (all, per_source) = if start.is_outbound {
            (self.limits.sessions, self.limits.sessions_per_source)
        } else {
            (self.limits.sessions / 4 * 3, self.limits.sessions_per_source / 2)
        };
        if self.sessions.is_full() || self.sessions.used() >= all {
            return Err(Refusal::SessionLimit);
        }
        let usage = self.sources.entry(start.inside.address).or_default();
        if usage.sessions >= per_source {
            // A source that has nothing is remembered by nobody: the limit is 0, or it has a mapping.
            if usage.mappings == 0 && usage.sessions == 0 {
                self.sources.remove(&start.inside.address);
            }
            return Err(Refusal::SourceLimit);
        }
        usage.sessions += 1;
        Ok(())
    }

    fn discount(&mut self, source: Ipv4Addr, change: impl FnOnce(&mut Usage)) {
        if let Some(usage) = self.sources.get_mut(&source) {
            change(usage);
            if usage.mappings == 0 && usage.sessions == 0 {
                self.sources.remove(&source);
            }
        }
    }

    // --- mappings ---------------------------------------------------------------------------------------------

    /// The mapping of an inside end.
    pub(crate) fn mapping_of(&self, inside: &End) -> Option<u32> {
        let hash = inside.hash(&self.hash_key);
        self.by_inside.find(&self.mappings, hash, |mapping| mapping.inside_end() == *inside)
    }

    /// Makes a mapping for a first session with `remote`, at a port that [`choose`](Self::choose) finds. It has to
    /// get that session at once, or be given back by [`abandon`](Self::abandon).
    pub(crate) fn map(
        &mut self,
        inside: &End,
        global: Ipv4Addr,
        place: Place,
        remote: Ipv4Addr,
        epoch: u32,
    ) -> Result<u32, Refusal> {
        let used = self.sources.get(&inside.address).map_or(0, |usage| usage.mappings);
        if used >= self.limits.mappings_per_source {
            return Err(Refusal::SourceLimit);
        }
        if self.share == Share::NONE && (has_filter(inside.protocol) || inside.protocol == protocol::ICMP) {
            return Err(Refusal::NotReady);
        }
        let pool = self.pools.of(global);
        let port = self.choose(pool, inside, global, place, remote);
        let Some(port) = port else {
            self.pools.retire(pool);
            return Err(Refusal::NoPort);
        };
        self.map_at(inside, &End { address: global, port, ..*inside }, epoch)
    }

    /// Makes a mapping at a port that is known.
    pub(crate) fn map_at(&mut self, inside: &End, outside: &End, epoch: u32) -> Result<u32, Refusal> {
        let pool = self.pools.of(outside.address);
        let made = self.mappings.insert(|_| Mapping {
            link: NONE,
            sessions: 0,
            epoch,
            pool,
            inside: inside.address,
            outside: outside.address,
            inside_port: inside.port,
            outside_port: outside.port,
            protocol: inside.protocol,
            is_forbidden: false,
        });
        let Some(index) = made else {
            self.pools.retire(pool);
            return Err(Refusal::SessionLimit);
        };
        self.pools.take(pool, outside);
        self.by_inside.insert(&mut self.mappings, inside.hash(&self.hash_key), index);
        self.sources.entry(inside.address).or_default().mappings += 1;
        Ok(index)
    }

    /// Gives a mapping back that got no session.
    pub(crate) fn abandon(&mut self, index: u32) {
        let Mapping { sessions, pool, .. } = *self.mappings.get(index);
        if sessions == 0 {
            self.unmap(index);
            self.pools.retire(pool);
        }
    }

    /// Hides a mapping that the rules forbid. Its sessions end as they are met or expire, its port with the last.
    pub(crate) fn forbid(&mut self, index: u32) {
        let mapping = *self.mappings.get(index);
        if !mapping.is_forbidden {
            self.by_inside.remove(&mut self.mappings, mapping.inside_end().hash(&self.hash_key), index);
            self.mappings.get_mut(index).is_forbidden = true;
        }
    }

    /// A port for a new mapping. Above the fill level, TCP takes one that is in use towards other remote addresses.
    fn choose(
        &mut self,
        pool: u32,
        inside: &End,
        global: Ipv4Addr,
        place: Place,
        remote: Ipv4Addr,
    ) -> Option<u16> {
        let class = Class::of(inside);
        let level = u32::from(self.limits.share_tcp_above_percent);
        if inside.protocol == protocol::TCP
            && level < 100
            && self.pools.fill_percent(pool, inside.protocol, place, class) >= level
        {
            //= https://www.rfc-editor.org/rfc/rfc7857#section-3
            //# If destination addresses and ports are different for outgoing
            //# connections started by local clients, a NAT MAY assign the same
            //# external port as the source ports for the connections.
            for _ in 0..SHARE_ATTEMPTS {
                let port = any_port(class, Place { start: self.draw(), ..place })?;
                let end = End { address: global, port, ..*inside };
                if port != 0 && self.pools.is_used(&end) && self.filter_of(&end, remote).is_none() {
                    return Some(port);
                }
            }
        }
        self.pools.choose(pool, inside, place)
    }

    fn leave_mapping(&mut self, index: u32) {
        let mapping = self.mappings.get_mut(index);
        mapping.sessions -= 1;
        if mapping.sessions == 0 {
            self.unmap(index);
        }
    }

    fn unmap(&mut self, index: u32) {
        let mapping = *self.mappings.get(index);
        if !mapping.is_forbidden {
            self.by_inside.remove(&mut self.mappings, mapping.inside_end().hash(&self.hash_key), index);
        }
        self.free_port(mapping.pool, mapping.outside_end());
        self.discount(mapping.inside, |usage| usage.mappings -= 1);
        self.mappings.remove(index);
    }

    /// Makes a port free: at once, or once siblings know that it is.
    fn free_port(&mut self, pool: u32, end: End) {
        let has_port = has_filter(end.protocol) || end.protocol == protocol::ICMP;
        if !self.quarantine.is_on || !has_port || !self.share.has_port(end.port) {
            self.pools.give_back(pool, &end);
            return;
        }
        self.pools.hold(pool);
        if let Some((pool, end)) = self.quarantine.push(pool, end, self.copies.told, self.second) {
            self.pools.let_go(pool, &end);
        }
    }

    // --- filters ----------------------------------------------------------------------------------------------

    /// The mapping that lets a remote address send to an outside end.
    pub(crate) fn filter_of(&self, outside: &End, remote: Ipv4Addr) -> Option<u32> {
        let index = self.filter(outside, remote)?;
        Some(self.filters.get(index).mapping)
    }

    fn filter(&self, outside: &End, remote: Ipv4Addr) -> Option<u32> {
        let hash = outside.hash_with(remote, &self.hash_key);
        let is_it = |filter: &Filter| filter.outside == *outside && filter.remote == remote;
        self.by_remote.find(&self.filters, hash, is_it)
    }

    fn add_filter(&mut self, start: &Start) {
        let Key { end: outside, remote, .. } = start.key;
        if let Some(index) = self.filter(&outside, remote) {
            self.filters.get_mut(index).sessions += 1;
            return;
        }
        let filter = Filter { link: NONE, mapping: start.mapping, sessions: 1, outside, remote };
        // There are never more filters than sessions, and as many may be.
        if let Some(index) = self.filters.insert(|_| filter) {
            self.by_remote.insert(&mut self.filters, outside.hash_with(remote, &self.hash_key), index);
        }
    }

    fn remove_filter(&mut self, session: &Session) {
        let Key { end: outside, remote, .. } = session.key();
        let Some(index) = self.filter(&outside, remote) else { return };
        let filter = self.filters.get_mut(index);
        filter.sessions -= 1;
        if filter.sessions == 0 {
            self.by_remote.remove(&mut self.filters, outside.hash_with(remote, &self.hash_key), index);
            self.filters.remove(index);
        }
    }
}

/// Whether a remote address may send from ports that it was not sent to. Without ports the session itself says it.
fn has_filter(protocol: u8) -> bool {
    matches!(protocol, protocol::TCP | protocol::UDP)
}
