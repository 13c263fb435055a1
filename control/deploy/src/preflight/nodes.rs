//! Which node is to run the gateway, and whether its ports are free.

use serde_json::Value;

use super::Finding;
use crate::objects::names::{GATEWAY, GATEWAY_LABEL, ROUTE_AGENT};
use crate::pods::is_ready;

/// UDP port of the route agents' `vx-submariner`.
const VXLAN_PORT: u16 = 4800;

/// Which nodes may run gateways.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum GatewayNodes {
    /// These are labelled.
    Labelled(Vec<String>),
    /// None is; these can be, best first.
    Candidates(Vec<String>),
    /// There are no nodes.
    None,
}

/// Looks for labelled nodes, else for ones to label: workers, the control plane's only if there are no workers. Nodes
/// that are not ready or take no pods come last.
pub fn gateway_nodes(nodes: &[Value]) -> GatewayNodes {
    let name = |node: &Value| node["metadata"]["name"].as_str().unwrap_or_default().to_owned();
    let is_labelled = |node: &&Value| node["metadata"]["labels"][GATEWAY_LABEL] == "true";
    let mut labelled: Vec<String> = nodes.iter().filter(is_labelled).map(name).collect();
    if !labelled.is_empty() {
        labelled.sort();
        return GatewayNodes::Labelled(labelled);
    }
    let nodes: Vec<&Value> = nodes.iter().filter(|node| !is_virtual(node)).collect();
    let workers: Vec<&Value> = nodes.iter().copied().filter(|node| !is_control_plane(node)).collect();
    let chosen = if workers.is_empty() { nodes } else { workers };
    let mut candidates: Vec<(bool, String)> =
        chosen.into_iter().map(|node| (!is_usable(node), name(node))).collect();
    candidates.sort();
    if candidates.is_empty() {
        return GatewayNodes::None;
    }
    GatewayNodes::Candidates(candidates.into_iter().map(|(_, name)| name).collect())
}

/// Labels of nodes that are no machines: pods there have no network of a node, and DaemonSets none that starts.
pub(crate) const VIRTUAL: [(&str, &str); 2] =
    [("type", "virtual-kubelet"), ("eks.amazonaws.com/compute-type", "fargate")];

/// Whether a node is a virtual one, which neither needs nor runs our pods.
pub(crate) fn is_virtual(node: &Value) -> bool {
    VIRTUAL.iter().any(|(key, value)| node["metadata"]["labels"][*key] == *value)
}

/// Tells which nodes are left out.
pub fn virtual_nodes(nodes: &[Value]) -> Option<Finding> {
    let left_out = nodes.iter().filter(|node| is_virtual(node));
    let names: Vec<&str> = left_out.filter_map(|node| node["metadata"]["name"].as_str()).collect();
    let shown = names.iter().take(8).copied().collect::<Vec<_>>().join(", ");
    let text =
        format!("Virtual nodes are left out, their pods reach no other cluster ({}): {shown}", names.len());
    (!names.is_empty()).then(|| Finding::suspect(text, ""))
}

fn is_control_plane(node: &Value) -> bool {
    let labels = &node["metadata"]["labels"];
    ["node-role.kubernetes.io/control-plane", "node-role.kubernetes.io/master"]
        .iter()
        .any(|role| !labels[*role].is_null())
}

fn is_usable(node: &Value) -> bool {
    is_ready(node) && node["spec"]["unschedulable"] != true
}

/// Looks at whether the ports make sense, and whether another pod has taken one on a gateway node: `pods` are those of
/// the gateway nodes.
pub fn ports(cable: u16, nat_discovery: u16, pods: &[Value]) -> Vec<Finding> {
    let mut findings = Vec::new();
    let named =
        [("the cables", "--nattport", cable), ("NAT discovery", "--nat-discovery-port", nat_discovery)];
    for (what, flag, port) in named {
        if port == VXLAN_PORT {
            findings.push(Finding::bad(
                format!("UDP port {port} for {what} is the one that nodes use among themselves"),
                format!("choose another one with {flag}"),
            ));
        }
        if port == 0 && flag == "--nattport" {
            findings.push(Finding::bad("UDP port 0 is none", format!("choose another one with {flag}")));
        }
        if let Some((pod, node)) =
            pods.iter().filter(|pod| port != 0 && !is_ours(pod)).find_map(|pod| takes(pod, port))
        {
            findings.push(Finding::bad(
                format!("UDP port {port} for {what} is used by pod {pod} on node {node}"),
                format!("choose another one with {flag}, or label another node {GATEWAY_LABEL}=true"),
            ));
        }
    }
    if cable == nat_discovery {
        findings.push(Finding::bad(
            format!("cables and NAT discovery cannot share UDP port {cable}"),
            "choose another one with --nattport",
        ));
    }
    findings
}

