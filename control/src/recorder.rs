//! The latest events: a short memory for status, and Kubernetes Events for everybody else.
//!
//! Recording never waits and never fails: the newest events are kept here, and handed on through a bounded queue.
//! Repetitions are one event with a count.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use rand_core::OsRng;
use serde_json::json;
use tokio::sync::mpsc;

use crate::admin::{EventRecord, MAX_EVENTS, Severity};
use crate::api::{Kind, Object, ObjectKey, ObjectMeta, ensure_valid_name};
use crate::backoff::Backoff;
use crate::conditions::Conditions;
use crate::store::{Store, StoreError};

/// Events that wait to be written. Ours: more than that in a row say nothing new.
const QUEUE: usize = 64;
/// Least time between two Events. Ours: an API server must not notice a gateway that flaps.
const PACE: Duration = Duration::from_millis(500);
/// The same of a program whose events are about many objects.
const QUEUE_OF_MANY: usize = 1024;
const PACE_OF_MANY: Duration = Duration::from_millis(100);
/// How long to wait for an answer.
const ANSWER_WITHIN: Duration = Duration::from_secs(10);
/// The first and the longest wait while the store is away.
const RETRY: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(30));
/// How long nothing is written after a refusal.
const REFUSED_PAUSE: Duration = Duration::from_secs(600);
/// Longest message that Kubernetes takes, in bytes.
const MAX_MESSAGE: usize = 1024;

/// Takes down what happens. Cheap to clone; clones share the memory.
#[derive(Debug, Clone)]
pub struct Recorder {
    recent: Arc<Mutex<VecDeque<EventRecord>>>,
    counts: Arc<Mutex<EventCounts>>,
    queue: mpsc::Sender<Queued>,
}

/// The object that an event is about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct About {
    /// Its kind, namespace and name.
    pub key: ObjectKey,
    /// Its incarnation: `kubectl describe` shows the events that name it.
    pub uid: Option<String>,
}

/// An event that waits; without an object it is about the one that the writer is given.
#[derive(Debug)]
struct Queued {
    event: EventRecord,
    about: Option<About>,
}

/// How often something happened since start, by reason and severity.
pub type EventCounts = BTreeMap<(String, Severity), u64>;

/// The other end of a [`Recorder`], to be written somewhere by [`EventQueue::write_to`].
#[derive(Debug)]
pub struct EventQueue {
    queue: mpsc::Receiver<Queued>,
    component: &'static str,
    pace: Duration,
}

impl Recorder {
    /// Creates a gateway's recorder, and the receiver of its events.
    pub fn new() -> (Self, EventQueue) {
        Self::create("trieste-gateway", QUEUE, PACE)
    }

    /// Creates the recorder of a program of this name whose events are about many objects, and the receiver of its events.
    pub fn of_many(component: &'static str) -> (Self, EventQueue) {
        Self::create(component, QUEUE_OF_MANY, PACE_OF_MANY)
    }

    fn create(component: &'static str, queue: usize, pace: Duration) -> (Self, EventQueue) {
        let (sender, receiver) = mpsc::channel(queue);
        (
            Self { recent: Arc::default(), counts: Arc::default(), queue: sender },
            EventQueue { queue: receiver, component, pace },
        )
    }

    /// Takes down that something happened to an object. It is counted and handed on, whatever happened to others.
    pub fn record_about(&self, about: About, severity: Severity, reason: &str, message: impl Into<String>) {
        self.count(severity, reason);
        let (time, message) = (Timestamp::now(), message.into());
        tracing::debug!(object = %about.key, reason, note = %message, "event recorded");
        let event = EventRecord { time, severity, reason: reason.to_owned(), message, count: 1 };
        let _ = self.queue.try_send(Queued { event, about: Some(about) });
    }

