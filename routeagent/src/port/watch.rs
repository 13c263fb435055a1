//! Notices that the node's network changed: a level trigger, without what changed.

mod nftables;

use futures::StreamExt;
use futures::channel::mpsc::UnboundedReceiver;
use netlink_packet_core::{NetlinkMessage, NetlinkPayload};
use netlink_packet_route::neighbour::{
    NeighbourAddress, NeighbourAttribute, NeighbourMessage, NeighbourState,
};
use netlink_packet_route::route::{RouteAttribute, RouteMessage};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};
use netlink_sys::protocols::{NETLINK_NETFILTER, NETLINK_ROUTE};
use netlink_sys::{AsyncSocket, AsyncSocketExt, SocketAddr, TokioSocket};
use rtnetlink::MulticastGroup;

use super::PortError;
use super::notice::Notice;
use crate::constants::{PROTOCOL, TABLE_DELIVERY, TABLE_GATEWAY, TABLE_MAIN};

/// Every change of nftables (`NFNLGRP_NFTABLES`).
const GROUP_NFTABLES: u32 = 7;
/// Settings of devices, `rp_filter` and `forwarding` among them, and next hops (`RTNLGRP_IPV4_NETCONF`,
/// `RTNLGRP_IPV6_NETCONF`, `RTNLGRP_NEXTHOP`).
const GROUPS_SETTINGS: [u32; 3] = [24, 25, 32];

/// Everything of rtnetlink whose change can make a plan necessary, but settings and next hops, which the library does not support.
const GROUPS: [MulticastGroup; 8] = [
    MulticastGroup::Neigh,
    MulticastGroup::Link,
    MulticastGroup::Ipv4Ifaddr,
    MulticastGroup::Ipv6Ifaddr,
    MulticastGroup::Ipv4Route,
    MulticastGroup::Ipv6Route,
    MulticastGroup::Ipv4Rule,
    MulticastGroup::Ipv6Rule,
];

/// The kernel's notifications.
pub struct Changes {
    messages: UnboundedReceiver<(NetlinkMessage<RouteNetlinkMessage>, SocketAddr)>,
    settings: TokioSocket,
    nftables: TokioSocket,
}

impl Changes {
    /// Subscribes. Needs a tokio runtime.
    ///
    /// # Errors
    ///
    /// The socket could not be opened or bound.
    pub fn subscribe() -> Result<Self, PortError> {
        let (connection, _, messages) =
            rtnetlink::new_multicast_connection(&GROUPS).map_err(PortError::Socket)?;
        tokio::spawn(connection);
        let settings = listen(NETLINK_ROUTE, &GROUPS_SETTINGS).map_err(PortError::Socket)?;
        let nftables = listen(NETLINK_NETFILTER, &[GROUP_NFTABLES]).map_err(PortError::Socket)?;
        Ok(Self { messages, settings, nftables })
    }

    /// Waits for a change that can matter.
    pub async fn next(&mut self) -> Notice {
        loop {
            tokio::select! {
                message = self.messages.next() => match message {
                    None => return Notice::Closed,
                    Some((message, _)) if can_matter(&message.payload) => return Notice::Changed,
                    Some(_) => {}
                },
                datagram = self.settings.recv_from_full() => match datagram {
                    Err(_) => return Notice::Closed,
                    Ok(_) => return Notice::Changed,
                },
                datagram = self.nftables.recv_from_full() => match datagram {
                    Err(_) => return Notice::Closed,
                    Ok((bytes, _)) => if let Some(notice) = nftables::classify(&bytes) {
                        return notice;
                    },
                },
            }
        }
    }
}

fn listen(protocol: isize, groups: &[u32]) -> std::io::Result<TokioSocket> {
    let mut socket = <TokioSocket as AsyncSocket>::new(protocol)?;
    socket.socket_mut().bind(&SocketAddr::new(0, 0))?;
    for group in groups {
        socket.socket_mut().add_membership(*group)?;
    }
    Ok(socket)
}

/// Routes that are neither ours nor in the way are passed over: a routing daemon may change thousands of them.
fn can_matter(payload: &NetlinkPayload<RouteNetlinkMessage>) -> bool {
    let NetlinkPayload::InnerMessage(message) = payload else { return true };
    #[expect(clippy::wildcard_enum_match_arm, reason = "links, addresses and rules always matter")]
    match message {
        RouteNetlinkMessage::NewRoute(route) | RouteNetlinkMessage::DelRoute(route) => {
            is_of_ours(route) || is_default(route)
        }
        RouteNetlinkMessage::NewNeighbour(neighbour) | RouteNetlinkMessage::DelNeighbour(neighbour) => {
            is_written_down(neighbour)
        }
        _ => true,
    }
}

fn table_of(route: &RouteMessage) -> u32 {
    let table = route
        .attributes
        .iter()
        .find_map(|attribute| if let RouteAttribute::Table(table) = attribute { Some(*table) } else { None });
    table.unwrap_or_else(|| u32::from(route.header.table))
}

/// Returns `true` for a default route: which devices are uplinks, and which routers lead everywhere, follows from it.
fn is_default(route: &RouteMessage) -> bool {
    table_of(route) == TABLE_MAIN && route.header.destination_prefix_length == 0
}

fn is_of_ours(route: &RouteMessage) -> bool {
    let table = table_of(route);
    [TABLE_GATEWAY, TABLE_DELIVERY].contains(&table)
        || (table == TABLE_MAIN && u8::from(route.header.protocol) == PROTOCOL)
}

/// Returns `true` if a neighbour can be one that is written down: a forwarding entry of a VXLAN, or a permanent one. One
/// that is removed is reported as failed; by its address it can be of ours. All that the kernel learns is passed over.
fn is_written_down(message: &NeighbourMessage) -> bool {
    let destination = message.attributes.iter().find_map(|attribute| {
        if let NeighbourAttribute::Destination(destination) = attribute { Some(destination) } else { None }
    });
    match (message.header.family, destination) {
        (AddressFamily::Bridge, destination) => destination.is_some(),
        (_, Some(NeighbourAddress::Inet6(address))) if message.header.state == NeighbourState::Failed => {
            address.is_unicast_link_local()
        }
        _ => message.header.state == NeighbourState::Permanent,
    }
}
