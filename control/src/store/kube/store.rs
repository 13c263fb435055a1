//! The store itself: every operation as one request.

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::Stream;
use http::{Method, StatusCode};
use serde_json::json;

use super::access::Access;
use super::dial::Dial;
use super::failure::Doing;
use super::raw::{Raw, collection, outgoing};
use super::requests::{Requests, Verb};
use super::transport::{MAX_BODY, Transport};
use super::watch;
use crate::api::{Kind, Object, ObjectKey, check_namespace, check_object_name};
use crate::store::decode::{MEMBER_OBJECT_BYTES, OBJECT_BYTES};
use crate::store::quota::{Quota, has_quota};
use crate::store::{Store, StoreError, StoreEvent};

/// Ours: objects per page of a list, as client-go.
const PAGE: u32 = 500;
/// Ours: objects per page of a list of what members write, and how long it may be. Pages are a tenth of that in a set that
/// nobody attacks; where one is longer, smaller ones are asked for, down to one object, of which etcd takes 1.5 MiB.
const MEMBER_PAGE: u32 = 250;
const MEMBER_PAGE_BYTES: usize = 8 << 20;
/// Ours: how often a list that became too old while it was read is begun again.
const MAX_RESTARTS: usize = 3;
/// Ours: a list longer than this is not held. Twenty times the largest cluster that we plan for.
pub(super) const MAX_OBJECTS: usize = 100_000;

/// A store on an API server. Cheap to clone; clones share their connection and their counters.
#[derive(Clone)]
pub struct KubeStore {
    pub(super) transport: Arc<Transport>,
    pub(super) timeout: Duration,
}

impl KubeStore {
    /// How long a request may stay without answer. Longer than an API server under load takes.
    pub const DEFAULT_TIMEOUT: Duration = Duration::from_secs(10);

    /// How long a server may stay silent, over HTTP/1.1, before it is asked for a sign of life.
    const SILENCE: Duration = Duration::from_secs(15);

    /// A store on this API server. Connects when it is used.
    pub fn new(access: Access) -> Self {
        Self::over(access, None)
    }

    /// The same store, connection and counters, with another time-out for requests: an elector cannot wait long.
    #[must_use]
    pub fn with_timeout(&self, timeout: Duration) -> Self {
        Self { transport: Arc::clone(&self.transport), timeout }
    }

    /// How many requests there were, of this store and its clones.
    pub fn requests(&self) -> Requests {
        self.transport.requests()
    }

    /// How the API server is reached.
    pub fn access(&self) -> &Access {
        &self.transport.access
    }

    /// A store over other connections than the network's.
    pub(super) fn over(access: Access, dial: Option<Dial>) -> Self {
        let transport = Arc::new(Transport::new(access, dial, Self::SILENCE));
        Self { transport, timeout: Self::DEFAULT_TIMEOUT }
    }

    pub(super) fn doing(&self, verb: Verb, key: ObjectKey) -> Doing {
        Doing { verb, key, version: None, server: self.transport.access.to_string() }
    }

    /// Checks kind and namespace against each other, and the namespace's (and, if there is one, the object's) name. Only
    /// who means no single object may mean all namespaces.
    pub(super) fn check_scope(&self, key: &ObjectKey) -> Result<(), StoreError> {
        let shown = || ObjectKey::new(key.kind, key.namespace.escape_debug().to_string(), key.name.as_str());
        let outcome = match (key.kind.is_namespaced(), key.namespace.is_empty()) {
            (true, true) if key.name.is_empty() => Ok(()),
            (true, _) => check_namespace(&key.namespace).map_err(|error| error.to_string()),
            (false, true) => Ok(()),
            (false, false) => Err(format!("must be empty: a {} is in no namespace", key.kind)),
        };
        outcome.map_err(|reason| StoreError::invalid(&shown(), "metadata.namespace", reason))?;
        if key.name.is_empty() { Ok(()) } else { check_name(key) }
    }

    fn check_key(&self, key: &ObjectKey) -> Result<(), StoreError> {
        self.check_scope(key)?;
        check_name(key)
    }

    /// One request about one object, and the object that comes back.
    async fn request(
        &self,
        doing: &Doing,
        method: Method,
        path: &str,
        body: Option<Vec<u8>>,
    ) -> Result<Bytes, StoreError> {
        let answer = self.transport.call(doing.verb, method, path, body, self.timeout).await;
        let (code, body) = answer.map_err(|error| doing.lost(error))?;
        if code.is_success() { Ok(body) } else { Err(doing.refused(code, &body)) }
    }

