//! The watches that plans ask for.
//!
//! What we have written is known before the store's events tell of it, and events from before our write come later than
//! its answer. To believe them again would be to forget what was given out: an event about such an object waits until
//! that of our write has come, or for [`PATIENCE`], since events in quick succession may come as one.

use std::collections::{BTreeMap, BTreeSet};
use std::future::{pending, poll_fn};
use std::task::Poll;
use std::time::Duration;

use futures::StreamExt as _;
use futures::stream::BoxStream;
use tokio::time::{Instant, sleep_until};

use super::objects::{Objects, Scope};
use crate::api::{Object, ObjectKey};
use crate::store::{Store, StoreEvent};

/// Ours: how long events about an object that we have written wait for that of our write.
const PATIENCE: Duration = Duration::from_secs(2);

/// What is followed, and what is known from it.
pub(super) struct Follow<S> {
    store: S,
    scopes: BTreeMap<Scope, Followed>,
    awaited: BTreeMap<ObjectKey, Awaited>,
    objects: Objects,
}

struct Followed {
    events: BoxStream<'static, StoreEvent>,
    outage: Option<String>,
}

/// An object that we have written.
struct Awaited {
    written: Object,
    until: Instant,
    /// What was said of it meanwhile.
    said: Option<StoreEvent>,
}

impl<S: Store> Follow<S> {
    pub(super) fn new(store: S) -> Self {
        let (scopes, awaited) = (BTreeMap::new(), BTreeMap::new());
        Self { store, scopes, awaited, objects: Objects::default() }
    }

    /// What is known.
    pub(super) fn objects(&self) -> &Objects {
        &self.objects
    }

    /// Follows these scopes and no others.
    pub(super) fn set(&mut self, needs: &BTreeSet<Scope>) {
        let gone: Vec<Scope> = self.scopes.keys().filter(|scope| !needs.contains(scope)).cloned().collect();
        for scope in gone {
            self.scopes.remove(&scope);
            self.objects.forget(&scope);
        }
        for scope in needs {
            let (kind, namespace) = scope;
            self.scopes.entry(scope.clone()).or_insert_with(|| Followed {
                events: self.store.list_watch(*kind, namespace).boxed(),
                outage: None,
            });
        }
    }

    /// Takes in that we have written an object.
    pub(super) fn wrote(&mut self, object: Object) {
        self.objects.put(object.clone());
        let awaited = Awaited { written: object, until: Instant::now() + PATIENCE, said: None };
        self.awaited.insert(awaited.written.key(), awaited);
    }

    /// Takes in that we have deleted an object. One with finalizers is still there: events say what becomes of it.
    pub(super) fn deleted(&mut self, key: &ObjectKey) {
        self.awaited.remove(key);
        let object = self.objects.get(key.kind, &key.namespace, &key.name);
        if object.is_some_and(|object| !object.metadata.has_finalizers()) {
            self.objects.remove(key);
        }
    }

    /// Waits for an event; gives whether it says anything new. Can be cancelled.
    pub(super) async fn changed(&mut self) -> bool {
        let until = self.awaited.values().map(|awaited| awaited.until).min();
        let next = poll_fn(|context| {
            for (scope, followed) in &mut self.scopes {
                // A store's streams do not end.
                if let Poll::Ready(Some(event)) = followed.events.poll_next_unpin(context) {
                    return Poll::Ready((scope.clone(), event));
                }
            }
            Poll::Pending
        });
        let (scope, event) = tokio::select! {
            next = next => next,
            () = sleep(until) => return self.give_up_waiting(),
        };
        let outage = match &event {
            StoreEvent::Unavailable(error) => Some(error.to_string()),
            StoreEvent::Listed(_) | StoreEvent::Applied(_) | StoreEvent::Deleted(_) => None,
        };
        let mut has_turned = false;
        if let Some(followed) = self.scopes.get_mut(&scope) {
            has_turned = followed.outage != outage;
            followed.outage = outage;
        }
        let event = self.sift(&scope, event);
        event.is_some_and(|event| self.objects.handle(&scope, event)) || has_turned
    }

    /// Why something cannot be read at present.
    pub(super) fn outage(&self, is_of_interest: impl Fn(&Scope) -> bool) -> Option<&str> {
        let mut interesting = self.scopes.iter().filter(|(scope, _)| is_of_interest(scope));
        interesting.find_map(|(_, followed)| followed.outage.as_deref())
    }

    /// Lets the event of our write through, and what comes after it; keeps the others.
    fn sift(&mut self, scope: &Scope, event: StoreEvent) -> Option<StoreEvent> {
        match event {
            StoreEvent::Applied(object) => match self.awaited.get_mut(&object.key()) {
                None => Some(StoreEvent::Applied(object)),
                Some(awaited) if is_same(&awaited.written, &object) => {
                    self.awaited.remove(&object.key());
                    Some(StoreEvent::Applied(object))
                }
                Some(awaited) => {
                    awaited.said = Some(StoreEvent::Applied(object));
                    None
                }
            },
            StoreEvent::Deleted(object) => match self.awaited.get(&object.key()) {
                // An incarnation before ours.
                Some(awaited) if awaited.written.metadata.uid != object.metadata.uid => None,
                _ => {
                    self.awaited.remove(&object.key());
                    Some(StoreEvent::Deleted(object))
                }
            },
            StoreEvent::Listed(mut objects) => {
                self.sift_list(scope, &mut objects);
                Some(StoreEvent::Listed(objects))
            }
            StoreEvent::Unavailable(_) => Some(event),
        }
    }

    fn sift_list(&mut self, scope: &Scope, objects: &mut Vec<Object>) {
        let (kind, namespace) = scope;
        self.awaited.retain(|key, awaited| {
            if key.kind != *kind || !namespace.is_empty() && key.namespace != *namespace {
                return true;
            }
            let listed = objects.iter_mut().find(|object| {
                object.metadata.name == key.name && object.metadata.namespace == key.namespace
            });
            if listed.as_ref().is_some_and(|listed| is_same(listed, &awaited.written)) {
                return false;
            }
            awaited.said = Some(match listed {
                Some(listed) => StoreEvent::Applied(std::mem::replace(listed, awaited.written.clone())),
                None => {
                    objects.push(awaited.written.clone());
                    StoreEvent::Deleted(awaited.written.clone())
                }
            });
            true
        });
    }

    /// Believes what was said of objects whose event has not come in time.
    fn give_up_waiting(&mut self) -> bool {
        let now = Instant::now();
        let late: Vec<ObjectKey> = self
            .awaited
            .iter()
            .filter(|(_, awaited)| awaited.until <= now)
            .map(|(key, _)| key.clone())
            .collect();
        let mut is_news = false;
        for key in late {
            if let Some(said) = self.awaited.remove(&key).and_then(|awaited| awaited.said) {
                is_news |= self.objects.handle(&(key.kind, key.namespace.clone()), said);
            }
        }
        is_news
    }
}

fn is_same(a: &Object, b: &Object) -> bool {
    a.metadata.resource_version == b.metadata.resource_version && a.metadata.uid == b.metadata.uid
}

async fn sleep(until: Option<Instant>) {
    match until {
        Some(until) => sleep_until(until).await,
        None => pending().await,
    }
}
