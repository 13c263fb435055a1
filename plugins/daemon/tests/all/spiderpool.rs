//! Spiderpool's lists, written by the program.

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use trieste_control::api::{Kind, Object, ObjectKey, ObjectMeta};
use trieste_control::store::{AnyStore, Location, Store as _};

use crate::worker::{NAMESPACE, PATIENCE, Worker, command_for, route};

fn object(kind: Kind, namespace: &str, name: &str, spec: Value) -> Object {
    let mut object = Object::new(kind, ObjectMeta::new(namespace, name));
    object.body.insert("spec".to_owned(), spec);
    object
}

fn coordinator() -> ObjectKey {
    ObjectKey::new(Kind::SpiderCoordinator, "", "default")
}

fn config() -> ObjectKey {
    ObjectKey::new(Kind::SpiderMultusConfig, "kube-system", "vlan100")
}

async fn until(store: &AnyStore, key: &ObjectKey, pointer: &str, expected: &[&str]) {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let found = store.get(key).await.unwrap().unwrap();
        let list = Value::Object(found.body.clone().into_iter().collect());
        if list.pointer(pointer) == Some(&json!(expected)) {
            return;
        }
        assert!(Instant::now() < deadline, "expected {expected:?}, found {list}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test]
async fn plugin_spiderpool_lists_follow_beside_calicos_worker_and_an_uninstall_leaves_others_entries() {
    let directory = tempfile::tempdir().unwrap();
    let store = AnyStore::open(&Location::Dir(directory.path().join("store"))).unwrap();
    let list = json!({"podCIDRType": "auto", "hijackCIDR": ["169.254.0.0/16"]});
    store.create(object(Kind::SpiderCoordinator, "", "default", list)).await.unwrap();
    let own = json!({"cniType": "macvlan", "coordinator": {"hijackCIDR": ["192.0.2.0/24"]}});
    store.create(object(Kind::SpiderMultusConfig, "kube-system", "vlan100", own)).await.unwrap();
    let pods = json!({"subnet": "192.168.7.0/24", "ips": ["192.168.7.20-192.168.7.40"]});
    store.create(object(Kind::SpiderIpPool, "", "vlan100", pods)).await.unwrap();
    store.create(route("b", "10.2.0.0/16")).await.unwrap();
    store.create(route("hostile", "192.168.7.0/25")).await.unwrap();

    // Each has an election of its own.
    let plugins = ["calico", "spiderpool"];
    let workers = plugins.map(|name| Worker(command_for(name, directory.path(), name).spawn().unwrap()));
    let (default, of_config) = ("/spec/hijackCIDR", "/spec/coordinator/hijackCIDR");
    until(&store, &coordinator(), default, &["169.254.0.0/16", "10.2.0.0/16"]).await;
    until(&store, &config(), of_config, &["192.0.2.0/24", "10.2.0.0/16"]).await;
    for lease in ["trieste-plugin-sync-lock", "trieste-spiderpool-sync-lock"] {
        assert!(store.get(&ObjectKey::new(Kind::Lease, NAMESPACE, lease)).await.unwrap().is_some());
    }
    store.create(route("c", "fd00:3::/48")).await.unwrap();
    until(&store, &coordinator(), default, &["169.254.0.0/16", "10.2.0.0/16", "fd00:3::/48"]).await;
    store.delete(&ObjectKey::new(Kind::GatewayRoute, NAMESPACE, "b")).await.unwrap();
    until(&store, &config(), of_config, &["192.0.2.0/24", "fd00:3::/48"]).await;
    // What somebody takes out comes back, beside what they have added.
    let mut changed = store.get(&coordinator()).await.unwrap().unwrap();
    changed.body["spec"]["hijackCIDR"] = json!(["169.254.0.0/16", "203.0.113.0/24"]);
    store.update(changed).await.unwrap();
    until(&store, &coordinator(), default, &["169.254.0.0/16", "203.0.113.0/24", "fd00:3::/48"]).await;

    drop(workers);
    let mut removal = command_for("spiderpool", directory.path(), "removal");
    assert!(removal.arg("--uninstall").status().unwrap().success());
    until(&store, &coordinator(), default, &["169.254.0.0/16", "203.0.113.0/24"]).await;
    until(&store, &config(), of_config, &["192.0.2.0/24"]).await;
}
