//! From upstream's `Submariner` to `joinConfig` and a membership.

use trieste_control::api::{HealthCheckSpec, JoinConfig, ServiceDiscoverySpec, SubmarinerSpec};
use trieste_deploy::objects::Secret;
use trieste_deploy::preflight::canonical;

use super::super::field::{FieldError, cidrs};
use super::{
    Membership, TranslatedMember, checked_id, checked_namespace, custom_dns, decoded, given, image, secret,
    unknown,
};

/// The one kind of broker.
const KUBERNETES: &str = "k8s";
/// The port of IKE, which cannot be another one.
const IKE_PORT: i64 = 500;
/// Upstream's only value of a field that has no effect there.
const COLOR: &str = "blue";

/// Translates the object. `discovery` is the ServiceDiscovery object beside it, if there is one: it counts where the Submariner object
/// does not switch service discovery on itself, of which upstream's operator makes such an object.
///
/// # Errors
/// [`FieldError`] naming a field that makes no sense.
pub fn member(
    spec: &SubmarinerSpec,
    discovery: Option<&ServiceDiscoverySpec>,
) -> Result<TranslatedMember, FieldError> {
    if spec.broker != KUBERNETES {
        return Err(FieldError::new(
            "spec.broker",
            format!("is `{}`: a broker is `{KUBERNETES}`", spec.broker),
        ));
    }
    checked_namespace(&spec.namespace)?;
    let mut warnings = Vec::new();
    remark(spec, &mut warnings);
    let is_on = |field: Option<bool>| field.unwrap_or_default();
    let mut config = JoinConfig {
        check_broker_certificate: !is_on(spec.broker_insecure),
        cluster_id: checked_id(&spec.cluster_id)?,
        cluster_cidr: given(Some(&spec.cluster_cidr)),
        service_cidr: given(Some(&spec.service_cidr)),
        clusterset_ip_enabled: spec.clusterset_ip_enabled,
        clusterset_ip_cidr: given(spec.clusterset_ip_cidr.as_deref()),
        // An empty one is IPsec, as there.
        cable_driver: canonical(spec.cable_driver.as_deref().unwrap_or_default()),
        nat_traversal: spec.nat_enabled,
        force_udp_encaps: is_on(spec.force_udp_encaps),
        preferred_server: is_on(spec.preferred_server),
        // Which nodes are gateways is said by their labels alone.
        label_gateway: false,
        load_balancer_enabled: is_on(spec.load_balancer_enabled),
        air_gapped: is_on(spec.air_gapped_deployment),
        service_discovery_enabled: is_on(spec.service_discovery_enabled),
        custom_domains: spec.custom_domains.clone(),
        coredns_custom_config_map: custom_dns(spec.core_dns_custom_config.as_ref(), &mut warnings)?,
        image: image((spec.repository.as_ref(), spec.version.as_ref()), &spec.image_overrides, &mut warnings),
        node_selector: spec.node_selector.clone(),
        tolerations: spec.tolerations.clone(),
        debug: spec.debug,
        ipsec_debug: spec.ipsec_debug,
        ..JoinConfig::default()
    };
    if let Some(port) = spec.natt_port.filter(|port| *port != 0) {
        config.natt_port =
            u16::try_from(port).map_err(|_| FieldError::new("spec.ceIPSecNATTPort", "is no UDP port"))?;
    }
    if let Some(check) = &spec.connection_health_check {
        fill_check(check, &mut config, &mut warnings)?;
    }
    let membership = membership(spec)?;
    let mut translated = TranslatedMember { config, membership, warnings };
    if let Some(discovery) = discovery.filter(|_| !is_on(spec.service_discovery_enabled)) {
        super::service_discovery::add(discovery, &mut translated)?;
    }
    Ok(translated)
}

/// Returns how the cluster is a member.
fn membership(spec: &SubmarinerSpec) -> Result<Membership, FieldError> {
    let global = cidrs("spec.globalCIDR", spec.global_cidr.as_deref())?;
    Ok(Membership {
        api_server: spec.broker_api_server.clone(),
        namespace: spec.broker_namespace.clone(),
        secret: given(spec.broker_secret.as_deref()),
        token: secret(spec.broker_token.as_ref()),
        ca: decoded("spec.brokerK8sCA", spec.broker_ca.as_deref())?,
        insecure: spec.broker_insecure.unwrap_or_default(),
        psk_secret: given(spec.psk_secret.as_deref()),
        psk: decoded("spec.ceIPSecPSK", spec.psk.as_ref().map(|psk| psk.0.as_str()))?.map(Secret::new),
        halt_on_certificate_error: spec.halt_on_certificate_error.unwrap_or(true),
        has_global_services: !global.is_empty(),
        global,
    })
}

fn remark(spec: &SubmarinerSpec, warnings: &mut Vec<String>) {
    if let Some(port) = spec.ike_port.filter(|port| ![0, IKE_PORT].contains(port)) {
        warnings.push(format!("spec.ceIPSecIKEPort {port} not carried out: IKE uses UDP port {IKE_PORT}"));
    }
    if let Some(color) = spec.color_codes.as_deref().filter(|color| !["", COLOR].contains(color)) {
        warnings.push(format!("spec.colorCodes {color} not carried out: all clusters are {COLOR}"));
    }
    warnings.extend(unknown("spec", spec.extra.keys()));
}

fn fill_check(
    check: &HealthCheckSpec,
    config: &mut JoinConfig,
    warnings: &mut Vec<String>,
) -> Result<(), FieldError> {
    const FIELD: &str = "spec.connectionHealthCheck";
    let number = |value: Option<i64>, default: u32| match value {
        None | Some(0) => Ok(default),
        Some(value) => {
            u32::try_from(value).map_err(|_| FieldError::new(FIELD, format!("has the number {value}")))
        }
    };
    // Upstream's operator leaves a field out that is false.
    config.health_check_enable = check.enabled.unwrap_or_default();
    config.health_check_interval = number(check.interval_seconds, config.health_check_interval)?;
    config.health_check_max_packet_loss_count =
        number(check.max_packet_loss_count, config.health_check_max_packet_loss_count)?;
    warnings.extend(unknown(FIELD, check.extra.keys()));
    Ok(())
}
