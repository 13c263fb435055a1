//! An IKE SA: its keys, its message numbers, what is outstanding, and its child SAs.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Instant;

use trieste_packet::{LaneId, Outer};

use super::EngineConfig;
use super::auth::AuthOffer;
use super::child::{Child, ChildOffer};
use super::natdetection::Nat;
use super::rekey_ike::IkeOffer;
use super::retransmit::Retransmit;
use crate::ipsec::Spi;
use crate::ipsec::crypto::{IkeKeys, MessageKey, Reassembly, protect};
use crate::ipsec::wire::{Exchange, Header, Payload};

/// What becomes of an IKE SA.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum State {
    /// IKE_AUTH is under way; who the peer is remains to be seen.
    Authenticating,
    /// In use.
    Established,
    /// Made by the peer in the place of one that we are renewing ourselves: which of the two stays is not known yet.
    Waiting,
    /// Another has its child SAs; who began that is going to delete it. Until then answers are repeated.
    Replaced(Instant),
    /// We are going to delete it, or have asked for it.
    Doomed,
    /// Gone; until then answers are repeated.
    Closed(Instant),
}

/// What an outstanding request is for.
#[derive(Debug)]
pub(super) enum Operation {
    /// IKE_AUTH.
    Auth(Box<AuthOffer>),
    /// A child SA that is wanted, or that takes the place of another.
    Child(Box<ChildOffer>),
    /// An IKE SA in the place of this one.
    RekeyIke(Box<IkeOffer>),
    /// Child SAs that are doomed.
    DeleteChildren(Vec<Spi>),
    /// This IKE SA.
    DeleteIke,
    /// A sign of life.
    Probe,
}

impl Operation {
    /// In words, for people.
    pub(super) fn as_str(&self) -> &'static str {
        match self {
            Self::Auth(_) => "authenticating",
            Self::Child(offer) if offer.old.is_some() => "rekeying a child SA",
            Self::Child(_) => "making a child SA",
            Self::RekeyIke(_) => "rekeying the IKE SA",
            Self::DeleteChildren(_) => "deleting child SAs",
            Self::DeleteIke => "deleting the IKE SA",
            Self::Probe => "asking for a sign of life",
        }
    }
}

/// An outstanding request.
#[derive(Debug)]
pub(super) struct Pending {
    pub(super) id: u32,
    pub(super) exchange: Exchange,
    pub(super) operation: Operation,
    /// As it was sent: it is repeated bit for bit.
    pub(super) datagrams: Vec<Vec<u8>>,
    pub(super) timer: Retransmit,
}

/// An IKE SA that has keys and whose peer is known.
pub(super) struct IkeSa {
    /// Ours: names it.
    pub(super) spi: u64,
    pub(super) peer_spi: u64,
    /// Whether we began it, or the rekeying that made it.
    pub(super) is_initiator: bool,
    /// Whose it is, and which of the plans it serves. None when the cable is gone.
    pub(super) lane: Option<LaneId>,
    pub(super) plan: usize,
    pub(super) keys: IkeKeys,
    pub(super) open_key: MessageKey,
    seal_key: MessageKey,
    iv: u64,
    pub(super) outer: Outer,
    pub(super) nat: Nat,
    pub(super) has_fragments: bool,
    /// Whether the peer is a program like this one.
    pub(super) is_kin: bool,
    pub(super) state: State,
    /// The lower of the two nonces that made it.
    pub(super) lowest: Vec<u8>,
    pub(super) children: BTreeMap<Spi, Child>,
    next_request: u32,
    /// The number of the peer's next request.
    pub(super) expected: u32,
    pub(super) pending: Option<Pending>,
    /// The last answer, as it was sent.
    pub(super) answered: Vec<Vec<u8>>,
    pub(super) reassembly: Reassembly,
    /// When its first message was sent or came in.
    pub(super) begun: Instant,
    pub(super) established: Instant,
    pub(super) last_rx: Instant,
    pub(super) last_tx: Instant,
    pub(super) rekey_at: Instant,
    pub(super) hard_at: Instant,
    /// Before this, nothing that the peer had no time for is tried again.
    pub(super) patience: Instant,
    /// Since when it has had no time, whenever it was asked.
    pub(super) busy_since: Option<Instant>,
    /// Whether the peer is to be asked for a sign of life.
    pub(super) wants_probe: bool,
    /// When it is to be deleted because there are two: not before the other one is known to work.
    pub(super) doom_at: Option<Instant>,
    /// Notifies that go with the deletion.
    pub(super) farewell: Vec<Payload>,
}

