//! `trieste diagnose path`: the walk along one connection, printed.

use std::net::IpAddr;
use std::process::ExitCode;
use std::str::FromStr;

use anyhow::Context as _;
use rand_core::OsRng;
use tokio::signal::unix::{SignalKind, signal};
use trieste_control::steps::{Outcome, Record, Steps};
use trieste_diagnose::facts::Source;
use trieste_diagnose::node::token::Run;
use trieste_diagnose::path::verdict::{Diagnosis, Finding, Health, HopReport, HopState, Way};
use trieste_diagnose::path::{Destination, PathRequest, PodRef, SideRequest, gather, give_up, judge};

use super::{RemoteArgs, kubectl};
use crate::contexts::{KubeArgs, Target};
use crate::discovery::{Family, Resolved, is_name, resolve};
use crate::output::Format;
use crate::output::{Output, printable};
use crate::progress::Printer;

/// The namespace of pods that are named without one.
const DEFAULT_NAMESPACE: &str = "default";

#[derive(Debug, clap::Args)]
pub(super) struct PathArgs {
    /// The pod that speaks first: [NAMESPACE/]NAME
    source: PodName,
    /// Where it goes to: [NAMESPACE/]NAME of a pod, service:[NAMESPACE/]NAME, an address, or a service's name in the set,
    /// such as web.shop.svc.clusterset.local, which is resolved as the first cluster's DNS server answers it
    destination: DestinationName,
    #[command(flatten)]
    kube: KubeArgs,
    #[command(flatten)]
    remote: RemoteArgs,
    /// Make no pod to probe from; nodes probe alone
    #[arg(long)]
    no_probe_pod: bool,
    /// How to print it
    #[arg(long, short, value_enum, default_value_t)]
    output: Format,
}

/// A pod's name on the command line.
#[derive(Debug, Clone, PartialEq, Eq)]
struct PodName(PodRef);

impl FromStr for PodName {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (namespace, name) = text.split_once('/').unwrap_or((DEFAULT_NAMESPACE, text));
        let is_name = |text: &str| {
            !text.is_empty() && text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'.')
        };
        if !is_name(namespace) || !is_name(name) {
            return Err("a name is [NAMESPACE/]NAME".to_owned());
        }
        Ok(Self(PodRef { namespace: namespace.to_owned(), name: name.to_owned() }))
    }
}

/// A destination's name on the command line.
#[derive(Debug, Clone, PartialEq, Eq)]
enum DestinationName {
    /// A pod, a service or an address.
    Direct(Destination),
    /// A name in the set.
    Name(String),
}

impl FromStr for DestinationName {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if let Ok(address) = text.parse::<IpAddr>() {
            return Ok(Self::Direct(Destination::Address(address)));
        }
        if is_name(text) {
            return Ok(Self::Name(text.to_owned()));
        }
        let service = ["service:", "service/", "svc/"].iter().find_map(|start| text.strip_prefix(start));
        match service {
            Some(name) => Ok(Self::Direct(Destination::Service(name.parse::<PodName>()?.0))),
            None => Ok(Self::Direct(Destination::Pod(text.parse::<PodName>()?.0))),
        }
    }
}

pub(super) async fn run(args: &PathArgs, output: &mut Output) -> anyhow::Result<ExitCode> {
    let near = args.kube.target()?;
    let far = args.remote.target(&args.kube)?;
    let (destination, resolved) = args.destination().await?;
    if far.is_none() && !matches!(destination, Destination::Address(_)) {
        anyhow::bail!(
            "a pod or service of another cluster is found by its API server: name its context with --remotecontext, or \
             give its address instead of its name"
        );
    }
    let request = PathRequest {
        source: args.source.0.clone(),
        destination,
        source_side: args.side(&near).await?,
        destination_side: match &far {
            Some(far) => Some(args.side(far).await?),
            None => None,
        },
        with_pods: !args.no_probe_pod,
        run: Run::random(&mut OsRng),
    };
    tokio::select! {
        code = walk(args, &near, (&request, resolved.as_ref()), output) => code,
        () = interrupted() => {
            give_up(&request).await;
            anyhow::bail!("interrupted; nothing is left behind")
        }
    }
}

/// Somebody does not want to wait any more.
async fn interrupted() {
    let by = |kind: SignalKind| async move {
        match signal(kind) {
            Ok(mut signal) => drop(signal.recv().await),
            // The default then holds: the process ends, and the next run sweeps.
            Err(_) => std::future::pending().await,
        }
    };
    tokio::select! {
        () = by(SignalKind::interrupt()) => {}
        () = by(SignalKind::terminate()) => {}
    }
}

