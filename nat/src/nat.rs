//! The translation of one worker.

use std::time::Instant;

use crate::config::Config;
use crate::explain::Explanation;
use crate::facts::{Facts, Kind};
use crate::record::{Change, Cursor, Record};
use crate::refusal::{REFUSALS, Refusal};
use crate::rewrite::{Rewrite, Side};
use crate::rules::{IngressKind, Rules};
use crate::stats::Stats;
use crate::unsolicited::{Held, Unsolicited};

/// A session, and from which end its flow comes; what a flow cache keeps beside the rewrite.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Handle {
    pub(crate) index: u32,
    /// Generation of the session in the upper 31 bits; the lowest says whether the flow is outbound.
    pub(crate) tag: u32,
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
/// [`touch`](Self::touch), called for each further train, says `false`; [`expire`](Self::expire) once per batch;
/// [`changes`](Self::changes) and [`poll_unsolicited`](Self::poll_unsolicited) now and then.
#[derive(Debug)]
pub struct Nat {
    config: Config,
    held: Held,
    refused: [u64; REFUSALS],
}

impl Nat {
    /// Nothing translated yet. `seed` keys hashes and the choice of ports; `now` is where time begins.
    #[must_use]
    pub fn new(config: Config, _seed: u64, _now: Instant) -> Self {
        let held = Held::new(config.limits.unsolicited, config.timers.unsolicited_syn);
        Self { config, held, refused: [0; REFUSALS] }
    }

    /// Decides what an outbound packet's source becomes; finds its session or makes one.
    ///
    /// # Errors
    /// Why the packet has to be dropped.
    pub fn in2out(&mut self, flow: &Facts, rules: &Rules, _now: Instant) -> Result<Translation, Refusal> {
        if let Some(rule) = rules.static_source(flow) {
            let old = (flow.source, flow.source_port);
            let rewrite = Rewrite::new(Side::Source, old, (rule.global, flow.source_port));
            return Ok(Translation { rewrite, session: None });
        }
        Err(self.refuse(Refusal::NoGlobalIp))
    }

    /// Decides what an inbound packet's destination becomes; finds its session or, where the mapping's filter lets
    /// it in or a headless target is asked, makes one.
    ///
    /// # Errors
    /// Why the packet has to be dropped.
    pub fn out2in(&mut self, flow: &Facts, rules: &Rules, _now: Instant) -> Result<Translation, Refusal> {
        let Some(rule) = rules.leads_to(flow.destination) else {
            return Err(self.refuse(Refusal::NoMapping));
        };
        if rule.kind == IngressKind::Gateway && flow.kind != Kind::Request {
            return Err(self.refuse(Refusal::NoMapping));
        }
        let old = (flow.destination, flow.destination_port);
        let rewrite = Rewrite::new(Side::Destination, old, (rule.inside, flow.destination_port));
        Ok(Translation { rewrite, session: None })
    }

    /// What [`in2out`](Self::in2out) would write, without making or refreshing anything: for packets quoted in ICMP
    /// errors.
    #[must_use]
    pub fn peek_outbound(&self, flow: &Facts, rules: &Rules, _now: Instant) -> Option<Rewrite> {
        let rule = rules.static_source(flow)?;
        Some(Rewrite::new(Side::Source, (flow.source, flow.source_port), (rule.global, flow.source_port)))
    }

    /// What [`out2in`](Self::out2in) would write, without making or refreshing anything.
    #[must_use]
    pub fn peek_inbound(&self, flow: &Facts, rules: &Rules, _now: Instant) -> Option<Rewrite> {
        let rule = rules.leads_to(flow.destination)?;
        let old = (flow.destination, flow.destination_port);
        Some(Rewrite::new(Side::Destination, old, (rule.inside, flow.destination_port)))
    }

    /// Notes one more packet (or train) of a session; `tcp_flags` are those of the whole train, 0 for other
    /// protocols. `false` when the session is gone: decide again.
    #[must_use]
    pub fn touch(&mut self, _handle: Handle, _tcp_flags: u8, _now: Instant) -> bool {
        false
    }

    /// Removes what has expired, at most `budget` steps; call it once per batch. Returns how many sessions went.
    pub fn expire(&mut self, _now: Instant, _budget: usize) -> usize {
        0
    }

    /// When [`expire`](Self::expire) has something to do again.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        None
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

    /// Takes what has changed since the last call, oldest first.
    pub fn changes(&mut self) -> impl Iterator<Item = Change> + '_ {
        std::iter::empty()
    }

    /// Writes up to `count` sessions to `out`, going on at `cursor`. Returns where to go on, `None` at the end. A
    /// session that begins or ends meanwhile is in the export or in [`changes`](Self::changes).
    pub fn export(
        &self,
        _cursor: Cursor,
        _count: usize,
        _now: Instant,
        _out: &mut Vec<Record>,
    ) -> Option<Cursor> {
        None
    }

    /// Takes a session over from elsewhere, or from before a restart. `false` when the rules forbid it, its place is
    /// taken, or a limit is reached. Its bucket must be this worker's.
    pub fn restore(&mut self, _record: &Record, _rules: &Rules, _now: Instant) -> bool {
        false
    }

    /// Why an outbound packet is translated as it is, or would be.
    #[must_use]
    pub fn explain_outbound(&self, flow: &Facts, rules: &Rules, now: Instant) -> Explanation {
        let rewrite = self.peek_outbound(flow, rules, now);
        let bucket = rules.bucket_outbound(flow);
        Explanation {
            outcome: rewrite.ok_or(Refusal::NoGlobalIp),
            is_live: rewrite.is_some(),
            global: rewrite.map(|rewrite| rewrite.address),
            bucket,
            owner: rules.owner(bucket),
            steps: Vec::new(),
        }
    }

    /// Why an inbound packet is translated as it is, or would be.
    #[must_use]
    pub fn explain_inbound(&self, flow: &Facts, rules: &Rules, now: Instant) -> Explanation {
        let rewrite = self.peek_inbound(flow, rules, now);
        let bucket = rules.bucket_inbound(flow);
        Explanation {
            outcome: rewrite.ok_or(Refusal::NoMapping),
            is_live: rewrite.is_some(),
            global: Some(flow.destination),
            bucket,
            owner: rules.owner(bucket),
            steps: Vec::new(),
        }
    }

    /// What there is and was, for metrics.
    #[must_use]
    pub fn stats(&self) -> Stats {
        Stats {
            sessions: 0,
            mappings: 0,
            session_limit: self.config.limits.sessions,
            begun: 0,
            ended: 0,
            shared: 0,
            changes_lost: 0,
            refused: self.refused,
            addresses: Vec::new(),
        }
    }

    fn refuse(&mut self, refusal: Refusal) -> Refusal {
        self.refused[refusal as usize] += 1;
        refusal
    }
}
