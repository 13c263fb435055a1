//! The libraries below, with nothing around them.

use anyhow::ensure;
use boringtun::noise::{Tunn, TunnResult};
use boringtun::x25519::{PublicKey, StaticSecret};
use ring::aead::{AES_128_GCM, Aad, Algorithm, CHACHA20_POLY1305, LessSafeKey, Nonce, UnboundKey};
use trieste_packet::checksum::Sum;

use crate::measure::{Candidate, Sample};
use crate::pair::Direction;

/// Bytes that WireGuard adds.
const OVERHEAD_BYTES: usize = 32;
const TAG_BYTES: usize = 16;
/// Where the checksum is that segments get.
const IP_HEADER_BYTES: usize = 20;
const TCP_CHECKSUM: usize = IP_HEADER_BYTES + 16;
/// As long as ESP's additional data with extended sequence numbers.
const ESP_AAD: [u8; 12] = [0; 12];

/// What is below WireGuard: bare boringtun first, then bare ring.
///
/// # Errors
/// When boringtun does not shake hands with itself.
pub(super) fn wireguard(
    direction: Direction,
    bytes: u16,
    ring: usize,
) -> anyhow::Result<Vec<Candidate<'static>>> {
    let bytes = usize::from(bytes);
    Ok(match direction {
        Direction::Outbound => vec![
            Candidate::new("boringtun encapsulate", encapsulate(bytes, ring, ring)?),
            Candidate::new("boringtun encapsulate into one hot buffer", encapsulate(bytes, ring, 1)?),
            Candidate::new(
                "ring ChaCha20-Poly1305 seal in place",
                seal(&CHACHA20_POLY1305, &[], bytes, ring)?,
            ),
        ],
        Direction::Inbound => vec![
            Candidate::new("boringtun decapsulate", decapsulate(bytes, ring, ring)?),
            Candidate::new("boringtun decapsulate into one hot buffer", decapsulate(bytes, ring, 1)?),
            Candidate::new(
                "ring ChaCha20-Poly1305 open in place",
                open(&CHACHA20_POLY1305, &[], bytes, ring)?,
            ),
        ],
    })
}

/// What is below ESP: bare ring.
///
/// # Errors
/// When ring refuses a key, which would be a bug.
pub(super) fn esp(direction: Direction, bytes: u16, ring: usize) -> anyhow::Result<Vec<Candidate<'static>>> {
    let bytes = usize::from(bytes);
    Ok(match direction {
        Direction::Outbound => vec![
            Candidate::new("ring AES-128-GCM seal in place", seal(&AES_128_GCM, &[], bytes, ring)?),
            Candidate::new(
                "ring AES-128-GCM seal in place, ESP's AAD",
                seal(&AES_128_GCM, &ESP_AAD, bytes, ring)?,
            ),
            Candidate::new(
                "ring AES-128-GCM, ESP's AAD, after copy and checksum",
                copy_and_seal(&AES_128_GCM, &ESP_AAD, bytes, ring)?,
            ),
        ],
        Direction::Inbound => vec![
            Candidate::new("ring AES-128-GCM open in place", open(&AES_128_GCM, &[], bytes, ring)?),
            Candidate::new(
                "ring AES-128-GCM open in place, ESP's AAD",
                open(&AES_128_GCM, &ESP_AAD, bytes, ring)?,
            ),
        ],
    })
}

/// `ring` buffers of the same length side by side.
struct Ring {
    memory: Vec<u8>,
    stride: usize,
}

impl Ring {
    fn new(bytes: usize, ring: usize) -> Self {
        // Whole cache lines, an odd number of them, so that the buffers do not share cache sets.
        let lines = bytes.div_ceil(64) | 1;
        Self { memory: vec![1; lines * 64 * ring], stride: lines * 64 }
    }

    fn buffers(&mut self) -> impl Iterator<Item = &mut [u8]> {
        self.memory.chunks_exact_mut(self.stride)
    }

    /// Writes inner packets into all buffers, as a device would have just before.
    fn fill(&mut self, bytes: usize) {
        for (index, buffer) in self.buffers().enumerate() {
            buffer[..bytes].fill(index.to_le_bytes()[0]);
            write_ip_header(&mut buffer[..bytes]);
        }
    }
}

