//! Calico's IPPools of remote networks, and their entries in Spiderpool's lists, are removed by the program that has made them: one
//! pod, since they belong to no node.
//!
//! ```text
//!   workers run ──▶ cleaner made, without pods ──▶ workers deleted ──▶ next hops deleted ──▶ cleaner has one pod
//!               ──▶ it is ready ──▶ cleaner deleted
//! ```
//!
//! The cleaner is made of the workers' Deployment, before that goes: a run that is interrupted anywhere leaves one of the two. A
//! worker on a node that does not answer may go on for a while; without next hops it makes no pool and no entry. The workers on
//! Spiderpool's lists are deleted long before the rest, and leave the entries.

use serde_json::{Value, json};
use tokio::time::{Instant, sleep};
use trieste_control::steps::{Outcome, Steps};

use super::clean::{abandon, cleaning_pod, gone, labels};
use super::options::Uninstall;
use super::plugin::delete_next_hops;
use crate::apply::remove;
use crate::error::DeployError;
use crate::object_ref::ObjectRef;
use crate::objects::names::{PLUGIN_SYNC, SPIDERPOOL_SYNC};
use crate::pods::{pods, status};
use crate::server::{POLL, Server};

/// A Deployment that removes what the workers of another one have written, and the texts about it.
#[derive(Debug)]
struct Cleaner {
    name: &'static str,
    /// The workers' Deployment, and its container.
    workers: &'static str,
    title: &'static str,
    /// What has happened if the pod does not get done.
    failure: &'static str,
    /// What then becomes of what they have written, where it is not waited for.
    left: &'static str,
}

/// Removes Calico's IPPools.
const CALICO: Cleaner = Cleaner {
    name: "trieste-plugin-sync-uninstall",
    workers: PLUGIN_SYNC,
    title: "Removing Calico's IPPools of remote networks",
    failure: "Calico's IPPools of remote networks were not removed",
    left: "those that are left are deleted with the objects, without waiting for Calico; that is also done by: kubectl \
           delete ippools.crd.projectcalico.org -l submariner.io/ippool=true",
};

/// Removes the entries of Spiderpool's lists.
const SPIDERPOOL: Cleaner = Cleaner {
    name: "trieste-spiderpool-sync-uninstall",
    workers: SPIDERPOOL_SYNC,
    title: "Removing remote networks from Spiderpool's hijackCIDR lists",
    failure: "the entries of remote networks in Spiderpool's hijackCIDR lists were not removed",
    left: "remote clusters' networks stay in the hijackCIDR lists; the annotation trieste.io/hijack-cidrs of SpiderCoordinators \
           and SpiderMultusConfigs names them: take them out of these lists, and the annotation with them",
};

/// Removes what workers have written for remote networks, if there have been any. Their accounts have to be there still.
///
/// # Errors
/// [`DeployError`] if the server refuses, or it is not gone in time; the next run goes on from there.
pub(super) async fn remove_written(
    server: &Server,
    options: &Uninstall,
    steps: &mut dyn Steps,
) -> Result<(), DeployError> {
    for cleaner in [&CALICO, &SPIDERPOOL] {
        clean(server, options, cleaner, steps).await?;
    }
    Ok(())
}

/// Stops the workers on Spiderpool's lists, before next hops are deleted for the sake of a plugin: the workers would follow, and what
/// new pods send would not come to their nodes' guards while there are any.
///
/// # Errors
/// [`DeployError`] if the server refuses, or workers do not end; the next run goes on from there.
pub(super) async fn hold_lists(
    server: &Server,
    options: &Uninstall,
    steps: &mut dyn Steps,
) -> Result<(), DeployError> {
    if server.find(&deployment(options, SPIDERPOOL.workers)).await?.is_none() {
        return Ok(());
    }
    steps.begin("Stopping the workers on Spiderpool's lists");
    stop(server, options, &SPIDERPOOL).await?;
    steps.end(Outcome::Success);
    Ok(())
}

