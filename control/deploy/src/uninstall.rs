//! Taking a member out of its set, or a broker away, without a trace.
//!
//! ```text
//!   gateways cleaned ──▶ left the broker ──▶ other nodes cleaned ──▶ objects ──▶ namespace, node labels, definitions
//! ```
//!
//! Gateways go first: peers stop sending, and what is still sent here for a remote cluster ends in the guards of each
//! node instead of leaving in clear; those go last. Every step looks at what is there, so that a run that was
//! interrupted is finished by the next one.

mod clean;
mod leave;
mod look;

use std::time::Duration;

use serde_json::{Value, json};
use trieste_control::steps::{Outcome, Steps};

pub use look::{Found, look};

use crate::apply::remove;
use crate::error::DeployError;
use crate::objects::names::{GATEWAY, GATEWAY_LABEL, MANAGED_BY_LABEL, ROUTE_AGENT, TRIESTE};
use crate::place::Place;
use crate::server::Server;

/// What is asked for.
#[derive(Debug, Clone)]
pub struct Uninstall {
    /// The member's namespace.
    pub namespace: String,
    /// The broker's namespace, if this cluster is one.
    pub broker_namespace: String,
    /// How long nodes may take to be cleaned.
    pub patience: Duration,
    /// Whether nodes that cannot be cleaned are left as they are.
    pub force: bool,
}

/// Removes what [`look`] has found. `account` speaks to the broker with the rights of `broker-info.subm`; without it
/// the member's account there stays, and is told.
///
/// # Errors
/// [`DeployError`]; the next run goes on from there.
pub async fn uninstall(
    server: &Server,
    account: Option<&Server>,
    found: &Found,
    options: &Uninstall,
    steps: &mut dyn Steps,
) -> Result<(), DeployError> {
    clean::nodes(server, options, GATEWAY, "Cleaning the gateway nodes", steps).await?;
    if let Some(member) = &found.member {
        let local = found.is_broker_of(member).then_some(server);
        leave::broker(server, account.or(local), member, options, steps).await?;
    }
    clean::nodes(server, options, ROUTE_AGENT, "Cleaning all nodes", steps).await?;
    // Whatever clusters are left on the broker, one of them may be the one that has just left.
    let stays = look::registered(server, &options.broker_namespace, found.member.as_ref()).await?;

    steps.begin("Deleting what was installed");
    let mut count = 0;
    for place in &found.objects {
        if stays.is_empty() || !found.is_brokers(place) {
            release(server, place).await?;
            count += usize::from(remove_with_reason(server, place).await?);
        }
    }
    steps.remark(Outcome::Success, &format!("Objects: {count} deleted"));
    steps.end(Outcome::Success);

    unlabel(server, steps).await?;
    if found.has_broker && !stays.is_empty() {
        let text = format!(
            "The broker stays, with the definitions: these clusters are registered with it: {}",
            stays.join(", ")
        );
        steps.remark(Outcome::Warning, &text);
        return Ok(());
    }
    definitions(server, steps).await
}

/// Removes an object; what keeps a namespace from going is in its conditions.
async fn remove_with_reason(server: &Server, place: &Place) -> Result<bool, DeployError> {
    match remove(server, place).await {
        Err(DeployError::NotInTime { what, seconds, mut state, next }) if place.kind == "Namespace" => {
            let found = server.find(place).await?.unwrap_or_default();
            let conditions = found["status"]["conditions"].as_array().cloned().unwrap_or_default();
            let messages = conditions.iter().filter_map(|condition| condition["message"].as_str());
            state.extend(messages.map(str::to_owned));
            Err(DeployError::NotInTime { what, seconds, state, next })
        }
        outcome => outcome,
    }
}

/// Takes the mark of upstream's operator off an object that nobody else will: there is no operator (any more).
async fn release(server: &Server, place: &Place) -> Result<(), DeployError> {
    if place.kind != "Submariner" && place.kind != "ServiceDiscovery" {
        return Ok(());
    }
    let Some(object) = server.find(place).await? else { return Ok(()) };
    let left: Vec<&Value> = object["metadata"]["finalizers"]
        .as_array()
        .into_iter()
        .flatten()
        .filter(|finalizer| *finalizer != "controllers.submariner.io/cleanup")
        .collect();
    if object["metadata"]["finalizers"].as_array().is_some_and(|all| all.len() != left.len()) {
        server.merge(place, &json!({"metadata": {"finalizers": left}})).await?;
    }
    Ok(())
}

async fn unlabel(server: &Server, steps: &mut dyn Steps) -> Result<(), DeployError> {
    let selector = format!("labelSelector={}", GATEWAY_LABEL.replace('/', "%2F"));
    let nodes = server.list("v1", "Node", None, &selector).await?;
    if nodes.is_empty() {
        return Ok(());
    }
    steps.begin("Removing the gateway label from nodes");
    for place in nodes.iter().filter_map(Place::of) {
        server.merge(&place, &json!({"metadata": {"labels": {GATEWAY_LABEL: null}}})).await?;
    }
    steps.end(Outcome::Success);
    Ok(())
}

/// Definitions of upstream's kinds, whoever has installed them, as upstream's tool does; those of other projects stay.
async fn definitions(server: &Server, steps: &mut dyn Steps) -> Result<(), DeployError> {
    let found = look::definitions(server).await?;
    if found.is_empty() {
        return Ok(());
    }
    steps.begin("Deleting the definitions");
    for place in &found {
        remove(server, place).await?;
    }
    steps.end(Outcome::Success);
    Ok(())
}

/// The query for everything that we have applied.
fn ours() -> String {
    format!("labelSelector={}%3D{TRIESTE}", MANAGED_BY_LABEL.replace('/', "%2F"))
}
