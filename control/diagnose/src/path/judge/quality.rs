//! What is not as it should be though packets pass: size, source, discovery, health.

use trieste_control::admin::BrokerLink;
use trieste_control::api::ConnectionStatus;

use super::super::evidence::{Evidence, Node, Side, probe};
use super::super::trace::Trip;
use super::super::verdict::{Cause, Finding, Hop, Measured, Way};
use crate::node::wire::{Refusal, What};
use crate::node::{Direction, DropRule, SendReport};

/// Ours: most rules that are shown.
const MAX_RULES: usize = 8;

/// Measures what passed.
pub(super) fn measure(evidence: &Evidence, there: &Trip) -> Measured {
    // A service with a global IP answers connections, and no pings.
    let pings = evidence.probe(probe::PING).or_else(|| evidence.probe(probe::SERVICE));
    let pod = evidence.probe(probe::POD);
    let rtt =
        pings.into_iter().chain(pod).flat_map(|report| &report.sent).filter_map(|packet| packet.answered_us);
    let sizes = evidence.probe(probe::SIZES);
    Measured {
        rtt_us: rtt.min(),
        path_mtu_bytes: sizes.and_then(path_mtu),
        source_seen: there.stops.iter().rev().find_map(|stop| stop.source),
        sent: pings.map_or(0, |report| report.sent.len()),
        answered: pings.map_or(0, SendReport::answered),
    }
}

/// The largest size that passes: what somebody said does, else what was answered.
fn path_mtu(report: &SendReport) -> Option<u32> {
    let said = report.sent.iter().filter_map(|packet| packet.error.as_ref()?.mtu).min();
    let answered =
        report.sent.iter().filter(|packet| packet.answered_us.is_some()).map(|packet| packet.size.into());
    said.or_else(|| answered.max())
}

/// Large packets that vanish though small ones pass, and nobody says that they are too big.
pub(super) fn black_hole(evidence: &Evidence) -> Option<Finding> {
    let report = evidence.probe(probe::SIZES)?;
    let said = report.sent.iter().filter_map(|packet| packet.error.as_ref()?.mtu).min();
    let is_lost = |size: u16| said.is_none_or(|said| u32::from(size) <= said);
    // Even of these none may pass, though the small ones did.
    let small = evidence.probe(probe::PING).into_iter().flat_map(|pings| &pings.sent);
    let answered = report.sent.iter().chain(small).filter(|packet| packet.answered_us.is_some());
    let largest = answered.map(|packet| packet.size).max()?;
    let lost: Vec<_> = report
        .sent
        .iter()
        .filter(|packet| packet.size > largest && packet.refused.is_none())
        .filter(|packet| packet.answered_us.is_none() && packet.error.is_none() && is_lost(packet.size))
        .collect();
    let smallest = lost.iter().map(|packet| packet.size).min()?;
    let number = lost.iter().find(|packet| packet.size == smallest)?.number;
    let (hop, way, place) = lost_at(evidence, number);
    let reason =
        format!("packets of {smallest} bytes and more vanish, and nobody says that they are too big");
    let finding = Finding::new(hop, Cause::MtuBlackHole, reason).on(way);
    let finding = finding.seen(format!("{largest} bytes pass, {smallest} do not; {place}"));
    Some(finding.remedy(format!(
        "let ICMP \"fragmentation needed\" pass on the underlay, or give the gateway's default device the underlay's \
         real MTU; until then clamp TCP: `kubectl{} annotate node --all submariner.io/tcp-clamp-mss={}`",
        evidence.source.kubectl,
        largest.saturating_sub(40)
    )))
}

