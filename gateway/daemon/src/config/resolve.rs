//! From options to the configuration: every value is checked, and defaults are filled in.

use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use ipnet::IpNet;
use trieste_control::admin::DEFAULT_SOCKET;
use trieste_control::api::{ClusterNetworks, MAX_WEIGHT, check_cluster_id};
use trieste_control::claims::Allowed;
use trieste_control::election::Timings;
use trieste_control::privileges::DEFAULT_PROC_SYS;
use trieste_control::requirements::{Deliverer, promise};
use trieste_control::settings::Form;
use trieste_control::store::Location;
use trieste_control::{devices, logging, notice};
use trieste_pipeline::health;

use super::error::{ConfigError, invalid};
use super::{
    Broker, BrokerServer, Config, HealthCheck, IPSEC_DRIVER, Log, Offload, Options, Words, globalnet, psk,
};

/// Default of `state-dir`.
const STATE_DIR: &str = "/var/lib/trieste";
/// Default of `udp-port` (upstream's NAT-traversal port).
const UDP_PORT: u16 = 4500;
/// Default of `nat-discovery-port` (wireformat §0).
const NAT_DISCOVERY_PORT: u16 = 4490;
/// Default of `metrics-port`, as upstream's.
pub(crate) const METRICS_PORT: u16 = 32_780;
/// Default of `tun-name`; upstream's `interface-name`.
const TUN_NAME: &str = devices::TUN;
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
/// Defaults of the namespaces: upstream's.
const NAMESPACE: &str = "submariner-operator";
const BROKER_NAMESPACE: &str = "submariner-k8s-broker";

const OFFLOADS: [(&str, Offload); 6] = [
    ("tun-uso", Offload::TunUso),
    ("tun-tso", Offload::TunTso),
    ("tun-checksum", Offload::TunChecksum),
    ("tun-vnet-header", Offload::TunVnetHeader),
    ("udp-gso", Offload::UdpGso),
    ("udp-gro", Offload::UdpGro),
];

impl Options {
    /// Checks every value and fills in the defaults.
    ///
    /// # Errors
    /// The first [`ConfigError`].
    pub fn resolve(self) -> Result<Config, ConfigError> {
        let cluster_id = self.checked_cluster_id()?;
        let networks = self.checked_cidrs()?;
        let state_dir = self.state_dir.clone().unwrap_or_else(|| PathBuf::from(STATE_DIR));
        let store = self.resolved_store(&state_dir)?;
        let (cable_driver, former_cable_driver, is_ipsec) = self.drivers();
        let log = self.checked_log()?;
        Ok(Config {
            cluster_id,
            networks,
            cable_driver,
            former_cable_driver,
            broker: self.resolved_broker()?,
            air_gapped: self.is_air_gapped(&store),
            store,
            state_dir,
            health_check: self.checks(),
            election: self.timings()?,
            own_addressing: self.own_addressing(),
            all_gateways_active: self.are_all_active()?,
            workers: self.checked_workers()?,
            udp_port: self.checked_udp_port()?,
            tun_name: self.checked_tun_name()?,
            allowed: Allowed::of(self.allow_remote_cidrs.unwrap_or_default().0),
            globalnet: self.globalnet.unwrap_or_default().resolve()?,
            namespace: non_empty(self.namespace).unwrap_or_else(|| NAMESPACE.to_owned()),
            broker_namespace: non_empty(self.broker_namespace).unwrap_or_else(|| BROKER_NAMESPACE.to_owned()),
            psk: psk::read(self.psk, self.psk_file, non_empty(self.psk_secret), is_ipsec)?,
            ipsec: (self.ipsec.unwrap_or_default())
                .resolve(self.force_udp_encaps.unwrap_or(false), self.preferred_server.unwrap_or(false))?,
            hostname: non_empty(self.hostname),
            node_name: non_empty(self.node_name),
            pod_name: non_empty(self.pod_name),
            private_ip: address("private-ip", self.private_ip)?,
            endpoint_interface: non_empty(self.endpoint_interface),
            public_ip: non_empty(self.public_ip),
            nat_discovery_port: self.nat_discovery_port.unwrap_or(NAT_DISCOVERY_PORT),
            notice_port: self.notice_port.unwrap_or(notice::DEFAULT_PORT),
            nat_enabled: self.nat_enabled.unwrap_or(false),
            health_check_ip: address("health-check-ip", self.health_check_ip)?,
            weight: checked_weight(self.weight)?,
            cpus: self.cpus,
            io: self.io.unwrap_or_default(),
            tun_mtu: checked_mtu("tun-mtu", self.tun_mtu)?,
            path_mtu: checked_mtu("path-mtu", self.path_mtu)?,
            health: probing(self.path_probe_interval, self.path_probe_multiplier, self.pmtu_probing)?,
            disabled: offloads(&self.disable_offloads.unwrap_or_default())?,
            metrics_port: Some(self.metrics_port.unwrap_or(METRICS_PORT)).filter(|port| *port != 0),
            admin_socket: self.admin_socket.unwrap_or_else(|| PathBuf::from(DEFAULT_SOCKET)),
            proc_sys: self.proc_sys.unwrap_or_else(|| PathBuf::from(DEFAULT_PROC_SYS)),
            log,
        })
    }

