//! Plans on a played EC2: a state to which changes are made as EC2 makes them.

use std::collections::BTreeMap;

use proptest::prelude::*;
use serde_json::{Value, json};
use trieste_deploy::objects::names::GATEWAY_LABEL;

use super::super::change::{AwsChange, GroupRef, Step};
use super::super::names;
use super::super::plan::plan;
use super::super::state::{Group, Machine, Permission, Source, State, Subnet};
use crate::cluster::{CLOUD_PREPARE, Cluster, LABELLED_BY, NodeChange};
use crate::provider::{Change as _, Goal};
use crate::rules::{Ports, Wanted};

/// The ID that a group gets which is made here.
const MADE: &str = "sg-made";

#[derive(Debug, Clone)]
struct Played {
    state: State,
    nodes: Vec<Value>,
    sets: Option<Vec<Value>>,
}

impl Played {
    fn new(openshift: bool, vpc_cni: bool) -> Self {
        let node = |number: usize| {
            let zone = ["eu-west-1a", "eu-west-1b"][number % 2];
            json!({"metadata": {"name": format!("n{number}"), "labels": {"topology.kubernetes.io/zone": zone}},
                "spec": {"providerID": format!("aws:///{zone}/i-{number}")},
                "status": {"conditions": [{"type": "Ready", "status": "True"}]}})
        };
        let machine = |number: usize| Machine {
            id: format!("i-{number}"),
            node: format!("n{number}"),
            vpc: "vpc-1".to_owned(),
            image: "ami-1".to_owned(),
            interface: format!("eni-{number}"),
            groups: vec!["sg-w".to_owned()],
            checks_source: true,
            is_public: number == 0,
            tags: BTreeMap::from([("kubernetes.io/cluster/east".to_owned(), "owned".to_owned())]),
        };
        let group = |id: &str, name: &str| Group {
            id: id.to_owned(),
            name: name.to_owned(),
            permissions: vec![Permission {
                protocol: "tcp".to_owned(),
                ports: Some((22, 22)),
                source: Source::Network("10.0.0.0/8".parse().unwrap()),
                description: "somebody's".to_owned(),
            }],
        };
        let subnet = |zone: &str, elb: Option<&str>| Subnet {
            id: format!("subnet-{zone}"),
            name: format!("east-public-{zone}"),
            zone: zone.to_owned(),
            is_chosen: false,
            has_gateways: false,
            note: None,
            is_shared: false,
            internal_elb: elb.map(str::to_owned),
            is_offered: true,
        };
        let mut groups = vec![group("sg-w", "east-worker-sg")];
        let mut subnets = Vec::new();
        if openshift {
            groups.push(group("sg-m", "east-master-sg"));
            subnets = vec![subnet("eu-west-1a", None), subnet("eu-west-1b", Some("1"))];
        }
        let machines = (0..4).map(machine).map(|machine| (machine.id.clone(), machine)).collect();
        let state = State {
            infra_id: "east".to_owned(),
            region: "eu-west-1".to_owned(),
            vpc: "vpc-1".to_owned(),
            node_groups: groups,
            subnets,
            machines,
            ..State::default()
        };
        let mut played = Self { state, nodes: (0..4).map(node).collect(), sets: openshift.then(Vec::new) };
        played.state.cluster.has_vpc_cni = vpc_cni;
        played.refresh();
        played
    }

    fn refresh(&mut self) {
        let has_vpc_cni = self.state.cluster.has_vpc_cni;
        self.state.cluster = Cluster::of(self.nodes.clone(), self.sets.clone());
        self.state.cluster.has_vpc_cni = has_vpc_cni;
    }

    /// What has to be the same after a preparation was taken back.
    fn seen(&self) -> String {
        let State { node_groups, former_groups, gateway_group, subnets, machines, .. } = &self.state;
        let mut groups = node_groups.clone();
        groups.extend(former_groups.iter().cloned());
        groups.iter_mut().for_each(|group| group.permissions.sort());
        groups.sort_by_key(|group| group.id.clone());
        format!("{groups:?} {gateway_group:?} {subnets:?} {machines:?} {:?} {:?}", self.nodes, self.sets)
    }

