//! Probes that are missing, by their numbers.

/// A probe's share in the average: the last hundred or so count.
const SHARE: f32 = 1.0 / 64.0;
/// A jump in numbers beyond this is a new beginning, not loss.
const MOST_MISSING: u32 = 1 << 16;

/// What has come and what has not.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Loss {
    newest: Option<u32>,
    average: f32,
    received: u64,
    missing: u64,
}

impl Loss {
    /// Another process is at the far end.
    pub(super) fn restart(&mut self) {
        self.newest = None;
    }

    /// Takes in a probe's number; returns how many are missing before it. One that is overtaken has been counted as
    /// missing.
    pub(super) fn take(&mut self, sequence: u32) -> u32 {
        self.received += 1;
        let ahead = self.newest.map_or(1, |newest| sequence.wrapping_sub(newest));
        let missing = match ahead {
            0 => return 0,
            1..MOST_MISSING => ahead - 1,
            MOST_MISSING..0x8000_0000 => 0,
            _ => return 0,
        };
        self.newest = Some(sequence);
        self.missing += u64::from(missing);
        // More than a few hundred make it total.
        for _ in 0..missing.min(512) {
            self.average += (1.0 - self.average) * SHARE;
        }
        self.average -= self.average * SHARE;
        missing
    }

    /// How many of a thousand are missing, lately.
    pub(super) fn permille(&self) -> u16 {
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "between 0 and 1000")]
        {
            (self.average * 1000.0).round().clamp(0.0, 1000.0) as u16
        }
    }

    /// Received and missing since the start.
    pub(super) fn totals(&self) -> (u64, u64) {
        (self.received, self.missing)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_is_counted_and_averaged() {
        let mut loss = Loss::default();
        assert_eq!(loss.take(u32::MAX), 0, "the first is wherever it is");
        assert_eq!(loss.take(0), 0, "numbers go round");
        assert_eq!(loss.take(3), 2);
        assert_eq!(loss.take(2), 0, "overtaken");
        assert_eq!(loss.totals(), (4, 2));
        for sequence in (5..2000).step_by(2) {
            loss.take(sequence);
        }
        assert!((450..550).contains(&loss.permille()), "{}", loss.permille());
        for sequence in 2000..3000 {
            loss.take(sequence);
        }
        assert_eq!(loss.permille(), 0);
        assert_eq!(loss.take(3000 + MOST_MISSING), 0, "a new beginning");
    }
}