async fn walk(
    args: &PathArgs,
    near: &Target,
    (request, resolved): (&PathRequest, Option<&Resolved>),
    output: &mut Output,
) -> anyhow::Result<ExitCode> {
    let diagnosis = match args.output {
        Format::Table => {
            let mut printer = Printer::new(output);
            printer.heading(&near.cluster);
            if let Some(resolved) = resolved {
                printer.remark(Outcome::Success, &resolved.to_string());
            }
            let evidence = gather(request, &mut printer).await.context("the connection cannot be judged")?;
            let diagnosis = judge(&evidence);
            print(&diagnosis, &mut printer);
            printer.finish()?;
            diagnosis
        }
        Format::Json | Format::Yaml => {
            let evidence = gather(request, &mut Record::default()).await;
            let diagnosis = judge(&evidence.context("the connection cannot be judged")?);
            let mut document = serde_json::to_value(&diagnosis)?;
            if let (Some(resolved), Some(fields)) = (resolved, document.as_object_mut()) {
                fields.insert("resolved".to_owned(), serde_json::to_value(resolved)?);
            }
            output.write_value(&document, args.output)?;
            diagnosis
        }
    };
    Ok(if diagnosis.health == Health::Broken { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

impl PathArgs {
    /// Returns where the connection goes to; of a name also what it was resolved to.
    async fn destination(&self) -> anyhow::Result<(Destination, Option<Resolved>)> {
        match &self.destination {
            DestinationName::Direct(destination) => Ok((destination.clone(), None)),
            DestinationName::Name(name) => {
                let resolved = resolve(name, &[Family::V4, Family::V6], &self.kube, None).await?;
                Ok((Destination::Address(resolved.address), Some(resolved)))
            }
        }
    }

    async fn side(&self, target: &Target) -> anyhow::Result<SideRequest> {
        let source = Source { client: target.client().await?, namespace: self.kube.namespace.clone() };
        Ok(SideRequest { source, kubectl: kubectl(target.context.as_deref()) })
    }
}

/// Every hop, then the verdict.
fn print(diagnosis: &Diagnosis, printer: &mut Printer) {
    printer.text("\n");
    for hop in &diagnosis.hops {
        let text = title(hop);
        match hop.state {
            HopState::Good => printer.remark(Outcome::Success, &text),
            HopState::Warning => printer.remark(Outcome::Warning, &text),
            HopState::Broken => printer.remark(Outcome::Failure, &text),
            HopState::NotReached => printer.text(&format!("   {}: not reached\n", printable(&text))),
            HopState::Unseen => printer.text(&format!("   {}: not seen\n", printable(&text))),
        }
        let others = hop.findings.iter().filter(|finding| diagnosis.verdict.as_ref() != Some(*finding));
        for finding in others {
            printer.text(&format!("     {}: {}\n", finding.cause, printable(&finding.reason)));
        }
    }
    for note in &diagnosis.notes {
        printer.text(&format!("   note: {}\n", printable(note)));
    }
    printer.text("\n");
    if let Some(verdict) = &diagnosis.verdict {
        let outcome = if diagnosis.health == Health::Broken { Outcome::Failure } else { Outcome::Warning };
        printer.remark(outcome, &sentence(verdict));
        for line in &verdict.evidence {
            printer.text(&format!("     {}\n", printable(line)));
        }
        printer.text(&format!("   What to do: {}\n", printable(&verdict.remedy)));
    }
    let measured = measured(diagnosis);
    match diagnosis.health {
        Health::Healthy | Health::Impaired if diagnosis.measured.answered > 0 => {
            printer.remark(Outcome::Success, &format!("Packets pass, there and back{measured}"));
        }
        Health::Impaired if diagnosis.measured.sent == 0 => {
            printer.remark(Outcome::Warning, "No probe could be sent: whether packets pass is not known");
        }
        Health::Healthy | Health::Impaired | Health::Broken => {}
    }
}

fn title(hop: &HopReport) -> String {
    let title = hop.hop.title();
    if hop.detail.is_empty() { title.to_owned() } else { format!("{title}: {}", hop.detail) }
}

fn sentence(finding: &Finding) -> String {
    let back = if finding.way == Way::Back { ", on the way back" } else { "" };
    format!("{} at {}{back}: {}", finding.cause, finding.hop, finding.reason)
}

fn measured(diagnosis: &Diagnosis) -> String {
    let measured = &diagnosis.measured;
    let facts = [
        measured.rtt_us.map(|us| format!("round trip {}.{:03} ms", us / 1000, us % 1000)),
        measured.path_mtu_bytes.map(|mtu| format!("path MTU {mtu} bytes")),
        measured.source_seen.map(|source| format!("source seen {source}")),
    ];
    let facts: Vec<String> = facts.into_iter().flatten().collect();
    if facts.is_empty() { String::new() } else { format!(": {}", facts.join(", ")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn destination(text: &str) -> Destination {
        match text.parse().unwrap() {
            DestinationName::Direct(destination) => destination,
            DestinationName::Name(name) => panic!("{name}"),
        }
    }

    fn named(namespace: &str, name: &str) -> PodRef {
        PodRef { namespace: namespace.to_owned(), name: name.to_owned() }
    }

    #[test]
    fn a_destination_is_a_pod_a_service_or_an_address() {
        assert_eq!(destination("web-1"), Destination::Pod(named("default", "web-1")));
        assert_eq!(destination("shop/web-1"), Destination::Pod(named("shop", "web-1")));
        assert_eq!(destination("service:shop/db"), Destination::Service(named("shop", "db")));
        assert_eq!(destination("svc/db"), Destination::Service(named("default", "db")));
        assert_eq!(destination("10.2.1.7"), Destination::Address([10, 2, 1, 7].into()));
        let name = "web.shop.svc.clusterset.local";
        assert_eq!(name.parse(), Ok(DestinationName::Name(name.to_owned())));
        for wrong in ["", "a/b/c", "shop/", "x y"] {
            assert!(wrong.parse::<DestinationName>().is_err(), "{wrong}");
        }
    }
}
