//! The two stations of a cable: what is known of the peer's, and when to ask.
//!
//! ```text
//!               nothing known: asks at once, every 250 ms, later every second
//!   heard, sending, no frame back for 250 ms: asks, in the same rhythm
//!   heard, silent for 3 s: asks
//!   not heard for 10 s: down; what is to be sent is sent all the same
//!   not heard for 90 s: asks when the cable has it do so, which is more rarely
//! ```
//!
//! Every frame says which station it is from. So a station that has changed is followed with its next frame, and one that
//! only receives, and cannot do that any more, is asked within a quarter of a second.

use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

use trieste_vxlan::{Arp, Mac};

/// Between questions, while they may well be answered.
const EAGER: Duration = Duration::from_millis(250);
/// Between questions that follow [`EAGER_QUESTIONS`] without an answer.
const PATIENT: Duration = Duration::from_secs(1);
/// Five seconds' worth.
const EAGER_QUESTIONS: u32 = 20;
/// How long after the first frame without any in return the peer is asked.
const UNANSWERED: Duration = Duration::from_millis(250);
/// How long neither side need say anything.
const IDLE: Duration = Duration::from_secs(3);
/// A peer that has not been heard for this long does not answer. Ours: three questions.
pub(super) const SILENCE: Duration = Duration::from_secs(10);
/// How often and how far apart we say unasked which station is ours (RFC 5227 section 1.1).
const ANNOUNCEMENTS: u8 = 2;
const ANNOUNCE_INTERVAL: Duration = Duration::from_secs(2);

/// Who is at both ends.
#[derive(Debug, Clone, Copy)]
pub(super) struct Ends {
    pub(super) vtep: Ipv4Addr,
    pub(super) mac: Mac,
    pub(super) peer_vtep: Ipv4Addr,
}

/// The state of the peer's station.
#[derive(Debug)]
pub(super) struct Station {
    pub(super) ends: Ends,
    mac: Option<Mac>,
    heard: Option<Instant>,
    /// The first frame sent since.
    sent: Option<Instant>,
    asked: Option<Instant>,
    unanswered: u32,
    /// When it began (anew) to ask.
    begun: Instant,
    announce: Option<Instant>,
    announcements: u8,
    is_up: bool,
}

impl Station {
    /// A peer that has not been heard. `mac` is its station's address if that is known beforehand.
    pub(super) fn new(ends: Ends, mac: Option<Mac>, now: Instant) -> Self {
        Self {
            ends,
            mac,
            heard: None,
            sent: None,
            asked: None,
            unanswered: 0,
            begun: now,
            announce: Some(now),
            announcements: ANNOUNCEMENTS,
            is_up: false,
        }
    }

    /// Where frames for the peer go.
    pub(super) fn mac(&self) -> Option<Mac> {
        self.mac
    }

    /// Whether the peer answers.
    pub(super) fn is_up(&self) -> bool {
        self.is_up
    }

    /// Since when the peer has not been heard.
    pub(super) fn heard(&self) -> Option<Instant> {
        self.heard
    }

    /// A frame of this station has come. Returns whether it is another than before.
    #[inline]
    pub(super) fn hear(&mut self, mac: Mac, now: Instant) -> bool {
        self.heard = Some(now);
        self.sent = None;
        self.unanswered = 0;
        self.is_up = true;
        self.mac.replace(mac) != Some(mac)
    }

    /// Frames were sent to it.
    pub(super) fn send(&mut self, now: Instant) {
        self.sent = self.sent.or(Some(now));
    }

    /// Has it asked and told which station is ours as soon as possible.
    pub(super) fn begin_anew(&mut self, now: Instant) {
        (self.asked, self.unanswered, self.begun) = (None, 0, now);
        (self.announce, self.announcements) = (Some(now), ANNOUNCEMENTS);
        self.sent = Some(now.checked_sub(UNANSWERED).unwrap_or(now));
    }

    /// Returns `true` if the peer has not been heard, nor begun with, for `span`.
    pub(super) fn is_silent_for(&self, span: Duration, now: Instant) -> bool {
        let since = self.heard.map_or(self.begun, |at| at.max(self.begun));
        !self.is_up && now.saturating_duration_since(since) >= span
    }

    /// Returns `true` if it is to be said which station is ours.
    pub(super) fn is_announcing(&self, now: Instant) -> bool {
        self.announce.is_some_and(|due| due <= now)
    }

    /// Returns `true` if the peer is to be asked.
    pub(super) fn is_asking(&self, now: Instant) -> bool {
        self.question() <= now
    }

    /// Asks the peer, whether it is to be asked or not.
    pub(super) fn ask(&mut self, now: Instant) -> Arp {
        let Ends { vtep, mac, peer_vtep } = self.ends;
        self.asked = Some(now);
        self.unanswered = self.unanswered.saturating_add(1);
        Arp::request(vtep, mac, peer_vtep)
    }

