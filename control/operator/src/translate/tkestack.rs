//! From the namespaced `Fabric` (`Knitnet` later) of group `operator.tkestack.io/v1alpha1` to our own spec: same fields, same
//! defaults.
//!
//! Three things are not as they were: a part that was begun stays as long as its configuration is there, whatever the action says later;
//! a cluster ID that is missing is made of the resource's name, and is not a random one at each pass; and the broker's join data has the
//! rights of an account that lets clusters join, not those of an administrator.

use serde_json::{Map, Value};
use trieste_control::api::{
    BrokerConfig, BrokerInfoSource, FabricSpec, JoinConfig, Kind, TkestackBroker, TkestackJoin, TkestackSpec,
};
use trieste_deploy::objects::Image;
use trieste_deploy::objects::names::{GATEWAY, ROUTE_AGENT};
use trieste_deploy::preflight::canonical;

use super::field::FieldError;
use super::join::published;
use crate::order::Part;

/// The port of IKE, which cannot be another one.
const IKE_PORT: u16 = 500;

/// What a resource says in our words.
#[derive(Debug, Clone, PartialEq)]
pub struct Translated {
    /// The spec.
    pub spec: FabricSpec,
    /// Fields that say something which is not carried out, and why.
    pub warnings: Vec<String>,
}

/// Returns the name of a part's configuration; such a resource does not have every part.
const fn config(part: Part) -> Option<&'static str> {
    match part {
        Part::Broker => Some("brokerConfig"),
        Part::Member => Some("joinConfig"),
        Part::ServiceDiscovery => None,
    }
}

/// Returns `true` if the resource has the configuration of a part.
pub fn has(spec: &Map<String, Value>, part: Part) -> bool {
    config(part).and_then(|config| spec.get(config)).is_some_and(|config| !config.is_null())
}

/// Returns `true` if a resource of that kind has a part begun. Most Fabrics have no action, and all that is there is begun; an action that
/// nobody has defined begins nothing.
pub fn begins(kind: Kind, spec: &Map<String, Value>, part: Part) -> bool {
    let none = if kind == Kind::Knitnet { "broker" } else { "all" };
    let action = spec.get("action").and_then(Value::as_str).filter(|action| !action.is_empty());
    let is_meant = match action.unwrap_or(none) {
        "broker" => part == Part::Broker,
        "join" => part == Part::Member,
        "all" => true,
        _ => false,
    };
    has(spec, part) && is_meant
}

/// Returns what of a spec a part goes by: a mistake in the other one does not concern it.
pub fn of_part(spec: &Map<String, Value>, part: Part) -> Map<String, Value> {
    let mut own = spec.clone();
    // Said once, about the member where there is one.
    if part == Part::Broker && has(spec, Part::Member) {
        own.remove("cloudPrepareConfig");
    }
    let others = Part::ALL.into_iter().filter(|other| *other != part).filter_map(config);
    others.for_each(|other| drop(own.remove(other)));
    own
}

/// Translates the spec of a resource, whatever its action; `source` says whether the broker's join data was found in a ConfigMap, as that
/// operator publishes it, or in a Secret.
///
/// # Errors
/// [`FieldError`] if a field has a type or value that it cannot have.
pub fn translate(spec: &Map<String, Value>, source: BrokerInfoSource) -> Result<Translated, FieldError> {
    let mut spec = Value::Object(spec.clone());
    remove_nulls(&mut spec);
    if let Some(fields) = spec.as_object_mut().filter(|fields| fields.get("action") == Some(&Value::from("")))
    {
        fields.remove("action");
    }
    let spec: TkestackSpec = serde_path_to_error::deserialize(&spec)
        .map_err(|error| FieldError::new("spec", format!("{}: {}", error.path(), error.inner())))?;
    let mut warnings = Vec::new();
    if spec.cloud_prepare_config.as_ref().is_some_and(asks_for_something) {
        warnings.push("cloudPrepareConfig is not carried out: this version prepares no cloud".to_owned());
    }
    let join = spec.join_config.map(|join| join_config(join, source, &mut warnings)).transpose()?;
    let broker = spec.broker_config.map(broker_config);
    let spec = FabricSpec { broker_config: broker, join_config: join, cloud_prepare_config: None };
    Ok(Translated { spec, warnings })
}

