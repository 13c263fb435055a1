//! Which path is whose, and the directories on the way.

use std::fs::{self, DirBuilder, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};

use super::errors::{too_many, unavailable};
use super::identity::Memory;
use crate::api::{Kind, ObjectKey, check_namespace, check_object_name};
use crate::store::StoreError;
use crate::store::limits::MAX_OBJECTS;

/// Entered by everyone, written by the owner.
const DIR_MODE: u32 = 0o755;

/// Directory of the kinds that are in no namespace; no namespace can be called so.
const CLUSTER_DIR: &str = "_cluster";

/// The directory of one kind in one namespace.
#[derive(Debug, Clone)]
pub(super) struct KindDir {
    pub(super) root: PathBuf,
    pub(super) namespace_path: PathBuf,
    pub(super) path: PathBuf,
    pub(super) kind: Kind,
    pub(super) namespace: String,
    /// Where the root's identity is kept, if it is checked.
    pub(super) memory: Option<Memory>,
}

impl KindDir {
    /// Returns the directory of a kind in a namespace.
    ///
    /// # Errors
    /// [`StoreError::Invalid`] when the namespace cannot be a directory's name.
    pub(super) fn new(root: &Path, kind: Kind, namespace: &str) -> Result<Self, StoreError> {
        let named = || ObjectKey::new(kind, namespace.escape_debug().to_string(), "*");
        check_scope(kind, namespace)
            .map_err(|reason| StoreError::invalid(&named(), "metadata.namespace", reason))?;
        let namespace_path = root.join(if kind.is_namespaced() { namespace } else { CLUSTER_DIR });
        let path = namespace_path.join(kind.directory());
        let namespace = namespace.to_owned();
        Ok(Self { root: root.to_owned(), namespace_path, path, kind, namespace, memory: None })
    }

    /// Returns the directories of a kind in every namespace that there is, by namespace.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`] when the root is missing or cannot be read.
    pub(super) fn everywhere(root: &Path, kind: Kind) -> Result<Vec<Self>, StoreError> {
        check_root(root)?;
        let failed = |source| unavailable("read directory", root, source);
        let mut dirs = Vec::new();
        for entry in fs::read_dir(root).map_err(failed)? {
            let entry = entry.map_err(failed)?;
            // What cannot be a namespace is none: the lock, the kinds without one, somebody's notes.
            let Ok(name) = entry.file_name().into_string() else { continue };
            if entry.file_type().is_ok_and(|found| found.is_dir())
                && let Ok(dir) = Self::new(root, kind, &name)
            {
                dirs.push(dir);
            }
            if dirs.len() > MAX_OBJECTS {
                return Err(failed(too_many("namespaces")));
            }
        }
        dirs.sort_unstable_by(|a, b| a.namespace.cmp(&b.namespace));
        Ok(dirs)
    }

    /// Returns where an object of this (checked) name is written, unless it was found elsewhere.
    pub(super) fn file_of(&self, name: &str) -> PathBuf {
        self.path.join(format!("{name}.yaml"))
    }

    /// Checks that the root is there, and is the one that it was.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`] when it is not.
    pub(super) fn check_root(&self) -> Result<(), StoreError> {
        check_root(&self.root)?;
        self.memory.as_ref().map_or(Ok(()), |memory| memory.check(&self.root))
    }

    /// Returns `true` if the directory is there; `false` means that there are no such objects yet.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`] when the root is missing, or a part of the path is no directory of its own.
    pub(super) fn exists(&self) -> Result<bool, StoreError> {
        self.check_root()?;
        Ok(is_real_dir(&self.namespace_path)? && is_real_dir(&self.path)?)
    }

    /// Makes the directory below an existing root.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`], as [`KindDir::exists`], and when it cannot be made.
    pub(super) fn make(&self) -> Result<(), StoreError> {
        self.check_root()?;
        for path in [&self.namespace_path, &self.path] {
            if !is_real_dir(path)? {
                make_dir(path)?;
            }
        }
        Ok(())
    }
}

/// Checks that a key's name and namespace can be file names.
pub(super) fn check_key(key: &ObjectKey) -> Result<(), StoreError> {
    let named = ObjectKey::new(
        key.kind,
        key.namespace.escape_debug().to_string(),
        key.name.escape_debug().to_string(),
    );
    check_scope(key.kind, &key.namespace)
        .map_err(|reason| StoreError::invalid(&named, "metadata.namespace", reason))?;
    check_object_name(&key.name)
        .map_err(|error| StoreError::invalid(&named, "metadata.name", error.to_string()))
}

/// Checks that a kind's namespace is one: empty for kinds of the whole cluster, a name for the others.
fn check_scope(kind: Kind, namespace: &str) -> Result<(), String> {
    if kind.is_namespaced() {
        return check_namespace(namespace).map_err(|error| error.to_string());
    }
    if namespace.is_empty() { Ok(()) } else { Err(format!("{kind} objects are in no namespace")) }
}

/// Makes the root, and what leads there, if it is missing.
pub(super) fn make_root(root: &Path) -> Result<(), StoreError> {
    let made = DirBuilder::new().recursive(true).mode(DIR_MODE).create(root);
    made.map_err(|source| unavailable("make directory", root, source))?;
    check_root(root)
}

/// Checks the root, which may be a symbolic link; the operator chose it.
fn check_root(root: &Path) -> Result<(), StoreError> {
    let found = fs::metadata(root).map_err(|source| unavailable("open the store", root, source))?;
    if found.is_dir() {
        return Ok(());
    }
    Err(unavailable("open the store", root, io::Error::from(io::ErrorKind::NotADirectory)))
}

/// Checks a directory below the root. A symbolic link could lead anywhere; it is refused.
fn is_real_dir(path: &Path) -> Result<bool, StoreError> {
    match fs::symlink_metadata(path) {
        Ok(found) if found.is_dir() => Ok(true),
        Ok(_) => {
            let source = io::Error::other("is not a directory (symbolic links are not followed)");
            Err(unavailable("use", path, source))
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(source) => Err(unavailable("look at", path, source)),
    }
}

fn make_dir(path: &Path) -> Result<(), StoreError> {
    match DirBuilder::new().mode(DIR_MODE).create(path) {
        // The process's umask must not decide who can read the store.
        Ok(()) => fs::set_permissions(path, Permissions::from_mode(DIR_MODE))
            .map_err(|source| unavailable("set the mode of", path, source)),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        Err(source) => Err(unavailable("make directory", path, source)),
    }
}
