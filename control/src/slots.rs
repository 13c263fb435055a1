//! Limits of connections to the ports where metrics and health are asked for.
//!
//! Everybody on the network reaches them, and a kubelet judges the program by what it answers. So a source has a few
//! slots, all strangers together have some more, and this host, whose kubelet asks, has its own, which nobody else
//! can take. Who finds none is closed at once: nobody waits in the kernel's queue, where strangers would keep the kubelet.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Slots of this host.
const LOCAL: usize = 16;
/// Slots of all strangers together.
const STRANGERS: usize = 32;
/// Slots of one of them: scrapers have one or two.
const PER_SOURCE: usize = 8;
/// An IPv6 host may take any address of its link's network: all of that is one source.
const LINK_BITS: u32 = 64;

/// Whose a connection is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Source {
    /// This host.
    Local,
    /// An IPv4 address, or an IPv6 network of [`LINK_BITS`].
    Stranger(IpAddr),
}

impl Source {
    fn of(peer: SocketAddr, own: SocketAddr) -> Self {
        let (peer, own) = (peer.ip().to_canonical(), own.ip().to_canonical());
        if peer.is_loopback() || peer == own {
            return Self::Local;
        }
        Self::Stranger(match peer {
            IpAddr::V4(_) => peer,
            IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() & !(u128::MAX >> LINK_BITS)).into(),
        })
    }
}

/// The slots of one server.
#[derive(Debug, Default)]
pub struct Slots {
    taken: Mutex<HashMap<Source, usize>>,
    refused: AtomicU64,
}

/// A connection's slot, until it is dropped.
#[derive(Debug)]
pub struct Slot {
    slots: Arc<Slots>,
    source: Source,
}

impl Slots {
    /// Takes a slot for a connection from `peer` to our address `own`; `None` if there is none for it.
    pub fn take(self: &Arc<Self>, peer: SocketAddr, own: SocketAddr) -> Option<Slot> {
        let source = Source::of(peer, own);
        let mut taken = self.lock();
        let of_source = taken.get(&source).copied().unwrap_or(0);
        let is_free = match source {
            Source::Local => of_source < LOCAL,
            Source::Stranger(_) => {
                let local = taken.get(&Source::Local).copied().unwrap_or(0);
                of_source < PER_SOURCE && taken.values().sum::<usize>() - local < STRANGERS
            }
        };
        if !is_free {
            self.refused.fetch_add(1, Ordering::Relaxed);
            return None;
        }
        taken.insert(source, of_source + 1);
        Some(Slot { slots: Arc::clone(self), source })
    }

    /// Connections that found no slot so far.
    #[must_use]
    pub fn refused(&self) -> u64 {
        self.refused.load(Ordering::Relaxed)
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Source, usize>> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        let mut taken = self.slots.lock();
        match taken.get_mut(&self.source) {
            Some(count) if *count > 1 => *count -= 1,
            _ => drop(taken.remove(&self.source)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OWN: &str = "[::ffff:192.0.2.1]:32780";

    fn take(slots: &Arc<Slots>, peer: &str) -> Option<Slot> {
        slots.take(format!("{peer}:5000").parse().unwrap(), OWN.parse().unwrap())
    }

    #[test]
    fn strangers_take_no_place_of_this_hosts_and_one_stranger_not_all() {
        let slots = Arc::<Slots>::default();
        let of_one: Vec<_> = (0..100).map_while(|_| take(&slots, "192.0.2.9")).collect();
        assert_eq!(of_one.len(), PER_SOURCE);
        let of_a_link: Vec<_> = (1..100).map_while(|host| take(&slots, &format!("[fd00::{host}]"))).collect();
        assert_eq!(of_a_link.len(), PER_SOURCE, "every address of a link is its hosts'");
        let others: Vec<_> =
            (10..200).map_while(|host| take(&slots, &format!("198.51.100.{host}"))).collect();
        assert_eq!(others.len(), STRANGERS - 2 * PER_SOURCE);
        assert!(take(&slots, "203.0.113.1").is_none());
        // A kubelet comes from the node's own address, or over loopback.
        for own in ["192.0.2.1", "[::ffff:192.0.2.1]", "127.0.0.1", "[::1]"] {
            assert!(take(&slots, own).is_some(), "{own}");
        }
        assert_eq!(slots.refused(), 4);
    }

    #[test]
    fn a_place_is_given_back_and_nothing_of_who_is_gone_is_kept() {
        let slots = Arc::<Slots>::default();
        let local: Vec<_> = (0..100).map_while(|_| take(&slots, "127.0.0.1")).collect();
        assert_eq!(local.len(), LOCAL);
        assert!(take(&slots, "192.0.2.9").is_some());
        drop(local);
        assert!(take(&slots, "127.0.0.1").is_some());
        assert!(slots.lock().is_empty());
    }
}
