//! The verdict: a pure function of the evidence.
//!
//! First what the objects say: without pods, gateways or an Endpoint there is nothing to walk along. Then the probes,
//! there and back: the hop behind the last sight is broken, and the reason is what is wrong on that hop, a certain one
//! before a possible one. A probe that passed everything proves every hop, whatever the state looks like. Without
//! probes state alone judges, and says so.

mod cable;
mod context;
mod filters;
mod legs;
mod objects;
mod quality;

use super::evidence::{Evidence, Side, probe};
use super::trace::{Place as Stop, Trip, trips};
use super::verdict::{Cause, Certainty, Diagnosis, Finding, Health, Hop, HopReport, HopState, Way};
use crate::node::SendReport;
use context::{Context, Place};

/// Judges a connection.
#[must_use]
pub fn judge(evidence: &Evidence) -> Diagnosis {
    let evidence = &with_global_source(evidence);
    let objects = objects::check(evidence);
    let trips = trips(evidence);
    let measured = quality::measure(evidence, &trips[0]);
    let mut findings = objects.clone();
    let works = works(evidence, &trips);
    let verdict = match works {
        Some(true) => None,
        Some(false) | None => broken(evidence, &objects, &trips, &mut findings),
    };
    let warnings = [
        quality::black_hole(evidence),
        quality::masqueraded(evidence, &trips[0]),
        quality::discovery(evidence),
        quality::health(evidence).filter(|_| works == Some(true)),
        quality::broker(evidence).filter(|_| works == Some(true)),
        service(evidence),
    ];
    let warnings: Vec<Finding> = warnings.into_iter().flatten().collect();
    findings.extend(warnings.iter().cloned());
    let (health, verdict) = match verdict {
        Some(finding) => (Health::Broken, Some(prefer_cause(finding, &warnings))),
        None => from_warnings(works, warnings, &objects),
    };
    Diagnosis {
        health,
        hops: hops(&trips[0].evidence, &trips, &findings, verdict.as_ref()),
        verdict,
        measured,
        notes: evidence.notes.clone(),
    }
}

/// Returns the evidence with the address under which the destination's cluster knows the source: Globalnet's gateway there
/// chooses it, and packets show it.
fn with_global_source(evidence: &Evidence) -> Evidence {
    let mut evidence = evidence.clone();
    if evidence.source.is_global {
        let [there, _] = trips(&evidence);
        let arrived = there.stops.iter().filter(|stop| stop.side == Side::Destination);
        evidence.source.pod.outside = arrived.filter_map(|stop| stop.source).next();
    }
    evidence
}

/// Whether packets pass, there and back; `None` where nobody could tell.
fn works(evidence: &Evidence, trips: &[Trip; 2]) -> Option<bool> {
    if let Some(report) = evidence.probe(probe::POD) {
        return Some(report.answered() > 0);
    }
    if evidence.probe(probe::PING).is_none() {
        // A service that has an address of its own and answers is proof enough. One without a pod is refused on the way.
        let has_pods = evidence.service.as_ref().is_some_and(|service| service.ready > 0);
        let report = evidence.probe(probe::SERVICE).filter(|_| has_pods);
        return report.filter(|report| is_answered(report)).map(|_| true);
    }
    let ends = trips.each_ref().map(|trip| trip.stops.last().and_then(|stop| stop.seen));
    match ends {
        [Some(true), Some(true)] => Some(true),
        [Some(false), _] | [_, Some(false)] => Some(false),
        // The destination cannot be looked at: an answer that came back is proof of both ways.
        [_, Some(true)] => Some(true),
        [_, None] => evidence.probe(probe::PING).map(|report| report.answered() > 0),
    }
}

/// The first broken hop. All that is found on the way goes into `findings`.
fn broken(
    evidence: &Evidence,
    objects: &[Finding],
    trips: &[Trip; 2],
    findings: &mut Vec<Finding>,
) -> Option<Finding> {
    if let Some(first) = objects.first() {
        return Some(first.clone());
    }
    // Where nothing was sent, nothing is missed either.
    if evidence.probe(probe::PING).is_none() {
        return by_state(trips, findings);
    }
    for trip in trips {
        let context = Context::new(trip);
        if let Some(missed) = trip.first_missed() {
            let last = trip.last_seen();
            let reasons = (last + 1..=missed).flat_map(|at| explain(&context, trip, at)).collect::<Vec<_>>();
            let best = best(&reasons).unwrap_or_else(|| unexplained(&context, trip, last, missed));
            findings.extend(reasons.into_iter().filter(|reason| *reason != best));
            let best = best.seen_all(last_sight(trip)).seen_all(quality::refusals(evidence));
            findings.push(best.clone());
            return Some(best);
        }
    }
    if evidence.probe(probe::POD).is_some_and(|report| report.answered() == 0) {
        return Some(cut_off(&trips[0], findings));
    }
    by_state(trips, findings)
}

