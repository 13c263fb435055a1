//! Kubernetes, the network plugin, kube-proxy, and what gateways and route agents say of their connections.

use std::collections::BTreeSet;

use ipnet::IpNet;
use serde_json::Value;
use trieste_control::api::{ConnectionStatus, Gateway, HaStatus, RouteAgent};
use trieste_control::requirements::{self, OLDEST_KUBERNETES as OLDEST, PluginSupport};
use trieste_control::steps::{Outcome, Steps};

use super::{CheckError, Checked, WORKER, cilium, is_of_us};
use crate::agents::Agents as _;
use crate::facts::{FactError, Found, within};

/// The device that kube-proxy's IPVS mode makes.
const IPVS_DEVICE: &str = "kube-ipvs0";

/// Whether Kubernetes is new enough.
///
/// # Errors
/// When the API server does not say.
pub async fn k8s_version(checked: &Checked, steps: &mut dyn Steps) -> Result<(), CheckError> {
    steps.begin("Checking Submariner support for the Kubernetes version");
    let asked = within("the version", checked.source.client.apiserver_version()).await?;
    let Found::There(info) = asked else {
        let why = "the API server does not say".to_owned();
        return Err(FactError::Api { what: "the version".to_owned(), why }.into());
    };
    if is_old(&info.major, &info.minor) {
        let text = format!(
            "Kubernetes version {:?} is not supported: {}.{} or newer is needed",
            info.git_version, OLDEST.0, OLDEST.1
        );
        steps.remark(Outcome::Failure, &text);
    }
    steps.end(Outcome::Success);
    if !is_old(&info.major, &info.minor) {
        steps.remark(Outcome::Success, &format!("Kubernetes version {:?} is supported", info.git_version));
    }
    Ok(())
}

/// A version that cannot be read is taken for a new one: builds of one's own have none.
fn is_old(major: &str, minor: &str) -> bool {
    let number = |text: &str| text.trim_end_matches(|c: char| !c.is_ascii_digit()).parse::<u32>().ok();
    match (number(major), number(minor)) {
        (Some(major), Some(minor)) => (major, minor) < OLDEST,
        (_, _) => false,
    }
}

/// Whether the network plugin is supported, and has what it needs.
///
/// # Errors
/// When the API server does not say.
pub async fn cni(checked: &Checked, steps: &mut dyn Steps) -> Result<(), CheckError> {
    steps.begin("Checking Submariner support for the CNI network plugin");
    let source = &checked.source;
    let members: Vec<Value> =
        source.list_in("Submariner", "submariners", "v1alpha1", &source.namespace).await?.unwrap_or_default();
    let plugin = members.iter().find_map(|member| member.pointer("/status/networkPlugin")?.as_str());
    let Some(plugin) = plugin.filter(|plugin| !plugin.is_empty()) else {
        steps.remark(Outcome::Warning, "The network plugin hasn't been determined yet.");
        steps.end(Outcome::Success);
        return Ok(());
    };
    let (outcome, text) = judge_plugin(plugin);
    steps.remark(outcome, &text);
    steps.end(Outcome::Success);
    let is_cilium = requirements::is_cilium(plugin);
    let settings = if is_cilium || plugin == "generic" { cilium::settings(checked).await? } else { None };
    if !is_cilium && settings.is_some() && members.iter().any(is_of_us) {
        let text = "Cilium is the network plugin, and the cluster joined before that had a name: join again, so that route agents learn \
                    from CiliumNode objects which pods are on which node";
        steps.remark(Outcome::Warning, text);
    }
    if is_cilium || settings.is_some() {
        let remote = remote_networks(&checked.source.gateways().await?);
        cilium::masquerade(checked, settings.as_ref(), &remote, steps).await?;
    }
    if requirements::is_calico(plugin) {
        calico(checked, members.iter().any(is_of_us), steps).await?;
    }
    Ok(())
}

/// Returns the networks to which the active gateways are connected.
fn remote_networks(gateways: &[Gateway]) -> Vec<IpNet> {
    let active = gateways.iter().filter(|gateway| gateway.status.ha_status == HaStatus::Active);
    let connections = active.flat_map(|gateway| &gateway.status.connections);
    let networks: BTreeSet<IpNet> = connections
        .flat_map(|connection| &connection.endpoint.subnets)
        .filter_map(|subnet| subnet.parse().ok())
        .collect();
    networks.into_iter().collect()
}

