//! What makes a packet one of our probes: a mark at the start of its payload.
//!
//! ```text
//!    0                 8                     14        16        18
//!   ┌─────────────────┬─────────────────────┬─────────┬─────────┬──────────
//!   │ TRSTprb1        │ run                 │ probe   │ number  │ filling
//!   └─────────────────┴─────────────────────┴─────────┴─────────┴──────────
//! ```
//! The run is random, so that nobody mistakes another one's probes for ours. All in network order.

use std::fmt;
use std::str::FromStr;

use rand_core::RngCore;
use serde::{Deserialize, Serialize};

/// What every probe's payload begins with.
const MAGIC: &[u8; 8] = b"TRSTprb1";
/// Bytes of payload that a probe needs.
pub const MARK_LEN: usize = 18;

/// One run of a diagnosis: all its probes carry this.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Run(pub [u8; 6]);

impl Run {
    /// A run that nobody else has.
    #[must_use]
    pub fn random(random: &mut impl RngCore) -> Self {
        let mut bytes = [0; 6];
        random.fill_bytes(&mut bytes);
        // The first two are the base of ports too: none below 1024, and room for probes above.
        bytes[0] = 0x80 | (bytes[0] & 0x3f);
        Self(bytes)
    }

    /// A number that stands in ICMP's identifier and in source ports, for messages that quote no payload.
    #[must_use]
    pub fn base(self) -> u16 {
        u16::from_be_bytes([self.0[0], self.0[1]])
    }

    /// The identifier of one of its probes in ICMP echo messages.
    #[must_use]
    pub fn identifier(self, probe: u16) -> u16 {
        self.base().wrapping_add(probe)
    }
}

impl fmt::Display for Run {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl From<Run> for String {
    fn from(run: Run) -> Self {
        run.to_string()
    }
}

/// A text that is no run.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is no token: twelve hexadecimal digits are")]
pub struct NoRun(String);

impl FromStr for Run {
    type Err = NoRun;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let mut bytes = [0; 6];
        if text.len() != 12 || !text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return Err(NoRun(text.chars().take(40).collect()));
        }
        for (at, byte) in bytes.iter_mut().enumerate() {
            *byte = u8::from_str_radix(&text[2 * at..2 * at + 2], 16).map_err(|_| NoRun(text.to_owned()))?;
        }
        Ok(Self(bytes))
    }
}

impl TryFrom<String> for Run {
    type Error = NoRun;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        text.parse()
    }
}

/// One packet of one probe.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Mark {
    /// The run.
    pub run: Run,
    /// Which probe of the run.
    pub probe: u16,
    /// Which packet of the probe, from 1.
    pub number: u16,
}

impl Mark {
    /// The payload's beginning.
    #[must_use]
    pub fn emit(&self) -> [u8; MARK_LEN] {
        let mut bytes = [0; MARK_LEN];
        bytes[..8].copy_from_slice(MAGIC);
        bytes[8..14].copy_from_slice(&self.run.0);
        bytes[14..16].copy_from_slice(&self.probe.to_be_bytes());
        bytes[16..].copy_from_slice(&self.number.to_be_bytes());
        bytes
    }

    /// Reads a payload; `None` unless it begins with a mark.
    #[must_use]
    pub fn parse(payload: &[u8]) -> Option<Self> {
        let mark: &[u8; MARK_LEN] = payload.first_chunk()?;
        if &mark[..8] != MAGIC {
            return None;
        }
        let word = |at: usize| u16::from_be_bytes([mark[at], mark[at + 1]]);
        Some(Self { run: Run(*mark[8..14].first_chunk()?), probe: word(14), number: word(16) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_is_read_as_it_was_written() {
        let mark = Mark { run: Run([1, 2, 3, 4, 5, 6]), probe: 7, number: 8 };
        let mut payload = mark.emit().to_vec();
        payload.extend([0; 100]);
        assert_eq!(Mark::parse(&payload), Some(mark));
        assert_eq!(Mark::parse(&payload[..MARK_LEN - 1]), None);
        payload[0] ^= 1;
        assert_eq!(Mark::parse(&payload), None);
    }

    #[test]
    fn a_run_is_twelve_hexadecimal_digits() {
        let run: Run = "0102030aff00".parse().unwrap();
        assert_eq!(run, Run([1, 2, 3, 10, 255, 0]));
        assert_eq!(run.to_string(), "0102030aff00");
        for wrong in ["", "01", "0102030aff0g", "0102030aff00ff", "ééé102030a"] {
            assert!(wrong.parse::<Run>().is_err(), "{wrong}");
        }
    }
}
