//! A store in a directory: one YAML file per object. The embedded default, the lab's broker, and a gateway's cache.
//!
//! ```text
//!   ROOT/.lock                                        held (flock) while writing
//!   ROOT/submariner-operator/endpoints/NAME.yaml      one object, replaced by rename
//! ```
//!
//! * **Documents** are YAML for people to read and edit. One of 16 KiB or more is written as JSON on one line, which is YAML, too,
//!   and is written and read in a tenth of the time. Files of either form are read within the same bounds. The JSON of a large
//!   body is kept, so that another annotation costs the head of the document and copies of the rest.
//! * **Versions** are digests of a file's bytes, so that an edit by hand is a new version too, and nobody's write goes
//!   over it unseen. Writers hold the lock, compare, write a temporary file, sync it, and rename it.
//! * **Readers** take no lock. [`Store::list_watch`] is told by inotify which files have changed, waits for the dust to
//!   settle, and looks at these; from time to time, and when inotify says that it lost events, it looks at all of them.
//!   Files that did not change are not read again, and bytes that did not change are not parsed again: neither those of a file
//!   that was touched or is too young for its times to be trusted, nor those that this process has written. A write looks at
//!   the files of its object alone.
//! * **Bad files** (half-written, corrupt, of another kind or type, claiming another file's object) are reported once
//!   per change, with file and field, and hide only themselves. While a file that could be read before cannot be,
//!   its last good state counts. No such file is ever deleted: a write that needs its name sets it aside.
//! * **Bounds**: a file, the memory that an object and all of them take, files of a directory. A file that is larger is a bad
//!   one; an object that takes more is there without its body; a directory with more files cannot be read.
//! * **Nothing outside the root** is read or written: names are checked, symbolic links below the root not followed.
//! * **A missing root** is a store that is away, not an empty one, and is never made by a write.
//! * **Another root than before**, such as the empty mount point of a broker that is not mounted, is away as well for
//!   who attached with [`DirStore::attach_remembering`]: the root's ID is in `ROOT/.store-id`.

mod cache;
mod changes;
mod content;
mod document;
mod errors;
mod file;
#[cfg(test)]
mod hostile;
mod identity;
mod inner;
mod json;
#[cfg(test)]
mod kept;
#[cfg(test)]
mod lab;
mod layout;
mod listen;
mod lock;
mod names;
mod problem;
mod scan;
mod watch;
mod writer;
#[cfg(test)]
mod young;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use futures::Stream;

pub use inner::DirOptions;
pub use problem::FileProblem;

use super::{Store, StoreError, StoreEvent, write};
use crate::api::{Kind, Object, ObjectKey, ObjectMeta};
use identity::Memory;
use inner::{Inner, blocking};

/// A store in a directory. Cheap to clone; clones share what they have read.
#[derive(Debug, Clone)]
pub struct DirStore {
    inner: Arc<Inner>,
}

impl DirStore {
    /// Opens the store at `root`, making the directory if it is missing.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`] when the directory cannot be made or is none.
    pub fn open(root: impl Into<PathBuf>) -> Result<Self, StoreError> {
        Self::open_with(root, DirOptions::default())
    }

    /// Opens a store as [`DirStore::open`] does, with other times than the defaults.
    ///
    /// # Errors
    /// As [`DirStore::open`].
    pub fn open_with(root: impl Into<PathBuf>, options: DirOptions) -> Result<Self, StoreError> {
        let store = Self::attach_with(root, options);
        layout::make_root(&store.inner.root)?;
        Ok(store)
    }

    /// Attaches to a store that somebody else makes and keeps, such as a broker's. Touches nothing: while there is no
    /// directory the store is unavailable, and is not taken for an empty one.
    pub fn attach(root: impl Into<PathBuf>) -> Self {
        Self::attach_with(root, DirOptions::default())
    }

    /// Attaches as [`DirStore::attach`] does, with other times than the defaults.
    pub fn attach_with(root: impl Into<PathBuf>, options: DirOptions) -> Self {
        Self::build(root.into(), options, None)
    }

    /// Attaches as [`DirStore::attach`] does, and keeps the store's identity in the file `memory` from the first contact on:
    /// should there be an empty directory or another store at `root` later, such as a mount point without its mount, the store
    /// is unavailable, and nothing is written there. A store without an identity is given one at first contact.
    pub fn attach_remembering(root: impl Into<PathBuf>, memory: impl Into<PathBuf>) -> Self {
        Self::attach_remembering_with(root, memory, DirOptions::default())
    }

    /// Attaches as [`DirStore::attach_remembering`] does, with other times than the defaults.
    pub fn attach_remembering_with(
        root: impl Into<PathBuf>,
        memory: impl Into<PathBuf>,
        options: DirOptions,
    ) -> Self {
        let memory = Memory { file: memory.into(), lock_timeout: options.lock_timeout };
        Self::build(root.into(), options, Some(memory))
    }

    fn build(root: PathBuf, options: DirOptions, memory: Option<Memory>) -> Self {
        Self { inner: Arc::new(Inner::new(root, options, memory)) }
    }

    /// Returns the store's directory.
    pub fn root(&self) -> &Path {
        &self.inner.root
    }

    /// Returns the files below the root that the last reads could not use, by path.
    pub fn problems(&self) -> Vec<FileProblem> {
        self.inner.lock_cache().problems()
    }
}

impl Store for DirStore {
    fn list_watch(
        &self,
        kind: Kind,
        namespace: &str,
    ) -> impl Stream<Item = StoreEvent> + Send + Unpin + use<> {
        watch::stream(Arc::clone(&self.inner), kind, namespace.to_owned())
    }

    async fn create(&self, object: Object) -> Result<Object, StoreError> {
        blocking(&self.inner, move |inner| inner.create(object)).await
    }

    async fn update(&self, object: Object) -> Result<Object, StoreError> {
        blocking(&self.inner, move |inner| inner.update(object)).await
    }

    async fn annotate(
        &self,
        object: &Object,
        annotation: &str,
        value: Option<&str>,
    ) -> Result<ObjectMeta, StoreError> {
        write::annotate(self, object, annotation, value).await
    }

    async fn delete(&self, key: &ObjectKey) -> Result<(), StoreError> {
        let key = key.clone();
        blocking(&self.inner, move |inner| inner.delete(&key)).await
    }

    async fn delete_version(&self, object: &Object) -> Result<(), StoreError> {
        let (key, version) = (object.key(), object.metadata.resource_version.clone());
        blocking(&self.inner, move |inner| inner.delete_version(&key, version.as_deref())).await
    }

    async fn get(&self, key: &ObjectKey) -> Result<Option<Object>, StoreError> {
        let key = key.clone();
        blocking(&self.inner, move |inner| {
            layout::check_key(&key)?;
            let dir = inner.kind_dir(key.kind, &key.namespace)?;
            let mut cache = inner.lock_cache();
            let files = cache.dir(&dir.path);
            scan::refresh(&dir, files, inner.options.resync)?;
            let found = scan::find(&key.name, &dir, files);
            Ok(found.map(|claim| Arc::unwrap_or_clone(claim.object)))
        })
        .await
    }

    async fn list(&self, kind: Kind, namespace: &str) -> Result<Vec<Object>, StoreError> {
        let namespace = namespace.to_owned();
        blocking(&self.inner, move |inner| {
            let objects = inner.list(kind, &namespace)?;
            Ok(objects.into_iter().map(Arc::unwrap_or_clone).collect())
        })
        .await
    }
}
