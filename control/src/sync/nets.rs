//! Networks in order, so that those which overlap one of them are found without looking at the others.

use std::collections::BTreeMap;

use ipnet::IpNet;

/// Values by network. Two networks overlap only if one contains the other, and those that a network contains follow it
/// directly in order: by address, shorter prefix first.
#[derive(Debug, Clone)]
pub(super) struct Nets<T> {
    by_net: BTreeMap<IpNet, T>,
    /// How many networks there are of each family and prefix length: only these can contain another one.
    lengths: BTreeMap<(bool, u8), usize>,
}

impl<T> Default for Nets<T> {
    fn default() -> Self {
        Self { by_net: BTreeMap::new(), lengths: BTreeMap::new() }
    }
}

impl<T> Nets<T> {
    /// Returns the value of a network, made if there is none.
    pub(super) fn entry(&mut self, net: IpNet) -> &mut T
    where
        T: Default,
    {
        let lengths = &mut self.lengths;
        self.by_net.entry(net).or_insert_with(|| {
            *lengths.entry(length_of(&net)).or_default() += 1;
            T::default()
        })
    }

    /// Returns the value of exactly this network.
    pub(super) fn value_mut(&mut self, net: &IpNet) -> Option<&mut T> {
        self.by_net.get_mut(net)
    }

    pub(super) fn remove(&mut self, net: &IpNet) {
        if self.by_net.remove(net).is_none() {
            return;
        }
        if let Some(count) = self.lengths.get_mut(&length_of(net)) {
            *count -= 1;
            if *count == 0 {
                self.lengths.remove(&length_of(net));
            }
        }
    }

    /// Returns the networks that this one contains, itself included, in order.
    pub(super) fn within(&self, net: IpNet) -> impl Iterator<Item = (&IpNet, &T)> {
        self.by_net.range(net..).take_while(move |(inner, _)| net.contains(*inner))
    }

    /// Returns the networks that contain this one, itself included, largest first.
    pub(super) fn covering(&self, net: IpNet) -> impl Iterator<Item = (&IpNet, &T)> {
        let (is_v6, own_length) = length_of(&net);
        self.lengths.range((is_v6, 0)..=(is_v6, own_length)).filter_map(move |((_, length), _)| {
            let outer = IpNet::new(net.addr(), *length).ok()?.trunc();
            self.by_net.get_key_value(&outer)
        })
    }

    /// Returns the networks that overlap this one: those that contain it, then those that it contains.
    pub(super) fn overlapping(&self, net: IpNet) -> impl Iterator<Item = (&IpNet, &T)> {
        self.covering(net).chain(self.within(net).skip_while(move |(inner, _)| **inner == net))
    }
}

fn length_of(net: &IpNet) -> (bool, u8) {
    (matches!(net, IpNet::V6(_)), net.prefix_len())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn what_overlaps_is_what_a_walk_over_all_of_them_finds(
            nets in prop::collection::btree_set(nets(), 0..24), gone in prop::collection::vec(nets(), 0..8), probe in nets()
        ) {
            let mut kept = nets.clone();
            let mut indexed = Nets::<()>::default();
            nets.iter().for_each(|net| *indexed.entry(*net) = ());
            for net in &gone {
                kept.remove(net);
                indexed.remove(net);
            }
            let mut found: Vec<IpNet> = indexed.overlapping(probe).map(|(net, ())| *net).collect();
            found.sort();
            let walked: Vec<IpNet> =
                kept.into_iter().filter(|net| net.contains(&probe) || probe.contains(net)).collect();
            prop_assert_eq!(found, walked);
        }
    }

    /// Generates few addresses with many lengths in both families: most of them overlap another one.
    fn nets() -> impl Strategy<Value = IpNet> {
        let v4 = (0u32..4, 0u8..=32).prop_map(|(block, length)| {
            let net = ipnet::Ipv4Net::new((0x0a00_0000 + (block << 14)).into(), length).unwrap();
            IpNet::V4(net.trunc())
        });
        let v6 = (0u128..4, 0u8..=128).prop_map(|(block, length)| {
            let net = ipnet::Ipv6Net::new(((0xfd00_u128 << 112) + (block << 60)).into(), length).unwrap();
            IpNet::V6(net.trunc())
        });
        prop_oneof![v4, v6]
    }
}
