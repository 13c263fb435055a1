//! Leaving service discovery: the cluster's DNS forwards no more, and what is exported is withdrawn by the agent itself.
//!
//! ```text
//!   DNS forwards no more ──▶ Job made of the agent, suspended ──▶ agent deleted ──▶ Job set free ──▶ done ──▶ Job deleted
//! ```

use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::{Instant, sleep};
use trieste_control::steps::{Outcome, Steps};

use crate::apply::remove;
use crate::cluster_dns;
use crate::error::DeployError;
use crate::object_ref::ObjectRef;
use crate::objects::names::{
    CLUSTERSET_IP, DISCOVERY_AGENT, DISCOVERY_DNS, MANAGED_BY_LABEL, PART_OF_LABEL, SERVICE_DISCOVERY,
    SUBMARINER, TRIESTE, VERSION_LABEL,
};
use crate::objects::{service_export, service_import, zones};
use crate::pods::pods;
use crate::server::{MULTI_CLUSTER_VERSIONS, POLL, Server};

const RBAC: &str = "rbac.authorization.k8s.io/v1";

/// How long the agent may take to withdraw everything: it gives up after 90 s by itself.
const WITHDRAWN: Duration = Duration::from_secs(150);

/// How long the agent's pod may take to end.
const ENDED: Duration = Duration::from_secs(30);

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
    let deployment = |name: &str| ObjectRef::namespaced("apps/v1", "Deployment", namespace, name);
    let agent = deployment(DISCOVERY_AGENT);
    let cleaner =
        ObjectRef::namespaced("batch/v1", "Job", namespace, &format!("{DISCOVERY_AGENT}-uninstall"));
    let is_ours = |object: &Value| object["metadata"]["labels"][MANAGED_BY_LABEL] == TRIESTE;
    let live = server.find(&agent).await?.filter(is_ours);
    let made = server.find(&cleaner).await?.filter(is_ours);
    let dns = server.find(&deployment(DISCOVERY_DNS)).await?.filter(is_ours);
    if live.is_none() && made.is_none() && dns.is_none() {
        return Ok(());
    }
    steps.begin("Leaving service discovery");
    forward_no_more(server, namespace, steps).await?;
    if let Some(source) = live.as_ref().or(made.as_ref()) {
        // One that has ended does nothing any more, well or not.
        let running = made.as_ref().filter(|made| !has_ended(made));
        if running.is_none() {
            if made.is_some() {
                remove(server, &cleaner).await?;
            }
            server.create(&cleaner_of(source, &cleaner)).await?;
        }
        if live.is_some() {
            remove(server, &agent).await?;
        }
        gone(server, namespace, patience).await?;
        if running.is_none_or(|job| job["spec"]["suspend"] == true) {
            server.merge(&cleaner, &json!({"spec": {"suspend": false}})).await?;
        }
        if let Some(reason) = withdrawn(server, &cleaner, patience.clamp(POLL, WITHDRAWN)).await? {
            let text = format!(
                "Exported services were not withdrawn: {reason}; on the broker's cluster trieste remove-member removes what \
                 stays there"
            );
            steps.remark(Outcome::Warning, &text);
        }
        remove(server, &cleaner).await?;
    }
    steps.end(Outcome::Success);
    Ok(())
}

/// Waits until no pod of the agent runs, which would export again; one on a node that is away is not waited for longer than
/// that.
async fn gone(server: &Server, namespace: &str, patience: Duration) -> Result<(), DeployError> {
    let until = Instant::now() + patience.min(ENDED);
    let chosen = format!("labelSelector=app%3D{DISCOVERY_AGENT}");
    while !server.list("v1", "Pod", Some(namespace), &chosen).await?.is_empty() && Instant::now() < until {
        sleep(POLL).await;
    }
    Ok(())
}

/// Returns `true` if a Job will do nothing any more.
fn has_ended(job: &Value) -> bool {
    let conditions = job["status"]["conditions"].as_array().into_iter().flatten();
    conditions
        .filter(|condition| condition["status"] == "True")
        .any(|condition| matches!(condition["type"].as_str(), Some("Complete" | "Failed")))
}

/// Removes our objects of service discovery, for a cluster that goes on without it.
///
/// # Errors
/// [`DeployError`] if the server refuses.
pub(crate) async fn remove_objects(server: &Server, namespace: &str) -> Result<(), DeployError> {
    for (version, kind) in KINDS {
        for name in [DISCOVERY_AGENT, DISCOVERY_DNS, CLUSTERSET_IP] {
            let place = if kind.starts_with("Cluster") {
                ObjectRef::cluster_wide(version, kind, name)
            } else {
                ObjectRef::namespaced(version, kind, namespace, name)
            };
            let found = server.find(&place).await?.unwrap_or_default();
            if found["metadata"]["labels"][MANAGED_BY_LABEL] == TRIESTE {
                remove(server, &place).await?;
            }
        }
    }
    Ok(())
}