    fn make(&mut self, change: &AwsChange) {
        assert!(!change.waits(), "{change}");
        let state = &mut self.state;
        let groups =
            state.node_groups.iter_mut().chain(&mut state.former_groups).chain(state.gateway_group.as_mut());
        match &change.0 {
            Step::CreateGroup { name, .. } => {
                assert!(state.gateway_group.is_none(), "EC2 refuses a second group of the name");
                state.gateway_group =
                    Some(Group { id: MADE.to_owned(), name: name.clone(), permissions: Vec::new() });
            }
            Step::Authorize { group, permission, .. } => {
                let group = groups.into_iter().find(|one| *group == GroupRef::Id(one.id.clone())).unwrap();
                assert!(
                    !group.permissions.iter().any(|one| one.is_same(permission)),
                    "InvalidPermission.Duplicate"
                );
                group.permissions.push(permission.clone());
            }
            Step::Revoke { group, permission, .. } => {
                let group = groups.into_iter().find(|one| one.id == *group).unwrap();
                group.permissions.retain(|one| !one.is_same(permission));
            }
            Step::DeleteGroup { id, .. } => {
                assert!(
                    !state.machines.values().any(|machine| machine.groups.contains(id)),
                    "DependencyViolation"
                );
                state.gateway_group = None;
            }
            Step::Tag { id, tags, .. } => {
                self.tag(id, tags.iter().map(|(key, value)| (key.clone(), Some(value.clone()))))
            }
            Step::Untag { id, tags, .. } => self.tag(id, tags.iter().map(|(key, _)| (key.clone(), None))),
            Step::Attach { machine, groups, .. } => {
                let id = |group: &GroupRef| match group {
                    GroupRef::Id(id) => id.clone(),
                    GroupRef::New => unreachable!("it waits"),
                };
                state.machines.get_mut(&machine.id).unwrap().groups = groups.iter().map(id).collect();
            }
            Step::CheckSource { machine, is_on } => {
                state.machines.get_mut(&machine.id).unwrap().checks_source = *is_on;
            }
            Step::Node(change) => self.node(change),
        }
        self.refresh();
    }

    fn tag(&mut self, id: &str, tags: impl Iterator<Item = (String, Option<String>)>) {
        for (key, value) in tags {
            if let Some(machine) = self.state.machines.get_mut(id) {
                let _ = machine.tags.remove(&key);
                machine.tags.extend(value.map(|value| (key, value)));
                continue;
            }
            let subnet = self.state.subnets.iter_mut().find(|subnet| subnet.id == id).unwrap();
            match key.as_str() {
                names::GATEWAY_TAG => subnet.has_gateways = value.is_some(),
                names::INTERNAL_ELB_TAG => subnet.internal_elb = value,
                own => {
                    assert_eq!(own, "trieste.io/gateway-of/east");
                    subnet.note = value;
                }
            }
            subnet.is_chosen = subnet.note.is_some();
        }
    }

    fn node(&mut self, change: &NodeChange) {
        let mut label = |name: &String, is_on: bool| {
            let node = self.nodes.iter_mut().find(|node| node["metadata"]["name"] == **name).unwrap();
            let metadata = node["metadata"].as_object_mut().unwrap();
            match is_on {
                true => {
                    metadata["labels"][GATEWAY_LABEL] = json!("true");
                    metadata.insert("annotations".to_owned(), json!({LABELLED_BY: CLOUD_PREPARE}));
                }
                false => {
                    metadata["labels"].as_object_mut().unwrap().remove(GATEWAY_LABEL);
                    metadata.remove("annotations");
                }
            }
        };
        match change {
            NodeChange::Label { node } => label(node, true),
            NodeChange::Unlabel { node } => label(node, false),
            NodeChange::ApplySet(set) => {
                let sets = self.sets.as_mut().unwrap();
                sets.retain(|one| one["metadata"]["name"] != set["metadata"]["name"]);
                sets.push(set.clone());
            }
            NodeChange::DeleteSet { name } => {
                self.sets.as_mut().unwrap().retain(|one| one["metadata"]["name"] != **name);
            }
        }
    }

