//! The original proposal's topology: a router of our own between OVN-Kubernetes' and the gateway node's external switch.
//!
//! ```text
//!  ovn_cluster_router ── submariner_join ── submariner_router ── ext_<node> ── br-local_<node> ── host
//!       .34.2            169.254.34.0/29       .34.1    .33.7                        .33.1
//! ```
//!
//! | row | why (all but the last two, and what is marked, are the proposal's) |
//! |---|---|
//! | `submariner_router`, `submariner_join`, three pairs of ports | the line above; the external port takes .7 of the node's own network |
//! | the external port's other name, `subm_ext_port2`, in turn at each move (ours) | OVN would send to the former node's MAC address on |
//! | `gateway_chassis` of the external port | the port lives on the gateway node: its chassis has that host name in the southbound database |
//! | routes to own networks via the join network | packets of remote clusters |
//! | routes to remote networks via the host | packets to remote clusters |
//! | policies 10, reroute to `submariner_router` | pods' packets to remote clusters |
//! | the router's load balancers and groups of them, as the gateway node's switch has them | ours: no route of `ovn_cluster_router` leads to a service's address, which is a balancer's before anything is routed, on whatever way its packets come; answers leave as they came |
//! | policies 9, drop | ours: northd leaves a policy out whose next hop is on no port's network, for instance when the join port was removed, and packets would go out in clear |
//!
//! The proposal is of IPv4. IPv6 has the same rows, with a join network of unique local addresses; without IPv6 networks
//! there is nothing of it.

use std::collections::BTreeSet;
use std::net::IpAddr;

use ipnet::IpNet;
use trieste_control::network_map::NetworkMap;
use trieste_ovsdb::value::Datum;

use super::external::{self, External};
use super::row::{Desired, DesiredRow, Stage, Target, is_remote, policy, route};
use crate::chassis::Chassis;
use crate::condition::{Condition, Effect};
use crate::constants::{
    CHASSIS_PRIORITY, CLUSTER_MAC, CLUSTER_PORT, EXTERNAL_MAC, EXTERNAL_PORT, EXTERNAL_PORT_IN_TURN,
    JOIN_MAC, JOIN_PORT, JOIN_SWITCH, JOIN_V4, JOIN_V6, PROPOSAL_PRIORITY, SUBMARINER_ROUTER,
};
use crate::family::Family;
use crate::rows::{Owner, RowId, Rows};
use crate::table::Table;
use crate::wanted::{Reach, Wanted};

/// Adds the topology, or, as long as it cannot be had, only what drops packets to remote networks.
pub(super) fn add(
    desired: &mut Desired,
    wanted: &Wanted,
    rows: &Rows,
    chassis: &Chassis,
    (router, connected): (RowId, &NetworkMap<()>),
) {
    let remote: Vec<(&IpNet, &Reach)> =
        wanted.networks.iter().filter(|(network, _)| is_remote(desired, network, connected)).collect();
    for (network, _) in &remote {
        desired.close(router, network, PROPOSAL_PRIORITY);
    }
    if remote.is_empty() {
        return;
    }
    let Some(external) = external::find(wanted, rows, chassis, &mut desired.conditions) else { return };
    let families: BTreeSet<Family> =
        wanted.own.iter().chain(remote.iter().map(|(network, _)| *network)).map(Family::of).collect();
    for family in families.iter().filter(|family| !external.links.contains_key(family)) {
        let (family, port) = (family.name(), external.port.clone());
        desired.conditions.add(Condition::NoExternalNetwork { family, port });
    }
    if !families.iter().any(|family| external.links.contains_key(family)) {
        return;
    }
    let infrastructure = infrastructure(router, &external, external_port(rows, external.switch), &families);
    if is_blocked(desired, rows, &infrastructure) {
        return;
    }
    desired.rows.extend(infrastructure);
    let parent = || Some(Target::Named(Table::LogicalRouter, SUBMARINER_ROUTER));
    for own in &wanted.own {
        let (_, cluster, _) = join(Family::of(own));
        desired.push(Stage::Route, Table::StaticRoute, parent(), route(own, cluster));
    }
    let open = remote.into_iter().filter(|(_, reach)| **reach != Reach::Closed);
    for (network, _) in open {
        let family = Family::of(network);
        let Some((_, host)) = external.links.get(&family) else { continue };
        desired.push(Stage::Route, Table::StaticRoute, parent(), route(network, *host));
        let mut columns = policy(PROPOSAL_PRIORITY, network, "reroute");
        columns.retain(|(column, _)| *column != "nexthops");
        columns.push(("nexthops", Datum::from(join(family).0.to_string())));
        desired.push(Stage::Reroute, Table::Policy, Some(Target::Existing(router)), columns);
    }
}

