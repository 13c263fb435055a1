//! Nodes are cleaned by the programs themselves: a DaemonSet like theirs, whose pods clean up and then stay until all
//! are done.
//!
//! ```text
//!   X runs ──▶ X-uninstall made, parked ──▶ X deleted ──▶ X-uninstall set free ──▶ all ready ──▶ X-uninstall deleted
//! ```
//!
//! Parked means that no node has the label that its pods ask for. It is made before X goes, since it is made of X: a
//! run that is interrupted anywhere leaves one of the two.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::{Instant, sleep};
use trieste_control::steps::{Outcome, Steps};

use super::Uninstall;
use crate::apply::remove;
use crate::error::DeployError;
use crate::join::{away, away_with, counts, pods};
use crate::objects::names::{
    GATEWAY_LABEL, MANAGED_BY_LABEL, PART_OF_LABEL, ROUTE_AGENT, TRIESTE, VERSION_LABEL,
};
use crate::place::Place;
use crate::server::{POLL, Server};

/// The label that no node has.
const PARKED: &str = "trieste.io/parked";

/// Cleans the nodes on which the DaemonSet `name` runs.
pub(super) async fn nodes(
    server: &Server,
    options: &Uninstall,
    name: &str,
    title: &str,
    steps: &mut dyn Steps,
) -> Result<(), DeployError> {
    let set = |name: &str| Place::namespaced("apps/v1", "DaemonSet", &options.namespace, name);
    let (place, cleaner) = (set(name), set(&format!("{name}-uninstall")));
    let live = server.find(&place).await?;
    let mut made = server.find(&cleaner).await?;
    if live.is_none() && made.is_none() {
        return Ok(());
    }
    steps.begin(title);
    if let Some(live) = &live {
        if made.is_none() {
            made = Some(server.create(&cleaner_of(live, &cleaner.name, &options.namespace)).await?);
        }
        remove(server, &place).await?;
        gone(server, options, name, steps).await?;
    }
    if made.is_some_and(|made| !made["spec"]["template"]["spec"]["nodeSelector"][PARKED].is_null()) {
        let free = json!({"spec": {"template": {"spec": {"nodeSelector": {PARKED: null}}}}});
        server.merge(&cleaner, &free).await?;
    }
    cleaned(server, options, &cleaner, steps).await?;
    remove(server, &cleaner).await?;
    steps.end(Outcome::Success);
    Ok(())
}

/// The DaemonSet that cleans what the pods of another one have done.
fn cleaner_of(live: &Value, name: &str, namespace: &str) -> Value {
    let mut pod = live["spec"]["template"]["spec"].clone();
    let mut program = pod["containers"][0].take();
    let image = program["image"].clone();
    let (policy, mut security) = (program["imagePullPolicy"].clone(), program["securityContext"].clone());
    if let Some(fields) = program.as_object_mut() {
        for field in ["livenessProbe", "readinessProbe", "startupProbe", "ports", "lifecycle"] {
            fields.remove(field);
        }
    }
    let uninstall = json!({"name": "SUBMARINER_UNINSTALL", "value": "true"});
    match program["env"].as_array_mut() {
        Some(variables) => variables.push(uninstall),
        None => program["env"] = json!([uninstall]),
    }
    if let Some(capabilities) = security["capabilities"].as_object_mut() {
        capabilities.remove("add");
    }
    let (sweeper, volumes) = sweeper(live, &image, &policy, &security);
    pod["initContainers"] = json!([program, sweeper]);
    if let Some(all) = pod["volumes"].as_array_mut() {
        all.extend(volumes);
    }
    pod["containers"] = json!([{
        "name": "done",
        "image": image,
        "imagePullPolicy": policy,
        "command": ["/bin/sh", "-c", "while :; do sleep 3600; done"],
        "securityContext": security,
        "resources": {"requests": {"cpu": "1m", "memory": "4Mi"}},
    }]);
    pod["terminationGracePeriodSeconds"] = json!(1);
    // A node that is no gateway any more has kept its device and its key.
    if let Some(selector) = pod["nodeSelector"].as_object_mut() {
        selector.remove(GATEWAY_LABEL);
    }
    pod["nodeSelector"][PARKED] = json!("true");
    let labels = json!({
        "app": name, PART_OF_LABEL: TRIESTE, MANAGED_BY_LABEL: TRIESTE, VERSION_LABEL: env!("CARGO_PKG_VERSION"),
    });
    json!({
        "apiVersion": "apps/v1", "kind": "DaemonSet",
        "metadata": {"namespace": namespace, "name": name, "labels": labels},
        "spec": {
            "selector": {"matchLabels": {"app": name}},
            "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": "100%"}},
            "template": {"metadata": {"labels": labels}, "spec": pod},
        },
    })
}

