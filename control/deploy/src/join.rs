//! Making a cluster a member of a set.
//!
//! ```text
//!   prepare: discover ──▶ ask the broker ──▶ check ──▶ Plan          changes nothing
//!   execute: account on the broker ──▶ objects ──▶ node label ──▶ wait
//! ```
//!
//! The broker's side comes first: what the cluster's objects need is there before they are. Run again, both sides end
//! as they are; after a crash, the next run goes on.

mod clusterset;
mod earlier;
mod gateways;
mod gather;
mod names;
mod prune;
mod register;
mod registered;
mod takeover;
mod upstreams;
mod wait;

pub use clusterset::ClustersetIps;
pub(crate) use earlier::cidrs;
pub use earlier::{Earlier, earlier, earlier_registered, kept};
pub use gateways::more_gateways;
pub use register::MADE_FOR;
pub(crate) use register::upstream_binding;
use register::{account, register};
pub use registered::{install_service_discovery, prepare_registered, remove_service_discovery};
pub use upstreams::upstream_operator;

use std::time::Duration;

use ipnet::IpNet;
use serde_json::json;
use trieste_control::api::ClusterNetworks;
use trieste_control::live_networks::Source;
use trieste_control::steps::{Outcome, Steps};

use crate::apply::{apply_all, define};
use crate::broker_info::BrokerInfo;
use crate::discover::{Given, Network, Ovn, Subnets, discover, is_served};
use crate::error::DeployError;
use crate::object_ref::ObjectRef;
use crate::objects::names::SUBMARINER;
use crate::objects::{self, BrokerAccess, Manifest, MemberOptions, OvnLayout};
use crate::preflight::{self, conclude};
use crate::roll;
use crate::server::Server;
use crate::service_discovery;
use crate::shares::{self, Foreign, GLOBALNET, Share, Wish};

/// What is asked for.
#[derive(Debug, Clone)]
pub struct Join {
    /// The member's choices, but for what is discovered, and its token.
    pub member: MemberOptions,
    /// CIDRs that the user says.
    pub given: Given,
    /// Settings that are as an earlier join has made them, since they were not said anew.
    pub kept: Vec<String>,
    /// Whether a key other than that of an earlier join is taken.
    pub replace_psk: bool,
    /// Whether the cluster takes part in globalnet, if the broker has it.
    pub globalnet: bool,
    /// Which global addresses it then wants.
    pub share: Wish,
    /// What is asked of clusterset IPs.
    pub clusterset_ips: ClustersetIps,
    /// How many nodes are to be gateways; labelled are those that are missing. Zero leaves the labels to others.
    pub gateways: usize,
    /// Whether requirements that are not met are doubts.
    pub ignore_requirements: bool,
    /// How long pods may take to come up; zero does not wait.
    pub patience: Duration,
}

/// Somebody who can choose. Tests and scripts cannot.
pub trait Ask: Send {
    /// Asks for one of several; `None` if nobody is there to answer.
    fn choose(&mut self, question: &str, choices: &[String]) -> Option<usize>;
}

/// Nobody.
#[derive(Debug, Clone, Copy)]
pub struct NoOne;

impl Ask for NoOne {
    fn choose(&mut self, _: &str, _: &[String]) -> Option<usize> {
        None
    }
}

/// What a join is going to do.
#[derive(Debug, Clone)]
pub struct Plan {
    /// The member's choices with what was discovered; the token is not known yet.
    pub member: MemberOptions,
    /// Objects for the broker.
    pub broker: Vec<Manifest>,
    /// Objects for the cluster, their token empty.
    pub local: Vec<Manifest>,
    /// The nodes that get the gateway's label.
    pub labels: Vec<String>,
    /// Whether any node is to run a gateway.
    pub has_gateway: bool,
    /// The other clusters that have an Endpoint.
    pub peers: Vec<String>,
    /// The global addresses that are wanted, and what they must not overlap; `None` without globalnet. Which ones they
    /// become is settled when they are written down.
    share: Option<(Wish, Foreign)>,
    /// Likewise of the blocks of clusterset IPs.
    clusterset_ips: Vec<clusterset::Block>,
    /// Objects of the member that others have made, and that are left to them; none where the member is registered by this plan.
    left: Option<Vec<ObjectRef>>,
    patience: Duration,
}

