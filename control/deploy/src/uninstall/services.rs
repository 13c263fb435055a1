//! Leaving service discovery: the cluster's DNS forwards no more, and what is exported is withdrawn by the agent itself.
//!
//! ```text
//!   DNS forwards no more ──▶ X-uninstall made of X ──▶ X deleted ──▶ X-uninstall ends ──▶ X-uninstall deleted
//! ```

use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::{Instant, sleep};
use trieste_control::steps::{Outcome, Steps};

use crate::apply::remove;
use crate::cluster_dns;
use crate::error::DeployError;
use crate::objects::MemberOptions;
use crate::objects::names::{
    DISCOVERY_AGENT, DISCOVERY_DNS, MANAGED_BY_LABEL, PART_OF_LABEL, SUBMARINER, TRIESTE, VERSION_LABEL,
};
use crate::place::Place;
use crate::server::{POLL, Server};

const RBAC: &str = "rbac.authorization.k8s.io/v1";

/// How long the agent may take to withdraw everything: it gives up after 90 s by itself.
const WITHDRAWN: Duration = Duration::from_secs(150);

/// The kinds of our objects of service discovery, in the order in which they go.
const KINDS: [(&str, &str); 8] = [
    ("apps/v1", "Deployment"),
    ("policy/v1", "PodDisruptionBudget"),
    ("v1", "Service"),
    (RBAC, "RoleBinding"),
    (RBAC, "Role"),
    (RBAC, "ClusterRoleBinding"),
    (RBAC, "ClusterRole"),
    ("v1", "ServiceAccount"),
];

/// Withdraws everything that the cluster exports, and its names from the cluster's DNS. What cannot be withdrawn is told: a
/// broker that is away keeps nobody.
///
/// # Errors
/// [`DeployError`] if the cluster's API server refuses; the next run goes on from there.
pub(crate) async fn leave(
    server: &Server,
    namespace: &str,
    patience: Duration,
    steps: &mut dyn Steps,
) -> Result<(), DeployError> {
    let of = |kind: &str, name: &str| {
        let version = if kind == "Pod" { "v1" } else { "apps/v1" };
        Place::namespaced(version, kind, namespace, name)
    };
    let agent = of("Deployment", DISCOVERY_AGENT);
    let cleaner = of("Pod", &format!("{DISCOVERY_AGENT}-uninstall"));
    let is_ours = |object: &Value| object["metadata"]["labels"][MANAGED_BY_LABEL] == TRIESTE;
    let live = server.find(&agent).await?.filter(is_ours);
    let mut made = server.find(&cleaner).await?.filter(is_ours);
    let dns = server.find(&of("Deployment", DISCOVERY_DNS)).await?.filter(is_ours);
    if live.is_none() && made.is_none() && dns.is_none() {
        return Ok(());
    }
    steps.begin("Leaving service discovery");
    forward_no_more(server, namespace, steps).await?;
    if let Some(live) = &live {
        let failed = made.as_ref().is_some_and(|pod| pod["status"]["phase"] == "Failed");
        if failed {
            remove(server, &cleaner).await?;
            made = None;
        }
        if made.is_none() {
            server.create(&cleaner_of(live, &cleaner)).await?;
        }
        remove(server, &agent).await?;
    }
    if live.is_some() || made.is_some() {
        match withdrawn(server, &cleaner, patience.clamp(POLL, WITHDRAWN)).await? {
            None => remove(server, &cleaner).await.map(drop)?,
            Some(reason) => {
                let text = format!(
                    "Exported services were not withdrawn: {reason}; on the broker's cluster trieste remove-member \
                     removes what stays there"
                );
                steps.remark(Outcome::Warning, &text);
                remove(server, &cleaner).await?;
            }
        }
    }
    steps.end(Outcome::Success);
    Ok(())
}