/// Returns the addresses of a family on the join network: of our router, of OVN-Kubernetes', and the prefix length.
fn join(family: Family) -> (IpAddr, IpAddr, u8) {
    match family {
        Family::V4 => (JOIN_V4.0.into(), JOIN_V4.1.into(), JOIN_V4.2),
        Family::V6 => (JOIN_V6.0.into(), JOIN_V6.1.into(), JOIN_V6.2),
    }
}

/// Returns the name of the router's external port: another one than before if the switch port moves to this switch. OVN keeps
/// which MAC address a port's neighbours have, by the port's name, and the host has the same address on every node.
fn external_port(rows: &Rows, switch: RowId) -> &'static str {
    let Some((port, entry)) = rows.named(Table::LogicalSwitchPort, EXTERNAL_PORT.1) else {
        return EXTERNAL_PORT.0;
    };
    let is_here = rows.is_child((Table::LogicalSwitchPort, port), switch);
    let is_in_turn = entry.column("options").value_of("router-port") == Some(EXTERNAL_PORT_IN_TURN);
    if is_here == is_in_turn { EXTERNAL_PORT_IN_TURN } else { EXTERNAL_PORT.0 }
}

/// Returns routers, switches, ports, and the chassis of the external port.
fn infrastructure(
    router: RowId,
    external: &External,
    external_port: &'static str,
    families: &BTreeSet<Family>,
) -> Vec<DesiredRow> {
    let ours = Target::Named(Table::LogicalRouter, SUBMARINER_ROUTER);
    let switch = Target::Named(Table::LogicalSwitch, JOIN_SWITCH);
    let joined = |side: fn(Family) -> IpAddr| -> Vec<String> {
        families.iter().map(|family| format!("{}/{}", side(*family), join(*family).2)).collect()
    };
    let linked = families.iter().filter_map(|family| external.links.get(family));
    let outside: Vec<String> = linked.map(|(address, _)| address.to_string()).collect();
    let named = std::iter::once(("name", SUBMARINER_ROUTER.into()));
    let mut rows = vec![
        build(Table::LogicalRouter, None, named.chain(external.balancers.iter().cloned()).collect()),
        build(Table::LogicalSwitch, None, vec![("name", JOIN_SWITCH.into())]),
        router_port(ours, external_port, EXTERNAL_MAC, outside),
        router_port(ours, JOIN_PORT.0, JOIN_MAC, joined(|family| join(family).0)),
        router_port(Target::Existing(router), CLUSTER_PORT.0, CLUSTER_MAC, joined(|family| join(family).1)),
        switch_port(Target::Existing(external.switch), (external_port, EXTERNAL_PORT.1)),
        switch_port(switch, JOIN_PORT),
        switch_port(switch, CLUSTER_PORT),
    ];
    let port = Target::Named(Table::LogicalRouterPort, external_port);
    rows.extend((0_i64..).zip(&external.chassis).map(|(at, chassis)| {
        let columns = vec![
            ("name", format!("{external_port}-{chassis}").into()),
            ("chassis_name", chassis.as_str().into()),
            ("priority", (CHASSIS_PRIORITY - at).into()),
        ];
        build(Table::GatewayChassis, Some(port), columns)
    }));
    rows
}

fn build(table: Table, parent: Option<Target>, columns: Vec<(&str, Datum)>) -> DesiredRow {
    DesiredRow::new(Stage::Build, table, parent, columns)
}

fn router_port(parent: Target, name: &str, mac: &str, networks: Vec<String>) -> DesiredRow {
    let columns = vec![("name", name.into()), ("mac", mac.into()), ("networks", Datum::set(networks))];
    build(Table::LogicalRouterPort, Some(parent), columns)
}

fn switch_port(parent: Target, (router_port, name): (&str, &str)) -> DesiredRow {
    let columns = vec![
        ("name", name.into()),
        ("type", "router".into()),
        ("addresses", "router".into()),
        ("options", Datum::map([("router-port", router_port)])),
    ];
    build(Table::LogicalSwitchPort, Some(parent), columns)
}

/// Returns `true` if rows of somebody else have names that ours need. The proposal's own recipe leaves such rows, without any
/// mark.
fn is_blocked(desired: &mut Desired, rows: &Rows, infrastructure: &[DesiredRow]) -> bool {
    let mut is_blocked = false;
    for row in infrastructure {
        let mut owners =
            rows.with_key(row.table, &row.key).map(|(uuid, _)| rows.owner((row.table, uuid))).peekable();
        if owners.peek().is_some() && !owners.any(|owner| owner == Owner::Us) {
            let (table, key) = (row.table.name(), row.key.clone());
            desired.conditions.add(Condition::ForeignRow { table, key, effect: Effect::Blocks });
            is_blocked = true;
        }
    }
    is_blocked
}
