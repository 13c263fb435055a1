//! Flags and environment of the binary. A flag wins over the environment.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use clap::Parser;
use clap::builder::FalseyValueParser;
use ipnet::IpNet;
use trieste_control::store::Location;

use crate::state::Node;

/// Programs routes and rules to remote clusters on this node, and refuses their traffic where there is no way.
///
/// Reads Endpoints and Clusters from the local store. Ends on SIGTERM or SIGINT and leaves everything in place, so
/// that nothing for a remote cluster leaves in clear meanwhile; `--uninstall` removes it.
#[derive(Debug, Clone, Parser)]
#[command(name = "trieste-routeagent", version, about, long_about)]
pub struct Options {
    /// Where Endpoints and Clusters are read from: `dir:PATH`, `kube:` or `kube:KUBECONFIG` [default: `kube:` in a pod,
    /// else dir:STATE_DIR/store].
    #[arg(long, env = "TRIESTE_STORE", value_name = "LOCATION")]
    pub store: Option<Location>,

    /// Directory that holds the gateway's state; only used to find the store.
    #[arg(long, env = "TRIESTE_STATE_DIR", value_name = "PATH", default_value = "/var/lib/trieste")]
    pub state_dir: PathBuf,

    /// Namespace of the objects in the store.
    #[arg(long, env = "SUBMARINER_NAMESPACE", default_value = "submariner-operator")]
    pub namespace: String,

    /// Id of this node's cluster. Required, except with --uninstall.
    #[arg(long, env = "SUBMARINER_CLUSTERID")]
    pub cluster_id: Option<String>,

    /// Pod networks of this cluster, separated by commas; remote networks that overlap them are refused.
    #[arg(long, env = "SUBMARINER_CLUSTERCIDR", value_delimiter = ',', value_name = "CIDR")]
    pub cluster_cidrs: Vec<String>,

    /// Service networks of this cluster, separated by commas.
    #[arg(long, env = "SUBMARINER_SERVICECIDR", value_delimiter = ',', value_name = "CIDR")]
    pub service_cidrs: Vec<String>,

    /// Name of this node, as the gateway publishes it in its Endpoint [default: the host name].
    #[arg(long, env = "TRIESTE_HOSTNAME")]
    pub hostname: Option<String>,

    /// Set by Kubernetes in every pod: the cluster's own API server.
    #[arg(long, env = "KUBERNETES_SERVICE_HOST", hide = true)]
    pub kubernetes_service_host: Option<String>,

    /// The gateway's device, unless its Endpoint names another.
    #[arg(long, value_name = "DEVICE", default_value = "submariner")]
    pub tun_name: String,

    /// How long the traffic of a network stays refused after nobody in the store claims the network any more.
    ///
    /// With --once nothing of that kind is removed, unless this is 0.
    #[arg(long, env = "TRIESTE_CLOSE_GRACE", value_name = "SECONDS", default_value_t = crate::grace::DEFAULT.as_secs())]
    pub close_grace: u64,

    /// Make one pass and exit: 0 if nothing failed, 1 otherwise.
    #[arg(long)]
    pub once: bool,

    /// Print what a pass would change and what is not as it should be; change nothing.
    #[arg(long)]
    pub dry_run: bool,

    /// Remove every route, rule and filter of ours from this node and exit. The device is left to the gateway.
    ///
    /// With --dry-run, print what would be removed.
    #[arg(long, env = "SUBMARINER_UNINSTALL", value_parser = FalseyValueParser::new())]
    pub uninstall: bool,
}

impl Options {
    /// Says who this node is.
    ///
    /// # Errors
    ///
    /// The cluster id is missing, a network is malformed, or the host name cannot be read.
    pub fn node(&self) -> anyhow::Result<Node> {
        let cluster = self.cluster_id.clone().unwrap_or_default();
        if cluster.is_empty() {
            bail!("the id of this node's cluster is missing: pass --cluster-id or set SUBMARINER_CLUSTERID");
        }
        let pod_networks = networks("--cluster-cidrs", &self.cluster_cidrs)?;
        let service_networks = networks("--service-cidrs", &self.service_cidrs)?;
        ensure!(
            !(pod_networks.is_empty() && service_networks.is_empty()),
            "the networks of this cluster are missing: pass --cluster-cidrs or --service-cidrs, or set \
             SUBMARINER_CLUSTERCIDR or SUBMARINER_SERVICECIDR"
        );
        let (hostname, tun) = (self.hostname()?, device(&self.tun_name)?);
        let plugin = "generic".to_owned();
        Ok(Node { cluster, hostname, pod_networks, service_networks, tun, plugin, has_globalnet: false })
    }

