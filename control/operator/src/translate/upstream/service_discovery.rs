//! From upstream's `ServiceDiscovery` to `joinConfig` and a membership: by itself, or beside a Submariner object.

use trieste_control::api::{JoinConfig, ServiceDiscoverySpec};

use super::super::field::FieldError;
use super::{
    Membership, TranslatedMember, checked_id, checked_namespace, custom_dns, decoded, given, image, secret,
    unknown,
};

/// Translates the object, of a cluster without a Submariner object.
///
/// # Errors
/// [`FieldError`] naming a field that makes no sense.
pub fn service_discovery(spec: &ServiceDiscoverySpec) -> Result<TranslatedMember, FieldError> {
    checked_namespace(&spec.namespace)?;
    let mut warnings = Vec::new();
    let config = JoinConfig {
        check_broker_certificate: !spec.broker_insecure.unwrap_or_default(),
        cluster_id: checked_id(&spec.cluster_id)?,
        clusterset_ip_enabled: spec.clusterset_ip_enabled,
        clusterset_ip_cidr: given(spec.clusterset_ip_cidr.as_deref()),
        label_gateway: false,
        service_discovery_enabled: true,
        custom_domains: spec.custom_domains.clone(),
        coredns_custom_config_map: custom_dns(spec.core_dns_custom_config.as_ref(), &mut warnings)?,
        image: image((spec.repository.as_ref(), spec.version.as_ref()), &spec.image_overrides, &mut warnings),
        node_selector: spec.node_selector.clone(),
        tolerations: spec.tolerations.clone(),
        debug: spec.debug,
        ..JoinConfig::default()
    };
    warnings.extend(unknown("spec", spec.extra.keys()));
    let membership = Membership {
        api_server: spec.broker_api_server.clone(),
        namespace: spec.broker_namespace.clone(),
        secret: given(spec.broker_secret.as_deref()),
        token: secret(spec.broker_token.as_ref()),
        ca: decoded("spec.brokerK8sCA", spec.broker_ca.as_deref())?,
        insecure: spec.broker_insecure.unwrap_or_default(),
        // The agent reads its Secret again whenever that changes, and need not end for it.
        halt_on_certificate_error: spec.halt_on_certificate_error.unwrap_or(true),
        has_global_services: spec.globalnet_enabled.unwrap_or_default(),
        ..Membership::default()
    };
    Ok(TranslatedMember { config, membership, warnings })
}

/// Adds service discovery to a member whose Submariner object does not switch it on. Both objects are of one membership: what they
/// say of it is the same, or is refused.
pub(super) fn add(spec: &ServiceDiscoverySpec, member: &mut TranslatedMember) -> Result<(), FieldError> {
    const FIELD: &str = "ServiceDiscovery.spec";
    let own = service_discovery(spec)?;
    let config = &mut member.config;
    for (what, is_same) in [
        ("clusterID", own.config.cluster_id == config.cluster_id),
        ("brokerK8sApiServer", own.membership.api_server == member.membership.api_server),
        ("brokerK8sRemoteNamespace", own.membership.namespace == member.membership.namespace),
    ] {
        if !is_same {
            return Err(FieldError::new(FIELD, format!("{what} is not what the Submariner object says")));
        }
    }
    config.service_discovery_enabled = true;
    config.debug |= own.config.debug;
    config.coredns_custom_config_map =
        own.config.coredns_custom_config_map.or_else(|| config.coredns_custom_config_map.take());
    config.clusterset_ip_cidr = own.config.clusterset_ip_cidr.or_else(|| config.clusterset_ip_cidr.take());
    config.clusterset_ip_enabled = own.config.clusterset_ip_enabled.or(config.clusterset_ip_enabled);
    config.image = config.image.take().or(own.config.image);
    for domain in own.config.custom_domains {
        if !config.custom_domains.contains(&domain) {
            config.custom_domains.push(domain);
        }
    }
    config.node_selector.extend(own.config.node_selector);
    for toleration in own.config.tolerations {
        if !config.tolerations.contains(&toleration) {
            config.tolerations.push(toleration);
        }
    }
    member.membership.has_global_services |= own.membership.has_global_services;
    member.warnings.extend(own.warnings.into_iter().map(|text| format!("ServiceDiscovery: {text}")));
    Ok(())
}