    fn checked_log(&self) -> Result<Log, ConfigError> {
        let chosen = non_empty(self.log_level.clone());
        if let Some(text) = chosen.as_deref().filter(|text| !logging::is_filter(text)) {
            return Err(invalid("log-level", format!("`{text}` is not {}", Form::LogFilter)));
        }
        let (is_debug, is_ipsec_debug) = (self.debug.unwrap_or(false), self.ipsec_debug.unwrap_or(false));
        Ok(Log { chosen, is_debug, is_ipsec_debug })
    }

    fn checked_cluster_id(&self) -> Result<String, ConfigError> {
        let cluster_id = non_empty(self.cluster_id.clone())
            .ok_or(ConfigError::Missing { key: "cluster-id", variable: "SUBMARINER_CLUSTERID" })?;
        check_cluster_id(&cluster_id).map_err(|error| invalid("cluster-id", error.to_string()))?;
        Ok(cluster_id)
    }

    /// Returns the networks of pods, of services, and Globalnet's.
    fn checked_cidrs(&self) -> Result<ClusterNetworks, ConfigError> {
        let cluster_cidrs = self.cluster_cidrs.clone().unwrap_or_default().0;
        let service_cidrs = self.service_cidrs.clone().unwrap_or_default().0;
        check_cidrs(&cluster_cidrs, &service_cidrs)?;
        let global_cidrs = self.global_cidrs.clone().unwrap_or_default().0;
        globalnet::check_cidrs(&global_cidrs, [&cluster_cidrs, &service_cidrs])?;
        Ok(ClusterNetworks {
            pods: cluster_cidrs,
            services: service_cidrs,
            extra: Vec::new(),
            global: global_cidrs,
        })
    }

    /// Returns where the local store is: in a pod the API server, else a directory.
    fn resolved_store(&self, state_dir: &Path) -> Result<Location, ConfigError> {
        match non_empty(self.store.clone()) {
            Some(text) => text.parse().map_err(|error| invalid("store", format!("{error}"))),
            None if non_empty(self.kubernetes_service_host.clone()).is_some() => {
                "kube:".parse().map_err(|error| invalid("store", format!("{error}")))
            }
            None => Ok(Location::Dir(state_dir.join("store"))),
        }
    }

    /// Reads the cable driver and the one before it. Returns also whether one of them is IPsec.
    fn drivers(&self) -> (String, Option<String>, bool) {
        let newer = driver(self.cable_driver.clone());
        let former = self.former_cable_driver.clone().filter(|name| !name.is_empty());
        let former = former.map(|name| driver(Some(name))).filter(|former| *former != newer);
        let is_ipsec = newer == IPSEC_DRIVER || former.as_deref() == Some(IPSEC_DRIVER);
        (newer, former, is_ipsec)
    }

    fn resolved_broker(&self) -> Result<Option<Broker>, ConfigError> {
        let server = BrokerServer {
            server: non_empty(self.broker_server.clone()).unwrap_or_default(),
            secret_dir: non_empty(self.broker_secret.clone())
                .map(|name| Path::new(BROKER_SECRETS).join(name)),
            token: non_empty(self.broker_token.clone()),
            ca: non_empty(self.broker_ca.clone()),
            insecure: self.broker_insecure.unwrap_or(false),
        };
        broker(non_empty(self.broker.clone()), non_empty(self.broker_kind.clone()), server)
    }