    /// Takes down that something happened.
    pub fn record(&self, severity: Severity, reason: &str, message: impl Into<String>) {
        let message = message.into();
        match severity {
            Severity::Info => tracing::info!(reason, note = %message, "event recorded"),
            Severity::Warning | Severity::Error => tracing::warn!(reason, note = %message, "event recorded"),
        }
        self.count(severity, reason);
        let mut recent = self.recent.lock().unwrap_or_else(PoisonError::into_inner);
        let time = Timestamp::now();
        if let Some(last) = recent.back_mut().filter(|last| last.reason == reason && last.message == message)
        {
            last.count = last.count.saturating_add(1);
            last.time = time;
            return;
        }
        if recent.len() >= MAX_EVENTS {
            recent.pop_front();
        }
        let event = EventRecord { time, severity, reason: reason.to_owned(), message, count: 1 };
        recent.push_back(event.clone());
        // A full queue means that nobody takes events at present: they are in status and log all the same.
        let _ = self.queue.try_send(Queued { event, about: None });
    }

    /// Returns the number of events. Of reasons only the first [`MAX_EVENTS`] are told apart.
    pub fn counts(&self) -> EventCounts {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn count(&self, severity: Severity, reason: &str) {
        let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        let is_full = counts.len() >= MAX_EVENTS;
        let key = (reason.to_owned(), severity);
        let key = if is_full && !counts.contains_key(&key) { ("Other".to_owned(), severity) } else { key };
        *counts.entry(key).or_default() += 1;
    }

    /// Returns the newest events, oldest first.
    pub fn recent(&self) -> Vec<EventRecord> {
        self.recent.lock().unwrap_or_else(PoisonError::into_inner).iter().cloned().collect()
    }
}

impl EventQueue {
    /// Writes every event as a Kubernetes Event about its object, else about `about`, until the recorder is gone. A store that refuses is
    /// left alone for ten minutes; one that is away is told later what fits the queue.
    pub async fn write_to<S: Store>(mut self, store: S, about: ObjectKey, conditions: Conditions) {
        let mut number: u64 = 0;
        let started = Timestamp::now().as_millisecond();
        let default = About { key: about, uid: None };
        while let Some(Queued { event, about }) = self.queue.recv().await {
            number += 1;
            let about = about.as_ref().unwrap_or(&default);
            let object = event_object(&event, about, self.component, &format!("{started:x}-{number:x}"));
            let refused = write(&store, object).await.err();
            let refused = refused.map(|error| format!("Kubernetes Events cannot be written: {error}"));
            let pause = if refused.is_some() { REFUSED_PAUSE } else { self.pace };
            conditions.put("EventsNotWritten", Severity::Info, "", refused);
            tokio::time::sleep(pause).await;
        }
    }
}

/// Writes one event; tries on while the store is away, since what is to be told is often just that.
async fn write<S: Store>(store: &S, object: Object) -> Result<(), StoreError> {
    let mut backoff = Backoff::new(RETRY.0, RETRY.1);
    loop {
        match tokio::time::timeout(ANSWER_WITHIN, store.create(object.clone())).await {
            Ok(Ok(_) | Err(StoreError::AlreadyExists(_))) => return Ok(()),
            // Upstream's rights have no Events in them.
            Ok(Err(error @ StoreError::Forbidden { .. })) => return Err(error),
            Ok(Err(error)) if !error.is_unavailable() => return Err(error),
            Ok(Err(_)) | Err(_) => tokio::time::sleep(backoff.next_wait(&mut OsRng)).await,
        }
    }
}

/// Returns the event as an object of the core group.
fn event_object(event: &EventRecord, about: &About, component: &str, suffix: &str) -> Object {
    let About { key: about, uid } = about;
    let kind = match event.severity {
        Severity::Info => "Normal",
        Severity::Warning | Severity::Error => "Warning",
    };
    let name = format!("{}.{suffix}", ensure_valid_name(&about.name));
    // Events live in namespaces: those about objects of the whole cluster in the default one.
    let namespace = if about.namespace.is_empty() { "default" } else { &about.namespace };
    let mut object = Object::new(Kind::Event, ObjectMeta::new(namespace, name));
    let message: String = event.message.chars().take(MAX_MESSAGE / 4).collect();
    let time = Timestamp::from_second(event.time.as_second()).unwrap_or(event.time).to_string();
    let fields = json!({
        "involvedObject": {
            "apiVersion": about.kind.api_version(),
            "kind": about.kind.as_str(),
            "namespace": about.namespace,
            "name": about.name,
        },
        "type": kind,
        "reason": event.reason,
        "message": message,
        "source": { "component": component },
        "reportingComponent": component,
        "reportingInstance": about.name,
        "firstTimestamp": time,
        "lastTimestamp": time,
        "count": event.count,
    });
    if let serde_json::Value::Object(mut fields) = fields {
        if let Some(uid) = uid {
            fields["involvedObject"]["uid"] = json!(uid);
        }
        object.body = fields.into();
    }
    object
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_happens_again_is_counted_and_the_memory_is_bounded() {
        let (recorder, _queue) = Recorder::new();
        recorder.record(Severity::Info, "LeadershipAcquired", "we lead");
        recorder.record(Severity::Info, "LeadershipAcquired", "we lead");
        assert_eq!(recorder.recent().len(), 1);
        assert_eq!(recorder.recent()[0].count, 2);
        for index in 0..MAX_EVENTS {
            recorder.record(Severity::Warning, "Flap", index.to_string());
        }
        let recent = recorder.recent();
        assert_eq!((recent.len(), recent[0].message.as_str()), (MAX_EVENTS, "0"));
        let count = |reason: &str, severity| recorder.counts()[&(reason.to_owned(), severity)];
        assert_eq!(count("LeadershipAcquired", Severity::Info), 2);
        assert_eq!(count("Flap", Severity::Warning), 100);
    }

    #[test]
    fn an_event_is_about_its_object() {
        let event = EventRecord {
            time: "2026-11-21T05:57:39.9Z".parse().unwrap(),
            severity: Severity::Warning,
            reason: "LeadershipLost".to_owned(),
            message: "x".repeat(5000),
            count: 1,
        };
        let key = ObjectKey::new(Kind::Gateway, "submariner-operator", "a-gw1");
        let about = About { key, uid: None };
        let value = event_object(&event, &about, "trieste-gateway", "1-2").to_value();
        assert_eq!(value["apiVersion"], "v1");
        assert_eq!(value["metadata"]["name"], "a-gw1.1-2");
        assert_eq!(value["involvedObject"]["apiVersion"], "submariner.io/v1");
        assert_eq!(value["type"], "Warning");
        assert_eq!(value["lastTimestamp"], "2026-11-21T05:57:39Z");
        assert!(value["message"].as_str().unwrap().len() <= MAX_MESSAGE);
        assert!(value["involvedObject"].get("uid").is_none());
    }

    #[test]
    fn what_happens_to_two_objects_is_two_events() {
        let (recorder, mut queue) = Recorder::of_many("trieste-discovery");
        for name in ["web", "db"] {
            let key = ObjectKey::new(Kind::ServiceExport, "shop", name);
            let about = About { key, uid: Some(format!("uid-of-{name}")) };
            recorder.record_about(about, Severity::Info, "Exported", "it was exported");
        }
        for name in ["web", "db"] {
            let Queued { event, about } = queue.queue.try_recv().unwrap();
            let value = event_object(&event, &about.unwrap(), queue.component, "1-2").to_value();
            assert_eq!(value["metadata"]["namespace"], "shop");
            assert_eq!(value["metadata"]["name"], format!("{name}.1-2"));
            assert_eq!(value["involvedObject"]["uid"], format!("uid-of-{name}"));
            assert_eq!(value["reportingComponent"], "trieste-discovery");
        }
    }
}
