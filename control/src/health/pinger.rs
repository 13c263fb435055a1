//! One peer's pinger: upstream's verdicts, without a socket.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::{Duration, Instant};

use super::echo::{EchoReply, Tracker};
use super::statistics::{Latency, Statistics};

/// From the specification: what an interval of 0 means.
const DEFAULT_INTERVAL: Duration = Duration::from_secs(1);
/// Ours: an interval beyond a day is a mistake, and time must not overflow.
const MAX_INTERVAL: Duration = Duration::from_secs(24 * 60 * 60);
/// From the specification: what a loss of 0 means.
const DEFAULT_MAX_LOSS: u32 = 5;
/// From the specification: the pause after a socket error.
const RETRY_AFTER: Duration = Duration::from_secs(5);
/// Ours: a peer that does not answer is asked this often at least. Route agents ask once a minute; a verdict on a peer
/// that is gone would take them six.
const DOUBTFUL_INTERVAL: Duration = Duration::from_secs(10);
/// Ours: one that has not answered for this long is asked as rarely as that, so that many of them cost little. As long as
/// cables try such a peer quickly.
const SILENT_AFTER: Duration = Duration::from_secs(90);
/// Ours: how many requests may still be answered late. A peer that answers some requests only must not grow this.
const MAX_OUTSTANDING: usize = 64;

/// How often to ask, and how much silence is too much.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PingerConfig {
    interval: Duration,
    max_loss: u32,
}

impl PingerConfig {
    /// Creates a setting of an interval, and of how many requests in a row may go unanswered. Zero means upstream's
    /// default: one second, five requests. An interval of more than a day is a day.
    pub fn new(interval: Duration, max_loss: u32) -> Self {
        Self {
            interval: if interval.is_zero() { DEFAULT_INTERVAL } else { interval.min(MAX_INTERVAL) },
            max_loss: if max_loss == 0 { DEFAULT_MAX_LOSS } else { max_loss },
        }
    }

    /// Returns the time between two requests.
    pub fn interval(&self) -> Duration {
        self.interval
    }
}

impl Default for PingerConfig {
    fn default() -> Self {
        Self::new(Duration::ZERO, 0)
    }
}

/// The state of a peer as its pinger knows it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum PingerStatus {
    /// Not judged: no answer yet, or requests cannot be sent.
    #[default]
    Unknown,
    /// It answers.
    Connected,
    /// It has not answered for too long.
    Error,
}

impl PingerStatus {
    /// Returns the name for people.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Unknown => "unknown",
            Self::Connected => "connected",
            Self::Error => "error",
        }
    }
}

/// The mark of one run's requests; drawn at random, so that nobody else can answer them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Identity {
    /// The id in the ICMP header.
    pub id: u16,
    /// The tracker in the data.
    pub tracker: Tracker,
}

/// The public view of a pinger.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PingerView {
    /// The verdict.
    pub status: PingerStatus,
    /// Why, for people; empty when there is nothing to say.
    pub message: String,
    /// The address that is pinged.
    pub ip: IpAddr,
    /// Round trips; `None` before the first.
    pub latency: Option<Latency>,
    /// Requests sent so far, those included that could not be.
    pub sent: u64,
    /// Requests of these that were answered.
    pub received: u64,
}

/// Asks one address and judges it. Drive it with [`Pinger::handle_timeout`] when [`Pinger::poll_timeout`] says so, and
/// with [`Pinger::handle_reply`] or [`Pinger::handle_send_failure`] as things happen.
#[derive(Debug)]
pub struct Pinger {
    ip: IpAddr,
    config: PingerConfig,
    identity: Identity,
    last_sequence: u16,
    outstanding: BTreeMap<u16, Instant>,
    unanswered: u32,
    next_at: Instant,
    /// When it last answered, or was first to be asked.
    answered_at: Instant,
    status: PingerStatus,
    message: String,
    statistics: Statistics,
    sent: u64,
    received: u64,
}

impl Pinger {
    /// Creates a pinger that asks for the first time at `first_at`.
    pub fn new(ip: IpAddr, config: PingerConfig, identity: Identity, first_at: Instant) -> Self {
        Self {
            ip,
            config,
            identity,
            last_sequence: 0,
            outstanding: BTreeMap::new(),
            unanswered: 0,
            next_at: first_at,
            answered_at: first_at,
            status: PingerStatus::Unknown,
            message: String::new(),
            statistics: Statistics::default(),
            sent: 0,
            received: 0,
        }
    }

