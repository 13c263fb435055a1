//! Where the proposal's router meets the gateway node: the node's external switch, its addresses and its chassis.

use std::collections::BTreeMap;
use std::net::IpAddr;

use ipnet::IpNet;
use trieste_ovsdb::value::Datum;

use crate::chassis::Chassis;
use crate::condition::{Condition, Conditions};
use crate::constants::{
    EXTERNAL_HOST, EXTERNAL_PORT_PREFIX, EXTERNAL_SWITCH_PREFIX, EXTERNAL_TRIES, GATEWAY_ROUTER_PREFIX,
    MAX_CHASSIS,
};
use crate::family::Family;
use crate::rows::{RowId, Rows};
use crate::table::{BALANCERS, Table};
use crate::wanted::Wanted;

/// The gateway node as OVN-Kubernetes set it up.
#[derive(Debug)]
pub(super) struct External {
    /// The node's external switch.
    pub(super) switch: RowId,
    /// The names of the node's chassis.
    pub(super) chassis: Vec<String>,
    /// Per family: the address and prefix of our port, and the host's address that packets are sent to.
    pub(super) links: BTreeMap<Family, (IpNet, IpAddr)>,
    /// The load balancers of the node's own switch and its groups of them, by column: those of the cluster's services.
    pub(super) balancers: Vec<(&'static str, Datum)>,
    /// The name of the node's own port, for people.
    pub(super) port: String,
}

/// Finds the gateway node's part of the database. What is missing is named in conditions.
pub(super) fn find(
    wanted: &Wanted,
    rows: &Rows,
    chassis: &Chassis,
    conditions: &mut Conditions,
) -> Option<External> {
    let Some(node) = &wanted.gateway_node else {
        conditions.add(Condition::NoGatewayNode);
        return None;
    };
    let port = format!("{EXTERNAL_PORT_PREFIX}{node}");
    let switch = existing(rows, Table::LogicalSwitch, format!("{EXTERNAL_SWITCH_PREFIX}{node}"), conditions);
    let port_row = existing(rows, Table::LogicalRouterPort, port.clone(), conditions);
    let names: Vec<String> = chassis.of_host(node).take(MAX_CHASSIS).map(str::to_owned).collect();
    match chassis.of_host(node).len() {
        0 => conditions.add(Condition::ChassisMissing { node: node.clone() }),
        1 => {}
        count => conditions.add(Condition::ChassisAmbiguous { node: node.clone(), count }),
    }
    let (switch, port_row) = (switch?, port_row?);
    let links = links(rows, node, port_row, &port);
    let balancers = balancers(rows, node, switch);
    (!names.is_empty()).then_some(External { switch, chassis: names, links, balancers, port })
}

/// Returns what the node's own switch balances, in those columns that the schema has: any other switch has them as well.
fn balancers(rows: &Rows, node: &str, switch: RowId) -> Vec<(&'static str, Datum)> {
    let own = rows.named(Table::LogicalSwitch, node).map(|(_, entry)| entry);
    let has = |column: &&str| rows.entry(switch).is_some_and(|entry| entry.row.contains_key(*column));
    let value = |column| own.map_or_else(Datum::empty, |own| own.column(column));
    BALANCERS.into_iter().filter(has).map(|column| (column, value(column))).collect()
}

fn existing(rows: &Rows, table: Table, name: String, conditions: &mut Conditions) -> Option<RowId> {
    let found = rows.named(table, &name).map(|(uuid, _)| (table, uuid));
    if found.is_none() {
        conditions.add(Condition::RowMissing { table: table.name(), name });
    }
    found
}

/// Returns our address on the port's network of each family, and the host's.
fn links(rows: &Rows, node: &str, port_row: RowId, port: &str) -> BTreeMap<Family, (IpNet, IpAddr)> {
    let Some(networks) = rows.entry(port_row).map(|entry| entry.column("networks")) else {
        return BTreeMap::new();
    };
    let own: Vec<IpNet> = networks.atoms().filter_map(|text| text.as_str()?.parse().ok()).collect();
    let routes = default_routes(rows, node, port);
    let links = Family::ALL.into_iter().filter_map(|family| {
        let network = own.iter().find(|network| Family::of(network) == family && !is_link_local(network))?;
        let given = routes.iter().copied().find(|address| network.contains(address));
        let host = given.or_else(|| address_at(network, 1)).filter(|host| *host != network.addr())?;
        let tries = EXTERNAL_HOST..EXTERNAL_HOST + EXTERNAL_TRIES;
        let ours = tries
            .filter_map(|at| address_at(network, at))
            .find(|ours| *ours != host && *ours != network.addr())?;
        Some((family, (IpNet::new(ours, network.prefix_len()).ok()?, host)))
    });
    links.collect()
}

/// Returns the next hops of the default routes by which the node's own router leaves through `port`.
fn default_routes(rows: &Rows, node: &str, port: &str) -> Vec<IpAddr> {
    let Some((router, _)) = rows.named(Table::LogicalRouter, &format!("{GATEWAY_ROUTER_PREFIX}{node}"))
    else {
        return Vec::new();
    };
    let router = (Table::LogicalRouter, router);
    let candidates =
        ["0.0.0.0/0", "::/0"].into_iter().flat_map(|prefix| rows.with_key(Table::StaticRoute, prefix));
    let own = candidates.filter(|(uuid, entry)| {
        let out = entry.column("output_port");
        rows.is_child((Table::StaticRoute, *uuid), router) && (out.is_empty() || out.as_str() == Some(port))
    });
    own.filter_map(|(_, entry)| entry.column("nexthop").as_str()?.parse().ok()).collect()
}

const fn is_link_local(network: &IpNet) -> bool {
    match network {
        IpNet::V4(_) => false,
        IpNet::V6(network) => network.addr().is_unicast_link_local(),
    }
}

/// Returns the address `at` places after the network's own, unless that is outside or the broadcast address.
fn address_at(network: &IpNet, at: u128) -> Option<IpAddr> {
    let address = match network.network() {
        IpAddr::V4(base) => IpAddr::from(u32::from(base).checked_add(u32::try_from(at).ok()?)?.to_be_bytes()),
        IpAddr::V6(base) => IpAddr::from(u128::from(base).checked_add(at)?.to_be_bytes()),
    };
    (network.contains(&address) && address != network.broadcast()).then_some(address)
}
