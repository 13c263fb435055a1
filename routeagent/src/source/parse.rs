//! Objects of the store, parsed into what drivers need. Pure.

use std::collections::BTreeSet;

use ipnet::IpNet;
use trieste_control::api::{
    self, ClusterNetworks, EndpointFacts, EndpointSpec, Kind, Object, Resource, backend_config,
    ensure_valid_name, parse_cidrs, published,
};
use trieste_control::leader::TERM_ANNOTATION;
use trieste_control::members::{MOST_PATHS, Member};

use crate::condition::Condition;
use crate::constants::{DEFAULT_CABLE_PORT, DEFAULT_NATT_PORT};
use crate::nodes::shown;
use crate::state::{Cluster, Endpoint};
use crate::view::ClusterView;

/// Longest device name, in bytes (`IFNAMSIZ` less the terminator).
const MAX_DEVICE_NAME: usize = 15;

/// Ours: most of the own cluster's gateways that are looked at: twice what a cluster may have, for those that are gone.
const MOST_MEMBERS: usize = 2 * MOST_PATHS;

/// Parses all Endpoints and Clusters of a store, as cluster `own` sees them. Other kinds are ignored.
#[must_use]
pub fn view<'a>(own: &str, objects: impl IntoIterator<Item = &'a Object>) -> ClusterView {
    let mut view = ClusterView::default();
    for object in objects {
        match object.kind {
            Kind::Endpoint => add_endpoint(own, object, &mut view),
            Kind::Cluster => add_cluster(own, object, &mut view),
            Kind::Gateway | _ => {}
        }
    }
    view
}

/// Returns `true` if the kernel would take a name for a device.
#[must_use]
pub fn is_device_name(name: &str) -> bool {
    (1..=MAX_DEVICE_NAME).contains(&name.len())
        && name != "."
        && name != ".."
        && !name.contains(|c: char| c == '/' || c == ':' || c.is_whitespace() || c.is_control())
}

fn add_endpoint(own: &str, object: &Object, view: &mut ClusterView) {
    let endpoint = match api::Endpoint::from_object(object) {
        Ok(endpoint) => endpoint,
        Err(error) => return report_bad_object(object, &error.to_string(), &mut view.conditions),
    };
    match endpoint.spec.parse() {
        Ok(facts) => {
            let endpoint = gateway(own, object, &endpoint.spec, facts, &mut view.conditions);
            view.endpoints.push(endpoint);
        }
        Err(error) => {
            report_bad_object(
                object,
                &format!("{error}; its networks are refused, not routed"),
                &mut view.conditions,
            );
            let networks = usable(&endpoint.spec.subnets);
            view.clusters.push(Cluster { id: endpoint.spec.cluster_id, created: created(object), networks });
        }
    }
}

/// Returns the own cluster's gateways from their further Endpoints; at most one for each cable.
pub(super) fn members<'a>(
    own: &str,
    objects: impl Iterator<Item = &'a Object>,
    conditions: &mut BTreeSet<Condition>,
) -> Vec<Endpoint> {
    let mut members = Vec::new();
    for object in objects.take(MOST_MEMBERS) {
        let Some(member) = Member::read(object).filter(|member| member.cluster_id() == own) else { continue };
        match member.endpoint.spec.parse() {
            Ok(facts) => members.push(gateway(own, object, &member.endpoint.spec, facts, conditions)),
            Err(error) => {
                report_bad_object(object, &format!("{error}; this gateway is not used"), conditions)
            }
        }
    }
    members
}

fn gateway(
    own: &str,
    object: &Object,
    spec: &EndpointSpec,
    facts: EndpointFacts,
    conditions: &mut BTreeSet<Condition>,
) -> Endpoint {
    // Device names are accepted from the own cluster alone.
    let is_own = facts.cluster_id == own;
    let interface = is_own.then(|| interface(object, spec, conditions)).flatten();
    Endpoint {
        name: object.metadata.name.clone(),
        cluster: facts.cluster_id,
        hostname: facts.hostname,
        created: created(object),
        subnets: facts.subnets,
        addresses: [Some(facts.private_ip), facts.public_ip].into_iter().flatten().collect(),
        former_backend: spec.drivers().nth(1),
        backend: facts.backend,
        health_check: facts.health_check_ip,
        interface,
        cable_port: facts.udp_port.unwrap_or(DEFAULT_CABLE_PORT),
        natt_port: facts.nat_discovery_port.unwrap_or(DEFAULT_NATT_PORT),
        cable_name: facts.cable_name,
        has_multipath: spec.supports_paths(),
        is_triestes: spec.supports_paths() || object.metadata.annotations.contains_key(TERM_ANNOTATION),
        notice_key: spec.notice_key(),
    }
}

fn add_cluster(own: &str, object: &Object, view: &mut ClusterView) {
    let cluster = match api::Cluster::from_object(object) {
        Ok(cluster) => cluster,
        Err(error) => return report_bad_object(object, &error.to_string(), &mut view.conditions),
    };
    let networks = match cluster.spec.parse() {
        Ok(facts) => {
            let published = facts.published_subnets();
            if facts.cluster_id == own && object.metadata.name == ensure_valid_name(own) {
                view.own_networks = ClusterNetworks::announced(object);
            }
            published
        }
        Err(error) => {
            report_bad_object(object, &error.to_string(), &mut view.conditions);
            let spec = &cluster.spec;
            usable(&published(&spec.global_cidr, &spec.service_cidr, &spec.cluster_cidr))
        }
    };
    view.clusters.push(Cluster { id: cluster.spec.cluster_id, created: created(object), networks });
}

/// Returns the published device, if it can be one.
fn interface(object: &Object, spec: &EndpointSpec, conditions: &mut BTreeSet<Condition>) -> Option<String> {
    let name = spec.backend_config.get(backend_config::INTERFACE_NAME)?;
    if is_device_name(name) {
        return Some(name.clone());
    }
    let field = backend_config::INTERFACE_NAME;
    report_bad_object(
        object,
        &format!("spec.backend_config.{field}: `{}` is not a device name", shown(name)),
        conditions,
    );
    None
}

/// Returns the networks of a list that are well-formed.
fn usable(texts: &[String]) -> Vec<IpNet> {
    texts.iter().filter_map(|text| parse_cidrs("", std::slice::from_ref(text)).ok()).flatten().collect()
}

pub(super) fn created(object: &Object) -> i128 {
    object.metadata.creation_timestamp.map_or(i128::MIN, |at| at.as_nanosecond())
}

fn report_bad_object(object: &Object, problem: &str, conditions: &mut BTreeSet<Condition>) {
    conditions.insert(Condition::BadObject { object: object.key().to_string(), problem: problem.to_owned() });
}
