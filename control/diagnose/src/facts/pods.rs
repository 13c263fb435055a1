//! What is said of a pod.

use std::net::IpAddr;

use k8s_openapi::api::core::v1::Pod;

use crate::path::evidence::PodFacts;

/// Why a pod is not ready; `None` if it is.
pub(crate) fn not_ready(pod: &Pod) -> Option<String> {
    if pod.metadata.deletion_timestamp.is_some() {
        return Some("it is being deleted".to_owned());
    }
    let Some(status) = &pod.status else { return Some("it has no status".to_owned()) };
    let ready = status.conditions.iter().flatten().find(|condition| condition.type_ == "Ready");
    if ready.is_some_and(|condition| condition.status == "True") {
        return None;
    }
    let phase = status.phase.clone().unwrap_or_else(|| "Unknown".to_owned());
    let reason = status.container_statuses.iter().flatten().find_map(|container| {
        let state = container.state.as_ref()?;
        let waiting = state.waiting.as_ref().and_then(|waiting| waiting.reason.clone());
        waiting.or_else(|| state.terminated.as_ref()?.reason.clone())
    });
    let message = ready.and_then(|condition| condition.message.clone());
    Some(match reason.or(message) {
        Some(reason) => format!("it is {phase} ({reason})"),
        None => format!("it is {phase}"),
    })
}

pub(crate) fn is_host_network(pod: &Pod) -> bool {
    pod.spec.as_ref().and_then(|spec| spec.host_network).unwrap_or(false)
}

/// The pod at the connection's end, with everything about it.
pub(crate) fn pod_facts(pod: &Pod) -> PodFacts {
    let name = format!(
        "{}/{}",
        pod.metadata.namespace.as_deref().unwrap_or_default(),
        pod.metadata.name.as_deref().unwrap_or_default()
    );
    let status = pod.status.clone().unwrap_or_default();
    let all = status.pod_ips.into_iter().flatten().map(|one| one.ip).chain(status.pod_ip);
    let mut addresses: Vec<IpAddr> = Vec::new();
    for address in all.filter_map(|text| text.parse().ok()) {
        if !addresses.contains(&address) {
            addresses.push(address);
        }
    }
    PodFacts {
        name,
        missing: false,
        not_ready: not_ready(pod),
        address: addresses.first().copied(),
        addresses,
        outside: None,
        host_network: is_host_network(pod),
        known: true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_pod_that_is_not_ready_says_why() {
        let pod: Pod = serde_json::from_value(json!({"metadata": {}, "status": {"phase": "Running",
            "conditions": [{"type": "Ready", "status": "False", "message": "containers with unready status: [web]"}]}}))
        .unwrap();
        assert_eq!(not_ready(&pod).unwrap(), "it is Running (containers with unready status: [web])");
    }
}
