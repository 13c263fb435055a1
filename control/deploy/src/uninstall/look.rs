//! What there is to remove.

use serde_json::Value;

use super::{Uninstall, ours};
use crate::broker_info::BrokerInfo;
use crate::error::DeployError;
use crate::join::MADE_FOR;
use crate::objects::names::{BROKER, BROKER_ADMIN, NAMESPACE, SUBMARINER};
use crate::place::Place;
use crate::server::Server;

const RBAC: &str = "rbac.authorization.k8s.io/v1";
const POLICIES: &str = "admissionregistration.k8s.io/v1";
const DEFINITIONS: &str = "apiextensions.k8s.io/v1";

/// Kinds of ours in a member's namespace, in the order in which they go: rights last of what programs need.
const IN_NAMESPACE: [(&str, &str); 7] = [
    ("apps/v1", "DaemonSet"),
    ("v1", "Service"),
    ("v1", "Secret"),
    ("v1", "ConfigMap"),
    (RBAC, "RoleBinding"),
    (RBAC, "Role"),
    ("v1", "ServiceAccount"),
];

/// Kinds that programs write there.
const WRITTEN: [(&str, &str); 9] = [
    ("submariner.io/v1", "Endpoint"),
    ("submariner.io/v1", "Cluster"),
    ("submariner.io/v1", "Gateway"),
    ("submariner.io/v1", "RouteAgent"),
    ("submariner.io/v1", "GatewayRoute"),
    ("submariner.io/v1", "NonGatewayRoute"),
    ("submariner.io/v1alpha1", "ServiceDiscovery"),
    ("submariner.io/v1alpha1", "Submariner"),
    ("submariner.io/v1alpha1", "Broker"),
];

/// A membership that ends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Member {
    pub(super) cluster_id: String,
    /// `HOST:PORT`.
    pub(super) broker: String,
    pub(super) broker_namespace: String,
    pub(super) is_insecure: bool,
}

/// What there is to remove from a cluster.
#[derive(Debug, Clone, Default)]
pub struct Found {
    pub(super) member: Option<Member>,
    /// Whether this cluster is a broker.
    pub(super) has_broker: bool,
    /// Whether the broker here has an account of the member.
    knows_member: bool,
    broker_namespace: String,
    /// Objects in the order in which they go; the broker's are in its namespace, or policies.
    pub objects: Vec<Place>,
    /// Definitions, which go last.
    pub definitions: Vec<Place>,
    /// Whether upstream's operator runs here.
    pub has_operator: bool,
}

impl Found {
    /// Whether there is nothing.
    pub fn is_nothing(&self) -> bool {
        self.objects.is_empty() && self.definitions.is_empty()
    }

    /// The cluster's ID and its broker, `HOST:PORT`, if it is a member.
    pub fn membership(&self) -> Option<(&str, &str)> {
        self.member.as_ref().map(|member| (member.cluster_id.as_str(), member.broker.as_str()))
    }

    /// Finds the membership by the broker's account that was made for this cluster, where nothing here tells of it (any
    /// more): a join that was killed after its first step has left no more than that.
    ///
    /// # Errors
    /// [`DeployError`] if one of the servers does not answer.
    pub async fn recall(
        &mut self,
        server: &Server,
        broker: &Server,
        info: &BrokerInfo,
    ) -> Result<(), DeployError> {
        let namespace = info.client_token.namespace.as_str();
        let own = server.find(&Place::cluster_wide("v1", "Namespace", "kube-system")).await?;
        let uid = own.map(|own| own["metadata"]["uid"].clone()).filter(Value::is_string);
        let accounts = broker.list("v1", "ServiceAccount", Some(namespace), "").await?;
        let is_own = |account: &&Value| Some(&account["metadata"]["annotations"][MADE_FOR]) == uid.as_ref();
        let name = accounts.iter().find(is_own).and_then(|account| account["metadata"]["name"].as_str());
        self.member = name.and_then(|name| name.strip_prefix("cluster-")).map(|id| Member {
            cluster_id: id.to_owned(),
            broker: info.broker_url.trim_start_matches("https://").trim_end_matches('/').to_owned(),
            broker_namespace: namespace.to_owned(),
            is_insecure: false,
        });
        Ok(())
    }

    /// Whether an object belongs to the broker in this cluster.
    pub fn is_brokers(&self, place: &Place) -> bool {
        let namespace = Some(self.broker_namespace.as_str());
        place.namespace.as_deref() == namespace
            || (place.kind == "Namespace" && Some(place.name.as_str()) == namespace)
            || place.kind.starts_with("ValidatingAdmissionPolicy")
    }

    /// Whether this cluster is the broker that the member speaks to: it keeps the account there.
    pub(super) fn is_broker_of(&self, member: &Member) -> bool {
        self.has_broker && member.broker_namespace == self.broker_namespace && self.knows_member
    }
}

