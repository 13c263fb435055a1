//! Which nodes become gateways.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use trieste_control::steps::{Outcome, Record, Steps};

use crate::error::DeployError;
use crate::object_ref::ObjectRef;
use crate::objects::names::GATEWAY_LABEL;
use crate::preflight::GatewayNodes;
use crate::server::Server;

/// Kubernetes' label of nodes that says in which zone they are.
const ZONE: &str = "topology.kubernetes.io/zone";

/// Asks somebody for one of several; `None` if nobody is there to answer.
pub(super) type Question<'q> = &'q mut dyn FnMut(&str, &[String]) -> Option<usize>;

/// Chooses the nodes that are to be labelled so that there are as many gateways as are `wanted`. Where one is wanted and none is
/// there, somebody is asked. Returns also whether there is to be any gateway.
pub(super) fn choose(
    nodes: &[Value],
    wanted: usize,
    ask: Question<'_>,
    steps: &mut dyn Steps,
) -> (Vec<String>, bool) {
    let found = crate::preflight::gateway_nodes(nodes);
    let labels = missing(&found, nodes, wanted, ask, steps);
    let has_gateway = !labels.is_empty() || matches!(found, GatewayNodes::Labelled(_));
    (labels, has_gateway)
}

/// Returns the nodes to label so that there are `wanted` gateways, as `join` chooses them where nobody is there to be asked.
pub fn more_gateways(nodes: &[Value], wanted: usize) -> Vec<String> {
    if wanted == 0 {
        return Vec::new();
    }
    let found = crate::preflight::gateway_nodes(nodes);
    missing(&found, nodes, wanted, &mut |_, _| None, &mut Record::default())
}

/// Chooses the nodes that are to be labelled.
fn missing(
    found: &GatewayNodes,
    nodes: &[Value],
    wanted: usize,
    ask: Question<'_>,
    steps: &mut dyn Steps,
) -> Vec<String> {
    match found {
        GatewayNodes::Labelled(names) => {
            let text = format!("There are {} node(s) labeled as gateways: {}", names.len(), names.join(", "));
            steps.remark(Outcome::Success, &text);
            let missing = wanted.saturating_sub(names.len());
            if missing == 0 {
                return Vec::new();
            }
            let others: Vec<Value> =
                nodes.iter().filter(|node| !names.contains(&name(node))).cloned().collect();
            match crate::preflight::gateway_nodes(&others) {
                GatewayNodes::Candidates(candidates) => pick(names, &candidates, nodes, missing),
                GatewayNodes::Labelled(_) | GatewayNodes::None => Vec::new(),
            }
        }
        GatewayNodes::None => Vec::new(),
        GatewayNodes::Candidates(_) if wanted == 0 => {
            let text = format!(
                "No node is labeled as a gateway; choose one with kubectl label node NODE {GATEWAY_LABEL}=true"
            );
            steps.remark(Outcome::Warning, &text);
            Vec::new()
        }
        GatewayNodes::Candidates(names) if wanted == 1 => one(names, ask, steps).into_iter().collect(),
        GatewayNodes::Candidates(names) => pick(&[], names, nodes, wanted),
    }
}

/// Chooses one node: the only one, the one that somebody chooses, or the first.
fn one(candidates: &[String], ask: Question<'_>, steps: &mut dyn Steps) -> Option<String> {
    let [only] = candidates else {
        let chosen = ask("Which node should be used as the gateway?", candidates);
        let name = candidates.get(chosen.unwrap_or(0))?;
        if chosen.is_none() {
            let text = format!(
                "Node {name} is going to run the gateway, the first of {}; another one: kubectl label node NODE \
                 {GATEWAY_LABEL}=true before joining",
                candidates.len()
            );
            steps.remark(Outcome::Success, &text);
        }
        return Some(name.clone());
    };
    Some(only.clone())
}

/// Chooses `count` of the candidates, each time the best of those whose zone has the fewest gateways.
fn pick(labelled: &[String], candidates: &[String], nodes: &[Value], count: usize) -> Vec<String> {
    let zone_of = |wanted: &String| {
        let found = nodes.iter().find(|node| name(node) == *wanted);
        found.and_then(|node| node["metadata"]["labels"][ZONE].as_str()).unwrap_or_default().to_owned()
    };
    let mut in_zone: BTreeMap<String, usize> = BTreeMap::new();
    for node in labelled {
        *in_zone.entry(zone_of(node)).or_default() += 1;
    }
    let mut left: Vec<&String> = candidates.iter().collect();
    let mut chosen = Vec::new();
    while chosen.len() < count {
        let occupied = |node: &&String| in_zone.get(&zone_of(node)).copied().unwrap_or(0);
        // Of equals the first, which is the best.
        let Some(best) = left.iter().copied().min_by_key(occupied) else { break };
        *in_zone.entry(zone_of(best)).or_default() += 1;
        left.retain(|node| *node != best);
        chosen.push(best.clone());
    }
    chosen
}

/// Labels nodes as gateways.
///
/// # Errors
/// [`DeployError`] naming the node.
pub(super) async fn label(
    local: &Server,
    nodes: &[String],
    steps: &mut dyn Steps,
) -> Result<(), DeployError> {
    for node in nodes {
        steps.begin(&format!("Labelling node \"{node}\" as a gateway"));
        let place = ObjectRef::cluster_wide("v1", "Node", node);
        local.merge(&place, &json!({"metadata": {"labels": {GATEWAY_LABEL: "true"}}})).await?;
        steps.end(Outcome::Success);
    }
    Ok(())
}

fn name(node: &Value) -> String {
    node["metadata"]["name"].as_str().unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(name: &str, zone: &str, is_gateway: bool) -> Value {
        let mut labels = json!({ZONE: zone});
        if is_gateway {
            labels[GATEWAY_LABEL] = json!("true");
        }
        json!({"metadata": {"name": name, "labels": labels},
            "status": {"conditions": [{"type": "Ready", "status": "True"}]}})
    }

    fn chosen(nodes: &[Value], wanted: usize) -> Vec<String> {
        choose(nodes, wanted, &mut |_, _| None, &mut Record::default()).0
    }

    #[test]
    fn as_many_nodes_as_are_missing_are_chosen_over_the_zones() {
        let none =
            [node("a1", "a", false), node("a2", "a", false), node("b1", "b", false), node("c1", "c", false)];
        assert_eq!(chosen(&none, 0), [""; 0]);
        assert_eq!(chosen(&none, 1), ["a1"]);
        assert_eq!(chosen(&none, 3), ["a1", "b1", "c1"]);
        assert_eq!(chosen(&none, 9), ["a1", "b1", "c1", "a2"]);
        let one = [node("a1", "a", true), node("a2", "a", false), node("b1", "b", false)];
        assert_eq!(chosen(&one, 0), [""; 0]);
        assert_eq!(chosen(&one, 1), [""; 0], "one is there");
        assert_eq!(chosen(&one, 2), ["b1"], "the other zone has none");
        assert_eq!(chosen(&[], 2), [""; 0]);
    }
}
