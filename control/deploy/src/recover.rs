//! Making `broker-info.subm` anew, of what the broker and a member have.

use serde_json::Value;
use trieste_control::steps::{Outcome, Steps};

use crate::broker_info::{BrokerInfo, SERVICE_DISCOVERY, checked_url};
use crate::deploy_broker::{decoded, other_broker, token_of};
use crate::error::DeployError;
use crate::object_ref::ObjectRef;
use crate::objects::Secret;
use crate::objects::names::{BROKER, BROKER_ADMIN, PSK_SECRET, SUBMARINER, broker_admin_token};
use crate::psk;
use crate::server::Server;

/// Where to look.
#[derive(Debug, Clone)]
pub struct Recover {
    /// The broker's namespace.
    pub broker_namespace: String,
    /// The member's namespace.
    pub namespace: String,
    /// How members reach the broker: `https://HOST:PORT`; `None` takes what a member says.
    pub url: Option<String>,
    /// The address of the broker's cluster in the kubeconfig.
    pub context_url: String,
}

/// Makes the file's content anew: the account's token from the broker, the key from a member. Both can be one cluster.
///
/// # Errors
/// [`DeployError::Refused`] saying what is missing and where it may be.
pub async fn recover(
    broker: &Server,
    member: Option<&Server>,
    options: &Recover,
    steps: &mut dyn Steps,
) -> Result<BrokerInfo, DeployError> {
    steps.begin("Retrieving the broker's settings and the token of its account");
    let namespace = options.broker_namespace.as_str();
    let resource = ObjectRef::namespaced("submariner.io/v1alpha1", "Broker", namespace, BROKER);
    let resource = broker.find(&resource).await?.ok_or_else(|| {
        DeployError::refused(
            format!("{} is no broker: it has no {resource}", broker.name()),
            "name the broker's cluster with --context",
        )
    })?;
    let client_token = token(broker, namespace).await?;
    steps.end(Outcome::Success);

    steps.begin("Retrieving the cluster set's key");
    let member = member.unwrap_or(broker);
    let place = ObjectRef::namespaced("submariner.io/v1alpha1", "Submariner", &options.namespace, SUBMARINER);
    let submariner = member.find(&place).await?;
    if let Some(other) = submariner.as_ref().and_then(|object| other_broker(object, &client_token)) {
        return Err(DeployError::refused(
            format!(
                "{} is a member of the broker {other}, not of {} (namespace {namespace})",
                member.name(),
                broker.name()
            ),
            "its key is another set's: name a member of this broker with --member-context",
        ));
    }
    let key = key(member, &options.namespace, submariner.as_ref()).await?;
    steps.end(Outcome::Success);
    let url = options.url.clone().or_else(|| said_by(submariner.as_ref()));
    let list = |field: &str| {
        let texts = resource["spec"][field].as_array()?.iter();
        Some(texts.filter_map(Value::as_str).map(str::to_owned).collect::<Vec<_>>())
    };
    let components = list("components").unwrap_or_default();
    Ok(BrokerInfo {
        broker_url: checked_url(&url.unwrap_or_else(|| options.context_url.clone()))?,
        client_token,
        psk: key,
        service_discovery: components.iter().any(|name| name == SERVICE_DISCOVERY),
        components,
        custom_domains: list("defaultCustomDomains").filter(|domains| !domains.is_empty()),
    })
}

/// How a member reaches the broker is how others can: a kubeconfig's address may be good here only.
fn said_by(submariner: Option<&Value>) -> Option<String> {
    let server = submariner?["spec"]["brokerK8sApiServer"].as_str()?;
    (!server.is_empty()).then(|| server.to_owned())
}

/// The token of the account by which clusters join, under our name of its Secret or upstream's, which varies.
async fn token(broker: &Server, namespace: &str) -> Result<crate::broker_info::ClientToken, DeployError> {
    let ours = broker.find(&ObjectRef::namespaced("v1", "Secret", namespace, &broker_admin_token())).await?;
    if let Some(token) = ours.and_then(|secret| token_of(&secret, namespace)) {
        return Ok(token);
    }
    let all = broker.list("v1", "Secret", Some(namespace), "").await?;
    let is_admins = |secret: &&Value| {
        secret["type"] == "kubernetes.io/service-account-token"
            && secret["metadata"]["annotations"]["kubernetes.io/service-account.name"] == BROKER_ADMIN
    };
    all.iter().filter(is_admins).find_map(|secret| token_of(secret, namespace)).ok_or_else(|| {
        DeployError::refused(
            format!("{} has no token of the account {BROKER_ADMIN}", broker.name()),
            "trieste deploy-broker on the broker's cluster makes one, and keeps everything else",
        )
    })
}

/// Ours and newer releases of upstream keep the key in a Secret, older ones in the Submariner object.
async fn key(member: &Server, namespace: &str, submariner: Option<&Value>) -> Result<Secret, DeployError> {
    let named = submariner.and_then(|object| object["spec"]["ceIPSecPSKSecret"].as_str());
    let name = named.filter(|name| !name.is_empty()).unwrap_or(PSK_SECRET);
    let secret = member.find(&ObjectRef::namespaced("v1", "Secret", namespace, name)).await?;
    let from_secret = secret.and_then(|secret| decoded(&secret, "psk")).and_then(psk::checked);
    let inline = || {
        use base64::Engine as _;
        let text = submariner?["spec"]["ceIPSecPSK"].as_str()?;
        psk::checked(base64::engine::general_purpose::STANDARD.decode(text).ok()?)
    };
    from_secret.or_else(inline).ok_or_else(|| {
        DeployError::refused(
            format!("{} does not have the cluster set's key: it is no member", member.name()),
            "name a member's cluster with --member-context",
        )
    })
}
