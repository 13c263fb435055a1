//! ICMP and ICMPv6 echo, in the shape that upstream's pinger sends.
//!
//! ```text
//!    0        1        2                 4                 6
//!   ┌────────┬────────┬─────────────────┬─────────────────┬─────────────────┐
//!   │ type   │ code 0 │ checksum        │ id              │ sequence        │   8 bytes (RFC 792, RFC 4443)
//!   ├────────┴────────┴─────────────────┴─────────────────┴─────────────────┤
//!   │ time of sending, nanoseconds                                          │   8 bytes
//!   ├───────────────────────────────────────────────────────────────────────┤
//!   │ tracker: which run of which pinger sent this                          │  16 bytes
//!   └───────────────────────────────────────────────────────────────────────┘
//! ```
//! All of it in network order. Replies are matched by id, sequence and tracker; the time is for readers of captures,
//! since a peer could echo another one.

/// Length of the ICMP header in bytes.
const HEADER_LEN: usize = 8;
/// Length of the time in bytes.
const TIME_LEN: usize = 8;
/// Length of a tracker in bytes.
pub const TRACKER_LEN: usize = 16;
/// Length of an echo message of ours in bytes.
pub const MESSAGE_LEN: usize = HEADER_LEN + TIME_LEN + TRACKER_LEN;

// From the specification: RFC 792 and RFC 4443.
const V4_REQUEST: u8 = 8;
const V4_REPLY: u8 = 0;
const V6_REQUEST: u8 = 128;
const V6_REPLY: u8 = 129;
/// IP protocol number of ICMP.
const ICMP: u8 = 1;
/// Shortest IPv4 header in bytes.
const MIN_IPV4_HEADER_LEN: usize = 20;

/// The identity that nobody but the peer that got the request can know.
pub type Tracker = [u8; TRACKER_LEN];

/// An echo request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EchoRequest {
    /// Which pinger, a random number.
    pub id: u16,
    /// Which request, from 1.
    pub sequence: u16,
    /// Time of sending in nanoseconds since the Unix epoch.
    pub unix_nanos: i64,
    /// Which run of which pinger.
    pub tracker: Tracker,
}

impl EchoRequest {
    /// Returns the message for an ICMP socket, with its checksum.
    pub fn emit_v4(&self) -> [u8; MESSAGE_LEN] {
        let mut message = self.emit(V4_REQUEST);
        let checksum = checksum(&message);
        message[2..4].copy_from_slice(&checksum.to_be_bytes());
        message
    }

    /// Returns the message for an ICMPv6 socket. Its checksum covers addresses that the kernel chooses, so the kernel
    /// fills it in (RFC 3542, section 3.1).
    pub fn emit_v6(&self) -> [u8; MESSAGE_LEN] {
        self.emit(V6_REQUEST)
    }

    fn emit(&self, message_type: u8) -> [u8; MESSAGE_LEN] {
        let mut message = [0; MESSAGE_LEN];
        message[0] = message_type;
        message[4..6].copy_from_slice(&self.id.to_be_bytes());
        message[6..8].copy_from_slice(&self.sequence.to_be_bytes());
        message[8..16].copy_from_slice(&self.unix_nanos.to_be_bytes());
        message[16..].copy_from_slice(&self.tracker);
        message
    }
}

/// An echo reply that could be an answer to a request of ours.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EchoReply {
    /// The request's id.
    pub id: u16,
    /// The request's sequence number.
    pub sequence: u16,
    /// The request's tracker.
    pub tracker: Tracker,
}

/// Reads what a raw ICMP socket receives: an IPv4 packet. `None` for everything but a whole echo reply of our length
/// with a correct checksum (a raw socket sees packets before the kernel has looked at it).
pub fn parse_v4(packet: &[u8]) -> Option<EchoReply> {
    let first = *packet.first()?;
    let header_len = usize::from(first & 0xf) * 4;
    if first >> 4 != 4 || header_len < MIN_IPV4_HEADER_LEN || *packet.get(9)? != ICMP {
        return None;
    }
    let message = packet.get(header_len..)?;
    let reply = parse(message, V4_REPLY)?;
    (checksum(message) == 0).then_some(reply)
}

/// Reads what a raw ICMPv6 socket receives: a message, whose checksum the kernel has checked. `None` for everything
/// but an echo reply of our length.
pub fn parse_v6(message: &[u8]) -> Option<EchoReply> {
    parse(message, V6_REPLY)
}

