//! Reasons on the way between a pod and its cluster's gateway.

use trieste_control::devices::VX_DEVICE;
use trieste_vxlan::VX_PORT;

use super::super::evidence::Side;
use super::super::verdict::{Cause, Finding, Hop};
use super::context::{Context, Place};
use crate::node::PacketFacts;
use crate::node::document::{NodeReport, Route};

/// Sender's node to `vx-submariner`.
pub(super) fn leaves_worker(context: &Context<'_>) -> Vec<Finding> {
    let Some(place) = Place::worker(context.sender, context.from) else { return Vec::new() };
    let mut found = agent(context, &place);
    found.extend(device(context, &place));
    found.extend(worker_route(context, &place));
    let packet = context.packet(place.side, None, Some(VX_DEVICE));
    found.extend(context.filtered(&place, "output", &packet, Cause::FilterDrop));
    found.extend(context.filtered(&place, "postrouting", &packet, Cause::FilterDrop));
    found
}

/// What the pod's packets meet on their node, and probes sent from the node do not.
pub(super) fn only_from_the_pod(context: &Context<'_>) -> Vec<Finding> {
    let Some(place) = Place::worker(context.sender, context.from) else { return Vec::new() };
    if context.sender.pod.host_network {
        return Vec::new();
    }
    let mut found = forwarding(context, &place);
    let to = if context.sender.is_on_gateway() { context.sender.tunnel_device() } else { VX_DEVICE };
    found.extend(context.filtered(
        &place,
        "forward",
        &context.packet(place.side, None, Some(to)),
        Cause::FilterDrop,
    ));
    found
}

/// Out of a node, wrapped: there must be an entry for the next node.
pub(super) fn carried_out(context: &Context<'_>, from: &Place<'_>, to: &Place<'_>, hop: Hop) -> Vec<Finding> {
    let mut found = device(context, from);
    let is_known = |report: &NodeReport| {
        let by_device = report.link(VX_DEVICE).and_then(|link| link.remote);
        let by_entry = report.neighbours.iter().filter_map(|neighbour| neighbour.node);
        by_device.into_iter().chain(by_entry).any(|node| to.node.addresses.contains(&node))
    };
    if !to.node.addresses.is_empty()
        && from.ever(|report| report.link(VX_DEVICE).is_some() && !is_known(report))
    {
        let reason = format!(
            "node {} does not know where node {} is: {VX_DEVICE} has no forwarding entry for it",
            from.name, to.name
        );
        let finding = context.finding(hop, Cause::ForwardingEntryMissing, reason);
        let address = to.node.addresses[0];
        found.push(finding.remedy(format!(
            "the route agent makes the entry: see `{}`. By hand, on node {}: `bridge fdb append 00:00:00:00:00:00 dev \
             {VX_DEVICE} dst {address} self permanent`",
            from.agent_log(),
            from.name
        )));
    }
    let failed = |report: &NodeReport| {
        let failed =
            report.neighbours.iter().find(|neighbour| neighbour.state.iter().any(|state| state == "FAILED"));
        failed.and_then(|neighbour| neighbour.address)
    };
    if let Some(address) = from.node.reports().find_map(failed) {
        let reason = format!("nobody answers for {address} on {VX_DEVICE} of node {}", from.name);
        found.push(
            context.finding(hop, Cause::VxlanPortBlocked, reason).possible().remedy(open_port(from, to)),
        );
    }
    for hook in ["output", "postrouting"] {
        let packet = wrapped(from, to);
        found.extend(
            context
                .filtered(from, hook, &packet, Cause::VxlanPortBlocked)
                .map(|each| Finding { hop, ..each }),
        );
    }
    found
}

