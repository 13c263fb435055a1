//! Nodes as they may be wanted and as they may be found.

use proptest::collection::{btree_set, vec};
use proptest::prelude::*;

use super::*;
use crate::constants::{METRIC_FAIL_CLOSED, TABLE_DELIVERY, TABLE_GATEWAY, TABLE_MAIN};
use crate::guard::Table;
use crate::observed::RouteKind;
use crate::services::{DesiredServices, ServiceRules};
use crate::state::DeviceAddress;

/// A few networks, so that wanted and present ones meet.
fn networks() -> impl Strategy<Value = IpNet> {
    prop::sample::select(vec![net("10.2.0.0/16"), net("10.3.0.0/16"), net("10.3.4.0/24"), net("fd00:2::/48")])
}

fn hops() -> impl Strategy<Value = Hop> {
    prop_oneof![Just(Hop::Throw), Just(device("submariner")), Just(device("eth0")), Just(device("gone"))]
}

fn via(network: &IpNet) -> Hop {
    let via = if network.addr().is_ipv4() { "240.31.1.21" } else { "fe80::54:acff:fe1f:115" };
    Hop::Via { name: VX_DEVICE.to_owned(), via: via.parse().unwrap(), source: None }
}

/// Some of the devices between nodes that a node may have or want.
fn vxlans() -> impl Strategy<Value = Vxlan> {
    let peers = btree_set(prop::sample::select(vec!["172.31.1.21", "172.31.1.22", "172.31.1.23"]), 0..3);
    let local = prop::sample::select(vec!["172.31.1.11", "172.31.1.12"]);
    (local, prop::sample::select(vec![1500, 9000]), peers).prop_map(|(local, mtu, peers)| {
        let mut vxlan = Vxlan::new(local.parse().unwrap(), mtu);
        for peer in peers {
            vxlan.add_peer(peer.parse().unwrap());
        }
        vxlan
    })
}

/// A device between nodes as it may be found: ours, upstream's, damaged, or something else.
#[derive(Debug, Clone)]
struct FoundVxlan(Vxlan, bool, bool, bool);

impl FoundVxlan {
    fn put_into(self, observed: &mut Observed) {
        let Self(vxlan, is_upstreams, is_foreign, is_down) = self;
        let mut link = link_of(&vxlan);
        link.is_up = !is_down;
        if let Some(kind) = &mut link.vxlan {
            kind.has_extras = is_upstreams;
            kind.vni = if is_foreign { 7 } else { 100 };
        }
        observed.links.insert(VX_DEVICE.into(), link);
        let on_device = |network| DeviceAddress { device: VX_DEVICE.to_owned(), network };
        observed.addresses.extend(vxlan.address().map(on_device));
        observed.sysctls.insert(Sysctl::of(Family::V4, VX_DEVICE, "rp_filter"), 0);
        (observed.forwards, observed.neighbours) = (vxlan.forwards, vxlan.neighbours);
    }
}

fn found_vxlans() -> impl Strategy<Value = Option<FoundVxlan>> {
    let found = (vxlans(), any::<bool>(), prop::bool::weighted(0.2), any::<bool>());
    prop::option::of(found.prop_map(|(vxlan, a, b, c)| FoundVxlan(vxlan, a, b, c)))
}

fn found_iptables() -> impl Strategy<Value = Vec<&'static str>> {
    let rules = prop::sample::subsequence(
        vec![
            "-j OTHER",
            "-m comment --comment trieste -j SUBMARINER-FORWARD",
            "-j SUBMARINER-FORWARD",
            "-j cali-FORWARD",
        ],
        0..4,
    );
    rules.prop_shuffle()
}

fn wanted_routes() -> impl Strategy<Value = Route> {
    prop_oneof![
        (networks(), prop::sample::select(vec![TABLE_GATEWAY, TABLE_MAIN]))
            .prop_map(|(network, table)| Route::unreachable(table, network)),
        (networks(), hops()).prop_map(|(network, hop)| Route::gateway(network, hop)),
        (networks(), prop::sample::select(vec![TABLE_DELIVERY, TABLE_MAIN]))
            .prop_map(|(network, table)| Route::leading(table, network, via(&network))),
    ]
}

fn guards() -> impl Strategy<Value = Guard> {
    (btree_set(networks(), 0..3), btree_set(1_u16..4, 0..3)).prop_map(|(remote, ports)| Guard {
        remote,
        ports,
        inlets: ["lo".to_owned()].into(),
        ..Guard::default()
    })
}

fn our_rules() -> impl Strategy<Value = Rule> {
    let ours = Family::ALL.iter().flat_map(|family| {
        [Rule::mark(*family), Rule::gateway(*family), Rule::delivery(*family, "submariner")]
    });
    prop::sample::select(ours.collect::<Vec<_>>())
}

