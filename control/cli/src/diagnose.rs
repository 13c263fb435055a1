//! `trieste diagnose`: finds what is wrong, in one cluster or between two.

mod discovery;
mod path;

use std::ffi::OsString;
use std::process::ExitCode;

use clap::Subcommand;
use trieste_control::steps::Steps as _;
use trieste_diagnose::checks::{self, CheckError, Checked, Port, Remedy};
use trieste_diagnose::facts::Source;

use super::contexts::{KubeArgs, Target, on_each};
use super::output::Output;
use super::progress::Printer;

#[derive(Debug, clap::Args)]
pub(super) struct DiagnoseArgs {
    #[command(subcommand)]
    what: Check,
}

#[derive(Debug, Subcommand)]
enum Check {
    /// Walk one connection hop by hop, and name the broken one
    Path(Box<path::PathArgs>),
    /// Run all checks, except those requiring two contexts
    All(KubeArgs),
    /// Check the network plugin
    Cni(CniArgs),
    /// Check the connections of gateways and route agents
    Connections(KubeArgs),
    /// Check that everything is deployed and runs, with no overlapping CIDRs
    Deployment(KubeArgs),
    /// Check the version of Kubernetes
    K8sVersion(KubeArgs),
    /// Check the mode of kube-proxy
    KubeProxyMode(KubeArgs),
    /// Walk from exports to the answers of the real DNS, and name the broken step
    ServiceDiscovery(Box<discovery::DiscoveryArgs>),
    /// Check that ports pass, by probes
    #[command(subcommand)]
    Firewall(Firewall),
}

#[derive(Debug, Subcommand)]
enum Firewall {
    /// Check UDP 4800 between the nodes of a cluster
    IntraCluster(KubeArgs),
    /// Check the cable's port from the remote cluster's gateway to the local one's
    InterCluster(TwoClusters),
    /// Check NAT discovery's port from the remote cluster's gateway to the local one's
    NatDiscovery(TwoClusters),
}

#[derive(Debug, clap::Args)]
struct CniArgs {
    #[command(flatten)]
    kube: KubeArgs,
    /// Write what is missing, in each of the clusters that are checked: Calico's IPPools, or the networks that Cilium does not
    /// masquerade towards. What is written is told before, and the check is made afterwards
    #[arg(long)]
    fix: bool,
}

#[derive(Debug, clap::Args)]
struct TwoClusters {
    #[command(flatten)]
    kube: KubeArgs,
    #[command(flatten)]
    remote: RemoteArgs,
}

impl CniArgs {
    const fn remedy(&self) -> Remedy {
        if self.fix { Remedy::Written } else { Remedy::Explained }
    }
}

/// The second cluster.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Clusters")]
struct RemoteArgs {
    /// The remote cluster's kubeconfig [default: the first one's]
    #[arg(long, value_name = "PATHS")]
    remoteconfig: Option<OsString>,
    /// The context of the remote cluster
    #[arg(long, value_name = "NAME")]
    remotecontext: Option<String>,
}

impl RemoteArgs {
    /// The second cluster, if it was named.
    fn target(&self, near: &KubeArgs) -> anyhow::Result<Option<Target>> {
        if self.remotecontext.is_none() && self.remoteconfig.is_none() {
            return Ok(None);
        }
        let kube = KubeArgs {
            kubeconfig: self.remoteconfig.clone().or_else(|| near.kubeconfig.clone()),
            context: self.remotecontext.clone(),
            contexts: Vec::new(),
            in_cluster: false,
            namespace: near.namespace.clone(),
        };
        kube.target().map(Some)
    }
}

/// A check of one cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum One {
    All,
    Cni(Remedy),
    Connections,
    Deployment,
    K8sVersion,
    KubeProxyMode,
    IntraCluster,
}

impl One {
    /// Returns what the check of the network plugin does about what is missing; `None` without that check.
    const fn remedy(self) -> Option<Remedy> {
        match self {
            Self::All => Some(Remedy::Explained),
            Self::Cni(remedy) => Some(remedy),
            Self::Connections
            | Self::Deployment
            | Self::K8sVersion
            | Self::KubeProxyMode
            | Self::IntraCluster => None,
        }
    }
}