/// Between two nodes of one cluster.
pub(super) fn carried_between(
    context: &Context<'_>,
    from: &Place<'_>,
    to: &Place<'_>,
    hop: Hop,
) -> Vec<Finding> {
    let reason = format!(
        "datagrams to UDP {VX_PORT} leave node {} and do not arrive at node {}: something between them drops them",
        from.name, to.name
    );
    let finding = context.finding(hop, Cause::VxlanPortBlocked, reason).possible();
    vec![finding.remedy(open_port(from, to))]
}

/// Into a node, unwrapped.
pub(super) fn carried_in(context: &Context<'_>, from: &Place<'_>, to: &Place<'_>, hop: Hop) -> Vec<Finding> {
    let mut found = device(context, to);
    for hook in ["prerouting", "input"] {
        let packet = wrapped(from, to);
        found.extend(
            context.filtered(to, hook, &packet, Cause::VxlanPortBlocked).map(|each| Finding { hop, ..each }),
        );
    }
    found
}

fn wrapped<'a>(from: &Place<'_>, to: &Place<'_>) -> PacketFacts<'a> {
    PacketFacts {
        source: from.node.addresses.first().copied(),
        destination: to.node.addresses.first().copied(),
        protocol: "udp",
        port: Some(VX_PORT),
        from: None,
        to: None,
    }
}

fn open_port(from: &Place<'_>, to: &Place<'_>) -> String {
    format!(
        "let UDP {VX_PORT} pass between nodes {} and {}: host firewalls, security groups of the cloud. \
         `trieste diagnose firewall intra-cluster{}` tells when it does",
        from.name, to.name, from.cluster.kubectl
    )
}

/// The gateway's node, from wherever the packet enters it, into the gateway's device.
pub(super) fn into_tunnel(context: &Context<'_>) -> Vec<Finding> {
    let Some(place) = Place::gateway(context.sender, context.from) else { return Vec::new() };
    let tunnel = context.sender.tunnel_device();
    let is_local = context.sender.is_on_gateway();
    let mut found = agent(context, &place);
    found.extend(gateway_process(context, &place));
    found.extend(tunnel_device(context, &place, tunnel));
    found.extend(rule(context, &place, 150, "150"));
    found.extend(table_route(context, &place, "150", tunnel));
    if !is_local {
        found.extend(reverse_path(context, &place, VX_DEVICE));
        found.extend(forwarding(context, &place));
    }
    let (hook, from) = if is_local { ("output", None) } else { ("forward", Some(VX_DEVICE)) };
    found.extend(context.filtered(
        &place,
        hook,
        &context.packet(place.side, from, Some(tunnel)),
        Cause::FilterDrop,
    ));
    found
}

/// The other gateway's node, from its device towards the pod's node.
pub(super) fn out_of_tunnel(context: &Context<'_>) -> Vec<Finding> {
    let side = context.from.other();
    let Some(place) = Place::gateway(context.receiver, side) else { return Vec::new() };
    let tunnel = context.receiver.tunnel_device();
    let mut found = device(context, &place);
    found.extend(reverse_path(context, &place, tunnel));
    found.extend(forwarding(context, &place));
    // Where the network plugin delivers there is no such table, on purpose.
    if context.receiver.network_plugin.is_empty() || place.ever(|report| has_rule(report, "149")) {
        found.extend(rule(context, &place, 149, "149"));
        found.extend(table_route(context, &place, "149", VX_DEVICE));
    }
    let packet = context.packet(place.side, Some(tunnel), Some(VX_DEVICE));
    found.extend(context.filtered(&place, "forward", &packet, Cause::FilterDrop));
    // Both look at what comes by a tunnel.
    found.extend(guard(context, &place));
    if let Some(worker) = Place::worker(context.receiver, side) {
        found.extend(guard(context, &worker));
    }
    found
}

