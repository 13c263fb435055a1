//! IPv4 packets as bytes, complete with right checksums.

use std::net::Ipv4Addr;

use trieste_packet::checksum::{Sum, fill_ipv4_header, pseudo_sum};
use trieste_packet::fragment::fragment_v4;
use trieste_packet::wire::{be16, be32, put16, put32};
use trieste_packet::{Pool, PoolConfig};

/// ICMP.
pub const ICMP: u8 = 1;
/// TCP.
pub const TCP: u8 = 6;
/// UDP.
pub const UDP: u8 = 17;
/// SCTP.
pub const SCTP: u8 = 132;
/// A protocol for experiments (RFC 3692), which nobody looks into.
pub const UNKNOWN: u8 = 253;

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

/// An address and a port.
pub type End = (Ipv4Addr, u16);

/// An IPv4 packet without options.
pub fn ip(protocol: u8, from: Ipv4Addr, to: Ipv4Addr, payload: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0_u8; 20];
    bytes[0] = 0x45;
    let total = narrow(20 + payload.len());
    put16(&mut bytes, 2, total);
    put16(&mut bytes, 4, 0x2af3);
    bytes[8] = 64;
    bytes[9] = protocol;
    bytes[12..16].copy_from_slice(&from.octets());
    bytes[16..20].copy_from_slice(&to.octets());
    fill_ipv4_header(&mut bytes);
    bytes.extend_from_slice(payload);
    bytes
}

/// A datagram.
pub fn udp(from: End, to: End, payload: &[u8]) -> Vec<u8> {
    let mut bytes = ip(UDP, from.0, to.0, &[&[0; 8], payload].concat());
    put16(&mut bytes, 20, from.1);
    put16(&mut bytes, 22, to.1);
    let length = narrow(8 + payload.len());
    put16(&mut bytes, 24, length);
    let sum = pseudo_sum(&bytes, UDP, 8 + payload.len()).bytes(&bytes[20..]).checksum();
    put16(&mut bytes, 26, if sum == 0 { u16::MAX } else { sum });
    bytes
}

/// A segment with its sequence and acknowledgement numbers, and a window that takes anything.
pub fn tcp(from: End, to: End, flags: u8, (sequence, acknowledged): (u32, u32), payload: &[u8]) -> Vec<u8> {
    let mut bytes = ip(TCP, from.0, to.0, &[&[0; 20], payload].concat());
    put16(&mut bytes, 20, from.1);
    put16(&mut bytes, 22, to.1);
    put32(&mut bytes, 24, sequence);
    put32(&mut bytes, 28, acknowledged);
    bytes[32] = 0x50;
    bytes[33] = flags;
    put16(&mut bytes, 34, 60_000);
    let sum = pseudo_sum(&bytes, TCP, 20 + payload.len()).bytes(&bytes[20..]).checksum();
    put16(&mut bytes, 36, sum);
    bytes
}

/// An ICMP query: types 8 and 0, 13 and 14.
pub fn query(icmp_type: u8, from: Ipv4Addr, to: Ipv4Addr, id: u16) -> Vec<u8> {
    let mut message = vec![icmp_type, 0, 0, 0, 0, 0, 0, 1];
    put16(&mut message, 4, id);
    message.extend_from_slice(b"twelve bytes");
    icmp(from, to, message)
}

fn icmp(from: Ipv4Addr, to: Ipv4Addr, mut message: Vec<u8>) -> Vec<u8> {
    put16(&mut message, 2, 0);
    let sum = Sum::ZERO.bytes(&message).checksum();
    put16(&mut message, 2, sum);
    ip(ICMP, from, to, &message)
}

/// An error about a packet, as far as `quoted` bytes of it, to whoever sent that.
pub fn error(from: Ipv4Addr, kind: (u8, u8), about: &[u8], quoted: usize) -> Vec<u8> {
    let mut message = vec![kind.0, kind.1, 0, 0, 0, 0, 0x05, 0x14];
    message.extend_from_slice(&about[..quoted.min(about.len())]);
    icmp(from, be32(about, 12).into(), message)
}

/// An SCTP packet (one chunk) with its own checksum, which knows no addresses.
pub fn sctp(from: End, to: End, chunk: &[u8]) -> Vec<u8> {
    let mut segment = vec![0_u8; 12];
    put16(&mut segment, 0, from.1);
    put16(&mut segment, 2, to.1);
    put32(&mut segment, 4, 0);
    segment.extend_from_slice(chunk);
    let sum = crc32c(&segment);
    segment[8..12].copy_from_slice(&sum.to_le_bytes());
    ip(SCTP, from.0, to.0, &segment)
}

/// An INIT chunk: what opens an association.
pub fn sctp_init() -> Vec<u8> {
    let mut chunk = vec![1, 0, 0, 20];
    for word in [0x1122_3344_u32, 65_535, 0x000a_000a, 7] {
        chunk.extend_from_slice(&word.to_be_bytes());
    }
    chunk
}

fn crc32c(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(u32::MAX, |crc, byte| {
        (0..8).fold(
            crc ^ u32::from(*byte),
            |crc, _| {
                if crc & 1 == 1 { (crc >> 1) ^ 0x82f6_3b78 } else { crc >> 1 }
            },
        )
    })
}

/// The packet cut for an MTU, in order.
pub fn cut(packet: &[u8], mtu_bytes: u16) -> Vec<Vec<u8>> {
    let mut pool = Pool::new(PoolConfig { slots: 80, slot_bytes: 4096 });
    let mut pieces = Vec::new();
    fragment_v4(packet, mtu_bytes, &mut pool, |buf| pieces.push(buf.bytes().to_vec()))
        .expect("no DF, room for eight bytes, and buffers enough");
    pieces
}

fn narrow(bytes: usize) -> u16 {
    u16::try_from(bytes).expect("packets of tests are short")
}

/// Fragments put together again, in whatever order they are; other packets as they are.
pub fn reassembled(packets: Vec<Vec<u8>>) -> Vec<Vec<u8>> {
    let (mut pieces, mut whole): (Vec<_>, Vec<_>) =
        packets.into_iter().partition(|packet| be16(packet, 6) & 0x3fff != 0);
    pieces.sort_by_key(|piece| be16(piece, 6) & 0x1fff);
    let Some(last) = pieces.last() else { return whole };
    if be16(last, 6) & 0x2000 != 0 {
        // Not all of it: compared as it is.
        whole.extend(pieces);
        return whole;
    }
    let mut joined = pieces[0].clone();
    for piece in &pieces[1..] {
        assert_eq!(
            usize::from(be16(piece, 6) & 0x1fff) * 8,
            joined.len() - 20,
            "fragments follow one another"
        );
        joined.extend_from_slice(&piece[20..]);
    }
    put16(&mut joined, 6, 0);
    let total = narrow(joined.len());
    put16(&mut joined, 2, total);
    fill_ipv4_header(&mut joined);
    whole.push(joined);
    whole
}
