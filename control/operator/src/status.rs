//! The status of an object: a function of what was reported, of the sets of pods, and of what gateways publish.

mod tkestack;
mod upstream;

use jiff::Timestamp;
use trieste_control::api::{
    CloudPrepareConfig, Condition, ConditionStatus, ConnectionStatus, FabricGateway, FabricPhase,
    FabricStatus, Gateway, HaStatus, Object,
};

use crate::order::{Facts, Outcome, Part, Report};
use crate::source::{Content, Source};
pub(crate) use tkestack::of_tkestack;
pub(crate) use upstream::of_upstream;

/// The condition that the broker is there and its join data published.
pub(crate) const BROKER_READY: &str = "BrokerReady";
/// The condition that the cloud lets pass what has to, and that there are machines for gateways.
pub(crate) const CLOUD_PREPARED: &str = "CloudPrepared";
/// The condition that the cluster has joined.
pub(crate) const JOINED: &str = "Joined";
/// The condition that service discovery was installed by itself.
pub(crate) const SERVICE_DISCOVERY_READY: &str = "ServiceDiscoveryReady";
/// The condition that everything that is wanted runs.
pub(crate) const READY: &str = "Ready";
/// The condition that somebody else writes objects of the operator again and again.
pub(crate) const CONTESTED: &str = "Contested";
/// The condition that something works, but somebody should see to it.
pub(crate) const WARNINGS: &str = "Warnings";

/// The most objects that a message names.
const MOST: usize = 8;

/// What a status is made of.
#[derive(Debug)]
pub(crate) struct View<'v> {
    pub(crate) source: &'v Source,
    /// Which object has each part.
    pub(crate) holders: [Option<&'v Source>; 4],
    /// The newest report about each part.
    pub(crate) reports: [Option<&'v Report>; 4],
    /// The sets of pods in the member's namespace.
    pub(crate) sets: Vec<PodSet>,
    /// The DaemonSets there.
    pub(crate) daemon_sets: Vec<&'v Object>,
    /// The gateways; `None` while they cannot be read.
    pub(crate) gateways: Option<Vec<Gateway>>,
}

/// How far a DaemonSet or Deployment is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PodSet {
    pub(crate) name: String,
    pub(crate) wanted: u64,
    pub(crate) ready: u64,
    pub(crate) is_ready: bool,
}

/// What a condition says.
struct Verdict {
    status: ConditionStatus,
    reason: &'static str,
    message: String,
}

impl Verdict {
    fn new(status: ConditionStatus, reason: &'static str, message: impl Into<String>) -> Self {
        Self { status, reason, message: message.into() }
    }
}

/// What there is to say of an object's parts, and of all of them.
struct Verdicts {
    parts: Vec<(Part, Verdict)>,
    ready: Verdict,
}

fn verdicts(view: &View<'_>) -> Verdicts {
    let parts: Vec<(Part, Verdict)> =
        Part::ALL.iter().filter_map(|part| Some((*part, verdict(view, *part)?))).collect();
    Verdicts { ready: readiness(view, &parts), parts }
}

/// Returns a Fabric's status; times of conditions that say what they said before stay.
pub(crate) fn of(view: &View<'_>, before: &FabricStatus, now: Timestamp) -> FabricStatus {
    let verdicts = verdicts(view);
    let mut status = FabricStatus {
        phase: phase(view, &verdicts),
        observed_generation: view.source.metadata.generation,
        version: Some(env!("CARGO_PKG_VERSION").to_owned()),
        ..FabricStatus::default()
    };
    for part in Part::ALL {
        fill(&mut status, before, view, part);
    }
    status.conditions = conditions(view, verdicts, &before.conditions, now);
    status
}

