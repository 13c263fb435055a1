//! Writing pcapng (draft-ietf-opsawg-pcapng), as far as captures need it. Reads nothing, opens nothing: blocks are
//! appended to a byte vector, little-endian.
//!
//! tcpdump reads a file of several interfaces only if all have one link type and one snap length, so both are given
//! once, for the whole section.

/// The link type: the first header of every packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LinkType(u16);

impl LinkType {
    /// From the specification (LINKTYPE registry): an IPv4 or IPv6 header.
    pub const RAW: Self = Self(101);
    /// The same, by the number that Linux's and BSD's libpcap use inside (`DLT_RAW`). libpcap up to 1.10 at least
    /// translates the first interface's type and compares it with the others' untranslated: a file of several
    /// interfaces of type 101 is refused as having different ones. Wireshark supports both numbers.
    pub const RAW_UNTRANSLATED: Self = Self(12);

    /// Returns the type for a file of `interfaces` interfaces of IP packets.
    #[must_use]
    pub const fn raw(interfaces: usize) -> Self {
        if interfaces > 1 { Self::RAW_UNTRANSLATED } else { Self::RAW }
    }

    /// Returns its number in the file.
    #[must_use]
    pub const fn number(self) -> u16 {
        self.0
    }
}

const SECTION_HEADER: u32 = 0x0a0d_0d0a;
const INTERFACE_DESCRIPTION: u32 = 1;
const INTERFACE_STATISTICS: u32 = 5;
const ENHANCED_PACKET: u32 = 6;

const BYTE_ORDER_MAGIC: u32 = 0x1a2b_3c4d;
/// Section length unknown: the section goes on until the file ends.
const UNKNOWN_LENGTH: u64 = u64::MAX;

/// Option codes. Their meaning depends on the block, but for the first.
mod option {
    pub(super) const COMMENT: u16 = 1;
    pub(super) const SHB_USERAPPL: u16 = 4;
    pub(super) const IF_NAME: u16 = 2;
    pub(super) const IF_DESCRIPTION: u16 = 3;
    pub(super) const IF_TSRESOL: u16 = 9;
    pub(super) const EPB_FLAGS: u16 = 2;
    pub(super) const EPB_DROPCOUNT: u16 = 4;
    pub(super) const EPB_QUEUE: u16 = 6;
    pub(super) const ISB_STARTTIME: u16 = 2;
    pub(super) const ISB_ENDTIME: u16 = 3;
    pub(super) const ISB_IFRECV: u16 = 4;
    pub(super) const ISB_IFDROP: u16 = 5;
}

/// Nanoseconds: the negative power of ten in `if_tsresol`.
const NANOSECONDS: u8 = 9;

/// Which way a packet goes, in `epb_flags`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Direction {
    /// Not known.
    #[default]
    Unknown,
    /// From a peer into this cluster.
    Inbound,
    /// From this cluster to a peer.
    Outbound,
}

/// One packet.
#[derive(Debug, Clone, Copy)]
pub struct EnhancedPacket<'a> {
    /// Index of its interface, in the order in which they were described.
    pub interface: u32,
    /// Nanoseconds since 1970.
    pub timestamp_ns: u64,
    /// The captured bytes of the packet.
    pub bytes: &'a [u8],
    /// Bytes that the whole packet has.
    pub original_bytes: u32,
    /// Which way it goes.
    pub direction: Direction,
    /// The queue that it came by: here, the worker.
    pub queue: u32,
    /// Packets lost on this interface since the one before.
    pub lost: u64,
    /// A comment for the reader; none when empty.
    pub comment: &'a str,
}

/// Counters of an interface since the capture began.
#[derive(Debug, Clone, Copy)]
pub struct Statistics<'a> {
    /// Index of the interface.
    pub interface: u32,
    /// When the capture began, in nanoseconds since 1970.
    pub start_ns: u64,
    /// When this was counted, in nanoseconds since 1970.
    pub end_ns: u64,
    /// Packets that passed the filter, lost ones included.
    pub received: u64,
    /// Packets that passed the filter and are not in the file, because the reader was too slow.
    pub lost: u64,
    /// A comment for the reader; none when empty.
    pub comment: &'a str,
}

/// Begins a section.
pub fn section_header(out: &mut Vec<u8>, application: &str) {
    block(out, SECTION_HEADER, |out| {
        put_u32(out, BYTE_ORDER_MAGIC);
        put_u16(out, 1);
        put_u16(out, 0);
        put_u64(out, UNKNOWN_LENGTH);
        put_option(out, option::SHB_USERAPPL, application.as_bytes());
        end_options(out);
    });
}

/// Describes the next interface; the first is 0.
pub fn interface(out: &mut Vec<u8>, link: LinkType, name: &str, description: &str, snap_bytes: u32) {
    block(out, INTERFACE_DESCRIPTION, |out| {
        put_u16(out, link.number());
        put_u16(out, 0);
        put_u32(out, snap_bytes);
        put_option(out, option::IF_NAME, name.as_bytes());
        put_option(out, option::IF_DESCRIPTION, description.as_bytes());
        put_option(out, option::IF_TSRESOL, &[NANOSECONDS]);
        end_options(out);
    });
}

