//! What there is in EC2 of what is prepared.

use std::collections::{BTreeMap, BTreeSet};

use ipnet::IpNet;
use serde_json::Value;

use super::names;
use super::query::{Ec2, Parameters, filter};
use super::settings::Settings;
use super::xml::Element;
use crate::CloudError;
use crate::cluster::{Cluster, machine_set_name};
use crate::exchange::Exchange;

/// EC2's word for all protocols.
const ALL: &str = "-1";
/// Ours: how many machines are asked for at once.
const AT_ONCE: usize = 100;

/// What there is.
#[derive(Debug, Clone, Default)]
pub struct State {
    pub(super) cluster: Cluster,
    /// What the cluster's resources are named by.
    pub(super) infra_id: String,
    pub(super) region: String,
    /// The VPC's ID.
    pub(super) vpc: String,
    /// The groups of nodes: workers, and the control plane where that has one of its own.
    pub(super) node_groups: Vec<Group>,
    /// Other groups of the VPC with permissions of a preparation for this cluster.
    pub(super) former_groups: Vec<Group>,
    /// The gateways' group.
    pub(super) gateway_group: Option<Group>,
    /// The subnets in which OpenShift's gateways may be, the best first.
    pub(super) subnets: Vec<Subnet>,
    /// The machines of nodes, by ID.
    pub(super) machines: BTreeMap<String, Machine>,
}

/// A security group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Group {
    pub(super) id: String,
    pub(super) name: String,
    pub(super) permissions: Vec<Permission>,
}

/// One permission, for one source.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Permission {
    /// `udp`, or a number.
    pub(super) protocol: String,
    /// The ports, or type and code of ICMP; `None` where the protocol has none.
    pub(super) ports: Option<(i32, i32)>,
    pub(super) source: Source,
    pub(super) description: String,
}

impl Permission {
    /// Returns `true` if it permits all that the other one does.
    pub(super) fn covers(&self, other: &Self) -> bool {
        let contains = |(from, to): (i32, i32), (first, last): (i32, i32)| from <= first && last <= to;
        let is_wider = match (self.ports, other.ports) {
            (Some(own), Some(others)) => contains(own, others),
            (own, others) => own == others,
        };
        self.source == other.source && (self.protocol == ALL || self.protocol == other.protocol && is_wider)
    }

    /// Returns `true` if it permits what the other one does and nothing else, whatever it is described as.
    pub(super) fn is_same(&self, other: &Self) -> bool {
        (&self.protocol, self.ports, &self.source) == (&other.protocol, other.ports, &other.source)
    }
}

/// Where permitted traffic comes from.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Source {
    /// Interfaces with a group.
    Group(String),
    /// A network.
    Network(IpNet),
}

/// A subnet.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Subnet {
    pub(super) id: String,
    pub(super) name: String,
    pub(super) zone: String,
    /// Whether a preparation has chosen it for gateways of this cluster.
    pub(super) is_chosen: bool,
    /// Whether it has upstream's tag of subnets with gateways, whosever these are.
    pub(super) has_gateways: bool,
    /// The value of our tag for this cluster.
    pub(super) note: Option<String>,
    /// Whether it has our tag for another cluster.
    pub(super) is_shared: bool,
    /// The value of Kubernetes' tag for internal load balancers.
    pub(super) internal_elb: Option<String>,
    /// Whether its zone has machines of the wanted type.
    pub(super) is_offered: bool,
}

/// A node's machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Machine {
    pub(super) id: String,
    pub(super) node: String,
    pub(super) vpc: String,
    pub(super) image: String,
    /// The interface that it starts with.
    pub(super) interface: String,
    pub(super) groups: Vec<String>,
    pub(super) checks_source: bool,
    pub(super) is_public: bool,
    pub(super) tags: BTreeMap<String, String>,
}

/// What is asked for.
#[derive(Clone, Copy)]
pub(super) struct Asked<'s> {
    pub(super) settings: &'s Settings,
    /// The type of machines.
    pub(super) instance: &'s str,
    /// Whether what is no longer there is no error.
    pub(super) is_cleanup: bool,
}

