use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;

/// What a window has to say, without any cleverness.
struct Model {
    packets: u64,
    top: u64,
    seen: BTreeSet<u64>,
}

impl Model {
    fn accepts(&self, sequence: u64) -> bool {
        sequence != 0
            && (sequence > self.top || self.top - sequence < self.packets)
            && !self.seen.contains(&sequence)
    }

    fn commit(&mut self, sequence: u64) {
        self.top = self.top.max(sequence);
        self.seen.insert(sequence);
    }
}

fn offer<const WORDS: usize>(window: &mut ReplayWindow<WORDS>, sequence: u64) -> bool {
    let accepted = window.check(sequence).is_ok();
    if accepted {
        window.commit(sequence);
    }
    accepted
}

#[test]
fn the_window_of_the_gateway_is_8192_packets() {
    assert_eq!(ReplayWindow8192::PACKETS, 8192);
}

#[test]
fn zero_is_never_valid() {
    let mut window = ReplayWindow8192::new();
    assert_eq!(window.check(0), Err(ReplayError::Impossible));
    assert!(offer(&mut window, 1));
    assert_eq!(window.check(0), Err(ReplayError::Impossible));
    assert!(offer(&mut window, 8192));
    assert_eq!(window.check(0), Err(ReplayError::TooOld));
}

#[test]
fn the_left_edge_is_the_window_less_one_behind_the_top() {
    //= https://www.rfc-editor.org/rfc/rfc4303#section-3.4.3
    //= type=test
    //# The "right" edge of the window represents the highest, validated Sequence Number value received on this SA.
    fn at<const WORDS: usize>() {
        for top in 20_000..20_130 {
            let mut window = ReplayWindow::<WORDS>::new();
            assert!(window.commit(top));
            let packets = ReplayWindow::<WORDS>::PACKETS;
            assert_eq!(window.check(top - packets), Err(ReplayError::TooOld));
            assert_eq!(window.check(top - packets + 1), Ok(()));
            assert!(!window.commit(top - packets + 1));
            assert_eq!(window.check(top - packets + 1), Err(ReplayError::Seen));
            assert_eq!(window.check(top), Err(ReplayError::Seen));
            assert_eq!(window.check(top + 1), Ok(()));
        }
    }
    at::<2>();
    at::<3>();
    at::<5>();
    at::<129>();
}

#[test]
fn a_jump_over_the_whole_window_leaves_nothing_behind() {
    let packets = ReplayWindow8192::PACKETS;
    for jump in [packets - 64, packets, packets + 1, packets + 64, 3 * packets, 1 << 31, 1 << 40] {
        let mut window = ReplayWindow8192::new();
        for sequence in 1..=packets {
            assert!(offer(&mut window, sequence));
        }
        let top = packets + jump;
        assert!(offer(&mut window, top));
        for sequence in top - packets + 1..top {
            let expected = if sequence <= packets { Err(ReplayError::Seen) } else { Ok(()) };
            assert_eq!(window.check(sequence), expected, "{sequence} after a jump of {jump}");
        }
    }
}

#[test]
fn numbers_may_go_up_to_the_last_one() {
    let mut window = ReplayWindow::<2>::new();
    for sequence in [u64::MAX - 64, u64::MAX - 1, u64::MAX] {
        assert!(offer(&mut window, sequence));
    }
    assert_eq!(window.check(u64::MAX), Err(ReplayError::Seen));
}

#[test]
fn the_upper_half_follows_the_window_over_the_wrap_of_the_lower() {
    //= https://www.rfc-editor.org/rfc/rfc4303#appendix-A2.1
    //= type=test
    //# Case A: Tl >= (W - 1).  In this case, the window is within one sequence number subspace.
    let mut window = ReplayWindow8192::new();
    let wrap = 1u64 << 32;
    assert_eq!(window.infer(1), Ok(1));
    assert_eq!(
        window.infer(u32::MAX),
        Err(ReplayError::Impossible),
        "nothing comes before the first subspace"
    );
    window.commit(wrap - 10);
    assert_eq!(window.infer(u32::MAX), Ok(wrap - 1));
    assert_eq!(window.infer(0), Ok(wrap));
    assert_eq!(window.infer(5), Ok(wrap + 5));
    assert_eq!(window.infer(u32::MAX - 9 - 8190), Ok(wrap - 10 - 8190));
    // Case B: the window spans two subspaces.
    window.commit(wrap + 5);
    assert_eq!(window.infer(u32::MAX), Ok(wrap - 1));
    assert_eq!(window.infer(6), Ok(wrap + 6));
    // The left edge is the top less 8191; one below it is taken for one of the new subspace.
    assert_eq!(window.infer(u32::MAX - 8185), Ok(wrap - 8186));
    assert_eq!(window.infer(u32::MAX - 8186), Ok(wrap + (wrap - 8187)));
    window.commit(wrap + 8191);
    assert_eq!(window.infer(0), Ok(wrap));
    assert_eq!(window.infer(u32::MAX), Ok(2 * wrap - 1));
}

#[test]
fn the_last_subspace_has_no_next_one() {
    let mut window = ReplayWindow8192::new();
    window.commit(u64::MAX - 5);
    assert_eq!(window.infer(u32::MAX), Ok(u64::MAX));
    assert_eq!(window.infer(0), Err(ReplayError::Impossible));
}

proptest! {
    #[test]
    fn windows_of_all_sizes_agree_with_the_model(steps in prop::collection::vec((0u64..400, any::<bool>()), 1..400)) {
        fn agree<const WORDS: usize>(steps: &[(u64, bool)]) -> Result<(), TestCaseError> {
            let packets = ReplayWindow::<WORDS>::PACKETS;
            let mut model = Model { packets, top: 0, seen: BTreeSet::new() };
            let mut window = ReplayWindow::<WORDS>::new();
            for &(offset, is_ahead) in steps {
                let sequence = if is_ahead { model.top + offset } else { model.top.saturating_sub(offset) };
                prop_assert_eq!(window.check(sequence).is_ok(), model.accepts(sequence), "{}", sequence);
                if model.accepts(sequence) {
                    model.commit(sequence);
                    window.commit(sequence);
                }
                prop_assert_eq!(window.top(), model.top);
            }
            Ok(())
        }
        agree::<2>(&steps)?;
        agree::<3>(&steps)?;
        agree::<4>(&steps)?;
        agree::<129>(&steps)?;
    }

    #[test]
    fn every_number_within_reach_is_inferred_whole(top in 1u64..1 << 34, offset in 0u64..1 << 31, is_ahead: bool) {
        let mut window = ReplayWindow8192::new();
        window.commit(top);
        let sequence = if is_ahead { top + offset } else { top.saturating_sub(offset % 8192) };
        #[expect(clippy::cast_possible_truncation, reason = "the lower half is what is sent")]
        let low = sequence as u32;
        prop_assert_eq!(window.infer(low), Ok(sequence));
    }
}
