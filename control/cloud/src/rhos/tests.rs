//! A cloud that is prepared, prepared again and cleaned.

mod answers;
mod cluster;
mod credentials;
mod details;
mod played;
mod prepare;
mod random;

use serde_json::{Value, json};
use trieste_control::steps::{Outcome, Steps};

use self::played::{DEFAULT, PROJECT, Played, World};
use super::{Credentials, Rhos, Settings};
use crate::CloudError;
use crate::provider::Goal;
use crate::rules::Wanted;
use crate::run;

const CLOUDS: &str = "
clouds:
  openstack:
    auth:
      auth_url: https://keystone.example
      username: admin
      password: s3cret-word
      project_id: p-1
      user_domain_name: Default
    region_name: RegionOne
  robot:
    auth_type: v3applicationcredential
    auth:
      auth_url: https://keystone.example/v3/
      application_credential_id: ac-1
      application_credential_secret: s3cret-word
    interface: public
";

/// Keeps what is remarked.
#[derive(Debug, Default)]
struct Kept(Vec<String>);

impl Steps for Kept {
    fn begin(&mut self, _text: &str) {}
    fn end(&mut self, _outcome: Outcome) {}
    fn remark(&mut self, _outcome: Outcome, text: &str) {
        self.0.push(text.to_owned());
    }
}

fn settings(entry: &str, infra_id: Option<&str>) -> Settings {
    let credentials = Credentials::from_clouds(CLOUDS, entry).unwrap();
    Settings { infra_id: infra_id.map(str::to_owned), region: None, project_id: None, credentials }
}

/// Reaches a goal; returns how many changes were made, and the remarks.
async fn reach(played: &Played, goal: &Goal) -> Result<(usize, Vec<String>), CloudError> {
    let server = played.server();
    let infra_id = played.world().sets.is_none().then_some("east");
    let rhos = Rhos::new(played.clone(), &server, settings("openstack", infra_id));
    let mut steps = Kept::default();
    run::reach(&rhos, goal, &mut steps).await.map(|done| (done, steps.0))
}

fn wanted(gateways: usize) -> Wanted {
    Wanted { gateways, ..Wanted::default() }
}

/// OpenShift in two zones, as its installer makes it.
fn openshift() -> World {
    let mut world = kubernetes();
    world.nodes.clear();
    world.ports.clear();
    let master = world.add_group("east-master", "Created By OpenShift Installer");
    let worker = world.add_group("east-worker", "Created By OpenShift Installer");
    for (group, from) in [(&worker, &master), (&master, &worker)] {
        let rule = json!({"security_group_id": group, "direction": "ingress", "ethertype": "IPv4", "protocol": "udp",
            "port_range_min": 4500, "port_range_max": 4500, "remote_group_id": from});
        world.add_rule(&rule);
    }
    world.add_node("east-master-0", "az-a", &["192.168.0.10"], &[&master]);
    world.nodes.get_mut("east-master-0").unwrap()["metadata"]["labels"]["node-role.kubernetes.io/control-plane"] =
        json!("");
    world.add_node("east-worker-a-1", "az-a", &["192.168.0.11"], &[&worker]);
    world.add_node("east-worker-b-1", "az-b", &["192.168.0.12"], &[&worker]);
    let sets = ["a", "b"].map(|zone| (format!("east-worker-{zone}"), worker_set(zone)));
    world.sets = Some(sets.into_iter().collect());
    world
}

fn worker_set(zone: &str) -> Value {
    let role = json!({"machine.openshift.io/cluster-api-machine-role": "worker"});
    let provider = json!({
        "apiVersion": "machine.openshift.io/v1alpha1", "kind": "OpenstackProviderSpec", "flavor": "m1.large",
        "image": "east-rhcos", "availabilityZone": format!("az-{zone}"), "cloudName": "openstack", "trunk": true,
        "cloudsSecret": {"name": "openstack-cloud-credentials", "namespace": "openshift-machine-api"},
        "securityGroups": [{"filter": {}, "name": "east-worker"}], "tags": ["openshiftClusterID=east"],
        "networks": [{"filter": {}, "subnets": [{"filter": {"name": "east-nodes", "tags": "openshiftClusterID=east"}}]}],
        "userDataSecret": {"name": "worker-user-data"},
    });
    json!({
        "metadata": {"name": format!("east-worker-{zone}"), "namespace": "openshift-machine-api",
            "labels": {"machine.openshift.io/cluster-api-cluster": "east"}},
        "spec": {"replicas": 1, "template": {"metadata": {"labels": role}, "spec": {"providerSpec": {"value": provider}}}},
    })
}

