//! Workers' reports of lanes, and the state of cables that follows.

use std::sync::Arc;
use std::time::Instant;

use trieste_cables::{CableEvent, CableStats};
use trieste_control::admin::{CableStatus, DiscoveryStatus, LaneStatus};
use trieste_control::api::{Connection, ConnectionStatus, EndpointSpec};
use trieste_control::connection_status::CableCounters;
use trieste_pipeline::{LaneReport, PathState, owner_of};

use super::ipsec;
use super::{Cable, Engine};
use crate::ike::IkeHandle;
use crate::paths;
use crate::tables::{self, Peer, Row};

/// Returns how often a path has changed since its count was `before`. The count restarts with a new cable.
fn changes(before: u64, now: u64) -> u64 {
    now.checked_sub(before).unwrap_or(now)
}

/// Logs changes of a path's health; those of a flapping path at most once per observation.
fn log_path_change(peer: &Peer, before: Option<&LaneReport>, report: &LaneReport) {
    let Some(health) = &report.health else { return };
    let known = before.filter(|before| before.lane == report.lane).and_then(|before| before.health);
    let changes = changes(known.map_or(0, |known| known.transitions), health.transitions);
    if changes == 0 {
        return;
    }
    let (cluster, gateway, state) = (&peer.facts.cluster_id, &peer.spec.hostname, health.state.as_str());
    let since_ms = health.since.as_millis();
    let timeout_ms = health.timeout.as_millis();
    if health.state == PathState::Down {
        tracing::warn!(%cluster, %gateway, state, changes, since_ms, timeout_ms, "path state changed");
    } else {
        tracing::info!(%cluster, %gateway, state, changes, since_ms, timeout_ms, "path state changed");
    }
}

impl Engine {
    /// Reads the workers' events and reports of lanes. `unix_seconds` is the wall clock.
    pub fn observe(&mut self, now: Instant, unix_seconds: i64) {
        for worker in &self.workers {
            for (lane, event) in worker.take_events() {
                let name = self.by_lane.get(&lane);
                let Some(cable) = name.and_then(|name| self.cables.get_mut(name)) else { continue };
                let cluster = &cable.peer.facts.cluster_id;
                match event {
                    CableEvent::LaneUp => {
                        tracing::info!(%cluster, "cable is up");
                        cable.established = Some(unix_seconds);
                    }
                    CableEvent::Roamed(peer) => {
                        tracing::info!(%cluster, %peer, "peer roamed to another address")
                    }
                    // The shared slow half has logged the reason.
                    CableEvent::Down if self.ike.is_some() => {}
                    CableEvent::Down => {
                        tracing::warn!(%cluster, "no answer from the peer; retrying")
                    }
                }
            }
            for report in worker.published().lanes {
                let name = self.by_lane.get(&report.lane);
                let Some(cable) = name.and_then(|name| self.cables.get_mut(name)) else { continue };
                let last_handshake = report.stats.handshake_age.and_then(|age| now.checked_sub(age));
                let counters = CableCounters {
                    rx_bytes: report.stats.rx_bytes,
                    tx_bytes: report.stats.tx_bytes,
                    last_handshake,
                };
                // Events are bounded; what is up was established, also when its event was pushed out.
                if report.stats.is_up && cable.established.is_none() {
                    cable.established = Some(unix_seconds);
                }
                cable.machine.evaluate(&counters, now);
                log_path_change(&cable.peer, cable.last.as_ref(), &report);
                cable.last = Some(report);
            }
        }
    }

    /// Returns the connections, as published and in detail: those of the cables that carry remote clusters' traffic, one for
    /// each gateway of a cluster that supports several. The health check's part is merged later.
    #[must_use]
    pub fn connections(&self, now: Instant, unix_ms: i64) -> Vec<CableStatus> {
        self.list(true, now, unix_ms)
    }

    /// Returns the other cables: those superseded by a newer one, kept open while their Endpoints exist. Not published, since
    /// upstream has none.
    #[must_use]
    pub fn superseded(&self, now: Instant, unix_ms: i64) -> Vec<CableStatus> {
        self.list(false, now, unix_ms)
    }

    /// Returns the cables to the other gateways of our own cluster. Not published, since upstream has none.
    #[must_use]
    pub fn sibling_connections(&self, now: Instant, unix_ms: i64) -> Vec<CableStatus> {
        let cables = self.siblings().iter().filter_map(|peer| self.cables.get(&peer.facts.cable_name));
        cables.map(|cable| self.connection(cable, now, unix_ms)).collect()
    }

