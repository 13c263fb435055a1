//! The program with a store in a directory.

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use trieste_control::api::{GatewayRoute, Object, Resource as _, RouteSpec};

const PROGRAM: &str = env!("CARGO_BIN_EXE_trieste-plugin-sync");
pub(crate) const NAMESPACE: &str = "submariner-operator";
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// A program that ends with the test.
pub(crate) struct Worker(pub(crate) Child);

impl Drop for Worker {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Returns the command of a worker for a plugin, with the store in `directory`.
pub(crate) fn command_for(plugin: &str, directory: &Path, identity: &str) -> Command {
    let mut command = Command::new(PROGRAM);
    command
        .args(["--store", &format!("dir:{}", directory.join("store").display()), "--namespace", NAMESPACE])
        .args([&format!("--network-plugin={plugin}"), "--identity", identity])
        .env("TRIESTE_PASS_FILE", directory.join(format!("{identity}.json")))
        .stderr(Stdio::null());
    command
}

/// Returns what the leading gateway's route agent writes of a cluster.
pub(crate) fn route(cluster: &str, network: &str) -> Object {
    let spec = RouteSpec::new(&["172.31.1.11".parse().unwrap()], &[network.parse().unwrap()]);
    GatewayRoute::new(NAMESPACE, cluster, spec).unwrap().to_object()
}
