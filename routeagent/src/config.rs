//! Flags and environment of the binary. A flag wins over the environment; an empty variable says nothing.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use clap::{CommandFactory as _, FromArgMatches as _, Parser, ValueEnum};
use trieste_control::api::check_cluster_id;
use trieste_control::claims::Allowed;
use trieste_control::command_line::{self, Arguments, LogOptions};
use trieste_control::health::PingerConfig;
use trieste_control::notice;
use trieste_control::pages::{PagesAddress, parse_address};
use trieste_control::parse::{Addresses, Cidrs, parse_bool};
use trieste_control::process::host_name;
use trieste_control::settings::{Data, Form, Refusal};
use trieste_control::store::Location;
use trieste_control::{devices, logging};

use crate::state::Node;

/// Where the resolver's addresses are (resolv.conf(5)): the node's, or those that the pod was given.
const RESOLVERS: &str = "/etc/resolv.conf";
/// From the specification: a route agent asks this many times less often than a gateway with the same setting.
const INTERVAL_FACTOR: u32 = 60;

/// Programs routes and rules to remote clusters on this node, and refuses their traffic where there is no way.
///
/// Reads Endpoints, Clusters and Nodes from the local store and keeps this node's RouteAgent object. Ends on SIGTERM or
/// SIGINT and leaves everything in place, so that nothing for a remote cluster leaves in clear meanwhile; `--uninstall`
/// removes it.
#[derive(Debug, Clone, Parser)]
#[command(
    name = "trieste-routeagent",
    // Upstream's form, which its tool reads: `<component> version: <version>`.
    version = concat!("version: v", env!("CARGO_PKG_VERSION")),
    about,
    long_about
)]
pub struct Options {
    /// Where Endpoints, Clusters and Nodes are read from: `dir:PATH`, `kube:` or `kube:KUBECONFIG` [default: `kube:` in
    /// a pod, else dir:STATE_DIR/store].
    #[arg(long, env = "TRIESTE_STORE", value_name = "LOCATION")]
    pub store: Option<Location>,

    /// Directory in which is kept what has to be closed after a reboot, if it exists; the gateway's, and its store's.
    #[arg(long, env = "TRIESTE_STATE_DIR", value_name = "PATH", default_value = "/var/lib/trieste")]
    pub state_dir: PathBuf,

    /// Namespace of the objects in the store.
    #[arg(long, env = "SUBMARINER_NAMESPACE", default_value = "submariner-operator")]
    pub namespace: String,

    /// Id of this node's cluster. Required, except with --uninstall, --check and --wait-for-node.
    #[arg(long, env = "SUBMARINER_CLUSTERID")]
    pub cluster_id: Option<String>,

    /// Pod networks of this cluster, separated by commas; remote networks that overlap them are refused.
    #[arg(long, env = "SUBMARINER_CLUSTERCIDR", default_value = "", value_name = "CIDRS")]
    pub cluster_cidrs: Cidrs,

    /// Service networks of this cluster, separated by commas.
    #[arg(long, env = "SUBMARINER_SERVICECIDR", default_value = "", value_name = "CIDRS")]
    pub service_cidrs: Cidrs,

    /// Networks of this cluster's Globalnet, separated by commas; none without Globalnet.
    #[arg(long, env = "SUBMARINER_GLOBALCIDR", default_value = "", value_name = "CIDRS")]
    pub global_cidrs: Cidrs,

    /// Ranges of the set's clusterset IPs, separated by commas, which this node leads to where a service is served; none
    /// where it does not.
    #[arg(long, env = "TRIESTE_CLUSTERSET_IP_RANGE", default_value = "", value_name = "CIDRS")]
    pub clusterset_ip_range: Cidrs,

    /// Networks that other members may claim parts of, separated by commas, instead of private space (10.0.0.0/8,
    /// 172.16.0.0/12, 192.168.0.0/16, 100.64.0.0/10, 242.0.0.0/8, fc00::/7; of these a /11 or /40 at most).
    #[arg(long, env = "TRIESTE_ALLOW_REMOTE_CIDRS", default_value = "", value_name = "CIDRS")]
    pub allow_remote_cidrs: Cidrs,

    /// Addresses that no other member may claim, separated by commas, beside those of nodes, API servers and name servers:
    /// the broker's.
    #[arg(long, env = "TRIESTE_PROTECTED_ADDRESSES", default_value = "", value_name = "ADDRESSES")]
    pub protected_addresses: Addresses,

