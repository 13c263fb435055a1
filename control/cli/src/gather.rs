//! `trieste gather`: what somebody needs who has to find out from afar what is wrong.
//!
//! ```text
//!   submariner-20261121183000/          --dir, readable by its owner alone
//!     summary.html                      one line per cluster
//!     cluster-a/
//!       summary.html                    nodes, gateways, files, and what could not be gathered
//!       gateways_submariner-operator_gw1.yaml
//!       submariner-gateway-x2x7p.log    and .log.prev of a container that was restarted
//!       gw1_ip-rule-list.log            a node's network, by commands in its route agent's pod
//!       gw1_trieste-status.json         a gateway, by commands in its pod
//! ```
//!
//! It goes on when something cannot be read, and says so. Nothing that is written has secrets in it, unless asked for:
//! without the right to list Secrets, whose values it takes out of everything, it begins nothing.

mod bundle;
mod cluster;
mod plan;
mod redact;
mod summary;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context as _;
use clap::ValueEnum;
use jiff::Timestamp;
use jiff::tz::TimeZone;
use trieste_deploy::objects::names;

use super::contexts::{KubeArgs, on_each};
use super::output::Output;
use bundle::{file_name, write_file};
use cluster::Gathering;
use plan::Content;

#[derive(Debug, clap::Args)]
pub(super) struct GatherArgs {
    #[command(flatten)]
    kube: KubeArgs,
    /// Of what kind, separated by commas
    #[arg(long = "type", value_enum, value_delimiter = ',', default_value = "logs,resources")]
    types: Vec<Type>,
    /// Of which parts, separated by commas
    #[arg(
        long = "module",
        value_enum,
        value_delimiter = ',',
        default_value = "connectivity,service-discovery,broker,operator"
    )]
    modules: Vec<Module>,
    /// The directory to make [default: submariner-TIME, in UTC]
    #[arg(long, value_name = "PATH")]
    dir: Option<PathBuf>,
    /// The broker's namespace, where the broker is in the cluster
    #[arg(long, value_name = "NAME", default_value = names::BROKER_NAMESPACE)]
    broker_namespace: String,
    /// Leave tokens, keys and certificates in: whoever gets the files can join the cluster set
    #[arg(long)]
    include_sensitive_data: bool,
    /// Gather also where Secrets may not be read: files may hold their values then, where those look like other words
    #[arg(long, conflicts_with = "include_sensitive_data")]
    allow_unreadable_secrets: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Type {
    /// Logs of pods, and of containers that were restarted
    Logs,
    /// Objects, and what commands on nodes tell
    Resources,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Module {
    /// Gateways, route agents, nodes
    Connectivity,
    /// Exported services, DNS
    ServiceDiscovery,
    /// What clusters exchange, where the broker is
    Broker,
    /// What was installed, and its rights
    Operator,
}

impl Module {
    const fn name(self) -> &'static str {
        match self {
            Self::Connectivity => "connectivity",
            Self::ServiceDiscovery => "service-discovery",
            Self::Broker => "broker",
            Self::Operator => "operator",
        }
    }

    const fn content(self) -> Content {
        match self {
            Self::Connectivity => plan::CONNECTIVITY,
            Self::ServiceDiscovery => plan::SERVICE_DISCOVERY,
            Self::Broker => plan::BROKER,
            Self::Operator => plan::INSTALLATION,
        }
    }
}

pub(super) async fn run(args: &GatherArgs, output: &mut Output) -> anyhow::Result<ExitCode> {
    let now = Timestamp::now();
    let directory = args.dir.clone().unwrap_or_else(|| default_directory(now));
    let mut clusters = Vec::new();
    let is_well = on_each(&args.kube, output, async |target, client, printer| {
        let folder = file_name(&target.cluster);
        clusters.push((target.cluster.clone(), String::new(), "nothing could be gathered".to_owned()));
        let gathering = Gathering::begin(args, client, &target.cluster, directory.join(&folder)).await?;
        let outcome = gathering.run(args, now, printer).await;
        if let Some(entry) = clusters.last_mut() {
            *entry = (target.cluster.clone(), folder, gathering.remark());
        }
        printer.text(&format!("Files are stored under directory \"{}\"\n", gathering.directory().display()));
        outcome
    })
    .await?;
    if clusters.iter().any(|(_, folder, _)| !folder.is_empty()) {
        write_index(&directory, &clusters)?;
    }
    Ok(if is_well { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn write_index(directory: &Path, clusters: &[(String, String, String)]) -> anyhow::Result<()> {
    write_file(&directory.join("summary.html"), summary::index(clusters).as_bytes())
        .context("the clusters' own summaries are complete")
}

/// As upstream's tool names it.
fn default_directory(now: Timestamp) -> PathBuf {
    format!("submariner-{}", now.to_zoned(TimeZone::UTC).strftime("%Y%m%d%H%M%S")).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_directory_has_upstreams_name() {
        let now: Timestamp = "2026-11-21T05:07:09Z".parse().unwrap();
        assert_eq!(default_directory(now), PathBuf::from("submariner-20261121050709"));
    }

    #[test]
    fn modules_are_called_as_on_the_command_line() {
        for module in Module::value_variants() {
            assert_eq!(module.to_possible_value().unwrap().get_name(), module.name());
        }
    }
}
