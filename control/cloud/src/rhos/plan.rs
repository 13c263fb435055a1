//! From what there is to what is wanted.

use super::change::CloudChange;
use super::group::{Family, Group, GroupRef, GroupRule, Names, Remote};
use super::machines;
use super::port::{Port, server_id};
use crate::cluster::{Cluster, Node, NodeChange};
use crate::provider::{Change as _, Goal, Plan};
use crate::rules::{From, To, Wanted};

/// What there is.
#[derive(Debug, Clone)]
pub struct State {
    /// The infrastructure ID, with which names begin.
    pub infra_id: String,
    /// The cluster.
    pub cluster: Cluster,
    /// The groups with names of [`Names`], by ID.
    pub groups: Vec<Group>,
    /// The ports of nodes, and those that have groups which a preparation makes.
    pub ports: Vec<Port>,
}

/// Plans what is missing for a goal.
pub(crate) fn plan(goal: &Goal, state: &State) -> Plan<CloudChange> {
    let names = Names::of(&state.infra_id);
    match goal {
        Goal::Prepare(wanted) => Preparation { state, wanted, names: &names }.plan(),
        Goal::CleanUp => Plan { changes: clean_up(state, &names), remarks: Vec::new() },
    }
}

impl State {
    fn group(&self, name: &str) -> Option<&Group> {
        self.groups.iter().find(|group| group.name == name)
    }

    fn reference(&self, name: &str) -> GroupRef {
        self.group(name).map_or_else(|| GroupRef { name: name.to_owned(), id: None }, Group::reference)
    }

    fn ports_of<'s>(&'s self, node: &'s Node) -> impl Iterator<Item = &'s Port> {
        let server = server_id(&node.provider_id);
        self.ports.iter().filter(move |port| server.is_some_and(|server| port.server == server))
    }

    fn owner(&self, port: &Port) -> String {
        let is_owner = |node: &&Node| server_id(&node.provider_id) == Some(port.server.as_str());
        match self.cluster.nodes.iter().find(is_owner) {
            Some(node) => format!("node {}", node.name),
            None if port.server.is_empty() => "no server".to_owned(),
            None => format!("server {}", port.server),
        }
    }

    /// Returns the families of the nodes' addresses; IPv4 if none are seen.
    fn families(&self) -> Vec<Family> {
        let ports = self.cluster.nodes.iter().flat_map(|node| self.ports_of(node));
        let mut families: Vec<Family> = ports.flat_map(|port| port.families.iter().copied()).collect();
        families.sort();
        families.dedup();
        if families.is_empty() { vec![Family::V4] } else { families }
    }
}

/// A preparation.
struct Preparation<'p> {
    state: &'p State,
    wanted: &'p Wanted,
    names: &'p Names,
}

