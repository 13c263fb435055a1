//! `trieste join`: makes a cluster a member of the set whose `broker-info.subm` is given.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{anyhow, bail};
use ipnet::{IpNet, Ipv4Net};
use trieste_control::parse::Cidrs;
use trieste_control::steps::{Outcome, Record, Steps};
use trieste_deploy::broker_info::{self, BrokerInfo};
use trieste_deploy::discover::Given;
use trieste_deploy::join::{self, ClustersetIps, Earlier, Join, NoOne};
use trieste_deploy::objects::{ActiveGateways, MemberOptions, MemoryLimit, OuterIo};
use trieste_deploy::preflight;
use trieste_deploy::shares::Wish;
use trieste_deploy::{BrokerLogin, DeployError, Server, cluster_id, connect};

use super::contexts::{KubeArgs, Target};
use super::deploying::{
    ApplyArgs, ImageArgs, ProxyArgs, Terminal, explained, join_file, remark_steps, without_effect,
};
use super::output::{Output, printable, remark};
use super::pod_flags::PodArgs;
use super::progress::Printer;

/// Flags of `join`: upstream's, and a few of ours. Switches are on or off as in Go: `--natt`, `--natt=false`.
#[derive(Debug, Clone, clap::Args)]
#[command(disable_version_flag = true)]
pub(super) struct JoinArgs {
    /// The file that deploy-broker has written
    #[arg(value_name = "broker-info.subm")]
    file: Option<PathBuf>,
    #[command(flatten)]
    kube: KubeArgs,
    /// This cluster's ID in the set [default: made of the cluster's name in the kubeconfig]
    #[arg(long, value_name = "ID")]
    clusterid: Option<String>,
    /// Pod CIDRs, separated by commas [default: discovered]
    #[arg(long, value_name = "CIDRS", value_delimiter = ',')]
    clustercidr: Vec<IpNet>,
    /// Service CIDRs, separated by commas [default: discovered]
    #[arg(long, value_name = "CIDRS", value_delimiter = ',')]
    servicecidr: Vec<IpNet>,
    /// Other networks that are reached by way of this cluster, separated by commas; an empty text for none any more
    #[arg(long, value_name = "CIDRS")]
    extra_cidrs: Option<Cidrs>,
    #[command(flatten)]
    broker: BrokerArgs,
    #[command(flatten)]
    names: NameArgs,
    #[command(flatten)]
    cable: CableArgs,
    #[command(flatten)]
    check: CheckArgs,
    #[command(flatten)]
    apply: ApplyArgs,
    /// How many seconds the pods may take to come up; 0 does not wait
    #[arg(long, value_name = "SECONDS", default_value_t = 300)]
    wait_timeout: u64,
    /// Try it even if this version of Kubernetes or this network plugin is not supported
    #[arg(long)]
    ignore_requirements: bool,
    /// Route agents take the taint trieste.io/not-ready from nodes that they have closed, for kubelets that register with
    /// it; their account may then update Nodes
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    node_taint: Option<bool>,
    /// The most memory that a gateway may have, such as 2Gi; 0 is no limit [default: 1Gi]
    #[arg(long, value_name = "BYTES")]
    gateway_memory: Option<MemoryLimit>,
    /// The most memory that a route agent may have; 0 is no limit [default: 512Mi]
    #[arg(long, value_name = "BYTES")]
    routeagent_memory: Option<MemoryLimit>,
    #[command(flatten)]
    pods: PodArgs,
    #[command(flatten)]
    image: ImageArgs,
    #[command(flatten)]
    proxy: ProxyArgs,
    /// Programs log more
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pod_debug: Option<bool>,
    /// Where the cluster has joined before: what is not said is the default again, not what it was
    #[arg(long)]
    reset: bool,
    /// Where the cluster has joined before with another pre-shared key: take the file's
    #[arg(long)]
    replace_psk: bool,
    #[command(flatten)]
    global: GlobalArgs,
    #[command(flatten)]
    later: LaterArgs,
}