impl Plan {
    /// Returns the member's objects, but for those that are left to others.
    fn objects(&self, member: &MemberOptions) -> Vec<Manifest> {
        without(objects::member(member), self.left.as_deref().unwrap_or_default())
    }
}

/// Returns objects but for those that are left to others.
fn without(mut manifests: Vec<Manifest>, left: &[ObjectRef]) -> Vec<Manifest> {
    manifests
        .retain(|manifest| ObjectRef::of(manifest.as_value()).is_none_or(|place| !left.contains(&place)));
    manifests
}

/// Discovers the networks that a join announces, and describes them.
async fn announced(local: &Server, options: &Join, steps: &mut dyn Steps) -> Result<Network, DeployError> {
    steps.begin("Discovering network details");
    let found = discover(local, &options.given).await?;
    let network = Network { extra: options.member.extra_cidrs.clone(), ..found };
    for line in describe(&network) {
        steps.remark(Outcome::Success, &line);
    }
    steps.end(Outcome::Success);
    Ok(network)
}

/// Finds out all that a join needs, and checks it. Nothing is changed.
///
/// # Errors
/// [`DeployError::Unmet`] with every check that failed; [`DeployError`] if a server does not answer.
pub async fn prepare(
    local: &Server,
    broker: &Server,
    options: &Join,
    ask: &mut dyn Ask,
    steps: &mut dyn Steps,
) -> Result<Plan, DeployError> {
    let network = announced(local, options, steps).await?;

    steps.begin("Gathering relevant information from Broker");
    let there = gather::from_broker(broker, &options.member).await?;
    steps.end(Outcome::Success);

    steps.begin("Checking requirements");
    let here = gather::from_cluster(local, &options.member).await?;
    let mut member = complete(&options.member, &network);
    let before = here.settings.as_ref().and_then(|settings| settings["spec"]["cableDriver"].as_str());
    let (driver, former) = (&member.cable_driver, member.former_cable_driver.as_deref());
    member.former_cable_driver = preflight::former_driver(driver, before, former, &there.drivers);
    let foreign = foreign(&member, &there);
    let of_share = choose_share(options, &mut member, &there, &foreign);
    let known = (there.clusterset_ips.each_ref().map(Option::as_ref), &there.others);
    let (clusterset_ips, of_clusterset_ips) = clusterset::choose(&options.clusterset_ips, &mut member, known);
    let plan_broker = account(&member, &here.uid, there.has_our_role);
    let plan_local = objects::member(&member);
    let mut findings = check(options, &member, &network, &here, &there);
    findings.extend(of_share);
    findings.extend(of_clusterset_ips);
    findings.extend(preflight::rights(&gather::rights(local, &plan_local).await?));
    findings.extend(gather::broker_rights(broker, &plan_broker).await?);
    let lacks_service_rights = member.has_service_discovery() && !there.has_service_rights;
    findings.extend(gather::role(there.has_our_role, lacks_service_rights));
    let settings = objects::submariner_resource(&member);
    findings.extend(gather::ovn_tls(local, &member).await?);
    findings.extend([gather::carried_out(here.settings.as_ref()), gather::kept(&options.kept)].concat());
    findings.extend(gather::key(local, &member, options.replace_psk).await?);
    findings.extend(gather::changes(here.settings.as_ref(), settings.as_value()));
    conclude(&findings, steps)?;

    let mut question = |text: &str, choices: &[String]| ask.choose(text, choices);
    let (labels, has_gateway) = gateways::choose(&here.nodes, options.gateways, &mut question, steps);
    Ok(Plan {
        peers: peers(&member, there.drivers),
        member,
        broker: plan_broker,
        local: plan_local,
        labels,
        has_gateway,
        share: (options.globalnet && there.globalnet.is_some()).then_some((options.share, foreign)),
        clusterset_ips,
        left: None,
        patience: options.patience,
    })
}

