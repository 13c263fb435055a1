//! The part that makes the cluster a member.

use trieste_control::api::{FabricNetworks, FabricSpec};
use trieste_control::steps::Record;
use trieste_deploy::broker_info::BrokerInfo;
use trieste_deploy::join::{self, NoOne};
use trieste_deploy::objects::names::{BROKER_NAMESPACE, NAMESPACE};
use trieste_deploy::objects::{BrokerAccess, MemberOptions};
use trieste_deploy::uninstall::{self, Scope, Uninstall};
use trieste_deploy::{BrokerLogin, DeployError, ObjectRef, Server};

use super::failure::Failure;
use super::join_data::read_broker_info;
use super::keeps::keeps;
use super::tools::{STEP_LIMIT, Tools};
use crate::order::{Facts, Order, Outcome, Reason};
use crate::translate::{JoinContext, join_options};

/// Makes the cluster a member, or brings it up to date.
pub(super) async fn install(
    tools: &Tools,
    order: &Order,
    spec: &FabricSpec,
    steps: &mut Record,
) -> Result<Outcome, Failure> {
    let Some(config) = &spec.join_config else { return Ok(Outcome::Removed) };
    let source = order.join_info.as_ref().ok_or_else(|| Failure::Missing {
        reason: "BrokerInfoMissing",
        message: "joinConfig.brokerInfoRef is missing".to_owned(),
    })?;
    let server = &tools.server;
    let info = read_broker_info(server, source).await?;
    let earlier = join::earlier(server, NAMESPACE).await?;
    let context = JoinContext {
        fabric: &order.source.name,
        info: &info,
        earlier: earlier.as_ref(),
        image: &tools.image,
        limit: STEP_LIMIT,
    };
    let options = join_options(config, &context)?;
    let url = config.broker_url.as_ref().unwrap_or(&info.broker_url);
    let broker = (tools.connect)(&login(&info, url, options.member.broker.insecure))?;
    let plan = join::prepare(server, &broker, &options, &mut NoOne, steps).await?;
    let installed = join::install(server, &broker, &plan, steps).await?;
    join::replace_gateways(server, &installed, STEP_LIMIT, steps).await?;
    Ok(Outcome::Installed(Box::new(Facts { join_info: Some(source.clone()), ..facts(&installed.member) })))
}

/// Returns what was found out of a member.
pub(super) fn facts(member: &MemberOptions) -> Facts {
    let texts = |networks: &[ipnet::IpNet]| networks.iter().map(ToString::to_string).collect();
    Facts {
        broker: Some(member.broker.api_server.clone()),
        cluster_id: Some(member.cluster_id.clone()),
        networks: Some(FabricNetworks {
            plugin: member.network_plugin.clone(),
            pods: texts(&member.cluster_cidrs),
            services: texts(&member.service_cidrs),
            global: texts(&member.global_cidrs),
        }),
        ..Facts::default()
    }
}

/// Removes the member. Its broker is left with the join data that it has joined with, or else with the member's own token.
pub(super) async fn remove(tools: &Tools, order: &Order, steps: &mut Record) -> Result<Outcome, Failure> {
    let server = &tools.server;
    let options = options(order.force, keeps(order));
    let mut found = uninstall::observe(server, &options).await?;
    let info = match &order.join_info {
        Some(source) => read_broker_info(server, source).await.ok(),
        None => None,
    };
    let mut account = None;
    // Join data of another broker than the member's says nothing about this membership, and its token is nobody else's business.
    let named = found.membership().map(|(_, broker)| broker.to_owned());
    let is_its = |info: &&BrokerInfo| {
        let known = order.broker_url.iter().chain([&info.broker_url]);
        named.as_deref().is_none_or(|named| {
            known
                .map(|url| BrokerAccess::bare_address(url))
                .any(|url| url == BrokerAccess::bare_address(named))
        })
    };
    if let Some(info) = info.as_ref().filter(is_its) {
        let url = named.clone().unwrap_or_else(|| info.broker_url.clone());
        let broker = (tools.connect)(&login(info, &url, found.is_insecure()))?;
        if found.membership().is_none() {
            // A join that was killed after its first step has left an account there and nothing here.
            recall(&mut found, server, &broker, info).await?;
        }
        account = Some(broker);
    }
    // A pass that was killed may have left definitions alone.
    if found.is_nothing() && found.membership().is_none() {
        return Ok(Outcome::Removed);
    }
    uninstall::uninstall(server, account.as_ref(), &found, &options, steps).await?;
    let left = uninstall::observe(server, &options).await?;
    if left.objects.is_empty() {
        return Ok(Outcome::Removed);
    }
    let message = format!("{} objects of the member are left", left.objects.len());
    Ok(Outcome::Waiting(Reason { reason: "Removing", message }))
}

/// Looks for the cluster's account on the broker. A broker that is away keeps nobody.
async fn recall(
    found: &mut uninstall::Found,
    server: &Server,
    broker: &Server,
    info: &BrokerInfo,
) -> Result<(), Failure> {
    match found.recall(server, broker, info).await {
        Err(DeployError::Api { server: refusing, .. }) if refusing == broker.name() => Ok(()),
        outcome => Ok(outcome?),
    }
}

fn options(force: bool, keeps: Vec<ObjectRef>) -> Uninstall {
    Uninstall {
        namespace: NAMESPACE.to_owned(),
        broker_namespace: BROKER_NAMESPACE.to_owned(),
        patience: STEP_LIMIT,
        force,
        scope: Scope::MEMBER,
        keeps,
    }
}

fn login(info: &BrokerInfo, url: &str, insecure: bool) -> BrokerLogin {
    let token = &info.client_token;
    BrokerLogin { url: url.to_owned(), ca: token.ca.clone(), token: token.token.clone(), insecure }
}
