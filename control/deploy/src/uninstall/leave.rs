//! The broker's side of leaving: what gateways publish, and the member's account.

use serde_json::Value;
use trieste_control::steps::{Outcome, Steps};

use super::Uninstall;
use super::look::Member;
use crate::connect::{BrokerLogin, connect};
use crate::deploy_broker::decoded;
use crate::error::DeployError;
use crate::join::upstream_binding;
use crate::objects::names::{BROKER_SECRET, cluster_account};
use crate::objects::{Secret, broker_member};
use crate::place::Place;
use crate::server::Server;

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
    match outcome {
        Ok(()) if has_account => {}
        Ok(()) => steps.remark(
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
    let secret = server.find(&Place::namespaced("v1", "Secret", namespace, BROKER_SECRET)).await?;
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

async fn leave(broker: &Server, with_account: bool, member: &Member) -> Result<(), DeployError> {
    remove_from_broker(broker, with_account, &member.cluster_id, &member.broker_namespace).await
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
    for kind in ["Endpoint", "Cluster"] {
        let all = broker.list("submariner.io/v1", kind, Some(broker_namespace), "").await?;
        let is_own = |object: &&Value| object["spec"]["cluster_id"] == cluster_id;
        for place in all.iter().filter(is_own).filter_map(Place::of) {
            broker.delete(&place).await?;
        }
    }
    if with_account {
        let account = broker_member(cluster_id, broker_namespace);
        let name = upstream_binding(cluster_id);
        let binding =
            Place::namespaced("rbac.authorization.k8s.io/v1", "RoleBinding", broker_namespace, &name);
        let places = account.iter().rev().filter_map(|manifest| Place::of(manifest.as_value()));
        for place in std::iter::once(binding).chain(places) {
            if broker.find(&place).await?.is_some() {
                broker.delete(&place).await?;
            }
        }
    }
    Ok(())
}
