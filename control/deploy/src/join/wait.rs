//! Waiting until what was applied runs, and what to say if it does not.

use std::time::Duration;

use serde_json::Value;
use tokio::time::{Instant, sleep};
use trieste_control::steps::{Outcome, Steps};

use super::{Installed, Plan};
use crate::error::DeployError;
use crate::object_ref::ObjectRef;
use crate::objects::MemberOptions;
use crate::objects::names::{
    DISCOVERY_AGENT, DISCOVERY_DNS, GATEWAY, PLUGIN_SYNC, ROUTE_AGENT, SPIDERPOOL_SYNC,
};
use crate::pods::{MOST, counts, not_ready_with, pods, status};
use crate::roll;
use crate::server::{POLL, Server};

/// How long the next pods of a DaemonSet may take after some were replaced, whatever was given for all of them.
const WAVE: Duration = Duration::from_secs(60);
/// How long cables to other clusters may take before they are told instead of waited for: ours.
const CABLES: Duration = Duration::from_secs(15);

/// Waits for the route agents, the gateways and the word of the active one.
pub(super) async fn until_up(
    local: &Server,
    installed: &Installed,
    plan: &Plan,
    steps: &mut dyn Steps,
) -> Result<(), DeployError> {
    let (member, patience) = (&installed.member, plan.patience);
    let until = Instant::now() + patience;
    for_route_agents(local, member, patience, steps).await?;
    if member.has_ovn() {
        steps.begin("Waiting for the workers on OVN's database");
        rolled_out(local, member, PLUGIN_SYNC, until, patience, steps).await?;
        steps.end(Outcome::Success);
    }
    if member.has_calico() {
        steps.begin("Waiting for the workers on Calico's IPPools");
        deployed(local, member, PLUGIN_SYNC, until, patience).await?;
        steps.end(Outcome::Success);
    }
    if member.has_spiderpool {
        steps.begin("Waiting for the workers on Spiderpool's lists");
        deployed(local, member, SPIDERPOOL_SYNC, until, patience).await?;
        steps.end(Outcome::Success);
    }
    if member.has_service_discovery() {
        steps.begin("Waiting for the service discovery agent and the DNS servers");
        for name in [DISCOVERY_AGENT, DISCOVERY_DNS] {
            deployed(local, member, name, until, patience).await?;
        }
        steps.end(Outcome::Success);
    }
    replace_gateways(local, installed, patience, steps).await?;
    if !plan.has_gateway {
        return Ok(());
    }
    // What was replaced one by one has had its own time.
    let until = until.max(Instant::now() + CABLES);
    steps.begin("Waiting for the gateway");
    rolled_out(local, member, GATEWAY, until, patience, steps).await?;
    let name = active(local, member, until, patience).await?;
    steps.remark(Outcome::Success, &format!("Gateway {name} is active"));
    connected(local, member, &name, &plan.peers, patience.min(CABLES), steps).await?;
    steps.end(Outcome::Success);
    Ok(())
}

/// Waits for the route agents.
pub(super) async fn for_route_agents(
    local: &Server,
    member: &MemberOptions,
    patience: Duration,
    steps: &mut dyn Steps,
) -> Result<(), DeployError> {
    steps.begin("Waiting for the route agents");
    rolled_out(local, member, ROUTE_AGENT, Instant::now() + patience, patience, steps).await?;
    steps.end(Outcome::Success);
    Ok(())
}

/// Replaces the gateways' pods where they are held, and lets Kubernetes replace them again from then on.
pub(super) async fn replace_gateways(
    local: &Server,
    installed: &Installed,
    limit: Duration,
    steps: &mut dyn Steps,
) -> Result<(), DeployError> {
    if installed.held.is_empty() {
        return Ok(());
    }
    steps.begin("Replacing the gateways one by one");
    roll::run(local, &installed.member.namespace, &installed.held, limit, steps).await?;
    steps.end(Outcome::Success);
    Ok(())
}

