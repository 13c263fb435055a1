//! The store itself: every operation as one request.

use std::fmt;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::Stream;
use http::Method;
use serde_json::json;

use super::access::Access;
use super::dial::Dial;
use super::failure::Operation;
use super::patch;
use super::raw::{Raw, collection, outgoing};
use super::requests::{Requests, Verb};
use super::scope::{Selection, check_name, check_scope};
use super::transport::Transport;
use super::{bounds, list, watch};
use crate::api::{Kind, Object, ObjectKey, ObjectMeta, cut};
use crate::store::decode::{MEMBER_OBJECT_BYTES, OBJECT_BYTES, describe};
use crate::store::quota::has_quota;
use crate::store::{Store, StoreError, StoreEvent};

/// A store on an API server. Cheap to clone; clones share their connection and their counters.
#[derive(Clone)]
pub struct KubeStore {
    pub(super) transport: Arc<Transport>,
    pub(super) timeout: Duration,
}

/// The path of a request, and what it sends.
type Request = (String, Option<Vec<u8>>);

impl KubeStore {
    /// How long a request may stay without answer. Longer than an API server under load takes.
    pub const DEFAULT_TIMEOUT: Duration = Duration::from_secs(10);

    /// How long a server may stay silent, over HTTP/1.1, before it is asked for a sign of life.
    const SILENCE: Duration = Duration::from_secs(15);

    /// Creates a store on this API server. It connects when it is used.
    pub fn new(access: Access) -> Self {
        Self::over(access, None)
    }

    /// Returns the same store, connection and counters, with another time-out for requests: an elector cannot wait
    /// long.
    #[must_use]
    pub fn with_timeout(&self, timeout: Duration) -> Self {
        Self { transport: Arc::clone(&self.transport), timeout }
    }

    /// Returns the counters of requests, of this store and its clones.
    pub fn requests(&self) -> Requests {
        self.transport.requests()
    }

    /// Returns the access to the API server.
    pub fn access(&self) -> &Access {
        &self.transport.access
    }

    /// Creates a store over other connections than the network's.
    pub(super) fn over(access: Access, dial: Option<Dial>) -> Self {
        let transport = Arc::new(Transport::new(access, dial, Self::SILENCE));
        Self { transport, timeout: Self::DEFAULT_TIMEOUT }
    }

    fn operation(&self, verb: Verb, key: ObjectKey) -> Operation {
        Operation::new(verb, key, &self.transport.access)
    }

    fn check_key(&self, key: &ObjectKey) -> Result<(), StoreError> {
        check_scope(key)?;
        check_name(key)
    }

    /// Sends one request about one object and returns the body of the answer. It is made for the version of the kind that the
    /// server serves, and made anew for another one where it does not serve that.
    async fn request(
        &self,
        operation: &Operation,
        method: Method,
        make: impl Fn(&str) -> Request,
    ) -> Result<Bytes, StoreError> {
        let kind = operation.key.kind;
        let mut version = self.transport.versions.of(kind);
        let mut is_other = false;
        loop {
            let (path, body) = make(version);
            let answer = self.transport.call(operation.verb, method.clone(), &path, body, self.timeout).await;
            let (code, body) = answer.map_err(|error| operation.lost(error))?;
            if code.is_success() {
                return Ok(body);
            }
            let is_unserved = !is_other && operation.is_unserved(code, &body);
            let other = is_unserved.then(|| self.transport.versions.other(kind, version)).flatten();
            match other {
                Some(other) => (version, is_other) = (other, true),
                None => return Err(operation.refused(code, &body)),
            }
        }
    }

    fn read(operation: &Operation, body: &[u8]) -> Result<Object, StoreError> {
        let kind = operation.key.kind;
        let decode =
            if has_quota(kind) { decode_one::<MEMBER_OBJECT_BYTES> } else { decode_one::<OBJECT_BYTES> };
        let object = decode(body, kind).map_err(|error| operation.invalid_response(describe(&error)))?;
        if object.metadata.name != operation.key.name {
            return Err(operation.invalid_response(format_args!(
                "it is about {}",
                cut(&object.key().to_string(), 300).escape_debug()
            )));
        }
        Ok(object)
    }

    /// Replaces an object, or the part of it that `subresource` names, such as `/status`.
    async fn replace(&self, object: Object, subresource: &str) -> Result<Object, StoreError> {
        let version = Some(version_of(&object)?);
        let operation = Operation { version, ..self.operation(Verb::Update, object.key()) };
        self.check_key(&operation.key)?;
        let make = |version: &str| {
            let path = format!("{}{subresource}", path_of(&operation.key, version));
            (path, Some(outgoing(object.clone(), version, true)))
        };
        let body = self.request(&operation, Method::PUT, make).await?;
        Self::read(&operation, &body)
    }

    async fn delete_with(
        &self,
        operation: Operation,
        preconditions: serde_json::Value,
    ) -> Result<(), StoreError> {
        let options = json!({"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": preconditions});
        let body = options.to_string().into_bytes();
        let make = |version: &str| (path_of(&operation.key, version), Some(body.clone()));
        self.request(&operation, Method::DELETE, make).await.map(drop)
    }
}

