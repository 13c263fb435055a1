//! One line of a file: a session that is, or one that is no more.

use std::net::Ipv4Addr;
use std::time::Duration;

use trieste_nat::{Phase, Record};

use crate::config::Globalnet;

/// Bytes of an entry.
pub(super) const ENTRY_BYTES: usize = 26;
/// First bytes of entries.
const IS: u8 = 1;
const GONE: u8 = 2;
/// Bits of the fourth byte.
const HEADLESS: u8 = 2;
/// The numbers of phases in files, which stay what they are.
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
const ICMP: u8 = 1;

/// What a session is known by: no two live ones have the same.
pub(super) type SessionKey = (u8, Ipv4Addr, u16, Ipv4Addr, u16);

/// A session that is, or that has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Entry {
    /// It is, or is in another phase.
    Is(Record),
    /// It has ended.
    Gone(Record),
}

impl Entry {
    /// The session.
    pub(super) fn record(&self) -> &Record {
        match self {
            Self::Is(record) | Self::Gone(record) => record,
        }
    }

    /// What it is known by.
    pub(super) fn key(&self) -> SessionKey {
        let record = self.record();
        (record.protocol, record.outside, record.outside_port, record.remote, record.remote_port)
    }

    /// Whether it has ended.
    pub(super) fn is_gone(&self) -> bool {
        matches!(self, Self::Gone(_))
    }

    /// As it stands in a file.
    pub(super) fn to_bytes(self) -> [u8; ENTRY_BYTES] {
        let record = self.record();
        let phase = PHASES.iter().find(|(_, phase)| *phase == record.phase).map_or(0, |(number, _)| *number);
        let flags = if record.headless { HEADLESS } else { 0 };
        let mut bytes = [0; ENTRY_BYTES];
        let parts: [&[u8]; 8] = [
            &[if self.is_gone() { GONE } else { IS }, record.protocol, phase, flags],
            &record.inside.octets(),
            &record.inside_port.to_be_bytes(),
            &record.outside.octets(),
            &record.outside_port.to_be_bytes(),
            &record.remote.octets(),
            &record.remote_port.to_be_bytes(),
            &record.seconds_left.to_be_bytes(),
        ];
        for (place, byte) in bytes.iter_mut().zip(parts.into_iter().flatten()) {
            *place = *byte;
        }
        bytes
    }

    /// Reads what stands in a file; `None` if that makes no sense here.
    pub(super) fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let bytes: &[u8; ENTRY_BYTES] = bytes.try_into().ok()?;
        let [tag, protocol, phase, flags, rest @ ..] = bytes;
        let phase = PHASES.iter().find(|(number, _)| number == phase).map(|(_, phase)| *phase)?;
        let port = |at: usize| u16::from_be_bytes([rest[at], rest[at + 1]]);
        let address = |at: usize| Ipv4Addr::new(rest[at], rest[at + 1], rest[at + 2], rest[at + 3]);
        let record = Record {
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
        };
        match *tag {
            IS => Some(Self::Is(record)),
            GONE => Some(Self::Gone(record)),
            _ => None,
        }
    }
}

/// How long a session of such a phase lives without packets.
fn timer(record: &Record, config: &Globalnet) -> Duration {
    match record.phase {
        Phase::Plain if record.protocol == ICMP => config.icmp,
        Phase::Plain => config.udp,
        Phase::Established | Phase::FinOut | Phase::FinIn => config.tcp_established,
        Phase::SynOut | Phase::SynIn | Phase::Loose | Phase::LooseIn | Phase::Closing | Phase::Reset => {
            config.tcp_transitory
        }
    }
}

/// A session as it goes on after nobody has translated for a while; `None` if it would have ended meanwhile.
///
/// It was alive when the process before died, or its end would stand in the files; its newest packet is not known. So
/// it is taken to have been then: it lives for its whole time less the time in which nothing was translated.
pub(super) fn revived(mut record: Record, dead: Duration, config: &Globalnet) -> Option<Record> {
    let left = timer(&record, config).checked_sub(dead)?;
    record.seconds_left = u32::try_from(left.as_secs()).unwrap_or(u32::MAX);
    (record.seconds_left > 0).then_some(record)
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub(in super::super) fn record(number: u16) -> Record {
        Record {
            protocol: 6,
            phase: Phase::Established,
            headless: number % 2 == 1,
            inside: Ipv4Addr::new(10, 1, 0, 5),
            inside_port: number,
            outside: Ipv4Addr::new(242, 1, 0, 1),
            outside_port: number,
            remote: Ipv4Addr::new(242, 2, 255, 200),
            remote_port: 443,
            seconds_left: 7440,
        }
    }

    #[test]
    fn an_entry_is_read_as_it_was_written() {
        for (number, phase) in PHASES {
            let mut record = record(number.into());
            (record.phase, record.protocol) = (phase, number);
            for entry in [Entry::Is(record), Entry::Gone(record)] {
                assert_eq!(Entry::from_bytes(&entry.to_bytes()), Some(entry));
            }
        }
    }

    #[test]
    fn what_a_later_version_may_write_is_not_misread() {
        let bytes = Entry::Is(record(1)).to_bytes();
        let with = |at: usize, byte: u8| {
            let mut bytes = bytes;
            bytes[at] = byte;
            bytes
        };
        assert_eq!(Entry::from_bytes(&with(0, 3)), None);
        assert_eq!(Entry::from_bytes(&with(2, 200)), None);
        assert_eq!(Entry::from_bytes(&bytes[1..]), None);
    }

    #[test]
    fn a_session_lives_on_for_its_time_less_that_in_which_nothing_was_translated() {
        let config = Globalnet::default();
        let seconds = Duration::from_secs;
        let left =
            |record: Record, dead| revived(record, seconds(dead), &config).map(|record| record.seconds_left);
        assert_eq!(left(record(1), 40), Some(7400));
        assert_eq!(left(record(1), 7440), None);
        let udp = Record { protocol: 17, phase: Phase::Plain, ..record(1) };
        assert_eq!((left(udp, 40), left(udp, 301)), (Some(260), None));
        assert_eq!(left(Record { protocol: 1, ..udp }, 40), Some(20));
        assert_eq!(left(Record { phase: Phase::Closing, ..record(1) }, 40), Some(200));
    }
}
