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

use super::options::{LEFT, Uninstall};
use crate::apply::remove;
use crate::error::DeployError;
use crate::object_ref::ObjectRef;
use crate::objects::MemoryLimit;
use crate::objects::names::{
    GATEWAY_LABEL, MANAGED_BY_LABEL, PART_OF_LABEL, ROUTE_AGENT, TRIESTE, VERSION_LABEL,
};
use crate::pods::{away, counts, not_ready_with, pods};
use crate::server::{POLL, Server};

/// The label that no node has.
const PARKED: &str = "trieste.io/parked";

/// The annotation of a set that cleans: its pods were made while others may have run on nodes that were away.
const EARLY: &str = "trieste.io/early";

/// Cleans the nodes on which the DaemonSet `name` runs; returns those that are not ready, and so were not cleaned.
pub(super) async fn nodes(
    server: &Server,
    options: &Uninstall,
    name: &str,
    title: &str,
    steps: &mut dyn Steps,
) -> Result<Vec<String>, DeployError> {
    let set = |name: &str| ObjectRef::namespaced("apps/v1", "DaemonSet", &options.namespace, name);
    let (place, cleaner) = (set(name), set(&format!("{name}-uninstall")));
    let live = server.find(&place).await?;
    let mut made = server.find(&cleaner).await?;
    if live.is_none() && made.is_none() {
        return Ok(Vec::new());
    }
    steps.begin(title);
    if let Some(live) = &live {
        if made.is_none() {
            made = Some(server.create(&cleaner_of(live, &cleaner.name, &options.namespace)).await?);
        }
        remove(server, &place).await?;
    }
    let mut early: Vec<String> = gone(server, options, name).await?.into_iter().collect();
    early.sort_unstable();
    let early = (!early.is_empty()).then(|| early.join(","));
    if let Some(change) = made.as_ref().and_then(|made| freed(made, early.as_deref())) {
        server.merge(&cleaner, &change).await?;
    }
    let left = cleaned(server, options, &cleaner, steps).await?;
    if left.is_empty() || options.force {
        for app in [name, &cleaner.name] {
            abandon(server, options, app).await?;
        }
        remove(server, &cleaner).await?;
    }
    steps.end(Outcome::Success);
    Ok(left)
}

/// What sets a cleaner free. `early` are the nodes to which its pods come before those that they clean up after have gone; once one
/// of them is none any more, pods are made anew. While they stay the same, as with a node that is away, nothing changes.
fn freed(made: &Value, early: Option<&str>) -> Option<Value> {
    let was = &made["metadata"]["annotations"][EARLY];
    let mark = json!(early);
    let is_parked = !made["spec"]["template"]["spec"]["nodeSelector"][PARKED].is_null();
    if !is_parked && mark == *was {
        return None;
    }
    let mut change = json!({
        "metadata": {"annotations": {EARLY: mark}},
        "spec": {"template": {"spec": {"nodeSelector": {PARKED: null}}}},
    });
    if !was.is_null() && mark != *was {
        let version = &made["metadata"]["resourceVersion"];
        change["spec"]["template"]["metadata"] = json!({"annotations": {EARLY: version}});
    }
    Some(change)
}

/// Returns a pod's specification that runs a program once, to clean up what it has done, and then waits.
pub(super) fn cleaning_pod(live: &Value) -> Value {
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
        Some(variables) => {
            // The command leaves the broker itself: nodes do not wait for one that is away, or has let us go already.
            let is_brokers = |name: &str| {
                ["SUBMARINER_BROKER", "TRIESTE_BROKER_NAMES"].contains(&name)
                    || name.starts_with("BROKER_K8S_")
            };
            variables.retain(|variable| !variable["name"].as_str().is_some_and(is_brokers));
            variables.push(uninstall);
        }
        None => program["env"] = json!([uninstall]),
    }
    if let Some(capabilities) = security["capabilities"].as_object_mut() {
        capabilities.remove("add");
    }
    pod["initContainers"] = json!([program]);
    if live["metadata"]["name"] == ROUTE_AGENT {
        sweep(&mut pod, &image, &policy, &security);
    }
    pod["containers"] = json!([{
        "name": "done",
        "image": image,
        "imagePullPolicy": policy,
        "command": ["/bin/sh", "-c", "while :; do sleep 3600; done"],
        "securityContext": security,
        "resources": MemoryLimit::BESIDE.resources("1m", "4Mi"),
    }]);
    pod["terminationGracePeriodSeconds"] = json!(1);
    // A node that is no gateway any more has kept its device and its key.
    if let Some(selector) = pod["nodeSelector"].as_object_mut() {
        selector.remove(GATEWAY_LABEL);
    }
    pod
}

