//! A cluster in a cloud, both played.

use std::sync::Arc;

use serde_json::{Value, json};
use trieste_control::steps::Record;
use trieste_deploy::Server;

use super::cloud::Cloud;
use crate::CloudError;
use crate::exchange::Clock;
use crate::gcp::{Credentials, Gcp, ServiceAccount, Settings};
use crate::played_cluster::Cluster;
use crate::provider::Goal;
use crate::run;

/// The time at which it begins, in seconds since 1970.
pub(super) const START: i64 = 1_700_000_000;

/// One node and its machine.
#[derive(Debug, Clone)]
pub(super) struct Machine {
    pub(super) name: String,
    pub(super) zone: &'static str,
    pub(super) tags: Vec<String>,
    pub(super) has_external_ip: bool,
    pub(super) can_ip_forward: bool,
    pub(super) is_gateway: bool,
    pub(super) is_control_plane: bool,
}

impl Machine {
    pub(super) fn worker(name: &str, zone: &'static str, tags: &[&str]) -> Self {
        Self {
            name: name.to_owned(),
            zone,
            tags: tags.iter().map(|tag| (*tag).to_owned()).collect(),
            has_external_ip: true,
            can_ip_forward: true,
            is_gateway: false,
            is_control_plane: false,
        }
    }
}

/// Both.
#[derive(Debug, Clone)]
pub(super) struct World {
    pub(super) cloud: Cloud,
    pub(super) cluster: Cluster,
}

/// Returns an account's JSON with a key.
pub(super) fn account(pem: &str) -> String {
    json!({"type": "service_account", "project_id": "of-the-key", "private_key_id": "k1", "private_key": pem,
        "client_email": "gw@p-1.iam.gserviceaccount.com", "token_uri": "https://oauth2.googleapis.com/token"})
    .to_string()
}

/// Returns settings with the account's key.
pub(super) fn settings(infra_id: Option<&str>) -> Settings {
    let account = ServiceAccount::from_json(&account(include_str!("rfc7515-a2.pem"))).unwrap();
    Settings {
        infra_id: infra_id.map(str::to_owned),
        credentials: Credentials::Key(Arc::new(account)),
        ..Settings::default()
    }
}

/// Returns OpenShift's set of workers in a zone.
pub(super) fn worker_set(zone: &str) -> Value {
    let spec = json!({
        "apiVersion": "machine.openshift.io/v1beta1", "kind": "GCPMachineProviderSpec", "canIPForward": false,
        "credentialsSecret": {"name": "gcp-cloud-credentials"}, "deletionProtection": false,
        "disks": [{"autoDelete": true, "boot": true, "image": "projects/rhcos/image-9", "sizeGb": 64,
            "type": "pd-balanced", "labels": null}],
        "machineType": "e2-standard-8", "gpus": [{"type": "t4", "count": 1}], "preemptible": true,
        "networkInterfaces": [{"network": "east-x1-network", "subnetwork": "east-x1-worker-subnet"}],
        "projectID": "p-1", "region": "us-east1", "tags": ["east-x1-worker"], "zone": zone,
        "serviceAccounts": [{"email": "w@p-1.iam", "scopes": ["cloud-platform"]}],
        "userDataSecret": {"name": "worker-user-data"},
    });
    let name = format!("east-x1-worker-{zone}");
    let labels = json!({"machine.openshift.io/cluster-api-cluster": "east-x1"});
    let template = json!({
        "metadata": {"labels": {"machine.openshift.io/cluster-api-machine-role": "worker"}},
        "spec": {"providerSpec": {"value": spec}},
    });
    json!({"apiVersion": "machine.openshift.io/v1beta1", "kind": "MachineSet",
        "metadata": {"name": name, "namespace": "openshift-machine-api", "labels": labels},
        "spec": {"replicas": 1, "template": template}})
}

impl World {
    /// Creates one: OpenShift's with a set of workers, else a cluster of GKE's.
    pub(super) fn new(is_openshift: bool, machines: &[Machine]) -> Self {
        let world = Self { cloud: Cloud::default(), cluster: Cluster { is_openshift, ..Cluster::default() } };
        {
            let mut inner = world.cloud.0.lock().unwrap();
            inner.now = START;
            inner.page = 2;
            inner.polls = 1;
            for (zone, region) in [
                ("us-east1-b", "us-east1"),
                ("us-east1-c", "us-east1"),
                ("us-east1-d", "us-east1"),
                ("us-west1-a", "us-west1"),
            ] {
                inner.zones.insert(zone.to_owned(), region.to_owned());
            }
            inner.networks.insert("projects/p-1/global/networks/east-x1-network".to_owned());
            inner.networks.insert("projects/host/global/networks/shared".to_owned());
        }
        if is_openshift {
            world.cluster.put_set(worker_set("us-east1-c"));
        }
        machines.iter().for_each(|machine| world.put(machine));
        world.put_rule("p-1", "allow-ssh", &json!({"allowed": [{"IPProtocol": "tcp", "ports": ["22"]}]}));
        world
    }

