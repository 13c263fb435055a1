//! Clusters with an agent each, and a broker, all in memory and in a time that tests let pass.

use std::time::Duration;

use jiff::Timestamp;
use serde_json::{Value, json};
use tokio::time::sleep;
use trieste_control::api::{Kind, Object, annotation, label};
use trieste_control::runner::Fence;
use trieste_discovery_agent::{AgentConfig, AgentHandle, spawn};

use crate::api_store::ApiStore;

pub(crate) const BROKER: &str = "submariner-k8s-broker";
pub(crate) const OPERATOR: &str = "submariner-operator";

/// A cluster.
pub(crate) struct Cluster {
    pub(crate) store: ApiStore,
    pub(crate) broker: ApiStore,
    pub(crate) config: AgentConfig,
    pub(crate) agent: Option<AgentHandle>,
}

impl Cluster {
    /// Returns a cluster with the namespace `shop`, whose agent runs.
    pub(crate) fn start(id: &str, broker: &ApiStore) -> Self {
        let mut cluster = Self::new(id, broker);
        cluster.run();
        cluster
    }

    /// Returns a cluster with the namespace `shop`, whose agent does not run yet.
    pub(crate) fn new(id: &str, broker: &ApiStore) -> Self {
        let cluster = Self {
            store: ApiStore::default(),
            broker: broker.clone(),
            config: AgentConfig::new(id),
            agent: None,
        };
        for namespace in ["shop", OPERATOR] {
            cluster.put(json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}}));
        }
        cluster
    }

    pub(crate) fn run(&mut self) {
        self.agent = None;
        let (store, broker) = (self.store.clone(), self.broker.clone());
        self.agent = Some(spawn(store, broker, self.config.clone(), Fence::Open));
    }

    pub(crate) fn put(&self, value: Value) {
        self.store.0.put(Object::from_value(value).unwrap());
    }

    /// Somebody else changes an object.
    pub(crate) fn edit(&self, kind: Kind, namespace: &str, name: &str, edit: impl FnOnce(&mut Object)) {
        let mut object = self.store.find(kind, namespace, name).expect("what is edited exists");
        edit(&mut object);
        self.store.0.put(object);
    }

    /// Exports the service `shop/<name>` since this second.
    pub(crate) fn export(&self, name: &str, since: i64) {
        let time = Timestamp::from_second(since).unwrap();
        self.put(json!({"apiVersion": "multicluster.x-k8s.io/v1alpha1", "kind": "ServiceExport",
            "metadata": {"name": name, "namespace": "shop", "creationTimestamp": time.to_string()}}));
    }

    pub(crate) fn unexport(&self, name: &str) {
        self.store.0.remove(Kind::ServiceExport, name);
    }

    /// Puts a service with a cluster IP, and one slice with a ready endpoint.
    pub(crate) fn service(&self, name: &str, ip: &str) {
        self.put(service(
            name,
            &json!({"type": "ClusterIP", "clusterIP": ip, "clusterIPs": [ip],
            "sessionAffinity": "None", "ports": [{"name": "http", "protocol": "TCP", "port": 80}]}),
        ));
        self.put(slice(name, &format!("{name}-abcde"), "IPv4", &json!([endpoint("10.1.0.1", true)])));
    }

    /// Returns the condition of an export, as status, reason and message.
    pub(crate) fn condition(&self, export: &str, kind: &str) -> Option<(String, String, String)> {
        let export = self.store.find(Kind::ServiceExport, "shop", export)?;
        let conditions = export.body.get("status")?.get("conditions")?.as_array()?.clone();
        let condition = conditions.into_iter().find(|condition| condition["type"] == kind)?;
        let text = |field: &str| condition[field].as_str().unwrap_or_default().to_owned();
        assert!(!text("reason").is_empty() && text("lastTransitionTime").ends_with('Z'), "{condition}");
        Some((text("status"), text("reason"), text("message")))
    }

    /// Returns status and reason of a condition, as one text.
    pub(crate) fn said(&self, export: &str, kind: &str) -> String {
        self.condition(export, kind)
            .map_or_else(|| "none".to_owned(), |(status, reason, _)| format!("{status}/{reason}"))
    }

    /// Returns the slices of service discovery in the namespace `shop`, of one cluster.
    pub(crate) fn slices_of(&self, cluster: &str) -> Vec<Object> {
        slices_of(&self.store, "shop", cluster)
    }

    /// Returns the import `shop/<name>`.
    pub(crate) fn import(&self, name: &str) -> Option<Object> {
        self.store.find(Kind::ServiceImport, "shop", name)
    }
}

