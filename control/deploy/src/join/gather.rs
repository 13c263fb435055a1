//! What a join reads before it decides.

use serde_json::{Value, json};
use trieste_control::api::ClusterSpec;

use super::register::registration;
use crate::apply::missing_rights;
use crate::error::DeployError;
use crate::globalnet;
use crate::objects::names::{GATEWAY_LABEL, GLOBALNET_INFO, MEMBER_ROLE, SUBMARINER, cluster_account};
use crate::objects::{Manifest, MemberOptions};
use crate::place::Place;
use crate::preflight::{self, Finding, GatewayNodes, Membership, Others, Registration};
use crate::server::Server;

/// Most gateway nodes whose pods are looked at.
const MOST_NODES: usize = 16;

/// What the cluster itself says.
pub(super) struct Here {
    /// Kubernetes' version.
    pub(super) version: (u32, u32, String),
    /// The UID of `kube-system`: a cluster's identity for as long as it lives.
    pub(super) uid: String,
    pub(super) nodes: Vec<Value>,
    /// Pods of the nodes that run gateways, or may.
    pub(super) gateway_pods: Vec<Value>,
    pub(super) membership: Option<Membership>,
    /// What stands in the way.
    pub(super) obstacles: Vec<Finding>,
}

/// What the broker says.
pub(super) struct There {
    pub(super) registration: Registration,
    pub(super) others: Others,
    /// The other clusters' kinds of cable.
    pub(super) drivers: Vec<(String, String)>,
    pub(super) has_globalnet: bool,
    /// Whether members can get our Role: upstream's broker has only its own, and does not let anybody look.
    pub(super) has_our_role: bool,
}

pub(super) async fn from_broker(broker: &Server, member: &MemberOptions) -> Result<There, DeployError> {
    let (id, namespace) = (member.cluster_id.as_str(), member.broker.namespace.as_str());
    let version = "submariner.io/v1";
    let clusters = broker.list(version, "Cluster", Some(namespace), "").await.map_err(explained)?;
    let endpoints = broker.list(version, "Endpoint", Some(namespace), "").await?;
    let account = Place::namespaced("v1", "ServiceAccount", namespace, &cluster_account(id));
    let account = broker.find(&account).await?;
    let config = broker.find(&Place::namespaced("v1", "ConfigMap", namespace, GLOBALNET_INFO)).await?;
    let role = Place::namespaced("rbac.authorization.k8s.io/v1", "Role", namespace, MEMBER_ROLE);
    let specs: Vec<ClusterSpec> = clusters
        .into_iter()
        .filter_map(|mut cluster| serde_json::from_value(cluster["spec"].take()).ok())
        .collect();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let driver =
        |endpoint: &Value| (text(&endpoint["spec"]["cluster_id"]), text(&endpoint["spec"]["backend"]));
    let mut drivers: Vec<(String, String)> =
        endpoints.iter().map(driver).filter(|(cluster, _)| cluster != id).collect();
    drivers.sort();
    drivers.dedup();
    Ok(There {
        registration: registration(specs.iter().any(|spec| spec.cluster_id == id), account.as_ref()),
        others: Others(specs),
        drivers,
        has_globalnet: globalnet::is_enabled(config.as_ref()),
        has_our_role: matches!(broker.find(&role).await, Ok(Some(_))),
    })
}

/// The first question to the broker is the one that tells whether the file is good.
fn explained(error: DeployError) -> DeployError {
    let DeployError::Api { server, doing, code, reason } = error else { return error };
    let next = match code {
        Some(401 | 403) => {
            "the token in broker-info.subm is not valid (any more): make the file anew with trieste \
             recover-broker-info on the broker's cluster"
        }
        Some(_) => "is this really a broker? trieste show brokers on its cluster tells",
        None => {
            "the broker must be reachable from here and from the gateways: check address and port, name another \
             way to it with --broker-url, or see --check-broker-certificate"
        }
    };
    DeployError::refused(format!("{server}: {doing}: {reason}"), next)
}

