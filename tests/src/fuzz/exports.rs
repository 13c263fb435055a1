//! The plan of service discovery's agent: whatever users of its cluster and others on the broker write, it does not panic, comes to
//! an end, and touches nothing that is not its own.
//!
//! Input: lines, each a byte that says where (even: this cluster, odd: the broker) and whether the object goes (from `p` on), and
//! an object as JSON. The stores keep the status apart, as API servers do.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::time::{Duration, Instant};

use serde_json::Value;
use trieste_control::api::{Kind, Object, ObjectKey, label};
use trieste_control::runner::{Context, Controller as _, Watch, Write};
use trieste_control::store::{StoreError, StoreEvent};
use trieste_discovery_agent::{AgentConfig, AgentController, Key};

const OWN: &str = "east";
const LOCAL: usize = 0;
const BROKER: usize = 1;
/// The label by which a slice belongs to a local service.
const LOCAL_SERVICE: &str = "kubernetes.io/service-name";
/// Most lines of one input, so that a run stays short.
const MOST_LINES: usize = 64;
/// Most rounds of plans after one event: one writes slices and imports, the next ones what follows from that in the other store, and
/// names that are taken are given up after a few.
const MOST_ROUNDS: usize = 32;

pub(super) fn target(data: &[u8]) {
    let mut bed = Bed::new();
    for line in data.split(|byte| *byte == b'\n').take(MOST_LINES) {
        let Some((first, document)) = line.split_first() else { continue };
        let Ok(value) = serde_json::from_slice::<Value>(document) else { continue };
        let Ok(mut object) = Object::from_value(value) else { continue };
        let store = usize::from(first % 2);
        if store == BROKER {
            object.metadata.namespace.clone_from(&bed.namespace);
        }
        bed.happen(store, object, *first >= b'p');
    }
}

/// The agent and its stores.
struct Bed {
    agent: AgentController,
    namespace: String,
    stores: [BTreeMap<ObjectKey, Object>; 2],
    version: u64,
    context: Context,
    changed: BTreeSet<Key>,
}

impl Bed {
    fn new() -> Self {
        let config = AgentConfig::new(OWN);
        let namespace = config.broker_namespace.clone();
        let mut agent = AgentController::new(config);
        let now = Instant::now();
        for watch in agent.watches() {
            drop(agent.observe(&watch, StoreEvent::Listed(Vec::new()), now));
        }
        let context = Context { now, wall: jiff::Timestamp::UNIX_EPOCH, leadership: None };
        Self {
            agent,
            namespace,
            stores: [BTreeMap::new(), BTreeMap::new()],
            version: 0,
            context,
            changed: BTreeSet::new(),
        }
    }

    /// Lets somebody put an object, or remove it, and the agent do what follows.
    fn happen(&mut self, store: usize, object: Object, goes: bool) {
        let key = object.key();
        if !goes {
            self.keep(store, object);
        } else if let Some(gone) = self.stores[store].remove(&key) {
            self.observe(store, StoreEvent::Deleted(gone));
        }
        for _ in 0..MOST_ROUNDS {
            // More than any wait between writes of one service.
            self.context.now += Duration::from_secs(120);
            let drained = self.agent.drain_changed(self.context.now);
            self.changed.extend(drained);
            if self.changed.is_empty() {
                return;
            }
            for key in std::mem::take(&mut self.changed) {
                for write in self.agent.reconcile(&key, &self.context).writes {
                    self.write(&key, &write);
                }
            }
        }
        panic!("plans for {:?} after {key} have no end", self.changed);
    }

    /// Takes in an object in its next version.
    fn keep(&mut self, store: usize, mut object: Object) -> Object {
        self.version += 1;
        object.metadata.resource_version = Some(self.version.to_string());
        self.stores[store].insert(object.key(), object.clone());
        self.observe(store, StoreEvent::Applied(object.clone()));
        object
    }