/// Where a probe was seen last, in words.
fn last_sight(trip: &Trip) -> Option<String> {
    let (evidence, stop) = (&trip.evidence, &trip.stops[trip.last_seen()]);
    let what = if trip.way == Way::There { "the probe" } else { "the answer" };
    let cluster = evidence.side(stop.side);
    let worker = cluster.worker.as_deref().unwrap_or("?");
    let gateway = cluster.gateway.as_deref().unwrap_or("?");
    let place = match stop.place {
        Stop::Start => return None,
        Stop::LeavesWorker => format!("leaving node {worker} by vx-submariner"),
        Stop::LeavesCarried => format!("leaving node {worker}, wrapped"),
        Stop::ArrivesCarried => format!("arriving at node {gateway}, wrapped"),
        Stop::EntersGateway => format!("arriving on vx-submariner of node {gateway}"),
        Stop::EntersTunnel => format!("entering the gateway's device on node {gateway}"),
        Stop::LeavesTunnel => format!("leaving the gateway's device on node {gateway}"),
        Stop::LeavesGateway => format!("leaving node {gateway} by vx-submariner"),
        Stop::ForwardedCarried => format!("leaving node {gateway}, wrapped"),
        Stop::ReceivedCarried => format!("arriving at node {worker}, wrapped"),
        Stop::EntersWorker => format!("arriving on vx-submariner of node {worker}"),
        Stop::Delivered => format!("delivered on node {worker}"),
        Stop::Answered => format!("answered on node {worker}"),
    };
    Some(format!("{what} was last seen {place}"))
}

/// Reasons why a trip does not come to a stop.
fn explain(context: &Context<'_>, trip: &Trip, at: usize) -> Vec<Finding> {
    let stop = &trip.stops[at];
    let hop = stop.hop(trip.from);
    let to = trip.from.other();
    let between = |from: Option<Place<'_>>, to: Option<Place<'_>>, with: With| match (from, to) {
        (Some(from), Some(to)) => with(context, &from, &to, hop),
        (None, _) | (_, None) => Vec::new(),
    };
    let sender = || (Place::worker(context.sender, trip.from), Place::gateway(context.sender, trip.from));
    let receiver = || (Place::gateway(context.receiver, to), Place::worker(context.receiver, to));
    let along = |(from, to): (Option<Place<'_>>, Option<Place<'_>>), with: With| between(from, to, with);
    match stop.place {
        Stop::Start => Vec::new(),
        Stop::LeavesWorker => legs::leaves_worker(context),
        Stop::LeavesCarried => along(sender(), legs::carried_out),
        Stop::ArrivesCarried => along(sender(), legs::carried_between),
        Stop::EntersGateway => along(sender(), legs::carried_in),
        Stop::EntersTunnel => legs::into_tunnel(context),
        Stop::LeavesTunnel => cable::explain(context),
        Stop::LeavesGateway => legs::out_of_tunnel(context),
        Stop::ForwardedCarried => along(receiver(), legs::carried_out),
        Stop::ReceivedCarried => along(receiver(), legs::carried_between),
        Stop::EntersWorker => along(receiver(), legs::carried_in),
        Stop::Delivered => legs::deliver(context),
        Stop::Answered => legs::policies(context, hop, to),
    }
}