/// Returns `true` unless all that is there is what that operator's programs write where nobody has asked for anything.
fn asks_for_something(cloud: &Map<String, Value>) -> bool {
    let is_given = |value: &Value| match value {
        Value::String(text) => !text.is_empty(),
        Value::Object(fields) => {
            fields.get("name").and_then(Value::as_str).is_some_and(|name| !name.is_empty())
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) => false,
    };
    ["credentialsSecret", "infraID", "region"].iter().any(|field| cloud.get(*field).is_some_and(is_given))
}

/// Removes fields without a value: that operator's own programs write them for lists that are empty.
fn remove_nulls(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.retain(|_, field| !field.is_null());
            fields.values_mut().for_each(remove_nulls);
        }
        Value::Array(items) => items.iter_mut().for_each(remove_nulls),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

fn broker_config(broker: TkestackBroker) -> BrokerConfig {
    BrokerConfig {
        public_api_server_url: broker.public_api_server_url.filter(|url| !url.is_empty()),
        connectivity_enabled: broker.connectivity_enabled,
        service_discovery_enabled: broker.service_discovery_enabled,
        custom_domains: broker.default_custom_domains,
        globalnet_enable: broker.globalnet_enable,
        globalnet_cidr_range: broker.globalnet_cidr_range,
        default_globalnet_cluster_size: broker.default_globalnet_cluster_size,
        ..BrokerConfig::default()
    }
}

fn join_config(
    join: TkestackJoin,
    source: BrokerInfoSource,
    warnings: &mut Vec<String>,
) -> Result<JoinConfig, FieldError> {
    let given = |text: String| (!text.is_empty()).then_some(text);
    if join.ike_port != IKE_PORT {
        warnings.push(format!(
            "joinConfig.ikePort {} is not carried out: IKE uses UDP port {IKE_PORT}",
            join.ike_port
        ));
    }
    let image = image(&join, warnings)?;
    Ok(JoinConfig {
        broker_info_ref: Some(published(source)),
        cluster_id: given(join.cluster_id),
        service_cidr: given(join.service_cidr),
        cluster_cidr: given(join.cluster_cidr),
        globalnet_cidr: given(join.globalnet_cidr),
        image,
        natt_port: join.natt_port,
        preferred_server: join.preferred_server,
        force_udp_encaps: join.force_udp_encaps,
        nat_traversal: join.nat_traversal,
        globalnet_enabled: join.globalnet_enabled,
        globalnet_cluster_size: join.globalnet_cluster_size,
        ipsec_debug: join.ipsec_debug,
        debug: join.submariner_debug,
        label_gateway: join.label_gateway,
        load_balancer_enabled: join.load_balancer_enabled,
        // An empty one is IPsec, as there.
        cable_driver: canonical(&join.cable_driver),
        custom_domains: join.custom_domains,
        coredns_custom_config_map: given(join.coredns_custom_config_map),
        health_check_enable: join.health_check_enable,
        health_check_interval: join.health_check_interval,
        health_check_max_packet_loss_count: join.health_check_max_packet_loss_count,
        ..JoinConfig::default()
    })
}

/// Returns the one image of all pods, if one is named: gateway and route agent are one here.
fn image(join: &TkestackJoin, warnings: &mut Vec<String>) -> Result<Option<String>, FieldError> {
    const FIELD: &str = "joinConfig.imageOverrideArr";
    let mut chosen: Option<&str> = None;
    for entry in &join.image_override_arr {
        let Some((component, reference)) = entry.split_once('=') else {
            return Err(FieldError::new(FIELD, format!("`{entry}` is not COMPONENT=REFERENCE")));
        };
        if ![GATEWAY, ROUTE_AGENT].contains(&component) {
            warnings.push(format!("{FIELD} {component} is not carried out: there is no such component"));
            continue;
        }
        if chosen.is_some_and(|other| other != reference) {
            return Err(FieldError::new(
                FIELD,
                "gateway and route agent are one image: name the same for both",
            ));
        }
        chosen = Some(reference);
    }
    if let Some(reference) = chosen {
        return Ok(Some(reference.to_owned()));
    }
    let part = |text: &String| (!text.is_empty()).then(|| text.clone());
    let (repository, version) = (part(&join.repository), part(&join.image_version));
    let is_named = repository.is_some() || version.is_some();
    Ok(is_named.then(|| Image::of(repository.as_deref(), version.as_deref()).reference))
}
