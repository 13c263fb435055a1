//! The cables as they were observed last: cheap to take, and made into the status document's entries when somebody reads
//! that.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;

use trieste_cables::ipsec::ike::PeerReport;
use trieste_cables::{CableKind, CableStats};
use trieste_control::admin::{CableStatus, DiscoveryStatus, LaneStatus};
use trieste_control::api::{Connection, ConnectionStatus, EndpointSpec};
use trieste_control::connection_status::StatusMachine;
use trieste_control::health::{self, PingerStatus};
use trieste_packet::CableId;
use trieste_pipeline::{LaneReport, owner_of};

use super::cables::{Cable, Standing};
use super::{Engine, ipsec};
use crate::ike::IkeHandle;
use crate::paths;
use crate::tables::{self, Choice, Lane, Peer, Row};

/// One cable as it was observed last.
#[derive(Debug, Clone)]
struct CableState {
    peer: Arc<Peer>,
    choice: Choice,
    lane: Lane,
    machine: StatusMachine,
    last: Option<LaneReport>,
}

impl From<&Cable> for CableState {
    fn from(cable: &Cable) -> Self {
        let Cable { peer, choice, lane, machine, last, .. } = cable;
        Self { peer: Arc::clone(peer), choice: *choice, lane: *lane, machine: *machine, last: *last }
    }
}

impl CableState {
    /// Returns where packets for the peer go.
    fn outer(&self) -> SocketAddr {
        let known = self.last.and_then(|report| report.stats.peer);
        known.unwrap_or_else(|| self.peer.address(self.choice))
    }

    /// Returns whether the peer answers, and whether it ever has.
    fn answers(&self) -> (bool, bool) {
        self.last.map_or((false, false), |report| (report.stats.is_up, report.stats.handshake_age.is_some()))
    }
}

/// All cables at one moment.
pub struct CableStates {
    kind: Arc<dyn CableKind>,
    path_mtu: u16,
    now: Instant,
    unix_ms: i64,
    /// Reports of the slow half that all cables share, by lane.
    reports: Option<Arc<Vec<PeerReport>>>,
    connections: Vec<CableState>,
    siblings: Vec<CableState>,
    pending: Arc<[Arc<Peer>]>,
}

impl Engine {
    /// Returns all cables as they are at present: of those to remote clusters the ones that carry their traffic, one for each
    /// gateway of a cluster that supports several. Others are superseded by a newer one, and kept open while their Endpoints
    /// exist; upstream has none.
    #[must_use]
    pub fn cable_states(&self, now: Instant, unix_ms: i64) -> CableStates {
        let Standing { connections, siblings, pending } = self.standing.get_or_init(|| self.stand());
        CableStates {
            kind: Arc::clone(&self.kind),
            path_mtu: self.local.path_mtu,
            now,
            unix_ms,
            reports: self.ike.as_ref().map(IkeHandle::reports),
            connections: self.states_of(connections),
            siblings: self.states_of(siblings),
            pending: Arc::clone(pending),
        }
    }

    /// Finds out which cables and gateways the status is about.
    fn stand(&self) -> Standing {
        let siblings = self.siblings().iter().filter_map(|peer| self.cables.row(&peer.facts.cable_name));
        let is_pending = |peer: &&Arc<Peer>| !self.choices.contains_key(&peer.facts.cable_name);
        Standing {
            connections: self.remote_cables(true),
            siblings: siblings.collect(),
            pending: self.own_peers().filter(is_pending).cloned().collect(),
        }
    }

    /// Returns the rows of the cables that carry remote clusters' traffic, or of the others.
    fn remote_cables(&self, carries: bool) -> Vec<CableId> {
        let rows = self.remote_rows();
        let cables = tables::clusters(&rows).flat_map(|group| {
            let does = |row: &Row| tables::carriers(group).any(|carrier| std::ptr::eq(row, carrier));
            group.iter().filter(move |row| does(row) == carries)
        });
        cables.filter_map(|row| Some(row.lane?.cable)).collect()
    }

    fn states_of(&self, rows: &[CableId]) -> Vec<CableState> {
        rows.iter().filter_map(|row| self.cables.at(*row)).map(CableState::from).collect()
    }
}

#[cfg(test)]
impl Engine {
    pub(super) fn connections(&self, now: Instant, unix_ms: i64) -> Vec<CableStatus> {
        self.cable_states(now, unix_ms).connections()
    }

    pub(super) fn superseded(&self, now: Instant, unix_ms: i64) -> Vec<CableStatus> {
        let connections = self.states_of(&self.remote_cables(false));
        CableStates { connections, ..self.cable_states(now, unix_ms) }.connections()
    }

    pub(super) fn sibling_connections(&self, now: Instant, unix_ms: i64) -> Vec<CableStatus> {
        self.cable_states(now, unix_ms).siblings()
    }

