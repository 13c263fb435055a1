//! Waiting for the own node to be Ready: what upstream's init container does before the route agent starts.

use std::time::Duration;

use tokio::time::sleep;
use tracing::info;
use trieste_control::api::{Kind, ObjectKey};
use trieste_control::store::{Store, StoreError};

use crate::nodes::is_ready;

/// From the specification: how often the Node is looked at.
const INTERVAL: Duration = Duration::from_secs(1);

/// Returns once the Node object of this name says Ready. Says what it waits for whenever that changes.
pub async fn node_ready(store: &impl Store, name: &str) {
    let key = ObjectKey::new(Kind::Node, "", name);
    let mut last_reported = None;
    loop {
        let missing = match store.get(&key).await {
            Ok(Some(node)) if is_ready(&node) => break,
            Ok(Some(_)) => format!("waiting for {key} to be Ready: its kubelet or network plugin is not"),
            Ok(None) => format!("waiting for {key}: there is none; is NODE_NAME right?"),
            Err(error @ StoreError::Forbidden { .. }) => {
                format!("waiting for {key}: {error}; allow the route agent's account to get nodes")
            }
            Err(error) => format!("waiting for {key}: {error}"),
        };
        if last_reported.as_ref() != Some(&missing) {
            info!("{missing}");
            last_reported = Some(missing);
        }
        sleep(INTERVAL).await;
    }
    info!("{key} is Ready");
}
