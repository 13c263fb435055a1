//! Reasons on the way between the gateways.

use std::net::IpAddr;

use trieste_control::admin::{BrokerLink, GatewayStatus};
use trieste_control::api::ConnectionStatus;

use super::super::evidence::{Cluster, Evidence, Node, Side, probe};
use super::super::verdict::{Cause, Finding, Hop};
use super::context::{Context, Place};
use super::{filters, legs};
use crate::node::wire::What;
use crate::node::{Direction, PacketFacts};

/// Reasons why a packet that entered one gateway does not leave the other; never empty.
pub(super) fn explain(context: &Context<'_>) -> Vec<Finding> {
    let mut found = Vec::new();
    for (cluster, side) in [(context.sender, context.from), (context.receiver, context.from.other())] {
        if let Some(place) = Place::gateway(cluster, side) {
            found.extend(legs::gateway_process(context, &place));
        }
    }
    found.extend(refused(context));
    found.extend(no_cable(context));
    found.extend(reachable(context));
    found.extend(keys(context));
    found.extend(dropped(context));
    if found.is_empty() {
        found.push(unknown(context));
    }
    found
}

/// A gateway that refuses the other cluster.
fn refused(context: &Context<'_>) -> Vec<Finding> {
    let mut found = Vec::new();
    for (own, other) in [(context.sender, context.receiver), (context.receiver, context.sender)] {
        let refusals = own.status().map(|status| status.refused.as_slice()).unwrap_or_default();
        let Some(refusal) = refusals.iter().find(|refusal| refusal.cluster == other.id) else { continue };
        let overlaps = refusal.reason.contains("overlap");
        let cause = if overlaps { Cause::NetworksOverlap } else { Cause::CableRefused };
        let reason = format!("the gateway of cluster {} refuses cluster {}", own.id, other.id);
        let remedy = if overlaps {
            "give one of the two clusters other networks, or use Globalnet".to_owned()
        } else {
            format!(
                "the reason names the object: kubectl{} -n {} get endpoints.submariner.io",
                own.kubectl, own.namespace
            )
        };
        found.push(
            context.finding(Hop::ClusterSet, cause, reason).seen(refusal.reason.clone()).remedy(remedy),
        );
    }
    found
}

fn no_cable(context: &Context<'_>) -> Vec<Finding> {
    let mut found = Vec::new();
    for (own, other) in [(context.sender, context.receiver), (context.receiver, context.sender)] {
        let Some(status) = own.status() else { continue };
        if other.id.is_empty() || own.connection(&other.id).is_some() {
            continue;
        }
        if !status.refused.iter().any(|refusal| refusal.cluster == other.id) {
            found.push(unknown_cluster(context.evidence, own, other, Some(status)).on(context.way));
        }
    }
    found
}

/// A cluster does not know another one: the broker is away, or has nothing of it.
pub(super) fn unknown_cluster(
    evidence: &Evidence,
    own: &Cluster,
    other: &Cluster,
    status: Option<&GatewayStatus>,
) -> Finding {
    let name = if other.id.is_empty() { &other.pod.name } else { &other.id };
    let broker = status.map(|status| &status.broker);
    let is_away =
        broker.is_some_and(|broker| matches!(broker.state, BrokerLink::Away | BrokerLink::Connecting));
    // Whose broker is away: ours, or theirs so that they have not told it of themselves.
    let other_is_away = evidence
        .side(if std::ptr::eq(own, &raw const evidence.source) { Side::Destination } else { Side::Source })
        .status()
        .is_some_and(|status| matches!(status.broker.state, BrokerLink::Away | BrokerLink::Connecting));
    if is_away || other_is_away {
        let who = if is_away { own } else { other };
        let error = who.status().and_then(|status| status.broker.error.clone());
        let reason = format!(
            "cluster {} does not know {name}: the gateway of cluster {} cannot reach the broker",
            own.id, who.id
        );
        return Finding::new(Hop::ClusterSet, Cause::BrokerAway, reason).seen_all(error).remedy(format!(
            "repair the way to the broker's API server, or its credentials (`trieste join` again): the condition \
             BrokerAway in `kubectl{} -n {} exec ds/submariner-gateway -- trieste status` says why",
            who.kubectl, who.namespace
        ));
    }
    let reason = format!("cluster {} does not know cluster {name}: there is no Endpoint of it", own.id);
    Finding::new(Hop::ClusterSet, Cause::ClusterUnknown, reason).remedy(format!(
        "is {name} joined to the same broker? kubectl{} -n {} get endpoints.submariner.io,clusters.submariner.io",
        own.kubectl, own.namespace
    ))
}

