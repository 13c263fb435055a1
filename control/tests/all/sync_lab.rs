//! A store in memory that counts requests and can be made to misbehave, and what syncers are tried with.

use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use futures::Stream;
use futures::channel::mpsc::{UnboundedSender, unbounded};
use jiff::Timestamp;
use serde_json::json;
use trieste_control::api::{ApiError, Kind, Object, ObjectKey, ObjectMeta, endpoint_object_name, label};
use trieste_control::store::{Store, StoreError, StoreEvent};
use trieste_control::sync::SyncConfig;

pub(crate) const LOCAL_NS: &str = "submariner-operator";
pub(crate) const BROKER_NS: &str = "submariner-k8s-broker";

/// A store in memory. Clones are the same store.
#[derive(Clone, Default)]
pub(crate) struct Fake(Arc<Mutex<Inner>>);

/// What a store does to requests.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) enum Mood {
    #[default]
    Well,
    /// Neither lists nor writes are answered.
    Silent,
    /// Writes are not answered.
    SilentToWrites,
    /// Every answer takes this long.
    Slow(Duration),
    /// Writes are done at once, and answered after this long.
    SlowToAnswer(Duration),
    /// Writes are not allowed.
    Forbidding,
    /// Writes of this name are not valid.
    Rejecting(String),
    /// Takes every object but the one of this name, whose writer may not write that one.
    Denying(String),
    /// What is written loses this field of its spec.
    Pruning(String),
}

/// Requests since the beginning.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) creates: u64,
    pub(crate) updates: u64,
    pub(crate) deletes: u64,
    pub(crate) reads: u64,
    pub(crate) watches: u64,
}

impl Counts {
    pub(crate) fn writes(&self) -> u64 {
        self.creates + self.updates + self.deletes
    }
}

#[derive(Default)]
struct Inner {
    objects: BTreeMap<ObjectKey, Object>,
    versions: u64,
    clock: i64,
    mood: Mood,
    counts: Counts,
    watchers: Vec<Watcher>,
    delayed: Option<Vec<(usize, StoreEvent)>>,
}

struct Watcher {
    kind: Kind,
    namespace: String,
    events: UnboundedSender<StoreEvent>,
}

impl Fake {
    pub(crate) fn counts(&self) -> Counts {
        self.lock().counts
    }

    pub(crate) fn set_mood(&self, mood: Mood) {
        self.lock().mood = mood;
    }

    /// When objects that are created from now on say that they were created.
    pub(crate) fn set_clock(&self, second: i64) {
        self.lock().clock = second;
    }

    /// Creates or replaces an object, as somebody else would.
    pub(crate) fn put(&self, object: Object) -> Object {
        let mut inner = self.lock();
        match inner.objects.get(&object.key()).cloned() {
            None => inner.create(object),
            Some(found) => inner.replace(&found, object),
        }
    }

    /// Deletes an object, as somebody else would.
    pub(crate) fn take(&self, key: &ObjectKey) -> Option<Object> {
        self.lock().delete(key)
    }

    pub(crate) fn edit(&self, key: &ObjectKey, change: impl FnOnce(&mut Object)) {
        let mut object = self.find(key).expect("what is edited exists");
        change(&mut object);
        self.put(object);
    }

    pub(crate) fn find(&self, key: &ObjectKey) -> Option<Object> {
        self.lock().objects.get(key).cloned()
    }

    pub(crate) fn objects(&self) -> Vec<Object> {
        self.lock().objects.values().cloned().collect()
    }

    /// From now on events are kept back.
    pub(crate) fn delay_events(&self) {
        self.lock().delayed = Some(Vec::new());
    }

    /// Delivers what was kept back.
    pub(crate) fn release_events(&self) {
        let mut inner = self.lock();
        for (watcher, event) in inner.delayed.take().into_iter().flatten() {
            let _ = inner.watchers[watcher].events.unbounded_send(event);
        }
    }

    /// Ends all watches with an error; what happens until they are opened again is in no event.
    pub(crate) fn break_watches(&self) {
        for watcher in self.lock().watchers.drain(..) {
            let _ = watcher.events.unbounded_send(StoreEvent::Unavailable(away("watch")));
        }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap()
    }