/// Gives the cables to the other clusters a moment, and says which of them are there. One that is not is no fault of
/// this join: a peer may be away.
async fn connected(
    local: &Server,
    member: &MemberOptions,
    gateway: &str,
    peers: &[String],
    patience: Duration,
    steps: &mut dyn Steps,
) -> Result<(), DeployError> {
    let until = Instant::now() + patience;
    let place = ObjectRef::namespaced("submariner.io/v1", "Gateway", &member.namespace, gateway);
    loop {
        let found = local.find(&place).await?.unwrap_or_default();
        let (there, missing): (Vec<&String>, Vec<&String>) =
            peers.iter().partition(|peer| is_connected(&found, peer));
        if !missing.is_empty() && Instant::now() < until {
            sleep(POLL).await;
            continue;
        }
        let names = |list: &[&String]| {
            let shown: Vec<&str> = list.iter().take(MOST).map(|name| name.as_str()).collect();
            let more = list.len().saturating_sub(MOST);
            if more > 0 { format!("{} and {more} more", shown.join(", ")) } else { shown.join(", ") }
        };
        if !there.is_empty() {
            steps.remark(Outcome::Success, &format!("Connected to: {}", names(&there)));
        }
        if !missing.is_empty() {
            let text = format!("Not connected (yet): {}; trieste show connections tells", names(&missing));
            steps.remark(Outcome::Warning, &text);
        }
        return Ok(());
    }
}

fn is_connected(gateway: &Value, cluster: &str) -> bool {
    let all = gateway["status"]["connections"].as_array().into_iter().flatten();
    all.filter(|connection| connection["endpoint"]["cluster_id"] == cluster)
        .any(|connection| connection["status"] == "connected")
}

async fn rolled_out(
    local: &Server,
    member: &MemberOptions,
    name: &str,
    until: Instant,
    patience: Duration,
    steps: &mut dyn Steps,
) -> Result<(), DeployError> {
    let place = ObjectRef::namespaced("apps/v1", "DaemonSet", &member.namespace, name);
    let (mut until, mut most) = (until, 0);
    loop {
        let set = local.find(&place).await?.unwrap_or_default();
        if is_rolled_out(&set, 0) {
            return Ok(());
        }
        // Some at a time, in a cluster of many nodes: each time counts anew.
        let updated = status(&set, "updatedNumberScheduled");
        if updated > most {
            until = until.max(Instant::now() + patience.min(WAVE));
            most = updated;
        }
        let waits = not_ready_with(local, &member.namespace, name).await?;
        if !waits.is_empty() && is_rolled_out(&set, waits.len() as u64) {
            let shown: Vec<&str> = waits.iter().map(String::as_str).take(MOST).collect();
            let text = format!(
                "Not waited for: nodes that are not ready ({} of them): {}",
                waits.len(),
                shown.join(", ")
            );
            steps.remark(Outcome::Warning, &text);
            return Ok(());
        }
        if Instant::now() >= until {
            let state = pods(local, &member.namespace, name).await?;
            return Err(late(
                &format!("not all pods of {place} were ready ({})", counts(&set)),
                state,
                patience,
            ));
        }
        sleep(POLL).await;
    }
}

/// Waits until all pods of a Deployment are ready.
async fn deployed(
    local: &Server,
    member: &MemberOptions,
    name: &str,
    until: Instant,
    patience: Duration,
) -> Result<(), DeployError> {
    let place = ObjectRef::namespaced("apps/v1", "Deployment", &member.namespace, name);
    loop {
        let found = local.find(&place).await?.unwrap_or_default();
        if is_deployed(&found) {
            return Ok(());
        }
        if Instant::now() >= until {
            let state = pods(local, &member.namespace, name).await?;
            let ready = found["status"]["readyReplicas"].as_u64().unwrap_or(0);
            let what =
                format!("not all pods of {place} were ready ({ready} of {})", found["spec"]["replicas"]);
            return Err(late(&what, state, patience));
        }
        sleep(POLL).await;
    }
}

/// Returns `true` if as many pods of the present template as there are to be are ready, and no others are left.
fn is_deployed(deployment: &Value) -> bool {
    let status = |field: &str| status(deployment, field);
    let generation = deployment["metadata"]["generation"].as_u64().unwrap_or(u64::MAX);
    let wanted = deployment["spec"]["replicas"].as_u64().unwrap_or(u64::MAX);
    status("observedGeneration") >= generation
        && ["replicas", "updatedReplicas", "readyReplicas"].iter().all(|field| status(field) == wanted)
}

