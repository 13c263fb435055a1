//! Creating, replacing and deleting under the lock.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use rand_core::RngCore;

use super::layout::{ASIDE_MARK, KindDir, check_key, unavailable};
use super::scan::{Scan, scan, take_in};
use super::{Inner, file, lock};
use crate::api::{Object, ObjectKey, ObjectMeta};
use crate::store::{StoreError, check_size};

impl Inner {
    pub(super) fn create(&self, mut object: Object) -> Result<Object, StoreError> {
        let key = check(&object)?;
        let dir = self.kind_dir(key.kind, &key.namespace)?;
        self.locked(&dir, true, |scan| {
            if scan.objects.contains_key(&key.name) {
                return Err(StoreError::AlreadyExists(key));
            }
            object.metadata.uid = Some(new_uid());
            object.metadata.creation_timestamp = Some(self.now());
            object.metadata.generation = Some(1);
            self.write(&dir, &path_for(&key.name, &dir, &scan), true, object)
        })
    }

    pub(super) fn update(&self, mut object: Object) -> Result<Object, StoreError> {
        let key = check(&object)?;
        let Some(expected) = object.metadata.resource_version.clone() else {
            let reason = "is missing; an update must say which version it was based on";
            return Err(StoreError::invalid(&key, "metadata.resourceVersion", reason));
        };
        let dir = self.kind_dir(key.kind, &key.namespace)?;
        self.locked(&dir, false, |mut scan| {
            let claim = scan.objects.remove(&key.name).ok_or_else(|| StoreError::NotFound(key.clone()))?;
            let current = claim.object;
            let found = current.metadata.resource_version.clone().unwrap_or_default();
            if found != expected {
                return Err(StoreError::Conflict { key, expected, found });
            }
            self.inherit(&mut object.metadata, &current);
            if object == *current && !claim.file.is_stale {
                return Ok(object);
            }
            if object.body != current.body {
                object.metadata.generation = Some(current.metadata.generation.unwrap_or(0).saturating_add(1));
            }
            self.write(&dir, &claim.file.path, claim.file.is_stale, object)
        })
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

    /// A version is a digest of all that a file says, the incarnation's ID included.
    fn delete_if(&self, key: &ObjectKey, version: Option<&str>) -> Result<(), StoreError> {
        check_key(key)?;
        let dir = self.kind_dir(key.kind, &key.namespace)?;
        self.locked(&dir, false, |mut scan| {
            let claim = scan.objects.remove(&key.name).ok_or_else(|| StoreError::NotFound(key.clone()))?;
            let found = claim.object.metadata.resource_version.clone().unwrap_or_default();
            if let Some(expected) = version.filter(|version| **version != found) {
                return Err(StoreError::Conflict { key: key.clone(), expected: expected.to_owned(), found });
            }
            // A duplicate that stayed would be the object, back from the dead.
            for file in claim.duplicates.iter().chain([&claim.file]) {
                let gone = if file.is_stale { set_aside(&file.path) } else { fs::remove_file(&file.path) };
                gone.map_err(|source| unavailable("delete", &file.path, source))?;
            }
            file::sync_dir(&dir.path).map_err(|source| unavailable("sync", &dir.path, source))
        })
    }

    /// Runs a write with the lock held and the directory freshly read. `make` makes a missing directory first.
    fn locked<T>(
        &self,
        dir: &KindDir,
        make: bool,
        work: impl FnOnce(Scan) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        let _queue = self.writers.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        // A missing directory has nothing to update or delete, and a missing root is told from that.
        if !make && !dir.exists()? {
            return work(Scan::default());
        }
        // The lock file, too, is not for a directory that is not the store.
        dir.check_root()?;
        let _lock = lock::take(&self.root, self.options.lock_timeout)?;
        if make {
            dir.make()?;
        }
        let scan = scan(dir, &mut self.lock_cache())?;
        for path in &scan.leftovers {
            // Every writer holds the lock, so this one's writer has died.
            tracing::info!(file = %path.display(), "removing what a crashed writer left");
            let _ = fs::remove_file(path);
        }
        work(scan)
    }

    /// Writes an object. `displace` sets aside a file that is there but cannot be read: it may be somebody's work.
    fn write(
        &self,
        dir: &KindDir,
        path: &Path,
        displace: bool,
        mut object: Object,
    ) -> Result<Object, StoreError> {
        let failed = |source| unavailable("write", path, source);
        let bytes = file::emit(&object).map_err(|error| {
            if error.kind() == io::ErrorKind::FileTooLarge {
                return StoreError::invalid(&object.key(), ".", error.to_string());
            }
            failed(error)
        })?;
        if displace && fs::symlink_metadata(path).is_ok() {
            keep_aside(path).map_err(|source| unavailable("set aside", path, source))?;
        }
        object.metadata.resource_version = Some(file::replace(path, &bytes).map_err(failed)?);
        // Should somebody spoil the file, what we wrote is its last good state.
        take_in(path, dir, &mut self.lock_cache());
        Ok(object)
    }

    /// What an update cannot change.
    fn inherit(&self, metadata: &mut ObjectMeta, current: &Object) {
        let before = &current.metadata;
        metadata.uid = before.uid.clone().or_else(|| Some(new_uid()));
        metadata.creation_timestamp = before.creation_timestamp.or_else(|| Some(self.now()));
        metadata.generation = before.generation.or(Some(1));
        metadata.resource_version.clone_from(&before.resource_version);
    }

    /// The time, to the second: all that `creationTimestamp` can carry.
    fn now(&self) -> Timestamp {
        let now = (self.options.clock)();
        Timestamp::from_second(now.as_second()).unwrap_or(now)
    }
}

/// Checks what can be checked without looking at the store.
fn check(object: &Object) -> Result<ObjectKey, StoreError> {
    let key = object.key();
    check_key(&key)?;
    // What would not be read back must not be written.
    let checked = object.check_shape().and_then(|()| check_size(object));
    checked.map_err(|source| StoreError::Invalid { key: key.clone(), source })?;
    Ok(key)
}

/// Where a new object goes: into the file named after it, unless that file is another object's.
fn path_for(name: &str, dir: &KindDir, scan: &Scan) -> PathBuf {
    let is_taken = |path: &PathBuf| {
        scan.objects
            .values()
            .flat_map(|claim| claim.duplicates.iter().chain([&claim.file]))
            .any(|file| file.path == *path)
    };
    let others = (1u64..).map(|number| dir.path.join(format!("{name}.{number}.yaml")));
    let mut candidates = std::iter::once(dir.file_of(name)).chain(others);
    candidates.find(|path| !is_taken(path)).expect("there are fewer files than numbers")
}

/// Renames a file that cannot be read, so that it is no longer in the way, and says so.
fn set_aside(path: &Path) -> io::Result<()> {
    let aside = aside_of(path);
    fs::rename(path, &aside)?;
    tell_aside(path, &aside);
    Ok(())
}

/// Gives a file that cannot be read a second name, before its first one is taken over. Unlike renaming it first, this
/// leaves no moment without a file of that name. What can have no second name, such as a directory, is renamed.
fn keep_aside(path: &Path) -> io::Result<()> {
    let aside = aside_of(path);
    fs::hard_link(path, &aside).or_else(|_| fs::rename(path, &aside))?;
    tell_aside(path, &aside);
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

fn tell_aside(path: &Path, aside: &Path) {
    tracing::warn!(file = %path.display(), aside = %aside.display(),
        "{}: an unreadable file was in the way; it is kept as {}", path.display(), aside.display());
}

/// A random (version 4) UUID.
fn new_uid() -> String {
    let mut bytes = [0u8; 16];
    rand_core::OsRng.fill_bytes(&mut bytes);
    bytes[6] = bytes[6] & 0x0f | 0x40;
    bytes[8] = bytes[8] & 0x3f | 0x80;
    let hex: Vec<String> = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    [&hex[..4], &hex[4..6], &hex[6..8], &hex[8..10], &hex[10..]].map(|part| part.concat()).join("-")
}
