//! Flags and environment. A flag wins over the environment; an empty variable says nothing.

use std::net::SocketAddr;
use std::path::Path;

use anyhow::{Context as _, bail};
use clap::{CommandFactory as _, Parser};
use trieste_control::api::check_namespace;
use trieste_control::pages::{PagesAddress, parse_address};
use trieste_control::parse::{Cidrs, parse_bool};
use trieste_control::process::host_name;
use trieste_control::store::Location;
use trieste_control::store::kube::ServerSettings;
use trieste_discovery_agent::AgentConfig;

use crate::options::{Common, distinct};

/// The subcommand's name.
pub const NAME: &str = "agent";
/// Where the broker's Secret is mounted, as upstream mounts it.
const BROKER_SECRETS: &str = "/run/secrets/submariner.io";

/// Exports this cluster's services to the others, and imports theirs.
///
/// Follows ServiceExports, and the imports and slices on the broker. One agent of a cluster writes at a time. Ends on SIGTERM or
/// SIGINT.
#[derive(Debug, Clone, Parser)]
#[command(name = NAME, version = concat!("version: v", env!("CARGO_PKG_VERSION")))]
pub struct Options {
    /// What all programs have.
    #[command(flatten)]
    pub common: Common,

    /// Namespace of this cluster's own imports, and of the election's Lease.
    #[arg(long, env = "SUBMARINER_NAMESPACE", default_value = "submariner-operator")]
    pub namespace: String,

    /// The broker: `dir:PATH` or `kube:KUBECONFIG`; by default the API server of --broker-server.
    #[arg(long, env = "TRIESTE_BROKER", value_name = "LOCATION")]
    pub broker: Option<Location>,

    /// The broker's API server, `host:port`.
    #[arg(long, env = "BROKER_K8S_APISERVER", value_name = "HOST:PORT")]
    pub broker_server: Option<String>,

    /// Token for the broker's API server.
    #[arg(long, env = "BROKER_K8S_APISERVERTOKEN", value_name = "TOKEN", hide_env_values = true)]
    pub broker_token: Option<String>,

    /// Certificate authority of the broker's API server, PEM in base64.
    #[arg(long, env = "BROKER_K8S_CA", value_name = "BASE64")]
    pub broker_ca: Option<String>,

    /// Secret with `token` and `ca.crt` of the broker, read again when they change: a name below /run/secrets/submariner.io,
    /// or a directory's path.
    #[arg(long, env = "BROKER_K8S_SECRET", value_name = "NAME")]
    pub broker_secret: Option<String>,

    /// Do not check the certificate of the broker's API server.
    #[arg(long, env = "BROKER_K8S_INSECURE", num_args = 0..=1, default_value = "false", default_missing_value = "true", value_parser = parse_bool)]
    pub broker_insecure: bool,

    /// End with an error when the certificate of the broker's API server is not accepted.
    #[arg(long, env = "SUBMARINER_HALT_ON_CERT_ERROR", num_args = 0..=1, default_value = "false", default_missing_value = "true", value_parser = parse_bool)]
    pub halt_on_certificate_error: bool,

    /// Namespace of the objects on the broker.
    #[arg(long, env = "BROKER_K8S_REMOTENAMESPACE", default_value = "submariner-k8s-broker")]
    pub broker_namespace: String,

    /// Whether others reach this cluster's services by global addresses.
    #[arg(long, env = "SUBMARINER_GLOBALNET_ENABLED", num_args = 0..=1, default_value = "false", default_missing_value = "true", value_parser = parse_bool)]
    pub globalnet: bool,

    /// Whether services are imported, and so their names answered, whose namespace this cluster does not have.
    #[arg(long, env = "TRIESTE_MISSING_NAMESPACES", num_args = 0..=1, default_value = "false", default_missing_value = "true", value_parser = parse_bool)]
    pub missing_namespaces: bool,

