//! `trieste diagnose service-discovery`: the walk from an export to its answer.
//!
//! ```text
//!   evidence (objects, Deployments, Corefile) ─▶ walk ─▶ questions ─▶ the real DNS, in a pod or from here ─▶ answers
//! ```

mod answers;
mod evidence;
mod forwards;
mod walk;

use std::process::ExitCode;
use std::str::FromStr;
use std::time::Duration;

use kube::Client;
use trieste_control::api::Kind;
use trieste_control::steps::{Outcome, Steps as _};
use trieste_control::store::{AnyStore, Location};
use trieste_discovery::ask::{self, Question, ServerAddress};

use crate::api::Api;
use crate::contexts::{KubeArgs, on_each};
use crate::discovery::{Discovery, Lists, Name};
use crate::exec::{self, Container};
use crate::output::{Output, printable, remark};
use crate::progress::Printer;
use answers::{Answer, Expected};
use evidence::{AGENT, Evidence, KubeFacts};
use walk::{State, Walked, walk};

/// Ours: how many services are asked for, unless one is named.
const MOST_ASKED: usize = 10;
/// Ours: how long a command in a pod may take.
const EXEC_TIMEOUT: Duration = Duration::from_secs(20);
/// Largest document that a command in a pod prints, in bytes.
const MAX_DOCUMENT: usize = 1 << 20;

#[derive(Debug, Clone, clap::Args)]
pub(super) struct DiscoveryArgs {
    /// Look at this service alone [default: all that the cluster exports or imports]
    #[arg(value_name = "NAMESPACE/SERVICE")]
    service: Option<ServiceArg>,
    #[command(flatten)]
    pub(super) kube: KubeArgs,
    /// Read the objects of this store instead, without what only Kubernetes has: dir:PATH
    #[arg(long, value_name = "LOCATION", conflicts_with_all = ["kubeconfig", "context", "contexts", "in_cluster"])]
    store: Option<Location>,
    /// Ask this DNS server, from here, instead of the cluster's from the agent's pod
    #[arg(long, value_name = "ADDRESS[:PORT]")]
    server: Option<ServerAddress>,
}

/// A service on the command line.
#[derive(Debug, Clone, PartialEq, Eq)]
struct ServiceArg(Name);

impl FromStr for ServiceArg {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.split_once('/') {
            Some((namespace, name)) if trieste_dns::ServiceName::parse(namespace, name).is_ok() => {
                Ok(Self(Name { namespace: namespace.to_owned(), name: name.to_owned() }))
            }
            Some(_) | None => Err("a service is NAMESPACE/SERVICE, such as shop/web".to_owned()),
        }
    }
}

impl DiscoveryArgs {
    /// Returns the one service that is meant, if it is one.
    fn only(&self) -> Option<&Name> {
        self.service.as_ref().map(|service| &service.0)
    }
}

/// Who is asked.
enum Asker<'a> {
    /// A server, from here.
    Here(ServerAddress),
    /// The servers of a pod.
    Pod { client: &'a Client, namespace: &'a str, pod: &'a str },
}

