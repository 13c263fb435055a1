//! Notices that the node's network changed: a level trigger, without what changed.

use futures::StreamExt;
use futures::channel::mpsc::UnboundedReceiver;
use netlink_packet_core::NetlinkMessage;
use netlink_packet_route::RouteNetlinkMessage;
use netlink_sys::SocketAddr;
use rtnetlink::MulticastGroup;

use super::PortError;

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

    /// Waits until something changed; swallows whatever else has arrived. `false` means that the socket is closed
    /// and nothing will come any more.
    pub async fn changed(&mut self) -> bool {
        let first = self.messages.next().await;
        while let Ok(_message) = self.messages.try_recv() {}
        first.is_some()
    }
}
