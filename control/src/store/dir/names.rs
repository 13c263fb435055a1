//! Names and modes of the store's own files.

/// Read by everyone, written by the owner.
pub(super) const FILE_MODE: u32 = 0o644;

/// Start of the name of a file that is being written. Found under the lock, it is a crashed writer's.
pub(super) const TEMP_PREFIX: &str = ".trieste-tmp-";

/// Part of the name of a file that was in the way of a write.
pub(super) const ASIDE_MARK: &str = ".aside-";
