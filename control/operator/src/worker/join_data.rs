//! The join data that a broker publishes.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use trieste_control::api::{BrokerInfoRef, BrokerInfoSource};
use trieste_deploy::broker_info::BrokerInfo;
use trieste_deploy::objects::names::BROKER_NAMESPACE;
use trieste_deploy::{DeployError, ObjectRef, Server};

use super::failure::Failure;

/// Returns the object that join data is in.
pub(super) fn place(source: &BrokerInfoRef) -> ObjectRef {
    let kind = match source.kind {
        BrokerInfoSource::Secret => "Secret",
        BrokerInfoSource::ConfigMap => "ConfigMap",
    };
    ObjectRef::namespaced("v1", kind, &source.namespace, &source.name)
}

/// Reads a broker's join data.
pub(super) async fn read_broker_info(server: &Server, source: &BrokerInfoRef) -> Result<BrokerInfo, Failure> {
    let place = place(source);
    let missing = |message: String| Failure::Missing { reason: "BrokerInfoMissing", message };
    let Some(found) = server.find(&place).await? else {
        return Err(missing(format!(
            "{place} is not there: copy the Secret {} that the broker's Fabric publishes in {BROKER_NAMESPACE} of its cluster",
            source.name
        )));
    };
    let text = found["data"][&source.key].as_str();
    let text = text.ok_or_else(|| missing(format!("{place} has no key {}", source.key)))?;
    let content = match source.kind {
        BrokerInfoSource::Secret => STANDARD.decode(text).unwrap_or_default(),
        BrokerInfoSource::ConfigMap => text.as_bytes().to_vec(),
    };
    Ok(BrokerInfo::parse(&content).map_err(DeployError::from)?)
}
