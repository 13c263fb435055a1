//! Configuration: flags, environment, file, defaults; the earlier wins over the later.
//!
//! The file is YAML with the flags' names as keys; an unknown key is an error. Environment variables are upstream's
//! where it has one. [`Options`] is what was said, [`Config`] what it means.

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::net::IpAddr;
use std::path::PathBuf;
use std::str::FromStr;

use clap::{Args, CommandFactory as _, FromArgMatches as _, Parser};
use ipnet::IpNet;
use serde::Deserialize;
use trieste_control::admin::DEFAULT_SOCKET;
use trieste_control::api::check_cluster_id;
use trieste_control::store::Location;

/// Default of `state-dir`.
const STATE_DIR: &str = "/var/lib/trieste";
/// Default of `udp-port` (upstream's NAT-traversal port).
const UDP_PORT: u16 = 4500;
/// Default of `metrics-port`.
const METRICS_PORT: u16 = 32_780;
/// Default of `tun-name`; upstream's `interface-name`.
const TUN_NAME: &str = "submariner";
/// Longest interface name that the kernel takes.
const MAX_INTERFACE_NAME: usize = 15;
/// Most workers: an id has eight bits.
const MAX_WORKERS: u16 = 256;

/// The command line of `trieste-gateway`.
#[derive(Debug, Parser)]
#[command(
    name = "trieste-gateway",
    version,
    about = "Trieste's gateway: joins this cluster to the others of its set"
)]
pub struct CommandLine {
    /// Configuration file (YAML; the keys are the names of these flags)
    #[arg(long, env = "TRIESTE_CONFIG", value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Remove the TUN device and this cluster's objects, then exit
    #[arg(long, env = "SUBMARINER_UNINSTALL", num_args = 0..=1, default_value = "false", default_missing_value = "true", value_parser = parse_bool)]
    pub uninstall: bool,
    /// Everything else.
    #[command(flatten)]
    pub options: Options,
}

