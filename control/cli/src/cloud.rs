//! `trieste cloud prepare|cleanup PROVIDER`: lets a cloud pass what gateways need, and chooses their machines.

mod aws;
mod azure;
mod flags;
mod gcp;
mod generic;
mod rhos;

use std::process::ExitCode;

use anyhow::anyhow;
use trieste_cloud::choice::{Choice, Shown, reach, show};
use trieste_cloud::cluster::Cluster;
use trieste_cloud::{CloudError, Goal};
use trieste_control::steps::{Outcome, Steps as _};
use trieste_deploy::Server;

use super::output::{Output, printable_lines};
use super::progress::Printer;
use flags::{CleanupArgs, Flags, PrepareArgs};

#[derive(Debug, Clone, clap::Args)]
pub(super) struct CloudArgs {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Clone, clap::Subcommand)]
enum Verb {
    /// Let the cloud pass what gateways need, and have gateways
    ///
    /// Can be repeated at any time: what is there already is left as it is.
    Prepare {
        #[command(subcommand)]
        provider: Prepare,
    },
    /// Take back what a preparation has done, and nothing else
    ///
    /// After the cluster has left its set (trieste uninstall): its connections end with this.
    Cleanup {
        #[command(subcommand)]
        provider: Cleanup,
    },
}

#[derive(Debug, Clone, clap::Subcommand)]
enum Prepare {
    /// AWS: OpenShift, EKS, and clusters on machines of EC2
    Aws(Box<PrepareArgs<aws::AwsArgs>>),
    /// Google Cloud: OpenShift, GKE, and clusters on machines of Compute Engine
    Gcp(Box<PrepareArgs<gcp::GcpArgs>>),
    /// Azure: OpenShift, AKS, and clusters on its virtual machines
    Azure(Box<PrepareArgs<azure::AzureArgs>>),
    /// OpenStack, also Red Hat's: OpenShift, and clusters on its servers
    Rhos(Box<PrepareArgs<rhos::RhosArgs>>),
    /// Any other cloud or firewall: lists what has to pass, and labels nodes as gateways
    Generic(Box<PrepareArgs<generic::GenericArgs>>),
}

#[derive(Debug, Clone, clap::Subcommand)]
enum Cleanup {
    /// AWS: OpenShift, EKS, and clusters on machines of EC2
    Aws(Box<CleanupArgs<aws::AwsArgs>>),
    /// Google Cloud: OpenShift, GKE, and clusters on machines of Compute Engine
    Gcp(Box<CleanupArgs<gcp::GcpArgs>>),
    /// Azure: OpenShift, AKS, and clusters on its virtual machines
    Azure(Box<CleanupArgs<azure::AzureArgs>>),
    /// OpenStack, also Red Hat's: OpenShift, and clusters on its servers
    Rhos(Box<CleanupArgs<rhos::RhosArgs>>),
    /// Any other cloud or firewall: takes the label off the nodes that a preparation has labelled
    Generic(Box<CleanupArgs<generic::GenericArgs>>),
}

/// Runs the command.
///
/// # Errors
/// Says what went wrong and what to do next.
pub(super) async fn run(args: &CloudArgs, output: &mut Output) -> anyhow::Result<ExitCode> {
    match &args.verb {
        Verb::Prepare { provider: Prepare::Aws(args) } => prepare(&**args, output).await,
        Verb::Prepare { provider: Prepare::Gcp(args) } => prepare(&**args, output).await,
        Verb::Prepare { provider: Prepare::Azure(args) } => prepare(&**args, output).await,
        Verb::Prepare { provider: Prepare::Rhos(args) } => prepare(&**args, output).await,
        Verb::Prepare { provider: Prepare::Generic(args) } => prepare(&**args, output).await,
        Verb::Cleanup { provider: Cleanup::Aws(args) } => clean_up(&**args, output).await,
        Verb::Cleanup { provider: Cleanup::Gcp(args) } => clean_up(&**args, output).await,
        Verb::Cleanup { provider: Cleanup::Azure(args) } => clean_up(&**args, output).await,
        Verb::Cleanup { provider: Cleanup::Rhos(args) } => clean_up(&**args, output).await,
        Verb::Cleanup { provider: Cleanup::Generic(args) } => clean_up(&**args, output).await,
    }
}

