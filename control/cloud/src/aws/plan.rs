//! What is missing in EC2 for a goal.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::change::{AwsChange, ESP, GroupRef, Step};
use super::names;
use super::settings::DEFAULT_INSTANCE;
use super::state::{Group, Machine, Permission, Source, State, Subnet, instance_id};
use crate::CloudError;
use crate::cluster::{NodeChange, has, machine_set, machine_set_name};
use crate::provider::{Goal, Plan};
use crate::rules::{From, Rule, Traffic, Wanted};

/// Plans; see [`crate::Provider::plan`].
///
/// # Errors
/// [`CloudError::Refused`].
pub(super) fn plan(goal: &Goal, state: &State) -> Result<Plan<AwsChange>, CloudError> {
    let mut plan = Planner { state, steps: Vec::new(), remarks: Vec::new() };
    match goal {
        Goal::Prepare(wanted) => plan.prepare(wanted)?,
        Goal::CleanUp => plan.clean_up(),
    }
    Ok(Plan { changes: plan.steps.into_iter().map(AwsChange).collect(), remarks: plan.remarks })
}

struct Planner<'s> {
    state: &'s State,
    steps: Vec<Step>,
    remarks: Vec<String>,
}

impl Planner<'_> {
    fn prepare(&mut self, wanted: &Wanted) -> Result<(), CloudError> {
        let (cables, inside) = (wanted.cables(), wanted.inside());
        let between: Vec<Rule> = match wanted.load_balancer {
            true => inside.into_iter().chain(cables.clone()).collect(),
            false => inside,
        };
        self.between_nodes(&between);
        if wanted.load_balancer {
            // The balancer's own ports are Kubernetes' to open.
            self.without_gateway_group();
            self.nodes(wanted.gateways);
        } else {
            self.gateway_group(&cables);
            match self.state.cluster.is_openshift() {
                true => self.machine_sets(wanted)?,
                false => self.nodes(wanted.gateways),
            }
        }
        self.machines(!wanted.load_balancer);
        Ok(())
    }

    /// Permits what passes between nodes, and no longer what a preparation has permitted and is not wanted now.
    fn between_nodes(&mut self, rules: &[Rule]) {
        let groups = &self.state.node_groups;
        for (at, group) in groups.iter().enumerate() {
            let mut wanted = Vec::new();
            for rule in rules {
                // Of the control plane's own nodes only workers need something, and the other way round: as upstream's.
                let sources =
                    groups.iter().enumerate().filter(|(from, _)| groups.len() == 1 || at == 0 || *from != at);
                wanted.extend(sources.map(|(from, source)| {
                    let between = described(at, from, groups.len());
                    let text = format!("{} {between} ({})", names::INSIDE, self.state.infra_id);
                    permission(*rule, Source::Group(source.id.clone()), &text)
                }));
            }
            let infra_id = &self.state.infra_id;
            let is_ours = |text: &str| {
                // Upstream's have no cluster's name, which ours end with.
                let is_upstreams = text.starts_with(names::INSIDE) && !text.ends_with(')');
                is_upstreams || names::is_inside_of(infra_id, text)
            };
            self.permit(&GroupRef::Id(group.id.clone()), &group.name, Some(group), &wanted, is_ours);
        }
        for group in &self.state.former_groups {
            let is_ours = |text: &str| names::is_inside_of(&self.state.infra_id, text);
            self.permit(&GroupRef::Id(group.id.clone()), &group.name, Some(group), &[], is_ours);
        }
    }

    fn gateway_group(&mut self, rules: &[Rule]) {
        let name = names::gateway_group(&self.state.infra_id);
        let group = self.state.gateway_group.as_ref();
        if group.is_none() {
            self.steps.push(Step::CreateGroup { vpc: self.state.vpc.clone(), name: name.clone() });
        }
        let sources = rules.iter().filter_map(|rule| match rule.from {
            From::Network(network) => Some(permission(*rule, Source::Network(network), names::PUBLIC)),
            From::Nodes => None,
        });
        let wanted: Vec<Permission> = sources.collect();
        self.permit(&self.gateway_group_ref(), &name, group, &wanted, |text| text.starts_with(names::PUBLIC));
    }

    fn gateway_group_ref(&self) -> GroupRef {
        self.state.gateway_group.as_ref().map_or(GroupRef::New, |group| GroupRef::Id(group.id.clone()))
    }

    /// Permits what is wanted, and no longer what is described as ours and is not wanted.
    fn permit(
        &mut self,
        to: &GroupRef,
        name: &str,
        group: Option<&Group>,
        wanted: &[Permission],
        is_ours: impl Fn(&str) -> bool,
    ) {
        let there = group.map_or(&[][..], |group| &group.permissions);
        let is_left_over =
            |one: &Permission| is_ours(&one.description) && !wanted.iter().any(|other| other.is_same(one));
        let (left_over, kept): (Vec<&Permission>, Vec<&Permission>) =
            there.iter().partition(|one| is_left_over(one));
        let missing = wanted.iter().filter(|one| !kept.iter().any(|other| other.covers(one)));
        self.steps.extend(missing.map(|permission| Step::Authorize {
            group: to.clone(),
            name: name.to_owned(),
            permission: permission.clone(),
        }));
        let Some(group) = group else { return };
        self.steps.extend(left_over.into_iter().map(|permission| Step::Revoke {
            group: group.id.clone(),
            name: name.to_owned(),
            permission: permission.clone(),
        }));
    }

    /// Labels nodes where there are too few gateways.
    fn nodes(&mut self, wanted: usize) {
        let labels = self.state.cluster.more_gateways(wanted);
        self.remarks.extend(self.state.cluster.remark(wanted, labels.len()));
        self.steps.extend(labels.into_iter().map(Step::Node));
    }

    /// Brings the gateways' machines into their group, and switches the check of sources off where pods' packets would not pass it.
    fn machines(&mut self, has_group: bool) {
        let group = self.gateway_group_ref();
        let labelled: BTreeSet<String> = self.steps.iter().filter_map(labelled).collect();
        let is_gateway = |node: &str| {
            labelled.contains(node) || self.state.cluster.gateways().any(|gateway| gateway.name == node)
        };
        let machines: Vec<Machine> =
            self.state.machines.values().filter(|machine| is_gateway(&machine.node)).cloned().collect();
        for machine in machines {
            let mut groups: Vec<GroupRef> = machine.groups.iter().cloned().map(GroupRef::Id).collect();
            if has_group && !groups.contains(&group) {
                groups.push(group.clone());
                self.steps.push(Step::Attach { machine: machine.clone(), groups, is_added: true });
            }
            if self.state.cluster.has_vpc_cni && machine.checks_source {
                self.check_no_source(&machine);
            }
            if has_group && !machine.is_public {
                self.remarks.push(format!(
                    "instance {} of node {} has no public address: clusters outside of its network reach it only behind a load \
                     balancer, or if they have a public address themselves",
                    machine.id, machine.node
                ));
            }
        }
        if self.state.cluster.has_vpc_cni {
            self.remarks.push(
                "pods have addresses of the VPC: let the security groups of nodes and pods pass the networks of the other clusters"
                    .to_owned(),
            );
        }
        let with_machine = |provider_id: &str| {
            instance_id(provider_id).is_some_and(|id| self.state.machines.contains_key(id))
        };
        let without: Vec<&str> = self
            .state
            .cluster
            .nodes
            .iter()
            .filter(|node| is_gateway(&node.name) && !with_machine(&node.provider_id))
            .map(|node| node.name.as_str())
            .collect();
        if !without.is_empty() {
            let nodes = without.join(", ");
            self.remarks.push(format!(
                "no machine of this region was found for the gateways {nodes}: they were left as they are"
            ));
        }
    }

    fn check_no_source(&mut self, machine: &Machine) {
        if !machine.tags.contains_key(names::CHECKED_TAG) {
            // First what it was, so that it can be switched on again whatever comes between.
            let tags = vec![(names::CHECKED_TAG.to_owned(), "true".to_owned())];
            self.steps.push(Step::Tag { what: "instance".to_owned(), id: machine.id.clone(), tags });
        }
        self.steps.push(Step::CheckSource { machine: machine.clone(), is_on: false });
    }

    /// Makes a set of one machine in as many zones as there are to be gateways.
    fn machine_sets(&mut self, wanted: &Wanted) -> Result<(), CloudError> {
        let instance = wanted.instance.as_deref().unwrap_or(DEFAULT_INSTANCE);
        let mut zones = BTreeSet::new();
        let is_free =
            |subnet: &&Subnet| (subnet.is_chosen || subnet.is_offered) && zones.insert(subnet.zone.clone());
        let subnets: Vec<&Subnet> = self.state.subnets.iter().filter(is_free).collect();
        let chosen = subnets.iter().filter(|subnet| subnet.is_chosen).count();
        let others = self.state.cluster.other_gateways(&self.state.infra_id).count();
        let machines = wanted.gateways.saturating_sub(others);
        if chosen > machines && wanted.gateways > 0 {
            self.remarks.push(format!(
                "{} gateways are wanted, and there are more: none is removed, since it may carry traffic; drain one, then delete \
                 its MachineSet and its subnet's tags {} and {}",
                wanted.gateways,
                names::gateway_of(&self.state.infra_id),
                names::GATEWAY_TAG
            ));
        }
        let count = machines.max(chosen);
        if subnets.len() < count {
            return Err(CloudError::refused(
                format!(
                    "{count} gateways are wanted, and {} zones have a public subnet of the cluster and machines of type {instance}",
                    subnets.len()
                ),
                "ask for fewer gateways, for machines of another type (--gateway-instance), or name public subnets with \
                 --subnet-names",
            ));
        }
        for subnet in subnets.into_iter().take(count) {
            self.subnet(subnet);
            self.machine_set(subnet, instance);
        }
        Ok(())
    }

    fn subnet(&mut self, subnet: &Subnet) {
        let mut tags = Vec::new();
        if !subnet.has_gateways {
            tags.push((names::GATEWAY_TAG.to_owned(), String::new()));
        }
        if subnet.note.is_none() {
            // Chosen, and not by us: by upstream's tool, which sets a second tag that has to go with the first.
            let is_upstreams = subnet.is_chosen && subnet.internal_elb.as_deref() == Some("");
            let note = if is_upstreams { names::WITH_INTERNAL_ELB } else { "" };
            tags.push((names::gateway_of(&self.state.infra_id), note.to_owned()));
        }
        if !tags.is_empty() {
            self.steps.push(Step::Tag { what: "subnet".to_owned(), id: subnet.id.clone(), tags });
        }
    }

    fn machine_set(&mut self, subnet: &Subnet, instance: &str) {
        let State { infra_id, cluster, .. } = self.state;
        let mut wanted = machine_set(infra_id, &subnet.zone, &self.provider(subnet, instance));
        let name = machine_set_name(infra_id, &subnet.zone);
        if let Some(replicas) =
            cluster.machine_set(&name).map(|set| &set["spec"]["replicas"]).filter(|count| count.is_u64())
        {
            wanted["spec"]["replicas"] = replicas.clone();
        }
        match cluster.machine_set(&name) {
            Some(found) if has(found, &wanted) => {}
            Some(found) => {
                let type_ = "/spec/template/spec/providerSpec/value/instanceType";
                if found.pointer(type_) != wanted.pointer(type_) {
                    self.remarks.push(format!(
                        "the machine of MachineSet {name} keeps its type: drain its gateway, then delete the machine, and one of \
                         type {instance} is made"
                    ));
                }
                self.steps.push(Step::Node(NodeChange::ApplySet(wanted)));
            }
            None => self.steps.push(Step::Node(NodeChange::ApplySet(wanted))),
        }
    }

    /// Returns what OpenShift is to make a gateway's machine of: what the cluster's workers are made of, in a public subnet and in
    /// the gateways' group.
    fn provider(&self, subnet: &Subnet, instance: &str) -> Value {
        let infra_id = &self.state.infra_id;
        let worker = self.state.cluster.worker_set(infra_id);
        let of_worker = |field: &str| {
            worker.and_then(|set| set.pointer(&format!("/spec/template/spec/providerSpec/value/{field}")))
        };
        let or = |field: &str, default: Value| of_worker(field).cloned().unwrap_or(default);
        let image = self
            .state
            .machines
            .values()
            .map(|machine| machine.image.as_str())
            .find(|image| !image.is_empty());
        let nodes = self.state.node_groups.first().map(|group| group.name.clone()).unwrap_or_default();
        let named = |names: &[&str]| json!([{"name": "tag:Name", "values": names}]);
        let subnet_filter = match subnet.name.is_empty() {
            true => json!({"id": subnet.id}),
            false => json!({"filters": named(&[&subnet.name])}),
        };
        let mut provider = json!({
            "apiVersion": or("apiVersion", json!("machine.openshift.io/v1beta1")),
            "kind": or("kind", json!("AWSMachineProviderConfig")),
            "ami": or("ami", json!({"id": image.unwrap_or_default()})),
            "credentialsSecret": or("credentialsSecret", json!({"name": "aws-cloud-credentials"})),
            "deviceIndex": 0,
            "iamInstanceProfile": or("iamInstanceProfile", json!({"id": format!("{infra_id}-worker-profile")})),
            "instanceType": instance,
            "placement": {"availabilityZone": subnet.zone, "region": self.state.region},
            "securityGroups": [{"filters": named(&[&nodes, &names::gateway_group(infra_id)])}],
            "subnet": subnet_filter,
            "tags": [
                {"name": format!("{}{infra_id}", names::CLUSTER_TAG), "value": "owned"},
                {"name": "submariner.io", "value": "gateway"},
            ],
            "userDataSecret": or("userDataSecret", json!({"name": "worker-user-data"})),
            "publicIp": true,
        });
        for field in ["blockDevices", "metadataServiceOptions"] {
            if let (Some(value), Some(fields)) = (of_worker(field), provider.as_object_mut()) {
                fields.insert(field.to_owned(), value.clone());
            }
        }
        provider
    }

    fn clean_up(&mut self) {
        let state = self.state;
        // Before their sets, by which some of them are recognised.
        for subnet in state.subnets.iter().filter(|subnet| subnet.is_chosen) {
            let own = subnet.note.as_ref().map(|_| (names::gateway_of(&state.infra_id), None));
            let shared = (names::GATEWAY_TAG.to_owned(), None);
            let mut tags: Vec<(String, Option<String>)> = [shared]
                .into_iter()
                .filter(|_| subnet.has_gateways && !subnet.is_shared)
                .chain(own)
                .collect();
            // A value is somebody else's: upstream's tool sets none.
            let is_upstreams =
                subnet.note.as_deref().unwrap_or(names::WITH_INTERNAL_ELB) == names::WITH_INTERNAL_ELB;
            if is_upstreams && !subnet.is_shared && subnet.internal_elb.as_deref() == Some("") {
                tags.push((names::INTERNAL_ELB_TAG.to_owned(), Some(String::new())));
            }
            self.steps.push(Step::Untag { what: "subnet".to_owned(), id: subnet.id.clone(), tags });
        }
        let sets: Vec<String> = state.cluster.gateway_sets(&state.infra_id).map(str::to_owned).collect();
        self.steps.extend(sets.into_iter().map(|name| Step::Node(NodeChange::DeleteSet { name })));
        self.steps.extend(state.cluster.fewer_gateways().into_iter().map(Step::Node));
        for machine in state.machines.values().filter(|machine| machine.tags.contains_key(names::CHECKED_TAG))
        {
            if !machine.checks_source {
                self.steps.push(Step::CheckSource { machine: machine.clone(), is_on: true });
            }
            let tags = vec![(names::CHECKED_TAG.to_owned(), None)];
            self.steps.push(Step::Untag { what: "instance".to_owned(), id: machine.id.clone(), tags });
        }
        self.between_nodes(&[]);
        self.without_gateway_group();
    }

    fn without_gateway_group(&mut self) {
        let Some(group) = &self.state.gateway_group else { return };
        for machine in self.state.machines.values().filter(|machine| machine.groups.contains(&group.id)) {
            let others =
                machine.groups.iter().filter(|id| **id != group.id).cloned().map(GroupRef::Id).collect();
            self.steps.push(Step::Attach { machine: machine.clone(), groups: others, is_added: false });
        }
        self.steps.push(Step::DeleteGroup { id: group.id.clone(), name: group.name.clone() });
    }
}

/// Returns the node that a step labels.
fn labelled(step: &Step) -> Option<String> {
    if let Step::Node(change) = step { change.labels().map(str::to_owned) } else { None }
}

fn permission(rule: Rule, source: Source, description: &str) -> Permission {
    let (protocol, ports) = match rule.traffic {
        Traffic::Udp(port) => ("udp", Some((i32::from(port), i32::from(port)))),
        Traffic::Esp => (ESP, None),
    };
    Permission { protocol: protocol.to_owned(), ports, source, description: description.to_owned() }
}

/// Names both ends of what passes between nodes; the first group is that of the workers.
fn described(to: usize, from: usize, groups: usize) -> &'static str {
    match (to, from) {
        _ if groups == 1 => "between the nodes",
        (0, 0) => "between the workers",
        (0, _) => "from control plane to worker nodes",
        (_, _) => "from worker to control plane nodes",
    }
}
