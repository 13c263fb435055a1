//! The boundary that every kind of cable implements.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::{Duration, Instant};

use ipnet::IpNet;
use trieste_packet::{Batch, CableId, DropReason, Drops, LaneId, Outer, Packet, Pool};

/// Slow half of a tunnel: handshake, rekey, keepalive. One owner, no IO, no clock.
///
/// Call order: any `handle_*`, then `poll_transmit` and `poll_event` until they return `None`, then
/// `poll_timeout` for when to call `handle_timeout`.
pub trait Cable: Send {
    /// Takes a control message (never a data message) that `from` sent.
    fn handle_datagram(&mut self, datagram: &[u8], from: &Outer, now: Instant, drops: &mut Drops);
    /// Does what is due.
    fn handle_timeout(&mut self, now: Instant, drops: &mut Drops);
    /// When `handle_timeout` wants to be called next.
    fn poll_timeout(&self) -> Option<Instant>;
    /// The next datagram to send, if any.
    fn poll_transmit(&mut self) -> Option<Transmit>;
    /// The next thing that happened, if any.
    fn poll_event(&mut self) -> Option<CableEvent>;
    /// Begins a new handshake at once; traffic goes on over the old keys.
    fn rekey(&mut self, now: Instant);
    /// The far end moved: new address of its Endpoint.
    fn set_peer(&mut self, peer: Option<SocketAddr>, now: Instant);
    /// What is known of the tunnel.
    fn stats(&self, now: Instant) -> CableStats;
}

/// Fast half: keys, send counter, replay window of one SA pair or session. `&mut`, owned by one worker, handed to
/// it by message; added, replaced and drained under traffic.
pub trait Lane: Send {
    /// Bytes that sealing adds to a packet.
    fn overhead(&self) -> Overhead;
    /// Seals all packets of `jobs.input`, appending datagrams (as trains) to `jobs.output`. What cannot be sealed
    /// yet is held. Called with an empty input, it seals what is held, if it can.
    fn seal(&mut self, jobs: &mut Jobs<'_>, now: Instant);
    /// Opens all datagrams of `jobs.input`, which are data messages for this lane, appending packets to
    /// `jobs.output` (layout `Packets`, or `Single`). Before them, and also with an empty input, it opens what came before
    /// its keys did, if they have come.
    fn open(&mut self, jobs: &mut Jobs<'_>, now: Instant);
    /// Returns `true` if there are keys for datagrams that came before them.
    fn has_openable(&self) -> bool {
        false
    }
}

/// A tunnel whose two halves are one object.
pub trait Tunnel: Cable + Lane {}

impl<T: Cable + Lane> Tunnel for T {}

/// Work for a lane: packets in, packets out, and where to count what is lost. No job returns an error: every
/// packet of the input is sealed or opened, held, consumed (keepalives) or counted as dropped.
#[derive(Debug)]
pub struct Jobs<'a> {
    /// Packets to work on; empty afterwards.
    pub input: &'a mut Vec<Packet>,
    /// What came of them. Has room for what one call can make.
    pub output: &'a mut Batch,
    /// Buffers.
    pub pool: &'a mut Pool,
    /// Drop counters.
    pub drops: &'a mut Drops,
    /// Incremented by datagrams that carry no packet (keepalives).
    pub consumed: &'a mut u64,
}

impl Jobs<'_> {
    /// Appends to the output; a full output is a dropped packet.
    pub fn emit(&mut self, packet: Packet, cable: CableId) {
        if let Err(packet) = self.output.push(packet) {
            self.drops.count(cable, DropReason::NoBuffer, packet.segments());
            self.pool.recycle(packet.buf);
        }
    }
}

/// Bytes that a lane adds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Overhead {
    /// Bytes in front of and behind the packet, inside the UDP payload.
    pub message_bytes: u16,
}

/// A datagram to send.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Transmit {
    /// UDP payload.
    pub payload: Vec<u8>,
    /// Destination and our own address.
    pub outer: Outer,
}

/// Something that happened to a cable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CableEvent {
    /// Packets can be sealed (again).
    LaneUp,
    /// The peer's address changed because authenticated packets came from a new one.
    Roamed(SocketAddr),
    /// Attempts to reach the peer ended; they begin again by themselves.
    Down,
}

