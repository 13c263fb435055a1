//! Agents of two clusters on directories: a service that one exports is imported by the other, and how long that takes.

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tempfile::TempDir;
use trieste_control::api::{Kind, Object, ObjectKey, label};
use trieste_control::store::{AnyStore, Location, Store as _};

const BROKER: &str = "submariner-k8s-broker";

/// An agent; it ends with the test.
struct Agent(Child);

impl Drop for Agent {
    fn drop(&mut self) {
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

fn command(cluster: &str, store: &Path, broker: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_trieste-discovery"));
    let dir = |path: &Path| format!("dir:{}", path.display());
    command.args(["agent", "--cluster-id", cluster, "--metrics", "off", "--identity", cluster]);
    command.args(["--store", &dir(store), "--broker", &dir(broker)]).stderr(Stdio::null());
    command
}

fn start(cluster: &str, store: &Path, broker: &Path) -> Agent {
    Agent(command(cluster, store, broker).spawn().unwrap())
}

fn open(path: &Path) -> AnyStore {
    AnyStore::open(&Location::Dir(path.to_owned())).unwrap()
}

async fn create(store: &AnyStore, value: Value) {
    store.create(Object::from_value(value).unwrap()).await.unwrap();
}

/// Waits until something is so. Returns how long that took.
async fn until(what: &str, is_so: impl AsyncFn() -> bool) -> Duration {
    let started = Instant::now();
    while !is_so().await {
        assert!(started.elapsed() < Duration::from_secs(60), "{what} is not so within a minute");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    started.elapsed()
}

async fn slices(store: &AnyStore, namespace: &str) -> Vec<Object> {
    let mut slices = store.list(Kind::EndpointSlice, namespace).await.unwrap();
    slices.retain(|slice| slice.metadata.labels.contains_key(label::SOURCE_CLUSTER));
    slices
}

#[tokio::test]
async fn a_service_that_one_cluster_exports_is_imported_by_the_other_within_moments() {
    let root = TempDir::new().unwrap();
    let [east_dir, west_dir, broker_dir] = ["east", "west", "broker"].map(|name| root.path().join(name));
    let [east, west, broker] = [&east_dir, &west_dir, &broker_dir].map(|path| open(path));
    for store in [&east, &west] {
        create(store, json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop"}})).await;
    }
    create(
        &east,
        json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "web", "namespace": "shop"},
        "spec": {"clusterIP": "10.96.0.7", "ports": [{"name": "http", "protocol": "TCP", "port": 80}]}}),
    )
    .await;
    create(
        &east,
        json!({"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
        "endpoints": [{"addresses": ["10.1.0.1"], "conditions": {"ready": true}}], "ports": [],
        "metadata": {"name": "web-1", "namespace": "shop", "labels": {"kubernetes.io/service-name": "web"}}}),
    )
    .await;
    let export = json!({"apiVersion": "multicluster.x-k8s.io/v1alpha1", "kind": "ServiceExport",
        "metadata": {"name": "web", "namespace": "shop"}});
    create(&east, export.clone()).await;
    let _east = start("east", &east_dir, &broker_dir);
    let _west = start("west", &west_dir, &broker_dir);
    until("the export", async || !slices(&west, "shop").await.is_empty()).await;

    // Now that both run: what a change takes.
    let key = ObjectKey::new(Kind::ServiceExport, "shop", "web");
    let import = ObjectKey::new(Kind::ServiceImport, "shop", "web");
    let (mut there, mut gone) = (Vec::new(), Vec::new());
    for _ in 0..5 {
        east.delete(&key).await.unwrap();
        gone.push(
            until("the unexport", async || {
                slices(&west, "shop").await.is_empty() && west.get(&import).await.unwrap().is_none()
            })
            .await,
        );
        until("the broker", async || broker.list(Kind::ServiceImport, BROKER).await.unwrap().is_empty())
            .await;
        create(&east, export.clone()).await;
        there.push(
            until("the export", async || {
                let clusters =
                    west.get(&import).await.unwrap().map(|import| import.body.get("status").cloned());
                !slices(&west, "shop").await.is_empty()
                    && clusters.flatten() == Some(json!({"clusters": [{"cluster": "east"}]}))
            })
            .await,
        );
    }
    there.sort();
    gone.sort();
    println!("export to import: {there:?}; unexport: {gone:?}");
    assert!(there[2] < Duration::from_millis(500), "{there:?}");
    assert!(gone[2] < Duration::from_millis(500), "{gone:?}");
    let export = east.get(&key).await.unwrap().unwrap();
    let conditions = export.body["status"]["conditions"].to_string();
    assert!(conditions.contains("Exported"), "{conditions}");

    // An uninstall ends by itself and leaves nothing of this cluster's.
    drop(_east);
    let ended = command("east", &east_dir, &broker_dir).arg("--uninstall").status().unwrap();
    assert!(ended.success());
    assert!(
        broker.list(Kind::ServiceImport, BROKER).await.unwrap().is_empty()
            && slices(&broker, BROKER).await.is_empty()
    );
    assert!(
        east.list(Kind::ServiceImport, "").await.unwrap().is_empty()
            && slices(&east, "shop").await.is_empty()
    );
    until("west", async || slices(&west, "shop").await.is_empty()).await;
}

#[test]
fn settings_that_are_missing_are_named() {
    let refused = Command::new(env!("CARGO_BIN_EXE_trieste-discovery")).arg("agent").output().unwrap();
    let text = String::from_utf8_lossy(&refused.stderr);
    assert!(!refused.status.success() && text.contains("SUBMARINER_CLUSTERID"), "{text}");
}
