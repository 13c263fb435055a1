//! The two objects that say what was chosen, for people and for the commands that come later.

use serde_json::{Value, json};

use super::names::{
    ACTIVE_GATEWAYS, BROKER, BROKER_SECRET, GATEWAY_CPU, GATEWAY_MEMORY, MISSING_NAMESPACES,
    MULTI_ACTIVE_GATEWAY, NO_SERVICE_DISCOVERY, NODE_TAINT, OUTER_IO, OVN_DATABASES, OVN_ZONES,
    PRIORITY_CLASS, PSK_SECRET, ROUTE_AGENT_CPU, ROUTE_AGENT_MEMORY, SUBMARINER,
};
use super::options::joined;
use super::{BrokerOptions, CpuRequest, Manifest, MemberOptions, MemoryLimit, Secret};

const API_VERSION: &str = "submariner.io/v1alpha1";

/// The member's choices, in upstream's form (api §10.1). Token and key are named, not repeated.
pub fn submariner_resource(options: &MemberOptions) -> Manifest {
    let broker = &options.broker;
    let check = options.health_check;
    let mut spec = json!({
        "airGappedDeployment": options.air_gapped,
        "broker": "k8s",
        "brokerK8sApiServer": broker.api_server,
        "brokerK8sInsecure": broker.insecure,
        "brokerK8sRemoteNamespace": broker.namespace,
        "brokerK8sSecret": BROKER_SECRET,
        "cableDriver": options.cable_driver,
        "ceIPSecDebug": options.ipsec_debug,
        "ceIPSecForceUDPEncaps": options.force_udp_encaps,
        "ceIPSecNATTPort": options.natt_port,
        "ceIPSecPSKSecret": PSK_SECRET,
        "ceIPSecPreferredServer": options.preferred_server,
        "clusterCIDR": joined(&options.cluster_cidrs),
        "clusterID": options.cluster_id,
        "colorCodes": "blue",
        "connectionHealthCheck": {
            "enabled": check.enabled,
            "intervalSeconds": check.interval_seconds,
            "maxPacketLossCount": check.max_packet_loss,
        },
        "debug": options.debug,
        "globalCIDR": joined(&options.global_cidrs),
        "haltOnCertificateError": options.halt_on_certificate_error,
        "loadBalancerEnabled": options.load_balancer,
        "namespace": options.namespace,
        "natEnabled": options.nat_enabled,
        "repository": options.image.repository(),
        "serviceCIDR": joined(&options.service_cidrs),
        "serviceDiscoveryEnabled": options.has_service_discovery(),
        "version": options.image.version(),
    });
    if let Some(ca) = &broker.ca {
        spec["brokerK8sCA"] = json!(Secret::new(ca.as_slice()).to_base64());
    }
    if !options.clusterset_ip_cidrs.is_empty() {
        spec["clustersetIPCIDR"] = json!(joined(&options.clusterset_ip_cidrs));
        spec["clustersetIPEnabled"] = json!(options.clusterset_ips_by_default);
    }
    if !options.custom_domains.is_empty() {
        spec["customDomains"] = json!(options.custom_domains);
    }
    if let Some((namespace, name)) = options.coredns_custom_place() {
        spec["coreDNSCustomConfig"] = json!({"namespace": namespace, "configMapName": name});
    }
    if !options.node_selector.is_empty() {
        spec["nodeSelector"] = json!(options.node_selector);
    }
    if !options.tolerations.is_empty() {
        spec["tolerations"] = json!(options.tolerations);
    }
    annotated(
        Manifest::make(API_VERSION, "Submariner", &options.namespace, SUBMARINER).with("spec", spec),
        options,
    )
}

/// Annotates a member's object with the choices, and with what was found, that upstream's form has no field for.
fn annotated(resource: Manifest, options: &MemberOptions) -> Manifest {
    let switches = [
        (MULTI_ACTIVE_GATEWAY, options.multi_active_gateway),
        (NODE_TAINT, options.node_taint),
        (NO_SERVICE_DISCOVERY, options.declines_service_discovery),
        (MISSING_NAMESPACES, options.answers_missing_namespaces),
    ];
    let on = switches.into_iter().filter(|(_, is_on)| *is_on);
    let resource = on.fold(resource, |resource, (name, _)| resource.annotated(name, "true"));
    let resource = match options.active_gateways {
        Some(chosen) => resource.annotated(ACTIVE_GATEWAYS, chosen.as_str()),
        None => resource,
    };
    let resource = match options.outer_io {
        Some(chosen) => resource.annotated(OUTER_IO, chosen.as_str()),
        None => resource,
    };
    let found = [(OVN_ZONES, &options.ovn.zones), (OVN_DATABASES, &options.ovn.databases)];
    let found = found.into_iter().filter(|(_, text)| !text.is_empty());
    let resource = found.fold(resource, |resource, (name, text)| resource.annotated(name, text));
    let limits = [
        (GATEWAY_MEMORY, options.gateway_memory, MemoryLimit::GATEWAY),
        (ROUTE_AGENT_MEMORY, options.route_agent_memory, MemoryLimit::ROUTE_AGENT),
    ];
    let chosen = limits.into_iter().filter(|(_, limit, default)| limit != default);
    let resource =
        chosen.fold(resource, |resource, (name, limit, _)| resource.annotated(name, &limit.to_string()));
    let shares = [
        (GATEWAY_CPU, options.gateway_cpu, CpuRequest::GATEWAY),
        (ROUTE_AGENT_CPU, options.route_agent_cpu, CpuRequest::ROUTE_AGENT),
    ];
    let chosen = shares.into_iter().filter(|(_, share, default)| share != default);
    let resource =
        chosen.fold(resource, |resource, (name, share, _)| resource.annotated(name, &share.to_string()));
    let class = options.priority_class.iter();
    class.fold(resource, |resource, class| resource.annotated(PRIORITY_CLASS, class))
}

/// The status of the member's object, for who applies it: `show networks` reads it. It goes by the subresource
/// `status`.
pub fn submariner_status(options: &MemberOptions) -> Value {
    json!({
        "airGappedDeployment": options.air_gapped,
        "clusterCIDR": joined(&options.cluster_cidrs),
        "clusterID": options.cluster_id,
        "clustersetIPCIDR": joined(&options.clusterset_ip_cidrs),
        "colorCodes": "blue",
        "globalCIDR": joined(&options.global_cidrs),
        "natEnabled": options.nat_enabled,
        "networkPlugin": options.plugin(),
        "serviceCIDR": joined(&options.service_cidrs),
        "version": options.image.version(),
    })
}

/// The broker's choices, in upstream's form (api §10.2).
pub fn broker_resource(options: &BrokerOptions) -> Manifest {
    let components: Vec<&str> = options.components.iter().map(|component| component.as_str()).collect();
    let spec = json!({
        "components": components,
        "defaultCustomDomains": options.custom_domains,
        "globalnetEnabled": options.globalnet.enabled,
        "globalnetCIDRRange": options.globalnet.cidr_range.to_string(),
        "defaultGlobalnetClusterSize": options.globalnet.cluster_size,
        "clustersetIPEnabled": options.clusterset_ip.enabled,
        "clustersetIPCIDRRange": options.clusterset_ip.cidr_range.to_string(),
    });
    Manifest::make(API_VERSION, "Broker", &options.namespace, BROKER).with("spec", spec)
}
