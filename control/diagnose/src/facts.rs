//! Reads what the API server of a cluster knows: objects of the cluster set, nodes, pods, policies.

mod cluster;
mod pods;
mod policies;

use std::net::IpAddr;
use std::time::Duration;

use futures::TryFutureExt;
use k8s_openapi::api::core::v1::{Node as KubeNode, Pod, Secret};
use kube::api::{ApiResource, DynamicObject, ListParams};
use kube::{Api, Client};
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio::time::timeout;
use trieste_control::api::{Endpoint, Gateway, GlobalIngressIp, RouteAgent};

pub use cluster::cluster;
use pods::is_host_network;
pub(crate) use pods::pod_facts;

/// Ours: how long an API server may take for one answer.
const PATIENCE: Duration = Duration::from_secs(20);
/// The Secret with the preshared key.
const KEY_SECRET: &str = "submariner-ipsec-psk";

/// Why facts cannot be had.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FactError {
    /// The API server refuses or fails.
    #[error("{what} cannot be read: {why}")]
    Api {
        /// What was asked for.
        what: String,
        /// The API server's word.
        why: String,
    },
}

/// A cluster's API server, and where to look.
#[derive(Clone)]
pub struct Source {
    /// The client.
    pub client: Client,
    /// The namespace of gateways and their objects.
    pub namespace: String,
}

impl Source {
    /// Objects of a kind of the cluster set; `None` where the kind is not known. What cannot be read is left out.
    ///
    /// # Errors
    /// When the API server refuses or fails.
    pub async fn list<T: DeserializeOwned>(
        &self,
        kind: &str,
        plural: &str,
    ) -> Result<Option<Vec<T>>, FactError> {
        self.list_in(kind, plural, "v1", &self.namespace).await
    }

    pub(crate) async fn list_in<T: DeserializeOwned>(
        &self,
        kind: &str,
        plural: &str,
        version: &str,
        namespace: &str,
    ) -> Result<Option<Vec<T>>, FactError> {
        let resource = resource(kind, plural, version);
        let objects = Api::<DynamicObject>::namespaced_with(self.client.clone(), namespace, &resource);
        readable(&format!("{plural} of namespace {namespace}"), &objects).await
    }

    async fn list_all<T: DeserializeOwned>(
        &self,
        kind: &str,
        plural: &str,
        version: &str,
    ) -> Result<Option<Vec<T>>, FactError> {
        let objects = Api::<DynamicObject>::all_with(self.client.clone(), &resource(kind, plural, version));
        readable(plural, &objects).await
    }

    /// Returns the global addresses of exported services and their pods, of one namespace or of all.
    ///
    /// # Errors
    /// As [`Source::list`].
    pub(crate) async fn global_ingress_ips(
        &self,
        namespace: Option<&str>,
    ) -> Result<Vec<GlobalIngressIp>, FactError> {
        let found = match namespace {
            Some(namespace) => self.list_in("GlobalIngressIP", "globalingressips", "v1", namespace).await?,
            None => self.list_all("GlobalIngressIP", "globalingressips", "v1").await?,
        };
        Ok(found.unwrap_or_default())
    }

    /// Endpoints; `None` if the cluster is no member of a set.
    ///
    /// # Errors
    /// As [`Source::list`].
    pub async fn endpoints(&self) -> Result<Option<Vec<Endpoint>>, FactError> {
        self.list("Endpoint", "endpoints").await
    }

    /// Gateways.
    ///
    /// # Errors
    /// As [`Source::list`].
    pub async fn gateways(&self) -> Result<Vec<Gateway>, FactError> {
        Ok(self.list("Gateway", "gateways").await?.unwrap_or_default())
    }

    /// Route agents.
    ///
    /// # Errors
    /// As [`Source::list`].
    pub async fn route_agents(&self) -> Result<Vec<RouteAgent>, FactError> {
        Ok(self.list("RouteAgent", "routeagents").await?.unwrap_or_default())
    }

    /// Nodes.
    ///
    /// # Errors
    /// As [`Source::list`].
    pub async fn nodes(&self) -> Result<Vec<KubeNode>, FactError> {
        let nodes = Api::<KubeNode>::all(self.client.clone());
        Ok(match within("nodes", nodes.list(&ListParams::default())).await? {
            Found::There(list) => list.items,
            Found::Missing => Vec::new(),
        })
    }

