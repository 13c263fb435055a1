//! The runner's fault table with this controller, in either of its stores, and with an election.

use serde_json::json;
use trieste_control::api::{Kind, Object, ObjectMeta, annotation, label};
use trieste_control::election::{self, ElectionConfig};
use trieste_control::runner::Fence;
use trieste_discovery_agent::{AgentConfig, spawn};

use self::bed::Subject;
use crate::lab::{BROKER, OPERATOR, endpoint, service, slice};
use crate::memory_store::MemoryStore;

#[path = "../../../../control/tests/all/runner/faults/bed.rs"]
mod bed;

bed::fault_rows!(SUBJECTS);

const SUBJECTS: [Subject; 3] = [
    Subject {
        name: "AgentController, faults in the own store",
        seed: |stores| seed(&stores.faulty, &stores.well),
        candidate: None,
        start: |stores, _| Box::new(spawn(stores.faulty.clone(), stores.well.clone(), config(), Fence::Open)),
        disturb: |stores, number| disturb(&stores.faulty, &stores.well, number),
        is_settled: |stores, disturbed| is_settled(&stores.faulty, &stores.well, disturbed),
        most_writes: 100,
    },
    Subject {
        name: "AgentController, faults in the broker",
        seed: |stores| seed(&stores.well, &stores.faulty),
        candidate: None,
        start: |stores, _| Box::new(spawn(stores.well.clone(), stores.faulty.clone(), config(), Fence::Open)),
        disturb: |stores, number| disturb(&stores.well, &stores.faulty, number),
        is_settled: |stores, disturbed| is_settled(&stores.well, &stores.faulty, disturbed),
        most_writes: 100,
    },
    Subject {
        name: "AgentController, with an election",
        seed: |stores| seed(&stores.faulty, &stores.well),
        candidate: Some(|store, host| {
            election::spawn(store.clone(), ElectionConfig::globalnet(OPERATOR, host))
        }),
        start: |stores, candidate| {
            let settle = std::time::Duration::from_secs(1);
            let fence = Fence::Term { candidate: candidate.unwrap().clone(), settle };
            Box::new(spawn(stores.faulty.clone(), stores.well.clone(), config(), fence))
        },
        disturb: |stores, number| disturb(&stores.faulty, &stores.well, number),
        is_settled: |stores, disturbed| is_settled(&stores.faulty, &stores.well, disturbed),
        most_writes: 100,
    },
];

fn config() -> AgentConfig {
    AgentConfig::new("east")
}

fn put(store: &MemoryStore, value: serde_json::Value) {
    store.put(Object::from_value(value).unwrap());
}

/// Puts an exported service here, and one of another cluster on the broker.
fn seed(local: &MemoryStore, broker: &MemoryStore) {
    put(local, json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop"}}));
    put(local, service("web", &json!({"clusterIP": "10.96.0.7", "ports": [{"name": "http", "port": 80}]})));
    put(local, slice("web", "web-abcde", "IPv4", &json!([endpoint("10.1.0.1", true)])));
    put(
        local,
        json!({"apiVersion": "multicluster.x-k8s.io/v1alpha1", "kind": "ServiceExport",
        "metadata": {"name": "web", "namespace": "shop", "creationTimestamp": "2026-01-01T00:00:00Z"}}),
    );
    let mut foreign =
        Object::from_value(slice("api", "api-west", "IPv4", &json!([endpoint("10.97.0.7", true)]))).unwrap();
    foreign.metadata.namespace = BROKER.to_owned();
    foreign.metadata.labels = [
        (label::MANAGED_BY, label::LIGHTHOUSE_AGENT),
        (label::CLUSTER_ID, "west"),
        (label::SOURCE_CLUSTER, "west"),
        (label::SOURCE_NAMESPACE, "shop"),
        (label::SERVICE_NAME, "api"),
    ]
    .map(|(key, value)| (key.to_owned(), value.to_owned()))
    .into();
    broker.put(foreign);
    let mut import = Object::new(Kind::ServiceImport, ObjectMeta::new(BROKER, "api-shop"));
    import.metadata.annotations = [
        (label::SERVICE_NAME.to_owned(), "api".to_owned()),
        (label::SOURCE_NAMESPACE.to_owned(), "shop".to_owned()),
        (format!("{}west", annotation::TIMESTAMP_PREFIX), "1".to_owned()),
    ]
    .into();
    import
        .body
        .insert("spec".to_owned(), json!({"type": "ClusterSetIP", "ports": [{"name": "http", "port": 80}]}));
    import.body.insert("status".to_owned(), json!({"clusters": [{"cluster": "west"}]}));
    broker.put(import);
}

/// The own service gets another port, the other cluster's another address.
fn disturb(local: &MemoryStore, broker: &MemoryStore, number: usize) {
    local.edit(Kind::Service, "web", |service| {
        service.body["spec"]["ports"][0]["port"] = json!(1000 + number)
    });
    broker.edit(Kind::EndpointSlice, "api-west", |slice| {
        slice.body["endpoints"][0]["addresses"][0] = json!(format!("10.97.1.{number}"));
    });
}

fn is_settled(local: &MemoryStore, broker: &MemoryStore, disturbed: usize) -> bool {
    let last = disturbed.checked_sub(1);
    let port = json!(last.map_or(80, |last| 1000 + last));
    let address = json!(last.map_or_else(|| "10.97.0.7".to_owned(), |last| format!("10.97.1.{last}")));
    let has_port = |store: &MemoryStore, kind: Kind, name: &str, path: &str| {
        store.peek(kind, name).is_some_and(|object| {
            let body = serde_json::Value::Object(object.body.into_iter().collect());
            body.pointer(path) == Some(&port)
        })
    };
    let published = broker.names(Kind::EndpointSlice);
    let own = published.iter().find(|name| name.starts_with("web-"));
    let is_ready = local.peek(Kind::ServiceExport, "web").is_some_and(|export| {
        export.body.get("status").is_some_and(|status| status.to_string().contains("\"Exported\""))
    });
    let copy = local.peek(Kind::EndpointSlice, "api-west");
    is_ready
        && published.len() == 2
        && own.is_some_and(|own| has_port(broker, Kind::EndpointSlice, own, "/ports/0/port"))
        && has_port(broker, Kind::ServiceImport, "web-shop", "/spec/ports/0/port")
        && has_port(local, Kind::ServiceImport, "web", "/spec/ports/0/port")
        && copy.is_some_and(|copy| copy.body["endpoints"][0]["addresses"][0] == address)
        && local.names(Kind::ServiceImport).contains(&"api".to_owned())
}
