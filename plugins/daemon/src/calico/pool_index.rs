//! Pools by name and by network. Pure.

use std::collections::{BTreeMap, BTreeSet};

use ipnet::IpNet;
use trieste_control::api::Object;
use trieste_control::network_map::NetworkMap;

use super::network;

/// All pools that there are.
#[derive(Debug, Default)]
pub(super) struct PoolIndex {
    by_name: BTreeMap<String, Object>,
    names: NetworkMap<BTreeSet<String>>,
}

impl PoolIndex {
    /// Takes in a pool; returns the one of this name before.
    pub(super) fn put(&mut self, pool: Object) -> Option<Object> {
        let name = pool.metadata.name.clone();
        let before = self.remove(&name);
        if let Some(network) = network(&pool) {
            self.names.entry(network).insert(name.clone());
        }
        self.by_name.insert(name, pool);
        before
    }

    /// Removes a pool.
    pub(super) fn remove(&mut self, name: &str) -> Option<Object> {
        let before = self.by_name.remove(name)?;
        if let Some(network) = network(&before)
            && let Some(names) = self.names.get_mut(&network)
        {
            names.remove(name);
            if names.is_empty() {
                self.names.remove(&network);
            }
        }
        Some(before)
    }

    /// Returns a pool.
    pub(super) fn get(&self, name: &str) -> Option<&Object> {
        self.by_name.get(name)
    }

    /// Returns all pools by name.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&String, &Object)> {
        self.by_name.iter()
    }

    /// Returns the pools whose network overlaps this one, wider ones first.
    pub(super) fn overlapping(&self, network: IpNet) -> impl Iterator<Item = &Object> {
        let names = self.names.overlapping(network).flat_map(|(_, names)| names);
        names.filter_map(|name| self.by_name.get(name))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;
    use trieste_control::api::{Kind, ObjectMeta};

    use super::*;

    fn any_network() -> impl Strategy<Value = IpNet> {
        let v4 = (any::<u8>(), 6..=12_u8).prop_map(|(bits, length)| {
            IpNet::new(std::net::Ipv4Addr::new(bits, bits & 0xf0, 0, 0).into(), length).unwrap().trunc()
        });
        let v6 = (any::<u8>(), 4..=12_u8).prop_map(|(bits, length)| {
            let address = std::net::Ipv6Addr::from(u128::from(bits) << 120);
            IpNet::new(address.into(), length).unwrap().trunc()
        });
        prop_oneof![v4, v6]
    }

    proptest! {
        #[test]
        fn plugin_calico_overlapping_pools_are_those_that_a_look_at_all_finds(
            networks in proptest::collection::vec(any_network(), 0..24),
            removed in proptest::collection::vec(any::<bool>(), 24),
            wanted in any_network(),
        ) {
            let mut index = PoolIndex::default();
            for (number, network) in networks.iter().enumerate() {
                let mut pool = Object::new(Kind::IpPool, ObjectMeta::new("", format!("p{number}")));
                pool.body.insert("spec".to_owned(), json!({"cidr": network.to_string()}));
                index.put(pool);
            }
            let mut expected = BTreeSet::new();
            for (number, network) in networks.iter().enumerate() {
                let name = format!("p{number}");
                if removed[number] {
                    index.remove(&name);
                } else if network.contains(&wanted) || wanted.contains(network) {
                    expected.insert(name);
                }
            }
            let found: BTreeSet<String> =
                index.overlapping(wanted).map(|pool| pool.metadata.name.clone()).collect();
            prop_assert_eq!(found, expected);
        }
    }
}
