//! The gateways' pods, as the DaemonSet controller and kubelets keep them, and of which template each is.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use serde_json::{Value, json};
use trieste_tests::cluster::NAMESPACE;
use trieste_tests::kubernetes::Client;

const REVISION: &str = "controller-revision-hash";
const OF_GATEWAYS: &str = "labelSelector=app%3Dsubmariner-gateway";

/// Brings pods and revisions to what the DaemonSet says; without one there are none.
pub(super) fn run(server: &Client, nodes: &[Value], set: Option<&Value>) -> anyhow::Result<()> {
    let pods = format!("/api/v1/namespaces/{NAMESPACE}/pods");
    let revisions = format!("/apis/apps/v1/namespaces/{NAMESPACE}/controllerrevisions");
    let there = server.list(&format!("{pods}?{OF_GATEWAYS}"))?;
    let Some(set) = set else {
        for pod in &there {
            end(server, pod)?;
        }
        for revision in server.list(&format!("{revisions}?{OF_GATEWAYS}"))? {
            server.delete(&format!("{revisions}/{}", text(&revision["metadata"]["name"])))?;
        }
        return Ok(());
    };
    let present = revision(server, &revisions, set)?;
    let is_rolled = set["spec"]["updateStrategy"]["type"] == "RollingUpdate";
    for node in nodes {
        let selector = set["spec"]["template"]["spec"]["nodeSelector"].as_object();
        let suits =
            selector.into_iter().flatten().all(|(key, value)| node["metadata"]["labels"][key] == *value);
        let name = text(&node["metadata"]["name"]);
        let pod = there.iter().find(|pod| text(&pod["spec"]["nodeName"]) == name);
        match pod {
            Some(pod) if !pod["metadata"]["deletionTimestamp"].is_null() => end(server, pod)?,
            Some(pod) if !suits || is_rolled && text(&pod["metadata"]["labels"][REVISION]) != present => {
                end(server, pod)?;
            }
            None if suits => begin(server, &pods, (name, &present), set)?,
            Some(_) | None => {}
        }
    }
    Ok(())
}

/// Returns the hash of the DaemonSet's present template, which becomes the newest revision.
fn revision(server: &Client, revisions: &str, set: &Value) -> anyhow::Result<String> {
    let mut hasher = DefaultHasher::new();
    set["spec"]["template"].to_string().hash(&mut hasher);
    let hash = format!("{:016x}", hasher.finish());
    let all = server.list(&format!("{revisions}?{OF_GATEWAYS}"))?;
    let uid = &set["metadata"]["uid"];
    let newest = all.iter().filter_map(|revision| revision["revision"].as_u64()).max().unwrap_or(0);
    let name = format!("submariner-gateway-{hash}");
    match all.iter().find(|revision| text(&revision["metadata"]["name"]) == name) {
        Some(known)
            if known["revision"].as_u64() == Some(newest)
                && known["metadata"]["ownerReferences"][0]["uid"] == *uid => {}
        Some(_) => {
            // A template that comes back, or of a DaemonSet that was made anew.
            let owners = json!([owner(uid)]);
            server.patch(
                &format!("{revisions}/{name}"),
                &json!({"revision": newest + 1, "metadata": {"ownerReferences": owners}}),
            )?;
        }
        None => {
            let labels = json!({"app": "submariner-gateway", REVISION: hash});
            let object = json!({"apiVersion": "apps/v1", "kind": "ControllerRevision", "revision": newest + 1, "data": {},
                "metadata": {"name": name, "labels": labels, "ownerReferences": [owner(uid)]}});
            server.post(revisions, &object)?;
        }
    }
    Ok(hash)
}

fn owner(uid: &Value) -> Value {
    json!({"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "submariner-gateway", "uid": uid})
}

fn begin(server: &Client, pods: &str, (node, revision): (&str, &str), set: &Value) -> anyhow::Result<()> {
    let template = &set["spec"]["template"];
    let mut labels = template["metadata"]["labels"].clone();
    labels[REVISION] = json!(revision);
    let name = format!("submariner-gateway-{node}");
    let image = &template["spec"]["containers"][0]["image"];
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": labels},
        "spec": {"nodeName": node, "serviceAccountName": "submariner-gateway", "automountServiceAccountToken": false,
            "containers": [{"name": "submariner-gateway", "image": image}]}});
    server.post(pods, &pod)?;
    let ready = json!({"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}});
    server.patch(&format!("{pods}/{name}/status"), &ready)?;
    Ok(())
}

/// Ends a pod, as its kubelet says so.
fn end(server: &Client, pod: &Value) -> anyhow::Result<()> {
    let name = text(&pod["metadata"]["name"]);
    server.delete(&format!("/api/v1/namespaces/{NAMESPACE}/pods/{name}?gracePeriodSeconds=0"))?;
    Ok(())
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}
