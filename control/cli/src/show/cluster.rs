//! What is shown of clusters, from their API servers.

use std::process::ExitCode;

use kube::Client;

use super::What;
use super::view::{Part, View};
use crate::api::Api;
use crate::contexts::{KubeArgs, Target, on_each};
use crate::discovery::{Discovery, Lists};
use crate::installation::Installation;
use crate::output::Format;
use crate::output::{Output, remark};
use crate::rows::{Networks, brokers, connections, endpoints, gateways, route_agents, services, versions};
use trieste_control::api::{Cluster, Endpoint, Gateway, Resource, RouteAgent};

pub(super) async fn run(
    args: &KubeArgs,
    what: What,
    format: Format,
    output: &mut Output,
) -> anyhow::Result<ExitCode> {
    let is_well = match format {
        Format::Table => {
            on_each(args, output, async |target, client, printer| {
                read(target, client, &args.namespace, what).await.print(what, printer);
                Ok(())
            })
            .await?
        }
        Format::Json | Format::Yaml => {
            let views = read_all(args, what).await?;
            output.write_value(&views, format)?;
            !views.iter().any(View::has_failed)
        }
    };
    Ok(if is_well { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// For programs: a cluster that cannot be reached has an error instead of parts.
async fn read_all(args: &KubeArgs, what: What) -> anyhow::Result<Vec<View>> {
    let mut views = Vec::new();
    for target in args.targets()? {
        views.push(match target.client().await {
            Ok(client) => read(&target, client, &args.namespace, what).await,
            Err(error) => {
                remark(&format!("error: {error:#}"));
                View { error: Some(format!("{error:#}")), ..unread(&target) }
            }
        });
    }
    Ok(views)
}

fn unread(target: &Target) -> View {
    View { cluster: target.cluster.clone(), context: target.context.clone(), ..View::default() }
}

/// Reads what is asked for. A part that cannot be read costs no other.
async fn read(target: &Target, client: Client, namespace: &str, what: What) -> View {
    let api = Api::new(client);
    let of = Installation { api: &api, namespace };
    let has = |part| what.has(part);
    let submariner = of.submariner().await.map_err(|error| told(&error));
    let all: Result<Vec<Gateway>, String> = of.list().await.map_err(|error| told(&error));
    let stored = list::<Endpoint>(&of, has(What::Connections)).await.unwrap_or_default();
    let agents = list::<RouteAgent>(&of, has(What::RouteAgents) || has(What::Versions)).await;
    let networks = if !has(What::Networks) {
        Ok(None)
    } else if let Ok(Some(submariner)) = &submariner {
        Ok(Some(Networks::of_submariner(submariner)))
    } else {
        own_cluster(&of, all.as_deref().unwrap_or_default()).await
    };
    let found =
        if has(What::Brokers) { of.brokers().await.map_err(|error| told(&error)) } else { Ok(Vec::new()) };
    let workloads =
        if has(What::Versions) { of.workloads().await.map_err(|error| told(&error)) } else { Ok(Vec::new()) };
    let versions = workloads.map(|workloads| {
        versions(&workloads, all.as_deref().unwrap_or_default(), agents.as_deref().unwrap_or_default())
    });
    let discovery = discovery((&api, namespace), &all, has(What::Services)).await;
    View {
        // Without the right to look nobody can say that there is nothing.
        is_installed: !matches!(submariner, Ok(None)) || !all.as_ref().is_ok_and(Vec::is_empty),
        has_gateways: all.as_ref().is_ok_and(|all| !all.is_empty()),
        brokers: Part::of(has(What::Brokers), found.map(|found| brokers(&found))),
        connections: Part::of(has(What::Connections), rows(&all, connections)),
        besides: what.besides(all.as_deref().unwrap_or_default(), &stored),
        endpoints: Part::of(has(What::Endpoints), rows(&all, endpoints)),
        gateways: Part::of(has(What::Gateways), rows(&all, gateways)),
        route_agents: Part::of(has(What::RouteAgents), rows(&agents, route_agents)),
        networks: Part::of(has(What::Networks), networks),
        versions: Part::of(has(What::Versions), versions),
        services: Part::of(
            has(What::Services),
            discovery.map(|found| found.as_ref().map(services).unwrap_or_default()),
        ),
        ..unread(target)
    }
}

async fn list<R: Resource>(of: &Installation<'_>, is_needed: bool) -> Result<Vec<R>, String> {
    if is_needed { of.list().await.map_err(|error| told(&error)) } else { Ok(Vec::new()) }
}

/// Reads the services, if they are asked for. Gateways that cannot be read say nothing of connections.
async fn discovery(
    (api, namespace): (&Api, &str),
    gateways: &Result<Vec<Gateway>, String>,
    is_asked: bool,
) -> Result<Option<Discovery>, String> {
    if !is_asked {
        return Ok(None);
    }
    let gateways = gateways.iter().flatten().map(Resource::to_object).collect();
    let objects =
        Lists::Kube(api).objects(gateways, namespace).await.map_err(|error| format!("{error:#}"))?;
    Ok(Some(Discovery::new(objects)))
}

/// The networks of the cluster's own Cluster object.
async fn own_cluster(of: &Installation<'_>, gateways: &[Gateway]) -> Result<Option<Networks>, String> {
    let clusters: Vec<Cluster> = of.list().await.map_err(|error| told(&error))?;
    let own = clusters.iter().find(|cluster| crate::source::is_own(cluster, gateways));
    Ok(own.map(|cluster| Networks::of_cluster(&cluster.spec)))
}

fn rows<T, R>(found: &Result<Vec<T>, String>, rows: impl FnOnce(&[T]) -> Vec<R>) -> Result<Vec<R>, String> {
    found.as_deref().map(rows).map_err(Clone::clone)
}

fn told(error: &anyhow::Error) -> String {
    format!("{error:#}")
}
