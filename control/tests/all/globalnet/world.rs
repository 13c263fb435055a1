//! A store in memory that treats writes as an API server does, and plans on it until there is nothing more to write.

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;

use jiff::Timestamp;
use serde_json::{Value, json};
use trieste_control::api::{Kind, Object, ObjectKey};
use trieste_control::globalnet::{GlobalnetState, Objects, Outcome, Scope, View, plan};
use trieste_control::runner::Write;
use trieste_control::store::StoreEvent;

pub(crate) const NS: &str = "submariner-operator";
pub(crate) const GATEWAY: &str = "a-gw1";

#[derive(Clone)]
pub(crate) struct World {
    pub(crate) objects: BTreeMap<ObjectKey, Object>,
    pub(crate) now: Timestamp,
    pub(crate) gateway: Option<&'static str>,
    /// Kinds that the store does not serve.
    pub(crate) unserved: BTreeSet<Kind>,
    version: u64,
}

impl World {
    /// A cluster `cluster-a` with these networks, and its gateway.
    pub(crate) fn new(global_cidr: &str) -> Self {
        let mut world = Self::empty();
        world.put(cluster("cluster-a", global_cidr, "10.1.0.0/16", "100.1.0.0/16"));
        world.put(object("submariner.io/v1", "Gateway", NS, GATEWAY, json!({"status": {}})));
        world
    }

    pub(crate) fn empty() -> Self {
        Self {
            objects: BTreeMap::new(),
            now: "2026-11-21T06:16:50Z".parse().unwrap(),
            gateway: Some(GATEWAY),
            unserved: BTreeSet::new(),
            version: 0,
        }
    }

    /// Somebody creates or replaces an object; what only a server sets is set.
    pub(crate) fn put(&mut self, value: Value) -> ObjectKey {
        let mut object = Object::from_value(value).unwrap();
        let known = self.objects.get(&object.key()).cloned();
        let metadata = &mut object.metadata;
        metadata.uid = known.as_ref().and_then(|known| known.metadata.uid.clone());
        metadata.creation_timestamp = known
            .and_then(|known| known.metadata.creation_timestamp)
            .or(metadata.creation_timestamp)
            .or(Some(self.now));
        self.stamp(&mut object);
        let key = object.key();
        self.objects.insert(key.clone(), object);
        key
    }

    /// Somebody changes an object.
    pub(crate) fn edit(&mut self, key: &ObjectKey, edit: impl FnOnce(&mut Object)) {
        let mut object = self.objects[key].clone();
        edit(&mut object);
        self.stamp(&mut object);
        self.objects.insert(key.clone(), object);
    }

    /// Somebody deletes an object; finalizers keep it.
    pub(crate) fn delete(&mut self, key: &ObjectKey) {
        if self.objects[key].metadata.has_finalizers() {
            let time = self.now.to_string();
            self.edit(key, |object| {
                object.metadata.extra.insert("deletionTimestamp".to_owned(), json!(time));
            });
        } else {
            self.objects.remove(key);
        }
    }

    pub(crate) fn get(&self, kind: Kind, namespace: &str, name: &str) -> &Object {
        let key = ObjectKey::new(kind, namespace, name);
        self.objects.get(&key).unwrap_or_else(|| panic!("there is no {key}"))
    }

    pub(crate) fn names(&self, kind: Kind) -> Vec<String> {
        let of_kind = self.objects.keys().filter(|key| key.kind == kind);
        of_kind.map(|key| format!("{}/{}", key.namespace, key.name)).collect()
    }

    /// The plan of this moment, all that it needs being known.
    pub(crate) fn plan(&self) -> Outcome {
        let mut needs: BTreeSet<Scope> = BTreeSet::new();
        loop {
            let mut objects = Objects::default();
            for (kind, namespace) in &needs {
                if self.unserved.contains(kind) {
                    continue;
                }
                let is_within = |key: &ObjectKey| {
                    key.kind == *kind && (namespace.is_empty() || key.namespace == *namespace)
                };
                let listed = self.objects.iter().filter(|(key, _)| is_within(key));
                let listed = StoreEvent::Listed(listed.map(|(_, object)| object.clone()).collect());
                objects.handle(&(*kind, namespace.clone()), listed);
            }
            let outcome = plan(&View {
                namespace: NS,
                cluster_id: "cluster-a",
                gateway: self.gateway,
                objects: &objects,
                now: self.now,
            });
            if outcome.needs == needs {
                assert!(outcome.is_complete);
                return outcome;
            }
            needs = outcome.needs;
        }
    }

    /// Plans and writes until nothing is left; gives the state then.
    pub(crate) fn settle(&mut self) -> GlobalnetState {
        for _ in 0..16 {
            let outcome = self.plan();
            if outcome.writes.is_empty() {
                return outcome.state;
            }
            outcome.writes.into_iter().for_each(|write| self.write(write));
        }
        panic!("not settled: {:#?}", self.plan().writes);
    }