pub(super) async fn run(args: &DiagnoseArgs, output: &mut Output) -> anyhow::Result<ExitCode> {
    let (one, kube) = match &args.what {
        Check::Path(args) => return path::run(args, output).await,
        Check::Firewall(Firewall::InterCluster(args)) => return two(args, Port::Tunnel, output).await,
        Check::Firewall(Firewall::NatDiscovery(args)) => return two(args, Port::NatDiscovery, output).await,
        Check::ServiceDiscovery(args) => return discovery::run(args, output).await,
        Check::All(kube) => (One::All, kube),
        Check::Cni(args) => (One::Cni(args.remedy()), &args.kube),
        Check::Connections(kube) => (One::Connections, kube),
        Check::Deployment(kube) => (One::Deployment, kube),
        Check::K8sVersion(kube) => (One::K8sVersion, kube),
        Check::KubeProxyMode(kube) => (One::KubeProxyMode, kube),
        Check::Firewall(Firewall::IntraCluster(kube)) => (One::IntraCluster, kube),
    };
    let is_well = on_each(kube, output, async |target, client, printer| {
        let source = Source { client, namespace: kube.namespace.clone() };
        let checked = Checked::new(source, &target.cluster, &kubectl(target.context.as_deref()));
        check(one, &checked, printer).await?;
        if one == One::All {
            discovery::where_installed(kube, checked.source.client, printer).await?;
        }
        Ok(())
    })
    .await?;
    if one == One::All {
        output.write(
            b"Skipping inter-cluster firewall check as it requires two kubeconfigs. Please run \"trieste diagnose \
              firewall inter-cluster\" command manually.\n",
        )?;
    }
    Ok(if is_well { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

async fn check(one: One, checked: &Checked, printer: &mut Printer) -> anyhow::Result<()> {
    let is = |other: One| one == other || one == One::All;
    if is(One::K8sVersion) {
        told(checks::k8s_version(checked, printer).await, printer);
        separate(one, printer);
    }
    if one == One::K8sVersion || !checked.is_installed(printer).await? {
        return Ok(());
    }
    if is(One::Deployment) {
        told(checks::deployment(checked, printer).await, printer);
        separate(one, printer);
    }
    if let Some(remedy) = one.remedy() {
        told(checks::cni(checked, remedy, printer).await, printer);
    }
    if is(One::Connections) {
        told(checks::connections(checked, printer).await, printer);
    }
    if is(One::KubeProxyMode) {
        told(checks::kube_proxy_mode(checked, printer).await, printer);
    }
    if is(One::IntraCluster) {
        told(checks::intra_cluster(checked, printer).await, printer);
    }
    Ok(())
}

/// A check that could not be made has failed; the others are made.
fn told(outcome: Result<(), CheckError>, printer: &mut Printer) {
    if let Err(error) = outcome {
        printer.remark(trieste_control::steps::Outcome::Failure, &error.to_string());
        printer.end(trieste_control::steps::Outcome::Failure);
    }
}

/// Upstream's empty line between groups of checks.
fn separate(one: One, printer: &mut Printer) {
    if one == One::All {
        printer.text("\n");
    }
}

async fn two(args: &TwoClusters, port: Port, output: &mut Output) -> anyhow::Result<ExitCode> {
    let near = args.kube.target()?;
    let Some(far) = args.remote.target(&args.kube)? else {
        anyhow::bail!("no remote context was specified: name it with --remotecontext");
    };
    let mut sides = Vec::new();
    for target in [&near, &far] {
        let source = Source { client: target.client().await?, namespace: args.kube.namespace.clone() };
        sides.push(Checked::new(source, &target.cluster, &kubectl(target.context.as_deref())));
    }
    let mut printer = Printer::new(output);
    printer.heading(&near.cluster);
    told(checks::inter_cluster(&sides[0], &sides[1], port, &mut printer).await, &mut printer);
    let is_well = printer.worst() < trieste_control::steps::Outcome::Failure;
    printer.finish()?;
    Ok(if is_well { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// The words that make `kubectl` talk to a cluster.
fn kubectl(context: Option<&str>) -> String {
    context.map(|context| format!(" --context {context}")).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Words {
        #[command(subcommand)]
        what: Check,
    }

    #[test]
    fn plugin_fixes_are_written_by_the_check_of_the_network_plugin_alone() {
        let parsed = |words: &[&str]| Words::try_parse_from([&["diagnose"], words].concat());
        for (words, remedy) in [(&["cni"][..], Remedy::Explained), (&["cni", "--fix"], Remedy::Written)] {
            let Check::Cni(args) = parsed(words).unwrap().what else { panic!("{words:?}") };
            assert_eq!(One::Cni(args.remedy()).remedy(), Some(remedy));
        }
        for check in ["all", "connections", "deployment", "k8s-version", "kube-proxy-mode"] {
            assert!(parsed(&[check]).is_ok() && parsed(&[check, "--fix"]).is_err(), "{check}");
        }
        assert_eq!([One::All.remedy(), One::Deployment.remedy()], [Some(Remedy::Explained), None]);
    }
}