impl Preparation<'_> {
    fn plan(&self) -> Plan<CloudChange> {
        let rules = self.rules(&self.homes());
        let mut groups = vec![self.names.gateways.clone()];
        groups.extend(rules.iter().map(|(group, _)| group.name.clone()));
        groups.sort();
        groups.dedup();
        let has_internal = groups.contains(&self.names.internal);
        let (nodes, missing) = self.nodes(has_internal);
        let gateways = self.gateways(&nodes);
        let absent = groups.iter().filter(|name| self.state.group(name).is_none());
        let mut changes: Vec<CloudChange> =
            absent.map(|name| CloudChange::CreateGroup { name: name.clone() }).collect();
        let there = |group: &GroupRef, rule: &GroupRule| {
            let found = self.state.group(&group.name).into_iter().flat_map(|group| &group.rules);
            found.filter_map(|found| found.rule.as_ref()).any(|found| found.equals(rule))
        };
        for (group, rule) in rules.iter().filter(|(group, rule)| !there(group, rule)) {
            changes.push(CloudChange::CreateRule { group: group.clone(), rule: rule.clone() });
        }
        changes.extend(self.attachments(&gateways, has_internal));
        let remarks = self.remarks(&nodes, &gateways, missing);
        // A node that is labelled before its port lets cables pass would be one that nobody reaches.
        changes.extend(nodes.into_iter().map(CloudChange::Cluster));
        let waits = changes.iter().any(CloudChange::waits);
        changes.extend(self.removals(&rules, &gateways, waits));
        Plan { changes, remarks }
    }

    /// Returns the groups in which rules for all nodes stand: the ones that OpenShift's installer gives them, so that machines which
    /// come later are in it. Where nodes have none of these, or upstream's tool has made its own group for that, it is that one.
    fn homes(&self) -> Vec<GroupRef> {
        let own = || vec![self.state.reference(&self.names.internal)];
        let installed: Vec<&Group> =
            self.names.nodes.iter().filter_map(|name| self.state.group(name)).collect();
        let ports = self.state.cluster.nodes.iter().flat_map(|node| self.state.ports_of(node));
        let has_one = |port: &Port| installed.iter().any(|group| port.groups.contains(&group.id));
        let all_have = ports.filter(|port| port.takes_groups).all(has_one);
        if self.state.group(&self.names.internal).is_some() || installed.is_empty() || !all_have {
            return own();
        }
        installed.into_iter().map(Group::reference).collect()
    }

    /// Returns what is to stand in which group.
    fn rules(&self, homes: &[GroupRef]) -> Vec<(GroupRef, GroupRule)> {
        let gateways = [self.state.reference(&self.names.gateways)];
        let families = self.state.families();
        let mut rules: Vec<(GroupRef, GroupRule)> = Vec::new();
        for rule in self.wanted.cables().into_iter().chain(self.wanted.inside()) {
            let groups = match rule.to {
                To::Gateways => &gateways[..],
                To::Nodes => homes,
            };
            let remotes: Vec<(Family, Remote)> = match rule.from {
                From::Network(network) => vec![(Family::of(&network), Remote::Network(network))],
                From::Nodes => {
                    let of_home = |home: &GroupRef| {
                        let remote = Remote::Group(home.clone());
                        families.iter().map(|family| (*family, remote.clone())).collect::<Vec<_>>()
                    };
                    homes.iter().flat_map(of_home).collect()
                }
            };
            for group in groups {
                let made = remotes.iter().map(|(family, remote)| {
                    (
                        group.clone(),
                        GroupRule { family: *family, traffic: rule.traffic, remote: remote.clone() },
                    )
                });
                rules.extend(made);
            }
        }
        rules
    }

    /// Returns the changes of nodes, and by how many gateways they fall short.
    fn nodes(&self, has_internal: bool) -> (Vec<NodeChange>, usize) {
        let Self { state: State { cluster, infra_id, .. }, wanted, names } = self;
        let mut changes = self.retyped_sets();
        let missing = wanted.gateways.saturating_sub(machines::gateways(cluster, infra_id));
        if missing == 0 {
            return (changes, 0);
        }
        let more = match machines::makes_machines(cluster, infra_id) {
            true => {
                let flavor = wanted.instance.as_deref().unwrap_or(machines::DEFAULT_FLAVOR);
                let groups = [&names.gateways, &names.internal];
                let groups: Vec<&str> =
                    groups.into_iter().take(1 + usize::from(has_internal)).map(String::as_str).collect();
                machines::more_sets(cluster, infra_id, flavor, &groups, missing)
            }
            false => cluster.more_gateways(cluster.gateways().count().saturating_add(missing)),
        };
        let short = missing.saturating_sub(more.len());
        changes.extend(more);
        (changes, short)
    }

    /// Returns the sets for gateways whose machines are of another flavor than the one that is chosen, with that one.
    fn retyped_sets(&self) -> Vec<NodeChange> {
        let State { cluster, infra_id, .. } = self.state;
        let Some(flavor) = self.wanted.instance.as_deref().filter(|_| self.wanted.gateways > 0) else {
            return Vec::new();
        };
        let sets = cluster.gateway_sets(infra_id).filter_map(|name| cluster.machine_set(name));
        sets.filter_map(|set| machines::retyped(set, infra_id, flavor)).map(NodeChange::ApplySet).collect()
    }

    /// Returns the nodes that are gateways, will be with these changes, or are made to be.
    fn gateways(&self, changes: &[NodeChange]) -> Vec<&Node> {
        let State { cluster, infra_id, .. } = self.state;
        let is_chosen =
            |node: &Node| changes.iter().any(|change| change.labels() == Some(node.name.as_str()));
        let nodes = cluster.nodes.iter();
        nodes
            .filter(|node| node.is_gateway || is_chosen(node) || machines::is_of_set(cluster, infra_id, node))
            .collect()
    }

    fn attachments(&self, gateways: &[&Node], with_internal: bool) -> Vec<CloudChange> {
        let all: Vec<&Node> = self.state.cluster.nodes.iter().collect();
        let of_gateways = (&self.names.gateways, gateways);
        let of_all = with_internal.then_some((&self.names.internal, &all[..]));
        let mut changes = Vec::new();
        for (name, nodes) in [Some(of_gateways), of_all].into_iter().flatten() {
            let group = self.state.reference(name);
            let lacks = |port: &&Port| {
                port.takes_groups && group.id.as_ref().is_none_or(|id| !port.groups.contains(id))
            };
            for port in nodes.iter().flat_map(|node| self.state.ports_of(node)).filter(lacks) {
                let owner = self.state.owner(port);
                changes.push(CloudChange::Attach { port: port.id.clone(), owner, group: group.clone() });
            }
        }
        changes
    }

    /// Returns what of earlier preparations is not wanted any more: rules of theirs, and the gateways' group at nodes that are none.
    fn removals(&self, rules: &[(GroupRef, GroupRule)], gateways: &[&Node], waits: bool) -> Vec<CloudChange> {
        let mut changes = Vec::new();
        for group in &self.state.groups {
            let wanted: Vec<&GroupRule> = rules
                .iter()
                .filter(|(home, _)| home.id.as_ref() == Some(&group.id))
                .map(|(_, rule)| rule)
                .collect();
            changes.extend(rules_of(group, waits, |found| !wanted.iter().any(|rule| rule.equals(found))));
        }
        let group = self.state.reference(&self.names.gateways);
        let others = self
            .state
            .cluster
            .nodes
            .iter()
            .filter(|node| !gateways.iter().any(|gateway| gateway.name == node.name));
        for port in others.flat_map(|node| self.state.ports_of(node)) {
            if group.id.as_ref().is_some_and(|id| port.groups.contains(id)) {
                changes.push(detach(self.state, port, &group, waits));
            }
        }
        changes
    }

    fn remarks(&self, changes: &[NodeChange], gateways: &[&Node], missing: usize) -> Vec<String> {
        let State { cluster, infra_id, .. } = self.state;
        let (wanted, there) = (self.wanted.gateways, machines::gateways(cluster, infra_id));
        let mut remarks = Vec::new();
        if missing > 0 {
            let have = wanted.saturating_sub(missing);
            remarks.push(format!("{wanted} gateways are wanted, and the cluster has nodes for {have}"));
        }
        if wanted > 0 && there > wanted {
            remarks.push(format!(
                "{wanted} gateways are wanted, and there are {there}: none is removed, as it may be the one that carries traffic; \
                 take its label or its MachineSet off once another one has taken over"
            ));
        }
        if !self.wanted.load_balancer
            && changes.iter().any(|change| matches!(change, NodeChange::ApplySet(_)))
        {
            remarks.push(
                "OpenShift gives machines no floating IPs: clusters outside of the new gateways' network reach them only once they \
                 have some, or through a load balancer"
                    .to_owned(),
            );
        }
        let retyped = self.retyped_sets();
        for name in retyped.iter().filter_map(applied) {
            let flavor = self.wanted.instance.as_deref().unwrap_or_default();
            remarks.push(format!(
                "the machine of MachineSet {name} keeps its type: drain its gateway, then delete the machine, and one of type {flavor} \
                 is made"
            ));
        }
        for node in gateways {
            let ports: Vec<&Port> = self.state.ports_of(node).collect();
            if ports.is_empty() {
                remarks.push(format!(
                    "no port of gateway {} was found in OpenStack (its provider ID is \"{}\"): let its port pass cables by hand",
                    node.name, node.provider_id
                ));
            } else if !self.wanted.load_balancer && !ports.iter().any(|port| port.is_public) {
                remarks.push(format!(
                    "gateway {} has no floating IP: clusters outside of its network reach it only with one, or through a load balancer",
                    node.name
                ));
            }
        }
        remarks
    }
}

