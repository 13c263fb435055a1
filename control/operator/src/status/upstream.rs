//! The status of objects of upstream's kinds, in upstream's form, with our conditions beside it.

use jiff::Timestamp;
use serde_json::{Map, Value, json};
use trieste_control::api::{Condition, Gateway, Object};
use trieste_deploy::objects::names::{GATEWAY, ROUTE_AGENT};

use super::{View, conditions, facts, verdicts};
use crate::order::Part;
use crate::source::Content;

/// Returns the status: what was there, with what is known now in its place. Times of conditions that say what they said before stay.
pub(crate) fn of_upstream(
    view: &View<'_>,
    before: &Map<String, Value>,
    now: Timestamp,
) -> Map<String, Value> {
    let mut status = before.clone();
    let of_part = Part::ALL.iter().filter_map(|part| facts(view, *part));
    status.extend(of_part.flat_map(|facts| facts.status.clone()));
    if matches!(view.source.content, Content::Submariner(_)) {
        for (field, name) in [("gatewayDaemonSetStatus", GATEWAY), ("routeAgentDaemonSetStatus", ROUTE_AGENT)]
        {
            let set = view.daemon_sets.iter().find(|set| set.metadata.name == name);
            status.insert(
                field.to_owned(),
                set.map_or_else(|| json!({"mismatchedContainerImages": false}), |set| of_set(set)),
            );
        }
        if let Some(gateways) = &view.gateways {
            status.insert("gateways".to_owned(), of_gateways(gateways, before.get("gateways")));
        }
    }
    let known: Vec<Condition> = before
        .get("conditions")
        .cloned()
        .and_then(|known| serde_json::from_value(known).ok())
        .unwrap_or_default();
    let conditions = conditions(view, verdicts(view), &known, now);
    status.insert("conditions".to_owned(), serde_json::to_value(conditions).unwrap_or_default());
    status
}

/// Returns a DaemonSet's status as upstream's operator keeps it.
fn of_set(set: &Object) -> Value {
    let status = set.body.get("status").cloned().unwrap_or_else(|| json!({}));
    let number = |field: &str| status[field].as_u64().unwrap_or(0);
    let is_mismatched = number("updatedNumberScheduled") < number("desiredNumberScheduled");
    json!({
        "lastResourceVersion": set.metadata.resource_version,
        "mismatchedContainerImages": is_mismatched,
        "status": status,
    })
}

/// Returns what gateways publish of themselves. Where nothing but their measurements has changed the former copy stays: those come every
/// few seconds, and stand in the Gateway objects.
fn of_gateways(gateways: &[Gateway], before: Option<&Value>) -> Value {
    let now: Value =
        gateways.iter().filter_map(|gateway| serde_json::to_value(&gateway.status).ok()).collect();
    match before {
        Some(before) if without_latency(before) == without_latency(&now) => before.clone(),
        _ => now,
    }
}

fn without_latency(gateways: &Value) -> Value {
    let mut all = gateways.clone();
    let connections =
        all.as_array_mut().into_iter().flatten().filter_map(|gateway| gateway["connections"].as_array_mut());
    for connection in connections.flatten().filter_map(Value::as_object_mut) {
        connection.remove("latencyRTT");
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_of_gateways_is_renewed_by_more_than_a_measurement() {
        let gateway = |latency: &str, status: &str| -> Gateway {
            serde_json::from_value(json!({"metadata": {"name": "n1"}, "status": {"version": "1", "haStatus": "active",
                "statusFailure": "", "localEndpoint": endpoint(), "connections": [{"status": status, "statusMessage": "",
                    "endpoint": endpoint(), "latencyRTT": {"last": latency, "min": "1ms", "average": "1ms", "max": "2ms", "stdDev": "0s"}}]}}))
            .unwrap()
        };
        let first = of_gateways(&[gateway("1ms", "connected")], None);
        assert_eq!(first[0]["connections"][0]["latencyRTT"]["last"], "1ms");
        assert_eq!(of_gateways(&[gateway("2ms", "connected")], Some(&first)), first);
        let other = of_gateways(&[gateway("2ms", "error")], Some(&first));
        assert_eq!(other[0]["connections"][0]["latencyRTT"]["last"], "2ms");
    }

    fn endpoint() -> Value {
        json!({"cluster_id": "east", "cable_name": "x", "hostname": "n1", "subnets": [], "private_ip": "10.0.0.1",
            "public_ip": "", "nat_enabled": false, "backend": "wireguard"})
    }
}