/// Reads all of it.
pub(super) async fn read<E: Exchange>(
    ec2: &Ec2<E>,
    asked: Asked<'_>,
    cluster: Cluster,
) -> Result<State, CloudError> {
    let Asked { settings, is_cleanup, .. } = asked;
    let machines = machines(ec2, &cluster).await?;
    let infra_id = infra_id(settings, &cluster, &machines)?;
    let region = ec2.region().to_owned();
    let vpc = match vpc(ec2, settings, &infra_id, &machines).await {
        Err(CloudError::Refused { .. }) if is_cleanup && settings.vpc.is_none() => {
            if machines.is_empty()
                && cluster.nodes.iter().any(|node| instance_id(&node.provider_id).is_some())
            {
                return Err(unseen(&ec2.name()));
            }
            // Where the machines are gone, the gateways' group may still name it; else nothing of it is left.
            let Some(vpc) = vpc_of_gateways(ec2, &infra_id).await? else {
                return Ok(State { cluster, infra_id, region, machines, ..State::default() });
            };
            vpc
        }
        found => found?,
    };
    let groups = groups(ec2, &vpc).await?;
    let gateway_name = names::gateway_group(&infra_id);
    let gateway_group =
        groups.iter().find(|(_, group)| group.name == gateway_name).map(|(_, group)| group.clone());
    let node_groups = match node_groups(settings, &infra_id, &groups, &machines) {
        Err(CloudError::Refused { .. }) if is_cleanup => Vec::new(),
        found => found?,
    };
    let is_former = |group: &&Group| {
        let is_other = node_groups.iter().chain(&gateway_group).all(|other| other.id != group.id);
        is_other
            && group
                .permissions
                .iter()
                .any(|permission| names::is_inside_of(&infra_id, &permission.description))
    };
    let former_groups = groups.values().filter(is_former).cloned().collect();
    let subnets = match cluster.is_openshift() {
        true => subnets(ec2, asked, &infra_id, &vpc, &cluster).await?,
        false => Vec::new(),
    };
    let found = State { former_groups, gateway_group, node_groups, subnets, machines, ..State::default() };
    Ok(State { cluster, infra_id, region, vpc, ..found })
}

fn unseen(service: &str) -> CloudError {
    CloudError::refused(
        format!("{service} shows none of the nodes' machines to these credentials"),
        "give the credentials of the cluster's own account, and its region with --region (region)",
    )
}

/// Returns the VPC of the gateways' group, if there is one.
async fn vpc_of_gateways<E: Exchange>(ec2: &Ec2<E>, infra_id: &str) -> Result<Option<String>, CloudError> {
    let named = filter(1, "tag:Name", &[&names::gateway_group(infra_id)]);
    let found = ec2
        .list("DescribeSecurityGroups", &named, "securityGroupInfo", "finding the gateways' security group")
        .await?;
    Ok(found.first().map(|group| group.text("vpcId").to_owned()))
}

/// Reads the machines of the cluster's nodes.
async fn machines<E: Exchange>(
    ec2: &Ec2<E>,
    cluster: &Cluster,
) -> Result<BTreeMap<String, Machine>, CloudError> {
    let nodes: BTreeMap<&str, &str> = cluster
        .nodes
        .iter()
        .filter_map(|node| Some((instance_id(&node.provider_id)?, node.name.as_str())))
        .collect();
    let ids: Vec<&str> = nodes.keys().copied().collect();
    let mut found = BTreeMap::new();
    for part in ids.chunks(AT_ONCE) {
        // A filter, and not a list of IDs: a machine that is gone is no error.
        let mut parameters = filter(1, "instance-id", part);
        // Those that have ended are shown for a while, with neither network nor groups.
        parameters.extend(filter(2, "instance-state-name", &["pending", "running", "stopping", "stopped"]));
        let reservations = ec2
            .list("DescribeInstances", &parameters, "reservationSet", "reading the machines of nodes")
            .await?;
        for item in reservations.iter().flat_map(|reservation| reservation.items("instancesSet")) {
            let machine = machine(item, &nodes);
            if !machine.interface.is_empty() {
                found.insert(machine.id.clone(), machine);
            }
        }
    }
    Ok(found)
}

/// Returns the machine's ID of a provider ID such as `aws:///eu-west-1a/i-0f1e2d3c`.
pub(super) fn instance_id(provider_id: &str) -> Option<&str> {
    let path = provider_id.strip_prefix("aws://")?;
    path.rsplit('/').next().filter(|id| id.starts_with("i-"))
}

