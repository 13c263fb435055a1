//! Why a packet is translated as it is, or would be, for people.

use std::net::Ipv4Addr;
use std::time::Instant;

use trieste_packet::WorkerId;
use trieste_packet::wire::protocol;

use crate::facts::Facts;
use crate::in2out::inside_end;
use crate::nat::Nat;
use crate::out2in::{key_to, static_target};
use crate::owner::Bucket;
use crate::refusal::Refusal;
use crate::rewrite::{Rewrite, Side};
use crate::rules::Rules;

/// What would happen to a packet, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Explanation {
    /// What is written into it, or why it is dropped. Of a mapping that would be made first, the port is one of
    /// those that it might get.
    pub outcome: Result<Rewrite, Refusal>,
    /// Whether this is so already; else a mapping or session would be made for it.
    pub is_live: bool,
    /// The global address that is used, where one is.
    pub global: Option<Ipv4Addr>,
    /// The bucket that the packet belongs to.
    pub bucket: Bucket,
    /// The worker that owns the bucket.
    pub owner: WorkerId,
    /// What was looked at, in order; one sentence each.
    pub steps: Vec<String>,
}

impl Nat {
    /// Why an outbound packet is translated as it is, or would be. Changes nothing.
    #[must_use]
    pub fn explain_outbound(&self, flow: &Facts, rules: &Rules, now: Instant) -> Explanation {
        let mut explanation = Explanation::new(rules.bucket_outbound(flow), rules);
        explanation.outcome = self.explain_source(flow, rules, now, &mut explanation);
        explanation
    }

    fn explain_source(
        &self,
        flow: &Facts,
        rules: &Rules,
        now: Instant,
        explanation: &mut Explanation,
    ) -> Result<Rewrite, Refusal> {
        let source = flow.source;
        if let Some(rewrite) = self.peek_outbound(flow, rules, now) {
            explanation.is_live = true;
            explanation.global = Some(rewrite.address);
            let (global, whose) = (rewrite.address, holder(rules, rewrite.address));
            explanation.say(match rules.static_source(flow) {
                Some(_) => format!("{source} is that of {whose}: always {global}, without state"),
                None => format!("a session is there, with {global} of {whose}"),
            });
            return Ok(rewrite);
        }
        explanation.say("no session is there".to_owned());
        if !flow.may_begin() {
            explanation.say("the packet is an answer or a reset, which begins nothing".to_owned());
            return Err(Refusal::NoSession);
        }
        let mapping = self.table.mapping_of(&inside_end(flow)).map(|index| self.table.mappings.get(index));
        let allowed = mapping.filter(|mapping| rules.allows(mapping.inside, mapping.outside, false));
        if let Some(mapping) = allowed {
            explanation.global = Some(mapping.outside);
            explanation.say(format!(
                "{source}:{} is mapped to {}:{} already, whoever it talks to",
                mapping.inside_port, mapping.outside, mapping.outside_port
            ));
            return Ok(would_leave(flow, mapping.outside, mapping.outside_port));
        }
        self.explain_rule(flow, rules, explanation)
    }

    /// What a first flow would get.
    fn explain_rule(
        &self,
        flow: &Facts,
        rules: &Rules,
        explanation: &mut Explanation,
    ) -> Result<Rewrite, Refusal> {
        let Some(id) = rules.egress_of(flow.source) else {
            explanation.say(format!("no egress rule has {} as a source", flow.source));
            return Err(Refusal::NoGlobalIp);
        };
        let (rule, global) = (rules.rule(id), rules.address_of(id, flow.source));
        let (kind, name) = (rule.kind.as_str(), &rule.name);
        explanation.global = Some(global);
        explanation.say(format!("egress rule {kind} {name} has the source and comes first"));
        if rule.kind.is_headless() || !flow.has_ports() {
            explanation.say(format!("it would leave with {global} and keep its port"));
            return Ok(would_leave(flow, global, flow.source_port));
        }
        let bucket = explanation.bucket;
        let place = self.place(flow, rules);
        let Some(port) = self.table.pools.free_port(global, &inside_end(flow), place) else {
            explanation.say(format!("no port of bucket {} is free on {global}", bucket.index()));
            return Err(Refusal::NoPort);
        };
        explanation.say(format!(
            "it would leave with {global}, one of {}, and a free port of bucket {}",
            rule.addresses.len(),
            bucket.index()
        ));
        Ok(would_leave(flow, global, port))
    }

