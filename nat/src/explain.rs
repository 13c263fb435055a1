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
use crate::rewrite::Rewrite;
use crate::rules::Rules;

/// What would happen to a packet, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Explanation {
    /// What is written into it; `None` when a mapping or session would be made for it first. Or why it is dropped.
    pub outcome: Result<Option<Rewrite>, Refusal>,
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
    ) -> Result<Option<Rewrite>, Refusal> {
        let source = flow.source;
        if let Some(rule) = rules.static_source(flow) {
            explanation.global = Some(rule.global);
            explanation.say(format!(
                "{source} is the {} {}: always {}, without state",
                rule.kind.as_str(),
                rule.name,
                rule.global
            ));
            return Ok(self.peek_outbound(flow, rules, now));
        }
        if let Some(rewrite) = self.peek_outbound(flow, rules, now) {
            explanation.global = Some(rewrite.address);
            let whose = holder(rules, rewrite.address);
            explanation.say(format!("a session is there, with {} of {whose}", rewrite.address));
            return Ok(Some(rewrite));
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
            return Ok(None);
        }
        explain_rule(flow, rules, explanation)
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
    ) -> Result<Option<Rewrite>, Refusal> {
        let global = flow.destination;
        let Some((kind, name)) = rules.holder_of(global) else {
            explanation.say(format!("no rule uses {global}"));
            return Err(Refusal::NoMapping);
        };
        explanation.say(format!("{global} belongs to {kind} {name}"));
        if let Some(rule) = static_target(flow, rules) {
            explanation.say(format!("it leads to {}, without state", rule.inside));
            return Ok(self.peek_inbound(flow, rules, now));
        }
        if let Some(rewrite) = self.peek_inbound(flow, rules, now) {
            explanation.say(format!("a session is there, with {}:{}", rewrite.address, rewrite.port));
            return Ok(Some(rewrite));
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
                Ok(None)
            }
            None => self.explain_filter(flow, explanation),
        }
    }

    fn explain_filter(
        &self,
        flow: &Facts,
        explanation: &mut Explanation,
    ) -> Result<Option<Rewrite>, Refusal> {
        let key = key_to(flow);
        let (remote, port) = (flow.source, flow.destination_port);
        if let Some(index) = self.table.filter_of(&key.outside, key.remote) {
            let mapping = self.table.mappings.get(index);
            explanation.say(format!(
                "{}:{} is mapped to port {port} and has sent to {remote}",
                mapping.inside, mapping.inside_port
            ));
            return if flow.protocol == protocol::TCP && !flow.is_syn() {
                Err(Refusal::NoSession)
            } else {
                Ok(None)
            };
        }
        if self.table.pools.is_used(&key.outside) {
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
        let steps = vec![format!("bucket {} belongs to worker {}", bucket.index(), owner.0)];
        Self { outcome: Ok(None), global: None, bucket, owner, steps }
    }

    fn say(&mut self, step: String) {
        self.steps.push(step);
    }
}

/// What a first flow would get.
fn explain_rule(
    flow: &Facts,
    rules: &Rules,
    explanation: &mut Explanation,
) -> Result<Option<Rewrite>, Refusal> {
    let Some(id) = rules.egress_of(flow.source) else {
        explanation.say(format!("no egress rule has {} as a source", flow.source));
        return Err(Refusal::NoGlobalIp);
    };
    let (rule, global) = (rules.rule(id), rules.address_of(id, flow.source));
    explanation.global = Some(global);
    explanation.say(format!(
        "egress rule {} {} has the source and comes first",
        rule.kind.as_str(),
        rule.name
    ));
    let port = if rule.kind.is_headless() || !flow.has_ports() {
        "keeps its port".to_owned()
    } else {
        format!("gets a free port of bucket {}", explanation.bucket.index())
    };
    explanation.say(format!("it leaves with {global}, one of {}, and {port}", rule.addresses.len()));
    Ok(None)
}

fn holder(rules: &Rules, global: Ipv4Addr) -> String {
    rules.holder_of(global).map_or_else(|| "nobody".to_owned(), |(kind, name)| format!("{kind} {name}"))
}
