//! What there is in Azure and in the cluster of what is prepared.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;
use trieste_control::https::escaped;
use trieste_deploy::Server;

use super::arm::{Arm, COMPUTE_SKUS, NETWORK, SCALE_SET_INTERFACES};
use super::interface;
use super::names::{
    ADDRESSES, GROUPS, INTERFACES, Machine, PREPARED_FOR, gateways_group, id, is_of_set, key, last,
    nodes_group, part,
};
use crate::CloudError;
use crate::cluster::{Cluster, Node};
use crate::exchange::Exchange;

/// What somebody has chosen; the rest is read from the cluster.
#[derive(Debug, Clone, Default)]
pub(super) struct Chosen {
    pub(super) infra_id: Option<String>,
    pub(super) region: Option<String>,
    pub(super) resource_group: Option<String>,
    pub(super) subscription: String,
    pub(super) air_gapped: bool,
}

/// Where in Azure the cluster is.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Scope {
    pub(super) subscription: String,
    pub(super) resource_group: String,
    pub(super) region: String,
    /// What names of what is made begin with.
    pub(super) infra_id: String,
    /// Whether gateways get no public addresses.
    pub(super) air_gapped: bool,
}

/// An interface of a node, or of a machine that is no node yet.
#[derive(Debug, Clone, Default)]
pub(super) struct Nic {
    /// As the service has it.
    pub(super) found: Value,
    /// The node whose machine has it.
    pub(super) node: Option<String>,
    /// The scale set of whose instance it is: such an interface cannot be changed by itself.
    pub(super) scale_set: Option<String>,
    /// The keys of the groups of its subnets.
    pub(super) subnet_groups: BTreeSet<String>,
}

/// What there is.
#[derive(Debug, Clone, Default)]
pub struct State {
    pub(super) cluster: Cluster,
    pub(super) scope: Scope,
    /// Network security groups by key: the nodes', the gateways', and all that guard a node.
    pub(super) groups: BTreeMap<String, Value>,
    pub(super) nics: Vec<Nic>,
    /// The public addresses of the resource group.
    pub(super) addresses: Vec<Value>,
    /// The zones of each size of machines in the region; `None` if it may not be read, or is not needed.
    pub(super) sizes: Option<BTreeMap<String, Vec<String>>>,
}

impl Scope {
    /// Returns the ID of the gateways' group.
    pub(super) fn gateways_group(&self) -> String {
        self.id(GROUPS, &gateways_group(&self.infra_id))
    }

    /// Returns the ID of the group that OpenShift's installer makes for all nodes.
    pub(super) fn nodes_group(&self) -> String {
        self.id(GROUPS, &nodes_group(&self.infra_id))
    }

    /// Returns the ID of something in the resource group.
    pub(super) fn id(&self, type_: &str, name: &str) -> String {
        id(&self.subscription, &self.resource_group, type_, name)
    }

    /// Finds out where a cluster is: what was chosen, what its sets of machines have, what its nodes have, in this order.
    ///
    /// # Errors
    /// [`CloudError::Refused`] if something cannot be found out.
    pub(super) fn of(chosen: &Chosen, cluster: &Cluster) -> Result<Self, CloudError> {
        let sets = || cluster.machine_sets.iter().flatten();
        let of_sets = |pointer: &str| {
            sets()
                .filter_map(|set| set.pointer(pointer)?.as_str())
                .find(|text| !text.is_empty())
                .map(str::to_owned)
        };
        let of_provider = |field: &str| of_sets(&format!("/spec/template/spec/providerSpec/value/{field}"));
        let machine = cluster.nodes.iter().find_map(|node| Machine::of(&node.provider_id));
        let of_nodes = || machine.as_ref().map(|machine| machine.resource_group.clone());
        let set_id = of_sets("/metadata/labels/machine.openshift.io~1cluster-api-cluster");
        let infra_id = chosen.infra_id.clone().or_else(|| cluster.infra_id.clone()).or(set_id);
        let infra_id = infra_id.ok_or_else(|| unnamed(cluster))?;
        let resource_group = chosen
            .resource_group
            .clone()
            .or_else(|| of_provider("resourceGroup"))
            .or_else(|| of_provider("networkResourceGroup"))
            .or_else(of_nodes)
            .unwrap_or_else(|| format!("{infra_id}-rg"));
        let of_labels =
            || cluster.nodes.iter().map(|node| &node.region).find(|region| !region.is_empty()).cloned();
        let region = chosen.region.clone().or_else(|| of_provider("location")).or_else(of_labels);
        let of_machine =
            || machine.as_ref().and_then(|machine| part(&machine.id, "subscriptions")).map(str::to_owned);
        let subscription = Some(chosen.subscription.clone()).filter(|id| !id.is_empty()).or_else(of_machine);
        let scope = Self {
            subscription: subscription.ok_or_else(|| unclear("subscription", "credentials with one"))?,
            region: region.ok_or_else(|| unclear("region", "--region"))?,
            infra_id,
            resource_group,
            air_gapped: chosen.air_gapped,
        };
        scope.check()
    }

