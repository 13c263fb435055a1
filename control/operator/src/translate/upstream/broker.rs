//! From upstream's `Broker` to `brokerConfig`.

use trieste_control::api::{BrokerConfig, BrokerSpec};
use trieste_deploy::objects::Component;

use super::super::field::FieldError;
use super::{given, unknown};

/// Upstream's former word for global addresses among the components.
const GLOBALNET: &str = "globalnet";

/// Translates the object; the second value says what is not carried out.
///
/// # Errors
/// [`FieldError`] naming a field that makes no sense.
pub fn broker_config(spec: &BrokerSpec) -> Result<(BrokerConfig, Vec<String>), FieldError> {
    let mut config = BrokerConfig::default();
    if !spec.components.is_empty() {
        (config.connectivity_enabled, config.service_discovery_enabled) = (false, false);
    }
    for word in &spec.components {
        match word.parse() {
            Ok(Component::Connectivity) => config.connectivity_enabled = true,
            Ok(Component::ServiceDiscovery) => config.service_discovery_enabled = true,
            Err(_) if word == GLOBALNET => config.globalnet_enable = true,
            Err(error) => return Err(FieldError::new("spec.components", error)),
        }
    }
    config.custom_domains.clone_from(&spec.default_custom_domains);
    config.globalnet_enable |= spec.globalnet_enabled.unwrap_or_default();
    if let Some(range) = given(spec.globalnet_cidr_range.as_deref()) {
        config.globalnet_cidr_range = range;
    }
    if let Some(size) = spec.default_globalnet_cluster_size.filter(|size| *size != 0) {
        let size = u32::try_from(size);
        config.default_globalnet_cluster_size = size
            .map_err(|_| FieldError::new("spec.defaultGlobalnetClusterSize", "is no number of addresses"))?;
    }
    config.clusterset_ip_enable = spec.clusterset_ip_enabled.unwrap_or_default();
    if let Some(range) = given(spec.clusterset_ip_cidr_range.as_deref()) {
        config.clusterset_ip_cidr_range = range;
    }
    Ok((config, unknown("spec", spec.extra.keys()).into_iter().collect()))
}