/// boringtun looks at the version and the length of what it opens.
fn write_ip_header(packet: &mut [u8]) {
    packet[0] = 0x45;
    let length = u16::try_from(packet.len()).unwrap_or(u16::MAX).to_be_bytes();
    packet[2..4].copy_from_slice(&length);
}

fn encapsulate(bytes: usize, ring: usize, targets: usize) -> anyhow::Result<impl FnMut() -> Sample> {
    let (mut east, _) = tunnels()?;
    let mut plain = Ring::new(bytes, ring);
    let mut sealed = Ring::new(bytes + OVERHEAD_BYTES, targets);
    Ok(move || {
        plain.fill(bytes);
        Sample::of(|| {
            let mut done = 0;
            let mut packets = plain.buffers().peekable();
            while packets.peek().is_some() {
                for (target, packet) in sealed.buffers().zip(&mut packets) {
                    let result = east.encapsulate(&packet[..bytes], target);
                    done += u64::from(matches!(result, TunnResult::WriteToNetwork(_)));
                }
            }
            done
        })
    })
}

fn decapsulate(bytes: usize, ring: usize, targets: usize) -> anyhow::Result<impl FnMut() -> Sample> {
    let (mut east, mut west) = tunnels()?;
    let mut plain = Ring::new(bytes, 1);
    plain.fill(bytes);
    let mut sealed = Ring::new(bytes + OVERHEAD_BYTES, ring);
    let mut opened = Ring::new(bytes + OVERHEAD_BYTES, targets);
    Ok(move || {
        for (datagram, packet) in sealed.buffers().zip(std::iter::repeat(&plain.memory)) {
            east.encapsulate(&packet[..bytes], datagram);
        }
        Sample::of(|| {
            let mut done = 0;
            let mut datagrams = sealed.buffers().peekable();
            while datagrams.peek().is_some() {
                for (target, datagram) in opened.buffers().zip(&mut datagrams) {
                    let result = west.decapsulate(None, &datagram[..bytes + OVERHEAD_BYTES], target);
                    done += u64::from(matches!(result, TunnResult::WriteToTunnelV4(..)));
                }
            }
            done
        })
    })
}

fn seal(
    algorithm: &'static Algorithm,
    aad: &'static [u8],
    bytes: usize,
    ring: usize,
) -> anyhow::Result<impl FnMut() -> Sample> {
    let key = key(algorithm)?;
    let mut packets = Ring::new(bytes + TAG_BYTES, ring);
    let mut counter = 0;
    Ok(move || {
        packets.fill(bytes);
        Sample::of(|| {
            let mut done = 0;
            for packet in packets.buffers() {
                done += u64::from(seal_one(&key, aad, counter, packet, bytes));
                counter += 1;
            }
            done
        })
    })
}

/// What cutting a train costs besides: every segment is copied, and gets its TCP checksum.
fn copy_and_seal(
    algorithm: &'static Algorithm,
    aad: &'static [u8],
    bytes: usize,
    ring: usize,
) -> anyhow::Result<impl FnMut() -> Sample> {
    let key = key(algorithm)?;
    let mut plain = Ring::new(bytes, ring);
    let mut sealed = Ring::new(bytes + TAG_BYTES, ring);
    let mut counter = 0;
    Ok(move || {
        plain.fill(bytes);
        Sample::of(|| {
            let mut done = 0;
            for (from, to) in plain.buffers().zip(sealed.buffers()) {
                to[..bytes].copy_from_slice(&from[..bytes]);
                let checksum = !Sum::ZERO.bytes(&to[IP_HEADER_BYTES..bytes]).folded();
                to[TCP_CHECKSUM..TCP_CHECKSUM + 2].copy_from_slice(&checksum.to_be_bytes());
                done += u64::from(seal_one(&key, aad, counter, to, bytes));
                counter += 1;
            }
            done
        })
    })
}