    /// Does a write as an API server would.
    pub(crate) fn write(&mut self, write: Write) {
        let key = write.key();
        let is_newest = |object: &Object| {
            let known = self.objects.get(&key).unwrap_or_else(|| panic!("there is no {key}"));
            assert_eq!(known.metadata.resource_version, object.metadata.resource_version, "{key}");
            known.clone()
        };
        match write {
            Write::Create(object) => self.create(key, object),
            Write::Update(mut object) => {
                let known = is_newest(&object);
                if object.kind.has_status_subresource() {
                    object.body.remove("status");
                    object
                        .body
                        .extend(known.body.get("status").map(|status| ("status".to_owned(), status.clone())));
                }
                assert_ne!(object, known, "a write that changes nothing");
                self.stamp(&mut object);
                let is_gone = object.metadata.is_terminating() && !object.metadata.has_finalizers();
                self.objects.insert(key.clone(), object);
                if is_gone {
                    self.objects.remove(&key);
                }
            }
            Write::UpdateStatus(object) => {
                let mut known = is_newest(&object);
                assert_ne!(
                    known.body.get("status"),
                    object.body.get("status"),
                    "a write that changes nothing"
                );
                known.body.insert("status".to_owned(), object.body["status"].clone());
                self.stamp(&mut known);
                self.objects.insert(key, known);
            }
            Write::Delete(object) => {
                is_newest(&object);
                self.delete(&key);
            }
            Write::Annotate { key, annotation, value } => self.edit(&key, |object| {
                match value {
                    Some(value) => drop(object.metadata.annotations.insert(annotation.to_owned(), value)),
                    None => drop(object.metadata.annotations.remove(annotation)),
                };
            }),
        }
    }

    fn create(&mut self, key: ObjectKey, mut object: Object) {
        assert!(!self.objects.contains_key(&key), "{key} is there already");
        if object.kind.has_status_subresource() {
            object.body.remove("status");
        }
        if object.kind == Kind::Service {
            let ip = format!("100.1.200.{}", self.version % 250 + 1);
            object.body["spec"]["clusterIP"] = json!(ip);
            object.body["spec"]["type"] = json!("ClusterIP");
        }
        object.metadata.creation_timestamp = Some(self.now);
        self.stamp(&mut object);
        self.objects.insert(key, object);
    }

    fn stamp(&mut self, object: &mut Object) {
        self.version += 1;
        object.metadata.resource_version = Some(self.version.to_string());
        object.metadata.uid.get_or_insert_with(|| format!("uid-{}", self.version));
    }
}

pub(crate) fn object(api_version: &str, kind: &str, namespace: &str, name: &str, rest: Value) -> Value {
    let mut object = json!({"apiVersion": api_version, "kind": kind, "metadata": {"name": name}});
    if !namespace.is_empty() {
        object["metadata"]["namespace"] = json!(namespace);
    }
    let Value::Object(rest) = rest else { panic!("the rest of an object is fields") };
    object.as_object_mut().unwrap().extend(rest);
    object
}

pub(crate) fn cluster(id: &str, global: &str, pods: &str, services: &str) -> Value {
    let spec = json!({"cluster_id": id, "color_codes": ["blue"], "global_cidr": [global], "cluster_cidr": [pods],
        "service_cidr": [services]});
    object("submariner.io/v1", "Cluster", NS, id, json!({ "spec": spec }))
}

pub(crate) fn export(namespace: &str, name: &str) -> Value {
    object("multicluster.x-k8s.io/v1alpha1", "ServiceExport", namespace, name, json!({}))
}

/// A service; `ip` may be `None` for a headless one, and no selector is `""`.
pub(crate) fn service(namespace: &str, name: &str, ip: &str, app: &str) -> Value {
    let mut spec = json!({"type": "ClusterIP", "clusterIP": ip,
        "ports": [{"name": "http", "port": 8080, "protocol": "TCP", "targetPort": 8080}]});
    if !app.is_empty() {
        spec["selector"] = json!({"app": app});
    }
    object("v1", "Service", namespace, name, json!({ "spec": spec }))
}

pub(crate) fn pod(namespace: &str, name: &str, app: &str, ip: &str) -> Value {
    let mut pod = object("v1", "Pod", namespace, name, json!({"status": {"phase": "Running", "podIP": ip}}));
    pod["metadata"]["labels"] = json!({"app": app});
    pod
}

pub(crate) fn endpoints(namespace: &str, name: &str, ips: &[&str]) -> Value {
    let addresses: Vec<Value> = ips.iter().map(|ip| json!({ "ip": ip })).collect();
    let subsets = json!([{"addresses": addresses, "ports": [{"port": 8080}]}]);
    object("v1", "Endpoints", namespace, name, json!({ "subsets": subsets }))
}

pub(crate) fn egress(namespace: &str, name: &str, number: i64, app: &str) -> Value {
    let mut spec = json!({ "numberOfIPs": number });
    if !app.is_empty() {
        spec["podSelector"] = json!({"matchLabels": {"app": app}});
    }
    object("submariner.io/v1", "GlobalEgressIP", namespace, name, json!({ "spec": spec }))
}

pub(crate) fn ip(text: &str) -> Ipv4Addr {
    text.parse().unwrap()
}

/// The addresses of an object's status.
pub(crate) fn addresses(object: &Object) -> Vec<String> {
    let status = object.body.get("status").cloned().unwrap_or_default();
    if let Some(one) = status["allocatedIP"].as_str() {
        return if one.is_empty() { Vec::new() } else { vec![one.to_owned()] };
    }
    let all = status["allocatedIPs"].as_array().cloned().unwrap_or_default();
    all.iter().map(|address| address.as_str().unwrap().to_owned()).collect()
}

/// A condition of an object: status, reason, message.
pub(crate) fn condition(object: &Object, kind: &str) -> Option<(String, String, String)> {
    let status = object.body.get("status")?;
    let all = status["conditions"].as_array().cloned().unwrap_or_default();
    let found: Vec<_> = all.iter().filter(|condition| condition["type"] == kind).collect();
    assert!(found.len() <= 1, "{kind} is said more than once: {found:?}");
    let text = |field: &str| found[0][field].as_str().unwrap().to_owned();
    (!found.is_empty()).then(|| (text("status"), text("reason"), text("message")))
}

pub(crate) fn says(object: &Object, status: &str, reason: &str, message: &str) {
    let expected = (status.to_owned(), reason.to_owned(), message.to_owned());
    assert_eq!(condition(object, "Allocated"), Some(expected));
}
