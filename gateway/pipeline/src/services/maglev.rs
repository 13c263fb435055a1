//! Maglev hashing: a table that spreads flows over nodes as evenly as their weights allow, and that changes little when a
//! node comes or goes (Eisenbud et al., NSDI 2016, section 3.4; weights as Envoy has them).

use std::net::IpAddr;

use trieste_packet::FlowKey;

/// Table sizes: prime, so that every permutation reaches every entry. Which one follows from the number of nodes alone,
/// so that all gateways have the same; ours: a hundred entries a node up to ten nodes, twenty up to four hundred.
const SIZES: [(usize, u32); 3] = [(16, 1021), (400, 8191), (usize::MAX, 65_521)];

/// A node and how much it gets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Share {
    /// Its address, which names it at every gateway alike.
    pub(crate) address: IpAddr,
    /// How many back ends it has; 0 counts as 1.
    pub(crate) weight: u32,
}

/// For each hash, the place of a node in the list that the table was made of.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Maglev {
    entries: Box<[u16]>,
}

/// The way in which one node asks for entries.
struct Permutation {
    offset: u32,
    skip: u32,
    next: u32,
    weight: u64,
    credit: u64,
}

impl Maglev {
    /// How many entries a table for so many nodes has.
    pub(crate) fn size(nodes: usize) -> u32 {
        SIZES.iter().find(|(most, _)| nodes <= *most).map_or(SIZES[2].1, |(_, size)| *size)
    }

    /// A table over `shares`, sorted by address; those beyond 65535 get nothing.
    ///
    /// # Panics
    /// Without a share.
    pub(crate) fn new(shares: &[Share]) -> Self {
        assert!(!shares.is_empty(), "somebody has to have the entries");
        let size = Self::size(shares.len());
        let mut permutations: Vec<Permutation> = shares
            .iter()
            .take(usize::from(u16::MAX))
            .map(|share| Permutation {
                offset: draw(share.address, 0, size),
                skip: draw(share.address, 1, size - 1) + 1,
                next: 0,
                weight: u64::from(share.weight.max(1)),
                credit: 0,
            })
            .collect();
        let most = permutations.iter().map(|one| one.weight).max().unwrap_or(1);
        let mut entries = vec![None; size as usize];
        let mut free = entries.len();
        'filling: loop {
            for (place, one) in (0u16..).zip(&mut permutations) {
                // The heaviest has a turn in every round, the others as often as their weights are of its.
                one.credit += one.weight;
                if one.credit < most {
                    continue;
                }
                one.credit -= most;
                let taken = one.take(&mut entries, size);
                entries[taken] = Some(place);
                free -= 1;
                if free == 0 {
                    break 'filling;
                }
            }
        }
        Self { entries: entries.into_iter().flatten().collect() }
    }

    /// The place of the node for a flow with this hash.
    pub(crate) fn pick(&self, hash: u64) -> u16 {
        let size = self.entries.len() as u64;
        let at = usize::try_from(hash % size).unwrap_or(0);
        self.entries[at]
    }
}

impl Permutation {
    /// The first free entry of those that the node asks for.
    fn take(&mut self, entries: &mut [Option<u16>], size: u32) -> usize {
        loop {
            let at = (u64::from(self.offset) + u64::from(self.next) * u64::from(self.skip)) % u64::from(size);
            self.next += 1;
            let at = usize::try_from(at).unwrap_or(0);
            if entries[at].is_none() {
                return at;
            }
        }
    }
}

/// A number below `below` that follows from an address: the same at every gateway.
fn draw(address: IpAddr, which: u8, below: u32) -> u32 {
    let hash = FlowKey::new(address, address, which, 0, 0).inside_source_hash();
    u32::try_from(hash % u64::from(below)).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use proptest::prelude::*;

    use super::*;

    fn shares(weights: &[u32]) -> Vec<Share> {
        let share = |(index, weight): (u8, &u32)| Share {
            address: Ipv4Addr::new(172, 31, 9, index).into(),
            weight: *weight,
        };
        (1u8..).zip(weights).map(share).collect()
    }

    fn counts(table: &Maglev, nodes: usize) -> Vec<usize> {
        let mut counts = vec![0; nodes];
        table.entries.iter().for_each(|place| counts[usize::from(*place)] += 1);
        counts
    }

    /// For each entry, the address that has it.
    fn owners(shares: &[Share]) -> Vec<IpAddr> {
        let table = Maglev::new(shares);
        table.entries.iter().map(|place| shares[usize::from(*place)].address).collect()
    }

    /// How many entries of those that need not move do so, in percent of all, when `gone` leaves.
    fn disruption(shares: &[Share], gone: usize) -> f64 {
        let fewer: Vec<Share> = shares.iter().copied().filter(|share| *share != shares[gone]).collect();
        let (before, after) = (owners(shares), owners(&fewer));
        assert_eq!(before.len(), after.len());
        let moved = before.iter().zip(&after).filter(|(a, b)| **a != shares[gone].address && a != b).count();
        moved as f64 * 100.0 / before.len() as f64
    }

    #[test]
    fn sizes_are_prime_and_more_nodes_have_more_entries() {
        let is_prime =
            |number: u32| (2..number).take_while(|d| d * d <= number).all(|d| !number.is_multiple_of(d));
        assert!(SIZES.iter().all(|(_, size)| is_prime(*size)));
        assert_eq!([1, 16, 17, 400, 401].map(Maglev::size), [1021, 1021, 8191, 8191, 65_521]);
    }

    #[test]
    fn equal_nodes_differ_by_one_entry_and_others_are_as_their_weights() {
        let equal = counts(&Maglev::new(&shares(&[1; 7])), 7);
        assert!(equal.iter().all(|count| (145..=146).contains(count)), "{equal:?}");
        let weighted = counts(&Maglev::new(&shares(&[1, 2, 5])), 3);
        for (count, weight) in weighted.iter().zip([1.0, 2.0, 5.0]) {
            let wanted = 1021.0 * weight / 8.0;
            assert!((*count as f64 - wanted).abs() < wanted * 0.05, "{weighted:?}");
        }
    }

    #[test]
    fn a_node_that_leaves_takes_few_others_along() {
        for (nodes, most) in [(2, 0.01), (3, 4.0), (10, 4.0), (16, 5.0), (50, 5.0)] {
            let shares = shares(&vec![1; nodes]);
            let all: Vec<f64> = (0..nodes).map(|gone| disruption(&shares, gone)).collect();
            let mean = all.iter().sum::<f64>() / nodes as f64;
            println!("{nodes} nodes, {} entries: {mean:.2} % of all move besides", Maglev::size(nodes));
            assert!(mean <= most, "{nodes} nodes: {mean:.2} %");
        }
    }

    proptest! {
        #[test]
        fn every_entry_is_somebodys_and_nobody_goes_without(weights in proptest::collection::vec(0u32..50, 1..40)) {
            let shares = shares(&weights);
            let table = Maglev::new(&shares);
            let counts = counts(&table, shares.len());
            prop_assert_eq!(table.entries.len(), Maglev::size(shares.len()) as usize);
            prop_assert_eq!(counts.iter().sum::<usize>(), table.entries.len());
            prop_assert!(counts.iter().all(|count| *count > 0));
            let again = Maglev::new(&shares);
            prop_assert_eq!(table, again);
        }
    }
}
