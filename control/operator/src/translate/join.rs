//! From `joinConfig` to what `join` takes.

use std::time::Duration;

use ipnet::IpNet;
use serde_json::Value;
use trieste_control::api::{BrokerInfoRef, BrokerInfoSource, FabricSpec, JoinConfig, check_cluster_id};
use trieste_deploy::broker_info::BrokerInfo;
use trieste_deploy::cluster_id;
use trieste_deploy::discover::Given;
use trieste_deploy::join::{self, ClustersetIps, Earlier, Join};
use trieste_deploy::objects::names::BROKER_NAMESPACE;
use trieste_deploy::objects::{
    ActiveGateways, CpuRequest, HealthCheck, Image, MemberOptions, MemoryLimit, OuterIo, Proxy,
};
use trieste_deploy::preflight;
use trieste_deploy::shares::Wish;

use super::field::{FieldError, cidrs};

/// What a join depends on beside its part.
#[derive(Debug, Clone, Copy)]
pub struct JoinContext<'a> {
    /// The Fabric's name: the cluster's ID where nothing else says one.
    pub fabric: &'a str,
    /// The broker's join data.
    pub info: &'a BrokerInfo,
    /// An earlier join.
    pub earlier: Option<&'a Earlier>,
    /// The image where none is given.
    pub image: &'a str,
    /// How long steps may take that wait for others.
    pub limit: Duration,
}

/// Returns where a broker publishes its join data in its own cluster, by an object of that kind.
pub fn published(kind: BrokerInfoSource) -> BrokerInfoRef {
    BrokerInfoRef { kind, namespace: BROKER_NAMESPACE.to_owned(), ..BrokerInfoRef::default() }
}

/// Returns where the join data of a spec is: where it says, or what its own broker publishes.
pub fn join_source(spec: &FabricSpec) -> Option<BrokerInfoRef> {
    let config = spec.join_config.as_ref()?;
    let own = || published(BrokerInfoSource::Secret);
    config.broker_info_ref.clone().or_else(|| spec.broker_config.is_some().then(own))
}

/// Translates the part. All choices are said anew: what is not in it is the default, and not as an earlier join has made it. Of that
/// count the cluster's ID, networks that were discovered, and the cable driver that the set changes from.
///
/// # Errors
/// [`FieldError`] naming a field that makes no sense.
pub fn join_options(config: &JoinConfig, context: &JoinContext<'_>) -> Result<Join, FieldError> {
    let earlier = context.earlier;
    let id = cluster_id(config, context)?;
    let url = config.broker_url.as_deref();
    let mut member = join::member_of(context.info, &id, url, !config.check_broker_certificate);
    if let Some(earlier) = earlier {
        earlier.settle_found(&mut member);
    }
    fill_cables(config, &mut member)?;
    fill_pods(config, &mut member, context.image)?;
    fill_names(config, &mut member);
    fill_settings(config, &mut member)?;
    Ok(Join {
        kept: Vec::new(),
        replace_psk: config.replace_psk,
        member,
        given: given_networks(config, earlier, ["joinConfig.clusterCIDR", "joinConfig.serviceCIDR"])?,
        globalnet: config.globalnet_enabled,
        share: share(config)?,
        clusterset_ips: ClustersetIps {
            is_default: config.clusterset_ip_enabled,
            cidrs: cidrs("joinConfig.clustersetIPCIDR", config.clusterset_ip_cidr.as_deref())?,
        },
        gateways: if config.label_gateway { usize::try_from(config.gateways).unwrap_or(1) } else { 0 },
        ignore_requirements: config.ignore_requirements,
        patience: context.limit,
    })
}

