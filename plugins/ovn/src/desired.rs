//! The rows that a zone's database should have, as a function of what is wanted and of OVN-Kubernetes' rows.

mod cluster_router;
mod external;
mod submariner_router;

use std::net::IpAddr;

use ipnet::IpNet;
use trieste_ovsdb::value::{Datum, Row};

use crate::chassis::Chassis;
use crate::condition::{Condition, Conditions};
use crate::constants::{CLUSTER_ROUTER, DROP_BELOW};
use crate::family::match_of;
use crate::network_set::NetworkSet;
use crate::rows::{RowId, Rows};
use crate::table::Table;
use crate::wanted::{Topology, Wanted};

/// When a change is made, first to last: networks are closed first and opened last, and what packets are led through is
/// there before they are led to it, and until they are not.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Stage {
    /// Policies that drop.
    Close,
    /// Routers, switches, ports: in one transaction.
    Build,
    /// Routes.
    Route,
    /// Policies that reroute.
    Reroute,
    /// Routes and policies that are no longer wanted, but for the next.
    Remove,
    /// Policies that drop and are no longer wanted.
    Open,
    /// Routers, switches and ports that are no longer wanted: in one transaction.
    Dismantle,
}

/// What a row is a part of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Target {
    /// A row that is there.
    Existing(RowId),
    /// A row of ours, which may be made by the same plan.
    Named(Table, &'static str),
}

/// A row that should be there.
#[derive(Debug, Clone)]
pub(crate) struct DesiredRow {
    pub(crate) stage: Stage,
    pub(crate) table: Table,
    pub(crate) key: String,
    /// Values, but for the marks.
    pub(crate) row: Row,
    /// `None` for rows that exist by themselves.
    pub(crate) parent: Option<Target>,
}

impl DesiredRow {
    fn new(stage: Stage, table: Table, parent: Option<Target>, columns: Vec<(&str, Datum)>) -> Self {
        let row: Row = columns.into_iter().map(|(column, value)| (column.to_owned(), value)).collect();
        Self { stage, table, key: table.key(&row), row, parent }
    }
}

/// The rows that should be there.
#[derive(Debug, Default)]
pub(crate) struct Desired {
    pub(crate) rows: Vec<DesiredRow>,
    pub(crate) conditions: Conditions,
    /// Whether networks that are not named here are nobody's, so that upstream's rows for them are stale.
    pub(crate) is_complete: bool,
}

impl Desired {
    /// Returns what should be there.
    ///
    /// # Errors
    /// Without OVN-Kubernetes' router there is nothing that rows could be a part of.
    pub(crate) fn new(wanted: &Wanted, rows: &Rows, chassis: &Chassis) -> Result<Self, Condition> {
        let Some((router, _)) = rows.named(Table::LogicalRouter, CLUSTER_ROUTER) else {
            return Err(Condition::RouterMissing { router: CLUSTER_ROUTER.to_owned() });
        };
        let router = (Table::LogicalRouter, router);
        let mut desired = Self { is_complete: wanted.is_complete, ..Self::default() };
        let connected = connected_networks(rows, router);
        match wanted.topology {
            Topology::ClusterRouter => cluster_router::add(&mut desired, wanted, router, &connected),
            Topology::SubmarinerRouter => {
                submariner_router::add(&mut desired, wanted, rows, chassis, (router, &connected));
            }
        }
        Ok(desired)
    }

    fn push(&mut self, stage: Stage, table: Table, parent: Option<Target>, columns: Vec<(&str, Datum)>) {
        self.rows.push(DesiredRow::new(stage, table, parent, columns));
    }

    /// Adds the policy by which packets to a network are dropped whenever none of the next higher priority leads them.
    fn close(&mut self, router: RowId, network: &IpNet, priority: i64) {
        let columns = policy(priority - DROP_BELOW, network, "drop");
        self.push(Stage::Close, Table::Policy, Some(Target::Existing(router)), columns);
    }
}

/// Returns the columns of a policy without next hop.
fn policy<'a>(priority: i64, network: &IpNet, action: &str) -> Vec<(&'a str, Datum)> {
    vec![
        ("priority", priority.into()),
        ("match", match_of(network).into()),
        ("action", action.into()),
        ("nexthop", Datum::empty()),
        ("nexthops", Datum::empty()),
    ]
}

/// Returns the columns of a route that looks at the destination alone.
fn route<'a>(network: &IpNet, next_hop: IpAddr) -> Vec<(&'a str, Datum)> {
    vec![
        ("ip_prefix", network.to_string().into()),
        ("nexthop", next_hop.to_string().into()),
        ("policy", Datum::empty()),
        ("output_port", Datum::empty()),
    ]
}

/// Returns the networks that the router's ports are on: node switches, join and transit networks. A policy that matched
/// them would take OVN-Kubernetes' own traffic.
fn connected_networks(rows: &Rows, router: RowId) -> NetworkSet {
    let ports = rows.references(router).into_iter().filter(|(table, _)| *table == Table::LogicalRouterPort);
    let networks = ports.filter_map(|port| rows.entry(port)?.row.get("networks"));
    networks
        .flat_map(|networks| networks.atoms().filter_map(|text| text.as_str()?.parse::<IpNet>().ok()))
        .collect()
}