/// Returns the slices of service discovery in a namespace, of one cluster.
pub(crate) fn slices_of(store: &ApiStore, namespace: &str, cluster: &str) -> Vec<Object> {
    let mut slices = store.all(Kind::EndpointSlice, namespace);
    slices.retain(|slice| slice.metadata.labels.get(label::SOURCE_CLUSTER).is_some_and(|of| of == cluster));
    slices
}

/// Returns a service in the namespace `shop`.
pub(crate) fn service(name: &str, spec: &Value) -> Value {
    json!({"apiVersion": "v1", "kind": "Service", "spec": spec,
        "metadata": {"name": name, "namespace": "shop", "labels": {"app": name}}})
}

/// Returns a slice of a service in the namespace `shop`, as Kubernetes makes it.
pub(crate) fn slice(service: &str, name: &str, family: &str, endpoints: &Value) -> Value {
    json!({"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": family, "endpoints": endpoints,
        "ports": [{"name": "http", "protocol": "TCP", "port": 8080}],
        "metadata": {"name": name, "namespace": "shop", "labels": {"kubernetes.io/service-name": service,
            "endpointslice.kubernetes.io/managed-by": "endpointslice-controller.k8s.io"}}})
}

pub(crate) fn endpoint(address: &str, is_ready: bool) -> Value {
    json!({"addresses": [address], "conditions": {"ready": is_ready}})
}

/// Returns the addresses of a slice, each with whether it is ready.
pub(crate) fn addresses(slice: &Object) -> Vec<(String, bool)> {
    let endpoints = slice.body["endpoints"].as_array().cloned().unwrap_or_default();
    let read = |endpoint: &Value| {
        let address = endpoint["addresses"][0].as_str().unwrap_or_default().to_owned();
        (address, endpoint["conditions"]["ready"].as_bool().unwrap_or(true))
    };
    endpoints.iter().map(read).collect()
}

/// Returns the clusters of an import.
pub(crate) fn clusters(import: &Object) -> Vec<String> {
    let clusters = import.body.get("status").and_then(|status| status["clusters"].as_array().cloned());
    clusters.unwrap_or_default().iter().map(|entry| entry["cluster"].as_str().unwrap().to_owned()).collect()
}

/// Returns name and number of each port of an import or a slice's list.
pub(crate) fn ports(list: &Value) -> Vec<(String, u64)> {
    let list = list.as_array().cloned().unwrap_or_default();
    let read =
        |port: &Value| (port["name"].as_str().unwrap_or_default().to_owned(), port["port"].as_u64().unwrap());
    list.iter().map(read).collect()
}

/// Returns the broker's import of the service `shop/<name>`.
pub(crate) fn aggregate(broker: &ApiStore, name: &str) -> Option<Object> {
    broker.find(Kind::ServiceImport, BROKER, &format!("{name}-shop"))
}

/// Returns since when a cluster exports the service of an import, by its annotation.
pub(crate) fn since<'a>(import: &'a Object, cluster: &str) -> Option<&'a str> {
    let key = format!("{}{cluster}", annotation::TIMESTAMP_PREFIX);
    import.metadata.annotations.get(&key).map(String::as_str)
}

/// Lets everything settle.
pub(crate) async fn settle() {
    sleep(Duration::from_secs(5)).await;
}
