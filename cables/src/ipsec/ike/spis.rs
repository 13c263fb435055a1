//! Our SPIs of a lane's child SAs.

use trieste_packet::LaneId;

use crate::ipsec::Spi;

/// Which of a lane's 255 SPIs are in use. One that is given back comes up again as late as possible.
#[derive(Debug)]
pub(super) struct SpiPool {
    lane: LaneId,
    is_used: [bool; 256],
    last: u8,
}

impl SpiPool {
    /// All free; the first to be used is the one behind `start`, so that a gateway that restarts usually takes others.
    pub(super) fn new(lane: LaneId, start: u8) -> Self {
        Self { lane, is_used: [false; 256], last: start }
    }

    /// Takes one, if there is one.
    pub(super) fn take(&mut self) -> Option<Spi> {
        for _ in 0..=u8::MAX {
            self.last = self.last.wrapping_add(1);
            let is_used = self.is_used.get_mut(usize::from(self.last))?;
            if self.last != 0 && !*is_used {
                *is_used = true;
                return Some(Spi::new(self.lane, self.last));
            }
        }
        None
    }

    /// Gives one back.
    pub(super) fn give(&mut self, spi: Spi) {
        if let Some(is_used) = self.is_used.get_mut(usize::from(spi.index())) {
            *is_used = false;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spis_are_not_used_again_before_all_others() {
        let mut pool = SpiPool::new(LaneId(7), 250);
        let first = pool.take().unwrap();
        assert_eq!((first.lane(), first.index()), (LaneId(7), 251));
        pool.give(first);
        let mut taken: Vec<u8> = (0..255).map(|_| pool.take().unwrap().index()).collect();
        assert_eq!((taken[0], taken[3], taken[4], taken[254]), (252, 255, 1, 251));
        assert_eq!(pool.take(), None);
        taken.sort_unstable();
        taken.dedup();
        assert_eq!(taken.len(), 255);
    }
}
