//! Rows that should be there, and when they are made.

use std::net::IpAddr;

use ipnet::IpNet;
use trieste_control::network_map::NetworkMap;
use trieste_ovsdb::value::{Datum, Row};

use crate::condition::{Condition, Conditions};
use crate::constants::DROP_BELOW;
use crate::family::match_of;
use crate::rows::RowId;
use crate::table::Table;

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
    /// Returns a row with these columns.
    pub(super) fn new(
        stage: Stage,
        table: Table,
        parent: Option<Target>,
        columns: Vec<(&str, Datum)>,
    ) -> Self {
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
    /// Adds a row.
    pub(super) fn push(
        &mut self,
        stage: Stage,
        table: Table,
        parent: Option<Target>,
        columns: Vec<(&str, Datum)>,
    ) {
        self.rows.push(DesiredRow::new(stage, table, parent, columns));
    }

    /// Adds the policy by which packets to a network are dropped whenever none of the next higher priority leads them.
    pub(super) fn close(&mut self, router: RowId, network: &IpNet, priority: i64) {
        let columns = policy(priority - DROP_BELOW, network, "drop");
        self.push(Stage::Close, Table::Policy, Some(Target::Existing(router)), columns);
    }
}

/// Returns the columns of a policy without next hop.
pub(super) fn policy<'a>(priority: i64, network: &IpNet, action: &str) -> Vec<(&'a str, Datum)> {
    vec![
        ("priority", priority.into()),
        ("match", match_of(network).into()),
        ("action", action.into()),
        ("nexthop", Datum::empty()),
        ("nexthops", Datum::empty()),
    ]
}

/// Returns the columns of a route that looks at the destination alone.
pub(super) fn route<'a>(network: &IpNet, next_hop: IpAddr) -> Vec<(&'a str, Datum)> {
    vec![
        ("ip_prefix", network.to_string().into()),
        ("nexthop", next_hop.to_string().into()),
        ("policy", Datum::empty()),
        ("output_port", Datum::empty()),
    ]
}

/// Returns `true` unless a port of the router is on the network, which is then named in a condition.
pub(super) fn is_remote(desired: &mut Desired, network: &IpNet, connected: &NetworkMap<()>) -> bool {
    let Some((own, ())) = connected.overlapping(*network).next() else { return true };
    desired.conditions.add(Condition::Connected { network: *network, own });
    false
}
