//! TCP: flags, options, and the maximum segment size.

use super::{TCP_HEADER_BYTES, be16, put16};
use crate::checksum;

/// FIN.
pub const FIN: u8 = 0x01;
/// SYN.
pub const SYN: u8 = 0x02;
/// RST.
pub const RST: u8 = 0x04;
/// PSH.
pub const PSH: u8 = 0x08;
/// ACK.
pub const ACK: u8 = 0x10;
/// Congestion window reduced.
pub const CWR: u8 = 0x80;

/// Option kinds (RFC 9293 section 3.2).
const END: u8 = 0;
const NO_OPERATION: u8 = 1;
const MAXIMUM_SEGMENT_SIZE: u8 = 2;

/// Bytes of the header by its data offset field; at least 14 bytes must be there.
#[must_use]
pub fn header_bytes(segment: &[u8]) -> u16 {
    u16::from(segment[12] >> 4) * 4
}

/// Lowers the MSS option of a SYN to `limit_bytes` if it is larger, and repairs the checksum incrementally
/// (RFC 1624; the same for a checksum that still is the pseudo-header's sum, which does not cover options).
/// Returns whether anything changed. A SYN without the option is left alone: its default (536 or 1220 bytes)
/// is below every limit in use.
///
/// `segment` is the whole TCP segment, its header checked; `has_full_checksum` says whether the field covers the header.
pub fn clamp_mss(segment: &mut [u8], limit_bytes: u16, has_full_checksum: bool) -> bool {
    let end = usize::from(header_bytes(segment)).min(segment.len());
    let mut at = TCP_HEADER_BYTES;
    while at < end {
        match segment[at] {
            END => return false,
            NO_OPERATION => at += 1,
            kind => {
                let Some(&len) = segment[..end].get(at + 1) else { return false };
                let len = usize::from(len);
                if len < 2 || at + len > end {
                    return false;
                }
                if kind == MAXIMUM_SEGMENT_SIZE && len == 4 {
                    return lower_mss(segment, at + 2, limit_bytes, has_full_checksum);
                }
                at += len;
            }
        }
    }
    false
}

fn lower_mss(segment: &mut [u8], at: usize, limit_bytes: u16, has_full_checksum: bool) -> bool {
    let old = be16(segment, at);
    if old <= limit_bytes {
        return false;
    }
    put16(segment, at, limit_bytes);
    if has_full_checksum {
        // A field at an odd offset adds to the sum with its bytes swapped.
        let (from, to) = if at.is_multiple_of(2) {
            (old, limit_bytes)
        } else {
            (old.swap_bytes(), limit_bytes.swap_bytes())
        };
        let sum = checksum::update16(be16(segment, 16), from, to);
        put16(segment, 16, sum);
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;
    use etherparse::{PacketBuilder, TcpOptionElement};

    fn syn(options: &[TcpOptionElement]) -> Vec<u8> {
        let mut bytes = Vec::new();
        PacketBuilder::ipv4([10, 0, 0, 1], [10, 0, 0, 2], 64)
            .tcp(1, 2, 3, 100)
            .syn()
            .options(options)
            .unwrap()
            .write(&mut bytes, &[])
            .unwrap();
        bytes
    }

    fn checksum_is_right(packet: &[u8]) -> bool {
        checksum::transport_is_valid(packet, 20)
    }

    #[test]
    fn mss_is_lowered_and_the_checksum_stays_right() {
        for lead in [&[][..], &[TcpOptionElement::Noop][..]] {
            let mut options = lead.to_vec();
            options.push(TcpOptionElement::MaximumSegmentSize(1460));
            let mut packet = syn(&options);
            assert!(checksum_is_right(&packet));
            assert!(clamp_mss(&mut packet[20..], 1380, true));
            assert!(checksum_is_right(&packet));
            assert!(!clamp_mss(&mut packet[20..], 1380, true));
        }
    }

    #[test]
    fn smaller_or_missing_mss_is_left_alone() {
        let mut small = syn(&[TcpOptionElement::MaximumSegmentSize(536)]);
        let before = small.clone();
        assert!(!clamp_mss(&mut small[20..], 1380, true));
        assert_eq!(small, before);
        assert!(!clamp_mss(&mut syn(&[])[20..], 1380, true));
    }

    #[test]
    fn broken_options_end_the_search() {
        for options in [[2, 5, 5], [3, 0, 0], [2, 1, 0], [8, 9, 1]] {
            let mut packet = syn(&[TcpOptionElement::Noop]);
            packet[40..43].copy_from_slice(&options);
            assert!(!clamp_mss(&mut packet[20..], 1, true));
        }
    }
}