    /// Returns `true` if nobody outside may be asked for the public address: by default where there is no API server, and
    /// nobody says how it is found.
    fn is_air_gapped(&self, store: &Location) -> bool {
        let asks_nobody = matches!(store, Location::Dir(_)) && non_empty(self.public_ip.clone()).is_none();
        self.air_gapped.unwrap_or(asks_nobody)
    }

    /// Returns how connections are checked.
    fn checks(&self) -> Option<HealthCheck> {
        self.health_check.unwrap_or(true).then(|| HealthCheck {
            interval: seconds(self.health_check_interval, HEALTH_CHECK_SECONDS),
            max_loss: self.health_check_max_loss.filter(|count| *count != 0).unwrap_or(HEALTH_CHECK_MAX_LOSS),
        })
    }

    /// Returns the election's times.
    fn timings(&self) -> Result<Timings, ConfigError> {
        election(self.lease_duration, self.renew_deadline, self.retry_period)
    }

    /// Returns the network plugin, if it gives pods addresses that Kubernetes does not assign by node.
    fn own_addressing(&self) -> Option<String> {
        non_empty(self.network_plugin.clone()).filter(|plugin| promise(plugin).delivery == Deliverer::Plugin)
    }

    /// Returns `true` if all of this cluster's gateways carry traffic.
    fn are_all_active(&self) -> Result<bool, ConfigError> {
        let promised = promise(self.network_plugin.as_deref().unwrap_or_default());
        all_active(non_empty(self.active_gateways.clone()).as_deref(), promised.has_several_gateways)
    }

    fn checked_workers(&self) -> Result<u16, ConfigError> {
        let workers = self.workers.unwrap_or(1);
        if !(1..=MAX_WORKERS).contains(&workers) {
            return Err(invalid("workers", format!("{workers} is not a number from 1 to {MAX_WORKERS}")));
        }
        Ok(workers)
    }

    fn checked_udp_port(&self) -> Result<u16, ConfigError> {
        let udp_port = self.udp_port.unwrap_or(UDP_PORT);
        if udp_port == 0 {
            return Err(invalid("udp-port", "0 is not a port that peers can send to"));
        }
        Ok(udp_port)
    }

    fn checked_tun_name(&self) -> Result<String, ConfigError> {
        let tun_name = non_empty(self.tun_name.clone()).unwrap_or_else(|| TUN_NAME.to_owned());
        if tun_name.len() > MAX_INTERFACE_NAME || tun_name.contains(['/', ' ', '%', ':']) {
            return Err(invalid(
                "tun-name",
                format!("`{tun_name}` is no interface name of up to 15 characters"),
            ));
        }
        Ok(tun_name)
    }
}

/// Returns the kind of cable: WireGuard if there is none; an empty text selects upstream's default.
fn driver(name: Option<String>) -> String {
    match name.map(|name| name.to_lowercase()) {
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

/// Returns `true` if all of a cluster's gateways carry traffic; by default not where delivery by the network plugin would lose
/// answers.
fn all_active(choice: Option<&str>, has_several: bool) -> Result<bool, ConfigError> {
    match choice {
        None => Ok(has_several),
        Some("all") => Ok(true),
        Some("one") => Ok(false),
        Some(other) => Err(invalid("active-gateways", format!("`{other}` is neither all nor one"))),
    }
}

/// Returns a text unless it is empty, which means that none was set: manifests set variables they have nothing for.
fn non_empty(text: Option<String>) -> Option<String> {
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

/// Returns the broker's location. Upstream's manifests set the server's address and `k8s`; a location wins over both.
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

/// Converts seconds, of which 0 means the default, as upstream has it.
fn seconds(value: Option<u32>, default: u32) -> Duration {
    Duration::from_secs(value.filter(|seconds| *seconds != 0).unwrap_or(default).into())
}

fn election(lease: Option<u32>, renew: Option<u32>, retry: Option<u32>) -> Result<Timings, ConfigError> {
    let [lease, renew, retry] =
        [seconds(lease, LEASE_SECONDS), seconds(renew, RENEW_SECONDS), seconds(retry, RETRY_SECONDS)];
    Timings::new(lease, renew, retry)
        .map_err(|error| invalid("lease-duration", format!("{error} (with renew-deadline and retry-period)")))
}

fn address(key: &'static str, text: Option<String>) -> Result<Option<IpAddr>, ConfigError> {
    let Some(text) = non_empty(text) else { return Ok(None) };
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

/// Returns how paths are probed.
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