/// Finds everything. Nothing is changed.
///
/// # Errors
/// [`DeployError`] if the server does not answer.
pub async fn look(server: &Server, options: &Uninstall) -> Result<Found, DeployError> {
    let mut found = Found { broker_namespace: options.broker_namespace.clone(), ..Found::default() };
    let submariner =
        Place::namespaced("submariner.io/v1alpha1", "Submariner", &options.namespace, SUBMARINER);
    found.member = server.find(&submariner).await?.as_ref().and_then(member);
    found.has_broker = has_broker(server, &options.broker_namespace).await?;
    if let Some(member) = &found.member {
        let name = crate::objects::names::cluster_account(&member.cluster_id);
        let account = Place::namespaced("v1", "ServiceAccount", &options.broker_namespace, &name);
        found.knows_member = server.find(&account).await?.is_some();
    }
    let operator = Place::namespaced("apps/v1", "Deployment", &options.namespace, "submariner-operator");
    found.has_operator =
        server.find(&operator).await?.is_some_and(|operator| operator["spec"]["replicas"] != 0);
    found.objects = inside(server, &options.namespace).await?;
    for kind in ["ClusterRoleBinding", "ClusterRole"] {
        found.objects.extend(places(&server.list(RBAC, kind, None, &ours()).await?));
    }
    found.objects.extend(namespace(server, &options.namespace, NAMESPACE).await?);
    if found.has_broker {
        found.objects.extend(inside(server, &options.broker_namespace).await?);
        for kind in ["ValidatingAdmissionPolicyBinding", "ValidatingAdmissionPolicy"] {
            found.objects.extend(places(&server.list(POLICIES, kind, None, &ours()).await?));
        }
        let usual = crate::objects::names::BROKER_NAMESPACE;
        found.objects.extend(namespace(server, &options.broker_namespace, usual).await?);
    }
    found.definitions = definitions(server).await?;
    Ok(found)
}

/// The clusters that are registered with the broker in this cluster, but for the one that leaves.
pub(super) async fn registered(
    server: &Server,
    namespace: &str,
    leaves: Option<&Member>,
) -> Result<Vec<String>, DeployError> {
    let clusters = server.list("submariner.io/v1", "Cluster", Some(namespace), "").await?;
    let id = |cluster: &Value| cluster["spec"]["cluster_id"].as_str().map(str::to_owned);
    let own = leaves.map(|member| member.cluster_id.as_str());
    Ok(clusters.iter().filter_map(id).filter(|id| Some(id.as_str()) != own).collect())
}

/// Definitions of upstream's kinds.
pub(super) async fn definitions(server: &Server) -> Result<Vec<Place>, DeployError> {
    let all = server.list(DEFINITIONS, "CustomResourceDefinition", None, "").await?;
    Ok(places(&all).into_iter().filter(|place| place.name.ends_with(".submariner.io")).collect())
}

fn member(submariner: &Value) -> Option<Member> {
    let text = |field: &str| submariner["spec"][field].as_str().unwrap_or_default().to_owned();
    Some(Member {
        cluster_id: Some(text("clusterID")).filter(|id| !id.is_empty())?,
        broker: text("brokerK8sApiServer").trim_start_matches("https://").to_owned(),
        broker_namespace: text("brokerK8sRemoteNamespace"),
        is_insecure: submariner["spec"]["brokerK8sInsecure"] == true,
    })
}

async fn has_broker(server: &Server, namespace: &str) -> Result<bool, DeployError> {
    let account = Place::namespaced("v1", "ServiceAccount", namespace, BROKER_ADMIN);
    let resource = Place::namespaced("submariner.io/v1alpha1", "Broker", namespace, BROKER);
    let namespace = Place::cluster_wide("v1", "Namespace", namespace);
    Ok(server.find(&account).await?.is_some()
        || server.find(&resource).await?.is_some()
        || server.find(&namespace).await?.is_some())
}

/// What is in a namespace of ours, in the order in which it goes.
async fn inside(server: &Server, namespace: &str) -> Result<Vec<Place>, DeployError> {
    let mut all = Vec::new();
    for (version, kind) in WRITTEN {
        all.extend(places(&server.list(version, kind, Some(namespace), "").await?));
    }
    for (version, kind) in IN_NAMESPACE {
        all.extend(places(&server.list(version, kind, Some(namespace), &ours()).await?));
    }
    let leases = server.list("coordination.k8s.io/v1", "Lease", Some(namespace), "").await?;
    all.extend(places(&leases).into_iter().filter(|lease| lease.name.starts_with("submariner-")));
    Ok(all)
}

/// The namespace itself, if it has its usual name or we have made it.
async fn namespace(server: &Server, name: &str, usual: &str) -> Result<Option<Place>, DeployError> {
    use crate::objects::names::{MANAGED_BY_LABEL, TRIESTE};
    let place = Place::cluster_wide("v1", "Namespace", name);
    let Some(found) = server.find(&place).await? else { return Ok(None) };
    let is_ours = name == usual || found["metadata"]["labels"][MANAGED_BY_LABEL] == TRIESTE;
    Ok(is_ours.then_some(place))
}

fn places(objects: &[Value]) -> Vec<Place> {
    objects.iter().filter_map(Place::of).collect()
}
