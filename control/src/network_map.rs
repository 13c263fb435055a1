//! Networks by prefix: which of very many overlap one, without a look at the others. Pure.

use std::net::IpAddr;

use ipnet::IpNet;
use prefix_trie::joint::map::JointPrefixMap;

/// Networks and what is known of each. Host bits are zero.
#[derive(Debug, Clone)]
pub struct NetworkMap<T>(JointPrefixMap<IpNet, T>);

impl<T> Default for NetworkMap<T> {
    fn default() -> Self {
        Self(JointPrefixMap::new())
    }
}

impl<T> NetworkMap<T> {
    /// Adds a network unless it is there.
    pub fn add(&mut self, network: IpNet, value: T) {
        if !self.0.contains_key(&network) {
            self.0.insert(network, value);
        }
    }

    /// Sets what is known of a network, whether it is there or not.
    pub fn put(&mut self, network: IpNet, value: T) {
        self.0.insert(network, value);
    }

    /// Returns what is known of a network, which is added if it is not there.
    pub fn entry(&mut self, network: IpNet) -> &mut T
    where
        T: Default,
    {
        self.0.entry(network).or_default()
    }

    /// Removes a network.
    pub fn remove(&mut self, network: &IpNet) {
        self.0.remove(network);
    }

    /// Returns what is known of a network.
    pub fn get_mut(&mut self, network: &IpNet) -> Option<&mut T> {
        self.0.get_mut(network)
    }

    /// Returns those that contain a network, which may be one of them, widest first.
    pub fn covering(&self, network: IpNet) -> impl Iterator<Item = (IpNet, &T)> {
        self.0.cover(&network)
    }

    /// Returns those that a network contains, which may be one of them, in order.
    pub fn within(&self, network: IpNet) -> impl Iterator<Item = (IpNet, &T)> {
        self.0.children(&network)
    }

    /// Returns those that overlap a network: those that contain it, it, those that it contains.
    pub fn overlapping(&self, network: IpNet) -> impl Iterator<Item = (IpNet, &T)> {
        let inside = self.within(network).filter(move |(net, _)| *net != network);
        self.covering(network).chain(inside)
    }

    /// Returns `true` if one of them contains an address.
    pub fn contains(&self, address: IpAddr) -> bool {
        self.0.get_lpm_prefix(&IpNet::from(address)).is_some()
    }

    /// Returns `true` if one of them contains a network and is wider.
    pub fn is_inside_another(&self, network: &IpNet) -> bool {
        self.0.cover_keys(network).any(|net| net != *network)
    }
}

impl<T: Default> FromIterator<IpNet> for NetworkMap<T> {
    fn from_iter<I: IntoIterator<Item = IpNet>>(networks: I) -> Self {
        let mut all = Self::default();
        networks.into_iter().for_each(|network| all.add(network, T::default()));
        all
    }
}

/// Returns networks without those inside of others of them.
pub fn outermost(networks: impl IntoIterator<Item = IpNet>) -> Vec<IpNet> {
    let mut sorted: Vec<IpNet> = networks.into_iter().collect();
    // A wider network comes before what is inside of it.
    sorted.sort_by_key(|network| (network.network(), network.prefix_len()));
    let mut kept: Vec<IpNet> = Vec::new();
    for network in sorted {
        if !kept.last().is_some_and(|last| last.contains(&network)) {
            kept.push(network);
        }
    }
    kept
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn what_overlaps_is_found_in_both_directions_and_families() {
        let net = |text: &str| text.parse::<IpNet>().unwrap();
        let all: NetworkMap<()> = ["10.0.0.0/8", "10.2.0.0/16", "10.2.3.0/24", "10.3.0.0/16", "fd00::/16"]
            .map(net)
            .into_iter()
            .collect();
        let found = |text: &str| -> Vec<String> {
            all.overlapping(net(text)).map(|(net, ())| net.to_string()).collect()
        };
        assert_eq!(found("10.2.0.0/16"), ["10.0.0.0/8", "10.2.0.0/16", "10.2.3.0/24"]);
        assert_eq!(found("10.0.0.0/8").len(), 4);
        assert_eq!(found("10.2.3.4/32"), ["10.0.0.0/8", "10.2.0.0/16", "10.2.3.0/24"]);
        assert_eq!(found("0.0.0.0/0").len(), 4);
        assert_eq!(found("fd00:1::/48"), ["fd00::/16"]);
        assert_eq!(found("192.168.0.0/16"), [""; 0]);
        let is_inside = |text: &str| all.is_inside_another(&net(text));
        assert_eq!(["10.2.3.4", "11.0.0.1"].map(|ip| all.contains(ip.parse().unwrap())), [true, false]);
        assert_eq!([is_inside("10.2.0.0/16"), is_inside("10.0.0.0/8")], [true, false]);
    }

    #[test]
    fn a_network_inside_of_another_one_is_left_out_in_both_families() {
        let all = ["10.2.3.0/24", "10.2.0.0/16", "10.3.0.0/16", "fd00:2:0:1::/64", "fd00:2::/48"];
        let kept = outermost(all.map(|text| text.parse().unwrap()));
        assert_eq!(
            kept.iter().map(IpNet::to_string).collect::<Vec<_>>(),
            ["10.2.0.0/16", "10.3.0.0/16", "fd00:2::/48"]
        );
    }

    proptest! {
        #[test]
        fn what_overlaps_is_what_a_walk_over_all_of_them_finds(
            nets in prop::collection::btree_set(nets(), 0..24), gone in prop::collection::vec(nets(), 0..8), probe in nets()
        ) {
            let mut kept = nets.clone();
            let mut indexed = NetworkMap::<()>::default();
            nets.iter().for_each(|net| *indexed.entry(*net) = ());
            for net in &gone {
                kept.remove(net);
                indexed.remove(net);
            }
            let found: Vec<IpNet> = indexed.overlapping(probe).map(|(net, ())| net).collect();
            // In order: what contains the probe is before it, what it contains behind.
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