    /// Pods of the own namespace with a label.
    ///
    /// # Errors
    /// As [`Source::list`].
    pub async fn pods(&self, labels: &str) -> Result<Vec<Pod>, FactError> {
        let pods = Api::<Pod>::namespaced(self.client.clone(), &self.namespace);
        Ok(match within("pods", pods.list(&ListParams::default().labels(labels))).await? {
            Found::There(list) => list.items,
            Found::Missing => Vec::new(),
        })
    }

    /// A pod of any namespace.
    ///
    /// # Errors
    /// As [`Source::list`].
    pub async fn pod(&self, namespace: &str, name: &str) -> Result<Option<Pod>, FactError> {
        let pods = Api::<Pod>::namespaced(self.client.clone(), namespace);
        Ok(match within(&format!("pod {namespace}/{name}"), pods.get(name)).await? {
            Found::There(pod) => Some(pod),
            Found::Missing => None,
        })
    }

    /// The pod that has an address, not counting those with their node's.
    ///
    /// # Errors
    /// As [`Source::list`].
    pub async fn pod_at(&self, address: IpAddr) -> Result<Option<Pod>, FactError> {
        let pods = Api::<Pod>::all(self.client.clone());
        let params = ListParams::default().fields(&format!("status.podIP={address}"));
        Ok(match within("pods", pods.list(&params)).await? {
            Found::There(list) => list.items.into_iter().find(|pod| !is_host_network(pod)),
            Found::Missing => None,
        })
    }

    /// Calico's address pools; none without Calico.
    ///
    /// # Errors
    /// As [`Source::list`].
    pub(crate) async fn pools(&self) -> Result<Vec<Value>, FactError> {
        let resource = ApiResource {
            group: "crd.projectcalico.org".to_owned(),
            version: "v1".to_owned(),
            api_version: "crd.projectcalico.org/v1".to_owned(),
            kind: "IPPool".to_owned(),
            plural: "ippools".to_owned(),
        };
        let pools = Api::<DynamicObject>::all_with(self.client.clone(), &resource);
        Ok(match within("Calico's pools", pools.list(&ListParams::default())).await? {
            Found::There(list) => {
                list.items.iter().filter_map(|pool| serde_json::to_value(pool).ok()).collect()
            }
            Found::Missing => Vec::new(),
        })
    }

    /// The preshared key, for comparison only.
    pub(crate) async fn preshared_key(&self) -> Option<Vec<u8>> {
        let secrets = Api::<Secret>::namespaced(self.client.clone(), &self.namespace);
        match within("the preshared key", secrets.get(KEY_SECRET)).await {
            Ok(Found::There(secret)) => secret.data?.remove("psk").map(|bytes| bytes.0),
            Ok(Found::Missing) | Err(_) => None,
        }
    }
}

/// Something that was asked for by name.
pub(crate) enum Found<T> {
    There(T),
    Missing,
}

/// Asks, with an end.
pub(crate) async fn within<T>(
    what: &str,
    asked: impl Future<Output = Result<T, kube::Error>>,
) -> Result<Found<T>, FactError> {
    let fail = |why: String| FactError::Api { what: what.to_owned(), why };
    let asked = asked.map_ok(Found::There).or_else(async |error| {
        let kube::Error::Api(status) = &error else { return Err(fail(error.to_string())) };
        if status.code == 404 {
            return Ok(Found::Missing);
        }
        Err(fail(format!("{} ({})", status.message, status.code)))
    });
    match timeout(PATIENCE, asked).await {
        Ok(found) => found,
        Err(_) => Err(fail(format!("no answer within {} s", PATIENCE.as_secs()))),
    }
}

fn resource(kind: &str, plural: &str, version: &str) -> ApiResource {
    ApiResource {
        group: "submariner.io".to_owned(),
        version: version.to_owned(),
        api_version: format!("submariner.io/{version}"),
        kind: kind.to_owned(),
        plural: plural.to_owned(),
    }
}

/// Lists objects and reads those that can be; `None` where their kind is not known.
async fn readable<T: DeserializeOwned>(
    what: &str,
    objects: &Api<DynamicObject>,
) -> Result<Option<Vec<T>>, FactError> {
    let Found::There(list) = within(what, objects.list(&ListParams::default())).await? else {
        return Ok(None);
    };
    let read = |object: DynamicObject| serde_json::from_value(serde_json::to_value(object).ok()?).ok();
    Ok(Some(list.items.into_iter().filter_map(read).collect()))
}
