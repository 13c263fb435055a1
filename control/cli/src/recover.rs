//! `trieste recover-broker-info`: writes `broker-info.subm` anew.

use std::process::ExitCode;

use trieste_control::steps::{Outcome, Steps as _};
use trieste_deploy::Server;
use trieste_deploy::objects::names::BROKER_NAMESPACE;
use trieste_deploy::recover::{self, Recover};

use super::contexts::KubeArgs;
use super::deploy_broker::save;
use super::deploying::explained;
use super::output::Output;
use super::progress::Printer;

/// Flags of `recover-broker-info`: upstream's, and two of ours.
#[derive(Debug, Clone, clap::Args)]
pub(super) struct RecoverArgs {
    #[command(flatten)]
    kube: KubeArgs,
    /// The address under which members reach the broker [default: the one that the member uses]
    #[arg(long, value_name = "URL")]
    broker_url: Option<String>,
    /// The namespace in which members meet
    #[arg(long, value_name = "NAMESPACE", default_value = BROKER_NAMESPACE)]
    broker_namespace: String,
    /// The context of a member, which has the key [default: the broker's cluster, if it is a member]
    #[arg(long, value_name = "NAME")]
    member_context: Option<String>,
}

/// Runs the command.
///
/// # Errors
/// Says what went wrong and what to do next.
pub(super) async fn run(args: &RecoverArgs, output: &Output) -> anyhow::Result<ExitCode> {
    let target = args.kube.target()?;
    let broker = Server::new(target.client().await?, format!("cluster \"{}\"", target.cluster));
    let member = match &args.member_context {
        None => None,
        Some(context) => {
            let target = args.kube.target_of(context)?;
            Some(Server::new(target.client().await?, format!("cluster \"{}\"", target.cluster)))
        }
    };
    let options = Recover {
        broker_namespace: args.broker_namespace.clone(),
        namespace: args.kube.namespace.clone(),
        url: args.broker_url.clone(),
        context_url: target.server.clone(),
    };
    let mut printer = Printer::new(output);
    printer.heading(&target.cluster);
    let info = recover::recover(&broker, member.as_ref(), &options, &mut printer).await.map_err(explained)?;
    save(&info, &mut printer)?;
    printer.remark(Outcome::Success, &format!("Members reach the broker at {}", info.broker_url));
    printer.finish()?;
    Ok(ExitCode::SUCCESS)
}
