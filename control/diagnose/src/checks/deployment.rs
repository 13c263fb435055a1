//! Whether what was installed works: networks, DaemonSets, pods, metrics.

use std::net::SocketAddr;

use ipnet::IpNet;
use k8s_openapi::api::apps::v1::{DaemonSet, Deployment};
use k8s_openapi::api::core::v1::{Pod, Service};
use kube::Api;
use kube::api::ListParams;
use serde_json::Value;
use trieste_control::admin::Severity;
use trieste_control::api::{Cluster, EndpointSpec, NodeCondition, RouteAgent};
use trieste_control::requirements::{is_calico, is_ovn_kubernetes};
use trieste_control::steps::{Outcome, Steps};

use super::{CheckError, Checked, SINGLE_NODE, WORKER, is_of_us, spiderpool};
use crate::facts::{Found, within};

/// DaemonSets that have to be there.
const NEEDED: [&str; 2] = ["submariner-gateway", "submariner-routeagent"];
/// DaemonSets that upstream's operator makes besides.
const PERHAPS: [&str; 2] = ["submariner-globalnet", "submariner-metrics-proxy"];
/// The Service of the gateways' metrics.
const METRICS: &str = "submariner-gateway-metrics";

/// Whether what was installed works.
///
/// # Errors
/// When the API server or a node does not say.
pub async fn deployment(checked: &Checked, steps: &mut dyn Steps) -> Result<(), CheckError> {
    overlap(checked, steps).await?;
    published(checked, steps).await?;
    let sets = Api::<DaemonSet>::namespaced(checked.source.client.clone(), &checked.source.namespace);
    let source = &checked.source;
    let members: Vec<Value> =
        source.list_in("Submariner", "submariners", "v1alpha1", &source.namespace).await?.unwrap_or_default();
    let has_ovn = members.iter().any(|member| has_plugin(member, is_ovn_kubernetes));
    let needed = NEEDED.into_iter().chain(has_ovn.then_some(WORKER));
    for name in needed.chain(PERHAPS) {
        let found = within(&format!("DaemonSet {name}"), sets.get(name)).await?;
        let found = match found {
            Found::There(set) => Some(set),
            Found::Missing if PERHAPS.contains(&name) => continue,
            Found::Missing => None,
        };
        steps.begin(&format!("Checking DaemonSet {name:?}"));
        if let Some(problem) = set_problem(name, found.as_ref()) {
            steps.remark(Outcome::Failure, &problem);
        }
        steps.end(Outcome::Success);
    }
    if members.iter().any(|member| has_plugin(member, is_calico)) {
        workers(checked, WORKER, true, steps).await?;
    }
    // Where it is missing, that is said where Spiderpool is looked at.
    workers(checked, spiderpool::SYNC, false, steps).await?;
    steps.begin("Checking the status of all Submariner pods");
    for (outcome, text) in pod_remarks(&checked.source.pods("submariner.io/transient!=true").await?) {
        steps.remark(outcome, &text);
    }
    steps.end(Outcome::Success);
    steps.begin("Checking what route agents say of their nodes");
    for (outcome, text) in node_remarks(&checked.source.route_agents().await?) {
        steps.remark(outcome, &text);
    }
    steps.end(Outcome::Success);
    metrics(checked, steps).await
}

/// What upstream's agents have nothing of.
fn node_remarks(agents: &[RouteAgent]) -> Vec<(Outcome, String)> {
    let mut remarks = Vec::new();
    for agent in agents.iter().filter(|agent| agent.is_ours()) {
        for NodeCondition { name, severity, message } in agent.conditions() {
            let outcome = match severity {
                Severity::Error => Outcome::Failure,
                Severity::Warning => Outcome::Warning,
                Severity::Info | _ => Outcome::Success,
            };
            remarks.push((outcome, format!("Node {:?}, {name}: {message}", agent.metadata.name)));
        }
    }
    remarks
}

async fn overlap(checked: &Checked, steps: &mut dyn Steps) -> Result<(), CheckError> {
    let clusters: Vec<Cluster> = checked.source.list("Cluster", "clusters").await?.unwrap_or_default();
    let has_globalnet = clusters.iter().any(|cluster| !cluster.spec.global_cidr.is_empty());
    steps.begin(if has_globalnet {
        "Globalnet deployment detected - checking that globalnet CIDRs do not overlap"
    } else {
        "Non-Globalnet deployment detected - checking that cluster CIDRs do not overlap"
    });
    let endpoints = checked.source.endpoints().await?.unwrap_or_default();
    let specs: Vec<EndpointSpec> = endpoints.into_iter().map(|endpoint| endpoint.spec).collect();
    for text in overlaps(&specs) {
        steps.remark(Outcome::Failure, &text);
    }
    steps.end(Outcome::Success);
    Ok(())
}

