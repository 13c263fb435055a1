//! Bounds that every store has; docs/security.md lists them with those of each.

/// Most objects of one kind that are read from one store, and most files of a directory. Ours: twenty times the largest cluster
/// that we plan for.
pub(super) const MAX_OBJECTS: usize = 100_000;