/// Returns the region of a provider ID: that of its zone.
pub(super) fn region_of(provider_id: &str) -> Option<String> {
    let zone = provider_id.strip_prefix("aws:///")?.split('/').next()?;
    // Zones are regions with a letter; local ones, as us-west-2-lax-1a, begin with their region.
    let parts: Vec<&str> = zone.split('-').collect();
    let number = parts.iter().position(|part| part.starts_with(|c: char| c.is_ascii_digit()))?;
    let digits: String = parts.get(number)?.chars().take_while(char::is_ascii_digit).collect();
    Some(format!("{}-{digits}", parts.get(..number)?.join("-")))
}

fn machine(item: &Element, nodes: &BTreeMap<&str, &str>) -> Machine {
    let text = |path: &str| item.text(path).to_owned();
    let id = text("instanceId");
    let node = nodes.get(id.as_str()).map(|node| (*node).to_owned()).unwrap_or_default();
    let mut interfaces: Vec<&Element> = item.items("networkInterfaceSet").collect();
    interfaces.sort_by_key(|interface| interface.text("attachment/deviceIndex").parse().unwrap_or(u32::MAX));
    let first = interfaces.first();
    let of_first = |path: &str| first.map(|interface| interface.text(path).to_owned()).unwrap_or_default();
    let groups = first.into_iter().flat_map(|interface| interface.items("groupSet"));
    Machine {
        node,
        vpc: text("vpcId"),
        image: text("imageId"),
        interface: of_first("networkInterfaceId"),
        groups: groups.map(|group| group.text("groupId").to_owned()).collect(),
        checks_source: of_first("sourceDestCheck").eq_ignore_ascii_case("true"),
        is_public: !item.text("ipAddress").is_empty() || !of_first("association/publicIp").is_empty(),
        tags: tags(item),
        id,
    }
}

/// Returns what the cluster's resources are named by: what was given, OpenShift's own record, or the one cluster that the nodes'
/// machines are tagged with.
fn infra_id(
    settings: &Settings,
    cluster: &Cluster,
    machines: &BTreeMap<String, Machine>,
) -> Result<String, CloudError> {
    if let Some(id) = settings.infra_id.clone().or_else(|| cluster.infra_id.clone()) {
        return Ok(id);
    }
    let of = |machine: &Machine| {
        let names: Vec<String> = machine
            .tags
            .keys()
            .filter_map(|key| key.strip_prefix(names::CLUSTER_TAG))
            .map(str::to_owned)
            .collect();
        names
    };
    let found: BTreeSet<String> = machines.values().flat_map(of).collect();
    match found.len() {
        1 => Ok(found.into_iter().next().unwrap_or_default()),
        0 => Err(CloudError::refused(
            "no machine of the cluster's nodes was found with a tag kubernetes.io/cluster/NAME",
            "name the cluster with --infra-id (infraID), and see that --region is its region",
        )),
        _ => Err(CloudError::refused(
            format!(
                "the nodes' machines are tagged with several clusters: {}",
                found.into_iter().collect::<Vec<_>>().join(", ")
            ),
            "name the one that is meant with --infra-id (infraID)",
        )),
    }
}

/// Returns the VPC: the one that was named, the one of the nodes' machines, or the one that OpenShift's installer has named.
async fn vpc<E: Exchange>(
    ec2: &Ec2<E>,
    settings: &Settings,
    infra_id: &str,
    machines: &BTreeMap<String, Machine>,
) -> Result<String, CloudError> {
    let named = settings.vpc.clone();
    let of_machines: BTreeSet<&str> = machines.values().map(|machine| machine.vpc.as_str()).collect();
    if named.is_none()
        && let [vpc] = of_machines.into_iter().collect::<Vec<_>>()[..]
    {
        return Ok(vpc.to_owned());
    }
    let name = named.unwrap_or_else(|| format!("{infra_id}-vpc"));
    let key = if name.starts_with("vpc-") { "vpc-id" } else { "tag:Name" };
    let found = ec2.list("DescribeVpcs", &filter(1, key, &[&name]), "vpcSet", "finding the VPC").await?;
    match &found[..] {
        [vpc] => Ok(vpc.text("vpcId").to_owned()),
        others => Err(CloudError::refused(
            format!("{} has {} VPCs with the {key} {name}", ec2.name(), others.len()),
            "give the VPC's ID with --vpc-name (aws.vpcName)",
        )),
    }
}

/// Reads all security groups of the VPC, by ID.
async fn groups<E: Exchange>(ec2: &Ec2<E>, vpc: &str) -> Result<BTreeMap<String, Group>, CloudError> {
    let mut parameters = filter(1, "vpc-id", &[vpc]);
    parameters.push(("MaxResults".to_owned(), "1000".to_owned()));
    let found = ec2
        .list("DescribeSecurityGroups", &parameters, "securityGroupInfo", "reading security groups")
        .await?;
    Ok(found.iter().map(group).map(|group| (group.id.clone(), group)).collect())
}

