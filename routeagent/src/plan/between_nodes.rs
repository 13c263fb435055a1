//! The device between nodes: made, adjusted, replaced or removed. Pure.

use std::net::IpAddr;

use ipnet::IpNet;
use trieste_vxlan::{Forward, Mac, VX_PREFIX, Vxlan};

use crate::condition::Condition;
use crate::constants::VX_DEVICE;
use crate::observed::{Link, Observed, VxlanLink};
use crate::vxlan::VxlanChange;

/// Changes of the device between nodes.
#[derive(Default)]
pub(super) struct Device {
    /// Whether what is there goes, and with it everything that leads to it.
    pub(super) is_new: bool,
    /// Whether routes can lead to it afterwards.
    pub(super) is_usable: bool,
    /// Changes that make it as wanted.
    pub(super) making: Vec<VxlanChange>,
    /// Changes that remove it, once nothing leads to it.
    pub(super) removing: Vec<VxlanChange>,
    /// What stands in the way.
    pub(super) condition: Option<Condition>,
}

/// Compares and says what to do.
pub(super) fn plan(desired: Option<&Vxlan>, observed: &Observed) -> Device {
    let there = observed.links.get(VX_DEVICE);
    let is_foreign = there.is_some_and(|link| !is_between_nodes(link));
    match (desired, there) {
        (None, None) => Device::default(),
        (None, Some(_)) if is_foreign => Device::default(),
        (None, Some(_)) => Device { removing: vec![VxlanChange::Remove], ..Device::default() },
        (Some(_), Some(_)) if is_foreign => {
            let condition = Some(Condition::ForeignDevice { device: VX_DEVICE.to_owned() });
            Device { condition, ..Device::default() }
        }
        (Some(vxlan), None) => {
            Device { is_new: true, is_usable: true, making: made(vxlan, false), ..Device::default() }
        }
        (Some(vxlan), Some(link)) if must_be_replaced(vxlan, link) => {
            let making = [vec![VxlanChange::Remove], made(vxlan, true)].concat();
            Device { is_new: true, is_usable: true, making, ..Device::default() }
        }
        (Some(vxlan), Some(link)) => {
            Device { is_usable: true, making: adjusted(vxlan, link, observed), ..Device::default() }
        }
    }
}

fn is_between_nodes(link: &Link) -> bool {
    link.vxlan.as_ref().is_some_and(VxlanLink::is_between_nodes)
}

fn must_be_replaced(vxlan: &Vxlan, link: &Link) -> bool {
    is_different(vxlan, link) && !is_convertible(vxlan, link)
}

fn is_different(vxlan: &Vxlan, link: &Link) -> bool {
    let is_it = |there: &VxlanLink| there.has_extras || there.is_fixed || there.local != Some(vxlan.local);
    link.vxlan.as_ref().is_none_or(is_it)
}

/// Returns `true` if the kernel can make the device ours as it is: as long as its family stays.
fn is_convertible(vxlan: &Vxlan, link: &Link) -> bool {
    let is_it = |there: &VxlanLink| !there.is_fixed && there.local.is_none_or(|local| local.is_ipv4());
    vxlan.local.is_ipv4() && link.vxlan.as_ref().is_some_and(is_it)
}

fn made(vxlan: &Vxlan, is_replacement: bool) -> Vec<VxlanChange> {
    let mut changes = vec![VxlanChange::Make(vxlan.clone())];
    changes.extend(vxlan.address().map(VxlanChange::AddAddress));
    changes.extend(vxlan.forwards.iter().copied().map(VxlanChange::AddForward));
    // Other nodes have sent to another MAC address a moment ago. Before neighbours, which the kernel removes with it.
    changes.extend(is_replacement.then(|| VxlanChange::Adjust(vxlan.clone())));
    changes.extend(vxlan.neighbours.iter().map(|(address, mac)| VxlanChange::SetNeighbour(*address, *mac)));
    changes
}

/// Converts a device whose peer's entry, which is for any MAC address, goes along; entries for one address stay.
fn without_peer(vxlan: &Vxlan) -> Vec<VxlanChange> {
    let (of_any, of_one): (Vec<Forward>, Vec<Forward>) =
        vxlan.forwards.iter().partition(|entry| entry.mac == Mac::ANY);
    let mut changes: Vec<VxlanChange> = of_one.into_iter().map(VxlanChange::AddForward).collect();
    changes.push(VxlanChange::Convert(vxlan.clone()));
    changes.extend(of_any.into_iter().map(VxlanChange::AddForward));
    changes
}

fn adjusted(vxlan: &Vxlan, link: &Link, observed: &Observed) -> Vec<VxlanChange> {
    let has_new_mac = link.mac != Some(vxlan.mac());
    let has_peer = link.vxlan.as_ref().is_some_and(|there| there.has_extras);
    let mut changes = if has_peer { without_peer(vxlan) } else { Vec::new() };
    if !has_peer && is_different(vxlan, link) {
        changes.push(VxlanChange::Convert(vxlan.clone()));
    }
    if !link.is_up || link.mtu != vxlan.mtu || has_new_mac {
        changes.push(VxlanChange::Adjust(vxlan.clone()));
    }
    let there = || addresses(observed);
    // Removing first: the kernel removes the later addresses of a network along with its first.
    changes
        .extend(there().filter(|address| vxlan.address() != Some(*address)).map(VxlanChange::RemoveAddress));
    changes.extend(
        vxlan.address().filter(|address| !there().any(|a| a == *address)).map(VxlanChange::AddAddress),
    );
    // A MAC address has one entry, "any" has many: those go last, so that there always is one.
    let surplus = observed.forwards.difference(&vxlan.forwards).copied();
    let (of_any, of_one): (Vec<Forward>, Vec<Forward>) = surplus.partition(|entry| entry.mac == Mac::ANY);
    changes.extend(of_one.into_iter().map(VxlanChange::RemoveForward));
    if !has_peer {
        changes.extend(vxlan.forwards.difference(&observed.forwards).copied().map(VxlanChange::AddForward));
        // Of others the next pass sees which entries the peer has left.
        changes.extend(of_any.into_iter().map(VxlanChange::RemoveForward));
    }
    for (address, mac) in &vxlan.neighbours {
        if has_new_mac || observed.neighbours.get(address) != Some(mac) {
            changes.push(VxlanChange::SetNeighbour(*address, *mac));
        }
    }
    let surplus = observed.neighbours.keys().filter(|address| !vxlan.neighbours.contains_key(address));
    let surplus = surplus.filter(|_| !has_new_mac);
    changes.extend(surplus.copied().map(VxlanChange::RemoveNeighbour));
    changes
}

/// Returns the device's addresses of the VXLAN; others are not ours.
fn addresses(observed: &Observed) -> impl Iterator<Item = IpNet> {
    let prefix: IpNet = VX_PREFIX.parse().expect("the constant is well-formed");
    let is_of_vxlan = move |address: IpAddr| prefix.contains(&address);
    let on_device = observed.addresses.iter().filter(|address| address.device == VX_DEVICE);
    on_device.map(|address| address.network).filter(move |network| is_of_vxlan(network.addr()))
}
