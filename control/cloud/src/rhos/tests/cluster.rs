//! The cluster on the played cloud: its API, and machines that come and go with their sets.

use std::collections::BTreeMap;
use std::convert::Infallible;

use http::{Method, Request, Response};
use kube::client::Body;
use serde_json::{Value, json};
use trieste_deploy::Server;

use super::played::{DEFAULT, Played, REGION, World};

const NODES: &str = "/api/v1/nodes";
const SETS: &str = "/apis/machine.openshift.io/v1beta1/namespaces/openshift-machine-api/machinesets";

impl Played {
    /// Access to the cluster's API.
    pub(super) fn server(&self) -> Server {
        let played = self.clone();
        let service = tower::service_fn(move |request: Request<Body>| {
            let played = played.clone();
            async move {
                let (head, body) = request.into_parts();
                let sent = serde_json::from_slice(&body.collect_bytes().await.unwrap()).unwrap_or_default();
                let answer = played.world().api(&head.method, head.uri.path(), &sent);
                let (code, body) = answer.map_or_else(|| (404, status(404)), |body| (200, body));
                let answer = Response::builder().status(code).header("content-type", "application/json");
                Ok::<_, Infallible>(answer.body(Body::from(body.to_string().into_bytes())).unwrap())
            }
        });
        Server::new(kube::Client::new(service, "default"), "cluster \"east\"")
    }
}

impl World {
    fn api(&mut self, method: &Method, path: &str, sent: &Value) -> Option<Value> {
        if method != Method::GET {
            self.writes += 1;
        }
        if let Some(name) = path.strip_prefix(NODES) {
            return match (method, name.strip_prefix('/')) {
                (&Method::GET, None) => Some(list(self.nodes.values())),
                (&Method::PATCH, Some(name)) => {
                    let node = self.nodes.get_mut(name)?;
                    for part in ["labels", "annotations"] {
                        merge(&mut node["metadata"][part], &sent["metadata"][part]);
                    }
                    Some(node.clone())
                }
                other => panic!("{other:?} is not asked of nodes"),
            };
        }
        let Some(name) = path.strip_prefix(SETS) else {
            assert_eq!(method, Method::GET, "{path} is not changed");
            return None;
        };
        match (method, name.strip_prefix('/')) {
            (&Method::GET, None) => self.sets.as_ref().map(|sets| list(sets.values())),
            (&Method::GET, Some(name)) => self.sets.as_ref()?.get(name).cloned(),
            (&Method::PATCH, Some(name)) => {
                assert_eq!(sent["metadata"]["name"], name);
                // A set that is changed keeps its machines.
                if self.sets.as_mut()?.insert(name.to_owned(), sent.clone()).is_none() {
                    self.make_machine(name, sent);
                }
                Some(sent.clone())
            }
            (&Method::DELETE, Some(name)) => {
                let set = self.sets.as_mut()?.remove(name)?;
                self.nodes.retain(|node, _| !node.starts_with(&format!("{name}-")));
                self.ports.retain(|port, _| !port.starts_with(&format!("port-{name}-")));
                self.lingering = 2;
                Some(set)
            }
            other => panic!("{other:?} is not asked of sets of machines"),
        }
    }

    fn make_machine(&mut self, set: &str, object: &Value) {
        let machine = &object["spec"]["template"]["spec"];
        let provider = &machine["providerSpec"]["value"];
        assert!(provider["image"].is_string() && provider["flavor"].is_string(), "{provider}");
        let named = provider["securityGroups"].as_array().unwrap().iter().map(|group| group["name"].clone());
        let id = |name: Value| {
            let group = self.groups.values().find(|group| group["name"] == name);
            group.unwrap_or_else(|| panic!("a machine is made before its group {name}"))["id"]
                .as_str()
                .unwrap()
                .to_owned()
        };
        let groups: Vec<String> = named.map(id).collect();
        let name = format!("{set}-x7k2p");
        let zone = provider["availabilityZone"].as_str().unwrap_or("nova");
        self.add_node(&name, zone, &["192.168.0.77"], &[]);
        self.ports.get_mut(&format!("port-{name}")).unwrap()["security_groups"] = json!(groups);
        self.nodes.get_mut(&name).unwrap()["metadata"]["labels"]["submariner.io/gateway"] = json!("true");
    }

    /// Makes a server with one port that is a node.
    pub(super) fn add_node(&mut self, name: &str, zone: &str, addresses: &[&str], groups: &[&str]) {
        let labels = json!({"topology.kubernetes.io/zone": zone, "topology.kubernetes.io/region": REGION});
        let provider_id = match self.nodes.len() % 2 {
            0 => format!("openstack:///server-{name}"),
            _ => format!("openstack://{REGION}/server-{name}"),
        };
        let node = json!({
            "metadata": {"name": name, "labels": labels, "annotations": {}},
            "spec": {"providerID": provider_id},
            "status": {"conditions": [{"type": "Ready", "status": "True"}]},
        });
        self.nodes.insert(name.to_owned(), node);
        let all: Vec<&str> = [DEFAULT].iter().chain(groups).copied().collect();
        let addresses: Vec<Value> =
            addresses.iter().map(|address| json!({"ip_address": address, "subnet_id": "s"})).collect();
        let port = json!({
            "id": format!("port-{name}"), "device_id": format!("server-{name}"), "device_owner": "compute:nova",
            "security_groups": all, "fixed_ips": addresses, "port_security_enabled": true,
            "allowed_address_pairs": [{"ip_address": "192.168.0.5"}], "revision_number": 3,
        });
        self.ports.insert(format!("port-{name}"), port);
    }
}

fn list<'o>(objects: impl Iterator<Item = &'o Value>) -> Value {
    json!({"metadata": {}, "items": objects.collect::<Vec<_>>()})
}

fn status(code: u16) -> Value {
    json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "message": "not found", "reason": "NotFound", "code": code})
}

fn merge(into: &mut Value, sent: &Value) {
    let mut fields: BTreeMap<String, Value> = serde_json::from_value(into.clone()).unwrap_or_default();
    for (key, value) in sent.as_object().into_iter().flatten() {
        if value.is_null() {
            fields.remove(key);
        } else {
            fields.insert(key.clone(), value.clone());
        }
    }
    *into = json!(fields);
}
