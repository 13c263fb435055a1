//! Where objects live: the [`Store`] trait, what its users need around it, and its implementations: a directory and an
//! API server.
//!
//! A store keeps objects by kind, namespace and name, gives each a version, and refuses a write that was not based on
//! the newest one. Readers follow it with [`Store::list_watch`]. The writes are decided elsewhere: see
//! [`crate::publish`] and [`crate::sync`].

mod any;
mod cache;
pub mod conformance;
pub(crate) mod decode;
pub mod dir;
mod error;
pub mod kube;
mod limits;
mod location;
#[cfg(test)]
mod logged;
mod quota;
pub(crate) mod size;
mod write;

use std::future::Future;
use std::sync::Arc;

use futures::{Stream, StreamExt as _};

pub use self::kube::KubeStore;
pub use any::AnyStore;
pub use cache::{Cache, ParsedCache};
pub use decode::MEMBER_OBJECT_BYTES;
pub(crate) use decode::OBJECT_BYTES;
pub use dir::{DirOptions, DirStore, FileProblem};
pub use error::{CertificateRefused, StoreError};
pub use limits::check_size;
pub use location::{Location, LocationError};
pub(crate) use write::set_annotation;
pub use write::{delete_if_exists, modify, upsert};

use crate::api::{Kind, Object, ObjectKey, ObjectMeta};

/// Objects with namespaces, labels, annotations and versions.
///
/// Implementations agree on what [`conformance::run`] checks. In particular the store sets `resourceVersion` (opaque,
/// equal means unchanged), `uid` (another one after re-creation), `creationTimestamp` (to the second) and
/// `generation`; whatever the caller put there on creation is ignored.
pub trait Store: Send + Sync + 'static {
    /// Follows the objects of one kind in one namespace, for ever; in all namespaces if `namespace` is empty and the kind
    /// has any. The first event is a [`StoreEvent::Listed`] (or
    /// [`StoreEvent::Unavailable`] until there is one), and so is the first after every gap: a consumer that
    /// recomputes from what it knows cannot miss a change. Changes in quick succession may arrive as one event.
    fn list_watch(
        &self,
        kind: Kind,
        namespace: &str,
    ) -> impl Stream<Item = StoreEvent> + Send + Unpin + use<Self>;

    /// Follows as [`Store::list_watch`] does those objects that have a label of this name with this value; one that has it no
    /// more is gone. An API server sends no others.
    fn list_watch_labelled(
        &self,
        kind: Kind,
        namespace: &str,
        (name, value): (&str, &str),
    ) -> impl Stream<Item = StoreEvent> + Send + Unpin + use<Self> {
        let (name, value) = (name.to_owned(), value.to_owned());
        let has_label = move |object: &Object| object.metadata.labels.get(&name) == Some(&value);
        self.list_watch(kind, namespace).map(move |event| event.retain(&has_label))
    }

    /// Follows one object, for ever: as [`Store::list_watch`], with lists of at most one object. Costs an API server no
    /// more than that object.
    fn watch_one(&self, key: &ObjectKey) -> impl Stream<Item = StoreEvent> + Send + Unpin + use<Self> {
        let name = key.name.clone();
        let events = self.list_watch(key.kind, &key.namespace);
        events.filter_map(move |event| std::future::ready(event.about(&name)))
    }

    /// Creates an object; gives it back as stored.
    ///
    /// # Errors
    /// [`StoreError::AlreadyExists`], [`StoreError::Invalid`], or that the store cannot be reached.
    fn create(&self, object: Object) -> impl Future<Output = Result<Object, StoreError>> + Send;

    /// Replaces an object; gives it back as stored. An update that changes nothing keeps the version.
    ///
    /// # Errors
    /// [`StoreError::Conflict`] when its `resourceVersion` is not the newest, [`StoreError::NotFound`],
    /// [`StoreError::Invalid`] (also without a version), or that the store cannot be reached.
    fn update(&self, object: Object) -> impl Future<Output = Result<Object, StoreError>> + Send;

    /// Replaces an object's status, of kinds whose status is a resource of its own
    /// ([`Kind::has_status_subresource`]): whatever else the object says is as it was, or is not written. As
    /// [`Store::update`] otherwise, which it is where a store keeps nothing apart.
    ///
    /// # Errors
    /// As [`Store::update`].
    fn update_status(&self, object: Object) -> impl Future<Output = Result<Object, StoreError>> + Send {
        self.update(object)
    }

    /// Sets one annotation of an object, or removes it where there is no value, whatever the object's version. Nothing else
    /// of it is read, sent or changed; where the annotation is as it should be, the version stays. `object` says which one
    /// by its name and, if it has a uid, its incarnation. Gives the metadata as stored.
    ///
    /// # Errors
    /// [`StoreError::NotFound`]; [`StoreError::Conflict`] when the object is another incarnation;
    /// [`StoreError::Invalid`] for an impossible name or annotation; [`StoreError::Forbidden`] also where
    /// [`Store::update`] is allowed: an API server has a right of its own for it, `patch`; or that the store cannot be
    /// reached.
    fn annotate(
        &self,
        object: &Object,
        annotation: &str,
        value: Option<&str>,
    ) -> impl Future<Output = Result<ObjectMeta, StoreError>> + Send;

    /// Deletes an object, whatever its version.
    ///
    /// # Errors
    /// [`StoreError::NotFound`], [`StoreError::Invalid`] for an impossible name, or that the store cannot be reached.
    fn delete(&self, key: &ObjectKey) -> impl Future<Output = Result<(), StoreError>> + Send;

    /// Deletes an object if this is still its newest version, and still the same incarnation.
    ///
    /// # Errors
    /// [`StoreError::Conflict`] when it has changed since or was re-created; [`StoreError::Invalid`] without a version;
    /// otherwise as [`Store::delete`].
    fn delete_version(&self, object: &Object) -> impl Future<Output = Result<(), StoreError>> + Send;

    /// Returns the newest state of one object, `None` if it does not exist.
    ///
    /// # Errors
    /// [`StoreError::Invalid`] for an impossible name, or that the store cannot be reached.
    fn get(&self, key: &ObjectKey) -> impl Future<Output = Result<Option<Object>, StoreError>> + Send;

    /// Returns every object of one kind in one namespace, by name; in all namespaces, by namespace and name, if
    /// `namespace` is empty and the kind has any.
    ///
    /// # Errors
    /// [`StoreError::Invalid`] for an impossible namespace, or that the store cannot be reached.
    fn list(
        &self,
        kind: Kind,
        namespace: &str,
    ) -> impl Future<Output = Result<Vec<Object>, StoreError>> + Send;
}