    /// Makes what is planned until nothing is.
    fn reach(&mut self, goal: &Goal) {
        for _ in 0..3 {
            let changes = plan(goal, &self.state).unwrap().changes;
            if changes.is_empty() {
                return;
            }
            changes.iter().filter(|change| !change.waits()).for_each(|change| self.make(change));
        }
        let left: Vec<String> =
            plan(goal, &self.state).unwrap().changes.iter().map(ToString::to_string).collect();
        assert!(left.is_empty(), "{left:?}");
    }
}

fn wanted(gateways: usize, load_balancer: bool, natt: u16) -> Wanted {
    Wanted { gateways, load_balancer, ports: Ports { natt, ..Ports::default() }, ..Wanted::default() }
}

#[test]
fn the_plan_of_a_new_cluster_is_shown_in_words() {
    let shown = |played: &Played, goal: &Goal| {
        let plan = plan(goal, &played.state).unwrap();
        (plan.changes.iter().map(ToString::to_string).collect::<Vec<_>>(), plan.remarks)
    };
    let mut of_one = wanted(1, false, 4500);
    of_one.sources = vec!["198.51.100.0/24".parse().unwrap()];
    let goal = Goal::Prepare(of_one);
    let (changes, remarks) = shown(&Played::new(false, true), &goal);
    assert_eq!(
        changes,
        [
            "let UDP 4800 from security group sg-w into security group east-worker-sg",
            "let UDP 4801 from security group sg-w into security group east-worker-sg",
            "create security group east-submariner-gw-sg in vpc-1",
            "let UDP 4500 from 198.51.100.0/24 into security group east-submariner-gw-sg",
            "let UDP 4490 from 198.51.100.0/24 into security group east-submariner-gw-sg",
            "let UDP 500 from 198.51.100.0/24 into security group east-submariner-gw-sg",
            "let ESP from 198.51.100.0/24 into security group east-submariner-gw-sg",
            "label node n0 as a gateway",
            "put instance i-0 (node n0) into the gateways' security group",
            "tag instance i-0 with trieste.io/source-dest-check-before",
            "switch the source/destination check of instance i-0 (node n0) off",
        ]
    );
    assert!(matches!(&remarks[..], [one] if one.contains("addresses of the VPC")), "{remarks:?}");
    let (changes, _) = shown(&Played::new(true, false), &goal);
    assert!(
        changes.contains(
            &"apply MachineSet east-submariner-gw-eu-west-1a, whose machine is a gateway".to_owned()
        )
    );
    assert!(
        changes
            .contains(&"let UDP 4800 from security group sg-w into security group east-master-sg".to_owned())
    );
    assert!(
        !changes
            .contains(&"let UDP 4800 from security group sg-m into security group east-master-sg".to_owned())
    );
}

#[test]
fn more_gateways_than_there_are_zones_are_refused() {
    let played = Played::new(true, false);
    let error = plan(&Goal::Prepare(wanted(3, false, 4500)), &played.state).unwrap_err();
    assert!(error.to_string().contains("3 gateways are wanted, and 2 zones"), "{error}");
    assert!(error.next().contains("--subnet-names"), "{}", error.next());
}

#[test]
fn fewer_gateways_are_a_remark_and_remove_nothing() {
    let mut played = Played::new(true, false);
    played.reach(&Goal::Prepare(wanted(2, false, 4500)));
    let plan = plan(&Goal::Prepare(wanted(1, false, 4500)), &played.state).unwrap();
    assert!(plan.changes.is_empty(), "{:?}", plan.changes);
    assert!(plan.remarks.iter().any(|remark| remark.contains("none is removed")), "{:?}", plan.remarks);
}

