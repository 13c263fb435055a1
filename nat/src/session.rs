//! A session: one inside end, one outside end, one remote end.

use std::net::Ipv4Addr;

use trieste_packet::HashKey;

use crate::index::{Chain, Linked, NONE};
use crate::record::Phase;

/// An address and a port or ICMP identifier, with the protocol they belong to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct End {
    pub(crate) protocol: u8,
    pub(crate) address: Ipv4Addr,
    pub(crate) port: u16,
}

impl End {
    fn word(self) -> u64 {
        u64::from(u32::from(self.address)) << 32 | u64::from(self.port) << 16 | u64::from(self.protocol)
    }

    pub(crate) fn hash(self, key: &HashKey) -> u64 {
        key.hash(self.word(), 0)
    }

    /// Together with a remote address: what filtering looks for.
    pub(crate) fn hash_with(self, remote: Ipv4Addr, key: &HashKey) -> u64 {
        key.hash(self.word(), u64::from(u32::from(remote)))
    }
}

/// What names a session: its end here, seen from outside or from inside, and its remote end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Key {
    pub(crate) end: End,
    pub(crate) remote: Ipv4Addr,
    pub(crate) remote_port: u16,
}

impl Key {
    pub(crate) fn hash(&self, key: &HashKey) -> u64 {
        let remote = u64::from(u32::from(self.remote)) << 16 | u64::from(self.remote_port);
        key.hash(self.end.word(), remote)
    }
}

/// A session, one cache line long: a packet of a known flow touches nothing else here.
#[derive(Debug, Clone, Copy)]
#[repr(C, align(64))]
pub(crate) struct Session {
    /// Counts how often the slot was given back, in 31 bits.
    pub(crate) generation: u32,
    /// Second of the last packet that counts.
    pub(crate) last_seen: u32,
    /// Second at which the wheel looks at it.
    pub(crate) scheduled: u32,
    /// Neighbours on the wheel.
    pub(crate) earlier: u32,
    pub(crate) later: u32,
    /// Next in its hash chain by the outside end, or among free slots.
    pub(crate) link: u32,
    /// Next in its hash chain by the inside end.
    pub(crate) inside_link: u32,
    /// Its mapping; [`NONE`] for a headless target's.
    pub(crate) mapping: u32,
    /// Epoch of the rules that allowed it last, its low bits.
    pub(crate) epoch: u32,
    /// The pool of its global address; [`NONE`] in a slot that is free.
    pub(crate) pool: u32,
    /// The newest account of a sibling's that had begun when it began here or a sibling spoke of it last.
    pub(crate) account: u32,
    pub(crate) inside: Ipv4Addr,
    pub(crate) outside: Ipv4Addr,
    pub(crate) remote: Ipv4Addr,
    pub(crate) inside_port: u16,
    pub(crate) outside_port: u16,
    pub(crate) remote_port: u16,
    pub(crate) protocol: u8,
    pub(crate) phase: Phase,
}

// One cache line, asserted where it is claimed.
const _: () = assert!(size_of::<Session>() == 64);

impl Linked for Session {
    fn link(&self, chain: Chain) -> u32 {
        match chain {
            Chain::First => self.link,
            Chain::Second => self.inside_link,
        }
    }

    fn set_link(&mut self, chain: Chain, next: u32) {
        match chain {
            Chain::First => self.link = next,
            Chain::Second => self.inside_link = next,
        }
    }
}

impl Session {
    pub(crate) fn key(&self) -> Key {
        let end = End { protocol: self.protocol, address: self.outside, port: self.outside_port };
        Key { end, remote: self.remote, remote_port: self.remote_port }
    }

    pub(crate) fn inside_key(&self) -> Key {
        let end = End { protocol: self.protocol, address: self.inside, port: self.inside_port };
        Key { end, remote: self.remote, remote_port: self.remote_port }
    }

    pub(crate) fn is_live(&self) -> bool {
        self.pool != NONE
    }

    pub(crate) fn is_headless(&self) -> bool {
        self.mapping == NONE
    }
}
