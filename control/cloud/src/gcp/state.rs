//! What there is: the cluster, its machines, its rules.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::api::Compute;
use super::names::{GATEWAY_TAG, all_rules, is_name, is_part, last_part};
use super::settings::{Credentials, Settings};
use crate::CloudError;
use crate::cluster::Cluster;
use crate::exchange::Exchange;

/// What there is of what is prepared.
#[derive(Debug, Default)]
pub struct State {
    pub(super) cluster: Cluster,
    pub(super) infra_id: String,
    /// The project of the cluster's machines.
    pub(super) project: String,
    /// The region of OpenShift's machines.
    pub(super) region: Option<String>,
    /// The network, where one is given or found.
    pub(super) network: Option<Network>,
    /// The rules of a preparation, by name.
    pub(super) rules: BTreeMap<String, Value>,
    /// Whether rules of a preparation were found, now or by an earlier reading of the same run, which may have ended with their removal.
    pub(super) has_had_rules: bool,
    /// The machines, by node.
    pub(super) instances: BTreeMap<String, Instance>,
    /// The zones of the region that are up, by name; read on OpenShift alone.
    pub(super) zones: Vec<String>,
}

/// A network, which may be another project's.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Network {
    pub(super) project: String,
    pub(super) name: String,
}

impl Network {
    /// Reads a name, or a path or URL with `projects/PROJECT/global/networks/NAME`.
    fn parse(text: &str, project: &str) -> Option<Self> {
        let (project, name) = match text.find("projects/").and_then(|at| text.get(at..)) {
            Some(path) => match path.split('/').collect::<Vec<_>>()[..] {
                ["projects", project, "global", "networks", name] => (project, name),
                _ => return None,
            },
            None => (project, text),
        };
        let network = Self { project: project.to_owned(), name: name.to_owned() };
        (is_part(project) && is_name(name)).then_some(network)
    }

    /// Returns it as rules name it.
    pub(super) fn path(&self) -> String {
        format!("projects/{}/global/networks/{}", self.project, self.name)
    }
}

/// Where an instance is.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Id {
    pub(super) project: String,
    pub(super) zone: String,
    pub(super) name: String,
}

impl Id {
    /// Reads what Kubernetes calls a machine of Compute Engine's: `gce://PROJECT/ZONE/NAME`
    /// (<https://github.com/kubernetes/cloud-provider-gcp>).
    pub(super) fn parse(provider_id: &str) -> Option<Self> {
        let path = provider_id.strip_prefix("gce://")?;
        let [project, zone, name] = path.split('/').collect::<Vec<_>>()[..] else { return None };
        let id = Self { project: project.to_owned(), zone: zone.to_owned(), name: name.to_owned() };
        [project, zone, name].into_iter().all(is_part).then_some(id)
    }

    /// Returns its path below `projects/`.
    pub(super) fn path(&self) -> String {
        format!("{}/zones/{}/instances/{}", self.project, self.zone, self.name)
    }
}

/// The fields of [`Instance`].
const FIELDS: &str = "name,tags,canIpForward,\
    networkInterfaces(network,accessConfigs(natIP),ipv6AccessConfigs(externalIpv6))";

/// A machine (<https://cloud.google.com/compute/docs/reference/rest/v1/instances>).
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Instance {
    pub(super) id: Id,
    pub(super) tags: Vec<String>,
    /// Of the tags: whoever changes them names it.
    pub(super) fingerprint: String,
    pub(super) has_external_ip: bool,
    pub(super) can_ip_forward: bool,
    pub(super) network: Option<Network>,
}

impl Instance {
    fn of(id: Id, object: &Value) -> Self {
        let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
        let interfaces = list(&object["networkInterfaces"]);
        let has = |interface: &Value, configs: &str, address: &str| {
            list(&interface[configs]).iter().any(|config| config[address].is_string())
        };
        let has_external_ip = interfaces.iter().any(|interface| {
            has(interface, "accessConfigs", "natIP") || has(interface, "ipv6AccessConfigs", "externalIpv6")
        });
        let network = interfaces.first().and_then(|interface| interface["network"].as_str());
        let tags = list(&object["tags"]["items"]);
        Self {
            tags: tags.iter().filter_map(Value::as_str).map(str::to_owned).collect(),
            fingerprint: object["tags"]["fingerprint"].as_str().unwrap_or_default().to_owned(),
            has_external_ip,
            can_ip_forward: object["canIpForward"] == true,
            network: network.and_then(|network| Network::parse(network, &id.project)),
            id,
        }
    }

