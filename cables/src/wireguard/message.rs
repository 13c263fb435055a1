//! The four WireGuard messages, as far as telling them apart goes (WireGuard paper, section 5.4).

use trieste_packet::LaneId;

use crate::boundary::Message;

/// Handshake initiation.
pub const INITIATION: u32 = 1;
/// Handshake response.
pub const RESPONSE: u32 = 2;
/// Cookie reply.
pub const COOKIE: u32 = 3;
/// Transport data.
pub const DATA: u32 = 4;

/// Bytes of a handshake initiation.
pub const INITIATION_BYTES: usize = 148;
/// Bytes of a handshake response.
pub const RESPONSE_BYTES: usize = 92;
/// Bytes of a cookie reply.
pub const COOKIE_BYTES: usize = 64;
/// Bytes in front of the sealed packet.
pub const DATA_HEADER_BYTES: usize = 16;
/// Bytes of the authentication tag.
pub const TAG_BYTES: usize = 16;
/// Bytes that sealing adds.
pub const OVERHEAD_BYTES: usize = DATA_HEADER_BYTES + TAG_BYTES;

/// Message counters at or above this are refused (`Reject-After-Messages`, section 6.1: 2^64 - 2^13 - 1).
pub const REJECT_AFTER_MESSAGES: u64 = u64::MAX - (1 << 13);

/// Reads a little-endian 32-bit field. The caller has checked the length.
fn le32(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

/// What `datagram` is by its type, length and receiver index. The low eight bits of an index are boringtun's.
#[must_use]
pub fn classify(datagram: &[u8]) -> Message {
    if datagram.len() < OVERHEAD_BYTES {
        return Message::Unknown;
    }
    match (le32(datagram, 0), datagram.len()) {
        (DATA, _) => Message::Data(LaneId(le32(datagram, 4) >> 8)),
        (INITIATION, INITIATION_BYTES) => Message::Greeting,
        (RESPONSE, RESPONSE_BYTES) => Message::Control(LaneId(le32(datagram, 8) >> 8)),
        (COOKIE, COOKIE_BYTES) => Message::Control(LaneId(le32(datagram, 4) >> 8)),
        _ => Message::Unknown,
    }
}

/// The counter of a data message of at least [`OVERHEAD_BYTES`].
#[must_use]
pub fn counter(datagram: &[u8]) -> u64 {
    u64::from_le_bytes(datagram[8..16].try_into().expect("eight bytes"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_told_apart_by_type_and_length() {
        let message = |kind: u32, at: usize, bytes: usize| {
            let mut datagram = vec![0u8; bytes];
            datagram[..4].copy_from_slice(&kind.to_le_bytes());
            datagram[at..at + 4].copy_from_slice(&0x0012_3407u32.to_le_bytes());
            classify(&datagram)
        };
        let lane = LaneId(0x1234);
        assert_eq!(message(DATA, 4, 32), Message::Data(lane));
        assert_eq!(message(DATA, 4, 31), Message::Unknown);
        assert_eq!(message(RESPONSE, 8, 92), Message::Control(lane));
        assert_eq!(message(COOKIE, 4, 64), Message::Control(lane));
        assert_eq!(message(INITIATION, 4, 148), Message::Greeting);
        for (kind, bytes) in
            [(INITIATION, 147), (RESPONSE, 93), (COOKIE, 63), (0, 148), (5, 64), (0x0100_0004, 64)]
        {
            assert_eq!(message(kind, 8, bytes), Message::Unknown);
        }
        assert_eq!(classify(&[]), Message::Unknown);
    }
}