    /// Goes by another setting from now on. A request that would come later than that says comes sooner.
    pub fn set_config(&mut self, config: PingerConfig, now: Instant) {
        self.config = config;
        self.next_at = self.next_at.min(now + config.interval);
    }

    /// Returns the address that is pinged.
    pub fn ip(&self) -> IpAddr {
        self.ip
    }

    /// Returns the identity that marks this run's requests.
    pub fn identity(&self) -> Identity {
        self.identity
    }

    /// Returns the verdict.
    pub fn status(&self) -> PingerStatus {
        self.status
    }

    /// Returns the time at which to call [`Pinger::handle_timeout`].
    pub fn poll_timeout(&self) -> Instant {
        self.next_at
    }

    /// Returns identity and sequence number of the request to send, if one is due. When too many before it went
    /// unanswered the peer is in error, and a new run marked by `fresh` is due at once. While the peer answers, the next
    /// one is due after `pace` at the earliest.
    pub fn handle_timeout(
        &mut self,
        now: Instant,
        pace: Duration,
        fresh: impl FnOnce() -> Identity,
    ) -> Option<(Identity, u16)> {
        if now < self.next_at {
            return None;
        }
        let sent = (self.identity, self.count_request(now, pace));
        if self.unanswered > self.config.max_loss {
            self.status = PingerStatus::Error;
            self.message = format!("Failed to successfully ping the remote endpoint IP \"{}\"", self.ip);
            self.restart(fresh(), now);
        }
        Some(sent)
    }

    /// Takes a reply that carries this run's id. `false` if it is no answer to a request of this run.
    pub fn handle_reply(&mut self, reply: &EchoReply, now: Instant) -> bool {
        if reply.tracker != self.identity.tracker || reply.id != self.identity.id {
            return false;
        }
        let Some(sent_at) = self.outstanding.remove(&reply.sequence) else { return false };
        self.unanswered = 0;
        self.answered_at = now;
        self.status = PingerStatus::Connected;
        self.message.clear();
        self.statistics.add(now.saturating_duration_since(sent_at));
        self.received += 1;
        true
    }

    /// Notes that a request could not be sent: nothing is known, and a new run starts after a pause.
    pub fn handle_send_failure(&mut self, reason: &str, now: Instant, fresh: Identity) {
        self.status = PingerStatus::Unknown;
        self.message = format!("Cannot ping the remote endpoint IP \"{}\": {reason}", self.ip);
        self.restart(fresh, now + RETRY_AFTER);
    }

    /// Returns a copy of state and statistics for others.
    pub fn view(&self) -> PingerView {
        PingerView {
            status: self.status,
            message: self.message.clone(),
            ip: self.ip,
            latency: (!self.statistics.is_empty()).then(|| self.statistics.latency()),
            sent: self.sent,
            received: self.received,
        }
    }

    fn count_request(&mut self, now: Instant, pace: Duration) -> u16 {
        self.last_sequence = self.last_sequence.checked_add(1).unwrap_or(1);
        self.unanswered = self.unanswered.saturating_add(1);
        self.sent += 1;
        self.outstanding.insert(self.last_sequence, now);
        while self.outstanding.len() > MAX_OUTSTANDING {
            // The oldest but for the moment of the wrap, where it does not matter which goes.
            self.outstanding.pop_first();
        }
        // In step, so that pingers stay as spread as they started; but requests missed in a stall are not caught up.
        let interval = self.interval(now, pace);
        let in_step = self.next_at + interval;
        self.next_at = if in_step > now { in_step } else { now + interval };
        self.last_sequence
    }

    /// Returns the time to the next request: the configured one, or `pace`, as long as the peer answers.
    fn interval(&self, now: Instant, pace: Duration) -> Duration {
        if now.saturating_duration_since(self.answered_at) >= SILENT_AFTER {
            return DOUBTFUL_INTERVAL;
        }
        let is_answering = self.status == PingerStatus::Connected && self.unanswered <= 1;
        if is_answering {
            self.config.interval.max(pace)
        } else {
            self.config.interval.min(DOUBTFUL_INTERVAL)
        }
    }