    /// The blocks that this cluster gives clusterset IPs of, of both families, separated by commas.
    #[arg(long, env = "SUBMARINER_CLUSTERSET_IP_CIDR", default_value = "", value_name = "CIDRS")]
    pub clusterset_ip_cidrs: Cidrs,

    /// Whether services have a clusterset IP whose exports say nothing of it.
    #[arg(long, env = "SUBMARINER_CLUSTERSET_IP_ENABLED", num_args = 0..=1, default_value = "false", default_missing_value = "true", value_parser = parse_bool)]
    pub clusterset_ips: bool,

    /// Where the clusterset IPs of all clusters are, separated by commas [default: anywhere].
    #[arg(long, env = "TRIESTE_CLUSTERSET_IP_RANGE", default_value = "", value_name = "CIDRS")]
    pub clusterset_ip_range: Cidrs,

    /// Whether one of several agents is elected to write, by a Lease; under upstream's name there is no election.
    #[arg(long, env = "TRIESTE_LEADER_ELECTION", num_args = 0..=1, default_value = "true", default_missing_value = "true", value_parser = parse_bool)]
    pub leader_election: bool,

    /// Name of this candidate [default: the host's].
    #[arg(long, env = "POD_NAME", value_name = "NAME")]
    pub identity: Option<String>,

    /// Remove everything that agents of this cluster have written, here and on the broker, and end.
    #[arg(long, env = "SUBMARINER_UNINSTALL", num_args = 0..=1, default_value = "false", default_missing_value = "true", value_parser = parse_bool)]
    pub uninstall: bool,

    /// Where /health, /ready and /metrics are answered; `off` for nowhere.
    #[arg(long, env = "TRIESTE_AGENT_METRICS", value_name = "ADDRESS:PORT", default_value = "[::]:8082", value_parser = parse_address)]
    pub metrics: PagesAddress,
}

/// Where the broker is.
#[derive(Clone)]
pub enum Broker {
    /// At a location.
    At(Location),
    /// At an API server that is named by single settings.
    Server(ServerSettings),
}

/// What the program does.
#[derive(Clone)]
pub struct Config {
    /// The agent's own settings.
    pub agent: AgentConfig,
    /// This cluster's store.
    pub store: Location,
    /// The broker's.
    pub broker: Broker,
    /// Whether the program ends when the broker's certificate is not accepted.
    pub halts_on_certificate_error: bool,
    /// The name of this candidate; `None` without an election.
    pub candidate: Option<String>,
    /// Where the pages are answered.
    pub http: Vec<SocketAddr>,
}

impl Options {
    /// Returns the subcommand.
    #[must_use]
    pub fn subcommand() -> clap::Command {
        Self::command()
    }

    /// Checks everything.
    ///
    /// # Errors
    /// What is missing or cannot be, with its flag and variable.
    pub fn config(&self) -> anyhow::Result<Config> {
        let cluster = self.common.cluster()?;
        check_namespace(&self.namespace).context("--namespace (SUBMARINER_NAMESPACE)")?;
        check_namespace(&self.broker_namespace).context("--broker-namespace (BROKER_K8S_REMOTENAMESPACE)")?;
        let is_elected = self.leader_election && !self.uninstall;
        Ok(Config {
            agent: AgentConfig {
                namespace: self.namespace.clone(),
                broker_namespace: self.broker_namespace.clone(),
                has_globalnet: self.globalnet,
                imports_missing_namespaces: self.missing_namespaces,
                gives_clusterset_ips: self.clusterset_ips,
                clusterset_ip_cidrs: self.clusterset_ip_cidrs.0.clone(),
                clusterset_ip_ranges: self.clusterset_ip_range.0.clone(),
                withdraws: self.uninstall,
                ..AgentConfig::new(cluster)
            },
            store: self.common.store.location(),
            broker: self.broker()?,
            halts_on_certificate_error: self.halt_on_certificate_error,
            candidate: if is_elected { Some(self.identity()?) } else { None },
            http: distinct(self.metrics),
        })
    }

