//! Configuration: flags, environment, file, defaults; the earlier wins over the later.
//!
//! The file is YAML with the flags' names as keys; an unknown key is an error. Environment variables are upstream's
//! where it has one, so that its manifests configure this gateway without any argument. [`Options`] is what was
//! said, [`Config`] what it means.

/// Merges options of two sources, the first one winning; what is not named is as in `rest`.
macro_rules! first_of {
    ($here:expr, $other:expr, [$($field:ident,)*]) => {
        Self { $($field: $here.$field.or($other.$field),)* }
    };
    ($here:expr, $other:expr, others: $rest:expr, [$($field:ident,)*]) => {
        Self { $($field: $here.$field.or($other.$field),)* ..$rest }
    };
}

mod error;
mod globalnet;
mod ipsec;
mod options;
mod psk;
mod resolve;
#[cfg(test)]
mod tests;
mod words;

use std::fmt;
use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use trieste_control::api::ClusterNetworks;
use trieste_control::claims::Allowed;
use trieste_control::election::Timings;
use trieste_control::store::Location;
use trieste_pipeline::health;

pub use error::ConfigError;
pub use globalnet::{Globalnet, GlobalnetOptions};
pub use ipsec::{Ipsec, IpsecOptions};
pub use options::{CommandLine, Options};
pub use psk::Psk;
pub(crate) use resolve::METRICS_PORT;
pub use trieste_control::parse::Cidrs;
pub use words::{Cpus, OuterIo, Words};

/// The IPsec cable's name: upstream's, as Endpoints carry it. `ipsec` is taken as well.
pub(crate) const IPSEC_DRIVER: &str = "libreswan";

/// The resolved configuration.
#[derive(Clone)]
pub struct Config {
    /// This cluster's ID, a DNS label.
    pub cluster_id: String,
    /// The cluster's networks, until the store says others (`networks.rs`).
    pub networks: ClusterNetworks,
    /// Networks that other members may claim.
    pub allowed: Allowed,
    /// Settings of Globalnet's translation.
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
    /// Settings of the IPsec cable.
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
    /// Whether all of this cluster's gateways carry traffic, where they can publish further Endpoints.
    pub all_gateways_active: bool,
    /// The gateway's share of other clusters' flows, unless its Node says another one.
    pub weight: Option<u16>,
    /// The network plugin, if it gives pods addresses that Kubernetes does not assign by node.
    pub own_addressing: Option<String>,
    /// Number of workers.
    pub workers: u16,
    /// Where they are pinned.
    pub cpus: Option<Cpus>,
    /// How packets of cables cross the kernel.
    pub io: OuterIo,
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
    /// What is logged.
    pub log: Log,
}

impl Config {
    /// Returns `true` if cables of this driver may be made.
    #[must_use]
    pub fn has_driver(&self, driver: &str) -> bool {
        self.cable_driver == driver || self.former_cable_driver.as_deref() == Some(driver)
    }

    /// Returns `true` if the cluster is known by global addresses.
    #[must_use]
    pub fn has_globalnet(&self) -> bool {
        !self.networks.global.is_empty()
    }
}

/// What is logged.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Log {
    /// A level or directives, where somebody has chosen some.
    pub chosen: Option<String>,
    /// Whether to log more, where nobody has.
    pub is_debug: bool,
    /// Whether to log more of IPsec's negotiations.
    pub is_ipsec_debug: bool,
}

impl Log {
    /// Returns the directives that count where neither [`Self::chosen`] nor `RUST_LOG` says others.
    #[must_use]
    pub fn default_filter(&self) -> String {
        let mut filter = match self.is_debug {
            true => "debug,boringtun=off,h2=info,hyper=info,rustls=info".to_owned(),
            false => "info,boringtun=off".to_owned(),
        };
        if self.is_ipsec_debug {
            filter.push_str(",trieste_gateway::ike=debug");
        }
        filter
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
