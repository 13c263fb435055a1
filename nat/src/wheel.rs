//! The timer wheel: which sessions to look at when.
//!
//! One slot per second. A session's packets do not move it: when its slot comes, it is put where its deadline is by
//! then. So a packet writes one number, and each session costs one look per timer length.

use crate::index::{NONE, Slab, at};
use crate::session::Session;

/// Slots: more seconds than the longest timer has by default, so that most sessions are looked at once. Ours.
const SLOTS: u32 = 8192;
const WORDS: usize = (SLOTS / 64) as usize;

#[derive(Debug)]
pub(crate) struct Wheel {
    heads: Vec<u32>,
    /// Which slots hold anything.
    occupied: [u64; WORDS],
    /// Every slot before this second is empty.
    cursor: u32,
}

impl Wheel {
    pub(crate) fn new(second: u32) -> Self {
        Self { heads: vec![NONE; at(SLOTS)], occupied: [0; WORDS], cursor: second }
    }

    /// Puts a session where its deadline is, or as near as the wheel reaches: never behind the cursor, never into
    /// the cursor's own slot from the far side.
    pub(crate) fn schedule(&mut self, sessions: &mut Slab<Session>, index: u32, deadline: u32) {
        let second = deadline.clamp(self.cursor, self.cursor.saturating_add(SLOTS - 1));
        let slot = second % SLOTS;
        let next = self.heads[at(slot)];
        if next != NONE {
            sessions.get_mut(next).earlier = index;
        }
        let session = sessions.get_mut(index);
        session.scheduled = second;
        session.earlier = NONE;
        session.later = next;
        self.heads[at(slot)] = index;
        self.occupied[at(slot / 64)] |= 1 << (slot % 64);
    }

    /// Takes a session off the wheel.
    pub(crate) fn cancel(&mut self, sessions: &mut Slab<Session>, index: u32) {
        let Session { earlier, later, scheduled, .. } = *sessions.get(index);
        if later != NONE {
            sessions.get_mut(later).earlier = earlier;
        }
        if earlier != NONE {
            sessions.get_mut(earlier).later = later;
            return;
        }
        let slot = scheduled % SLOTS;
        self.heads[at(slot)] = later;
        if later == NONE {
            self.occupied[at(slot / 64)] &= !(1 << (slot % 64));
        }
    }

    /// The next session to look at, up to `second`; it stays on the wheel.
    pub(crate) fn due(&mut self, second: u32) -> Option<u32> {
        if self.cursor > second {
            return None;
        }
        let next = self.next_occupied().filter(|&next| next <= second);
        self.cursor = next.unwrap_or_else(|| second.saturating_add(1));
        Some(self.heads[at(next? % SLOTS)])
    }

    /// The first second from the cursor on that has something to look at.
    pub(crate) fn next_occupied(&self) -> Option<u32> {
        let start = self.cursor % SLOTS;
        let (first_word, first_bit) = (at(start / 64), start % 64);
        for step in 0..=WORDS {
            let word = (first_word + step) % WORDS;
            let mask = match step {
                0 => u64::MAX << first_bit,
                WORDS => !(u64::MAX << first_bit),
                _ => u64::MAX,
            };
            let bits = self.occupied[word] & mask;
            if bits != 0 {
                let slot = u32::try_from(word * 64).expect("below SLOTS") + bits.trailing_zeros();
                return self.cursor.checked_add(slot.wrapping_sub(start) % SLOTS);
            }
        }
        None
    }
}