/// Returns the name of the set of machines that a change applies.
fn applied(change: &NodeChange) -> Option<&str> {
    match change {
        NodeChange::ApplySet(set) => set["metadata"]["name"].as_str(),
        NodeChange::Label { .. } | NodeChange::Unlabel { .. } | NodeChange::DeleteSet { .. } => None,
    }
}

/// Returns the removal of rules that a preparation has made and that `is_old`.
fn rules_of(group: &Group, waits: bool, is_old: impl Fn(&GroupRule) -> bool) -> Vec<CloudChange> {
    let old = group.rules.iter().filter(|found| found.is_prepared && found.rule.as_ref().is_none_or(&is_old));
    old.map(|found| CloudChange::DeleteRule {
        group: group.name.clone(),
        id: found.id.clone(),
        what: found.rule.as_ref().map_or_else(|| "what nobody sends".to_owned(), ToString::to_string),
        waits,
    })
    .collect()
}

fn detach(state: &State, port: &Port, group: &GroupRef, waits: bool) -> CloudChange {
    let (port, owner) = (port.id.clone(), state.owner(port));
    CloudChange::Detach { port, owner, group: group.clone(), waits }
}

/// Returns the removal of everything that a preparation has made: machines first, as their ports hold groups.
fn clean_up(state: &State, names: &Names) -> Vec<CloudChange> {
    let sets = state.cluster.gateway_sets(&state.infra_id);
    let sets = sets.map(|name| NodeChange::DeleteSet { name: name.to_owned() });
    let nodes = sets.chain(state.cluster.fewer_gateways());
    let mut changes: Vec<CloudChange> = nodes.map(CloudChange::Cluster).collect();
    let (made, others): (Vec<&Group>, Vec<&Group>) =
        state.groups.iter().partition(|group| names.is_made(&group.name));
    for port in &state.ports {
        for group in made.iter().filter(|group| port.groups.contains(&group.id)) {
            changes.push(detach(state, port, &group.reference(), false));
        }
    }
    for group in others {
        changes.extend(rules_of(group, false, |_| true));
    }
    let groups = made.into_iter();
    changes.extend(
        groups.map(|group| CloudChange::DeleteGroup { name: group.name.clone(), id: group.id.clone() }),
    );
    changes
}
