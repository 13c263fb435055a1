//! The node's network between two passes: a change of the store alone is planned from how the last pass left it, without
//! reading all routes and filters again.

use crate::change::Change;
use crate::guard::GuardChange;
use crate::guard::ObservedGuard;
use crate::observed::{Observed, ObservedRoute};
use crate::plan::route_index::RouteIndex;
use crate::port::Query;

/// The node's network, as it was read or as a pass left it.
pub(super) struct Reading {
    /// What was read beyond the usual.
    pub(super) query: Query,
    /// The result, but for routes.
    pub(super) observed: Observed,
    /// The routes.
    pub(super) routes: RouteIndex,
    /// Whether nothing stood in the way of what was desired.
    pub(super) is_as_desired: bool,
}

impl Reading {
    /// Returns what was read.
    pub(super) fn new(query: Query, mut observed: Observed) -> Self {
        let routes = std::mem::take(&mut observed.routes).into_iter().collect();
        Self { query, observed, routes, is_as_desired: false }
    }

    /// Returns `true` if routes are as they were planned in a pass that left the network like this, as far as they have not
    /// changed since: nothing stood in their way, and nothing else that they depend on has changed.
    pub(super) fn is_settled_as(&self, left: &Self) -> bool {
        let (there, before) = (&self.observed, &left.observed);
        left.is_as_desired
            && there.links == before.links
            && there.nexthops == before.nexthops
            && there.families == before.families
            && (there.guard == ObservedGuard::Unknown) == (before.guard == ObservedGuard::Unknown)
    }

    /// Returns `true` if everything was read that is needed now.
    pub(super) fn has(&self, needed: &Query) -> bool {
        self.query.sysctls.is_superset(&needed.sysctls)
            && self.query.lookup_addresses.is_superset(&needed.lookup_addresses)
            && self.query.takeover >= needed.takeover
    }

    /// Returns the network after these changes were made; `None` if it has to be read.
    pub(super) fn after(mut self, changes: &[Change]) -> Option<Self> {
        changes.iter().all(|change| self.follow(change)).then_some(self)
    }

    /// Applies a change to what was read; returns `false` if what the kernel has then must be read.
    fn follow(&mut self, change: &Change) -> bool {
        match change {
            Change::AddRoute(route) => self.routes.add(ObservedRoute::from_route(route)),
            Change::ReplaceRoute(route) => return self.routes.replace(route),
            Change::RemoveRoute(route) => return self.routes.remove(route),
            Change::Guard(GuardChange::Update { add, remove }) => {
                let ObservedGuard::Present(table) = &mut self.observed.guard else { return false };
                table.update(add, remove);
                self.observed.loosened = table.loosened();
            }
            Change::Clusterset(change) => self.observed.clusterset = change.result(),
            // What hardly ever changes.
            Change::Set(..)
            | Change::AddRule(_)
            | Change::RemoveRule(_)
            | Change::Guard(GuardChange::Build(_) | GuardChange::Restore(_) | GuardChange::Remove)
            | Change::Services(_)
            | Change::Foreign(_)
            | Change::BetweenNodes(_)
            | Change::Nexthops(_)
            | Change::Takeover(_) => return false,
        }
        true
    }
}
