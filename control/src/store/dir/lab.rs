//! A directory of one kind with one object, for tests.

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;

use tempfile::TempDir;

use super::DirStore;
use super::layout::KindDir;
use crate::api::{Kind, Object};

pub(super) struct Lab {
    pub(super) root: TempDir,
    pub(super) store: DirStore,
    pub(super) dir: KindDir,
    /// The object's name.
    name: &'static str,
}

impl Lab {
    pub(super) fn new(kind: Kind, name: &'static str) -> Self {
        let root = tempfile::tempdir().unwrap();
        let store = DirStore::open(root.path()).unwrap();
        let dir = KindDir::new(root.path(), kind, "ns").unwrap();
        dir.make().unwrap();
        Self { root, store, dir, name }
    }

    /// Returns the object's file.
    pub(super) fn path(&self) -> PathBuf {
        self.dir.path.join(format!("{}.yaml", self.name))
    }

    pub(super) fn text(&self) -> String {
        fs::read_to_string(self.path()).unwrap()
    }

    /// Returns the object as the store has it, after a look at all files.
    pub(super) fn cached(&self) -> Arc<Object> {
        let mut objects = self.store.inner.list(self.dir.kind, "ns").unwrap();
        assert_eq!(objects.len(), 1);
        objects.remove(0)
    }
}
