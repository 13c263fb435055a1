//! Which version of a kind a server serves, of kinds that have two with the same fields.
//!
//! Nothing is asked for it: the version that served last is asked for first, the older one at the beginning, and the other one
//! where a server says that it does not serve it. So a definition may be replaced while watches run.

use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};

use crate::api::Kind;

/// The kinds whose newer version is asked for.
#[derive(Debug, Default)]
pub(super) struct Versions(Mutex<BTreeSet<Kind>>);

impl Versions {
    /// Returns group and version of a kind to ask for.
    pub(super) fn of(&self, kind: Kind) -> &'static str {
        let newer = kind.newer_version().filter(|_| self.lock().contains(&kind));
        newer.unwrap_or_else(|| kind.api_version())
    }

    /// Notes that a version is not served. Returns the other one, if there is one.
    pub(super) fn other(&self, kind: Kind, unserved: &str) -> Option<&'static str> {
        let newer = kind.newer_version()?;
        let mut kinds = self.lock();
        if unserved == newer {
            kinds.remove(&kind);
            Some(kind.api_version())
        } else {
            kinds.insert(kind);
            Some(newer)
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, BTreeSet<Kind>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