/// Where a packet of the sizes was seen last.
fn lost_at(evidence: &Evidence, number: u16) -> (Hop, Way, String) {
    let saw = |side: Side, kind: What, is_gateway: bool, way: Direction| {
        let cluster = evidence.side(side);
        let gateways = cluster.gateway_names().filter(|_| is_gateway);
        let worker = cluster.worker.as_deref().filter(|_| !is_gateway);
        let nodes = gateways.chain(worker).filter_map(|name| cluster.nodes.get(name));
        let mut sights = nodes.filter_map(|node| node.watch.as_ref()).flat_map(|watch| &watch.sights);
        sights.any(|sight| {
            let is_it = sight.seen.probe == probe::SIZES && sight.seen.number == Some(number);
            is_it && sight.seen.what == kind && sight.seen.carrier.is_none() && sight.way == way
        })
    };
    let hops = [
        (
            Side::Destination,
            What::EchoReply,
            true,
            Way::Back,
            Hop::Cable,
            "its answer entered the destination gateway",
        ),
        (Side::Destination, What::EchoReply, false, Way::Back, Hop::DestinationVxlan, "it was answered"),
        (
            Side::Destination,
            What::EchoRequest,
            false,
            Way::There,
            Hop::DestinationPod,
            "it reached the destination node",
        ),
        (
            Side::Destination,
            What::EchoRequest,
            true,
            Way::There,
            Hop::DestinationVxlan,
            "it left the destination gateway",
        ),
        (Side::Source, What::EchoRequest, true, Way::There, Hop::Cable, "it entered the source gateway"),
    ];
    for (side, kind, is_gateway, way, hop, words) in hops {
        if saw(side, kind, is_gateway, Direction::In) || saw(side, kind, is_gateway, Direction::Out) {
            return (hop, way, format!("the first that was lost: {words}"));
        }
    }
    (Hop::SourceVxlan, Way::There, "the first that was lost did not come to the source gateway".to_owned())
}

/// Somebody on the way gives packets another source.
pub(super) fn masqueraded(evidence: &Evidence, there: &Trip) -> Option<Finding> {
    let expected = evidence.source.pod.address?;
    // Globalnet does so on purpose, and names the networks under which it does.
    let published =
        evidence.source.endpoint().map(|endpoint| endpoint.subnets.as_slice()).unwrap_or_default();
    let is_global = |address: &std::net::IpAddr| {
        published.iter().filter_map(|net| net.parse::<ipnet::IpNet>().ok()).any(|net| net.contains(address))
    };
    let stop = there.stops.iter().find(|stop| stop.source.is_some_and(|source| source != expected))?;
    let seen = stop.source?;
    if is_global(&seen) && !is_global(&expected) {
        return None;
    }
    let cluster = evidence.side(stop.side);
    let reason =
        format!("the packet's source is {expected}, and becomes {seen} on the way: somebody masquerades it");
    let hop = stop.hop(Side::Source);
    let nodes = [cluster.worker(), cluster.gateway()];
    let rules = nodes.into_iter().flatten().flat_map(translations).take(MAX_RULES);
    let rules: Vec<String> = rules.collect();
    Some(Finding::new(hop, Cause::SourceMasqueraded, reason).seen_all(rules).remedy(
        "except the other clusters' networks from it: in the network plugin's settings (natOutgoing, ip-masq-agent's \
         nonMasqueradeCIDRs), or in the rule itself",
    ))
}

/// Rules of a node that give packets another source: those that took packets meanwhile, else those that may have.
fn translations(node: &Node) -> Vec<String> {
    let Some(report) = node.reports().last() else { return Vec::new() };
    let all = report.filters.translations.iter().filter(|rule| rule.packets != Some(0));
    let grew = |rule: &DropRule| {
        let now = rule.packets?;
        let earlier = node.before.as_ref()?.filters.translations.iter();
        let earlier = earlier.clone().find(|old| old.chain == rule.chain && old.handle == rule.handle);
        Some(now > earlier.and_then(|old| old.packets).unwrap_or(0))
    };
    let mut rules: Vec<_> = all.map(|rule| (grew(rule), rule)).collect();
    if rules.iter().any(|(grew, _)| *grew == Some(true)) {
        rules.retain(|(grew, _)| *grew == Some(true));
    }
    let words = |rule: &DropRule| {
        format!("on node {}: rule `{}` in chain `{}`", report.hostname, rule.text, rule.chain)
    };
    rules.into_iter().map(|(_, rule)| words(rule)).collect()
}

