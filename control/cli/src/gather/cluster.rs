//! Gathering in one cluster, step by step.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context as _;
use futures::StreamExt as _;
use jiff::Timestamp;
use kube::Client;
use serde_json::Value;

use super::bundle::{Bundle, MAX_FILE};
use super::plan::{GATEWAY_COMMANDS, NODE_COMMANDS, Objects, Pods, Scope};
use super::redact::Redactor;
use super::summary::Summary;
use super::{GatherArgs, Module, Type};
use crate::api::{Api, MAX_OBJECTS, text};
use crate::exec::{self, Container};
use crate::progress::Printer;
use trieste_control::steps::{Outcome, Steps as _};
use trieste_deploy::objects::names;

/// Ours: how many lines of a log are read, the newest.
const LOG_LINES: u32 = 50_000;
/// Ours: how long a command on a node may take.
const PATIENCE: Duration = Duration::from_secs(30);
/// Ours: on how many nodes commands run at once.
const NODES_AT_ONCE: usize = 8;

/// One cluster, while it is gathered.
pub(super) struct Gathering {
    client: Client,
    api: Api,
    cluster: String,
    namespace: String,
    broker_namespace: String,
    bundle: Bundle,
}

impl Gathering {
    /// Makes the directory, and learns first what must not get into it.
    ///
    /// # Errors
    /// When there can be no directory, and when Secrets cannot be read and nobody said that files may hold their values.
    pub(super) async fn begin(
        args: &GatherArgs,
        client: Client,
        cluster: &str,
        directory: PathBuf,
    ) -> anyhow::Result<Self> {
        let (namespace, broker_namespace) = (args.kube.namespace.clone(), args.broker_namespace.clone());
        let api = Api::new(client.clone());
        let mut problems = Vec::new();
        let redactor = if args.include_sensitive_data {
            None
        } else {
            let learning = Learning {
                api: &api,
                is_broker_read: args.modules.iter().any(|module| module.content().reads_broker()),
                may_miss_secrets: args.allow_unreadable_secrets,
            };
            Some(learning.learn(&namespace, &broker_namespace, &mut problems).await?)
        };
        let bundle = Bundle::create(directory, redactor)?;
        problems.iter().for_each(|problem| bundle.miss(problem));
        Ok(Self { client, api, cluster: cluster.to_owned(), namespace, broker_namespace, bundle })
    }

    pub(super) fn directory(&self) -> &Path {
        self.bundle.directory()
    }

    /// How much there is, and how much is missing.
    pub(super) fn remark(&self) -> String {
        let written = self.bundle.written();
        format!("{} files, {} things could not be gathered", written.files.len(), written.missing.len())
    }

    /// Gathers all that is asked for, then the summary.
    ///
    /// # Errors
    /// When files cannot be written.
    pub(super) async fn run(
        &self,
        args: &GatherArgs,
        now: Timestamp,
        printer: &mut Printer,
    ) -> anyhow::Result<()> {
        printer.text(&format!("Gathering information from cluster \"{}\"\n", self.cluster));
        for module in &args.modules {
            if args.types.contains(&Type::Logs) && !module.content().pods.is_empty() {
                printer.begin(&format!("Gathering {} logs", module.name()));
                self.logs(module.content().pods, printer).await?;
                printer.end(Outcome::Success);
            }
            if args.types.contains(&Type::Resources) {
                printer.begin(&format!("Gathering {} resources", module.name()));
                for objects in module.content().objects {
                    self.objects(objects, printer).await?;
                }
                if *module == Module::Connectivity {
                    self.commands(names::ROUTE_AGENT, &NODE_COMMANDS, printer).await?;
                    self.commands(names::GATEWAY, &GATEWAY_COMMANDS, printer).await?;
                }
                printer.end(Outcome::Success);
            }
        }
        self.summarize(now).await
    }

    async fn objects(&self, objects: &Objects, printer: &mut Printer) -> anyhow::Result<()> {
        let path = objects.path(&self.namespace, &self.broker_namespace);
        let mut found = self.api.list(&path).await;
        if matches!(found, Ok(None))
            && let Some(path) = objects.newer_path(&self.namespace, &self.broker_namespace)
        {
            found = self.api.list(&path).await;
        }
        let list = match found {
            Ok(Some(list)) => list,
            // A kind that the cluster does not have.
            Ok(None) => return Ok(()),
            Err(error) => {
                self.miss(&format!("{}: {error:#}", objects.plural), printer);
                return Ok(());
            }
        };
        if list.is_cut {
            self.miss(&format!("{}: all beyond the first {MAX_OBJECTS}", objects.plural), printer);
        }
        let is_wanted = |object: &Value| objects.scope != Scope::Related || is_related(object);
        let mut count = 0;
        for object in list.items.into_iter().filter(is_wanted) {
            let parts =
                [objects.plural, text(&object, "/metadata/namespace"), text(&object, "/metadata/name")];
            let parts: Vec<&str> = parts.into_iter().filter(|part| !part.is_empty()).collect();
            self.bundle.object(&format!("{}.yaml", parts.join("_")), object)?;
            count += 1;
        }
        if count > 0 {
            let place = match objects.scope {
                Scope::Own => format!(" in namespace \"{}\"", self.namespace),
                Scope::Broker => format!(" in namespace \"{}\"", self.broker_namespace),
                Scope::All | Scope::Related => String::new(),
            };
            printer.remark(Outcome::Success, &format!("Found {count} {}{place}", objects.plural));
        }
        Ok(())
    }

