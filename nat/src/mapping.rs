//! Mappings and filters: what an inside end is outside, and whom it has sent to.

use std::net::Ipv4Addr;

use crate::index::{Chain, Linked};
use crate::session::End;

/// What an inside end is outside, whoever it talks to (endpoint-independent). It lives as long as it has sessions.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Mapping {
    /// Next in its hash chain or among free slots.
    pub(crate) link: u32,
    /// Sessions that have it.
    pub(crate) sessions: u32,
    /// Epoch of the rules that allowed it last, its low bits.
    pub(crate) epoch: u32,
    /// The pool of its global address.
    pub(crate) pool: u32,
    pub(crate) inside: Ipv4Addr,
    pub(crate) outside: Ipv4Addr,
    pub(crate) inside_port: u16,
    pub(crate) outside_port: u16,
    pub(crate) protocol: u8,
    /// The rules forbid it: no flow finds it any more, and its port is free once its last session is gone.
    pub(crate) is_forbidden: bool,
}

impl Linked for Mapping {
    fn link(&self, _chain: Chain) -> u32 {
        self.link
    }

    fn set_link(&mut self, _chain: Chain, next: u32) {
        self.link = next;
    }
}

impl Mapping {
    pub(crate) fn inside_end(&self) -> End {
        End { protocol: self.protocol, address: self.inside, port: self.inside_port }
    }

    pub(crate) fn outside_end(&self) -> End {
        End { protocol: self.protocol, address: self.outside, port: self.outside_port }
    }
}

/// A remote address that an outside end has sessions with, so that it may send to that end from any port.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Filter {
    /// Next in its hash chain or among free slots.
    pub(crate) link: u32,
    pub(crate) mapping: u32,
    /// Sessions that stand behind it.
    pub(crate) sessions: u32,
    pub(crate) outside: End,
    pub(crate) remote: Ipv4Addr,
}

impl Linked for Filter {
    fn link(&self, _chain: Chain) -> u32 {
        self.link
    }

    fn set_link(&mut self, _chain: Chain, next: u32) {
        self.link = next;
    }
}
