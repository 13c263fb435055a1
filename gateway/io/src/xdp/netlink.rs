//! Questions to the kernel about links, addresses, routes and neighbours, and its notices of changes.
#![expect(
    clippy::wildcard_enum_match_arm,
    reason = "of the kernel's attributes a few count, and every release has more"
)]

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use netlink_packet_core::{
    NLM_F_ACK, NLM_F_CREATE, NLM_F_DUMP, NLM_F_REPLACE, NLM_F_REQUEST, NetlinkBuffer, NetlinkMessage,
    NetlinkPayload,
};
use netlink_packet_route::address::{AddressAttribute, AddressMessage};
use netlink_packet_route::link::{LinkAttribute, LinkFlags, LinkHeader, LinkLayerType, LinkMessage};
use netlink_packet_route::neighbour::{
    NeighbourAddress, NeighbourAttribute, NeighbourFlags, NeighbourMessage, NeighbourState,
};
use netlink_packet_route::route::{
    RouteAddress, RouteAttribute, RouteMessage, RouteMetric, RouteType, RouteVia,
};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};
use rustix::net::netlink::SocketAddrNetlink;
use rustix::net::{RecvFlags, SendFlags, SocketFlags, SocketType, bind, recv, send, socket_with};

/// Multicast groups: links, neighbours, addresses, routes and rules of both families.
const GROUPS: u32 = 0x1 | 0x4 | 0x10 | 0x40 | 0x80 | 0x100 | 0x400 | (1 << 18);
/// Bytes that one read takes: more than the kernel puts into one.
const READ_BYTES: usize = 64 << 10;

/// What is needed of an interface.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct LinkState {
    pub(super) index: u32,
    pub(super) mac: [u8; 6],
    pub(super) mtu_bytes: usize,
    pub(super) is_up: bool,
    pub(super) queues: u32,
}

/// Where the kernel would send a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct KernelRoute {
    pub(super) interface: u32,
    /// The gateway, or the destination itself.
    pub(super) next_hop: IpAddr,
    /// The source that it would have.
    pub(super) source: Option<IpAddr>,
    /// What the kernel has learnt of the path.
    pub(super) mtu_bytes: Option<usize>,
}

/// A socket for questions.
#[derive(Debug)]
pub(super) struct Questions {
    socket: OwnedFd,
    sequence: u32,
    buffer: Vec<u8>,
}

fn open(groups: u32) -> io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    // Without a protocol it is NETLINK_ROUTE, which is 0.
    let socket = socket_with(rustix::net::AddressFamily::NETLINK, SocketType::RAW, flags, None)?;
    bind(&socket, &SocketAddrNetlink::new(0, groups))?;
    Ok(socket)
}

fn io_error(error: impl std::fmt::Display) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, error.to_string())
}

impl Questions {
    /// Opens a socket in the thread's network namespace.
    pub(super) fn open() -> io::Result<Self> {
        Ok(Self { socket: open(0)?, sequence: 0, buffer: vec![0; READ_BYTES] })
    }

    /// Asks a question, and hands every answer to `take`. The kernel answers before the question's system call returns.
    fn ask(
        &mut self,
        question: RouteNetlinkMessage,
        flags: u16,
        mut take: impl FnMut(RouteNetlinkMessage),
    ) -> io::Result<()> {
        self.sequence = self.sequence.wrapping_add(1);
        let mut message = NetlinkMessage::from(question);
        message.header.flags = NLM_F_REQUEST | flags;
        message.header.sequence_number = self.sequence;
        message.finalize();
        let mut bytes = vec![0; message.buffer_len()];
        message.serialize(&mut bytes);
        send(&self.socket, &bytes, SendFlags::empty())?;
        loop {
            let (count, _) = recv(&self.socket, &mut self.buffer[..], RecvFlags::empty())?;
            let mut rest = self.buffer.get(..count).unwrap_or_default();
            while !rest.is_empty() {
                let message = NetlinkMessage::<RouteNetlinkMessage>::deserialize(rest).map_err(io_error)?;
                let length = (message.header.length as usize).next_multiple_of(4).max(4);
                rest = rest.get(length..).unwrap_or_default();
                if message.header.sequence_number != self.sequence {
                    continue;
                }
                let is_part = flags & NLM_F_DUMP == NLM_F_DUMP;
                match message.payload {
                    NetlinkPayload::InnerMessage(answer) => {
                        take(answer);
                        if !is_part {
                            return Ok(());
                        }
                    }
                    NetlinkPayload::Error(error) => {
                        return if error.code.is_some() { Err(error.to_io()) } else { Ok(()) };
                    }
                    NetlinkPayload::Done(_) => return Ok(()),
                    _ => {}
                }
            }
        }
    }