fn group(item: &Element) -> Group {
    let tags = tags(item);
    let name = tags.get("Name").cloned().unwrap_or_else(|| item.text("groupName").to_owned());
    let permissions = item.items("ipPermissions").flat_map(permissions).collect();
    Group { id: item.text("groupId").to_owned(), name, permissions }
}

fn permissions(item: &Element) -> Vec<Permission> {
    let port = |path: &str| item.text(path).parse::<i32>().ok();
    let protocol = item.text("ipProtocol").to_owned();
    // Of other protocols than these EC2 regards no ports, and may give back those that were sent.
    let has_ports = ["tcp", "udp", "icmp", "icmpv6"].contains(&protocol.as_str());
    let ports = port("fromPort").zip(port("toPort")).filter(|_| has_ports);
    let one = |source: Source, from: &Element| Permission {
        protocol: protocol.clone(),
        ports,
        source,
        description: from.text("description").to_owned(),
    };
    let network = |from: &Element, path: &str| from.text(path).parse::<IpNet>().ok().map(Source::Network);
    let mut found: Vec<Permission> =
        item.items("groups").map(|from| one(Source::Group(from.text("groupId").to_owned()), from)).collect();
    for (list, path) in [("ipRanges", "cidrIp"), ("ipv6Ranges", "cidrIpv6")] {
        found.extend(item.items(list).filter_map(|from| Some(one(network(from, path)?, from))));
    }
    found
}

/// Returns the groups of nodes: those that were named, those that OpenShift's installer has made (under its newer names or its older
/// ones), or else the one that all of the nodes' machines share.
fn node_groups(
    settings: &Settings,
    infra_id: &str,
    groups: &BTreeMap<String, Group>,
    machines: &BTreeMap<String, Machine>,
) -> Result<Vec<Group>, CloudError> {
    let by = |wanted: &str| groups.values().find(|group| group.name == wanted || group.id == wanted).cloned();
    let named = |wanted: &Option<String>, suffixes: [&str; 2]| match wanted {
        Some(wanted) => by(wanted).map(Some).ok_or_else(|| {
            CloudError::refused(
                format!("the VPC has no security group {wanted}"),
                "give its ID, or its name, with --worker-security-group and --control-plane-security-group",
            )
        }),
        None => Ok(suffixes.iter().find_map(|suffix| by(&format!("{infra_id}{suffix}")))),
    };
    let workers = named(&settings.worker_group, ["-node", "-worker-sg"])?;
    let control_plane = named(&settings.control_plane_group, ["-controlplane", "-master-sg"])?;
    if let Some(workers) = workers {
        let others = control_plane.filter(|group| group.id != workers.id);
        return Ok([workers].into_iter().chain(others).collect());
    }
    let gateway = names::gateway_group(infra_id);
    let mut shared: Option<BTreeSet<&String>> = None;
    for machine in machines.values() {
        let own: BTreeSet<&String> = machine.groups.iter().collect();
        shared =
            Some(shared.map_or_else(|| own.clone(), |shared| shared.intersection(&own).copied().collect()));
    }
    let shared = shared.unwrap_or_default();
    let found = shared.into_iter().filter_map(|id| groups.get(id)).filter(|group| group.name != gateway);
    // One that a preparation has chosen stays the one, or rules would move with every change of the nodes.
    let is_new = |group: &&Group| {
        !group.permissions.iter().any(|permission| names::is_inside_of(infra_id, &permission.description))
    };
    found.min_by_key(is_new).cloned().map(|group| vec![group]).ok_or_else(|| {
        CloudError::refused(
            format!(
                "no security group of the cluster's nodes was found: neither {infra_id}-node nor {infra_id}-worker-sg, nor one \
                 that all of their machines share"
            ),
            "name one with --worker-security-group (aws.workerSecurityGroup)",
        )
    })
}