/// The pod's node, from wherever the packet enters it, to the pod.
pub(super) fn deliver(context: &Context<'_>) -> Vec<Finding> {
    let side = context.from.other();
    let Some(place) = Place::worker(context.receiver, side) else { return Vec::new() };
    let from = if context.receiver.is_on_gateway() { context.receiver.tunnel_device() } else { VX_DEVICE };
    let mut found = guard(context, &place);
    found.extend(agent(context, &place));
    found.extend(reverse_path(context, &place, from));
    if !context.receiver.pod.host_network {
        found.extend(forwarding(context, &place));
        found.extend(context.filtered(
            &place,
            "forward",
            &context.packet(place.side, Some(from), None),
            Cause::FilterDrop,
        ));
    }
    for hook in ["prerouting", "postrouting"] {
        found.extend(context.filtered(
            &place,
            hook,
            &context.packet(place.side, Some(from), None),
            Cause::FilterDrop,
        ));
    }
    found.extend(policies(context, place.hop, side));
    found
}

/// A network policy, where nothing else explains it.
pub(super) fn policies(context: &Context<'_>, hop: Hop, side: Side) -> Vec<Finding> {
    let cluster = context.evidence.side(side);
    let is_ingress = side != context.from;
    let names: Vec<&str> = cluster
        .policies
        .iter()
        .filter(|policy| if is_ingress { policy.ingress } else { policy.egress })
        .map(|policy| policy.name.as_str())
        .collect();
    if names.is_empty() {
        return Vec::new();
    }
    let direction = if is_ingress { "ingress" } else { "egress" };
    let reason = format!(
        "network policies rule the {direction} of pod {}: {}; none may allow the other cluster's addresses",
        cluster.pod.name,
        names.join(", ")
    );
    let other = context.evidence.side(side.other());
    let networks = other.networks.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
    vec![context.finding(hop, Cause::NetworkPolicy, reason).possible().remedy(format!(
        "allow {networks} (`ipBlock`) in one of them; see `kubectl{} describe networkpolicy -n {}`",
        cluster.kubectl,
        cluster.pod.name.split('/').next().unwrap_or_default()
    ))]
}

fn agent(context: &Context<'_>, place: &Place<'_>) -> Vec<Finding> {
    let Some(problem) = place.node.problem.as_ref().filter(|problem| problem.is_agent_down()) else {
        return Vec::new();
    };
    let reason = format!("no route agent works on node {}: its routes are nobody's", place.name);
    let finding = context.finding(place.hop, Cause::RouteAgentDown, reason).seen(problem.to_string());
    vec![finding.remedy(format!(
        "kubectl{} -n {} get pod -o wide -l app=submariner-routeagent",
        place.cluster.kubectl, place.cluster.namespace
    ))]
}

fn device(context: &Context<'_>, place: &Place<'_>) -> Vec<Finding> {
    let remedy = format!(
        "the route agent makes the device within seconds; if somebody else removes it time after time: `{}`",
        place.agent_log()
    );
    if place.ever(|report| report.link(VX_DEVICE).is_none()) {
        let reason = format!("node {} has no device {VX_DEVICE}", place.name);
        return vec![context.finding(place.hop, Cause::VxlanDeviceMissing, reason).remedy(remedy)];
    }
    if place.ever(|report| report.link(VX_DEVICE).is_some_and(|link| !link.up)) {
        let reason = format!("device {VX_DEVICE} of node {} is switched off", place.name);
        let remedy = format!("on node {}: `ip link set {VX_DEVICE} up`; {remedy}", place.name);
        return vec![context.finding(place.hop, Cause::VxlanDeviceDown, reason).remedy(remedy)];
    }
    Vec::new()
}