/// Folders of the node that a set's pods have had made, and what a program that was killed leaves in them. No pod removes
/// a folder that is mounted into it: this container sees the folder above, and has no rights but a file's owner's. The
/// folder of sockets goes with the route agents, who are the last to use it.
fn sweeper(live: &Value, image: &Value, policy: &Value, security: &Value) -> (Value, Vec<Value>) {
    let is_last = live["metadata"]["name"] == ROUTE_AGENT;
    let (above, words) = if is_last {
        ("/run", "rm -f trieste/gateway.sock trieste/routeagent.json; rmdir trieste")
    } else {
        ("/var/lib", "rmdir trieste")
    };
    let container = json!({
        "name": "sweep",
        "image": image,
        "imagePullPolicy": policy,
        "command": ["/bin/sh", "-c", format!("cd /above && {{ {words}; }} 2>/dev/null; true")],
        "securityContext": security,
        "volumeMounts": [{"name": "above", "mountPath": "/above"}],
    });
    (container, vec![json!({"name": "above", "hostPath": {"path": above, "type": "Directory"}})])
}

/// Waits until no pod of the program runs. One on a node that is away never ends: it is told, and not waited for.
async fn gone(
    server: &Server,
    options: &Uninstall,
    app: &str,
    steps: &mut dyn Steps,
) -> Result<(), DeployError> {
    let until = Instant::now() + options.patience;
    loop {
        let away = away(server).await?;
        let selector = format!("labelSelector=app%3D{app}");
        let left = server.list("v1", "Pod", Some(&options.namespace), &selector).await?;
        let node = |pod: &Value| pod["spec"]["nodeName"].as_str().unwrap_or_default().to_owned();
        if left.iter().all(|pod| away.contains(&node(pod))) {
            for pod in &left {
                let text =
                    format!("Node {} is not ready: what is on it stays until it is rebooted", node(pod));
                steps.remark(Outcome::Warning, &text);
            }
            return Ok(());
        }
        if Instant::now() >= until {
            let state = left.iter().filter_map(|pod| pod["metadata"]["name"].as_str()).take(12);
            return Err(late(
                &format!("pods of {app} did not end"),
                state.map(str::to_owned).collect(),
                options.patience,
            ));
        }
        sleep(POLL).await;
    }
}

/// Waits until every node has been cleaned; those that are away are told.
async fn cleaned(
    server: &Server,
    options: &Uninstall,
    cleaner: &Place,
    steps: &mut dyn Steps,
) -> Result<(), DeployError> {
    let until = Instant::now() + options.patience;
    loop {
        let set = server.find(cleaner).await?.unwrap_or_default();
        if is_done(&set, 0) {
            return Ok(());
        }
        let waits = away_with(server, &options.namespace, &cleaner.name).await?.len() as u64;
        if waits > 0 && is_done(&set, waits) {
            steps.remark(Outcome::Warning, "Nodes that are not ready were not cleaned; a reboot does it");
            return Ok(());
        }
        if Instant::now() >= until {
            let state = pods(server, &options.namespace, &cleaner.name).await?;
            let what = format!("not all nodes were cleaned ({})", counts(&set));
            if options.force {
                steps.remark(
                    Outcome::Warning,
                    &format!("{what}; what is on the others stays until they are rebooted"),
                );
                return Ok(());
            }
            return Err(late(&what, state, options.patience));
        }
        sleep(POLL).await;
    }
}

/// Whether the pods of the present template are ready on all nodes but so many.
fn is_done(set: &Value, but: u64) -> bool {
    let status = |field: &str| set["status"][field].as_u64();
    let generation = set["metadata"]["generation"].as_u64().unwrap_or(u64::MAX);
    let desired = status("desiredNumberScheduled").unwrap_or(u64::MAX);
    let wanted = desired.saturating_sub(but);
    status("observedGeneration").unwrap_or(0) >= generation
        && status("updatedNumberScheduled").unwrap_or(0) >= wanted
        && status("numberReady").unwrap_or(0) >= wanted
}