pub(super) async fn run(args: &DiscoveryArgs, output: &mut Output) -> anyhow::Result<ExitCode> {
    let is_well = match &args.store {
        Some(location) => {
            let mut printer = Printer::new(output);
            let evidence = of_store(location, &args.kube.namespace, args.only()).await?;
            let cluster = evidence.discovery.local.clone();
            printer.heading(&cluster.unwrap_or_else(|| location.to_string()));
            check(args, &evidence, None, &mut printer).await;
            printer.text("\n");
            let is_well = printer.worst() < Outcome::Failure;
            printer.finish()?;
            is_well
        }
        None => {
            on_each(&args.kube, output, async |_, client, printer| cluster(args, client, printer).await)
                .await?
        }
    };
    Ok(if is_well { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Checks one cluster.
///
/// # Errors
/// When its objects cannot be listed.
async fn cluster(args: &DiscoveryArgs, client: Client, printer: &mut Printer) -> anyhow::Result<()> {
    let api = Api::new(client.clone());
    let evidence = Evidence::of_cluster(&api, &args.kube.namespace, args.only()).await?;
    check(args, &evidence, Some(&client), printer).await;
    Ok(())
}

/// Checks a cluster in which service discovery is installed; says nothing of others.
///
/// # Errors
/// As [`cluster`].
pub(super) async fn where_installed(
    kube: &KubeArgs,
    client: Client,
    printer: &mut Printer,
) -> anyhow::Result<()> {
    let path = format!("/apis/apps/v1/namespaces/{}/deployments/{AGENT}", kube.namespace);
    if Api::new(client.clone()).get(&path).await?.is_none() {
        return Ok(());
    }
    cluster(&DiscoveryArgs { service: None, kube: kube.clone(), store: None, server: None }, client, printer)
        .await
}

async fn of_store(location: &Location, namespace: &str, only: Option<&Name>) -> anyhow::Result<Evidence> {
    let store = AnyStore::attach(location);
    let lists = Lists::Store(&store, location);
    let gateways = lists.list(Kind::Gateway, namespace, None).await?;
    let mut discovery = Discovery::new(lists.objects(gateways, namespace).await?);
    discovery.read_own(&lists, only).await?;
    for problem in store.problems() {
        remark(&format!("warning: {problem}; ignored"));
    }
    Ok(Evidence { discovery, kube: None })
}

async fn check(args: &DiscoveryArgs, evidence: &Evidence, client: Option<&Client>, printer: &mut Printer) {
    let walked = walk(evidence, args.only());
    for step in &walked.steps {
        match &step.state {
            State::Done(remarks) => {
                printer.begin(step.title);
                for (outcome, text) in remarks {
                    printer.remark(*outcome, text);
                }
                printer.end(Outcome::Success);
            }
            State::NotApplicable => {
                printer.text(&format!("   {}: not applicable without Kubernetes\n", step.title));
            }
            State::NotReached => printer.text(&format!("   {}: not reached\n", step.title)),
        }
    }
    const TITLE: &str = "Asking the DNS";
    let expected: Vec<Expected> = walked.well.iter().take(MOST_ASKED).flat_map(Expected::of).collect();
    match asker(args, evidence, client, &walked) {
        _ if expected.is_empty() => printer.text(&format!("   {TITLE}: not reached\n")),
        Ok(Some(asker)) => {
            printer.begin(TITLE);
            ask_all(&asker, evidence.kube.as_ref(), &expected, printer).await;
            printer.end(Outcome::Success);
            let rest = walked.well.len().saturating_sub(MOST_ASKED);
            if rest > 0 {
                let text = format!(
                    "{MOST_ASKED} services were asked for, and {rest} were not: name one to ask for it"
                );
                printer.remark(Outcome::Success, &text);
            }
        }
        Ok(None) => printer.text(&format!("   {TITLE}: not reached\n")),
        Err(why) => {
            printer.begin(TITLE);
            printer.remark(Outcome::Warning, why);
            printer.end(Outcome::Success);
        }
    }
}

/// Returns who is asked: nobody, where what comes before is broken.
fn asker<'a>(
    args: &DiscoveryArgs,
    evidence: &'a Evidence,
    client: Option<&'a Client>,
    walked: &Walked,
) -> Result<Option<Asker<'a>>, &'static str> {
    if let Some(server) = args.server {
        return Ok(Some(Asker::Here(server)));
    }
    let (Some(client), Some(kube)) = (client, &evidence.kube) else {
        return Err("nobody is asked: name the DNS server with --server ADDRESS");
    };
    if !walked.is_forwarded {
        return Ok(None);
    }
    match &kube.pod {
        Some(pod) => Ok(Some(Asker::Pod { client, namespace: &kube.namespace, pod })),
        None => Err(
            "there is no running pod of the agent to ask from; from a node, --server ADDRESS asks a server",
        ),
    }
}

async fn ask_all(asker: &Asker<'_>, kube: Option<&KubeFacts>, expected: &[Expected], printer: &mut Printer) {
    for question in expected {
        if let Err(why) = ask_one(asker, kube, question, printer).await {
            // Nor can the others be asked for.
            printer.remark(Outcome::Failure, &format!("{why}; --server ADDRESS asks a server from here"));
            return;
        }
    }
}

/// Asks for one name, and where the cluster's DNS does not answer well, the DNS server itself.
///
/// # Errors
/// That nobody can be asked, and why.
async fn ask_one(
    asker: &Asker<'_>,
    kube: Option<&KubeFacts>,
    question: &Expected,
    printer: &mut Printer,
) -> Result<(), String> {
    let answer = asker.ask(question, None).await?;
    let Some((outcome, text)) = question.evaluate(&answer) else { return Ok(()) };
    printer.remark(outcome, &text);
    let server = kube.and_then(|kube| kube.service.as_ref().ok()?.as_ref()?.first().copied());
    if let (Asker::Pod { .. }, Some(server), Outcome::Failure) = (asker, server, outcome) {
        let server = ServerAddress::from(server);
        let direct = asker.ask(question, Some(server)).await?;
        printer.remark(Outcome::Failure, &question.evaluate_direct(server.0, &direct));
    }
    Ok(())
}

impl Asker<'_> {
    /// Asks for a name: a server, or by default the one that is meant.
    ///
    /// # Errors
    /// That nobody can be asked, and why.
    async fn ask(&self, expected: &Expected, server: Option<ServerAddress>) -> Result<Answer, String> {
        let Expected { name, rtype, .. } = expected;
        match self {
            Self::Here(here) => {
                let question = Question::new(name, rtype).map_err(|error| error.to_string())?;
                let asked = ask::ask(&question, server.unwrap_or(*here)).await;
                Ok(asked.map_err(|error| error.to_string()))
            }
            Self::Pod { client, namespace, pod } => {
                let address = server.map(|server| server.0.to_string());
                let mut words = vec!["trieste-discovery", "ask", name, rtype, "--json"];
                words.extend(address.iter().flat_map(|address| ["--server", address]));
                let container = Container { namespace, pod, container: AGENT };
                let ran = exec::run(client, container, &words, MAX_DOCUMENT, EXEC_TIMEOUT).await;
                read(&ran.map_err(|error| format!("{error:#}"))?)
            }
        }
    }
}

/// Reads what the command in the pod has printed.
///
/// # Errors
/// That it is no such command.
fn read(ran: &exec::Ran) -> Result<Answer, String> {
    if let Some(failure) = &ran.failure {
        let stderr = String::from_utf8_lossy(&ran.stderr);
        let last = stderr.lines().rfind(|line| !line.trim().is_empty()).map(printable);
        let reason = last.unwrap_or_else(|| failure.clone());
        return match reason.strip_prefix("trieste-discovery ask: ") {
            Some(why) => Ok(Err(why.to_owned())),
            None => Err(format!("{reason}; does the agent's pod run an image of Trieste?")),
        };
    }
    let document = serde_json::from_slice(&ran.stdout);
    document.map(Ok).map_err(|error| format!("the pod's document makes no sense: {error}"))
}

#[cfg(test)]
mod tests;
