//! Where the objects come from: a store, or the one gateway behind a socket.

use std::path::PathBuf;

use anyhow::{Context, bail};

use super::discovery::{Discovery, Lists};
use super::output::remark;
use super::show::SourceArgs;
use super::socket::{self, SocketArgs};
use super::store_errors::explain;
use trieste_control::admin::{DEFAULT_SOCKET, GATEWAY_PATH};
use trieste_control::api::{Cluster, Gateway, Object, Resource, RouteAgent};
use trieste_control::store::{AnyStore, Location, Store};

/// What there is to show.
#[derive(Debug, Default)]
pub(super) struct Found {
    /// Every Gateway object, by name.
    pub(super) gateways: Vec<Gateway>,
    /// This cluster's own Cluster object; a gateway's socket does not know it.
    pub(super) cluster: Option<Cluster>,
    /// Every RouteAgent object, by name; a gateway's socket does not know them.
    pub(super) route_agents: Vec<RouteAgent>,
    /// Service discovery; a gateway's socket does not know it.
    pub(super) services: Option<Discovery>,
}

/// What is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Wants {
    /// Gateways alone.
    Gateways,
    /// Gateways, and the own Cluster object and services if they can be read.
    AllPossible,
    /// The own Cluster object.
    Cluster,
    /// Route agents.
    RouteAgents,
    /// Services.
    Services,
}

/// Reads Gateway objects, and what else is wanted.
pub(super) async fn read(args: &SourceArgs, wants: Wants) -> anyhow::Result<Found> {
    if let Some(location) = &args.store {
        return of_store(location, &args.kube.namespace, wants).await;
    }
    if wants == Wants::RouteAgents {
        bail!(
            "a gateway does not know the route agents of other nodes: name a kubeconfig with --kubeconfig, or read a \
             store with --store"
        );
    }
    if wants == Wants::Services {
        bail!(
            "a gateway does not know the services of the set: name a kubeconfig with --kubeconfig, or read a store with \
             --store"
        );
    }
    let path = args.socket.path();
    if !args.socket.is_asked() && !path.exists() {
        bail!(
            "there is no kubeconfig, and no gateway's admin socket at {}. Name a kubeconfig with --kubeconfig PATH, read \
             a store with --store dir:PATH, or Start trieste-gateway on this node and pass its socket with --socket PATH",
            path.display()
        );
    }
    let body = socket::get(&path, GATEWAY_PATH).await?;
    let value = serde_json::from_slice(&body).context("the gateway's answer is not JSON")?;
    let object = Object::from_value(value).context("the gateway's answer is not a Gateway object")?;
    Ok(Found { gateways: vec![Gateway::from_object(&object)?], ..Found::default() })
}

async fn of_store(location: &Location, namespace: &str, wants: Wants) -> anyhow::Result<Found> {
    let store = AnyStore::attach(location);
    let gateways = list::<Gateway>(&store, location, namespace).await?;
    let clusters = match wants {
        Wants::Gateways | Wants::RouteAgents | Wants::Services => Vec::new(),
        Wants::Cluster => list::<Cluster>(&store, location, namespace).await?,
        Wants::AllPossible => list::<Cluster>(&store, location, namespace).await.unwrap_or_else(|error| {
            remark(&format!("warning: no networks are shown: {error:#}"));
            Vec::new()
        }),
    };
    let route_agents = match wants {
        Wants::RouteAgents => list::<RouteAgent>(&store, location, namespace).await?,
        Wants::Gateways | Wants::Cluster | Wants::AllPossible | Wants::Services => Vec::new(),
    };
    let services = services(&store, (location, namespace), &gateways, wants).await?;
    for problem in store.problems() {
        remark(&format!("warning: {problem}; ignored"));
    }
    if gateways.is_empty() {
        remark(&format!(
            "no Gateway objects in namespace {namespace} of {location}: is trieste-gateway running with this store, \
             and is that its namespace (--namespace)?"
        ));
    }
    let cluster = clusters.into_iter().find(|cluster| is_own(cluster, &gateways));
    Ok(Found { gateways, cluster, route_agents, services })
}

/// Reads the services, if they are wanted.
async fn services(
    store: &AnyStore,
    (location, namespace): (&Location, &str),
    gateways: &[Gateway],
    wants: Wants,
) -> anyhow::Result<Option<Discovery>> {
    if !matches!(wants, Wants::Services | Wants::AllPossible) {
        return Ok(None);
    }
    let gateways = gateways.iter().map(Resource::to_object).collect();
    match Lists::Store(store, location).objects(gateways, namespace).await {
        Ok(objects) => Ok(Some(Discovery::new(objects))),
        Err(error) if wants == Wants::AllPossible => {
            remark(&format!("warning: no services are shown: {error:#}"));
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

/// Whether a Cluster object is of the cluster that these gateways are of. Copies of other clusters' objects carry their
/// origin; fixed peers do not, but have another ID.
pub(super) fn is_own(cluster: &Cluster, gateways: &[Gateway]) -> bool {
    let own = gateways.first().map(|gateway| &gateway.status.local_endpoint.cluster_id);
    cluster.metadata.origin().is_none() && own.is_none_or(|own| *own == cluster.spec.cluster_id)
}

/// Every object of a kind that can be read; of the others is said why not.
async fn list<R: Resource>(store: &AnyStore, location: &Location, namespace: &str) -> anyhow::Result<Vec<R>> {
    let objects = store
        .list(R::KIND, namespace)
        .await
        .map_err(|error| explain(&error, R::KIND, location, namespace))?;
    let mut read = Vec::new();
    for object in &objects {
        match R::from_object(object) {
            Ok(resource) => read.push(resource),
            Err(error) => remark(&format!("warning: {}: {error}; ignored", object.key())),
        }
    }
    Ok(read)
}

impl SocketArgs {
    /// The socket to use.
    pub(super) fn path(&self) -> PathBuf {
        let from_environment = || std::env::var_os("TRIESTE_ADMIN_SOCKET").map(PathBuf::from);
        self.socket.clone().or_else(from_environment).unwrap_or_else(|| DEFAULT_SOCKET.into())
    }

    /// Whether somebody said which socket to use.
    pub(super) fn is_asked(&self) -> bool {
        self.socket.is_some() || std::env::var_os("TRIESTE_ADMIN_SOCKET").is_some()
    }
}
