//! OpenShift's sets of machines for gateways.

use serde_json::{Value, json};

use crate::cluster::{Cluster, Node, NodeChange, machine_set, machine_set_name};

/// The flavor of gateways' machines, which is upstream's.
pub const DEFAULT_FLAVOR: &str = "PnTAE.CPU_4_Memory_8192_Disk_50";
/// The tag that upstream's tool gives gateways' servers.
const TAG: &str = "submariner-io-gateway-node";
/// The label with the infrastructure ID.
const INFRA_ID: &str = "machine.openshift.io/cluster-api-cluster";
/// Where the label of a machine's role stands in a set, where its machine's specification, and where its zone in that.
const ROLE: &str = "/spec/template/metadata/labels/machine.openshift.io~1cluster-api-machine-role";
const PROVIDER: &str = "/spec/template/spec/providerSpec/value";
const ZONE: &str = "availabilityZone";

/// Returns the infrastructure ID: the one that is named, or the one that the cluster's sets of machines have.
pub(crate) fn infra_id(named: Option<&str>, cluster: &Cluster) -> Option<String> {
    let sets = cluster.machine_sets.iter().flatten();
    let mut found = sets.filter_map(|set| set["metadata"]["labels"][INFRA_ID].as_str());
    named
        .or(cluster.infra_id.as_deref())
        .or_else(|| found.next())
        .filter(|id| !id.is_empty())
        .map(str::to_owned)
}

/// Returns `true` if a node's machine is of a set for gateways: machines are named after their set.
pub(crate) fn is_of_set(cluster: &Cluster, infra_id: &str, node: &Node) -> bool {
    cluster
        .gateway_sets(infra_id)
        .any(|set| node.name.strip_prefix(set).is_some_and(|suffix| suffix.starts_with('-')))
}

/// Returns how many gateways there are, and will be once all sets have their machines.
pub(crate) fn gateways(cluster: &Cluster, infra_id: &str) -> usize {
    let replicas = |name: &str| {
        let replicas = cluster.machine_set(name).and_then(|set| set["spec"]["replicas"].as_u64());
        replicas.map_or(1, |replicas| usize::try_from(replicas).unwrap_or(usize::MAX))
    };
    let of_sets: usize = cluster.gateway_sets(infra_id).map(replicas).fold(0, usize::saturating_add);
    of_sets.saturating_add(cluster.gateways().filter(|node| !is_of_set(cluster, infra_id, node)).count())
}

/// Returns `true` if the cluster has sets of worker machines, after which gateways' ones can be made.
pub(crate) fn makes_machines(cluster: &Cluster, infra_id: &str) -> bool {
    cluster.worker_set(infra_id).is_some()
}

/// Returns the sets that are to be made for so many more gateways, each after the workers' of a zone and with more
/// security groups: image, networks and disks are
/// the same there. The zone with the fewest gateways comes first.
pub(crate) fn more_sets(
    cluster: &Cluster,
    infra_id: &str,
    flavor: &str,
    groups: &[&str],
    missing: usize,
) -> Vec<NodeChange> {
    let mut zones = zones(cluster, infra_id);
    let mut taken: Vec<String> = cluster.gateway_sets(infra_id).map(str::to_owned).collect();
    let mut changes = Vec::new();
    let mut index = 0_usize;
    // Each set that is there keeps at most one number from being the next.
    while changes.len() < missing.min(MOST_SETS) {
        let number = index.to_string();
        index += 1;
        if taken.contains(&machine_set_name(infra_id, &number)) {
            continue;
        }
        let Some(zone) = zones.iter_mut().min_by_key(|zone| zone.gateways) else { break };
        zone.gateways += 1;
        taken.push(machine_set_name(infra_id, &number));
        let provider = provider(zone.template, flavor, groups);
        changes.push(NodeChange::ApplySet(machine_set(infra_id, &number, &provider)));
    }
    changes
}

/// Returns a set for gateways with another flavor, and all else of its specification as it is, its replicas too; `None` if its
/// machines are of this flavor, or if it describes none.
pub(crate) fn retyped(found: &Value, infra_id: &str, flavor: &str) -> Option<Value> {
    let prefix = machine_set_name(infra_id, "");
    let suffix = found["metadata"]["name"].as_str()?.strip_prefix(&prefix)?;
    let mut spec = found.get("spec")?.clone();
    let provider = spec.pointer_mut("/template/spec/providerSpec/value")?.as_object_mut()?;
    let before = provider.insert("flavor".to_owned(), json!(flavor));
    if before.is_some_and(|before| before == flavor) {
        return None;
    }
    // What is applied leaves alone what it does not name: of the metadata, names and label are enough.
    let mut set = machine_set(infra_id, suffix, &Value::Null);
    set.as_object_mut()?.insert("spec".to_owned(), spec);
    Some(set)
}

/// Ours: how many sets one run makes at most.
const MOST_SETS: usize = 100;

/// A zone with worker machines.
#[derive(Debug)]
struct Zone<'c> {
    name: String,
    /// The specification of its workers' machines.
    template: &'c Value,
    gateways: usize,
}

fn zones<'c>(cluster: &'c Cluster, infra_id: &str) -> Vec<Zone<'c>> {
    let all = cluster.machine_sets.iter().flatten();
    let name = |set: &Value| set["metadata"]["name"].as_str().unwrap_or_default().to_owned();
    let is_gateways = |set: &&Value| cluster.gateway_sets(infra_id).any(|gateways| gateways == name(set));
    let (ours, mut others): (Vec<&Value>, Vec<&Value>) = all.partition(is_gateways);
    others.retain(|set| set.pointer(ROLE).is_some_and(|role| role == "worker"));
    others.sort_by_key(|set| name(set));
    let zone = |set: &Value| {
        set.pointer(PROVIDER).and_then(|provider| provider[ZONE].as_str()).unwrap_or_default().to_owned()
    };
    let mut zones: Vec<Zone<'c>> = Vec::new();
    for set in others {
        let (zone_name, Some(template)) = (zone(set), set.pointer(PROVIDER)) else { continue };
        if zones.iter().all(|other| other.name != zone_name) {
            zones.push(Zone { name: zone_name, template, gateways: 0 });
        }
    }
    let nodes = cluster.gateways().filter(|node| !is_of_set(cluster, infra_id, node));
    let used = nodes.map(|node| node.zone.clone()).chain(ours.into_iter().map(zone));
    for used in used {
        if let Some(zone) = zones.iter_mut().find(|zone| zone.name == used) {
            zone.gateways += 1;
        }
    }
    zones
}

/// Returns the specification of a gateway's machine, after a worker's.
fn provider(template: &Value, flavor: &str, more: &[&str]) -> Value {
    let mut provider = template.clone();
    let mut groups = provider["securityGroups"].as_array().cloned().unwrap_or_default();
    for name in more {
        if groups.iter().all(|group| group["name"] != *name) {
            groups.push(json!({"filter": {}, "name": name}));
        }
    }
    let mut tags = provider["tags"].as_array().cloned().unwrap_or_default();
    if !tags.contains(&json!(TAG)) {
        tags.push(json!(TAG));
    }
    if let Some(fields) = provider.as_object_mut() {
        fields.insert("flavor".to_owned(), json!(flavor));
        fields.insert("securityGroups".to_owned(), json!(groups));
        fields.insert("tags".to_owned(), json!(tags));
    }
    provider
}
