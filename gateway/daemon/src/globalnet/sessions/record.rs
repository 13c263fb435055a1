//! One entry of a file: a live or an ended session.

use std::net::Ipv4Addr;
use std::time::Duration;

use trieste_nat::{Phase, RECORD_BYTES, Record};

use crate::config::Globalnet;

/// Bytes of an entry.
pub(super) const ENTRY_BYTES: usize = RECORD_BYTES + 1;
/// First bytes of entries.
const IS: u8 = 1;
const GONE: u8 = 2;
const ICMP: u8 = 1;

/// The key of a session, unique among live ones.
pub(super) type SessionKey = (u8, Ipv4Addr, u16, Ipv4Addr, u16);

/// A live or an ended session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Entry {
    /// It began, or changed its phase.
    Is(Record),
    /// It has ended.
    Gone(Record),
}

impl Entry {
    /// Returns the session.
    pub(super) fn record(&self) -> &Record {
        match self {
            Self::Is(record) | Self::Gone(record) => record,
        }
    }

    /// Returns the key of the session.
    pub(super) fn key(&self) -> SessionKey {
        let record = self.record();
        (record.protocol, record.outside, record.outside_port, record.remote, record.remote_port)
    }

    /// Returns `true` if it has ended.
    pub(super) fn is_gone(&self) -> bool {
        matches!(self, Self::Gone(_))
    }

    /// Encodes the entry for a file.
    pub(super) fn to_bytes(self) -> [u8; ENTRY_BYTES] {
        let mut bytes = [if self.is_gone() { GONE } else { IS }; ENTRY_BYTES];
        bytes[1..].copy_from_slice(&self.record().to_bytes());
        bytes
    }

    /// Parses an entry of a file; `None` if it is invalid.
    pub(super) fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let (tag, record) = bytes.split_first()?;
        let record = Record::from_bytes(record.try_into().ok()?)?;
        match *tag {
            IS => Some(Self::Is(record)),
            GONE => Some(Self::Gone(record)),
            _ => None,
        }
    }
}

/// Returns how long a session of this phase lives without packets.
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

/// Returns a session with the lifetime that is left after a downtime; `None` if it has expired.
///
/// It was live when the last process died, or the files would contain its end; the time of its last packet is unknown, and
/// taken to be then. So its lifetime is the full timer less the downtime.
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
        let phases = [Phase::Plain, Phase::SynOut, Phase::SynIn, Phase::Loose, Phase::LooseIn];
        let later = [Phase::Established, Phase::FinOut, Phase::FinIn, Phase::Closing, Phase::Reset];
        for (number, phase) in (0u8..).zip(phases.into_iter().chain(later)) {
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