    /// Waits as the mood has it, and refuses what it refuses.
    async fn answer(&self, key: &ObjectKey) -> Result<(), StoreError> {
        let mood = self.lock().mood.clone();
        match mood {
            Mood::Well | Mood::Pruning(_) => {}
            Mood::Silent | Mood::SilentToWrites => std::future::pending().await,
            Mood::Slow(time) => tokio::time::sleep(time).await,
            Mood::Forbidding => {
                let operation = format!("write {key}");
                return Err(StoreError::Forbidden {
                    operation,
                    source: io::ErrorKind::PermissionDenied.into(),
                });
            }
            Mood::Rejecting(name) if name == key.name => {
                let source = ApiError::field("spec.subnets", "is too long for this store");
                return Err(StoreError::Invalid { key: key.clone(), source });
            }
            Mood::Denying(name) if name == key.name => {
                let reason = format!("{name} is forbidden: a policy denied request");
                return Err(StoreError::Denied { key: key.clone(), reason });
            }
            Mood::Rejecting(_) | Mood::Denying(_) | Mood::SlowToAnswer(_) => {}
        }
        Ok(())
    }

    /// Waits, as the mood has it, between a write and its answer.
    async fn hold_answer(&self) {
        let mood = self.lock().mood.clone();
        if let Mood::SlowToAnswer(time) = mood {
            tokio::time::sleep(time).await;
        }
    }
}

impl Inner {
    fn create(&mut self, mut object: Object) -> Object {
        self.versions += 1;
        object.metadata.uid = Some(format!("uid-{}", self.versions));
        object.metadata.creation_timestamp = Some(Timestamp::from_second(self.clock).unwrap());
        self.store(object)
    }

    fn replace(&mut self, found: &Object, mut object: Object) -> Object {
        object.metadata.uid.clone_from(&found.metadata.uid);
        object.metadata.creation_timestamp = found.metadata.creation_timestamp;
        if object.same_content(found) {
            return found.clone();
        }
        self.store(object)
    }

    fn store(&mut self, mut object: Object) -> Object {
        self.versions += 1;
        object.metadata.resource_version = Some(self.versions.to_string());
        if let Mood::Pruning(field) = &self.mood
            && let Some(spec) = object.body.get_mut("spec").and_then(|spec| spec.as_object_mut())
        {
            spec.remove(field);
        }
        self.objects.insert(object.key(), object.clone());
        self.tell(&object, || StoreEvent::Applied(object.clone()));
        object
    }

    fn delete(&mut self, key: &ObjectKey) -> Option<Object> {
        let gone = self.objects.remove(key)?;
        self.tell(&gone, || StoreEvent::Deleted(gone.clone()));
        Some(gone)
    }

    fn tell(&mut self, object: &Object, event: impl Fn() -> StoreEvent) {
        for (index, watcher) in self.watchers.iter().enumerate() {
            if watcher.kind != object.kind || watcher.namespace != object.metadata.namespace {
                continue;
            }
            match &mut self.delayed {
                Some(delayed) => delayed.push((index, event())),
                None => drop(watcher.events.unbounded_send(event())),
            }
        }
    }
}

impl Store for Fake {
    fn list_watch(
        &self,
        kind: Kind,
        namespace: &str,
    ) -> impl Stream<Item = StoreEvent> + Send + Unpin + use<> {
        let (sender, events) = unbounded();
        let mut inner = self.lock();
        inner.counts.watches += 1;
        if inner.mood != Mood::Silent {
            let is_listed = |key: &ObjectKey| key.kind == kind && key.namespace == namespace;
            let listed = inner.objects.iter().filter(|(key, _)| is_listed(key));
            let listed = listed.map(|(_, object)| object.clone()).collect();
            let _ = sender.unbounded_send(StoreEvent::Listed(listed));
        }
        inner.watchers.push(Watcher { kind, namespace: namespace.to_owned(), events: sender });
        events
    }

    async fn create(&self, object: Object) -> Result<Object, StoreError> {
        self.lock().counts.creates += 1;
        self.answer(&object.key()).await?;
        if self.find(&object.key()).is_some() {
            return Err(StoreError::AlreadyExists(object.key()));
        }
        let created = self.lock().create(object);
        self.hold_answer().await;
        Ok(created)
    }

    async fn update(&self, object: Object) -> Result<Object, StoreError> {
        self.lock().counts.updates += 1;
        self.answer(&object.key()).await?;
        let replaced = {
            let mut inner = self.lock();
            let found = inner.newest(&object)?;
            inner.replace(&found, object)
        };
        self.hold_answer().await;
        Ok(replaced)
    }

