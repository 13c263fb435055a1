//! Configuration: flags, environment, file, defaults; the earlier wins over the later.
//!
//! The file is YAML with the flags' names as keys; an unknown key is an error. Environment variables are upstream's
//! where it has one, so that its manifests configure this gateway without any argument. [`Options`] is what was
//! said, [`Config`] what it means.

mod globalnet;
mod ipsec;
mod options;
mod psk;
#[cfg(test)]
mod tests;
mod words;

use std::fmt;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use ipnet::IpNet;
use trieste_control::admin::DEFAULT_SOCKET;
use trieste_control::api::{MAX_WEIGHT, check_cluster_id};
use trieste_control::claims::Allowed;
use trieste_control::devices;
use trieste_control::election::Timings;
use trieste_control::notice;
use trieste_control::privileges::DEFAULT_PROC_SYS;
use trieste_control::store::Location;
use trieste_pipeline::health;

pub use globalnet::{Globalnet, GlobalnetOptions};
pub use ipsec::{Ipsec, IpsecOptions};
pub use options::{CommandLine, Options};
pub use psk::Psk;
pub use trieste_control::words::Cidrs;
pub use words::{Cpus, Words};

/// Default of `state-dir`.
const STATE_DIR: &str = "/var/lib/trieste";
/// Default of `udp-port` (upstream's NAT-traversal port).
const UDP_PORT: u16 = 4500;
/// Default of `nat-discovery-port` (wireformat §0).
const NAT_DISCOVERY_PORT: u16 = 4490;
/// Default of `metrics-port`.
const METRICS_PORT: u16 = 32_780;
/// Default of `tun-name`; upstream's `interface-name`.
const TUN_NAME: &str = devices::TUN;
/// The IPsec cable's name: upstream's, as Endpoints carry it. `ipsec` is taken as well.
pub(crate) const IPSEC_DRIVER: &str = "libreswan";
/// Longest interface name that the kernel takes.
const MAX_INTERFACE_NAME: usize = 15;
/// Most workers: an id has eight bits.
const MAX_WORKERS: u16 = 256;
/// Where the operator mounts the broker's secret (api §10.4).
const BROKER_SECRETS: &str = "/run/secrets/submariner.io";
/// Defaults of the health check (behaviour §1).
const HEALTH_CHECK_SECONDS: u32 = 1;
const HEALTH_CHECK_MAX_LOSS: u32 = 5;
/// Defaults of the election (api §13).
const LEASE_SECONDS: u32 = 15;
const RENEW_SECONDS: u32 = 10;
const RETRY_SECONDS: u32 = 2;