/// A cluster of no set of machines, whose ports have the default group alone.
fn kubernetes() -> World {
    let mut world = World { page: 2, ..World::default() };
    let default = json!({"id": DEFAULT, "name": "default", "description": "Default security group", "project_id": PROJECT});
    world.groups.insert(DEFAULT.to_owned(), default);
    for (name, zone) in [("east-1", "az-a"), ("east-2", "az-b"), ("east-3", "az-a")] {
        world.add_node(name, zone, &["192.168.0.21"], &[]);
    }
    world
}

/// Puts there what upstream's tool prepares; with its internal group or without.
fn prepare_as_upstream(world: &mut World, with_internal: bool) -> String {
    let gateways = world.add_group("east-submariner-gw-sg", "Submariner Gateway");
    let public = json!({"security_group_id": gateways, "direction": "ingress", "ethertype": "IPv4", "remote_ip_prefix": "0.0.0.0/0"});
    let with_port = |rule: &Value, port: u16| {
        let mut rule = rule.clone();
        rule["protocol"] = json!("udp");
        rule["port_range_min"] = json!(port);
        rule["port_range_max"] = json!(port);
        rule
    };
    for port in [4500, 4490, 4501] {
        world.add_rule(&with_port(&public, port));
    }
    for protocol in ["esp", "ah"] {
        let mut rule = public.clone();
        rule["protocol"] = json!(protocol);
        world.add_rule(&rule);
    }
    if with_internal {
        let internal = world.add_group("east-submariner-internal-sg", "Submariner Internal");
        let own = json!({"security_group_id": internal, "direction": "ingress", "ethertype": "IPv4", "remote_group_id": internal});
        world.add_rule(&with_port(&own, 4800));
        for port in world.ports.values_mut() {
            port["security_groups"].as_array_mut().unwrap().push(json!(internal));
        }
    }
    gateways
}

fn ids(list: &Value) -> Vec<String> {
    list.as_array().into_iter().flatten().map(|id| id.as_str().unwrap().to_owned()).collect()
}

fn keys(object: &Value) -> Vec<String> {
    let mut keys: Vec<String> = object.as_object().unwrap().keys().cloned().collect();
    keys.sort();
    keys
}

/// What a group lets in, in words.
fn rules_in(played: &Played, group: &str) -> Vec<String> {
    let world = played.world();
    let name = |id: &Value| id.as_str().map(|id| world.groups[id]["name"].as_str().unwrap().to_owned());
    let id = world.groups.values().find(|other| other["name"] == group).map(|group| group["id"].clone());
    let rules = world
        .rules
        .values()
        .filter(|rule| Some(&rule["security_group_id"]) == id.as_ref() && rule["direction"] == "ingress");
    let text = |rule: &Value| {
        let text = |field: &str| rule[field].as_str().unwrap_or_default().to_owned();
        let port = rule["port_range_min"].as_u64().map_or_else(String::new, |port| format!(" {port}"));
        let from = name(&rule["remote_group_id"]).unwrap_or_else(|| text("remote_ip_prefix"));
        format!("{} {}{port} from {from}", text("ethertype"), text("protocol"))
    };
    let mut texts: Vec<String> = rules.map(text).collect();
    texts.sort();
    texts
}

/// The names of a port's groups.
fn groups_of(played: &Played, port: &str) -> Vec<String> {
    let world = played.world();
    let name =
        |id: String| world.groups.get(&id).unwrap_or(&Value::Null)["name"].as_str().unwrap_or(&id).to_owned();
    let mut names: Vec<String> = ids(&world.ports[port]["security_groups"]).into_iter().map(name).collect();
    names.sort();
    names
}