    fn read(doing: &Doing, body: &[u8]) -> Result<Object, StoreError> {
        let kind = doing.key.kind;
        let decode =
            if has_quota(kind) { decode_one::<MEMBER_OBJECT_BYTES> } else { decode_one::<OBJECT_BYTES> };
        let object = decode(body, kind).map_err(|error| doing.nonsense(error))?;
        if object.metadata.name != doing.key.name {
            return Err(doing.nonsense(format_args!("it is about {}", object.key())));
        }
        Ok(object)
    }

    /// Replaces an object, or the part of it that `subresource` names, such as `/status`.
    async fn replace(&self, object: Object, subresource: &str) -> Result<Object, StoreError> {
        let version = Some(version_of(&object)?);
        let doing = Doing { version, ..self.doing(Verb::Update, object.key()) };
        self.check_key(&doing.key)?;
        let path = format!("{}{subresource}", path_of(&doing.key));
        let body = self.request(&doing, Method::PUT, &path, Some(outgoing(object, true))).await?;
        Self::read(&doing, &body)
    }

    async fn delete_with(&self, doing: Doing, preconditions: serde_json::Value) -> Result<(), StoreError> {
        let options = json!({"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": preconditions});
        let body = options.to_string().into_bytes();
        self.request(&doing, Method::DELETE, &path_of(&doing.key), Some(body)).await.map(drop)
    }
}

impl fmt::Debug for KubeStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KubeStore").field("access", self.access()).field("timeout", &self.timeout).finish()
    }
}

/// A page of a list.
#[derive(serde::Deserialize)]
struct Page<const LIMIT: usize> {
    #[serde(default)]
    metadata: PageMeta,
    /// A Go server writes an empty list as null.
    #[serde(default)]
    items: Option<Vec<Raw<LIMIT>>>,
}

/// What is decoded of a page: its objects, and where the next one begins.
type Decoded = (Vec<Object>, String);

fn decode_page<const LIMIT: usize>(body: &[u8], kind: Kind) -> serde_json::Result<Decoded> {
    let page: Page<LIMIT> = serde_json::from_slice(body)?;
    let objects = page.items.into_iter().flatten().map(|raw| raw.into_object(kind));
    Ok((objects.collect(), page.metadata.next))
}

fn decode_one<const LIMIT: usize>(body: &[u8], kind: Kind) -> serde_json::Result<Object> {
    let raw: Raw<LIMIT> = serde_json::from_slice(body)?;
    Ok(raw.into_object(kind))
}

#[derive(Default, serde::Deserialize)]
struct PageMeta {
    #[serde(default, rename = "continue")]
    next: String,
}

impl Store for KubeStore {
    fn list_watch(
        &self,
        kind: Kind,
        namespace: &str,
    ) -> impl Stream<Item = StoreEvent> + Send + Unpin + use<> {
        watch::stream(self.clone(), ObjectKey::new(kind, namespace, ""))
    }

    fn watch_one(&self, key: &ObjectKey) -> impl Stream<Item = StoreEvent> + Send + Unpin + use<> {
        watch::stream_one(self.clone(), key.clone())
    }