/// What was said, by whichever way. Absent means: not said there.
#[derive(Debug, Clone, Default, Args, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
pub struct Options {
    /// This cluster's ID
    #[arg(long, env = "SUBMARINER_CLUSTERID", value_name = "ID")]
    pub cluster_id: Option<String>,
    /// CIDRs of this cluster's pods, separated by commas
    #[arg(long, env = "SUBMARINER_CLUSTERCIDR", value_name = "CIDRS")]
    pub cluster_cidrs: Option<Cidrs>,
    /// CIDRs of this cluster's services, separated by commas
    #[arg(long, env = "SUBMARINER_SERVICECIDR", value_name = "CIDRS")]
    pub service_cidrs: Option<Cidrs>,
    /// Namespace of this cluster's objects [default: submariner-operator]
    #[arg(long, env = "SUBMARINER_NAMESPACE")]
    pub namespace: Option<String>,
    /// The broker, `dir:PATH`; none means that only the local store is used
    #[arg(long, env = "TRIESTE_BROKER", value_name = "LOCATION")]
    pub broker: Option<String>,
    /// Namespace of the objects on the broker [default: submariner-k8s-broker]
    #[arg(long, env = "BROKER_K8S_REMOTENAMESPACE")]
    pub broker_namespace: Option<String>,
    /// Directory for the node's key and what is remembered over restarts [default: /var/lib/trieste]
    #[arg(long, env = "TRIESTE_STATE_DIR", value_name = "DIR")]
    pub state_dir: Option<PathBuf>,
    /// This cluster's store, `dir:PATH` [default: dir:STATE-DIR/store]
    #[arg(long, env = "TRIESTE_STORE", value_name = "LOCATION")]
    pub store: Option<String>,
    /// Kind of cable [default: wireguard]
    #[arg(long, env = "SUBMARINER_CABLEDRIVER", value_name = "NAME")]
    pub cable_driver: Option<String>,
    /// Text of the cluster set's pre-shared key
    #[arg(long, env = "CE_IPSEC_PSK", value_name = "TEXT", hide_env_values = true)]
    pub psk: Option<String>,
    /// File with the text of the pre-shared key; one newline at its end is not part of it
    #[arg(long, value_name = "FILE")]
    pub psk_file: Option<PathBuf>,
    /// UDP port of the cables [default: 4500]
    #[arg(long, env = "CE_IPSEC_NATTPORT", value_name = "PORT")]
    pub udp_port: Option<u16>,
    /// This node's name in Endpoint and Gateway objects [default: the host's name]
    #[arg(long, env = "NODE_NAME")]
    pub hostname: Option<String>,
    /// This node's address [default: the one that the kernel would use towards the world]
    #[arg(long, env = "TRIESTE_PRIVATE_IP", value_name = "ADDRESS")]
    pub private_ip: Option<String>,
    /// The address under which the world sees this node: an address or `ipv4:ADDRESS`
    #[arg(long, env = "SUBMARINER_PUBLICIP", value_name = "ADDRESS")]
    pub public_ip: Option<String>,
    /// Whether remote gateways should use the public address
    #[arg(long, env = "SUBMARINER_NATENABLED", num_args = 0..=1, default_missing_value = "true", value_parser = parse_bool)]
    pub nat_enabled: Option<bool>,
    /// The address that remote gateways ping [default: this node's first one inside the cluster CIDRs]
    #[arg(long, env = "TRIESTE_HEALTH_CHECK_IP", value_name = "ADDRESS")]
    pub health_check_ip: Option<String>,
    /// Number of worker threads; a remote gateway's cable is carried by one of them [default: 1]
    #[arg(long, env = "TRIESTE_WORKERS", value_name = "N")]
    pub workers: Option<u16>,
    /// CPUs to pin the workers to, in order, or `off` [default: the first CPUs that may be used]
    #[arg(long, env = "TRIESTE_CPUS", value_name = "LIST")]
    pub cpus: Option<Cpus>,
    /// Name of the TUN device [default: submariner]
    #[arg(long, value_name = "NAME")]
    pub tun_name: Option<String>,
    /// MTU of the TUN device in bytes; cables take what fits the underlay whatever this is [default: the underlay's]
    #[arg(long, value_name = "BYTES")]
    pub tun_mtu: Option<u16>,
    /// Largest inner packet that a cable takes, in bytes [default: the underlay's MTU less 80]
    #[arg(long, value_name = "BYTES")]
    pub path_mtu: Option<u16>,
    /// Offloads to do without, separated by commas: tun-uso, tun-tso, tun-checksum, tun-vnet-header, udp-gso, udp-gro
    #[arg(long, env = "TRIESTE_DISABLE_OFFLOADS", value_name = "LIST")]
    pub disable_offloads: Option<Words>,
    /// TCP port of the metrics; 0 switches them off [default: 32780]
    #[arg(long, env = "SUBMARINER_METRICSPORT", value_name = "PORT")]
    pub metrics_port: Option<u16>,
    /// Unix socket for `trieste status`, `show` and `capture` [default: /run/trieste/gateway.sock]
    #[arg(long, env = "TRIESTE_ADMIN_SOCKET", value_name = "PATH")]
    pub admin_socket: Option<PathBuf>,
}

/// What a configuration means.
#[derive(Clone)]
pub struct Config {
    /// This cluster's ID, a DNS label.
    pub cluster_id: String,
    /// Pod CIDRs.
    pub cluster_cidrs: Vec<IpNet>,
    /// Service CIDRs.
    pub service_cidrs: Vec<IpNet>,
    /// Namespace in the local store.
    pub namespace: String,
    /// The broker, if there is one.
    pub broker: Option<Location>,
    /// Namespace on the broker.
    pub broker_namespace: String,
    /// State directory.
    pub state_dir: PathBuf,
    /// The local store.
    pub store: Location,
    /// Kind of cable, lower case.
    pub cable_driver: String,
    /// PSK text; `None` means upstream's default.
    pub psk: Option<String>,
    /// UDP port of the cables.
    pub udp_port: u16,
    /// The node's name, if configured.
    pub hostname: Option<String>,
    /// The node's address, if configured.
    pub private_ip: Option<IpAddr>,
    /// The public address, if configured.
    pub public_ip: Option<IpAddr>,
    /// Published as `nat_enabled`.
    pub nat_enabled: bool,
    /// The health-check address, if configured.
    pub health_check_ip: Option<IpAddr>,
    /// Number of workers.
    pub workers: u16,
    /// Where they are pinned.
    pub cpus: Option<Cpus>,
    /// The TUN device's name.
    pub tun_name: String,
    /// The TUN device's MTU, if configured.
    pub tun_mtu: Option<u16>,
    /// The paths' MTU, if configured.
    pub path_mtu: Option<u16>,
    /// Offloads to do without.
    pub disabled: Vec<Offload>,
    /// TCP port of the metrics; `None` is off.
    pub metrics_port: Option<u16>,
    /// Admin socket.
    pub admin_socket: PathBuf,
}