    fn list(&self, carries: bool, now: Instant, unix_ms: i64) -> Vec<CableStatus> {
        let rows = self.rows();
        tables::clusters(&rows.remote)
            .flat_map(|group| {
                let does = |row: &Row| tables::carriers(group).any(|carrier| std::ptr::eq(row, carrier));
                group.iter().filter(move |row| does(row) == carries)
            })
            .filter_map(|row| self.cables.get(&row.peer.facts.cable_name))
            .map(|cable| self.connection(cable, now, unix_ms))
            .collect()
    }

    /// Returns Endpoints that wait for NAT discovery to choose an address, without those that a passive gateway has no cable
    /// to. Not published, as upstream does not.
    #[must_use]
    pub fn pending(&self) -> Vec<CableStatus> {
        let is_pending = |peer: &&Arc<Peer>| !self.choices.contains_key(&peer.facts.cable_name);
        let status = |peer: &Arc<Peer>| CableStatus {
            connection: Connection {
                status: ConnectionStatus::Connecting,
                status_message: "NAT discovery is under way".to_owned(),
                endpoint: peer.spec_by_driver(),
                ..Connection::default()
            },
            discovery: Some(DiscoveryStatus { state: "discovering".to_owned(), message: String::new() }),
            ..CableStatus::default()
        };
        self.own_peers().filter(is_pending).map(status).collect()
    }

    fn connection(&self, cable: &Cable, now: Instant, unix_ms: i64) -> CableStatus {
        let stats = cable.last.map(|report| report.stats).unwrap_or_default();
        let outer = stats.peer.unwrap_or_else(|| cable.peer.address(cable.choice));
        let (checked, rx, tx) = cable.machine.last_checked();
        let age_ms = i64::try_from(now.saturating_duration_since(checked).as_millis()).unwrap_or(i64::MAX);
        let mut endpoint: EndpointSpec = cable.peer.spec_by_driver();
        let kind = self.kind.of(&cable.peer.driver).unwrap_or(&*self.kind);
        let reports = self.ike.as_ref().filter(|_| kind.carries_esp()).map(IkeHandle::reports);
        let ipsec = reports.as_ref().map(|reports| ipsec::status(reports, cable.lane.lane));
        let negotiated = reports.iter().flat_map(|reports| reports.iter());
        let negotiated =
            negotiated.filter(|peer| peer.lane == cable.lane.lane).find_map(|peer| peer.handshake_age);
        let handshake_age = stats.handshake_age.or(negotiated);
        let (status, status_message) = match &ipsec {
            Some(ipsec) => ipsec.evaluate(stats.rx_bytes, stats.tx_bytes),
            None if kind.identifies_by_address() => answering(&stats),
            None => {
                // Upstream's WireGuard driver publishes its counters here (api §8.3).
                endpoint.backend_config.extend([
                    ("ReceiveBytes".to_owned(), rx.to_string()),
                    ("TransmitBytes".to_owned(), tx.to_string()),
                    ("LastChecked".to_owned(), (unix_ms - age_ms).to_string()),
                ]);
                (cable.machine.status(), cable.machine.message().to_owned())
            }
        };
        let connection = Connection {
            status,
            status_message,
            endpoint,
            using_ip: outer.ip().to_canonical().to_string(),
            using_nat: cable.choice.use_nat,
            ..Connection::default()
        };
        let health = cable.last.and_then(|report| report.health);
        let lane = LaneStatus {
            outer_address: Some(outer),
            worker: Some(u32::from(owner_of(cable.lane.lane).0)),
            last_handshake_age_s: handshake_age.map(|age| age.as_secs_f64()),
            rx_bytes: stats.rx_bytes,
            tx_bytes: stats.tx_bytes,
            rx_packets: stats.rx_packets,
            tx_packets: stats.tx_packets,
            path_mtu_bytes: Some(u32::from(
                health.and_then(|health| health.mtu_bytes).unwrap_or(self.local.path_mtu),
            )),
            held_packets: stats.held,
        };
        let path = health.as_ref().map(paths::status);
        CableStatus { connection, lane, ipsec, path, ..CableStatus::default() }
    }
}

/// Returns the state of a cable that has no handshakes: whether its peer answers. Upstream's is always connected.
fn answering(stats: &CableStats) -> (ConnectionStatus, String) {
    match stats.handshake_age {
        _ if stats.is_up => (ConnectionStatus::Connected, "the peer answers".to_owned()),
        None => (ConnectionStatus::Connecting, "no answer from the peer yet".to_owned()),
        Some(age) => {
            (ConnectionStatus::Error, format!("no answer from the peer for {:.1} seconds", age.as_secs_f64()))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_of_a_path_are_counted_also_when_its_cable_is_made_anew() {
        assert_eq!((changes(0, 1), changes(3, 3), changes(3, 5)), (1, 0, 2));
        assert_eq!((changes(3, 0), changes(3, 1)), (0, 1));
    }
}