    fn observe(&mut self, store: usize, event: StoreEvent) {
        let (StoreEvent::Applied(object) | StoreEvent::Deleted(object)) = &event else { return };
        let key = object.key();
        let watch =
            self.agent.watches().into_iter().find(|watch: &Watch| watch.store == store && watch.covers(&key));
        let Some(watch) = watch else { return };
        let touched = self.agent.observe(&watch, event, self.context.now);
        self.changed.extend(touched);
    }

    /// Does what an API server would do.
    fn write(&mut self, of: &Key, write: &Write) {
        let store = usize::from(matches!(of, Key::Broker(_)));
        let key = write.key();
        let there = self.stores[store].get(&key).cloned();
        check(store, write, there.as_ref());
        let result = match (write, there) {
            (Write::Create(_), Some(_)) => Err(StoreError::AlreadyExists(key)),
            (Write::Create(object), None) => {
                let mut object = object.clone();
                if object.kind.has_status_subresource() {
                    object.body.remove("status");
                }
                Ok(StoreEvent::Applied(self.keep(store, object)))
            }
            (_, None) => Err(StoreError::NotFound(key)),
            (Write::Delete(_), Some(gone)) => {
                self.stores[store].remove(&key);
                self.observe(store, StoreEvent::Deleted(gone.clone()));
                Ok(StoreEvent::Deleted(gone))
            }
            (Write::Update(object) | Write::UpdateStatus(object), Some(there)) => {
                let is_status = matches!(write, Write::UpdateStatus(_));
                let mut kept = if is_status { there.clone() } else { object.clone() };
                let status = if is_status { object.body.get("status") } else { there.body.get("status") };
                match status.cloned() {
                    Some(status) => drop(kept.body.insert("status".to_owned(), status)),
                    None => drop(kept.body.remove("status")),
                }
                Ok(StoreEvent::Applied(self.keep(store, kept)))
            }
            (Write::Annotate { .. }, Some(_)) => panic!("nobody else writes what the agent writes"),
        };
        self.agent.written(of, write, result.as_ref(), self.context.now);
    }
}

/// Checks that a write is about what is the agent's.
fn check(store: usize, write: &Write, there: Option<&Object>) {
    let object = write.object().expect("no annotation is set alone");
    let is_create = matches!(write, Write::Create(_));
    if object.kind == Kind::ServiceExport {
        assert!(store == LOCAL && matches!(write, Write::UpdateStatus(_)), "an export is its user's");
        return;
    }
    assert!(matches!(object.kind, Kind::EndpointSlice | Kind::ServiceImport), "a {} is written", object.kind);
    if object.kind != Kind::EndpointSlice {
        return;
    }
    let has = |object: &Object, key: &str, value: &str| {
        object.metadata.labels.get(key).is_some_and(|found| found == value)
    };
    if let Some(there) = there.filter(|_| !is_create) {
        let is_ours = has(there, label::MANAGED_BY, label::LIGHTHOUSE_AGENT);
        assert!(store == BROKER || is_ours, "a slice of somebody else is written");
        assert!(store == LOCAL || there.metadata.origin() == Some(OWN), "another cluster's slice is written");
    }
    if !matches!(write, Write::Delete(_)) {
        assert!(!object.metadata.labels.contains_key(LOCAL_SERVICE), "a local service gets a slice");
        assert!(store == LOCAL || object.metadata.origin() == Some(OWN), "a slice for another cluster");
        let is_own = store == BROKER || has(object, label::SOURCE_CLUSTER, OWN);
        let loopback = addresses(object).into_iter().find(|address| address.is_loopback());
        assert!(is_own || loopback.is_none(), "{loopback:?} is copied");
    }
}

fn addresses(slice: &Object) -> Vec<IpAddr> {
    let list = |value: &Value, field: &str| value[field].as_array().cloned().unwrap_or_default();
    let endpoints = list(&slice.to_value(), "endpoints");
    let all = endpoints.iter().flat_map(|endpoint| list(endpoint, "addresses"));
    all.filter_map(|address| address.as_str()?.parse().ok()).collect()
}
