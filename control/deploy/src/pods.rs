//! What runs in a cluster, as far as somebody who waits for it wants to know.

use serde_json::Value;

use crate::error::DeployError;
use crate::objects::names::{MANAGED_BY_LABEL, TRIESTE};
use crate::server::Server;

/// Most pods whose state is reported.
pub(crate) const MOST: usize = 12;

/// Returns nodes that are not ready and on which a pod of an application is to run: waiting for them is in vain.
pub(crate) async fn not_ready_with(
    server: &Server,
    namespace: &str,
    app: &str,
) -> Result<Vec<String>, DeployError> {
    let away = away(server).await?;
    if away.is_empty() {
        return Ok(away);
    }
    let pods = server.list("v1", "Pod", Some(namespace), &format!("labelSelector=app%3D{app}")).await?;
    let has_pod = |node: &String| pods.iter().any(|pod| pod["spec"]["nodeName"] == node.as_str());
    Ok(away.into_iter().filter(has_pod).collect())
}

/// Returns the nodes that are not ready.
pub(crate) async fn away(server: &Server) -> Result<Vec<String>, DeployError> {
    let nodes = server.list("v1", "Node", None, "").await?;
    let name = |node: &Value| node["metadata"]["name"].as_str().map(str::to_owned);
    Ok(nodes.iter().filter(|node| !is_ready(node)).filter_map(name).collect())
}

/// Returns `true` if a node or a pod is ready.
pub(crate) fn is_ready(object: &Value) -> bool {
    let mut conditions = object["status"]["conditions"].as_array().into_iter().flatten();
    conditions.any(|condition| condition["type"] == "Ready" && condition["status"] == "True")
}

/// Returns `true` if we have specified the pods of a set, whoever has made it.
pub(crate) fn are_ours(set: &Value) -> bool {
    set["spec"]["template"]["metadata"]["labels"][MANAGED_BY_LABEL] == TRIESTE
}

/// Returns a number in the status of a set of pods; 0 if it is not there.
pub(crate) fn status(set: &Value, field: &str) -> u64 {
    set["status"][field].as_u64().unwrap_or(0)
}

/// Returns a variable of the first container of a set's pods, if its value stands there.
pub(crate) fn variable<'a>(set: &'a Value, name: &str) -> Option<&'a str> {
    let all = set["spec"]["template"]["spec"]["containers"][0]["env"].as_array();
    let mut named = all.into_iter().flatten().filter(|variable| variable["name"] == name);
    named.find_map(|variable| variable["value"].as_str())
}

pub(crate) fn counts(set: &Value) -> String {
    format!("{} of {}", status(set, "numberReady"), status(set, "desiredNumberScheduled"))
}

/// Returns the state of the pods of an application that are not ready, one line each.
pub(crate) async fn pods(local: &Server, namespace: &str, app: &str) -> Result<Vec<String>, DeployError> {
    let found = local.list("v1", "Pod", Some(namespace), &format!("labelSelector=app%3D{app}")).await?;
    Ok(found.iter().filter_map(state).take(MOST).collect())
}

/// Returns what keeps a pod from being ready; `None` if it is.
fn state(pod: &Value) -> Option<String> {
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let name = pod["metadata"]["name"].as_str().unwrap_or_default();
    let node = pod["spec"]["nodeName"].as_str().unwrap_or("no node");
    let status = &pod["status"];
    let containers: Vec<Value> = list(&status["initContainerStatuses"])
        .into_iter()
        .chain(list(&status["containerStatuses"]))
        .collect();
    let conditions = list(&status["conditions"]);
    if is_ready(pod) {
        return None;
    }
    let reason = containers.iter().find_map(waits_for).or_else(|| {
        let unmet = conditions.iter().filter(|condition| condition["status"] != "True");
        unmet
            .filter_map(|condition| condition["message"].as_str())
            .find(|text| !text.is_empty())
            .map(str::to_owned)
    });
    let phase = status["phase"].as_str().unwrap_or("Unknown");
    let reason = reason.map_or_else(String::new, |reason| {
        let short: String = reason.chars().map(|c| if c.is_control() { ' ' } else { c }).take(200).collect();
        format!(": {short}")
    });
    Some(format!("pod {name} on {node}: {phase}{reason}"))
}

fn waits_for(container: &Value) -> Option<String> {
    let waiting = &container["state"]["waiting"];
    let ended = &container["lastState"]["terminated"];
    let reason = waiting["reason"].as_str().filter(|reason| *reason != "PodInitializing")?;
    let message = waiting["message"].as_str().or_else(|| ended["message"].as_str()).unwrap_or_default();
    Some(format!("{reason} {message}").trim_end().to_owned())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_pod_says_why_it_is_not_ready() {
        let pod =
            |status: Value| json!({"metadata": {"name": "p"}, "spec": {"nodeName": "w1"}, "status": status});
        let pulling = json!({"phase": "Pending", "containerStatuses": [
            {"state": {"waiting": {"reason": "ImagePullBackOff", "message": "no such image"}}}]});
        assert_eq!(state(&pod(pulling)).unwrap(), "pod p on w1: Pending: ImagePullBackOff no such image");
        let unplaced = json!({"phase": "Pending", "conditions": [
            {"type": "PodScheduled", "status": "False", "message": "0/2 nodes are available"}]});
        assert_eq!(state(&pod(unplaced)).unwrap(), "pod p on w1: Pending: 0/2 nodes are available");
        let ready = json!({"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]});
        assert_eq!(state(&pod(ready)), None);
    }
}