/// What is known of a tunnel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CableStats {
    /// Bytes of datagrams received and authenticated.
    pub rx_bytes: u64,
    /// Bytes of datagrams sent.
    pub tx_bytes: u64,
    /// Packets received and opened.
    pub rx_packets: u64,
    /// Packets sealed.
    pub tx_packets: u64,
    /// Time since the last completed handshake; of kinds without, since the peer was last heard.
    pub handshake_age: Option<Duration>,
    /// Whether packets can be sealed.
    pub is_up: bool,
    /// Where packets are sent.
    pub peer: Option<SocketAddr>,
    /// Packets waiting for keys.
    pub held: u64,
    /// Handshakes completed since the start.
    pub handshakes: u64,
    /// Whether the peer has been silent for so long that it is tried rarely.
    pub is_silent: bool,
    /// How often an attempt to reach the peer had to wait for its turn among those of all peers.
    pub deferred: u64,
}

/// What a datagram on the cable port is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Message {
    /// Carries a packet for this lane.
    Data(LaneId),
    /// Handshake or other control message for this lane, to be admitted first.
    Control(LaneId),
    /// First message of a handshake: who sent it is inside.
    Greeting,
    /// Control message for the slow half that all cables of the kind share; its gate hands it on.
    Negotiation,
    /// Keeps a NAT mapping alive and says nothing.
    Keepalive,
    /// Comes from an address where there is no peer, of a kind whose peers are known by their address alone.
    Stranger,
    /// None of this kind's.
    Unknown,
}

/// What the gate says to a handshake message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Admission {
    /// Hand it to its cable. For a greeting: the identity (public key) of the sender.
    Pass(Option<[u8; 32]>),
    /// The gate has given it to the slow half that all cables share.
    Taken,
    /// Answer this instead (a cookie); the message is dropped.
    Reply(Vec<u8>),
    /// Drop it.
    Refuse(DropReason),
}

/// Tells messages apart and keeps floods out. One for each worker; sans-IO.
pub trait Gate: Send {
    /// What this datagram is, by its first bytes, or, of kinds whose messages name no receiver, by who sent it.
    fn classify(&mut self, datagram: &[u8], from: &Outer) -> Message;
    /// Whether a control message, greeting or negotiation that `from` sent may go on.
    fn admit(&mut self, datagram: &[u8], from: &Outer, now: Instant) -> Admission;
    /// Called about once a second.
    fn handle_timeout(&mut self, now: Instant);
}

/// A kind of cable: what an Endpoint's `backend` names. Kinds are registered by the binary.
pub trait CableKind: Send + Sync {
    /// The value of an Endpoint's `backend`.
    fn name(&self) -> &'static str;
    /// Returns the drivers that this is made of, the one that an Endpoint is named for first ([`crate::drivers`]).
    fn names(&self) -> Vec<&'static str> {
        vec![self.name()]
    }
    /// Finds the driver of this name among several; `None` for a kind that is a single one.
    fn of(&self, _driver: &str) -> Option<&dyn CableKind> {
        None
    }
    /// What our own Endpoint says in `backend_config`.
    fn backend_config(&self) -> BTreeMap<String, String>;
    /// The identity of a remote Endpoint: by it greetings are recognised, and another one means another cable.
    ///
    /// # Errors
    /// [`CableError`] when its `backend_config` lacks something or is malformed.
    fn identity(&self, remote: &Site) -> Result<[u8; 32], CableError>;
    /// What the identity is, for whoever reads that two Endpoints have the same.
    fn identity_is(&self) -> &'static str {
        "key"
    }
    /// Makes the tunnel to a remote Endpoint.
    ///
    /// # Errors
    /// [`CableError`] when its `backend_config` lacks something or is malformed.
    fn connect(&self, config: &LaneConfig, now: Instant) -> Result<Box<dyn Tunnel>, CableError>;
    /// The cable was cut: no packets are sealed for it any more, and for a few seconds its lane still opens. For
    /// kinds whose slow half is not in the lane.
    fn disconnect(&self, _lane: LaneId) {}
    /// The same as [`Cable::set_peer`], for kinds whose slow half is not in the lane.
    fn set_peer(&self, _lane: LaneId, _peer: SocketAddr) {}
    /// The same as [`Cable::rekey`], for kinds whose slow half is not in the lane.
    fn rekey(&self, _lane: LaneId) {}
    /// A gate for one worker.
    fn gate(&self) -> Box<dyn Gate>;
    /// Bytes that sealing adds, before any lane exists.
    fn overhead(&self) -> Overhead;
    /// Whether data messages are ESP: datagrams are then steered by SPI, and raw sockets are opened for ESP without
    /// UDP, which has port 0 (see [`trieste_packet::Outer::peer`]).
    fn carries_esp(&self) -> bool {
        false
    }
    /// Returns `true` if a cable to this end is for the networks that it was made with: it is made anew when ours change, and
    /// when theirs do, which are part of the identity.
    fn is_bound_to_networks(&self, _remote: &Site) -> bool {
        false
    }
    /// Takes other networks at the ends of a cable. For kinds whose peers agree on networks, and on others while packets flow.
    fn set_networks(&self, _lane: LaneId, _local: &[IpNet], _remote: &[IpNet]) {}
    /// Whether messages name no receiver and prove nothing, so that a peer is known by the address that they come from:
    /// datagrams are then shared out among workers by their addresses, and a cable is connected while its peer answers.
    fn identifies_by_address(&self) -> bool {
        false
    }
}