    /// Host names of the broker, separated by commas: no other member may claim the addresses that they have, now or within
    /// the last day.
    #[arg(
        long,
        env = "TRIESTE_BROKER_NAMES",
        default_value = "",
        hide_default_value = true,
        value_delimiter = ',',
        value_name = "NAMES"
    )]
    pub broker_names: Vec<String>,

    /// Network plugin of this cluster, as the operator found it.
    #[arg(long, env = "SUBMARINER_NETWORKPLUGIN", value_name = "NAME", default_value = "generic")]
    pub network_plugin: String,

    /// How OVN leads packets to remote clusters, as the workers are told: by its own router (`cluster-router`), or by one of
    /// Submariner's to the external bridge of the gateway's node (`submariner-router`).
    #[arg(long, env = "TRIESTE_OVN_TOPOLOGY", value_name = "TOPOLOGY", default_value = "cluster-router")]
    pub ovn_topology: OvnTopology,

    /// Name of this node's Node object, and of the RouteAgent object; without it neither is used.
    #[arg(long, env = "NODE_NAME", value_name = "NAME")]
    pub node_name: Option<String>,

    /// Name of this node, as the gateway publishes it in its Endpoint [default: the host name].
    #[arg(long, env = "TRIESTE_HOSTNAME")]
    pub hostname: Option<String>,

    /// Set by Kubernetes in every pod: the cluster's own API server.
    #[arg(long, env = "KUBERNETES_SERVICE_HOST", hide = true)]
    pub kubernetes_service_host: Option<String>,

    /// The gateway's device, unless its Endpoint names another.
    #[arg(long, value_name = "DEVICE", default_value = devices::TUN)]
    pub tun_name: String,

    /// UDP port of the notices by which this cluster's gateways say which of them live; 0 means that nobody listens.
    #[arg(long, env = "TRIESTE_NOTICE_PORT", value_name = "PORT", default_value_t = notice::DEFAULT_PORT)]
    pub notice_port: u16,

    /// Where /health, /ready and /metrics are answered on this node; `off` for nowhere.
    #[arg(long, env = "TRIESTE_ROUTEAGENT_METRICS", value_name = "ADDRESS:PORT", default_value = "off", value_parser = parse_address)]
    pub metrics: PagesAddress,

    /// Whether nodes without a gateway ping the remote gateways.
    #[arg(long, env = "SUBMARINER_HEALTHCHECKENABLED", num_args = 0..=1, default_value = "true", default_missing_value = "true", value_parser = parse_bool)]
    pub health_check: bool,

    /// Minutes between two pings of one gateway that answers (upstream counts its seconds 60 times here); 0 means 1.
    #[arg(long, env = "SUBMARINER_HEALTHCHECKINTERVAL", value_name = "MINUTES", default_value_t = 1)]
    pub health_check_interval: u32,

    /// Pings that may go unanswered before a gateway counts as unreachable; 0 means 5.
    #[arg(long, env = "SUBMARINER_HEALTHCHECKMAXPACKETLOSSCOUNT", value_name = "COUNT", default_value_t = 5)]
    pub health_check_max_loss: u32,

    /// How long the traffic of a network stays refused after nobody in the store claims the network any more.
    ///
    /// With --once nothing of that kind is removed, unless this is 0.
    #[arg(long, env = "TRIESTE_CLOSE_GRACE", value_name = "SECONDS", default_value_t = crate::grace::DEFAULT.as_secs())]
    pub close_grace: u64,

    /// Whether the taint `trieste.io/not-ready` is taken from this node's Node object once the node is closed. For nodes whose
    /// kubelets register them with it, so that no pod runs there before; needs the right to update Nodes, and NODE_NAME.
    #[arg(long, env = "TRIESTE_NODE_TAINT", num_args = 0..=1, default_value = "false", default_missing_value = "true", value_parser = parse_bool)]
    pub node_taint: bool,

    /// Whether the cluster has Spiderpool: the leading gateway's node then keeps GatewayRoute objects, whatever the network plugin,
    /// by which `trieste-plugin-sync` keeps Spiderpool's lists of networks.
    #[arg(long, env = "TRIESTE_SPIDERPOOL", num_args = 0..=1, default_value = "false", default_missing_value = "true", value_parser = parse_bool)]
    pub spiderpool: bool,

    /// Whether `trieste-plugin-sync` runs in this cluster, which a network plugin with a database of its own needs; set by manifests
    /// that install it. Without it the gateway's node has a condition with such a plugin.
    #[arg(long, env = "TRIESTE_PLUGIN_SYNC", num_args = 0..=1, default_value = "false", default_missing_value = "true", value_parser = parse_bool)]
    pub plugin_sync: bool,

    /// File that says how the last pass went, for --check.
    #[arg(long, env = "TRIESTE_PASS_FILE", value_name = "PATH", default_value = crate::liveness::DEFAULT_FILE)]
    pub pass_file: PathBuf,

    /// What to log: error, warn, info, debug, trace, or directives such as info,trieste_routeagent=debug [default: as RUST_LOG
    /// says, else as --debug and --verbosity do].
    #[arg(long, env = "TRIESTE_LOG_LEVEL", value_name = "LEVEL", value_parser = log_level)]
    pub log_level: Option<String>,

    /// How much is logged.
    #[command(flatten)]
    pub log: LogOptions,

    /// Make one pass and exit: 0 if nothing failed, 1 otherwise.
    #[arg(long)]
    pub once: bool,

    /// Print what a pass would change and what is not as it should be; change nothing.
    #[arg(long)]
    pub dry_run: bool,

    /// Exit 0 if the running route agent has made a good pass within the last 30 seconds, else say why not and exit 1.
    #[arg(long)]
    pub check: bool,

    /// Wait until this node's Node object is Ready, then exit 0.
    #[arg(long, env = "SUBMARINER_WAITFORNODE", num_args = 0..=1, default_value = "false", default_missing_value = "true", value_parser = parse_bool)]
    pub wait_for_node: bool,

    /// Remove every route, rule and filter of ours from this node, and its RouteAgent object, and exit. The device is
    /// left to the gateway.
    ///
    /// With --dry-run, print what would be removed.
    #[arg(long, env = "SUBMARINER_UNINSTALL", num_args = 0..=1, default_value = "false", default_missing_value = "true", value_parser = parse_bool)]
    pub uninstall: bool,

    /// What this was read from, to be read again with settings.
    #[arg(skip)]
    pub arguments: Arguments,
}