impl fmt::Debug for Config {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Config").field("cluster_id", &self.cluster_id).finish_non_exhaustive()
    }
}

/// An offload that can be switched off.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Offload {
    /// UDP segmentation on the TUN device.
    TunUso,
    /// TCP segmentation on the TUN device.
    TunTso,
    /// Checksums on the TUN device.
    TunChecksum,
    /// The header that carries all of them.
    TunVnetHeader,
    /// Segmentation of datagrams.
    UdpGso,
    /// Aggregation of datagrams.
    UdpGro,
}

const OFFLOADS: [(&str, Offload); 6] = [
    ("tun-uso", Offload::TunUso),
    ("tun-tso", Offload::TunTso),
    ("tun-checksum", Offload::TunChecksum),
    ("tun-vnet-header", Offload::TunVnetHeader),
    ("udp-gso", Offload::UdpGso),
    ("udp-gro", Offload::UdpGro),
];

/// What is wrong with a configuration.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// A key that must be there is not.
    #[error("{key} is missing: set it in the file, with --{key}, or with {variable}")]
    Missing {
        /// The key.
        key: &'static str,
        /// The environment variable that sets it.
        variable: &'static str,
    },
    /// A value does not fit.
    #[error("{key}: {problem}")]
    Invalid {
        /// The key.
        key: &'static str,
        /// What is wrong and what would be right.
        problem: String,
    },
    /// The file could not be read or is not what it should be.
    #[error("configuration file {path}: {problem}")]
    File {
        /// The file.
        path: String,
        /// What is wrong.
        problem: String,
    },
}

fn invalid(key: &'static str, problem: impl Into<String>) -> ConfigError {
    ConfigError::Invalid { key, problem: problem.into() }
}

