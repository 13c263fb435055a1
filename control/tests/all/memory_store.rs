//! A store in memory, with faults: it can hang, fail, be slow, and lose the replies of writes that it has applied.

use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use futures::channel::mpsc::{UnboundedReceiver, UnboundedSender, unbounded};
use futures::stream::BoxStream;
use futures::{Stream, StreamExt as _};
use trieste_control::api::{Kind, Object, ObjectKey, ObjectMeta};
use trieste_control::store::{Store, StoreError, StoreEvent, check_size, conformance};

/// A store in memory. Clones share it.
#[derive(Clone, Default)]
pub(crate) struct MemoryStore {
    inner: Arc<Mutex<Inner>>,
}

#[derive(Default)]
struct Inner {
    objects: BTreeMap<ObjectKey, Object>,
    version: u64,
    watchers: Vec<(Kind, String, UnboundedSender<StoreEvent>)>,
    fault: Fault,
    /// Whether watches report nothing.
    is_silent: bool,
    log: Vec<String>,
}

/// What is wrong with a store.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Fault {
    /// Nothing.
    #[default]
    None,
    /// No request is answered, nothing is applied, watches are silent.
    Hangs,
    /// Every request fails at once.
    Fails,
    /// Nothing may be written or asked for; watches go on.
    Forbids,
    /// Annotations may not be set alone; everything else may be done.
    ForbidsPatches,
    /// Requests take so long; what they write is applied in the end.
    Slow(Duration),
    /// Writes are applied and fail.
    LosesReplies,
}

impl MemoryStore {
    /// Sets what is wrong from now on.
    pub(crate) fn set_fault(&self, fault: Fault) {
        self.lock().fault = fault;
    }

    /// Breaks every watch: who watches is told so, and then the whole list again.
    pub(crate) fn break_watches(&self) {
        let mut inner = self.lock();
        for (kind, namespace, watcher) in &inner.watchers {
            let _ = watcher.unbounded_send(StoreEvent::Unavailable(away("watch")));
            let listed = inner.objects.values().filter(|object| object.kind == *kind);
            let listed =
                listed.filter(|object| is_within(&object.metadata.namespace, namespace)).cloned().collect();
            let _ = watcher.unbounded_send(StoreEvent::Listed(listed));
        }
        inner.watchers.retain(|(_, _, watcher)| !watcher.is_closed());
    }

    /// Keeps watches from reporting anything, or lets them; break them afterwards, so that all is listed again.
    pub(crate) fn set_silent(&self, is_silent: bool) {
        self.lock().is_silent = is_silent;
    }

    /// Returns all objects.
    pub(crate) fn snapshot(&self) -> Vec<Object> {
        self.lock().objects.values().cloned().collect()
    }

    /// Reports these states as a watch that is late does.
    pub(crate) fn report(&self, objects: Vec<Object>) {
        let mut inner = self.lock();
        for object in objects {
            inner.tell(&object.key(), || StoreEvent::Applied(object.clone()));
        }
    }

    /// What was asked for since the last call, in order: verb and object.
    pub(crate) fn take_log(&self) -> Vec<String> {
        std::mem::take(&mut self.lock().log)
    }

    /// Notes a request that somebody else has answered.
    pub(crate) fn note(&self, line: &str) {
        self.lock().log.push(line.to_owned());
    }

    /// An object, past all faults.
    pub(crate) fn peek(&self, kind: Kind, name: &str) -> Option<Object> {
        let inner = self.lock();
        inner.objects.values().find(|object| object.kind == kind && object.metadata.name == name).cloned()
    }

    /// The names of all objects of a kind, past all faults.
    pub(crate) fn names(&self, kind: Kind) -> Vec<String> {
        let inner = self.lock();
        let objects = inner.objects.values().filter(|object| object.kind == kind);
        objects.map(|object| object.metadata.name.clone()).collect()
    }

