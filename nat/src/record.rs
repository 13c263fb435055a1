//! What outlives the process: sessions as records, and the stream of their changes.

use std::net::Ipv4Addr;

/// Where a session is in its life.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Phase {
    /// No TCP: it lives as long as packets come.
    Plain,
    /// TCP: the inside end has sent its SYN.
    SynOut,
    /// TCP: the remote end has sent its SYN.
    SynIn,
    /// TCP: the inside end sends in the middle of a connection whose beginning was not seen.
    Loose,
    /// TCP: the remote end sends in the middle of a connection whose beginning was not seen.
    LooseIn,
    /// TCP: both have sent their SYN.
    Established,
    /// TCP: the inside end has sent its FIN.
    FinOut,
    /// TCP: the remote end has sent its FIN.
    FinIn,
    /// TCP: both have sent their FIN.
    Closing,
    /// TCP: one of them has sent a RST.
    Reset,
}

/// One session: what has to be known to go on with it elsewhere or later.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Record {
    /// Internet protocol number.
    pub protocol: u8,
    /// Where it is in its life.
    pub phase: Phase,
    /// Whether it belongs to a headless target: no mapping, ports kept.
    pub headless: bool,
    /// The address inside.
    pub inside: Ipv4Addr,
    /// The port or ICMP identifier inside; 0 where there is none.
    pub inside_port: u16,
    /// The global address.
    pub outside: Ipv4Addr,
    /// The port or ICMP identifier outside; 0 where there is none.
    pub outside_port: u16,
    /// The remote address.
    pub remote: Ipv4Addr,
    /// The remote port; 0 where there is none, and for ICMP.
    pub remote_port: u16,
    /// Seconds that it had left without packets when this was written, the running one included. One that is not
    /// gone since may have more.
    pub seconds_left: u32,
}

impl Record {
    /// Whether both are the same session, wherever they are in its life.
    #[must_use]
    pub fn is_same(&self, other: &Self) -> bool {
        let key = |record: &Self| {
            (record.protocol, record.outside, record.outside_port, record.remote, record.remote_port)
        };
        key(self) == key(other)
    }
}

/// Bytes of a record.
pub const RECORD_BYTES: usize = 25;
const HEADLESS: u8 = 2;
/// The numbers of phases in records as bytes, which stay what they are.
const PHASES: [(u8, Phase); 10] = [
    (0, Phase::Plain),
    (1, Phase::SynOut),
    (2, Phase::SynIn),
    (3, Phase::Loose),
    (4, Phase::Established),
    (5, Phase::FinOut),
    (6, Phase::FinIn),
    (7, Phase::Closing),
    (8, Phase::Reset),
    (9, Phase::LooseIn),
];

impl Record {
    /// As it stands in files and messages; numbers in network order.
    #[must_use]
    pub fn to_bytes(&self) -> [u8; RECORD_BYTES] {
        let phase = PHASES.iter().find(|(_, phase)| *phase == self.phase).map_or(0, |(number, _)| *number);
        let flags = if self.headless { HEADLESS } else { 0 };
        let mut bytes = [0; RECORD_BYTES];
        let parts: [&[u8]; 8] = [
            &[self.protocol, phase, flags],
            &self.inside.octets(),
            &self.inside_port.to_be_bytes(),
            &self.outside.octets(),
            &self.outside_port.to_be_bytes(),
            &self.remote.octets(),
            &self.remote_port.to_be_bytes(),
            &self.seconds_left.to_be_bytes(),
        ];
        for (place, byte) in bytes.iter_mut().zip(parts.into_iter().flatten()) {
            *place = *byte;
        }
        bytes
    }

    /// Reads one; `None` if that makes no sense here.
    #[must_use]
    pub fn from_bytes(bytes: &[u8; RECORD_BYTES]) -> Option<Self> {
        let [protocol, phase, flags, rest @ ..] = bytes;
        let phase = PHASES.iter().find(|(number, _)| number == phase).map(|(_, phase)| *phase)?;
        let port = |at: usize| u16::from_be_bytes([rest[at], rest[at + 1]]);
        let address = |at: usize| Ipv4Addr::new(rest[at], rest[at + 1], rest[at + 2], rest[at + 3]);
        Some(Self {
            protocol: *protocol,
            phase,
            headless: flags & HEADLESS != 0,
            inside: address(0),
            inside_port: port(4),
            outside: address(6),
            outside_port: port(10),
            remote: address(12),
            remote_port: port(16),
            seconds_left: u32::from_be_bytes([rest[18], rest[19], rest[20], rest[21]]),
        })
    }
}

/// What happened to a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change {
    /// It began, or its phase changed.
    Is(Record),
    /// It ended.
    Gone(Record),
    /// More happened than was kept: take everything anew by [`Nat::export`](crate::Nat::export).
    Lost,
}

/// Where an export goes on. Begins with the default.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Cursor(pub(crate) u32);
