//! From outside to inside: what the destination of a flow becomes.

use std::time::Instant;

use trieste_packet::wire::protocol;

use crate::facts::{Facts, Kind};
use crate::in2out::{inside_end, key_from};
use crate::index::NONE;
use crate::nat::{Nat, Translation, epoch_of, rewrite_of};
use crate::record::Phase;
use crate::refusal::Refusal;
use crate::rewrite::{Rewrite, Side};
use crate::rules::{IngressKind, IngressRule, Rules};
use crate::session::{End, Key};
use crate::table::Start;

impl Nat {
    /// Decides what an inbound packet's destination becomes; finds its session or, where the mapping's filter lets
    /// it in or a headless target is asked, makes one. The destination must be one of our global addresses; a
    /// hairpin comes here after [`in2out`](Self::in2out), with its new source.
    ///
    /// # Errors
    /// Why the packet has to be dropped.
    pub fn out2in(&mut self, flow: &Facts, rules: &Rules, now: Instant) -> Result<Translation, Refusal> {
        self.tick(now);
        let result = self.inbound(flow, rules);
        self.counted(result)
    }

    /// What [`out2in`](Self::out2in) would write if a session or a static pair is there; makes and refreshes
    /// nothing. For packets quoted in ICMP errors: give it the quoted packet's facts
    /// [`reversed`](Facts::reversed).
    #[must_use]
    pub fn peek_inbound(&self, flow: &Facts, rules: &Rules, now: Instant) -> Option<Rewrite> {
        if let Some(rule) = static_target(flow, rules) {
            return Some(static_rewrite(rule, flow));
        }
        let index = self.table.find(&key_to(flow))?;
        self.is_good(index, rules, now).then(|| rewrite_of(self.table.sessions.get(index), false))
    }

    fn inbound(&mut self, flow: &Facts, rules: &Rules) -> Result<Translation, Refusal> {
        if let Some(rule) = static_target(flow, rules) {
            return Ok(Translation { rewrite: static_rewrite(rule, flow), session: None });
        }
        match rules.leads_to(flow.destination) {
            Some(rule) if rule.kind.is_headless() => self.towards_target(flow, rule, rules),
            Some(_) => Err(Refusal::NoMapping),
            None => self.towards_mapping(flow, rules),
        }
    }

    /// To a headless target: the session remembers which of its global addresses was asked.
    fn towards_target(
        &mut self,
        flow: &Facts,
        rule: &IngressRule,
        rules: &Rules,
    ) -> Result<Translation, Refusal> {
        let key = key_to(flow);
        // What was there before the address came to lead here is ended on the way.
        if let Some(index) = self.live(&key, rules).unwrap_or(None) {
            return Ok(self.go_on(index, flow, false));
        }
        if !flow.may_begin() {
            return Err(Refusal::NoSession);
        }
        let answer = Facts { destination: rule.inside, ..*flow }.reversed();
        // Its answers would be taken for those of another session: it was asked by the same remote end at another
        // global address, or asks that end itself.
        if self.live_from_inside(&key_from(&answer, inside_end(&answer)), rules).is_some() {
            return Err(Refusal::TupleInUse);
        }
        self.begin_inbound(NONE, inside_end(&answer), key, flow, rules)
    }

    /// To an outside end of a mapping.
    fn towards_mapping(&mut self, flow: &Facts, rules: &Rules) -> Result<Translation, Refusal> {
        // A question from outside cannot be meant for who asks outside.
        if !rules.is_global(flow.destination) || flow.kind == Kind::Request {
            return Err(Refusal::NoMapping);
        }
        let key = key_to(flow);
        if let Some(index) = self.live(&key, rules)? {
            return Ok(self.go_on(index, flow, false));
        }
        //= https://www.rfc-editor.org/rfc/rfc4787#section-5
        //# If a more stringent filtering behavior is most
        //# important, it is RECOMMENDED that a NAT have "Address-Dependent
        //# Filtering" behavior.
        match self.table.filter_of(&key.end, key.remote) {
            Some(mapping) if !self.still_allows(mapping, rules) => Err(Refusal::Forbidden),
            Some(_) if flow.protocol == protocol::TCP && !flow.is_syn() => Err(Refusal::NoSession),
            Some(mapping) => {
                let inside = self.table.mappings.get(mapping).inside_end();
                // The same two ends talk already, by a global address that leads to the inside end.
                if self.live_from_inside(&Key { end: inside, ..key }, rules).is_some() {
                    return Err(Refusal::TupleInUse);
                }
                self.begin_inbound(mapping, inside, key, flow, rules)
            }
            None if flow.is_syn() => Err(Refusal::UnsolicitedSyn),
            None if self.table.pools.is_used(&key.end) => Err(Refusal::Filtered),
            None => Err(Refusal::NoMapping),
        }
    }

    fn begin_inbound(
        &mut self,
        mapping: u32,
        inside: End,
        key: Key,
        flow: &Facts,
        rules: &Rules,
    ) -> Result<Translation, Refusal> {
        let start = Start {
            inside,
            key,
            mapping,
            phase: Phase::first(flow.kind, false),
            is_outbound: false,
            epoch: epoch_of(rules),
        };
        let index = self.table.begin(&start)?;
        Ok(self.translation(index, false))
    }
}

/// The session of an inbound packet.
pub(crate) fn key_to(flow: &Facts) -> Key {
    Key {
        end: End { protocol: flow.protocol, address: flow.destination, port: flow.destination_port },
        remote: flow.source,
        remote_port: flow.remote_port(flow.source_port),
    }
}

/// The rule of an inbound packet that is translated without state: to a service, or a question to the gateway.
pub(crate) fn static_target<'a>(flow: &Facts, rules: &'a Rules) -> Option<&'a IngressRule> {
    rules.leads_to(flow.destination).filter(|rule| match rule.kind {
        IngressKind::Service => true,
        IngressKind::Gateway => flow.kind == Kind::Request,
        IngressKind::HeadlessPod | IngressKind::HeadlessEndpoints => false,
    })
}

fn static_rewrite(rule: &IngressRule, flow: &Facts) -> Rewrite {
    let old = (flow.destination, flow.destination_port);
    Rewrite::new(Side::Destination, old, (rule.inside, flow.destination_port))
}
