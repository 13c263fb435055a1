//! The addresses of a global CIDR: which are free, and which is given next.
//!
//! The policy is upstream's, so that objects of either implementation stay valid under the other: a single address is
//! the highest free one, several are the first free block from the bottom. Free addresses are kept as ranges, so that a
//! large CIDR costs no more than what is given out of it.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;

use ipnet::{IpNet, Ipv4Net};

/// Why there is no pool, or no address.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PoolError {
    /// The text is no CIDR.
    #[error("`{0}` is not a CIDR")]
    NotACidr(String),
    /// Upstream's Globalnet, and ours, translates IPv4 alone.
    #[error("{0} is an IPv6 CIDR: Globalnet has IPv4 addresses only; choose an IPv4 CIDR")]
    Ipv6(IpNet),
    /// Fewer than two addresses would be left without the network's and the broadcast address.
    #[error("invalid prefix for CIDR \"{0}\"")]
    TooSmall(Ipv4Net),
    /// Fewer addresses are free than are wanted.
    #[error("insufficient IPs available for allocation")]
    Exhausted,
    /// Enough addresses are free, but not in a row.
    #[error("unable to find contiguous block of {0} IPs for allocation")]
    Fragmented(u32),
    /// Somebody has the address already, or it is none of the pool's.
    #[error("requested IP {0} already allocated")]
    Taken(String),
    /// The address is not in the CIDR, as after a change of it.
    #[error("requested IP {address} is not an address of {cidr}")]
    Foreign {
        /// The address, as it was written.
        address: String,
        /// The pool's CIDR.
        cidr: Ipv4Net,
    },
    /// No addresses are given out, because of what is said.
    #[error("{0}")]
    Closed(String),
}

/// Which addresses of a CIDR are free. The network's and the broadcast address never are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pool {
    cidr: Ipv4Net,
    size: u32,
    available: u32,
    /// First and last address of each free range; ranges neither touch nor overlap.
    free: BTreeMap<u32, u32>,
}

impl Pool {
    /// Creates the pool of a CIDR, all of it free.
    ///
    /// # Errors
    /// [`PoolError::NotACidr`], [`PoolError::Ipv6`], or [`PoolError::TooSmall`] for prefixes longer than 30 bits.
    pub fn new(cidr: &str) -> Result<Self, PoolError> {
        let cidr: IpNet = cidr.parse().map_err(|_| PoolError::NotACidr(cidr.escape_debug().collect()))?;
        let IpNet::V4(cidr) = cidr.trunc() else { return Err(PoolError::Ipv6(cidr)) };
        if cidr.prefix_len() > 30 {
            return Err(PoolError::TooSmall(cidr));
        }
        let (first, last) = (u32::from(cidr.network()) + 1, u32::from(cidr.broadcast()) - 1);
        let size = last - first + 1;
        Ok(Self { cidr, size, available: size, free: BTreeMap::from([(first, last)]) })
    }

    /// Returns the CIDR, host bits cleared.
    pub fn cidr(&self) -> Ipv4Net {
        self.cidr
    }

    /// Returns how many addresses can be given out in all.
    pub fn size(&self) -> u32 {
        self.size
    }

    /// Returns how many addresses are free.
    pub fn available(&self) -> u32 {
        self.available
    }

    /// Returns `true` if an address is free.
    pub fn is_free(&self, address: Ipv4Addr) -> bool {
        let address = u32::from(address);
        self.free.range(..=address).next_back().is_some_and(|(_, last)| *last >= address)
    }

    /// Returns the free addresses, ascending.
    pub fn free(&self) -> impl Iterator<Item = Ipv4Addr> {
        self.free.iter().flat_map(|(first, last)| (*first..=*last).map(Ipv4Addr::from))
    }

    /// Takes `number` addresses, ascending: the highest free one, or the lowest free block of several.
    ///
    /// # Errors
    /// [`PoolError::Exhausted`] or [`PoolError::Fragmented`]; then nothing is taken. No addresses are never wanted:
    /// none are given.
    pub fn allocate(&mut self, number: u32) -> Result<Vec<Ipv4Addr>, PoolError> {
        if self.available < number {
            return Err(PoolError::Exhausted);
        }
        let first = match number {
            0 => return Ok(Vec::new()),
            1 => self.free.last_key_value().map(|(_, last)| *last),
            _ => self.free.iter().find(|(first, last)| *last - *first >= number - 1).map(|(first, _)| *first),
        };
        let first = first.ok_or(PoolError::Fragmented(number))?;
        let addresses: Vec<Ipv4Addr> = (first..first + number).map(Ipv4Addr::from).collect();
        for address in &addresses {
            self.take(*address);
        }
        Ok(addresses)
    }

    /// Takes these addresses, all or none.
    ///
    /// # Errors
    /// [`PoolError::Taken`] or [`PoolError::Foreign`] for the first that cannot be had; also one that is named twice.
    pub fn reserve(&mut self, addresses: &[Ipv4Addr]) -> Result<(), PoolError> {
        for (index, address) in addresses.iter().enumerate() {
            if !self.take(*address) {
                self.release(&addresses[..index]);
                return Err(if self.owns(*address) {
                    PoolError::Taken(address.to_string())
                } else {
                    PoolError::Foreign { address: address.to_string(), cidr: self.cidr }
                });
            }
        }
        Ok(())
    }

    /// Gives addresses back. Addresses that are free already, or none of the pool's, are ignored.
    pub fn release(&mut self, addresses: &[Ipv4Addr]) {
        for address in addresses {
            if self.owns(*address) && !self.is_free(*address) {
                self.give(u32::from(*address));
            }
        }
    }

    /// Returns `true` if an address can be given out at all.
    fn owns(&self, address: Ipv4Addr) -> bool {
        self.cidr.contains(&address) && address != self.cidr.network() && address != self.cidr.broadcast()
    }

    /// Takes an address out of its range; gives `false` if it is not free.
    fn take(&mut self, address: Ipv4Addr) -> bool {
        let address = u32::from(address);
        let range = self.free.range(..=address).next_back().map(|(first, last)| (*first, *last));
        let Some((first, last)) = range.filter(|(_, last)| *last >= address) else { return false };
        self.free.remove(&first);
        if first < address {
            self.free.insert(first, address - 1);
        }
        if address < last {
            self.free.insert(address + 1, last);
        }
        self.available -= 1;
        true
    }

    /// Puts an address that is taken back between its neighbours.
    fn give(&mut self, address: u32) {
        let below = self.free.range(..address).next_back().map(|(first, last)| (*first, *last));
        let first = below.filter(|(_, last)| last + 1 == address).map_or(address, |(first, _)| first);
        let last = self.free.remove(&(address + 1)).unwrap_or(address);
        self.free.insert(first, last);
        self.available += 1;
    }
}

#[cfg(test)]
mod tests;
