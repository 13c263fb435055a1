//! Timers and limits.

use std::time::Duration;

/// How long a session lives without packets. Each is rounded up to whole seconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timers {
    /// UDP, and protocols that are not looked into.
    pub udp: Duration,
    /// TCP connections that are open, also half-closed ones.
    pub tcp_established: Duration,
    /// TCP connections that open: not both ends have sent their SYN.
    pub tcp_opening: Duration,
    /// TCP connections that close: both ends have sent their FIN, or one a RST.
    pub tcp_closing: Duration,
    /// ICMP queries.
    pub icmp: Duration,
    /// How long nothing is said about the first packet of a TCP connection that nobody inside waits for.
    pub unsolicited_syn: Duration,
}

impl Default for Timers {
    fn default() -> Self {
        Self {
            //= https://www.rfc-editor.org/rfc/rfc4787#section-4.3
            //# A default value of five minutes or more for the NAT UDP mapping
            //# timer is RECOMMENDED.
            udp: Duration::from_secs(5 * 60),
            //= https://www.rfc-editor.org/rfc/rfc5382#section-5
            //# In such cases, the value of the "established connection
            //# idle-timeout" MUST NOT be less than 2 hours 4 minutes.
            tcp_established: Duration::from_secs(2 * 3600 + 4 * 60),
            //= https://www.rfc-editor.org/rfc/rfc7857#section-2.1
            //# This document clarifies that a NAT SHOULD provide
            //# different configurable parameters for configuring the open and
            //# closing idle timeouts
            tcp_opening: Duration::from_secs(4 * 60),
            tcp_closing: Duration::from_secs(4 * 60),
            //= https://www.rfc-editor.org/rfc/rfc5508#section-3.2
            //# An ICMP Query session timer MUST NOT expire in less than 60
            //# seconds.
            icmp: Duration::from_secs(60),
            //= https://www.rfc-editor.org/rfc/rfc5382#section-4.3
            //# A NAT MUST NOT respond to an unsolicited inbound SYN packet
            //# for at least 6 seconds after the packet is received.
            unsolicited_syn: Duration::from_secs(6),
        }
    }
}

/// What a worker's translation may hold at most.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Sessions; memory for them is reserved at construction and used as they come (about 150 bytes each).
    pub sessions: u32,
    /// Mappings of one inside address.
    pub mappings_per_source: u32,
    /// Sessions of one inside address.
    pub sessions_per_source: u32,
    /// Above this share of a bucket's ports, in percent, a TCP port may be shared by mappings to different remote
    /// addresses. 100 never shares.
    pub share_tcp_above_percent: u8,
    /// Changes that wait to be taken by [`Nat::changes`](crate::Nat::changes). 0 keeps none.
    pub changes: usize,
    /// First packets of TCP connections that are held before they are answered.
    pub unsolicited: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            sessions: 1 << 20,
            mappings_per_source: 1 << 14,
            sessions_per_source: 1 << 16,
            share_tcp_above_percent: 90,
            changes: 1 << 14,
            unsolicited: 256,
        }
    }
}

/// Timers and limits of one worker's translation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Config {
    /// How long sessions live.
    pub timers: Timers,
    /// What may be held.
    pub limits: Limits,
}