#[test]
fn what_upstreams_tool_has_prepared_is_taken_over_and_taken_back() {
    let mut played = Played::new(true, false);
    let before = played.seen();
    let of = |protocol: &str, ports, source, description: &str| Permission {
        protocol: protocol.to_owned(),
        ports,
        source,
        description: description.to_owned(),
    };
    let from = |id: &str| Source::Group(id.to_owned());
    let vxlan = Some((4800, 4800));
    let [workers, control_plane] = &mut played.state.node_groups[..] else { unreachable!("two groups") };
    workers.permissions.extend([
        of("udp", vxlan, from("sg-w"), "Internal Submariner traffic between the workers"),
        of("udp", vxlan, from("sg-m"), "Internal Submariner traffic from master to worker nodes"),
    ]);
    let inside = "Internal Submariner traffic from worker to master nodes";
    control_plane.permissions.push(of("udp", vxlan, from("sg-w"), inside));
    let everywhere = Source::Network("0.0.0.0/0".parse().unwrap());
    played.state.gateway_group = Some(Group {
        id: "sg-gw".to_owned(),
        name: "east-submariner-gw-sg".to_owned(),
        permissions: vec![
            of("udp", Some((4500, 4500)), everywhere.clone(), names::PUBLIC),
            of("51", None, everywhere, names::PUBLIC),
        ],
    });
    played.state.subnets[0].is_chosen = true;
    played.state.subnets[0].has_gateways = true;
    played.state.subnets[0].internal_elb = Some(String::new());
    let set = crate::cluster::machine_set("east", "eu-west-1a", &json!({"instanceType": "m5n.large"}));
    played.sets = Some(vec![set]);
    played.refresh();
    let goal = Goal::Prepare(wanted(1, false, 4500));
    let shown: Vec<String> =
        plan(&goal, &played.state).unwrap().changes.iter().map(ToString::to_string).collect();
    assert!(shown.iter().any(|change| change.starts_with("let protocol 51 from 0.0.0.0/0")), "{shown:?}");
    assert!(!shown.iter().any(|change| change.contains("let UDP 4800")), "it is there: {shown:?}");
    played.reach(&goal);
    played.reach(&Goal::CleanUp);
    assert_eq!(played.seen(), before);
}

#[test]
fn subnets_with_gateways_of_another_cluster_stay_its_own() {
    let mut played = Played::new(true, false);
    for subnet in &mut played.state.subnets {
        (subnet.has_gateways, subnet.is_shared) = (true, true);
    }
    let before = played.seen();
    played.reach(&Goal::Prepare(wanted(1, false, 4500)));
    assert_eq!(played.state.subnets[0].note.as_deref(), Some(""));
    played.reach(&Goal::CleanUp);
    assert_eq!(played.seen(), before, "the shared tag stays");
}

#[test]
fn gateways_of_openshift_that_somebody_has_labelled_are_counted_and_let_in() {
    let mut played = Played::new(true, false);
    played.nodes[1]["metadata"]["labels"][GATEWAY_LABEL] = json!("true");
    played.refresh();
    played.reach(&Goal::Prepare(wanted(1, false, 4500)));
    assert_eq!(played.sets.as_ref().map(Vec::len), Some(0), "one is wanted and there");
    assert!(played.state.machines["i-1"].groups.contains(&MADE.to_owned()));
    played.reach(&Goal::Prepare(wanted(2, false, 4500)));
    assert_eq!(played.sets.as_ref().map(Vec::len), Some(1));
    // The machine of that set becomes a node, and is not counted twice.
    let mut node = played.nodes[3].clone();
    node["metadata"]["name"] = json!("n9");
    node["metadata"]["labels"][GATEWAY_LABEL] = json!("true");
    let machine = "openshift-machine-api/east-submariner-gw-eu-west-1a-x7k2p";
    node["metadata"]["annotations"] = json!({"machine.openshift.io/machine": machine});
    played.nodes.push(node);
    played.refresh();
    assert!(plan(&Goal::Prepare(wanted(2, false, 4500)), &played.state).unwrap().changes.is_empty());
}

#[test]
fn replicas_of_a_set_are_whoevers_has_set_them() {
    let mut played = Played::new(true, false);
    let goal = Goal::Prepare(wanted(1, false, 4500));
    played.reach(&goal);
    played.sets.as_mut().unwrap()[0]["spec"]["replicas"] = json!(2);
    played.refresh();
    assert!(plan(&goal, &played.state).unwrap().changes.is_empty());
}

