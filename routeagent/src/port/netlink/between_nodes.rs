//! The device between nodes: itself, its addresses, forwarding entries and neighbours.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr};

use futures::StreamExt;
use ipnet::IpNet;
use netlink_packet_core::{
    NLM_F_ACK, NLM_F_APPEND, NLM_F_CREATE, NLM_F_REPLACE, NLM_F_REQUEST, NetlinkMessage, NetlinkPayload,
};
use netlink_packet_route::neighbour::{
    NeighbourAddress, NeighbourAttribute, NeighbourFlags, NeighbourMessage, NeighbourState,
};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};
use rtnetlink::{LinkUnspec, LinkVxlan};
use trieste_vxlan::{Forward, Mac, VX_PORT, Vni, Vxlan};

use super::{Kernel, address_family, collect, refused};
use crate::constants::VX_DEVICE;
use crate::family::Family;
use crate::hostnet::Sysctl;
use crate::port::PortError;
use crate::vxlan::VxlanChange;

impl Kernel {
    /// Reads the device's static forwarding entries.
    pub(super) async fn forwards(&self, index: u32) -> Result<BTreeSet<Forward>, PortError> {
        let mut request = self.handle().neighbours().get();
        request.message_mut().header.family = AddressFamily::Bridge;
        request.message_mut().header.ifindex = index;
        let messages = collect(request.execute()).await?;
        let entry =
            |message: &NeighbourMessage| Some(Forward { mac: mac(message)?, to: destination(message)? });
        Ok(messages.iter().filter(|message| is_static(message)).filter_map(entry).collect())
    }

    /// Reads the device's permanent neighbours.
    pub(super) async fn neighbours(
        &self,
        index: u32,
        families: &BTreeSet<Family>,
    ) -> Result<BTreeMap<IpAddr, Mac>, PortError> {
        let mut neighbours = BTreeMap::new();
        for family in families {
            let mut request = self.handle().neighbours().get();
            request.message_mut().header.family = address_family(*family);
            request.message_mut().attributes.push(NeighbourAttribute::IfIndex(index));
            let messages = collect(request.execute()).await?;
            let permanent = messages.iter().filter(|message| {
                message.header.state == NeighbourState::Permanent && message.header.ifindex == index
            });
            neighbours.extend(permanent.filter_map(|m| Some((destination(m)?, mac(m)?))));
        }
        Ok(neighbours)
    }

    /// Applies one change of the device or of what is on it.
    pub(super) async fn apply_between_nodes(&self, change: &VxlanChange) -> Result<(), PortError> {
        let index = || self.index_of(VX_DEVICE);
        match change {
            VxlanChange::Make(vxlan) => {
                self.handle().link().add(link_message(vxlan)).execute().await.map_err(refused)
            }
            VxlanChange::Adjust(vxlan) => self.adjust(index().await?, vxlan).await,
            VxlanChange::Convert(vxlan) => {
                // Without CREATE: one that is there is changed.
                let request = self.handle().link().add(conversion(vxlan));
                let changed = request.set_flags(NLM_F_REQUEST | NLM_F_ACK).execute().await;
                let Err(error) = changed.map_err(refused) else { return Ok(()) };
                // The next pass writes again what leads there.
                tracing::info!(%error, device = VX_DEVICE, "cannot be converted, and is made anew");
                self.handle().link().del(index().await?).execute().await.map_err(refused)?;
                self.handle().link().add(link_message(vxlan)).execute().await.map_err(refused)
            }
            VxlanChange::Remove => self.handle().link().del(index().await?).execute().await.map_err(refused),
            VxlanChange::AddAddress(address) => {
                let request =
                    self.handle().address().add(index().await?, address.addr(), address.prefix_len());
                request.execute().await.map_err(refused)
            }
            VxlanChange::RemoveAddress(address) => self.remove_address(index().await?, address).await,
            VxlanChange::AddForward(entry) => {
                // Many nodes may be behind "any", one behind every other.
                let how = if entry.mac == Mac::ANY { NLM_F_APPEND } else { NLM_F_REPLACE };
                let message = RouteNetlinkMessage::NewNeighbour(forward_message(index().await?, entry));
                self.send(message, NLM_F_CREATE | how).await
            }
            VxlanChange::RemoveForward(entry) => {
                self.send(RouteNetlinkMessage::DelNeighbour(forward_message(index().await?, entry)), 0).await
            }
            VxlanChange::SetNeighbour(address, mac) => {
                let request =
                    self.handle().neighbours().add(index().await?, *address).link_layer_address(&mac.0);
                request.replace().execute().await.map_err(refused)
            }
            VxlanChange::RemoveNeighbour(address) => {
                let mut message = NeighbourMessage::default();
                message.header.family = address_family(Family::of(*address));
                message.header.ifindex = index().await?;
                message.attributes.push(NeighbourAttribute::Destination(neighbour_address(*address)));
                self.handle().neighbours().del(message).execute().await.map_err(refused)
            }
        }
    }