/// Appends a packet.
pub fn packet(out: &mut Vec<u8>, packet: &EnhancedPacket<'_>) {
    block(out, ENHANCED_PACKET, |out| {
        put_u32(out, packet.interface);
        put_timestamp(out, packet.timestamp_ns);
        put_u32(out, u32::try_from(packet.bytes.len()).unwrap_or(u32::MAX));
        put_u32(out, packet.original_bytes);
        out.extend_from_slice(packet.bytes);
        pad(out);
        if !packet.comment.is_empty() {
            put_option(out, option::COMMENT, packet.comment.as_bytes());
        }
        let flags: u32 = match packet.direction {
            Direction::Unknown => 0,
            Direction::Inbound => 1,
            Direction::Outbound => 2,
        };
        put_option(out, option::EPB_FLAGS, &flags.to_le_bytes());
        if packet.lost > 0 {
            put_option(out, option::EPB_DROPCOUNT, &packet.lost.to_le_bytes());
        }
        put_option(out, option::EPB_QUEUE, &packet.queue.to_le_bytes());
        end_options(out);
    });
}

/// Appends what an interface counted. May come more than once; the last one counts.
pub fn statistics(out: &mut Vec<u8>, statistics: &Statistics<'_>) {
    block(out, INTERFACE_STATISTICS, |out| {
        put_u32(out, statistics.interface);
        put_timestamp(out, statistics.end_ns);
        if !statistics.comment.is_empty() {
            put_option(out, option::COMMENT, statistics.comment.as_bytes());
        }
        put_option(out, option::ISB_STARTTIME, &timestamp(statistics.start_ns));
        put_option(out, option::ISB_ENDTIME, &timestamp(statistics.end_ns));
        put_option(out, option::ISB_IFRECV, &statistics.received.to_le_bytes());
        put_option(out, option::ISB_IFDROP, &statistics.lost.to_le_bytes());
        end_options(out);
    });
}

/// Writes a block around `body`: type, total length, body, total length again.
fn block(out: &mut Vec<u8>, kind: u32, body: impl FnOnce(&mut Vec<u8>)) {
    let start = out.len();
    put_u32(out, kind);
    put_u32(out, 0);
    body(out);
    let total = u32::try_from(out.len() - start + 4).expect("blocks are far shorter than 4 GiB");
    out[start + 4..start + 8].copy_from_slice(&total.to_le_bytes());
    put_u32(out, total);
}

/// Writes an option; what is longer than its 16-bit length can say is cut.
fn put_option(out: &mut Vec<u8>, code: u16, value: &[u8]) {
    let length = u16::try_from(value.len()).unwrap_or(u16::MAX);
    put_u16(out, code);
    put_u16(out, length);
    out.extend_from_slice(&value[..usize::from(length)]);
    pad(out);
}

fn end_options(out: &mut Vec<u8>) {
    put_u32(out, 0);
}

/// Pads to 32 bits. Blocks are a multiple of 4 bytes long and nothing else is in the vector, so that its length
/// tells the alignment.
fn pad(out: &mut Vec<u8>) {
    out.resize(out.len().next_multiple_of(4), 0);
}

fn put_timestamp(out: &mut Vec<u8>, nanoseconds: u64) {
    out.extend_from_slice(&timestamp(nanoseconds));
}

/// Encodes a timestamp: the upper 32 bits first, each half in the section's byte order.
fn timestamp(nanoseconds: u64) -> [u8; 8] {
    let [a, b, c, d, e, f, g, h] = nanoseconds.to_le_bytes();
    [e, f, g, h, a, b, c, d]
}

fn put_u16(out: &mut Vec<u8>, value: u16) {
    out.extend_from_slice(&value.to_le_bytes());
}

fn put_u32(out: &mut Vec<u8>, value: u32) {
    out.extend_from_slice(&value.to_le_bytes());
}

fn put_u64(out: &mut Vec<u8>, value: u64) {
    out.extend_from_slice(&value.to_le_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_packet_block_is_laid_out_as_the_specification_says() {
        let mut out = Vec::new();
        packet(
            &mut out,
            &EnhancedPacket {
                interface: 3,
                timestamp_ns: 0x0102_0304_0506_0708,
                bytes: b"abcde",
                original_bytes: 9,
                direction: Direction::Outbound,
                queue: 1,
                lost: 0,
                comment: "hi",
            },
        );
        #[rustfmt::skip]
        let expected = [
            6, 0, 0, 0, 68, 0, 0, 0,
            3, 0, 0, 0,
            4, 3, 2, 1, 8, 7, 6, 5,
            5, 0, 0, 0, 9, 0, 0, 0,
            b'a', b'b', b'c', b'd', b'e', 0, 0, 0,
            1, 0, 2, 0, b'h', b'i', 0, 0,
            2, 0, 4, 0, 2, 0, 0, 0,
            6, 0, 4, 0, 1, 0, 0, 0,
            0, 0, 0, 0,
            68, 0, 0, 0,
        ];
        assert_eq!(out, expected);
    }

    #[test]
    fn every_block_is_a_multiple_of_four_bytes_and_says_its_length_twice() {
        let mut out = Vec::new();
        section_header(&mut out, "x");
        let first = out.len();
        interface(&mut out, LinkType::RAW, "opened", "", 262_144);
        for len in [first, out.len() - first] {
            assert_eq!(len % 4, 0);
        }
        assert_eq!(out[4..8], out[first - 4..first]);
        assert_eq!(out[first + 4..first + 8], out[out.len() - 4..]);
    }
}
