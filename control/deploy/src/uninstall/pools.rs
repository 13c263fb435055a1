//! Calico's IPPools of remote networks are removed by the program that has made them: one pod, since they belong to no node.
//!
//! ```text
//!   workers run ──▶ cleaner made, without pods ──▶ workers deleted ──▶ next hops deleted ──▶ cleaner has one pod
//!               ──▶ it is ready ──▶ cleaner deleted
//! ```
//!
//! The cleaner is made of the workers' Deployment, before that goes: a run that is interrupted anywhere leaves one of the two. A
//! worker on a node that does not answer may go on for a while; without next hops it makes no pool.

use serde_json::{Value, json};
use tokio::time::{Instant, sleep};
use trieste_control::steps::{Outcome, Steps};

use super::clean::{abandon, cleaning_pod, gone, labels};
use super::options::Uninstall;
use super::plugin::delete_next_hops;
use crate::apply::remove;
use crate::error::DeployError;
use crate::object_ref::ObjectRef;
use crate::objects::names::PLUGIN_SYNC;
use crate::pods::pods;
use crate::server::{POLL, Server};

/// The Deployment that removes pools.
const CLEANER: &str = "trieste-plugin-sync-uninstall";

/// What becomes of pools for which the pod is not waited any longer.
const LEFT: &str = "those that are left are deleted with the objects, without waiting for Calico; that is also done by: kubectl \
     delete ippools.crd.projectcalico.org -l submariner.io/ippool=true";

/// Removes the pools of remote networks, if workers have been there to make them. Their account has to be there still.
///
/// # Errors
/// [`DeployError`] if the server refuses, or the pools are not gone in time; the next run goes on from there.
pub(super) async fn remove_pools(
    server: &Server,
    options: &Uninstall,
    steps: &mut dyn Steps,
) -> Result<(), DeployError> {
    let deployment = |name: &str| ObjectRef::namespaced("apps/v1", "Deployment", &options.namespace, name);
    let (place, cleaner) = (deployment(PLUGIN_SYNC), deployment(CLEANER));
    let live = server.find(&place).await?;
    let mut made = server.find(&cleaner).await?;
    if live.is_none() && made.is_none() {
        return Ok(());
    }
    steps.begin("Removing Calico's IPPools of remote networks");
    if let Some(live) = &live {
        if made.is_none() {
            made = Some(server.create(&cleaner_of(live, &options.namespace)).await?);
        }
        remove(server, &place).await?;
    }
    gone(server, options, PLUGIN_SYNC).await?;
    delete_next_hops(server, &options.namespace).await?;
    if made.is_some_and(|made| made["spec"]["replicas"] == 0) {
        server.merge(&cleaner, &json!({"spec": {"replicas": 1}})).await?;
    }
    removed(server, options, &cleaner, steps).await?;
    for app in [PLUGIN_SYNC, CLEANER] {
        abandon(server, options, app).await?;
    }
    remove(server, &cleaner).await?;
    steps.end(Outcome::Success);
    Ok(())
}

/// Returns the Deployment that removes the pools, without a pod as yet.
fn cleaner_of(live: &Value, namespace: &str) -> Value {
    let labels = labels(CLEANER);
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"namespace": namespace, "name": CLEANER, "labels": labels},
        "spec": {
            "replicas": 0,
            "selector": {"matchLabels": {"app": CLEANER}},
            "template": {"metadata": {"labels": labels}, "spec": cleaning_pod(live)},
        },
    })
}

/// Waits until the pod has removed the pools; gives up where that was asked for.
async fn removed(
    server: &Server,
    options: &Uninstall,
    cleaner: &ObjectRef,
    steps: &mut dyn Steps,
) -> Result<(), DeployError> {
    let until = Instant::now() + options.patience;
    loop {
        let found = server.find(cleaner).await?.unwrap_or_default();
        if is_done(&found) {
            return Ok(());
        }
        if Instant::now() >= until {
            break;
        }
        sleep(POLL).await;
    }
    let what = "Calico's IPPools of remote networks were not removed";
    if options.force {
        steps.remark(Outcome::Warning, &format!("{what} by the program that made them; {LEFT}"));
        return Ok(());
    }
    Err(DeployError::NotInTime {
        what: what.to_owned(),
        seconds: options.patience.as_secs(),
        state: pods(server, &options.namespace, CLEANER).await?,
        next: format!(
            "kubectl -n {} logs deployment/{CLEANER} -c {PLUGIN_SYNC} tells why. Repeat the command: it goes on here; with --force \
             {LEFT}",
            options.namespace
        ),
    })
}

/// Returns `true` if a pod of the present template is ready: its program has run to its end.
fn is_done(deployment: &Value) -> bool {
    let status = |field: &str| deployment["status"][field].as_u64().unwrap_or(0);
    let generation = deployment["metadata"]["generation"].as_u64().unwrap_or(u64::MAX);
    status("observedGeneration") >= generation && status("readyReplicas") > 0
}

#[cfg(test)]
mod tests;
