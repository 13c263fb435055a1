//! The broker's side of leaving: what gateways publish, and the member's account.

use serde_json::Value;
use trieste_control::steps::{Outcome, Steps};

use super::look::Member;
use super::options::Uninstall;
use crate::connect::{BrokerLogin, connect};
use crate::deploy_broker::decoded;
use crate::error::DeployError;
use crate::join::upstream_binding;
use crate::object_ref::ObjectRef;
use crate::objects::names::{BROKER_SECRET, cluster_account};
use crate::objects::{Secret, broker_member};
use crate::server::Server;
use crate::services::{self, Removed};

/// Leaves the broker. A broker that is away keeps nobody here: what stays there is told.
pub(super) async fn broker(
    server: &Server,
    account: Option<&Server>,
    member: &Member,
    options: &Uninstall,
    steps: &mut dyn Steps,
) -> Result<(), DeployError> {
    steps.begin("Leaving the broker");
    let id = member.cluster_id.as_str();
    let own = match account {
        Some(_) => None,
        None => own_access(server, member, &options.namespace).await?,
    };
    let mut has_account = account.is_some();
    let mut outcome = match account.or(own.as_ref()) {
        Some(broker) => leave(broker, has_account, member).await,
        None => Err(DeployError::refused("this cluster has no access to the broker (any more)", "")),
    };
    if let (true, Err(error)) = (has_account, &outcome)
        && let Some(own) = own_access(server, member, &options.namespace).await?
    {
        let text = format!("The join file's account is of no use: {error}; trying with the member's own");
        steps.remark(Outcome::Warning, &text);
        has_account = false;
        outcome = leave(&own, false, member).await;
    }
    let namespace = &member.broker_namespace;
    if let Ok(services) = &outcome {
        report(services, id, steps);
    }
    match outcome {
        Ok(_) if has_account => {}
        Ok(_) => steps.remark(
            Outcome::Warning,
            &format!(
                "The account of cluster {id} stays on the broker: --broker-info broker-info.subm would have removed \
                 it, or on the broker's cluster kubectl -n {namespace} delete serviceaccount {}",
                cluster_account(id)
            ),
        ),
        Err(error) => steps.remark(
            Outcome::Warning,
            &format!(
                "The broker was not left: {error}. There stay the account, the Cluster and the Endpoints of {id}, and \
                 the others keep trying to reach it; once the broker answers: trieste remove-member {id} on its cluster"
            ),
        ),
    }
    steps.end(Outcome::Success);
    Ok(())
}

/// With the member's own token, by which it can remove what it has published.
async fn own_access(
    server: &Server,
    member: &Member,
    namespace: &str,
) -> Result<Option<Server>, DeployError> {
    let secret = server.find(&ObjectRef::namespaced("v1", "Secret", namespace, BROKER_SECRET)).await?;
    let Some(secret) = secret else { return Ok(None) };
    let Some(token) = decoded(&secret, "token") else { return Ok(None) };
    let login = BrokerLogin {
        url: member.broker.clone(),
        ca: decoded(&secret, "ca.crt").unwrap_or_default(),
        token: Secret::new(token),
        insecure: member.is_insecure,
    };
    Ok(connect(&login).ok())
}

/// Leaves the broker. Returns what the cluster exported there, which its agent has removed if all went well.
async fn leave(
    broker: &Server,
    with_account: bool,
    member: &Member,
) -> Result<Result<Removed, DeployError>, DeployError> {
    remove_from_broker(broker, with_account, &member.cluster_id, &member.broker_namespace).await?;
    match services::remove(broker, &member.broker_namespace, &member.cluster_id).await {
        // Who may not read them has written none by the same account.
        Err(DeployError::Api { code: Some(403), .. }) if !with_account => Ok(Ok(Removed::default())),
        services => Ok(services),
    }
}

