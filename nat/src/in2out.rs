//! From inside to outside: what the source of a flow becomes.

use std::time::Instant;

use crate::facts::{Facts, Kind};
use crate::index::NONE;
use crate::nat::{Nat, Translation, epoch_of, rewrite_of};
use crate::ports::Place;
use crate::record::Phase;
use crate::refusal::Refusal;
use crate::rewrite::{Rewrite, Side};
use crate::rules::{IngressRule, Rules};
use crate::session::{End, Key};
use crate::table::Start;

impl Nat {
    /// Decides what an outbound packet's source becomes; finds its session or makes one. In this order: a static
    /// pair, the session, the mapping of the inside end, the best egress rule.
    ///
    /// # Errors
    /// Why the packet has to be dropped.
    pub fn in2out(&mut self, flow: &Facts, rules: &Rules, now: Instant) -> Result<Translation, Refusal> {
        self.tick(now);
        let result = self.outbound(flow, rules);
        self.counted(result)
    }

    /// What [`in2out`](Self::in2out) would write if a session or a static pair is there; makes and refreshes
    /// nothing. For packets quoted in ICMP errors: give it the quoted packet's facts
    /// [`reversed`](Facts::reversed).
    #[must_use]
    pub fn peek_outbound(&self, flow: &Facts, rules: &Rules, now: Instant) -> Option<Rewrite> {
        if let Some(rule) = rules.static_source(flow) {
            return Some(static_rewrite(rule, flow));
        }
        let index = self.table.find_from_inside(&key_from(flow, inside_end(flow)))?;
        self.is_good(index, rules, now).then(|| rewrite_of(self.table.sessions.get(index), true))
    }

    /// Whether a session lives and the rules allow it. Changes nothing.
    pub(crate) fn is_good(&self, index: u32, rules: &Rules, now: Instant) -> bool {
        let session = self.table.sessions.get(index);
        let is_over = self.second_at(now) >= self.table.deadline(session);
        !is_over && self.is_allowed(session, rules)
    }

    fn outbound(&mut self, flow: &Facts, rules: &Rules) -> Result<Translation, Refusal> {
        if let Some(rule) = rules.static_source(flow) {
            return Ok(Translation { rewrite: static_rewrite(rule, flow), session: None });
        }
        if let Some(index) = self.live_from_inside(&key_from(flow, inside_end(flow)), rules) {
            // Only targets and the gateway are asked anything that they could answer.
            return if flow.kind == Kind::Reply && !self.table.sessions.get(index).is_headless() {
                Err(Refusal::NoSession)
            } else {
                Ok(self.go_on(index, flow, true))
            };
        }
        if !flow.may_begin() {
            return Err(Refusal::NoSession);
        }
        //= https://www.rfc-editor.org/rfc/rfc4787#section-4.1
        //# A NAT MUST have an "Endpoint-Independent Mapping" behavior.
        match self.allowed_mapping(&inside_end(flow), rules) {
            Some(mapping) => self.outbound_by(mapping, flow, rules),
            None => self.outbound_first(flow, rules),
        }
    }

    /// Begins a session by a mapping that is there.
    fn outbound_by(&mut self, mapping: u32, flow: &Facts, rules: &Rules) -> Result<Translation, Refusal> {
        let outside = self.table.mappings.get(mapping).outside_end();
        let key = key_from(flow, outside);
        if matches!(self.live(&key, rules), Ok(Some(_))) {
            return Err(Refusal::TupleInUse);
        }
        // A session whose time was over may have taken its mapping along.
        if self.table.mapping_of(&inside_end(flow)) != Some(mapping) {
            return self.outbound_first(flow, rules);
        }
        // A shared port is one mapping's alone towards each remote address.
        if self.table.filter_of(&outside, flow.destination).is_some_and(|other| other != mapping) {
            return Err(Refusal::TupleInUse);
        }
        self.begin_outbound(mapping, key, flow, rules)
    }

    /// The first flow of an inside end: by the best egress rule.
    fn outbound_first(&mut self, flow: &Facts, rules: &Rules) -> Result<Translation, Refusal> {
        let id = rules.egress_of(flow.source).ok_or(Refusal::NoGlobalIp)?;
        let global = rules.address_of(id, flow.source);
        let inside = inside_end(flow);
        // A free port is nobody else's. What keeps its port or has none can meet another's session; looking for it may
        // end that one and its mapping, so it comes before anything is made.
        let is_headless = rules.rule(id).kind.is_headless();
        let kept = key_from(flow, End { address: global, ..inside });
        if (is_headless || !flow.has_ports()) && matches!(self.live(&kept, rules), Ok(Some(_))) {
            return Err(Refusal::TupleInUse);
        }
        if is_headless {
            return self.begin_outbound(NONE, kept, flow, rules);
        }
        let place = self.place(flow, rules);
        let mapping = self.table.map(&inside, global, place, flow.destination, epoch_of(rules))?;
        let key = key_from(flow, self.table.mappings.get(mapping).outside_end());
        let result = self.begin_outbound(mapping, key, flow, rules);
        if result.is_err() {
            self.table.abandon(mapping);
        }
        result
    }

    /// Where the port of a first flow is looked for.
    pub(crate) fn place(&self, flow: &Facts, rules: &Rules) -> Place {
        Place { bucket: rules.bucket_outbound(flow), start: rules.start(flow), share: self.table.share }
    }

    fn begin_outbound(
        &mut self,
        mapping: u32,
        key: Key,
        flow: &Facts,
        rules: &Rules,
    ) -> Result<Translation, Refusal> {
        let start = Start {
            inside: inside_end(flow),
            key,
            mapping,
            phase: Phase::first(flow.kind, true),
            is_outbound: true,
            epoch: epoch_of(rules),
        };
        let index = self.table.begin(&start)?;
        Ok(self.translation(index, true))
    }
}

/// The inside end of an outbound packet.
pub(crate) fn inside_end(flow: &Facts) -> End {
    End { protocol: flow.protocol, address: flow.source, port: flow.source_port }
}

/// The session of an outbound packet, by its inside or its outside end.
pub(crate) fn key_from(flow: &Facts, end: End) -> Key {
    Key { end, remote: flow.destination, remote_port: flow.remote_port(flow.destination_port) }
}

fn static_rewrite(rule: &IngressRule, flow: &Facts) -> Rewrite {
    Rewrite::new(Side::Source, (flow.source, flow.source_port), (rule.global, flow.source_port))
}
