//! One file: reading it, and replacing it in one step.

use std::fs::{self, File, Metadata, OpenOptions, Permissions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use rand_core::RngCore;
use rustix::fs::OFlags;

use super::content::{BadFile, Content, Digest};
use super::lock::flags;
use super::names::{FILE_MODE, TEMP_PREFIX};

/// What tells one state of a file from another without reading it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Stamp {
    inode: u64,
    size: u64,
    modified_ns: i128,
    changed_ns: i128,
}

impl Stamp {
    pub(super) fn of(found: &Metadata) -> Self {
        let nanos = |seconds: i64, rest: i64| i128::from(seconds) * 1_000_000_000 + i128::from(rest);
        Self {
            inode: found.ino(),
            size: found.size(),
            modified_ns: nanos(found.mtime(), found.mtime_nsec()),
            changed_ns: nanos(found.ctime(), found.ctime_nsec()),
        }
    }

    /// Returns when the file's bytes were changed last, in Unix seconds.
    pub(super) fn modified(&self) -> i64 {
        i64::try_from(self.modified_ns.div_euclid(1_000_000_000)).unwrap_or(i64::MAX)
    }

    /// Returns `true` if this is what a file with the stamp `before` has after it was renamed, which changes one of the times.
    pub(super) fn is_renamed(&self, before: &Self) -> bool {
        *self == Self { changed_ns: self.changed_ns, ..*before }
    }

    /// Returns `true` if the file may have changed once more without a new stamp: file times have a granularity of some
    /// milliseconds, so a very young file is read again.
    pub(super) fn is_fresh(&self, now: Timestamp) -> bool {
        const YOUNG_NS: i128 = 100_000_000;
        now.as_nanosecond() - self.modified_ns.max(self.changed_ns) < YOUNG_NS
    }
}

/// Reads a file that should hold an object: its first bytes, one more than `most` if there are as many. `known` gives the digest
/// of bytes that need not be digested.
///
/// # Errors
/// [`io::Error`] when the file cannot be opened or read; the inner error when it is no file that can hold something.
pub(super) fn read(
    path: &Path,
    most: u64,
    known: impl FnOnce(&[u8]) -> Option<Digest>,
) -> io::Result<(Stamp, Result<Content, BadFile>)> {
    // Not following links keeps reads inside the store; not blocking keeps a pipe from stopping us.
    let file =
        OpenOptions::new().read(true).custom_flags(flags(OFlags::NOFOLLOW | OFlags::NONBLOCK)).open(path)?;
    let found = file.metadata()?;
    let stamp = Stamp::of(&found);
    if !found.is_file() {
        return Ok((stamp, Err(BadFile::whole("is not a regular file"))));
    }
    let mut bytes = Vec::with_capacity(usize::try_from(stamp.size.min(most + 1)).unwrap_or_default());
    file.take(most + 1).read_to_end(&mut bytes)?;
    Ok((stamp, Ok(Content::with(bytes, known))))
}

/// Replaces (or makes) a file so that a reader, and a machine that loses power, sees all of it or none of it. The caller
/// holds the lock.
pub(super) fn replace(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let dir = path.parent().ok_or_else(|| io::Error::other("a file of the store has a directory"))?;
    TempFile::write(dir, bytes)?.rename(path)?;
    sync_dir(dir)
}

/// A file that is whole and on the disk, under a name that no reader looks at. Goes when dropped.
#[derive(Debug)]
pub(super) struct TempFile {
    /// Until it has another name.
    path: Option<PathBuf>,
    /// Locked, which tells it from what a crashed writer has left.
    file: File,
}

impl TempFile {
    /// Writes a file into a directory.
    pub(super) fn write(dir: &Path, bytes: &[u8]) -> io::Result<Self> {
        let name = format!("{TEMP_PREFIX}{}-{:08x}", std::process::id(), rand_core::OsRng.next_u32());
        let path = dir.join(name);
        let file = OpenOptions::new().write(true).create_new(true).mode(FILE_MODE).open(&path)?;
        let mut temp = Self { path: Some(path), file };
        temp.file.try_lock()?;
        // The process's umask must not decide who can read the store.
        temp.file.set_permissions(Permissions::from_mode(FILE_MODE))?;
        temp.file.write_all(bytes)?;
        temp.file.sync_all()?;
        Ok(temp)
    }

    /// Gives the file its name. The caller holds the lock, and makes the name last with [`sync_dir`]. Returns the stamp that the
    /// file had before: [`Stamp::is_renamed`].
    pub(super) fn rename(mut self, path: &Path) -> io::Result<Stamp> {
        let before = Stamp::of(&self.file.metadata()?);
        if let Some(temp) = &self.path {
            fs::rename(temp, path)?;
        }
        self.path = None;
        Ok(before)
    }
}

impl Drop for TempFile {
    fn drop(&mut self) {
        if let Some(path) = &self.path {
            // The name is ours alone, and nobody misses a file that was never renamed.
            let _ = fs::remove_file(path);
        }
    }
}

/// Removes a file that a crashed writer has left; gives whether it was one, and not that of a writer that is at work.
pub(super) fn remove_leftover(path: &Path) -> bool {
    let open = OpenOptions::new()
        .read(true)
        .write(true)
        .custom_flags(flags(OFlags::NOFOLLOW | OFlags::NONBLOCK))
        .open(path);
    open.is_ok_and(|file| file.try_lock().is_ok() && fs::remove_file(path).is_ok())
}
/// Makes renames and removals in a directory last.
pub(super) fn sync_dir(dir: &Path) -> io::Result<()> {
    File::open(dir)?.sync_all()
}
