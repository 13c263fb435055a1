//! The store's lock file: one writer at a time, over all processes.

use std::fs::{File, OpenOptions, TryLockError};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::fs::OFlags;

use super::errors::unavailable;
use super::names::FILE_MODE;
use crate::store::StoreError;

const LOCK_FILE: &str = ".lock";

/// Ours: a write takes about a millisecond, so a waiting writer looks a few times per write.
const RETRY: Duration = Duration::from_millis(2);

/// The right to write. Ends when dropped, and when the process dies.
#[derive(Debug)]
pub(super) struct WriteLock {
    _file: File,
}

/// Takes the lock of the store at `root`, waiting for at most `timeout`.
///
/// # Errors
/// [`StoreError::Locked`] after that time; [`StoreError::Unavailable`] when there is no root or it is not writable.
pub(super) fn take(root: &Path, timeout: Duration) -> Result<WriteLock, StoreError> {
    let path = root.join(LOCK_FILE);
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(FILE_MODE)
        .custom_flags(flags(OFlags::NOFOLLOW))
        .open(&path)
        .map_err(|source| unavailable("open lock file", &path, source))?;
    let start = Instant::now();
    loop {
        match file.try_lock() {
            Ok(()) => return Ok(WriteLock { _file: file }),
            Err(TryLockError::WouldBlock) if start.elapsed() < timeout => std::thread::sleep(RETRY),
            Err(TryLockError::WouldBlock) => return Err(StoreError::Locked { path, waited: timeout }),
            Err(TryLockError::Error(source)) => return Err(unavailable("lock", &path, source)),
        }
    }
}

/// Flags as the standard library wants them.
pub(super) fn flags(flags: OFlags) -> i32 {
    i32::try_from(flags.bits()).expect("Linux's open flags fit into 31 bits")
}