/// What an IKE SA begins with.
pub(super) struct Birth {
    pub(super) spi: u64,
    pub(super) peer_spi: u64,
    pub(super) is_initiator: bool,
    pub(super) keys: IkeKeys,
    pub(super) outer: Outer,
    pub(super) nat: Nat,
    pub(super) has_fragments: bool,
    pub(super) is_kin: bool,
    pub(super) lowest: Vec<u8>,
    pub(super) begun: Instant,
}

impl IkeSa {
    /// One that takes the place of another: message numbers begin at 0.
    pub(super) fn new(birth: Birth, now: Instant) -> Self {
        let Birth { spi, peer_spi, is_initiator, keys, outer, nat, has_fragments, is_kin, lowest, begun } =
            birth;
        Self {
            spi,
            peer_spi,
            is_initiator,
            lane: None,
            plan: 0,
            open_key: keys.message_key(!is_initiator),
            seal_key: keys.message_key(is_initiator),
            keys,
            iv: 0,
            outer,
            nat,
            has_fragments,
            is_kin,
            state: State::Established,
            lowest,
            children: BTreeMap::new(),
            next_request: 0,
            expected: 0,
            pending: None,
            answered: Vec::new(),
            reassembly: Reassembly::default(),
            begun,
            established: now,
            last_rx: now,
            last_tx: now,
            rekey_at: now,
            hard_at: now,
            patience: now,
            busy_since: None,
            wants_probe: false,
            doom_at: None,
            farewell: Vec::new(),
        }
    }

    /// One that comes of IKE_SA_INIT: the next request is IKE_AUTH, of its initiator.
    pub(super) fn of_init(birth: Birth, now: Instant) -> Self {
        let mut sa = Self::new(birth, now);
        sa.state = State::Authenticating;
        if sa.is_initiator {
            sa.next_request = 1;
        } else {
            sa.expected = 1;
        }
        sa
    }

    /// The SPIs as they are in headers: initiator's and responder's.
    pub(super) fn spis(&self) -> (u64, u64) {
        if self.is_initiator { (self.spi, self.peer_spi) } else { (self.peer_spi, self.spi) }
    }

    /// Seals a request and remembers it until it is answered.
    pub(super) fn request(
        &mut self,
        exchange: Exchange,
        payloads: &[Payload],
        operation: Operation,
        config: &EngineConfig,
        now: Instant,
    ) -> Vec<Vec<u8>> {
        let id = self.next_request;
        self.next_request = self.next_request.wrapping_add(1);
        let datagrams = self.seal(exchange, false, id, payloads, config);
        // A deletion is a courtesy: if nobody is there to be told, it is not worth a minute.
        let timer = if matches!(operation, Operation::DeleteIke) {
            Retransmit::until(config.retransmit_first, now + config.give_up / 6, now)
        } else {
            Retransmit::new(config, now)
        };
        self.pending = Some(Pending { id, exchange, operation, datagrams: datagrams.clone(), timer });
        datagrams
    }

    /// Seals the answer to the request that was expected, and remembers it.
    pub(super) fn respond(
        &mut self,
        exchange: Exchange,
        payloads: &[Payload],
        config: &EngineConfig,
    ) -> &[Vec<u8>] {
        self.answered = self.seal(exchange, true, self.expected, payloads, config);
        self.expected = self.expected.wrapping_add(1);
        &self.answered
    }

    fn seal(
        &mut self,
        exchange: Exchange,
        is_response: bool,
        message_id: u32,
        payloads: &[Payload],
        config: &EngineConfig,
    ) -> Vec<Vec<u8>> {
        let (spi_i, spi_r) = self.spis();
        let is_initiator = self.is_initiator;
        let header = Header { spi_i, spi_r, exchange, is_initiator, is_response, message_id };
        let limit = self.has_fragments.then_some(config.fragment_limit());
        protect::seal(&header, payloads, &self.seal_key, &mut self.iv, limit)
    }

    /// Whether it is in use.
    pub(super) fn is_established(&self) -> bool {
        self.state == State::Established
    }

    /// When a packet or message of the peer was last seen.
    pub(super) fn last_life(&self) -> Instant {
        let packets = self.children.values().filter_map(|child| child.meter.last_rx());
        packets.fold(self.last_rx, Instant::max)
    }
}

impl fmt::Debug for IkeSa {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "IkeSa({:016x}, {:?})", self.spi, self.state)
    }
}
