//! The directory store passes the conformance suite, and keeps its word when files, writers and the kernel do not.

mod files;
mod quota;
mod root;
mod watchers;
mod writers;

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use futures::{Stream, StreamExt};
use tempfile::TempDir;
use trieste_control::api::{Kind, Object, ObjectKey};
use trieste_control::store::{
    Cache, DirOptions, DirStore, Store, StoreError, StoreEvent, conformance, modify,
};

const NS: &str = "submariner-operator";
const PATIENCE: Duration = Duration::from_secs(60);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_directory_is_a_store() {
    let root = tempfile::tempdir().unwrap();
    let store = DirStore::open(root.path().join("made/on/the/way")).unwrap();
    conformance::run(&store, NS, "submariner-k8s-broker").await;
}

/// A store in a fresh directory.
struct Lab {
    root: TempDir,
    store: DirStore,
}

impl Lab {
    fn new() -> Self {
        let root = tempfile::tempdir().unwrap();
        // No resync within a test's time: what is seen was heard.
        let options = DirOptions {
            debounce: Duration::from_millis(20),
            resync: Duration::from_secs(3600),
            ..Default::default()
        };
        let store = DirStore::open_with(root.path(), options).unwrap();
        Self { root, store }
    }

    fn dir(&self) -> PathBuf {
        self.root.path().join(NS).join("clusters")
    }

    fn file(&self, name: &str) -> PathBuf {
        self.dir().join(format!("{name}.yaml"))
    }

    fn write(&self, name: &str, text: &str) {
        fs::create_dir_all(self.dir()).unwrap();
        fs::write(self.dir().join(name), text).unwrap();
    }

    async fn names(&self) -> Vec<String> {
        let objects = self.store.list(Kind::Cluster, NS).await.unwrap();
        objects.into_iter().map(|object| object.metadata.name).collect()
    }

    fn set_aside(&self) -> Vec<PathBuf> {
        let entries = fs::read_dir(self.dir()).unwrap().map(|entry| entry.unwrap().path());
        entries.filter(|path| path.to_string_lossy().contains(".aside-")).collect()
    }
}

fn sample(name: &str) -> Object {
    conformance::sample(NS, name)
}

fn key(name: &str) -> ObjectKey {
    ObjectKey::new(Kind::Cluster, NS, name)
}

fn hand_written(name: &str) -> String {
    format!(
        "apiVersion: submariner.io/v1\nkind: Cluster\nmetadata:\n  name: {name}\nspec:\n  cluster_id: {name}\n  \
         cluster_cidr: []\n  global_cidr: []\n  service_cidr:\n  - 100.1.0.0/16\n"
    )
}

fn annotate(object: &mut Object) {
    object.metadata.annotations.insert("note".to_owned(), "1".to_owned());
}

async fn next(events: &mut (impl Stream<Item = StoreEvent> + Unpin)) -> StoreEvent {
    tokio::time::timeout(PATIENCE, events.next()).await.expect("an event should have come").unwrap()
}

async fn until(
    events: &mut (impl Stream<Item = StoreEvent> + Unpin),
    mirror: &mut Cache,
    is_reached: impl Fn(&Cache) -> bool,
) {
    while !is_reached(mirror) {
        let event = next(events).await;
        mirror.apply(&event);
    }
}
