//! Settings that all programs have, and forms of settings.

use std::net::SocketAddr;

use anyhow::{Context as _, bail};
use clap::Args;
use trieste_control::api::check_cluster_id;
use trieste_control::command_line::{LogOptions, StoreOptions};

/// Settings that all programs have.
#[derive(Debug, Clone, Args)]
pub struct Common {
    /// Where this cluster's store is.
    #[command(flatten)]
    pub store: StoreOptions,

    /// Id of this cluster. Required.
    #[arg(long, env = "SUBMARINER_CLUSTERID")]
    pub cluster_id: Option<String>,

    /// How much is logged.
    #[command(flatten)]
    pub log: LogOptions,
}

impl Common {
    /// Returns the id of this cluster.
    ///
    /// # Errors
    /// It is missing or cannot be.
    pub fn cluster(&self) -> anyhow::Result<&str> {
        let cluster = self.cluster_id.as_deref().unwrap_or_default();
        if cluster.is_empty() {
            bail!("the id of this cluster is missing: pass --cluster-id or set SUBMARINER_CLUSTERID");
        }
        check_cluster_id(cluster).context("--cluster-id (SUBMARINER_CLUSTERID)")?;
        Ok(cluster)
    }
}

/// Returns each of some addresses once, in their order.
pub(crate) fn distinct(addresses: impl IntoIterator<Item = SocketAddr>) -> Vec<SocketAddr> {
    let mut found = Vec::new();
    for address in addresses {
        if !found.contains(&address) {
            found.push(address);
        }
    }
    found
}
