//! What a worker keeps to translate: sessions, fragments, and what was decided per flow.
//!
//! ```text
//!  parse ▸ Flow of each packet ──▶ remembered? ──no──▶ NAT's owner here? ──▶ Nat decides ──▶ remembered
//!              ▲                        │yes                 │no
//!              │                        ▼                    └─▶ to its owner, whole trains
//!  fragments ──┘ (pieces.rs)      touch ▸ rewrite
//! ```
//!
//! Both directions work alike ([`in2out`], [`out2in`]); who owns a flow is a function of the packet and the tables.

mod away;
mod copies;
mod fleet;
mod in2out;
mod memo;
mod message;
mod out2in;
mod pieces;
mod relayed;
mod siblings;
mod stream;
mod upkeep;

pub(crate) use away::{Owner, View, inbound_owner, outbound_owner};
pub(crate) use copies::Copier;
pub use copies::SharingStats;
pub use fleet::{Fleet, SiblingStanding};
pub(crate) use in2out::{after as after_in2out, flow_key, route};
pub(crate) use out2in::{admit, after as after_out2in};

use std::time::Instant;

use trieste_nat::{Config, Facts, FragmentLimits, Fragments, Handle, Kind, Nat, Refusal, Rewrite, Rules};
use trieste_packet::wire::{Inner, Transport};
use trieste_packet::{Decision, DropReason, PathId, WorkerId};

use memo::Memo;

use crate::flow::Flows;
use crate::lanes::earliest;
use crate::owner::Crossing;
use crate::steer::Steering;
use crate::tables::{LaneEnd, Tables};

/// Steps of expiry at the end of every batch. Ours: a batch of 64 packets makes at most 64 sessions, so that what
/// expires keeps up with what begins; and few enough to be lost in the time of a batch.
pub const EXPIRY_PER_BATCH: usize = 64;
/// Steps of expiry when timers are looked at, between batches.
pub(crate) const EXPIRY_PER_TIMEOUT: usize = 1024;

/// What translation has to know of a packet, before anything is decided.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Flow {
    /// An IPv4 packet or fragment of a known flow, with the hash that this is remembered by.
    Known(Facts, u64),
    /// An ICMP message that is no query: an error, decided by what it quotes.
    Message,
    /// Not IPv4: not translated.
    Foreign,
}

impl Flow {
    /// Of a packet that is no later fragment.
    pub(crate) fn of(packet: &[u8], inner: &Inner, crossing: Crossing, memo: &Memo) -> Self {
        if !inner.flow.is_ipv4() {
            return Self::Foreign;
        }
        Facts::of(packet, inner).map_or(Self::Message, |facts| Self::known(facts, crossing, memo))
    }

    /// Of a packet whose facts are known.
    pub(crate) fn known(facts: Facts, crossing: Crossing, memo: &Memo) -> Self {
        Self::Known(facts, memo.hash(&Key::of(&facts, crossing)))
    }
}

/// What a translated flow is remembered by: 16 bytes. A question and an answer of ICMP are two flows, and so are an outbound
/// and an inbound one with the same ends: what is decided for a source that somebody inside made up must not hold for
/// the peer whose source it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Key {
    addresses: u64,
    rest: u64,
}

impl Key {
    pub(crate) fn of(facts: &Facts, crossing: Crossing) -> Self {
        let word = |address: std::net::Ipv4Addr| u64::from(u32::from(address));
        let ports = u64::from(facts.source_port) << 16 | u64::from(facts.destination_port);
        let is_reply = u64::from(facts.kind == Kind::Reply);
        let is_inbound = u64::from(!crossing.is_outbound());
        let is_relayed = u64::from(crossing.is_relayed());
        Self {
            addresses: word(facts.source) << 32 | word(facts.destination),
            rest: ports << 16 | u64::from(facts.protocol) << 8 | is_relayed << 2 | is_inbound << 1 | is_reply,
        }
    }
}

/// Where a translated flow goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Way {
    /// Outbound: by this path.
    Path(PathId),
    /// Inbound: it may come by a lane with this far end.
    From(LaneEnd),
    /// Outbound, for one of our own global IPs: back inside.
    Hairpin,
    /// Inbound, from inside.
    Back,
}

/// What was decided for a flow.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Plan {
    /// It is translated and goes on.
    Go { way: Way, rewrite: Rewrite, session: Option<Handle> },
    /// Another worker's, which looks at the way again.
    Hand(WorkerId),
    /// Another gateway's, which has it by this path, and which cannot see the way that it came.
    Away { way: Way, path: PathId },
    /// Dropped, as long as the tables are these.
    Refuse(DropReason),
}