    /// What is to be broadcast to the peer now. Ask again until there is nothing.
    pub(super) fn poll(&mut self, now: Instant) -> Option<Arp> {
        if self.is_announcing(now) {
            self.announcements = self.announcements.saturating_sub(1);
            self.announce = (self.announcements > 0).then_some(now + ANNOUNCE_INTERVAL);
            return Some(Arp::announcement(self.ends.vtep, self.ends.mac));
        }
        self.is_asking(now).then(|| self.ask(now))
    }

    /// Notices that the peer is silent. Returns whether it just became so.
    pub(super) fn check(&mut self, now: Instant) -> bool {
        let is_silent = self.heard.is_none_or(|heard| now.saturating_duration_since(heard) >= SILENCE);
        let was_up = self.is_up;
        self.is_up &= !is_silent;
        was_up && is_silent
    }

    /// When [`Self::poll`] or [`Self::check`] has something to do.
    pub(super) fn due(&self) -> Instant {
        self.due_asking_at(self.question())
    }

    /// Returns the same, where the peer is asked at another time.
    pub(super) fn due_asking_at(&self, question: Instant) -> Instant {
        let silent = self.heard.filter(|_| self.is_up).map(|at| at + SILENCE);
        [self.announce, silent].into_iter().flatten().fold(question, Instant::min)
    }

    /// When the peer is asked next.
    fn question(&self) -> Instant {
        let pace = if self.unanswered < EAGER_QUESTIONS { EAGER } else { PATIENT };
        let again = self.asked.filter(|_| self.unanswered > 0).map(|asked| asked + pace);
        let wanted = match (self.heard, self.sent) {
            (None, _) => self.begun,
            (Some(_), Some(sent)) => sent + UNANSWERED,
            (Some(heard), None) => heard + IDLE,
        };
        again.map_or(wanted, |again| wanted.max(again))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);
    const PEER: Mac = Mac([2, 9, 9, 9, 9, 9]);

    fn station(mac: Option<Mac>) -> (Station, Instant) {
        #[expect(clippy::disallowed_methods, reason = "an Instant cannot be made from a number")]
        let now = Instant::now();
        let vtep = Ipv4Addr::new(241, 0, 0, 1);
        let ends = Ends { vtep, mac: Mac::of_vtep(vtep), peer_vtep: Ipv4Addr::new(241, 0, 0, 2) };
        (Station::new(ends, mac, now), now)
    }

    /// What is sent in `span` after `from`: announcements and questions.
    fn run(station: &mut Station, from: Instant, span: Duration) -> (u32, u32) {
        let (mut announcements, mut questions) = (0, 0);
        for step in 0..=(span.as_millis() / 10) {
            let now = from + MS * 10 * u32::try_from(step).unwrap();
            station.check(now);
            while let Some(arp) = station.poll(now) {
                if arp.sender == arp.target { announcements += 1 } else { questions += 1 }
            }
        }
        (announcements, questions)
    }

    #[test]
    fn a_peer_that_never_answers_is_asked_more_and_more_rarely() {
        let (mut station, now) = station(None);
        assert_eq!(run(&mut station, now, MS * 4_750), (2, 20), "every 250 ms");
        assert_eq!(run(&mut station, now + MS * 4_760, MS * 60_000).1, 60, "every second");
        assert!(!station.is_up());
    }

    #[test]
    fn an_idle_peer_is_asked_every_three_seconds_and_is_down_after_ten() {
        let (mut station, now) = station(None);
        while station.poll(now).is_some() {}
        assert!(station.hear(PEER, now) && !station.hear(PEER, now));
        assert_eq!(run(&mut station, now, MS * 2_990).1, 0);
        assert!(station.is_up());
        assert_eq!(run(&mut station, now + MS * 3_000, MS * 6_990).1, 22, "20 eager ones, then every second");
        assert!(station.is_up() && station.check(now + SILENCE) && !station.is_up());
        assert_eq!(station.mac(), Some(PEER), "what is to be sent is sent all the same");
    }

    #[test]
    fn a_peer_that_returns_nothing_is_asked_within_a_quarter_of_a_second() {
        let (mut station, now) = station(Some(PEER));
        station.hear(PEER, now);
        station.announce = None;
        let sent = now + MS * 100;
        station.send(sent);
        station.send(sent + MS * 200);
        assert_eq!(station.due(), sent + UNANSWERED, "counted from the first");
        assert_eq!(run(&mut station, sent, MS * 240).1, 0);
        assert!(station.poll(sent + UNANSWERED).is_some());
        assert_eq!(station.due(), sent + UNANSWERED + EAGER);
        let changed = Mac([2, 8, 8, 8, 8, 8]);
        assert!(station.hear(changed, sent + MS * 251));
        assert_eq!((station.mac(), station.due()), (Some(changed), sent + MS * 251 + IDLE));
    }

    #[test]
    fn what_begins_anew_asks_and_announces_at_once() {
        let (mut station, now) = station(Some(PEER));
        station.hear(PEER, now);
        station.announce = None;
        let later = now + MS * 1_000;
        station.begin_anew(later);
        assert_eq!(run(&mut station, later, Duration::ZERO), (1, 1));
    }
}
