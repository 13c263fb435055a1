//! Where the objects come from: a store, or the one gateway behind a socket.

use std::path::PathBuf;

use anyhow::{Context, anyhow, bail};

use super::output::remark;
use super::show::SourceArgs;
use super::socket::{self, SocketArgs};
use trieste_control::admin::{DEFAULT_SOCKET, GATEWAY_PATH};
use trieste_control::api::{Cluster, Gateway, Kind, Object, Resource, RouteAgent};
use trieste_control::store::{AnyStore, Location, Store, StoreError};

/// What there is to show.
#[derive(Debug, Default)]
pub(super) struct Found {
    /// Every Gateway object, by name.
    pub(super) gateways: Vec<Gateway>,
    /// This cluster's own Cluster object; a gateway's socket does not know it.
    pub(super) cluster: Option<Cluster>,
    /// Every RouteAgent object, by name; a gateway's socket does not know them.
    pub(super) route_agents: Vec<RouteAgent>,
}

/// What is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Wants {
    /// Gateways alone.
    Gateways,
    /// Gateways, and the own Cluster object if it can be read.
    ClusterIfPossible,
    /// The own Cluster object.
    Cluster,
    /// Route agents.
    RouteAgents,
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
        Wants::Gateways | Wants::RouteAgents => Vec::new(),
        Wants::Cluster => list::<Cluster>(&store, location, namespace).await?,
        Wants::ClusterIfPossible => {
            list::<Cluster>(&store, location, namespace).await.unwrap_or_else(|error| {
                remark(&format!("warning: no networks are shown: {error:#}"));
                Vec::new()
            })
        }
    };
    let route_agents = match wants {
        Wants::RouteAgents => list::<RouteAgent>(&store, location, namespace).await?,
        Wants::Gateways | Wants::Cluster | Wants::ClusterIfPossible => Vec::new(),
    };
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
    Ok(Found { gateways, cluster, route_agents })
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

/// Why a store does not answer, and what to do. The error's own text names its cause already.
fn explain(error: &StoreError, kind: Kind, location: &Location, namespace: &str) -> anyhow::Error {
    let what_to_do = match (location, error) {
        (Location::Dir(_), _) => "does the path exist, and may you read it?".to_owned(),
        (_, StoreError::Forbidden { .. }) => format!(
            "this command needs to list {} of {} in namespace {namespace}: ask for a role that allows it, or take \
             another context with --store kube:KUBECONFIG#CONTEXT",
            kind.plural(),
            kind.api_version(),
        ),
        _ => "is the API server up, and are kubeconfig, context (kube:KUBECONFIG#CONTEXT) and namespace \
              (--namespace) the right ones?"
            .to_owned(),
    };
    anyhow!("{location}: {error}; {what_to_do}")
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

#[cfg(test)]
mod tests {
    use super::*;

    fn said(location: &str, error: &StoreError) -> String {
        let location: Location = location.parse().unwrap();
        explain(error, Kind::Gateway, &location, "submariner-operator").to_string()
    }

    fn cause(kind: std::io::ErrorKind, text: &str) -> std::io::Error {
        std::io::Error::new(kind, text)
    }

    #[test]
    fn who_may_not_is_told_which_right_is_missing_and_the_cause_once() {
        let source = cause(std::io::ErrorKind::PermissionDenied, "it does not allow this: no role");
        let error = StoreError::Forbidden { operation: "list gateways at https://k:6443".to_owned(), source };
        assert_eq!(
            said("kube:/k#c", &error),
            "kube:/k#c: may not list gateways at https://k:6443: it does not allow this: no role; this command needs \
             to list gateways of submariner.io/v1 in namespace submariner-operator: ask for a role that allows it, or \
             take another context with --store kube:KUBECONFIG#CONTEXT"
        );
    }

    #[test]
    fn a_server_and_a_directory_that_are_away_are_told_apart() {
        let away = |text| StoreError::Unavailable {
            operation: "list gateways".to_owned(),
            source: cause(std::io::ErrorKind::ConnectionRefused, text),
        };
        assert!(said("kube:", &away("refused")).contains("refused; is the API server up"));
        assert!(said("dir:/x", &away("gone")).contains("gone; does the path exist"));
    }
}
