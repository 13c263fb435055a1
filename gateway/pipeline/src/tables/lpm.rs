//! Longest-prefix match.

use std::net::IpAddr;

use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use prefix_trie::PrefixMap;

/// A trie for each address family.
#[derive(Debug, Clone)]
pub(super) struct Lpm<T> {
    v4: PrefixMap<Ipv4Net, T>,
    v6: PrefixMap<Ipv6Net, T>,
}

impl<T> Default for Lpm<T> {
    fn default() -> Self {
        Self { v4: PrefixMap::new(), v6: PrefixMap::new() }
    }
}

impl<T> Lpm<T> {
    pub(super) fn insert(&mut self, prefix: IpNet, value: T) {
        match prefix {
            IpNet::V4(v4) => self.v4.insert(v4.trunc(), value),
            IpNet::V6(v6) => self.v6.insert(v6.trunc(), value),
        };
    }

    /// An entry that shares an address with `prefix`. Prefixes nest or are disjoint: it holds `prefix`, or is in it.
    pub(super) fn overlap(&self, prefix: IpNet) -> Option<(IpNet, &T)> {
        match prefix {
            IpNet::V4(v4) => {
                let v4 = v4.trunc();
                let found = self.v4.get_lpm(&v4).or_else(|| self.v4.children(&v4).next());
                found.map(|(other, value)| (IpNet::V4(other), value))
            }
            IpNet::V6(v6) => {
                let v6 = v6.trunc();
                let found = self.v6.get_lpm(&v6).or_else(|| self.v6.children(&v6).next());
                found.map(|(other, value)| (IpNet::V6(other), value))
            }
        }
    }

    pub(super) fn longest(&self, address: IpAddr) -> Option<&T> {
        match address {
            IpAddr::V4(v4) => {
                let host = Ipv4Net::new(v4, 32).expect("32 is a valid length");
                self.v4.get_lpm(&host).map(|(_, value)| value)
            }
            IpAddr::V6(v6) => {
                let host = Ipv6Net::new(v6, 128).expect("128 is a valid length");
                self.v6.get_lpm(&host).map(|(_, value)| value)
            }
        }
    }
}