/// Pods on nodes whose network is not published are reached by no other cluster.
async fn published(checked: &Checked, steps: &mut dyn Steps) -> Result<(), CheckError> {
    steps.begin("Checking that the networks of all nodes' pods are published");
    let cluster = crate::facts::cluster(&checked.source, &checked.kubectl, &mut Vec::new()).await?;
    for (node, net) in cluster.unpublished() {
        let text = format!(
            "Pods on node {node:?} have addresses of {net}, which the cluster does not publish: no other cluster reaches \
             them. Join again with all pod networks (--clustercidr)"
        );
        steps.remark(Outcome::Warning, &text);
    }
    steps.end(Outcome::Success);
    Ok(())
}

fn overlaps(endpoints: &[EndpointSpec]) -> Vec<String> {
    let nets = |endpoint: &EndpointSpec| -> Vec<IpNet> {
        endpoint.subnets.iter().filter_map(|net| net.parse().ok()).collect()
    };
    let mut problems = Vec::new();
    for (at, source) in endpoints.iter().enumerate() {
        let own = nets(source);
        for other in endpoints[at + 1..].iter().filter(|other| other.cluster_id != source.cluster_id) {
            let overlapping = nets(other).into_iter().filter(|net| {
                own.iter().any(|own| own.contains(&net.network()) || net.contains(&own.network()))
            });
            problems.extend(overlapping.map(|net| {
                format!(
                    "CIDR \"{net}\" in cluster {:?} overlaps with cluster {:?} (CIDRs: [{}])",
                    other.cluster_id,
                    source.cluster_id,
                    source.subnets.join(" ")
                )
            }));
        }
    }
    problems
}

/// Says whether a member has been joined by us, and has a network plugin whose database workers write: upstream's route agents do
/// that themselves.
fn has_plugin(member: &Value, is_it: fn(&str) -> bool) -> bool {
    let plugin = member.pointer("/status/networkPlugin").and_then(Value::as_str).unwrap_or_default();
    is_of_us(member) && is_it(plugin)
}

/// Looks at workers on a network plugin's objects, which are a Deployment; those that are not needed may be missing.
async fn workers(
    checked: &Checked,
    name: &str,
    is_needed: bool,
    steps: &mut dyn Steps,
) -> Result<(), CheckError> {
    let deployments = Api::<Deployment>::namespaced(checked.source.client.clone(), &checked.source.namespace);
    let found = match within(&format!("Deployment {name}"), deployments.get(name)).await? {
        Found::There(deployment) => Some(deployment),
        Found::Missing if is_needed => None,
        Found::Missing => return Ok(()),
    };
    steps.begin(&format!("Checking Deployment {name:?}"));
    if let Some(problem) = deployment_problem(name, found.as_ref()) {
        steps.remark(Outcome::Failure, &problem);
    }
    steps.end(Outcome::Success);
    Ok(())
}

fn deployment_problem(name: &str, deployment: Option<&Deployment>) -> Option<String> {
    let Some(deployment) = deployment else {
        return Some(format!("Error obtaining Deployment {name:?}: it is not there"));
    };
    let desired = deployment.spec.as_ref().and_then(|spec| spec.replicas).unwrap_or(1);
    let ready = deployment.status.as_ref().and_then(|status| status.ready_replicas).unwrap_or(0);
    (ready != desired).then(|| {
        format!(
            "The desired number of running pods for Deployment {name:?} ({desired}) does not match the actual number \
             ({ready})"
        )
    })
}

fn set_problem(name: &str, set: Option<&DaemonSet>) -> Option<String> {
    let Some(set) = set else { return Some(format!("Error obtaining Daemonset {name:?}: it is not there")) };
    let status = set.status.clone().unwrap_or_default();
    if status.desired_number_scheduled == 0 && name == NEEDED[0] {
        return Some("There are no gateway nodes: label one with submariner.io/gateway=true".to_owned());
    }
    (status.number_ready != status.desired_number_scheduled).then(|| {
        format!(
            "The desired number of running pods for DaemonSet {name:?} ({}) does not match the actual number ({})",
            status.desired_number_scheduled, status.number_ready
        )
    })
}