fn late(what: &str, state: Vec<String>, patience: Duration) -> DeployError {
    DeployError::NotInTime {
        what: what.to_owned(),
        seconds: patience.as_secs(),
        state,
        next: format!(
            "repeat the command: it goes on here; with --force it leaves such nodes as they are. Gateway nodes are \
             those with the label {GATEWAY_LABEL}"
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::objects::{BrokerAccess, MemberOptions, member};

    fn live(name: &str) -> Value {
        let access = BrokerAccess::new("b:6443", None, crate::objects::Secret::new("t"));
        let options = MemberOptions::new("east", access, crate::objects::Secret::new("k"));
        let is_it =
            |manifest: &&crate::objects::Manifest| manifest.kind() == "DaemonSet" && manifest.name() == name;
        member(&options).iter().find(is_it).unwrap().as_value().clone()
    }

    #[test]
    fn a_cleaner_runs_the_program_once_with_its_rights_and_then_waits_without_any() {
        for name in [crate::objects::names::GATEWAY, ROUTE_AGENT] {
            let live = live(name);
            let cleaner = cleaner_of(&live, &format!("{name}-uninstall"), "submariner-operator");
            let pod = &cleaner["spec"]["template"]["spec"];
            let init = &pod["initContainers"];
            assert_eq!(init.as_array().unwrap().len(), 2, "the wait for the node is of no use");
            assert_eq!(init[1]["name"], "sweep");
            assert!(init[1]["securityContext"]["capabilities"]["add"].is_null());
            assert_eq!(init[0]["command"], live["spec"]["template"]["spec"]["containers"][0]["command"]);
            assert_eq!(init[0]["securityContext"]["capabilities"]["add"], json!(["NET_ADMIN", "NET_RAW"]));
            let is_uninstall =
                |variable: &Value| *variable == json!({"name": "SUBMARINER_UNINSTALL", "value": "true"});
            assert!(init[0]["env"].as_array().unwrap().iter().any(is_uninstall));
            assert!(init[0]["readinessProbe"].is_null() && init[0]["ports"].is_null());
            assert!(pod["containers"][0]["securityContext"]["capabilities"]["add"].is_null());
            assert_eq!(pod["nodeSelector"][PARKED], "true");
            assert!(
                pod["nodeSelector"][GATEWAY_LABEL].is_null(),
                "gateways of earlier days are cleaned, too"
            );
            assert_eq!(pod["serviceAccountName"], name);
            let selector = &cleaner["spec"]["selector"]["matchLabels"]["app"];
            assert_eq!(*selector, cleaner["spec"]["template"]["metadata"]["labels"]["app"]);
            assert_ne!(*selector, live["spec"]["selector"]["matchLabels"]["app"]);
        }
    }

    #[test]
    fn nodes_are_clean_when_the_present_template_is_ready_on_all_or_on_none() {
        let set = |observed: u64, desired: u64, ready: u64| {
            json!({"metadata": {"generation": 2}, "status": {"observedGeneration": observed,
                "desiredNumberScheduled": desired, "updatedNumberScheduled": ready, "numberReady": ready}})
        };
        assert!(is_done(&set(2, 3, 3), 0) && is_done(&set(2, 0, 0), 0));
        assert!(is_done(&set(2, 3, 2), 1));
        assert!(!is_done(&set(1, 3, 3), 0) && !is_done(&set(2, 3, 2), 0) && !is_done(&json!({}), 0));
    }

    #[tokio::test]
    async fn a_node_that_is_away_counts_only_if_the_cleaner_is_to_run_there() {
        use crate::server::fake::Fake;
        let fake = Fake::default();
        for (name, ready) in [("gw1", "True"), ("gw2", "False"), ("w1", "False")] {
            fake.put(json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name},
                "status": {"conditions": [{"type": "Ready", "status": ready}]}}));
        }
        let pod = |name: &str, node: &str| {
            json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"namespace": "ns", "name": name,
                "labels": {"app": "x-uninstall"}}, "spec": {"nodeName": node}})
        };
        fake.put(pod("a", "gw1"));
        assert!(away_with(&fake.server(), "ns", "x-uninstall").await.unwrap().is_empty());
        fake.put(pod("b", "gw2"));
        assert_eq!(away_with(&fake.server(), "ns", "x-uninstall").await.unwrap(), ["gw2"]);
    }
}
