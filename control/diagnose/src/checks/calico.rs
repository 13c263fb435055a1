//! Whether Calico has a pool for each remote network: it masquerades towards networks of which it has none.
//!
//! Where the member is ours, workers make them. `--fix` does where none run.

mod plan;

use ipnet::IpNet;
use k8s_openapi::api::apps::v1::Deployment;
use kube::Api;
use kube::api::DynamicObject;
use trieste_control::api::{Gateway, HaStatus};
use trieste_control::network_map::outermost;
use trieste_control::steps::{Outcome, Steps};

use super::fix::{Remedy, write};
use super::{CheckError, Checked, WORKER};
use crate::facts::{FactError, Found, POOL_VERSIONS, within};

/// Looks for Calico's pools, after it has written those that are missing if that was asked for.
///
/// # Errors
/// When the API server does not say.
pub(super) async fn pools(
    checked: &Checked,
    is_ours: bool,
    remedy: Remedy,
    steps: &mut dyn Steps,
) -> Result<(), CheckError> {
    let gateways = checked.source.gateways().await?;
    match remedy {
        Remedy::Explained => {}
        Remedy::Written => fix(checked, &gateways, is_ours, steps).await,
    }
    check(checked, &gateways, is_ours, steps).await
}

/// Writes the pools that are missing, where no workers do.
async fn fix(checked: &Checked, gateways: &[Gateway], is_ours: bool, steps: &mut dyn Steps) {
    steps.begin("Looking for IPPools that --fix writes");
    match planned(checked, gateways, is_ours).await {
        Ok(plan) => {
            for (outcome, text) in &plan.remarks {
                steps.remark(*outcome, text);
            }
            steps.end(Outcome::Success);
            write(&checked.source.client, &plan.writes, steps).await;
        }
        Err(error) => {
            steps.remark(Outcome::Failure, &error.to_string());
            steps.end(Outcome::Success);
        }
    }
}

async fn planned(checked: &Checked, gateways: &[Gateway], is_ours: bool) -> Result<plan::Plan, FactError> {
    if has_workers(checked).await? {
        return Ok(plan::Plan::nothing(format!(
            "Deployment {WORKER} makes and corrects them: --fix writes none"
        )));
    }
    for api_version in POOL_VERSIONS {
        if let Some(pools) = checked.source.pools_in(api_version).await? {
            let mut plan = plan::plan(gateways, &pools, api_version);
            if is_ours && !plan.writes.is_empty() {
                let text = format!(
                    "Deployment {WORKER} has no pod that is ready: --fix writes in its place. Why it has none is told by: trieste diagnose \
                     deployment"
                );
                plan.remarks.push((Outcome::Warning, text));
            }
            return Ok(plan);
        }
    }
    let text = "the API server has no IPPools, as where Calico keeps them in a store of its own: make one for each remote \
                network there, disabled and without natOutgoing";
    Ok(plan::Plan::nothing(text.to_owned()))
}

/// Returns `true` if workers of ours run, which write the same objects.
async fn has_workers(checked: &Checked) -> Result<bool, FactError> {
    let deployments = Api::<Deployment>::namespaced(checked.source.client.clone(), &checked.source.namespace);
    Ok(match within(&format!("Deployment {WORKER}"), deployments.get(WORKER)).await? {
        Found::There(deployment) => {
            deployment.status.and_then(|status| status.ready_replicas).is_some_and(|ready| ready > 0)
        }
        Found::Missing => false,
    })
}

async fn check(
    checked: &Checked,
    gateways: &[Gateway],
    is_ours: bool,
    steps: &mut dyn Steps,
) -> Result<(), CheckError> {
    steps.begin("Calico CNI detected, checking if the Submariner IPPool pre-requisites are configured");
    let problems = pool_problems(gateways, &checked.source.pools().await?);
    for text in &problems {
        steps.remark(Outcome::Failure, text);
    }
    if let Some(text) = missing_pools(&problems, is_ours, &checked.kubectl, &checked.source.namespace) {
        steps.remark(Outcome::Warning, &text);
    }
    steps.end(Outcome::Success);
    Ok(())
}

/// The first words about a pool that is not there, upstream's.
const NO_POOL: &str = "Could not find any IPPool";

/// Returns who makes pools that are missing, and where it says what keeps it from that.
fn missing_pools(problems: &[String], is_ours: bool, kubectl: &str, namespace: &str) -> Option<String> {
    let is_missing = problems.iter().any(|problem| problem.starts_with(NO_POOL));
    let by_worker = || {
        format!(
            "{WORKER} makes these pools. Its log says why one is missing, and names a pool of somebody else's that is in the \
             way: kubectl{kubectl} -n {namespace} logs -l app={WORKER}. It makes none where somebody has made a wider one that does not \
             masquerade"
        )
    };
    let by_hand = || "trieste diagnose cni --fix makes these pools, or names what is in the way".to_owned();
    is_missing.then(|| if is_ours { by_worker() } else { by_hand() })
}

fn pool_problems(gateways: &[Gateway], pools: &[DynamicObject]) -> Vec<String> {
    let pool = |network: IpNet| pools.iter().find(|pool| plan::network(pool) == Some(network));
    let name = |pool: &DynamicObject| pool.metadata.name.clone().unwrap_or_default();
    let is = |pool: &DynamicObject, field: &str| pool.data["spec"][field].as_bool().unwrap_or(false);
    let mut problems = Vec::new();
    for gateway in gateways.iter().filter(|gateway| gateway.status.ha_status == HaStatus::Active) {
        for endpoint in gateway.status.connections.iter().map(|connection| &connection.endpoint) {
            let cable = &endpoint.cable_name;
            // Calico takes no pool inside of another one.
            for network in outermost(plan::networks(&endpoint.subnets)) {
                let of_it = format!("with CIDR \"{network}\" for remote endpoint {cable:?}");
                match pool(network) {
                    None if pools.iter().any(|pool| plan::serves(pool, network)) => {}
                    None => problems.push(format!("{NO_POOL} {of_it}")),
                    Some(pool) if !is(pool, "disabled") => {
                        problems
                            .push(format!("The IPPool {:?} {of_it} has disabled set to false", name(pool)));
                    }
                    Some(pool) if is(pool, "natOutgoing") => {
                        problems
                            .push(format!("The IPPool {:?} {of_it} has natOutgoing set to true", name(pool)));
                    }
                    Some(_) => {}
                }
            }
        }
        for pool in plan::networks(&gateway.status.local_endpoint.subnets).filter_map(pool) {
            let mode = pool.data["spec"]["vxlanMode"].as_str().unwrap_or_default();
            if mode != "Always" {
                problems.push(format!(
                    "Calico IPPool {:?} is not configured with VXLAN overlay encapsulation (vxlanMode set to {mode:?})",
                    name(pool)
                ));
            }
        }
    }
    problems
}

#[cfg(test)]
mod tests;