fn judge_plugin(plugin: &str) -> (Outcome, String) {
    match requirements::plugin(plugin) {
        PluginSupport::Generic if requirements::is_cilium(plugin) => {
            let text = format!(
                "The detected CNI network plugin ({plugin:?}) is served, and was not tried with this version. Where its eBPF \
                 programs route pods' packets past the node's netfilter, Trieste's packet filter does not see those"
            );
            (Outcome::Warning, text)
        }
        PluginSupport::Generic => {
            let text = format!(
                "Submariner could not detect the CNI network plugin and is using ({plugin:?}) plugin. It may or may not \
                 work."
            );
            (Outcome::Warning, text)
        }
        PluginSupport::Served => {
            (Outcome::Success, format!("The detected CNI network plugin ({plugin:?}) is supported"))
        }
        PluginSupport::Unknown => {
            let text = format!(
                "The detected CNI plugin ({plugin:?}) is not supported by Submariner. Supported plugins: [{}]",
                requirements::served_plugins().collect::<Vec<_>>().join(" ")
            );
            (Outcome::Failure, text)
        }
    }
}

/// Looks for Calico's pools: it masquerades towards networks of which it has none. Where the member is ours, workers make them.
async fn calico(checked: &Checked, has_workers: bool, steps: &mut dyn Steps) -> Result<(), CheckError> {
    steps.begin("Calico CNI detected, checking if the Submariner IPPool pre-requisites are configured");
    let pools = checked.source.pools().await?;
    let gateways = checked.source.gateways().await?;
    let problems = pool_problems(&gateways, &pools);
    for text in &problems {
        steps.remark(Outcome::Failure, text);
    }
    if let Some(text) =
        missing_pools(&problems, &checked.kubectl, &checked.source.namespace).filter(|_| has_workers)
    {
        steps.remark(Outcome::Warning, &text);
    }
    steps.end(Outcome::Success);
    Ok(())
}

/// The first words about a pool that is not there, upstream's.
const NO_POOL: &str = "Could not find any IPPool";

/// Returns who makes pools that are missing, and where it says what keeps it from that.
fn missing_pools(problems: &[String], kubectl: &str, namespace: &str) -> Option<String> {
    let is_missing = problems.iter().any(|problem| problem.starts_with(NO_POOL));
    is_missing.then(|| {
        format!(
            "{WORKER} makes these pools. Its log says why one is missing, and names a pool of somebody else's that is in the \
             way: kubectl{kubectl} -n {namespace} logs -l app={WORKER}. It makes none where somebody has made a wider one that does not \
             masquerade"
        )
    })
}

fn pool_problems(gateways: &[Gateway], pools: &[Value]) -> Vec<String> {
    let pool = |cidr: &str| {
        pools.iter().find(|pool| pool.pointer("/spec/cidr").and_then(Value::as_str) == Some(cidr))
    };
    let name =
        |pool: &Value| pool.pointer("/metadata/name").and_then(Value::as_str).unwrap_or_default().to_owned();
    let is = |pool: &Value, key: &str| pool.pointer(key).and_then(Value::as_bool).unwrap_or(false);
    let mut problems = Vec::new();
    for gateway in gateways.iter().filter(|gateway| gateway.status.ha_status == HaStatus::Active) {
        for endpoint in gateway.status.connections.iter().map(|connection| &connection.endpoint) {
            for subnet in &endpoint.subnets {
                let cable = &endpoint.cable_name;
                match pool(subnet) {
                    None => problems.push(format!(
                        "{NO_POOL} with CIDR {subnet:?} for remote endpoint {cable:?}"
                    )),
                    Some(pool) if !is(pool, "/spec/disabled") => problems.push(format!(
                        "The IPPool {:?} with CIDR {subnet:?} for remote endpoint {cable:?} has disabled set to false",
                        name(pool)
                    )),
                    Some(pool) if is(pool, "/spec/natOutgoing") => problems.push(format!(
                        "The IPPool {:?} with CIDR {subnet:?} for remote endpoint {cable:?} has natOutgoing set to true",
                        name(pool)
                    )),
                    Some(_) => {}
                }
            }
        }
        for pool in gateway.status.local_endpoint.subnets.iter().filter_map(|subnet| pool(subnet)) {
            let mode = pool.pointer("/spec/vxlanMode").and_then(Value::as_str).unwrap_or_default();
            if mode != "Always" {
                problems.push(format!(
                    "Calico IPPool {:?} is not configured with VXLAN overlay encapsulation (vxlanMode set to {mode:?})",
                    name(pool)
                ));
            }
        }
    }
    problems
}

