//! Waiting for the own node to be Ready, as upstream's init container does before the route agent starts.

use std::time::Duration;

use tokio::time::sleep;
use tracing::info;
use trieste_control::api::{Kind, ObjectKey};
use trieste_control::store::{Store, StoreError};

use crate::nodes::is_ready;

/// From the specification: how often the Node is read.
const INTERVAL: Duration = Duration::from_secs(1);

/// Returns once the Node object of this name is Ready. Logs the reason for waiting whenever it changes.
pub async fn node_ready(store: &impl Store, name: &str) {
    let key = ObjectKey::new(Kind::Node, "", name);
    let mut last_reported = None;
    loop {
        let reason = match store.get(&key).await {
            Ok(Some(node)) if is_ready(&node) => break,
            Ok(Some(_)) => "its kubelet or network plugin is not ready".to_owned(),
            Ok(None) => "it does not exist; is NODE_NAME right?".to_owned(),
            Err(error @ StoreError::Forbidden { .. }) => {
                format!("{error}; allow the route agent's account to get nodes")
            }
            Err(error) => error.to_string(),
        };
        if last_reported.as_ref() != Some(&reason) {
            info!(object = %key, %reason, "waiting for the Node to be Ready");
            last_reported = Some(reason);
        }
        sleep(INTERVAL).await;
    }
    info!(object = %key, "the Node is Ready");
}
