//! A member's choices, out of what is installed: with its own token and key.

use serde_json::Value;

use crate::deploy_broker::decoded;
use crate::error::DeployError;
use crate::join::{Earlier, cidrs};
use crate::object_ref::ObjectRef;
use crate::objects::names::{BROKER_SECRET, CLUSTERSET_IP_RANGE, PSK_SECRET, ROUTE_AGENT};
use crate::objects::{BrokerAccess, MemberOptions, Secret};
use crate::pods::variable;
use crate::server::Server;

/// Reads the choices of the member that an earlier join has made.
///
/// # Errors
/// [`DeployError`] if a Secret is missing, or the server does not answer.
pub(super) async fn read(
    server: &Server,
    namespace: &str,
    earlier: &Earlier,
) -> Result<MemberOptions, DeployError> {
    let access = secret(server, namespace, BROKER_SECRET).await?;
    let key = secret(server, namespace, PSK_SECRET).await?;
    let text = |field: &str| earlier.spec(field).as_str().unwrap_or_default();
    let token = value(&access, BROKER_SECRET, "token")?;
    let mut broker = BrokerAccess::new(text("brokerK8sApiServer"), decoded(&access, "ca.crt"), token);
    text("brokerK8sRemoteNamespace").clone_into(&mut broker.namespace);
    broker.insecure = earlier.is_insecure();
    let id = earlier.cluster_id().unwrap_or_default();
    let mut member = MemberOptions::new(id, broker, value(&key, PSK_SECRET, "psk")?);
    namespace.clone_into(&mut member.namespace);
    earlier.settle(&mut member);
    member.service_discovery = earlier.spec("serviceDiscoveryEnabled") == true;
    member.halt_on_certificate_error = earlier.spec("haltOnCertificateError") != false;
    member.global_cidrs = cidrs(text("globalCIDR"));
    member.clusterset_ip_cidrs = cidrs(text("clustersetIPCIDR"));
    member.clusterset_ips_by_default = earlier.spec("clustersetIPEnabled") == true;
    member.clusterset_ip_ranges = ranges(server, namespace).await?;
    let labels = earlier.spec("nodeSelector").as_object().into_iter().flatten();
    let labels = labels.filter_map(|(label, value)| Some((label.clone(), value.as_str()?.to_owned())));
    member.node_selector = labels.collect();
    Ok(member)
}

async fn secret(server: &Server, namespace: &str, name: &str) -> Result<Value, DeployError> {
    let place = ObjectRef::namespaced("v1", "Secret", namespace, name);
    server.find(&place).await?.ok_or_else(|| incomplete(&format!("{place} is not there")))
}

fn value(secret: &Value, name: &str, key: &str) -> Result<Secret, DeployError> {
    let bytes = decoded(secret, key).filter(|bytes| !bytes.is_empty());
    bytes.map(Secret::new).ok_or_else(|| incomplete(&format!("Secret {name} has no key {key}")))
}

fn incomplete(what: &str) -> DeployError {
    DeployError::refused(
        what,
        "trieste join with the set's broker-info.subm writes it anew, and upgrades as this command does",
    )
}

/// Reads where the set's clusterset IPs are taken from: route agents have it.
async fn ranges(server: &Server, namespace: &str) -> Result<Vec<ipnet::IpNet>, DeployError> {
    let place = ObjectRef::namespaced("apps/v1", "DaemonSet", namespace, ROUTE_AGENT);
    let set = server.find(&place).await?.unwrap_or_default();
    Ok(variable(&set, CLUSTERSET_IP_RANGE).map(cidrs).unwrap_or_default())
}