/// What gateways and route agents say of their connections.
///
/// # Errors
/// When the API server does not say.
pub async fn connections(checked: &Checked, steps: &mut dyn Steps) -> Result<(), CheckError> {
    steps.begin("Checking gateway connections");
    for text in gateway_problems(&checked.source.gateways().await?) {
        steps.remark(Outcome::Failure, &text);
    }
    steps.end(Outcome::Success);
    steps.begin("Checking route agent connections");
    for text in agent_problems(&checked.source.route_agents().await?) {
        steps.remark(Outcome::Failure, &text);
    }
    steps.end(Outcome::Success);
    Ok(())
}

fn gateway_problems(gateways: &[Gateway]) -> Vec<String> {
    if gateways.is_empty() {
        return vec!["no gateways were detected".to_owned()];
    }
    let active: Vec<&Gateway> =
        gateways.iter().filter(|gateway| gateway.status.ha_status == HaStatus::Active).collect();
    if active.is_empty() {
        return vec!["No active gateway was found".to_owned()];
    }
    let mut problems = Vec::new();
    for gateway in active {
        if gateway.status.connections.is_empty() {
            problems.push(format!("There are no active connections on gateway {:?}", gateway.metadata.name));
        }
        for connection in &gateway.status.connections {
            let details = serde_json::to_string_pretty(connection).unwrap_or_default();
            problems.extend(problem(connection.status, &connection.endpoint.cluster_id, &details));
        }
    }
    problems
}

fn agent_problems(agents: &[RouteAgent]) -> Vec<String> {
    if agents.is_empty() {
        return vec!["no route agents were detected".to_owned()];
    }
    let remotes = agents.iter().flat_map(|agent| &agent.status.remote_endpoints);
    let problems = remotes.filter_map(|remote| {
        let details = serde_json::to_string_pretty(remote).unwrap_or_default();
        problem(remote.status?, &remote.spec.cluster_id, &details)
    });
    problems.collect()
}

fn problem(status: ConnectionStatus, cluster: &str, details: &str) -> Option<String> {
    if status == ConnectionStatus::Connecting {
        return Some(format!("Connection to cluster {cluster:?} is in progress"));
    }
    (status == ConnectionStatus::Error).then(|| {
        format!("Connection to cluster {cluster:?} is not established. Connection details:\n{details}")
    })
}

