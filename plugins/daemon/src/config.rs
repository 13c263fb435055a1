//! Flags and environment. A flag wins over the environment; an empty variable says nothing.

use std::ffi::{OsStr, OsString};
use std::path::PathBuf;

use anyhow::{Context as _, bail, ensure};
use clap::{CommandFactory as _, FromArgMatches as _, Parser};
use trieste_control::api::{check_cluster_id, check_namespace};
use trieste_control::command_line::{self, LogOptions, StoreOptions};
use trieste_control::pages::{PagesAddress, parse_address};
use trieste_control::parse::{Cidrs, parse_bool};
use trieste_control::process::host_name;
use trieste_control::store::Location;
use trieste_ovn::wanted::Topology;
use trieste_ovsdb::remote::Remotes;
use trieste_ovsdb::tls::TlsFiles;

use crate::ovn::{self, OvnConfig};

/// Default path of the file for `--check`.
const DEFAULT_FILE: &str = "/run/trieste/plugin-sync.json";

/// Writes what remote clusters need into the network plugin's own database.
///
/// Follows the GatewayRoute objects of the leading gateway's route agent. Ends on SIGTERM or SIGINT; what it has written stays.
#[derive(Debug, Clone, Parser)]
#[command(name = "trieste-plugin-sync", version = concat!("version: v", env!("CARGO_PKG_VERSION")))]
pub struct Options {
    /// Where this cluster's store is.
    #[command(flatten)]
    pub store: StoreOptions,

    /// Namespace of the objects of this cluster's gateways, and of the election's Lease.
    #[arg(long, env = "SUBMARINER_NAMESPACE", default_value = "submariner-operator")]
    pub namespace: String,

    /// Network plugin of this cluster, as join found it; `spiderpool` for the lists of Spiderpool, beside any of them.
    #[arg(long, env = "SUBMARINER_NETWORKPLUGIN", value_name = "NAME", default_value = "generic")]
    pub network_plugin: String,

    /// Id of this cluster; OVN-Kubernetes needs it.
    #[arg(long, env = "SUBMARINER_CLUSTERID", default_value = "")]
    pub cluster_id: String,

    /// Pod networks of this cluster, separated by commas; OVN-Kubernetes needs them.
    #[arg(long, env = "SUBMARINER_CLUSTERCIDR", default_value = "", value_name = "CIDRS")]
    pub cluster_cidrs: Cidrs,

    /// Service networks of this cluster, separated by commas.
    #[arg(long, env = "SUBMARINER_SERVICECIDR", default_value = "", value_name = "CIDRS")]
    pub service_cidrs: Cidrs,

    /// Name of this node's Node object; OVN-Kubernetes' zones are found by it.
    #[arg(long, env = "NODE_NAME", value_name = "NAME", default_value = "")]
    pub node_name: String,

    /// OVN's northbound database: `unix:PATH`, `tcp:HOST:PORT` or `ssl:HOST:PORT`, several of one cluster separated by commas.
    /// Behind a Unix socket it is this node's own; any other is the whole cluster's, and one worker is elected to write.
    #[arg(long, env = "TRIESTE_OVN_NB", value_name = "REMOTES", default_value = ovn::NORTHBOUND_SOCKETS)]
    pub ovn_northbound: Remotes,

    /// OVN's southbound database, in the same form; read with --ovn-topology=submariner-router alone.
    #[arg(long, env = "TRIESTE_OVN_SB", value_name = "REMOTES", default_value = ovn::SOUTHBOUND_SOCKETS)]
    pub ovn_southbound: Remotes,

    /// Where OVN leads packets to remote clusters: by policies on its own router (`cluster-router`), or by a router of
    /// Submariner's own to the gateway node's external switch (`submariner-router`).
    #[arg(long, env = "TRIESTE_OVN_TOPOLOGY", value_name = "TOPOLOGY", default_value = "cluster-router", value_parser = topology)]
    pub ovn_topology: Topology,

    /// Private key for OVN's databases, PEM; with its certificate and CA read for each connection by `ssl:`.
    #[arg(long, env = "OVN_PK", value_name = "FILE", default_value = "/etc/trieste/ovn/tls.key")]
    pub ovn_key: PathBuf,

    /// Certificate for OVN's databases, PEM.
    #[arg(long, env = "OVN_CERT", value_name = "FILE", default_value = "/etc/trieste/ovn/tls.crt")]
    pub ovn_certificate: PathBuf,

    /// Certificate authority of OVN's databases, PEM.
    #[arg(long, env = "OVN_CA", value_name = "FILE", default_value = "/etc/trieste/ovn/ca.crt")]
    pub ovn_ca: PathBuf,

    /// Name of this candidate of the election [default: the host's].
    #[arg(long, env = "POD_NAME", value_name = "NAME")]
    pub identity: Option<String>,