/// Whether the present template runs, ready, on every node that it is for but so many, and on one at least.
fn is_rolled_out(set: &Value, but: u64) -> bool {
    let status = |field: &str| status(set, field);
    let generation = set["metadata"]["generation"].as_u64().unwrap_or(u64::MAX);
    let desired = status("desiredNumberScheduled").saturating_sub(but);
    desired > 0
        && status("observedGeneration") >= generation
        && status("updatedNumberScheduled") >= desired
        && status("numberReady") >= desired
}

/// The gateway that says of itself that it is active.
async fn active(
    local: &Server,
    member: &MemberOptions,
    until: Instant,
    patience: Duration,
) -> Result<String, DeployError> {
    loop {
        let gateways = local.list("submariner.io/v1", "Gateway", Some(&member.namespace), "").await?;
        let is_active = |gateway: &&Value| gateway["status"]["haStatus"] == "active";
        if let Some(name) =
            gateways.iter().find(is_active).and_then(|gateway| gateway["metadata"]["name"].as_str())
        {
            return Ok(name.to_owned());
        }
        if Instant::now() >= until {
            let failures = gateways.iter().filter_map(|gateway| {
                let failure = gateway["status"]["statusFailure"].as_str()?;
                Some(format!("{}: {failure}", gateway["metadata"]["name"].as_str()?))
            });
            let mut state: Vec<String> = failures.take(MOST).collect();
            state.extend(pods(local, &member.namespace, GATEWAY).await?);
            return Err(late("no gateway was active", state, patience));
        }
        sleep(POLL).await;
    }
}

fn late(what: &str, state: Vec<String>, patience: Duration) -> DeployError {
    DeployError::NotInTime {
        what: what.to_owned(),
        seconds: patience.as_secs(),
        state,
        next: "trieste diagnose all; everything is applied, and the command can be repeated".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_set_is_rolled_out_when_the_present_template_is_ready_everywhere() {
        let set = |generation: u64, observed: u64, desired: u64, updated: u64, ready: u64| {
            json!({"metadata": {"generation": generation}, "status": {"observedGeneration": observed,
                "desiredNumberScheduled": desired, "updatedNumberScheduled": updated, "numberReady": ready}})
        };
        assert!(is_rolled_out(&set(2, 2, 3, 3, 3), 0));
        assert!(is_rolled_out(&set(2, 2, 3, 2, 2), 1));
        assert!(!is_rolled_out(&set(2, 2, 1, 0, 0), 1), "nowhere is not everywhere");
        for unfinished in
            [set(2, 1, 3, 3, 3), set(2, 2, 3, 2, 3), set(2, 2, 3, 3, 2), set(1, 1, 0, 0, 0), json!({})]
        {
            assert!(!is_rolled_out(&unfinished, 0), "{unfinished}");
        }
    }

    #[test]
    fn a_deployment_is_there_when_all_its_pods_are_of_the_present_template_and_ready() {
        let deployment = |observed: u64, total: u64, updated: u64, ready: u64| {
            json!({"metadata": {"generation": 2}, "spec": {"replicas": 2}, "status": {"observedGeneration": observed,
                "replicas": total, "updatedReplicas": updated, "readyReplicas": ready}})
        };
        assert!(is_deployed(&deployment(2, 2, 2, 2)));
        for unfinished in
            [deployment(1, 2, 2, 2), deployment(2, 3, 2, 2), deployment(2, 2, 1, 2), deployment(2, 2, 2, 1)]
        {
            assert!(!is_deployed(&unfinished), "{unfinished}");
        }
        assert!(!is_deployed(&json!({})));
    }

    #[test]
    fn a_cluster_is_connected_when_a_cable_to_it_says_so() {
        let connection =
            |cluster: &str, status: &str| json!({"status": status, "endpoint": {"cluster_id": cluster}});
        let gateway = json!({"status": {"connections": [connection("west", "connected"), connection("south", "connecting")]}});
        assert!(is_connected(&gateway, "west"));
        assert!(!is_connected(&gateway, "south") && !is_connected(&gateway, "north"));
        assert!(!is_connected(&json!({}), "west"));
    }
}