    fn restart(&mut self, identity: Identity, at: Instant) {
        self.identity = identity;
        self.last_sequence = 0;
        self.outstanding.clear();
        self.unanswered = 0;
        self.next_at = at;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Peer {
        start: Instant,
        pinger: Pinger,
        pace: Duration,
        runs: u16,
    }

    impl Peer {
        fn new(max_loss: u32) -> Self {
            let start = Instant::now();
            let config = PingerConfig::new(Duration::ZERO, max_loss);
            let identity = Identity { id: 1, tracker: [1; 16] };
            let pinger = Pinger::new("10.2.0.1".parse().unwrap(), config, identity, start);
            Self { start, pinger, pace: Duration::ZERO, runs: 1 }
        }

        fn at(&self, ms: u64) -> Instant {
            self.start + Duration::from_millis(ms)
        }

        fn tick(&mut self, ms: u64) -> Option<(Identity, u16)> {
            let runs = &mut self.runs;
            let now = self.start + Duration::from_millis(ms);
            self.pinger.handle_timeout(now, self.pace, || {
                *runs += 1;
                Identity { id: *runs, tracker: [1; 16] }
            })
        }

        fn answer(&mut self, (identity, sequence): (Identity, u16), ms: u64) -> bool {
            let reply = EchoReply { id: identity.id, sequence, tracker: identity.tracker };
            self.pinger.handle_reply(&reply, self.at(ms))
        }
    }

    #[test]
    fn zero_means_one_second_and_five_losses() {
        let config = PingerConfig::new(Duration::ZERO, 0);
        assert_eq!((config.interval(), config.max_loss), (Duration::from_secs(1), 5));
        assert_eq!(PingerConfig::new(Duration::MAX, 2).interval(), MAX_INTERVAL);
    }

    #[test]
    fn a_peer_that_answers_is_connected_and_its_round_trips_are_kept() {
        let mut peer = Peer::new(0);
        let first = peer.tick(0).unwrap();
        assert_eq!((first.1, peer.pinger.status()), (1, PingerStatus::Unknown));
        assert_eq!(peer.pinger.view().latency, None);

        assert!(peer.answer(first, 30));

        let view = peer.pinger.view();
        assert_eq!((view.status, view.message.as_str()), (PingerStatus::Connected, ""));
        assert_eq!(view.latency.unwrap().last.to_string(), "30ms");
        assert_eq!((view.sent, view.received), (1, 1));
        assert!(!peer.answer(first, 31), "a second answer to one request counted");
    }

    #[test]
    fn a_peer_that_answers_is_asked_at_the_pace_and_one_that_does_not_as_configured() {
        let mut peer = Peer::new(0);
        peer.pace = Duration::from_secs(6);
        let first = peer.tick(0).unwrap();
        assert_eq!(peer.pinger.poll_timeout(), peer.at(1000), "nothing is known of it yet");
        peer.answer(first, 10);
        let second = peer.tick(1000).unwrap();
        assert_eq!(peer.pinger.poll_timeout(), peer.at(7000));
        peer.answer(second, 1010);
        peer.tick(7000).unwrap();
        assert_eq!(peer.pinger.poll_timeout(), peer.at(13_000));
        for second in 13..=17 {
            assert_eq!(peer.pinger.status(), PingerStatus::Connected, "after {second} s");
            peer.tick(second * 1000).unwrap();
        }
        assert_eq!(peer.pinger.status(), PingerStatus::Error, "five seconds after the second one was lost");
    }

    #[test]
    fn more_than_five_outstanding_are_an_error_six_seconds_after_the_last_answer() {
        let mut peer = Peer::new(0);
        let first = peer.tick(0).unwrap();
        peer.answer(first, 10);
        for second in 1..=5 {
            peer.tick(second * 1000);
            assert_eq!(peer.pinger.status(), PingerStatus::Connected, "after {second} s");
        }

        peer.tick(6000);

        let view = peer.pinger.view();
        assert_eq!(view.status, PingerStatus::Error);
        assert_eq!(view.message, "Failed to successfully ping the remote endpoint IP \"10.2.0.1\"");
        assert!(view.latency.is_some(), "what was measured is not forgotten");
    }

    #[test]
    fn after_the_error_a_new_run_starts_at_once_and_old_answers_do_not_count() {
        let mut peer = Peer::new(2);
        let sent: Vec<_> = (0..3).map(|second| peer.tick(second * 1000).unwrap()).collect();
        assert_eq!((peer.pinger.status(), peer.pinger.poll_timeout()), (PingerStatus::Error, peer.at(2000)));

        let fresh = peer.tick(2000).unwrap();

        assert_eq!((fresh.0.id, fresh.1), (2, 1));
        assert!(!peer.answer(sent[2], 2001), "an answer to the old run counted");
        assert_eq!(peer.pinger.status(), PingerStatus::Error);
        assert!(peer.answer(fresh, 2002));
        assert_eq!(peer.pinger.status(), PingerStatus::Connected);
    }

    #[test]
    fn an_answer_resets_the_count_also_when_it_is_late() {
        let mut peer = Peer::new(2);
        let first = peer.tick(0).unwrap();
        peer.tick(1000);
        assert!(peer.answer(first, 1900));
        peer.tick(2000);
        peer.tick(3000);
        assert_eq!(peer.pinger.status(), PingerStatus::Connected);
        peer.tick(4000);
        assert_eq!(peer.pinger.status(), PingerStatus::Error);
    }

    #[test]
    fn a_socket_that_refuses_makes_it_unknown_and_is_tried_again_after_five_seconds() {
        let mut peer = Peer::new(0);
        let first = peer.tick(0).unwrap();
        peer.answer(first, 5);
        peer.pinger.handle_send_failure(
            "Network is unreachable",
            peer.at(1000),
            Identity { id: 9, tracker: [9; 16] },
        );
        let view = peer.pinger.view();
        assert_eq!(view.status, PingerStatus::Unknown);
        assert_eq!(view.message, "Cannot ping the remote endpoint IP \"10.2.0.1\": Network is unreachable");
        assert_eq!(peer.tick(5999), None);
        assert_eq!(peer.tick(6000).unwrap().1, 1);
    }

    #[test]
    fn a_stall_is_not_caught_up_with_a_burst() {
        let mut peer = Peer::new(0);
        peer.tick(0);
        peer.tick(7300);
        assert_eq!(peer.tick(7301), None);
        assert_eq!(peer.pinger.poll_timeout(), peer.at(8300));
    }

    #[test]
    fn a_peer_that_is_asked_once_a_minute_is_asked_more_often_while_it_does_not_answer() {
        let start = Instant::now();
        let config = PingerConfig::new(Duration::from_secs(60), 0);
        let identity = Identity { id: 1, tracker: [1; 16] };
        let mut pinger = Pinger::new("10.2.0.1".parse().unwrap(), config, identity, start);
        let after = |pinger: &Pinger| pinger.poll_timeout().duration_since(start).as_secs();
        let ask = |pinger: &mut Pinger, second| {
            pinger.handle_timeout(start + Duration::from_secs(second), Duration::ZERO, || identity).unwrap().1
        };
        ask(&mut pinger, 0);
        assert_eq!(after(&pinger), 10, "never heard of yet");
        let sequence = ask(&mut pinger, 10);
        let reply = EchoReply { id: 1, sequence, tracker: identity.tracker };
        assert!(pinger.handle_reply(&reply, start + Duration::from_secs(11)));
        ask(&mut pinger, 20);
        assert_eq!(after(&pinger), 80, "it answers");
        ask(&mut pinger, 80);
        assert_eq!(after(&pinger), 90, "one request went unanswered");
        for tens in 9..13 {
            ask(&mut pinger, tens * 10);
        }
        assert_eq!(pinger.status(), PingerStatus::Error);
    }

    #[test]
    fn a_peer_that_has_been_silent_for_long_is_asked_every_ten_seconds_until_it_answers() {
        let mut peer = Peer::new(0);
        let mut sent = Vec::new();
        for second in 0..=690 {
            sent.extend(peer.tick(second * 1000).map(|request| (second, request)));
        }
        let late = sent.iter().filter(|(second, _)| *second > 90).count();
        // One in ten seconds, and one at once when a run of six is over.
        assert!((60..=73).contains(&late), "{late} in ten minutes");
        let (second, request) = *sent.last().unwrap();
        assert!(peer.answer(request, second * 1000 + 20));
        let next = peer.pinger.poll_timeout().max(peer.at(691_000));
        peer.pinger.handle_timeout(next, Duration::ZERO, || request.0).unwrap();
        assert_eq!(peer.pinger.poll_timeout() - next, Duration::from_secs(1), "as often as before");
    }

    #[test]
    fn a_wrong_tracker_is_no_answer() {
        let mut peer = Peer::new(0);
        let (identity, sequence) = peer.tick(0).unwrap();
        assert!(!peer.answer((Identity { tracker: [7; 16], ..identity }, sequence), 1));
        assert_eq!(peer.pinger.status(), PingerStatus::Unknown);
    }

    #[test]
    fn what_a_peer_leaves_unanswered_does_not_pile_up() {
        let mut peer = Peer::new(0);
        for second in 0..200_000 {
            let sent = peer.tick(second * 1000).unwrap();
            if second % 4 == 0 {
                peer.answer(sent, second * 1000 + 1);
            }
            assert!(peer.pinger.outstanding.len() <= MAX_OUTSTANDING);
        }
        assert_eq!(peer.pinger.status(), PingerStatus::Connected);
    }
}
