//! `trieste deploy-broker`: makes a cluster the broker of a set, and writes `broker-info.subm`.

use std::fmt;
use std::net::IpAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::str::FromStr;

use anyhow::bail;
use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use trieste_control::steps::{Outcome, Record, Steps};
use trieste_deploy::broker_info::{self, BrokerInfo, Written};
use trieste_deploy::deploy_broker::{self, DeployBroker};
use trieste_deploy::objects::names::BROKER_NAMESPACE;
use trieste_deploy::objects::{BrokerOptions, ClusterSetIp, Component, Globalnet};
use trieste_deploy::{DeployError, Server};

use super::contexts::{KubeArgs, Target};
use super::deploying::{
    ApplyArgs, ImageArgs, ProxyArgs, explained, join_file, now, remark_steps, without_effect,
};
use super::output::{Output, remark};
use super::progress::Printer;

/// Flags of `deploy-broker`: upstream's, and a few of ours.
#[derive(Debug, Clone, clap::Args)]
#[command(disable_version_flag = true)]
pub(super) struct DeployBrokerArgs {
    #[command(flatten)]
    kube: KubeArgs,
    /// The address under which members reach this cluster's API server [default: that of the context]
    #[arg(long, value_name = "URL")]
    broker_url: Option<String>,
    /// The namespace in which members meet
    #[arg(long, value_name = "NAMESPACE", default_value = BROKER_NAMESPACE)]
    broker_namespace: String,
    /// What the set offers: service-discovery, connectivity
    #[arg(long, value_delimiter = ',', default_value = "service-discovery,connectivity")]
    components: Vec<Component>,
    /// Domains beside clusterset.local
    #[arg(long, value_name = "DOMAINS", value_delimiter = ',')]
    custom_domains: Vec<String>,
    /// Take the cluster set's key from this broker-info.subm
    #[arg(long, value_name = "FILE")]
    ipsec_psk_from: Option<PathBuf>,
    /// Let that key take the place of the one with which clusters have joined; each has to join again
    #[arg(long, requires = "ipsec_psk_from")]
    replace_psk: bool,
    #[command(flatten)]
    ranges: RangeArgs,
    #[command(flatten)]
    apply: ApplyArgs,
    #[command(flatten)]
    image: ImageArgs,
    #[command(flatten)]
    proxy: ProxyArgs,
    /// Without effect: there is no operator
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value = "false", hide = true)]
    operator_debug: bool,
}

/// Addresses that the broker gives out.
#[derive(Debug, Clone, clap::Args)]
#[command(next_help_heading = "Addresses that the broker gives out")]
struct RangeArgs {
    /// Members get global addresses, for sets whose clusters' CIDRs overlap
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value = "false", action = clap::ArgAction::Set)]
    globalnet: bool,
    /// Where global addresses are taken from
    #[arg(long, value_name = "CIDR", default_value = "242.0.0.0/8")]
    globalnet_cidr_range: Ipv4Net,
    /// How many global addresses a member gets, rounded up to a power of two
    #[arg(long, value_name = "ADDRESSES", default_value_t = 65536)]
    globalnet_cluster_size: u32,
    /// Exported services get an address of the set
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value = "false", action = clap::ArgAction::Set)]
    enable_clusterset_ip: bool,
    /// Where addresses of the set are taken from: a range of IPv4, and one of IPv6 if there are to be any
    #[arg(long, value_name = "CIDRS", default_value_t = ClustersetRanges::default())]
    clusterset_ip_cidr_range: ClustersetRanges,
}

/// The ranges of clusterset IPs. One of IPv4 there has to be: upstream's members take theirs from it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct ClustersetRanges {
    ipv4: Ipv4Net,
    ipv6: Option<Ipv6Net>,
}

impl Default for ClustersetRanges {
    fn default() -> Self {
        let ClusterSetIp { cidr_range, ipv6_range, .. } = ClusterSetIp::default();
        Self { ipv4: cidr_range, ipv6: ipv6_range }
    }
}

impl FromStr for ClustersetRanges {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (mut ipv4, mut ipv6) = (None, None);
        for word in text.split(',').map(str::trim) {
            let is_second = match word.parse() {
                Ok(IpNet::V4(range)) => ipv4.replace(range).is_some(),
                Ok(IpNet::V6(range)) => ipv6.replace(range).is_some(),
                Err(_) => return Err(format!("`{word}` is no CIDR such as 243.0.0.0/8")),
            };
            if is_second {
                return Err(format!(
                    "{word} is the second range of its family: one of IPv4 and one of IPv6 can be"
                ));
            }
        }
        let ipv4 =
            ipv4.ok_or("there is no range of IPv4: say one, such as 243.0.0.0/8, beside that of IPv6")?;
        Ok(Self { ipv4, ipv6 })
    }
}

impl fmt::Display for ClustersetRanges {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.ipv4)?;
        self.ipv6.map_or(Ok(()), |ipv6| write!(f, ",{ipv6}"))
    }
}

/// Runs the command.
///
/// # Errors
/// Says what went wrong and what to do next.
pub(super) async fn run(args: &DeployBrokerArgs, output: &mut Output) -> anyhow::Result<ExitCode> {
    let target = args.kube.target()?;
    let url = args.url(&target)?;
    args.remark_flags();
    let client = target.client().await?;
    let server = Server::new(client, format!("cluster \"{}\"", target.cluster))
        .forcing_conflicts(args.apply.force_conflicts);
    let options = DeployBroker {
        broker: args.options(),
        url,
        psk: args.psk()?,
        replace_psk: args.replace_psk,
        known: known(),
    };
    if args.apply.dry_run {
        return dry_run(args, &server, &options, output).await;
    }
    let mut printer = Printer::new(output);
    printer.heading(&target.cluster);
    let info = deploy_broker::deploy_broker(&server, &options, &mut printer).await.map_err(explained)?;
    save(&info, &mut printer)?;
    printer.finish()?;
    Ok(ExitCode::SUCCESS)
}

