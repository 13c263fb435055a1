//! Calico's pools, written by the program.

use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::json;
use trieste_control::api::{Kind, Object, ObjectKey, ObjectMeta};
use trieste_control::store::{AnyStore, Location, Store as _};

use crate::worker::{NAMESPACE, PATIENCE, Worker, command_for, route};

fn command(directory: &std::path::Path, identity: &str) -> Command {
    command_for("calico", directory, identity)
}

async fn names(store: &AnyStore) -> Vec<String> {
    let pools = store.list(Kind::IpPool, "").await.unwrap();
    pools.into_iter().map(|pool| pool.metadata.name).collect()
}

async fn default_pool(store: &AnyStore) -> Object {
    store.get(&ObjectKey::new(Kind::IpPool, "", "default-ipv4-ippool")).await.unwrap().unwrap()
}

async fn until(store: &AnyStore, expected: &[&str]) {
    let deadline = Instant::now() + PATIENCE;
    while names(store).await != expected {
        assert!(Instant::now() < deadline, "expected {expected:?}, found {:?}", names(store).await);
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test]
async fn plugin_calico_of_two_workers_one_writes_the_other_takes_over_and_an_uninstall_leaves_others_pools() {
    let directory = tempfile::tempdir().unwrap();
    let store = AnyStore::open(&Location::Dir(directory.path().join("store"))).unwrap();
    let mut own = Object::new(Kind::IpPool, ObjectMeta::new("", "default-ipv4-ippool"));
    own.body.insert(
        "spec".to_owned(),
        json!({"cidr": "10.1.0.0/16", "natOutgoing": true, "ipipMode": "CrossSubnet"}),
    );
    store.create(own.clone()).await.unwrap();
    // IBM's ROKS.
    let mut service = Object::new(Kind::Service, ObjectMeta::new(NAMESPACE, "submariner-gateway"));
    let annotation = "service.kubernetes.io/ibm-load-balancer-cloud-provider-ip-type";
    service.metadata.annotations.insert(annotation.to_owned(), "public".to_owned());
    store.create(service).await.unwrap();
    store.create(route("b", "10.2.0.0/16")).await.unwrap();

    let mut workers = ["one", "two"].map(|name| Worker(command(directory.path(), name).spawn().unwrap()));
    until(&store, &["default-ipv4-ippool", "submariner-b-10.2.0.0-16"]).await;
    for name in ["one", "two"] {
        let deadline = Instant::now() + PATIENCE;
        while !command(directory.path(), name).arg("--check").status().unwrap().success() {
            assert!(Instant::now() < deadline, "{name} is not well");
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    // Whichever leads dies without a word.
    let lease = store
        .get(&ObjectKey::new(Kind::Lease, NAMESPACE, "trieste-plugin-sync-lock"))
        .await
        .unwrap()
        .unwrap();
    let leader = lease.body["spec"]["holderIdentity"].as_str().unwrap();
    let dying = usize::from(leader != "one");
    workers[dying].0.kill().unwrap();
    store.create(route("c", "fd00:3::/48")).await.unwrap();
    until(&store, &["default-ipv4-ippool", "submariner-b-10.2.0.0-16", "submariner-c-fd00-3---48"]).await;
    assert_eq!(default_pool(&store).await.body["spec"]["ipipMode"], "Always");
    // What somebody deletes comes back.
    store.delete(&ObjectKey::new(Kind::IpPool, "", "submariner-b-10.2.0.0-16")).await.unwrap();
    until(&store, &["default-ipv4-ippool", "submariner-b-10.2.0.0-16", "submariner-c-fd00-3---48"]).await;

    // One that is asked to stop leaves the pools, and is not well any more.
    let survivor = &mut workers[1 - dying].0;
    let stopped = Command::new("kill").args(["-s", "TERM", &survivor.id().to_string()]).status().unwrap();
    assert!(stopped.success() && survivor.wait().unwrap().success());
    let name = ["one", "two"][1 - dying];
    assert!(!command(directory.path(), name).arg("--check").status().unwrap().success());
    assert_eq!(names(&store).await.len(), 3);

    assert!(command(directory.path(), "three").arg("--uninstall").status().unwrap().success());
    assert_eq!(names(&store).await, ["default-ipv4-ippool"]);
    let left = default_pool(&store).await;
    assert_eq!((&left.body, &left.metadata.labels), (&own.body, &own.metadata.labels));
    assert_eq!(left.metadata.annotations, own.metadata.annotations);
}