/// Chooses the global addresses, if the cluster is to have some, and puts them into its choices. Returns what to tell.
fn choose_share(
    options: &Join,
    member: &mut MemberOptions,
    there: &gather::There,
    foreign: &Foreign,
) -> Option<preflight::Finding> {
    let allocations = there.globalnet.as_ref().filter(|_| options.globalnet)?;
    Some(match shares::choose(allocations, &member.cluster_id, options.share, foreign) {
        Ok(share) => {
            member.global_cidrs = vec![share.cidr];
            share.finding(options.share)
        }
        Err(bad) => bad,
    })
}

/// Returns the clusters whose cable driver suits the member's. No cable to the others comes, whatever is waited for.
fn peers(member: &MemberOptions, drivers: Vec<preflight::Offer>) -> Vec<String> {
    let ours = offer(member);
    let suitable = drivers.into_iter().filter(|theirs| ours.suits(theirs));
    let mut peers: Vec<String> = suitable.map(|theirs| theirs.cluster).collect();
    peers.dedup();
    peers
}

/// Does what was planned.
///
/// # Errors
/// [`DeployError`]; what was done stays, and the next run goes on from there.
pub async fn execute(
    local: &Server,
    broker: &Server,
    plan: &Plan,
    steps: &mut dyn Steps,
) -> Result<(), DeployError> {
    let installed = install(local, broker, plan, steps).await?;
    if plan.patience.is_zero() {
        return Ok(());
    }
    wait::until_up(local, &installed, plan, steps).await
}

/// What was installed.
#[derive(Debug, Clone)]
pub struct Installed {
    /// The member's choices as they became.
    pub member: MemberOptions,
    /// The DaemonSets as they are to be once their pods are replaced; none if there is nothing to replace.
    held: Vec<Manifest>,
}

/// Replaces the gateways' pods one by one, each drained first, where what was installed changes them: after the route agents are
/// up. Each step may take `limit`.
///
/// # Errors
/// [`DeployError::NotInTime`] if the route agents or a gateway do not become well: no further gateway is touched, and the next run
/// goes on from there; [`DeployError`] if the server refuses, or does not answer.
pub async fn replace_gateways(
    local: &Server,
    installed: &Installed,
    limit: Duration,
    steps: &mut dyn Steps,
) -> Result<(), DeployError> {
    if installed.held.is_empty() {
        return Ok(());
    }
    wait::for_route_agents(local, &installed.member, limit, steps).await?;
    wait::replace_gateways(local, installed, limit, steps).await
}

/// Installs what was planned, and does not wait until it runs. Gateways that are there and ready go on as they are until
/// [`replace_gateways`], unless nobody is to wait.
///
/// # Errors
/// [`DeployError`]; what was done stays, and the next run goes on from there.
pub async fn install(
    local: &Server,
    broker: &Server,
    plan: &Plan,
    steps: &mut dyn Steps,
) -> Result<Installed, DeployError> {
    let member = match plan.left {
        None => registered_member(broker, plan, steps).await?,
        Some(_) => plan.member.clone(),
    };
    let has_services = member.has_service_discovery();
    if !has_services {
        service_discovery::leave(local, &member.namespace, plan.patience, steps).await?;
        service_discovery::remove_objects(local, &member.namespace).await?;
    }
    steps.begin("Deploying the gateway and the route agents");
    if plan.share.is_some() || has_services {
        define(local, &objects::service_export()).await?;
    }
    if has_services {
        define(local, &objects::service_import()).await?;
    }
    earlier::unchanged_networks(local, &member).await?;
    let mut wanted = plan.objects(&member);
    if plan.left.is_some() {
        takeover::workloads(local, &member.namespace, &wanted).await?;
    }
    let held = match plan.patience.is_zero() {
        true => Vec::new(),
        false => roll::hold(local, &member.namespace, &mut wanted).await?,
    };
    let tally = apply_all(local, &wanted).await?;
    let settings =
        ObjectRef::namespaced("submariner.io/v1alpha1", "Submariner", &member.namespace, SUBMARINER);
    if plan.left.as_ref().is_none_or(|left| !left.contains(&settings)) {
        publish(local, &settings, &member).await?;
    }
    prune::unwanted(local, &member).await?;
    steps.remark(Outcome::Success, &tally.to_string());
    steps.end(Outcome::Success);

    if has_services {
        names::forward(local, &member, steps).await?;
    }
    gateways::label(local, &plan.labels, steps).await?;
    Ok(Installed { member, held })
}