    /// Somebody else changes an object, past all faults.
    pub(crate) fn edit(&self, kind: Kind, name: &str, edit: impl FnOnce(&mut Object)) {
        let mut object = self.peek(kind, name).expect("the object is there");
        edit(&mut object);
        self.lock().put(object);
    }

    /// Somebody else puts an object there, past all faults.
    pub(crate) fn put(&self, object: Object) {
        self.lock().put(object);
    }

    /// Somebody else deletes an object, past all faults.
    pub(crate) fn remove(&self, kind: Kind, name: &str) {
        let key = self.peek(kind, name).expect("the object is there").key();
        self.lock().remove(&key);
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().expect("no test panics while it holds the lock")
    }

    /// Lets a request pass the faults; `Err` when it fails, before or after `work`.
    async fn request<T>(
        &self,
        verb: &str,
        key: String,
        work: impl FnOnce(&mut Inner) -> Result<T, StoreError> + Send,
    ) -> Result<T, StoreError> {
        let fault = {
            let mut inner = self.lock();
            inner.log.push(format!("{verb} {key}"));
            inner.fault
        };
        match fault {
            Fault::None | Fault::ForbidsPatches => {}
            Fault::Hangs => std::future::pending().await,
            Fault::Fails => return Err(away(verb)),
            Fault::Forbids => {
                let source = io::Error::other("no right");
                return Err(StoreError::Forbidden { operation: verb.to_owned(), source });
            }
            Fault::Slow(duration) => tokio::time::sleep(duration).await,
            Fault::LosesReplies => {
                work(&mut self.lock())?;
                return Err(away(verb));
            }
        }
        work(&mut self.lock())
    }
}

impl Inner {
    fn put(&mut self, mut object: Object) -> Object {
        self.version += 1;
        object.metadata.resource_version = Some(self.version.to_string());
        let uid = self.objects.get(&object.key()).and_then(|old| old.metadata.uid.clone());
        object.metadata.uid = uid.or_else(|| Some(format!("uid-{}", self.version)));
        self.objects.insert(object.key(), object.clone());
        self.tell(&object.key(), || StoreEvent::Applied(object.clone()));
        object
    }

    fn remove(&mut self, key: &ObjectKey) {
        if let Some(object) = self.objects.remove(key) {
            self.tell(key, || StoreEvent::Deleted(object.clone()));
        }
    }

    fn tell(&mut self, key: &ObjectKey, event: impl Fn() -> StoreEvent) {
        if self.fault == Fault::Hangs || self.is_silent {
            return;
        }
        self.watchers.retain(|(kind, namespace, watcher)| {
            if *kind != key.kind || !is_within(&key.namespace, namespace) {
                return !watcher.is_closed();
            }
            watcher.unbounded_send(event()).is_ok()
        });
    }

    /// The newest state, if it has this version.
    fn check(&self, object: &Object) -> Result<(), StoreError> {
        let key = object.key();
        let found = self.objects.get(&key).ok_or_else(|| StoreError::NotFound(key.clone()))?;
        if found.metadata.resource_version == object.metadata.resource_version {
            return Ok(());
        }
        let version = |object: &Object| object.metadata.resource_version.clone().unwrap_or_default();
        Err(StoreError::Conflict { key, expected: version(object), found: version(found) })
    }
}

impl Store for MemoryStore {
    fn list_watch(
        &self,
        kind: Kind,
        namespace: &str,
    ) -> impl Stream<Item = StoreEvent> + Send + Unpin + use<> {
        let (sender, receiver): (_, UnboundedReceiver<StoreEvent>) = unbounded();
        let mut inner = self.lock();
        inner.log.push(format!("watch {kind}"));
        if inner.fault != Fault::Hangs {
            let objects = inner.objects.values();
            let listed = objects
                .filter(|object| object.kind == kind && is_within(&object.metadata.namespace, namespace));
            let _ = sender.unbounded_send(StoreEvent::Listed(listed.cloned().collect()));
        }
        inner.watchers.push((kind, namespace.to_owned(), sender));
        let stream: BoxStream<'static, StoreEvent> = receiver.boxed();
        stream
    }

