//! Settings that all programs have, and forms of settings.

use std::net::{Ipv6Addr, SocketAddr};
use std::path::PathBuf;

use anyhow::{Context as _, bail};
use clap::Args;
use trieste_control::api::check_cluster_id;
use trieste_control::logging;
use trieste_control::parse::parse_bool;
use trieste_control::store::Location;

/// Settings that all programs have.
#[derive(Debug, Clone, Args)]
pub struct Common {
    /// This cluster's store: `dir:PATH`, `kube:` or `kube:KUBECONFIG` [default: `kube:` in a pod, else dir:STATE_DIR/store].
    #[arg(long, env = "TRIESTE_STORE", value_name = "LOCATION")]
    pub store: Option<Location>,

    /// The gateway's directory, whose store is used outside of a pod.
    #[arg(long, env = "TRIESTE_STATE_DIR", value_name = "PATH", default_value = "/var/lib/trieste")]
    pub state_dir: PathBuf,

    /// Id of this cluster. Required.
    #[arg(long, env = "SUBMARINER_CLUSTERID")]
    pub cluster_id: Option<String>,

    /// Log more.
    #[arg(long, env = "SUBMARINER_DEBUG", num_args = 0..=1, default_value = "false", default_missing_value = "true", value_parser = parse_bool)]
    pub debug: bool,

    /// How much to log, in upstream's numbers: 3 is as --debug, 4 and more is everything.
    #[arg(long, env = "SUBMARINER_VERBOSITY", value_name = "LEVEL", default_value_t = 2)]
    pub verbosity: u8,

    /// Set by Kubernetes in every pod: the cluster's own API server.
    #[arg(long, env = "KUBERNETES_SERVICE_HOST", hide = true)]
    pub kubernetes_service_host: Option<String>,
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

    /// Returns where this cluster's store is.
    #[must_use]
    pub fn store(&self) -> Location {
        let default = || Location::default_of(self.kubernetes_service_host.as_deref(), &self.state_dir);
        self.store.clone().unwrap_or_else(default)
    }

    /// Returns what is logged unless `RUST_LOG` says otherwise.
    #[must_use]
    pub const fn log_filter(&self) -> &'static str {
        logging::filter(self.debug, self.verbosity)
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
