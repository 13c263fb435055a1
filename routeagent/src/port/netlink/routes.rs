//! Reads and writes routes. Writes are under way together: with thousands of routes, waiting for each one's answer is most of
//! the time.

use std::collections::{BTreeMap, BTreeSet};

use futures::{StreamExt as _, stream};
use netlink_packet_core::{
    NLM_F_ACK, NLM_F_CREATE, NLM_F_EXCL, NLM_F_REPLACE, NLM_F_REQUEST, NetlinkMessage, NetlinkPayload,
};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::route::{
    RouteAddress, RouteAttribute, RouteFlags, RouteMessage, RouteMetric, RouteProtocol, RouteScope, RouteType,
};
use rtnetlink::Handle;

use super::{Kernel, address_family, collect, header_table, is_not_found, parse, refused};
use crate::change::RouteChange;
use crate::constants::{PROTOCOL, TABLE_DELIVERY, TABLE_GATEWAY, TABLE_MAIN, VX_DEVICE};
use crate::family::Family;
use crate::observed::ObservedRoute;
use crate::port::PortError;

/// Ours: most requests under way. Their answers wait in the socket's buffer, whose default of 208 KiB holds some 250.
const MOST_UNDER_WAY: usize = 64;

impl Kernel {
    /// Reads the routes that could be ours or in the way: all of the gateway and delivery tables, and of the main table
    /// refusals of our protocol and what leads out of the device between nodes.
    pub(super) async fn routes(
        &self,
        family: Family,
        names: &BTreeMap<u32, &str>,
    ) -> Result<Vec<ObservedRoute>, PortError> {
        let of_table = |table: u32| {
            let mut filter = RouteMessage::default();
            filter.header.address_family = address_family(family);
            filter.header.table = header_table(table);
            filter
        };
        let mut refusals = of_table(TABLE_MAIN);
        refusals.header.protocol = RouteProtocol::from(PROTOCOL);
        refusals.header.kind = RouteType::Unreachable;
        let mut filters = vec![of_table(TABLE_GATEWAY), of_table(TABLE_DELIVERY), refusals];
        if let Some((index, _)) = names.iter().find(|(_, name)| **name == VX_DEVICE) {
            let mut between_nodes = of_table(TABLE_MAIN);
            between_nodes.attributes.push(RouteAttribute::Oif(*index));
            filters.push(between_nodes);
        }
        let mut routes = Vec::new();
        for filter in filters {
            let messages = match collect(self.handle().route().get(filter).execute()).await {
                Ok(messages) => messages,
                // A table that was never written to does not exist.
                Err(error) if is_not_found(&error) => continue,
                Err(error) => return Err(error),
            };
            routes.extend(messages.iter().filter_map(|message| parse::route(message, names)));
        }
        // A dump that is changed under way can report a route twice.
        routes.sort();
        routes.dedup();
        Ok(routes)
    }

    /// Makes changes of routes: the kernel gets them in this order, each whatever became of those before. Returns what became
    /// of each.
    pub(super) async fn write_routes(&self, changes: &[RouteChange<'_>]) -> Vec<Result<(), PortError>> {
        let routes: Vec<ObservedRoute> = changes.iter().map(RouteChange::route).collect();
        let mut devices = BTreeMap::new();
        for name in routes.iter().filter_map(|route| route.device.as_deref()).collect::<BTreeSet<_>>() {
            // One that has disappeared fails its own routes alone.
            devices.extend(self.index_of(name).await.ok().map(|index| (name, index)));
        }
        let mut handle = self.handle();
        let under_way = changes.iter().zip(&routes).map(|(change, route)| {
            let device = match &route.device {
                Some(name) => {
                    Some(*devices.get(name.as_str()).ok_or_else(|| PortError::NoDevice(name.clone()))?)
                }
                None => None,
            };
            send(&mut handle, request(change, route_message(route, device)))
        });
        let answers = under_way.map(|sent| async { sent?.await });
        stream::iter(answers).buffered(MOST_UNDER_WAY).collect().await
    }
}

/// Sends a request at once; the future waits for what becomes of it.
fn send(
    handle: &mut Handle,
    request: NetlinkMessage<RouteNetlinkMessage>,
) -> Result<impl Future<Output = Result<(), PortError>> + use<>, PortError> {
    let mut answers = Box::pin(handle.request(request).map_err(refused)?);
    Ok(async move {
        while let Some(answer) = answers.next().await {
            if let NetlinkPayload::Error(error) = answer.payload {
                return Err(refused(rtnetlink::Error::NetlinkError(error)));
            }
        }
        Ok(())
    })
}

/// Makes the request for one change.
fn request(change: &RouteChange<'_>, message: RouteMessage) -> NetlinkMessage<RouteNetlinkMessage> {
    let (message, flags) = match change {
        RouteChange::Add(_) => (RouteNetlinkMessage::NewRoute(message), NLM_F_CREATE | NLM_F_EXCL),
        RouteChange::Replace(_) => (RouteNetlinkMessage::NewRoute(message), NLM_F_CREATE | NLM_F_REPLACE),
        RouteChange::Remove(_) => (RouteNetlinkMessage::DelRoute(message), 0),
    };
    let mut request = NetlinkMessage::from(message);
    request.header.flags = NLM_F_REQUEST | NLM_F_ACK | flags;
    request
}

/// Describes a route for the kernel, fully enough to remove exactly it.
pub(super) fn route_message(route: &ObservedRoute, device: Option<u32>) -> RouteMessage {
    let mut message = RouteMessage::default();
    let header = &mut message.header;
    header.address_family = address_family(Family::of_net(&route.destination));
    header.destination_prefix_length = route.destination.prefix_len();
    header.tos = route.tos;
    header.table = header_table(route.table);
    header.protocol = RouteProtocol::from(route.protocol);
    header.scope = RouteScope::from(route.scope);
    header.kind = parse::route_type(route.kind);
    message.attributes.extend([
        RouteAttribute::Destination(RouteAddress::from(route.destination.addr())),
        RouteAttribute::Table(route.table),
        RouteAttribute::Priority(route.metric),
    ]);
    message.attributes.extend(device.map(RouteAttribute::Oif));
    message.attributes.extend(route.nexthop.map(RouteAttribute::NhId));
    message.attributes.extend(route.via.map(|via| RouteAttribute::Gateway(via.into())));
    if route.via.is_some() && route.table == TABLE_DELIVERY {
        // Whatever happens to the device's own address meanwhile.
        message.header.flags |= RouteFlags::Onlink;
    }
    message.attributes.extend(route.source.map(|source| RouteAttribute::PrefSource(source.into())));
    message.attributes.extend(route.mtu.map(|mtu| RouteAttribute::Metrics(vec![RouteMetric::Mtu(mtu)])));
    message
}