    async fn annotate(&self, _: &Object, _: &str, _: Option<&str>) -> Result<ObjectMeta, StoreError> {
        panic!("a syncer writes whole objects");
    }

    async fn delete(&self, _: &ObjectKey) -> Result<(), StoreError> {
        panic!("a syncer deletes versions, never whatever is there");
    }

    async fn delete_version(&self, object: &Object) -> Result<(), StoreError> {
        self.lock().counts.deletes += 1;
        self.answer(&object.key()).await?;
        {
            let mut inner = self.lock();
            inner.newest(object)?;
            inner.delete(&object.key());
        }
        self.hold_answer().await;
        Ok(())
    }

    async fn get(&self, _: &ObjectKey) -> Result<Option<Object>, StoreError> {
        self.lock().counts.reads += 1;
        Err(away("get"))
    }

    async fn list(&self, _: Kind, _: &str) -> Result<Vec<Object>, StoreError> {
        self.lock().counts.reads += 1;
        Err(away("list"))
    }
}

impl Inner {
    fn newest(&self, object: &Object) -> Result<Object, StoreError> {
        let key = object.key();
        let Some(found) = self.objects.get(&key) else { return Err(StoreError::NotFound(key)) };
        let (have, based) = (&found.metadata, &object.metadata);
        if have.resource_version != based.resource_version || have.uid != based.uid {
            let version = |version: &Option<String>| version.clone().unwrap_or_default();
            let (expected, found) = (version(&based.resource_version), version(&have.resource_version));
            return Err(StoreError::Conflict { key, expected, found });
        }
        Ok(found.clone())
    }
}

fn away(operation: &str) -> StoreError {
    StoreError::Unavailable { operation: operation.to_owned(), source: io::ErrorKind::ConnectionReset.into() }
}

/// A configuration with upstream's namespaces and our times.
pub(crate) fn config(id: &str, subnet: &str) -> SyncConfig {
    SyncConfig::new(id, vec![subnet.parse().unwrap()])
}

pub(crate) fn cluster(namespace: &str, id: &str) -> Object {
    let mut object = Object::new(Kind::Cluster, ObjectMeta::new(namespace, id));
    let spec = json!({"cluster_id": id, "service_cidr": [], "cluster_cidr": [], "global_cidr": []});
    object.body.insert("spec".to_owned(), spec);
    object
}

pub(crate) fn endpoint(namespace: &str, id: &str, subnet: &str) -> Object {
    let name = endpoint_object_name(id, "cable").unwrap();
    let mut object = Object::new(Kind::Endpoint, ObjectMeta::new(namespace, name));
    let spec = json!({"cluster_id": id, "cable_name": "cable", "hostname": format!("{id}-gw1"), "subnets": [subnet],
        "private_ip": "192.0.2.1", "public_ip": "", "nat_enabled": false, "backend": "wireguard"});
    object.body.insert("spec".to_owned(), spec);
    object
}

pub(crate) fn labelled(mut object: Object, origin: &str) -> Object {
    object.metadata.labels.insert(label::CLUSTER_ID.to_owned(), origin.to_owned());
    object
}

pub(crate) fn endpoint_key(namespace: &str, id: &str) -> ObjectKey {
    ObjectKey::new(Kind::Endpoint, namespace, endpoint_object_name(id, "cable").unwrap())
}

pub(crate) fn cluster_key(namespace: &str, id: &str) -> ObjectKey {
    ObjectKey::new(Kind::Cluster, namespace, id)
}

/// Another cluster's objects appear on the broker.
pub(crate) fn join(broker: &Fake, id: &str, subnet: &str) {
    broker.put(labelled(cluster(BROKER_NS, id), id));
    broker.put(labelled(endpoint(BROKER_NS, id, subnet), id));
}

/// Our own objects, as a gateway publishes them.
pub(crate) fn publish(local: &Fake, id: &str, subnet: &str) {
    local.put(cluster(LOCAL_NS, id));
    local.put(endpoint(LOCAL_NS, id, subnet));
}

/// Lets virtual time pass, in which everything that can happen happens.
pub(crate) async fn pass(seconds: u64) {
    tokio::time::sleep(Duration::from_secs(seconds)).await;
}

/// As [`pass`], for long enough that nothing but waiting is left.
pub(crate) async fn settle() {
    tokio::time::sleep(Duration::from_millis(100)).await;
}
