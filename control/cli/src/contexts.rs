//! Which clusters a command works on: contexts of a kubeconfig, or the cluster that this runs in.
//!
//! Upstream's conventions: `--kubeconfig` (or `KUBECONFIG`, or `~/.kube/config`) names files, `--context` one context,
//! `--contexts` several. Commands that run on all clusters take every cluster of the kubeconfig unless told otherwise,
//! in the kubeconfig's order; the others take its current context.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, anyhow, bail};
use kube::config::{Context, KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use tokio::time::timeout;
use trieste_control::cause::innermost;
use trieste_control::steps::{Outcome, Steps as _};
use trieste_deploy::objects::names;

use super::output::{Output, printable, remark};
use super::progress::Printer;

/// Ours: how long an API server may take to answer its first question.
const PATIENCE: Duration = Duration::from_secs(10);

/// Which clusters, and which namespace in them.
#[derive(Debug, Clone, clap::Args)]
pub(super) struct KubeArgs {
    /// Kubeconfig files, several separated by colons [default: $KUBECONFIG, else ~/.kube/config]
    #[arg(help_heading = "Clusters", long, value_name = "PATHS")]
    pub(super) kubeconfig: Option<OsString>,
    /// The context to use
    #[arg(help_heading = "Clusters", long, value_name = "NAME", conflicts_with = "contexts")]
    pub(super) context: Option<String>,
    /// The contexts to use, separated by commas
    #[arg(help_heading = "Clusters", long, value_name = "NAMES", value_delimiter = ',')]
    pub(super) contexts: Vec<String>,
    /// Use the cluster that this runs in as a pod
    #[arg(help_heading = "Clusters", long, conflicts_with_all = ["kubeconfig", "context", "contexts"])]
    pub(super) in_cluster: bool,
    /// The namespace of Submariner's objects
    #[arg(
        help_heading = "Clusters",
        long,
        short,
        env = "SUBMARINER_NAMESPACE",
        default_value = names::NAMESPACE
    )]
    pub(super) namespace: String,
}

/// A cluster to work on.
#[derive(Clone)]
pub(super) struct Target {
    /// Its name in the kubeconfig.
    pub(super) cluster: String,
    /// The context, unless this is the cluster that we run in.
    pub(super) context: Option<String>,
    /// The API server's address, as the kubeconfig has it; empty if that has none.
    pub(super) server: String,
    kubeconfig: Option<Kubeconfig>,
}

impl KubeArgs {
    /// Every cluster to work on: those asked for, else each cluster of the kubeconfig once.
    ///
    /// # Errors
    /// When there is no usable kubeconfig, or a context that was asked for is not in it.
    pub(super) fn targets(&self) -> anyhow::Result<Vec<Target>> {
        if self.in_cluster {
            return Ok(vec![Target::in_cluster()]);
        }
        let kubeconfig = self.read()?;
        if let Some(name) = &self.context {
            return Ok(vec![Target::of(&kubeconfig, name)?]);
        }
        let names =
            if self.contexts.is_empty() { one_per_cluster(&kubeconfig) } else { self.contexts.clone() };
        if names.is_empty() {
            bail!("there is no context in the kubeconfig; {WHERE}");
        }
        names.iter().map(|name| Target::of(&kubeconfig, name)).collect()
    }

    /// The one cluster to work on: the context asked for, else the kubeconfig's current one.
    ///
    /// # Errors
    /// As [`Self::targets`], and when several contexts were asked for.
    pub(super) fn target(&self) -> anyhow::Result<Target> {
        if self.in_cluster {
            return Ok(Target::in_cluster());
        }
        match (&self.context, self.contexts.as_slice()) {
            (Some(name), _) => self.target_of(name),
            (None, [name]) => self.target_of(name),
            (None, []) => {
                let kubeconfig = self.read()?;
                match kubeconfig.current_context.as_deref().filter(|name| !name.is_empty()) {
                    Some(name) => Target::of(&kubeconfig, name),
                    None => bail!("the kubeconfig has no current context; name one with --context"),
                }
            }
            (None, _) => bail!("this command works on one cluster; name one with --context"),
        }
    }