    async fn create(&self, object: Object) -> Result<Object, StoreError> {
        let key = object.key();
        self.request("create", key.to_string(), |inner| {
            if inner.objects.contains_key(&key) {
                return Err(StoreError::AlreadyExists(key));
            }
            check_size(&object).map_err(|source| StoreError::Invalid { key, source })?;
            Ok(inner.put(object))
        })
        .await
    }

    async fn update(&self, object: Object) -> Result<Object, StoreError> {
        self.request("update", object.key().to_string(), |inner| {
            inner.check(&object)?;
            check_size(&object).map_err(|source| StoreError::Invalid { key: object.key(), source })?;
            Ok(inner.put(object))
        })
        .await
    }

    async fn annotate(
        &self,
        object: &Object,
        annotation: &str,
        value: Option<&str>,
    ) -> Result<ObjectMeta, StoreError> {
        let key = object.key();
        if self.lock().fault == Fault::ForbidsPatches {
            self.note(&format!("annotate {key}"));
            let source = io::Error::other("no right to patch");
            return Err(StoreError::Forbidden { operation: "annotate".to_owned(), source });
        }
        self.request("annotate", key.to_string(), |inner| {
            let found = inner.objects.get(&key).ok_or_else(|| StoreError::NotFound(key.clone()))?;
            if object.metadata.uid.is_some() && object.metadata.uid != found.metadata.uid {
                let uid = |object: &Object| object.metadata.uid.clone().unwrap_or_default();
                return Err(StoreError::Conflict { expected: uid(object), found: uid(found), key });
            }
            let mut annotated = found.clone();
            let annotations = &mut annotated.metadata.annotations;
            match value {
                Some(value) => drop(annotations.insert(annotation.to_owned(), value.to_owned())),
                None => drop(annotations.remove(annotation)),
            }
            if annotated == *found {
                return Ok(annotated.metadata);
            }
            Ok(inner.put(annotated).metadata)
        })
        .await
    }

    async fn delete(&self, key: &ObjectKey) -> Result<(), StoreError> {
        self.request("delete", key.to_string(), |inner| {
            if !inner.objects.contains_key(key) {
                return Err(StoreError::NotFound(key.clone()));
            }
            inner.remove(key);
            Ok(())
        })
        .await
    }

    async fn delete_version(&self, object: &Object) -> Result<(), StoreError> {
        self.request("delete", object.key().to_string(), |inner| {
            inner.check(object)?;
            inner.remove(&object.key());
            Ok(())
        })
        .await
    }

    async fn get(&self, key: &ObjectKey) -> Result<Option<Object>, StoreError> {
        self.request("get", key.to_string(), |inner| Ok(inner.objects.get(key).cloned())).await
    }

    async fn list(&self, kind: Kind, namespace: &str) -> Result<Vec<Object>, StoreError> {
        self.request("list", kind.to_string(), |inner| {
            let objects = inner.objects.values();
            let listed = objects
                .filter(|object| object.kind == kind && is_within(&object.metadata.namespace, namespace));
            Ok(listed.cloned().collect())
        })
        .await
    }
}

/// Whether a reader of this scope reads this namespace; an empty scope is all of them.
fn is_within(namespace: &str, scope: &str) -> bool {
    scope.is_empty() || namespace == scope
}

fn away(verb: &str) -> StoreError {
    StoreError::Unavailable { operation: verb.to_owned(), source: io::Error::other("the API is away") }
}

#[tokio::test]
async fn an_object_that_is_too_large_is_refused_here_too() {
    conformance::an_object_that_is_too_large_hides_no_other(&MemoryStore::default(), "ns").await;
}