/// Reports what became of exported services, if there were any.
fn report(services: &Result<Removed, DeployError>, id: &str, steps: &mut dyn Steps) {
    match services {
        Ok(removed) if removed.is_nothing() => {}
        Ok(removed) => steps.remark(Outcome::Success, &removed.to_string()),
        Err(error) => steps.remark(
            Outcome::Warning,
            &format!(
                "What cluster {id} exports stays on the broker, if its agent has not removed it: {error}; on the broker's \
                 cluster: trieste remove-member {id} --force"
            ),
        ),
    }
}

/// Removes what a cluster has on the broker; its account, with which it could put it back, too, if that is asked for.
///
/// # Errors
/// [`DeployError`]; the next run goes on from there.
pub(crate) async fn remove_from_broker(
    broker: &Server,
    with_account: bool,
    cluster_id: &str,
    broker_namespace: &str,
) -> Result<(), DeployError> {
    for place in on_broker(broker, with_account, cluster_id, broker_namespace).await? {
        broker.delete(&place).await?;
    }
    Ok(())
}

/// Returns what a cluster has on the broker, in the order in which it goes; its account and rights, too, if they are asked for.
///
/// # Errors
/// [`DeployError::Api`].
pub(crate) async fn on_broker(
    broker: &Server,
    with_account: bool,
    cluster_id: &str,
    broker_namespace: &str,
) -> Result<Vec<ObjectRef>, DeployError> {
    let (mut found, entry) = (Vec::new(), ObjectRef::of);
    for kind in ["Endpoint", "Cluster"] {
        let all = broker.list("submariner.io/v1", kind, Some(broker_namespace), "").await?;
        let is_own = |object: &&Value| object["spec"]["cluster_id"] == cluster_id;
        found.extend(all.iter().filter(is_own).filter_map(entry));
    }
    if with_account {
        let account = broker_member(cluster_id, broker_namespace);
        let name = upstream_binding(cluster_id);
        let binding =
            ObjectRef::namespaced("rbac.authorization.k8s.io/v1", "RoleBinding", broker_namespace, &name);
        let places = account.iter().rev().filter_map(|manifest| entry(manifest.as_value()));
        for place in std::iter::once(binding).chain(places) {
            if broker.find(&place).await?.is_some() {
                found.push(place);
            }
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use trieste_control::api::label;
    use trieste_control::steps::Record;

    use super::*;
    use crate::objects::names::BROKER_NAMESPACE;
    use crate::server::fake::Fake;

    #[tokio::test]
    async fn what_the_agent_has_left_goes_with_the_rest_and_is_reported() {
        let fake = Fake::default();
        for cluster in ["east", "west"] {
            fake.put(
                json!({"apiVersion": "submariner.io/v1", "kind": "Cluster", "spec": {"cluster_id": cluster},
                "metadata": {"namespace": BROKER_NAMESPACE, "name": cluster}}),
            );
            fake.put(json!({"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "metadata": {
                "namespace": BROKER_NAMESPACE, "name": format!("web-{cluster}"), "labels": {
                    label::SOURCE_CLUSTER: cluster, label::SERVICE_NAME: "web", label::SOURCE_NAMESPACE: "shop"}}}));
        }
        let member = Member {
            cluster_id: "west".to_owned(),
            broker: "b:1".to_owned(),
            broker_namespace: BROKER_NAMESPACE.to_owned(),
            is_insecure: false,
        };
        for expected in [Some("(shop/web): 1 EndpointSlices"), None] {
            let mut record = Record::default();
            record.begin("Leaving the broker");
            report(&leave(&fake.server(), false, &member).await.unwrap(), "west", &mut record);
            let remark = record.steps[0].remarks.first().map(|(_, text)| text.clone());
            assert_eq!(remark.is_some(), expected.is_some());
            assert!(expected.is_none_or(|text| remark.unwrap_or_default().contains(text)));
        }
        for (version, kind) in [("submariner.io/v1", "Cluster"), ("discovery.k8s.io/v1", "EndpointSlice")] {
            let left = fake.server().list(version, kind, Some(BROKER_NAMESPACE), "").await.unwrap();
            let names: Vec<&str> = left.iter().filter_map(|left| left["metadata"]["name"].as_str()).collect();
            assert!(matches!(names[..], ["east" | "web-east"]), "{names:?}");
        }
    }
}