    /// Refuses names that could lead to another path, or be none of a security group's.
    fn check(self) -> Result<Self, CloudError> {
        let is_fine = |text: &str, more: &str| {
            !text.is_empty() && text.chars().all(|c| c.is_ascii_alphanumeric() || more.contains(c))
        };
        let names = [
            ("subscription", &self.subscription, "-"),
            ("resource group", &self.resource_group, "-_.()"),
            ("region", &self.region, "-"),
            ("infra ID", &self.infra_id, "-_."),
        ];
        if let Some((what, text, _)) = names.into_iter().find(|(_, text, more)| !is_fine(text, more)) {
            return Err(CloudError::refused(
                format!("`{text}` can be no {what} of Azure's"),
                "name the right one (--infra-id, --region)",
            ));
        }
        if gateways_group(&self.infra_id).len() > 80 {
            return Err(CloudError::refused(
                format!("`{}` is too long for the name of a network security group", self.infra_id),
                "name the cluster shorter with --infra-id",
            ));
        }
        Ok(self)
    }
}

/// Returns the error for a cluster that nobody has named: a name of its resource group would be that of every cluster in it.
fn unnamed(cluster: &Cluster) -> CloudError {
    let next = match cluster.is_openshift() {
        true => "give --infra-id, or --ocp-metadata with the installer's metadata.json",
        false => {
            "give --infra-id: a short name for the cluster, such as its name in AKS, that no other cluster of the resource group has; \
             the gateways' security group is named by it, and the clean-up finds by it what was prepared"
        }
    };
    CloudError::refused("the cluster does not show its infrastructure ID", next)
}

fn unclear(what: &str, flag: &str) -> CloudError {
    CloudError::refused(
        format!("neither the flags nor the cluster's nodes name a {what} of Azure's"),
        format!("give {flag}"),
    )
}

/// Reads what there is.
///
/// # Errors
/// [`CloudError`].
pub(super) async fn observe<E: Exchange>(
    arm: &Arm<E>,
    server: &Server,
    chosen: &Chosen,
) -> Result<State, CloudError> {
    let cluster = Cluster::read(server).await?;
    let scope = Scope::of(chosen, &cluster)?;
    let sizes = match cluster.is_openshift() {
        true => sizes(arm, &scope).await?,
        false => None,
    };
    let mut state = State { cluster, scope, sizes, ..State::default() };
    read_nics(arm, &mut state).await?;
    read_groups(arm, &mut state).await?;
    let path = state.scope.id(ADDRESSES, "");
    let path = path.trim_end_matches('/');
    state.addresses = arm.list(path, NETWORK, "", "reading public addresses").await?;
    Ok(state)
}

/// Reads the interfaces of all nodes' machines, and those of the resource group that are in the gateways' group and belong to no
/// machine, or to one of the cluster's sets: another cluster's are left to it.
async fn read_nics<E: Exchange>(arm: &Arm<E>, state: &mut State) -> Result<(), CloudError> {
    let scope = &state.scope;
    let mut resource_groups = BTreeMap::from([(key(&scope.resource_group), scope.resource_group.clone())]);
    let mut scale_sets = BTreeMap::new();
    let mut nodes = BTreeMap::new();
    for node in &state.cluster.nodes {
        let Some(machine) = Machine::of(&node.provider_id) else { continue };
        nodes.insert(key(&machine.id), node.name.clone());
        match machine.scale_set {
            Some(set) => drop(scale_sets.insert(key(&set), set)),
            None => drop(resource_groups.insert(key(&machine.resource_group), machine.resource_group)),
        }
    }
    let gateways = key(&scope.gateways_group());
    let mut nics = Vec::new();
    for resource_group in resource_groups.values() {
        let path = id(&scope.subscription, resource_group, INTERFACES, "");
        let path = path.trim_end_matches('/');
        for found in arm.list(path, NETWORK, "", "reading network interfaces").await? {
            let node = interface::machine(&found).and_then(|machine| nodes.get(&key(machine)).cloned());
            let is_prepared = interface::group(&found).is_some_and(|group| key(group) == gateways)
                || found["tags"][PREPARED_FOR] == scope.infra_id.as_str();
            let is_ours =
                || interface::machine(&found).is_none_or(|machine| is_of_sets(state, last(machine)));
            if node.is_some() || is_prepared && is_ours() {
                nics.push(Nic { found, node, ..Nic::default() });
            }
        }
    }
    for scale_set in scale_sets.into_values() {
        let path = format!("{scale_set}/networkInterfaces");
        let action = "reading network interfaces of a scale set";
        for found in arm.list(&path, SCALE_SET_INTERFACES, "", action).await? {
            let node = interface::machine(&found).and_then(|machine| nodes.get(&key(machine)).cloned());
            if node.is_some() {
                nics.push(Nic { found, node, scale_set: Some(scale_set.clone()), ..Nic::default() });
            }
        }
    }
    nics.sort_by_key(|nic| key(interface::id(&nic.found)));
    state.nics = nics;
    Ok(())
}

