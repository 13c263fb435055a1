//! A TCP connection as a translator sees it: the states of RFC 7857 section 2 (after RFC 6146 section 3.5.2).
//!
//! ```text
//!   SynOut ──SYN in──▶ Established ◀──SYN out── SynIn     Loose ──any in──▶ Established ◀──any out── LooseIn
//!                       │       │
//!                  FIN out     FIN in                     any ──RST──▶ Reset ──packet out──▶ Established
//!                       ▼       ▼
//!                     FinOut  FinIn ──the other FIN──▶ Closing ──SYN──▶ SynOut, SynIn
//! ```
//!
//! Sequence numbers are not looked at: whether a RST is right is for the ends to say. So it ends nothing here, it
//! only shortens the timer, and the next packet from inside takes that back.

use trieste_packet::wire::tcp::{ACK, FIN, RST, SYN};

use crate::config::Timers;
use crate::facts::Kind;
use crate::record::Phase;

/// Seconds that a session lives without packets, by phase and protocol.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Seconds {
    udp: u32,
    icmp: u32,
    established: u32,
    opening: u32,
    closing: u32,
}

impl Seconds {
    pub(crate) fn new(timers: &Timers) -> Self {
        let whole = |duration: std::time::Duration| {
            let up = u64::from(duration.subsec_nanos() > 0);
            // A year and more is as good as for ever, and leaves room for sums.
            u32::try_from(duration.as_secs().saturating_add(up)).unwrap_or(u32::MAX).min(1 << 30)
        };
        Self {
            udp: whole(timers.udp),
            icmp: whole(timers.icmp),
            established: whole(timers.tcp_established),
            opening: whole(timers.tcp_opening),
            closing: whole(timers.tcp_closing),
        }
    }

    pub(crate) fn of(&self, protocol: u8, phase: Phase) -> u32 {
        match phase {
            Phase::Plain if protocol == trieste_packet::wire::protocol::ICMP => self.icmp,
            Phase::Plain => self.udp,
            Phase::SynOut | Phase::SynIn | Phase::Loose | Phase::LooseIn => self.opening,
            // One end may go on for long after the other has nothing more to say.
            Phase::Established | Phase::FinOut | Phase::FinIn => self.established,
            Phase::Closing | Phase::Reset => self.closing,
        }
    }
}

impl Phase {
    /// The phase that a session begins in with its first packet.
    pub(crate) fn first(kind: Kind, is_outbound: bool) -> Self {
        match kind {
            Kind::Tcp(flags) if flags & (SYN | ACK) == SYN => {
                if is_outbound {
                    Self::SynOut
                } else {
                    Self::SynIn
                }
            }
            Kind::Tcp(_) if is_outbound => Self::Loose,
            Kind::Tcp(_) => Self::LooseIn,
            Kind::Udp | Kind::Request | Kind::Reply | Kind::Other => Self::Plain,
        }
    }

    /// The phase after one more packet with these flags.
    pub(crate) fn next(self, is_outbound: bool, flags: u8) -> Self {
        if self == Self::Plain {
            return self;
        }
        if flags & RST != 0 {
            return Self::Reset;
        }
        if flags & SYN != 0 {
            return self.after_syn(is_outbound, flags);
        }
        let next = match (self, is_outbound) {
            // Who was reset by a stranger goes on talking, and who answers without a SYN has sent it before.
            (Self::Loose, false) | (Self::LooseIn | Self::SynIn | Self::Reset, true) => Self::Established,
            (same, _) => same,
        };
        if flags & FIN != 0 { next.after_fin(is_outbound) } else { next }
    }

    fn after_syn(self, is_outbound: bool, flags: u8) -> Self {
        match (self, is_outbound) {
            //= https://www.rfc-editor.org/rfc/rfc5382#section-4.2
            //# In addition to handling the TCP 3-way handshake mode of
            //# connection initiation, A NAT MUST handle the TCP simultaneous-
            //# open mode of connection initiation.
            // So no ACK is asked for: a SYN from each end is a connection.
            (Self::SynOut | Self::Loose, false) | (Self::SynIn | Self::LooseIn, true) => Self::Established,
            // The same ends open a new connection where an old one was.
            (Self::Closing | Self::Reset, true) if flags & ACK == 0 => Self::SynOut,
            (Self::Closing | Self::Reset, false) if flags & ACK == 0 => Self::SynIn,
            (same, _) => same,
        }
    }

    fn after_fin(self, is_outbound: bool) -> Self {
        match (self, is_outbound) {
            (Self::Established, true) => Self::FinOut,
            (Self::Established, false) => Self::FinIn,
            (Self::FinOut, false) | (Self::FinIn, true) => Self::Closing,
            (same, _) => same,
        }
    }

    /// Whether a packet that changes nothing makes the session live longer.
    pub(crate) fn is_refreshed_by(self, is_outbound: bool, flags: u8) -> bool {
        if flags & RST != 0 {
            //= https://www.rfc-editor.org/rfc/rfc7857#section-7.1
            //# TCP RST outbound packets sent as a response to inbound packets
            //# SHOULD NOT refresh the mapping.
            return false;
        }
        match self {
            //= https://www.rfc-editor.org/rfc/rfc4787#section-4.3
            //# The NAT mapping Refresh Direction MUST have a "NAT Outbound
            //# refresh behavior" of "True".
            // And inbound as well, which it MAY: a stream may go one way for long.
            Self::Plain | Self::Established | Self::FinOut | Self::FinIn => true,
            // What is not open, or not any more, cannot be kept by strangers.
            Self::SynOut | Self::Loose | Self::Closing => is_outbound,
            Self::SynIn | Self::LooseIn | Self::Reset => false,
        }
    }
}