    async fn create(&self, object: Object) -> Result<Object, StoreError> {
        let doing = self.doing(Verb::Create, object.key());
        self.check_key(&doing.key)?;
        let path = collection(doing.key.kind, &doing.key.namespace);
        let body = self.request(&doing, Method::POST, &path, Some(outgoing(object, false))).await?;
        Self::read(&doing, &body)
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

    async fn delete(&self, key: &ObjectKey) -> Result<(), StoreError> {
        self.check_key(key)?;
        self.delete_with(self.doing(Verb::Delete, key.clone()), json!({})).await
    }

    async fn delete_version(&self, object: &Object) -> Result<(), StoreError> {
        let version = version_of(object)?;
        let preconditions = json!({"uid": object.metadata.uid, "resourceVersion": version});
        let doing = Doing { version: Some(version), ..self.doing(Verb::Delete, object.key()) };
        self.check_key(&doing.key)?;
        self.delete_with(doing, preconditions).await
    }

    async fn get(&self, key: &ObjectKey) -> Result<Option<Object>, StoreError> {
        self.check_key(key)?;
        let doing = self.doing(Verb::Get, key.clone());
        match self.request(&doing, Method::GET, &path_of(key), None).await {
            Ok(body) => Self::read(&doing, &body).map(Some),
            Err(StoreError::NotFound(_)) => Ok(None),
            Err(error) => Err(error),
        }
    }

    async fn list(&self, kind: Kind, namespace: &str) -> Result<Vec<Object>, StoreError> {
        let doing = self.doing(Verb::List, ObjectKey::new(kind, namespace, ""));
        self.check_scope(&doing.key)?;
        let path = collection(kind, namespace);
        let mut objects = Listing::new();
        let mut next = String::new();
        let mut restarts = 0;
        let (mut page, most) = (page_of(kind), body_of(kind));
        let mut quota = has_quota(kind).then(Quota::new);
        let decode =
            if has_quota(kind) { decode_page::<MEMBER_OBJECT_BYTES> } else { decode_page::<OBJECT_BYTES> };
        loop {
            let mut paged = format!("{path}?limit={page}");
            if !next.is_empty() {
                paged = format!("{paged}&continue={next}");
            }
            let limits = (self.timeout, most);
            let answer = self.transport.call_within(Verb::List, Method::GET, &paged, None, limits).await;
            let (code, body) = match answer {
                Err(error) if error.kind() == io::ErrorKind::FileTooLarge && page > 1 => {
                    page = smaller(page);
                    continue;
                }
                answer => answer.map_err(|error| doing.lost(error))?,
            };
            if code == StatusCode::GONE && !objects.is_empty() && restarts < MAX_RESTARTS {
                restarts += 1;
                // The list took too long to read in pages: what is left is of another version. Once more, whole.
                objects.clear();
                next.clear();
                continue;
            }
            if !code.is_success() {
                return Err(doing.refused(code, &body));
            }
            let (read, more) = decode(&body, kind).map_err(|error| doing.nonsense(error))?;
            for object in read {
                take_in(&mut objects, object, quota.as_mut());
            }
            if objects.len() > MAX_OBJECTS {
                return Err(doing.nonsense(format_args!("it has more than {MAX_OBJECTS} objects")));
            }
            next = escaped(&more);
            if next.is_empty() {
                return Ok(objects.into_values().collect());
            }
        }
    }
}

/// Objects of one kind in the order in which lists are given: by namespace and name.
pub(super) type Listing = BTreeMap<ObjectKey, Object>;

/// Adds an object to a list; those that are over the quota stay without their bodies.
pub(super) fn take_in(listing: &mut Listing, object: Object, quota: Option<&mut Quota<ObjectKey>>) {
    let key = object.key();
    let over = quota.map(|quota| quota.enter(&key, &object)).unwrap_or_default();
    listing.insert(key, object);
    for (key, reason) in over {
        if let Some(object) = listing.get_mut(&key) {
            *object = object.withhold(reason);
        }
    }
}

/// Gives how many objects a page of a list has at first.
pub(super) fn page_of(kind: Kind) -> u32 {
    if has_quota(kind) { MEMBER_PAGE } else { PAGE }
}

/// Gives how many bytes a page may have.
pub(super) fn body_of(kind: Kind) -> usize {
    if has_quota(kind) { MEMBER_PAGE_BYTES } else { MAX_BODY }
}

/// Gives the next smaller page to ask for, where one has been too long.
pub(super) fn smaller(page: u32) -> u32 {
    (page / 4).max(1)
}

fn check_name(key: &ObjectKey) -> Result<(), StoreError> {
    let shown = || ObjectKey::new(key.kind, key.namespace.as_str(), key.name.escape_debug().to_string());
    check_object_name(&key.name)
        .map_err(|error| StoreError::invalid(&shown(), "metadata.name", error.to_string()))
}

fn path_of(key: &ObjectKey) -> String {
    format!("{}/{}", collection(key.kind, &key.namespace), key.name)
}

/// The version that a write is based on.
fn version_of(object: &Object) -> Result<String, StoreError> {
    let version = object.metadata.resource_version.clone().filter(|version| !version.is_empty());
    version.ok_or_else(|| {
        StoreError::invalid(&object.key(), "metadata.resourceVersion", "is missing: read the object first")
    })
}

/// A text as a part of a query: everything but letters, digits and `-._~` as `%XX`.
fn escaped(text: &str) -> String {
    use std::fmt::Write as _;
    text.bytes().fold(String::with_capacity(text.len()), |mut escaped, byte| {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            escaped.push(char::from(byte));
        } else {
            write!(escaped, "%{byte:02X}").expect("a String takes everything");
        }
        escaped
    })
}