    async fn logs(&self, selections: &[Pods], printer: &mut Printer) -> anyhow::Result<()> {
        let mut known: BTreeMap<&str, Vec<Value>> = BTreeMap::new();
        for Pods { namespace, selector } in selections {
            let namespace = if namespace.is_empty() { self.namespace.as_str() } else { namespace };
            if !known.contains_key(namespace) {
                let pods = self.api.items(&format!("/api/v1/namespaces/{namespace}/pods")).await;
                let pods = pods.unwrap_or_else(|error| {
                    self.miss(&format!("logs in namespace {namespace}: {error:#}"), printer);
                    Vec::new()
                });
                known.insert(namespace, pods);
            }
            let pods: Vec<&Value> =
                known[namespace].iter().filter(|pod| is_selected(pod, selector)).collect();
            if !pods.is_empty() {
                let found = format!("Found {} pods matching label selector \"{selector}\"", pods.len());
                printer.remark(Outcome::Success, &found);
            }
            for pod in pods {
                self.logs_of(namespace, pod, printer).await?;
            }
        }
        Ok(())
    }

    async fn logs_of(&self, namespace: &str, pod: &Value, printer: &mut Printer) -> anyhow::Result<()> {
        let name = text(pod, "/metadata/name");
        let containers: Vec<&Value> = ["initContainers", "containers"]
            .iter()
            .flat_map(|list| pod["spec"][list].as_array().into_iter().flatten())
            .collect();
        for container in &containers {
            let container = text(container, "/name");
            let file = if containers.len() == 1 { name.to_owned() } else { format!("{name}_{container}") };
            let path = format!(
                "/api/v1/namespaces/{namespace}/pods/{name}/log?container={container}&tailLines={LOG_LINES}\
                 &limitBytes={MAX_FILE}"
            );
            let mut wanted = vec![(format!("{file}.log"), path.clone())];
            if restarts(pod, container) > 0 {
                wanted.push((format!("{file}.log.prev"), format!("{path}&previous=true")));
            }
            for (file, path) in wanted {
                match self.api.bytes(&path, MAX_FILE).await {
                    Ok(log) => self.bundle.text(&file, &log)?,
                    Err(error) => self.miss(&format!("{file}: {error:#}"), printer),
                }
            }
        }
        Ok(())
    }

    /// Runs commands in every pod of a component, on several nodes at once.
    async fn commands(
        &self,
        component: &str,
        commands: &[(&str, &[&str])],
        printer: &mut Printer,
    ) -> anyhow::Result<()> {
        let selector = format!("app={component}");
        // Without the right to list pods their logs have been reported already, or are not asked for.
        let pods = self.api.items(&format!("/api/v1/namespaces/{}/pods", self.namespace)).await;
        let pods = match pods {
            Ok(pods) => pods,
            Err(error) => {
                self.miss(&format!("commands in pods of {component}: {error:#}"), printer);
                return Ok(());
            }
        };
        let pods: Vec<&Value> = pods.iter().filter(|pod| is_selected(pod, &selector)).collect();
        let work = pods.iter().map(|pod| self.commands_in(pod, component, commands));
        let mut work = futures::stream::iter(work).buffer_unordered(NODES_AT_ONCE);
        while let Some(outcome) = work.next().await {
            if let Some(problem) = outcome? {
                self.miss(&problem, printer);
            }
        }
        Ok(())
    }

    /// Runs commands in one pod; gives why none could be run.
    async fn commands_in(
        &self,
        pod: &Value,
        component: &str,
        commands: &[(&str, &[&str])],
    ) -> anyhow::Result<Option<String>> {
        let (name, node) = (text(pod, "/metadata/name"), text(pod, "/spec/nodeName"));
        let phase = text(pod, "/status/phase");
        if phase != "Running" {
            return Ok(Some(format!("commands in pod {name}: it is {phase}")));
        }
        let container = Container { namespace: &self.namespace, pod: name, container: component };
        for (title, words) in commands {
            let file =
                if title.contains('.') { format!("{node}_{title}") } else { format!("{node}_{title}.log") };
            let ran = match exec::run(&self.client, container, words, MAX_FILE, PATIENCE).await {
                Ok(ran) => ran,
                // What fails for one command here fails for all.
                Err(error) => return Ok(Some(format!("commands in pod {name}: {error:#}"))),
            };
            if let Some(failure) = &ran.failure {
                // A program that an image does not have is no fault of the cluster.
                self.bundle.miss(&format!("{file}: `{}`: {failure}", words.join(" ")));
            }
            if !ran.stdout.is_empty() || !ran.stderr.is_empty() {
                self.bundle.text(&file, &[ran.stdout, ran.stderr].concat())?;
            }
        }
        Ok(None)
    }