/// What a configuration means.
#[derive(Clone)]
pub struct Config {
    /// This cluster's ID, a DNS label.
    pub cluster_id: String,
    /// Pod CIDRs.
    pub cluster_cidrs: Vec<IpNet>,
    /// Service CIDRs.
    pub service_cidrs: Vec<IpNet>,
    /// Globalnet's CIDRs; empty without Globalnet.
    pub global_cidrs: Vec<IpNet>,
    /// What other members may claim.
    pub allowed: Allowed,
    /// What Globalnet's translation is set to.
    pub globalnet: Globalnet,
    /// Namespace in the local store.
    pub namespace: String,
    /// The broker, if there is one.
    pub broker: Option<Broker>,
    /// Namespace on the broker.
    pub broker_namespace: String,
    /// State directory.
    pub state_dir: PathBuf,
    /// The local store.
    pub store: Location,
    /// Kind of cable, lower case.
    pub cable_driver: String,
    /// The kind before it, for gateways that have not changed yet.
    pub former_cable_driver: Option<String>,
    /// PSK text; `None` means upstream's default for WireGuard, and for IPsec that there is none.
    pub psk: Option<Psk>,
    /// What the IPsec cable is set to.
    pub ipsec: Ipsec,
    /// UDP port of the cables.
    pub udp_port: u16,
    /// The node's name, if configured.
    pub hostname: Option<String>,
    /// The Node object's name, if there is one.
    pub node_name: Option<String>,
    /// The own Pod's name, if there is one.
    pub pod_name: Option<String>,
    /// The node's address, if configured.
    pub private_ip: Option<IpAddr>,
    /// The interface whose address is the node's, if configured.
    pub endpoint_interface: Option<String>,
    /// How the public address is found, if configured.
    pub public_ip: Option<String>,
    /// Whether nobody outside may be asked for the public address.
    pub air_gapped: bool,
    /// UDP port of NAT discovery; 0 is off.
    pub nat_discovery_port: u16,
    /// UDP port of notices to route agents; 0 is off.
    pub notice_port: u16,
    /// Published as `nat_enabled`.
    pub nat_enabled: bool,
    /// The health-check address, if configured.
    pub health_check_ip: Option<IpAddr>,
    /// How connections are checked; `None` is off.
    pub health_check: Option<HealthCheck>,
    /// The election's times.
    pub election: Timings,
    /// Whether all of this cluster's gateways carry traffic, where they can tell one another of themselves.
    pub all_gateways_active: bool,
    /// The gateway's share of other clusters' flows, unless its Node says another one.
    pub weight: Option<u16>,
    /// The network plugin, if it gives pods addresses that Kubernetes does not know by node.
    pub own_addressing: Option<String>,
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
    /// How paths to other Trieste gateways are probed.
    pub health: health::Config,
    /// Offloads to do without.
    pub disabled: Vec<Offload>,
    /// TCP port of the metrics; `None` is off.
    pub metrics_port: Option<u16>,
    /// Admin socket.
    pub admin_socket: PathBuf,
    /// Where kernel parameters are.
    pub proc_sys: PathBuf,
    /// Whether to log more.
    pub debug: bool,
}

impl Config {
    /// Says whether cables of this driver may be made.
    #[must_use]
    pub fn has_driver(&self, driver: &str) -> bool {
        self.cable_driver == driver || self.former_cable_driver.as_deref() == Some(driver)
    }

    /// What is published as reachable here: Globalnet's CIDRs alone, else services' and pods' (api §3), in this order.
    #[must_use]
    pub fn published_subnets(&self) -> Vec<IpNet> {
        if !self.global_cidrs.is_empty() {
            return self.global_cidrs.clone();
        }
        self.service_cidrs.iter().chain(&self.cluster_cidrs).copied().collect()
    }
}

/// Where the broker is.
#[derive(Clone, PartialEq, Eq)]
pub enum Broker {
    /// A store that is named by its location.
    At(Location),
    /// An API server, with upstream's settings.
    Kubernetes(BrokerServer),
}

/// A broker's API server.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct BrokerServer {
    /// `host:port`.
    pub server: String,
    /// Directory with `token` and `ca.crt`; it wins over the two texts.
    pub secret_dir: Option<PathBuf>,
    /// The token.
    pub token: Option<String>,
    /// The certificate authority, PEM in base64.
    pub ca: Option<String>,
    /// Whether the server's certificate is not checked.
    pub insecure: bool,
}

/// How connections are checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HealthCheck {
    /// Time between two pings.
    pub interval: Duration,
    /// Unanswered pings above which a connection has failed.
    pub max_loss: u32,
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