impl CommandLine {
    /// Reads flags and environment. An empty variable says nothing: manifests set variables that they have nothing
    /// for. The PSK is an exception, where the empty text is a text (wireformat §3).
    ///
    /// # Errors
    /// What clap says; it prints and exits well.
    pub fn from_flags_and_environment(
        arguments: impl IntoIterator<Item = OsString>,
        variable: impl Fn(&OsStr) -> Option<OsString>,
    ) -> Result<Self, clap::Error> {
        let command = Self::command().mut_args(|argument| {
            let is_empty = argument.get_env().and_then(&variable).is_some_and(|value| value.is_empty());
            if is_empty && argument.get_id() != "psk" { argument.env(None::<&'static str>) } else { argument }
        });
        Self::from_arg_matches(&command.try_get_matches_from(arguments)?)
    }

    /// Reads the file, if one is named, and makes sense of everything.
    ///
    /// # Errors
    /// [`ConfigError`], naming file and key.
    pub fn load(&self) -> Result<Config, ConfigError> {
        let file = match &self.config {
            Some(path) => {
                let problem =
                    |problem: String| ConfigError::File { path: path.display().to_string(), problem };
                let text = std::fs::read_to_string(path).map_err(|error| problem(error.to_string()))?;
                Options::parse_file(&text).map_err(problem)?
            }
            None => Options::default(),
        };
        self.options.clone().or(file).resolve()
    }
}

impl Options {
    /// Reads the text of a configuration file.
    ///
    /// # Errors
    /// What is wrong, with line and key.
    pub fn parse_file(text: &str) -> Result<Self, String> {
        if text.lines().all(|line| line.trim().is_empty() || line.trim_start().starts_with('#')) {
            return Ok(Self::default());
        }
        serde_saphyr::from_str(text).map_err(|error| error.to_string())
    }

    /// Takes from `other` what is not said here.
    #[must_use]
    pub fn or(self, other: Self) -> Self {
        Self {
            cluster_id: self.cluster_id.or(other.cluster_id),
            cluster_cidrs: self.cluster_cidrs.or(other.cluster_cidrs),
            service_cidrs: self.service_cidrs.or(other.service_cidrs),
            namespace: self.namespace.or(other.namespace),
            broker: self.broker.or(other.broker),
            broker_namespace: self.broker_namespace.or(other.broker_namespace),
            state_dir: self.state_dir.or(other.state_dir),
            store: self.store.or(other.store),
            cable_driver: self.cable_driver.or(other.cable_driver),
            psk: self.psk.or(other.psk),
            psk_file: self.psk_file.or(other.psk_file),
            udp_port: self.udp_port.or(other.udp_port),
            hostname: self.hostname.or(other.hostname),
            private_ip: self.private_ip.or(other.private_ip),
            public_ip: self.public_ip.or(other.public_ip),
            nat_enabled: self.nat_enabled.or(other.nat_enabled),
            health_check_ip: self.health_check_ip.or(other.health_check_ip),
            workers: self.workers.or(other.workers),
            cpus: self.cpus.or(other.cpus),
            tun_name: self.tun_name.or(other.tun_name),
            tun_mtu: self.tun_mtu.or(other.tun_mtu),
            path_mtu: self.path_mtu.or(other.path_mtu),
            disable_offloads: self.disable_offloads.or(other.disable_offloads),
            metrics_port: self.metrics_port.or(other.metrics_port),
            admin_socket: self.admin_socket.or(other.admin_socket),
        }
    }

    /// Checks every value and fills in the defaults.
    ///
    /// # Errors
    /// The first [`ConfigError`].
    pub fn resolve(self) -> Result<Config, ConfigError> {
        let cluster_id = said(self.cluster_id)
            .ok_or(ConfigError::Missing { key: "cluster-id", variable: "SUBMARINER_CLUSTERID" })?;
        check_cluster_id(&cluster_id).map_err(|error| invalid("cluster-id", error.to_string()))?;
        let cluster_cidrs = self.cluster_cidrs.unwrap_or_default().0;
        let service_cidrs = self.service_cidrs.unwrap_or_default().0;
        check_cidrs(&cluster_cidrs, &service_cidrs)?;
        let state_dir = self.state_dir.unwrap_or_else(|| PathBuf::from(STATE_DIR));
        let store = match said(self.store) {
            Some(text) => text.parse().map_err(|error| invalid("store", format!("{error}")))?,
            None => Location::Dir(state_dir.join("store")),
        };
        let broker = said(self.broker)
            .map(|text| text.parse().map_err(|error| invalid("broker", format!("{error}"))))
            .transpose()?;
        let workers = self.workers.unwrap_or(1);
        if !(1..=MAX_WORKERS).contains(&workers) {
            return Err(invalid("workers", format!("{workers} is not a number from 1 to {MAX_WORKERS}")));
        }
        let udp_port = self.udp_port.unwrap_or(UDP_PORT);
        if udp_port == 0 {
            return Err(invalid("udp-port", "0 is not a port that peers can send to"));
        }
        let tun_name = said(self.tun_name).unwrap_or_else(|| TUN_NAME.to_owned());
        if tun_name.len() > MAX_INTERFACE_NAME || tun_name.contains(['/', ' ', '%', ':']) {
            return Err(invalid(
                "tun-name",
                format!("`{tun_name}` is no interface name of up to 15 characters"),
            ));
        }
        Ok(Config {
            cluster_id,
            cluster_cidrs,
            service_cidrs,
            namespace: said(self.namespace).unwrap_or_else(|| "submariner-operator".to_owned()),
            broker,
            broker_namespace: said(self.broker_namespace)
                .unwrap_or_else(|| "submariner-k8s-broker".to_owned()),
            store,
            cable_driver: said(self.cable_driver).unwrap_or_else(|| "wireguard".to_owned()).to_lowercase(),
            psk: read_psk(self.psk, self.psk_file)?,
            udp_port,
            hostname: said(self.hostname),
            private_ip: address("private-ip", self.private_ip)?,
            public_ip: address("public-ip", self.public_ip)?,
            nat_enabled: self.nat_enabled.unwrap_or(false),
            health_check_ip: address("health-check-ip", self.health_check_ip)?,
            workers,
            cpus: self.cpus,
            tun_name,
            tun_mtu: checked_mtu("tun-mtu", self.tun_mtu)?,
            path_mtu: checked_mtu("path-mtu", self.path_mtu)?,
            disabled: offloads(&self.disable_offloads.unwrap_or_default())?,
            metrics_port: Some(self.metrics_port.unwrap_or(METRICS_PORT)).filter(|port| *port != 0),
            admin_socket: self.admin_socket.unwrap_or_else(|| PathBuf::from(DEFAULT_SOCKET)),
            state_dir,
        })
    }
}

/// Empty means not said: manifests set variables they have nothing for.
fn said(text: Option<String>) -> Option<String> {
    text.filter(|text| !text.is_empty())
}

fn check_cidrs(cluster: &[IpNet], service: &[IpNet]) -> Result<(), ConfigError> {
    if cluster.is_empty() && service.is_empty() {
        return Err(ConfigError::Missing { key: "cluster-cidrs", variable: "SUBMARINER_CLUSTERCIDR" });
    }
    for (index, subnet) in cluster.iter().enumerate() {
        let others = cluster[index + 1..].iter().chain(service);
        for other in others {
            if subnet.contains(other) || other.contains(subnet) {
                return Err(invalid(
                    "cluster-cidrs",
                    format!("{subnet} overlaps {other}, which is also ours"),
                ));
            }
        }
    }
    Ok(())
}

fn address(key: &'static str, text: Option<String>) -> Result<Option<IpAddr>, ConfigError> {
    let Some(text) = said(text) else { return Ok(None) };
    let bare = text.strip_prefix("ipv4:").unwrap_or(&text);
    let address: IpAddr = bare.parse().map_err(|_| {
        invalid(
            key,
            format!("`{text}` is not an IP address (of upstream's resolvers only ipv4:ADDRESS is known)"),
        )
    })?;
    if address.is_unspecified() || address.is_multicast() {
        return Err(invalid(key, format!("`{text}` is not the address of a host")));
    }
    Ok(Some(address))
}

fn checked_mtu(key: &'static str, bytes: Option<u16>) -> Result<Option<u16>, ConfigError> {
    match bytes {
        Some(bytes) if bytes < 1280 => {
            Err(invalid(key, format!("{bytes} bytes are less than IPv6 needs (1280)")))
        }
        other => Ok(other),
    }
}

fn offloads(words: &Words) -> Result<Vec<Offload>, ConfigError> {
    let known = || OFFLOADS.map(|(name, _)| name).join(", ");
    words
        .0
        .iter()
        .map(|word| {
            let found = OFFLOADS.iter().find(|(name, _)| name == word);
            let unknown = || invalid("disable-offloads", format!("`{word}` is none of {}", known()));
            found.map(|(_, offload)| *offload).ok_or_else(unknown)
        })
        .collect()
}

fn read_psk(text: Option<String>, file: Option<PathBuf>) -> Result<Option<String>, ConfigError> {
    match (text, file) {
        (Some(_), Some(_)) => Err(invalid("psk", "psk and psk-file are both set: which one counts?")),
        (text, None) => Ok(text),
        (None, Some(path)) => {
            let text = std::fs::read_to_string(&path)
                .map_err(|error| invalid("psk-file", format!("{}: {error}", path.display())))?;
            Ok(Some(text.strip_suffix('\n').unwrap_or(&text).to_owned()))
        }
    }
}

/// Reads a boolean as Go's `ParseBool` does (env-metrics §1).
fn parse_bool(text: &str) -> Result<bool, String> {
    match text {
        "1" | "t" | "T" | "TRUE" | "true" | "True" => Ok(true),
        "" | "0" | "f" | "F" | "FALSE" | "false" | "False" => Ok(false),
        _ => Err("expected true or false".to_owned()),
    }
}

/// Words separated by commas; in the file a list, or the same text.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Words(pub Vec<String>);

impl FromStr for Words {
    type Err = std::convert::Infallible;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let words = text.split(',').map(str::trim).filter(|word| !word.is_empty());
        Ok(Self(words.map(str::to_owned).collect()))
    }
}

impl<'de> Deserialize<'de> for Words {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Vec::<String>::deserialize(deserializer).map(Self)
    }
}