/// The broker.
#[derive(Debug, Clone, clap::Args)]
#[command(next_help_heading = "Broker")]
struct BrokerArgs {
    /// The broker's address, if it is another one from here than the file says
    #[arg(long, value_name = "URL")]
    broker_url: Option<String>,
    /// Check the broker's certificate [default: true]
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    check_broker_certificate: Option<bool>,
}

/// Names of services.
#[derive(Debug, Clone, clap::Args)]
#[command(next_help_heading = "Service discovery, if the broker has it")]
struct NameArgs {
    /// Export and import services, and answer their names [default: if the broker has service discovery]
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    service_discovery: Option<bool>,
    /// Answer names also of services whose namespace this cluster does not have [default: false, as Lighthouse]
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    missing_namespaces: Option<bool>,
    /// Give services one address for the whole set whose exports say nothing of it [default: as the broker]
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    enable_clusterset_ip: Option<bool>,
    /// The blocks that this cluster gives such addresses of, one of IPv4, one of IPv6 or both, parts of the broker's ranges
    /// [default: those of an earlier join, else the first that are free]
    #[arg(long, value_name = "CIDRS", value_delimiter = ',')]
    clusterset_ip_cidr: Vec<IpNet>,
    /// Domains beside clusterset.local [default: the broker's]
    #[arg(long, value_name = "DOMAINS", value_delimiter = ',')]
    custom_domains: Vec<String>,
    /// The ConfigMap from which the cluster's CoreDNS takes further servers, in kube-system if no namespace is said [default:
    /// coredns-custom where its Corefile imports one; else the Corefile itself, OpenShift's DNS or kube-dns]
    #[arg(long, value_name = "[NAMESPACE/]NAME")]
    coredns_custom_configmap: Option<String>,
}

/// The gateway and its cables.
#[derive(Debug, Clone, clap::Args)]
#[command(next_help_heading = "Gateway and cables")]
struct CableArgs {
    /// The kind of cable: wireguard, libreswan, which is IPsec, or vxlan, which neither encrypts nor authenticates. The
    /// same in all clusters [default: wireguard]
    #[arg(long, value_name = "DRIVER")]
    cable_driver: Option<String>,
    /// Label a node as a gateway if none is
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value = "true", action = clap::ArgAction::Set)]
    label_gateway: bool,
    /// UDP port of the cables [default: 4500]
    #[arg(long, alias = "natt-port", value_name = "PORT")]
    nattport: Option<u16>,
    /// UDP port of NAT discovery; 0 switches it off [default: 4490]
    #[arg(long, value_name = "PORT")]
    nat_discovery_port: Option<u16>,
    /// Peers use the public address where NAT discovery does not tell [default: true]
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    natt: Option<bool>,
    /// Gateways wait for others to connect (libreswan)
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    preferred_server: Option<bool>,
    /// Packets always go through UDP (libreswan)
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    force_udp_encaps: Option<bool>,
    /// Negotiations are logged in detail (libreswan)
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    ipsec_debug: Option<bool>,
    /// What other members may claim parts of, separated by commas, instead of private space [default: 10.0.0.0/8,
    /// 172.16.0.0/12, 192.168.0.0/16, 100.64.0.0/10, 242.0.0.0/8, fc00::/7, of these a /11 or /40 at most]
    #[arg(long, value_name = "CIDRS", value_delimiter = ',')]
    allow_remote_cidrs: Vec<IpNet>,
    /// Nobody outside is asked for the public address
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    air_gapped: Option<bool>,
    /// Make a Service of type LoadBalancer that leads to the active gateway
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    load_balancer: Option<bool>,
    /// Which of this cluster's gateways carry traffic: all, or one while the others stand by [default: all, but one with
    /// network plugins that give pods addresses of their own accord: Calico, Weave Net, OVN-Kubernetes, which has no other choice]
    #[arg(long, value_name = "all|one", value_parser = active_gateways)]
    active_gateways: Option<ActiveGateways>,
    /// How packets between clusters cross the kernel of gateway nodes: through sockets; past its stack by AF_XDP; or past it
    /// where nothing is copied (auto). The latter two give gateways the capabilities BPF and IPC_LOCK [default: sockets]
    #[arg(long, value_name = "sockets|af-xdp|auto", value_parser = outer_io)]
    io: Option<OuterIo>,
    /// Upstream's; without effect, as all gateways are active unless --active-gateways says something else
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    multi_active_gateway: Option<bool>,
}