/// Returns the public subnets in which gateways may be: chosen ones first, then by name.
async fn subnets<E: Exchange>(
    ec2: &Ec2<E>,
    asked: Asked<'_>,
    infra_id: &str,
    vpc: &str,
    cluster: &Cluster,
) -> Result<Vec<Subnet>, CloudError> {
    let Asked { settings, instance, is_cleanup } = asked;
    let found =
        ec2.list("DescribeSubnets", &filter(1, "vpc-id", &[vpc]), "subnetSet", "reading subnets").await?;
    let public = [format!("{infra_id}-public-"), format!("{infra_id}-subnet-public")];
    let is_public = |subnet: &Subnet| public.iter().any(|prefix| subnet.name.starts_with(prefix));
    let mut all: Vec<Subnet> = found.iter().map(|item| subnet(item, infra_id)).collect();
    for subnet in &mut all {
        // Upstream's tag names no cluster: it is this one's where the name does, or where a set of machines is in the subnet.
        let set = cluster.machine_set(&machine_set_name(infra_id, &subnet.zone));
        let has_set = set.is_some_and(|set| is_in(set, subnet));
        let is_upstreams = subnet.has_gateways && !subnet.is_shared && (is_public(subnet) || has_set);
        subnet.is_chosen = subnet.note.is_some() || is_upstreams;
    }
    let is_named =
        |subnet: &Subnet| settings.subnets.iter().any(|name| *name == subnet.name || *name == subnet.id);
    let is_meant = |subnet: &Subnet| match settings.subnets.is_empty() {
        true => subnet.is_chosen || is_public(subnet),
        false => is_named(subnet) || is_cleanup && subnet.is_chosen,
    };
    let missing: Vec<&str> = settings
        .subnets
        .iter()
        .filter(|name| !all.iter().any(|subnet| **name == subnet.name || **name == subnet.id))
        .map(String::as_str)
        .collect();
    if !missing.is_empty() && !is_cleanup {
        return Err(CloudError::refused(
            format!("the VPC {vpc} has no subnet {}", missing.join(", ")),
            "name subnets of the cluster's VPC with --subnet-names (aws.subnetNames)",
        ));
    }
    let offered = if is_cleanup { BTreeSet::new() } else { offered(ec2, instance).await? };
    let mut subnets: Vec<Subnet> = all.into_iter().filter(is_meant).collect();
    subnets.iter_mut().for_each(|subnet| subnet.is_offered = offered.contains(&subnet.zone));
    subnets.sort_by_key(|subnet| (!subnet.is_chosen, subnet.name.clone(), subnet.id.clone()));
    Ok(subnets)
}

/// Returns `true` if a set's machines are in a subnet, which it names by its ID or by its tag `Name`.
pub(super) fn is_in(set: &Value, subnet: &Subnet) -> bool {
    let named = &set["spec"]["template"]["spec"]["providerSpec"]["value"]["subnet"];
    let filters = named["filters"].as_array().into_iter().flatten();
    let values =
        filters.filter(|filter| filter["name"] == "tag:Name").flat_map(|filter| filter["values"].as_array());
    let has_name = values.flatten().any(|value| *value == subnet.name);
    named["id"] == subnet.id || has_name && !subnet.name.is_empty()
}

fn subnet(item: &Element, infra_id: &str) -> Subnet {
    let tags = tags(item);
    let own = names::gateway_of(infra_id);
    let is_of_other = |key: &&String| key.starts_with(names::GATEWAY_OF_TAG) && **key != own;
    Subnet {
        id: item.text("subnetId").to_owned(),
        name: tags.get("Name").cloned().unwrap_or_default(),
        zone: item.text("availabilityZone").to_owned(),
        is_chosen: false,
        has_gateways: tags.contains_key(names::GATEWAY_TAG),
        note: tags.get(&own).cloned(),
        is_shared: tags.keys().any(|key| is_of_other(&key)),
        internal_elb: tags.get(names::INTERNAL_ELB_TAG).cloned(),
        is_offered: false,
    }
}

/// Returns the zones that have machines of a type.
async fn offered<E: Exchange>(ec2: &Ec2<E>, instance: &str) -> Result<BTreeSet<String>, CloudError> {
    let mut parameters: Parameters = filter(1, "instance-type", &[instance]);
    parameters.push(("LocationType".to_owned(), "availability-zone".to_owned()));
    let operation = "asking for the zones with machines of the gateways' type";
    let found =
        ec2.list("DescribeInstanceTypeOfferings", &parameters, "instanceTypeOfferingSet", operation).await?;
    Ok(found.iter().map(|item| item.text("location").to_owned()).collect())
}

fn tags(item: &Element) -> BTreeMap<String, String> {
    item.items("tagSet").map(|tag| (tag.text("key").to_owned(), tag.text("value").to_owned())).collect()
}