#[test]
fn permissions_in_groups_that_nodes_had_before_go() {
    let mut played = Played::new(false, false);
    let before = played.seen();
    played.reach(&Goal::Prepare(wanted(1, false, 4500)));
    // Nodes get another group, which is the one that is found from now on.
    let former = played.state.node_groups.remove(0);
    let other = Group { id: "sg-new".to_owned(), name: "new".to_owned(), permissions: Vec::new() };
    played.state.node_groups.push(other.clone());
    played.state.former_groups.push(former);
    played.reach(&Goal::Prepare(wanted(1, false, 4500)));
    assert_eq!(played.state.former_groups[0].permissions.len(), 1, "somebody's own stays");
    played.reach(&Goal::CleanUp);
    assert_eq!(played.state.node_groups, [other]);
    played.state.node_groups = std::mem::take(&mut played.state.former_groups);
    assert_eq!(played.seen(), before);
}

#[test]
fn a_wider_permission_of_ours_does_not_stand_for_the_one_that_is_wanted() {
    let mut played = Played::new(false, false);
    let goal = Goal::Prepare(wanted(1, false, 4500));
    played.reach(&goal);
    let permissions = &mut played.state.gateway_group.as_mut().unwrap().permissions;
    permissions
        .iter_mut()
        .filter(|one| one.ports == Some((4500, 4500)))
        .for_each(|one| one.ports = Some((4500, 4510)));
    let shown: Vec<String> =
        plan(&goal, &played.state).unwrap().changes.iter().map(ToString::to_string).collect();
    let of = |word: &str| shown.iter().filter(|change| change.ends_with(word)).count();
    assert_eq!((of("gw-sg"), of("no longer")), (2, 2), "both families, there before they go: {shown:?}");
}

#[test]
fn behind_a_load_balancer_packets_of_pods_leave_gateways_too() {
    let mut played = Played::new(false, true);
    played.reach(&Goal::Prepare(wanted(1, true, 4500)));
    let machine = &played.state.machines["i-0"];
    assert!(!machine.checks_source && machine.groups == ["sg-w"], "{machine:?}");
}

#[test]
fn what_somebody_else_permits_already_is_neither_made_nor_taken_back() {
    for (protocol, ports) in [("udp", Some((4800, 4801))), ("-1", None)] {
        let mut played = Played::new(false, false);
        let own = Permission {
            protocol: protocol.to_owned(),
            ports,
            source: Source::Group("sg-w".to_owned()),
            description: "flannel".to_owned(),
        };
        played.state.node_groups[0].permissions.push(own);
        let before = played.seen();
        played.reach(&Goal::Prepare(wanted(1, false, 4500)));
        assert_eq!(played.state.node_groups[0].permissions.len(), 2, "nothing is missing");
        played.reach(&Goal::CleanUp);
        assert_eq!(played.seen(), before);
    }
}

proptest! {
    /// From whatever a preparation has left, the next one and the end of all have their goal, and the end leaves what was there first.
    #[test]
    fn every_preparation_is_reached_and_taken_back(
        openshift: bool,
        vpc_cni: bool,
        runs in prop::collection::vec((1..3_usize, any::<bool>(), prop::sample::select(vec![4500_u16, 4501])), 1..4),
        interrupted in prop::collection::vec(0..12_usize, 3),
    ) {
        let mut played = Played::new(openshift, vpc_cni);
        let before = played.seen();
        for ((gateways, load_balancer, natt), stop) in runs.into_iter().zip(interrupted) {
            let goal = Goal::Prepare(wanted(gateways, load_balancer, natt));
            let changes = plan(&goal, &played.state).unwrap().changes;
            changes.iter().take(stop).filter(|change| !change.waits()).for_each(|change| played.make(change));
            played.reach(&goal);
        }
        played.reach(&Goal::CleanUp);
        prop_assert_eq!(played.seen(), before);
    }
}
