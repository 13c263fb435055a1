//! From what there is to what is wanted.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use serde_json::Value;

use super::change::{AzureChange, InterfaceChange};
use super::interface::{self, Edit, Gets};
use super::machines;
use super::names::{ADDRESSES, PREPARED_FOR, address, address_of_interface, key, last};
use super::security::{self, RuleChange, WantedRule};
use super::state::{Nic, State};
use crate::CloudError;
use crate::cluster::NodeChange;
use crate::provider::{Goal, Plan};
use crate::rules::Wanted;

/// Plans what is missing for a goal.
///
/// # Errors
/// [`CloudError::Refused`] if the goal cannot be had here.
pub(super) fn plan(goal: &Goal, state: &State) -> Result<Plan<AzureChange>, CloudError> {
    match goal {
        Goal::Prepare(wanted) => Preparation::new(wanted, state)?.plan(goal),
        Goal::CleanUp => clean_up(state),
    }
}

/// A preparation that is being planned.
struct Preparation<'s> {
    wanted: &'s Wanted,
    state: &'s State,
    /// The nodes that are gateways, or will be.
    gateways: BTreeSet<String>,
    in_cluster: Vec<NodeChange>,
    has_sets: bool,
    is_growing: bool,
    plan: Plan<AzureChange>,
}

impl<'s> Preparation<'s> {
    fn new(wanted: &'s Wanted, state: &'s State) -> Result<Self, CloudError> {
        let mut gateways: BTreeSet<String> = state.cluster.gateways().map(|node| node.name.clone()).collect();
        let mut plan = Plan::default();
        let (mut in_cluster, mut has_sets, mut is_growing) = (Vec::new(), false, false);
        if state.cluster.is_openshift() {
            let sets = machines::plan(wanted, state)?;
            (in_cluster, plan.remarks, has_sets, is_growing) =
                (sets.changes, sets.remarks, sets.has_any, sets.is_growing);
        } else {
            if wanted.gateways > 0 && gateways.len() > wanted.gateways {
                plan.remarks.push(machines::fewer(wanted.gateways, gateways.len()));
            }
            for change in state.cluster.more_gateways(wanted.gateways) {
                gateways.extend(change.labels().map(str::to_owned));
                in_cluster.push(change);
            }
            if gateways.len() < wanted.gateways {
                let there = gateways.len();
                plan.remarks.push(format!(
                    "{} gateways are wanted, and the cluster has nodes for {there}",
                    wanted.gateways
                ));
            }
        }
        Ok(Self { wanted, state, gateways, in_cluster, has_sets, is_growing, plan })
    }

    fn plan(mut self, goal: &Goal) -> Result<Plan<AzureChange>, CloudError> {
        self.nodes_groups()?;
        self.gateways_group()?;
        let edits = self.interfaces();
        let used = self.state.addresses_after(&edits);
        self.plan.changes.extend(changes(self.state, &edits));
        self.plan.changes.extend(self.state.unused_addresses(&used));
        if self.wanted.load_balancer {
            remove_gateways_group(goal, self.state, &edits, &mut self.plan)?;
        }
        self.plan.changes.extend(self.in_cluster.drain(..).map(AzureChange::Node));
        Ok(self.plan)
    }

    /// Plans the rules of all groups that guard nodes: for what passes inside, and where they guard a gateway, for its cables.
    fn nodes_groups(&mut self) -> Result<(), CloudError> {
        let own = key(&self.state.scope.gateways_group());
        let groups = self.state.groups.iter().filter(|(key, _)| **key != own);
        let mut is_guarded = false;
        for (key, group) in groups {
            is_guarded = true;
            let mut wanted = security::inside(self.wanted);
            if self.wanted.load_balancer {
                wanted.extend(security::cables(self.wanted, None));
            } else {
                wanted.extend(security::cables(self.wanted, Some(&self.guarded_by(key))));
            }
            self.plan.changes.extend(rule_changes(group, &wanted)?);
            let name = group["name"].as_str().unwrap_or_default();
            for refusing in security::refusing(group, &wanted) {
                self.plan.remarks.push(format!(
                    "rule {refusing} of {name} refuses what is let pass after it: give it a higher number than these rules have"
                ));
            }
        }
        if is_guarded {
            return Ok(());
        }
        let name = self.state.scope.nodes_group();
        if self.state.cluster.is_openshift() {
            return Err(CloudError::refused(
                format!(
                    "there is no network security group {} in {}",
                    last(&name),
                    self.state.scope.resource_group
                ),
                "check --infra-id: oc get infrastructure cluster -o jsonpath={.status.infrastructureName} prints it",
            ));
        }
        self.plan.remarks.push(
            "no network security group guards the nodes, and within the virtual network everything passes"
                .to_owned(),
        );
        Ok(())
    }