/// How connections are checked.
#[derive(Debug, Clone, clap::Args)]
#[command(next_help_heading = "Health check")]
struct CheckArgs {
    /// Ping the other clusters' gateways [default: true]
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    health_check: Option<bool>,
    /// Seconds between two pings [default: 1]
    #[arg(long, value_name = "SECONDS")]
    health_check_interval: Option<u32>,
    /// Unanswered pings above which a connection has failed [default: 5]
    #[arg(long, value_name = "PINGS")]
    health_check_max_packet_loss_count: Option<u32>,
}

/// Addresses under which other clusters know this one.
#[derive(Debug, Clone, clap::Args)]
#[command(next_help_heading = "Global addresses, if the broker gives some out")]
struct GlobalArgs {
    /// Take part in globalnet, if the broker has it: the others know this cluster by global addresses alone
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value = "true", action = clap::ArgAction::Set)]
    globalnet: bool,
    /// The global addresses of this cluster [default: those of an earlier join, else the first that are free]
    #[arg(long, value_name = "CIDR", conflicts_with = "globalnet_cluster_size")]
    globalnet_cidr: Option<Ipv4Net>,
    /// How many of them, rounded up to a power of two; 0 leaves it to the broker [default: the broker's]
    #[arg(long, value_name = "ADDRESSES")]
    globalnet_cluster_size: Option<u32>,
}

/// Upstream's flags for what this version does not have.
#[derive(Debug, Clone, clap::Args)]
#[command(next_help_heading = "Taken for the sake of scripts")]
struct LaterArgs {
    #[arg(long, hide = true)]
    operator_debug: bool,
}

/// Runs the command.
///
/// # Errors
/// Says what went wrong and what to do next.
pub(super) async fn run(args: &JoinArgs, output: &mut Output) -> anyhow::Result<ExitCode> {
    let file = args.file.clone().unwrap_or_else(join_file);
    let info = broker_info::load(&file).map_err(DeployError::from).map_err(explained)?;
    let target = args.kube.target()?;
    args.remark_flags(&info)?;
    let local = Server::new(target.client().await?, format!("cluster \"{}\"", target.cluster))
        .forcing_conflicts(args.apply.force_conflicts);
    let earlier = args.earlier(&local).await?;
    let options = args.options(&info, &target, earlier.as_ref())?;
    let url = args.broker.broker_url.clone().unwrap_or_else(|| info.broker_url.clone());
    let token = &info.client_token;
    let login = BrokerLogin {
        url: url.clone(),
        ca: token.ca.clone(),
        token: token.token.clone(),
        insecure: options.member.broker.insecure,
    };
    let broker = connect(&login).map_err(explained)?;
    if args.apply.dry_run {
        return dry_run(args, (&local, &broker), &options, output).await;
    }
    let mut printer = Printer::new(output);
    printer.heading(&target.cluster);
    printer.remark(Outcome::Success, &format!("{} indicates broker is at {url}", file.display()));
    let plan =
        join::prepare(&local, &broker, &options, &mut Terminal, &mut printer).await.map_err(explained)?;
    join::execute(&local, &broker, &plan, &mut printer).await.map_err(explained)?;
    let joined = format!(
        "Cluster \"{}\" has joined; trieste show connections tells who answers",
        plan.member.cluster_id
    );
    printer.remark(Outcome::Success, &joined);
    printer.finish()?;
    Ok(ExitCode::SUCCESS)
}

async fn dry_run(
    args: &JoinArgs,
    (local, broker): (&Server, &Server),
    options: &Join,
    output: &mut Output,
) -> anyhow::Result<ExitCode> {
    let mut steps = Record::default();
    let prepared = join::prepare(local, broker, options, &mut NoOne, &mut steps).await;
    remark_steps(&steps);
    let plan = prepared.map_err(explained)?;
    for node in &plan.labels {
        remark(&format!("note: node {} would be labeled as a gateway", printable(node)));
    }
    remark("note: the first objects are the broker's, and the token is not known before they are there");
    args.apply.show(&[plan.broker, plan.local].concat(), output)?;
    Ok(ExitCode::SUCCESS)
}