async fn clean(
    server: &Server,
    options: &Uninstall,
    of: &Cleaner,
    steps: &mut dyn Steps,
) -> Result<(), DeployError> {
    let (workers, cleaner) = (deployment(options, of.workers), deployment(options, of.name));
    if server.find(&workers).await?.is_none() && server.find(&cleaner).await?.is_none() {
        return Ok(());
    }
    steps.begin(of.title);
    let made = stop(server, options, of).await?;
    delete_next_hops(server, &options.namespace).await?;
    if made.is_some_and(|made| made["spec"]["replicas"] == 0) {
        server.merge(&cleaner, &json!({"spec": {"replicas": 1}})).await?;
    }
    removed(server, options, of, &cleaner, steps).await?;
    for app in [of.workers, of.name] {
        abandon(server, options, app).await?;
    }
    remove(server, &cleaner).await?;
    steps.end(Outcome::Success);
    Ok(())
}

/// Makes the cleaner, without a pod as yet, and deletes the workers; returns the cleaner.
async fn stop(server: &Server, options: &Uninstall, of: &Cleaner) -> Result<Option<Value>, DeployError> {
    let (workers, cleaner) = (deployment(options, of.workers), deployment(options, of.name));
    let mut made = server.find(&cleaner).await?;
    if let Some(live) = server.find(&workers).await? {
        // One that has pods already is an earlier uninstall's, after which somebody has joined: it was done too early.
        if made.as_ref().is_some_and(|made| made["spec"]["replicas"] != 0) {
            remove(server, &cleaner).await?;
            gone(server, options, of.name).await?;
            made = None;
        }
        if made.is_none() {
            made = Some(server.create(&cleaner_of(&live, of.name, &options.namespace)).await?);
        }
        remove(server, &workers).await?;
    }
    gone(server, options, of.workers).await?;
    Ok(made)
}

fn deployment(options: &Uninstall, name: &str) -> ObjectRef {
    ObjectRef::namespaced("apps/v1", "Deployment", &options.namespace, name)
}

/// Returns the Deployment that cleans up after another one, without a pod as yet.
fn cleaner_of(live: &Value, name: &str, namespace: &str) -> Value {
    let labels = labels(name);
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"namespace": namespace, "name": name, "labels": labels},
        "spec": {
            "replicas": 0,
            "selector": {"matchLabels": {"app": name}},
            "template": {"metadata": {"labels": labels}, "spec": cleaning_pod(live)},
        },
    })
}

/// Waits until the pod has done its work; gives up where that was asked for.
async fn removed(
    server: &Server,
    options: &Uninstall,
    of: &Cleaner,
    place: &ObjectRef,
    steps: &mut dyn Steps,
) -> Result<(), DeployError> {
    let until = Instant::now() + options.patience;
    loop {
        let found = server.find(place).await?.unwrap_or_default();
        if is_done(&found) {
            return Ok(());
        }
        if Instant::now() >= until {
            break;
        }
        sleep(POLL).await;
    }
    let Cleaner { name, workers, failure, left, .. } = of;
    if options.force {
        steps.remark(Outcome::Warning, &format!("{failure} by the program that made them; {left}"));
        return Ok(());
    }
    Err(DeployError::NotInTime {
        what: (*failure).to_owned(),
        seconds: options.patience.as_secs(),
        state: pods(server, &options.namespace, name).await?,
        next: format!(
            "kubectl -n {} logs deployment/{name} -c {workers} tells why. Repeat the command: it goes on here; with --force {left}",
            options.namespace
        ),
    })
}

/// Returns `true` if a pod of the present template is ready: its program has run to its end.
fn is_done(deployment: &Value) -> bool {
    let generation = deployment["metadata"]["generation"].as_u64().unwrap_or(u64::MAX);
    status(deployment, "observedGeneration") >= generation && status(deployment, "readyReplicas") > 0
}

#[cfg(test)]
mod tests;
