//! The control plane: stores, election, syncer, NAT discovery, health check, conditions and events.

use jiff::Timestamp;
use trieste_control::admin::{BrokerLink, BrokerStatus, GatewayStatus};
use trieste_control::api::GoDuration;
use trieste_control::exposition::{Family, Page};
use trieste_control::natdiscovery::{Counters, Outcome};
use trieste_control::sync::SyncStats;

use crate::notice::NoticeNumbers;

use super::extra::MetricsExtra;
use super::ours::{counter, gauge};

/// Every state of a store, `none` first.
const LINKS: [BrokerLink; 5] =
    [BrokerLink::None, BrokerLink::Connecting, BrokerLink::Synced, BrokerLink::Away, BrokerLink::Standby];
/// Every state of a cable's address.
const DISCOVERED: [&str; 6] = ["discovering", "private", "public", "fallback", "provisional", "remembered"];

/// Adds the states of the own store and the broker, and requests to API servers.
pub(super) fn stores(page: &mut Page, status: &GatewayStatus, extra: &MetricsExtra) {
    let mut broker =
        gauge("trieste_broker_state", "The broker's state: 1 for the present one, 0 for the others");
    set_states(&mut broker, &status.broker);
    page.add(broker);
    if let Some(since) = status.broker.since {
        page.add(
            gauge(
                "trieste_broker_state_since_seconds",
                "Since when the broker is in its present state, in Unix time",
            )
            .with(since.as_duration().as_secs_f64()),
        );
    }
    page.add(
        gauge("trieste_broker_away_seconds", "For how long the broker has been away; 0 if it is not")
            .with(away_seconds(&status.broker, extra.now)),
    );
    let mut store = gauge(
        "trieste_store_state",
        "The state of this cluster's own store: 1 for the present one, 0 for the others",
    );
    set_states(&mut store, &status.store);
    page.add(store);
    page.add(
        gauge(
            "trieste_store_away_seconds",
            "For how long this cluster's own store has been away; 0 if it is not",
        )
        .with(away_seconds(&status.store, extra.now)),
    );
    let mut requests =
        counter("trieste_api_requests_total", "Requests to an API server, by store, verb and outcome");
    for (store, counts) in &extra.requests {
        for (verb, outcome, count) in counts.iter() {
            let labels = [("store", *store), ("verb", verb.as_str()), ("outcome", outcome.as_str())];
            requests.set(&labels, count);
        }
    }
    page.add(requests);
}

fn set_states(family: &mut Family, link: &BrokerStatus) {
    for state in LINKS {
        family.set(&[("state", state.as_str())], state == link.state);
    }
}

fn away_seconds(link: &BrokerStatus, now: Timestamp) -> f64 {
    match link.since {
        Some(since) if link.state == BrokerLink::Away => now.duration_since(since).as_secs_f64().max(0.0),
        Some(_) | None => 0.0,
    }
}

/// Adds the election.
pub(super) fn election(page: &mut Page, status: &GatewayStatus, extra: &MetricsExtra) {
    if let Some(election) = &status.election {
        page.add(
            gauge("trieste_leader", "Whether this gateway leads its cluster's gateways")
                .with(election.is_leader),
        );
        page.add(
            gauge("trieste_lease_transitions", "How often the Lease has changed hands: the term's number")
                .with(u64::try_from(election.term).unwrap_or_default()),
        );
        page.add(
            gauge("trieste_election_failing", "Whether the Lease could not be read or written the last time")
                .with(election.error.is_some()),
        );
    }
    let mut changes =
        counter("trieste_leadership_changes_total", "Times that this gateway has taken and lost the lead");
    for (change, reason) in [("acquired", "LeadershipAcquired"), ("lost", "LeadershipLost")] {
        let count: u64 =
            extra.events.iter().filter(|((name, _), _)| name == reason).map(|(_, count)| count).sum();
        changes.set(&[("change", change)], count);
    }
    page.add(changes);
}

/// Adds the counters of the syncers between own store and broker.
pub(super) fn sync(page: &mut Page, stats: &SyncStats) {
    for (name, help, count) in [
        ("trieste_sync_events_total", "Events of both stores that were synced; a list is one", stats.events),
        ("trieste_sync_decisions_total", "Objects that the syncer has decided about", stats.decisions),
        (
            "trieste_sync_judgements_total",
            "Endpoints that the syncer has compared with others' claims",
            stats.judgements,
        ),
        ("trieste_sync_races_total", "Writes that somebody else was faster than", stats.races),
        (
            "trieste_sync_failures_total",
            "Writes that a store failed to answer or did not allow",
            stats.failures,
        ),
        (
            "trieste_sync_postponed_total",
            "Writes put off because somebody else keeps undoing them",
            stats.write_conflicts,
        ),
    ] {
        page.add(counter(name, help).with(count));
    }
    let mut writes =
        counter("trieste_sync_writes_total", "Writes of the syncer, by store, failed ones included");
    writes.set(&[("store", "local")], stats.local_writes);
    writes.set(&[("store", "broker")], stats.broker_writes);
    page.add(writes);
}

