//! Kernel messages to [`ObservedRoute`], [`Rule`], [`Link`] and [`ResolvedRoute`].

use std::collections::BTreeMap;
use std::net::IpAddr;

use ipnet::IpNet;
use netlink_packet_route::AddressFamily;
use netlink_packet_route::link::{InfoData, InfoVxlan, LinkAttribute, LinkFlags, LinkInfo, LinkMessage};
use netlink_packet_route::route::{RouteAddress, RouteAttribute, RouteMessage, RouteMetric, RouteType};
use netlink_packet_route::rule::{RuleAction, RuleAttribute, RuleFlags, RuleMessage};
use trieste_vxlan::Mac;

use crate::family::Family;
use crate::hostnet::Rule;
use crate::observed::{Link, ObservedRoute, ObservedRule, RouteKind, VxlanLink};
use crate::state::ResolvedRoute;

/// "No suppression", in the two attributes that the kernel reports with every rule.
const NOT_SUPPRESSED: u32 = u32::MAX;

/// Reads a rule of the shape that the route agent writes; `None` for any other, which is then someone else's.
pub(super) fn rule(message: &RuleMessage) -> Option<ObservedRule> {
    let header = &message.header;
    let family = family(header.family)?;
    let is_plain = header.action == RuleAction::ToTable
        && (header.dst_len, header.src_len, header.tos) == (0, 0, 0)
        && !header.flags.contains(RuleFlags::Invert);
    if !is_plain {
        return None;
    }
    let mut rule = Rule { priority: 0, family, mark: None, iif: None, table: u32::from(header.table) };
    let (mut mark, mut mask) = (None, None);
    let mut protocol = 0;
    #[expect(clippy::wildcard_enum_match_arm, reason = "whatever is not named makes the rule someone else's")]
    for attribute in &message.attributes {
        match attribute {
            RuleAttribute::Priority(priority) => rule.priority = *priority,
            RuleAttribute::Table(table) => rule.table = *table,
            RuleAttribute::Iifname(name) => rule.iif = Some(name.clone()),
            RuleAttribute::FwMark(value) => mark = Some(*value),
            RuleAttribute::FwMask(value) => mask = Some(*value),
            RuleAttribute::Protocol(value) => protocol = u8::from(*value),
            RuleAttribute::SuppressPrefixLen(NOT_SUPPRESSED)
            | RuleAttribute::SuppressIfGroup(NOT_SUPPRESSED) => {}
            // A selector, or a part of a rule, that is unknown here.
            _ => return None,
        }
    }
    rule.mark = match (mark.unwrap_or(0), mask.unwrap_or(0)) {
        (0, 0) => None,
        selector => Some(selector),
    };
    Some(ObservedRule { rule, protocol })
}

/// Returns `true` for a rule of the same priority and table, whatever it selects by.
pub(super) fn leads_to(message: &RuleMessage, rule: &Rule) -> bool {
    let mut table = u32::from(message.header.table);
    let mut priority = 0;
    for attribute in &message.attributes {
        if let RuleAttribute::Priority(value) = attribute {
            priority = *value;
        } else if let RuleAttribute::Table(value) = attribute {
            table = *value;
        }
    }
    (priority, table) == (rule.priority, rule.table)
}

/// Reads a route; `None` for what cannot be a route of a table, such as a multicast one.
pub(super) fn route(message: &RouteMessage, names: &BTreeMap<u32, &str>) -> Option<ObservedRoute> {
    let header = &message.header;
    let family = family(header.address_family)?;
    let mut route = ObservedRoute {
        table: u32::from(header.table),
        destination: default_route(family),
        metric: 0,
        tos: header.tos,
        protocol: u8::from(header.protocol),
        scope: u8::from(header.scope),
        kind: kind(header.kind),
        device: None,
        via: None,
        source: None,
        nexthop: None,
        mtu: None,
        has_extras: header.source_prefix_length != 0,
    };
    let (mut device, mut has_several) = (None, false);
    #[expect(clippy::wildcard_enum_match_arm, reason = "whatever is not named was not written by us")]
    for attribute in &message.attributes {
        match attribute {
            RouteAttribute::Destination(address) => {
                route.destination = IpNet::new(ip(address)?, header.destination_prefix_length).ok()?;
            }
            RouteAttribute::Table(table) => route.table = *table,
            RouteAttribute::Priority(metric) => route.metric = *metric,
            RouteAttribute::PrefSource(address) => route.source = ip(address),
            RouteAttribute::Oif(index) => device = Some(*index),
            RouteAttribute::Gateway(address) => route.via = ip(address),
            RouteAttribute::Metrics(metrics) => match metrics.as_slice() {
                [RouteMetric::Mtu(mtu)] => route.mtu = Some(*mtu),
                _ => route.has_extras = true,
            },
            RouteAttribute::NhId(id) => route.nexthop = Some(*id),
            RouteAttribute::MultiPath(_) => has_several = true,
            // Bookkeeping of the kernel.
            RouteAttribute::CacheInfo(_) | RouteAttribute::Preference(_) => {}
            _ => route.has_extras = true,
        }
    }
    if route.nexthop.is_some() {
        // The device and gateway that the kernel adds are those of the next hop at present.
        (device, route.via) = (None, None);
    } else {
        route.has_extras |= has_several;
    }
    // An IPv6 refusal is tied to the loopback device; that is no part of what was asked for.
    if route.kind == RouteKind::Unicast {
        route.device =
            device.map(|index| names.get(&index).map_or_else(|| format!("#{index}"), |n| (*n).to_owned()));
    }
    Some(route)
}

