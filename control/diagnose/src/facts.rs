//! Reads what the API server of a cluster knows: objects of the cluster set, nodes, pods, policies.

mod cluster;
mod pods;
mod policies;

use std::fmt;
use std::net::IpAddr;
use std::time::Duration;

use futures::TryFutureExt;
use k8s_openapi::api::core::v1::{Node as KubeNode, Pod, Secret};
use kube::api::{ApiResource, DynamicObject, ListParams};
use kube::{Api, Client};
use serde::de::DeserializeOwned;
use tokio::time::timeout;
use trieste_control::api::{Endpoint, Gateway, GlobalIngressIp, RouteAgent};

pub use cluster::cluster;
pub(crate) use pods::{is_host_network, pod_facts};

/// Ours: how long an API server may take for one answer.
pub(crate) const ANSWER_TIMEOUT: Duration = Duration::from_secs(20);
/// Ours: so many objects of which there may be very many are read at once.
const PAGE: u32 = 500;
/// Calico's pools: of its own API, and of the definitions in which that keeps them.
pub(crate) const POOL_VERSIONS: [&str; 2] = ["projectcalico.org/v3", "crd.projectcalico.org/v1"];
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
    pub(crate) async fn pools(&self) -> Result<Vec<DynamicObject>, FactError> {
        // The definitions first: Calico's own API may be out of order, and nothing of it is needed to read.
        for api_version in POOL_VERSIONS.into_iter().rev() {
            if let Some(pools) = self.pools_in(api_version).await? {
                return Ok(pools);
            }
        }
        Ok(Vec::new())
    }

    /// Calico's address pools by one of their versions; `None` where that is not served.
    ///
    /// # Errors
    /// As [`Source::list`].
    pub(crate) async fn pools_in(&self, api_version: &str) -> Result<Option<Vec<DynamicObject>>, FactError> {
        let pools = Api::<DynamicObject>::all_with(self.client.clone(), &pool_resource(api_version));
        let what = format!("IPPools of {api_version}");
        Ok(match within(&what, pools.list(&ListParams::default())).await? {
            Found::There(list) => Some(list.items),
            Found::Missing => None,
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
    match timeout(ANSWER_TIMEOUT, asked).await {
        Ok(found) => found,
        Err(_) => Err(fail(format!("no answer within {} s", ANSWER_TIMEOUT.as_secs()))),
    }
}

/// Lists objects of which there may be very many, a page at a time; nothing where their kind is not known. `fields` chooses some.
pub(crate) async fn pages<T: Clone + DeserializeOwned + fmt::Debug>(
    what: &str,
    objects: &Api<T>,
    fields: &str,
    mut each: impl FnMut(Vec<T>),
) -> Result<(), FactError> {
    let mut params = ListParams::default().limit(PAGE);
    params.field_selector = (!fields.is_empty()).then(|| fields.to_owned());
    loop {
        let Found::There(list) = within(what, objects.list(&params)).await? else { return Ok(()) };
        params.continue_token = list.metadata.continue_.filter(|token| !token.is_empty());
        each(list.items);
        if params.continue_token.is_none() {
            return Ok(());
        }
    }
}

/// Returns how Calico's pools are served in one of their versions.
pub(crate) fn pool_resource(api_version: &str) -> ApiResource {
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    ApiResource {
        group: group.to_owned(),
        version: version.to_owned(),
        api_version: api_version.to_owned(),
        kind: "IPPool".to_owned(),
        plural: "ippools".to_owned(),
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