fn worker_route(context: &Context<'_>, place: &Place<'_>) -> Vec<Finding> {
    let Some(destination) = context.destination(place.side) else { return Vec::new() };
    let leads = |report: &NodeReport| {
        let route = report.route_to("main", destination);
        route.is_some_and(|route| route.kind == "unicast" && route.device.as_deref() == Some(VX_DEVICE))
    };
    if place.node.before.is_none() || !place.ever(|report| !leads(report)) {
        return Vec::new();
    }
    let seen = place.node.reports().find(|report| !leads(report)).map(|report| {
        let route = report.route_to("main", destination).map_or_else(|| "none".to_owned(), in_words);
        format!("the main table's route to {destination} is: {route}")
    });
    let reason = format!("node {} has no route to {destination} over {VX_DEVICE}", place.name);
    vec![context.finding(place.hop, Cause::RouteMissing, reason).seen_all(seen).remedy(format!(
        "the route agent makes it within seconds; see `{}`, and find out who removes it: on the node `ip monitor route`",
        place.agent_log()
    ))]
}

fn in_words(route: &Route) -> String {
    let via = route.via.map(|via| format!(" via {via}")).unwrap_or_default();
    let device = route.device.as_ref().map(|device| format!(" dev {device}")).unwrap_or_default();
    format!("{} {}{via}{device} metric {}", route.kind, route.destination, route.metric)
}

fn has_rule(report: &NodeReport, table: &str) -> bool {
    report.rules.iter().any(|rule| rule.table == table)
}

fn rule(context: &Context<'_>, place: &Place<'_>, priority: u32, table: &str) -> Vec<Finding> {
    let is_v6 = context.is_v6();
    let is_there =
        |report: &NodeReport| report.rules.iter().any(|rule| rule.table == table && rule.is_v6 == is_v6);
    if !place.ever(|report| !is_there(report)) {
        return Vec::new();
    }
    let reason = format!("node {} lacks the routing rule to table {table}", place.name);
    vec![context.finding(place.hop, Cause::RuleMissing, reason).remedy(format!(
        "the route agent makes rule {priority} within seconds; see `{}`, and find out who removes it (systemd-networkd: \
         `ManageForeignRoutingPolicyRules=no`)",
        place.agent_log()
    ))]
}

fn table_route(context: &Context<'_>, place: &Place<'_>, table: &str, device: &str) -> Vec<Finding> {
    let Some(destination) = context.destination(place.side) else { return Vec::new() };
    let leads = |report: &NodeReport| {
        let route = report.route_to(table, destination);
        route.is_some_and(|route| route.device.as_deref() == Some(device))
    };
    if !place.ever(|report| !leads(report)) {
        return Vec::new();
    }
    let reason = format!("table {table} of node {} has no route to {destination} by {device}", place.name);
    vec![context.finding(place.hop, Cause::RouteMissing, reason).remedy(format!(
        "the route agent makes it within seconds; see `{}` and `ip route show table {table}` on the node",
        place.agent_log()
    ))]
}

/// Whether the gateway's process answers on its node.
pub(super) fn gateway_process(context: &Context<'_>, place: &Place<'_>) -> Vec<Finding> {
    let says = place.node.reports().last().and_then(|report| report.gateway_error.clone());
    let is_gone = place.node.after.as_ref().is_some_and(|report| {
        report.gateway.is_none()
            && report.gateway_error.is_none()
            && place.node.before.as_ref().is_some_and(|b| b.gateway.is_some())
    });
    if says.is_none() && !is_gone {
        return Vec::new();
    }
    let reason = format!("the gateway's process on node {} does not work", place.name);
    vec![context.finding(place.hop, Cause::GatewayDown, reason).seen_all(says).remedy(format!(
        "kubectl{kubectl} -n {namespace} get pod -o wide -l app=submariner-gateway; kubectl{kubectl} -n {namespace} logs \
         -l app=submariner-gateway --previous",
        kubectl = place.cluster.kubectl,
        namespace = place.cluster.namespace
    ))]
}

