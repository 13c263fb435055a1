//! Workers' reports of lanes, and the state of cables that follows.

use std::time::Instant;

use trieste_cables::CableEvent;
use trieste_control::connection_status::CableCounters;
use trieste_pipeline::{LaneReport, PathState};

use super::Engine;
use crate::tables::Peer;

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
    /// Reads the workers' events and reports of lanes, and frees what cables that were cut long ago had. `unix_seconds` is the
    /// wall clock.
    pub fn observe(&mut self, now: Instant, unix_seconds: i64) {
        self.release(now);
        for worker in &self.workers {
            for (lane, event) in worker.take_events() {
                let Some(cable) = self.cables.with_lane_mut(lane) else { continue };
                let cluster = &cable.peer.facts.cluster_id;
                match event {
                    CableEvent::LaneUp => {
                        tracing::info!(%cluster, "cable is up");
                        cable.established = Some(unix_seconds);
                        self.established_set += 1;
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
            for report in &worker.published().lanes {
                let Some(cable) = self.cables.at_mut(report.cable, report.lane) else { continue };
                let last_handshake = report.stats.handshake_age.and_then(|age| now.checked_sub(age));
                let counters = CableCounters {
                    rx_bytes: report.stats.rx_bytes,
                    tx_bytes: report.stats.tx_bytes,
                    last_handshake,
                };
                // Events are bounded; what is up was established, also when its event was pushed out.
                if report.stats.is_up && cable.established.is_none() {
                    cable.established = Some(unix_seconds);
                    self.established_set += 1;
                }
                cable.machine.evaluate(&counters, now);
                log_path_change(&cable.peer, cable.last.as_ref(), report);
                cable.last = Some(*report);
            }
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