/// Returns an object's conditions.
fn conditions(view: &View<'_>, verdicts: Verdicts, before: &[Condition], now: Timestamp) -> Vec<Condition> {
    let kinds = verdicts.parts.into_iter().map(|(part, verdict)| (kind(part), verdict));
    let contested = contested(view).map(|verdict| (CONTESTED, verdict));
    let warned = warned(view).map(|verdict| (WARNINGS, verdict));
    let all = kinds.chain(contested).chain(warned).chain([(READY, verdicts.ready)]);
    let generation = view.source.metadata.generation;
    all.map(|(kind, verdict)| condition(kind, &verdict, before, generation, now)).collect()
}

const fn kind(part: Part) -> &'static str {
    match part {
        Part::Broker => BROKER_READY,
        Part::Cloud => CLOUD_PREPARED,
        Part::Member => JOINED,
        Part::ServiceDiscovery => SERVICE_DISCOVERY_READY,
    }
}

const fn index(part: Part) -> usize {
    match part {
        Part::Broker => 0,
        Part::Cloud => 1,
        Part::Member => 2,
        Part::ServiceDiscovery => 3,
    }
}

fn report<'v>(view: &View<'v>, part: Part) -> Option<&'v Report> {
    view.reports.get(index(part)).copied().flatten()
}

fn facts<'v>(view: &View<'v>, part: Part) -> Option<&'v Facts> {
    match &report(view, part)?.outcome {
        Outcome::Installed(facts) => Some(facts),
        Outcome::Removed | Outcome::Free | Outcome::Chosen(_) | Outcome::Waiting(_) | Outcome::Failed(_) => {
            None
        }
    }
}

fn is_begun(view: &View<'_>, part: Part) -> bool {
    view.source.has_begun(part)
}

/// Returns what is to be said of a part; `None` where there is nothing of it and is to be nothing.
fn verdict(view: &View<'_>, part: Part) -> Option<Verdict> {
    use ConditionStatus::{False, True, Unknown};
    let is_wanted = view.source.wants(part);
    if !is_wanted && !is_begun(view, part) {
        return None;
    }
    if let Some(other) = carried_out_by(view, part) {
        return Some(other);
    }
    let cloud = view.holders.get(index(Part::Cloud)).copied().flatten();
    if part == Part::Member && view.source.prepares_cloud_first(cloud) {
        let message = "the cloud is prepared first: the condition CloudPrepared says how far that is";
        return Some(Verdict::new(Unknown, "WaitingForCloud", message));
    }
    let now = report(view, part).filter(|report| Some(report.generation) == view.source.metadata.generation);
    let outcome = now.map(|report| &report.outcome);
    Some(match (is_wanted, outcome) {
        (true, Some(Outcome::Installed(facts))) => match &facts.awaits {
            Some(why) => Verdict::new(Unknown, why.reason, why.message.clone()),
            None => Verdict::new(True, "Installed", "it is as the spec says"),
        },
        (_, Some(Outcome::Failed(why) | Outcome::Waiting(why))) => {
            Verdict::new(False, why.reason, why.message.clone())
        }
        (true, Some(Outcome::Removed | Outcome::Free | Outcome::Chosen(_)) | None) => {
            Verdict::new(Unknown, "InProgress", "it is being carried out")
        }
        (
            false,
            Some(Outcome::Installed(_) | Outcome::Removed | Outcome::Free | Outcome::Chosen(_)) | None,
        ) => Verdict::new(False, "Removing", "it is being removed"),
    })
}

