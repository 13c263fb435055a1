//! `trieste deploy-broker`: makes a cluster the broker of a set, and writes `broker-info.subm`.

use std::net::IpAddr;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::bail;
use ipnet::Ipv4Net;
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
    /// Where addresses of the set are taken from
    #[arg(long, value_name = "CIDR", default_value = "243.0.0.0/8")]
    clusterset_ip_cidr_range: Ipv4Net,
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
                cidr_range: ranges.clusterset_ip_cidr_range,
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
    fn an_address_of_this_machine_alone_is_recognised() {
        for url in ["https://127.0.0.1:6443", "https://localhost:1", "https://[::1]:6443"] {
            assert!(is_loopback(url), "{url}");
        }
        assert!(!is_loopback("https://10.0.0.1:6443") && !is_loopback("https://broker.example.com"));
    }
}