    /// Returns `true` if it has the tag of gateways.
    pub(super) fn is_tagged(&self) -> bool {
        self.tags.iter().any(|tag| tag == GATEWAY_TAG)
    }
}

/// Reads what there is.
pub(super) async fn observe<E: Exchange>(
    compute: &Compute<E>,
    cluster: Cluster,
    settings: &Settings,
) -> Result<State, CloudError> {
    let mut state = State {
        infra_id: infra_id(settings, &cluster)?,
        project: project(settings, &cluster)?,
        cluster,
        ..State::default()
    };
    state.instances = instances(compute, &state.cluster).await?;
    state.network = network(settings, &state)?;
    let rules_project = state.network.as_ref().map_or(&state.project, |network| &network.project);
    for name in all_rules(&state.infra_id) {
        let path = format!("{rules_project}/global/firewalls/{name}");
        if let Some(rule) = compute.find(&path, &format!("reading firewall rule {name}")).await? {
            state.rules.insert(name, rule);
        }
    }
    if state.cluster.is_openshift() {
        state.region = region(settings, &state);
        if let Some(region) = &state.region {
            state.zones = zones(compute, &state.project, region).await?;
        }
    }
    Ok(state)
}

async fn instances<E: Exchange>(
    compute: &Compute<E>,
    cluster: &Cluster,
) -> Result<BTreeMap<String, Instance>, CloudError> {
    let mut nodes: BTreeMap<(String, String), BTreeMap<String, String>> = BTreeMap::new();
    for node in &cluster.nodes {
        if let Some(Id { project, zone, name }) = Id::parse(&node.provider_id) {
            nodes.entry((project, zone)).or_default().insert(name, node.name.clone());
        }
    }
    let mut all = BTreeMap::new();
    for ((project, zone), names) in nodes {
        let keep = |object: &Value| {
            let name = object["name"].as_str()?;
            let id = Id { project: project.clone(), zone: zone.clone(), name: name.to_owned() };
            names.get(name).map(|node| (node.clone(), Instance::of(id, object)))
        };
        let path = format!("{project}/zones/{zone}/instances");
        let purpose = format!("listing the instances of {zone}");
        all.extend(compute.list(&path, FIELDS, &purpose, keep).await?);
    }
    Ok(all)
}

async fn zones<E: Exchange>(
    compute: &Compute<E>,
    project: &str,
    region: &str,
) -> Result<Vec<String>, CloudError> {
    let keep = |zone: &Value| {
        let is_in = last_part(zone["region"].as_str().unwrap_or_default()) == region;
        let name = zone["name"].as_str().filter(|name| is_name(name));
        name.filter(|_| is_in && zone["status"] == "UP").map(str::to_owned)
    };
    let path = format!("{project}/zones");
    let mut zones = compute.list(&path, "name,region,status", "listing zones", keep).await?;
    zones.sort();
    Ok(zones)
}

/// Returns what the names of the cluster's machines and rules begin with: on OpenShift what all sets of machines name.
fn infra_id(settings: &Settings, cluster: &Cluster) -> Result<String, CloudError> {
    let label = |set: &Value| {
        let label = &set["metadata"]["labels"]["machine.openshift.io/cluster-api-cluster"];
        label.as_str().map(str::to_owned)
    };
    let read: BTreeSet<String> = cluster.machine_sets.iter().flatten().filter_map(label).collect();
    let named = settings.infra_id.clone().or_else(|| cluster.infra_id.clone());
    let given = named.or_else(|| match read.len() {
        1 => read.into_iter().next(),
        _ => None,
    });
    let next = match cluster.is_openshift() {
        true => "give --infra-id, or --ocp-metadata with the installer's metadata.json",
        false => {
            "give --infra-id: a short name for the cluster, such as its name in GKE, that no other cluster of the project has; \
             the firewall rules are named by it, and the clean-up finds them by it"
        }
    };
    let Some(infra_id) = given else {
        return Err(CloudError::refused("the cluster does not show its infrastructure ID", next));
    };
    if all_rules(&infra_id).iter().all(|name| is_name(name)) {
        return Ok(infra_id);
    }
    Err(CloudError::refused(
        format!(
            "`{}` is no infrastructure ID for Compute Engine, whose names have at most 63 lower-case letters, digits and hyphens",
            infra_id.escape_debug()
        ),
        next,
    ))
}

