//! Kubernetes, the network plugin, kube-proxy, and what gateways and route agents say of their connections.

use std::collections::BTreeSet;

use ipnet::IpNet;
use serde_json::Value;
use trieste_control::api::{ConnectionStatus, Gateway, HaStatus, RouteAgent};
use trieste_control::requirements::{self, OLDEST_KUBERNETES as OLDEST, PluginSupport};
use trieste_control::steps::{Outcome, Steps};

use super::fix::Remedy;
use super::{CheckError, Checked, calico, cilium, is_of_us, spiderpool};
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

/// Checks that the network plugin is supported, and has what it needs, which is written first if that was asked for.
///
/// # Errors
/// When the API server does not say.
pub async fn cni(checked: &Checked, remedy: Remedy, steps: &mut dyn Steps) -> Result<(), CheckError> {
    steps.begin("Checking Submariner support for the CNI network plugin");
    let source = &checked.source;
    let members: Vec<Value> =
        source.list_in("Submariner", "submariners", "v1alpha1", &source.namespace).await?.unwrap_or_default();
    let plugin = members.iter().find_map(|member| member.pointer("/status/networkPlugin")?.as_str());
    let is_ours = members.iter().any(is_of_us);
    let mut has_needs = false;
    if let Some(plugin) = plugin.filter(|plugin| !plugin.is_empty()) {
        let (outcome, text) = judge_plugin(plugin);
        steps.remark(outcome, &text);
        steps.end(Outcome::Success);
        has_needs = needs_of_plugin(checked, plugin, is_ours, remedy, steps).await?;
    } else {
        steps.remark(Outcome::Warning, "The network plugin hasn't been determined yet.");
        steps.end(Outcome::Success);
    }
    let coordinators = spiderpool::coordinators(checked, steps).await;
    if !coordinators.is_empty() {
        let remote = remote_networks(&source.gateways().await?);
        spiderpool::routes(checked, &coordinators, is_ours, &remote, steps).await?;
    }
    match remedy {
        Remedy::Explained => {}
        Remedy::Written if !coordinators.is_empty() => {
            steps.remark(Outcome::Success, &spiderpool::not_fixed(is_ours));
        }
        Remedy::Written if !has_needs => {
            steps.remark(Outcome::Success, "--fix writes for Calico and Cilium only: nothing was written");
        }
        Remedy::Written => {}
    }
    Ok(())
}

/// Looks for what the network plugin needs; returns whether it is one of which that is known.
async fn needs_of_plugin(
    checked: &Checked,
    plugin: &str,
    is_ours: bool,
    remedy: Remedy,
    steps: &mut dyn Steps,
) -> Result<bool, CheckError> {
    let is_cilium = requirements::is_cilium(plugin);
    let settings = if is_cilium || plugin == "generic" { cilium::settings(checked).await? } else { None };
    if !is_cilium && is_ours && settings.as_ref().is_some_and(cilium::gives_addresses) {
        let text = "Cilium is the network plugin, and the cluster joined before that had a name: join again, so that route agents learn \
                    from CiliumNode objects which pods are on which node";
        steps.remark(Outcome::Warning, text);
    }
    if is_cilium || settings.is_some() {
        let remote = remote_networks(&checked.source.gateways().await?);
        cilium::masquerade(checked, settings.as_ref(), &remote, remedy, steps).await?;
    }
    let is_calico = requirements::is_calico(plugin);
    if is_calico {
        calico::pools(checked, is_ours, remedy, steps).await?;
    }
    Ok(is_calico || is_cilium || settings.is_some())
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

/// Checks that services are reached by remote clusters with the mode that kube-proxy works in.
///
/// # Errors
/// The API server or the gateway's node does not answer.
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
        let (outcome, text) = with_ipvs(&checked.source.route_agents().await?);
        steps.remark(outcome, &text);
    } else {
        steps.remark(Outcome::Success, "The kube-proxy mode is supported");
    }
    steps.end(Outcome::Success);
    Ok(())
}

/// Returns what the IPVS mode means: nothing for remote clusters where our route agents take packets for services themselves, which
/// upstream's do not.
fn with_ipvs(agents: &[RouteAgent]) -> (Outcome, String) {
    let nodes = agents.iter().filter(|agent| agent.services_address().is_some()).count();
    if nodes == 0 {
        let text = "The cluster is deployed with kube-proxy ipvs mode, with which services are not reached from remote clusters \
                    unless Trieste's route agents take their packets, and no node's does (no RouteAgent object has an address as \
                    its annotation trieste.io/services): update the route agents, see that a gateway is active, and look at \
                    their conditions";
        return (Outcome::Failure, text.to_owned());
    }
    let text = format!(
        "The kube-proxy mode is ipvs, which is not used for remote clusters: {nodes} of {} nodes take packets for services \
         themselves",
        agents.len()
    );
    // Each node with a back end takes its own; one without our route agent has none that is reached.
    (if nodes == agents.len() { Outcome::Success } else { Outcome::Warning }, text)
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
    fn ipvs_is_no_problem_where_nodes_take_packets_for_services() {
        let agent = |value: Option<&str>| -> RouteAgent {
            let mut annotations = json!({"trieste.io/route-agent": "1"});
            value.into_iter().for_each(|value| annotations["trieste.io/services"] = json!(value));
            serde_json::from_value(json!({
                "metadata": {"name": "n", "namespace": "n", "annotations": annotations},
                "status": {"version": "1", "statusFailure": "", "remoteEndpoints": []},
            }))
            .unwrap()
        };
        let outcome = |values: &[Option<&str>]| {
            let agents: Vec<RouteAgent> = values.iter().map(|value| agent(*value)).collect();
            with_ipvs(&agents).0
        };
        assert_eq!(outcome(&[Some("10.0.0.1"), Some("fd00::1")]), Outcome::Success);
        assert_eq!(outcome(&[Some("10.0.0.1"), None]), Outcome::Warning);
        assert_eq!(outcome(&[Some("none"), None]), Outcome::Failure);
        assert_eq!(outcome(&[]), Outcome::Failure);
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
}