    /// Returns the namespace of the context asked for, or else of the current one; none if it names none or there is no
    /// kubeconfig.
    pub(super) fn context_namespace(&self) -> Option<String> {
        let kubeconfig = self.read().ok()?;
        let name = self.context.as_ref().or(kubeconfig.current_context.as_ref())?;
        context(&kubeconfig, name)?.namespace.clone().filter(|namespace| !namespace.is_empty())
    }

    /// The cluster of a context of the same kubeconfig, for commands that look at a second one.
    ///
    /// # Errors
    /// As [`Self::targets`].
    pub(super) fn target_of(&self, context: &str) -> anyhow::Result<Target> {
        Target::of(&self.read()?, context)
    }

    /// Whether anybody said which clusters to use.
    pub(super) const fn is_asked(&self) -> bool {
        let is_named = self.context.is_some() || !self.contexts.is_empty();
        self.in_cluster || self.kubeconfig.is_some() || is_named
    }

    /// Whether anybody said which clusters to use, or there is a kubeconfig in its usual place.
    pub(super) fn has_source(&self) -> bool {
        self.is_asked() || self.paths().iter().any(|path| path.exists())
    }

    fn paths(&self) -> Vec<PathBuf> {
        let is_set = |paths: &OsString| !paths.is_empty();
        let paths = self.kubeconfig.clone().filter(is_set);
        match paths.or_else(|| std::env::var_os("KUBECONFIG").filter(is_set)) {
            Some(paths) => {
                std::env::split_paths(&paths).filter(|path| !path.as_os_str().is_empty()).collect()
            }
            None => std::env::home_dir().map(|home| home.join(".kube/config")).into_iter().collect(),
        }
    }

    /// Reads all files; what an earlier one says wins. One of several may be missing, as for kubectl.
    fn read(&self) -> anyhow::Result<Kubeconfig> {
        let paths = self.paths();
        let mut whole: Option<Kubeconfig> = None;
        for path in &paths {
            if paths.len() > 1 && !path.exists() {
                continue;
            }
            let wrong = || format!("the kubeconfig {} cannot be used; {WHERE}", path.display());
            let next = Kubeconfig::read_from(path).with_context(wrong)?;
            whole = Some(match whole {
                Some(whole) => whole.merge(next).with_context(wrong)?,
                None => next,
            });
        }
        whole.ok_or_else(|| anyhow!("there is no kubeconfig; {WHERE}"))
    }
}

/// What to do without contexts.
const WHERE: &str =
    "name a file with --kubeconfig PATH or the variable KUBECONFIG, or use --in-cluster in a pod";

impl Target {
    fn of(kubeconfig: &Kubeconfig, name: &str) -> anyhow::Result<Self> {
        let Some(context) = context(kubeconfig, name) else {
            let names: Vec<String> =
                kubeconfig.contexts.iter().map(|context| printable(&context.name)).collect();
            bail!("no Kubernetes context found named {name}; there are: {}", names.join(", "));
        };
        let server = kubeconfig.clusters.iter().find(|cluster| cluster.name == context.cluster);
        let server = server.and_then(|cluster| cluster.cluster.as_ref()?.server.clone());
        Ok(Self {
            cluster: context.cluster.clone(),
            context: Some(name.to_owned()),
            server: server.unwrap_or_default(),
            kubeconfig: Some(kubeconfig.clone()),
        })
    }

    fn in_cluster() -> Self {
        // What upstream's tool calls a cluster whose name it cannot know.
        Self {
            cluster: "in-cluster".to_owned(),
            context: None,
            server: "https://kubernetes.default.svc".to_owned(),
            kubeconfig: None,
        }
    }

    /// A client of the cluster's API server, which has answered.
    ///
    /// # Errors
    /// When credentials cannot be loaded, or the server does not answer within 10 seconds; in one line.
    pub(super) async fn client(&self) -> anyhow::Result<Client> {
        let config = self.config().await?;
        let server = config.cluster_url.to_string();
        let client = Client::try_from(config).with_context(|| format!("{self}: no client can be made"))?;
        match timeout(PATIENCE, client.apiserver_version()).await {
            Ok(Ok(_)) => Ok(client),
            Ok(Err(error)) => bail!("{self}: {}", explain(&error, server.trim_end_matches('/'))),
            Err(_) => bail!(
                "{self}: the API server {} has not answered within {} s; is it up, and can it be reached from here?",
                server.trim_end_matches('/'),
                PATIENCE.as_secs()
            ),
        }
    }

