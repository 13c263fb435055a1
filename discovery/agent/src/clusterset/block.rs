//! The addresses of a block of either family: which are free.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::IpNet;
use trieste_control::globalnet::Pool;

use crate::family::Family;

/// How many bits of an IPv6 address are the same for all that a block gives.
const SHARED_BITS: u8 = 96;

/// See the module. Of a block of IPv6 the first 2^32 addresses are given: they differ in their last 32 bits, which a [`Pool`]
/// keeps. As with IPv4, the first and the last one are given to nobody; the first is its routers' anycast address (RFC 4291,
/// section 2.6.1).
#[derive(Debug)]
pub(super) struct Block {
    /// What the addresses share of IPv6; `None` with IPv4.
    shared: Option<u128>,
    pool: Pool,
}

impl Block {
    /// Creates the block of a network, all of it free; `None` for one that has no address to give.
    pub(super) fn new(network: IpNet) -> Option<Self> {
        let IpNet::V6(network) = network.trunc() else {
            return Some(Self { shared: None, pool: Pool::new(&network.to_string()).ok()? });
        };
        let first = u128::from(network.network());
        let bits = network.prefix_len().saturating_sub(SHARED_BITS);
        let pool = Pool::new(&format!("{}/{bits}", last_bits(first))).ok()?;
        Some(Self { shared: Some(shared_bits(first)), pool })
    }

    /// Returns the family of its addresses.
    pub(super) const fn family(&self) -> Family {
        match self.shared {
            None => Family::V4,
            Some(_) => Family::V6,
        }
    }

    /// Returns how many addresses it gives in all.
    pub(super) fn size(&self) -> u64 {
        u64::from(self.pool.size())
    }

    /// Returns how many of them are free.
    pub(super) fn available(&self) -> u64 {
        u64::from(self.pool.available())
    }

    /// Returns whether an address is one of it, and free.
    pub(super) fn is_free(&self, ip: IpAddr) -> bool {
        self.inside(ip).is_some_and(|ip| self.pool.is_free(ip))
    }

    /// Returns the free addresses, ascending.
    pub(super) fn free(&self) -> impl Iterator<Item = IpAddr> {
        self.pool.free().map(|ip| match self.shared {
            None => IpAddr::V4(ip),
            Some(shared) => IpAddr::V6(Ipv6Addr::from(shared | u128::from(u32::from(ip)))),
        })
    }

    /// Takes an address, or gives it back; nothing where that is so already, or it is none of the block.
    pub(super) fn set_used(&mut self, ip: IpAddr, is_used: bool) {
        let Some(ip) = self.inside(ip) else { return };
        if is_used {
            // It is another block's, or has been reserved before.
            let _ = self.pool.reserve(&[ip]);
        } else {
            self.pool.release(&[ip]);
        }
    }

    /// Returns what the pool knows an address by, if its first bits are the block's.
    fn inside(&self, ip: IpAddr) -> Option<Ipv4Addr> {
        match (ip, self.shared) {
            (IpAddr::V4(ip), None) => Some(ip),
            (IpAddr::V6(ip), Some(shared)) => {
                let bits = u128::from(ip);
                (shared_bits(bits) == shared).then(|| last_bits(bits))
            }
            (IpAddr::V4(_), Some(_)) | (IpAddr::V6(_), None) => None,
        }
    }
}

/// Returns the last 32 bits of an IPv6 address.
fn last_bits(bits: u128) -> Ipv4Addr {
    let [.., a, b, c, d] = bits.to_be_bytes();
    Ipv4Addr::new(a, b, c, d)
}

/// Returns an IPv6 address without its last 32 bits.
const fn shared_bits(bits: u128) -> u128 {
    bits & !(u32::MAX as u128)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn block(text: &str) -> Block {
        Block::new(text.parse().unwrap()).unwrap()
    }

    fn free(block: &Block, count: usize) -> Vec<String> {
        block.free().take(count).map(|ip| ip.to_string()).collect()
    }

    #[test]
    fn blocks_of_both_families_give_what_is_between_their_first_and_last_address() {
        assert_eq!(free(&block("243.0.0.9/30"), 9), ["243.0.0.9", "243.0.0.10"]);
        assert_eq!(free(&block("fd00:243::9/126"), 9), ["fd00:243::9", "fd00:243::a"]);
        assert_eq!(
            free(&block("fd00:243:0:0:1:2:ffff:fff8/125"), 2),
            ["fd00:243::1:2:ffff:fff9", "fd00:243::1:2:ffff:fffa"]
        );
        for none in ["243.0.0.0/31", "fd00:243::/127", "fd00:243::1/128"] {
            assert!(Block::new(none.parse().unwrap()).is_none(), "{none}");
        }
    }

    #[test]
    fn of_a_large_block_of_ipv6_the_first_addresses_are_given() {
        for large in ["fd00:243::/64", "fd00:243::/96"] {
            let block = block(large);
            assert_eq!(block.size(), (1 << 32) - 2, "{large}");
            assert_eq!(free(&block, 1), ["fd00:243::1"], "{large}");
            assert!(!block.is_free("fd00:243::1:0:0".parse().unwrap()), "{large}");
        }
        assert_eq!(block("fd00:243::/112").size(), 65_534);
    }

    #[test]
    fn an_address_is_used_or_free_in_the_block_that_it_is_of() {
        let mut blocks = [block("243.0.0.0/29"), block("fd00:243::/125")];
        for (index, ip) in ["243.0.0.1", "fd00:243::1"].iter().enumerate() {
            let ip: IpAddr = ip.parse().unwrap();
            blocks.iter_mut().for_each(|block| block.set_used(ip, true));
            assert!(!blocks[index].is_free(ip));
            assert_eq!(blocks[index].available(), 5);
            blocks.iter_mut().for_each(|block| block.set_used(ip, false));
            assert_eq!([blocks[0].available(), blocks[1].available()], [6, 6]);
        }
        // The last bits alone are those of an address of the block.
        let other = "fd00:244::1".parse().unwrap();
        blocks[1].set_used(other, true);
        assert!(blocks[1].is_free("fd00:243::1".parse().unwrap()) && !blocks[1].is_free(other));
    }
}