impl fmt::Debug for KubeStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KubeStore").field("access", self.access()).field("timeout", &self.timeout).finish()
    }
}

fn decode_one<const LIMIT: usize>(body: &[u8], kind: Kind) -> serde_json::Result<Object> {
    let raw: Raw<LIMIT> = serde_json::from_slice(body)?;
    Ok(raw.into_object(kind))
}

impl Store for KubeStore {
    fn list_watch(
        &self,
        kind: Kind,
        namespace: &str,
    ) -> impl Stream<Item = StoreEvent> + Send + Unpin + use<> {
        let selection = Selection::of(ObjectKey::new(kind, namespace, ""));
        watch::stream(Arc::clone(&self.transport), self.timeout, selection)
    }

    fn list_watch_labelled(
        &self,
        kind: Kind,
        namespace: &str,
        (name, value): (&str, &str),
    ) -> impl Stream<Item = StoreEvent> + Send + Unpin + use<> {
        let label = Some((name.to_owned(), value.to_owned()));
        let selection = Selection { label, key: ObjectKey::new(kind, namespace, "") };
        watch::stream(Arc::clone(&self.transport), self.timeout, selection)
    }

    fn watch_one(&self, key: &ObjectKey) -> impl Stream<Item = StoreEvent> + Send + Unpin + use<> {
        watch::stream_one(Arc::clone(&self.transport), self.timeout, key.clone())
    }

    async fn create(&self, object: Object) -> Result<Object, StoreError> {
        let operation = self.operation(Verb::Create, object.key());
        self.check_key(&operation.key)?;
        let make = |version: &str| {
            let path = collection(operation.key.kind, version, &operation.key.namespace);
            (path, Some(outgoing(object.clone(), version, false)))
        };
        let body = self.request(&operation, Method::POST, make).await?;
        Self::read(&operation, &body)
    }

    async fn update(&self, object: Object) -> Result<Object, StoreError> {
        self.replace(object, "").await
    }

    async fn update_status(&self, object: Object) -> Result<Object, StoreError> {
        if !object.kind.has_status_subresource() {
            return self.update(object).await;
        }
        self.replace(object, "/status").await
    }

    async fn annotate(
        &self,
        object: &Object,
        annotation: &str,
        value: Option<&str>,
    ) -> Result<ObjectMeta, StoreError> {
        let operation = self.operation(Verb::Patch, object.key());
        self.check_key(&operation.key)?;
        let path = path_of(&operation.key, self.transport.versions.of(object.kind));
        let request = patch::request(path, object, annotation, value)
            .map_err(|error| operation.lost(io::Error::other(error)))?;
        let answer =
            self.transport.exchange(operation.verb, request, (self.timeout, bounds::OBJECT_BYTES)).await;
        let (code, body) = answer.map_err(|error| operation.lost(error))?;
        if !code.is_success() {
            return Err(patch::of_incarnation(operation.refused(code, &body), object));
        }
        Self::read(&operation, &body).map(|stored| stored.metadata)
    }

    async fn delete(&self, key: &ObjectKey) -> Result<(), StoreError> {
        self.check_key(key)?;
        self.delete_with(self.operation(Verb::Delete, key.clone()), json!({})).await
    }

    async fn delete_version(&self, object: &Object) -> Result<(), StoreError> {
        let version = version_of(object)?;
        let preconditions = json!({"uid": object.metadata.uid, "resourceVersion": version});
        let operation = Operation { version: Some(version), ..self.operation(Verb::Delete, object.key()) };
        self.check_key(&operation.key)?;
        self.delete_with(operation, preconditions).await
    }

    async fn get(&self, key: &ObjectKey) -> Result<Option<Object>, StoreError> {
        self.check_key(key)?;
        let operation = self.operation(Verb::Get, key.clone());
        let make = |version: &str| (path_of(key, version), None);
        match self.request(&operation, Method::GET, make).await {
            Ok(body) => Self::read(&operation, &body).map(Some),
            Err(StoreError::NotFound(_)) => Ok(None),
            Err(error) => Err(error),
        }
    }

    async fn list(&self, kind: Kind, namespace: &str) -> Result<Vec<Object>, StoreError> {
        let key = ObjectKey::new(kind, namespace, "");
        check_scope(&key)?;
        let list = list::read(&self.transport, self.timeout, &Selection::of(key)).await?;
        Ok(list.objects.into_values().collect())
    }
}

fn path_of(key: &ObjectKey, version: &str) -> String {
    format!("{}/{}", collection(key.kind, version, &key.namespace), key.name)
}

/// Returns the version that a write is based on.
fn version_of(object: &Object) -> Result<String, StoreError> {
    let version = object.metadata.resource_version.clone().filter(|version| !version.is_empty());
    version.ok_or_else(|| {
        StoreError::invalid(&object.key(), "metadata.resourceVersion", "is missing: read the object first")
    })
}
