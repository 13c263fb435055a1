//! `trieste uninstall`: a cluster leaves its set, or stops being a broker, and keeps nothing of it; and `trieste remove-member`: the
//! broker forgets a cluster that was deleted without leaving.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::anyhow;
use trieste_control::steps::{Outcome, Steps as _};
use trieste_deploy::broker_info;
use trieste_deploy::objects::BrokerAccess;
use trieste_deploy::objects::names::BROKER_NAMESPACE;
use trieste_deploy::remove_member::RemoveMember;
use trieste_deploy::uninstall::{self, Found, Scope, Uninstall};
use trieste_deploy::{BrokerLogin, DeployError, Server, connect};

use super::contexts::KubeArgs;
use super::deploying::{Terminal, explained, join_file};
use super::output::{Output, printable, remark};
use super::progress::Printer;

/// Flags of `uninstall`: upstream's, and a few of ours.
#[derive(Debug, Clone, clap::Args)]
pub(super) struct UninstallArgs {
    #[command(flatten)]
    kube: KubeArgs,
    /// Do not ask
    #[arg(long, short)]
    yes: bool,
    /// Say what would be removed, and change nothing
    #[arg(long)]
    dry_run: bool,
    /// The file with which the cluster has joined: its account on the broker is removed, too [default:
    /// broker-info.subm in this directory, if it is this broker's]
    #[arg(long, value_name = "FILE")]
    broker_info: Option<PathBuf>,
    /// The namespace in which members meet, if this cluster is a broker [default: that of the member's broker, if it
    /// is here, else submariner-k8s-broker]
    #[arg(long, value_name = "NAMESPACE")]
    broker_namespace: Option<String>,
    /// How many seconds nodes may take to be cleaned
    #[arg(long, value_name = "SECONDS", default_value_t = 120)]
    wait_timeout: u64,
    /// Leave nodes as they are that cannot be cleaned
    #[arg(long)]
    force: bool,
}

/// Runs the command.
///
/// # Errors
/// Says what went wrong and what to do next.
pub(super) async fn run(args: &UninstallArgs, output: &mut Output) -> anyhow::Result<ExitCode> {
    let target = args.kube.target()?;
    let server = Server::new(target.client().await?, format!("cluster \"{}\"", target.cluster));
    let namespace = args.kube.namespace.clone();
    let broker_namespace = match &args.broker_namespace {
        Some(said) => said.clone(),
        None => uninstall::broker_namespace(&server, &namespace).await.map_err(explained)?,
    };
    let options = Uninstall {
        namespace,
        broker_namespace,
        patience: Duration::from_secs(args.wait_timeout),
        force: args.force,
        scope: Scope::ALL,
        keeps: Vec::new(),
    };
    let mut found = uninstall::observe(&server, &options).await.map_err(explained)?;
    args.recall(&server, &mut found).await?;
    if found.has_operator {
        return Err(anyhow!(
            "Submariner's operator runs in this cluster and would make everything anew\nnext: subctl uninstall removes \
             what it has installed"
        ));
    }
    if let Some(fabric) = found.fabrics.first() {
        return Err(anyhow!(
            "this cluster is what {0} says, and trieste-operator would make everything anew\nnext: delete that object, which \
             uninstalls it",
            printable(fabric)
        ));
    }
    if args.dry_run {
        return show(&found, output).map(|()| ExitCode::SUCCESS);
    }
    if found.is_nothing() && found.membership().is_none() && found.elsewhere.is_nothing() {
        remark("note: nothing is installed here but, perhaps, labels of nodes");
    }
    if !args.yes && !is_wanted(&target.cluster)? {
        remark("nothing was changed");
        return Ok(ExitCode::FAILURE);
    }
    let account = args.account(&found)?;
    let mut printer = Printer::new(output);
    printer.heading(&target.cluster);
    let outcome = uninstall::uninstall(&server, account.as_ref(), &found, &options, &mut printer).await;
    outcome.map_err(explained)?;
    printer.remark(Outcome::Success, "Submariner has been uninstalled");
    printer.finish()?;
    Ok(ExitCode::SUCCESS)
}

fn is_wanted(cluster: &str) -> anyhow::Result<bool> {
    let question = format!(
        "This will completely uninstall Submariner from the cluster {}. Are you sure you want to continue?",
        printable(cluster)
    );
    Terminal::confirm(&question)
        .ok_or_else(|| anyhow!("nobody is there to be asked\nnext: repeat the command with --yes"))
}