/// Adds NAT discovery: selected addresses, and datagrams.
pub(super) fn discovery(page: &mut Page, status: &GatewayStatus, counters: &Counters) {
    let mut cables =
        gauge("trieste_nat_discovery_cables", "Cables, by how their peers' addresses were found");
    for state in DISCOVERED {
        let is_so = |cable: &&trieste_control::admin::CableStatus| {
            cable.discovery.as_ref().is_some_and(|discovery| discovery.state == state)
        };
        let count = status.connections.iter().filter(is_so).count();
        cables.set(&[("state", state)], u64::try_from(count).unwrap_or(u64::MAX));
    }
    page.add(cables);
    let mut received = counter(
        "trieste_nat_discovery_datagrams_total",
        "NAT discovery datagrams received, by what became of them",
    );
    for outcome in Outcome::ALL {
        received.set(&[("outcome", outcome.as_str())], counters.received(outcome));
    }
    page.add(received);
    for (name, help, count) in [
        ("trieste_nat_discovery_requests_total", "NAT discovery requests sent", counters.requests),
        (
            "trieste_nat_discovery_unroutable_total",
            "NAT discovery requests not sent because there was no route",
            counters.unroutable,
        ),
        (
            "trieste_nat_discovery_discarded_total",
            "NAT discovery answers discarded because too many were waiting to be sent",
            counters.overflow,
        ),
    ] {
        page.add(counter(name, help).with(count));
    }
}

/// Adds the notices to route agents.
pub(super) fn notices(page: &mut Page, numbers: NoticeNumbers) {
    let sent = counter("trieste_notices_sent_total", "Notices, challenges included, sent to route agents");
    page.add(sent.with(numbers.sent));
    let failed = counter("trieste_notices_failed_total", "Notices that the kernel did not take");
    page.add(failed.with(numbers.failed));
    let agents = gauge("trieste_notice_agents", "Route agents that are told which gateways live");
    page.add(agents.with(u64::try_from(numbers.agents).unwrap_or(u64::MAX)));
}

/// Adds the health check of each peer.
pub(super) fn health(page: &mut Page, status: &GatewayStatus) {
    let mut up = gauge("trieste_health_check_up", "Whether the peer of a cable answers pings");
    let mut sent = counter("trieste_health_check_sent_total", "Pings sent to the peer of a cable");
    let mut received =
        counter("trieste_health_check_received_total", "Pings that the peer of a cable has answered");
    let mut loss = gauge(
        "trieste_health_check_loss_ratio",
        "Share of the pings that were not answered, since the cable is there",
    );
    let mut times = gauge("trieste_health_check_round_trip_seconds", "Round trips of pings, by statistic");
    for cable in &status.connections {
        let Some(health) = &cable.health else { continue };
        let endpoint = &cable.connection.endpoint;
        let labels =
            [("cable", endpoint.cable_name.as_str()), ("remote_cluster", endpoint.cluster_id.as_str())];
        up.set(&labels, health.status == "connected");
        sent.set(&labels, health.sent);
        received.set(&labels, health.received);
        if let Some(ratio) = loss_ratio(health.sent, health.received) {
            loss.set(&labels, ratio);
        }
        let Some(round_trip) = &cable.connection.latency_rtt else { continue };
        for (statistic, text) in [
            ("last", &round_trip.last),
            ("min", &round_trip.min),
            ("average", &round_trip.average),
            ("max", &round_trip.max),
            ("stddev", &round_trip.std_dev),
        ] {
            if let Some(seconds) = seconds(text) {
                times.set(&[labels[0], labels[1], ("statistic", statistic)], seconds);
            }
        }
    }
    for family in [up, sent, received, loss, times] {
        page.add(family);
    }
}

/// Returns the loss ratio without the last ping, which may still be answered.
fn loss_ratio(sent: u64, received: u64) -> Option<f64> {
    let settled = sent.checked_sub(1).filter(|settled| *settled > 0)?.max(received);
    Some((settled - received) as f64 / settled as f64)
}

fn seconds(text: &str) -> Option<f64> {
    let duration: GoDuration = text.parse().ok()?;
    let nanoseconds = u64::try_from(duration.as_nanos()).ok()?;
    Some(std::time::Duration::from_nanos(nanoseconds).as_secs_f64())
}

/// Adds conditions, events, and the source of the start.
pub(super) fn state(page: &mut Page, status: &GatewayStatus, extra: &MetricsExtra) {
    let mut conditions = gauge("trieste_conditions", "Conditions at present, by name and severity");
    let mut counts = std::collections::BTreeMap::new();
    for condition in &status.conditions {
        *counts.entry((condition.name.as_str(), condition.severity.as_str())).or_insert(0u64) += 1;
    }
    for ((name, severity), count) in counts {
        conditions.set(&[("condition", name), ("severity", severity)], count);
    }
    page.add(conditions);
    let mut events = counter("trieste_events_total", "Things that have happened, by reason and severity");
    for ((reason, severity), count) in &extra.events {
        events.set(&[("reason", reason), ("severity", severity.as_str())], *count);
    }
    page.add(events);
    page.add(
        gauge("trieste_public_ip_known", "Whether this gateway publishes a public address")
            .with(!status.endpoint.public_address().is_empty()),
    );
    page.add(
        gauge(
            "trieste_started_from_memory",
            "Whether this process could start from remembered peers, before any store had answered",
        )
        .with(extra.started_from_memory),
    );
}