/// Reads how outer packets are to cross the kernel.
fn outer_io(text: &str) -> Result<OuterIo, String> {
    OuterIo::parse(text).ok_or_else(|| "it is sockets, af-xdp or auto".to_owned())
}

/// Reads which gateways are to be active.
fn active_gateways(text: &str) -> Result<ActiveGateways, String> {
    ActiveGateways::parse(text).ok_or_else(|| "it is all or one".to_owned())
}

/// Takes what was said.
fn take<T: Clone>(field: &mut T, said: Option<&T>) {
    if let Some(said) = said {
        field.clone_from(said);
    }
}

impl GlobalArgs {
    /// Upstream's 0 says nothing.
    fn wish(&self) -> Wish {
        Wish {
            cidr: self.globalnet_cidr.map(IpNet::V4),
            size: self.globalnet_cluster_size.filter(|size| *size != 0),
        }
    }
}

impl JoinArgs {
    /// What an earlier join has settled, unless it is not to count.
    async fn earlier(&self, local: &Server) -> anyhow::Result<Option<Earlier>> {
        if self.reset {
            return Ok(None);
        }
        join::earlier(local, &self.kube.namespace).await.map_err(explained)
    }

    fn options(&self, info: &BrokerInfo, target: &Target, earlier: Option<&Earlier>) -> anyhow::Result<Join> {
        let id = match earlier.and_then(Earlier::cluster_id) {
            Some(id) if self.clusterid.is_none() => id.to_owned(),
            _ => self.id(target)?,
        };
        let was_insecure = earlier.is_some_and(Earlier::is_insecure);
        let insecure = self.broker.check_broker_certificate.map_or(was_insecure, |check| !check);
        let mut fresh = join::member_of(info, &id, self.broker.broker_url.as_deref(), insecure);
        fresh.nat_enabled = true;
        let mut member = fresh.clone();
        let mut networks = Given::default();
        if let Some(earlier) = earlier {
            earlier.settle(&mut member);
            networks = earlier.networks();
        }
        self.fill(&mut fresh)?;
        self.fill(&mut member)?;
        let is_settled = [&self.clustercidr, &self.servicecidr].map(|said| said.is_empty());
        let said = |said: &[IpNet], before: Vec<IpNet>| if said.is_empty() { before } else { said.to_vec() };
        self.remark_ipsec_flags(&member.cable_driver);
        Ok(Join {
            kept: join::kept(&fresh, &member),
            replace_psk: self.replace_psk,
            member,
            given: Given {
                pods: said(&self.clustercidr, networks.pods),
                services: said(&self.servicecidr, networks.services),
                is_settled: is_settled.map(|is_settled| is_settled && earlier.is_some()),
            },
            globalnet: self.global.globalnet,
            share: self.global.wish(),
            clusterset_ips: ClustersetIps {
                is_default: self.names.enable_clusterset_ip,
                cidrs: self.names.clusterset_ip_cidr.clone(),
            },
            gateways: usize::from(self.cable.label_gateway),
            ignore_requirements: self.ignore_requirements,
            patience: Duration::from_secs(self.wait_timeout),
        })
    }

