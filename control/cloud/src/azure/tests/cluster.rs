//! An API server with nodes and sets of machines.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::{Arc, Mutex};

use http::{Method, Request, Response};
use kube::client::Body;
use serde_json::{Value, json};
use trieste_deploy::Server;

const SETS: &str = "/apis/machine.openshift.io/v1beta1/namespaces/openshift-machine-api/machinesets";

/// Its objects, by path.
#[derive(Debug, Clone, Default)]
pub(super) struct Cluster {
    pub(super) objects: Arc<Mutex<BTreeMap<String, Value>>>,
    pub(super) is_openshift: bool,
}

/// A node.
pub(super) fn node(name: &str, provider_id: &str, is_gateway: bool) -> Value {
    let mut node = json!({
        "metadata": {"name": name, "labels": {
            "node-role.kubernetes.io/worker": "", "topology.kubernetes.io/zone": "westeurope-1",
            "topology.kubernetes.io/region": "westeurope",
        }},
        "spec": {"providerID": provider_id},
        "status": {"conditions": [{"type": "Ready", "status": "True"}]},
    });
    if is_gateway {
        node["metadata"]["labels"]["submariner.io/gateway"] = json!("true");
    }
    node
}

/// A set of worker machines of OpenShift's.
pub(super) fn workers() -> Value {
    json!({
        "metadata": {"name": "east-worker-westeurope1", "namespace": "openshift-machine-api",
            "labels": {"machine.openshift.io/cluster-api-cluster": "east"}},
        "spec": {"replicas": 2, "template": {
            "metadata": {"labels": {"machine.openshift.io/cluster-api-machine-role": "worker"}},
            "spec": {"providerSpec": {"value": {
                "apiVersion": "machine.openshift.io/v1beta1", "kind": "AzureMachineProviderSpec",
                "image": {"resourceID": "/resourceGroups/east-rg/providers/Microsoft.Compute/galleries/g/images/i"},
                "location": "westeurope", "managedIdentity": "east-identity", "networkResourceGroup": "east-rg",
                "resourceGroup": "east-rg", "subnet": "east-worker-subnet", "vnet": "east-vnet", "zone": "1",
                "vmSize": "Standard_D4s_v3", "publicIP": false, "publicLoadBalancer": "east",
                "osDisk": {"diskSizeGB": 128}, "userDataSecret": {"name": "worker-user-data"},
                "credentialsSecret": {"name": "azure-cloud-credentials", "namespace": "openshift-machine-api"},
            }}},
        }},
    })
}

/// A set that upstream's tool has made for gateways in zone 2.
pub(super) fn upstreams_set() -> Value {
    let mut set = workers();
    set["metadata"]["name"] = json!("subgw-westeur-0a1b2c");
    set["spec"]["replicas"] = json!(1);
    set["spec"]["template"]["spec"]["metadata"] = json!({"labels": {"submariner.io/gateway": "true"}});
    set["spec"]["template"]["spec"]["providerSpec"]["value"]["zone"] = json!("2");
    set["spec"]["template"]["spec"]["providerSpec"]["value"]["securityGroup"] =
        json!("east-submariner-external-sg");
    set
}

impl Cluster {
    pub(super) fn put_node(&self, node: Value) {
        let path = format!("/api/v1/nodes/{}", node["metadata"]["name"].as_str().unwrap());
        self.objects.lock().unwrap().insert(path, node);
    }

    pub(super) fn put_set(&self, set: Value) {
        let path = format!("{SETS}/{}", set["metadata"]["name"].as_str().unwrap());
        self.objects.lock().unwrap().insert(path, set);
    }

    /// The sets' names.
    pub(super) fn sets(&self) -> Vec<String> {
        let objects = self.objects.lock().unwrap();
        objects.keys().filter_map(|path| path.strip_prefix(SETS)).map(|name| name[1..].to_owned()).collect()
    }

    pub(super) fn set(&self, name: &str) -> Value {
        self.objects.lock().unwrap()[&format!("{SETS}/{name}")].clone()
    }

    pub(super) fn server(&self) -> Server {
        let cluster = self.clone();
        let service = tower::service_fn(move |request: Request<Body>| {
            let cluster = cluster.clone();
            async move { Ok::<_, Infallible>(cluster.answer(request).await) }
        });
        Server::new(kube::Client::new(service, "default"), "cluster \"east\"")
    }

    async fn answer(&self, request: Request<Body>) -> Response<Body> {
        let (head, body) = request.into_parts();
        let body = body.collect_bytes().await.unwrap();
        let sent: Value = serde_json::from_slice(&body).unwrap_or_default();
        let path = head.uri.path();
        let mut objects = self.objects.lock().unwrap();
        let is_list = path == "/api/v1/nodes" || path == SETS && self.is_openshift;
        match head.method {
            Method::GET if is_list => {
                let of = format!("{path}/");
                let items: Vec<&Value> = objects
                    .range(of.clone()..)
                    .take_while(|(path, _)| path.starts_with(&of))
                    .map(|(_, object)| object)
                    .collect();
                answer(200, &json!({"items": items}))
            }
            Method::GET => objects.get(path).map_or_else(not_found, |object| answer(200, object)),
            Method::DELETE => objects.remove(path).map_or_else(not_found, |object| answer(200, &object)),
            Method::PATCH if path.starts_with(SETS) => {
                objects.insert(path.to_owned(), sent.clone());
                answer(200, &sent)
            }
            Method::PATCH => {
                let Some(object) = objects.get_mut(path) else { return not_found() };
                merge(object, &sent);
                answer(200, object)
            }
            _ => answer(405, &json!({})),
        }
    }
}

fn not_found() -> Response<Body> {
    answer(
        404,
        &json!({"kind": "Status", "status": "Failure", "code": 404, "reason": "NotFound", "message": "not found"}),
    )
}

fn answer(status: u16, body: &Value) -> Response<Body> {
    Response::builder().status(status).body(Body::from(serde_json::to_vec(body).unwrap())).unwrap()
}

fn merge(object: &mut Value, change: &Value) {
    let Value::Object(fields) = change else {
        *object = change.clone();
        return;
    };
    if !object.is_object() {
        *object = json!({});
    }
    for (field, value) in fields {
        if value.is_null() {
            object.as_object_mut().unwrap().remove(field);
        } else {
            merge(&mut object[field], value);
        }
    }
    // What is empty and what is not there are the same to Kubernetes.
    object.as_object_mut().unwrap().retain(|_, value| !value.is_null() && *value != json!({}));
}
