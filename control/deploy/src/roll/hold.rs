//! Keeping Kubernetes from replacing gateways by itself, and route agents too many at a time.

use serde_json::{Value, json};
use trieste_control::api::annotation;

use crate::error::DeployError;
use crate::object_ref::ObjectRef;
use crate::objects::Manifest;
use crate::objects::names::{GATEWAY, ROUTE_AGENT};
use crate::pods::{are_ours, not_ready_with, status};
use crate::server::Server;

/// Where a DaemonSet has how its pods are replaced.
const STRATEGY: &str = "updateStrategy";

/// Changes the DaemonSets among `wanted` so that applying them replaces no gateway's pod and a quarter of the route agents' at a time,
/// where it would replace any, or where an earlier roll was interrupted. Returns them as they were wanted, for after the roll; none
/// where there is nothing to roll. DaemonSets that are not ours, and gateways none of which is ready, are not held.
///
/// # Errors
/// [`DeployError`] if the server does not answer.
pub(crate) async fn hold(
    server: &Server,
    namespace: &str,
    wanted: &mut [Manifest],
) -> Result<Vec<Manifest>, DeployError> {
    let mut released = Vec::new();
    for (name, is_gateway) in [(ROUTE_AGENT, false), (GATEWAY, true)] {
        let is_it = |manifest: &&mut Manifest| manifest.kind() == "DaemonSet" && manifest.name() == name;
        let Some(manifest) = wanted.iter_mut().find(is_it) else { continue };
        let Some(place) = ObjectRef::of(manifest.as_value()) else { continue };
        let Some(found) = server.find(&place).await? else { continue };
        if !are_ours(&found) || status(&found, "numberReady") == 0 {
            continue;
        }
        let is_interrupted = match is_gateway {
            true => is_held(&found) || has_mark(server, namespace).await?,
            false => status(&found, "updatedNumberScheduled") < status(&found, "desiredNumberScheduled"),
        };
        if !is_interrupted && !server.would_change(manifest.as_value(), &found, "/spec/template").await? {
            continue;
        }
        let strategy = match is_gateway {
            true => json!({"type": "OnDelete"}),
            false => {
                let not_ready = not_ready_with(server, namespace, name).await?.len() as u64;
                let most = status(&found, "desiredNumberScheduled").div_ceil(4).max(1) + not_ready;
                json!({"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": most}})
            }
        };
        released.push(manifest.clone());
        let mut value = manifest.as_value().clone();
        value["spec"][STRATEGY] = strategy;
        *manifest = Manifest::new(value);
    }
    Ok(released)
}

/// Returns `true` if Kubernetes replaces no pod of a DaemonSet by itself.
fn is_held(set: &Value) -> bool {
    set["spec"][STRATEGY]["type"] == "OnDelete"
}

/// Returns `true` if a gateway is drained for a roll.
async fn has_mark(server: &Server, namespace: &str) -> Result<bool, DeployError> {
    let gateways = server.list("submariner.io/v1", "Gateway", Some(namespace), "").await?;
    let is_marked =
        |gateway: &Value| gateway["metadata"]["annotations"][annotation::DRAINED_FOR_UPDATE] == "true";
    Ok(gateways.iter().any(is_marked))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::objects::names::MANAGED_BY_LABEL;
    use crate::objects::{self, Image, MemberOptions};
    use crate::server::fake::Fake;

    fn set_of(manifests: &[Manifest], name: &str) -> Value {
        let is_it = |manifest: &&Manifest| manifest.kind() == "DaemonSet" && manifest.name() == name;
        manifests.iter().find(is_it).unwrap().as_value().clone()
    }

    fn present(member: &MemberOptions, name: &str, ready: u64) -> Value {
        let mut set = set_of(&objects::member(member), name);
        set["status"] =
            json!({"numberReady": ready, "desiredNumberScheduled": 9, "updatedNumberScheduled": 9});
        set
    }

    /// Returns the names of the DaemonSets that are held, and how, for another image than that of what is there.
    async fn held(found: &[Value], image: &str) -> Vec<(String, Value)> {
        let fake = Fake::default();
        found.iter().for_each(|found| fake.put(found.clone()));
        let member = MemberOptions { image: Image::new(image), ..objects::example() };
        let mut wanted = objects::member(&member);
        let released = hold(&fake.server(), &member.namespace, &mut wanted).await.unwrap();
        for set in &released {
            assert_eq!(set.as_value()["spec"][STRATEGY]["type"], "RollingUpdate");
        }
        let strategy = |set: &Manifest| set_of(&wanted, set.name())["spec"][STRATEGY].clone();
        released.iter().map(|set| (set.name().to_owned(), strategy(set))).collect()
    }

    #[tokio::test]
    async fn pods_are_kept_only_where_applying_would_replace_some_that_are_ready() {
        let member = objects::example();
        let (same, other) = (member.image.reference.as_str(), "localhost/trieste:other");
        let on_delete = || json!({"type": "OnDelete"});
        let gateway = present(&member, GATEWAY, 2);
        assert_eq!(held(&[], other).await, [], "there is nothing to keep");
        assert_eq!(held(std::slice::from_ref(&gateway), same).await, []);
        let is_kept = [(GATEWAY.to_owned(), on_delete())];
        assert_eq!(held(std::slice::from_ref(&gateway), other).await, is_kept);
        let mut interrupted = gateway.clone();
        interrupted["spec"][STRATEGY] = on_delete();
        assert_eq!(held(&[interrupted], same).await, is_kept, "it goes on");
        let marked = json!({"apiVersion": "submariner.io/v1", "kind": "Gateway", "metadata": {"name": "a",
            "namespace": member.namespace, "annotations": {annotation::DRAINED_FOR_UPDATE: "true"}}});
        assert_eq!(held(&[gateway.clone(), marked], same).await, is_kept, "its mark is taken back");
        assert_eq!(held(&[present(&member, GATEWAY, 0)], other).await, []);
        let mut theirs = gateway;
        theirs["spec"]["template"]["metadata"]["labels"][MANAGED_BY_LABEL] = json!("somebody");
        assert_eq!(held(&[theirs], other).await, []);
    }

    #[tokio::test]
    async fn route_agents_are_replaced_a_quarter_at_a_time_whatever_nodes_are_away() {
        let member = objects::example();
        let paced = |most: u64| {
            let strategy = json!({"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": most}});
            [(ROUTE_AGENT.to_owned(), strategy)]
        };
        let other = "localhost/trieste:other";
        let agents = present(&member, ROUTE_AGENT, 9);
        assert_eq!(held(std::slice::from_ref(&agents), &member.image.reference).await, []);
        assert_eq!(held(std::slice::from_ref(&agents), other).await, paced(3));
        let absent = [
            json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"}}),
            json!({"apiVersion": "v1", "kind": "Pod", "spec": {"nodeName": "n"}, "metadata": {"name": "p",
                "namespace": member.namespace, "labels": {"app": ROUTE_AGENT}}}),
        ];
        assert_eq!(held(&[std::slice::from_ref(&agents), &absent[..]].concat(), other).await, paced(4));
        let mut interrupted = agents;
        interrupted["status"]["updatedNumberScheduled"] = json!(3);
        assert_eq!(held(&[interrupted], &member.image.reference).await, paced(3));
    }
}
