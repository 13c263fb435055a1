//! From the namespaced `Fabric` (`Knitnet` later) of group `operator.tkestack.io/v1alpha1` to our own spec: same fields, same
//! defaults.
//!
//! Three things are not as they were: a part that was begun stays as long as its configuration is there, whatever the action says later;
//! a cluster ID that is missing is made of the resource's name, and is not a random one at each pass; and the broker's join data has the
//! rights of an account that lets clusters join, not those of an administrator.

mod cloud;
mod nulls;

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
pub use cloud::{TranslatedCloud, cloud};
use nulls::remove_nulls;

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
        Part::Cloud => Some(cloud::FIELD),
        Part::Member => Some("joinConfig"),
        Part::ServiceDiscovery => None,
    }
}

/// Returns `true` if the resource has the configuration of a part. One of a cloud in which nothing stands is none.
pub fn has(spec: &Map<String, Value>, part: Part) -> bool {
    let config = config(part).and_then(|config| spec.get(config)).filter(|config| !config.is_null());
    config.is_some_and(|config| part != Part::Cloud || cloud::asks_for_something(config))
}

/// Returns `true` if a resource of that kind has a part begun. Most Fabrics have no action, and all that is there is begun; an action that
/// nobody has defined begins nothing. The cloud is prepared for a member.
pub fn begins(kind: Kind, spec: &Map<String, Value>, part: Part) -> bool {
    let none = if kind == Kind::Knitnet { "broker" } else { "all" };
    let action = spec.get("action").and_then(Value::as_str).filter(|action| !action.is_empty());
    let is_meant = match action.unwrap_or(none) {
        "broker" => part == Part::Broker,
        "join" => matches!(part, Part::Member | Part::Cloud),
        "all" => true,
        _ => false,
    };
    has(spec, part) && is_meant
}

/// Returns what of a spec a part goes by: a mistake in the other one does not concern it.
pub fn of_part(spec: &Map<String, Value>, part: Part) -> Map<String, Value> {
    let mut own = spec.clone();
    // The cloud's ports are those of the member.
    let is_other = |other: &Part| *other != part && (part, *other) != (Part::Cloud, Part::Member);
    let others = Part::ALL.into_iter().filter(is_other).filter_map(config);
    others.for_each(|other| drop(own.remove(other)));
    own
}

/// Translates the spec of a resource but for its [`cloud`], whatever its action; `source` says whether the broker's join data was found in a ConfigMap, as that
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
    let join = spec.join_config.map(|join| join_config(join, source, &mut warnings)).transpose()?;
    let broker = spec.broker_config.map(broker_config);
    let spec = FabricSpec { broker_config: broker, join_config: join, cloud_prepare_config: None };
    Ok(Translated { spec, warnings })
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
