//! From inside to outside: what the source of a flow becomes.

use std::time::Instant;

use crate::facts::{Facts, Kind};
use crate::index::NONE;
use crate::nat::{Nat, Translation, epoch_of, rewrite_of};
use crate::record::Phase;
use crate::refusal::Refusal;
use crate::rewrite::{Rewrite, Side};
use crate::rules::{IngressRule, Rules};
use crate::session::{End, Key};
use crate::table::Start;

impl Nat {
    /// Decides what an outbound packet's source becomes; finds its session or makes one. In this order: a static
    /// pair, a session of a headless target that was asked from outside, the mapping of the inside end, the best
    /// egress rule.
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
        let by_target = headless_keys(flow, rules).find_map(|key| self.peek(&key, rules, now));
        let by_mapping = || {
            let mapping = self.table.mappings.get(self.table.mapping_of(&inside_end(flow))?);
            self.peek(&key_from(flow, mapping.outside_end()), rules, now)
        };
        let index = by_target.or_else(by_mapping)?;
        let session = self.table.sessions.get(index);
        (session.inside == flow.source).then(|| rewrite_of(session, true))
    }

    /// A session by its key, if it lives and the rules allow it. Changes nothing.
    pub(crate) fn peek(&self, key: &Key, rules: &Rules, now: Instant) -> Option<u32> {
        let index = self.table.find(key)?;
        let session = self.table.sessions.get(index);
        let is_over = self.second_at(now) >= self.table.deadline(session);
        (!is_over && self.is_allowed(session, rules)).then_some(index)
    }

    fn outbound(&mut self, flow: &Facts, rules: &Rules) -> Result<Translation, Refusal> {
        if let Some(rule) = rules.static_source(flow) {
            return Ok(Translation { rewrite: static_rewrite(rule, flow), session: None });
        }
        for key in headless_keys(flow, rules) {
            if let Ok(Some(index)) = self.live(&key, rules)
                && self.table.sessions.get(index).inside == flow.source
            {
                return Ok(self.go_on(index, flow, true));
            }
        }
        // Only targets and the gateway are asked anything that they could answer.
        if flow.kind == Kind::Reply {
            return Err(Refusal::NoSession);
        }
        //= https://www.rfc-editor.org/rfc/rfc4787#section-4.1
        //# A NAT MUST have an "Endpoint-Independent Mapping" behavior.
        match self.allowed_mapping(&inside_end(flow), rules) {
            Some(mapping) => self.outbound_by(mapping, flow, rules),
            None => self.outbound_first(flow, rules),
        }
    }

    /// Goes on with the session that a mapping has with the remote end, or begins it.
    fn outbound_by(&mut self, mapping: u32, flow: &Facts, rules: &Rules) -> Result<Translation, Refusal> {
        let outside = self.table.mappings.get(mapping).outside_end();
        let key = key_from(flow, outside);
        match self.live(&key, rules).unwrap_or(None) {
            Some(index) if self.table.sessions.get(index).mapping == mapping => {
                Ok(self.go_on(index, flow, true))
            }
            Some(_) => Err(Refusal::TupleInUse),
            // A session whose time was over has taken its mapping along.
            None if self.table.mapping_of(&inside_end(flow)) != Some(mapping) => {
                self.outbound_first(flow, rules)
            }
            None if !flow.may_begin() => Err(Refusal::NoSession),
            // A shared port is one mapping's alone towards each remote address.
            None if self
                .table
                .filter_of(&outside, flow.destination)
                .is_some_and(|other| other != mapping) =>
            {
                Err(Refusal::TupleInUse)
            }
            None => self.begin_outbound(mapping, key, flow, rules),
        }
    }

    /// The first flow of an inside end: by the best egress rule.
    fn outbound_first(&mut self, flow: &Facts, rules: &Rules) -> Result<Translation, Refusal> {
        if !flow.may_begin() {
            return Err(Refusal::NoSession);
        }
        let id = rules.egress_of(flow.source).ok_or(Refusal::NoGlobalIp)?;
        let global = rules.address_of(id, flow.source);
        let inside = inside_end(flow);
        if rules.rule(id).kind.is_headless() {
            let key = key_from(flow, End { address: global, ..inside });
            return self.begin_outbound(NONE, key, flow, rules);
        }
        // A free port is nobody else's. What has no ports can meet another's session; looking for it may end that one
        // and its mapping, so it comes before anything is made.
        let portless = key_from(flow, End { address: global, ..inside });
        if !flow.has_ports() && matches!(self.live(&portless, rules), Ok(Some(_))) {
            return Err(Refusal::TupleInUse);
        }
        let bucket = rules.bucket_outbound(flow);
        let mapping = self.table.map(&inside, global, bucket, flow.destination, epoch_of(rules))?;
        let key = key_from(flow, self.table.mappings.get(mapping).outside_end());
        let result = self.begin_outbound(mapping, key, flow, rules);
        if result.is_err() {
            self.table.abandon(mapping);
        }
        result
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

/// The session of an outbound packet, once its outside end is known.
pub(crate) fn key_from(flow: &Facts, outside: End) -> Key {
    Key { outside, remote: flow.destination, remote_port: flow.remote_port(flow.destination_port) }
}

/// The sessions that an outbound packet may belong to when its source is a headless target: one per global address.
pub(crate) fn headless_keys<'a>(flow: &'a Facts, rules: &'a Rules) -> impl Iterator<Item = Key> + 'a {
    let targets = rules.targets(flow.source).filter(|rule| rule.kind.is_headless());
    targets.map(|rule| key_from(flow, End { address: rule.global, ..inside_end(flow) }))
}

fn static_rewrite(rule: &IngressRule, flow: &Facts) -> Rewrite {
    Rewrite::new(Side::Source, (flow.source, flow.source_port), (rule.global, flow.source_port))
}
