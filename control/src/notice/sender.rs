//! When a gateway speaks: at every change, repeated because a datagram may be lost, and every second. Pure.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use super::{GatewayKey, Notice, SigningKey, State};

/// Ours: how often a gateway speaks if nothing changes: what tells agents that it lives.
const EVERY: Duration = Duration::from_secs(1);
/// Ours: when a change is said again, after the time before.
const REPEAT_AFTER: Duration = Duration::from_millis(20);
/// Ours: how often it is said again.
const REPEATS: u8 = 2;

/// The state that a gateway reports.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Word {
    /// How it is itself.
    pub state: State,
    /// How many of its watched paths are up, in 255ths.
    pub health: u8,
    /// How it finds its siblings.
    pub siblings: BTreeMap<GatewayKey, State>,
}

/// The sending half of notices. Call [`Sender::update`] whenever the state may have changed, then
/// [`Sender::poll_transmit`] until it has nothing more, again at [`Sender::poll_timeout`].
#[derive(Debug)]
pub struct Sender {
    key: SigningKey,
    notice: Notice,
    datagram: Vec<u8>,
    repeats: u8,
    due: Instant,
    until_next: Instant,
}

impl Sender {
    /// Creates the sender of a gateway that has sent nothing yet. `boot` has to be greater than that of all runs before
    /// with this key.
    #[must_use]
    pub fn new(gateway: GatewayKey, key: SigningKey, boot: u64, now: Instant) -> Self {
        let notice = Notice {
            gateway,
            boot,
            sequence: 0,
            state: State::Up,
            health: u8::MAX,
            siblings: BTreeMap::new(),
        };
        Self { key, notice, datagram: Vec::new(), repeats: 0, due: now, until_next: now }
    }

    /// Takes in the gateway's present state.
    pub fn update(&mut self, word: &Word, now: Instant) {
        let is_changed = self.notice.state != word.state || self.notice.siblings != word.siblings;
        self.notice.state = word.state;
        // A share that changes alone is in the next notice: it decides only where two accuse each other.
        let decides = self.notice.health != word.health && word.siblings.values().any(|s| *s == State::Down);
        self.notice.health = word.health;
        self.notice.siblings.clone_from(&word.siblings);
        if is_changed || decides {
            self.speak(now, REPEATS);
        }
    }

    /// Returns the datagram to send to everybody now, if one is due.
    pub fn poll_transmit(&mut self, now: Instant) -> Option<&[u8]> {
        if now >= self.until_next {
            self.speak(now, 0);
        }
        if self.datagram.is_empty() || now < self.due {
            return None;
        }
        match self.repeats.checked_sub(1) {
            Some(left) => (self.repeats, self.due) = (left, now + REPEAT_AFTER),
            None => self.due = self.until_next,
        }
        Some(&self.datagram)
    }

    /// Returns the newest datagram, for an agent that has just come; `None` before anything was sent.
    #[must_use]
    pub fn newest(&self) -> Option<&[u8]> {
        (!self.datagram.is_empty()).then_some(&self.datagram)
    }

    /// Returns the time at which the next datagram is due.
    #[must_use]
    pub fn poll_timeout(&self) -> Instant {
        self.due.min(self.until_next)
    }

    fn speak(&mut self, now: Instant, repeats: u8) {
        self.notice.sequence += 1;
        self.datagram = self.notice.emit(&self.key);
        (self.repeats, self.due, self.until_next) = (repeats, now, now + EVERY);
    }
}

#[cfg(test)]
mod tests {
    use zeroize::Zeroizing;

    use super::super::message::{Datagram, parse};
    use super::*;

    #[test]
    fn a_change_is_said_three_times_and_nothing_new_once_a_second() {
        let start = Instant::now();
        let mut sender = sender(start);
        assert_eq!(sent(&mut sender, start, 2_100), [(0, 1), (1000, 2), (2000, 3)]);
        let now = start + Duration::from_millis(2_100);
        sender.update(&word(State::Down), now);
        assert_eq!(sent(&mut sender, now, 1_100), [(0, 4), (20, 4), (40, 4), (1000, 5)]);
        sender.update(&word(State::Down), now + Duration::from_millis(1_100));
        assert_eq!(sent(&mut sender, now + Duration::from_millis(1_100), 800), []);
    }

    #[test]
    fn a_change_while_another_is_repeated_takes_its_place() {
        let start = Instant::now();
        let mut sender = sender(start);
        sender.update(&word(State::Down), start);
        assert_eq!(sent(&mut sender, start, 30), [(0, 1), (20, 1)]);
        let now = start + Duration::from_millis(30);
        sender.update(&word(State::Up), now);
        assert_eq!(sent(&mut sender, now, 100), [(0, 2), (20, 2), (40, 2)]);
    }

    /// Collects the times of what was sent, in milliseconds, and the sequence numbers.
    fn sent(sender: &mut Sender, start: Instant, for_ms: u64) -> Vec<(u64, u64)> {
        let mut sent = Vec::new();
        for ms in 0..for_ms {
            let now = start + Duration::from_millis(ms);
            while let Some(datagram) = sender.poll_transmit(now) {
                let Some(Datagram::Notice(signed)) = parse(datagram) else { panic!() };
                sent.push((ms, signed.notice.sequence));
            }
            assert!(sender.poll_timeout() > now);
        }
        sent
    }

    fn word(state: State) -> Word {
        Word { state: State::Up, health: 255, siblings: [(GatewayKey(2), state)].into() }
    }

    fn sender(now: Instant) -> Sender {
        Sender::new(GatewayKey(1), SigningKey::from_seed(&Zeroizing::new([1; 32])), 1, now)
    }
}