/// How OVN leads packets to remote clusters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum OvnTopology {
    /// By its own router to management ports.
    ClusterRouter,
    /// By a router of Submariner's own to the external bridge of the gateway's node.
    SubmarinerRouter,
}

impl Options {
    /// Reads flags and environment. An empty variable says nothing: manifests set variables that they have nothing for.
    ///
    /// # Errors
    ///
    /// The error of clap, which prints itself and sets the exit code.
    pub fn from_flags_and_environment(
        arguments: impl IntoIterator<Item = OsString>,
        variable: impl Fn(&OsStr) -> Option<OsString>,
    ) -> Result<Self, clap::Error> {
        Self::read(arguments.into_iter().collect(), variable, &Data::new())
    }

    /// Reads flags, settings and environment; the earlier win.
    fn read(
        arguments: Vec<OsString>,
        variable: impl Fn(&OsStr) -> Option<OsString>,
        settings: &Data,
    ) -> Result<Self, clap::Error> {
        let matches =
            command_line::matches_with(Self::command(), arguments.clone(), variable, &[], settings)?;
        Ok(Self { arguments: Arguments(arguments), ..Self::from_arg_matches(&matches)? })
    }

    /// Reads all of it again with these settings of the cluster, which go before the environment.
    ///
    /// # Errors
    /// [`Refusal`] of a setting.
    pub fn with_settings(&self, settings: &Data) -> Result<Self, Refusal> {
        let read = Self::read(self.arguments.0.clone(), |name| std::env::var_os(name), settings);
        let read = read.map_err(|error| command_line::refusal(&error))?;
        let refused = |error: anyhow::Error| Refusal { key: None, problem: format!("{error:#}") };
        read.node().map_err(refused)?;
        Ok(read)
    }

    /// Returns this node's identity and settings.
    ///
    /// # Errors
    ///
    /// The cluster id is missing or malformed, there is no network, or the host name cannot be read.
    pub fn node(&self) -> anyhow::Result<Node> {
        let cluster = self.cluster_id.clone().unwrap_or_default();
        if cluster.is_empty() {
            bail!("the id of this node's cluster is missing: pass --cluster-id or set SUBMARINER_CLUSTERID");
        }
        check_cluster_id(&cluster).context("--cluster-id (SUBMARINER_CLUSTERID)")?;
        let (pod_networks, service_networks) = (self.cluster_cidrs.0.clone(), self.service_cidrs.0.clone());
        ensure!(
            !(pod_networks.is_empty() && service_networks.is_empty()),
            "the networks of this cluster are missing: pass --cluster-cidrs or --service-cidrs, or set \
             SUBMARINER_CLUSTERCIDR or SUBMARINER_SERVICECIDR"
        );
        Ok(Node {
            cluster,
            hostname: self.hostname()?,
            pod_networks,
            service_networks,
            extra_networks: Vec::new(),
            tun: device(&self.tun_name)?,
            notice_port: self.notice_port,
            plugin: self.network_plugin.to_lowercase(),
            has_submariner_router: self.ovn_topology == OvnTopology::SubmarinerRouter,
            has_synchronizer: self.plugin_sync,
            has_globalnet: !self.global_cidrs.0.is_empty(),
            clusterset_range: self.clusterset_ip_range.0.clone(),
            allowed: Allowed::of(self.allow_remote_cidrs.0.clone()),
            protected: self.protected(&std::fs::read_to_string(RESOLVERS).unwrap_or_default()),
        })
    }