    pub(super) fn pending(&self, now: Instant) -> Vec<CableStatus> {
        self.cable_states(now, 0).pending()
    }
}

impl CableStates {
    /// Returns the connections, as published and in detail.
    #[must_use]
    pub fn connections(&self) -> Vec<CableStatus> {
        self.connections.iter().map(|cable| self.status(cable)).collect()
    }

    /// Returns the cables to the other gateways of our own cluster.
    #[must_use]
    pub fn siblings(&self) -> Vec<CableStatus> {
        self.siblings.iter().map(|cable| self.status(cable)).collect()
    }

    /// Returns Endpoints that wait for NAT discovery to choose an address.
    #[must_use]
    pub fn pending(&self) -> Vec<CableStatus> {
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
        self.pending.iter().map(status).collect()
    }

    /// Returns `true` if the connections are the same as `before` and say the same of themselves, but for counters, times, and
    /// numbers in messages. Of those about which a shared slow half reports that is not known.
    #[must_use]
    pub fn are_unchanged_since(&self, before: &Self) -> bool {
        let is_same = |(now, before): (&CableState, &CableState)| {
            Arc::ptr_eq(&now.peer, &before.peer)
                && now.choice == before.choice
                && now.machine.is_like(&before.machine)
                && now.outer().ip() == before.outer().ip()
                && now.answers() == before.answers()
        };
        self.reports.is_none()
            && before.reports.is_none()
            && self.connections.len() == before.connections.len()
            && self.connections.iter().zip(&before.connections).all(is_same)
    }

    /// Returns the names of the connections that are in error, where health checks say this. Upstream's word for an IPsec
    /// cable that fails is `connecting`.
    pub fn failing<'a>(
        &'a self,
        pinged: impl Fn(&str) -> Option<PingerStatus> + 'a,
    ) -> impl Iterator<Item = &'a str> + 'a {
        let is_failing = move |cable: &&CableState| {
            if self.has_reports(cable) {
                // It is never in error otherwise, but for its health check.
                let is_up = self.report(cable).is_some_and(|peer| peer.is_up);
                return !is_up || pinged(&cable.peer.facts.cable_name) == Some(PingerStatus::Error);
            }
            let stats = cable.last.map(|report| report.stats).unwrap_or_default();
            let driver = if self.kind_of(cable).identifies_by_address() {
                answering(&stats).0
            } else {
                cable.machine.status()
            };
            // Health checks have no say in any other state, and looking for one takes a while.
            matches!(driver, ConnectionStatus::Connected | ConnectionStatus::Error)
                && health::merged(driver, pinged(&cable.peer.facts.cable_name)) == ConnectionStatus::Error
        };
        self.connections.iter().filter(is_failing).map(|cable| cable.peer.facts.cable_name.as_str())
    }

    fn kind_of(&self, cable: &CableState) -> &dyn CableKind {
        self.kind.of(&cable.peer.driver).unwrap_or(&*self.kind)
    }

    /// Returns `true` if the shared slow half reports about this cable.
    fn has_reports(&self, cable: &CableState) -> bool {
        self.reports.is_some() && self.kind_of(cable).carries_esp()
    }

    fn report(&self, cable: &CableState) -> Option<&PeerReport> {
        let reports = self.reports.as_deref().filter(|_| self.has_reports(cable))?;
        let at = reports.binary_search_by_key(&cable.lane.lane, |peer| peer.lane).ok()?;
        reports.get(at)
    }

    fn status(&self, cable: &CableState) -> CableStatus {
        let stats = cable.last.map(|report| report.stats).unwrap_or_default();
        let outer = cable.outer();
        let (checked, rx, tx) = cable.machine.last_checked();
        let age_ms =
            i64::try_from(self.now.saturating_duration_since(checked).as_millis()).unwrap_or(i64::MAX);
        let mut endpoint: EndpointSpec = cable.peer.spec_by_driver();
        let kind = self.kind_of(cable);
        let report = self.report(cable);
        let ipsec = self.has_reports(cable).then(|| ipsec::status(report));
        let negotiated = report.and_then(|peer| peer.handshake_age);
        let handshake_age = stats.handshake_age.or(negotiated);
        let (status, status_message) = match &ipsec {
            Some(ipsec) => ipsec.evaluate(stats.rx_bytes, stats.tx_bytes),
            None if kind.identifies_by_address() => answering(&stats),
            None => {
                // Upstream's WireGuard driver publishes its counters here (api §8.3).
                endpoint.backend_config.extend([
                    ("ReceiveBytes".to_owned(), rx.to_string()),
                    ("TransmitBytes".to_owned(), tx.to_string()),
                    ("LastChecked".to_owned(), (self.unix_ms - age_ms).to_string()),
                ]);
                (cable.machine.status(), cable.machine.message())
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
                health.and_then(|health| health.mtu_bytes).unwrap_or(self.path_mtu),
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
