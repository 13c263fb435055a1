//! The stores that a configuration names: the cluster's own, and the broker's. Connections to both carry the outer mark:
//! what members claim must not lead them into a cable.

use std::time::Duration;

use anyhow::Context as _;
use trieste_control::store::kube::{Access, ServerSettings};
use trieste_control::store::{AnyStore, KubeStore, Location, StoreError};

use crate::config::{Broker, BrokerServer, Config};
use crate::marks::OUTER_MARK;
use crate::state;

/// How often a start asks a store that does not answer.
const RETRY: Duration = Duration::from_millis(250);
/// How long a start waits for an answer that is remembered, and for one that is not.
const TIMEOUT_REMEMBERED: Duration = Duration::from_millis(250);
const TIMEOUT: Duration = Duration::from_secs(5);

/// Asks a store until it answers, but not for long: a start does not depend on it. `None` if it did not.
pub(crate) async fn ask_at_start<T>(
    what: &str,
    is_remembered: bool,
    ask: impl AsyncFn() -> Result<T, StoreError>,
) -> Option<T> {
    let asked = async {
        loop {
            match ask().await {
                Ok(answer) => return answer,
                Err(error) => tracing::debug!(what, %error, "the store does not say yet what a start needs"),
            }
            tokio::time::sleep(RETRY).await;
        }
    };
    let timeout = if is_remembered { TIMEOUT_REMEMBERED } else { TIMEOUT };
    tokio::time::timeout(timeout, asked).await.ok()
}

/// Opens the cluster's own store. An API server need not be there.
///
/// # Errors
/// A directory that cannot be made.
pub(crate) fn local(config: &Config) -> anyhow::Result<AnyStore> {
    AnyStore::open_marked(&config.store, OUTER_MARK).context("opening the local store")
}

/// Attaches to the broker, if there is one. It need not be there.
///
/// # Errors
/// Settings that make no sense, by name.
pub(crate) fn broker(config: &Config) -> anyhow::Result<Option<AnyStore>> {
    match &config.broker {
        None => Ok(None),
        Some(Broker::At(location @ Location::Dir(path))) => {
            let memory = state::broker_memory(&config.state_dir, path);
            Ok(Some(AnyStore::attach_remembering(location, memory)))
        }
        Some(Broker::At(location)) => Ok(Some(AnyStore::attach_marked(location, OUTER_MARK))),
        Some(Broker::Kubernetes(server)) => {
            let access = access(server).context("the broker's settings (BROKER_K8S_…, broker-…)")?;
            Ok(Some(KubeStore::new(access).into()))
        }
    }
}

fn access(server: &BrokerServer) -> anyhow::Result<Access> {
    let settings = ServerSettings {
        server: server.server.clone(),
        token: server.token.clone(),
        ca: server.ca.clone(),
        insecure: server.insecure,
        // Upstream tries the system's authorities first (api §12.5).
        system_roots: true,
        ..ServerSettings::default()
    };
    let settings = match &server.secret_dir {
        Some(dir) => settings.with_secret_dir(dir),
        None => settings,
    };
    Ok(Access::server(settings)?.marked(OUTER_MARK))
}