/// Registers the member with the broker, and takes the addresses that it is to have.
async fn registered_member(
    broker: &Server,
    plan: &Plan,
    steps: &mut dyn Steps,
) -> Result<MemberOptions, DeployError> {
    let id = plan.member.cluster_id.as_str();
    steps.begin(&format!("Creating the account of cluster \"{id}\" on the broker"));
    let mut member = register(broker, plan).await?;
    if let Some((wish, foreign)) = &plan.share {
        let share = shares::take(broker, &member, &GLOBALNET, (*wish, foreign)).await?;
        settle(&mut member.global_cidrs, &share, steps);
    }
    for (block, index) in plan.clusterset_ips.iter().zip(0..) {
        let share = shares::take(broker, &member, block.kind, (block.wish, &block.foreign)).await?;
        settle(&mut member.clusterset_ip_cidrs[index..=index], &share, steps);
    }
    steps.end(Outcome::Success);
    Ok(member)
}

/// Takes the share over that was written down, which is another one than was planned if somebody was faster.
fn settle(cidrs: &mut [IpNet], share: &Share, steps: &mut dyn Steps) {
    for chosen in cidrs.iter_mut().filter(|chosen| **chosen != share.cidr) {
        let (what, cidr) = (share.called(), share.cidr);
        let text = format!("Another cluster has just been given these: the {what} is {cidr}");
        steps.remark(Outcome::Warning, &text);
        *chosen = cidr;
    }
}

/// The lines of upstream's tool, with where each fact comes from.
fn describe(network: &Network) -> Vec<String> {
    let list = |what: &str, subnets: &Subnets| {
        let shown: Vec<String> = subnets.cidrs.iter().map(ToString::to_string).collect();
        let source = if subnets.cidrs.is_empty() { "not found" } else { &subnets.source };
        format!("{what}  [{}] ({source})", shown.join(" "))
    };
    let mut lines = vec![format!("Network plugin:  {} ({})", network.plugin.name, network.plugin.source)];
    if let Some(ovn) = &network.ovn {
        lines.push(format!("OVN zones:  {}", ovn.shown_zones()));
        lines.push(format!("OVN databases:  {}", ovn.shown_databases()));
    }
    if let Some(spiderpool) = &network.spiderpool {
        lines.push(format!("Spiderpool:  {}: its hijackCIDR lists are kept", spiderpool.shown()));
    }
    lines.extend([list("Service CIDRs:", &network.services), list("Cluster CIDRs:", &network.pods)]);
    lines
}

/// Returns the kinds of cable that this cluster's gateways will offer.
fn offer(member: &MemberOptions) -> preflight::Offer {
    let drivers = std::iter::once(&member.cable_driver).chain(&member.former_cable_driver);
    preflight::Offer {
        cluster: member.cluster_id.clone(),
        drivers: drivers.map(|driver| preflight::canonical(driver)).collect(),
    }
}

/// What global addresses must not overlap.
fn foreign(member: &MemberOptions, there: &gather::There) -> Foreign {
    let inside = [member.service_cidrs.as_slice(), &member.cluster_cidrs, &member.extra_cidrs].concat();
    Foreign::of(&member.cluster_id, &inside, &there.others.0)
}