    /// Returns how long a network stays closed after nobody claims it any more.
    #[must_use]
    pub fn close_grace(&self) -> Duration {
        Duration::from_secs(self.close_grace)
    }

    /// Returns where the store is.
    #[must_use]
    pub fn store(&self) -> Location {
        let is_pod = self.kubernetes_service_host.as_ref().is_some_and(|host| !host.is_empty());
        self.store.clone().unwrap_or_else(|| match is_pod {
            true => Location::Kube { path: None, context: None },
            false => Location::Dir(self.state_dir.join("store")),
        })
    }

    fn hostname(&self) -> anyhow::Result<String> {
        match &self.hostname {
            Some(name) if !name.is_empty() => Ok(name.clone()),
            _ => {
                let name = std::fs::read_to_string("/proc/sys/kernel/hostname")
                    .context("reading the host name; pass --hostname")?;
                Ok(name.trim().to_owned())
            }
        }
    }
}

/// Checks a device name by the kernel's rules.
fn device(name: &str) -> anyhow::Result<String> {
    ensure!(
        crate::source::is_device_name(name),
        "--tun-name {name}: a device name has 1 to 15 characters, none of them a slash, colon or space"
    );
    Ok(name.to_owned())
}

fn networks(flag: &str, texts: &[String]) -> anyhow::Result<Vec<IpNet>> {
    let given = texts.iter().map(|text| text.trim()).filter(|text| !text.is_empty());
    given
        .map(|text| {
            let net: IpNet = text
                .parse()
                .with_context(|| format!("{flag} {text}: expected a network such as 10.1.0.0/16"))?;
            Ok(net.trunc())
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(arguments: &[&str]) -> Options {
        Options::parse_from(["trieste-routeagent"].iter().chain(arguments))
    }

    #[test]
    fn networks_of_both_kinds_are_read_and_empty_entries_are_ignored() {
        let node = options(&[
            "--cluster-id=a",
            "--hostname=n",
            "--cluster-cidrs=10.1.0.0/16, fd00:1::/48,",
            "--service-cidrs=100.1.0.0/16",
        ])
        .node()
        .unwrap();
        let texts = |nets: &[IpNet]| nets.iter().map(ToString::to_string).collect::<Vec<_>>();
        assert_eq!(texts(&node.pod_networks), ["10.1.0.0/16", "fd00:1::/48"]);
        assert_eq!(texts(&node.service_networks), ["100.1.0.0/16"]);
    }

    #[test]
    fn errors_name_the_flag_and_what_to_do() {
        let error = |arguments: &[&str]| options(arguments).node().unwrap_err().to_string();
        assert!(error(&["--cluster-cidrs=10.1.0.0/16"]).contains("--cluster-id"));
        assert!(error(&["--cluster-id=a"]).contains("SUBMARINER_CLUSTERCIDR"));
        assert!(
            error(&["--cluster-id=a", "--cluster-cidrs=10.1.0.0/33"]).contains("--cluster-cidrs 10.1.0.0/33")
        );
        assert!(
            error(&["--cluster-id=a", "--cluster-cidrs=10.1.0.0/16", "--tun-name=a/b"])
                .contains("--tun-name")
        );
    }

    #[test]
    fn the_store_is_below_the_state_directory_unless_named() {
        assert_eq!(options(&["--state-dir=/s"]).store().to_string(), "dir:/s/store");
        assert_eq!(options(&["--store=dir:/x"]).store().to_string(), "dir:/x");
        assert_eq!(options(&["--kubernetes-service-host=100.1.0.1"]).store().to_string(), "kube:");
        let error = Options::try_parse_from(["trieste-routeagent", "--store=/x"]).unwrap_err().to_string();
        assert!(error.contains("dir:PATH"), "{error}");
    }
}
