//! The Internet checksum: full (RFC 1071) and incremental (RFC 1624).

use crate::wire::{be16, protocol, put16, version};

/// A running one's complement sum of big-endian 16-bit words, not yet folded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Sum(u64);

impl Sum {
    /// The empty sum.
    pub const ZERO: Self = Self(0);

    /// Adds one 16-bit word.
    #[must_use]
    pub const fn word(self, value: u16) -> Self {
        Self(self.0 + value as u64)
    }

    /// Adds two words.
    #[must_use]
    pub const fn double(self, value: u32) -> Self {
        Self(self.0 + (value >> 16) as u64 + (value & 0xffff) as u64)
    }

    /// Adds another sum.
    #[must_use]
    pub const fn plus(self, other: Self) -> Self {
        Self(self.0 + other.0)
    }

    /// Adds bytes that start at an even offset of what is summed; an odd last byte is padded with zero.
    #[must_use]
    pub fn bytes(self, bytes: &[u8]) -> Self {
        Self(self.0 + u64::from(sum_bytes(bytes)))
    }

    /// The same, copying the bytes on the way to the start of `to`, which is not shorter: one pass instead of two.
    ///
    /// # Panics
    /// When `to` is shorter.
    #[must_use]
    pub fn copied_bytes(self, bytes: &[u8], to: &mut [u8]) -> Self {
        Self(self.0 + u64::from(copy_and_sum(bytes, &mut to[..bytes.len()])))
    }

    /// The sum folded to 16 bits, not complemented: what a pseudo-header leaves in a field that a device finishes.
    #[must_use]
    pub const fn folded(self) -> u16 {
        fold(self.0)
    }

    /// The checksum: folded and complemented.
    #[must_use]
    pub const fn checksum(self) -> u16 {
        !fold(self.0)
    }
}

#[expect(clippy::cast_possible_truncation, reason = "the loop ends when nothing is left above 16 bits")]
const fn fold(mut sum: u64) -> u16 {
    while sum >> 16 != 0 {
        sum = (sum >> 16) + (sum & 0xffff);
    }
    sum as u16
}

/// The folded sum of `bytes` as big-endian words.
///
/// The sum does not depend on the byte order of the machine (RFC 1071 section 2(B)): native 32-bit words are added
/// up in 64-bit lanes, where carries collect by themselves, and the folded result is put in order. Lanes that do
/// not depend on one another become vector instructions, which an addition with carry does not.
fn sum_bytes(bytes: &[u8]) -> u16 {
    let mut lanes = [0u64; 8];
    let (blocks, rest) = bytes.as_chunks::<32>();
    for block in blocks {
        add_block(&mut lanes, block);
    }
    sum_rest(lanes, rest)
}

/// The same of bytes that are copied to `to`, which is as long.
fn copy_and_sum(bytes: &[u8], to: &mut [u8]) -> u16 {
    let mut lanes = [0u64; 8];
    let (blocks, rest) = bytes.as_chunks::<32>();
    let (copies, end) = to.as_chunks_mut::<32>();
    for (block, copy) in blocks.iter().zip(copies) {
        *copy = *block;
        add_block(&mut lanes, block);
    }
    end.copy_from_slice(rest);
    sum_rest(lanes, rest)
}

#[inline]
fn add_block(lanes: &mut [u64; 8], block: &[u8; 32]) {
    for (lane, word) in lanes.iter_mut().zip(block.as_chunks::<4>().0) {
        *lane += u64::from(u32::from_ne_bytes(*word));
    }
}

/// Adds what is left behind the blocks, and folds.
fn sum_rest(lanes: [u64; 8], rest: &[u8]) -> u16 {
    let (words, rest) = rest.as_chunks::<4>();
    let mut total: u64 = words.iter().map(|word| u64::from(u32::from_ne_bytes(*word))).sum();
    let (pairs, last) = rest.as_chunks::<2>();
    total += pairs.iter().map(|pair| u64::from(u16::from_ne_bytes(*pair))).sum::<u64>();
    if let [last] = last {
        total += u64::from(u16::from_ne_bytes([*last, 0]));
    }
    for lane in lanes {
        total += (lane >> 32) + (lane & 0xffff_ffff);
    }
    u16::from_be(fold(total))
}

/// The checksum `old` after one of the words that it covers changed from `from` to `to`.
#[must_use]
pub const fn update16(old: u16, from: u16, to: u16) -> u16 {
    //= https://www.rfc-editor.org/rfc/rfc1624#section-3
    //# HC' = ~(~HC + ~m + m')
    !fold(!old as u64 + !from as u64 + to as u64)
}

/// The checksum `old` after a 32-bit field at an even offset changed.
#[must_use]
pub const fn update32(old: u16, from: u32, to: u32) -> u16 {
    let high = update16(old, (from >> 16) as u16, (to >> 16) as u16);
    #[expect(clippy::cast_possible_truncation, reason = "the high half was taken before")]
    let low = update16(high, from as u16, to as u16);
    low
}