    /// Returns the addresses of the gateways that a group guards, other than the gateways' own.
    fn guarded_by(&self, group: &str) -> BTreeSet<IpAddr> {
        let nics = self.gateways.iter().filter_map(|node| self.state.nic_of(node));
        let is_guarded = |nic: &&Nic| {
            nic.subnet_groups.contains(group)
                || interface::group(&nic.found).is_some_and(|own| key(own) == group)
        };
        nics.filter(is_guarded).flat_map(|nic| interface::private_addresses(&nic.found)).collect()
    }

    /// Plans the group of gateways whose interfaces have none of their own.
    fn gateways_group(&mut self) -> Result<(), CloudError> {
        let scope = &self.state.scope;
        let id = scope.gateways_group();
        if self.wanted.load_balancer {
            return Ok(());
        }
        let wanted = security::cables(self.wanted, None);
        if let Some(group) = self.state.groups.get(&key(&id)) {
            self.plan.changes.extend(rule_changes(group, &wanted)?);
            return Ok(());
        }
        let is_free = |nic: &Nic| nic.scale_set.is_none() && interface::group(&nic.found).is_none();
        let is_needed = self.gateways.iter().any(|node| self.state.nic_of(node).is_some_and(is_free));
        if is_needed || self.has_sets {
            self.plan.changes.push(AzureChange::CreateGroup {
                id,
                region: scope.region.clone(),
                infra_id: scope.infra_id.clone(),
                rules: security::all(&wanted),
            });
        }
        Ok(())
    }

    /// Plans the interfaces of gateways, those of nodes that are gateways no more, and what they need. Returns what each is to be, by
    /// its number.
    fn interfaces(&mut self) -> BTreeMap<usize, Edit> {
        let mut edits = BTreeMap::new();
        let state = self.state;
        for (at, nic) in state.nics.iter().enumerate() {
            let Some(node) = nic.node.as_deref() else { continue };
            let is_gateway = self.gateways.contains(node)
                && state.nic_of(node).is_some_and(|first| std::ptr::eq(first, nic));
            if nic.scale_set.is_none()
                && (is_gateway || interface::is_tagged(&nic.found) || self.wanted.load_balancer)
            {
                let mut edit = state.edit(nic);
                if is_gateway {
                    let address = self.public_address(node, &edit.restored(&nic.found));
                    edit.gets = Some(Gets { group: !self.wanted.load_balancer, address });
                }
                edits.insert(at, edit);
            }
        }
        if self.wanted.load_balancer {
            let own = key(&state.scope.gateways_group());
            let in_group = |nic: &Nic| interface::group(&nic.found).is_some_and(|group| key(group) == own);
            for (at, nic) in state.nics.iter().enumerate() {
                if nic.scale_set.is_none() && in_group(nic) {
                    edits.entry(at).or_insert_with(|| state.edit(nic));
                }
            }
        }
        self.remark_on_machines();
        edits
    }

    /// Returns the public address that a gateway is to have of a preparation, and plans that it is made.
    fn public_address(&mut self, node: &str, before: &Value) -> Option<String> {
        let scope = &self.state.scope;
        if scope.air_gapped || self.wanted.load_balancer || interface::address(before).is_some() {
            return None;
        }
        let name = address(node);
        let same = |found: &&Value| found["name"].as_str().is_some_and(|own| own.eq_ignore_ascii_case(&name));
        let Some(found) = self.state.addresses.iter().find(same) else {
            let id = scope.id(ADDRESSES, &name);
            let (region, infra_id) = (scope.region.clone(), scope.infra_id.clone());
            self.plan.changes.push(AzureChange::CreateAddress { id: id.clone(), region, infra_id });
            return Some(id);
        };
        let own = key(&format!("{}/", interface::id(before)));
        if user(found).is_none_or(|user| key(user).starts_with(&own)) {
            return found["id"].as_str().map(str::to_owned);
        }
        self.plan.remarks.push(format!(
            "public IP address {name} belongs to something else: give node {node} a public address yourself"
        ));
        None
    }

