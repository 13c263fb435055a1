//! Inner packets: IPv4, with a serial number, and unlike any other.

use std::net::Ipv4Addr;

/// What no sealed frame may contain.
const MAGIC: &[u8; 12] = b"in the clear";
const HEADER_BYTES: usize = 20;
const UDP_BYTES: usize = 8;
/// Bytes of a packet without filling.
pub(crate) const SMALLEST_BYTES: usize = HEADER_BYTES + UDP_BYTES + MAGIC.len() + 8;

/// A packet of `SMALLEST_BYTES + filling` bytes.
pub(crate) fn packet(serial: u64, source: Ipv4Addr, destination: Ipv4Addr, filling: usize) -> Vec<u8> {
    let total = SMALLEST_BYTES + filling;
    let total_length = u16::try_from(total).unwrap();
    let udp_length = u16::try_from(total - HEADER_BYTES).unwrap();
    let mut bytes = vec![0x45, 0];
    bytes.extend(total_length.to_be_bytes());
    bytes.extend([0, 0, 0x40, 0, 64, 17, 0, 0]);
    bytes.extend(source.octets());
    bytes.extend(destination.octets());
    let checksum = header_checksum(&bytes);
    bytes[10..12].copy_from_slice(&checksum.to_be_bytes());
    bytes.extend(4000u16.to_be_bytes());
    bytes.extend(5000u16.to_be_bytes());
    bytes.extend(udp_length.to_be_bytes());
    bytes.extend([0, 0]);
    bytes.extend(MAGIC);
    bytes.extend(serial.to_be_bytes());
    let mut filler = serial.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    bytes.extend((0..filling).map(|_| {
        filler = filler.rotate_left(7).wrapping_add(1);
        filler.to_le_bytes()[0]
    }));
    bytes
}

/// The serial number of a packet, if it is one of ours.
pub(crate) fn serial(packet: &[u8]) -> Option<u64> {
    let payload = packet.get(HEADER_BYTES + UDP_BYTES..)?.strip_prefix(MAGIC)?;
    Some(u64::from_be_bytes(*payload.first_chunk()?))
}

/// Whether a frame shows what it should hide.
pub(crate) fn is_readable(frame: &[u8]) -> bool {
    frame.windows(MAGIC.len()).any(|window| window == MAGIC)
}

fn header_checksum(header: &[u8]) -> u16 {
    let sum: u32 = header.chunks_exact(2).map(|pair| u32::from(u16::from_be_bytes([pair[0], pair[1]]))).sum();
    let folded = (sum & 0xffff) + (sum >> 16);
    !u16::try_from((folded & 0xffff) + (folded >> 16)).unwrap()
}