/// Returns the networks that are given, else those of an earlier join.
pub(super) fn given_networks(
    config: &JoinConfig,
    earlier: Option<&Earlier>,
    fields: [&'static str; 2],
) -> Result<Given, FieldError> {
    let pods = cidrs(fields[0], config.cluster_cidr.as_deref())?;
    let services = cidrs(fields[1], config.service_cidr.as_deref())?;
    let before = earlier.map(Earlier::networks).unwrap_or_default();
    let is_settled = [&pods, &services].map(|given| given.is_empty() && earlier.is_some());
    let or_before = |given: Vec<IpNet>, before| if given.is_empty() { before } else { given };
    Ok(Given {
        pods: or_before(pods, before.pods),
        services: or_before(services, before.services),
        is_settled,
    })
}

/// Returns the ID that is given, else that of an earlier join, else one made of the Fabric's name: the same at each pass.
fn cluster_id(config: &JoinConfig, context: &JoinContext<'_>) -> Result<String, FieldError> {
    const FIELD: &str = "joinConfig.clusterID";
    if let Some(id) = &config.cluster_id {
        check_cluster_id(id).map_err(|error| FieldError::new(FIELD, error))?;
        return Ok(id.clone());
    }
    if let Some(id) = context.earlier.and_then(Earlier::cluster_id) {
        return Ok(id.to_owned());
    }
    cluster_id::derive(context.fabric).map_err(|error| {
        FieldError::new(FIELD, format!("is missing, and none can be made of the name: {error}"))
    })
}

fn share(config: &JoinConfig) -> Result<Wish, FieldError> {
    const FIELD: &str = "joinConfig.globalnetCIDR";
    let cidr = cidrs(FIELD, config.globalnet_cidr.as_deref())?;
    if cidr.len() > 1 {
        return Err(FieldError::new(FIELD, "is more than one"));
    }
    let size = Some(config.globalnet_cluster_size).filter(|size| *size != 0);
    Ok(Wish { cidr: cidr.first().copied(), size })
}

pub(super) fn fill_cables(config: &JoinConfig, member: &mut MemberOptions) -> Result<(), FieldError> {
    member.cable_driver = preflight::canonical(&config.cable_driver);
    member.nat_enabled = config.nat_traversal;
    member.natt_port = config.natt_port;
    member.nat_discovery_port = config.nat_discovery_port;
    member.force_udp_encaps = config.force_udp_encaps;
    member.preferred_server = config.preferred_server;
    member.health_check = HealthCheck {
        enabled: config.health_check_enable,
        interval_seconds: config.health_check_interval,
        max_packet_loss: config.health_check_max_packet_loss_count,
    };
    if config.extra_cidrs.is_some() {
        member.extra_cidrs = cidrs("joinConfig.extraCIDRs", config.extra_cidrs.as_deref())?;
    }
    member.allow_remote_cidrs = cidrs("joinConfig.allowRemoteCIDRs", config.allow_remote_cidrs.as_deref())?;
    member.air_gapped = config.air_gapped;
    member.load_balancer = config.load_balancer_enabled;
    member.active_gateways = match config.active_gateways.as_deref() {
        None => None,
        Some(word) => Some(
            ActiveGateways::parse(word)
                .ok_or_else(|| FieldError::new("joinConfig.activeGateways", "is neither all nor one"))?,
        ),
    };
    member.outer_io = match config.io.as_deref() {
        None => None,
        Some(word) => Some(
            OuterIo::parse(word)
                .ok_or_else(|| FieldError::new("joinConfig.io", "is none of sockets, af-xdp and auto"))?,
        ),
    };
    Ok(())
}

pub(super) fn fill_pods(
    config: &JoinConfig,
    member: &mut MemberOptions,
    image: &str,
) -> Result<(), FieldError> {
    let policy = config.image_pull_policy.parse();
    let policy = policy.map_err(|error| FieldError::new("joinConfig.imagePullPolicy", error))?;
    member.image = Image::new(config.image.as_deref().unwrap_or(image)).pulled(policy);
    member.pull_secrets.clone_from(&config.image_pull_secrets);
    member.node_selector.clone_from(&config.node_selector);
    member.tolerations = config.tolerations.iter().cloned().map(Value::Object).collect();
    member.node_taint = config.node_taint;
    member.gateway_memory =
        memory("joinConfig.gatewayMemory", config.gateway_memory.as_deref(), member.gateway_memory)?;
    member.route_agent_memory = memory(
        "joinConfig.routeAgentMemory",
        config.route_agent_memory.as_deref(),
        member.route_agent_memory,
    )?;
    if let Some(proxy) = &config.proxy {
        member.proxy =
            Proxy { http: proxy.http.clone(), https: proxy.https.clone(), no_proxy: proxy.no_proxy.clone() };
    }
    member.debug = config.debug;
    member.ipsec_debug = config.ipsec_debug;
    Ok(())
}

/// Chooses the settings of programs, and what is set aside for these.
fn fill_settings(config: &JoinConfig, member: &mut MemberOptions) -> Result<(), FieldError> {
    let share = |field: &'static str, text: Option<&str>, default: CpuRequest| {
        text.map_or(Ok(default), |text| text.parse().map_err(|error| FieldError::new(field, error)))
    };
    member.gateway_cpu = share("joinConfig.gatewayCPU", config.gateway_cpu.as_deref(), member.gateway_cpu)?;
    member.route_agent_cpu =
        share("joinConfig.routeAgentCPU", config.route_agent_cpu.as_deref(), member.route_agent_cpu)?;
    member.priority_class.clone_from(&config.priority_class_name);
    for (key, value) in &config.settings {
        member.set(key, value).map_err(|problem| FieldError::new("joinConfig.settings", problem))?;
    }
    if let Some(workers) = config.workers {
        let set = member.set("workers", &workers.to_string());
        set.map_err(|problem| FieldError::new("joinConfig.workers", problem))?;
    }
    Ok(())
}

fn memory(field: &'static str, text: Option<&str>, default: MemoryLimit) -> Result<MemoryLimit, FieldError> {
    text.map_or(Ok(default), |text| text.parse().map_err(|error| FieldError::new(field, error)))
}

pub(super) fn fill_names(config: &JoinConfig, member: &mut MemberOptions) {
    member.declines_service_discovery = !config.service_discovery_enabled;
    member.answers_missing_namespaces = config.missing_namespaces;
    if !config.custom_domains.is_empty() {
        member.custom_domains.clone_from(&config.custom_domains);
    }
    member.coredns_custom_config = config.coredns_custom_config_map.clone().unwrap_or_default();
}
