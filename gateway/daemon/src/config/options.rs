//! Options: flags, environment, file.

use std::ffi::{OsStr, OsString};
use std::path::PathBuf;

use clap::{Args, CommandFactory as _, FromArgMatches as _, Parser};
use serde::Deserialize;
use serde_json::Value;
use trieste_control::command_line::{self, Arguments};
use trieste_control::parse::{Cidrs, parse_bool};
use trieste_control::settings::{Data, Refusal, find};

use super::words::{Cpus, OuterIo, Words, parse_exactly_true};
use super::{Config, ConfigError, GlobalnetOptions, IpsecOptions, Psk};

/// The command line of `trieste-gateway`.
#[derive(Debug, Clone, Parser)]
#[command(
    name = "trieste-gateway",
    // Upstream's form, which its tool reads: `<component> version: <version>`.
    version = concat!("version: v", env!("CARGO_PKG_VERSION")),
    about = "Trieste's gateway: joins this cluster to the others of its set"
)]
pub struct CommandLine {
    /// Configuration file (YAML; the keys are the names of these flags)
    #[arg(long, env = "TRIESTE_CONFIG", value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Remove the TUN device and this cluster's objects, then exit
    #[arg(long, env = "SUBMARINER_UNINSTALL", num_args = 0..=1, default_value = "false", default_missing_value = "true", value_parser = parse_bool)]
    pub uninstall: bool,
    /// Everything else: of flags and environment.
    #[command(flatten)]
    pub options: Options,
    /// What it was read from, to be read again with settings.
    #[arg(skip)]
    pub arguments: Arguments,
}