fn show(found: &Found, output: &mut Output) -> anyhow::Result<()> {
    if let Some((id, broker)) = found.membership() {
        remark(&format!(
            "note: cluster {} would leave the broker {}; nodes would be cleaned, and lose the gateway label",
            printable(id),
            printable(broker)
        ));
    }
    if found.objects.iter().any(|place| found.is_brokers(place)) {
        remark("note: the broker's objects and the definitions stay while other clusters are registered");
    }
    let places = found.objects.iter().chain(&found.definitions);
    let text: String = places.map(|place| format!("{}\n", printable(&place.to_string()))).collect();
    output.write(text.as_bytes())
}

impl UninstallArgs {
    /// Asks the broker of the join file for an account of this cluster, where nothing is here that tells. A file that was
    /// not asked for is no reason to fail: its broker may be gone.
    async fn recall(&self, server: &Server, found: &mut Found) -> anyhow::Result<()> {
        if found.membership().is_some() {
            return Ok(());
        }
        let path = self.broker_info.clone().unwrap_or_else(join_file);
        if self.broker_info.is_none() && !path.exists() {
            return Ok(());
        }
        match recall(server, found, &path).await {
            Err(error) if self.broker_info.is_none() => {
                let what = "whether its broker has an account of this cluster is not known";
                remark(&format!("note: {}: {what}: {error}", printable(&path.display().to_string())));
                Ok(())
            }
            outcome => outcome.map_err(explained),
        }
    }

    /// The broker with the rights of the join file; a file that was not asked for may be another broker's.
    fn account(&self, found: &Found) -> anyhow::Result<Option<Server>> {
        let Some((_, broker)) = found.membership() else { return Ok(None) };
        let info = match &self.broker_info {
            Some(path) => broker_info::load(path).map_err(DeployError::from).map_err(explained)?,
            None => match broker_info::load(&join_file()) {
                Ok(info) if BrokerAccess::bare_address(&info.broker_url) == broker => info,
                Ok(_) | Err(_) => return Ok(None),
            },
        };
        let token = info.client_token;
        let login = BrokerLogin {
            url: broker.to_owned(),
            ca: token.ca,
            token: token.token,
            insecure: found.is_insecure(),
        };
        connect(&login).map(Some).map_err(explained)
    }
}

async fn recall(server: &Server, found: &mut Found, path: &Path) -> Result<(), DeployError> {
    let info = broker_info::load(path).map_err(DeployError::from)?;
    let token = info.client_token.clone();
    let login =
        BrokerLogin { url: info.broker_url.clone(), ca: token.ca, token: token.token, insecure: false };
    found.recall(server, &connect(&login)?, &info).await
}

/// Flags of `remove-member`.
#[derive(Debug, Clone, clap::Args)]
pub(super) struct RemoveMemberArgs {
    /// The ID of the cluster that is gone
    #[arg(value_name = "CLUSTER-ID")]
    cluster_id: String,
    #[command(flatten)]
    kube: KubeArgs,
    /// The namespace in which members meet
    #[arg(long, value_name = "NAMESPACE", default_value = BROKER_NAMESPACE)]
    broker_namespace: String,
    /// The context of another member, which is asked whether the cluster still answers; can be given several times [default:
    /// the broker's cluster, if it is a member]
    #[arg(long, value_name = "NAME")]
    member_context: Vec<String>,
    /// Remove it whatever others say of it
    #[arg(long)]
    force: bool,
    /// Say what would be removed, and change nothing
    #[arg(long)]
    dry_run: bool,
}

/// Runs the command.
///
/// # Errors
/// Says what went wrong and what to do next.
pub(super) async fn remove_member(args: &RemoveMemberArgs, output: &mut Output) -> anyhow::Result<ExitCode> {
    let target = args.kube.target()?;
    let named = |cluster: &str| format!("cluster \"{cluster}\"");
    let broker = Server::new(target.client().await?, named(&target.cluster));
    let mut members = vec![broker.clone()];
    for context in &args.member_context {
        let target = args.kube.target_of(context)?;
        members.push(Server::new(target.client().await?, named(&target.cluster)));
    }
    let options = RemoveMember {
        cluster_id: args.cluster_id.clone(),
        broker_namespace: args.broker_namespace.clone(),
        namespace: args.kube.namespace.clone(),
        force: args.force,
    };
    if args.dry_run {
        let preview = trieste_deploy::remove_member::preview(&broker, &members, &options).await;
        let lines = preview.map_err(explained)?.into_iter().map(|line| format!("{}\n", printable(&line)));
        output.write(lines.collect::<String>().as_bytes())?;
        return Ok(ExitCode::SUCCESS);
    }
    let mut printer = Printer::new(output);
    printer.heading(&target.cluster);
    trieste_deploy::remove_member::remove_member(&broker, &members, &options, &mut printer)
        .await
        .map_err(explained)?;
    printer.remark(Outcome::Success, &format!("Cluster {} is no member any more", args.cluster_id));
    printer.finish()?;
    Ok(ExitCode::SUCCESS)
}