/// Sum of the addresses of an IP packet whose fixed header is complete.
#[must_use]
pub fn address_sum(packet: &[u8]) -> Sum {
    if version(packet) == 6 { Sum::ZERO.bytes(&packet[8..40]) } else { Sum::ZERO.bytes(&packet[12..20]) }
}

/// Sum of the pseudo-header (RFC 768, RFC 9293, RFC 8200 section 8.1).
#[must_use]
pub fn pseudo_sum(packet: &[u8], proto: u8, transport_bytes: usize) -> Sum {
    let length = u32::try_from(transport_bytes).unwrap_or(u32::MAX);
    address_sum(packet).word(u16::from(proto)).double(length)
}

/// Writes the header checksum of an IPv4 packet; does nothing to IPv6.
pub fn fill_ipv4_header(packet: &mut [u8]) {
    if version(packet) != 4 {
        return;
    }
    let header_bytes = usize::from(packet[0] & 0x0f) * 4;
    put16(packet, 10, 0);
    let sum = Sum::ZERO.bytes(&packet[..header_bytes]).checksum();
    put16(packet, 10, sum);
}

/// Finishes a transport checksum whose field holds the pseudo-header's sum: covers `start` to the end of
/// `packet` and stores the result at `field`. UDP's zero becomes all ones (RFC 768).
///
/// Offsets outside the packet leave it alone and return `false`.
pub fn finish_partial(packet: &mut [u8], start: usize, field: usize) -> bool {
    if start > packet.len() || field < start || field + 2 > packet.len() {
        return false;
    }
    // The field itself is covered, and contributes the pseudo-header.
    let sum = Sum::ZERO.bytes(&packet[start..]).checksum();
    put16(packet, field, if sum == 0 { 0xffff } else { sum });
    true
}

/// Whether the TCP, UDP or ICMP checksum of a whole, unfragmented packet is right. A UDP checksum of zero over
/// IPv4 counts as right: there is none. `transport` is the offset of the transport header, checked before.
#[must_use]
pub fn transport_is_valid(packet: &[u8], transport: usize) -> bool {
    let is_v6 = version(packet) == 6;
    let segment = &packet[transport..];
    // Behind IPv6 extension headers the protocol is not in the fixed header; whoever calls knows the offset, and
    // the three transports are told apart by where their checksum is only after that: so ask the header before.
    let proto = if is_v6 { transport_protocol_v6(packet, transport) } else { packet[9] };
    let pseudo = match proto {
        protocol::ICMP => Sum::ZERO,
        protocol::UDP if !is_v6 && be16(segment, 6) == 0 => return true,
        proto => pseudo_sum(packet, proto, segment.len()),
    };
    pseudo.bytes(segment).folded() == 0xffff
}

fn transport_protocol_v6(packet: &[u8], transport: usize) -> u8 {
    if transport == crate::wire::IPV6_HEADER_BYTES {
        return packet[6];
    }
    crate::wire::Inner::parse(packet).map_or(packet[6], |inner| inner.flow.protocol)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// RFC 1071 section 4.1, word by word.
    fn reference(bytes: &[u8]) -> u16 {
        let mut sum = 0u64;
        for pair in bytes.chunks(2) {
            sum += u64::from(u16::from_be_bytes([pair[0], *pair.get(1).unwrap_or(&0)]));
        }
        fold(sum)
    }

    #[test]
    fn the_example_of_rfc_1071_comes_out() {
        let bytes = [0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7];
        assert_eq!(Sum::ZERO.bytes(&bytes).folded(), 0xddf2);
    }

    #[test]
    fn the_example_of_rfc_1624_comes_out() {
        assert_eq!(update16(0xdd2f, 0x5555, 0x3285), 0x0000);
    }

    proptest! {
        #[test]
        fn the_fast_sum_equals_the_plain_one(bytes in proptest::collection::vec(any::<u8>(), 0..3000)) {
            prop_assert_eq!(Sum::ZERO.bytes(&bytes).folded(), reference(&bytes));
        }

        #[test]
        fn an_update_equals_a_full_sum(mut bytes in proptest::collection::vec(any::<u8>(), 8..64), at in 0usize..4, to: u16) {
            bytes[0] |= 1;
            let at = at * 2;
            let old = Sum::ZERO.bytes(&bytes).checksum();
            let from = be16(&bytes, at);
            put16(&mut bytes, at, to);
            let full = Sum::ZERO.bytes(&bytes).checksum();
            let updated = update16(old, from, to);
            // Zero has two representations (RFC 1624 section 3); both verify.
            prop_assert!(updated == full || (updated ^ full) == 0xffff);
        }
    }
}
