//! `trieste upgrade`: brings a member to this command's version.

use std::process::ExitCode;
use std::time::Duration;

use trieste_control::steps::{Outcome, Record, Steps};
use trieste_deploy::{Server, join, upgrade};

use super::contexts::KubeArgs;
use super::deploying::{ApplyArgs, explained, remark_steps};
use super::output::Output;
use super::progress::Printer;

#[derive(Debug, Clone, clap::Args)]
pub(super) struct UpgradeArgs {
    #[command(flatten)]
    kube: KubeArgs,
    /// Another tag of the present image [default: this command's version, or the present tag where that is of this version]
    #[arg(long, value_name = "TAG", conflicts_with = "image")]
    to_version: Option<String>,
    /// The image, such as registry.example.com/trieste:0.1.0
    #[arg(long, value_name = "REFERENCE")]
    image: Option<String>,
    #[command(flatten)]
    apply: ApplyArgs,
    /// How many seconds the route agents may take to come up, and each gateway to be replaced
    #[arg(long, value_name = "SECONDS", default_value_t = 300, value_parser = clap::value_parser!(u64).range(10..=86_400))]
    wait_timeout: u64,
    /// Try it even if pods are not ready before, if versions are too far apart, or if this version of Kubernetes or this network
    /// plugin is not supported
    #[arg(long)]
    ignore_requirements: bool,
}

/// Runs the command.
///
/// # Errors
/// Says what went wrong and what to do next.
pub(super) async fn run(args: &UpgradeArgs, output: &mut Output) -> anyhow::Result<ExitCode> {
    let target = args.kube.target()?;
    let local = Server::new(target.client().await?, format!("cluster \"{}\"", target.cluster))
        .forcing_conflicts(args.apply.force_conflicts);
    let image = match (&args.image, &args.to_version) {
        (Some(reference), _) => Some(upgrade::ImageChoice::Reference(reference.clone())),
        (None, Some(tag)) => Some(upgrade::ImageChoice::Tag(tag.clone())),
        (None, None) => None,
    };
    let options = upgrade::Upgrade {
        namespace: args.kube.namespace.clone(),
        image,
        ignore_requirements: args.ignore_requirements,
        limit: Duration::from_secs(args.wait_timeout),
    };
    if args.apply.dry_run {
        let mut steps = Record::default();
        let prepared = upgrade::prepare(&local, &options, &mut steps).await;
        remark_steps(&steps);
        let (_, plan) = prepared.map_err(explained)?;
        args.apply.show(&plan.local, output)?;
        return Ok(ExitCode::SUCCESS);
    }
    let mut printer = Printer::new(output);
    printer.heading(&target.cluster);
    let (broker, plan) = upgrade::prepare(&local, &options, &mut printer).await.map_err(explained)?;
    join::execute(&local, &broker, &plan, &mut printer).await.map_err(explained)?;
    let upgraded = format!(
        "Cluster \"{}\" runs {}; trieste show connections tells who answers",
        plan.member.cluster_id, plan.member.image.reference
    );
    printer.remark(Outcome::Success, &upgraded);
    printer.finish()?;
    Ok(ExitCode::SUCCESS)
}