    async fn config(&self) -> anyhow::Result<Config> {
        let mut config = match &self.kubeconfig {
            None => Config::incluster().context("this is no pod that may use its cluster's API server")?,
            Some(kubeconfig) => {
                let options =
                    KubeConfigOptions { context: self.context.clone(), ..KubeConfigOptions::default() };
                let config = Config::from_custom_kubeconfig(kubeconfig.clone(), &options).await;
                config.with_context(|| format!("{self} cannot be used"))?
            }
        };
        config.connect_timeout = Some(PATIENCE);
        Ok(config)
    }
}

impl std::fmt::Display for Target {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.context {
            Some(context) => write!(f, "context {}", printable(context)),
            None => f.write_str("the cluster that this runs in"),
        }
    }
}

/// Does some work on every cluster, each under its heading and followed by an empty line. A cluster that cannot be
/// reached costs one line; the others are worked on. Gives whether all went well: work says so, steps without failure
/// do too.
///
/// # Errors
/// When there is no cluster to work on, or nothing can be written.
pub(super) async fn on_each(
    args: &KubeArgs,
    output: &Output,
    mut work: impl AsyncFnMut(&Target, Client, &mut Printer) -> anyhow::Result<()>,
) -> anyhow::Result<bool> {
    let mut is_well = true;
    for target in args.targets()? {
        let mut printer = Printer::new(output);
        printer.heading(&target.cluster);
        let outcome = match target.client().await {
            Ok(client) => work(&target, client, &mut printer).await,
            Err(error) => Err(error),
        };
        if let Err(error) = outcome {
            printer.remark(Outcome::Failure, &format!("{error:#}"));
            printer.end(Outcome::Failure);
        }
        printer.text("\n");
        is_well &= printer.worst() < Outcome::Failure;
        printer.finish()?;
    }
    Ok(is_well)
}

fn context<'a>(kubeconfig: &'a Kubeconfig, name: &str) -> Option<&'a Context> {
    kubeconfig.contexts.iter().find(|context| context.name == name)?.context.as_ref()
}

/// One context per cluster, in order. Of several the one whose user has most contexts, as upstream: it is most likely
/// an administrator.
fn one_per_cluster(kubeconfig: &Kubeconfig) -> Vec<String> {
    let named =
        |name: &str| context(kubeconfig, name).map(|context| (context.cluster.clone(), context.user.clone()));
    let mut uses: BTreeMap<Option<String>, usize> = BTreeMap::new();
    let mut clusters: Vec<(String, Vec<String>)> = Vec::new();
    for name in kubeconfig.contexts.iter().map(|context| &context.name) {
        let Some((cluster, user)) = named(name) else { continue };
        *uses.entry(user).or_default() += 1;
        match clusters.iter_mut().find(|(known, _)| *known == cluster) {
            Some((_, names)) => names.push(name.clone()),
            None => clusters.push((cluster, vec![name.clone()])),
        }
    }
    let uses = |name: &String| named(name).and_then(|(_, user)| uses.get(&user).copied());
    let chosen = |(cluster, names): (String, Vec<String>)| {
        // The last of equals is what `max_by_key` takes; the first is what a reader expects.
        let chosen = names.iter().rev().max_by_key(|name| uses(name))?.clone();
        if names.len() > 1 {
            remark(&format!(
                "warning: cluster {} has several contexts ({}): {} is used; name another with --context if its user \
                 may not do enough",
                printable(&cluster),
                printable(&names.join(", ")),
                printable(&chosen)
            ));
        }
        Some(chosen)
    };
    clusters.into_iter().filter_map(chosen).collect()
}

/// Why the API server's first answer is none, in one line with what to do.
fn explain(error: &kube::Error, server: &str) -> String {
    if let kube::Error::Api(status) = error {
        return match status.code {
            401 => format!("the API server {server} does not accept the credentials; have they expired?"),
            code => format!("the API server {server} answers {code}: {}", printable(&status.message)),
        };
    }
    let cause = printable(&innermost(error));
    format!("the API server {server} cannot be reached: {cause}; is it up, and is the context right?")
}

#[cfg(test)]
mod tests;