/// What a stage of translation looks at besides the packet.
struct Stage<'a> {
    worker: WorkerId,
    tables: &'a Tables,
    steering: Steering<'a>,
    /// What decisions are remembered under.
    version: u64,
    rules: &'a Rules,
    view: &'a View,
    crossing: Crossing,
    translator: &'a mut Translator,
    flows: &'a mut Flows,
    now: Instant,
}

/// One worker's translation.
#[derive(Debug)]
pub(crate) struct Translator {
    pub(crate) nat: Nat,
    pub(crate) memo: Memo,
    /// Of first fragments, what is known of their flow; and later fragments that wait for that.
    pub(crate) fragments: Fragments<Facts>,
    /// What is fetched ahead for a batch.
    hashes: Vec<u64>,
    ahead: Vec<Handle>,
}

impl Translator {
    pub(crate) fn new(config: Config, seed: u64, now: Instant) -> Self {
        Self {
            nat: Nat::new(config, seed, now),
            memo: Memo::new(seed.rotate_left(17)),
            hashes: Vec::new(),
            ahead: Vec::new(),
            fragments: Fragments::new(FragmentLimits::default(), seed.rotate_left(41)),
        }
    }

    /// When something expires next.
    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        earliest(self.nat.poll_timeout(), self.fragments.poll_timeout())
    }

    /// Has what is remembered of a batch's flows fetched at once, rather than waiting for each when it is looked at.
    pub(crate) fn fetch_ahead(&mut self, known: &[Flow]) {
        self.hashes.clear();
        let hash = |flow: &Flow| match flow {
            Flow::Known(_, hash) => Some(*hash),
            Flow::Message | Flow::Foreign => None,
        };
        self.hashes.extend(known.iter().filter_map(hash));
        self.memo.sessions_ahead(&self.hashes, &mut self.ahead);
        let seen = self.ahead.iter().fold(0, |sum: u32, session| sum ^ self.nat.look_ahead(*session));
        // The loads are what counts; without a use of the sum they would not happen.
        std::hint::black_box(seen);
    }

    /// What was decided for a flow, and its session touched; `None` when it has to be decided (again). Whoever comes another
    /// way than was decided for, `is_its`, touches nothing.
    pub(crate) fn remembered(
        &mut self,
        (key, hash): (&Key, u64),
        facts: &Facts,
        epoch: u64,
        now: Instant,
        is_its: impl FnOnce(Way) -> bool,
    ) -> Option<Plan> {
        let plan = self.memo.lookup(hash, key, epoch)?;
        if let Plan::Go { way, .. } | Plan::Away { way, .. } = plan
            && !is_its(way)
        {
            return None;
        }
        if let Plan::Go { session: Some(session), .. } = plan {
            return self.nat.touch(session, tcp_flags(facts), now).then_some(plan);
        }
        Some(plan)
    }
}

fn tcp_flags(facts: &Facts) -> u8 {
    match facts.kind {
        Kind::Tcp(flags) => flags,
        Kind::Udp | Kind::Request | Kind::Reply | Kind::Other => 0,
    }
}

/// How a packet leaves a stage of translation, when not to the next one.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Exit {
    /// Dropped.
    Drop(DropReason),
    /// Dropped, and its source inside is told that nothing is free.
    Tell(DropReason, Inner),
    /// To its owner.
    Hand(WorkerId, Crossing, Option<Facts>),
    /// To the gateway that owns it.
    Away(Decision, Inner),
    /// A probe for the gateway itself, answered here.
    Probe,
}

/// The counter for a refusal.
pub(crate) fn reason(refusal: Refusal) -> DropReason {
    match refusal {
        Refusal::NoGlobalIp | Refusal::Forbidden => DropReason::NoGlobalIp,
        Refusal::NoPort | Refusal::TupleInUse => DropReason::NatExhausted,
        Refusal::SessionLimit => DropReason::NatSessionLimit,
        Refusal::SourceLimit => DropReason::NatSourceLimit,
        Refusal::NoSession | Refusal::NoMapping => DropReason::NoMapping,
        Refusal::NotReady => DropReason::NatNotReady,
        Refusal::Filtered | Refusal::UnsolicitedSyn => DropReason::NatFiltered,
    }
}

/// Whether the packet is a fragment of a packet that may be translated.
pub(crate) fn is_piece(inner: &Inner) -> bool {
    inner.flow.is_ipv4() && matches!(inner.transport, Transport::Fragment { .. })
}