    /// Returns the addresses that no member may claim, and whose they are; `resolvers` is the text of [`RESOLVERS`].
    fn protected(&self, resolvers: &str) -> BTreeMap<IpAddr, String> {
        let named = self.protected_addresses.0.iter();
        let named = named.map(|address| (*address, "which TRIESTE_PROTECTED_ADDRESSES names".to_owned()));
        let servers = resolvers.lines().filter_map(|line| {
            let address = line.trim().strip_prefix("nameserver")?.trim();
            // A link-local one has a zone.
            Some((address.parse::<IpAddr>().ok()?, "a name server of this node".to_owned()))
        });
        servers.chain(named).collect()
    }

    /// Returns the servers that are known by a name, and whose each is, the name in it.
    #[must_use]
    pub fn servers(&self) -> BTreeMap<String, String> {
        let own = self.kubernetes_service_host.iter().map(|name| (name, "an API server of this cluster"));
        let brokers = self.broker_names.iter().map(|name| (name, "the broker"));
        let names = own.chain(brokers).map(|(name, whose)| (name.trim(), whose));
        names
            .filter(|(name, _)| !name.is_empty() && name.parse::<IpAddr>().is_err())
            .map(|(name, whose)| (name.to_owned(), format!("{whose} ({name})")))
            .collect()
    }

    /// Returns how remote gateways are pinged; `None` if they are not.
    #[must_use]
    pub fn pinger(&self) -> Option<PingerConfig> {
        let seconds = self.health_check_interval.max(1).saturating_mul(INTERVAL_FACTOR);
        let interval = Duration::from_secs(seconds.into());
        self.health_check.then(|| PingerConfig::new(interval, self.health_check_max_loss))
    }

    /// Returns how long a network stays closed after nobody claims it any more.
    #[must_use]
    pub fn close_grace(&self) -> Duration {
        Duration::from_secs(self.close_grace)
    }

    /// Returns where the store is.
    #[must_use]
    pub fn store(&self) -> Location {
        let default = || Location::default_of(self.kubernetes_service_host.as_deref(), &self.state_dir);
        self.store.clone().unwrap_or_else(default)
    }

    fn hostname(&self) -> anyhow::Result<String> {
        match &self.hostname {
            Some(name) if !name.is_empty() => Ok(name.clone()),
            _ => host_name().context("reading the host name; pass --hostname"),
        }
    }
}

/// Checks what is to be logged.
fn log_level(text: &str) -> Result<String, String> {
    if logging::is_filter(text) { Ok(text.to_owned()) } else { Err(format!("expected {}", Form::LogFilter)) }
}

/// Checks a device name by the kernel's rules.
fn device(name: &str) -> anyhow::Result<String> {
    ensure!(
        crate::source::is_device_name(name),
        "--tun-name {name}: a device name has 1 to 15 characters, none of them a slash, colon or space"
    );
    Ok(name.to_owned())
}