/// Options of one source; absent ones were not set there.
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
    /// CIDRs of this cluster's Globalnet, separated by commas; with one of them its subnets are published alone
    #[arg(long, env = "SUBMARINER_GLOBALCIDR", value_name = "CIDRS")]
    pub global_cidrs: Option<Cidrs>,
    /// Networks that other members may claim parts of, separated by commas, instead of private space (10.0.0.0/8,
    /// 172.16.0.0/12, 192.168.0.0/16, 100.64.0.0/10, 242.0.0.0/8, fc00::/7; of these a /11 or /40 at most)
    #[arg(long, env = "TRIESTE_ALLOW_REMOTE_CIDRS", value_name = "CIDRS")]
    pub allow_remote_cidrs: Option<Cidrs>,
    /// How long Globalnet remembers what it translates, and how much of it: in the file alone
    #[arg(skip)]
    pub globalnet: Option<GlobalnetOptions>,
    /// Namespace of this cluster's objects [default: submariner-operator]
    #[arg(long, env = "SUBMARINER_NAMESPACE")]
    pub namespace: Option<String>,
    /// The broker: `dir:PATH`, `kube:KUBECONFIG`, or `k8s` for the API server of --broker-server; none means that only
    /// the local store is used
    #[arg(long, env = "TRIESTE_BROKER", value_name = "LOCATION")]
    pub broker: Option<String>,
    /// Upstream's kind of broker; only `k8s` is known
    #[arg(long, env = "SUBMARINER_BROKER", hide = true)]
    pub broker_kind: Option<String>,
    /// The broker's API server, `host:port`
    #[arg(long, env = "BROKER_K8S_APISERVER", value_name = "HOST:PORT")]
    pub broker_server: Option<String>,
    /// Token for the broker's API server
    #[arg(long, env = "BROKER_K8S_APISERVERTOKEN", value_name = "TOKEN", hide_env_values = true)]
    pub broker_token: Option<String>,
    /// Certificate authority of the broker's API server, PEM in base64
    #[arg(long, env = "BROKER_K8S_CA", value_name = "BASE64")]
    pub broker_ca: Option<String>,
    /// Secret with `token` and `ca.crt` of the broker, read again when they change: a name below
    /// /run/secrets/submariner.io, or a directory's path
    #[arg(long, env = "BROKER_K8S_SECRET", value_name = "NAME")]
    pub broker_secret: Option<String>,
    /// Do not check the certificate of the broker's API server
    #[arg(long, env = "BROKER_K8S_INSECURE", num_args = 0..=1, default_missing_value = "true", value_parser = parse_bool)]
    pub broker_insecure: Option<bool>,
    /// Namespace of the objects on the broker [default: submariner-k8s-broker]
    #[arg(long, env = "BROKER_K8S_REMOTENAMESPACE")]
    pub broker_namespace: Option<String>,
    /// Directory for the node's key and what is remembered over restarts [default: /var/lib/trieste]
    #[arg(long, env = "TRIESTE_STATE_DIR", value_name = "DIR")]
    pub state_dir: Option<PathBuf>,
    /// This cluster's store: `dir:PATH`, `kube:` (the cluster that this runs in) or `kube:KUBECONFIG` [default: `kube:`
    /// in a pod, else dir:STATE-DIR/store]
    #[arg(long, env = "TRIESTE_STORE", value_name = "LOCATION")]
    pub store: Option<String>,
    /// Kind of cable: wireguard, libreswan (also ipsec), which the empty text means too, or vxlan [default: wireguard]
    #[arg(long, env = "SUBMARINER_CABLEDRIVER", value_name = "NAME")]
    pub cable_driver: Option<String>,
    /// Kind of cable that the cluster set is changing from: gateways that have no other yet are connected by it
    #[arg(long, env = "TRIESTE_FORMER_CABLE_DRIVER", value_name = "NAME")]
    pub former_cable_driver: Option<String>,
    /// Text of the cluster set's pre-shared key
    #[arg(long, env = "CE_IPSEC_PSK", value_name = "TEXT", hide_env_values = true)]
    pub psk: Option<Psk>,
    /// File with the text of the pre-shared key; one newline at its end is not part of it
    #[arg(long, value_name = "FILE")]
    pub psk_file: Option<PathBuf>,
    /// Secret whose key `psk` holds the pre-shared key; its text is the base64 of that. A name below
    /// /var/run/secrets/submariner.io, or a directory's path; with wireguard not looked at when a text is set
    #[arg(long, env = "CE_IPSEC_PSKSECRET", value_name = "NAME")]
    pub psk_secret: Option<String>,
    /// Have IPsec packets always go through UDP [default: false]
    #[arg(long, env = "CE_IPSEC_FORCEENCAPS", num_args = 0..=1, default_missing_value = "true", value_parser = parse_bool)]
    pub force_udp_encaps: Option<bool>,
    /// Let peers begin IPsec negotiations, and answer; the Node's own setting wins [default: false]
    #[arg(long, env = "CE_IPSEC_PREFERREDSERVER", num_args = 0..=1, default_missing_value = "true", value_parser = parse_bool)]
    pub preferred_server: Option<bool>,
    /// Log IPsec negotiations in detail [default: false]
    #[arg(long, env = "CE_IPSEC_DEBUG", num_args = 0..=1, default_missing_value = "true", value_parser = parse_bool)]
    pub ipsec_debug: Option<bool>,
    /// Proposals and times of the IPsec cable: in the file alone
    #[arg(skip)]
    pub ipsec: Option<IpsecOptions>,
    /// UDP port of the cables [default: 4500]
    #[arg(long, env = "CE_IPSEC_NATTPORT", value_name = "PORT")]
    pub udp_port: Option<u16>,
    /// This node's name in Endpoint and Gateway objects and in the election [default: the host's name]
    #[arg(long)]
    pub hostname: Option<String>,
    /// Name of this node's Node object, whose settings are followed; none means that there is none
    #[arg(long, env = "NODE_NAME", value_name = "NAME")]
    pub node_name: Option<String>,
    /// Name of this gateway's own Pod, whose labels say whether it is active; none means that there is none
    #[arg(long, env = "POD_NAME", value_name = "NAME")]
    pub pod_name: Option<String>,
    /// This node's address [default: the one that the kernel would use towards the world]
    #[arg(long, env = "TRIESTE_PRIVATE_IP", value_name = "ADDRESS")]
    pub private_ip: Option<String>,
    /// The interface whose address is this node's [default: the one that leads to the world]
    #[arg(long, env = "TRIESTE_ENDPOINT_INTERFACE", value_name = "NAME")]
    pub endpoint_interface: Option<String>,
    /// How the address is found under which the world sees this node: an address, or resolvers separated by commas
    /// (ipv4:ADDRESS, dns:NAME, api:HOST/PATH, lb:SERVICE) of which the first that answers counts
    #[arg(long, env = "SUBMARINER_PUBLICIP", value_name = "RESOLVERS")]
    pub public_ip: Option<String>,
    /// Ask nobody outside for the public address [default: true with a directory as the store]
    #[arg(long, env = "AIR_GAPPED_DEPLOYMENT", num_args = 0..=1, default_missing_value = "true", value_parser = parse_exactly_true)]
    pub air_gapped: Option<bool>,
    /// UDP port of NAT discovery; 0 switches it off [default: 4490]
    #[arg(long, env = "TRIESTE_NAT_DISCOVERY_PORT", value_name = "PORT")]
    pub nat_discovery_port: Option<u16>,
    /// UDP port of the notices that tell route agents which gateways live; 0 switches them off [default: 4801]
    #[arg(long, env = "TRIESTE_NOTICE_PORT", value_name = "PORT")]
    pub notice_port: Option<u16>,
    /// Whether remote gateways should use the public address
    #[arg(long, env = "SUBMARINER_NATENABLED", num_args = 0..=1, default_missing_value = "true", value_parser = parse_bool)]
    pub nat_enabled: Option<bool>,
    /// The address that remote gateways ping [default: this node's first one inside the cluster CIDRs]
    #[arg(long, env = "TRIESTE_HEALTH_CHECK_IP", value_name = "ADDRESS")]
    pub health_check_ip: Option<String>,
    /// Whether remote gateways are pinged, and may ping this one [default: true]
    #[arg(long, env = "SUBMARINER_HEALTHCHECKENABLED", num_args = 0..=1, default_missing_value = "true", value_parser = parse_bool)]
    pub health_check: Option<bool>,
    /// Seconds between two pings [default: 1]
    #[arg(long, env = "SUBMARINER_HEALTHCHECKINTERVAL", value_name = "SECONDS")]
    pub health_check_interval: Option<u32>,
    /// Pings that may go unanswered before a connection counts as failed [default: 5]
    #[arg(long, env = "SUBMARINER_HEALTHCHECKMAXPACKETLOSSCOUNT", value_name = "COUNT")]
    pub health_check_max_loss: Option<u32>,
    /// Which of this cluster's gateways carry traffic: all of them, or one while the others stand by [default: all, but one
    /// with network plugins that give pods addresses of their own accord: Calico, Weave Net]
    #[arg(long, env = "TRIESTE_ACTIVE_GATEWAYS", value_name = "all|one")]
    pub active_gateways: Option<String>,
    /// The cluster's network plugin, as upstream names them [default: generic]
    #[arg(long, env = "SUBMARINER_NETWORKPLUGIN", value_name = "NAME")]
    pub network_plugin: Option<String>,
    /// This gateway's share of other clusters' flows against that of its siblings, 1 to 1000 [default: 100]
    #[arg(long, env = "TRIESTE_WEIGHT", value_name = "NUMBER")]
    pub weight: Option<u16>,
    /// Seconds that leadership lasts without being renewed [default: 15]
    #[arg(long, env = "LEADERSHIP_LEASEDURATION", value_name = "SECONDS")]
    pub lease_duration: Option<u32>,
    /// Seconds after which a leader that could not renew gives up [default: 10]
    #[arg(long, env = "LEADERSHIP_RENEWDEADLINE", value_name = "SECONDS")]
    pub renew_deadline: Option<u32>,
    /// Seconds between two tries to renew or to take leadership [default: 2]
    #[arg(long, env = "LEADERSHIP_RETRYPERIOD", value_name = "SECONDS")]
    pub retry_period: Option<u32>,
    /// Number of worker threads; a remote gateway's cable is carried by one of them [default: 1]
    #[arg(long, env = "TRIESTE_WORKERS", value_name = "N")]
    pub workers: Option<u16>,
    /// CPUs to pin the workers to, in order, or `off` [default: `off` for one worker, the first CPUs that may be used for several]
    #[arg(long, env = "TRIESTE_CPUS", value_name = "LIST")]
    pub cpus: Option<Cpus>,
    /// How packets of cables cross the kernel: sockets, af-xdp, or auto, which is af-xdp where nothing is copied; in programs
    /// that are built with it [default: sockets]
    #[arg(long, env = "TRIESTE_IO", value_name = "WAY")]
    pub io: Option<OuterIo>,
    /// Name of the TUN device [default: submariner]
    #[arg(long, value_name = "NAME")]
    pub tun_name: Option<String>,
    /// MTU of the TUN device in bytes; cables take what fits the underlay whatever this is [default: the underlay's]
    #[arg(long, value_name = "BYTES")]
    pub tun_mtu: Option<u16>,
    /// Largest inner packet that a cable takes, in bytes [default: the underlay's MTU less 80]
    #[arg(long, value_name = "BYTES")]
    pub path_mtu: Option<u16>,
    /// How often the far ends of cables to other Trieste gateways are probed while packets go there, in milliseconds, 5 to
    /// 1000 [default: 20]
    #[arg(long, env = "TRIESTE_PATH_PROBE_INTERVAL", value_name = "MILLISECONDS")]
    pub path_probe_interval: Option<u16>,
    /// After how many intervals of silence a path without jitter is down, 2 to 50 [default: 3]
    #[arg(long, env = "TRIESTE_PATH_PROBE_MULTIPLIER", value_name = "N")]
    pub path_probe_multiplier: Option<u8>,
    /// Whether the largest packet that gets through is found out for each path [default: true]
    #[arg(long, env = "TRIESTE_PMTU_PROBING", value_name = "BOOL", num_args = 0..=1, default_missing_value = "true", value_parser = parse_bool)]
    pub pmtu_probing: Option<bool>,
    /// Offloads to do without, separated by commas: tun-uso, tun-tso, tun-checksum, tun-vnet-header, udp-gso, udp-gro
    #[arg(long, env = "TRIESTE_DISABLE_OFFLOADS", value_name = "LIST")]
    pub disable_offloads: Option<Words>,
    /// TCP port of the metrics; 0 switches them off [default: 32780]
    #[arg(long, env = "SUBMARINER_METRICSPORT", value_name = "PORT")]
    pub metrics_port: Option<u16>,
    /// Unix socket for `trieste status`, `show` and `capture` [default: /run/trieste/gateway.sock]
    #[arg(long, env = "TRIESTE_ADMIN_SOCKET", value_name = "PATH")]
    pub admin_socket: Option<PathBuf>,
    /// Where kernel parameters are written: the host's, where a container's own are read-only [default: /proc/sys]
    #[arg(long, env = "TRIESTE_PROC_SYS", value_name = "DIR")]
    pub proc_sys: Option<PathBuf>,
    /// Set by Kubernetes in every pod: the cluster's own API server
    #[arg(long, env = "KUBERNETES_SERVICE_HOST", hide = true)]
    pub kubernetes_service_host: Option<String>,
    /// What to log: error, warn, info, debug, trace, or directives such as info,trieste_gateway=debug [default: as RUST_LOG
    /// says, else as --debug does]
    #[arg(long, env = "TRIESTE_LOG_LEVEL", value_name = "LEVEL")]
    pub log_level: Option<String>,
    /// Log more [default: false]
    #[arg(long, env = "SUBMARINER_DEBUG", num_args = 0..=1, default_missing_value = "true", value_parser = parse_bool)]
    pub debug: Option<bool>,
}

