//! Networks by prefix: which of very many overlap one, without a look at the others. Pure.

use std::collections::BTreeSet;
use std::net::IpAddr;

use ipnet::IpNet;
use prefix_trie::joint::map::JointPrefixMap;

/// Networks and what is known of each. Host bits are zero.
#[derive(Debug, Clone)]
pub(crate) struct Networks<T>(JointPrefixMap<IpNet, T>);

impl<T> Default for Networks<T> {
    fn default() -> Self {
        Self(JointPrefixMap::new())
    }
}

impl<T> Networks<T> {
    /// Adds a network unless it is there.
    pub(crate) fn add(&mut self, network: IpNet, value: T) {
        if !self.0.contains_key(&network) {
            self.0.insert(network, value);
        }
    }

    /// Sets what is known of a network, whether it is there or not.
    pub(crate) fn put(&mut self, network: IpNet, value: T) {
        self.0.insert(network, value);
    }

    /// Removes a network.
    pub(crate) fn remove(&mut self, network: &IpNet) {
        self.0.remove(network);
    }

    /// Returns what is known of a network.
    pub(crate) fn get_mut(&mut self, network: &IpNet) -> Option<&mut T> {
        self.0.get_mut(network)
    }

    /// Returns those that contain a network, which may be one of them.
    pub(crate) fn covering(&self, network: IpNet) -> impl Iterator<Item = (IpNet, &T)> {
        self.0.cover(&network)
    }

    /// Returns those that overlap a network: it, those that contain it, those that it contains.
    pub(crate) fn overlapping(&self, network: IpNet) -> impl Iterator<Item = (IpNet, &T)> {
        let inside = self.0.children(&network).filter(move |(net, _)| *net != network);
        self.0.cover(&network).chain(inside)
    }

    /// Returns `true` if one of them contains an address.
    pub(crate) fn contains(&self, address: IpAddr) -> bool {
        self.0.get_lpm_prefix(&IpNet::from(address)).is_some()
    }

    /// Returns `true` if one of them contains a network and is wider.
    pub(crate) fn is_inside_another(&self, network: &IpNet) -> bool {
        self.0.cover_keys(network).any(|net| net != *network)
    }
}

impl<T: Default> FromIterator<IpNet> for Networks<T> {
    fn from_iter<I: IntoIterator<Item = IpNet>>(networks: I) -> Self {
        let mut all = Self::default();
        networks.into_iter().for_each(|network| all.add(network, T::default()));
        all
    }
}

/// Merges networks, because an interval set refuses overlapping ones.
pub(crate) fn disjoint<'a>(networks: impl IntoIterator<Item = &'a IpNet>) -> BTreeSet<IpNet> {
    IpNet::aggregate(&networks.into_iter().copied().collect()).into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_overlaps_is_found_in_both_directions_and_families() {
        let net = |text: &str| text.parse::<IpNet>().unwrap();
        let all: Networks<()> = ["10.0.0.0/8", "10.2.0.0/16", "10.2.3.0/24", "10.3.0.0/16", "fd00::/16"]
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
}
