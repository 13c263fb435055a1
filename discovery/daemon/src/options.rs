//! Settings that all programs have, and forms of settings.

use std::net::{Ipv6Addr, SocketAddr};

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

/// Where something is answered over HTTP; `None` for nowhere.
pub type Http = Option<SocketAddr>;

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

/// Parses where something is answered over HTTP: `off`, or an address and a port, without the former for all addresses.
pub(crate) fn parse_http(text: &str) -> Result<Http, String> {
    if text == "off" {
        return Ok(None);
    }
    let expected = || format!("`{text}` is no address and port such as [::]:8080, and not `off`");
    match text.strip_prefix(':') {
        Some(port) => {
            let port = port.parse().map_err(|_| expected())?;
            Ok(Some(SocketAddr::new(Ipv6Addr::UNSPECIFIED.into(), port)))
        }
        None => text.parse().map(Some).map_err(|_| expected()),
    }
}