/// One end of a cable: what an Endpoint says of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Site {
    /// The cable's name.
    pub cable_name: String,
    /// The gateway's own address, which need not be where it is reached.
    pub private_ip: IpAddr,
    /// The address at which others see it, if it says so.
    pub public_ip: Option<IpAddr>,
    /// The subnets behind it, in published order.
    pub subnets: Vec<IpNet>,
    /// The name of its cable driver. Kinds that are a single driver do not look at it.
    pub driver: String,
    /// What its cable driver says of itself.
    pub backend_config: BTreeMap<String, String>,
}

impl From<BTreeMap<String, String>> for Site {
    /// A site of which nothing but its driver's settings is known: enough for kinds with keys of their own.
    fn from(backend_config: BTreeMap<String, String>) -> Self {
        Self {
            cable_name: String::new(),
            private_ip: Ipv4Addr::UNSPECIFIED.into(),
            public_ip: None,
            subnets: Vec::new(),
            driver: String::new(),
            backend_config,
        }
    }
}

/// What a tunnel to a remote Endpoint is made of.
#[derive(Debug, Clone)]
pub struct LaneConfig {
    /// The lane's id: 24 bits, the low eight of which name the worker that owns it.
    pub lane: LaneId,
    /// For counters.
    pub cable: CableId,
    /// Where the peer is, if known.
    pub peer: Option<SocketAddr>,
    /// Our Endpoint.
    pub local: Site,
    /// The remote Endpoint.
    pub remote: Site,
    /// Whether there is NAT on the way, as NAT discovery found.
    pub uses_nat: bool,
    /// Whether the peer was known before a restart of ours, which it is unaware of: the first word is ours.
    pub resumes: bool,
}

impl LaneConfig {
    /// A tunnel to an end of which nothing but its driver's settings is known, at `peer` if that is known.
    #[must_use]
    pub fn new(
        lane: LaneId,
        cable: CableId,
        peer: Option<SocketAddr>,
        backend_config: BTreeMap<String, String>,
    ) -> Self {
        let (local, remote) = (BTreeMap::new().into(), backend_config.into());
        Self { lane, cable, peer, local, remote, uses_nat: false, resumes: false }
    }
}

/// Why a cable could not be made.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CableError {
    /// The remote Endpoint lacks a key in `backend_config`.
    #[error("the remote Endpoint's backend_config has no {0:?}: is its cable driver the same as ours?")]
    Missing(&'static str),
    /// A key in the remote Endpoint's `backend_config` is malformed.
    #[error("the remote Endpoint's backend_config has a bad {key:?}: {problem}")]
    Malformed {
        /// The key.
        key: &'static str,
        /// What is wrong with its value.
        problem: String,
    },
    /// The remote Endpoint carries our own key.
    #[error("the remote Endpoint has our own public key: two gateways share one state directory or key file")]
    OwnKey,
    /// A private address of which no VTEP address can be made.
    #[error(
        "the private address {0} is not IPv4, and a VXLAN cable needs one that is: use another cable driver there and here"
    )]
    NoVtep(Ipv6Addr),
    /// The remote gateway would have our address inside the tunnel.
    #[error(
        "its private address ends like ours, so that both gateways would be {0} inside the tunnel: give one of them an \
         address with other last three octets, or use another cable driver"
    )]
    OwnVtep(Ipv4Addr),
}
