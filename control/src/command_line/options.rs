//! Options that several programs have.

use std::path::PathBuf;

use clap::Args;

use crate::logging;
use crate::parse::parse_bool;
use crate::store::Location;

/// Where this cluster's store is.
#[derive(Debug, Clone, Args)]
pub struct StoreOptions {
    /// This cluster's store: `dir:PATH`, `kube:` or `kube:KUBECONFIG` [default: `kube:` in a pod, else dir:STATE_DIR/store].
    #[arg(long, env = "TRIESTE_STORE", value_name = "LOCATION")]
    pub store: Option<Location>,

    /// The gateway's directory, whose store is used outside of a pod.
    #[arg(long, env = "TRIESTE_STATE_DIR", value_name = "PATH", default_value = "/var/lib/trieste")]
    pub state_dir: PathBuf,

    /// Set by Kubernetes in every pod: the cluster's own API server.
    #[arg(long, env = "KUBERNETES_SERVICE_HOST", hide = true)]
    pub kubernetes_service_host: Option<String>,
}

impl StoreOptions {
    /// Returns where the store is.
    pub fn location(&self) -> Location {
        let default = || Location::default_of(self.kubernetes_service_host.as_deref(), &self.state_dir);
        self.store.clone().unwrap_or_else(default)
    }
}

/// How much is logged.
#[derive(Debug, Clone, Args)]
pub struct LogOptions {
    /// Log more.
    #[arg(long, env = "SUBMARINER_DEBUG", num_args = 0..=1, default_value = "false", default_missing_value = "true", value_parser = parse_bool)]
    pub debug: bool,

    /// How much to log, in upstream's numbers: 3 is as --debug, 4 and more is everything.
    #[arg(long, env = "SUBMARINER_VERBOSITY", value_name = "LEVEL", default_value_t = 2)]
    pub verbosity: u8,
}

impl LogOptions {
    /// Returns what is logged unless `RUST_LOG` says otherwise.
    pub const fn filter(&self) -> &'static str {
        logging::filter(self.debug, self.verbosity)
    }
}
