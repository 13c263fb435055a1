//! One interface as the kernel has it, and the ways to peers by it.

use std::io;
use std::net::IpAddr;

use super::filter::FilterConfig;
use super::frame::Hop;
use super::netlink::{LinkState, Questions};
use super::policies::{Direction, Flow, Policies};
use crate::Error;

/// A peer, and our address that it knows; `None` leaves the choice to the kernel.
pub(super) type Peer = (IpAddr, Option<IpAddr>);

/// Why frames do not go to a peer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NoHop {
    /// There is no route by the interface, or no neighbour yet.
    Unresolved,
    /// An IPsec policy of the host is about what goes there.
    Policy,
}

/// What has become of the interface.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Seen {
    /// It is there; `true` if the filter has to change.
    Same(bool),
    /// It is gone.
    Gone,
    /// Another interface has its name: program and sockets went with the first.
    Another,
}

/// Asks the kernel for one interface's state and the ways to peers.
#[derive(Debug)]
pub(super) struct Resolver {
    questions: Questions,
    policies: Policies,
    name: String,
    mark: Option<u32>,
    link: Option<LinkState>,
    filter: FilterConfig,
    is_aside: bool,
    is_gone: bool,
}

impl Resolver {
    /// Reads the state of an Ethernet interface. `filter` has our ports.
    ///
    /// # Errors
    /// There is no such interface, or no netlink.
    pub(super) fn new(name: &str, mark: Option<u32>, filter: FilterConfig) -> Result<Self, Error> {
        let fail = |error| Error::kernel(format!("cannot read the state of {name}"), error);
        let (questions, policies) = (Questions::open().map_err(fail)?, Policies::open().map_err(fail)?);
        let mut resolver = Self {
            questions,
            policies,
            name: name.to_owned(),
            mark,
            link: None,
            filter,
            is_aside: false,
            is_gone: false,
        };
        resolver.refresh_policies().map_err(fail)?;
        resolver.refresh_link().map_err(fail)?;
        if resolver.link.is_none() {
            let reason = "there is no such Ethernet interface".to_owned();
            return Err(Error::NoXdp { name: name.to_owned(), reason, steps: Vec::new() });
        }
        Ok(resolver)
    }

    /// Returns one for the interface that has the name now.
    ///
    /// # Errors
    /// As [`Self::new`].
    pub(super) fn renewed(&self) -> Result<Self, Error> {
        let FilterConfig { ports, esp, .. } = self.filter.clone();
        Self::new(&self.name, self.mark, FilterConfig { ports, esp, ..FilterConfig::default() })
    }

    /// Returns the interface's name.
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// Returns what the interface is like.
    pub(super) fn link(&self) -> Option<&LinkState> {
        self.link.as_ref()
    }

    /// Returns what the filter should take: nothing, while policies of the host are about what arrives for us, since the kernel
    /// drops what they do not allow, and does not see what we take.
    pub(super) fn filter(&self) -> FilterConfig {
        if self.is_aside {
            return FilterConfig { ports: Vec::new(), esp: false, ..self.filter.clone() };
        }
        self.filter.clone()
    }

    /// Returns `true` while the filter takes nothing for the sake of the host's policies.
    pub(super) fn is_aside(&self) -> bool {
        self.is_aside
    }

    /// Sets the largest frame, and whether checksums may be left to a device.
    pub(super) fn set_frames(&mut self, bytes: u16, partial: bool) {
        (self.filter.frame_bytes, self.filter.partial) = (bytes, partial);
    }

    /// Reads the host's IPsec policies anew.
    ///
    /// # Errors
    /// There is no answer; what was read before stays.
    pub(super) fn refresh_policies(&mut self) -> io::Result<()> {
        self.policies.refresh()
    }

    /// Reads the interface anew, and decides about the filter by it and by the policies.
    ///
    /// # Errors
    /// There is no answer.
    pub(super) fn refresh_link(&mut self) -> io::Result<Seen> {
        let Some(link) = self.questions.link(&self.name)? else {
            self.mark_gone();
            return Ok(Seen::Gone);
        };
        // What has gone and come back is another one, also under the same number.
        if self.is_gone || self.link.as_ref().is_some_and(|former| former.index != link.index) {
            self.mark_gone();
            // Before it is up it may get another MTU, by which frames are measured.
            return Ok(if link.is_up { Seen::Another } else { Seen::Gone });
        }
        let before = self.filter();
        let (ipv4, ipv6) = self.questions.addresses(link.index)?;
        self.filter = FilterConfig { mac: link.mac, ipv4, ipv6, ..self.filter.clone() };
        self.is_aside = self.is_inbound_protected(link.index);
        self.link = Some(link);
        Ok(Seen::Same(self.filter() != before))
    }

    /// Counts the interface as gone: what has its name from now on is another one.
    pub(super) fn mark_gone(&mut self) {
        if let Some(link) = &mut self.link {
            (self.is_gone, link.is_up) = (true, false);
        }
    }

    fn is_inbound_protected(&self, interface: u32) -> bool {
        let FilterConfig { ipv4, ipv6, ports, esp, .. } = &self.filter;
        let mut ours = ipv4.iter().map(|v4| IpAddr::V4(*v4)).chain(ipv6.iter().map(|v6| IpAddr::V6(*v6)));
        ours.any(|local| {
            let flow = Flow { local, remote: None, ports, esp: *esp, interface, mark: 0 };
            self.policies.touch(Direction::In, &flow)
        })
    }

    /// Returns where frames for a peer go; what cannot be found out counts as nowhere.
    pub(super) fn resolve(&mut self, peer: &Peer, is_used: bool) -> Result<Hop, NoHop> {
        let link = self.link.clone().filter(|link| link.is_up).ok_or(NoHop::Unresolved)?;
        let route = self.questions.route(peer.0, peer.1, self.mark).ok().flatten();
        let route = route.ok_or(NoHop::Unresolved)?;
        let source = route.source.filter(|source| source.is_ipv4() == peer.0.is_ipv4());
        let source = source.ok_or(NoHop::Unresolved)?;
        if route.interface != link.index || has_no_route(peer.0) {
            return Err(NoHop::Unresolved);
        }
        let FilterConfig { ports, esp, .. } = &self.filter;
        let mark = self.mark.unwrap_or(0);
        let flow =
            Flow { local: source, remote: Some(peer.0), ports, esp: *esp, interface: link.index, mark };
        if self.policies.touch(Direction::Out, &flow) {
            return Err(NoHop::Policy);
        }
        if is_used {
            // Without the right to it neighbours age, and packets go through the sockets for a moment.
            let _ = self.questions.use_neighbour(link.index, route.next_hop);
        }
        let to = self.questions.neighbour(link.index, route.next_hop).ok().flatten();
        let to = to.ok_or(NoHop::Unresolved)?;
        let mtu_bytes = route.mtu_bytes.map_or(link.mtu_bytes, |bytes| bytes.min(link.mtu_bytes));
        Ok(Hop { to, from: link.mac, source, mtu_bytes })
    }
}

/// Returns `true` for addresses that name no machine, or one on a link that is not named.
fn has_no_route(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(v4) => v4.is_multicast() || v4.is_broadcast(),
        IpAddr::V6(v6) => v6.is_unicast_link_local() || v6.is_multicast(),
    }
}