/// What is below VXLAN, which only cuts and copies.
pub(super) fn copy(bytes: usize, ring: usize) -> impl FnMut() -> Sample {
    let (mut plain, mut copies) = (Ring::new(bytes, ring), Ring::new(bytes, ring));
    move || {
        plain.fill(bytes);
        Sample::of(|| {
            let mut done = 0;
            for (from, to) in plain.buffers().zip(copies.buffers()) {
                to[..bytes].copy_from_slice(&from[..bytes]);
                let checksum = !Sum::ZERO.bytes(&to[IP_HEADER_BYTES..bytes]).folded();
                to[TCP_CHECKSUM..TCP_CHECKSUM + 2].copy_from_slice(&checksum.to_be_bytes());
                done += 1;
            }
            done
        })
    }
}

fn open(
    algorithm: &'static Algorithm,
    aad: &'static [u8],
    bytes: usize,
    ring: usize,
) -> anyhow::Result<impl FnMut() -> Sample> {
    let key = key(algorithm)?;
    let mut packets = Ring::new(bytes + TAG_BYTES, ring);
    Ok(move || {
        packets.fill(bytes);
        for (counter, packet) in (0..).zip(packets.buffers()) {
            seal_one(&key, aad, counter, packet, bytes);
        }
        Sample::of(|| {
            let packets = (0..).zip(packets.buffers());
            let opened = packets.filter_map(|(counter, packet)| {
                key.open_in_place(nonce(counter), Aad::from(aad), &mut packet[..bytes + TAG_BYTES]).ok()
            });
            opened.count() as u64
        })
    })
}

/// Seals the first `bytes` of a buffer and puts the tag behind them; whether ring did it.
#[inline]
fn seal_one(key: &LessSafeKey, aad: &[u8], counter: u64, buffer: &mut [u8], bytes: usize) -> bool {
    let (data, tail) = buffer.split_at_mut(bytes);
    let tag = key.seal_in_place_separate_tag(nonce(counter), Aad::from(aad), data);
    tag.map(|tag| tail[..TAG_BYTES].copy_from_slice(tag.as_ref())).is_ok()
}

fn key(algorithm: &'static Algorithm) -> anyhow::Result<LessSafeKey> {
    let key = UnboundKey::new(algorithm, &[7; 32][..algorithm.key_len()]);
    Ok(LessSafeKey::new(key.map_err(|_| anyhow::anyhow!("ring refuses a key of its own length"))?))
}

fn nonce(counter: u64) -> Nonce {
    let mut nonce = [0; 12];
    nonce[4..].copy_from_slice(&counter.to_le_bytes());
    Nonce::assume_unique_for_key(nonce)
}

/// Two `Tunn`s with a session between them.
fn tunnels() -> anyhow::Result<(Tunn, Tunn)> {
    let secret = |byte: u8| StaticSecret::from([byte; 32]);
    let public = |byte: u8| PublicKey::from(&secret(byte));
    let mut east = Tunn::new(secret(1), public(2), None, None, 1, None);
    let mut west = Tunn::new(secret(2), public(1), None, None, 2, None);
    let mut message = [0; 2048];
    let mut size = written(&east.format_handshake_initiation(&mut message, false));
    let (mut from_east, mut rounds) = (true, 0);
    while size > 0 && rounds < 4 {
        let mut answer = [0; 2048];
        let to = if from_east { &mut west } else { &mut east };
        size = written(&to.decapsulate(None, &message[..size], &mut answer));
        message = answer;
        from_east = !from_east;
        rounds += 1;
    }
    ensure!(east.time_since_last_handshake().is_some(), "boringtun did not shake hands with itself");
    Ok((east, west))
}

fn written(result: &TunnResult<'_>) -> usize {
    if let TunnResult::WriteToNetwork(message) = result { message.len() } else { 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_candidate_does_all_of_its_work() {
        for direction in [Direction::Outbound, Direction::Inbound] {
            let mut all = wireguard(direction, 1420, 100).unwrap();
            all.extend(esp(direction, 1420, 100).unwrap());
            for mut candidate in all {
                for _ in 0..3 {
                    assert_eq!((candidate.pass)().packets, 100, "{}", candidate.name);
                }
            }
        }
    }
}
