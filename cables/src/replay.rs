//! Anti-replay: a sliding window over sequence numbers (RFC 6479), and the half of them that is not sent (ESN).
//!
//! The window is a ring of words, one more than it needs: moving ahead clears whole words and shifts nothing.
//!
//! ```text
//!   bottom = top - PACKETS + 1                       top
//!   [ too old … |.x.xx.|xxxxxx|xxxxxx|xxx.xx|xxxx.x|x.....]  newer: always accepted
//!                └──────────── WORDS ring words ─────────┘
//! ```
//!
//! Whoever opens a packet calls [`ReplayWindow::check`] before verifying it and [`ReplayWindow::commit`] after: a forged
//! sequence number must not move the window (RFC 4303 section 3.4.3).

/// Bits of a word.
const WORD_BITS: u64 = u64::BITS as u64;

/// A window of 8192 packets.
pub type ReplayWindow8192 = ReplayWindow<129>;

/// Why a sequence number is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ReplayError {
    /// Zero, which is never sent; or a number before the first or behind the last one there can be.
    #[error("no packet has this sequence number")]
    Impossible,
    /// Left of the window.
    #[error("the sequence number is older than the window")]
    TooOld,
    /// A packet with it was accepted already.
    #[error("the sequence number was seen before")]
    Seen,
}

/// Which sequence numbers have been accepted: the highest, and which of the `(WORDS - 1) * 64` up to it.
///
/// Numbers have 64 bits and begin with 1. `WORDS` is at least 2.
#[derive(Debug, Clone)]
pub struct ReplayWindow<const WORDS: usize> {
    top: u64,
    words: [u64; WORDS],
}

impl<const WORDS: usize> Default for ReplayWindow<WORDS> {
    fn default() -> Self {
        Self::new()
    }
}

impl<const WORDS: usize> ReplayWindow<WORDS> {
    /// Width of the window: the highest accepted number and how many more up to it are told apart.
    pub const PACKETS: u64 = (WORDS as u64 - 1) * WORD_BITS;

    /// Nothing accepted yet.
    #[must_use]
    pub fn new() -> Self {
        const { assert!(WORDS >= 2, "one word is always being left") };
        Self { top: 0, words: [0; WORDS] }
    }

    /// The highest number accepted; 0 when there is none.
    #[must_use]
    pub fn top(&self) -> u64 {
        self.top
    }

    /// Whether a packet with this number may be looked at.
    ///
    /// # Errors
    /// [`ReplayError`] when it may not.
    #[inline]
    pub fn check(&self, sequence: u64) -> Result<(), ReplayError> {
        if sequence > self.top {
            return Ok(());
        }
        //= https://www.rfc-editor.org/rfc/rfc4303#section-3.4.3
        //# Packets that contain sequence numbers lower than the "left" edge of the window are rejected.
        if self.top - sequence >= Self::PACKETS {
            return Err(ReplayError::TooOld);
        }
        if sequence == 0 {
            return Err(ReplayError::Impossible);
        }
        let (word, bit) = place::<WORDS>(sequence);
        if self.words[word] & bit != 0 { Err(ReplayError::Seen) } else { Ok(()) }
    }

    /// Remembers the number of a packet that was checked and has been verified since. Returns whether it is the highest
    /// so far.
    #[inline]
    pub fn commit(&mut self, sequence: u64) -> bool {
        let is_newest = sequence > self.top;
        if is_newest {
            self.advance(sequence);
        }
        let (word, bit) = place::<WORDS>(sequence);
        self.words[word] |= bit;
        is_newest
    }

    /// Clears the words between the old top's and the new one's, which is cleared as well.
    #[inline]
    fn advance(&mut self, sequence: u64) {
        let passed = sequence / WORD_BITS - self.top / WORD_BITS;
        if passed >= WORDS as u64 {
            self.words = [0; WORDS];
        } else {
            for step in 0..passed {
                let (word, _) = place::<WORDS>(sequence - step * WORD_BITS);
                self.words[word] = 0;
            }
        }
        self.top = sequence;
    }

    /// The whole number of which a packet carries the lower half (RFC 4303 appendix A2).
    ///
    /// # Errors
    /// [`ReplayError::Impossible`] when it would lie before the first or behind the last number there can be.
    #[inline]
    pub fn infer(&self, low: u32) -> Result<u64, ReplayError> {
        const HALF: u64 = 1 << 32;
        let (top_low, top_high) = (self.top & (HALF - 1), self.top >> 32);
        // The lower half of the number at the left edge.
        let bottom_low = top_low.wrapping_sub(Self::PACKETS - 1) & (HALF - 1);
        let is_in_one_subspace = top_low >= Self::PACKETS - 1;
        let is_above = u64::from(low) >= bottom_low;
        let high = match (is_in_one_subspace, is_above) {
            // Case A: the window lies in one subspace. What is below it belongs to the next one.
            (true, true) | (false, false) => Some(top_high),
            (true, false) => top_high.checked_add(1).filter(|high| *high < HALF),
            // Case B: the window begins in the subspace before.
            (false, true) => top_high.checked_sub(1),
        };
        high.map(|high| high << 32 | u64::from(low)).ok_or(ReplayError::Impossible)
    }
}

/// Where a number's bit is: word of the ring, and mask.
#[inline]
fn place<const WORDS: usize>(sequence: u64) -> (usize, u64) {
    let word = ((sequence / WORD_BITS) % WORDS as u64) as usize;
    (word, 1 << (sequence % WORD_BITS))
}

#[cfg(test)]
mod tests;
