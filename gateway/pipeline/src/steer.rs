//! Choosing one path of a set.

use trieste_packet::{FlowKey, PathId};

/// The path for a flow: the one of `paths` with the highest hash of flow and path (rendezvous hashing), so that a
/// path that comes or goes moves only its own share of the flows. `None` for an empty set.
pub(crate) fn decide(flow: &FlowKey, paths: &[PathId]) -> Option<PathId> {
    if let [only] = paths {
        return Some(*only);
    }
    let hash = flow.symmetric_hash();
    paths.iter().copied().max_by_key(|path| score(hash, *path))
}

fn score(hash: u64, path: PathId) -> u64 {
    // The finaliser of SplitMix64: every input bit reaches every output bit.
    let mut value = hash ^ u64::from(path.0).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn losing_a_path_moves_only_its_flows() {
        let all: Vec<_> = (0..4).map(PathId).collect();
        let fewer: Vec<_> = (0..3).map(PathId).collect();
        let mut counts = [0u32; 4];
        for port in 0..8000u16 {
            let flow = FlowKey::new([10, 1, 0, 1].into(), [10, 2, 0, 1].into(), 6, port, 80);
            let before = decide(&flow, &all).unwrap();
            counts[usize::from(before.0)] += 1;
            if before != PathId(3) {
                assert_eq!(decide(&flow, &fewer), Some(before));
            }
            assert_eq!(decide(&flow.reversed(), &all), Some(before));
        }
        assert!(counts.iter().all(|&count| (1800..2200).contains(&count)), "{counts:?}");
        let flow = FlowKey::new([10, 1, 0, 1].into(), [10, 2, 0, 1].into(), 6, 1, 80);
        assert_eq!(decide(&flow, &[]), None);
    }
}
