//! The directory store passes the conformance suite.
#![forbid(unsafe_code)]

use trieste_control::store::{DirStore, conformance};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_directory_is_a_store() {
    let root = tempfile::tempdir().unwrap();
    let store = DirStore::open(root.path().join("made/on/the/way")).unwrap();
    conformance::run(&store, "submariner-operator", "submariner-k8s-broker").await;
}