async fn dry_run(
    args: &DeployBrokerArgs,
    server: &Server,
    options: &DeployBroker,
    output: &mut Output,
) -> anyhow::Result<ExitCode> {
    let mut steps = Record::default();
    let checked = deploy_broker::check(server, options, &mut steps).await;
    remark_steps(&steps);
    let manifests = checked.map_err(explained)?;
    args.apply.show(&manifests, output)?;
    Ok(ExitCode::SUCCESS)
}

/// Writes the join file.
///
/// # Errors
/// If it cannot be written.
pub(super) fn save(info: &BrokerInfo, steps: &mut dyn Steps) -> anyhow::Result<()> {
    let path = join_file();
    steps.begin(&format!("Saving broker info to file \"{}\"", path.display()));
    let written = broker_info::save(info, &path, &now());
    match written.map_err(DeployError::from).map_err(explained)? {
        Written::New => {}
        Written::Unchanged => steps.remark(Outcome::Success, "It says the same already"),
        Written::Replaced(old) => {
            let text = format!("The file that was there is called \"{}\" from here on", old.display());
            steps.remark(Outcome::Success, &text);
        }
    }
    steps.end(Outcome::Success);
    Ok(())
}

/// The join file in this directory, if there is a good one.
fn known() -> Option<BrokerInfo> {
    broker_info::load(&join_file()).ok()
}

impl DeployBrokerArgs {
    fn url(&self, target: &Target) -> anyhow::Result<String> {
        let Some(url) = self.broker_url.clone().or_else(|| {
            (target.context.is_some() && !target.server.is_empty()).then(|| target.server.clone())
        }) else {
            bail!(
                "how members reach this cluster's API server is not known; say it with --broker-url https://HOST:PORT"
            )
        };
        if is_loopback(&url) {
            remark(&format!(
                "warning: members cannot reach {url}, which is this machine's own address; name another one with \
                 --broker-url"
            ));
        }
        Ok(url)
    }

    fn psk(&self) -> anyhow::Result<Option<trieste_deploy::objects::Secret>> {
        let Some(path) = &self.ipsec_psk_from else { return Ok(None) };
        let info = broker_info::load(path).map_err(DeployError::from).map_err(explained)?;
        Ok(Some(info.psk))
    }

    fn options(&self) -> BrokerOptions {
        let ranges = &self.ranges;
        BrokerOptions {
            namespace: self.broker_namespace.clone(),
            components: self.components.clone(),
            globalnet: Globalnet {
                enabled: ranges.globalnet,
                cidr_range: ranges.globalnet_cidr_range,
                cluster_size: ranges.globalnet_cluster_size,
            },
            clusterset_ip: ClusterSetIp {
                enabled: ranges.enable_clusterset_ip,
                cidr_range: ranges.clusterset_ip_cidr_range.ipv4,
                ipv6_range: ranges.clusterset_ip_cidr_range.ipv6,
                ..ClusterSetIp::default()
            },
            custom_domains: self.custom_domains.clone(),
        }
    }

    fn remark_flags(&self) {
        let no_pods = "a broker runs no pods";
        without_effect(&[
            (self.operator_debug, "--operator-debug", "there is no operator"),
            (self.image.is_said(), "an image", no_pods),
            (self.proxy.is_said(), "a proxy", no_pods),
        ]);
    }
}

fn is_loopback(url: &str) -> bool {
    let host =
        url.parse::<hyper::Uri>().ok().and_then(|uri| uri.host().map(str::to_owned)).unwrap_or_default();
    let host = host.trim_matches(['[', ']']);
    host == "localhost" || host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_of_clusterset_ips_are_one_of_each_family_and_one_of_ipv4_there_has_to_be() {
        let read = |text: &str| text.parse::<ClustersetRanges>().map(|ranges| ranges.to_string());
        for text in ["243.0.0.0/8", "243.0.0.0/8,fd00:243::/48"] {
            assert_eq!(read(text).unwrap(), text);
        }
        assert_eq!(read("fd00:243::/48, 243.0.0.0/16").unwrap(), "243.0.0.0/16,fd00:243::/48");
        assert_eq!(ClustersetRanges::default().to_string(), "243.0.0.0/8,fdf1:5f29:2642::/48");
        for (text, why) in [
            ("fd00:243::/48", "no range of IPv4"),
            ("243.0.0.0/8,244.0.0.0/8", "244.0.0.0/8 is the second"),
            ("243.0.0.0/8,", "`` is no CIDR"),
            ("243.0.0.0", "no CIDR"),
        ] {
            assert!(read(text).unwrap_err().contains(why), "{text}");
        }
    }

    #[test]
    fn an_address_of_this_machine_alone_is_recognised() {
        for url in ["https://127.0.0.1:6443", "https://localhost:1", "https://[::1]:6443"] {
            assert!(is_loopback(url), "{url}");
        }
        assert!(!is_loopback("https://10.0.0.1:6443") && !is_loopback("https://broker.example.com"));
    }
}