/// Returns `true` if a machine's name is one that the cluster's sets give.
fn is_of_sets(state: &State, machine: &str) -> bool {
    let sets = state.cluster.machine_sets.iter().flatten();
    let names = sets.filter_map(|set| set["metadata"]["name"].as_str());
    state.cluster.is_openshift() && is_of_set(&state.scope.infra_id, names, machine)
}

/// Reads the groups that guard nodes, by their interfaces or their subnets, and those with names of a preparation.
async fn read_groups<E: Exchange>(arm: &Arm<E>, state: &mut State) -> Result<(), CloudError> {
    let mut of_subnets: BTreeMap<String, Option<String>> = BTreeMap::new();
    let mut wanted = BTreeMap::new();
    let scope = &state.scope;
    for id in [scope.nodes_group(), scope.gateways_group()] {
        wanted.insert(key(&id), id);
    }
    for nic in &mut state.nics {
        for subnet in interface::subnets(&nic.found) {
            let group = match of_subnets.entry(key(subnet)) {
                Entry::Occupied(read) => read.into_mut(),
                Entry::Vacant(unread) => {
                    let found = arm.find(subnet, NETWORK, "reading a subnet").await?.unwrap_or_default();
                    let group = found.pointer("/properties/networkSecurityGroup/id").and_then(Value::as_str);
                    unread.insert(group.map(str::to_owned))
                }
            };
            if let Some(group) = group {
                nic.subnet_groups.insert(key(group));
                wanted.insert(key(group), group.clone());
            }
        }
        if let Some(group) = interface::group(&nic.found) {
            wanted.insert(key(group), group.to_owned());
        }
    }
    for (key, id) in wanted {
        if let Some(found) = arm.find(&id, NETWORK, "reading a network security group").await? {
            state.groups.insert(key, found);
        }
    }
    Ok(())
}

/// Reads which sizes of machines there are, and in which zones ("Resource SKUs - List").
async fn sizes<E: Exchange>(
    arm: &Arm<E>,
    scope: &Scope,
) -> Result<Option<BTreeMap<String, Vec<String>>>, CloudError> {
    let path = format!("/subscriptions/{}/providers/Microsoft.Compute/skus", scope.subscription);
    let filter = format!("&$filter={}", escaped(&format!("location eq '{}'", scope.region)));
    match arm.list(&path, COMPUTE_SKUS, &filter, "reading sizes of machines").await {
        Ok(found) => Ok(Some(found.iter().filter_map(|size| zones(size, &scope.region)).collect())),
        Err(error) if error.has_status(403) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Returns a size with its zones that are not closed to the subscription; `None` if all of the region is.
fn zones(size: &Value, region: &str) -> Option<(String, Vec<String>)> {
    if !size["resourceType"].as_str()?.eq_ignore_ascii_case("virtualMachines") {
        return None;
    }
    let restrictions = || size["restrictions"].as_array().into_iter().flatten();
    if restrictions().any(|restriction| restriction["type"] == "Location") {
        return None;
    }
    let texts = |value: &Value| -> BTreeSet<String> {
        value.as_array().into_iter().flatten().filter_map(|zone| zone.as_str().map(str::to_owned)).collect()
    };
    let closed: BTreeSet<String> = restrictions()
        .filter(|restriction| restriction["type"] == "Zone")
        .flat_map(|restriction| texts(&restriction["restrictionInfo"]["zones"]))
        .collect();
    let is_here =
        |info: &&Value| info["location"].as_str().is_some_and(|there| there.eq_ignore_ascii_case(region));
    let infos = size["locationInfo"].as_array()?;
    let info = infos.iter().find(is_here)?;
    let open = texts(&info["zones"]).difference(&closed).cloned().collect();
    Some((size["name"].as_str()?.to_owned(), open))
}

impl State {
    /// Returns the first interface of a node.
    pub(super) fn nic_of(&self, node: &str) -> Option<&Nic> {
        let own = || self.nics.iter().filter(|nic| nic.node.as_deref() == Some(node));
        own().find(|nic| interface::is_first(&nic.found)).or_else(|| own().next())
    }

    /// Returns a node by its name.
    pub(super) fn node(&self, name: &str) -> Option<&Node> {
        self.cluster.nodes.iter().find(|node| node.name == name)
    }
}