/// Returns that another object has the part, if one has.
fn carried_out_by(view: &View<'_>, part: Part) -> Option<Verdict> {
    use ConditionStatus::{False, True};
    let member = view.holders.get(index(Part::Member)).copied().flatten();
    if let Some(member) = member.filter(|_| part == Part::ServiceDiscovery) {
        return Some(match &member.content {
            Content::Submariner(spec) if spec.service_discovery_enabled == Some(true) => Verdict::new(
                True,
                "CarriedOutWithMember",
                format!(
                    "{} switches service discovery on: it goes by that, and not by what is here",
                    member.key
                ),
            ),
            Content::Submariner(_) => {
                Verdict::new(True, "CarriedOutWithMember", format!("it is carried out with {}", member.key))
            }
            Content::Fabric(_) | Content::Broker(_) | Content::ServiceDiscovery(_) | Content::Tkestack(_) => {
                Verdict::new(
                    False,
                    "HeldByAnother",
                    format!("{} has the member, and service discovery with it", member.key),
                )
            }
        });
    }
    let other = view.holders.get(index(part)).copied().flatten();
    let other = other.filter(|other| other.key != view.source.key)?;
    let message = format!(
        "a cluster has one {}, and {} has it: take the part out of one of the two",
        part.noun(),
        other.key
    );
    Some(Verdict::new(False, "HeldByAnother", message))
}

/// Returns whether everything that is wanted runs.
fn readiness(view: &View<'_>, parts: &[(Part, Verdict)]) -> Verdict {
    use ConditionStatus::{False, True, Unknown};
    if view.source.metadata.is_terminating() {
        return Verdict::new(False, "Removing", format!("the {} was deleted", view.source.key.kind));
    }
    for wanted in [False, Unknown] {
        if let Some((part, verdict)) = parts.iter().find(|(_, verdict)| verdict.status == wanted) {
            let message = format!("{}: {}", kind(*part), verdict.message);
            return Verdict::new(wanted, verdict.reason, message);
        }
    }
    if parts.is_empty() {
        return Verdict::new(Unknown, "InProgress", "nothing was begun yet");
    }
    let has = |wanted: Part| parts.iter().any(|(part, _)| *part == wanted);
    if !has(Part::Member) && !has(Part::ServiceDiscovery) {
        let message = match (has(Part::Broker), has(Part::Cloud)) {
            (true, true) => "the broker is there, and the cloud is prepared",
            (false, true) => "the cloud is prepared",
            (true | false, false) => "the broker is there",
        };
        return Verdict::new(True, "Ready", message);
    }
    let late: Vec<String> = view
        .sets
        .iter()
        .filter(|set| !set.is_ready)
        .take(MOST)
        .map(|set| format!("{} ({} of {})", set.name, set.ready, set.wanted))
        .collect();
    if !late.is_empty() {
        return Verdict::new(False, "PodsNotReady", format!("not all pods are ready: {}", late.join(", ")));
    }
    if !has(Part::Member) {
        return Verdict::new(True, "Ready", "all pods are ready");
    }
    let Some(gateways) = &view.gateways else {
        return Verdict::new(Unknown, "GatewaysUnread", "the Gateway objects cannot be read at present");
    };
    if !gateways.iter().any(|gateway| gateway.status.ha_status == HaStatus::Active) {
        let message =
            "no gateway is active: is a node labelled submariner.io/gateway=true, and its pod ready?";
        return Verdict::new(False, "NoActiveGateway", message);
    }
    Verdict::new(True, "Ready", "all pods are ready, and a gateway is active")
}

fn phase(view: &View<'_>, Verdicts { parts, ready }: &Verdicts) -> FabricPhase {
    let is_leaving = |part: &Part| is_begun(view, *part) && !view.source.wants(*part);
    if view.source.metadata.is_terminating() || Part::ALL.iter().any(is_leaving) {
        return FabricPhase::Removing;
    }
    if parts.iter().any(|(_, verdict)| verdict.status == ConditionStatus::False) {
        return FabricPhase::Failed;
    }
    match ready.status {
        ConditionStatus::True => FabricPhase::Running,
        ConditionStatus::False => FabricPhase::Deploying,
        ConditionStatus::Unknown if Part::ALL.iter().any(|part| is_begun(view, *part)) => {
            FabricPhase::Deploying
        }
        ConditionStatus::Unknown => FabricPhase::Pending,
    }
}

