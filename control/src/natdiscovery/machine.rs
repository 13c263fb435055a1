//! The schedule of requests and the changes by answers: all remote cables, and the answers to others' requests.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use sha2::{Digest as _, Sha256};

use super::memory::Memory;
use super::message::{self, Body, IpPortPair, ParseError, Request, Response, ResponseType};
use super::outcome::{Counters, Outcome};
use super::peer::Peer;
use super::remote::{How, Local, Remote, Selection, Target};
use super::request_rate::RequestRates;
use super::respond::{self, Limits, MAX_NAME};
use super::{MAX_DATAGRAM, MAX_REMOTES};
use crate::admin::DiscoveryStatus;
use crate::deadlines::Deadlines;

/// Ours: answers that wait to be fetched. The shell fetches them after every few datagrams.
const MAX_ANSWERS: usize = 256;

/// Ours: so long after time-outs were handled there are no others. Thousands of peers, each with its own times, cost no
/// more than ten wake-ups a second: one takes 0.3 ms of two cores that rest, several times as long as a request.
const WAKE_GAP: Duration = Duration::from_millis(100);

/// A cable that cannot be discovered.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AddError {
    /// There are as many as there can be.
    #[error("cannot discover {0:?}: {MAX_REMOTES} remote cables are discovered already")]
    TooMany(String),
    /// Its name or its cluster's is longer than any that is real.
    #[error("cannot discover a cable: its name or cluster ID has more than {MAX_NAME} bytes")]
    NameTooLong,
}

/// A datagram to send.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Transmit {
    /// Where to.
    pub to: SocketAddr,
    /// Which of our addresses it has to come from: the one that was asked. `None` leaves it to the kernel.
    pub from: Option<IpAddr>,
    /// The datagram.
    pub payload: Vec<u8>,
}

/// An address was chosen for a cable, or confirmed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Selected {
    /// The remote cable.
    pub cable_name: String,
    /// Its address.
    pub selection: Selection,
}

/// NAT discovery of one gateway.
///
/// Call [`handle_timeout`](Self::handle_timeout) when the time of [`poll_timeout`](Self::poll_timeout) has come, and
/// after anything else that takes a `now`; fetch from [`poll_transmit`](Self::poll_transmit) and
/// [`poll_event`](Self::poll_event) until they are empty, in this order; then ask for the next time-out.
#[derive(Debug)]
pub struct Machine {
    local: Local,
    secret: [u8; 32],
    /// How many peers there ever were: no two start at the same number.
    generation: u64,
    peers: BTreeMap<String, Peer>,
    /// When each peer's timer is due: [`Machine::arm`].
    deadlines: Deadlines,
    rates: RequestRates,
    /// Addresses of peers, and how many have each.
    addresses: BTreeMap<IpAddr, usize>,
    memory: Memory,
    limits: Limits,
    /// Requests that are due; private before public.
    asks: BTreeSet<(String, Target)>,
    answers: VecDeque<Transmit>,
    selected: BTreeSet<String>,
    wake: Option<Instant>,
    counters: Counters,
}

impl Machine {
    /// Creates a machine without peers. `secret` is 32 random bytes: request numbers are derived from it, and must be
    /// beyond guessing. `memory` holds an earlier process's results, or none.
    #[must_use]
    pub fn new(local: Local, secret: [u8; 32], memory: Memory) -> Self {
        Self {
            local,
            secret,
            generation: 0,
            peers: BTreeMap::new(),
            deadlines: Deadlines::default(),
            rates: RequestRates::default(),
            addresses: BTreeMap::new(),
            memory,
            limits: Limits::new(),
            asks: BTreeSet::new(),
            answers: VecDeque::new(),
            selected: BTreeSet::new(),
            wake: None,
            counters: Counters::default(),
        }
    }

    /// Says who we are. Another identity, address or port makes everything be asked anew; what was chosen stays until
    /// an answer comes.
    pub fn set_local(&mut self, local: Local, now: Instant) {
        if self.local == local {
            return;
        }
        self.local = local;
        self.asks.clear();
        for (cable_name, peer) in &mut self.peers {
            let before = peer.selection();
            peer.start(self.local.port != 0, false, now);
            if peer.selection() != before {
                self.selected.insert(cable_name.clone());
            }
            self.deadlines.set(cable_name, peer.deadline());
        }
        self.wake = Some(now);
    }