/// The addresses that a gateway is reached by.
fn address(of: &Cluster, by: &Cluster) -> Option<IpAddr> {
    let using = by.connection(&of.id).and_then(|connection| connection.using_ip.parse().ok());
    using.or_else(|| by.endpoint_of(&of.id).or_else(|| of.endpoint())?.gateway_ip().parse().ok())
}

fn port(of: &Cluster, by: &Cluster, key: &str, usual: u16) -> u16 {
    let endpoint = by.endpoint_of(&of.id).or_else(|| of.endpoint());
    endpoint.and_then(|endpoint| endpoint.backend_config.get(key)?.parse().ok()).unwrap_or(usual)
}

/// What became of a datagram from one gateway to the other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Sent {
    /// Nobody tried, or could look.
    Unknown,
    /// It has not left its node.
    Held,
    /// It left and has not arrived.
    Lost,
    /// It arrived at the other node.
    Arrived,
}

fn datagram(sender: Option<&Node>, receiver: Option<&Node>, evidence: &Evidence, number: u16) -> Sent {
    let saw = |node: Option<&Node>, way: Direction| {
        let watch = node?.watch.as_ref()?;
        let is_it =
            |seen: &crate::node::wire::Seen| seen.probe == number && matches!(seen.what, What::Udp { .. });
        Some(watch.sights.iter().any(|sight| sight.way == way && is_it(&sight.seen)))
    };
    if evidence.probe(number).is_none() {
        return Sent::Unknown;
    }
    match (saw(sender, Direction::Out), saw(receiver, Direction::In)) {
        (_, Some(true)) => Sent::Arrived,
        (Some(false), _) => Sent::Held,
        (Some(true), Some(false)) => Sent::Lost,
        (None, _) | (Some(true), None) => Sent::Unknown,
    }
}

/// Whether the cable's port passes, both ways; one side's view is enough for a verdict on it.
fn reachable(context: &Context<'_>) -> Vec<Finding> {
    let ways = [
        (Side::Source, probe::CABLE_THERE, probe::UNDERLAY_THERE),
        (Side::Destination, probe::CABLE_BACK, probe::UNDERLAY_BACK),
    ];
    // Both gateways speak first, so that one open way is enough for a cable: the other may be NAT's.
    let results = ways.map(|(side, cable, _)| {
        let (own, other) = (context.evidence.side(side), context.evidence.side(side.other()));
        datagram(own.gateway(), other.gateway(), context.evidence, cable)
    });
    let mut found = Vec::new();
    for ((side, _, underlay), sent) in ways.into_iter().zip(results) {
        let (own, other) = (context.evidence.side(side), context.evidence.side(side.other()));
        found.extend(blocked_by_filter(context, own, other, side));
        let Some(to) = address(other, own) else { continue };
        let port = port(other, own, "udp-port", 4500);
        match sent {
            Sent::Lost => found.push(lost(context, own, other, to, port, underlay)),
            Sent::Held => {
                let reason = format!(
                    "datagrams to {to}, UDP {port}, do not leave node {}",
                    own.gateway.as_deref().unwrap_or("?")
                );
                let remedy =
                    "look for a filter on its way out: `nft list ruleset`, and for a route: `ip route get`";
                found.push(
                    context.finding(Hop::Cable, Cause::CablePortBlocked, reason).possible().remedy(remedy),
                );
            }
            Sent::Arrived | Sent::Unknown => {}
        }
    }
    // What is certain is a filter that was found; then what was lost.
    found.sort_by_key(|finding| std::cmp::Reverse(finding.certainty));
    found
}