#[cfg(test)]
mod tests {
    use ipnet::IpNet;

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
            "--service-cidrs=100.65.0.0/16",
        ])
        .node()
        .unwrap();
        let texts = |nets: &[IpNet]| nets.iter().map(ToString::to_string).collect::<Vec<_>>();
        assert_eq!(texts(&node.pod_networks), ["10.1.0.0/16", "fd00:1::/48"]);
        assert_eq!(texts(&node.service_networks), ["100.65.0.0/16"]);
    }

    #[test]
    fn errors_name_the_flag_and_what_to_do() {
        let error = |arguments: &[&str]| options(arguments).node().unwrap_err().to_string();
        assert!(error(&["--cluster-cidrs=10.1.0.0/16"]).contains("--cluster-id"));
        assert!(error(&["--cluster-id=a"]).contains("SUBMARINER_CLUSTERCIDR"));
        assert!(error(&["--cluster-id=A_b", "--cluster-cidrs=10.1.0.0/16"]).contains("--cluster-id"));
        assert!(
            error(&["--cluster-id=a", "--cluster-cidrs=10.1.0.0/16", "--tun-name=a/b"])
                .contains("--tun-name")
        );
    }

    #[test]
    fn values_that_cannot_be_read_are_named() {
        for wrong in ["--cluster-cidrs=10.1.0.0/33", "--health-check=perhaps", "--health-check-interval=-1"] {
            let error = Options::try_parse_from(["trieste-routeagent", wrong]).unwrap_err().to_string();
            let flag = wrong.split('=').next().unwrap();
            assert!(error.contains(flag), "{error}");
        }
    }

    #[test]
    fn servers_that_are_known_by_a_name_are_named_with_it_and_addresses_are_not_names() {
        let servers = |arguments: &[&str]| options(arguments).servers().into_values().collect::<Vec<_>>();
        assert_eq!(servers(&["--kubernetes-service-host=100.65.0.1"]), Vec::<String>::new());
        assert_eq!(servers(&["--broker-names="]), Vec::<String>::new());
        let both =
            servers(&["--kubernetes-service-host=api.example", "--broker-names=b.example, c.example,"]);
        let expected = [
            "an API server of this cluster (api.example)",
            "the broker (b.example)",
            "the broker (c.example)",
        ];
        assert_eq!(both, expected);
    }

    #[test]
    fn plugin_and_globalnet_are_part_of_the_node() {
        let base = ["--cluster-id=a", "--hostname=n", "--cluster-cidrs=10.1.0.0/16"];
        let node = |more: &[&str]| options(&[&base, more].concat()).node().unwrap();
        assert_eq!((node(&[]).plugin.as_str(), node(&[]).has_globalnet), ("generic", false));
        let node = node(&["--network-plugin=OVNKubernetes", "--global-cidrs=242.1.0.0/16"]);
        assert_eq!((node.plugin.as_str(), node.has_globalnet), ("ovnkubernetes", true));
    }

    #[test]
    fn plugin_ovn_the_topology_is_as_the_worker_is_told() {
        let base = ["--cluster-id=a", "--hostname=n", "--cluster-cidrs=10.1.0.0/16"];
        let has_router =
            |more: &[&str]| options(&[&base, more].concat()).node().unwrap().has_submariner_router;
        assert!(!has_router(&[]) && !has_router(&["--ovn-topology=cluster-router"]));
        assert!(has_router(&["--ovn-topology=submariner-router"]));
        assert!(Options::try_parse_from(["trieste-routeagent", "--ovn-topology=both"]).is_err());
    }

    #[test]
    fn plugin_a_synchronizer_is_there_where_manifests_set_it() {
        let base = ["--cluster-id=a", "--hostname=n", "--cluster-cidrs=10.1.0.0/16"];
        let has_one = |more: &[&str]| options(&[&base, more].concat()).node().unwrap().has_synchronizer;
        assert!(!has_one(&[]) && !has_one(&["--plugin-sync=false"]) && has_one(&["--plugin-sync"]));
    }

    #[test]
    fn remote_gateways_are_pinged_sixty_times_less_often_than_by_a_gateway() {
        let interval =
            |minutes: &str| options(&["--health-check-interval", minutes]).pinger().unwrap().interval();
        assert_eq!([interval("1"), interval("0"), interval("2")].map(|one| one.as_secs()), [60, 60, 120]);
        assert_eq!(options(&["--health-check=false"]).pinger(), None);
    }

    #[test]
    fn an_empty_variable_says_nothing() {
        let parse = |value: &'static str| {
            let variable = move |_: &OsStr| Some(OsString::from(value));
            Options::from_flags_and_environment(["trieste-routeagent".into()], variable)
        };
        assert!(parse("").unwrap().health_check);
    }

    #[test]
    fn the_store_is_below_the_state_directory_unless_named() {
        assert_eq!(options(&["--state-dir=/s"]).store().to_string(), "dir:/s/store");
        assert_eq!(options(&["--store=dir:/x"]).store().to_string(), "dir:/x");
        assert_eq!(options(&["--kubernetes-service-host=100.65.0.1"]).store().to_string(), "kube:");
        let error = Options::try_parse_from(["trieste-routeagent", "--store=/x"]).unwrap_err().to_string();
        assert!(error.contains("dir:PATH"), "{error}");
    }
}