pub(super) fn hostnets() -> impl Strategy<Value = HostNet> {
    let routes = vec(wanted_routes(), 0..6).prop_map(|routes| {
        // A driver never wants two routes in one place.
        let by_place: BTreeMap<_, _> =
            routes.into_iter().map(|r| ((r.table, r.destination, r.metric), r)).collect();
        by_place.into_values().collect::<BTreeSet<Route>>()
    });
    (
        routes,
        btree_set(our_rules(), 0..4),
        prop::option::of(guards()),
        prop::option::of(vxlans()),
        any::<bool>(),
    )
        .prop_map(|(routes, rules, guard, vxlan, loosens)| {
            let loose = loosens.then(|| "eth0".to_owned()).into_iter().collect();
            let mut sysctls = BTreeMap::new();
            let mut pass = crate::hostnet::Pass::default();
            if vxlan.is_some() {
                sysctls.insert(Sysctl::of(Family::V4, VX_DEVICE, "rp_filter"), 2);
                pass.outward = [VX_DEVICE.to_owned()].into();
            }
            // The table of services comes with the device, of one inlet or two.
            let inlets = |vxlan: &Vxlan| [VX_DEVICE.to_owned(), vxlan.local.to_string()].into();
            let services = vxlan.as_ref().map_or_else(DesiredServices::default, |vxlan| {
                let rules = ServiceRules { inlets: inlets(vxlan), ..ServiceRules::default() };
                DesiredServices::Rules { at: vxlan.local, rules }
            });
            HostNet {
                sysctls,
                rules,
                routes,
                vxlan,
                loose_rp_filter: loose,
                guard,
                services,
                pass,
                ..HostNet::default()
            }
        })
}

fn observed_routes() -> impl Strategy<Value = ObservedRoute> {
    let metrics = prop::sample::select(vec![0, 1024, METRIC_FAIL_CLOSED, 7]);
    let kinds = prop::sample::select(vec![
        RouteKind::Unicast,
        RouteKind::Unreachable,
        RouteKind::Throw,
        RouteKind::Other(6),
    ]);
    let tables = prop::sample::select(vec![TABLE_GATEWAY, TABLE_MAIN, TABLE_DELIVERY]);
    let protocols = prop::sample::select(vec![4_u8, 3, 186]);
    (networks(), tables, metrics, kinds, protocols, 0..2_u8, any::<bool>()).prop_map(
        |(destination, table, metric, kind, protocol, tos, has_extras)| ObservedRoute {
            table,
            destination,
            metric,
            tos,
            protocol,
            scope: 0,
            kind,
            device: (kind == RouteKind::Unicast).then(|| "eth0".to_owned()),
            via: None,
            nexthop: None,
            source: None,
            mtu: None,
            has_extras,
        },
    )
}

pub(super) fn observations() -> impl Strategy<Value = Observed> {
    let foreign_rule = Rule { priority: 100, family: Family::V4, mark: None, iif: None, table: 100 };
    let protocols = prop::sample::select(vec![RULE_PROTOCOL, 0, 4]);
    let rules = (prop_oneof![our_rules(), Just(foreign_rule)], protocols)
        .prop_map(|(rule, protocol)| ObservedRule { rule, protocol });
    let rules = vec(rules, 0..5);
    let guard = prop_oneof![
        Just(ObservedGuard::Absent),
        Just(ObservedGuard::Present(Table::default())),
        Just(ObservedGuard::Unknown),
        guards().prop_map(|guard| ObservedGuard::Present(Table::of(&guard)))
    ];
    let filters = (0..3_u32, 0..3_u32);
    (btree_set(observed_routes(), 0..8), rules, guard, found_vxlans(), found_iptables(), filters).prop_map(
        |(routes, rules, guard, vxlan, forward, (all, eth0))| {
            let mut observed = Observed { rules, routes: routes.into_iter().collect(), guard, ..live() };
            observed.sysctls.insert(reverse_path(), all);
            observed.sysctls.insert(Sysctl::of(Family::V4, "eth0", "rp_filter"), eth0);
            if let Some(found) = vxlan {
                found.put_into(&mut observed);
                for (network, table) in [("10.2.0.0/16", TABLE_MAIN), ("10.3.0.0/16", TABLE_DELIVERY)] {
                    let network = net(network);
                    let route = Route::leading(table, network, via(&network));
                    if !observed.routes.iter().any(|there| there.is_in_the_place_of(&route)) {
                        observed.routes.push(ObservedRoute::from_route(&route));
                    }
                }
            }
            let chains = [("FORWARD", forward), ("SUBMARINER-FORWARD", vec!["-o vx-submariner -j ACCEPT"])];
            let chains = chains
                .into_iter()
                .map(|(name, rules)| (name.to_owned(), rules.into_iter().map(str::to_owned).collect()));
            let iptables = crate::foreign::Iptables {
                hooks: [crate::nft::Hook::Forward].into(),
                chains: chains.collect(),
                ..crate::foreign::Iptables::default()
            };
            observed.foreign.iptables.insert((crate::foreign::Backend::Nft, Family::V4), iptables);
            observed
        },
    )
}
