//! From a membership to what the library takes.

use std::time::Duration;

use ipnet::IpNet;
use trieste_deploy::join::{ClustersetIps, Earlier, Join};
use trieste_deploy::objects::{BrokerAccess, ClusterSetIp, MemberOptions, Secret};
use trieste_deploy::shares::Wish;

use super::super::field::{FieldError, cidrs};
use super::super::join::{fill_cables, fill_names, fill_pods, given_networks};
use super::TranslatedMember;

/// What a member needs that is secret, from the object or the Secrets that it names.
#[derive(Debug, Clone, Default)]
pub struct Credentials {
    /// The cluster's token on the broker.
    pub token: Secret,
    /// The authority of the broker's certificate, PEM.
    pub ca: Option<Vec<u8>>,
    /// The pre-shared key.
    pub psk: Secret,
}

/// What a registered member depends on beside its object.
#[derive(Debug, Clone, Copy)]
pub struct RegisteredContext<'a> {
    /// What is secret.
    pub credentials: &'a Credentials,
    /// What an earlier pass has installed.
    pub earlier: Option<&'a Earlier>,
    /// The image where none is given.
    pub image: &'a str,
    /// How long steps may take that wait for others.
    pub limit: Duration,
}

/// Returns what to join with, for a cluster that is registered.
///
/// # Errors
/// [`FieldError`] naming a field that makes no sense.
pub fn registered_options(
    translated: &TranslatedMember,
    context: &RegisteredContext<'_>,
) -> Result<Join, FieldError> {
    let config = &translated.config;
    let mut member = base(translated, context)?;
    if let Some(earlier) = context.earlier {
        earlier.settle_found(&mut member);
    }
    fill_cables(config, &mut member)?;
    member.global_cidrs.clone_from(&translated.membership.global);
    member.halt_on_certificate_error = translated.membership.halt_on_certificate_error;
    Ok(Join {
        kept: Vec::new(),
        replace_psk: false,
        given: given_networks(config, context.earlier, ["spec.clusterCIDR", "spec.serviceCIDR"])?,
        member,
        globalnet: false,
        share: Wish::default(),
        clusterset_ips: ClustersetIps::default(),
        gateways: 0,
        ignore_requirements: false,
        patience: context.limit,
    })
}

/// Returns the choices of service discovery by itself.
///
/// # Errors
/// As [`registered_options`].
pub fn service_discovery_options(
    translated: &TranslatedMember,
    context: &RegisteredContext<'_>,
) -> Result<MemberOptions, FieldError> {
    base(translated, context)
}

/// Returns the choices that both have.
fn base(translated: &TranslatedMember, context: &RegisteredContext<'_>) -> Result<MemberOptions, FieldError> {
    let (config, membership) = (&translated.config, &translated.membership);
    let Credentials { token, ca, psk } = context.credentials;
    let mut access = BrokerAccess::new(membership.api_server.clone(), ca.clone(), token.clone());
    access.namespace.clone_from(&membership.namespace);
    access.insecure = membership.insecure;
    let id = config.cluster_id.clone().unwrap_or_default();
    let mut member = MemberOptions::new(id, access, psk.clone());
    fill_pods(config, &mut member, context.image)?;
    fill_names(config, &mut member);
    member.service_discovery = config.service_discovery_enabled;
    member.declines_service_discovery = false;
    member.deployments_alone = true;
    member.discovers_global = membership.has_global_services;
    member.clusterset_ip_cidrs = cidrs("spec.clustersetIPCIDR", config.clusterset_ip_cidr.as_deref())?;
    member.clusterset_ips_by_default = config.clusterset_ip_enabled.unwrap_or_default();
    member.clusterset_ip_ranges = ranges(&member.clusterset_ip_cidrs);
    Ok(member)
}

/// Returns where all clusters' addresses for services of the set are: the usual ranges, of which these blocks are parts, or the blocks
/// themselves where they are no such parts. Only the broker's account for joining may read what the set has.
fn ranges(blocks: &[IpNet]) -> Vec<IpNet> {
    let usual = ClusterSetIp::default();
    let usual: Vec<IpNet> =
        std::iter::once(IpNet::V4(usual.cidr_range)).chain(usual.ipv6_range.map(IpNet::V6)).collect();
    let range = |block: &IpNet| usual.iter().find(|usual| usual.contains(block)).copied().unwrap_or(*block);
    let mut all: Vec<IpNet> = blocks.iter().map(range).collect();
    all.sort();
    all.dedup();
    all
}
