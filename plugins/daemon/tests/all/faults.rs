//! The runner's fault table with the controllers of plugins' databases.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::sync::watch;
use trieste_control::api::{Kind, Object, ObjectMeta, RouteSpec};
use trieste_control::election::{self, Candidate, ElectionConfig, Timings};
use trieste_control::runner::Fence;
use trieste_plugin_sync::status::{Status, Wish};
use trieste_plugin_sync::{calico, spiderpool};

use self::bed::Subject;
use crate::memory_store::MemoryStore;
use crate::worker::{NAMESPACE, route};

#[path = "../../../../control/tests/all/runner/faults/bed.rs"]
mod bed;

bed::fault_rows!(SUBJECTS);

const SUBJECTS: [Subject; 2] = [
    Subject {
        name: "PoolsController",
        seed: |stores| seed_pools(&stores.faulty),
        candidate: Some(candidate),
        start: |stores, candidate| {
            let (store, sender) = (stores.faulty.clone(), watch::channel(Status::default()).0);
            Box::new(calico::spawn(store, NAMESPACE, Wish::Everything, fence(candidate), sender))
        },
        disturb: |stores, number| {
            move_cluster(&stores.faulty, number);
            stores.faulty.edit(Kind::IpPool, "default-ipv4-ippool", |pool| {
                pool.body["spec"]["ipipMode"] = json!("CrossSubnet");
            });
            if stores.faulty.names(Kind::IpPool).contains(&"submariner-c-10.3.0.0-16".to_owned()) {
                stores.faulty.remove(Kind::IpPool, "submariner-c-10.3.0.0-16");
            }
        },
        is_settled: |stores, disturbed| {
            let of_b = format!("submariner-b-{}", network(disturbed).replace('/', "-"));
            let found = stores.faulty.peek(Kind::IpPool, "default-ipv4-ippool");
            stores.faulty.names(Kind::IpPool) == ["default-ipv4-ippool", &of_b, "submariner-c-10.3.0.0-16"]
                && found.is_some_and(|pool| pool.body["spec"]["ipipMode"] == "Always")
        },
        most_writes: 100,
    },
    Subject {
        name: "HijackController",
        seed: |stores| seed_lists(&stores.faulty),
        candidate: Some(candidate),
        start: |stores, candidate| {
            let (store, sender) = (stores.faulty.clone(), watch::channel(Status::default()).0);
            Box::new(spiderpool::spawn(store, NAMESPACE, Wish::Everything, fence(candidate), sender))
        },
        disturb: |stores, number| {
            move_cluster(&stores.faulty, number);
            stores.faulty.edit(Kind::SpiderMultusConfig, "vlan100", |config| {
                config.body["spec"]["coordinator"]["hijackCIDR"] = json!(["192.0.2.0/24"]);
            });
        },
        is_settled: |stores, disturbed| {
            let has = |kind, name, path: &str, theirs: &str| {
                let found = stores.faulty.peek(kind, name).unwrap().body;
                let found = Value::Object(found.into_iter().collect());
                found.pointer(path) == Some(&json!([theirs, network(disturbed)]))
            };
            has(Kind::SpiderCoordinator, "default", "/spec/hijackCIDR", "169.254.0.0/16")
                && has(Kind::SpiderMultusConfig, "vlan100", "/spec/coordinator/hijackCIDR", "192.0.2.0/24")
        },
        most_writes: 100,
    },
];

fn candidate(store: &MemoryStore, host: &str) -> Candidate {
    let election = ElectionConfig {
        namespace: NAMESPACE.to_owned(),
        lease: "trieste-plugin-sync-lock".to_owned(),
        identity: host.to_owned(),
        timings: Timings::globalnet(),
    };
    election::spawn(store.clone(), election)
}

fn fence(candidate: Option<&Candidate>) -> Fence {
    Fence::of(candidate.cloned(), Duration::from_millis(500))
}

/// Returns the remote cluster's network after so many changes.
fn network(disturbed: usize) -> String {
    format!("10.{}.0.0/16", 100 + disturbed)
}

/// The remote cluster has another network.
fn move_cluster(store: &MemoryStore, number: usize) {
    let networks = [network(number + 1).parse().unwrap()];
    let spec = RouteSpec::new(&["172.31.1.11".parse().unwrap()], &networks);
    store.edit(Kind::GatewayRoute, "b", |route| {
        route.body.insert("spec".to_owned(), serde_json::to_value(&spec).unwrap());
    });
}

fn put(store: &MemoryStore, kind: Kind, namespace: &str, name: &str, spec: Value) {
    let mut object = Object::new(kind, ObjectMeta::new(namespace, name));
    object.body.insert("spec".to_owned(), spec);
    store.put(object);
}

/// Puts remote clusters, and the own pods' pool in one of IBM's clusters.
fn seed_pools(store: &MemoryStore) {
    store.put(route("b", &network(0)));
    store.put(route("c", "10.3.0.0/16"));
    let pool = json!({"cidr": "10.1.0.0/16", "natOutgoing": true, "ipipMode": "CrossSubnet"});
    put(store, Kind::IpPool, "", "default-ipv4-ippool", pool);
    let mut service = Object::new(Kind::Service, ObjectMeta::new(NAMESPACE, "submariner-gateway"));
    let annotation = "service.kubernetes.io/ibm-load-balancer-cloud-provider-ip-type";
    service.metadata.annotations.insert(annotation.to_owned(), "public".to_owned());
    store.put(service);
}

/// Puts a remote cluster, and lists with an entry of somebody's.
fn seed_lists(store: &MemoryStore) {
    store.put(route("b", &network(0)));
    let list = json!({"podCIDRType": "auto", "hijackCIDR": ["169.254.0.0/16"]});
    put(store, Kind::SpiderCoordinator, "", "default", list);
    let own = json!({"cniType": "macvlan", "coordinator": {"hijackCIDR": ["192.0.2.0/24"]}});
    put(store, Kind::SpiderMultusConfig, "kube-system", "vlan100", own);
    put(store, Kind::SpiderIpPool, "", "vlan100", json!({"subnet": "192.168.7.0/24"}));
}