fn pod_remarks(pods: &[Pod]) -> Vec<(Outcome, String)> {
    let mut remarks = Vec::new();
    let mut active = Vec::new();
    for pod in pods {
        let name = pod.metadata.name.as_deref().unwrap_or_default();
        let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref()).unwrap_or("Unknown");
        if phase != "Running" {
            remarks
                .push((Outcome::Failure, format!("Pod {name:?} is not running. (current state is {phase})")));
            continue;
        }
        for container in pod.status.iter().flat_map(|status| status.container_statuses.iter().flatten()) {
            if container.restart_count > 0 {
                let text = format!("Pod {name:?} has restarted {} times", container.restart_count);
                remarks.push((Outcome::Warning, text));
            }
        }
        let status =
            pod.metadata.labels.as_ref().and_then(|labels| labels.get("gateway.submariner.io/status"));
        if status.is_some_and(|status| status == "active") {
            active.push(pod.spec.as_ref().and_then(|spec| spec.node_name.clone()).unwrap_or_default());
        }
    }
    if active.len() != 1 {
        let text = format!(
            "Expected one Gateway pod to be labeled as active. Found {} on nodes [{}]",
            active.len(),
            active.join(" ")
        );
        remarks.push((Outcome::Warning, text));
    }
    remarks
}

/// From a node without gateway, as Prometheus would. The address is the Service's: a node resolves no names of services.
async fn metrics(checked: &Checked, steps: &mut dyn Steps) -> Result<(), CheckError> {
    steps.begin("Checking that gateway metrics are accessible from non-gateway nodes");
    let cluster = crate::facts::cluster(&checked.source, &checked.kubectl, &mut Vec::new()).await?;
    if cluster.nodes.len() == 1 {
        steps.remark(Outcome::Success, SINGLE_NODE);
        steps.end(Outcome::Success);
        return Ok(());
    }
    let Some(node) = cluster.nodes.keys().find(|node| !cluster.gateway_nodes.contains(node)) else {
        steps.remark(Outcome::Success, "Skipping this check as every node is a gateway");
        steps.end(Outcome::Success);
        return Ok(());
    };
    let services = Api::<Service>::namespaced(checked.source.client.clone(), &checked.source.namespace);
    let list = within("services", services.list(&ListParams::default())).await?;
    let service = match list {
        Found::There(list) => {
            list.items.into_iter().find(|service| service.metadata.name.as_deref() == Some(METRICS))
        }
        Found::Missing => None,
    };
    let Some(address) = service.as_ref().and_then(address) else {
        let text = format!(
            "Unable to access gateway metrics service in submariner-operator namespace: there is no service {METRICS:?}"
        );
        steps.remark(Outcome::Failure, &text);
        steps.end(Outcome::Success);
        return Ok(());
    };
    let answer = checked.agents.head(node, address, "/metrics").await?;
    if answer.status == Some(200) {
        steps.remark(Outcome::Success, "The gateway metrics are accessible");
    } else {
        let why = answer.status.map_or(answer.error, |status| format!("the answer is {status}"));
        let text = format!(
            "Unable to access gateway metrics service in submariner-operator namespace from node {node:?}: {why}"
        );
        steps.remark(Outcome::Failure, &text);
    }
    steps.end(Outcome::Success);
    Ok(())
}