/// CIDRs separated by commas.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Cidrs(pub Vec<IpNet>);

impl FromStr for Cidrs {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let words = text.split(',').map(str::trim).filter(|word| !word.is_empty());
        let cidrs = words.map(|word| {
            word.parse::<IpNet>()
                .map(|net| net.trunc())
                .map_err(|_| format!("`{word}` is not a CIDR such as 10.1.0.0/16"))
        });
        cidrs.collect::<Result<_, _>>().map(Self)
    }
}

impl<'de> Deserialize<'de> for Cidrs {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let words = Vec::<String>::deserialize(deserializer)?;
        words.join(",").parse().map_err(serde::de::Error::custom)
    }
}

/// Where workers are pinned.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Cpus {
    /// Nowhere.
    Off,
    /// Worker *i* on the *i*-th of these, beginning again at the end.
    List(Vec<usize>),
}

impl FromStr for Cpus {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text == "off" {
            return Ok(Self::Off);
        }
        let cpus = text.split(',').map(|word| {
            word.trim()
                .parse()
                .map_err(|_| format!("`{word}` is not a CPU's number; expected a list such as 0,1, or off"))
        });
        cpus.collect::<Result<_, _>>().map(Self::List)
    }
}

impl<'de> Deserialize<'de> for Cpus {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum Form {
            List(Vec<usize>),
            Text(String),
        }
        match Form::deserialize(deserializer)? {
            Form::List(cpus) => Ok(Self::List(cpus)),
            Form::Text(text) => text.parse().map_err(serde::de::Error::custom),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINIMAL: &str = "cluster-id: a\ncluster-cidrs: [10.1.0.0/16, 'fd01::/64']\n";

    fn resolve(text: &str) -> Result<Config, String> {
        Options::parse_file(text)?.resolve().map_err(|error| error.to_string())
    }

    #[test]
    fn a_minimal_file_is_enough() {
        let config = resolve(MINIMAL).unwrap();
        assert_eq!((config.udp_port, config.workers, config.metrics_port), (4500, 1, Some(32_780)));
        assert_eq!(config.cluster_cidrs.len(), 2);
        assert_eq!(config.store, Location::Dir("/var/lib/trieste/store".into()));
        assert_eq!(config.psk, None);
    }

    #[test]
    fn mistakes_are_named_with_their_key() {
        for (text, expected) in [
            ("cluster-cidrs: [10.1.0.0/16]", "cluster-id is missing"),
            ("cluster-id: a", "cluster-cidrs is missing"),
            ("cluster-id: A_b\ncluster-cidrs: [10.1.0.0/16]", "cluster-id"),
            ("cluster-id: a\ncluster-cidrs: [10.1.0.0/33]", "10.1.0.0/33"),
            ("cluster-id: a\ncluster-cidrs: [10.1.0.0/16]\nclustr-id: b", "clustr-id"),
            ("cluster-id: a\ncluster-cidrs: [10.1.0.0/16]\nservice-cidrs: [10.1.2.0/24]", "overlaps"),
            ("cluster-id: a\ncluster-cidrs: [10.1.0.0/16]\nworkers: 0", "workers"),
            ("cluster-id: a\ncluster-cidrs: [10.1.0.0/16]\nudp-port: 70000", "70000"),
            ("cluster-id: a\ncluster-cidrs: [10.1.0.0/16]\ndisable-offloads: [tso]", "`tso` is none of"),
            ("cluster-id: a\ncluster-cidrs: [10.1.0.0/16]\nbroker: /tmp/x", "dir:PATH"),
            ("cluster-id: a\ncluster-cidrs: [10.1.0.0/16]\npublic-ip: 'api:example.com'", "public-ip"),
            ("cluster-id: a\ncluster-cidrs: [10.1.0.0/16]\ntun-mtu: 500", "1280"),
            ("cluster-id: a\ncluster-cidrs: [10.1.0.0/16]\npsk: x\npsk-file: y", "both"),
            ("- a\n- b", ""),
        ] {
            let error = resolve(text).expect_err(text);
            assert!(error.contains(expected), "{text:?} gave {error:?}");
        }
    }

    #[test]
    fn flags_win_over_the_file() {
        let line = [
            "trieste-gateway",
            "--cluster-id",
            "flag",
            "--cpus",
            "off",
            "--service-cidrs",
            "100.1.0.0/16,100.2.0.0/16",
        ];
        let flags = CommandLine::try_parse_from(line).unwrap().options;
        let config = flags.or(Options::parse_file(MINIMAL).unwrap()).resolve().unwrap();
        assert_eq!(config.cluster_id, "flag");
        assert_eq!(config.cpus, Some(Cpus::Off));
        assert_eq!(config.service_cidrs.len(), 2);
    }

    #[test]
    fn an_empty_variable_says_nothing() {
        let line =
            ["trieste-gateway", "--cluster-id", "a", "--cluster-cidrs", "10.1.0.0/16"].map(OsString::from);
        let empty = |_: &OsStr| Some(OsString::new());
        let config = CommandLine::from_flags_and_environment(line, empty).unwrap().options.resolve().unwrap();
        assert_eq!((config.udp_port, config.workers), (4500, 1));
    }

    #[test]
    fn the_psk_is_never_printed() {
        let config = resolve(&format!("{MINIMAL}psk: verysecret")).unwrap();
        assert!(!format!("{config:?}").contains("verysecret"));
    }
}