pub(super) async fn from_cluster(local: &Server, member: &MemberOptions) -> Result<Here, DeployError> {
    let kube_system = local.find(&Place::cluster_wide("v1", "Namespace", "kube-system")).await?;
    let uid = kube_system.as_ref().and_then(|namespace| namespace["metadata"]["uid"].as_str());
    let uid = uid.ok_or_else(|| {
        DeployError::refused(
            format!("{} has no namespace kube-system", local.name()),
            "is this a Kubernetes cluster? kubectl get namespaces",
        )
    })?;
    let nodes = local.list("v1", "Node", None, "").await?;
    let submariner = Place::namespaced("submariner.io/v1alpha1", "Submariner", &member.namespace, SUBMARINER);
    let submariner = local.find(&submariner).await?;
    Ok(Here {
        version: local.version().await?,
        uid: uid.to_owned(),
        gateway_pods: gateway_pods(local, &nodes).await?,
        nodes,
        membership: submariner.as_ref().and_then(membership),
        obstacles: operator(local, &member.namespace).await?,
    })
}

fn membership(submariner: &Value) -> Option<Membership> {
    let text = |field: &str| submariner["spec"][field].as_str().unwrap_or_default().to_owned();
    let cluster_id = Some(text("clusterID")).filter(|id| !id.is_empty())?;
    let broker = text("brokerK8sApiServer");
    Some(Membership { cluster_id, broker: broker.trim_start_matches("https://").to_owned() })
}

/// Upstream's operator would undo what we apply: the same names are its own.
async fn operator(local: &Server, namespace: &str) -> Result<Vec<Finding>, DeployError> {
    let place = Place::namespaced("apps/v1", "Deployment", namespace, "submariner-operator");
    let Some(operator) = local.find(&place).await? else { return Ok(Vec::new()) };
    if operator["spec"]["replicas"] == 0 {
        return Ok(Vec::new());
    }
    Ok(vec![Finding::bad(
        "Submariner's operator runs in this cluster and would undo what trieste does",
        "see docs/operations/install.md, \"Coming from Submariner\": subctl uninstall on a member, or on a cluster \
         that is only the broker: kubectl -n submariner-operator delete deployment submariner-operator",
    )])
}

async fn gateway_pods(local: &Server, nodes: &[Value]) -> Result<Vec<Value>, DeployError> {
    let names = match preflight::gateway_nodes(nodes) {
        GatewayNodes::Labelled(names) => names,
        GatewayNodes::Candidates(names) => names.into_iter().take(1).collect(),
        GatewayNodes::None => Vec::new(),
    };
    let mut pods = Vec::new();
    for name in names.iter().take(MOST_NODES) {
        let selector = format!("fieldSelector=spec.nodeName%3D{name}");
        pods.extend(local.list("v1", "Pod", None, &selector).await?);
    }
    Ok(pods)
}

/// Rights in the cluster that are missing.
pub(super) async fn rights(
    local: &Server,
    manifests: &[Manifest],
) -> Result<Vec<(&'static str, Place, String)>, DeployError> {
    let node = Place::cluster_wide("v1", "Node", GATEWAY_LABEL);
    missing_rights(local, manifests, &[("patch", node)]).await
}

/// What the account of the join file lacks.
pub(super) async fn broker_rights(
    broker: &Server,
    manifests: &[Manifest],
) -> Result<Vec<Finding>, DeployError> {
    let missing = missing_rights(broker, manifests, &[]).await?;
    // Upstream's account may not patch role bindings; an existing one is then left as it is.
    let missing: Vec<_> = missing
        .into_iter()
        .filter(|(verb, _, resource)| !(*verb == "patch" && resource == "rolebindings"))
        .collect();
    if missing.is_empty() {
        return Ok(vec![Finding::good("The broker can be reached, and lets clusters join")]);
    }
    let shown: Vec<String> = missing.iter().map(|(verb, _, resource)| format!("{verb} {resource}")).collect();
    let next = "run trieste deploy-broker again on the broker's cluster, which gives the account its rights";
    Ok(vec![Finding::bad(format!("the account of broker-info.subm may not: {}", json!(shown)), next)])
}