    /// Returns the Ethernet interface of this name; `None` if there is no such.
    pub(super) fn link(&mut self, name: &str) -> io::Result<Option<LinkState>> {
        let mut question = LinkMessage::default();
        question.attributes.push(LinkAttribute::IfName(name.to_owned()));
        let mut found = None;
        let result = self.ask(RouteNetlinkMessage::GetLink(question), 0, |answer| {
            if let RouteNetlinkMessage::NewLink(link) = answer {
                found = link_state(&link);
            }
        });
        match result {
            Err(error) if error.raw_os_error() == Some(libc::ENODEV) => Ok(None),
            result => result.map(|()| found),
        }
    }

    /// Returns an interface's addresses.
    pub(super) fn addresses(&mut self, interface: u32) -> io::Result<(Vec<Ipv4Addr>, Vec<Ipv6Addr>)> {
        let (mut ipv4, mut ipv6) = (Vec::new(), Vec::new());
        let question = AddressMessage::default();
        self.ask(RouteNetlinkMessage::GetAddress(question), NLM_F_DUMP, |answer| {
            let RouteNetlinkMessage::NewAddress(address) = answer else { return };
            if address.header.index != interface {
                return;
            }
            // On a point-to-point link, `Address` is the other end's.
            let local = address.attributes.iter().find_map(|attribute| match attribute {
                AddressAttribute::Local(local) => Some(*local),
                _ => None,
            });
            let plain = address.attributes.iter().find_map(|attribute| match attribute {
                AddressAttribute::Address(plain) => Some(*plain),
                _ => None,
            });
            match local.or(plain) {
                Some(IpAddr::V4(v4)) => ipv4.push(v4),
                Some(IpAddr::V6(v6)) => ipv6.push(v6),
                None => {}
            }
        })?;
        ipv4.sort_unstable();
        ipv6.sort_unstable();
        Ok((ipv4, ipv6))
    }

    /// Returns where the kernel would send a packet for `peer`; `None` if nowhere, or in a way that frames of ours cannot go.
    pub(super) fn route(
        &mut self,
        peer: IpAddr,
        local: Option<IpAddr>,
        mark: Option<u32>,
    ) -> io::Result<Option<KernelRoute>> {
        let mut question = RouteMessage::default();
        let bits = if peer.is_ipv4() { 32 } else { 128 };
        question.header.address_family = family(peer);
        question.header.destination_prefix_length = bits;
        question.attributes.push(RouteAttribute::Destination(peer.into()));
        if let Some(local) = local {
            question.header.source_prefix_length = bits;
            question.attributes.push(RouteAttribute::Source(local.into()));
        }
        if let Some(mark) = mark {
            question.attributes.push(RouteAttribute::Mark(mark));
        }
        let mut found = None;
        let result = self.ask(RouteNetlinkMessage::GetRoute(question), 0, |answer| {
            if let RouteNetlinkMessage::NewRoute(route) = answer {
                found = kernel_route(&route, peer, local);
            }
        });
        match result.map_err(|error| error.raw_os_error()) {
            // No route, a source that is not ours, a prohibited destination.
            Err(Some(libc::ENETUNREACH | libc::EHOSTUNREACH | libc::EINVAL | libc::EACCES)) => Ok(None),
            Err(code) => Err(code.map_or_else(|| io_error("odd answer"), io::Error::from_raw_os_error)),
            Ok(()) => Ok(found),
        }
    }