fn is_ours(pod: &Value) -> bool {
    let app = &pod["metadata"]["labels"]["app"];
    app == GATEWAY || app == ROUTE_AGENT
}

/// The pod's name and node, if it takes this UDP port of its node.
fn takes(pod: &Value, port: u16) -> Option<(String, String)> {
    let on_host = pod["spec"]["hostNetwork"] == true;
    let ports =
        pod["spec"]["containers"].as_array()?.iter().filter_map(|container| container["ports"].as_array());
    let is_it = |entry: &Value| {
        let number = if on_host { &entry["containerPort"] } else { &entry["hostPort"] };
        entry["protocol"] == "UDP" && *number == port
    };
    if !ports.flatten().any(is_it) || matches!(pod["status"]["phase"].as_str(), Some("Succeeded" | "Failed"))
    {
        return None;
    }
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let name = format!("{}/{}", text(&pod["metadata"]["namespace"]), text(&pod["metadata"]["name"]));
    Some((name, text(&pod["spec"]["nodeName"])))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn node(name: &str, role: Option<&str>, is_ready: bool) -> Value {
        let mut labels = json!({});
        if let Some(role) = role {
            labels[format!("node-role.kubernetes.io/{role}")] = json!("");
        }
        let status = if is_ready { "True" } else { "False" };
        json!({"metadata": {"name": name, "labels": labels},
            "status": {"conditions": [{"type": "Ready", "status": status}]}})
    }

    fn names(list: &[&str]) -> Vec<String> {
        list.iter().map(|name| (*name).to_owned()).collect()
    }

    #[test]
    fn a_worker_is_chosen_and_the_control_plane_only_without_one() {
        let control = node("a-control", Some("control-plane"), true);
        let nodes = [control.clone(), node("w2", None, true), node("w1", None, true), node("b", None, false)];
        assert_eq!(gateway_nodes(&nodes), GatewayNodes::Candidates(names(&["w1", "w2", "b"])));
        assert_eq!(gateway_nodes(&[control]), GatewayNodes::Candidates(names(&["a-control"])));
        assert_eq!(gateway_nodes(&[]), GatewayNodes::None);
    }

    #[test]
    fn virtual_nodes_are_left_out_and_told() {
        let mut away = node("aci-1", None, true);
        away["metadata"]["labels"]["type"] = json!("virtual-kubelet");
        let nodes = [away.clone(), node("control", Some("control-plane"), true)];
        assert_eq!(gateway_nodes(&nodes), GatewayNodes::Candidates(names(&["control"])));
        assert_eq!(gateway_nodes(&[away]), GatewayNodes::None);
        assert!(virtual_nodes(&nodes).unwrap().text.ends_with("(1): aci-1"));
        assert!(virtual_nodes(&nodes[1..]).is_none());
    }

    #[test]
    fn labelled_nodes_are_left_as_they_are() {
        let mut labelled = node("w2", Some("master"), true);
        labelled["metadata"]["labels"][GATEWAY_LABEL] = json!("true");
        let nodes = [node("w1", None, true), labelled];
        assert_eq!(gateway_nodes(&nodes), GatewayNodes::Labelled(names(&["w2"])));
    }

    fn pod(app: &str, port: &Value, on_host: bool) -> Value {
        json!({"metadata": {"namespace": "n", "name": "p", "labels": {"app": app}},
            "spec": {"nodeName": "w1", "hostNetwork": on_host, "containers": [{"name": "x"}, {"ports": [port]}]}})
    }

    #[test]
    fn a_port_that_another_pod_has_is_named_with_the_pod() {
        let host = json!({"protocol": "UDP", "containerPort": 4500});
        let mapped = json!({"protocol": "UDP", "containerPort": 1, "hostPort": 4490});
        let findings = ports(4500, 4490, &[pod("x", &host, true), pod("y", &mapped, false)]);
        assert_eq!(findings.len(), 2, "{findings:?}");
        assert_eq!(findings[0].text, "UDP port 4500 for the cables is used by pod n/p on node w1");
        let tcp = json!({"protocol": "TCP", "containerPort": 4500});
        for harmless in [pod(GATEWAY, &host, true), pod("x", &host, false), pod("x", &tcp, true)] {
            assert_eq!(ports(4500, 4490, &[harmless]), []);
        }
    }

    #[test]
    fn ports_that_cannot_be_are_refused() {
        assert_eq!(ports(4500, 0, &[]), []);
        for (cable, discovery) in [(0, 4490), (4800, 4490), (4500, 4800), (4490, 4490)] {
            assert_eq!(ports(cable, discovery, &[]).len(), 1, "{cable} {discovery}");
        }
    }
}
