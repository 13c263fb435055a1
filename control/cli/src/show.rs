//! `trieste show`: of clusters, of a store, or of one gateway.

mod cluster;
mod globalnet;
mod view;

use std::process::ExitCode;

use anyhow::bail;
use clap::ValueEnum;

use super::contexts::KubeArgs;
use super::output::Format;
use super::output::Output;
use super::progress::Printer;
use super::rows::{Networks, connections, endpoints, gateways, remarks, route_agents, services};
use super::socket::SocketArgs;
use super::source::{self, Found, Wants};
use trieste_control::api::{Endpoint, Gateway};
use trieste_control::store::Location;
use view::{Part, View};

#[derive(Debug, clap::Args)]
pub(super) struct ShowArgs {
    /// What to show
    #[arg(value_enum)]
    what: What,
    #[command(flatten)]
    source: SourceArgs,
    /// How to print it
    #[arg(long, short, value_enum, default_value_t)]
    output: Format,
}

#[derive(Debug, Clone, clap::Args)]
pub(super) struct SourceArgs {
    #[command(flatten)]
    pub(super) kube: KubeArgs,
    /// Read the objects of this store instead: dir:PATH, kube: (KUBECONFIG, ~/.kube/config, or the cluster that this
    /// runs in) or kube:KUBECONFIG#CONTEXT
    #[arg(long, value_name = "LOCATION", conflicts_with_all = ["socket", "kubeconfig", "context", "contexts", "in_cluster"])]
    pub(super) store: Option<Location>,
    #[command(flatten)]
    pub(super) socket: SocketArgs,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum What {
    /// The broker that the cluster has, if any
    Brokers,
    /// One row per cable
    Connections,
    /// One row per endpoint, our own and those connected to
    Endpoints,
    /// One row per gateway
    Gateways,
    /// One row per node and remote gateway
    #[value(name = "routeagents")]
    RouteAgents,
    /// The cluster's CIDRs
    Networks,
    /// Which images were asked for, and what runs
    Versions,
    /// Services that this cluster exports or imports: who exports them, what is ready and connected, who answers
    Services,
    /// What one gateway translates: pools, allocations, rules, sessions, ports
    Globalnet,
    /// All of these, but for route agents and globalnet
    All,
}

impl What {
    /// Whether this part is asked for.
    fn has(self, part: Self) -> bool {
        self == part || (self == Self::All && !matches!(part, Self::RouteAgents | Self::Globalnet))
    }

    /// Returns what is to be said besides the connections or endpoints, where they are asked for.
    fn besides(self, gateways: &[Gateway], endpoints: &[Endpoint]) -> Vec<String> {
        let has_any = self.has(Self::Connections) || self.has(Self::Endpoints);
        if has_any { remarks(gateways, endpoints) } else { Vec::new() }
    }
}

pub(super) async fn run(args: &ShowArgs, output: &mut Output) -> anyhow::Result<ExitCode> {
    let source = &args.source;
    if args.what == What::Globalnet {
        return globalnet::run(source, args.output, output).await.map(|()| ExitCode::SUCCESS);
    }
    if source.store.is_none() && !source.socket.is_asked() && source.kube.has_source() {
        return cluster::run(&source.kube, args.what, args.output, output).await;
    }
    let view = of_gateways(args.what, &source::read(source, wants(args.what)).await?)?;
    match args.output {
        Format::Table => {
            let mut printer = Printer::new(output);
            if !view.cluster.is_empty() {
                printer.heading(&view.cluster);
            }
            let problem = view.print(args.what, &mut printer);
            printer.text("\n");
            printer.finish()?;
            match problem {
                Some(problem) => bail!("{problem}"),
                None => Ok(ExitCode::SUCCESS),
            }
        }
        format @ (Format::Json | Format::Yaml) => {
            view.write(args.what, format, output).map(|()| ExitCode::SUCCESS)
        }
    }
}

fn wants(what: What) -> Wants {
    match what {
        What::Networks => Wants::Cluster,
        What::Services => Wants::Services,
        What::All => Wants::AllPossible,
        What::RouteAgents => Wants::RouteAgents,
        What::Brokers
        | What::Connections
        | What::Endpoints
        | What::Gateways
        | What::Versions
        | What::Globalnet => Wants::Gateways,
    }
}

/// Why brokers and versions cannot be shown.
const ONLY_CLUSTERS: &str =
    "only an API server tells this: name its kubeconfig with --kubeconfig, or use --in-cluster in a pod";

/// Why there are no networks to show.
const NO_NETWORKS: &str = "no Cluster object of this cluster is known: read a store with --store (a gateway's socket does not tell \
                           its cluster's networks), and check --namespace";

/// What a store or a gateway tells.
fn of_gateways(what: What, found: &Found) -> anyhow::Result<View> {
    let networks = found.cluster.as_ref().map(|cluster| Networks::of_cluster(&cluster.spec));
    let has = |part| what.has(part);
    if matches!(what, What::Brokers | What::Versions) {
        bail!(ONLY_CLUSTERS);
    }
    if what == What::Networks && networks.is_none() {
        bail!(NO_NETWORKS);
    }
    let all = &found.gateways;
    let cluster = all.first().map(|gateway| gateway.status.local_endpoint.cluster_id.clone());
    Ok(View {
        cluster: cluster.unwrap_or_default(),
        is_installed: true,
        has_gateways: !all.is_empty(),
        connections: Part::of(has(What::Connections), Ok(connections(all))),
        besides: what.besides(all, &[]),
        endpoints: Part::of(has(What::Endpoints), Ok(endpoints(all))),
        gateways: Part::of(has(What::Gateways), Ok(gateways(all))),
        route_agents: Part::of(has(What::RouteAgents), Ok(route_agents(&found.route_agents))),
        // A gateway does not know them, and that is no failure where all is asked for.
        networks: Part::of(has(What::Networks) && networks.is_some(), Ok(networks)),
        services: found
            .services
            .as_ref()
            .map(|found| Part::of(has(What::Services), Ok(services(found))))
            .unwrap_or_default(),
        ..View::default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_is_what_upstream_shows_and_services() {
        let parts = What::value_variants().iter().filter(|part| What::All.has(**part));
        let names: Vec<String> =
            parts.map(|part| part.to_possible_value().unwrap().get_name().to_owned()).collect();
        assert_eq!(
            names,
            ["brokers", "connections", "endpoints", "gateways", "networks", "versions", "services", "all"]
        );
    }
}
