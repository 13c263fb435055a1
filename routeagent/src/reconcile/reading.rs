//! The node's network between two passes: a change of the store alone is planned from how the last pass left it, without
//! reading all routes and filters again.

use crate::change::Change;
use crate::guard::GuardChange;
use crate::guard::ObservedGuard;
use crate::observed::{Observed, ObservedRoute};
use crate::port::Query;

/// Ours: most changes of a pass that are followed one by one; after more of them everything is read again. Each costs a look
/// at all routes.
const MOST_FOLLOWED: usize = 64;

/// The node's network, as it was read or as a pass left it.
pub(super) struct Reading {
    /// What was read beyond the usual.
    pub(super) query: Query,
    /// The result.
    pub(super) observed: Observed,
}

impl Reading {
    /// Returns `true` if everything was read that is needed now.
    pub(super) fn has(&self, needed: &Query) -> bool {
        self.query.sysctls.is_superset(&needed.sysctls)
            && self.query.lookup_addresses.is_superset(&needed.lookup_addresses)
    }

    /// Returns the network after these changes were made; `None` if it has to be read.
    pub(super) fn after(mut self, changes: &[Change]) -> Option<Self> {
        let can_be_followed = changes.len() <= MOST_FOLLOWED;
        (can_be_followed && changes.iter().all(|change| follow(&mut self.observed, change))).then_some(self)
    }
}

/// Applies a change to what was observed; returns `false` if what the kernel has then must be read.
fn follow(observed: &mut Observed, change: &Change) -> bool {
    match change {
        Change::AddRoute(route) => observed.routes.push(ObservedRoute::from_route(route)),
        Change::ReplaceRoute(route) => {
            let mut routes = observed.routes.iter_mut();
            let Some(there) = routes.find(|there| there.is_in_the_place_of(route)) else { return false };
            *there = ObservedRoute::from_route(route);
        }
        Change::RemoveRoute(route) => {
            let Some(at) = observed.routes.iter().position(|there| there == route) else { return false };
            observed.routes.remove(at);
        }
        Change::Guard(GuardChange::Update { add, remove }) => {
            let ObservedGuard::Present(table) = &mut observed.guard else { return false };
            table.update(add, remove);
            observed.loosened = table.loosened();
        }
        // What hardly ever changes.
        Change::Set(..)
        | Change::AddRule(_)
        | Change::RemoveRule(_)
        | Change::Guard(GuardChange::Build(_) | GuardChange::Restore(_) | GuardChange::Remove)
        | Change::Services(_)
        | Change::Foreign(_)
        | Change::BetweenNodes(_)
        | Change::Nexthops(_) => return false,
    }
    true
}