    fn broker(&self) -> anyhow::Result<Broker> {
        if let Some(location) = &self.broker {
            return Ok(Broker::At(location.clone()));
        }
        let Some(server) = self.broker_server.clone().filter(|server| !server.is_empty()) else {
            bail!("the broker is missing: pass --broker or set BROKER_K8S_APISERVER");
        };
        let settings = ServerSettings {
            server,
            token: self.broker_token.clone(),
            ca: self.broker_ca.clone(),
            insecure: self.broker_insecure,
            // Upstream tries the system's authorities first.
            system_roots: true,
            ..ServerSettings::default()
        };
        Ok(Broker::Server(match &self.broker_secret {
            Some(name) => settings.with_secret_dir(Path::new(BROKER_SECRETS).join(name)),
            None => settings,
        }))
    }

    fn identity(&self) -> anyhow::Result<String> {
        if let Some(name) = self.identity.clone().filter(|name| !name.is_empty()) {
            return Ok(name);
        }
        host_name().context("reading the host's name")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(arguments: &[&str]) -> Options {
        Options::parse_from([NAME].iter().chain(arguments))
    }

    #[test]
    fn what_is_missing_is_named() {
        let error = |arguments: &[&str]| format!("{:#}", options(arguments).config().err().unwrap());
        assert!(error(&["--cluster-id="]).contains("SUBMARINER_CLUSTERID"));
        assert!(error(&["--cluster-id=A_b"]).contains("--cluster-id"));
        assert!(error(&["--cluster-id=east"]).contains("BROKER_K8S_APISERVER"));
        assert!(error(&["--cluster-id=east", "--namespace=A_b"]).contains("--namespace"));
    }

    #[test]
    fn upstreams_settings_of_the_broker_are_taken() {
        let options = options(&[
            "--cluster-id=east",
            "--broker-server=broker:6443",
            "--broker-secret=s",
            "--identity=x",
        ]);
        let config = options.config().unwrap();
        let Broker::Server(settings) = config.broker else { panic!("a server") };
        assert_eq!(settings.token_file.unwrap(), Path::new("/run/secrets/submariner.io/s/token"));
        assert_eq!((config.candidate.as_deref(), config.agent.withdraws), (Some("x"), false));
        assert_eq!(config.http, ["[::]:8082".parse().unwrap()]);
    }

    #[test]
    fn blocks_of_clusterset_ips_are_lists_of_both_families() {
        let config = |arguments: &[&str]| {
            options(&[&["--cluster-id=east", "--broker=dir:/x"], arguments].concat()).config().unwrap().agent
        };
        let none = config(&[]);
        assert!(!none.gives_clusterset_ips && none.clusterset_ip_cidrs.is_empty());
        let some = config(&[
            "--clusterset-ip-cidrs=243.0.0.9/20, fd00::/64,243.0.16.0/20",
            "--clusterset-ips",
            "--clusterset-ip-range=243.0.0.0/8",
        ]);
        let texts: Vec<String> = some.clusterset_ip_cidrs.iter().map(ToString::to_string).collect();
        assert_eq!(texts, ["243.0.0.0/20", "fd00::/64", "243.0.16.0/20"]);
        assert!(some.gives_clusterset_ips);
        assert_eq!(some.clusterset_ip_ranges, ["243.0.0.0/8".parse().unwrap()]);
        let words = [NAME, "--cluster-id=east", "--clusterset-ip-cidrs=243.0.0.0"];
        assert!(Options::try_parse_from(words).is_err());
    }

    #[test]
    fn who_uninstalls_needs_no_election() {
        let options = options(&["--cluster-id=east", "--broker=dir:/x", "--uninstall"]);
        let config = options.config().unwrap();
        assert!(config.agent.withdraws && config.candidate.is_none());
    }
}
