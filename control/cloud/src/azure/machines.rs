//! OpenShift's sets of machines for gateways: one machine in each zone, as upstream's tool makes them.

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};
use trieste_deploy::objects::names::GATEWAY_LABEL;

use super::names::{gateways_group, is_set, set};
use super::state::State;
use crate::CloudError;
use crate::cluster::{NodeChange, has, machine_set};
use crate::provider::Goal;
use crate::rules::Wanted;

/// Upstream's default type of gateways' machines.
pub const INSTANCE: &str = "Standard_F4s_v2";
/// What a gateway's machine has in common with a worker's.
const COMMON: [&str; 14] = [
    "apiVersion",
    "kind",
    "credentialsSecret",
    "image",
    "location",
    "managedIdentity",
    "networkResourceGroup",
    "osDisk",
    "resourceGroup",
    "securityProfile",
    "subnet",
    "tags",
    "userDataSecret",
    "vnet",
];
/// OpenShift's label of the machines of a set.
const OF_SET: &str = "machine.openshift.io/cluster-api-machineset";
/// The label that makes a node one for infrastructure, which upstream's sets for Azure give.
const INFRASTRUCTURE: &str = "node-role.kubernetes.io/infra";

/// What is to be done with sets of machines.
#[derive(Debug, Default)]
pub(super) struct Sets {
    pub(super) changes: Vec<NodeChange>,
    pub(super) remarks: Vec<String>,
    /// Whether there are gateways that sets make, or will be.
    pub(super) has_any: bool,
    /// Whether a machine of a set is no node yet.
    pub(super) is_growing: bool,
}

/// Returns the sets of machines for gateways, whoever has made them.
fn gateway_sets(state: &State) -> Vec<&Value> {
    let is_gateway =
        |set: &&Value| set["spec"]["template"]["spec"]["metadata"]["labels"][GATEWAY_LABEL] == "true";
    state.cluster.machine_sets.iter().flatten().filter(is_gateway).collect()
}

fn name(set: &Value) -> &str {
    set["metadata"]["name"].as_str().unwrap_or_default()
}

fn provider(set: &Value) -> &Value {
    &set["spec"]["template"]["spec"]["providerSpec"]["value"]
}

fn zone(set: &Value) -> &str {
    provider(set)["zone"].as_str().unwrap_or_default()
}

/// Returns the removal of the sets that a preparation has made.
pub(super) fn removal(state: &State) -> Vec<NodeChange> {
    let names = gateway_sets(state).into_iter().map(name);
    let ours = names.filter(|name| is_set(&state.scope.infra_id, name));
    ours.map(|name| NodeChange::DeleteSet { name: name.to_owned() }).collect()
}

/// Returns `true` if the gateways' group is named in a set that stays after a goal is reached: new machines of it need the group.
pub(super) fn needs_group(state: &State, goal: &Goal) -> bool {
    let group = gateways_group(&state.scope.infra_id);
    let stays = |found: &&Value| match goal {
        Goal::CleanUp => !is_set(&state.scope.infra_id, name(found)),
        // With a load balancer, our own are changed to be without it.
        Goal::Prepare(wanted) => wanted.gateways == 0 || name(found) != set(&state.scope.region, zone(found)),
    };
    gateway_sets(state)
        .into_iter()
        .filter(stays)
        .any(|found| provider(found)["securityGroup"] == group.as_str())
}

/// Returns what is missing so that there are as many gateways as wanted. Makes none fewer.
///
/// # Errors
/// [`CloudError::Refused`] if there is no such type of machine, or no worker whose image a gateway could have.
pub(super) fn plan(wanted: &Wanted, state: &State) -> Result<Sets, CloudError> {
    let sets = gateway_sets(state);
    let is_of_set = |node: &str| sets.iter().any(|set| !name(set).is_empty() && node.contains(name(set)));
    let names: Vec<&str> = state.cluster.gateways().map(|node| node.name.as_str()).collect();
    let labelled = names.iter().filter(|node| !is_of_set(node)).count();
    let is_growing = names.len() - labelled < sets.len();
    let mut plan = Sets { has_any: !sets.is_empty(), is_growing, ..Sets::default() };
    if wanted.gateways == 0 {
        return Ok(plan);
    }
    let there = sets.len() + labelled;
    if there > wanted.gateways {
        plan.remarks.push(fewer(wanted.gateways, there));
    }
    for found in sets.iter().filter(|found| name(found) == set(&state.scope.region, zone(found))) {
        plan.changes.extend(changed(found, gateway_set(wanted, state, zone(found))?));
    }
    let missing = wanted.gateways.saturating_sub(there);
    if missing == 0 {
        return Ok(plan);
    }
    let taken: BTreeSet<&str> = sets.iter().map(|set| zone(set)).collect();
    let zones: Vec<String> =
        zones(wanted, state)?.into_iter().filter(|zone| !taken.contains(zone.as_str())).collect();
    for zone in zones.iter().take(missing) {
        plan.changes.push(NodeChange::ApplySet(gateway_set(wanted, state, zone)?));
        plan.has_any = true;
        plan.is_growing = true;
    }
    let room = there + zones.len();
    if room < wanted.gateways {
        let region = &state.scope.region;
        plan.remarks.push(format!(
            "{} gateways are wanted, and {region} has zones for {room}: label other nodes as gateways, or choose another type",
            wanted.gateways
        ));
    }
    Ok(plan)
}

