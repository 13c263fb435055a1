//! Which packet filter of a node stops a packet.

use super::super::evidence::Node;
use crate::node::{DropRule, PacketFacts, Takes};

/// A filter that stops it.
pub(super) struct Stopping {
    /// The packet, in words.
    pub(super) what: String,
    /// The rule or chain.
    pub(super) rule: String,
    pub(super) evidence: Vec<String>,
    /// `NODE` stands for the node's name.
    pub(super) remedy: String,
    pub(super) is_certain: bool,
}

/// The filter that stops a packet at a hook: a rule that asks for just this packet, or one whose counter grew; else a
/// chain that drops what it does not accept.
pub(super) fn stopping(node: &Node, hook: &str, packet: &PacketFacts<'_>) -> Option<Stopping> {
    let mut best: Option<(u8, &DropRule)> = None;
    for report in node.reports() {
        for rule in &report.filters.drops {
            let rank = rank(node, rule, hook, packet);
            if rank > 0 && best.is_none_or(|(known, _)| rank > known) {
                best = Some((rank, rule));
            }
        }
    }
    if let Some((rank, rule)) = best {
        return Some(by_rule(node, rule, packet, rank > 1));
    }
    let closed = node.reports().flat_map(|report| &report.filters.closed).find(|chain| chain.hook == hook)?;
    Some(Stopping {
        what: words(packet),
        rule: format!("chain `{}` drops what it does not accept", closed.name),
        evidence: Vec::new(),
        remedy: format!(
            "on node NODE: look for a rule that accepts {} in `nft list chain {}`, and add one",
            words(packet),
            closed.name
        ),
        is_certain: false,
    })
}

/// 0 for a rule that leaves it alone, 1 for one that may take it, more for one that does.
fn rank(node: &Node, rule: &DropRule, hook: &str, packet: &PacketFacts<'_>) -> u8 {
    let takes = rule.takes(hook, packet);
    let grew = growth(node, rule).unwrap_or(0) > 0;
    match takes {
        Takes::No => 0,
        Takes::Yes if grew => 4,
        // A rule that asks for nothing stands behind others that accept.
        Takes::Yes if rule.matches.is_empty() => 0,
        Takes::Yes if rule.packets == Some(0) => 0,
        Takes::Yes => 3,
        Takes::Perhaps if grew => 2,
        Takes::Perhaps => 0,
    }
}

/// How many packets a rule took while probes were on their way; `None` without a counter.
fn growth(node: &Node, rule: &DropRule) -> Option<u64> {
    let find = |report: &crate::node::document::NodeReport| {
        let same = |other: &&DropRule| other.chain == rule.chain && other.handle == rule.handle;
        report.filters.drops.iter().find(same)?.packets
    };
    node.grew(find).or_else(|| {
        // It is new since the first report.
        let after = node.after.as_ref().and_then(find)?;
        node.before.is_some().then_some(after)
    })
}

fn by_rule(node: &Node, rule: &DropRule, packet: &PacketFacts<'_>, is_certain: bool) -> Stopping {
    let mut evidence = vec![format!("rule `{}` in chain `{}`", rule.text, rule.chain)];
    if let Some(grew) = growth(node, rule).filter(|grew| *grew > 0) {
        evidence.push(format!("it took {grew} packets while probes were on their way"));
    }
    Stopping {
        what: words(packet),
        rule: format!("rule `{}` in chain `{}`", rule.text, rule.chain),
        evidence,
        remedy: format!(
            "on node NODE: `nft delete rule {} handle {}`, and whatever put it there",
            rule.chain, rule.handle
        ),
        is_certain,
    }
}

fn words(packet: &PacketFacts<'_>) -> String {
    match packet.port {
        Some(port) => format!("UDP {port}"),
        None => "packets between pods of both clusters".to_owned(),
    }
}