    /// Why an inbound packet is translated as it is, or would be. Changes nothing.
    #[must_use]
    pub fn explain_inbound(&self, flow: &Facts, rules: &Rules, now: Instant) -> Explanation {
        let mut explanation = Explanation::new(rules.bucket_inbound(flow), rules);
        explanation.global = rules.is_global(flow.destination).then_some(flow.destination);
        explanation.outcome = self.explain_target(flow, rules, now, &mut explanation);
        explanation
    }

    fn explain_target(
        &self,
        flow: &Facts,
        rules: &Rules,
        now: Instant,
        explanation: &mut Explanation,
    ) -> Result<Rewrite, Refusal> {
        let global = flow.destination;
        let Some((kind, name)) = rules.holder_of(global) else {
            explanation.say(format!("no rule uses {global}"));
            return Err(Refusal::NoMapping);
        };
        explanation.say(format!("{global} belongs to {kind} {name}"));
        if let Some(rewrite) = self.peek_inbound(flow, rules, now) {
            explanation.is_live = true;
            explanation.say(match static_target(flow, rules) {
                Some(rule) => format!("it leads to {}, without state", rule.inside),
                None => format!("a session is there, with {}:{}", rewrite.address, rewrite.port),
            });
            return Ok(rewrite);
        }
        explanation.say("no session is there".to_owned());
        match rules.leads_to(global) {
            Some(rule) if !rule.kind.is_headless() => {
                explanation.say("only ICMP queries reach the gateway".to_owned());
                Err(Refusal::NoMapping)
            }
            Some(_) if !flow.may_begin() => {
                explanation.say("the packet is an answer or a reset, which begins nothing".to_owned());
                Err(Refusal::NoSession)
            }
            Some(rule) => {
                explanation.say(format!("it leads to {}; a session would be made", rule.inside));
                Ok(would_enter(flow, rule.inside, flow.destination_port))
            }
            None => self.explain_filter(flow, explanation),
        }
    }

    fn explain_filter(&self, flow: &Facts, explanation: &mut Explanation) -> Result<Rewrite, Refusal> {
        let key = key_to(flow);
        let (remote, port) = (flow.source, flow.destination_port);
        if let Some(index) = self.table.filter_of(&key.end, key.remote) {
            let mapping = self.table.mappings.get(index);
            explanation.say(format!(
                "{}:{} is mapped to port {port} and has sent to {remote}",
                mapping.inside, mapping.inside_port
            ));
            return if flow.protocol == protocol::TCP && !flow.is_syn() {
                Err(Refusal::NoSession)
            } else {
                Ok(would_enter(flow, mapping.inside, mapping.inside_port))
            };
        }
        if self.table.pools.is_used(&key.end) {
            explanation.say(format!("port {port} is mapped, but its inside end has not sent to {remote}"));
            return Err(Refusal::Filtered);
        }
        explanation.say(format!("nothing is mapped to port {port}"));
        Err(Refusal::NoMapping)
    }
}

impl Explanation {
    fn new(bucket: Bucket, rules: &Rules) -> Self {
        let owner = rules.owner(bucket);
        let steps = Vec::new();
        Self { outcome: Err(Refusal::NoSession), is_live: false, global: None, bucket, owner, steps }
    }

    fn say(&mut self, step: String) {
        self.steps.push(step);
    }
}

fn would_leave(flow: &Facts, global: Ipv4Addr, port: u16) -> Rewrite {
    Rewrite::new(Side::Source, (flow.source, flow.source_port), (global, port))
}

fn would_enter(flow: &Facts, inside: Ipv4Addr, port: u16) -> Rewrite {
    Rewrite::new(Side::Destination, (flow.destination, flow.destination_port), (inside, port))
}

fn holder(rules: &Rules, global: Ipv4Addr) -> String {
    rules.holder_of(global).map_or_else(|| "nobody".to_owned(), |(kind, name)| format!("{kind} {name}"))
}
