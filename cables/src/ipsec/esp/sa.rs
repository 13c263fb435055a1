//! One SA in one direction: its key, its numbers, how much it may carry.

use super::key::{self, EspKey, Number};
use crate::ipsec::{Limits, Spi};
use crate::replay::{ReplayError, ReplayWindow8192};

/// Sequence numbers end here without ESN; the last one may be used (RFC 4303 section 3.3.3).
const LAST_WITHOUT_ESN: u64 = u32::MAX as u64;

/// How much a direction has carried, and how much it may.
#[derive(Debug, Clone, Copy)]
pub(super) struct Quota {
    packets: u64,
    bytes: u64,
    limits: Limits,
    has_told: bool,
}

impl Quota {
    fn new(limits: Limits) -> Self {
        Self { packets: 0, bytes: 0, limits, has_told: false }
    }

    #[inline]
    fn is_used_up(&self) -> bool {
        self.packets >= self.limits.hard_packets || self.bytes >= self.limits.hard_bytes
    }

    #[inline]
    fn count(&mut self, bytes: usize) {
        self.packets += 1;
        self.bytes = self.bytes.saturating_add(bytes as u64);
    }

    /// Whether a soft limit has been passed since this was last asked; true once.
    fn has_worn(&mut self) -> bool {
        let is_worn = self.packets >= self.limits.soft_packets || self.bytes >= self.limits.soft_bytes;
        is_worn && !std::mem::replace(&mut self.has_told, true)
    }
}

/// What we seal with.
pub(super) struct OutboundSa {
    key: EspKey,
    spi: [u8; 4],
    has_esn: bool,
    /// The number of the packet sealed last; also its IV, which therefore never comes twice.
    sequence: u64,
    last: u64,
    quota: Quota,
}

impl OutboundSa {
    pub(super) fn new(key: EspKey, spi: Spi, has_esn: bool, limits: Limits) -> Self {
        let last = if has_esn { u64::MAX } else { LAST_WITHOUT_ESN };
        Self { key, spi: spi.to_bytes(), has_esn, sequence: 0, last, quota: Quota::new(limits) }
    }

    /// One without ESN that has used its numbers up to `sequence`.
    #[cfg(test)]
    pub(super) fn starting_behind(key: EspKey, spi: Spi, limits: Limits, sequence: u64) -> Self {
        Self { sequence, ..Self::new(key, spi, false, limits) }
    }

    /// Whether it must not seal any more, by its numbers and by what it has carried.
    #[inline]
    pub(super) fn is_used_up(&self) -> bool {
        //= https://www.rfc-editor.org/rfc/rfc4303#section-3.3.3
        //# the sender MUST NOT send a packet on an SA if doing so would cause the sequence number to cycle.
        self.sequence >= self.last || self.quota.is_used_up()
    }

    /// Whether a soft limit has been passed; true once.
    pub(super) fn has_worn(&mut self) -> bool {
        // Without ESN a quarter of the numbers has to do until there are new keys, whatever the limits say.
        let is_short_of_numbers = self.last == LAST_WITHOUT_ESN && self.sequence >= self.last / 4 * 3;
        if is_short_of_numbers {
            return !std::mem::replace(&mut self.quota.has_told, true);
        }
        self.quota.has_worn()
    }

    /// Seals what stands behind the head's place in `message` (see [`EspKey::seal`]). `false`, with the number unused,
    /// when the SA is used up or the lengths do not fit.
    #[inline]
    pub(super) fn seal(&mut self, message: &mut [u8], inner_bytes: usize) -> bool {
        if self.is_used_up() {
            return false;
        }
        let next_header = match message.get(super::HEAD_BYTES).map(|first| first >> 4) {
            Some(6) => key::NEXT_IPV6,
            Some(4) => key::NEXT_IPV4,
            _ => return false,
        };
        self.sequence += 1;
        self.quota.count(inner_bytes);
        let number = Number { spi: self.spi, sequence: self.sequence, has_esn: self.has_esn };
        self.key.seal(&number, self.sequence, next_header, message, inner_bytes)
    }
}

/// What we open with.
pub(super) struct InboundSa {
    key: EspKey,
    spi: [u8; 4],
    has_esn: bool,
    window: ReplayWindow8192,
    quota: Quota,
}

/// What an authentic message holds.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Opened<'a> {
    /// A packet of this IP version (by the next header), perhaps with TFC padding behind it.
    Packet(u8, &'a [u8]),
    /// Nothing: a dummy packet.
    Dummy,
    /// Something that is no packet: bad padding, or another next header.
    Malformed,
}

/// Why a message was not opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Refusal {
    /// Too short for an ESP message.
    Short,
    /// Its number.
    Replay(ReplayError),
    /// The SA has carried all that it may.
    UsedUp,
    /// The ICV.
    Forged,
}

impl InboundSa {
    pub(super) fn new(key: EspKey, spi: Spi, has_esn: bool, limits: Limits) -> Self {
        let window = ReplayWindow8192::new();
        Self { key, spi: spi.to_bytes(), has_esn, window, quota: Quota::new(limits) }
    }

    /// Whether a soft limit has been passed; true once.
    pub(super) fn has_worn(&mut self) -> bool {
        self.quota.has_worn()
    }

    /// Opens a message in place. Says whether its number is the highest so far, too.
    #[inline]
    pub(super) fn open<'a>(&mut self, message: &'a mut [u8]) -> Result<(Opened<'a>, bool), Refusal> {
        let low = message.get(4..8).and_then(|bytes| bytes.try_into().ok()).ok_or(Refusal::Short)?;
        let low = u32::from_be_bytes(low);
        if message.len() < super::sealed_bytes(0) {
            return Err(Refusal::Short);
        }
        if self.quota.is_used_up() {
            return Err(Refusal::UsedUp);
        }
        let sequence = if self.has_esn { self.window.infer(low) } else { Ok(u64::from(low)) };
        let sequence = sequence
            .and_then(|sequence| self.window.check(sequence).map(|()| sequence))
            .map_err(Refusal::Replay)?;
        let number = Number { spi: self.spi, sequence, has_esn: self.has_esn };
        let text = self.key.open(&number, message).ok_or(Refusal::Forged)?;
        //= https://www.rfc-editor.org/rfc/rfc4303#section-3.4.3
        //# The receive window is updated only if the integrity verification succeeds.
        let is_newest = self.window.commit(sequence);
        self.quota.count(text.len());
        let opened = match key::strip_trailer(text) {
            Some((inner, key::NEXT_IPV4)) => Opened::Packet(4, inner),
            Some((inner, key::NEXT_IPV6)) => Opened::Packet(6, inner),
            //= https://www.rfc-editor.org/rfc/rfc4303#section-2.6
            //# a receiver MUST be prepared to discard such packets, without indicating an error.
            Some((_, key::NEXT_NONE)) => Opened::Dummy,
            Some(_) | None => Opened::Malformed,
        };
        Ok((opened, is_newest))
    }
}
