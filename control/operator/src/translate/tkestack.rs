//! From the namespaced `Fabric` (`Knitnet` later) of group `operator.tkestack.io/v1alpha1` to our own spec: same fields, same
//! defaults.
//!
//! Two things are not as they were: a cluster ID that is missing is made of the resource's name, and not a random one at each pass;
//! and the broker's join data has the rights of an account that lets clusters join, not those of an administrator.

use serde::Deserialize;
use serde_json::Value;
use trieste_control::api::{BrokerConfig, BrokerInfoRef, BrokerInfoSource, FabricSpec, JoinConfig};
use trieste_deploy::objects::Image;
use trieste_deploy::objects::names::{BROKER_INFO, BROKER_INFO_KEY, BROKER_NAMESPACE, GATEWAY, ROUTE_AGENT};
use trieste_deploy::preflight::canonical;

use super::field::FieldError;

/// Group and version of the resource.
pub const API_VERSION: &str = "operator.tkestack.io/v1alpha1";

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

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Spec {
    action: Option<Action>,
    broker_config: Option<Broker>,
    join_config: Option<Join>,
    cloud_prepare_config: Option<Value>,
}

/// Which parts of a Knitnet are carried out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Action {
    Broker,
    Join,
    All,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Broker {
    #[serde(rename = "publicAPIServerURL")]
    public_api_server_url: Option<String>,
    connectivity_enabled: bool,
    service_discovery_enabled: bool,
    globalnet_enable: bool,
    #[serde(rename = "globalnetCIDRRange")]
    globalnet_cidr_range: String,
    default_globalnet_cluster_size: u32,
    default_custom_domains: Vec<String>,
}

impl Default for Broker {
    fn default() -> Self {
        Self {
            public_api_server_url: None,
            connectivity_enabled: true,
            service_discovery_enabled: false,
            globalnet_enable: false,
            globalnet_cidr_range: "242.0.0.0/8".to_owned(),
            // So it is there; rounded up it is what was meant.
            default_globalnet_cluster_size: 65_336,
            default_custom_domains: Vec::new(),
        }
    }
}

#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Join {
    #[serde(rename = "clusterID")]
    cluster_id: String,
    #[serde(rename = "serviceCIDR")]
    service_cidr: String,
    #[serde(rename = "clusterCIDR")]
    cluster_cidr: String,
    #[serde(rename = "globalnetCIDR")]
    globalnet_cidr: String,
    repository: String,
    image_version: String,
    image_override_arr: Vec<String>,
    natt_port: u16,
    ike_port: u16,
    preferred_server: bool,
    #[serde(rename = "forceUDPEncaps")]
    force_udp_encaps: bool,
    nat_traversal: bool,
    globalnet_enabled: bool,
    globalnet_cluster_size: u32,
    ipsec_debug: bool,
    submariner_debug: bool,
    label_gateway: bool,
    load_balancer_enabled: bool,
    cable_driver: String,
    custom_domains: Vec<String>,
    coredns_custom_config_map: String,
    health_check_enable: bool,
    health_check_interval: u32,
    health_check_max_packet_loss_count: u32,
}

impl Default for Join {
    fn default() -> Self {
        Self {
            cluster_id: String::new(),
            service_cidr: String::new(),
            cluster_cidr: String::new(),
            globalnet_cidr: String::new(),
            repository: String::new(),
            image_version: String::new(),
            image_override_arr: Vec::new(),
            natt_port: 4500,
            ike_port: IKE_PORT,
            preferred_server: false,
            force_udp_encaps: false,
            nat_traversal: true,
            globalnet_enabled: false,
            globalnet_cluster_size: 0,
            ipsec_debug: false,
            submariner_debug: false,
            label_gateway: true,
            load_balancer_enabled: false,
            cable_driver: String::new(),
            custom_domains: Vec::new(),
            coredns_custom_config_map: String::new(),
            health_check_enable: true,
            health_check_interval: 1,
            health_check_max_packet_loss_count: 5,
        }
    }
}

/// Translates a resource; `source` says whether the broker's join data was found in a ConfigMap, as that operator publishes it, or in a
/// Secret.
///
/// # Errors
/// [`FieldError`] if a field has a type or value that it cannot have.
pub fn translate(resource: &Value, source: BrokerInfoSource) -> Result<Translated, FieldError> {
    let spec: Spec = serde_path_to_error::deserialize(&resource["spec"])
        .map_err(|error| FieldError::new("spec", format!("{}: {}", error.path(), error.inner())))?;
    // A Fabric has no such field: a part that is there is carried out.
    let action = match resource["kind"].as_str() {
        Some("Knitnet") => spec.action.unwrap_or(Action::Broker),
        _ => Action::All,
    };
    let mut warnings = Vec::new();
    if spec.cloud_prepare_config.is_some() {
        warnings.push("cloudPrepareConfig is not carried out: this version prepares no cloud".to_owned());
    }
    let broker = spec.broker_config.filter(|_| action != Action::Join);
    let join = spec.join_config.filter(|_| action != Action::Broker);
    let join_config = join.map(|join| join_config(join, source, &mut warnings)).transpose()?;
    let spec =
        FabricSpec { broker_config: broker.map(broker_config), join_config, cloud_prepare_config: None };
    Ok(Translated { spec, warnings })
}

fn broker_config(broker: Broker) -> BrokerConfig {
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
    join: Join,
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
        broker_info_ref: Some(BrokerInfoRef {
            kind: source,
            name: BROKER_INFO.to_owned(),
            namespace: BROKER_NAMESPACE.to_owned(),
            key: BROKER_INFO_KEY.to_owned(),
        }),
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
fn image(join: &Join, warnings: &mut Vec<String>) -> Result<Option<String>, FieldError> {
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