impl Options {
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
        let global_cidrs = self.global_cidrs.unwrap_or_default().0;
        globalnet::check_cidrs(&global_cidrs, [&cluster_cidrs, &service_cidrs])?;
        let state_dir = self.state_dir.unwrap_or_else(|| PathBuf::from(STATE_DIR));
        let store = match said(self.store) {
            Some(text) => text.parse().map_err(|error| invalid("store", format!("{error}")))?,
            None if said(self.kubernetes_service_host).is_some() => {
                "kube:".parse().map_err(|error| invalid("store", format!("{error}")))?
            }
            None => Location::Dir(state_dir.join("store")),
        };
        let (cable_driver, former, is_ipsec) = drivers(self.cable_driver, self.former_cable_driver);
        let server = BrokerServer {
            server: said(self.broker_server).unwrap_or_default(),
            secret_dir: said(self.broker_secret).map(|name| Path::new(BROKER_SECRETS).join(name)),
            token: said(self.broker_token),
            ca: said(self.broker_ca),
            insecure: self.broker_insecure.unwrap_or(false),
        };
        let broker = broker(said(self.broker), said(self.broker_kind), server)?;
        let public_ip = said(self.public_ip);
        let asks_nobody = matches!(store, Location::Dir(_)) && public_ip.is_none();
        let health_check = self.health_check.unwrap_or(true).then(|| HealthCheck {
            interval: seconds(self.health_check_interval, HEALTH_CHECK_SECONDS),
            max_loss: self.health_check_max_loss.filter(|count| *count != 0).unwrap_or(HEALTH_CHECK_MAX_LOSS),
        });
        let election = election(self.lease_duration, self.renew_deadline, self.retry_period)?;
        let own_addressing = said(self.network_plugin)
            .filter(|plugin| trieste_control::requirements::has_own_addressing(plugin));
        let all_gateways_active =
            all_active(said(self.active_gateways).as_deref(), own_addressing.is_some())?;
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
            global_cidrs,
            allowed: Allowed::of(self.allow_remote_cidrs.unwrap_or_default().0),
            globalnet: self.globalnet.unwrap_or_default().resolve()?,
            namespace: said(self.namespace).unwrap_or_else(|| "submariner-operator".to_owned()),
            broker,
            broker_namespace: said(self.broker_namespace)
                .unwrap_or_else(|| "submariner-k8s-broker".to_owned()),
            store,
            cable_driver,
            former_cable_driver: former,
            psk: psk::read(self.psk, self.psk_file, said(self.psk_secret), is_ipsec)?,
            ipsec: self
                .ipsec
                .unwrap_or_default()
                .resolve(self.force_udp_encaps.unwrap_or(false), self.preferred_server.unwrap_or(false))?,
            udp_port,
            hostname: said(self.hostname),
            node_name: said(self.node_name),
            pod_name: said(self.pod_name),
            private_ip: address("private-ip", self.private_ip)?,
            endpoint_interface: said(self.endpoint_interface),
            public_ip,
            air_gapped: self.air_gapped.unwrap_or(asks_nobody),
            nat_discovery_port: self.nat_discovery_port.unwrap_or(NAT_DISCOVERY_PORT),
            notice_port: self.notice_port.unwrap_or(notice::DEFAULT_PORT),
            nat_enabled: self.nat_enabled.unwrap_or(false),
            health_check_ip: address("health-check-ip", self.health_check_ip)?,
            health_check,
            election,
            all_gateways_active,
            own_addressing,
            weight: checked_weight(self.weight)?,
            workers,
            cpus: self.cpus,
            tun_name,
            tun_mtu: checked_mtu("tun-mtu", self.tun_mtu)?,
            path_mtu: checked_mtu("path-mtu", self.path_mtu)?,
            health: probing(self.path_probe_interval, self.path_probe_multiplier, self.pmtu_probing)?,
            disabled: offloads(&self.disable_offloads.unwrap_or_default())?,
            metrics_port: Some(self.metrics_port.unwrap_or(METRICS_PORT)).filter(|port| *port != 0),
            admin_socket: self.admin_socket.unwrap_or_else(|| PathBuf::from(DEFAULT_SOCKET)),
            proc_sys: self.proc_sys.unwrap_or_else(|| PathBuf::from(DEFAULT_PROC_SYS)),
            state_dir,
            debug: self.debug.unwrap_or(false),
        })
    }
}

/// Reads the cable driver and the one before it, and says whether one of them is IPsec.
fn drivers(newer: Option<String>, former: Option<String>) -> (String, Option<String>, bool) {
    let newer = driver(newer);
    let former = former.filter(|name| !name.is_empty()).map(|name| driver(Some(name)));
    let former = former.filter(|former| *former != newer);
    let is_ipsec = newer == IPSEC_DRIVER || former.as_deref() == Some(IPSEC_DRIVER);
    (newer, former, is_ipsec)
}

