//! Creating, replacing and deleting under the lock. A file is written before the lock is taken, and the directory is synced
//! after it: several writers wait for the disk together.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use rand_core::RngCore;

use super::content::Digest;
use super::document::Emitted;
use super::errors::unavailable;
use super::file::TempFile;
use super::inner::Inner;
use super::layout::{KindDir, check_key};
use super::names::ASIDE_MARK;
use super::scan::{Claim, Written, find, is_claim, refresh, take_written};
use super::{document, file, lock};
use crate::api::{Object, ObjectKey, ObjectMeta};
use crate::store::{StoreError, check_size};

/// An object whose file is whole and on the disk, and has only to be given its name.
#[derive(Debug)]
struct Prepared {
    object: Object,
    file: TempFile,
    digest: Digest,
    is_exact: bool,
}

impl Prepared {
    /// Gives the file its name.
    fn place(self, path: &Path) -> io::Result<Written> {
        let Self { object, file, digest, is_exact } = self;
        let before = file.rename(path)?;
        Ok(Written { object, digest, before, is_exact })
    }
}

impl Inner {
    pub(super) fn create(&self, mut object: Object) -> Result<Object, StoreError> {
        let key = object.key();
        check_key(&key)?;
        check_content(&object)?;
        let dir = self.kind_dir(key.kind, &key.namespace)?;
        object.metadata.uid = Some(new_uid());
        object.metadata.creation_timestamp = Some(self.now());
        object.metadata.generation = Some(1);
        let prepared = match self.find(&dir, &key.name) {
            Some(None) => prepare(&dir, &object).ok(),
            Some(Some(_)) | None => None,
        };
        let created = self.locked(&dir, true, &key.name, |claim| match claim {
            Some(_) => Err(StoreError::AlreadyExists(key.clone())),
            None => self.place(&dir, &self.path_for(&key.name, &dir), true, &object, prepared),
        })?;
        sync(&dir).map(|()| created)
    }

    pub(super) fn update(&self, object: Object) -> Result<Object, StoreError> {
        let key = object.key();
        check_key(&key)?;
        let dir = self.kind_dir(key.kind, &key.namespace)?;
        let found = self.find(&dir, &key.name);
        check_content(&object)?;
        let Some(expected) = object.metadata.resource_version.clone() else {
            let reason = "is missing; an update must say which version it was based on";
            return Err(StoreError::invalid(&key, "metadata.resourceVersion", reason));
        };
        // The version is all that matters of what is there, so that the file can be written before anybody has to wait for it.
        let prepared = match found {
            Some(Some(claim)) if check_version(&key, &claim, &expected).is_ok() => {
                self.updated(object.clone(), &claim).and_then(|object| prepare(&dir, &object).ok())
            }
            Some(Some(_) | None) | None => None,
        };
        let (updated, is_written) = self.locked(&dir, false, &key.name, |claim| {
            let claim = claim.ok_or_else(|| StoreError::NotFound(key.clone()))?;
            check_version(&key, &claim, &expected)?;
            let Some(object) = self.updated(object, &claim) else {
                return Ok((Object::clone(&claim.object), false));
            };
            let is_stale = claim.file.is_stale;
            Ok((self.place(&dir, &claim.file.path, is_stale, &object, prepared)?, true))
        })?;
        if is_written { sync(&dir).map(|()| updated) } else { Ok(updated) }
    }

    /// Returns an object as its update makes it; `None` if nothing has to be written.
    fn updated(&self, mut object: Object, claim: &Claim) -> Option<Object> {
        let current = &claim.object;
        self.inherit(&mut object.metadata, current);
        if object == **current && !claim.file.is_stale {
            return None;
        }
        if object.body != current.body {
            object.metadata.generation = Some(current.metadata.generation.unwrap_or(0).saturating_add(1));
        }
        Some(object)
    }

    pub(super) fn delete(&self, key: &ObjectKey) -> Result<(), StoreError> {
        self.delete_if(key, None)
    }

    pub(super) fn delete_version(&self, key: &ObjectKey, version: Option<&str>) -> Result<(), StoreError> {
        let Some(version) = version else {
            let reason = "is missing; this deletion must say which version it means";
            return Err(StoreError::invalid(key, "metadata.resourceVersion", reason));
        };
        self.delete_if(key, Some(version))
    }