    async fn adjust(&self, index: u32, vxlan: &Vxlan) -> Result<(), PortError> {
        // The kernel announces a MAC address whenever it is set then, to the same one too.
        if let Err(error) = self.sysctls.write(&Sysctl::of(Family::V4, VX_DEVICE, "arp_notify"), 1) {
            tracing::debug!(%error, "nodes learn the MAC address when they ask for it");
        }
        let message =
            LinkUnspec::new_with_index(index).mtu(vxlan.mtu).address(vxlan.mac().0.to_vec()).up().build();
        self.handle().link().set(message).execute().await.map_err(refused)
    }

    async fn remove_address(&self, index: u32, address: &IpNet) -> Result<(), PortError> {
        let request = self.handle().address().get().set_link_index_filter(index);
        let request = request.set_address_filter(address.addr());
        for message in collect(request.execute()).await? {
            if message.header.prefix_len == address.prefix_len() {
                self.handle().address().del(message).execute().await.map_err(refused)?;
            }
        }
        Ok(())
    }

    /// Sends a request whose flags the library does not offer.
    async fn send(&self, message: RouteNetlinkMessage, flags: u16) -> Result<(), PortError> {
        let mut request = NetlinkMessage::from(message);
        request.header.flags = NLM_F_REQUEST | NLM_F_ACK | flags;
        let mut handle = self.handle();
        let mut answers = handle.request(request).map_err(refused)?;
        while let Some(answer) = answers.next().await {
            if let NetlinkPayload::Error(error) = answer.payload
                && error.code.is_some()
            {
                return Err(refused(rtnetlink::Error::NetlinkError(error)));
            }
        }
        Ok(())
    }
}

fn link_message(vxlan: &Vxlan) -> netlink_packet_route::link::LinkMessage {
    let builder = LinkVxlan::new(VX_DEVICE, Vni::NODES.value()).port(VX_PORT).learning(false);
    let builder = match vxlan.local {
        IpAddr::V4(local) => builder.local(local),
        IpAddr::V6(local) => builder.local6(local),
    };
    builder.mtu(vxlan.mtu).address(vxlan.mac().0.to_vec()).up().build()
}

/// Takes peer and learning off the device, and sets its own address.
fn conversion(vxlan: &Vxlan) -> netlink_packet_route::link::LinkMessage {
    let builder = LinkVxlan::new(VX_DEVICE, Vni::NODES.value()).remote(Ipv4Addr::UNSPECIFIED).learning(false);
    let builder = match vxlan.local {
        IpAddr::V4(local) => builder.local(local),
        IpAddr::V6(local) => builder.local6(local),
    };
    builder.build()
}

fn forward_message(index: u32, entry: &Forward) -> NeighbourMessage {
    let mut message = NeighbourMessage::default();
    message.header.family = AddressFamily::Bridge;
    message.header.ifindex = index;
    message.header.state = NeighbourState::Permanent;
    message.header.flags = NeighbourFlags::Own;
    message.attributes.extend([
        NeighbourAttribute::LinkLayerAddress(entry.mac.0.to_vec()),
        NeighbourAttribute::Destination(neighbour_address(entry.to)),
    ]);
    message
}

fn neighbour_address(address: IpAddr) -> NeighbourAddress {
    match address {
        IpAddr::V4(address) => NeighbourAddress::Inet(address),
        IpAddr::V6(address) => NeighbourAddress::Inet6(address),
    }
}

/// Returns `true` for an entry that the kernel never removes by itself. The state is a set of bits: upstream's entries and that of
/// a device's peer have others beside it.
fn is_static(message: &NeighbourMessage) -> bool {
    let lasting = u16::from(NeighbourState::Permanent) | u16::from(NeighbourState::Noarp);
    u16::from(message.header.state) & lasting != 0
}

fn mac(message: &NeighbourMessage) -> Option<Mac> {
    let bytes = message.attributes.iter().find_map(|attribute| {
        if let NeighbourAttribute::LinkLayerAddress(bytes) = attribute { Some(bytes) } else { None }
    })?;
    bytes.as_slice().try_into().ok().map(Mac)
}

fn destination(message: &NeighbourMessage) -> Option<IpAddr> {
    let destination = message.attributes.iter().find_map(|attribute| {
        if let NeighbourAttribute::Destination(destination) = attribute { Some(destination) } else { None }
    })?;
    match destination {
        NeighbourAddress::Inet(address) => Some((*address).into()),
        NeighbourAddress::Inet6(address) => Some((*address).into()),
        // Of a forwarding entry the length says what it is.
        NeighbourAddress::Other(bytes) => {
            let v4 = <[u8; 4]>::try_from(bytes.as_slice()).map(IpAddr::from);
            v4.or_else(|_| <[u8; 16]>::try_from(bytes.as_slice()).map(IpAddr::from)).ok()
        }
        _ => None,
    }
}
