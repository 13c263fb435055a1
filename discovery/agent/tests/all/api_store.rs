//! A store that keeps the status of objects apart, as API servers do, and gives them a time of creation.

use futures::stream::{self, Stream, StreamExt as _};
use jiff::Timestamp;
use trieste_control::api::{Kind, Object, ObjectKey, ObjectMeta};
use trieste_control::store::{Store, StoreError, StoreEvent};

use crate::memory_store::MemoryStore;

/// A store in memory; clones share it. The second part is a field of imports' specs that its definition does not know, the third how
/// it refuses to list Clusters, the fourth the namespace in which it has no imports with two addresses, as upstream's definition.
#[derive(Clone, Default)]
pub(crate) struct ApiStore(
    pub(crate) MemoryStore,
    pub(crate) Option<&'static str>,
    pub(crate) Option<fn() -> StoreError>,
    pub(crate) Option<&'static str>,
);

impl ApiStore {
    /// Returns an object, past all faults.
    pub(crate) fn find(&self, kind: Kind, namespace: &str, name: &str) -> Option<Object> {
        let key = ObjectKey::new(kind, namespace, name);
        // The first of this name is the one in most cases.
        if let Some(first) = self.0.peek(kind, name).filter(|first| first.metadata.namespace == namespace) {
            return Some(first);
        }
        self.0.snapshot().into_iter().find(|object| object.key() == key)
    }

    /// Returns all objects of a kind in a namespace; in all of them if it is empty.
    pub(crate) fn all(&self, kind: Kind, namespace: &str) -> Vec<Object> {
        let is_wanted = |object: &Object| {
            object.kind == kind && (namespace.is_empty() || object.metadata.namespace == namespace)
        };
        self.0.snapshot().into_iter().filter(is_wanted).collect()
    }

    /// Returns the requests that wrote since the last call.
    pub(crate) fn writes(&self) -> Vec<String> {
        let is_write =
            |line: &String| ["create", "update", "delete"].iter().any(|verb| line.starts_with(verb));
        self.0.take_log().into_iter().filter(is_write).collect()
    }
}

fn prune(object: &mut Object, field: Option<&str>) {
    let is_known = object.kind != Kind::ServiceImport;
    if let Some(field) = field.filter(|_| !is_known)
        && let Some(spec) = object.body.get_mut("spec").and_then(|spec| spec.as_object_mut())
    {
        spec.remove(field);
    }
}

/// Refuses an import with more addresses than upstream's definition lets it have.
fn limit(object: &Object, namespace: Option<&str>) -> Result<(), StoreError> {
    let is_concerned = object.kind == Kind::ServiceImport && namespace == Some(&object.metadata.namespace);
    let ips = object.body.get("spec").and_then(|spec| spec.get("ips")).and_then(|ips| ips.as_array());
    match ips.filter(|_| is_concerned).map_or(0, Vec::len) {
        0 | 1 => Ok(()),
        count => Err(StoreError::Denied {
            key: object.key(),
            reason: format!("spec.ips: Too many: {count}: must have at most 1 items"),
        }),
    }
}

fn apart(object: &Object) -> bool {
    object.kind.has_status_subresource()
}

impl Store for ApiStore {
    fn list_watch(
        &self,
        kind: Kind,
        namespace: &str,
    ) -> impl Stream<Item = StoreEvent> + Send + Unpin + use<> {
        match self.2.filter(|_| kind == Kind::Cluster) {
            None => self.0.list_watch(kind, namespace).boxed(),
            Some(error) => {
                let refused = stream::once(std::future::ready(StoreEvent::Unavailable(error())));
                refused.chain(stream::pending()).boxed()
            }
        }
    }

    async fn create(&self, mut object: Object) -> Result<Object, StoreError> {
        prune(&mut object, self.1);
        limit(&object, self.3)?;
        if apart(&object) {
            object.body.remove("status");
        }
        object.metadata.creation_timestamp.get_or_insert(Timestamp::UNIX_EPOCH);
        self.0.create(object).await
    }

    async fn update(&self, mut object: Object) -> Result<Object, StoreError> {
        prune(&mut object, self.1);
        limit(&object, self.3)?;
        let key = object.key();
        let found = self.find(key.kind, &key.namespace, &key.name);
        if apart(&object) {
            match found.as_ref().and_then(|found| found.body.get("status")) {
                Some(status) => drop(object.body.insert("status".to_owned(), status.clone())),
                None => drop(object.body.remove("status")),
            }
        }
        self.0.update(object).await
    }

    async fn update_status(&self, object: Object) -> Result<Object, StoreError> {
        let key = object.key();
        let Some(mut found) = self.find(key.kind, &key.namespace, &key.name) else {
            return Err(StoreError::NotFound(key));
        };
        found.metadata.resource_version.clone_from(&object.metadata.resource_version);
        match object.body.get("status") {
            Some(status) => drop(found.body.insert("status".to_owned(), status.clone())),
            None => drop(found.body.remove("status")),
        }
        self.0.update(found).await
    }

    async fn annotate(
        &self,
        object: &Object,
        annotation: &str,
        value: Option<&str>,
    ) -> Result<ObjectMeta, StoreError> {
        self.0.annotate(object, annotation, value).await
    }

    async fn delete(&self, key: &ObjectKey) -> Result<(), StoreError> {
        self.0.delete(key).await
    }

    async fn delete_version(&self, object: &Object) -> Result<(), StoreError> {
        self.0.delete_version(object).await
    }

    async fn get(&self, key: &ObjectKey) -> Result<Option<Object>, StoreError> {
        self.0.get(key).await
    }

    async fn list(&self, kind: Kind, namespace: &str) -> Result<Vec<Object>, StoreError> {
        self.0.list(kind, namespace).await
    }
}
