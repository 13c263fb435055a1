//! From `brokerConfig` to what `deploy-broker` takes.

use ipnet::IpNet;
use trieste_control::api::BrokerConfig;
use trieste_deploy::objects::names::BROKER_NAMESPACE;
use trieste_deploy::objects::{BrokerOptions, ClusterSetIp, Component, Globalnet};

use super::field::{FieldError, cidrs};

const RANGES: &str = "brokerConfig.clustersetIPCIDRRange";

/// Translates the part.
///
/// # Errors
/// [`FieldError`] naming a field that makes no sense.
pub fn broker_options(config: &BrokerConfig) -> Result<BrokerOptions, FieldError> {
    let components = [
        (config.service_discovery_enabled, Component::ServiceDiscovery),
        (config.connectivity_enabled, Component::Connectivity),
    ];
    let range = config.globalnet_cidr_range.parse();
    let range = range.map_err(|_| {
        FieldError::new(
            "brokerConfig.globalnetCIDRRange",
            format!("`{}` is no range of IPv4", config.globalnet_cidr_range),
        )
    })?;
    let (mut ipv4, mut ipv6) = (None, None);
    for net in cidrs(RANGES, Some(&config.clusterset_ip_cidr_range))? {
        match net {
            IpNet::V4(net) => ipv4 = Some(net),
            IpNet::V6(net) => ipv6 = Some(net),
        }
    }
    Ok(BrokerOptions {
        namespace: BROKER_NAMESPACE.to_owned(),
        components: components.into_iter().filter(|(is_on, _)| *is_on).map(|(_, part)| part).collect(),
        globalnet: Globalnet {
            enabled: config.globalnet_enable,
            cidr_range: range,
            cluster_size: config.default_globalnet_cluster_size,
        },
        clusterset_ip: ClusterSetIp {
            enabled: config.clusterset_ip_enable,
            cidr_range: ipv4.ok_or_else(|| FieldError::new(RANGES, "there is no range of IPv4"))?,
            ipv6_range: ipv6,
            ..ClusterSetIp::default()
        },
        custom_domains: config.custom_domains.clone(),
    })
}
