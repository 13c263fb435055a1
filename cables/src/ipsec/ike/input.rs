//! What the slow half is told.

use std::fmt;
use std::net::SocketAddr;

use crossbeam::channel::Receiver;
use ipnet::IpNet;
use trieste_packet::{LaneId, Outer};

use crate::boundary::Site;
use crate::ipsec::{LaneLink, LaneNews, PairKey};

/// What the engine's inbox carries.
#[derive(Debug)]
pub enum Input {
    /// An IKE message came in.
    Datagram {
        /// The message, without the non-ESP marker.
        message: Vec<u8>,
        /// Who sent it and to which address of ours.
        from: Outer,
    },
    /// There is a cable to a remote Endpoint. One of the same lane is replaced.
    Connect(Box<PeerConfig>, LaneLink, Receiver<LaneNews>),
    /// The cable is to be closed; the peer is told.
    Disconnect(LaneId),
    /// The remote Endpoint moved, or NAT discovery found another way to it.
    SetAddress(LaneId, SocketAddr),
    /// Networks at an end have changed.
    SetNetworks {
        /// The lane that carries the cable's packets.
        lane: LaneId,
        /// Ours, in published order.
        local: Vec<IpNet>,
        /// The peer's.
        remote: Vec<IpNet>,
    },
    /// New keys for everything at once.
    Rekey(LaneId),
}

/// A remote gateway.
#[derive(Clone)]
pub struct PeerConfig {
    /// The lane that carries its packets.
    pub lane: LaneId,
    /// The cable's name, for people.
    pub name: String,
    /// Our own Endpoint.
    pub local: Site,
    /// The remote Endpoint.
    pub remote: Site,
    /// Address and udp-port of the peer as NAT discovery chose them, if it did.
    pub address: Option<SocketAddr>,
    /// Whether packets have to go through UDP whatever IKE finds: NAT discovery says so, or the configuration.
    pub uses_nat: bool,
    /// Whether we begin at once, and do not wait whether the peer does.
    pub begins: bool,
    /// The key by which it and we authenticate each other; the set's if it has none of its own.
    pub pair_key: Option<PairKey>,
}

impl PeerConfig {
    /// Returns one of which nothing is known but what both Endpoints say: not where it is, without NAT and key of its own.
    #[must_use]
    pub fn new(lane: LaneId, local: Site, remote: Site) -> Self {
        let name = remote.cable_name.clone();
        Self { lane, name, local, remote, address: None, uses_nat: false, begins: false, pair_key: None }
    }
}

impl fmt::Debug for PeerConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PeerConfig({} on lane {})", self.name, self.lane.0)
    }
}