/// Most objects that are named.
const MOST: usize = 8;

/// Returns objects that would go with a definition that is not ours alone: what users have exported.
///
/// # Errors
/// [`DeployError`] if the server does not answer.
pub(crate) async fn left_of(server: &Server, definition: &ObjectRef) -> Result<Vec<String>, DeployError> {
    for ours in [service_export(), service_import()] {
        if ours.name() == definition.name {
            let kind = ours.as_value()["spec"]["names"]["kind"].as_str().unwrap_or_default();
            let objects = server.list_served(&MULTI_CLUSTER_VERSIONS, kind, None).await?;
            return Ok(objects
                .iter()
                .filter_map(ObjectRef::of)
                .take(MOST)
                .map(|place| place.to_string())
                .collect());
        }
    }
    Ok(Vec::new())
}

/// Takes the set's names out of the cluster's DNS. One that cannot be changed keeps nobody here.
async fn forward_no_more(server: &Server, namespace: &str, steps: &mut dyn Steps) -> Result<(), DeployError> {
    let place = |kind, name| ObjectRef::namespaced("submariner.io/v1alpha1", kind, namespace, name);
    let settings = match server.find(&place("Submariner", SUBMARINER)).await? {
        Some(member) => member,
        // It is in a cluster that is no member otherwise.
        None => server.find(&place("ServiceDiscovery", SERVICE_DISCOVERY)).await?.unwrap_or_default(),
    };
    let domains = settings["spec"]["customDomains"].as_array().into_iter().flatten();
    let zones = zones(domains.filter_map(Value::as_str));
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

/// Returns the Job that withdraws what an agent has exported, and does not begin yet: a pod like the agent's own, told to clean
/// up and end. It is made before the agent goes, since it is made of it: a run that is interrupted anywhere leaves one of the two.
fn cleaner_of(source: &Value, place: &ObjectRef) -> Value {
    let mut spec = source["spec"]["template"]["spec"].clone();
    let container = &mut spec["containers"][0];
    if let Some(container) = container.as_object_mut() {
        for left_out in ["livenessProbe", "readinessProbe", "ports"] {
            container.remove(left_out);
        }
    }
    let given = container["env"].as_array().cloned().unwrap_or_default();
    let own = [("SUBMARINER_UNINSTALL", "true"), ("TRIESTE_LEADER_ELECTION", "false")];
    let is_kept = |variable: &Value| own.iter().all(|(name, _)| variable["name"] != *name);
    let own = own.map(|(name, value)| json!({"name": name, "value": value}));
    container["env"] = given.into_iter().filter(is_kept).chain(own).collect();
    spec["restartPolicy"] = json!("Never");
    let labels = json!({
        "app": place.name, PART_OF_LABEL: TRIESTE, MANAGED_BY_LABEL: TRIESTE,
        VERSION_LABEL: env!("CARGO_PKG_VERSION"),
    });
    json!({
        "apiVersion": "batch/v1", "kind": "Job",
        "metadata": {"name": place.name, "namespace": place.namespace, "labels": labels},
        "spec": {
            "suspend": true, "backoffLimit": 2,
            "template": {"metadata": {"labels": labels}, "spec": spec},
        },
    })
}

/// Waits until the Job has ended; returns why it has not done its work, if it has not.
async fn withdrawn(
    server: &Server,
    job: &ObjectRef,
    patience: Duration,
) -> Result<Option<String>, DeployError> {
    let until = Instant::now() + patience;
    loop {
        let Some(found) = server.find(job).await? else { return Ok(Some(format!("{job} is gone"))) };
        if found["status"]["succeeded"].as_u64().unwrap_or(0) > 0 {
            return Ok(None);
        }
        if Instant::now() >= until || has_ended(&found) {
            let namespace = job.namespace.as_deref().unwrap_or_default();
            let message = last_words(server, namespace, &job.name).await?;
            return Ok(Some(format!("{job} did not end well within {} s: {message}", patience.as_secs())));
        }
        sleep(POLL).await;
    }
}

/// Returns the last line that a pod of an application has said before it ended, or what keeps one from running.
async fn last_words(server: &Server, namespace: &str, app: &str) -> Result<String, DeployError> {
    let found = server.list("v1", "Pod", Some(namespace), &format!("labelSelector=app%3D{app}")).await?;
    let message = found.iter().find_map(|pod| {
        let text = pod["status"]["containerStatuses"][0]["state"]["terminated"]["message"].as_str()?;
        Some(text.trim_end().lines().last()?.chars().take(300).collect())
    });
    match message {
        Some(message) => Ok(message),
        None => {
            Ok(pods(server, namespace, app).await?.into_iter().next().unwrap_or_else(|| "no pod".to_owned()))
        }
    }
}

#[cfg(test)]
mod tests {
    use trieste_control::steps::Record;

    use super::*;
    use crate::objects;
    use crate::objects::MemberOptions;
    use crate::objects::names::GATEWAY;
    use crate::server::fake::Fake;

    fn member() -> MemberOptions {
        let mut options = objects::example();
        options.service_discovery = true;
        options
    }

    fn corefile() -> ObjectRef {
        ObjectRef::namespaced("v1", "ConfigMap", "kube-system", "coredns")
    }

    #[test]
    fn the_agents_own_pod_cleans_up_once_and_without_an_election() {
        let manifests = objects::member(&member());
        let is_agent = |manifest: &&objects::Manifest| {
            manifest.kind() == "Deployment" && manifest.name() == DISCOVERY_AGENT
        };
        let live = manifests.iter().find(is_agent).unwrap().as_value();
        let place = ObjectRef::namespaced("batch/v1", "Job", "ns", "x-uninstall");
        let job = cleaner_of(live, &place);
        let (pod, template) = (&job["spec"]["template"]["spec"], &live["spec"]["template"]["spec"]);
        let (container, before) = (&pod["containers"][0], &template["containers"][0]);
        let env = |container: &Value, name: &str| -> Vec<Value> {
            let all = container["env"].as_array().unwrap().clone();
            all.into_iter()
                .filter(|variable| variable["name"] == name)
                .map(|variable| variable["value"].clone())
                .collect()
        };
        assert_eq!(env(container, "SUBMARINER_UNINSTALL"), ["true"]);
        assert_eq!(env(container, "TRIESTE_LEADER_ELECTION"), ["false"]);
        assert_eq!(env(container, "BROKER_K8S_SECRET"), env(before, "BROKER_K8S_SECRET"));
        assert!(container["livenessProbe"].is_null() && container["readinessProbe"].is_null());
        assert_eq!((&pod["restartPolicy"], &job["spec"]["suspend"]), (&json!("Never"), &json!(true)));
        for kept in ["volumes", "securityContext", "serviceAccountName"] {
            assert_eq!(pod[kept], template[kept]);
        }
        let labels = &job["spec"]["template"]["metadata"]["labels"];
        assert_ne!(labels["app"], live["spec"]["selector"]["matchLabels"]["app"]);
        // One that has failed is made anew of itself.
        assert_eq!(cleaner_of(&job, &place), job);
    }

    #[tokio::test]
    async fn a_definition_of_a_kind_that_is_not_ours_stays_while_users_have_exports() {
        let fake = Fake::default();
        let export = ObjectRef::of(service_export().as_value()).unwrap();
        let import = ObjectRef::of(service_import().as_value()).unwrap();
        fake.put(json!({"apiVersion": "multicluster.x-k8s.io/v1alpha1", "kind": "ServiceExport",
            "metadata": {"namespace": "shop", "name": "web"}}));
        let server = fake.server();
        assert_eq!(left_of(&server, &export).await.unwrap(), ["ServiceExport shop/web"]);
        fake.serve_instead(MULTI_CLUSTER_VERSIONS[0], MULTI_CLUSTER_VERSIONS[1]);
        assert_eq!(left_of(&server, &export).await.unwrap(), ["ServiceExport shop/web"]);
        assert!(left_of(&server, &import).await.unwrap().is_empty());
        let other = ObjectRef { name: "gateways.submariner.io".to_owned(), ..export };
        assert!(left_of(&server, &other).await.unwrap().is_empty());
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
        let place =
            |kind: &str, name: &str| ObjectRef::namespaced("apps/v1", kind, "submariner-operator", name);
        assert!(!fake.has(&place("Deployment", DISCOVERY_AGENT)));

        remove_objects(&server, "submariner-operator").await.unwrap();
        assert!(!fake.has(&place("Deployment", DISCOVERY_DNS)));
        assert!(!fake.has(&ObjectRef::cluster_wide(RBAC, "ClusterRole", DISCOVERY_DNS)));
        assert!(fake.has(&place("DaemonSet", GATEWAY)));
        let mut again = Record::default();
        leave(&server, "submariner-operator", Duration::from_secs(1), &mut again).await.unwrap();
        assert_eq!(format!("{again:?}"), format!("{:?}", Record::default()));
    }
}