    /// Deletes an object of this version, which is a digest of all that a file says, the incarnation's ID included.
    fn delete_if(&self, key: &ObjectKey, version: Option<&str>) -> Result<(), StoreError> {
        check_key(key)?;
        let dir = self.kind_dir(key.kind, &key.namespace)?;
        self.locked(&dir, false, &key.name, |claim| {
            let claim = claim.ok_or_else(|| StoreError::NotFound(key.clone()))?;
            if let Some(expected) = version {
                check_version(key, &claim, expected)?;
            }
            // A duplicate that stayed would be the object, back from the dead.
            for file in claim.duplicates.iter().chain([&claim.file]) {
                let gone = if file.is_stale { set_aside(&file.path) } else { fs::remove_file(&file.path) };
                gone.map_err(|source| unavailable("delete", &file.path, source))?;
            }
            Ok(())
        })?;
        sync(&dir)
    }

    /// Runs a write of an object with the lock held, and what there is of the object freshly read. `make` makes a missing
    /// directory first.
    fn locked<T>(
        &self,
        dir: &KindDir,
        make: bool,
        name: &str,
        work: impl FnOnce(Option<Claim>) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        let _queue = self.writers.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        // A missing directory has nothing to update or delete, and a missing root is told from that.
        if !make && !dir.exists()? {
            return work(None);
        }
        // The lock file, too, is not for a directory that is not the store.
        dir.check_root()?;
        let _lock = lock::take(&self.root, self.options.lock_timeout)?;
        if make {
            dir.make()?;
        }
        let (leftovers, claim) = {
            let mut cache = self.lock_cache();
            let files = cache.dir(&dir.path);
            let leftovers = refresh(dir, files, self.options.resync)?;
            (leftovers, find(name, dir, files))
        };
        for path in leftovers.iter().filter(|path| file::remove_leftover(path)) {
            tracing::info!(file = %path.display(), "removed what a crashed writer had left");
        }
        work(claim)
    }

    /// Returns what there is of an object by its own files, without the lock; `None` if there is no directory to look into.
    fn find(&self, dir: &KindDir, name: &str) -> Option<Option<Claim>> {
        let is_there = dir.exists().is_ok_and(|is_there| is_there);
        is_there.then(|| find(name, dir, self.lock_cache().dir(&dir.path)))
    }

    /// Puts an object's file in its place, prepared or not. `displace` sets aside a file that is there but cannot be read: it
    /// may be somebody's work.
    fn place(
        &self,
        dir: &KindDir,
        path: &Path,
        displace: bool,
        object: &Object,
        prepared: Option<Prepared>,
    ) -> Result<Object, StoreError> {
        let failed = |source| unavailable("write", path, source);
        if displace && fs::symlink_metadata(path).is_ok() {
            keep_aside(path).map_err(|source| unavailable("set aside", path, source))?;
        }
        // A follower that were faster would read, decode and check what we know, large as it may be.
        let mut cache = self.lock_cache();
        // A file that was taken for a crashed writer's is gone: until it is locked it looks like one.
        let written = match prepared.map(|prepared| prepared.place(path)) {
            Some(Ok(written)) => written,
            Some(Err(error)) if error.kind() != io::ErrorKind::NotFound => return Err(failed(error)),
            Some(Err(_)) | None => {
                prepare(dir, object).and_then(|prepared| prepared.place(path)).map_err(|error| {
                    if error.kind() == io::ErrorKind::FileTooLarge {
                        return StoreError::invalid(&object.key(), ".", error.to_string());
                    }
                    failed(error)
                })?
            }
        };
        // Should somebody spoil the file, what we wrote is its last good state.
        take_written(path, &written, dir, cache.dir(&dir.path));
        Ok(written.object)
    }

    /// Returns where a new object goes: into the file named after it, unless that file is another object's.
    fn path_for(&self, name: &str, dir: &KindDir) -> PathBuf {
        let mut cache = self.lock_cache();
        let files = cache.dir(&dir.path);
        let others = (1u64..).map(|number| dir.path.join(format!("{name}.{number}.yaml")));
        let mut candidates = std::iter::once(dir.file_of(name)).chain(others);
        candidates.find(|path| !is_claim(path, dir, files)).expect("there are fewer files than numbers")
    }

