//! The runner's fault table with the controller of routes for network plugins, with and without zones, and where another node
//! may have the leading gateway.

use std::time::Duration;

use serde_json::json;
use tokio::sync::watch;
use tokio::task::JoinSet;
use trieste_control::api::{Kind, Object, ObjectMeta};
use trieste_control::election::{self, ElectionConfig, Timings};
use trieste_control::runner::Handle;
use trieste_routeagent::zone::controller::spawn;
use trieste_routeagent::zone::{Hops, Zone};

use self::bed::{Stores, Subject};
use crate::memory_store::MemoryStore;

#[path = "../../../control/tests/all/runner/faults/bed.rs"]
mod bed;

bed::fault_rows!(SUBJECTS);

const NAMESPACE: &str = "submariner-operator";
/// The kinds of objects: for the gateway's zone, and for others.
const KINDS: [Kind; 2] = [Kind::GatewayRoute, Kind::NonGatewayRoute];
/// The next hops in objects of these kinds.
const HOPS: [&str; 2] = ["10.1.1.2", "100.88.0.2"];

const SUBJECTS: [Subject; 3] = [
    Subject {
        name: "RoutesController",
        seed: |_| {},
        candidate: None,
        start: |stores, _| Box::new(start(&stores.faulty, &zone(&[]))),
        disturb: |stores, number| disturb(stores, &KINDS[..1], number),
        is_settled: |stores, _| is_settled(&stores.faulty, &KINDS[..1]),
        most_writes: 100,
    },
    Subject {
        name: "RoutesController, with zones",
        seed: |_| {},
        candidate: None,
        start: |stores, _| Box::new(start(&stores.faulty, &zone(&HOPS[1..]))),
        disturb: |stores, number| disturb(stores, &KINDS, number),
        is_settled: |stores, _| is_settled(&stores.faulty, &KINDS),
        most_writes: 100,
    },
    Subject {
        name: "RoutesController, with zones and an election of the gateway",
        seed: |_| {},
        candidate: Some(|store, host| {
            election::spawn(store.clone(), ElectionConfig::gateway(NAMESPACE, host, Timings::default()))
        }),
        start: |stores, candidate| {
            let mut leadership = candidate.unwrap().leadership();
            let (sender, zones) = watch::channel(None);
            let mut tasks = JoinSet::new();
            tasks.spawn(async move {
                loop {
                    let is_leader = leadership.borrow_and_update().is_some();
                    sender.send_replace(is_leader.then(|| zone(&HOPS[1..])));
                    if leadership.changed().await.is_err() {
                        return;
                    }
                }
            });
            Box::new((spawn(stores.faulty.clone(), NAMESPACE, zones), tasks))
        },
        disturb: |stores, number| disturb(stores, &KINDS, number),
        is_settled: |stores, _| is_settled(&stores.faulty, &KINDS),
        most_writes: 100,
    },
];

/// Returns two clusters' networks, and the ways to the gateway.
fn zone(others: &[&str]) -> Zone {
    let hops = |hops: &[&str]| hops.iter().map(|hop| hop.parse().unwrap()).collect();
    let accepted = [("b", "10.2.0.0/16"), ("c", "10.3.0.0/16")]
        .map(|(cluster, network)| (cluster.to_owned(), [network.parse().unwrap()].into()));
    Zone {
        hops: Hops { own: hops(&HOPS[..1]), others: hops(others) },
        accepted: accepted.into(),
        closed: ["10.9.0.0/16".parse().unwrap()].into(),
    }
}

fn start(store: &MemoryStore, zone: &Zone) -> (Handle, watch::Sender<Option<Zone>>) {
    let (sender, zones) = watch::channel(None);
    sender.send_replace(Some(zone.clone()));
    (spawn(store.clone(), NAMESPACE, zones), sender)
}

/// Somebody changes one cluster's objects, takes out another one's, and adds some of none.
fn disturb(Stores { faulty: store, .. }: &Stores, kinds: &[Kind], number: usize) {
    for &kind in kinds {
        if store.names(kind).contains(&"b".to_owned()) {
            store.edit(kind, "b", |route| {
                route.body["spec"]["nextHops"] = json!([format!("192.0.2.{number}")]);
            });
        }
        if store.names(kind).contains(&"c".to_owned()) {
            store.remove(kind, "c");
        }
        let mut stray = Object::new(kind, ObjectMeta::new(NAMESPACE, format!("stray-{number}")));
        stray.body.insert("spec".to_owned(), json!({"nextHops": [], "remoteCIDRs": []}));
        store.put(stray);
    }
}

fn is_settled(store: &MemoryStore, kinds: &[Kind]) -> bool {
    let has_hop = |kind, name: &str, hop: &str| {
        store.peek(kind, name).is_some_and(|route| route.body["spec"]["nextHops"] == json!([hop]))
    };
    KINDS.into_iter().zip(HOPS).all(|(kind, hop)| match kinds.contains(&kind) {
        true => {
            let names = store.names(kind);
            names == ["0.closed.trieste.io", "b", "c"] && names.iter().all(|name| has_hop(kind, name, hop))
        }
        false => store.names(kind).is_empty(),
    })
}

/// A node whose gateway does not lead leaves what others have written.
#[tokio::test(start_paused = true)]
async fn without_a_leading_gateway_nothing_is_written() {
    let store = MemoryStore::default();
    let (sender, zones) = watch::channel(None);
    let _handle = spawn(store.clone(), NAMESPACE, zones);
    sender.send_replace(Some(zone(&HOPS[1..])));
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert!(is_settled(&store, &KINDS));
    sender.send_replace(None);
    tokio::time::sleep(Duration::from_secs(1)).await;
    store.take_log();
    disturb(&Stores { faulty: store.clone(), ..Stores::default() }, &KINDS, 0);
    tokio::time::sleep(Duration::from_secs(600)).await;
    assert_eq!(store.take_log(), Vec::<String>::new());
}