impl CommandLine {
    /// Reads flags and environment. An empty variable says nothing: manifests set variables that they have nothing
    /// for. Exceptions are the PSK, where the empty text is a text (wireformat §3), and the kind of cable, where it is
    /// upstream's default.
    ///
    /// # Errors
    /// The error of clap, which prints itself and sets the exit code.
    pub fn from_flags_and_environment(
        arguments: impl IntoIterator<Item = OsString>,
        variable: impl Fn(&OsStr) -> Option<OsString>,
    ) -> Result<Self, clap::Error> {
        Self::read(arguments.into_iter().collect(), variable, &Data::new())
    }

    /// Reads flags, settings and environment; the earlier win. Settings are those of the gateway, checked.
    fn read(
        arguments: Vec<OsString>,
        variable: impl Fn(&OsStr) -> Option<OsString>,
        settings: &Data,
    ) -> Result<Self, clap::Error> {
        let empty_texts = ["psk", "cable_driver"];
        let command = Self::command();
        let matches =
            command_line::matches_with(command, arguments.clone(), variable, &empty_texts, settings)?;
        let mut read = Self::from_arg_matches(&matches)?;
        read.arguments = Arguments(arguments);
        read.options.take_sections(settings);
        Ok(read)
    }

    /// Reads all of it again with these settings of the cluster, which go before the environment and the file.
    ///
    /// # Errors
    /// [`Refusal`] of a setting.
    pub fn with_settings(&self, settings: &Data) -> Result<Self, Refusal> {
        // A program that has this as a part of its own command line goes by that alone.
        if settings.is_empty() || self.arguments.0.is_empty() {
            return Ok(self.clone());
        }
        let read = Self::read(self.arguments.0.clone(), |name| std::env::var_os(name), settings);
        read.map_err(|error| command_line::refusal(&error))
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
    /// The problem, with line and key.
    pub fn parse_file(text: &str) -> Result<Self, String> {
        if text.lines().all(|line| line.trim().is_empty() || line.trim_start().starts_with('#')) {
            return Ok(Self::default());
        }
        serde_saphyr::from_str(text).map_err(|error| error.to_string())
    }

    /// Takes the sections that no flags are for from settings.
    fn take_sections(&mut self, settings: &Data) {
        let section = |name: &str| {
            let entries = settings.iter().filter_map(|(key, value)| {
                let inside = key.strip_prefix(name)?.strip_prefix('.')?;
                Some((inside.to_owned(), find(key)?.form.json(value)))
            });
            Value::Object(entries.collect())
        };
        // Checked ones can be read, which a test makes sure of for each.
        let ipsec = serde_json::from_value(section("ipsec")).unwrap_or_default();
        let globalnet = serde_json::from_value(section("globalnet")).unwrap_or_default();
        self.ipsec = Some(ipsec).filter(|section| *section != IpsecOptions::default());
        self.globalnet = Some(globalnet).filter(|section| *section != GlobalnetOptions::default());
    }

    /// Takes from `other` what is not value here.
    #[must_use]
    pub fn or(self, other: Self) -> Self {
        let globalnet = both(self.globalnet, other.globalnet, GlobalnetOptions::or);
        let ipsec = both(self.ipsec, other.ipsec, IpsecOptions::or);
        let cable_driver = pick_driver(self.cable_driver, other.cable_driver);
        let rest = Self { globalnet, ipsec, cable_driver, ..Self::default() };
        first_of!(self, other, others: rest, [
            cluster_id, cluster_cidrs, service_cidrs, global_cidrs, allow_remote_cidrs, log_level,
            broker_kind, broker_server, broker_token, broker_ca, broker_secret, broker_insecure, node_name,
            pod_name, endpoint_interface, air_gapped, nat_discovery_port, notice_port, health_check,
            active_gateways, network_plugin, weight, health_check_interval, health_check_max_loss,
            lease_duration, renew_deadline, retry_period, kubernetes_service_host, debug, namespace, broker,
            broker_namespace, state_dir, store, former_cable_driver, psk, psk_file, psk_secret,
            force_udp_encaps, preferred_server, ipsec_debug, udp_port, hostname, private_ip, public_ip,
            nat_enabled, health_check_ip, workers, cpus, io, tun_name, tun_mtu, path_mtu,
            path_probe_interval, path_probe_multiplier, pmtu_probing, disable_offloads, metrics_port,
            admin_socket, proc_sys,
        ])
    }
}

/// Returns what is there of a section in two sources, entry by entry.
fn both<T>(here: Option<T>, other: Option<T>, or: impl FnOnce(T, T) -> T) -> Option<T> {
    match (here, other) {
        (Some(here), Some(other)) => Some(or(here, other)),
        (here, other) => here.or(other),
    }
}

/// Returns the driver to use. A name in the file wins over an empty variable, which manifests set.
fn pick_driver(value: Option<String>, other: Option<String>) -> Option<String> {
    match (value, other) {
        (Some(value), Some(other)) if value.is_empty() => Some(other),
        (value, other) => value.or(other),
    }
}
