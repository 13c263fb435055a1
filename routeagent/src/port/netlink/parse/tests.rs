use netlink_packet_route::route::{RouteHeader, RouteMetric, RoutePreference, RouteProtocol};

use super::super::routes::route_message;
use super::super::rule_message;
use super::{route as read_route, rule as read_rule, *};
use crate::hostnet::{Hop, Route};

#[test]
fn what_is_written_is_read_back_as_ours() {
    for rule in Family::ALL
        .into_iter()
        .flat_map(|family| [Rule::mark(family), Rule::gateway(family), Rule::delivery(family, "x")])
    {
        let mut message = rule_message(&rule);
        // As the kernel adds it.
        message.attributes.push(RuleAttribute::SuppressPrefixLen(u32::MAX));
        let observed = read_rule(&message).unwrap();
        assert_eq!(observed.rule, rule);
        assert!(observed.is_ours());
    }
}

#[test]
fn a_rule_with_any_other_selector_or_author_is_not_read_as_ours() {
    let plain = rule_message(&Rule::gateway(Family::V4));
    let is_ours = |message: &RuleMessage| read_rule(message).is_some_and(|rule| rule.is_ours());
    for other in [
        RuleAttribute::Iifname("eth0".into()),
        RuleAttribute::Iifname("lo".into()),
        RuleAttribute::SuppressPrefixLen(0),
        RuleAttribute::IpProtocol(netlink_packet_route::IpProtocol::Udp),
        RuleAttribute::Protocol(RouteProtocol::Static),
    ] {
        let mut message = plain.clone();
        message.attributes.push(other);
        assert!(!is_ours(&message), "{message:?}");
    }
    let mut inverted = plain.clone();
    inverted.header.flags = RuleFlags::Invert;
    let mut narrowed = plain.clone();
    narrowed.header.src_len = 16;
    assert!(is_ours(&plain) && !is_ours(&inverted) && !is_ours(&narrowed));
}

#[test]
fn routes_of_every_kind_survive_the_round_trip() {
    let names = BTreeMap::from([(7, "submariner")]);
    let device = Hop::Device { name: "submariner".into(), source: Some("10.1.1.1".parse().unwrap()) };
    let via = Hop::Via { name: "submariner".into(), via: "240.1.1.1".parse().unwrap(), source: None };
    for hop in [Hop::Throw, Hop::Unreachable, device, via] {
        let route = Route::gateway("10.2.0.0/16".parse().unwrap(), hop);
        let observed = ObservedRoute::from_route(&route);
        let index = observed.device.as_ref().map(|_| 7);
        let mut message = route_message(&observed, index);
        message.attributes.push(RouteAttribute::Preference(RoutePreference::Medium));
        assert_eq!(read_route(&message, &names), Some(observed.clone()));
        assert_eq!(observed.as_route(), Some(route));
    }
}

#[test]
fn a_route_with_a_gateway_or_other_metrics_is_not_taken_for_the_plain_one() {
    let plain = ObservedRoute::from_route(&Route::unreachable(150, "10.2.0.0/16".parse().unwrap()));
    for extra in [
        RouteAttribute::Gateway("172.31.1.1".parse::<IpAddr>().unwrap().into()),
        RouteAttribute::Metrics(vec![RouteMetric::Mtu(1400), RouteMetric::Hoplimit(3)]),
    ] {
        let mut message = route_message(&plain, None);
        message.attributes.push(extra);
        assert_eq!(read_route(&message, &BTreeMap::new()).unwrap().as_route(), None);
    }
}

#[test]
fn the_loopback_device_of_an_ipv6_refusal_is_not_part_of_it() {
    let route = Route::unreachable(254, "fd00:2::/48".parse().unwrap());
    let message = route_message(&ObservedRoute::from_route(&route), Some(1));
    let observed = read_route(&message, &BTreeMap::from([(1, "lo")])).unwrap();
    assert_eq!(observed.as_route(), Some(route));
    assert_eq!(message.header.table, RouteHeader::RT_TABLE_MAIN);
}