/// Returns the labels of what cleans, and of its pods.
pub(super) fn labels(name: &str) -> Value {
    json!({
        "app": name, PART_OF_LABEL: TRIESTE, MANAGED_BY_LABEL: TRIESTE, VERSION_LABEL: env!("CARGO_PKG_VERSION"),
    })
}

/// Returns the DaemonSet that cleans what the pods of another one have done.
fn cleaner_of(live: &Value, name: &str, namespace: &str) -> Value {
    let mut pod = cleaning_pod(live);
    pod["nodeSelector"][PARKED] = json!("true");
    let labels = labels(name);
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

/// Adds what removes the folders that both programs share on a node, and what a program that was killed has left in them.
/// No pod removes a folder that is mounted into it: this container sees the folders above, and has no rights but a
/// file's owner's. It goes with the route agents, who are the last to use them.
fn sweep(pod: &mut Value, image: &Value, policy: &Value, security: &Value) {
    let words = "rm -f /above/run/trieste/gateway.sock /above/run/trieste/gateway.sock.lock \
                 /above/run/trieste/routeagent.json; \
                 rmdir /above/run/trieste /above/lib/trieste 2>/dev/null; true";
    let folders = [("above-run", "/run", "/above/run"), ("above-lib", "/var/lib", "/above/lib")];
    let mounts = folders.map(|(name, _, at)| json!({"name": name, "mountPath": at}));
    let volumes =
        folders.map(|(name, path, _)| json!({"name": name, "hostPath": {"path": path, "type": "Directory"}}));
    let container = json!({
        "name": "sweep",
        "image": image,
        "imagePullPolicy": policy,
        "command": ["/bin/sh", "-c", words],
        "securityContext": security,
        "volumeMounts": mounts,
        "resources": MemoryLimit::BESIDE.resources("1m", "4Mi"),
    });
    if let Some(containers) = pod["initContainers"].as_array_mut() {
        containers.push(container);
    }
    if let Some(all) = pod["volumes"].as_array_mut() {
        all.extend(volumes);
    }
}

/// Waits until no pod of the program runs, but for nodes that are not ready, where one never ends: those are returned.
pub(super) async fn gone(
    server: &Server,
    options: &Uninstall,
    app: &str,
) -> Result<Vec<String>, DeployError> {
    let until = Instant::now() + options.patience;
    loop {
        let away = away(server).await?;
        let left = of_app(server, &options.namespace, app).await?;
        let nodes: Vec<String> = left.iter().map(node_of).collect();
        if nodes.iter().all(|node| away.contains(node)) {
            return Ok(nodes);
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

async fn of_app(server: &Server, namespace: &str, app: &str) -> Result<Vec<Value>, DeployError> {
    server.list("v1", "Pod", Some(namespace), &format!("labelSelector=app%3D{app}")).await
}

fn node_of(pod: &Value) -> String {
    pod["spec"]["nodeName"].as_str().unwrap_or_default().to_owned()
}

/// Forgets pods on nodes that are not ready: nobody is there to say that they have ended, and their namespace would
/// wait for it.
pub(super) async fn abandon(server: &Server, options: &Uninstall, app: &str) -> Result<(), DeployError> {
    let away = away(server).await?;
    if away.is_empty() {
        return Ok(());
    }
    for pod in of_app(server, &options.namespace, app).await? {
        if let (true, Some(place)) = (away.contains(&node_of(&pod)), ObjectRef::of(&pod)) {
            server.forget(&place).await?;
        }
    }
    Ok(())
}

/// Waits until every node has been cleaned, but for those that are not ready: they are returned.
async fn cleaned(
    server: &Server,
    options: &Uninstall,
    cleaner: &ObjectRef,
    steps: &mut dyn Steps,
) -> Result<Vec<String>, DeployError> {
    let until = Instant::now() + options.patience;
    loop {
        let set = server.find(cleaner).await?.unwrap_or_default();
        if is_done(&set, 0) {
            return Ok(Vec::new());
        }
        let waits = not_ready_with(server, &options.namespace, &cleaner.name).await?;
        if !waits.is_empty() && is_done(&set, waits.len() as u64) {
            return Ok(waits);
        }
        if Instant::now() >= until {
            let state = pods(server, &options.namespace, &cleaner.name).await?;
            let what = format!("not all nodes were cleaned ({})", counts(&set));
            if options.force {
                steps.remark(Outcome::Warning, &format!("{what}; {}", LEFT));
                return Ok(waits);
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
    use crate::objects::names::PLUGIN_SYNC;
    use crate::objects::{BrokerAccess, MemberOptions, member};

    fn live(name: &str) -> Value {
        let access = BrokerAccess::new("b:6443", None, crate::objects::Secret::new("t"));
        let mut options = MemberOptions::new("east", access, crate::objects::Secret::new("k"));
        options.network_plugin = "OVNKubernetes".to_owned();
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
            let is_last = name == ROUTE_AGENT;
            let count = if is_last { 2 } else { 1 };
            assert_eq!(init.as_array().unwrap().len(), count, "the wait for the node is of no use");
            assert!(!is_last || init[1]["name"] == "sweep");
            assert!(init[1]["securityContext"]["capabilities"]["add"].is_null());
            assert_eq!(init[0]["command"], live["spec"]["template"]["spec"]["containers"][0]["command"]);
            assert_eq!(init[0]["securityContext"]["capabilities"]["add"], json!(["NET_ADMIN", "NET_RAW"]));
            let is_uninstall =
                |variable: &Value| *variable == json!({"name": "SUBMARINER_UNINSTALL", "value": "true"});
            assert!(init[0]["env"].as_array().unwrap().iter().any(is_uninstall));
            assert!(!init[0]["env"].to_string().contains("BROKER"), "{}", init[0]["env"]);
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
    fn plugin_ovn_cleaner_sees_the_sockets_and_has_no_capability() {
        let cleaner = cleaner_of(&live(PLUGIN_SYNC), "trieste-plugin-sync-uninstall", "submariner-operator");
        let pod = &cleaner["spec"]["template"]["spec"];
        let init = pod["initContainers"].as_array().unwrap();
        assert_eq!(init.len(), 1, "the folders of OVN are not swept away");
        assert_eq!(init[0]["securityContext"]["capabilities"], json!({"drop": ["ALL"]}));
        assert_eq!(init[0]["volumeMounts"].as_array().unwrap().len(), 5);
        let variable = |name: &str| {
            let all = init[0]["env"].as_array().unwrap();
            all.iter().find(|variable| variable["name"] == name).map(|variable| variable["value"].clone())
        };
        assert_eq!(variable("SUBMARINER_UNINSTALL"), Some(json!("true")));
        assert_eq!(variable("TRIESTE_OVN_NB"), Some(json!("")));
        assert_eq!(pod["nodeSelector"][PARKED], "true");
        assert_eq!(pod["serviceAccountName"], PLUGIN_SYNC);
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

    #[test]
    fn cleaners_that_came_early_come_again() {
        let made = |is_parked: bool, early: Option<&str>| {
            let mut made = json!({"metadata": {"resourceVersion": "7"}, "spec": {"template": {"spec": {}}}});
            if is_parked {
                made["spec"]["template"]["spec"]["nodeSelector"][PARKED] = json!("true");
            }
            if let Some(nodes) = early {
                made["metadata"]["annotations"][EARLY] = json!(nodes);
            }
            made
        };
        let again = |change: &Value| change["spec"]["template"]["metadata"]["annotations"][EARLY].clone();
        let mark = |change: &Value| change["metadata"]["annotations"][EARLY].clone();

        let first = freed(&made(true, None), Some("a,b")).unwrap();
        assert_eq!((mark(&first), again(&first)), (json!("a,b"), Value::Null));
        let second = freed(&made(false, Some("a,b")), Some("b")).unwrap();
        assert_eq!((mark(&second), again(&second)), (json!("b"), json!("7")));
        assert_eq!(
            freed(&made(false, Some("b")), Some("b")),
            None,
            "a node that is away makes nobody's pod anew"
        );
        let third = freed(&made(false, Some("b")), None).unwrap();
        assert_eq!((mark(&third), again(&third)), (Value::Null, json!("7")));
        assert!(freed(&made(true, None), None).is_some() && freed(&made(false, None), None).is_none());
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
        assert!(not_ready_with(&fake.server(), "ns", "x-uninstall").await.unwrap().is_empty());
        fake.put(pod("b", "gw2"));
        assert_eq!(not_ready_with(&fake.server(), "ns", "x-uninstall").await.unwrap(), ["gw2"]);
    }
}
