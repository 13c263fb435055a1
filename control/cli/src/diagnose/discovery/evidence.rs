//! What is known before anybody is asked: the objects, and what Kubernetes runs.

use std::net::IpAddr;

use serde_json::Value;

use super::forwards::{Forwards, forwards};
use crate::api::{Api, text, texts};
use crate::discovery::{Discovery, Lists, Name};
use crate::installation::workload_of;
use trieste_control::api::Kind;
use trieste_deploy::objects::{self, names};

/// The agent's Deployment and container.
pub(super) const AGENT: &str = names::DISCOVERY_AGENT;
/// The DNS server's Deployment and Service.
pub(super) const DNS: &str = names::DISCOVERY_DNS;
/// The zone of the Multi-Cluster Services API.
pub(super) const ZONE: &str = objects::SET_DOMAIN;

/// See the module.
pub(super) struct Evidence {
    pub(super) discovery: Discovery,
    /// What Kubernetes runs; `None` with a store alone.
    pub(super) kube: Option<KubeFacts>,
}

/// What Kubernetes runs. What could not be read says why.
pub(super) struct KubeFacts {
    /// The namespace of agent and DNS server.
    pub(super) namespace: String,
    pub(super) agent: Result<Option<Deployment>, String>,
    pub(super) dns: Result<Option<Deployment>, String>,
    /// The cluster IPs of the DNS server's Service; `None` without one.
    pub(super) service: Result<Option<Vec<IpAddr>>, String>,
    /// Where the cluster's DNS forwards names to; `None` if it is of no kind that is known.
    pub(super) forwards: Result<Option<Forwards>, String>,
    /// The zones that the set has.
    pub(super) zones: Vec<String>,
    /// The names of the namespaces.
    pub(super) namespaces: Vec<String>,
    /// A running pod of the agent.
    pub(super) pod: Option<String>,
}

/// How many pods a Deployment has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Deployment {
    pub(super) ready: u64,
    pub(super) wanted: u64,
}

impl Evidence {
    /// Reads a cluster.
    ///
    /// # Errors
    /// When the objects of service discovery cannot be listed.
    pub(super) async fn of_cluster(api: &Api, namespace: &str, only: Option<&Name>) -> anyhow::Result<Self> {
        let lists = Lists::Kube(api);
        let gateways = lists.list(Kind::Gateway, namespace, None).await?;
        let mut discovery = Discovery::new(lists.objects(gateways, namespace).await?);
        discovery.read_own(&lists, only).await?;
        Ok(Self { discovery, kube: Some(KubeFacts::read(api, namespace).await) })
    }
}

impl KubeFacts {
    async fn read(api: &Api, namespace: &str) -> Self {
        let apps = format!("/apis/apps/v1/namespaces/{namespace}/deployments");
        let core = format!("/api/v1/namespaces/{namespace}");
        let get = async |path: String| api.get(&path).await.map_err(|error| format!("{error:#}"));
        let submariners = format!("/apis/submariner.io/v1alpha1/namespaces/{namespace}/submariners");
        let submariners = api.items(&submariners).await.unwrap_or_default();
        let agent = get(format!("{apps}/{AGENT}")).await.map(|found| found.as_ref().map(Deployment::of));
        let dns = get(format!("{apps}/{DNS}")).await.map(|found| found.as_ref().map(Deployment::of));
        let service =
            get(format!("{core}/services/{DNS}")).await.map(|found| found.as_ref().map(cluster_ips));
        let namespaces = api.items("/api/v1/namespaces").await.unwrap_or_default();
        let pods = api.items(&format!("{core}/pods")).await.unwrap_or_default();
        Self {
            namespace: namespace.to_owned(),
            agent,
            dns,
            service,
            forwards: read_forwards(api, &submariners).await.map_err(|error| format!("{error:#}")),
            zones: zones(&submariners),
            namespaces: namespaces.iter().map(|object| text(object, "/metadata/name").to_owned()).collect(),
            pod: pods
                .iter()
                .find(|pod| is_running_agent(pod))
                .map(|pod| text(pod, "/metadata/name").to_owned()),
        }
    }
}

impl Deployment {
    fn of(object: &Value) -> Self {
        let number = |path: &str, default| object.pointer(path).and_then(Value::as_u64).unwrap_or(default);
        Self { ready: number("/status/readyReplicas", 0), wanted: number("/spec/replicas", 1) }
    }
}

fn is_running_agent(pod: &Value) -> bool {
    workload_of(pod) == AGENT && text(pod, "/status/phase") == "Running"
}

fn cluster_ips(service: &Value) -> Vec<IpAddr> {
    let all = texts(service, "/spec/clusterIPs");
    let one = [text(service, "/spec/clusterIP").to_owned()];
    let mut found: Vec<IpAddr> = all.iter().chain(&one).filter_map(|text| text.parse().ok()).collect();
    found.sort_unstable();
    found.dedup();
    found
}

/// Returns the zone of the API, and those of the set.
fn zones(submariners: &[Value]) -> Vec<String> {
    let custom = submariners.iter().flat_map(|object| texts(object, "/spec/customDomains"));
    objects::zones(custom)
}

async fn read_forwards(api: &Api, submariners: &[Value]) -> anyhow::Result<Option<Forwards>> {
    let mut maps = api.items("/api/v1/namespaces/kube-system/configmaps").await?;
    maps.extend(api.items("/api/v1/namespaces/openshift-dns/configmaps").await.unwrap_or_default());
    for submariner in submariners {
        let name = text(submariner, "/spec/coreDNSCustomConfig/configMapName");
        let namespace = text(submariner, "/spec/coreDNSCustomConfig/namespace");
        if !name.is_empty() && !namespace.is_empty() {
            let mut map = api.get(&format!("/api/v1/namespaces/{namespace}/configmaps/{name}")).await?;
            if let Some(map) = &mut map {
                // Whatever it is called, the cluster's DNS reads it.
                map["metadata"]["name"] = Value::from("coredns-custom");
            }
            maps.extend(map);
        }
    }
    let openshift = api.get("/apis/operator.openshift.io/v1/dnses/default").await.unwrap_or_default();
    Ok(forwards(&maps, openshift.as_ref()))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_deployment_without_a_number_wants_one_pod() {
        let of = |object: Value| Deployment::of(&object);
        assert_eq!(of(json!({})), Deployment { ready: 0, wanted: 1 });
        assert_eq!(
            of(json!({"spec": {"replicas": 2}, "status": {"readyReplicas": 1}})),
            Deployment { ready: 1, wanted: 2 }
        );
    }

    #[test]
    fn a_service_has_addresses_of_one_family_or_both() {
        let service = json!({"spec": {"clusterIP": "10.96.0.5", "clusterIPs": ["10.96.0.5", "fd00::5"]}});
        let found: Vec<String> = cluster_ips(&service).iter().map(ToString::to_string).collect();
        assert_eq!(found, ["10.96.0.5", "fd00::5"]);
        assert!(cluster_ips(&json!({"spec": {"clusterIP": "None"}})).is_empty());
    }

    #[test]
    fn zones_are_the_apis_and_the_sets() {
        let found = zones(&[json!({"spec": {"customDomains": ["Set.example."]}})]);
        assert_eq!(found, ["clusterset.local", "set.example"]);
        assert_eq!(zones(&[]), ["clusterset.local"]);
    }
}