/// A filter on one of the gateways' nodes.
fn blocked_by_filter(context: &Context<'_>, own: &Cluster, other: &Cluster, side: Side) -> Vec<Finding> {
    let Some(place) = Place::gateway(own, side) else { return Vec::new() };
    let ours = port(own, other, "udp-port", 4500);
    let theirs = port(other, own, "udp-port", 4500);
    let endpoint = own.endpoint().and_then(|endpoint| endpoint.private_address().parse().ok());
    let incoming = PacketFacts {
        source: address(other, own),
        destination: endpoint,
        protocol: "udp",
        port: Some(ours),
        ..PacketFacts::default()
    };
    let outgoing = PacketFacts {
        source: endpoint,
        destination: address(other, own),
        port: Some(theirs),
        ..incoming.clone()
    };
    let mut found = Vec::new();
    for (hook, packet) in
        [("prerouting", &incoming), ("input", &incoming), ("output", &outgoing), ("postrouting", &outgoing)]
    {
        let stopping = filters::stopping(place.node, hook, packet).filter(|stopping| stopping.is_certain);
        if stopping.is_some() {
            found.extend(context.filtered(&place, hook, packet, Cause::CablePortBlocked));
        }
    }
    found.into_iter().map(|finding| Finding { hop: Hop::Cable, ..finding }).collect()
}

fn lost(
    context: &Context<'_>,
    own: &Cluster,
    other: &Cluster,
    to: IpAddr,
    port: u16,
    underlay: u16,
) -> Finding {
    let pinged = context.evidence.probe(underlay).map(|report| report.answered() > 0);
    let from = own.gateway.as_deref().unwrap_or("?");
    let seen = format!(
        "a datagram to {to}, UDP {port}, left node {from} and did not arrive at the other gateway's node"
    );
    if let Some(public) = translated(other, to, pinged) {
        let private = other.endpoint().map_or("", |endpoint| endpoint.private_address());
        let reason = format!(
            "{public}, the public address of cluster {}, is NAT's, which does not pass UDP {port} on to its gateway",
            other.id
        );
        let finding = context.finding(Hop::Cable, Cause::NatWithoutPortForward, reason).seen(seen);
        let finding = if to == public {
            finding
        } else {
            finding.seen(format!(
                "{to}, its private address, answers nothing from there, nor does the cable come up"
            ))
        };
        return finding.remedy(format!(
            "forward UDP {port} (and 4490) at the NAT of cluster {} to {private}, or join with a load balancer \
             (`trieste join --load-balancer`)",
            other.id,
        ));
    }
    if pinged == Some(false) {
        let reason = format!("the gateways do not reach each other: {to} answers nothing from node {from}");
        return context.finding(Hop::Cable, Cause::UnderlayUnreachable, reason).seen(seen).remedy(format!(
            "repair the network between {from} and {to} (routes, links, security groups): `ping {to}` on the node"
        ));
    }
    let reason =
        format!("UDP {port} does not pass from node {from} to {to}: something between them drops it");
    let finding = context.finding(Hop::Cable, Cause::CablePortBlocked, reason).seen(seen);
    let finding =
        if pinged == Some(true) { finding.seen(format!("{to} answers pings from there")) } else { finding };
    finding.remedy(format!(
        "let UDP {port} pass to {to}: firewalls between the clusters, security groups of the cloud; `trieste diagnose \
         firewall inter-cluster` tells when it does"
    ))
}

/// The other gateway's public address, if that is another than its own, and what was tried in vain: or its private one
/// was, which nobody outside of the NAT reaches.
fn translated(other: &Cluster, tried: IpAddr, pinged: Option<bool>) -> Option<IpAddr> {
    let endpoint = other.endpoint()?;
    let private: Option<IpAddr> = endpoint.private_address().parse().ok();
    if private != Some(tried) {
        return Some(tried);
    }
    let public: IpAddr = endpoint.public_address().parse().ok()?;
    (public != tried && pinged == Some(false)).then_some(public)
}

