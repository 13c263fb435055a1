//! Which service has which address and port, and which of these have changed.

use std::collections::{BTreeMap, BTreeSet};

use super::Frontend;
use crate::sets;

/// Namespace and name.
pub(super) type NamespacedName = (String, String);

/// Ours: most addresses and ports. Kubernetes is tested with 10,000 services.
pub(super) const MOST_FRONTENDS: usize = 50_000;

/// The services that claim each address and port; the first by namespace and name has it. Kubernetes rules out that there are
/// two.
#[derive(Debug, Default)]
pub(super) struct Claims {
    claims: BTreeMap<Frontend, BTreeSet<NamespacedName>>,
    /// Those whose service, or its back ends, may be others than before.
    changed: BTreeSet<Frontend>,
    /// Services with addresses and ports that there was no room for.
    left_out: BTreeSet<NamespacedName>,
}

impl Claims {
    /// Returns all addresses and ports.
    pub(super) fn frontends(&self) -> impl Iterator<Item = &Frontend> {
        self.claims.keys()
    }

    /// Returns the service that has an address and port.
    pub(super) fn owner(&self, at: &Frontend) -> Option<&NamespacedName> {
        self.claims.get(at)?.first()
    }

    /// Adds a service's claims.
    pub(super) fn add(&mut self, service: &NamespacedName, all: impl Iterator<Item = Frontend>) {
        for at in all {
            if self.claims.len() >= MOST_FRONTENDS && !self.claims.contains_key(&at) {
                self.left_out.insert(service.clone());
                continue;
            }
            self.claims.entry(at).or_default().insert(service.clone());
            self.changed.insert(at);
        }
    }

    /// Removes a service's claims.
    pub(super) fn remove(&mut self, service: &NamespacedName, all: impl Iterator<Item = Frontend>) {
        for at in all {
            sets::remove(&mut self.claims, &at, service);
            self.changed.insert(at);
        }
        self.left_out.remove(service);
    }

    /// Marks those of a service whose back ends have changed.
    pub(super) fn touch(&mut self, all: impl Iterator<Item = Frontend>) {
        self.changed.extend(all.filter(|at| self.claims.contains_key(at)));
    }

    /// Takes those that may have changed since the last time.
    pub(super) fn take_changed(&mut self) -> BTreeSet<Frontend> {
        std::mem::take(&mut self.changed)
    }

    /// Returns the services that there was no room for, as a whole or in part.
    pub(super) fn left_out(&self) -> &BTreeSet<NamespacedName> {
        &self.left_out
    }

    /// Returns `true` if there is room for more.
    pub(super) fn has_room(&self) -> bool {
        self.claims.len() < MOST_FRONTENDS
    }
}