fn complete(member: &MemberOptions, network: &Network) -> MemberOptions {
    let mut before = member.followed.clone();
    // The right to read a ConfigMap is in its namespace, which may have gone with a plugin. What cannot be read now is followed on.
    let is_there = |source: &Source| {
        let is_found = network.followed.0.contains_key(source) || network.present.contains(source);
        source.object().is_none() || is_found
    };
    before.0.retain(|source, _| is_served(*source, &network.plugin.name) && is_there(source));
    let named = ClusterNetworks {
        pods: network.pods.cidrs.clone(),
        services: network.services.cidrs.clone(),
        extra: member.extra_cidrs.clone(),
        global: Vec::new(),
    };
    MemberOptions {
        cluster_cidrs: network.pods.cidrs.clone(),
        service_cidrs: network.services.cidrs.clone(),
        network_plugin: network.plugin.name.clone(),
        ovn: network.ovn.as_ref().map(layout).unwrap_or_default(),
        has_spiderpool: network.spiderpool.is_some(),
        followed: network.followed.renewed(&before, &named),
        ..member.clone()
    }
}

fn layout(ovn: &Ovn) -> OvnLayout {
    OvnLayout {
        northbound: ovn.northbound.clone().unwrap_or_default(),
        zones: ovn.shown_zones(),
        databases: ovn.shown_databases(),
    }
}

fn check(
    options: &Join,
    member: &MemberOptions,
    network: &Network,
    here: &gather::Here,
    there: &gather::There,
) -> Vec<preflight::Finding> {
    let (major, minor, version) = &here.version;
    let mut findings =
        vec![preflight::version(*major, *minor, version).unless_ignored(options.ignore_requirements)];
    findings.extend(here.obstacles.clone());
    let skews =
        here.versions.iter().filter_map(|installed| preflight::skew(installed, env!("CARGO_PKG_VERSION")));
    findings.extend(skews.map(|finding| finding.unless_ignored(options.ignore_requirements)));
    findings.extend(preflight::identity(
        &member.cluster_id,
        &here.uid,
        &there.registration,
        here.membership.as_ref(),
        &member.broker.api_server,
    ));
    let is_asked_for = options.share != Wish::default();
    findings.extend(preflight::globalnet(there.globalnet.is_some(), options.globalnet, is_asked_for));
    findings.extend(preflight::networks(&member.cluster_id, network, &member.global_cidrs, &there.others));
    findings.extend(preflight::cable(&member.cable_driver, &here.nodes));
    let drivers = preflight::drivers(&offer(member), &there.drivers, here.settings.is_some()).into_iter();
    findings.extend(drivers.map(|finding| finding.unless_ignored(options.ignore_requirements)));
    let plugin = preflight::plugin(&network.plugin).into_iter();
    findings.extend(plugin.map(|finding| finding.unless_ignored(options.ignore_requirements)));
    findings.extend(preflight::active_gateways(&network.plugin.name, member.active_gateways));
    findings.extend(preflight::virtual_nodes(&here.nodes));
    findings.extend(preflight::image(&member.image.reference));
    findings.extend(preflight::ports(member.natt_port, member.nat_discovery_port, &here.gateway_pods));
    if here.nodes.is_empty() {
        findings.push(preflight::Finding::bad("this cluster has no nodes", "add one that can run a gateway"));
    }
    findings
}

/// Writes the member's status, which readers such as `show networks` look at.
async fn publish(local: &Server, place: &ObjectRef, member: &MemberOptions) -> Result<(), DeployError> {
    let path = format!("{}/status?fieldManager={}", place.path(), local.manager());
    let change = json!({"status": objects::submariner_status(member)});
    let body = Some(("application/merge-patch+json", &change));
    local.call(http::Method::PATCH, &path, body, &format!("writing the status of {place}")).await.map(drop)
}

/// The member's choices of a join file: how the broker is reached, the key, the domains.
pub fn member_of(info: &BrokerInfo, cluster_id: &str, url: Option<&str>, is_insecure: bool) -> MemberOptions {
    let ca = (!info.client_token.ca.is_empty()).then(|| info.client_token.ca.clone());
    let mut access = BrokerAccess::new(url.unwrap_or(&info.broker_url), ca, objects::Secret::default());
    access.namespace.clone_from(&info.client_token.namespace);
    access.insecure = is_insecure;
    let mut member = MemberOptions::new(cluster_id, access, info.psk.clone());
    member.custom_domains = info.custom_domains.clone().unwrap_or_default();
    member.service_discovery = info.service_discovery;
    member
}

#[cfg(test)]
mod tests;