/// Whether handshakes fail because the two know different secrets.
fn keys(context: &Context<'_>) -> Vec<Finding> {
    let is_up = |own: &Cluster, other: &Cluster| {
        own.cable(&other.id).is_some_and(|cable| cable.connection.status == ConnectionStatus::Connected)
    };
    let grew: u64 = [context.sender, context.receiver]
        .into_iter()
        .filter_map(|cluster| {
            cluster.gateway()?.grew(|report| Some(drops(report.gateway.as_ref()?, &HANDSHAKE)))
        })
        .sum();
    let is_other = context.evidence.same_preshared_key == Some(false);
    let is_down = !is_up(context.sender, context.receiver) && !is_up(context.receiver, context.sender);
    let fails = is_down && grew > 0;
    if !is_other && !fails {
        return Vec::new();
    }
    let reason = "the two gateways have different preshared keys: their handshakes fail".to_owned();
    let mut finding = context.finding(Hop::Cable, Cause::PresharedKeyMismatch, reason);
    if is_other {
        finding = finding.seen("the Secrets submariner-ipsec-psk of the two clusters differ");
    }
    if grew > 0 {
        finding =
            finding.seen(format!("{grew} handshake messages did not verify while probes were on their way"));
    }
    if !is_other || !is_down {
        finding = finding.possible();
    }
    vec![finding.remedy(
        "join both clusters with the same broker-info.subm (`trieste recover-broker-info`, then `trieste join` again)",
    )]
}

/// Drop reasons of handshakes that do not verify.
const HANDSHAKE: [&str; 2] = ["bad_handshake", "bad_tag"];
/// Drop reasons of packets between pods.
const PACKETS: [(&str, &str); 8] = [
    ("source_not_local", "the source is in none of the networks that the sending cluster publishes"),
    ("source_not_allowed", "the source is in none of the networks that the peer publishes"),
    (
        "destination_not_local",
        "the destination is in none of the networks that the receiving cluster publishes",
    ),
    ("no_route", "no connected cluster has the destination"),
    ("held_expired", "packets waited for a handshake that did not come about"),
    ("tun_write", "the gateway's device refused them"),
    ("no_session", "the session had expired"),
    ("too_big", "they are too big for the path"),
];

fn drops(status: &GatewayStatus, reasons: &[&str]) -> u64 {
    let counts = status.drops.iter().filter(|count| reasons.contains(&count.reason.as_str()));
    counts.map(|count| count.packets).sum()
}

/// What the gateways say that they dropped.
fn dropped(context: &Context<'_>) -> Vec<Finding> {
    let mut found = Vec::new();
    for (cluster, side) in [(context.sender, context.from), (context.receiver, context.from.other())] {
        let (Some(place), Some(node)) = (Place::gateway(cluster, side), cluster.gateway()) else { continue };
        for (reason, words) in PACKETS {
            let grew = node.grew(|report| Some(drops(report.gateway.as_ref()?, &[reason]))).unwrap_or(0);
            if grew == 0 {
                continue;
            }
            let text = format!("the gateway on node {} drops packets: {words}", place.name);
            let finding = context.finding(place.hop, Cause::GatewayDrop, text).possible();
            found.push(
                finding
                    .seen(format!("{grew} packets, reason {reason}, while probes were on their way"))
                    .remedy(format!(
                        "kubectl{} -n {} exec ds/submariner-gateway -- trieste status",
                        cluster.kubectl, cluster.namespace
                    )),
            );
        }
    }
    found
}

/// Nothing explains it: what the cable says of itself.
fn unknown(context: &Context<'_>) -> Finding {
    let connection = context.sender.connection(&context.receiver.id);
    let (status, message) = connection.map_or(("unknown", ""), |connection| {
        (connection.status.as_str(), connection.status_message.as_str())
    });
    let cause = if status == "connected" { Cause::Unexplained } else { Cause::CableDown };
    let reason = format!(
        "packets that enter the gateway of cluster {} do not leave the other one; the cable is {status}",
        context.sender.id
    );
    let finding = context.finding(Hop::Cable, cause, reason).possible();
    let finding = if message.is_empty() { finding } else { finding.seen(message.to_owned()) };
    finding.remedy(format!(
        "kubectl{} -n {} exec ds/submariner-gateway -- trieste status --verbose; run the diagnosis with both clusters' \
         contexts, so that the other gateway is looked at too",
        context.sender.kubectl, context.sender.namespace
    ))
}