    /// Sets what an update cannot change.
    fn inherit(&self, metadata: &mut ObjectMeta, current: &Object) {
        let before = &current.metadata;
        metadata.uid = before.uid.clone().or_else(|| Some(new_uid()));
        metadata.creation_timestamp = before.creation_timestamp.or_else(|| Some(self.now()));
        metadata.generation = before.generation.or(Some(1));
        metadata.resource_version.clone_from(&before.resource_version);
    }

    /// Returns the time, to the second: all that `creationTimestamp` can carry.
    fn now(&self) -> Timestamp {
        let now = (self.options.clock)();
        Timestamp::from_second(now.as_second()).unwrap_or(now)
    }
}

/// Checks that what there is of an object is of a version.
fn check_version(key: &ObjectKey, claim: &Claim, expected: &str) -> Result<(), StoreError> {
    let found = claim.object.metadata.resource_version.as_deref();
    if found == Some(expected) {
        return Ok(());
    }
    let found = found.unwrap_or_default().to_owned();
    Err(StoreError::Conflict { key: key.clone(), expected: expected.to_owned(), found })
}

/// Writes an object's file, but for its name.
///
/// # Errors
/// [`io::ErrorKind::FileTooLarge`] for a file that would not be read back; any other when it cannot be written.
fn prepare(dir: &KindDir, object: &Object) -> io::Result<Prepared> {
    let mut object = object.clone();
    let Emitted { content, is_exact } = document::emit(&object)?;
    let file = TempFile::write(&dir.path, &content.bytes)?;
    let digest = content.digest;
    object.metadata.resource_version = Some(digest.version());
    Ok(Prepared { object, file, digest, is_exact })
}

/// Makes the names of a directory last. Without the lock: writers that wait for the disk wait together.
fn sync(dir: &KindDir) -> Result<(), StoreError> {
    file::sync_dir(&dir.path).map_err(|source| unavailable("sync", &dir.path, source))
}

/// Checks that an object would be read back: what is not must not be written.
fn check_content(object: &Object) -> Result<(), StoreError> {
    object
        .check_shape()
        .and_then(|()| check_size(object))
        .map_err(|source| StoreError::Invalid { key: object.key(), source })
}

/// Renames a file that cannot be read, so that it is no longer in the way, and says so.
fn set_aside(path: &Path) -> io::Result<()> {
    let aside = aside_of(path);
    fs::rename(path, &aside)?;
    warn_of_aside(path, &aside);
    Ok(())
}

/// Gives a file that cannot be read a second name, before its first one is taken over. Unlike renaming it first, this
/// leaves no moment without a file of that name. What can have no second name, such as a directory, is renamed.
fn keep_aside(path: &Path) -> io::Result<()> {
    let aside = aside_of(path);
    fs::hard_link(path, &aside).or_else(|_| fs::rename(path, &aside))?;
    warn_of_aside(path, &aside);
    Ok(())
}

fn aside_of(path: &Path) -> PathBuf {
    /// Leaves room for the mark in a name of at most 255 bytes, also in characters of four bytes.
    const KEPT_CHARS: usize = 50;
    let name: String =
        path.file_name().unwrap_or_default().to_string_lossy().chars().take(KEPT_CHARS).collect();
    let random = rand_core::OsRng.next_u32();
    path.with_file_name(format!("{name}{ASIDE_MARK}{random:08x}"))
}

fn warn_of_aside(path: &Path, aside: &Path) {
    tracing::warn!(file = %path.display(), aside = %aside.display(),
        "{}: an unreadable file was in the way; it is kept as {}", path.display(), aside.display());
}

/// Makes a random (version 4) UUID.
fn new_uid() -> String {
    let mut bytes = [0u8; 16];
    rand_core::OsRng.fill_bytes(&mut bytes);
    bytes[6] = bytes[6] & 0x0f | 0x40;
    bytes[8] = bytes[8] & 0x3f | 0x80;
    let hex: Vec<String> = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    [&hex[..4], &hex[4..6], &hex[6..8], &hex[8..10], &hex[10..]].map(|part| part.concat()).join("-")
}
