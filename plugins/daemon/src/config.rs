//! Flags and environment. A flag wins over the environment; an empty variable says nothing.

use std::ffi::{OsStr, OsString};
use std::path::PathBuf;

use anyhow::{Context as _, bail};
use clap::{CommandFactory as _, FromArgMatches as _, Parser};
use trieste_control::api::check_namespace;
use trieste_control::parse::parse_bool;
use trieste_control::store::Location;
use trieste_control::{command_line, logging};

/// Default path of the file for `--check`.
const DEFAULT_FILE: &str = "/run/trieste/plugin-sync.json";

/// Writes what remote clusters need into the network plugin's own database.
///
/// Follows the GatewayRoute objects of the leading gateway's route agent. Ends on SIGTERM or SIGINT; what it has written stays.
#[derive(Debug, Clone, Parser)]
#[command(name = "trieste-plugin-sync", version = concat!("version: v", env!("CARGO_PKG_VERSION")))]
pub struct Options {
    /// This cluster's store: `dir:PATH`, `kube:` or `kube:KUBECONFIG` [default: `kube:` in a pod, else dir:STATE_DIR/store].
    #[arg(long, env = "TRIESTE_STORE", value_name = "LOCATION")]
    pub store: Option<Location>,

    /// The gateway's directory, whose store is used outside of a pod.
    #[arg(long, env = "TRIESTE_STATE_DIR", value_name = "PATH", default_value = "/var/lib/trieste")]
    pub state_dir: PathBuf,

    /// Namespace of the objects of this cluster's gateways, and of the election's Lease.
    #[arg(long, env = "SUBMARINER_NAMESPACE", default_value = "submariner-operator")]
    pub namespace: String,

    /// Network plugin of this cluster, as join found it.
    #[arg(long, env = "SUBMARINER_NETWORKPLUGIN", value_name = "NAME", default_value = "generic")]
    pub network_plugin: String,

    /// Name of this candidate of the election [default: the host's].
    #[arg(long, env = "POD_NAME", value_name = "NAME")]
    pub identity: Option<String>,

    /// Whether one of several workers is elected to write, by a Lease.
    #[arg(long, env = "TRIESTE_LEADER_ELECTION", num_args = 0..=1, default_value = "true", default_missing_value = "true", value_parser = parse_bool)]
    pub leader_election: bool,

    /// Set by Kubernetes in every pod: the cluster's own API server.
    #[arg(long, env = "KUBERNETES_SERVICE_HOST", hide = true)]
    pub kubernetes_service_host: Option<String>,

    /// File that says how the work went, for --check.
    #[arg(long, env = "TRIESTE_PASS_FILE", value_name = "PATH", default_value = DEFAULT_FILE)]
    pub pass_file: PathBuf,

    /// Log more.
    #[arg(long, env = "SUBMARINER_DEBUG", num_args = 0..=1, default_value = "false", default_missing_value = "true", value_parser = parse_bool)]
    pub debug: bool,

    /// How much to log, in upstream's numbers: 3 is as --debug, 4 and more is everything.
    #[arg(long, env = "SUBMARINER_VERBOSITY", value_name = "LEVEL", default_value_t = 2)]
    pub verbosity: u8,

    /// Exit 0 if the running worker can read and write what it needs, else say why not and exit 1.
    #[arg(long)]
    pub check: bool,

    /// Remove everything that workers have written into the plugin's database, and exit.
    #[arg(long, env = "SUBMARINER_UNINSTALL", num_args = 0..=1, default_value = "false", default_missing_value = "true", value_parser = parse_bool)]
    pub uninstall: bool,
}

/// A network plugin with a database of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Plugin {
    /// Calico: IPPools.
    Calico,
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

    /// Returns what is logged unless `RUST_LOG` says otherwise.
    #[must_use]
    pub const fn log_filter(&self) -> &'static str {
        logging::filter(self.debug, self.verbosity)
    }

    /// Checks everything.
    ///
    /// # Errors
    /// What is missing or cannot be, with its flag and variable.
    pub fn config(&self) -> anyhow::Result<Config> {
        check_namespace(&self.namespace).context("--namespace (SUBMARINER_NAMESPACE)")?;
        let default = || Location::default_of(self.kubernetes_service_host.as_deref(), &self.state_dir);
        let task = match (self.check, self.uninstall) {
            (true, _) => Task::Check,
            (false, true) => Task::Uninstall,
            (false, false) => Task::Work,
        };
        let is_elected = self.leader_election && task == Task::Work;
        Ok(Config {
            plugin: plugin(&self.network_plugin)?,
            store: self.store.clone().unwrap_or_else(default),
            namespace: self.namespace.clone(),
            candidate: is_elected.then(|| self.identity()).transpose()?,
            pass_file: self.pass_file.clone(),
            task,
        })
    }

    fn identity(&self) -> anyhow::Result<String> {
        if let Some(name) = self.identity.clone().filter(|name| !name.is_empty()) {
            return Ok(name);
        }
        let name = std::fs::read_to_string("/proc/sys/kernel/hostname")
            .context("reading the host name; pass --identity or set POD_NAME")?;
        Ok(name.trim().to_owned())
    }
}

fn plugin(name: &str) -> anyhow::Result<Plugin> {
    match name.to_lowercase().as_str() {
        "calico" => Ok(Plugin::Calico),
        _ => bail!(
            "network plugin `{name}` has no database to write to: this program serves calico; see --network-plugin \
             (SUBMARINER_NETWORKPLUGIN)"
        ),
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
        assert_eq!(config(&["--network-plugin=Calico", "--identity=a"]).unwrap().plugin, Plugin::Calico);
        let error = config(&["--network-plugin=flannel"]).unwrap_err().to_string();
        assert!(error.contains("--network-plugin"), "{error}");
        assert!(
            config(&["--network-plugin=calico", "--namespace=A_b"])
                .unwrap_err()
                .to_string()
                .contains("--namespace")
        );
    }

    #[test]
    fn work_is_elected_and_other_tasks_are_not() {
        let config = |arguments: &[&str]| {
            let all = [&["--network-plugin=calico", "--identity=a"], arguments].concat();
            let config = config(&all).unwrap();
            (config.task, config.candidate)
        };
        assert_eq!(config(&[]), (Task::Work, Some("a".to_owned())));
        assert_eq!(config(&["--leader-election=false"]), (Task::Work, None));
        assert_eq!(config(&["--check"]), (Task::Check, None));
        assert_eq!(config(&["--uninstall"]), (Task::Uninstall, None));
    }
}
