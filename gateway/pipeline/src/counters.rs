//! What a worker counts. Plain integers: one writer, copied out a few times a second.

/// Packets (segments of trains) in and out of one worker.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counters {
    /// From the TUN device.
    pub tun_in: u64,
    /// Datagrams from the wire.
    pub wire_in: u64,
    /// Handed over by other workers.
    pub handed_in: u64,
    /// Made here: ICMP errors and echo replies, fragments beyond the first, control datagrams, probes of paths.
    pub made: u64,
    /// Given to the TUN device.
    pub tun_out: u64,
    /// Pings of health checks, and answers to them, among those from and to the TUN device.
    pub health_checks: u64,
    /// Given to the socket as sealed packets.
    pub wire_out: u64,
    /// Handed over to other workers.
    pub handed_out: u64,
    /// Datagrams that carried no packet to deliver: handshakes, cookies, keepalives, probes answered here,
    /// probes of paths.
    pub control_in: u64,
    /// Control datagrams sent. Not part of the packets' balance.
    pub control_out: u64,
    /// Dropped, for whatever reason.
    pub dropped: u64,
    /// Held at present: awaiting keys, or in an output queue.
    pub held: u64,
    /// Flows remembered.
    pub flows: u64,
    /// TCP segments whose MSS was lowered.
    pub mss_clamped: u64,
    /// Packets that were fragmented.
    pub fragmented: u64,
    /// "Too big" errors made.
    pub too_big: u64,
    /// Sessions of globalnet's translation that have expired.
    pub sessions_expired: u64,
    /// "Prohibited" errors made, because globalnet has no address, port or room for a flow.
    pub prohibited: u64,
    /// Packets for services that were sent to a node of theirs.
    pub services_out: u64,
    /// Probes from a peer's tunnel address that were answered here.
    pub probes_answered: u64,
    /// Packets for remote clusters given to a sibling, because no path of our own worked.
    pub relayed_out: u64,
    /// Packets for remote clusters taken from a sibling.
    pub relayed_in: u64,
    /// Lanes at present whose peers have been silent for so long that they are tried rarely.
    pub silent_lanes: u64,
    /// Attempts to reach a peer that had to wait for their turn among those of all peers.
    pub deferred_attempts: u64,
    /// Probes of paths sent.
    pub path_probes_out: u64,
    /// Probes of paths received, well-formed.
    pub path_probes_in: u64,
}

/// The balance of packets: `in + made = out + held + dropped`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Conservation {
    /// Came in and was a packet (control datagrams are not).
    pub input: u64,
    /// Made here.
    pub made: u64,
    /// Left by TUN, wire or another worker.
    pub output: u64,
    /// Still here.
    pub held: u64,
    /// Dropped.
    pub dropped: u64,
}

impl Counters {
    /// The balance.
    #[must_use]
    pub fn conservation(&self) -> Conservation {
        Conservation {
            input: (self.tun_in + self.wire_in + self.handed_in).saturating_sub(self.control_in),
            made: self.made,
            output: self.tun_out + self.wire_out + self.handed_out,
            held: self.held,
            dropped: self.dropped,
        }
    }
}

impl Conservation {
    /// Whether nothing is lost unseen.
    #[must_use]
    pub fn holds(&self) -> bool {
        self.input + self.made == self.output + self.held + self.dropped
    }
}
