//! When a cloud is asked again: its services limit how often they are.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::time::Duration;

use tokio::time::Instant;
use trieste_cloud::Wanted;
use trieste_cloud::cluster::Cluster;
use trieste_control::api::CloudPrepareConfig;
use trieste_deploy::objects::names::GATEWAY_LABEL;

use crate::order::Asked;

/// Ours: after how long a cloud is asked of which nothing else has changed.
pub(super) const INTERVAL: Duration = Duration::from_secs(1800);
/// What the names of OpenShift's sets of machines for gateways have in them, but for Azure's, whose names have to be shorter.
const GATEWAY_SET: &str = "-submariner-gw-";
/// The most sets that a message names.
const MOST: usize = 8;

/// Returns `true` if the cloud is to be asked: if it was not, if something is different from then, or if that was long ago.
pub(super) fn is_due(asked: Option<Asked>, digest: u64, now: Instant) -> bool {
    asked.is_none_or(|asked| asked.digest != digest || now.saturating_duration_since(asked.at) >= INTERVAL)
}

/// Returns a digest of all that an answer of the cloud depends on, for this process alone: what is wanted, the version of the Secret,
/// the nodes, and which of them are gateways.
pub(super) fn digest(config: &CloudPrepareConfig, wanted: &Wanted, secret: &str, cluster: &Cluster) -> u64 {
    let mut hasher = DefaultHasher::new();
    (format!("{config:?} {wanted:?}"), secret).hash(&mut hasher);
    for node in &cluster.nodes {
        (&node.name, &node.provider_id, &node.zone, node.is_gateway).hash(&mut hasher);
    }
    gateway_sets(cluster).for_each(|(name, ..)| name.hash(&mut hasher));
    hasher.finish()
}

/// Returns the sets of machines for gateways, each with how many machines it has to have, and how many of them are nodes.
fn gateway_sets(cluster: &Cluster) -> impl Iterator<Item = (&str, u64, u64)> {
    cluster.machine_sets.iter().flatten().filter_map(|set| {
        let label = &set["spec"]["template"]["spec"]["metadata"]["labels"][GATEWAY_LABEL];
        let is_for_gateways = |name: &&str| label == "true" || name.contains(GATEWAY_SET);
        let name = set["metadata"]["name"].as_str().filter(is_for_gateways)?;
        let wanted = set["spec"]["replicas"].as_u64().unwrap_or(1);
        Some((name, wanted, set["status"]["readyReplicas"].as_u64().unwrap_or(0)))
    })
}

/// Returns which machines for gateways are not there yet, if some are not.
pub(super) fn pending_machines(cluster: &Cluster) -> Option<String> {
    let late = gateway_sets(cluster).filter(|(_, wanted, ready)| ready < wanted).take(MOST);
    let late: Vec<String> =
        late.map(|(name, wanted, ready)| format!("{name} ({ready} of {wanted})")).collect();
    (!late.is_empty()).then(|| {
        format!(
            "machines for gateways are not nodes yet, of the MachineSets {}: if it stays so, kubectl -n openshift-machine-api \
             get machines says why",
            late.join(", ")
        )
    })
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};
    use trieste_cloud::Ports;

    use super::*;

    fn node(name: &str, is_gateway: bool) -> Value {
        json!({"metadata": {"name": name, "labels": {"submariner.io/gateway": is_gateway.to_string()}}})
    }

    fn set(name: &str, ready: u64) -> Value {
        json!({"metadata": {"name": name}, "spec": {"replicas": 1}, "status": {"readyReplicas": ready}})
    }

    /// Returns a set as it is made in Azure: its nodes' labels have what it is for.
    fn labelled(name: &str, is_gateway: bool, ready: u64) -> Value {
        let mut set = set(name, ready);
        let labels = json!({"submariner.io/gateway": is_gateway.to_string()});
        set["spec"]["template"] = json!({"spec": {"metadata": {"labels": labels}}});
        set
    }

    #[test]
    fn a_cloud_is_asked_when_something_has_changed_and_seldom_otherwise() {
        let at = Instant::now();
        let asked = Some(Asked { digest: 1, at });
        let second = Duration::from_secs(1);
        for (asked, digest, after, is_asked) in [
            (None, 1, Duration::ZERO, true),
            (asked, 1, Duration::ZERO, false),
            (asked, 1, INTERVAL - second, false),
            (asked, 1, INTERVAL, true),
            (asked, 2, Duration::ZERO, true),
        ] {
            assert_eq!(is_due(asked, digest, at + after), is_asked, "{asked:?} {digest} {after:?}");
        }
        assert!(!is_due(asked, 1, at - second), "a clock that is behind");
    }

    #[test]
    fn what_the_answer_depends_on_is_in_the_digest_and_nothing_else() {
        let config = CloudPrepareConfig { region: Some("r".to_owned()), ..CloudPrepareConfig::default() };
        let wanted = Wanted::default();
        let cluster = |nodes: Vec<Value>, sets: Option<Vec<Value>>| Cluster::of(nodes, sets);
        let plain = cluster(vec![node("a", true), node("b", false)], Some(vec![set("i-submariner-gw-z", 0)]));
        let first = digest(&config, &wanted, "1", &plain);
        let mut noted = node("b", false);
        noted["status"] = json!({"conditions": []});
        let ready =
            cluster(vec![noted, node("a", true)], Some(vec![set("i-submariner-gw-z", 1), set("w", 1)]));
        assert_eq!(digest(&config, &wanted, "1", &ready), first);
        let other_ports = Wanted { ports: Ports { natt: 1, ..Ports::default() }, ..Wanted::default() };
        let moved = CloudPrepareConfig { region: None, ..config.clone() };
        let others = [
            digest(&moved, &wanted, "1", &plain),
            digest(&config, &other_ports, "1", &plain),
            digest(&config, &wanted, "2", &plain),
            digest(&config, &wanted, "1", &cluster(vec![node("a", true)], plain.machine_sets.clone())),
            digest(
                &config,
                &wanted,
                "1",
                &cluster(vec![node("a", true), node("b", true)], plain.machine_sets.clone()),
            ),
            digest(&config, &wanted, "1", &cluster(vec![node("a", true), node("b", false)], None)),
            digest(
                &config,
                &wanted,
                "1",
                &cluster(
                    vec![node("a", true), node("b", false)],
                    Some(vec![set("i-submariner-gw-z", 0), labelled("subgw-i-1", true, 0)]),
                ),
            ),
        ];
        assert!(others.iter().all(|other| *other != first), "{others:?}");
    }

    #[test]
    fn machines_for_gateways_are_waited_for() {
        let of = |sets: Option<Vec<Value>>| pending_machines(&Cluster::of(Vec::new(), sets));
        assert_eq!(of(None), None);
        assert_eq!(of(Some(vec![set("i-worker-z", 0), set("i-submariner-gw-z", 1)])), None);
        let late = of(Some(vec![set("i-submariner-gw-y", 0)])).unwrap();
        assert!(late.contains("i-submariner-gw-y (0 of 1)"), "{late}");
        let azure = of(Some(vec![labelled("subgw-i-1", true, 0), labelled("subgw-i-2", false, 0)])).unwrap();
        assert!(azure.contains("subgw-i-1 (0 of 1)") && !azure.contains("subgw-i-2"), "{azure}");
    }
}