/// Fills in what is known of a part: what the last pass found out, or what was there before while there is none.
fn fill(status: &mut FabricStatus, before: &FabricStatus, view: &View<'_>, part: Part) {
    if !is_begun(view, part) {
        return;
    }
    let facts = facts(view, part);
    match part {
        Part::Broker => {
            let found = facts.map(|facts| facts.broker_info.clone());
            status.broker_info = found.unwrap_or_else(|| before.broker_info.clone());
        }
        Part::Cloud => status.cloud = cloud(before, report(view, part)),
        Part::Member => {
            let source = facts.and_then(|facts| facts.join_info.clone());
            status.join_info = source.or_else(|| before.join_info.clone());
            let facts = facts.cloned().unwrap_or_else(|| Facts {
                broker: before.broker.clone(),
                cluster_id: before.cluster_id.clone(),
                networks: before.networks.clone(),
                ..Facts::default()
            });
            (status.broker, status.cluster_id, status.networks) =
                (facts.broker, facts.cluster_id, facts.networks);
            let read = view.gateways.as_ref().map(|gateways| gateways.iter().map(glance).collect());
            status.gateways = read.unwrap_or_else(|| before.gateways.clone());
        }
        // No Fabric has it.
        Part::ServiceDiscovery => {}
    }
}

/// Returns what is, or may be, prepared in the cloud: it is there before anything is done there, and until nothing is left of it.
fn cloud(before: &FabricStatus, report: Option<&Report>) -> Option<CloudPrepareConfig> {
    match report.map(|report| &report.outcome) {
        Some(Outcome::Chosen(config)) => Some(config.as_ref().clone()),
        Some(Outcome::Installed(facts)) => facts.cloud.clone(),
        Some(Outcome::Removed) => None,
        Some(Outcome::Free | Outcome::Waiting(_) | Outcome::Failed(_)) | None => before.cloud.clone(),
    }
}

/// Returns a gateway at a glance.
fn glance(gateway: &Gateway) -> FabricGateway {
    let connections = &gateway.status.connections;
    let connected = connections.iter().filter(|connection| connection.status == ConnectionStatus::Connected);
    let number = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
    FabricGateway {
        name: gateway.metadata.name.clone(),
        ha_status: gateway.status.ha_status.to_string(),
        connected: number(connected.count()),
        connections: number(connections.len()),
    }
}

/// Returns that somebody else writes what the operator writes, if that is so.
fn contested(view: &View<'_>) -> Option<Verdict> {
    let all: Vec<&str> = Part::ALL
        .iter()
        .filter_map(|part| facts(view, *part))
        .flat_map(|facts| facts.contested.iter().map(String::as_str))
        .take(MOST)
        .collect();
    let message = format!(
        "somebody else writes these again and again, let one of the two have them: {}",
        all.join("; ")
    );
    (!all.is_empty()).then(|| Verdict::new(ConditionStatus::True, "AnotherWriter", message))
}

/// Returns what somebody should see to, if there is anything.
fn warned(view: &View<'_>) -> Option<Verdict> {
    let all: Vec<&str> = Part::ALL
        .iter()
        .filter_map(|part| facts(view, *part))
        .flat_map(|facts| facts.warnings.iter().map(String::as_str))
        .take(MOST)
        .collect();
    (!all.is_empty()).then(|| Verdict::new(ConditionStatus::True, "SeeMessage", all.join("; ")))
}

fn condition(
    kind: &str,
    verdict: &Verdict,
    before: &[Condition],
    generation: Option<i64>,
    now: Timestamp,
) -> Condition {
    let known = before.iter().find(|known| known.kind == kind);
    let since = known.filter(|known| known.status == verdict.status).map(|known| known.last_transition_time);
    // The API keeps seconds.
    let now = Timestamp::from_second(now.as_second()).unwrap_or(now);
    Condition {
        kind: kind.to_owned(),
        status: verdict.status,
        observed_generation: generation,
        last_transition_time: since.unwrap_or(now),
        reason: verdict.reason.to_owned(),
        message: verdict.message.chars().take(4096).collect(),
        extra: serde_json::Map::default(),
    }
}
