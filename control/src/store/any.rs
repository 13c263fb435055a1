//! A store of whichever kind its location names.

use std::path::PathBuf;

use futures::stream::BoxStream;
use futures::{Stream, StreamExt as _};

use super::kube::{Access, Requests};
use super::{DirStore, FileProblem, KubeStore, Location, Store, StoreError, StoreEvent};
use crate::api::{Kind, Object, ObjectKey, ObjectMeta};

/// A directory or an API server. Cheap to clone; clones share what they know and their connections.
#[derive(Debug, Clone)]
pub enum AnyStore {
    /// A directory.
    Dir(DirStore),
    /// An API server.
    Kube(KubeStore),
}

impl AnyStore {
    /// Opens an own store, as [`DirStore::open`] does: a directory is made. An API server is not asked for yet.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`] when a directory cannot be made or is none.
    pub fn open(location: &Location) -> Result<Self, StoreError> {
        match location {
            Location::Dir(path) => DirStore::open(path).map(Self::Dir),
            Location::Kube { .. } => Ok(Self::attach(location)),
        }
    }

    /// Opens as [`AnyStore::open`] does; connections to an API server carry `mark`.
    ///
    /// # Errors
    /// As [`AnyStore::open`].
    pub fn open_marked(location: &Location, mark: u32) -> Result<Self, StoreError> {
        match location {
            Location::Dir(_) => Self::open(location),
            Location::Kube { .. } => Ok(Self::attach_marked(location, mark)),
        }
    }

    /// Attaches as [`AnyStore::attach`] does; connections to an API server carry `mark`.
    pub fn attach_marked(location: &Location, mark: u32) -> Self {
        match location {
            Location::Dir(_) => Self::attach(location),
            Location::Kube { path, context } => {
                Self::Kube(KubeStore::new(Access::located(path.clone(), context.clone()).marked(mark)))
            }
        }
    }

    /// Attaches to a store that somebody else makes and keeps, as [`DirStore::attach`] does. Touches nothing.
    pub fn attach(location: &Location) -> Self {
        match location {
            Location::Dir(path) => Self::Dir(DirStore::attach(path)),
            Location::Kube { path, context } => {
                Self::Kube(KubeStore::new(Access::located(path.clone(), context.clone())))
            }
        }
    }

    /// Attaches as [`AnyStore::attach`] does, and keeps a directory's identity in the file `memory`, as
    /// [`DirStore::attach_remembering`] does. An API server proves its identity by its certificate; nothing is kept
    /// then.
    pub fn attach_remembering(location: &Location, memory: impl Into<PathBuf>) -> Self {
        match location {
            Location::Dir(path) => Self::Dir(DirStore::attach_remembering(path, memory)),
            Location::Kube { .. } => Self::attach(location),
        }
    }

    /// Returns the files of a directory that cannot be used; an API server has none.
    pub fn problems(&self) -> Vec<FileProblem> {
        match self {
            Self::Dir(store) => store.problems(),
            Self::Kube(_) => Vec::new(),
        }
    }

    /// Counts the requests that were sent to an API server; a directory has no such count.
    pub fn requests(&self) -> Option<Requests> {
        match self {
            Self::Dir(_) => None,
            Self::Kube(store) => Some(store.requests()),
        }
    }
}

impl From<DirStore> for AnyStore {
    fn from(store: DirStore) -> Self {
        Self::Dir(store)
    }
}

impl From<KubeStore> for AnyStore {
    fn from(store: KubeStore) -> Self {
        Self::Kube(store)
    }
}

impl Store for AnyStore {
    fn list_watch(
        &self,
        kind: Kind,
        namespace: &str,
    ) -> impl Stream<Item = StoreEvent> + Send + Unpin + use<> {
        let events: BoxStream<'static, StoreEvent> = match self {
            Self::Dir(store) => store.list_watch(kind, namespace).boxed(),
            Self::Kube(store) => store.list_watch(kind, namespace).boxed(),
        };
        events
    }

    fn list_watch_labelled(
        &self,
        kind: Kind,
        namespace: &str,
        label: (&str, &str),
    ) -> impl Stream<Item = StoreEvent> + Send + Unpin + use<> {
        let events: BoxStream<'static, StoreEvent> = match self {
            Self::Dir(store) => store.list_watch_labelled(kind, namespace, label).boxed(),
            Self::Kube(store) => store.list_watch_labelled(kind, namespace, label).boxed(),
        };
        events
    }

    fn watch_one(&self, key: &ObjectKey) -> impl Stream<Item = StoreEvent> + Send + Unpin + use<> {
        let events: BoxStream<'static, StoreEvent> = match self {
            Self::Dir(store) => store.watch_one(key).boxed(),
            Self::Kube(store) => store.watch_one(key).boxed(),
        };
        events
    }

    async fn create(&self, object: Object) -> Result<Object, StoreError> {
        match self {
            Self::Dir(store) => store.create(object).await,
            Self::Kube(store) => store.create(object).await,
        }
    }

    async fn update(&self, object: Object) -> Result<Object, StoreError> {
        match self {
            Self::Dir(store) => store.update(object).await,
            Self::Kube(store) => store.update(object).await,
        }
    }

    async fn update_status(&self, object: Object) -> Result<Object, StoreError> {
        match self {
            Self::Dir(store) => store.update_status(object).await,
            Self::Kube(store) => store.update_status(object).await,
        }
    }

    async fn annotate(
        &self,
        object: &Object,
        annotation: &str,
        value: Option<&str>,
    ) -> Result<ObjectMeta, StoreError> {
        match self {
            Self::Dir(store) => store.annotate(object, annotation, value).await,
            Self::Kube(store) => store.annotate(object, annotation, value).await,
        }
    }

    async fn delete(&self, key: &ObjectKey) -> Result<(), StoreError> {
        match self {
            Self::Dir(store) => store.delete(key).await,
            Self::Kube(store) => store.delete(key).await,
        }
    }

    async fn delete_version(&self, object: &Object) -> Result<(), StoreError> {
        match self {
            Self::Dir(store) => store.delete_version(object).await,
            Self::Kube(store) => store.delete_version(object).await,
        }
    }

    async fn get(&self, key: &ObjectKey) -> Result<Option<Object>, StoreError> {
        match self {
            Self::Dir(store) => store.get(key).await,
            Self::Kube(store) => store.get(key).await,
        }
    }

    async fn list(&self, kind: Kind, namespace: &str) -> Result<Vec<Object>, StoreError> {
        match self {
            Self::Dir(store) => store.list(kind, namespace).await,
            Self::Kube(store) => store.list(kind, namespace).await,
        }
    }
}