    async fn summarize(&self, now: Timestamp) -> anyhow::Result<()> {
        let version = self.client.apiserver_version().await.map(|info| info.git_version);
        // What cannot be read here has been told before.
        let nodes = self.api.items("/api/v1/nodes").await.unwrap_or_default();
        let gateways = format!("/apis/submariner.io/v1/namespaces/{}/gateways", self.namespace);
        let gateways = self.api.items(&gateways).await.unwrap_or_default();
        let html = {
            let written = self.bundle.written();
            let server_version = version.unwrap_or_default();
            let cluster = &self.cluster;
            Summary {
                cluster,
                server_version: &server_version,
                now,
                nodes: &nodes,
                gateways: &gateways,
                written: &written,
            }
            .html()
        };
        self.bundle.write("summary.html", html.as_bytes()).context("the other files are complete")
    }

    /// Says that something is missing, here and in the summary.
    fn miss(&self, what: &str, printer: &mut Printer) {
        self.bundle.miss(what);
        let missing = self.bundle.written().missing.last().cloned().unwrap_or_default();
        printer.remark(Outcome::Failure, &missing);
    }
}

/// How the values that must not be written are found out.
struct Learning<'a> {
    api: &'a Api,
    /// Whether objects of the broker's namespace are gathered.
    is_broker_read: bool,
    /// Whether Secrets that cannot be read are only noted.
    may_miss_secrets: bool,
}

impl Learning<'_> {
    /// Learns the values of Secrets, and what other objects hold in fields for secrets.
    ///
    /// # Errors
    /// When the Secrets of a namespace that is gathered cannot all be read, unless they may be missed.
    async fn learn(&self, own: &str, broker: &str, problems: &mut Vec<String>) -> anyhow::Result<Redactor> {
        let mut seen = Vec::new();
        for (namespace, is_gathered) in [(own, true), (broker, self.is_broker_read)] {
            match self.secrets(namespace).await {
                Ok(secrets) => seen.extend(secrets),
                Err(error) if is_gathered && !self.may_miss_secrets => return Err(error),
                Err(error) => problems.push(format!("{error:#}")),
            }
            for path in [
                format!("/api/v1/namespaces/{namespace}/pods"),
                format!("/apis/apps/v1/namespaces/{namespace}/daemonsets"),
                format!("/apis/apps/v1/namespaces/{namespace}/deployments"),
                format!("/apis/submariner.io/v1alpha1/namespaces/{namespace}/submariners"),
                format!("/apis/submariner.io/v1alpha1/namespaces/{namespace}/servicediscoveries"),
            ] {
                match self.api.items(&path).await {
                    Ok(objects) => seen.extend(objects),
                    Err(error) => problems.push(format!("values of secrets, for taking them out: {error:#}")),
                }
            }
        }
        let mut redactor = Redactor::default();
        redactor.learn(&seen);
        Ok(redactor)
    }

    /// Lists the Secrets of a namespace.
    async fn secrets(&self, namespace: &str) -> anyhow::Result<Vec<Value>> {
        let why = || {
            format!(
                "cannot list secrets in namespace {namespace}, whose values are taken out of all files \
                 (--allow-unreadable-secrets gathers without: files may then hold them)"
            )
        };
        let list =
            self.api.list(&format!("/api/v1/namespaces/{namespace}/secrets")).await.with_context(why)?;
        let list = list.unwrap_or_default();
        anyhow::ensure!(!list.is_cut, "{}: there are more than {MAX_OBJECTS}", why());
        Ok(list.items)
    }
}

/// Whether an object outside of our namespaces is part of an installation.
fn is_related(object: &Value) -> bool {
    let words = ["submariner", "trieste", "multicluster"];
    let labels = object["metadata"]["labels"].as_object();
    let mut names = labels.into_iter().flatten().map(|(key, _)| key.as_str());
    words.iter().any(|word| text(object, "/metadata/name").contains(word))
        || names.any(|name| words.iter().any(|word| name.contains(word)))
}

/// Whether a pod has a label, given as `key=value`.
fn is_selected(pod: &Value, selector: &str) -> bool {
    selector.split_once('=').is_some_and(|(key, value)| pod["metadata"]["labels"][key] == value)
}

fn restarts(pod: &Value, container: &str) -> u64 {
    let lists = ["initContainerStatuses", "containerStatuses"];
    let statuses = lists.iter().flat_map(|list| pod["status"][list].as_array().into_iter().flatten());
    let of = statuses.filter(|status| text(status, "/name") == container);
    of.filter_map(|status| status["restartCount"].as_u64()).sum()
}