    fn remark_on_machines(&mut self) {
        let remarks = &mut self.plan.remarks;
        for node in &self.gateways {
            let Some(nic) = self.state.nic_of(node) else {
                let provider_id =
                    self.state.node(node).map(|node| node.provider_id.as_str()).unwrap_or_default();
                remarks.push(format!(
                    "no network interface was found for gateway {node} (provider ID `{provider_id}`): see to its rules and public address yourself"
                ));
                continue;
            };
            if let Some(set) = &nic.scale_set {
                let set = last(set);
                remarks.push(format!(
                    "gateway {node} is an instance of scale set {set}, whose interfaces cannot be changed one by one: use a node pool \
                     with public addresses (az aks nodepool add --enable-node-public-ip) unless a load balancer is in front, and where \
                     other clusters' packets are routed to the node, set enableIPForwarding in the scale set's model (az vmss update)"
                ));
            }
        }
        if self.is_growing && !self.wanted.load_balancer {
            remarks.push(
                "a gateway's machine is no node yet: repeat the command when it is, so that the groups of its subnet let cables pass to it"
                    .to_owned(),
            );
        }
    }
}

/// Plans that nothing of a preparation is left.
fn clean_up(state: &State) -> Result<Plan<AzureChange>, CloudError> {
    let mut plan = Plan::default();
    let in_cluster = state.cluster.fewer_gateways().into_iter().chain(machines::removal(state));
    plan.changes.extend(in_cluster.map(AzureChange::Node));
    let of_nics = state.nics.iter().enumerate().filter(|(_, nic)| nic.scale_set.is_none());
    let edits: BTreeMap<usize, Edit> = of_nics.map(|(at, nic)| (at, state.edit(nic))).collect();
    plan.changes.extend(changes(state, &edits));
    let used = state.addresses_after(&edits);
    plan.changes.extend(state.unused_addresses(&used));
    let own = key(&state.scope.gateways_group());
    for (_, group) in state.groups.iter().filter(|(key, _)| **key != own) {
        plan.changes.extend(rule_changes(group, &[])?);
    }
    remove_gateways_group(&Goal::CleanUp, state, &edits, &mut plan)?;
    Ok(plan)
}

/// Plans that the gateways' group goes, or where others use it, that its rules do.
fn remove_gateways_group(
    goal: &Goal,
    state: &State,
    edits: &BTreeMap<usize, Edit>,
    plan: &mut Plan<AzureChange>,
) -> Result<(), CloudError> {
    let id = state.scope.gateways_group();
    let Some(group) = state.groups.get(&key(&id)) else { return Ok(()) };
    let edited: BTreeSet<String> =
        edits.keys().filter_map(|at| state.nics.get(*at)).map(|nic| key(interface::id(&nic.found))).collect();
    let ids = |field: &str| {
        let all = group["properties"][field].as_array().into_iter().flatten();
        all.filter_map(|one| one["id"].as_str().map(key)).collect::<Vec<_>>()
    };
    let is_used =
        !ids("subnets").is_empty() || ids("networkInterfaces").iter().any(|id| !edited.contains(id));
    if !is_used && !security::has_others(group) && !machines::needs_group(state, goal) {
        plan.changes.push(AzureChange::DeleteGroup { id });
        return Ok(());
    }
    plan.changes.extend(rule_changes(group, &[])?);
    plan.remarks.push(format!(
        "network security group {} stays without its rules for cables: others use it, or have put rules into it",
        last(&id)
    ));
    Ok(())
}

/// Returns the changes of interfaces that are not yet as they are to be.
fn changes(state: &State, edits: &BTreeMap<usize, Edit>) -> Vec<AzureChange> {
    let of_nics = edits.iter().filter_map(|(at, edit)| Some((state.nics.get(*at)?, edit)));
    let change = |(nic, edit): (&Nic, &Edit)| {
        let after = edit.edited(&nic.found);
        let change = InterfaceChange {
            id: interface::id(&nic.found).to_owned(),
            edit: edit.clone(),
            joins: interface::joins(&after),
        };
        (after != nic.found).then_some(AzureChange::SetInterface(change))
    };
    of_nics.filter_map(change).collect()
}