/// Removes our objects of service discovery, for a cluster that goes on without it.
///
/// # Errors
/// [`DeployError`] if the server refuses.
pub(crate) async fn remove_objects(server: &Server, namespace: &str) -> Result<(), DeployError> {
    for (version, kind) in KINDS {
        for name in [DISCOVERY_AGENT, DISCOVERY_DNS] {
            let place = if kind.starts_with("Cluster") {
                Place::cluster_wide(version, kind, name)
            } else {
                Place::namespaced(version, kind, namespace, name)
            };
            let found = server.find(&place).await?.unwrap_or_default();
            if found["metadata"]["labels"][MANAGED_BY_LABEL] == TRIESTE {
                remove(server, &place).await?;
            }
        }
    }
    Ok(())
}

/// Takes the set's names out of the cluster's DNS. One that cannot be changed keeps nobody here.
async fn forward_no_more(server: &Server, namespace: &str, steps: &mut dyn Steps) -> Result<(), DeployError> {
    let place = Place::namespaced("submariner.io/v1alpha1", "Submariner", namespace, SUBMARINER);
    let settings = server.find(&place).await?.unwrap_or_default();
    let domains = settings["spec"]["customDomains"].as_array().into_iter().flatten();
    let domains = domains.filter_map(|domain| domain.as_str().map(str::to_owned)).collect();
    let zones = MemberOptions::zones_with(domains);
    let custom = &settings["spec"]["coreDNSCustomConfig"];
    let custom = custom["namespace"].as_str().zip(custom["configMapName"].as_str());
    match cluster_dns::withdraw(server, &zones, custom).await {
        Ok(changed) => {
            for place in changed {
                steps.remark(
                    Outcome::Success,
                    &format!("{place} says no more where the set's names are answered"),
                );
            }
        }
        Err(error) => {
            let text = format!("The set's names stay in the cluster's DNS: {error}; take them out there");
            steps.remark(Outcome::Warning, &text);
        }
    }
    Ok(())
}

/// Returns the pod that withdraws what an agent has exported: the agent's own, told to clean up and end.
fn cleaner_of(live: &Value, place: &Place) -> Value {
    let mut spec = live["spec"]["template"]["spec"].clone();
    let container = &mut spec["containers"][0];
    if let Some(container) = container.as_object_mut() {
        container.remove("livenessProbe");
        container.remove("readinessProbe");
        container.remove("ports");
    }
    let said = container["env"].as_array().cloned().unwrap_or_default();
    let is_kept = |variable: &Value| variable["name"] != "TRIESTE_LEADER_ELECTION";
    let own = [("SUBMARINER_UNINSTALL", "true"), ("TRIESTE_LEADER_ELECTION", "false")];
    let own = own.map(|(name, value)| json!({"name": name, "value": value}));
    container["env"] = said.into_iter().filter(is_kept).chain(own).collect();
    spec["restartPolicy"] = json!("OnFailure");
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "name": place.name, "namespace": place.namespace,
            "labels": {
                "app": place.name, PART_OF_LABEL: TRIESTE, MANAGED_BY_LABEL: TRIESTE,
                VERSION_LABEL: env!("CARGO_PKG_VERSION"),
            },
        },
        "spec": spec,
    })
}

/// Waits until the pod has ended; returns why it has not done its work, if it has not.
async fn withdrawn(server: &Server, pod: &Place, patience: Duration) -> Result<Option<String>, DeployError> {
    let until = Instant::now() + patience;
    loop {
        let Some(found) = server.find(pod).await? else { return Ok(Some(format!("{pod} is gone"))) };
        let status = &found["status"];
        if status["phase"] == "Succeeded" {
            return Ok(None);
        }
        let state = &status["containerStatuses"][0];
        let ended = [&state["lastState"]["terminated"], &state["state"]["terminated"]];
        let said = ended.iter().find_map(|ended| ended["message"].as_str()).unwrap_or_default();
        if Instant::now() >= until || status["phase"] == "Failed" {
            let last: String =
                said.lines().last().unwrap_or("it has said nothing").chars().take(300).collect();
            return Ok(Some(format!("{pod} did not end within {} s: {last}", patience.as_secs())));
        }
        sleep(POLL).await;
    }
}