    fn fill(&self, member: &mut MemberOptions) -> anyhow::Result<()> {
        let (cable, check) = (&self.cable, &self.check);
        member.namespace.clone_from(&self.kube.namespace);
        let (image, _) = self.image.image()?;
        if self.image.is_named() {
            member.image.reference = image.reference;
        }
        if self.image.image_pull_policy.is_some() {
            member.image.pull_policy = image.pull_policy;
        }
        if !self.image.image_pull_secrets.is_empty() {
            member.pull_secrets.clone_from(&self.image.image_pull_secrets);
        }
        take(&mut member.cable_driver, cable.cable_driver.as_deref().map(preflight::canonical).as_ref());
        take(&mut member.nat_enabled, cable.natt.as_ref());
        take(&mut member.natt_port, cable.nattport.as_ref());
        take(&mut member.nat_discovery_port, cable.nat_discovery_port.as_ref());
        take(&mut member.preferred_server, cable.preferred_server.as_ref());
        take(&mut member.force_udp_encaps, cable.force_udp_encaps.as_ref());
        let health = &mut member.health_check;
        take(&mut health.enabled, check.health_check.as_ref());
        take(&mut health.interval_seconds, check.health_check_interval.as_ref());
        take(&mut health.max_packet_loss, check.health_check_max_packet_loss_count.as_ref());
        take(&mut member.extra_cidrs, self.extra_cidrs.as_ref().map(|cidrs| &cidrs.0));
        if !cable.allow_remote_cidrs.is_empty() {
            member.allow_remote_cidrs = cable.allow_remote_cidrs.iter().map(IpNet::trunc).collect();
        }
        take(&mut member.air_gapped, cable.air_gapped.as_ref());
        take(&mut member.load_balancer, cable.load_balancer.as_ref());
        take(&mut member.multi_active_gateway, cable.multi_active_gateway.as_ref());
        if cable.active_gateways.is_some() {
            member.active_gateways = cable.active_gateways;
        }
        if cable.io.is_some() {
            member.outer_io = cable.io;
        }
        take(&mut member.node_taint, self.node_taint.as_ref());
        take(&mut member.gateway_memory, self.gateway_memory.as_ref());
        take(&mut member.route_agent_memory, self.routeagent_memory.as_ref());
        take(&mut member.debug, self.pod_debug.as_ref());
        take(&mut member.ipsec_debug, cable.ipsec_debug.as_ref());
        self.pods.fill(member)?;
        if self.proxy.is_said() {
            member.proxy = self.proxy.proxy();
        }
        let names = &self.names;
        if let Some(wanted) = names.service_discovery {
            member.declines_service_discovery = !wanted;
        }
        take(&mut member.answers_missing_namespaces, names.missing_namespaces.as_ref());
        take(&mut member.coredns_custom_config, names.coredns_custom_configmap.as_ref());
        if !names.custom_domains.is_empty() {
            member.custom_domains.clone_from(&names.custom_domains);
        }
        Ok(())
    }

    /// The ID that was said, as it is; else one made of the cluster's name.
    fn id(&self, target: &Target) -> anyhow::Result<String> {
        let say = "say one with --clusterid: a-z, 0-9 and dashes, at most 63 characters";
        if let Some(id) = &self.clusterid {
            trieste_control::api::check_cluster_id(id)
                .map_err(|error| anyhow!("the cluster ID {error}; {say}"))?;
            return Ok(id.clone());
        }
        if target.context.is_none() {
            return Err(anyhow!("the name of this cluster is not known; {say}"));
        }
        cluster_id::derive(&target.cluster)
            .map_err(|error| anyhow!("no cluster ID can be made of the cluster's name: {error}; {say}"))
    }

    /// Of the flags of the IPsec cable that do nothing with another one.
    fn remark_ipsec_flags(&self, driver: &str) {
        if driver == preflight::canonical("ipsec") {
            return;
        }
        let (cable, why) =
            (&self.cable, "it is the IPsec cable's (--cable-driver libreswan), and kept for it");
        without_effect(&[
            (cable.force_udp_encaps == Some(true), "--force-udp-encaps", why),
            (cable.ipsec_debug == Some(true), "--ipsec-debug", why),
            (cable.preferred_server == Some(true), "--preferred-server", why),
        ]);
    }

    /// Of upstream's flags that do nothing here.
    fn remark_flags(&self, info: &BrokerInfo) -> anyhow::Result<()> {
        let later = &self.later;
        let (_, unused) = self.image.image()?;
        unused.iter().for_each(|text| remark(&format!("warning: {text}")));
        without_effect(&[
            (later.operator_debug, "--operator-debug", "there is no operator"),
            (
                self.cable.multi_active_gateway == Some(true),
                "--multi-active-gateway",
                "all gateways of a cluster are active, unless --active-gateways says something else",
            ),
        ]);
        if self.names.service_discovery == Some(true) && !info.service_discovery {
            bail!(
                "--service-discovery: the set has none; trieste deploy-broker --components \
                 service-discovery,connectivity makes it have it"
            );
        }
        Ok(())
    }
}
