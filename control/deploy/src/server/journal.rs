//! What became of applied objects, for who has to say so afterwards.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::{Arc, Mutex, PoisonError};

use serde_json::Value;

use crate::object_ref::ObjectRef;

/// What became of an applied object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Applied {
    /// It was not there.
    Created,
    /// It was different.
    Changed,
    /// It was so already.
    Unchanged,
}

/// What became of one object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    /// The object.
    pub place: ObjectRef,
    /// What became of it.
    pub applied: Applied,
    /// The fields that others had set to something else, and who; they were taken over.
    pub conflicts: Vec<String>,
    /// A digest of what was wanted: another one when something else is.
    pub wanted: u64,
}

/// Returns a digest of an object, for this process alone. How pods are replaced is no part of it: that differs while they are.
pub(super) fn digest(object: &Value) -> u64 {
    let mut hasher = DefaultHasher::new();
    let mut object = object.clone();
    object["spec"].as_object_mut().and_then(|spec| spec.remove("updateStrategy"));
    object.to_string().hash(&mut hasher);
    hasher.finish()
}

/// A list of what became of objects, in the order in which they were applied. Cheap to clone; clones share it.
#[derive(Debug, Clone, Default)]
pub struct Journal(Arc<Mutex<Vec<Change>>>);

impl Journal {
    /// Returns what has been noted since the last time.
    pub fn drain(&self) -> Vec<Change> {
        std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Notes what became of an object.
    pub(super) fn note(&self, change: Change) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(change);
    }
}
