//! Flags and environment. A flag wins over the environment; an empty variable says nothing.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use anyhow::{Context as _, ensure};
use clap::{CommandFactory as _, Parser};
use trieste_control::pages::{PagesAddress, parse_address};
use trieste_control::parse::{Addresses, Cidrs, parse_bool};
use trieste_control::store::Location;
use trieste_dns::{Label, Settings, Zone};

use crate::options::{Common, distinct};

/// The subcommand's name.
pub const NAME: &str = "dns";
/// The zone of the Multi-Cluster Services API.
const ZONE: &str = "clusterset.local";
/// Most threads for datagrams that are begun unless a number is set.
const MAX_THREADS: usize = 4;
/// Most threads for datagrams.
const THREADS: usize = 256;

/// Answers names of services of the cluster set, such as web.shop.svc.clusterset.local.
///
/// Reads ServiceImports, EndpointSlices and Gateways of this cluster, and answers from what it knows, also while its store is
/// away. Ends on SIGTERM or SIGINT.
#[derive(Debug, Clone, Parser)]
#[command(name = NAME, version = concat!("version: v", env!("CARGO_PKG_VERSION")))]
pub struct Options {
    /// What all programs have.
    #[command(flatten)]
    pub common: Common,

    /// Namespace of the Gateways in the store; all, if it is missing.
    #[arg(long, env = "SUBMARINER_NAMESPACE", default_value = "", hide_default_value = true)]
    pub namespace: String,

    /// Zones to answer for, separated by commas. Names of addresses are given in the first one.
    #[arg(
        long,
        env = "TRIESTE_DNS_ZONES",
        value_delimiter = ',',
        value_name = "ZONES",
        default_value = ZONE
    )]
    pub zones: Vec<String>,

    /// Seconds that an answer may be kept, 0 to 3600.
    #[arg(long, env = "TRIESTE_DNS_TTL", value_name = "SECONDS", default_value_t = trieste_dns::DEFAULT_TTL)]
    pub ttl: u32,

    /// Addresses to answer at, separated by commas [default: all of both families].
    #[arg(
        long,
        env = "TRIESTE_DNS_LISTEN",
        default_value = "",
        hide_default_value = true,
        value_name = "ADDRESSES"
    )]
    pub listen: Addresses,

    /// Port to answer at, over UDP and TCP.
    #[arg(long, env = "TRIESTE_DNS_PORT", value_name = "PORT", default_value_t = 53)]
    pub port: u16,

    /// Threads for datagrams [default: one for each processor, 4 at most].
    #[arg(long, env = "TRIESTE_DNS_THREADS", value_name = "COUNT")]
    pub threads: Option<usize>,

    /// Addresses at which this cluster reaches this server, for the zones' name server.
    #[arg(
        long,
        env = "TRIESTE_DNS_ADDRESSES",
        default_value = "",
        hide_default_value = true,
        value_name = "ADDRESSES"
    )]
    pub addresses: Addresses,

    /// Networks of clusterset IPs, separated by commas, whose reverse names are answered.
    #[arg(long, env = "SUBMARINER_CLUSTERSET_IP_CIDR", default_value = "", value_name = "CIDRS")]
    pub clusterset_ip_cidrs: Cidrs,

    /// Whether a cluster's part of a service has a name, with the cluster's id in front, as Lighthouse has it. The
    /// Multi-Cluster Services API wants none but those of hosts.
    #[arg(long, env = "TRIESTE_DNS_CLUSTER_NAMES", num_args = 0..=1, default_value = "true", default_missing_value = "true", value_parser = parse_bool)]
    pub cluster_names: bool,

    /// Where /health is answered; `off` for nowhere.
    #[arg(long, env = "TRIESTE_DNS_HEALTH", value_name = "ADDRESS:PORT", default_value = "[::]:8080", value_parser = parse_address)]
    pub health: PagesAddress,

    /// Where /ready is answered; `off` for nowhere.
    #[arg(long, env = "TRIESTE_DNS_READY", value_name = "ADDRESS:PORT", default_value = "[::]:8181", value_parser = parse_address)]
    pub ready: PagesAddress,

    /// Where /metrics is answered; `off` for nowhere.
    #[arg(long, env = "TRIESTE_DNS_METRICS", value_name = "ADDRESS:PORT", default_value = "[::]:9153", value_parser = parse_address)]
    pub metrics: PagesAddress,

    /// Seconds for which queries are answered after SIGTERM, while clients learn from readiness that it ends.
    #[arg(long, env = "TRIESTE_DNS_DRAIN", value_name = "SECONDS", default_value_t = 5)]
    pub drain: u64,
}