/// NAT discovery has had no answer, and the cable does with a guess.
pub(super) fn discovery(evidence: &Evidence) -> Option<Finding> {
    let guesses = ["fallback", "provisional", "discovering"];
    let pairs = [
        (&evidence.source, &evidence.destination, probe::DISCOVERY_THERE),
        (&evidence.destination, &evidence.source, probe::DISCOVERY_BACK),
    ];
    for (own, other, number) in pairs {
        let discovery = own.cable(&other.id).and_then(|cable| cable.discovery.as_ref());
        let Some(discovery) = discovery else { continue };
        let has_lost = lost_discovery(evidence, own, other, number);
        if !guesses.contains(&discovery.state.as_str()) && has_lost != Some(true) {
            continue;
        }
        let port = other.endpoint().or_else(|| own.endpoint_of(&other.id));
        let port = port.and_then(|endpoint| endpoint.backend_config.get("natt-discovery-port").cloned());
        let port = port.unwrap_or_else(|| "4490".to_owned());
        if port == "0" {
            continue;
        }
        let reason = format!(
            "NAT discovery of cluster {} has no answer from cluster {}: UDP {port} does not pass",
            own.id, other.id
        );
        let mut finding = Finding::new(Hop::Cable, Cause::NatDiscoveryBlocked, reason)
            .seen(format!("state {}: {}", discovery.state, discovery.message));
        if has_lost == Some(true) {
            finding = finding.seen(format!("a datagram to UDP {port} did not arrive"));
        }
        return Some(finding.remedy(format!(
            "let UDP {port} pass between the gateways, both ways; `trieste diagnose firewall nat-discovery` tells when it \
             does"
        )));
    }
    None
}

fn lost_discovery(
    evidence: &Evidence,
    own: &super::super::evidence::Cluster,
    other: &super::super::evidence::Cluster,
    number: u16,
) -> Option<bool> {
    evidence.probe(number)?;
    own.gateway()?.watch.as_ref()?;
    let watch = other.gateway()?.watch.as_ref()?;
    Some(!watch.sights.iter().any(|sight| sight.seen.probe == number && sight.way == Direction::In))
}

/// A gateway that hears nothing of its broker goes on with what it knows, and learns nothing new.
pub(super) fn broker(evidence: &Evidence) -> Option<Finding> {
    let clusters = [&evidence.source, &evidence.destination].into_iter();
    let own =
        clusters.into_iter().find(|own| own.status().is_some_and(|s| s.broker.state == BrokerLink::Away))?;
    let reason = format!(
        "the gateway of cluster {} cannot reach the broker: it goes on with what it knows, and hears of no change",
        own.id
    );
    let error = own.status().and_then(|status| status.broker.error.clone());
    Some(Finding::new(Hop::ClusterSet, Cause::BrokerAway, reason).seen_all(error).remedy(format!(
        "repair the way to the broker's API server, or its credentials (`trieste join` again): `kubectl{} -n {} exec \
         ds/submariner-gateway -- trieste status` says more",
        own.kubectl, own.namespace
    )))
}

/// The gateways call the connection broken though packets pass.
pub(super) fn health(evidence: &Evidence) -> Option<Finding> {
    let pairs = [(&evidence.source, &evidence.destination), (&evidence.destination, &evidence.source)];
    for (own, other) in pairs {
        let Some(connection) = own.connection(&other.id) else { continue };
        let health = own.cable(&other.id).and_then(|cable| cable.health.as_ref());
        let is_wrong = connection.status == ConnectionStatus::Error
            || health.is_some_and(|health| health.status == "error");
        if !is_wrong {
            continue;
        }
        let reason = format!(
            "the gateway of cluster {} calls its connection to cluster {} broken, though packets pass: only its health \
             check fails",
            own.id, other.id
        );
        let finding = Finding::new(Hop::Cable, Cause::HealthCheckOnly, reason);
        let address = connection.endpoint.health_check_address();
        return Some(finding.seen(connection.status_message.clone()).remedy(format!(
            "is {address} an address of the other gateway's node that answers pings? Its Endpoint's healthCheckIP says so, \
             the condition NoHealthCheckAddress and TRIESTE_HEALTH_CHECK_IP are about it"
        )));
    }
    None
}

/// Whether somebody answered a probe with a refusal, in words.
pub(super) fn refusals(evidence: &Evidence) -> Vec<String> {
    let report = evidence.probe(probe::PING);
    let mut words = Vec::new();
    for packet in report.into_iter().flat_map(|report| &report.sent) {
        if let Some(why) = &packet.refused {
            words.push(format!("the source node's kernel does not send the probe: {why}"));
        }
        if let Some(error) = &packet.error {
            let what = match error.reason {
                Refusal::Unreachable => "no way leads there",
                Refusal::PortUnreachable => "nobody listens",
                Refusal::Prohibited => "a filter says no",
                Refusal::TooBig => "it is too big",
                Refusal::TimeExceeded => "it goes in circles",
                Refusal::Other => "it is refused",
            };
            words.push(format!("{} answers: {what}", error.from));
        }
    }
    words.sort();
    words.dedup();
    words
}
