//! What is to be done: a function of goal, state and settings.

use std::collections::BTreeSet;

use super::change::{Change, Kind};
use super::firewall::{self, Difference, difference, names_nodes, wanted_rules};
use super::machine::{provider_spec, retyped};
use super::names::{GATEWAY_TAG, made_for_gateways};
use super::settings::Settings;
use super::state::{Id, Instance, Network, State, node_tags};
use crate::CloudError;
use crate::cluster::{Node, NodeChange, machine_set};
use crate::provider::{Goal, Plan};
use crate::rules::Wanted;

/// Plans what is missing for a goal.
///
/// # Errors
/// [`CloudError::Refused`] if the goal cannot be had here.
pub(super) fn plan(goal: &Goal, state: &State, settings: &Settings) -> Result<Plan<Change>, CloudError> {
    match goal {
        Goal::Prepare(wanted) => prepare(wanted, state, settings),
        Goal::CleanUp => clean_up(state),
    }
}

fn prepare(wanted: &Wanted, state: &State, settings: &Settings) -> Result<Plan<Change>, CloudError> {
    let mut plan = Plan::default();
    let network = state.network.as_ref().ok_or_else(no_network)?;
    rules(wanted, state, settings, network, &mut plan)?;
    let changes = if state.cluster.is_openshift() {
        sets(wanted, state, settings, &mut plan.remarks)?
    } else {
        labels(wanted, state, &mut plan.remarks)
    };
    let chosen: BTreeSet<&str> = changes.iter().filter_map(NodeChange::labels).collect();
    let is_gateway = |node: &&Node| node.is_gateway || chosen.contains(node.name.as_str());
    for node in state.cluster.nodes.iter().filter(is_gateway) {
        machine(node, wanted, state, network, &mut plan);
    }
    plan.changes.extend(changes.into_iter().map(|change| Change(Kind::Cluster(change))));
    Ok(plan)
}

fn no_network() -> CloudError {
    CloudError::refused(
        "the nodes' machines show no VPC network that all of them are in",
        "give --vpc-name with the network of the cluster's nodes (and see whether their provider IDs are gce://PROJECT/ZONE/NAME)",
    )
}

fn rules(
    wanted: &Wanted,
    state: &State,
    settings: &Settings,
    network: &Network,
    plan: &mut Plan<Change>,
) -> Result<(), CloudError> {
    let nodes = node_tags(settings, state);
    if nodes.is_empty() && names_nodes(wanted) {
        return Err(CloudError::refused(
            "the nodes' machines have no network tag in common by which a firewall rule could name them",
            "give all of them one and name it with --node-tags; or, if the network lets everything pass between them, give --vxlan-port 0",
        ));
    }
    let path = network.path();
    let cluster = firewall::Cluster { infra_id: &state.infra_id, network: &path, nodes: &nodes };
    let all = wanted_rules(wanted, &cluster);
    let project = || network.project.clone();
    let mut add = |kind: Kind| plan.changes.push(Change(kind));
    for name in state.rules.keys() {
        if all.iter().all(|rule| rule["name"] != **name) {
            add(Kind::Delete { project: project(), name: name.clone() });
        }
    }
    for rule in all {
        let name = rule["name"].as_str().unwrap_or_default().to_owned();
        let Some(found) = state.rules.get(&name) else {
            add(Kind::Create { project: project(), rule });
            continue;
        };
        match difference(found, &rule) {
            Difference::None => {}
            Difference::Patch(patch) => add(Kind::Patch { project: project(), name, patch }),
            Difference::Anew => {
                add(Kind::Delete { project: project(), name });
                add(Kind::Create { project: project(), rule });
            }
        }
    }
    Ok(())
}

/// Plans the labels of nodes where nothing makes machines.
fn labels(wanted: &Wanted, state: &State, remarks: &mut Vec<String>) -> Vec<NodeChange> {
    let there = state.cluster.gateways().count();
    let changes = state.cluster.more_gateways(wanted.gateways);
    let after = there + changes.len();
    if after < wanted.gateways {
        let wanted = wanted.gateways;
        remarks.push(format!("{wanted} gateways are wanted, and the cluster has nodes for {after}"));
    }
    remarks.extend(too_many(wanted, there));
    changes
}

/// Plans sets of machines: one per zone without a gateway, zones with nodes of the cluster first.
fn sets(
    wanted: &Wanted,
    state: &State,
    settings: &Settings,
    remarks: &mut Vec<String>,
) -> Result<Vec<NodeChange>, CloudError> {
    let prefix = made_for_gateways(&state.infra_id);
    let sets: Vec<&str> = state.cluster.gateway_sets(&state.infra_id).collect();
    let by_hand = state.cluster.gateways().filter(|node| !instance_name(node).starts_with(&prefix));
    let there = sets.len() + by_hand.count();
    remarks.extend(too_many(wanted, there));
    let mut changes = retyped_sets(wanted, state, remarks);
    let missing = wanted.gateways.saturating_sub(there);
    if missing == 0 {
        return Ok(changes);
    }
    if state.region.is_none() {
        return Err(CloudError::refused(
            "neither MachineSets nor nodes show the cluster's region",
            "give --region with the region in which machines for gateways are to be made",
        ));
    }
    let mut taken: BTreeSet<&str> = state.cluster.gateways().map(|node| node.zone.as_str()).collect();
    taken.extend(sets.iter().filter_map(|name| name.strip_prefix(&prefix)));
    let of_nodes: BTreeSet<&str> = state.cluster.nodes.iter().map(|node| node.zone.as_str()).collect();
    let mut free: Vec<&str> =
        state.zones.iter().map(String::as_str).filter(|zone| !taken.contains(zone)).collect();
    free.sort_by_key(|zone| (!of_nodes.contains(zone), *zone));
    if free.len() < missing {
        remarks.push(format!(
            "{} gateways are wanted, one in each zone, and the region has zones for {}",
            wanted.gateways,
            there + free.len()
        ));
    }
    for zone in free.into_iter().take(missing) {
        let spec = provider_spec(state, settings, wanted.instance.as_deref(), zone)?;
        changes.push(NodeChange::ApplySet(machine_set(&state.infra_id, zone, &spec)));
    }
    Ok(changes)
}