/// Parses a reply, cheapest checks first: every ICMP packet of the host may come by here.
fn parse(message: &[u8], message_type: u8) -> Option<EchoReply> {
    if *message.first()? != message_type || message.len() != MESSAGE_LEN || message[1] != 0 {
        return None;
    }
    let word = |at: usize| u16::from_be_bytes([message[at], message[at + 1]]);
    let tracker = message[HEADER_LEN + TIME_LEN..].try_into().ok()?;
    Some(EchoReply { id: word(4), sequence: word(6), tracker })
}

/// Computes the checksum of RFC 1071; zero over a message that carries its own.
fn checksum(message: &[u8]) -> u16 {
    let words =
        message.chunks(2).map(|pair| u16::from_be_bytes([pair[0], pair.get(1).copied().unwrap_or(0)]));
    let sum: u64 = words.map(u64::from).sum();
    let folded = (sum & 0xffff) + (sum >> 16);
    let folded = (folded & 0xffff) + (folded >> 16);
    !u16::try_from(folded & 0xffff).unwrap_or(u16::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const REQUEST: EchoRequest = EchoRequest {
        id: 0x1234,
        sequence: 1,
        unix_nanos: 0x0102_0304_0506_0708,
        tracker: [0xaa; TRACKER_LEN],
    };

    /// Returns the answer of an honest peer, as a raw socket shows it.
    fn answered_v4(request: &EchoRequest) -> Vec<u8> {
        let mut message = request.emit_v4();
        message[0] = V4_REPLY;
        message[2..4].fill(0);
        let sum = checksum(&message);
        message[2..4].copy_from_slice(&sum.to_be_bytes());
        let mut packet =
            vec![0x46, 0, 0, 56, 0, 0, 0, 0, 64, ICMP, 0, 0, 10, 2, 0, 1, 10, 1, 0, 1, 1, 1, 1, 1];
        packet.extend(message);
        packet
    }

    #[test]
    fn a_request_is_eight_bytes_of_header_and_twenty_four_of_data() {
        let message = REQUEST.emit_v4();
        assert_eq!(message.len(), 32);
        assert_eq!(message[..2], [8, 0]);
        assert_eq!(message[4..16], [0x12, 0x34, 0, 1, 1, 2, 3, 4, 5, 6, 7, 8]);
        assert_eq!(message[16..], [0xaa; 16]);
        assert_eq!(checksum(&message), 0);
        assert_eq!(REQUEST.emit_v6()[..4], [128, 0, 0, 0]);
    }

    #[test]
    fn an_answer_gives_back_what_was_asked() {
        let expected = EchoReply { id: 0x1234, sequence: 1, tracker: [0xaa; TRACKER_LEN] };
        assert_eq!(parse_v4(&answered_v4(&REQUEST)), Some(expected));
        let mut message = REQUEST.emit_v6();
        message[0] = V6_REPLY;
        assert_eq!(parse_v6(&message), Some(expected));
    }

    #[test]
    fn what_is_no_answer_to_us_is_none() {
        let good = answered_v4(&REQUEST);
        let with = |at: usize, value: u8| {
            let mut packet = good.clone();
            packet[at] = value;
            packet
        };
        let mut longer = good.clone();
        longer.push(0);
        let cases: [(&str, Vec<u8>); 9] = [
            ("our own request, seen on loopback", with(24, V4_REQUEST)),
            ("a code", with(25, 1)),
            ("a flipped bit", with(50, 0xab)),
            ("another protocol", with(9, 17)),
            ("IP version 6", with(0, 0x66)),
            ("a header that is none", with(0, 0x44)),
            ("a header longer than the packet", with(0, 0x4f)),
            ("cut short", good[..good.len() - 1].to_vec()),
            ("too long", longer),
        ];
        for (what, packet) in cases {
            assert_eq!(parse_v4(&packet), None, "{what}");
        }
    }

    proptest! {
        #[test]
        fn no_bytes_panic(bytes in prop::collection::vec(any::<u8>(), 0..120)) {
            let _ = parse_v4(&bytes);
            let _ = parse_v6(&bytes);
        }

        #[test]
        fn every_request_comes_back(id: u16, sequence: u16, unix_nanos: i64, tracker: [u8; TRACKER_LEN]) {
            let request = EchoRequest { id, sequence, unix_nanos, tracker };
            let expected = EchoReply { id, sequence, tracker };
            prop_assert_eq!(parse_v4(&answered_v4(&request)), Some(expected));
        }
    }
}
