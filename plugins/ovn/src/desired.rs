//! The rows that a zone's database should have, as a function of what is wanted and of OVN-Kubernetes' rows.

mod cluster_router;
mod external;
mod row;
mod submariner_router;

use ipnet::IpNet;
use trieste_control::network_map::NetworkMap;

use crate::chassis::Chassis;
use crate::condition::Condition;
use crate::constants::CLUSTER_ROUTER;
use crate::rows::{RowId, Rows};
use crate::table::Table;
use crate::wanted::{Topology, Wanted};

pub(crate) use row::{Desired, DesiredRow, Stage, Target};

/// Returns what should be there.
///
/// # Errors
/// Without OVN-Kubernetes' router there is nothing that rows could be a part of.
pub(crate) fn desired(wanted: &Wanted, rows: &Rows, chassis: &Chassis) -> Result<Desired, Condition> {
    let Some((router, _)) = rows.named(Table::LogicalRouter, CLUSTER_ROUTER) else {
        return Err(Condition::RouterMissing { router: CLUSTER_ROUTER.to_owned() });
    };
    let router = (Table::LogicalRouter, router);
    let mut desired = Desired { is_complete: wanted.is_complete, ..Desired::default() };
    let connected = connected_networks(rows, router);
    match wanted.topology {
        Topology::ClusterRouter => cluster_router::add(&mut desired, wanted, router, &connected),
        Topology::SubmarinerRouter => {
            submariner_router::add(&mut desired, wanted, rows, chassis, (router, &connected));
        }
    }
    Ok(desired)
}

/// Returns the networks that the router's ports are on: node switches, join and transit networks. A policy that matched
/// them would take OVN-Kubernetes' own traffic.
fn connected_networks(rows: &Rows, router: RowId) -> NetworkMap<()> {
    let ports = rows.references(router).into_iter().filter(|(table, _)| *table == Table::LogicalRouterPort);
    let networks = ports.filter_map(|port| rows.entry(port)?.row.get("networks"));
    networks
        .flat_map(|networks| networks.atoms().filter_map(|text| text.as_str()?.parse::<IpNet>().ok()))
        .map(|network| network.trunc())
        .collect()
}
