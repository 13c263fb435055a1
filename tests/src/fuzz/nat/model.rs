//! What translation has to do, in the plainest words: a list of sessions, looked through from end to end.
//!
//! Of a session's end the model knows when it surely lives (its timer has not run out) and when it surely is gone (two
//! seconds after that: the translation counts whole ones). In between either verdict is right, and is learned from.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

use trieste_nat::{Bucket, Refusal, Rules, Stats};
use trieste_packet::wire::{be16, be32};

use super::spec::Spec;
use super::{
    EGRESS, GATEWAY, HEADLESS, ICMP_TIMER, LIMITS, SELECTED, SERVICE, STRANGER, TCP_TIMER, UDP_TIMER,
};
use crate::translator::Fate;
use crate::translator::packets::{End, ICMP, TCP, UDP};

/// How late a session may end.
const SLACK: Duration = Duration::from_secs(2);

/// Both ends of a packet; an ICMP query's identifier stands in both, and other protocols have none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Ends {
    pub(super) from: End,
    pub(super) to: End,
}

impl Ends {
    pub(super) fn of(packet: &[u8]) -> Self {
        let (from, to) = match packet[9] {
            TCP | UDP => (be16(packet, 20), be16(packet, 22)),
            ICMP => (be16(packet, 24), be16(packet, 24)),
            _ => (0, 0),
        };
        Self { from: (be32(packet, 12).into(), from), to: (be32(packet, 16).into(), to) }
    }
}

/// A session as far as its packets tell.
#[derive(Debug, Clone, Copy)]
pub(super) struct Known {
    pub(super) protocol: u8,
    pub(super) inside: End,
    pub(super) outside: End,
    /// Without a port for ICMP.
    pub(super) remote: End,
    /// The last packet that surely kept it alive.
    surely: Instant,
    /// The last packet that may have.
    perhaps: Instant,
}

impl Known {
    pub(super) fn is_alive(&self, now: Instant) -> bool {
        now < self.surely + timer(self.protocol)
    }

    fn is_gone(&self, now: Instant) -> bool {
        now >= self.perhaps + timer(self.protocol) + SLACK
    }

    /// Whether a packet of `protocol` between these ends is its.
    fn is_of(&self, protocol: u8, near: End, far: End, is_outbound: bool) -> bool {
        let own = if is_outbound { self.inside } else { self.outside };
        self.protocol == protocol && own == near && self.remote == far
    }
}

fn timer(protocol: u8) -> Duration {
    match protocol {
        TCP => TCP_TIMER,
        ICMP => ICMP_TIMER,
        _ => UDP_TIMER,
    }
}

/// The far end as sessions know it.
fn far_end(protocol: u8, (address, port): End) -> End {
    (address, if matches!(protocol, TCP | UDP) { port } else { 0 })
}

fn has_ports(protocol: u8) -> bool {
    matches!(protocol, TCP | UDP | ICMP)
}

/// Sessions that are or may be there.
#[derive(Debug, Default)]
pub(super) struct Model {
    known: Vec<Known>,
    /// Which global address an inside address has had since the beginning.
    paired: BTreeMap<Ipv4Addr, Ipv4Addr>,
}

impl Model {
    /// One of the sessions.
    pub(super) fn nth(&self, choice: u8) -> Option<Known> {
        (!self.known.is_empty()).then(|| self.known[usize::from(choice) % self.known.len()])
    }

    /// Removes what is surely gone.
    pub(super) fn forget(&mut self, now: Instant) {
        self.known.retain(|known| !known.is_gone(now));
    }

    /// Compares the number of sessions, and that it is bounded.
    pub(super) fn compare(&self, stats: &Stats, now: Instant) {
        let alive = self.known.iter().filter(|known| known.is_alive(now)).count();
        let there = usize::try_from(stats.sessions).expect("a small number");
        assert!((alive..=self.known.len()).contains(&there), "{there} sessions, {:#?}", self.known);
        assert!(stats.sessions <= LIMITS.sessions);
    }