/// What the program does.
#[derive(Debug, Clone)]
pub struct Config {
    /// This cluster.
    pub cluster: Label,
    /// Where objects are.
    pub store: Location,
    /// Namespace of Gateways; empty for all.
    pub namespace: String,
    /// How queries are answered.
    pub settings: Settings,
    /// Where queries are answered; each once.
    pub listen: Vec<SocketAddr>,
    /// Number of threads for datagrams, for each of these.
    pub threads: usize,
    /// Where the pages are answered; each once.
    pub http: Vec<SocketAddr>,
    /// How long to go on after a signal.
    pub drain: Duration,
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
        let cluster = Label::new(self.common.cluster()?).context("--cluster-id (SUBMARINER_CLUSTERID)")?;
        let zones = self.zones.iter().filter(|zone| !zone.trim().is_empty());
        let zones: Vec<Zone> = zones
            .map(|zone| Zone::new(zone.trim()))
            .collect::<Result<_, _>>()
            .context("--zones (TRIESTE_DNS_ZONES)")?;
        let mut settings = Settings::new(zones, self.ttl).context("--zones and --ttl")?;
        settings.networks = self.clusterset_ip_cidrs.0.clone();
        settings.addresses = self.addresses.0.clone();
        settings.has_cluster_names = self.cluster_names;
        let threads = match self.threads {
            Some(count) => {
                ensure!((1..=THREADS).contains(&count), "--threads {count}: 1 to {THREADS} are possible");
                count
            }
            None => std::thread::available_parallelism().map_or(1, usize::from).min(MAX_THREADS),
        };
        Ok(Config {
            cluster,
            store: self.common.store.location(),
            namespace: self.namespace.clone(),
            settings,
            listen: addresses(&self.listen.0, self.port),
            threads,
            http: distinct([self.health, self.ready, self.metrics].into_iter().flatten()),
            drain: Duration::from_secs(self.drain),
        })
    }
}

/// Returns where to listen: at all addresses of both families if none is given.
pub(super) fn addresses(listen: &[IpAddr], port: u16) -> Vec<SocketAddr> {
    let all = [IpAddr::V6(Ipv6Addr::UNSPECIFIED)];
    let listen = if listen.is_empty() { &all } else { listen };
    distinct(listen.iter().map(|address| SocketAddr::new(*address, port)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(arguments: &[&str]) -> anyhow::Result<Config> {
        let mut options = Options::parse_from([NAME].iter().chain(arguments));
        options.common.cluster_id.get_or_insert_with(|| "west".to_owned());
        options.config()
    }

    #[test]
    fn defaults_are_upstreams() {
        let config = config(&["--store=dir:/x"]).unwrap();
        let zones = vec![Zone::new("clusterset.local").unwrap()];
        assert_eq!(config.settings, Settings::new(zones, 5).unwrap());
        assert_eq!(config.listen, ["[::]:53".parse().unwrap()]);
        let http: Vec<_> = config.http.iter().map(ToString::to_string).collect();
        assert_eq!(http, ["[::]:8080", "[::]:8181", "[::]:9153"]);
    }

    #[test]
    fn addresses_are_each_used_once() {
        let config =
            config(&["--listen=10.0.0.1,fd00::1,10.0.0.1", "--port=5353", "--health=:9153", "--ready=off"]);
        let config = config.unwrap();
        let listen: Vec<_> = config.listen.iter().map(ToString::to_string).collect();
        assert_eq!(listen, ["10.0.0.1:5353", "[fd00::1]:5353"]);
        assert_eq!(config.http, ["[::]:9153".parse().unwrap()]);
    }

    #[test]
    fn errors_name_the_flag() {
        let error = |arguments: &[&str]| format!("{:#}", config(arguments).unwrap_err());
        assert!(error(&["--cluster-id=A_b"]).contains("--cluster-id"));
        assert!(error(&["--zones=."]).contains("--zones"));
        assert!(error(&["--ttl=3601"]).contains("3601"));
        assert!(error(&["--threads=0"]).contains("--threads 0"));
        let missing = Options::parse_from([NAME]).config().unwrap_err().to_string();
        assert!(missing.contains("SUBMARINER_CLUSTERID"), "{missing}");
    }
}
