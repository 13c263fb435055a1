//! Where the objects come from: a store, or the one gateway behind a socket.

use std::path::PathBuf;

use anyhow::{Context, anyhow, bail};

use super::output::remark;
use super::socket;
use super::{SocketArgs, SourceArgs};
use trieste_control::admin::{DEFAULT_SOCKET, GATEWAY_PATH};
use trieste_control::api::{Cluster, Gateway, Kind, Object, Resource};
use trieste_control::store::{AnyStore, Location, Store, StoreError};

/// What there is to show.
#[derive(Debug, Default)]
pub(super) struct Found {
    /// Every Gateway object, by name.
    pub(super) gateways: Vec<Gateway>,
    /// This cluster's own Cluster object; a gateway's socket does not know it.
    pub(super) cluster: Option<Cluster>,
}

/// Whether the Cluster object is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum WantsCluster {
    /// It is not.
    No,
    /// It is shown if it can be read.
    IfPossible,
    /// Nothing else is asked for.
    Yes,
}

/// Reads Gateway objects, and this cluster's own Cluster.
pub(super) async fn read(args: &SourceArgs, wants: WantsCluster) -> anyhow::Result<Found> {
    if let Some(location) = &args.store {
        return of_store(location, &args.namespace, wants).await;
    }
    let path = args.socket.path();
    if args.socket.is_default() && !path.exists() {
        bail!(
            "there is no gateway's admin socket at {}. Start trieste-gateway on this node, pass its socket with \
             --socket PATH, or read a store with --store dir:PATH or --store kube:KUBECONFIG",
            path.display()
        );
    }
    let body = socket::get(&path, GATEWAY_PATH).await?;
    let value = serde_json::from_slice(&body).context("the gateway's answer is not JSON")?;
    let object = Object::from_value(value).context("the gateway's answer is not a Gateway object")?;
    Ok(Found { gateways: vec![Gateway::from_object(&object)?], cluster: None })
}

async fn of_store(location: &Location, namespace: &str, wants: WantsCluster) -> anyhow::Result<Found> {
    let store = AnyStore::attach(location);
    let gateways = list::<Gateway>(&store, location, namespace).await?;
    let clusters = match wants {
        WantsCluster::No => Vec::new(),
        WantsCluster::Yes => list::<Cluster>(&store, location, namespace).await?,
        WantsCluster::IfPossible => {
            list::<Cluster>(&store, location, namespace).await.unwrap_or_else(|error| {
                remark(&format!("warning: no networks are shown: {error:#}"));
                Vec::new()
            })
        }
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
    // Copies of other clusters' objects carry their origin; fixed peers do not, but have another ID.
    let own = gateways.first().map(|gateway| gateway.status.local_endpoint.cluster_id.clone());
    let is_own = |cluster: &Cluster| own.as_ref().is_none_or(|own| *own == cluster.spec.cluster_id);
    let cluster = clusters.into_iter().find(|cluster| cluster.metadata.origin().is_none() && is_own(cluster));
    Ok(Found { gateways, cluster })
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

    /// Whether nobody said which socket to use.
    fn is_default(&self) -> bool {
        self.socket.is_none() && std::env::var_os("TRIESTE_ADMIN_SOCKET").is_none()
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
        let error = StoreError::Forbidden { doing: "list gateways at https://k:6443".to_owned(), source };
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
            doing: "list gateways".to_owned(),
            source: cause(std::io::ErrorKind::ConnectionRefused, text),
        };
        assert!(said("kube:", &away("refused")).contains("refused; is the API server up"));
        assert!(said("dir:/x", &away("gone")).contains("gone; does the path exist"));
    }
}