    /// Judges the verdict on an outbound packet.
    pub(super) fn judge_outbound(
        &mut self,
        rules: &Rules,
        spec: &Spec,
        out: &Result<Ends, Fate>,
        now: Instant,
    ) {
        let (near, far) = (spec.from, far_end(spec.protocol, spec.to));
        let fixed = match near.0 {
            address if address == SERVICE.0 => Some(SERVICE.1),
            address if address == GATEWAY.0 && spec.is_query() && !spec.asks() => Some(GATEWAY.1),
            _ => None,
        };
        if let Some(global) = fixed {
            let expected = Ends { from: (global, near.1), to: spec.to };
            assert_eq!(*out, Ok(expected), "one to one, always");
            return;
        }
        if spec.is_query() && !spec.asks() && near.0 != HEADLESS.0 {
            // Nobody outside can have asked.
            assert_eq!(*out, Err(Fate::Refused(Refusal::NoSession)), "an answer to nothing");
            return;
        }
        let exact = |known: &&Known| known.is_of(spec.protocol, near, far, true);
        let is_alive = self.known.iter().filter(exact).any(|known| known.is_alive(now));
        match out {
            Ok(ends) => {
                assert!(near.0 != STRANGER, "no rule gives this source an address");
                let may_be = self.known.iter().any(|known| exact(&known));
                assert!(may_be || spec.may_begin(), "this packet begins no session: {spec:?}");
                self.check_outside(rules, spec, outside_of(spec, ends), now);
                self.note(spec, near, outside_of(spec, ends), far, true, now);
            }
            Err(Fate::Refused(refusal)) => {
                assert!(!is_alive, "{refusal:?} for a packet of a live session: {spec:?}");
                self.check_refusal(*refusal, spec, near, true);
            }
            Err(fate) => panic!("{fate:?} for {spec:?}"),
        }
    }

    /// The rules for the outside end of an inside end.
    fn check_outside(&mut self, rules: &Rules, spec: &Spec, outside: End, now: Instant) {
        let inside = spec.from;
        let alive =
            || self.known.iter().filter(|known| known.protocol == spec.protocol && known.is_alive(now));
        if let Some(known) = alive().find(|known| known.inside == inside && known.outside.0 != HEADLESS.1) {
            assert_eq!(outside, known.outside, "one inside end has one outside end");
            return;
        }
        if inside.0 == HEADLESS.0 {
            assert_eq!(outside, (HEADLESS.1, inside.1), "a headless target keeps its ports");
            return;
        }
        let others = alive().find(|known| known.outside == outside && known.inside != inside);
        assert!(
            others.is_none() || !has_ports(spec.protocol),
            "two inside ends with one outside end: {others:?}"
        );
        let addresses: &[Ipv4Addr] = if inside.0 == SELECTED.0 { &[SELECTED.1] } else { &EGRESS };
        assert!(addresses.contains(&outside.0), "{outside:?} is none of the rule's addresses");
        let paired = *self.paired.entry(inside.0).or_insert(outside.0);
        assert_eq!(paired, outside.0, "one inside address has one global address");
        if !has_ports(spec.protocol) {
            return;
        }
        if spec.protocol != ICMP {
            assert_eq!(outside.1 < 1024, inside.1 < 1024, "the class of {inside:?} is kept: {outside:?}");
        }
        let owner = rules.bucket_outbound(&trieste_nat::Facts {
            source: inside.0,
            destination: spec.to.0,
            source_port: inside.1,
            destination_port: spec.to.1,
            protocol: spec.protocol,
            kind: trieste_nat::Kind::Udp,
        });
        assert_eq!(Bucket::of_port(outside.1), owner, "an answer finds the owner from its port alone");
    }

    /// Judges the verdict on an inbound packet.
    pub(super) fn judge_inbound(&mut self, spec: &Spec, out: &Result<Ends, Fate>, now: Instant) {
        let (near, far) = (spec.to, far_end(spec.protocol, spec.from));
        let fixed = match near.0 {
            address if address == SERVICE.1 => Some(SERVICE.0),
            address if address == GATEWAY.1 && spec.asks() => Some(GATEWAY.0),
            _ => None,
        };
        if let Some(inside) = fixed {
            let expected = Ends { from: spec.from, to: (inside, near.1) };
            assert_eq!(*out, Ok(expected), "one to one, always");
            return;
        }
        let exact = |known: &&Known| known.is_of(spec.protocol, near, far, false);
        let is_alive = self.known.iter().filter(exact).any(|known| known.is_alive(now));
        // Who may come in by a mapping, having been talked to: UDP from any port, TCP with a SYN.
        let is_welcome = |known: &&Known| {
            let by_address = known.protocol == spec.protocol
                && known.outside == near
                && known.remote.0 == far.0
                && near.0 != HEADLESS.1
                && (spec.protocol == UDP || spec.is_syn());
            by_address || known.is_of(spec.protocol, near, far, false)
        };
        match out {
            Ok(ends) if near.0 == HEADLESS.1 => {
                assert_eq!(ends.to, (HEADLESS.0, near.1), "a headless target keeps its ports");
                let may_be = self.known.iter().any(|known| exact(&known));
                assert!(may_be || spec.may_begin(), "this packet begins no session: {spec:?}");
                self.note(spec, ends.to, near, far, false, now);
            }
            Ok(ends) => {
                assert!(!spec.asks(), "nobody outside may ask whoever asks outside");
                let known = self.known.iter().find(is_welcome);
                let known = known.unwrap_or_else(|| panic!("a stranger came in: {spec:?}"));
                assert_eq!(ends.to, known.inside, "delivered to whom it is for");
                let inside = known.inside;
                self.note(spec, inside, near, far, false, now);
            }
            Err(Fate::Refused(refusal)) => {
                assert!(!is_alive || spec.asks(), "{refusal:?} for a packet of a live session: {spec:?}");
                let welcome = self.known.iter().filter(|known| known.is_alive(now)).find(is_welcome).copied();
                if let Some(known) = welcome.filter(|_| !spec.asks()) {
                    self.check_refusal(*refusal, spec, known.inside, false);
                } else if near.0 == HEADLESS.1 {
                    self.check_refusal(*refusal, spec, (HEADLESS.0, near.1), false);
                }
            }
            Err(fate) => panic!("{fate:?} for {spec:?}"),
        }
    }

