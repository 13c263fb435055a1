//! What each source address may send in a second.

use std::net::IpAddr;
use std::time::Instant;

/// Sources whose share is tracked at a time. A flood from more is what cookies are for.
const SOURCES: usize = 1024;

/// A table of fixed size that counts messages by source and second. Sources that fall into one slot push each other out,
/// which errs on the side of letting pass.
#[derive(Debug)]
pub(crate) struct Shares {
    limit: u32,
    slots: Vec<Share>,
    started: Instant,
}

/// What one source has sent in a second.
#[derive(Debug, Clone, Copy)]
struct Share {
    source: Option<IpAddr>,
    second: u64,
    count: u32,
}

impl Shares {
    /// Shares of `limit` messages per second.
    pub(crate) fn new(limit: u32, started: Instant) -> Self {
        Self { limit, slots: vec![Share { source: None, second: 0, count: 0 }; SOURCES], started }
    }

    /// Counts a message of `source` and says whether it is within its share.
    pub(crate) fn is_within(&mut self, source: IpAddr, now: Instant) -> bool {
        let second = now.saturating_duration_since(self.started).as_secs();
        let slot = match source {
            IpAddr::V4(v4) => usize::from(v4.octets()[3]) | usize::from(v4.octets()[2] & 3) << 8,
            IpAddr::V6(v6) => {
                let octets = v6.octets();
                usize::from(octets[15] ^ octets[7]) | usize::from((octets[14] ^ octets[6]) & 3) << 8
            }
        };
        let share = &mut self.slots[slot % SOURCES];
        if share.source != Some(source) || share.second != second {
            *share = Share { source: Some(source), second, count: 0 };
        }
        share.count = share.count.saturating_add(1);
        share.count <= self.limit
    }
}