    /// Whether one of several workers is elected to write, by a Lease.
    #[arg(long, env = "TRIESTE_LEADER_ELECTION", num_args = 0..=1, default_value = "true", default_missing_value = "true", value_parser = parse_bool)]
    pub leader_election: bool,

    /// File that says how the work went, for --check.
    #[arg(long, env = "TRIESTE_PASS_FILE", value_name = "PATH", default_value = DEFAULT_FILE)]
    pub pass_file: PathBuf,

    /// Where /health, /ready and /metrics are answered; `off` for nowhere.
    #[arg(long, env = "TRIESTE_SYNC_METRICS", value_name = "ADDRESS:PORT", default_value = "off", value_parser = parse_address)]
    pub metrics: PagesAddress,

    /// How much is logged.
    #[command(flatten)]
    pub log: LogOptions,

    /// Exit 0 if the running worker can read and write what it needs, else say why not and exit 1.
    #[arg(long)]
    pub check: bool,

    /// Remove everything that workers have written into the plugin's database, and exit.
    #[arg(long, env = "SUBMARINER_UNINSTALL", num_args = 0..=1, default_value = "false", default_missing_value = "true", value_parser = parse_bool)]
    pub uninstall: bool,
}

/// A network plugin with a database of its own.
#[derive(Debug, Clone)]
pub enum Plugin {
    /// Calico: IPPools.
    Calico,
    /// OVN-Kubernetes: rows of OVN's northbound database.
    Ovn(Box<OvnConfig>),
    /// Spiderpool: lists of networks that pods reach by way of their node.
    Spiderpool,
}

impl Plugin {
    /// Returns its name.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Calico => "calico",
            Self::Ovn(_) => "ovn-kubernetes",
            Self::Spiderpool => "spiderpool",
        }
    }

    /// Returns the Lease of the election. A cluster may have Spiderpool beside another one.
    #[must_use]
    pub const fn lease(&self) -> &'static str {
        match self {
            Self::Calico | Self::Ovn(_) => "trieste-plugin-sync-lock",
            Self::Spiderpool => "trieste-spiderpool-sync-lock",
        }
    }
}

/// What the program does.
#[derive(Debug, Clone)]
pub struct Config {
    /// The plugin.
    pub plugin: Plugin,
    /// This cluster's store.
    pub store: Location,
    /// The namespace of the objects.
    pub namespace: String,
    /// The name of this candidate; `None` without an election.
    pub candidate: Option<String>,
    /// The file for `--check`.
    pub pass_file: PathBuf,
    /// Where pages are answered.
    pub pages: PagesAddress,
    /// Which of its tasks is done.
    pub task: Task,
}

/// What is to be done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Task {
    /// The work, until a signal.
    Work,
    /// The check of a running worker.
    Check,
    /// The removal of everything.
    Uninstall,
}

impl Options {
    /// Reads flags and environment. An empty variable says nothing: manifests set variables that they have nothing for.
    ///
    /// # Errors
    /// The error of clap, which prints itself and sets the exit code.
    pub fn from_flags_and_environment(
        arguments: impl IntoIterator<Item = OsString>,
        variable: impl Fn(&OsStr) -> Option<OsString>,
    ) -> Result<Self, clap::Error> {
        let matches = command_line::matches(Self::command(), arguments, variable, &[])?;
        Self::from_arg_matches(&matches)
    }

    /// Checks everything.
    ///
    /// # Errors
    /// What is missing or cannot be, with its flag and variable.
    pub fn config(&self) -> anyhow::Result<Config> {
        check_namespace(&self.namespace).context("--namespace (SUBMARINER_NAMESPACE)")?;
        let task = match (self.check, self.uninstall) {
            (true, _) => Task::Check,
            (false, true) => Task::Uninstall,
            (false, false) => Task::Work,
        };
        let plugin = self.plugin(task)?;
        let is_shared = !matches!(&plugin, Plugin::Ovn(config) if config.is_of_node());
        let is_elected = self.leader_election && task == Task::Work && is_shared;
        Ok(Config {
            plugin,
            store: self.store.location(),
            namespace: self.namespace.clone(),
            candidate: is_elected.then(|| self.identity()).transpose()?,
            pass_file: self.pass_file.clone(),
            pages: self.metrics.filter(|_| task == Task::Work),
            task,
        })
    }

    fn plugin(&self, task: Task) -> anyhow::Result<Plugin> {
        match self.network_plugin.to_lowercase().as_str() {
            "calico" => Ok(Plugin::Calico),
            "spiderpool" => Ok(Plugin::Spiderpool),
            "ovnkubernetes" => self.ovn(task).map(|config| Plugin::Ovn(Box::new(config))),
            other => bail!(
                "network plugin `{other}` has no database to write to: this program serves calico, ovnkubernetes and \
                 spiderpool; see \
                 --network-plugin (SUBMARINER_NETWORKPLUGIN)"
            ),
        }
    }

