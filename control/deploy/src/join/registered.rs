//! A cluster that is registered with its broker already: another tool has made its account, and an object that is not ours says
//! what is wanted.

use trieste_control::steps::{Outcome, Steps};

use super::{Join, Plan, announced, check, complete, gateways, gather, names, peers, without};
use crate::apply::{apply_all, define, missing_rights, remove};
use crate::error::DeployError;
use crate::object_ref::ObjectRef;
use crate::objects::names::{BROKER_SECRET, MANAGED_BY_LABEL, TRIESTE};
use crate::objects::{self, MemberOptions};
use crate::preflight::{self, conclude};
use crate::server::Server;
use crate::service_discovery;

/// Finds out all that such a member needs, and checks it. `options` has the member's own token and key, and `broker` speaks with
/// that token; what is in `left` stays as others have made it. Nothing is changed.
///
/// # Errors
/// [`DeployError::Unmet`] with every check that failed; [`DeployError`] if the cluster's server does not answer.
pub async fn prepare_registered(
    local: &Server,
    broker: &Server,
    (options, left): (&Join, Vec<ObjectRef>),
    driver_before: Option<&str>,
    steps: &mut dyn Steps,
) -> Result<Plan, DeployError> {
    let network = announced(local, options, steps).await?;

    steps.begin("Checking requirements");
    let (there, unread) = gather::from_own_broker(broker, &options.member).await;
    let here = gather::from_cluster(local, &options.member).await?;
    let mut member = complete(&options.member, &network);
    let (driver, former) = (&member.cable_driver, member.former_cable_driver.as_deref());
    // Of a broker that does not answer it is not known whether all have changed from it.
    if unread.is_none() {
        member.former_cable_driver = preflight::former_driver(driver, driver_before, former, &there.drivers);
    }
    let mut plan = Plan {
        member,
        broker: Vec::new(),
        local: Vec::new(),
        labels: Vec::new(),
        has_gateway: false,
        peers: Vec::new(),
        share: None,
        clusterset_ips: Vec::new(),
        left: Some(left),
        patience: options.patience,
    };
    plan.local = plan.objects(&plan.member);
    let mut findings = check(options, &plan.member, &network, &here, &there);
    findings.extend(unread);
    findings.extend(preflight::rights(&gather::rights(local, &plan.local).await?));
    findings.extend(gather::ovn_tls(local, &plan.member).await?);
    conclude(&findings, steps)?;
    (plan.labels, plan.has_gateway) =
        gateways::choose(&here.nodes, options.gateways, &mut |_: &str, _: &[String]| None, steps);
    plan.peers = peers(&plan.member, there.drivers);
    Ok(plan)
}

/// Installs service discovery by itself, and does not wait until it runs. What is in `left` stays as others have made it.
///
/// # Errors
/// [`DeployError`]; what was done stays, and the next run goes on from there.
pub async fn install_service_discovery(
    local: &Server,
    member: &MemberOptions,
    left: &[ObjectRef],
    steps: &mut dyn Steps,
) -> Result<(), DeployError> {
    let wanted = without(objects::service_discovery(member), left);
    steps.begin("Checking requirements");
    let mut findings = preflight::image(&member.image.reference);
    findings.extend(preflight::rights(&missing_rights(local, &wanted, &[]).await?));
    conclude(&findings, steps)?;
    steps.begin("Deploying service discovery");
    for definition in [objects::service_export(), objects::service_import()] {
        define(local, &definition).await?;
    }
    super::takeover::workloads(local, &member.namespace, &wanted).await?;
    let tally = apply_all(local, &wanted).await?;
    steps.remark(Outcome::Success, &tally.to_string());
    steps.end(Outcome::Success);
    names::forward(local, member, steps).await
}

/// Removes service discovery that was installed by itself; what it exports is withdrawn first. The definitions stay.
///
/// # Errors
/// [`DeployError`]; the next run goes on from there.
pub async fn remove_service_discovery(
    local: &Server,
    namespace: &str,
    patience: std::time::Duration,
    steps: &mut dyn Steps,
) -> Result<(), DeployError> {
    service_discovery::leave(local, namespace, patience, steps).await?;
    service_discovery::remove_objects(local, namespace).await?;
    let secret = ObjectRef::namespaced("v1", "Secret", namespace, BROKER_SECRET);
    let found = local.find(&secret).await?.unwrap_or_default();
    if found["metadata"]["labels"][MANAGED_BY_LABEL] == TRIESTE {
        remove(local, &secret).await?;
    }
    Ok(())
}