/// Plans the sets for gateways whose machines are of another type than the one that is chosen.
fn retyped_sets(wanted: &Wanted, state: &State, remarks: &mut Vec<String>) -> Vec<NodeChange> {
    let Some(instance) = wanted.instance.as_deref().filter(|_| wanted.gateways > 0) else {
        return Vec::new();
    };
    let mut changes = Vec::new();
    for name in state.cluster.gateway_sets(&state.infra_id) {
        let found = state.cluster.machine_set(name);
        if let Some(set) = found.and_then(|found| retyped(found, &state.infra_id, instance)) {
            remarks.push(format!(
                "the machine of MachineSet {name} keeps its type: drain its gateway, then delete the machine, and one of type {instance} is made"
            ));
            changes.push(NodeChange::ApplySet(set));
        }
    }
    changes
}

/// Returns what to remark where there are more gateways than are wanted: taking one from under its connections is nobody's but the
/// administrator's.
fn too_many(wanted: &Wanted, there: usize) -> Option<String> {
    (wanted.gateways > 0 && there > wanted.gateways).then(|| {
        format!(
            "{} gateways are wanted, and there are {there}: none is removed (take the label submariner.io/gateway off a node, or delete its MachineSet, to have fewer)",
            wanted.gateways
        )
    })
}

/// Plans the tag of a gateway's machine, and remarks what of it cannot be changed here.
fn machine(node: &Node, wanted: &Wanted, state: &State, network: &Network, plan: &mut Plan<Change>) {
    let Some(instance) = state.instances.get(&node.name) else {
        plan.remarks.push(format!(
            "the machine of gateway node {} is not found by its provider ID `{}`: give it the network tag {GATEWAY_TAG}",
            node.name,
            node.provider_id.escape_debug()
        ));
        return;
    };
    let name = &instance.id.name;
    if !instance.is_tagged() {
        let mut tags = instance.tags.clone();
        tags.push(GATEWAY_TAG.to_owned());
        plan.changes.push(tagged(instance, tags));
    }
    if !instance.has_external_ip && !wanted.load_balancer {
        plan.remarks.push(format!(
            "instance {name} has no external IP address: other clusters reach this gateway only through a network in common"
        ));
    }
    if !instance.can_ip_forward {
        plan.remarks.push(format!(
            "instance {name} was made without canIpForward, which a running instance cannot be given: the network drops what it sends from other addresses than its own"
        ));
    }
    if let Some(other) = instance.network.as_ref().filter(|other| *other != network) {
        let (other, network) = (other.path(), network.path());
        plan.remarks.push(format!("instance {name} is in {other}, and the rules are in {network}"));
    }
}

fn tagged(instance: &Instance, tags: Vec<String>) -> Change {
    Change(Kind::Tags { instance: instance.id.clone(), tags, fingerprint: instance.fingerprint.clone() })
}

/// Plans the end of what a preparation has made. Machines of sets go with their set, tags and all.
///
/// Rules are in their network's project, which is another one where the network is shared. Without a network only rules that were
/// found show that the cluster's own project was the right one to search.
fn clean_up(state: &State) -> Result<Plan<Change>, CloudError> {
    if state.network.is_none() && !state.has_had_rules {
        return Err(CloudError::refused(
            format!(
                "the nodes' machines show no VPC network that all of them are in, and project {} has no firewall rule of a preparation: \
                 those of a network that another project shares would stay",
                state.project
            ),
            "give --vpc-name with the network of the cluster's nodes, as projects/PROJECT/global/networks/NAME if another project shares it",
        ));
    }
    let mut plan = Plan::default();
    let prefix = made_for_gateways(&state.infra_id);
    let sets = state.cluster.gateway_sets(&state.infra_id);
    let sets = sets.map(|name| NodeChange::DeleteSet { name: name.to_owned() });
    let in_cluster = sets.chain(state.cluster.fewer_gateways());
    plan.changes.extend(in_cluster.map(|change| Change(Kind::Cluster(change))));
    let is_ours = |instance: &&Instance| instance.is_tagged() && !instance.id.name.starts_with(&prefix);
    for instance in state.instances.values().filter(is_ours) {
        let others = instance.tags.iter().filter(|tag| *tag != GATEWAY_TAG);
        plan.changes.push(tagged(instance, others.cloned().collect()));
    }
    let project = state.network.as_ref().map_or(&state.project, |network| &network.project);
    for name in state.rules.keys() {
        plan.changes.push(Change(Kind::Delete { project: project.clone(), name: name.clone() }));
    }
    Ok(plan)
}

/// Returns the name of a node's machine, which is the node's where Kubernetes has none.
fn instance_name(node: &Node) -> String {
    Id::parse(&node.provider_id).map_or_else(|| node.name.clone(), |id| id.name)
}