    /// Puts a node and its machine there.
    pub(super) fn put(&self, machine: &Machine) {
        let Machine { name, zone, .. } = machine;
        let mut labels =
            json!({"topology.kubernetes.io/zone": zone, "topology.kubernetes.io/region": "us-east1"});
        if machine.is_gateway {
            labels["submariner.io/gateway"] = json!("true");
        }
        if machine.is_control_plane {
            labels["node-role.kubernetes.io/control-plane"] = json!("");
        }
        self.cluster.put_node(json!({"apiVersion": "v1", "kind": "Node",
            "metadata": {"name": name, "labels": labels},
            "spec": {"providerID": format!("gce://p-1/{zone}/{name}")},
            "status": {"conditions": [{"type": "Ready", "status": "True"}]}}));
        let network = "https://www.googleapis.com/compute/v1/projects/p-1/global/networks/east-x1-network";
        let mut interface = json!({"network": network});
        if machine.has_external_ip {
            interface["accessConfigs"] = json!([{"natIP": "203.0.113.7"}]);
        }
        let mut tags = machine.tags.clone();
        tags.sort();
        let instance = json!({"name": name, "tags": {"items": tags, "fingerprint": format!("first of {name}")},
            "canIpForward": machine.can_ip_forward, "networkInterfaces": [interface]});
        let key = ("p-1".to_owned(), (*zone).to_owned(), name.clone());
        self.cloud.0.lock().unwrap().instances.insert(key, instance);
    }

    /// Puts a firewall rule there, with what upstream's tool leaves to defaults.
    pub(super) fn put_rule(&self, project: &str, name: &str, rule: &Value) {
        let network = "https://www.googleapis.com/compute/v1/projects/p-1/global/networks/east-x1-network";
        let mut full = json!({"name": name, "network": network, "direction": "INGRESS", "priority": 1000});
        if rule["sourceTags"].is_null() {
            full["sourceRanges"] = json!(["0.0.0.0/0"]);
        }
        full.as_object_mut().unwrap().extend(rule.as_object().unwrap().clone());
        self.cloud.0.lock().unwrap().firewalls.insert((project.to_owned(), name.to_owned()), full);
    }

    /// Puts there what upstream's tool has prepared.
    pub(super) fn put_upstream(&self, has_set: bool) {
        let udp = |port: &str| json!({"IPProtocol": "udp", "ports": [port]});
        let cables = json!([udp("4500"), udp("4490"), {"IPProtocol": "esp"}, {"IPProtocol": "ah"}]);
        let cables = json!({"allowed": cables, "targetTags": ["submariner-io-gateway-node"]});
        self.put_rule("p-1", "east-x1-submariner-public-ports-ingress", &cables);
        let nodes = json!(["east-x1-worker", "east-x1-master"]);
        let inside = json!({"allowed": [udp("4800")], "sourceTags": nodes, "targetTags": nodes});
        self.put_rule("p-1", "east-x1-submariner-internal-ports-ingress", &inside);
        if has_set {
            let spec = json!({"zone": "us-east1-b"});
            self.cluster.put_set(crate::cluster::machine_set("east-x1", "us-east1-b", &spec));
        }
    }

    /// Returns a rule that is there.
    pub(super) fn rule(&self, name: &str) -> Option<Value> {
        self.cloud.0.lock().unwrap().firewalls.get(&("p-1".to_owned(), name.to_owned())).cloned()
    }

    /// Returns the tags of a machine.
    pub(super) fn tags(&self, name: &str) -> Vec<String> {
        let inner = self.cloud.0.lock().unwrap();
        let instance = inner.instances.iter().find(|(key, _)| key.2 == name).unwrap().1;
        instance["tags"]["items"]
            .as_array()
            .unwrap()
            .iter()
            .map(|tag| tag.as_str().unwrap().to_owned())
            .collect()
    }

    /// Returns all that is there: rules, tags, nodes and sets. Fingerprints change with every change.
    pub(super) fn all(&self) -> Value {
        let inner = self.cloud.0.lock().unwrap();
        let rules: Vec<&Value> = inner.firewalls.values().collect();
        let tags: Vec<(&String, &Value)> =
            inner.instances.iter().map(|(key, instance)| (&key.2, &instance["tags"]["items"])).collect();
        let objects = self.cluster.objects.lock().unwrap();
        json!({"rules": rules, "tags": tags, "objects": &*objects})
    }

    /// Returns the changes since the last question.
    pub(super) fn changes(&self) -> Vec<String> {
        std::mem::take(&mut self.cloud.0.lock().unwrap().changes)
    }

    fn clock(&self) -> Clock {
        let cloud = self.cloud.clone();
        Arc::new(move || jiff::Timestamp::from_second(cloud.0.lock().unwrap().now).unwrap())
    }

    /// Returns the provider.
    pub(super) fn gcp<'s>(&self, server: &'s Server, settings: &Settings) -> Gcp<'s, Cloud> {
        Gcp::new(self.cloud.clone(), server, settings.clone(), self.clock())
    }

    /// Brings it to a goal; returns how many changes were made, and the remarks.
    pub(super) async fn reach(
        &self,
        goal: &Goal,
        settings: &Settings,
    ) -> Result<(usize, Vec<String>), CloudError> {
        let server = self.cluster.server();
        let mut record = Record::default();
        let done = run::reach(&self.gcp(&server, settings), goal, &mut record).await?;
        let remarks = record.steps.iter().flat_map(|step| &step.remarks).map(|(_, text)| text.clone());
        Ok((done, remarks.collect()))
    }

    /// Returns what would be done, in words.
    pub(super) async fn shown(&self, goal: &Goal, settings: &Settings) -> Result<Vec<String>, CloudError> {
        let server = self.cluster.server();
        let plan = run::plan(&self.gcp(&server, settings), goal).await?;
        Ok(plan.changes.iter().map(ToString::to_string).collect())
    }
}
