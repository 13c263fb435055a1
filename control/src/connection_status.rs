//! How a WireGuard cable's counters and handshakes become `connecting`, `connected` or `error`.
//!
//! The rules, times and messages are upstream's: they end up in `Gateway.status`, where tools look for them. The
//! machine reads no clock and does no I/O: feed it what was observed, with the time, whenever the status is wanted.
//!
//! ```text
//!                 ┌──────────── bytes moved ───────────┐
//!                 │                                    ▼
//!   connecting ───┴─ 130 s without a handshake ─▶ error ◀──▶ connected
//! ```
//!
//! It judges at most every 10 s, by what changed since it last found bytes to have moved.

use std::mem::discriminant;
use std::time::{Duration, Instant};

use crate::api::ConnectionStatus;

/// From the specification: the keepalive of 10 s and 2 ms of slack. Within it, silence means nothing.
pub const KEEPALIVE: Duration = Duration::from_millis(10_002);

/// From the specification: a session without a new handshake for this long is dead (REJECT_AFTER_TIME and some).
pub const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(130);

/// The newest counters of a cable.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CableCounters {
    /// Bytes received since the cable was made. Counts everything on the wire that belongs to the cable, keepalives
    /// and handshakes too: a counter of payload alone would make an idle cable look dead.
    pub rx_bytes: u64,
    /// Bytes sent since the cable was made; counted likewise.
    pub tx_bytes: u64,
    /// When the newest handshake completed; `None` before the first.
    pub last_handshake: Option<Instant>,
}

/// The status of one cable over time. Make one when the cable is made, and call [`StatusMachine::evaluate`] whenever the
/// status is published.
#[derive(Debug, Clone, Copy)]
pub struct StatusMachine {
    status: ConnectionStatus,
    reason: Reason,
    /// When bytes were last found to have moved; at first, when the cable was made.
    checked: Instant,
    /// Received and sent bytes at that time.
    counted: (u64, u64),
}

/// Why the status is what it is. It becomes text when somebody reads it.
#[derive(Debug, Clone, Copy)]
enum Reason {
    Created,
    NoHandshakeYet,
    NoHandshakeFor(Duration),
    OldHandshake(Duration),
    Moved { rx_bytes: u64, tx_bytes: u64 },
    Silent(Duration),
}

impl StatusMachine {
    /// Creates the status of a cable that is made at `now`.
    pub fn new(now: Instant) -> Self {
        Self { status: ConnectionStatus::Connecting, reason: Reason::Created, checked: now, counted: (0, 0) }
    }

    /// Takes in the cable's counters at `now`.
    pub fn evaluate(&mut self, counters: &CableCounters, now: Instant) {
        let silence = now.saturating_duration_since(self.checked);
        if silence < KEEPALIVE {
            return;
        }
        let has_moved = self.counted != (counters.rx_bytes, counters.tx_bytes);
        let Some(last_handshake) = counters.last_handshake else {
            return self.evaluate_without_handshake(silence);
        };
        if has_moved {
            let CableCounters { rx_bytes, tx_bytes, .. } = *counters;
            self.set(ConnectionStatus::Connected, Reason::Moved { rx_bytes, tx_bytes });
            self.checked = now;
            self.counted = (counters.rx_bytes, counters.tx_bytes);
            return;
        }
        let handshake_age = now.saturating_duration_since(last_handshake);
        if handshake_age > HANDSHAKE_TIMEOUT {
            self.set(ConnectionStatus::Error, Reason::OldHandshake(handshake_age));
        } else if silence >= KEEPALIVE * 2 {
            self.set(ConnectionStatus::Error, Reason::Silent(silence));
        }
    }

    /// Returns the status.
    pub fn status(&self) -> ConnectionStatus {
        self.status
    }

    /// Returns `true` if this machine says what another one does, but for numbers in the message.
    pub fn is_like(&self, other: &Self) -> bool {
        self.status == other.status && discriminant(&self.reason) == discriminant(&other.reason)
    }

    /// Returns the reason, for people.
    pub fn message(&self) -> String {
        match self.reason {
            Reason::Created => "Connection has been created but not yet started".to_owned(),
            Reason::NoHandshakeYet => "no initial handshake yet".to_owned(),
            Reason::NoHandshakeFor(silence) => {
                format!("no initial handshake for {} seconds", seconds(silence))
            }
            Reason::OldHandshake(age) => format!("no handshake for {} seconds", seconds(age)),
            Reason::Moved { rx_bytes, tx_bytes } => format!("Rx={rx_bytes} Bytes, Tx={tx_bytes} Bytes"),
            Reason::Silent(silence) => format!("no bytes sent or received for {} seconds", seconds(silence)),
        }
    }

    /// Returns the time at which bytes were last found to have moved, and the received and sent bytes then: upstream's
    /// `LastChecked`, `ReceiveBytes`, `TransmitBytes`.
    pub fn last_checked(&self) -> (Instant, u64, u64) {
        (self.checked, self.counted.0, self.counted.1)
    }

