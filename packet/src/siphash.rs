//! SipHash-2-4 (Aumasson and Bernstein) of seven bytes. Specified, so that another version or program computes the same.

struct State([u64; 4]);

impl State {
    fn new(k0: u64, k1: u64) -> Self {
        Self([
            k0 ^ 0x736f_6d65_7073_6575,
            k1 ^ 0x646f_7261_6e64_6f6d,
            k0 ^ 0x6c79_6765_6e65_7261,
            k1 ^ 0x7465_6462_7974_6573,
        ])
    }

    fn round(&mut self) {
        let [mut a, mut b, mut c, mut d] = self.0;
        a = a.wrapping_add(b);
        b = b.rotate_left(13) ^ a;
        a = a.rotate_left(32);
        c = c.wrapping_add(d);
        d = d.rotate_left(16) ^ c;
        a = a.wrapping_add(d);
        d = d.rotate_left(21) ^ a;
        c = c.wrapping_add(b);
        b = b.rotate_left(17) ^ c;
        c = c.rotate_left(32);
        self.0 = [a, b, c, d];
    }

    fn block(&mut self, word: u64) {
        self.0[3] ^= word;
        self.round();
        self.round();
        self.0[0] ^= word;
    }

    fn finish(mut self) -> u64 {
        self.0[2] ^= 0xff;
        for _ in 0..4 {
            self.round();
        }
        self.0.iter().fold(0, |all, word| all ^ word)
    }
}

/// Hashes a message of seven bytes: one block.
#[must_use]
pub fn of_seven(k0: u64, k1: u64, message: [u8; 7]) -> u64 {
    let [a, b, c, d, e, f, g] = message;
    let mut state = State::new(k0, k1);
    // The last block ends with the length.
    state.block(u64::from_le_bytes([a, b, c, d, e, f, g, 7]));
    state.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reference_implementations_vector_for_seven_bytes() {
        let [low, high] = [0x0706_0504_0302_0100, 0x0f0e_0d0c_0b0a_0908];
        assert_eq!(of_seven(low, high, [0, 1, 2, 3, 4, 5, 6]), 0xab02_00f5_8b01_d137);
    }
}
