//! Outcome of a pass: changes that wait, failures, closed networks, and log lines.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use ipnet::IpNet;
use tokio::sync::watch;
use trieste_control::notice::{GatewayKey, Standing};

use crate::change::Change;
use crate::condition::Condition;
use crate::constants::VX_DEVICE;
use crate::family::Family;
use crate::guard::GuardChange;
use crate::hostnet::{Hop, HostNet, Sysctl};
use crate::leftover::Table;
use crate::nexthops::NexthopChange;
use crate::notices::Live;
use crate::plan::Plan;
use crate::plan::settings::{forwarding, reverse_path};
use crate::services::DesiredServices;
use crate::state::ClusterState;
use crate::submariner::Removal;

/// The node's handling of packets for services with back ends here.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Serving {
    /// Whether the kernel has the table for them.
    pub has_table: bool,
    /// Where it takes them, once the table says what is known.
    pub address: Option<IpAddr>,
    /// Whether it takes none, whatever will be known.
    pub is_off: bool,
}

/// Ours: most changes of one pass, and most conditions of one kind, that have a line each in the log; the others are counted. A
/// set of a thousand clusters has thousands of routes.
pub(super) const MOST_LINES: usize = 64;

/// Returns the conditions that have a line each, and how many more there are by kind.
pub(super) fn shortened<'a>(
    conditions: impl Iterator<Item = &'a Condition>,
) -> (Vec<&'a Condition>, BTreeMap<&'static str, usize>) {
    let mut counts: BTreeMap<&'static str, usize> = BTreeMap::new();
    let mut lines = Vec::new();
    for condition in conditions {
        let count = counts.entry(condition.name()).or_default();
        *count += 1;
        if *count <= MOST_LINES {
            lines.push(condition);
        }
    }
    counts.retain(|_, count| *count > MOST_LINES);
    counts.values_mut().for_each(|count| *count -= MOST_LINES);
    (lines, counts)
}

/// Returns what the node does for services after a pass.
pub(super) fn serving(
    hostnet: &HostNet,
    plan: &Plan,
    failed: &[Change],
    had_services: Option<bool>,
) -> Serving {
    let is_made = plan.changes.iter().any(|change| matches!(change, Change::Services(_)));
    let is_hindering = |change: &Change| matches!(change, Change::Services(_) | Change::BetweenNodes(_));
    let has_table = had_services == Some(true) || (is_made && !failed.iter().any(is_hindering));
    let address = match &hostnet.services {
        DesiredServices::Rules { at, .. } => Some(*at),
        DesiredServices::Absent | DesiredServices::AsItIs => None,
    };
    Serving {
        is_off: hostnet.services == DesiredServices::Absent && had_services.is_some(),
        has_table: has_table && hostnet.services != DesiredServices::Absent,
        address: address.filter(|_| has_table && !failed.iter().any(is_hindering)),
    }
}

/// Returns `true` if a notice has changed a group since the change was planned; the next pass plans it again.
pub(super) fn is_outdated(change: &Change, live: &watch::Receiver<Live>) -> bool {
    matches!(change, Change::Nexthops(NexthopChange::SetGroup(..))) && live.has_changed().unwrap_or(false)
}

/// Returns which gateways get no packets, and why; and what is wrong with listening to them.
pub(super) fn left_out(state: &ClusterState, live: &Live) -> Vec<Condition> {
    if !state.has_several_gateways() {
        return Vec::new();
    }
    let name = |key: GatewayKey| {
        let gateways = state.gateways();
        let gateway = gateways.iter().find(|gateway| gateway.key() == key);
        gateway.map_or_else(|| key.to_string(), |gateway| gateway.hostname.clone())
    };
    let mut conditions = Vec::new();
    for (key, standing) in live.standings.iter().filter(|(_, standing)| **standing != Standing::Up) {
        let why = match standing {
            Standing::Accused(by) => format!("gateway {} says that it is down", name(*by)),
            Standing::Up | Standing::Draining | Standing::Down | Standing::Silent | Standing::Coming => {
                standing.to_string()
            }
        };
        conditions.push(Condition::LeftOut { gateway: name(*key), why });
    }
    conditions.extend((!state.has_nexthops).then_some(Condition::NoNexthops));
    conditions.extend(live.error.clone().map(|error| Condition::NoNotices { error }));
    conditions
}