    /// Evaluates a cable without a handshake, where nothing counts as moved. `silence` is the time since it was made.
    fn evaluate_without_handshake(&mut self, silence: Duration) {
        if silence > HANDSHAKE_TIMEOUT {
            self.set(ConnectionStatus::Error, Reason::NoHandshakeFor(silence));
        } else {
            self.set(ConnectionStatus::Connecting, Reason::NoHandshakeYet);
        }
    }

    fn set(&mut self, status: ConnectionStatus, reason: Reason) {
        self.status = status;
        self.reason = reason;
    }
}

/// Formats seconds with one decimal, as upstream's messages have them.
fn seconds(duration: Duration) -> String {
    format!("{:.1}", duration.as_secs_f64())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A machine, its start, and counters that a test moves on.
    struct Cable {
        start: Instant,
        machine: StatusMachine,
        counters: CableCounters,
    }

    impl Cable {
        fn new() -> Self {
            let start = Instant::now();
            Self { start, machine: StatusMachine::new(start), counters: CableCounters::default() }
        }

        fn at(&self, ms: u64) -> Instant {
            self.start + Duration::from_millis(ms)
        }

        fn evaluate(&mut self, ms: u64) -> (ConnectionStatus, String) {
            let now = self.at(ms);
            self.machine.evaluate(&self.counters, now);
            (self.machine.status(), self.machine.message())
        }
    }

    #[test]
    fn a_new_cable_is_connecting_whatever_it_does_in_the_first_ten_seconds() {
        let mut cable = Cable::new();
        cable.counters = CableCounters { rx_bytes: 9, tx_bytes: 9, last_handshake: Some(cable.at(5)) };
        let (status, message) = cable.evaluate(10_001);
        assert_eq!(status, ConnectionStatus::Connecting);
        assert_eq!(message, "Connection has been created but not yet started");
    }

    #[test]
    fn bytes_after_a_handshake_make_it_connected_and_are_remembered() {
        let mut cable = Cable::new();
        cable.counters =
            CableCounters { rx_bytes: 15_144, tx_bytes: 15_148, last_handshake: Some(cable.at(5)) };
        let (status, message) = cable.evaluate(10_002);
        assert_eq!(
            (status, message.as_str()),
            (ConnectionStatus::Connected, "Rx=15144 Bytes, Tx=15148 Bytes")
        );
        assert_eq!(cable.machine.last_checked(), (cable.at(10_002), 15_144, 15_148));
    }

    #[test]
    fn without_a_handshake_it_is_connecting_for_130_seconds_and_then_an_error() {
        let mut cable = Cable::new();
        cable.counters.tx_bytes = 148;
        let (status, message) = cable.evaluate(130_000);
        assert_eq!((status, message.as_str()), (ConnectionStatus::Connecting, "no initial handshake yet"));
        let (status, message) = cable.evaluate(130_100);
        assert_eq!(
            (status, message.as_str()),
            (ConnectionStatus::Error, "no initial handshake for 130.1 seconds")
        );
    }

    #[test]
    fn silence_has_one_more_keepalive_of_grace() {
        let mut cable = Cable::new();
        cable.counters = CableCounters { rx_bytes: 1, tx_bytes: 1, last_handshake: Some(cable.at(1)) };
        cable.evaluate(11_000);
        assert_eq!(cable.evaluate(11_000 + 20_003).0, ConnectionStatus::Connected);
        let (status, message) = cable.evaluate(11_000 + 20_004);
        assert_eq!(status, ConnectionStatus::Error);
        assert_eq!(message, "no bytes sent or received for 20.0 seconds");
    }

    #[test]
    fn an_old_handshake_and_silence_are_an_error_at_once() {
        let mut cable = Cable::new();
        cable.counters = CableCounters { rx_bytes: 1, tx_bytes: 1, last_handshake: Some(cable.at(0)) };
        cable.evaluate(125_000);
        assert_eq!(cable.evaluate(134_000).0, ConnectionStatus::Connected, "judged too early");
        let (status, message) = cable.evaluate(135_500);
        assert_eq!((status, message.as_str()), (ConnectionStatus::Error, "no handshake for 135.5 seconds"));
    }

    #[test]
    fn bytes_heal_an_error_also_when_counters_started_anew() {
        let mut cable = Cable::new();
        cable.counters = CableCounters { rx_bytes: 500, tx_bytes: 500, last_handshake: Some(cable.at(0)) };
        cable.evaluate(11_000);
        assert_eq!(cable.evaluate(200_000).0, ConnectionStatus::Error);
        cable.counters = CableCounters { rx_bytes: 3, tx_bytes: 3, last_handshake: Some(cable.at(200_000)) };
        assert_eq!(cable.evaluate(200_001).0, ConnectionStatus::Connected);
    }

    proptest! {
        /// Checks that time that stands still or jumps back does not panic, and that an idle cable is never connected.
        #[test]
        fn it_is_connected_only_after_bytes_moved(times in prop::collection::vec(0u64..400_000, 1..20)) {
            let mut cable = Cable::new();
            cable.counters.last_handshake = Some(cable.at(0));
            for ms in times {
                prop_assert_ne!(cable.evaluate(ms).0, ConnectionStatus::Connected);
            }
        }
    }
}