fn rule_changes(group: &Value, wanted: &[WantedRule]) -> Result<Vec<AzureChange>, CloudError> {
    let id = group["id"].as_str().unwrap_or_default();
    let changes = security::missing(group, wanted).ok_or_else(|| {
        CloudError::refused(
            format!("network security group {} has no priority left for another rule", last(id)),
            "remove rules that nobody needs any more",
        )
    })?;
    let change = |change| match change {
        RuleChange::Put(rule) => AzureChange::PutRule { group: id.to_owned(), rule },
        RuleChange::Delete(name) => AzureChange::DeleteRule { group: id.to_owned(), name },
    };
    Ok(changes.into_iter().map(change).collect())
}

/// Returns the ID of the configuration that has a public address.
fn user(address: &Value) -> Option<&str> {
    address.pointer("/properties/ipConfiguration/id").and_then(Value::as_str)
}

impl State {
    /// Returns the change that makes an interface what it was before any preparation.
    fn edit(&self, nic: &Nic) -> Edit {
        let of_interface = || address_of_interface(last(interface::id(&nic.found)));
        Edit {
            infra_id: self.scope.infra_id.clone(),
            group: self.scope.gateways_group(),
            address: nic.node.as_deref().map_or_else(of_interface, address),
            gets: None,
        }
    }

    /// Returns the keys of the public addresses that are in use once interfaces are changed, as far as is seen.
    fn addresses_after(&self, edits: &BTreeMap<usize, Edit>) -> BTreeSet<String> {
        let mut used = BTreeSet::new();
        for (at, nic) in self.nics.iter().enumerate() {
            let after = edits.get(&at).map_or_else(|| nic.found.clone(), |edit| edit.edited(&nic.found));
            used.extend(interface::address(&after).map(key));
        }
        let ours: BTreeSet<String> = self.nics.iter().map(|nic| key(interface::id(&nic.found))).collect();
        // What something else uses, such as a load balancer, stays too.
        let is_ours =
            |user: &str| key(user).split_once("/ipconfigurations/").is_some_and(|(id, _)| ours.contains(id));
        for address in &self.addresses {
            if user(address).is_some_and(|user| !is_ours(user)) {
                used.extend(address["id"].as_str().map(key));
            }
        }
        used
    }

    /// Returns the removal of the public addresses that a preparation, upstream's included, has made and nothing uses.
    fn unused_addresses(&self, used: &BTreeSet<String>) -> Vec<AzureChange> {
        let all: BTreeSet<&str> = self.own_addresses().chain(self.upstreams_addresses()).collect();
        let unused = all.into_iter().filter(|id| !used.contains(&key(id)));
        unused.map(|id| AzureChange::DeleteAddress { id: id.to_owned() }).collect()
    }

    /// Returns the IDs of the public addresses that a preparation has made for this cluster.
    fn own_addresses(&self) -> impl Iterator<Item = &str> {
        let is_own = |address: &&Value| address["tags"][PREPARED_FOR] == self.scope.infra_id.as_str();
        self.addresses.iter().filter(is_own).filter_map(|address| address["id"].as_str())
    }

    /// Returns the IDs of those that upstream's tool has made, which only their names show, as long as its group is there.
    fn upstreams_addresses(&self) -> impl Iterator<Item = &str> {
        let group = self.groups.get(&key(&self.scope.gateways_group()));
        let is_upstreams = group.is_some_and(|group| group["tags"][PREPARED_FOR].is_null());
        let of_nodes = self.cluster.nodes.iter().map(|node| address(&node.name));
        let sets = machines::removal(self).into_iter().filter_map(|change| match change {
            NodeChange::DeleteSet { name } => Some(address(&name)),
            NodeChange::Label { .. } | NodeChange::Unlabel { .. } | NodeChange::ApplySet(_) => None,
        });
        let names: BTreeSet<String> = of_nodes.chain(sets).map(|name| key(&name)).collect();
        let is_named = move |address: &&Value| {
            is_upstreams && address["name"].as_str().is_some_and(|name| names.contains(&key(name)))
        };
        self.addresses.iter().filter(is_named).filter_map(|address| address["id"].as_str())
    }
}