    /// Whether there is a reason for a refusal.
    fn check_refusal(&self, refusal: Refusal, spec: &Spec, inside: End, is_outbound: bool) {
        let sessions = |of: &dyn Fn(&Known) -> bool| self.known.iter().filter(|known| of(known)).count();
        let of_source = sessions(&|known| known.inside.0 == inside.0);
        let all = sessions(&|_| true);
        let few = |count: usize, limit: u32| count < usize::try_from(limit).expect("a small number");
        let (most, of_one) = if is_outbound {
            (LIMITS.sessions, LIMITS.sessions_per_source.min(LIMITS.mappings_per_source))
        } else {
            (LIMITS.sessions / 4 * 3, LIMITS.sessions_per_source / 2)
        };
        let is_wrong = match refusal {
            Refusal::NoGlobalIp => inside.0 != STRANGER,
            Refusal::NoSession => spec.may_begin(),
            // Of what has no ports, one inside end at a time talks to a remote address; and a headless target's answers
            // must not be taken for those of its own questions.
            Refusal::TupleInUse => has_ports(spec.protocol) && inside.0 != HEADLESS.0,
            Refusal::SessionLimit => few(all, most),
            Refusal::SourceLimit => few(of_source, of_one),
            // A bucket has 16 of the ports below 1024.
            Refusal::NoPort => !has_ports(spec.protocol) || inside.1 >= 1024,
            Refusal::NoMapping
            | Refusal::Filtered
            | Refusal::UnsolicitedSyn
            | Refusal::Forbidden
            | Refusal::NotReady => true,
        };
        assert!(!is_wrong, "{refusal:?} without a reason: {spec:?}, {:#?}", self.known);
    }

    /// Notes a packet that went through.
    fn note(&mut self, spec: &Spec, inside: End, outside: End, remote: End, is_outbound: bool, now: Instant) {
        let protocol = spec.protocol;
        // What contradicts it was gone.
        self.known.retain(|known| {
            let same_inside = known.protocol == protocol && known.inside == inside;
            let same_outside = known.protocol == protocol && known.outside == outside;
            let is_mapped = outside.0 != HEADLESS.1 && known.outside.0 != HEADLESS.1;
            let contradicts = is_mapped && has_ports(protocol) && same_inside != same_outside;
            let exchanged = !has_ports(protocol) && same_outside && !same_inside && known.remote == remote;
            !contradicts && !exchanged
        });
        let same = self.known.iter_mut().find(|known| {
            (known.protocol, known.inside, known.outside, known.remote) == (protocol, inside, outside, remote)
        });
        match same {
            Some(known) if !known.is_alive(now) => {
                (known.surely, known.perhaps) = surely(spec, is_outbound, known, now)
            }
            Some(known) => {
                known.perhaps = now;
                if spec.surely_refreshes(is_outbound) {
                    known.surely = now;
                }
            }
            None => self.known.push(Known { protocol, inside, outside, remote, surely: now, perhaps: now }),
        }
    }
}

/// When a session that may have been gone has surely been refreshed: it may have begun anew, or lived and not been.
fn surely(spec: &Spec, is_outbound: bool, known: &Known, now: Instant) -> (Instant, Instant) {
    (if spec.surely_refreshes(is_outbound) { now } else { known.surely }, now)
}

/// The outside end of an outbound packet.
fn outside_of(spec: &Spec, ends: &Ends) -> End {
    assert_eq!(
        (ends.to.0, spec.is_query() || ends.to.1 == spec.to.1),
        (spec.to.0, true),
        "the far end stays"
    );
    ends.from
}