fn tunnel_device(context: &Context<'_>, place: &Place<'_>, tunnel: &str) -> Vec<Finding> {
    if place.ever(|report| report.link(tunnel).is_none()) {
        let reason = format!(
            "node {} has no device {tunnel}: the gateway has not made it, or somebody removed it",
            place.name
        );
        return vec![context.finding(place.hop, Cause::TunnelDeviceMissing, reason).remedy(format!(
            "restart the gateway: kubectl{} -n {} delete pod -l app=submariner-gateway --field-selector spec.nodeName={}",
            place.cluster.kubectl, place.cluster.namespace, place.name
        ))];
    }
    if place.ever(|report| report.link(tunnel).is_some_and(|link| !link.up)) {
        let reason = format!("device {tunnel} of node {} is switched off", place.name);
        return vec![
            context
                .finding(place.hop, Cause::TunnelDeviceDown, reason)
                .remedy(format!("on node {}: `ip link set {tunnel} up`", place.name)),
        ];
    }
    Vec::new()
}

fn forwarding(context: &Context<'_>, place: &Place<'_>) -> Vec<Finding> {
    let setting = if context.is_v6() { "ipv6/conf/all/forwarding" } else { "ipv4/ip_forward" };
    if !place.ever(|report| report.sysctl(setting) == Some(0)) {
        return Vec::new();
    }
    let name = format!("net.{}", setting.replace('/', "."));
    let reason = format!("node {} does not forward packets: {name} is 0", place.name);
    let remedy =
        format!("on node {}: `sysctl -w {name}=1`, and a file in /etc/sysctl.d that keeps it", place.name);
    vec![context.finding(place.hop, Cause::ForwardingOff, reason).remedy(remedy)]
}

fn reverse_path(context: &Context<'_>, place: &Place<'_>, device: &str) -> Vec<Finding> {
    if !place.ever(|report| report.reverse_path_filter(device) == Some(1)) {
        return Vec::new();
    }
    let dropped = place.grew("IPReversePathFilter");
    let reason = format!(
        "the reverse path filter of {device} on node {} is strict: packets whose way back is another one are dropped",
        place.name
    );
    let finding = context.finding(place.hop, Cause::ReversePathFilter, reason);
    let finding = finding.remedy(format!(
        "on node {}: `sysctl -w net.ipv4.conf.{device}.rp_filter=2` (or 0 for the gateway's device), and find out who \
         sets it: /etc/sysctl.d, the network plugin",
        place.name
    ));
    if dropped > 0 {
        return vec![finding.seen(format!("it dropped {dropped} packets while probes were on their way"))];
    }
    vec![finding.possible()]
}

/// The source guard drops what claims to come from another cluster and enters by no device of ours, and what enters by one
/// from a network that the node has not closed.
fn guard(context: &Context<'_>, place: &Place<'_>) -> Vec<Finding> {
    let grew = |counter: &str| {
        let sum = |report: &NodeReport| {
            let of_both = report.filters.counters.iter();
            let of_both = of_both.filter(|(name, _)| name.trim_end_matches(['4', '6']) == counter);
            Some(of_both.map(|(_, packets)| packets).sum())
        };
        place.node.grew(sum).unwrap_or(0)
    };
    let finding = |(counter, cause, reason, remedy): (&str, Cause, String, String)| {
        let dropped = grew(counter);
        let finding = context.finding(place.hop, cause, reason);
        let finding = finding
            .seen(format!("the source guard dropped {dropped} packets while probes were on their way"));
        (dropped > 0).then(|| finding.possible().remedy(remedy))
    };
    let (node, log) = (&place.name, place.agent_log());
    let forged = (
        "spoofed",
        Cause::SourceGuardDrop,
        format!(
            "node {node} takes packets of the other cluster for forged: they arrive by another device than {VX_DEVICE}"
        ),
        format!("the gateway has to deliver by {VX_DEVICE} (rule 149, table 149 on its node): `{log}`"),
    );
    let unclosed = (
        "unclosed",
        Cause::SourceNotClosed,
        format!(
            "node {node} has not heard of the network that these packets come from: answers could leave in clear"
        ),
        format!("its route agent has to hear of the other cluster: `{log}`"),
    );
    [forged, unclosed].into_iter().filter_map(finding).collect()
}
