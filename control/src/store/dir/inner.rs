//! The state of a directory store: where it is, and what was read of it.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use jiff::Timestamp;

use super::cache::FileCache;
use super::errors::{too_many, unavailable};
use super::identity::Memory;
use super::layout::KindDir;
use super::scan;
use crate::api::{Kind, Object};
use crate::store::StoreError;
use crate::store::limits::MAX_OBJECTS;

/// A directory store's times and clock.
#[derive(Debug, Clone)]
pub struct DirOptions {
    /// How long to let a file that is written in place settle before it is read, and how far apart looks at changes are that
    /// come in a row. Ours: an editor's truncate and write are one change.
    pub debounce: Duration,
    /// How long to go without reading when nothing is heard. Ours: bounds the effect of a lost event.
    pub resync: Duration,
    /// How long to wait for another writer.
    pub lock_timeout: Duration,
    /// Tells the time, for `creationTimestamp`.
    pub clock: fn() -> Timestamp,
}

impl Default for DirOptions {
    fn default() -> Self {
        Self {
            debounce: Duration::from_millis(100),
            resync: Duration::from_secs(10),
            lock_timeout: Duration::from_secs(10),
            clock: Timestamp::now,
        }
    }
}

/// What the clones of a directory store share.
#[derive(Debug)]
pub(super) struct Inner {
    pub(super) root: PathBuf,
    pub(super) options: DirOptions,
    memory: Option<Memory>,
    /// What was read, by path. Held while a directory is read, never while waiting for a writer.
    cache: Mutex<FileCache>,
    /// Lets this process's writers queue up before they compete for the lock file.
    pub(super) writers: Mutex<()>,
}

impl Inner {
    /// Makes the state of a store of which nothing was read.
    pub(super) fn new(root: PathBuf, options: DirOptions, memory: Option<Memory>) -> Self {
        Self { root, options, memory, cache: Mutex::default(), writers: Mutex::default() }
    }

    pub(super) fn kind_dir(&self, kind: Kind, namespace: &str) -> Result<KindDir, StoreError> {
        let dir = KindDir::new(&self.root, kind, namespace)?;
        Ok(KindDir { memory: self.memory.clone(), ..dir })
    }

    /// Returns the directories of a kind in a namespace, or in all of them.
    pub(super) fn kind_dirs(&self, kind: Kind, namespace: &str) -> Result<Vec<KindDir>, StoreError> {
        if !kind.is_namespaced() || !namespace.is_empty() {
            return Ok(vec![self.kind_dir(kind, namespace)?]);
        }
        let dirs = KindDir::everywhere(&self.root, kind)?;
        if let Some(memory) = &self.memory {
            memory.check(&self.root)?;
        }
        Ok(dirs.into_iter().map(|dir| KindDir { memory: self.memory.clone(), ..dir }).collect())
    }

    pub(super) fn lock_cache(&self) -> MutexGuard<'_, FileCache> {
        // The cache only speeds up reading; what a panicking reader left in it is still true of the files.
        self.cache.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns every object of a kind in a namespace, or in all of them, by namespace and name.
    pub(super) fn list(&self, kind: Kind, namespace: &str) -> Result<Vec<Arc<Object>>, StoreError> {
        let dirs = self.kind_dirs(kind, namespace)?;
        for dir in &dirs {
            scan::refresh(dir, self.lock_cache().dir(&dir.path), Duration::ZERO)?;
        }
        self.cached(&dirs)
    }

    /// Returns every object of these directories as the cache has them.
    pub(super) fn cached(&self, dirs: &[KindDir]) -> Result<Vec<Arc<Object>>, StoreError> {
        let mut objects = Vec::new();
        for dir in dirs {
            objects.extend(scan::objects(dir, self.lock_cache().dir(&dir.path)));
            if objects.len() > MAX_OBJECTS {
                return Err(unavailable("read directory", &self.root, too_many("objects")));
            }
        }
        Ok(objects)
    }
}

/// Runs file operations where they may block.
pub(super) async fn blocking<T: Send + 'static>(
    inner: &Arc<Inner>,
    work: impl FnOnce(&Inner) -> Result<T, StoreError> + Send + 'static,
) -> Result<T, StoreError> {
    let inner = Arc::clone(inner);
    tokio::task::spawn_blocking(move || work(&inner)).await.unwrap_or_else(|error| {
        Err(StoreError::Unavailable {
            operation: "finish a file operation".to_owned(),
            source: std::io::Error::other(error),
        })
    })
}