    /// Returns our own identity.
    #[must_use]
    pub fn local(&self) -> &Local {
        &self.local
    }

    /// Looks for the address of a remote cable. The same again emits the selection again; another one under the same
    /// name starts anew, with the old address for the time being if it is still published.
    ///
    /// # Errors
    /// [`AddError`].
    pub fn add(&mut self, remote: Remote, now: Instant) -> Result<(), AddError> {
        if remote.cable_name.len() > MAX_NAME || remote.cluster_id.len() > MAX_NAME {
            return Err(AddError::NameTooLong);
        }
        let cable_name = remote.cable_name.clone();
        let mut known = None;
        if let Some(peer) = self.peers.get(&cable_name) {
            if peer.remote == remote {
                self.emit(&cable_name);
                return Ok(());
            }
            let kept = peer.selection().filter(|selection| remote.has(selection.ip));
            known = kept.map(|selection| (Selection { how: How::Provisional, ..selection }, false));
            self.remove(&cable_name);
        } else if self.peers.len() >= MAX_REMOTES {
            return Err(AddError::TooMany(cable_name));
        }
        let known = self.memory.recall(&remote, &self.local).or(known);
        let number = self.first_number(&cable_name);
        for ip in [remote.private_ip, remote.public_ip].into_iter().flatten() {
            *self.addresses.entry(ip).or_default() += 1;
        }
        self.peers.insert(cable_name.clone(), Peer::new(remote, number, known, self.local.port != 0, now));
        self.arm(&cable_name);
        self.emit(&cable_name);
        self.wake = Some(now);
        Ok(())
    }

    /// Forgets a remote cable: nothing more is sent or selected for it. Its result stays in the memory.
    pub fn remove(&mut self, cable_name: &str) {
        let Some(peer) = self.peers.remove(cable_name) else { return };
        self.deadlines.set(cable_name, None);
        for ip in [peer.remote.private_ip, peer.remote.public_ip].into_iter().flatten() {
            match self.addresses.get_mut(&ip) {
                Some(count) if *count > 1 => *count -= 1,
                _ => {
                    self.addresses.remove(&ip);
                }
            }
        }
        for target in Target::BOTH {
            self.asks.remove(&(cable_name.to_owned(), target));
        }
        self.selected.remove(cable_name);
    }

    /// Returns `true` if there is a remote cable of this name.
    #[must_use]
    pub fn has(&self, cable_name: &str) -> bool {
        self.peers.contains_key(cable_name)
    }

    /// Returns the names of all remote cables.
    pub fn cables(&self) -> impl Iterator<Item = &str> {
        self.peers.keys().map(String::as_str)
    }

    /// Asks again because the cable does not work. The selection stays for as long as an answer may take; then silence
    /// turns it into the fallback. May be called as often as one likes.
    pub fn rediscover(&mut self, cable_name: &str, now: Instant) {
        if let Some(peer) = self.peers.get_mut(cable_name) {
            peer.suspect(now);
            self.arm(cable_name);
            self.wake = Some(now);
        }
    }

    /// Takes in a datagram from `from` that was sent to our address `to` (`None`: not known).
    pub fn handle_datagram(
        &mut self,
        datagram: &[u8],
        from: SocketAddr,
        to: Option<IpAddr>,
        now: Instant,
    ) -> Outcome {
        let outcome = match message::parse(datagram) {
            Ok(Body::Request(request)) => self.handle_request(&request, from, to, now),
            Ok(Body::Response(response)) => self.handle_response(&response, from, now),
            Err(ParseError::TooLarge(_)) => Outcome::TooLarge,
            Err(ParseError::NotProtobuf(_) | ParseError::Empty) => Outcome::Unreadable,
        };
        self.counters.count(outcome);
        outcome
    }

    /// Handles every timer that is due at `now`.
    pub fn handle_timeout(&mut self, now: Instant) {
        if self.wake.is_none_or(|wake| wake > now) {
            return;
        }
        for cable_name in self.deadlines.take_due(now) {
            self.tick(cable_name, now);
        }
        self.wake = self.deadlines.first().map(|at| at.max(now + WAKE_GAP));
    }