    /// Returns the station of a neighbour that the kernel would send to now.
    pub(super) fn neighbour(&mut self, interface: u32, hop: IpAddr) -> io::Result<Option<[u8; 6]>> {
        let question = neighbour(interface, hop);
        let mut found = None;
        let result = self.ask(RouteNetlinkMessage::GetNeighbour(question), 0, |answer| {
            if let RouteNetlinkMessage::NewNeighbour(neighbour) = answer {
                found = station(&neighbour);
            }
        });
        match result.map_err(|error| error.raw_os_error()) {
            Err(Some(libc::ENOENT)) => Ok(None),
            Err(code) => Err(code.map_or_else(|| io_error("odd answer"), io::Error::from_raw_os_error)),
            Ok(()) => Ok(found),
        }
    }

    /// Lets the kernel take a neighbour for used: it asks for the station where it has none, and confirms one that is old.
    pub(super) fn use_neighbour(&mut self, interface: u32, hop: IpAddr) -> io::Result<()> {
        let mut message = neighbour(interface, hop);
        message.header.flags = NeighbourFlags::Use;
        let flags = NLM_F_ACK | NLM_F_CREATE | NLM_F_REPLACE;
        self.ask(RouteNetlinkMessage::NewNeighbour(message), flags, |_| {})
    }
}

fn family(address: IpAddr) -> AddressFamily {
    match address {
        IpAddr::V4(_) => AddressFamily::Inet,
        IpAddr::V6(_) => AddressFamily::Inet6,
    }
}

fn neighbour(interface: u32, hop: IpAddr) -> NeighbourMessage {
    let mut message = NeighbourMessage::default();
    message.header.family = family(hop);
    message.header.ifindex = interface;
    let destination = match hop {
        IpAddr::V4(v4) => NeighbourAddress::Inet(v4),
        IpAddr::V6(v6) => NeighbourAddress::Inet6(v6),
    };
    message.attributes.push(NeighbourAttribute::Destination(destination));
    message
}

fn station(neighbour: &NeighbourMessage) -> Option<[u8; 6]> {
    // What the kernel would send to while it confirms it counts as well.
    let is_valid = matches!(
        neighbour.header.state,
        NeighbourState::Reachable
            | NeighbourState::Stale
            | NeighbourState::Delay
            | NeighbourState::Probe
            | NeighbourState::Permanent
    );
    let address = neighbour.attributes.iter().find_map(|attribute| match attribute {
        NeighbourAttribute::LinkLayerAddress(bytes) => <[u8; 6]>::try_from(bytes.as_slice()).ok(),
        _ => None,
    });
    address.filter(|_| is_valid)
}

fn link_state(link: &LinkMessage) -> Option<LinkState> {
    let up = LinkFlags::Up | LinkFlags::LowerUp;
    let mut state = LinkState {
        index: link.header.index,
        mac: [0; 6],
        mtu_bytes: 0,
        is_up: link.header.flags.contains(up),
        queues: 1,
    };
    for attribute in &link.attributes {
        match attribute {
            LinkAttribute::Address(bytes) => state.mac = bytes.as_slice().try_into().ok()?,
            LinkAttribute::Mtu(bytes) => state.mtu_bytes = *bytes as usize,
            LinkAttribute::NumRxQueues(queues) => state.queues = *queues,
            _ => {}
        }
    }
    (link.header.link_layer_type == LinkLayerType::Ether).then_some(state)
}

fn address(address: &RouteAddress) -> Option<IpAddr> {
    match address {
        RouteAddress::Inet(v4) => Some(IpAddr::V4(*v4)),
        RouteAddress::Inet6(v6) => Some(IpAddr::V6(*v6)),
        _ => None,
    }
}