#[cfg(test)]
mod tests {
    use trieste_control::steps::Record;

    use super::*;
    use crate::objects;
    use crate::objects::names::GATEWAY;
    use crate::server::fake::Fake;

    fn member() -> MemberOptions {
        let mut options = objects::example();
        options.service_discovery = true;
        options
    }

    fn corefile() -> Place {
        Place::namespaced("v1", "ConfigMap", "kube-system", "coredns")
    }

    #[test]
    fn the_agents_own_pod_cleans_up_once_and_without_an_election() {
        let manifests = objects::member(&member());
        let agent = manifests
            .iter()
            .find(|manifest| manifest.kind() == "Deployment" && manifest.name() == DISCOVERY_AGENT);
        let live = agent.unwrap().as_value();
        let place = Place::namespaced("v1", "Pod", "ns", "x-uninstall");
        let pod = cleaner_of(live, &place);
        let template = &live["spec"]["template"]["spec"];
        let (container, before) = (&pod["spec"]["containers"][0], &template["containers"][0]);
        let env = |container: &Value, name: &str| {
            let all = container["env"].as_array().unwrap().clone();
            all.into_iter()
                .filter(|variable| variable["name"] == name)
                .map(|variable| variable["value"].clone())
                .collect::<Vec<_>>()
        };
        assert_eq!(env(container, "SUBMARINER_UNINSTALL"), ["true"]);
        assert_eq!(env(container, "TRIESTE_LEADER_ELECTION"), ["false"]);
        assert_eq!(env(container, "BROKER_K8S_SECRET"), env(before, "BROKER_K8S_SECRET"));
        assert!(container["livenessProbe"].is_null() && container["readinessProbe"].is_null());
        assert_eq!(pod["spec"]["restartPolicy"], "OnFailure");
        for kept in ["volumes", "securityContext", "serviceAccountName"] {
            assert_eq!(pod["spec"][kept], template[kept]);
        }
        assert_ne!(pod["metadata"]["labels"]["app"], live["spec"]["selector"]["matchLabels"]["app"]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_broker_that_is_away_is_told_and_nothing_of_ours_stays_in_the_dns() {
        let fake = Fake::default();
        for manifest in objects::member(&member()) {
            fake.put(manifest.into_value());
        }
        let server = fake.server();
        fake.put(json!({"apiVersion": "v1", "kind": "ConfigMap", "data": {"Corefile": ".:53 {\n}\n"},
            "metadata": {"name": "coredns", "namespace": "kube-system"}}));
        let zones = member().zones();
        cluster_dns::forward(&server, &zones, [10, 0, 0, 1].into(), None).await.unwrap();
        let mut steps = Record::default();
        leave(&server, "submariner-operator", Duration::from_secs(1), &mut steps).await.unwrap();
        let text = format!("{steps:?}");
        assert!(text.contains("were not withdrawn") && text.contains("remove-member"), "{text}");
        assert_eq!(server.find(&corefile()).await.unwrap().unwrap()["data"]["Corefile"], ".:53 {\n}\n");
        let place = |kind: &str, name: &str| Place::namespaced("apps/v1", kind, "submariner-operator", name);
        assert!(!fake.has(&place("Deployment", DISCOVERY_AGENT)));

        remove_objects(&server, "submariner-operator").await.unwrap();
        assert!(!fake.has(&place("Deployment", DISCOVERY_DNS)));
        assert!(!fake.has(&Place::cluster_wide(RBAC, "ClusterRole", DISCOVERY_DNS)));
        assert!(fake.has(&place("DaemonSet", GATEWAY)));
        let mut again = Record::default();
        leave(&server, "submariner-operator", Duration::from_secs(1), &mut again).await.unwrap();
        assert_eq!(format!("{again:?}"), format!("{:?}", Record::default()));
    }
}