    /// Handles a peer's timers.
    fn tick(&mut self, cable_name: String, now: Instant) {
        let Some(peer) = self.peers.get_mut(&cable_name) else { return };
        let tick = peer.tick(now, &mut self.rates);
        self.deadlines.set(&cable_name, peer.deadline());
        if tick.ask {
            self.asks.extend(Target::BOTH.map(|target| (cable_name.clone(), target)));
        }
        if tick.decided {
            self.remember(&cable_name);
        }
        if tick.changed {
            self.selected.insert(cable_name);
        }
    }

    /// Sets a peer's timer to its deadline, which may be another one. To be called after each change of the peer.
    fn arm(&mut self, cable_name: &str) {
        self.deadlines.set(cable_name, self.peers.get(cable_name).and_then(Peer::deadline));
    }

    /// Returns the time at which [`handle_timeout`](Self::handle_timeout) is to be called at the latest.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.wake
    }

    /// Returns the next datagram to send. `source_to` says which of our addresses the kernel would send from to a
    /// target; `None` means that there is no route, and nothing is sent there.
    pub fn poll_transmit(
        &mut self,
        mut source_to: impl FnMut(SocketAddr) -> Option<IpAddr>,
    ) -> Option<Transmit> {
        if let Some(answer) = self.answers.pop_front() {
            return Some(answer);
        }
        while let Some((cable_name, target)) = self.asks.pop_first() {
            let Some(peer) = self.peers.get_mut(&cable_name) else { continue };
            let Some(to) = peer.remote.address(target) else { continue };
            let source = source_to(to);
            peer.note_route(target, source.is_some());
            let Some(source) = source else {
                self.counters.unroutable += 1;
                continue;
            };
            let request = Request {
                request_number: peer.take_number(target),
                sender: Some(self.local.details()),
                receiver: Some(message::EndpointDetails {
                    cluster_id: peer.remote.cluster_id.clone(),
                    endpoint_id: cable_name,
                }),
                using_src: Some(IpPortPair::from(SocketAddr::new(source, self.local.port))),
                using_dst: Some(to.into()),
            };
            self.counters.requests += 1;
            return Some(Transmit { to, from: None, payload: message::emit(Body::Request(request)) });
        }
        None
    }

    /// Returns the next selection to act upon. Where several followed one another, only the newest is reported.
    pub fn poll_event(&mut self) -> Option<Selected> {
        while let Some(cable_name) = self.selected.pop_first() {
            if let Some(selection) = self.selection(&cable_name) {
                return Some(Selected { cable_name, selection });
            }
        }
        None
    }

    /// Returns the present selection of a cable.
    #[must_use]
    pub fn selection(&self, cable_name: &str) -> Option<Selection> {
        self.peers.get(cable_name)?.selection()
    }

    /// Returns `true` if the peer did not answer in time.
    #[must_use]
    pub fn has_timed_out(&self, cable_name: &str) -> bool {
        self.peers.get(cable_name).is_some_and(Peer::is_silent)
    }

    /// Returns the state of a cable's discovery for people.
    #[must_use]
    pub fn status(&self, cable_name: &str, now: Instant) -> Option<DiscoveryStatus> {
        Some(self.peers.get(cable_name)?.status(now))
    }

    /// Returns the results to keep for the next process; changed when its revision is.
    #[must_use]
    pub fn memory(&self) -> &Memory {
        &self.memory
    }

    /// Returns the counters.
    #[must_use]
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    fn handle_request(
        &mut self,
        request: &Request,
        from: SocketAddr,
        to: Option<IpAddr>,
        now: Instant,
    ) -> Outcome {
        if !respond::is_answerable(from) {
            return Outcome::Unanswerable;
        }
        let source = from.ip().to_canonical();
        let response = respond::respond(request, &self.local, from);
        let is_peer = self.addresses.contains_key(&source);
        // Whoever asks wrongly and is nobody's address is no gateway: it learns nothing, not even who we are.
        if response.response() == ResponseType::Malformed && !is_peer {
            return Outcome::MalformedByStranger;
        }
        if !self.limits.admit(&response, source, is_peer, now) {
            return Outcome::Limited;
        }
        let outcome = match response.response() {
            ResponseType::Ok => Outcome::AnsweredOk,
            ResponseType::NatDetected => Outcome::AnsweredNat,
            ResponseType::UnknownDstCluster => Outcome::AnsweredUnknownCluster,
            ResponseType::UnknownDstEndpoint => Outcome::AnsweredUnknownEndpoint,
            ResponseType::Malformed => Outcome::AnsweredMalformed,
        };
        if matches!(outcome, Outcome::AnsweredOk | Outcome::AnsweredNat) {
            self.handle_sender(request, now);
        }
        let payload = message::emit(Body::Response(response));
        if self.answers.len() < MAX_ANSWERS {
            self.answers.push_back(Transmit { to: from, from: to, payload });
        } else {
            self.counters.overflow += 1;
        }
        outcome
    }

    /// Notes that the sender is there, since it asks. Anybody can claim to be a peer; that costs us no more than a
    /// request a second.
    fn handle_sender(&mut self, request: &Request, now: Instant) {
        let Some(sender) = &request.sender else { return };
        let Some(peer) = self.peers.get_mut(&sender.endpoint_id) else { return };
        if peer.remote.cluster_id == sender.cluster_id {
            peer.handle_request(now);
            self.wake = earlier(self.wake, peer.deadline());
            self.arm(&sender.endpoint_id);
        }
    }

    fn handle_response(&mut self, response: &Response, from: SocketAddr, now: Instant) -> Outcome {
        let (Some(sender), Some(receiver), Some(_)) =
            (&response.sender, &response.receiver, &response.received_src)
        else {
            return Outcome::Incomplete;
        };
        let use_nat = match ResponseType::try_from(response.response) {
            Ok(ResponseType::Ok) => false,
            Ok(ResponseType::NatDetected) => true,
            _ => return Outcome::Refused,
        };
        if !receiver.is(&self.local.cluster_id, &self.local.cable_name) {
            return Outcome::NotOurs;
        }
        let Some(peer) = self.peers.get_mut(&sender.endpoint_id) else { return Outcome::UnknownPeer };
        if peer.remote.cluster_id != sender.cluster_id {
            return Outcome::UnknownPeer;
        }
        let before = peer.selection();
        let outcome = peer.answer(response.request_number, use_nat, from.ip().to_canonical(), now);
        let (is_decided, deadline) = (peer.is_decided(), peer.deadline());
        if peer.selection() != before {
            self.emit(&sender.endpoint_id);
        }
        self.arm(&sender.endpoint_id);
        self.wake = earlier(self.wake, deadline);
        if outcome == Outcome::Accepted && is_decided {
            for target in Target::BOTH {
                self.asks.remove(&(sender.endpoint_id.clone(), target));
            }
            self.remember(&sender.endpoint_id);
        }
        outcome
    }

    fn emit(&mut self, cable_name: &str) {
        if self.selection(cable_name).is_some() {
            self.selected.insert(cable_name.to_owned());
        }
    }

    fn remember(&mut self, cable_name: &str) {
        let Some(peer) = self.peers.get(cable_name) else { return };
        let Some(selection) = peer.selection() else { return };
        let is_live = |name: &str| self.peers.contains_key(name);
        self.memory.remember(&peer.remote, &self.local, selection, is_live);
    }

    /// Derives the first of a peer's request numbers.
    fn first_number(&mut self, cable_name: &str) -> u64 {
        self.generation += 1;
        let mut digest = Sha256::new_with_prefix(self.secret);
        digest.update(self.generation.to_be_bytes());
        digest.update(cable_name);
        let [a, b, c, d, e, f, g, h, ..] = <[u8; 32]>::from(digest.finalize());
        u64::from_be_bytes([a, b, c, d, e, f, g, h])
    }
}

fn earlier(one: Option<Instant>, other: Option<Instant>) -> Option<Instant> {
    match (one, other) {
        (Some(one), Some(other)) => Some(one.min(other)),
        (one, other) => one.or(other),
    }
}

// A datagram of ours is read by every peer, even with the longest names that there can be.
const _: () = assert!(MAX_DATAGRAM > 4 * MAX_NAME + 256);