    fn ovn(&self, task: Task) -> anyhow::Result<OvnConfig> {
        let networks = [&self.cluster_cidrs.0[..], &self.service_cidrs.0[..]].concat();
        if task == Task::Work {
            check_cluster_id(&self.cluster_id).context("--cluster-id (SUBMARINER_CLUSTERID)")?;
            ensure!(
                !self.cluster_cidrs.0.is_empty(),
                "the pod networks of this cluster are missing, which no remote cluster may have: pass --cluster-cidrs or \
                 set SUBMARINER_CLUSTERCIDR"
            );
            ensure!(
                !self.node_name.is_empty(),
                "the name of this node is missing: pass --node-name or set NODE_NAME"
            );
        }
        Ok(OvnConfig {
            cluster: self.cluster_id.clone(),
            networks,
            node: self.node_name.clone(),
            topology: self.ovn_topology,
            northbound: self.ovn_northbound.clone(),
            southbound: self.ovn_southbound.clone(),
            tls: TlsFiles {
                key: self.ovn_key.clone(),
                certificate: self.ovn_certificate.clone(),
                ca: self.ovn_ca.clone(),
            },
        })
    }

    fn identity(&self) -> anyhow::Result<String> {
        if let Some(name) = self.identity.clone().filter(|name| !name.is_empty()) {
            return Ok(name);
        }
        host_name().context("reading the host name; pass --identity or set POD_NAME")
    }
}

/// Reads where packets are led.
fn topology(text: &str) -> Result<Topology, String> {
    match text {
        "cluster-router" => Ok(Topology::ClusterRouter),
        "submariner-router" => Ok(Topology::SubmarinerRouter),
        _ => Err("expected cluster-router or submariner-router".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(arguments: &[&str]) -> anyhow::Result<Config> {
        Options::parse_from(["trieste-plugin-sync"].iter().chain(arguments)).config()
    }

    #[test]
    fn the_plugin_is_named_in_any_case_and_others_are_refused_with_the_flag() {
        let calico = config(&["--network-plugin=Calico", "--identity=a"]).unwrap().plugin;
        assert!(matches!(calico, Plugin::Calico));
        let error = config(&["--network-plugin=flannel"]).unwrap_err().to_string();
        assert!(error.contains("--network-plugin"), "{error}");
        let error = config(&["--network-plugin=calico", "--namespace=A_b"]).unwrap_err().to_string();
        assert!(error.contains("--namespace"), "{error}");
    }

    #[test]
    fn plugin_ovn_what_is_missing_is_named() {
        let base = [
            "--network-plugin=OVNKubernetes",
            "--cluster-id=a",
            "--cluster-cidrs=10.128.0.0/14",
            "--node-name=n",
        ];
        let without = |left_out: usize| {
            let arguments: Vec<&str> = base
                .iter()
                .enumerate()
                .filter(|(index, _)| *index != left_out)
                .map(|(_, text)| *text)
                .collect();
            config(&arguments).unwrap_err().to_string()
        };
        assert!(config(&base).is_ok());
        for (left_out, flag) in [(1, "--cluster-id"), (2, "--cluster-cidrs"), (3, "--node-name")] {
            assert!(without(left_out).contains(flag), "{}", without(left_out));
        }
        assert!(
            config(&["--network-plugin=ovnkubernetes", "--uninstall"]).is_ok(),
            "a removal needs none of it"
        );
        let wrong = ["trieste-plugin-sync", "--ovn-northbound=10.0.0.1:6641"];
        assert!(Options::try_parse_from(wrong).unwrap_err().to_string().contains("unix:PATH"));
    }

    #[test]
    fn work_is_elected_where_a_database_is_shared_and_other_tasks_are_not() {
        let ovn = [
            "--network-plugin=ovnkubernetes",
            "--cluster-id=a",
            "--cluster-cidrs=10.128.0.0/14",
            "--node-name=n",
        ];
        let calico = ["--network-plugin=calico"];
        for (plugin, more, task, is_elected) in [
            (&calico[..], "--identity=a", Task::Work, true),
            (&calico, "--leader-election=false", Task::Work, false),
            (&calico, "--check", Task::Check, false),
            (&calico, "--uninstall", Task::Uninstall, false),
            (&ovn, "--ovn-northbound=tcp:192.0.2.1:6641", Task::Work, true),
            (&ovn, "--ovn-northbound=unix:/var/run/ovn/ovnnb_db.sock", Task::Work, false),
            (&ovn, "--debug", Task::Work, false),
        ] {
            let config = config(&[plugin, &[more]].concat()).unwrap();
            assert_eq!((config.task, config.candidate.is_some()), (task, is_elected), "{more}");
        }
    }
}
