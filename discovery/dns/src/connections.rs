//! How many TCP connections there may be, in all and of one client.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv6Addr};

use crate::outcome::DropReason;

/// An IPv6 host may take any address of its link's network: all of that is one client.
const CLIENT_BITS: u32 = 64;

/// Limits of connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ConnectionLimits {
    /// Of all clients together.
    pub all: usize,
    /// Of one client: an IPv4 address, or an IPv6 network of 64 bits. The DNS servers that forward to this one are few, and
    /// behind a node's address there may be many.
    pub of_client: usize,
}

impl Default for ConnectionLimits {
    fn default() -> Self {
        Self { all: 512, of_client: 128 }
    }
}

/// The connections that there are.
#[derive(Debug, Default)]
pub struct Connections {
    limits: ConnectionLimits,
    by_client: BTreeMap<IpAddr, usize>,
    all: usize,
}

impl Connections {
    /// Creates a count of none.
    pub fn new(limits: ConnectionLimits) -> Self {
        Self { limits, ..Self::default() }
    }

    /// Counts another connection of a client, if it may be.
    ///
    /// # Errors
    /// Which limit it would exceed.
    pub fn admit(&mut self, client: IpAddr) -> Result<(), DropReason> {
        if self.all >= self.limits.all {
            return Err(DropReason::ConnectionLimit);
        }
        let of_client = self.by_client.entry(network(client)).or_default();
        if *of_client >= self.limits.of_client {
            return Err(DropReason::ClientLimit);
        }
        *of_client += 1;
        self.all += 1;
        Ok(())
    }

    /// Counts an admitted connection of a client no more.
    pub fn release(&mut self, client: IpAddr) {
        let client = network(client);
        let Some(of_client) = self.by_client.get_mut(&client) else { return };
        *of_client -= 1;
        self.all -= 1;
        if *of_client == 0 {
            self.by_client.remove(&client);
        }
    }

    /// Returns the number of connections.
    pub fn count(&self) -> usize {
        self.all
    }

    /// Returns whether half of all places are taken: idle connections then have to go sooner (RFC 7766, 6.2.3).
    pub fn is_busy(&self) -> bool {
        self.all * 2 > self.limits.all
    }
}

/// Returns what counts as one client.
fn network(client: IpAddr) -> IpAddr {
    match client.to_canonical() {
        IpAddr::V4(client) => client.into(),
        IpAddr::V6(client) => Ipv6Addr::from_bits(client.to_bits() & !(u128::MAX >> CLIENT_BITS)).into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn a_client_has_some_and_all_have_more() {
        let mut connections = Connections::new(ConnectionLimits { all: 4, of_client: 2 });
        for client in ["10.0.0.1", "::ffff:10.0.0.1"] {
            assert_eq!(connections.admit(ip(client)), Ok(()));
        }
        assert!(!connections.is_busy());
        assert_eq!(connections.admit(ip("10.0.0.1")), Err(DropReason::ClientLimit));
        for client in ["fd00::1", "fd00::2"] {
            assert_eq!(connections.admit(ip(client)), Ok(()));
        }
        assert!(connections.is_busy());
        assert_eq!(connections.admit(ip("10.0.0.2")), Err(DropReason::ConnectionLimit));
        connections.release(ip("fd00::9"));
        assert_eq!(connections.admit(ip("fd00::3")), Ok(()), "one network is one client");
        connections.release(ip("192.0.2.1"));
        assert_eq!(connections.count(), 4, "it had none");
    }

    #[test]
    fn clients_without_connections_take_no_memory() {
        let mut connections = Connections::new(ConnectionLimits { all: 1, of_client: 1 });
        for number in 0..1_000_u32 {
            let client = IpAddr::from(number.to_be_bytes());
            connections.admit(client).unwrap();
            assert!(connections.admit(ip("fd00::1")).is_err());
            connections.release(client);
        }
        assert!(connections.by_client.is_empty());
    }
}
