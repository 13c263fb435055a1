//! The network between the gateways: what it does to a frame is drawn from the world's seed.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use trieste_simulator::{Link, Random};

/// A datagram, or an ESP packet without UDP where both ports are 0.
#[derive(Debug, Clone)]
pub(crate) struct Frame {
    pub(crate) source: SocketAddr,
    pub(crate) destination: SocketAddr,
    pub(crate) payload: Vec<u8>,
    /// Whether no gateway has sent it.
    pub(crate) is_forged: bool,
}

/// What a payload is, by its first bytes (RFC 3948 section 2).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Ike,
    Keepalive,
    Esp,
}

impl Frame {
    pub(crate) fn kind(&self) -> Kind {
        kind(&self.payload, self.destination.port() == 0)
    }

    /// Makes one of a frame that was remembered: the same again, from elsewhere, shorter, or with a bit turned.
    pub(crate) fn spoil(&mut self, random: &mut Random) {
        self.is_forged = true;
        let bytes = self.payload.len();
        match random.below(5) {
            0 => {}
            1 => self.source.set_port(random.between(1, 65_535)),
            2 => self.payload.truncate(random.below(bytes)),
            // Headers are worth more of the trouble than what is encrypted.
            3 => self.turn_bit(random.below(bytes.min(40)), random),
            _ => self.turn_bit(random.below(bytes), random),
        }
    }

    fn turn_bit(&mut self, index: usize, random: &mut Random) {
        if let Some(byte) = self.payload.get_mut(index) {
            *byte ^= 1 << random.below(8);
        }
    }
}

pub(crate) fn kind(payload: &[u8], is_raw: bool) -> Kind {
    match payload {
        [0xff] if !is_raw => Kind::Keepalive,
        [0, 0, 0, 0, ..] if !is_raw => Kind::Ike,
        _ => Kind::Esp,
    }
}

/// What befalls frames, each of the two kinds for itself.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Weather {
    pub(crate) ike: Link,
    pub(crate) esp: Link,
}

/// Nothing gets through.
pub(crate) const LOST: Link = Link { loss: 1000, ..Link::millis(1, 1) };

impl Weather {
    /// Nothing is lost, all come in order but for little.
    pub(crate) const FAIR: Self = Self { ike: Link::millis(5, 8), esp: Link::millis(5, 8) };
    pub(crate) const PARTED: Self = Self { ike: LOST, esp: LOST };

    pub(crate) fn losing(loss: u64) -> Self {
        let link = Link { loss, ..Self::FAIR.ike };
        Self { ike: link, esp: link }
    }

    /// When the copies of a frame arrive, from now; none when it is lost.
    pub(crate) fn fate(&self, kind: Kind, random: &mut Random) -> Vec<Duration> {
        let link = if kind == Kind::Esp { self.esp } else { self.ike };
        link.arrivals(random)
    }
}

/// Where a gateway is: its own address, and the outside of the NAT that it is behind, if it is.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Place {
    pub(crate) own: SocketAddr,
    /// One mapping for everything: endpoint-independent, and at first with the port kept.
    pub(crate) mapping: Option<SocketAddr>,
}

impl Place {
    /// The address that others have been told.
    pub(crate) fn public(&self) -> SocketAddr {
        self.mapping.unwrap_or(self.own)
    }

    /// What the world sees of a frame for `destination`. Raw ESP does not pass a NAT.
    pub(crate) fn leave(&self, destination: SocketAddr, payload: Vec<u8>) -> Option<Frame> {
        let is_raw = destination.port() == 0;
        let source = match self.mapping {
            Some(_) if is_raw => return None,
            Some(mapping) => mapping,
            None if is_raw => SocketAddr::new(self.own.ip(), 0),
            None => self.own,
        };
        Some(Frame { source, destination, payload, is_forged: false })
    }

    /// Whether a frame from outside reaches the gateway.
    pub(crate) fn takes(&self, destination: SocketAddr) -> bool {
        match self.mapping {
            Some(mapping) => destination == mapping,
            None => destination == self.own || destination == SocketAddr::new(self.own.ip(), 0),
        }
    }

    /// The gateway's own address.
    pub(crate) fn ip(&self) -> IpAddr {
        self.own.ip()
    }
}