/// Returns `Some` if a change must not be made after these have failed, with the condition that follows, if any.
pub(super) fn waits_for(change: &Change, failed: &[&Change]) -> Option<Option<Condition>> {
    let is_of_filter = |change: &Change| matches!(change, Change::Guard(_));
    let is_unguarded =
        failed.iter().any(|failed| is_of_filter(failed) && **failed != Change::Guard(GuardChange::Remove));
    if is_unguarded && change.needs_guard() {
        return Some(Some(Condition::Unguarded));
    }
    if let Change::Takeover(removal) = change
        && removal_waits(removal, failed)
    {
        return Some(None);
    }
    // The table remembers what a setting was: it stays until that is restored, which says itself why it failed.
    let is_removal = *change == Change::Guard(GuardChange::Remove);
    (is_removal && failed.iter().any(|failed| matches!(failed, Change::Set(..)))).then_some(None)
}

/// Returns `true` if a removal has to wait: without what ours does in its place, or while something may still use it.
fn removal_waits(removal: &Removal, failed: &[&Change]) -> bool {
    let may_be_used = |failed: &Change| {
        matches!(failed, Change::Takeover(Removal::Chains { .. } | Removal::NftTable(_)))
            && matches!(removal, Removal::Set(_))
    };
    let is_exception = |failed: &Change| {
        matches!(failed, Change::Foreign(_))
            && matches!(removal, Removal::Chains { table: Table::Filter, .. })
    };
    failed.iter().any(|failed| !is_others(failed) || may_be_used(failed) || is_exception(failed))
}

/// Returns `true` for what a node is closed by.
pub(super) fn is_closing(change: &Change) -> bool {
    match change {
        Change::Guard(_) => true,
        Change::AddRoute(route) | Change::ReplaceRoute(route) => route.hop == Hop::Unreachable,
        Change::Set(..)
        | Change::RemoveRoute(_)
        | Change::AddRule(_)
        | Change::RemoveRule(_)
        | Change::Services(_)
        | Change::Clusterset(_)
        | Change::Foreign(_)
        | Change::BetweenNodes(_)
        | Change::Nexthops(_)
        | Change::Takeover(_) => false,
    }
}

/// Returns `true` if a pass counts as failed.
pub(super) fn is_failure(failed: &[Change]) -> bool {
    failed.iter().any(|change| !is_others(change))
}

/// Returns `true` for a change of what belongs to another program.
pub(super) fn is_others(change: &Change) -> bool {
    matches!(change, Change::Foreign(_) | Change::Takeover(_))
}

/// Returns the networks that are to be refused.
pub(super) fn closed(hostnet: &HostNet) -> BTreeSet<IpNet> {
    let routes = hostnet.routes.iter().filter(|route| route.hop == Hop::Unreachable);
    routes.map(|route| route.destination).collect()
}

/// Returns every setting that a pass looks at.
pub(super) fn settings(hostnet: &HostNet) -> BTreeSet<Sysctl> {
    let node_wide = Family::ALL.map(forwarding).into_iter().chain([reverse_path()]);
    // Whether there is a device between nodes follows from addresses, which are not known yet.
    let between_nodes = [
        (Family::V4, "forwarding"),
        (Family::V4, "rp_filter"),
        (Family::V6, "forwarding"),
        (Family::V6, "disable_ipv6"),
    ];
    let between_nodes = between_nodes.map(|(family, key)| Sysctl::of(family, VX_DEVICE, key));
    hostnet.sysctls.keys().cloned().chain(node_wide).chain(between_nodes).collect()
}
