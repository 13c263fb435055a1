//! Opening a message: replay window, key, selectors.

use std::net::IpAddr;
use std::time::Instant;

use trieste_packet::{DropReason, Outer};

use super::HEAD_BYTES;
use super::early::Early;
use super::pair::State;
use super::pairs::Pairs;
use super::sa::{Opened, Refusal};
use crate::boundary::CableStats;
use crate::ipsec::Spi;
use crate::opening::Fate::{self, Lost};
use crate::opening::{Opener, inner_packet};

/// Opens the messages of one batch.
pub(super) struct EspOpener<'a> {
    pub(super) pairs: &'a mut Pairs,
    pub(super) early: &'a mut Early,
    /// Where the peer is, if that is known.
    pub(super) peer: Option<IpAddr>,
    pub(super) stats: &'a mut CableStats,
    pub(super) now: Instant,
    pub(super) heard: Heard,
}

/// What was learnt from a batch besides its packets.
#[derive(Debug, Default)]
pub(super) struct Heard {
    /// Where the newest authentic packet of an SA came from.
    pub(super) newest_from: Option<Outer>,
    /// A pair that waited for a first packet, and has got it.
    pub(super) first_of: Option<Spi>,
}

impl Opener for EspOpener<'_> {
    const HEAD_BYTES: usize = HEAD_BYTES;

    #[inline]
    fn open(&mut self, message: &mut [u8], from: &Outer) -> Fate {
        let Some(spi) = message.first_chunk::<4>() else { return Lost(DropReason::MalformedHeader) };
        let spi = Spi::from_bytes(*spi);
        let Some(pair) = self.pairs.touch_spi(spi) else {
            return match self.early.hold(spi, message, from, self.peer, self.now) {
                Ok(()) => Fate::Held,
                Err(reason) => Lost(reason),
            };
        };
        if self.now >= pair.hard_time {
            return Lost(DropReason::NoSession);
        }
        let message_bytes = message.len() as u64;
        let (opened, is_newest) = match pair.inbound.open(message) {
            Ok(opened) => opened,
            Err(refusal) => {
                pair.tally.bad += u64::from(refusal == Refusal::Forged);
                pair.tally.replayed += u64::from(matches!(refusal, Refusal::Replay(_)));
                return Lost(refusal.reason());
            }
        };
        pair.tally.has_heard = true;
        self.stats.rx_bytes += message_bytes;
        if is_newest {
            self.heard.newest_from = Some(*from);
        }
        if pair.state == State::Pending {
            self.heard.first_of = Some(spi);
        }
        let (version, text) = match opened {
            Opened::Packet(version, text) => (version, text),
            Opened::Dummy => return Fate::Consumed,
            Opened::Malformed => return Lost(DropReason::BadInner),
        };
        // Behind the packet there may be TFC padding.
        let Some(packet) = inner_packet(version, text) else { return Lost(DropReason::BadInner) };
        //= https://www.rfc-editor.org/rfc/rfc4301#section-5.2
        //# If an IPsec system receives an inbound packet on an SA and the packet's header fields are not consistent
        //# with the selectors for the SA, it MUST discard the packet.
        if !pair.admits_opened(packet) {
            return Lost(DropReason::SelectorMismatch);
        }
        pair.tally.open(packet.len());
        self.stats.rx_packets += 1;
        Fate::Packet(packet.len())
    }
}

impl Refusal {
    fn reason(self) -> DropReason {
        match self {
            Self::Short => DropReason::MalformedHeader,
            Self::Replay(_) => DropReason::Replay,
            Self::UsedUp => DropReason::NoSession,
            Self::Forged => DropReason::BadTag,
        }
    }
}
