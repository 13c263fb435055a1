//! Notices that the node's network changed: a level trigger, without what changed.

use futures::StreamExt;
use futures::channel::mpsc::UnboundedReceiver;
use netlink_packet_core::{NetlinkMessage, NetlinkPayload};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::route::{RouteAttribute, RouteMessage, RouteType};
use netlink_sys::SocketAddr;
use rtnetlink::MulticastGroup;

use super::PortError;
use crate::hostnet::{PROTOCOL, TABLE_GATEWAY, TABLE_MAIN};

/// Everything whose change can make a plan necessary. Changes of nftables are left to the periodic pass.
const GROUPS: [MulticastGroup; 7] = [
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
        Ok(Self { messages })
    }

    /// Waits for a change that can matter. `false` means that the socket is closed, as it is after an overrun, and
    /// nothing will come any more: subscribe again, and take it for a change.
    pub async fn changed(&mut self) -> bool {
        loop {
            match self.messages.next().await {
                None => return false,
                Some((message, _)) if can_matter(&message.payload) => return true,
                Some(_) => {}
            }
        }
    }
}

/// Routes that are neither ours nor in the way are passed over: a routing daemon may change thousands of them.
fn can_matter(payload: &NetlinkPayload<RouteNetlinkMessage>) -> bool {
    let NetlinkPayload::InnerMessage(message) = payload else { return true };
    if let RouteNetlinkMessage::NewRoute(route) | RouteNetlinkMessage::DelRoute(route) = message {
        return is_of_ours(route);
    }
    true
}

fn is_of_ours(route: &RouteMessage) -> bool {
    let table = route
        .attributes
        .iter()
        .find_map(|attribute| if let RouteAttribute::Table(table) = attribute { Some(*table) } else { None });
    let table = table.unwrap_or_else(|| u32::from(route.header.table));
    table == TABLE_GATEWAY
        || (table == TABLE_MAIN
            && route.header.kind == RouteType::Unreachable
            && u8::from(route.header.protocol) == PROTOCOL)
}
