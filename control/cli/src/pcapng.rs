//! Counting the packets of a pcapng stream as it passes, whatever pieces it comes in.

const SECTION_HEADER: u32 = 0x0a0d_0d0a;
const SIMPLE_PACKET: u32 = 3;
const ENHANCED_PACKET: u32 = 6;
/// The byte-order magic of a section, in the section's own order.
const MAGIC: u32 = 0x1a2b_3c4d;

/// Bytes from the start of a block that are looked at: type, length, and a section's magic.
const HEAD: usize = 12;

/// Counts packets. A stream that is no pcapng is counted as far as it makes sense.
#[derive(Debug, Default)]
pub(super) struct PacketCounter {
    packets: u64,
    /// The beginning of the current block.
    head: Vec<u8>,
    /// Bytes of the current block that are still to come, once its head is known.
    rest: usize,
    is_big_endian: bool,
    is_nonsense: bool,
}

impl PacketCounter {
    /// Takes in the next piece.
    pub(super) fn feed(&mut self, mut piece: &[u8]) {
        while !piece.is_empty() && !self.is_nonsense {
            if self.rest > 0 {
                let step = self.rest.min(piece.len());
                self.rest -= step;
                piece = &piece[step..];
                continue;
            }
            let step = (HEAD - self.head.len()).min(piece.len());
            self.head.extend_from_slice(&piece[..step]);
            piece = &piece[step..];
            if self.head.len() == HEAD {
                self.begin_block();
                self.head.clear();
            }
        }
    }

    /// Packets whose blocks have begun.
    pub(super) fn packets(&self) -> u64 {
        self.packets
    }

    fn begin_block(&mut self) {
        let kind = self.word(0);
        // The section header's type reads the same in both orders, and its magic tells which one it is.
        if kind == SECTION_HEADER {
            self.is_big_endian = false;
            self.is_big_endian = self.word(8) != MAGIC;
        }
        let length = self.word(4) as usize;
        // The head has been taken in already, and every block is at least that long.
        match length.checked_sub(HEAD) {
            Some(rest) if length.is_multiple_of(4) => self.rest = rest,
            Some(_) | None => self.is_nonsense = true,
        }
        if !self.is_nonsense && matches!(kind, SIMPLE_PACKET | ENHANCED_PACKET) {
            self.packets += 1;
        }
    }

    fn word(&self, at: usize) -> u32 {
        let bytes = [self.head[at], self.head[at + 1], self.head[at + 2], self.head[at + 3]];
        if self.is_big_endian { u32::from_be_bytes(bytes) } else { u32::from_le_bytes(bytes) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn block(kind: u32, body: &[u8], big: bool) -> Vec<u8> {
        let word = |value: u32| if big { value.to_be_bytes() } else { value.to_le_bytes() };
        let length = u32::try_from(12 + body.len()).unwrap();
        [&word(kind)[..], &word(length), body, &word(length)].concat()
    }

    fn stream(packets: usize, big: bool) -> Vec<u8> {
        let magic = if big { MAGIC.to_be_bytes() } else { MAGIC.to_le_bytes() };
        let section = [&magic[..], &[0, 1, 0, 0], &[0xff; 8]].concat();
        let mut bytes = block(SECTION_HEADER, &section, big);
        bytes.extend(block(1, &[0; 8], big));
        for index in 0..packets {
            bytes.extend(block(ENHANCED_PACKET, &vec![7; 20 + index * 4], big));
            bytes.extend(block(5, &[], big));
        }
        bytes
    }

    proptest! {
        #[test]
        fn packets_are_counted_whatever_pieces_they_come_in(packets in 0usize..20, size in 1usize..64, big: bool) {
            let mut counter = PacketCounter::default();
            stream(packets, big).chunks(size).for_each(|piece| counter.feed(piece));
            prop_assert_eq!(counter.packets(), packets as u64);
        }

        #[test]
        fn nonsense_does_not_panic(bytes: Vec<u8>, size in 1usize..64) {
            let mut counter = PacketCounter::default();
            bytes.chunks(size).for_each(|piece| counter.feed(piece));
        }
    }
}