/// Returns the remark that there are more gateways than wanted.
pub(super) fn fewer(wanted: usize, there: usize) -> String {
    format!(
        "{wanted} gateways are wanted and there are {there}: none is removed, since it may be the active one"
    )
}

/// Returns a set with what differs in it; how many machines somebody has given it stays.
fn changed(found: &Value, mut own: Value) -> Option<NodeChange> {
    if let (Some(spec), replicas) = (own["spec"].as_object_mut(), &found["spec"]["replicas"])
        && !replicas.is_null()
    {
        spec.insert("replicas".to_owned(), replicas.clone());
    }
    let is_same = has(found, &own) && provider(found)["securityGroup"] == provider(&own)["securityGroup"];
    (!is_same).then_some(NodeChange::ApplySet(own))
}

/// Returns the zones in which a gateway's machine may be, those without a gateway first; one without a name where there are none.
fn zones(wanted: &Wanted, state: &State) -> Result<Vec<String>, CloudError> {
    let instance = wanted.instance.as_deref().unwrap_or(INSTANCE);
    let mut zones: Vec<String> = match &state.sizes {
        Some(sizes) => sizes.get(instance).cloned().ok_or_else(|| {
            let region = &state.scope.region;
            CloudError::refused(
                format!("{region} has no machines of type {instance} for this subscription"),
                "choose another one with --gateway-instance; az vm list-skus lists them",
            )
        })?,
        None => {
            let all = state.cluster.machine_sets.iter().flatten().map(zone);
            let distinct: BTreeSet<&str> = all.filter(|zone| !zone.is_empty()).collect();
            distinct.into_iter().map(str::to_owned).collect()
        }
    };
    if zones.is_empty() {
        zones.push(String::new());
    }
    // Nodes have the region before the zone.
    let region = &state.scope.region;
    let has_gateway =
        |zone: &String| state.cluster.gateways().any(|node| node.zone == format!("{region}-{zone}"));
    zones.sort_by_key(|zone| (has_gateway(zone), zone.clone()));
    Ok(zones)
}

/// Returns what the first of the cluster's own sets of worker machines gives to Azure's provider.
fn worker(state: &State) -> Option<&Value> {
    let role = "/spec/template/metadata/labels/machine.openshift.io~1cluster-api-machine-role";
    let gateways: BTreeSet<&str> = gateway_sets(state).into_iter().map(name).collect();
    let is_worker = |set: &&Value| {
        set.pointer(role).is_some_and(|role| role == "worker") && !gateways.contains(name(set))
    };
    state.cluster.machine_sets.iter().flatten().filter(is_worker).min_by_key(|set| name(set)).map(provider)
}

fn gateway_set(wanted: &Wanted, state: &State, zone: &str) -> Result<Value, CloudError> {
    let scope = &state.scope;
    let worker = worker(state).filter(|worker| !worker["image"].is_null()).ok_or_else(|| {
        CloudError::refused(
            "the cluster has no MachineSet of workers whose image a gateway's machine could have",
            "label nodes as gateways yourself, and give --gateways 0",
        )
    })?;
    let mut common = Map::new();
    let mut copy = |field: &str| {
        if !worker[field].is_null() {
            common.insert(field.to_owned(), worker[field].clone());
        }
    };
    COMMON.into_iter().for_each(&mut copy);
    if wanted.load_balancer {
        copy("publicLoadBalancer");
    } else {
        common.insert("securityGroup".to_owned(), json!(gateways_group(&scope.infra_id)));
    }
    common.insert("publicIP".to_owned(), json!(!scope.air_gapped && !wanted.load_balancer));
    common.insert("vmSize".to_owned(), json!(wanted.instance.as_deref().unwrap_or(INSTANCE)));
    if !zone.is_empty() {
        common.insert("zone".to_owned(), json!(zone));
    }
    Ok(renamed(machine_set(&scope.infra_id, zone, &Value::Object(common)), &set(&scope.region, zone)))
}

/// Gives a set upstream's short name for Azure, and its machines the label that upstream's have.
fn renamed(mut set: Value, name: &str) -> Value {
    let mut put = |pointer: &str, field: &str, text: &str| {
        if let Some(fields) = set.pointer_mut(pointer).and_then(Value::as_object_mut) {
            fields.insert(field.to_owned(), json!(text));
        }
    };
    put("/metadata", "name", name);
    put("/spec/selector/matchLabels", OF_SET, name);
    put("/spec/template/metadata/labels", OF_SET, name);
    put("/spec/template/spec/metadata/labels", INFRASTRUCTURE, "");
    set
}
