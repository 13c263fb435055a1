//! A set of networks that is asked for overlaps.

use ipnet::IpNet;

/// Networks in the order of their addresses, none inside another. A question costs the logarithm of their number.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct NetworkSet {
    networks: Vec<IpNet>,
}

impl FromIterator<IpNet> for NetworkSet {
    fn from_iter<T: IntoIterator<Item = IpNet>>(networks: T) -> Self {
        let mut networks: Vec<IpNet> = networks.into_iter().map(|network| network.trunc()).collect();
        // A network stands before those inside it, which are thereby next to it.
        networks.sort_by_key(|network| (network.network(), network.prefix_len()));
        networks.dedup_by(|inner, outer| outer.contains(&*inner));
        Self { networks }
    }
}

impl NetworkSet {
    /// Returns a network of the set that has addresses in common with `network`.
    pub(crate) fn overlapping(&self, network: &IpNet) -> Option<&IpNet> {
        let from = self.networks.partition_point(|own| own.broadcast() < network.network());
        self.networks.get(from).filter(|own| own.contains(network) || network.contains(*own))
    }
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use super::*;
    use proptest::prelude::*;

    fn network() -> impl Strategy<Value = IpNet> {
        prop_oneof![
            (0u32..64, 24u8..=32).prop_map(|(bits, length)| {
                IpNet::new(IpAddr::from((0x0a00_0000 | bits << 4).to_be_bytes()), length).unwrap().trunc()
            }),
            (0u128..64, 120u8..=128).prop_map(|(bits, length)| {
                IpNet::new(IpAddr::from((0xfd00_u128 << 112 | bits << 2).to_be_bytes()), length)
                    .unwrap()
                    .trunc()
            }),
        ]
    }

    proptest! {
        #[test]
        fn an_overlap_is_found_exactly_when_there_is_one(
            networks in prop::collection::vec(network(), 0..12),
            asked in network(),
        ) {
            let set: NetworkSet = networks.iter().copied().collect();
            let expected = networks.iter().any(|own| own.contains(&asked) || asked.contains(own));
            prop_assert_eq!(set.overlapping(&asked).is_some(), expected);
        }
    }
}
