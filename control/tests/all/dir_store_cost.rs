//! What a heartbeat costs in a directory store: of the gateway that sets its annotation and follows the Gateway objects three
//! times, as its daemon does, and of another one that follows them as often. By the clocks of the machine:
//!
//! ```text
//! ./dev cargo test --release -p trieste-control --test control dir_store_cost -- --nocapture --test-threads 1
//! ```

use std::time::{Duration, Instant};

use futures::StreamExt as _;
use futures::stream::select_all;
use serde_json::{Value, json};
use tokio::time::{sleep, timeout};
use trieste_control::api::{Kind, Object, ObjectMeta, annotation};
use trieste_control::store::{DirStore, Store, StoreEvent};

const NS: &str = "submariner-operator";
/// How many connections the object has; as many as are quick without optimisation too.
const CONNECTIONS: usize = if cfg!(debug_assertions) { 50 } else { 1_000 };
const BEATS: u32 = 10;
/// Followers of the Gateway objects in one process of a gateway.
const FOLLOWERS: usize = 3;
/// How long one change may take to be seen.
const PATIENCE: Duration = Duration::from_secs(60);

#[tokio::test]
async fn a_heartbeat_of_many_connections_reaches_every_follower() {
    let root = tempfile::tempdir().unwrap();
    let store = DirStore::open(root.path()).unwrap();
    let made = store.create(gateway(CONNECTIONS)).await.unwrap();
    let rows = [("alone", None), ("beside another", Some(DirStore::attach(root.path())))];
    for (row, other) in rows {
        let stores = std::iter::once(&store).chain(&other);
        let streams = stores.flat_map(|store| (0..FOLLOWERS).map(|_| store.list_watch(Kind::Gateway, NS)));
        let mut events = select_all(streams);
        let all = events.len();
        for _ in 0..all {
            let event = timeout(PATIENCE, events.next()).await.unwrap();
            assert!(matches!(event, Some(StoreEvent::Listed(objects)) if objects.len() == 1));
        }
        sleep(Duration::from_millis(300)).await;
        let (begun, cpu) = (Instant::now(), cpu_time());
        for beat in 0..BEATS {
            let stamp = format!("{row} {beat}");
            store.annotate(&made, annotation::UPDATE_TIMESTAMP, Some(&stamp)).await.unwrap();
            let mut left = all;
            while left > 0 {
                let event = timeout(PATIENCE, events.next()).await.expect("a beat should have come by");
                let Some(StoreEvent::Applied(object)) = event else { panic!("{event:?}") };
                left -= usize::from(object.metadata.annotations[annotation::UPDATE_TIMESTAMP] == stamp);
            }
            // A real one comes when nothing is young any more.
            sleep(Duration::from_millis(200)).await;
        }
        show(row, begun.elapsed() / BEATS, cpu_time().saturating_sub(cpu) / BEATS);
    }
}

/// A gateway whose cables nobody answers.
fn gateway(connections: usize) -> Object {
    let endpoint = |number: usize| {
        let address = format!("10.9.{}.{}", number / 250, number % 250);
        json!({"cluster_id": format!("member-{number}"), "cable_name": format!("submariner-cable-member-{number}-{address}"),
            "hostname": format!("member-{number}-gw1"), "private_ip": address, "public_ip": "", "nat_enabled": false,
            "healthCheckIP": "10.1.1.1", "backend": "wireguard", "backend_config": {"publicKey": "x".repeat(44),
            "udp-port": "4500", "natt-discovery-port": "4490", "preferred-server": "false"},
            "subnets": ["10.1.0.0/16", "10.2.0.0/16", "10.3.0.0/24", "10.4.0.0/24"]})
    };
    let connection = |number| {
        json!({"status": "connecting", "statusMessage": "no answer from the other end yet", "endpoint": endpoint(number),
            "usingIP": "10.9.0.1", "latencyRTT": {"last": "0s", "min": "0s", "average": "0s", "max": "0s", "stdDev": "0s"}})
    };
    let connections: Vec<Value> = (0..connections).map(connection).collect();
    let mut object = Object::new(Kind::Gateway, ObjectMeta::new(NS, "gw1"));
    let status = json!({"version": "1", "haStatus": "active", "localEndpoint": endpoint(0), "statusFailure": "",
        "connections": connections});
    object.body.insert("status".to_owned(), status);
    object
}

/// Returns the time that the threads of this process have computed; those that have ended meanwhile, such as of other tests, are
/// not counted.
fn cpu_time() -> Duration {
    let tasks = std::fs::read_dir("/proc/self/task").expect("the kernel lists them");
    let texts = tasks.filter_map(|task| std::fs::read_to_string(task.ok()?.path().join("schedstat")).ok());
    Duration::from_nanos(texts.filter_map(|text| text.split_whitespace().next()?.parse::<u64>().ok()).sum())
}

#[expect(clippy::print_stdout, reason = "it is what is measured")]
fn show(row: &str, all: Duration, cpu: Duration) {
    println!(
        "{CONNECTIONS} connections, {row}: a beat has come by after {:.0} ms with the pause, and computed {:.1} ms",
        all.as_secs_f64() * 1e3,
        cpu.as_secs_f64() * 1e3,
    );
}