/// The kind of cable. Not said at all it is WireGuard; the empty text is upstream's way to say its default.
fn driver(said: Option<String>) -> String {
    match said.map(|name| name.to_lowercase()) {
        None => "wireguard".to_owned(),
        Some(name) if name.is_empty() || name == "ipsec" => IPSEC_DRIVER.to_owned(),
        Some(name) => name,
    }
}

/// Checks a gateway's share of other clusters' flows.
fn checked_weight(weight: Option<u16>) -> Result<Option<u16>, ConfigError> {
    match weight.filter(|weight| !crate::settings::is_weight(*weight)) {
        Some(weight) => Err(invalid("weight", format!("{weight} is not a number from 1 to {MAX_WEIGHT}"))),
        None => Ok(weight),
    }
}

/// Says whether all of a cluster's gateways carry traffic; by default not where a network plugin that delivers would lose answers.
fn all_active(choice: Option<&str>, has_own_addressing: bool) -> Result<bool, ConfigError> {
    match choice {
        None => Ok(!has_own_addressing),
        Some("all") => Ok(true),
        Some("one") => Ok(false),
        Some(other) => Err(invalid("active-gateways", format!("`{other}` is neither all nor one"))),
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

/// Which broker is meant. Upstream's manifests set the server's address and `k8s`; a location wins over both.
fn broker(
    location: Option<String>,
    kind: Option<String>,
    server: BrokerServer,
) -> Result<Option<Broker>, ConfigError> {
    if let Some(kind) = kind.filter(|kind| kind != "k8s") {
        return Err(invalid("broker-kind", format!("`{kind}` is no kind of broker: only k8s is known")));
    }
    match location {
        Some(text) if text != "k8s" => {
            let at = text.parse().map_err(|error| invalid("broker", format!("{error}")))?;
            Ok(Some(Broker::At(at)))
        }
        Some(_) if server.server.is_empty() => {
            Err(ConfigError::Missing { key: "broker-server", variable: "BROKER_K8S_APISERVER" })
        }
        None if server.server.is_empty() => Ok(None),
        _ => Ok(Some(Broker::Kubernetes(server))),
    }
}

/// Upstream's rule: 0 means the default.
fn seconds(said: Option<u32>, default: u32) -> Duration {
    Duration::from_secs(said.filter(|seconds| *seconds != 0).unwrap_or(default).into())
}

fn election(lease: Option<u32>, renew: Option<u32>, retry: Option<u32>) -> Result<Timings, ConfigError> {
    let [lease, renew, retry] =
        [seconds(lease, LEASE_SECONDS), seconds(renew, RENEW_SECONDS), seconds(retry, RETRY_SECONDS)];
    Timings::new(lease, renew, retry)
        .map_err(|error| invalid("lease-duration", format!("{error} (with renew-deadline and retry-period)")))
}

fn address(key: &'static str, text: Option<String>) -> Result<Option<IpAddr>, ConfigError> {
    let Some(text) = said(text) else { return Ok(None) };
    let address: IpAddr = text.parse().map_err(|_| invalid(key, format!("`{text}` is not an IP address")))?;
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

/// How paths are probed.
fn probing(
    interval_ms: Option<u16>,
    multiplier: Option<u8>,
    probes_mtu: Option<bool>,
) -> Result<health::Config, ConfigError> {
    let default = health::Config::default();
    let interval = match interval_ms {
        None => default.interval,
        Some(ms @ 5..=1000) => Duration::from_millis(ms.into()),
        Some(ms) => {
            return Err(invalid(
                "path-probe-interval",
                format!("{ms} is not between 5 and 1000 milliseconds"),
            ));
        }
    };
    let multiplier = multiplier.unwrap_or(default.multiplier);
    if !(2..=50).contains(&multiplier) {
        return Err(invalid("path-probe-multiplier", format!("{multiplier} is not between 2 and 50")));
    }
    Ok(health::Config { interval, multiplier, probes_mtu: probes_mtu.unwrap_or(default.probes_mtu) })
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