type With = fn(&Context<'_>, &Place<'_>, &Place<'_>, Hop) -> Vec<Finding>;

/// The first that is certain, else the first.
fn best(reasons: &[Finding]) -> Option<Finding> {
    let certain = reasons.iter().find(|reason| reason.certainty == Certainty::Certain);
    certain.or_else(|| reasons.first()).cloned()
}

/// The hop is known, the reason is not.
fn unexplained(context: &Context<'_>, trip: &Trip, last: usize, missed: usize) -> Finding {
    let stop = &trip.stops[missed];
    let hop = stop.hop(trip.from);
    let cluster = context.evidence.side(stop.side);
    if stop.place == Stop::Answered {
        let reason = format!("{} is reached and does not answer", cluster.pod.name);
        return context.finding(hop, Cause::PodSilent, reason).remedy(format!(
            "does anything in the pod's own network drop it (a service mesh, a policy)? kubectl{} logs, and \
             `trieste node send` beside it",
            cluster.kubectl
        ));
    }
    let reason = match (&trip.stops[last], stop) {
        (from, to) if from.side == to.side => {
            format!(
                "packets are lost at {}, and nothing that can be seen says why",
                hop.title().to_lowercase()
            )
        }
        _ => "packets are lost between the gateways, and nothing that can be seen says why".to_owned(),
    };
    context.finding(hop, Cause::Unexplained, reason).possible().remedy(format!(
        "look at the node itself: `nft monitor trace`, `dropwatch`, the network plugin's log; and tell us: a gather \
         (`trieste gather{}`) has what is needed",
        cluster.kubectl
    ))
}

/// The node reaches everything, the pod beside it nothing.
fn cut_off(there: &Trip, findings: &mut Vec<Finding>) -> Finding {
    let evidence = &there.evidence;
    let context = Context::new(there);
    let mut reasons = legs::only_from_the_pod(&context);
    reasons.extend(legs::policies(&context, Hop::SourceNode, Side::Source));
    let best = best(&reasons).unwrap_or_else(|| {
        let reason = "probes from the source's node pass, those from a pod beside it do not".to_owned();
        context.finding(Hop::SourceNode, Cause::PodCutOff, reason).possible().remedy(format!(
            "look at what the network plugin does between pod and node: policies of its own, `nft list ruleset` on node {}",
            evidence.source.worker.as_deref().unwrap_or("?")
        ))
    });
    findings.extend(reasons.into_iter().filter(|reason| *reason != best));
    findings.push(best.clone());
    best
}

/// No probe tells: the first thing that is certainly wrong.
fn by_state(trips: &[Trip; 2], findings: &mut Vec<Finding>) -> Option<Finding> {
    let mut reasons = Vec::new();
    for trip in trips {
        let context = Context::new(trip);
        if trip.way == Way::There {
            reasons.extend(legs::only_from_the_pod(&context));
        }
        let stops = 1..trip.stops.len();
        let explained = stops.filter(|at| trip.stops[*at].place != Stop::LeavesTunnel);
        reasons.extend(explained.flat_map(|at| explain(&context, trip, at)));
        let is_up = context
            .sender
            .connection(&context.receiver.id)
            .is_some_and(|connection| connection.status == trieste_control::api::ConnectionStatus::Connected);
        if !is_up {
            reasons.extend(cable::explain(&context));
        }
    }
    reasons.retain(|reason| reason.certainty == Certainty::Certain);
    reasons.sort_by_key(|reason| reason.hop);
    findings.extend(reasons.iter().cloned());
    reasons.into_iter().next()
}

/// What is broken may be the consequence of something that only looks like a warning: a source that nobody knows is
/// dropped wherever somebody checks.
fn prefer_cause(verdict: Finding, warnings: &[Finding]) -> Finding {
    let weak = verdict.certainty == Certainty::Possible;
    let dropped = matches!(
        verdict.cause,
        Cause::GatewayDrop | Cause::Unexplained | Cause::CableDown | Cause::PodSilent
    );
    let explains = |cause: Cause| warnings.iter().find(|warning| warning.cause == cause).cloned();
    if let Some(masqueraded) = explains(Cause::SourceMasqueraded).filter(|cause| cause.hop <= verdict.hop) {
        return masqueraded.seen(verdict.reason);
    }
    if weak
        && dropped
        && let Some(discovery) = explains(Cause::NatDiscoveryBlocked)
    {
        return discovery.seen(verdict.reason);
    }
    verdict
}

fn from_warnings(
    works: Option<bool>,
    warnings: Vec<Finding>,
    objects: &[Finding],
) -> (Health, Option<Finding>) {
    let breaks = |finding: &Finding| matches!(finding.cause, Cause::MtuBlackHole | Cause::ServiceUnreachable);
    if let Some(broken) = warnings.iter().find(|finding| breaks(finding)) {
        return (Health::Broken, Some(broken.clone()));
    }
    let first = objects.iter().cloned().chain(warnings).next();
    let health = match (works, &first) {
        (Some(true), None) => Health::Healthy,
        (Some(false), _) => Health::Broken,
        (Some(true) | None, _) => Health::Impaired,
    };
    (health, first)
}

/// Its endpoints answer and the service's own address does not.
fn service(evidence: &Evidence) -> Option<Finding> {
    let (service, report) = (evidence.service.as_ref()?, evidence.probe(probe::SERVICE)?);
    if is_answered(report) {
        return None;
    }
    let why = report.sent.iter().find_map(|packet| packet.refused.clone());
    let (address, port) = (evidence.service_address()?, service.port?);
    let reason = format!("service {} does not answer at {address}, TCP {port}", service.name);
    let finding = Finding::new(Hop::DestinationPod, Cause::ServiceUnreachable, reason).seen_all(why);
    let id = &evidence.destination.id;
    Some(if evidence.destination.is_global {
        finding.remedy(format!(
            "has it a ready back end in cluster {id}, and does anything listen on TCP {port}? \
             `kubectl{kubectl} -n {namespace} exec ds/submariner-gateway -- trieste show globalnet` lists what is translated",
            kubectl = evidence.destination.kubectl,
            namespace = evidence.destination.namespace,
        ))
    } else {
        finding.remedy(format!(
            "is {address} in the service network that cluster {id} publishes, and has the service a ready back end on a node \
             whose RouteAgent object has the annotation trieste.io/services?"
        ))
    })
}

/// Says whether somebody answered a connection, if only to refuse it.
fn is_answered(report: &SendReport) -> bool {
    let is_refused = |why: &String| why.contains("refused");
    report.answered() > 0 || report.sent.iter().filter_map(|packet| packet.refused.as_ref()).any(is_refused)
}

/// Every hop, and what became of it.
fn hops(
    evidence: &Evidence,
    trips: &[Trip; 2],
    findings: &[Finding],
    verdict: Option<&Finding>,
) -> Vec<HopReport> {
    let skipped = |hop: &Hop| {
        (*hop == Hop::SourceVxlan && evidence.source.is_on_gateway())
            || (*hop == Hop::DestinationVxlan && evidence.destination.is_on_gateway())
    };
    let broken = verdict
        .filter(|verdict| works(evidence, trips) != Some(true) || verdict.cause == Cause::MtuBlackHole);
    // By a connection alone, which nobody watched.
    let is_proven = works(evidence, trips) == Some(true) && evidence.probe(probe::PING).is_none();
    let hops = Hop::ALL.iter().copied().filter(|hop| !skipped(hop));
    hops.map(|hop| {
        let mut own: Vec<Finding> = findings.iter().filter(|finding| finding.hop == hop).cloned().collect();
        own.dedup();
        HopReport {
            hop,
            state: state(hop, trips, &own, broken, is_proven),
            detail: detail(evidence, hop),
            findings: own,
        }
    })
    .collect()
}

fn state(
    hop: Hop,
    trips: &[Trip; 2],
    findings: &[Finding],
    broken: Option<&Finding>,
    is_proven: bool,
) -> HopState {
    let is_wrong = findings.iter().any(|finding| finding.certainty == Certainty::Certain);
    if broken.is_some_and(|broken| broken.hop == hop) {
        return HopState::Broken;
    }
    if is_wrong {
        return HopState::Warning;
    }
    let is_object = matches!(hop, Hop::SourcePod | Hop::ClusterSet);
    let passed =
        trips[0].stops.iter().any(|stop| stop.hop(trips[0].from) == hop && trips[0].passed(stop.place));
    if is_object || passed || is_proven {
        return HopState::Good;
    }
    match broken {
        Some(broken) if broken.way == Way::There && broken.hop < hop => HopState::NotReached,
        Some(_) | None => HopState::Unseen,
    }
}

/// Who and what the hop is.
fn detail(evidence: &Evidence, hop: Hop) -> String {
    let node = |name: &Option<String>| {
        name.as_ref().map_or_else(|| "not known".to_owned(), |name| format!("node {name}"))
    };
    let pod = |side: Side| {
        let pod = &evidence.side(side).pod;
        let outside =
            pod.outside.map(|outside| format!(", for other clusters {outside}")).unwrap_or_default();
        match (pod.known, pod.address) {
            (true, Some(address)) => format!("{} ({address}{outside})", pod.name),
            (_, _) => format!("{}{outside}", pod.name),
        }
    };
    let (source, destination) = (&evidence.source, &evidence.destination);
    match hop {
        Hop::SourcePod => pod(Side::Source),
        Hop::ClusterSet => format!("{} and {}", or_unknown(&source.id), or_unknown(&destination.id)),
        Hop::SourceNode => node(&source.worker),
        Hop::SourceVxlan => format!("{} to {}", node(&source.worker), node(&source.gateway)),
        Hop::SourceGateway => node(&source.gateway),
        Hop::Cable => {
            let connection = source.connection(&destination.id);
            connection.map_or_else(String::new, |connection| {
                format!("{} to {}, {}", connection.endpoint.backend, connection.using_ip, connection.status)
            })
        }
        Hop::DestinationGateway => node(&destination.gateway),
        Hop::DestinationVxlan => format!("{} to {}", node(&destination.gateway), node(&destination.worker)),
        Hop::DestinationNode => node(&destination.worker),
        Hop::DestinationPod => match &evidence.service {
            Some(service) => {
                let outside = service.outside.map(|outside| format!(" at {outside}")).unwrap_or_default();
                format!("service {}{outside}, {}", service.name, pod(Side::Destination))
            }
            None => pod(Side::Destination),
        },
    }
}

fn or_unknown(id: &str) -> &str {
    if id.is_empty() { "an unknown cluster" } else { id }
}

#[cfg(test)]
mod tests;