fn project(settings: &Settings, cluster: &Cluster) -> Result<String, CloudError> {
    let of_nodes: BTreeSet<String> =
        cluster.nodes.iter().filter_map(|node| Id::parse(&node.provider_id)).map(|id| id.project).collect();
    let of_nodes = if of_nodes.len() == 1 { of_nodes.into_iter().next() } else { None };
    let of_key = match &settings.credentials {
        Credentials::Key(account) => account.project().map(str::to_owned),
        Credentials::MetadataServer => None,
    };
    let project = settings.project.clone().or(of_nodes).or(of_key);
    project.filter(|project| is_part(project)).ok_or_else(|| {
        CloudError::refused(
            "neither nodes nor credentials show the cluster's project",
            "give --project-id with the ID of the project of the cluster's machines",
        )
    })
}

/// Returns the provider's part of a set of worker machines.
pub(super) fn worker_spec(state: &State) -> Option<&Value> {
    let set = state.cluster.worker_set(&state.infra_id)?;
    set.pointer("/spec/template/spec/providerSpec/value").filter(|value| value.is_object())
}

/// Returns the network: as given; else the one that is found, if it is one. A name that is given without a project is of the
/// project in which a network of this name is found, else of the cluster's.
fn network(settings: &Settings, state: &State) -> Result<Option<Network>, CloudError> {
    let found = networks_found(state);
    let Some(given) = &settings.network else {
        let is_one = found.len() == 1;
        return Ok(found.into_iter().next().filter(|_| is_one));
    };
    if let Some(network) = found.into_iter().find(|network| network.name == *given) {
        return Ok(Some(network));
    }
    Network::parse(given, &state.project).map(Some).ok_or_else(|| {
        CloudError::refused(
            format!("`{}` is no name of a VPC network", given.escape_debug()),
            "give its name, or projects/PROJECT/global/networks/NAME if it is shared by another project",
        )
    })
}

/// Returns the networks that are found: on OpenShift the one that its sets of workers name, else upstream's name for it; elsewhere
/// those of the nodes' machines.
fn networks_found(state: &State) -> BTreeSet<Network> {
    if !state.cluster.is_openshift() {
        return state.instances.values().filter_map(|instance| instance.network.clone()).collect();
    }
    let interface = worker_spec(state).map(|spec| &spec["networkInterfaces"][0]);
    let text = |field: &str| interface.and_then(|interface| interface[field].as_str());
    let text = |field: &str| text(field).filter(|text| !text.is_empty());
    let default = format!("{}-network", state.infra_id);
    let project = text("projectID").unwrap_or(&state.project);
    Network::parse(text("network").unwrap_or(&default), project).into_iter().collect()
}

fn region(settings: &Settings, state: &State) -> Option<String> {
    let of_set = worker_spec(state).and_then(|spec| spec["region"].as_str()).map(str::to_owned);
    let of_nodes =
        || state.cluster.nodes.iter().map(|node| node.region.clone()).find(|name| !name.is_empty());
    settings.region.clone().or(of_set).or_else(of_nodes).filter(|region| !region.is_empty())
}

/// Returns the tags by which rules name the cluster's nodes: as given; on OpenShift the two that its installer gives to workers and
/// control planes, with those of machines that have neither; elsewhere one that all nodes' machines have in common, GKE's rather
/// than another.
pub(super) fn node_tags(settings: &Settings, state: &State) -> Vec<String> {
    if !settings.node_tags.is_empty() {
        return settings.node_tags.clone();
    }
    let infra_id = &state.infra_id;
    let tags = |instance: &Instance| -> BTreeSet<String> {
        instance.tags.iter().filter(|tag| *tag != GATEWAY_TAG).cloned().collect()
    };
    if state.cluster.is_openshift() {
        let usual = [format!("{infra_id}-worker"), format!("{infra_id}-master")];
        let mut all = usual.to_vec();
        for own in state.instances.values().map(tags) {
            let is_ours = |tag: &&String| tag.starts_with(&format!("{infra_id}-"));
            let is_new = usual.iter().all(|tag| !own.contains(tag));
            let more = own.iter().find(is_ours).filter(|tag| is_new && !all.contains(tag));
            all.extend(more.cloned());
        }
        return all;
    }
    let common = state.instances.values().map(tags).reduce(|a, b| a.intersection(&b).cloned().collect());
    let rank = |tag: &String| match tag {
        tag if tag.starts_with("gke-") => 0,
        tag if tag.contains(infra_id.as_str()) => 1,
        _ => 2,
    };
    common.into_iter().flatten().min_by_key(|tag| (rank(tag), tag.clone())).into_iter().collect()
}