fn address(service: &Service) -> Option<SocketAddr> {
    let spec = service.spec.as_ref()?;
    let port = u16::try_from(spec.ports.as_ref()?.first()?.port).ok()?;
    Some(SocketAddr::new(spec.cluster_ip.as_ref()?.parse().ok()?, port))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn endpoint(cluster: &str, subnets: &[&str]) -> EndpointSpec {
        let subnets = subnets.iter().map(|net| (*net).to_owned()).collect();
        EndpointSpec { cluster_id: cluster.to_owned(), subnets, ..EndpointSpec::default() }
    }

    #[test]
    fn overlapping_networks_are_named_in_upstreams_words() {
        let endpoints = [
            endpoint("a", &["10.1.0.0/16", "100.1.0.0/16"]),
            endpoint("b", &["10.1.128.0/17"]),
            endpoint("a", &["10.1.0.0/16"]),
        ];
        let expected = r#"CIDR "10.1.128.0/17" in cluster "b" overlaps with cluster "a" (CIDRs: [10.1.0.0/16 100.1.0.0/16])"#;
        assert_eq!(overlaps(&endpoints)[0], expected);
        assert!(overlaps(&[endpoint("a", &["10.1.0.0/16"]), endpoint("b", &["10.2.0.0/16"])]).is_empty());
    }

    #[test]
    fn what_a_route_agent_says_of_its_node_is_passed_on_with_its_severity() {
        let agent: RouteAgent = serde_json::from_value(json!({
            "metadata": {"name": "w1", "namespace": "ns", "annotations": {
                "trieste.io/route-agent": "v0.1.0",
                "trieste.io/conditions": r#"[{"name": "NoNft", "severity": "error", "message": "the nft command"},
                    {"name": "LegacyIptables", "severity": "info", "message": "filtered by"}]"#}},
            "status": {"version": "v0.1.0", "statusFailure": "", "remoteEndpoints": []},
        }))
        .unwrap();
        let remarks = node_remarks(std::slice::from_ref(&agent));
        assert_eq!(remarks[0], (Outcome::Failure, "Node \"w1\", NoNft: the nft command".to_owned()));
        assert_eq!(remarks[1].0, Outcome::Success);
        let mut gone = agent;
        gone.status.version = "release-0.23".to_owned();
        assert!(node_remarks(&[gone]).is_empty(), "what another agent left behind");
    }

    #[test]
    fn a_daemon_set_is_judged_by_its_pods() {
        let set = |desired: i32, ready: i32| -> DaemonSet {
            serde_json::from_value(json!({"metadata": {}, "status": {"desiredNumberScheduled": desired,
                "numberReady": ready, "currentNumberScheduled": desired, "numberMisscheduled": 0}}))
            .unwrap()
        };
        assert_eq!(set_problem(NEEDED[1], Some(&set(2, 2))), None);
        assert!(
            set_problem(NEEDED[1], Some(&set(2, 1)))
                .unwrap()
                .contains("(2) does not match the actual number (1)")
        );
        assert!(set_problem(NEEDED[0], Some(&set(0, 0))).unwrap().contains("submariner.io/gateway=true"));
        assert!(set_problem(NEEDED[0], None).is_some());
    }

    #[test]
    fn plugin_ovn_and_plugin_calico_members_of_ours_need_workers() {
        let member = |by: &str, plugin: &str| json!({"metadata": {"labels": {"app.kubernetes.io/managed-by": by}}, "status": {"networkPlugin": plugin}});
        for (by, plugin, wanted) in [
            ("trieste", "OVNKubernetes", (true, false)),
            ("trieste", "Calico", (false, true)),
            ("trieste", "generic", (false, false)),
            ("", "OVNKubernetes", (false, false)),
            ("", "calico", (false, false)),
        ] {
            let member = member(by, plugin);
            let found = (has_plugin(&member, is_ovn_kubernetes), has_plugin(&member, is_calico));
            assert_eq!(found, wanted, "{by} {plugin}");
        }
        assert!(!has_plugin(&json!({}), is_calico));
        assert!(set_problem(WORKER, None).unwrap().contains("trieste-plugin-sync"));
    }

    #[test]
    fn plugin_calico_workers_are_missed_where_not_all_are_ready() {
        let deployment = |ready: u32| -> Deployment {
            serde_json::from_value(json!({"metadata": {"name": WORKER}, "spec": {"replicas": 2,
                "selector": {}, "template": {}}, "status": {"readyReplicas": ready}}))
            .unwrap()
        };
        assert_eq!(deployment_problem(WORKER, Some(&deployment(2))), None);
        let problem = deployment_problem(WORKER, Some(&deployment(1))).unwrap();
        assert!(problem.contains("(2) does not match the actual number (1)"), "{problem}");
        assert!(deployment_problem(WORKER, None).unwrap().contains("it is not there"));
    }

    #[test]
    fn pods_that_do_not_run_and_an_active_one_that_is_missing_are_told() {
        let pod = |phase: &str, label: &str| -> Pod {
            serde_json::from_value(
                json!({"metadata": {"name": "p", "labels": {"gateway.submariner.io/status": label}},
                "spec": {"nodeName": "gw1", "containers": []}, "status": {"phase": phase}}),
            )
            .unwrap()
        };
        assert!(pod_remarks(&[pod("Running", "active")]).is_empty());
        let recorded = "Expected one Gateway pod to be labeled as active. Found 0 on nodes []";
        assert_eq!(pod_remarks(&[pod("Running", "passive")]), [(Outcome::Warning, recorded.to_owned())]);
        assert_eq!(pod_remarks(&[pod("Pending", "active")])[0].0, Outcome::Failure);
    }
}