async fn prepare<F: Flags>(args: &PrepareArgs<F>, output: &mut Output) -> anyhow::Result<ExitCode> {
    let target = args.kube.target()?;
    let server = Server::new(target.client().await?, format!("cluster \"{}\"", target.cluster));
    let wanted = args.wanted.wanted(&server, args.provider.instance()).await.map_err(explained)?;
    let choice = args.provider.choice().map_err(explained)?;
    if args.provider.lists_rules() {
        let rules = trieste_cloud::generic::to_open(&wanted);
        let rules: String = rules.iter().map(|rule| format!("  {rule}\n")).collect();
        let text = format!("What has to pass, for whoever administers the network:\n{rules}\n");
        output.write(text.as_bytes())?;
    }
    execute(&target.cluster, &server, &choice, &Goal::Prepare(wanted), args.run.dry_run, output).await
}

async fn clean_up<F: Flags>(args: &CleanupArgs<F>, output: &mut Output) -> anyhow::Result<ExitCode> {
    let target = args.kube.target()?;
    let server = Server::new(target.client().await?, format!("cluster \"{}\"", target.cluster));
    let choice = args.provider.choice().map_err(explained)?;
    execute(&target.cluster, &server, &choice, &Goal::CleanUp, args.run.dry_run, output).await
}

async fn execute(
    cluster: &str,
    server: &Server,
    choice: &Choice,
    goal: &Goal,
    dry_run: bool,
    output: &mut Output,
) -> anyhow::Result<ExitCode> {
    if dry_run {
        let shown = show(choice, server, goal).await.map_err(explained)?;
        output.write(described(&shown, cluster).as_bytes())?;
        return Ok(ExitCode::SUCCESS);
    }
    let mut printer = Printer::new(output);
    printer.heading(cluster);
    let done = reach(choice, server, goal, &mut printer).await.map_err(explained)?;
    let end = match (goal, done) {
        (Goal::Prepare(_), 0) => "Everything was prepared already",
        (Goal::Prepare(_), _) => "Prepared: trieste join makes the cluster a member",
        (Goal::CleanUp, 0) => "There was nothing to take back",
        (Goal::CleanUp, _) => "Nothing of the preparation is left",
    };
    printer.remark(Outcome::Success, end);
    if let Goal::Prepare(wanted) = goal {
        let there = Cluster::read(server).await.map_err(explained)?.gateways().count();
        if there < wanted.gateways {
            let text = format!(
                "{there} of {} gateways are nodes: where machines are being made, wait for them before the cluster joins (kubectl get \
                 nodes -l submariner.io/gateway=true)",
                wanted.gateways
            );
            printer.remark(Outcome::Warning, &text);
        }
    }
    printer.finish()?;
    Ok(ExitCode::SUCCESS)
}

/// Returns what would be done, for people.
fn described(shown: &Shown, cluster: &str) -> String {
    let none = if shown.changes.is_empty() { ": nothing" } else { ":" };
    let mut text = format!("What would be done in {} and in cluster \"{cluster}\"{none}\n", shown.service);
    for change in &shown.changes {
        text.push_str(&format!("  {}\n", printable_lines(change)));
    }
    for remark in &shown.remarks {
        text.push_str(&format!("warning: {}\n", printable_lines(remark)));
    }
    text
}

/// Returns an error for people: what went wrong, and what to do next.
#[expect(clippy::needless_pass_by_value, reason = "for map_err")]
fn explained(error: CloudError) -> anyhow::Error {
    let next = error.next();
    anyhow!("{}\nnext: {}", printable_lines(&error.to_string()), printable_lines(&next))
}
