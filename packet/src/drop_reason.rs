//! Why packets are dropped.

use std::fmt;

use crate::packet::{CableId, Packet};
use crate::pool::Pool;

macro_rules! reasons {
    ($($(#[$doc:meta])* $name:ident = $text:literal,)+) => {
        /// A packet's fate when it is neither sent, delivered nor held. One counter per reason, cable and worker.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[repr(u8)]
        pub enum DropReason {
            $($(#[$doc])* $name,)+
        }

        impl DropReason {
            /// Every reason, in the order of their numbers.
            pub const ALL: &'static [Self] = &[$(Self::$name,)+];

            /// The reason as a metric label and as a packet comment in captures.
            #[must_use]
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$name => $text,)+ }
            }
        }
    };
}

reasons! {
    /// Too short for the headers it announces, a bad header length, or an impossible total length.
    MalformedHeader = "malformed_header",
    /// Neither IPv4 nor IPv6.
    NotIp = "not_ip",
    /// The IPv6 extension header chain is too long or broken.
    ExtensionHeaders = "extension_headers",
    /// The inner destination is multicast or broadcast; only unicast crosses clusters.
    NotUnicast = "not_unicast",
    /// Outbound: no remote cluster has the destination.
    NoRoute = "no_route",
    /// Outbound: the source is in none of our published subnets, so the peer would refuse it.
    SourceNotLocal = "source_not_local",
    /// Inbound: the source is in none of the peer's subnets (cryptokey routing).
    SourceNotAllowed = "source_not_allowed",
    /// Inbound: the destination is in none of our subnets.
    DestinationNotLocal = "destination_not_local",
    /// Inbound: the destination belongs to a remote cluster; sending it on could go round for ever.
    Loop = "loop",
    /// A sibling passed it on to a remote cluster that this gateway has no path to either.
    NoOwnPath = "no_own_path",
    /// The path's lane does not exist (any more).
    NoLane = "no_lane",
    /// Held for a handshake, and pushed out by a newer packet; inbound, one too many for an SA whose keys are on the way.
    HeldOverflow = "held_overflow",
    /// Held for a handshake that did not come about, or inbound for keys that did not.
    HeldExpired = "held_expired",
    /// Too big for the path with DF set; the source was told by ICMP.
    TooBig = "too_big",
    /// Fragmenting failed: header options or size do not allow it.
    CannotFragment = "cannot_fragment",
    /// The sealing cable refused the packet.
    SealFailed = "seal_failed",
    /// Outbound: no SA of the cable is for this packet.
    NoSelector = "no_selector",
    /// Outbound: every SA for this packet is past its hard limit, in time, bytes or packets.
    SaExpired = "sa_expired",
    /// With AF_XDP: the datagram's UDP checksum is wrong, or missing over IPv6.
    OuterChecksum = "outer_checksum",
    /// A datagram that is no message of any cable on this port.
    UnknownDatagram = "unknown_datagram",
    /// A message for a receiver index that no lane has, or for an SPI of no IKE SA.
    UnknownReceiver = "unknown_receiver",
    /// A handshake message that did not verify or was out of order.
    BadHandshake = "bad_handshake",
    /// A handshake from a key that no Endpoint announced; with VXLAN, a datagram from an address of no Endpoint.
    UnknownPeer = "unknown_peer",
    /// Handshake messages above the limit, without a valid cookie, above the source's share, or above what all strangers
    /// together may send.
    HandshakeLimit = "handshake_limit",
    /// The message number was seen before, or is too old for the window.
    Replay = "replay",
    /// Authentication failed.
    BadTag = "bad_tag",
    /// With several gateways: this one may not give out ports yet, or no more. Sources try again.
    NatNotReady = "nat_not_ready",
    /// A message for a session that has expired or never was.
    NoSession = "no_session",
    /// The opened packet is not a valid IP packet.
    BadInner = "bad_inner",
    /// The opened packet is none that its SA is for.
    SelectorMismatch = "selector_mismatch",
    /// A VXLAN frame for another station: upstream's device sends every frame to all its peers.
    OtherStation = "other_station",
    /// A VXLAN frame from our own station, or an ARP packet that claims our VTEP address: it went round, or somebody has
    /// our address.
    OwnStation = "own_station",
    /// Outer congestion mark on a packet that cannot carry it (RFC 6040).
    EcnNotCapable = "ecn_not_capable",
    /// For this node, whose route agent has not come yet after the node has: its answer could leave in clear.
    NodeNotReady = "node_not_ready",
    /// No buffer was free.
    NoBuffer = "no_buffer",
    /// The queue to the owning worker was full.
    HandoffFull = "handoff_full",
    /// The TUN device refused the packet.
    TunWrite = "tun_write",
    /// The TUN queue was full.
    TunFull = "tun_full",
    /// The socket refused the datagram.
    SocketWrite = "socket_write",
    /// The socket's send buffer was full.
    SocketFull = "socket_full",
    /// In the hands of a worker when it panicked.
    WorkerPanic = "worker_panic",
    /// Left in a queue when the gateway stopped.
    Stopped = "stopped",
    /// Globalnet, outbound: no rule gives the source a global IP.
    NoGlobalIp = "no_global_ip",
    /// Globalnet, inbound: nobody has the global IP, or nobody has this port of it.
    NoMapping = "no_mapping",
    /// Globalnet, inbound: the port is somebody's, who has not talked to this address.
    NatFiltered = "nat_filtered",
    /// Globalnet: all ports that the source could have are taken.
    NatExhausted = "nat_exhausted",
    /// Globalnet: the worker has as many sessions as it may have.
    NatSessionLimit = "nat_session_limit",
    /// Globalnet: the source has as many mappings or sessions as one address may have.
    NatSourceLimit = "nat_source_limit",
    /// Globalnet: a fragment whose first did not come in time, or one too many that waits for it.
    NatFragment = "nat_fragment",
    /// Globalnet: a message that cannot be translated: an ICMP message that is no query and no error, or an error that
    /// quotes what is no right packet.
    NatUntranslatable = "nat_untranslatable",
    /// An ICMP answer (an error, an echo reply) that would have been made for this packet is over the limit.
    IcmpLimit = "icmp_limit",
    /// Inbound: a message between Trieste gateways inside a cable that is malformed or of an unknown kind.
    BadControl = "bad_control",
    /// Outbound: IP protocol 253, by which gateways speak to each other inside cables.
    ReservedProtocol = "reserved_protocol",
}

const REASONS: usize = DropReason::ALL.len();

/// Somebody who wants to see what is dropped; there only while a capture runs.
pub trait Witness: Send {
    /// A packet is dropped; `bytes` are what is left of it (an IP packet, or a datagram's payload).
    fn dropped(&mut self, cable: CableId, reason: DropReason, bytes: &[u8]);
}

/// Drop counters of one worker: packets (segments of trains) per cable and reason.
#[derive(Default)]
pub struct Drops {
    by_cable: Vec<[u64; REASONS]>,
    /// The counters above zero, sorted: few of very many, for [`Self::iter`].
    used: Vec<(CableId, DropReason)>,
    total: u64,
    witness: Option<Box<dyn Witness>>,
}

impl fmt::Debug for Drops {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

impl Drops {
    /// Counts `packets` dropped for `reason` on `cable` (`CableId(0)` where no cable is known).
    pub fn count(&mut self, cable: CableId, reason: DropReason, packets: u64) {
        let row = usize::from(cable.0);
        if row >= self.by_cable.len() {
            // Once per cable ever seen by this worker.
            self.by_cable.resize(row + 1, [0; REASONS]);
        }
        let counter = &mut self.by_cable[row][reason as usize];
        if *counter == 0
            && packets > 0
            && let Err(at) = self.used.binary_search(&(cable, reason))
        {
            self.used.insert(at, (cable, reason));
        }
        *counter += packets;
        self.total += packets;
    }

    /// Counts one packet and shows its bytes to the witness, if there is one.
    pub fn lose(&mut self, cable: CableId, reason: DropReason, bytes: &[u8]) {
        self.count(cable, reason, 1);
        if let Some(witness) = self.witness.as_mut() {
            witness.dropped(cable, reason, bytes);
        }
    }

    /// Counts all segments of a packet, shows it to the witness, and gives its buffer back.
    pub fn discard(&mut self, packet: Packet, reason: DropReason, pool: &mut Pool) {
        self.count(packet.decision.cable, reason, packet.segments());
        if let Some(witness) = self.witness.as_mut() {
            witness.dropped(packet.decision.cable, reason, packet.bytes());
        }
        pool.recycle(packet.buf);
    }

    /// Sets or removes the witness.
    pub fn set_witness(&mut self, witness: Option<Box<dyn Witness>>) {
        self.witness = witness;
    }

    /// Packets dropped in all.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.total
    }

    /// Packets dropped for `reason` on all cables.
    #[must_use]
    pub fn of(&self, reason: DropReason) -> u64 {
        self.by_cable.iter().map(|row| row[reason as usize]).sum()
    }

    /// All counters above zero. Costs what there is of them.
    pub fn iter(&self) -> impl Iterator<Item = (CableId, DropReason, u64)> + '_ {
        self.used
            .iter()
            .map(|&(cable, reason)| (cable, reason, self.by_cable[usize::from(cable.0)][reason as usize]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_above_zero_are_listed_by_cable_and_reason() {
        let mut drops = Drops::default();
        let counts = [(7, DropReason::NoLane, 2), (3, DropReason::Replay, 1), (7, DropReason::NotIp, 0)];
        for (cable, reason, packets) in counts {
            drops.count(CableId(cable), reason, packets);
        }
        drops.count(CableId(7), DropReason::NoLane, 1);
        let listed: Vec<_> = drops.iter().collect();
        assert_eq!(listed, [(CableId(3), DropReason::Replay, 1), (CableId(7), DropReason::NoLane, 3)]);
        assert_eq!((drops.total(), drops.of(DropReason::NoLane)), (4, 3));
    }
}