/// An event of a store.
#[derive(Debug)]
#[non_exhaustive]
pub enum StoreEvent {
    /// These are all the objects there are, by namespace and name; whatever else was known is gone.
    Listed(Vec<Object>),
    /// This object was created or changed, or deleted and re-created (then its `uid` is another one).
    Applied(Object),
    /// This object is gone; its last known state.
    Deleted(Object),
    /// The store cannot be read. The objects known may be old but is the best there is; a [`StoreEvent::Listed`]
    /// follows when it can be read again. Not repeated while the reason stays the same.
    Unavailable(StoreError),
}

impl StoreEvent {
    /// Returns whether the store says that it has no objects of this kind for us: it does not know the kind, or we may not read
    /// it.
    #[must_use]
    pub fn is_absence(&self) -> bool {
        matches!(self, Self::Unavailable(StoreError::Forbidden { .. } | StoreError::NotFound(_)))
    }

    /// Returns what this event says about the objects that are to be kept. One that is not kept, or not any more, is gone.
    #[must_use]
    pub fn retain(self, keep: impl Fn(&Object) -> bool) -> Self {
        match self {
            Self::Listed(mut objects) => {
                objects.retain(keep);
                objects.shrink_to_fit();
                Self::Listed(objects)
            }
            Self::Applied(object) if !keep(&object) => Self::Deleted(object),
            other @ (Self::Applied(_) | Self::Deleted(_) | Self::Unavailable(_)) => other,
        }
    }

    /// Returns the part of this event that is about the object of this name, if any.
    fn about(self, name: &str) -> Option<Self> {
        match self {
            Self::Listed(mut objects) => {
                objects.retain(|object| object.metadata.name == name);
                Some(Self::Listed(objects))
            }
            Self::Applied(object) => (object.metadata.name == name).then_some(Self::Applied(object)),
            Self::Deleted(object) => (object.metadata.name == name).then_some(Self::Deleted(object)),
            Self::Unavailable(error) => Some(Self::Unavailable(error)),
        }
    }
}

impl<S: Store> Store for Arc<S> {
    fn list_watch(
        &self,
        kind: Kind,
        namespace: &str,
    ) -> impl Stream<Item = StoreEvent> + Send + Unpin + use<S> {
        S::list_watch(self, kind, namespace)
    }

    fn list_watch_labelled(
        &self,
        kind: Kind,
        namespace: &str,
        label: (&str, &str),
    ) -> impl Stream<Item = StoreEvent> + Send + Unpin + use<S> {
        S::list_watch_labelled(self, kind, namespace, label)
    }

    fn watch_one(&self, key: &ObjectKey) -> impl Stream<Item = StoreEvent> + Send + Unpin + use<S> {
        S::watch_one(self, key)
    }

    fn delete_version(&self, object: &Object) -> impl Future<Output = Result<(), StoreError>> + Send {
        S::delete_version(self, object)
    }

    fn create(&self, object: Object) -> impl Future<Output = Result<Object, StoreError>> + Send {
        S::create(self, object)
    }

    fn update_status(&self, object: Object) -> impl Future<Output = Result<Object, StoreError>> + Send {
        S::update_status(self, object)
    }

    fn update(&self, object: Object) -> impl Future<Output = Result<Object, StoreError>> + Send {
        S::update(self, object)
    }

    fn annotate(
        &self,
        object: &Object,
        annotation: &str,
        value: Option<&str>,
    ) -> impl Future<Output = Result<ObjectMeta, StoreError>> + Send {
        S::annotate(self, object, annotation, value)
    }

    fn delete(&self, key: &ObjectKey) -> impl Future<Output = Result<(), StoreError>> + Send {
        S::delete(self, key)
    }

    fn get(&self, key: &ObjectKey) -> impl Future<Output = Result<Option<Object>, StoreError>> + Send {
        S::get(self, key)
    }

    fn list(
        &self,
        kind: Kind,
        namespace: &str,
    ) -> impl Future<Output = Result<Vec<Object>, StoreError>> + Send {
        S::list(self, kind, namespace)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::ObjectMeta;

    #[test]
    fn what_is_not_kept_any_more_is_gone_for_whoever_knew_it() {
        let object = |name: &str| Object::new(Kind::Endpoint, ObjectMeta::new("ns", name));
        let keep = |object: &Object| object.metadata.name.starts_with("ours-");
        let listed = StoreEvent::Listed(vec![object("ours-1"), object("junk")]).retain(keep);
        assert!(matches!(listed, StoreEvent::Listed(kept) if kept == [object("ours-1")]));
        let applied = |name: &str| StoreEvent::Applied(object(name)).retain(keep);
        assert!(matches!(applied("ours-1"), StoreEvent::Applied(_)));
        assert!(matches!(applied("junk"), StoreEvent::Deleted(gone) if gone == object("junk")));
    }
}