fn kernel_route(route: &RouteMessage, peer: IpAddr, local: Option<IpAddr>) -> Option<KernelRoute> {
    let mut found = KernelRoute { interface: 0, next_hop: peer, source: local, mtu_bytes: None };
    for attribute in &route.attributes {
        match attribute {
            RouteAttribute::Oif(index) => found.interface = *index,
            RouteAttribute::Gateway(gateway) => found.next_hop = address(gateway)?,
            RouteAttribute::Via(RouteVia::Inet(v4)) => found.next_hop = IpAddr::V4(*v4),
            RouteAttribute::Via(RouteVia::Inet6(v6)) => found.next_hop = IpAddr::V6(*v6),
            RouteAttribute::PrefSource(source) if local.is_none() => found.source = address(source),
            RouteAttribute::Metrics(metrics) => {
                found.mtu_bytes = metrics.iter().find_map(|metric| match metric {
                    RouteMetric::Mtu(bytes) => Some(*bytes as usize),
                    _ => None,
                });
            }
            // Tunnels of the kernel's, and next hops of other kinds.
            RouteAttribute::Encap(_) | RouteAttribute::EncapType(_) | RouteAttribute::Via(_) => return None,
            _ => {}
        }
    }
    (route.header.kind == RouteType::Unicast && found.interface != 0).then_some(found)
}

/// A socket that becomes readable when something has changed.
#[derive(Debug)]
pub(super) struct Notices {
    socket: OwnedFd,
    buffer: Vec<u8>,
}

impl Notices {
    /// Opens a socket in the thread's network namespace.
    pub(super) fn open() -> io::Result<Self> {
        Ok(Self { socket: open(GROUPS)?, buffer: vec![0; READ_BYTES] })
    }

    /// Reads all notices; what has changed is asked for afterwards. Returns `true` if an interface has left the namespace: it may be
    /// back before somebody asks.
    pub(super) fn drain(&mut self, interface: u32) -> bool {
        let mut has_left = false;
        loop {
            match recv(&self.socket, &mut self.buffer[..], RecvFlags::DONTWAIT) {
                Ok((bytes, _)) => {
                    has_left |= is_departure(self.buffer.get(..bytes).unwrap_or_default(), interface)
                }
                Err(rustix::io::Errno::NOBUFS | rustix::io::Errno::INTR) => {}
                Err(_) => return has_left,
            }
        }
    }
}

/// Returns `true` if one of these messages is about the end of an interface, and not of its part in a bridge.
fn is_departure(mut messages: &[u8], interface: u32) -> bool {
    while let Ok(message) = NetlinkBuffer::new_checked(messages) {
        if message.message_type() == libc::RTM_DELLINK
            && let Ok(link) = LinkHeader::parse(message.payload())
            && (link.interface_family, link.index) == (AddressFamily::Unspec, interface)
        {
            return true;
        }
        let length = (message.length() as usize).next_multiple_of(4);
        messages = messages.get(length..).unwrap_or_default();
    }
    false
}

impl AsFd for Notices {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interface_that_left_is_found_among_other_notices_and_nonsense_is_passed_over() {
        let message = |bytes: u32, kind: u16, family: u8, index: u32| {
            let mut message =
                [bytes.to_ne_bytes().to_vec(), kind.to_ne_bytes().to_vec(), vec![0; 10]].concat();
            message.extend([family, 0, 0, 0]);
            message.extend(index.to_ne_bytes());
            message.resize(32, 0);
            message
        };
        let (gone, new) = (libc::RTM_DELLINK, libc::RTM_NEWLINK);
        let bridge = u8::try_from(libc::AF_BRIDGE).unwrap();
        for (messages, expected) in [
            (vec![message(32, new, 0, 7), message(32, gone, 0, 7)], true),
            (vec![message(30, new, 0, 7), message(32, gone, 0, 7)], true),
            (vec![message(32, gone, 0, 8), message(32, gone, bridge, 7)], false),
            (vec![message(0, new, 0, 7), message(32, gone, 0, 7)], false),
            (vec![message(u32::MAX, new, 0, 7), message(32, gone, 0, 7)], false),
            (vec![vec![0; 23]], false),
        ] {
            assert_eq!(is_departure(&messages.concat(), 7), expected, "{messages:?}");
        }
    }
}