/// Whether kube-proxy works in a mode that is supported.
///
/// # Errors
/// When the API server or the gateway's node does not say.
pub async fn kube_proxy_mode(checked: &Checked, steps: &mut dyn Steps) -> Result<(), CheckError> {
    steps.begin("Checking Submariner support for the kube-proxy mode");
    let cluster = crate::facts::cluster(&checked.source, &checked.kubectl, &mut Vec::new()).await?;
    let node = cluster.gateway.as_ref().or_else(|| cluster.nodes.keys().next());
    let Some(node) = node else {
        steps.remark(Outcome::Failure, "the cluster has no nodes");
        return Ok(());
    };
    let report = checked.agents.report(node).await?;
    if report.links.is_empty() {
        steps.remark(
            Outcome::Failure,
            &format!("the devices of node {node} cannot be read: {}", report.problems.join("; ")),
        );
    } else if report.link(IPVS_DEVICE).is_some() {
        let text = "The cluster is deployed with kube-proxy ipvs mode which Submariner does not support";
        steps.remark(Outcome::Failure, text);
    } else {
        steps.remark(Outcome::Success, "The kube-proxy mode is supported");
    }
    steps.end(Outcome::Success);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn gateway(ha: &str, status: &str) -> Gateway {
        let endpoint = json!({"cluster_id": "b", "cable_name": "cable-b", "hostname": "h", "subnets": ["10.2.0.0/16"],
            "private_ip": "1.1.1.1", "public_ip": "", "nat_enabled": false, "backend": "wireguard"});
        serde_json::from_value(
            json!({"metadata": {"name": "gw1", "namespace": "n"}, "status": {"version": "1",
            "haStatus": ha, "statusFailure": "", "localEndpoint": endpoint,
            "connections": [{"status": status, "statusMessage": "", "endpoint": endpoint}]}}),
        )
        .unwrap()
    }

    #[test]
    fn old_versions_are_not_supported() {
        assert!(is_old("1", "21") && is_old("1", "21+"));
        assert!(!is_old("1", "22") && !is_old("1", "36") && !is_old("2", "0"));
        assert!(!is_old("0", "") && !is_old("", "0"));
    }

    #[test]
    fn plugins_are_judged_in_upstreams_words() {
        assert_eq!(judge_plugin("kindnet").1, r#"The detected CNI network plugin ("kindnet") is supported"#);
        let recorded = r#"Submariner could not detect the CNI network plugin and is using ("generic") plugin. It may or may not work."#;
        assert_eq!(judge_plugin("generic"), (Outcome::Warning, recorded.to_owned()));
        let (outcome, text) = judge_plugin("cilium");
        assert!(outcome == Outcome::Warning && text.contains("is served"), "{text}");
        assert_eq!(judge_plugin("other").0, Outcome::Failure);
        assert_eq!(judge_plugin("OVNKubernetes").0, Outcome::Success);
    }

    #[test]
    fn connections_that_are_not_up_are_named() {
        assert!(gateway_problems(&[gateway("active", "connected")]).is_empty());
        let connecting = gateway_problems(&[gateway("active", "connecting")]);
        assert_eq!(connecting, [r#"Connection to cluster "b" is in progress"#]);
        assert!(gateway_problems(&[gateway("active", "error")])[0].contains("Connection details:\n{"));
        assert_eq!(gateway_problems(&[gateway("passive", "error")]), ["No active gateway was found"]);
        assert_eq!(remote_networks(&[gateway("active", "connected")]).len(), 1);
        assert!(remote_networks(&[gateway("passive", "connected")]).is_empty());
        assert_eq!(gateway_problems(&[]), ["no gateways were detected"]);
    }

    #[test]
    fn calico_needs_a_pool_for_each_remote_network() {
        let gateways = [gateway("active", "connected")];
        let pool = |disabled: bool, nat: bool| {
            [json!({"metadata": {"name": "p"},
                "spec": {"cidr": "10.2.0.0/16", "disabled": disabled, "natOutgoing": nat, "vxlanMode": "Always"}})]
        };
        assert!(pool_problems(&gateways, &[])[0].starts_with("Could not find any IPPool"));
        assert!(pool_problems(&gateways, &pool(false, false))[0].ends_with("has disabled set to false"));
        assert!(pool_problems(&gateways, &pool(true, true))[0].ends_with("has natOutgoing set to true"));
        assert!(pool_problems(&gateways, &pool(true, false)).is_empty());
    }

    #[test]
    fn plugin_calico_missing_pools_are_the_workers_and_others_are_not() {
        let gateways = [gateway("active", "connected")];
        let text = missing_pools(&pool_problems(&gateways, &[]), " --context a", "ns").unwrap();
        assert!(text.contains("kubectl --context a -n ns logs -l app=trieste-plugin-sync"), "{text}");
        let pool = json!({"metadata": {"name": "p"}, "spec": {"cidr": "10.2.0.0/16", "disabled": false}});
        let problems = pool_problems(&gateways, &[pool]);
        assert_eq!((problems.is_empty(), missing_pools(&problems, "", "ns")), (false, None));
        assert!(is_of_us(&json!({"metadata": {"labels": {"app.kubernetes.io/managed-by": "trieste"}}})));
        assert!(!is_of_us(&json!({"metadata": {"labels": {}}})));
    }
}