/// Reads the answer to a route lookup; `None` if the address is unreachable or local.
pub(super) fn resolved_route(message: &RouteMessage, names: &BTreeMap<u32, &str>) -> Option<ResolvedRoute> {
    let route = route(message, names).filter(|route| route.kind == RouteKind::Unicast)?;
    Some(ResolvedRoute { device: route.device?, via: route.via, source: route.source })
}

/// Reads a device: its name and what it is.
pub(super) fn link(message: &LinkMessage) -> Option<(String, Link)> {
    let mut link = Link {
        index: message.header.index,
        is_up: message.header.flags.contains(LinkFlags::Up),
        ..Link::default()
    };
    let mut name = None;
    #[expect(clippy::wildcard_enum_match_arm, reason = "a device has a hundred attributes")]
    for attribute in &message.attributes {
        match attribute {
            LinkAttribute::IfName(text) => name = Some(text.clone()),
            LinkAttribute::Mtu(mtu) => link.mtu = *mtu,
            LinkAttribute::Address(address) => link.mac = address.as_slice().try_into().ok().map(Mac),
            LinkAttribute::LinkInfo(infos) => link.vxlan = infos.iter().find_map(vxlan),
            _ => {}
        }
    }
    Some((name?, link))
}

fn vxlan(info: &LinkInfo) -> Option<VxlanLink> {
    let LinkInfo::Data(InfoData::Vxlan(infos)) = info else { return None };
    let mut vxlan = VxlanLink::default();
    #[expect(clippy::wildcard_enum_match_arm, reason = "the rest makes no difference to where packets go")]
    for info in infos {
        match info {
            InfoVxlan::Id(vni) => vxlan.vni = *vni,
            InfoVxlan::Port(port) => vxlan.port = *port,
            InfoVxlan::Local(address) if !address.is_unspecified() => vxlan.local = Some((*address).into()),
            InfoVxlan::Local6(address) if !address.is_unspecified() => vxlan.local = Some((*address).into()),
            InfoVxlan::Group(address) => vxlan.has_extras |= !address.is_unspecified(),
            // Ours cannot be made of one of the other family.
            InfoVxlan::Group6(address) => vxlan.is_fixed |= !address.is_unspecified(),
            InfoVxlan::Link(index) => vxlan.is_fixed |= *index != 0,
            InfoVxlan::CollectMetadata(is_on) => vxlan.is_fixed |= is_on,
            InfoVxlan::Learning(is_on) => vxlan.has_extras |= is_on,
            _ => {}
        }
    }
    Some(vxlan)
}

fn family(family: AddressFamily) -> Option<Family> {
    if family == AddressFamily::Inet {
        Some(Family::V4)
    } else if family == AddressFamily::Inet6 {
        Some(Family::V6)
    } else {
        None
    }
}

fn default_route(family: Family) -> IpNet {
    match family {
        Family::V4 => IpNet::V4(ipnet::Ipv4Net::default()),
        Family::V6 => IpNet::V6(ipnet::Ipv6Net::default()),
    }
}

fn kind(kind: RouteType) -> RouteKind {
    [RouteKind::Unicast, RouteKind::Unreachable, RouteKind::Throw]
        .into_iter()
        .find(|known| route_type(*known) == kind)
        .unwrap_or_else(|| RouteKind::Other(u8::from(kind)))
}

/// Returns the number that stands for a kind of route.
pub(super) fn route_type(kind: RouteKind) -> RouteType {
    match kind {
        RouteKind::Unicast => RouteType::Unicast,
        RouteKind::Unreachable => RouteType::Unreachable,
        RouteKind::Throw => RouteType::Throw,
        RouteKind::Other(kind) => RouteType::from(kind),
    }
}

fn ip(address: &RouteAddress) -> Option<IpAddr> {
    if let RouteAddress::Inet(address) = address {
        return Some(IpAddr::V4(*address));
    }
    if let RouteAddress::Inet6(address) = address { Some(IpAddr::V6(*address)) } else { None }
}

#[cfg(test)]
mod tests;
