//! What there is to remove.

use serde_json::Value;

use trieste_control::api::{Fabric, label};
use trieste_control::members::{SLOT_PREFIX, paths_namespace};
use trieste_control::requirements::is_calico;

#[cfg(test)]
use super::options::Scope;
use super::options::Uninstall;
use crate::broker_info::BrokerInfo;
use crate::carried_out::carried_out;
use crate::error::DeployError;
use crate::join::MADE_FOR;
use crate::network_maps;
use crate::object_ref::ObjectRef;
use crate::objects::BrokerAccess;
use crate::objects::names::{
    BROKER, BROKER_ADMIN, BROKER_NAMESPACE, DEFINITION, GATEWAY, MANAGED_BY_LABEL, NAMESPACE, PLUGIN_SYNC,
    PLUGIN_SYNC_LOCK, ROUTE_AGENT, SPIDERPOOL_SYNC_LOCK, SUBMARINER, TRIESTE, policy_name,
};
use crate::server::Server;

const RBAC: &str = "rbac.authorization.k8s.io/v1";
const POLICIES: &str = "admissionregistration.k8s.io/v1";
const DEFINITIONS: &str = "apiextensions.k8s.io/v1";

/// Kinds of ours in a member's namespace, in the order in which they go: rights last of what programs need.
const IN_NAMESPACE: [(&str, &str); 10] = [
    ("apps/v1", "DaemonSet"),
    ("apps/v1", "Deployment"),
    ("batch/v1", "Job"),
    ("policy/v1", "PodDisruptionBudget"),
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

/// Versions that Calico serves its pools in; objects are the same. Its own API server may be away.
const POOLS: [&str; 2] = ["crd.projectcalico.org/v1", "projectcalico.org/v3"];

/// Kinds whose objects say that somebody uses the definitions: those of members and of brokers.
const USERS: [(&str, &str); 5] = [
    ("submariner.io/v1alpha1", "Submariner"),
    ("submariner.io/v1alpha1", "Broker"),
    ("submariner.io/v1alpha1", "ServiceDiscovery"),
    ("submariner.io/v1", "Cluster"),
    ("submariner.io/v1", "Endpoint"),
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
    pub objects: Vec<ObjectRef>,
    /// Definitions, which go last.
    pub definitions: Vec<ObjectRef>,
    /// Whether upstream's operator runs here.
    pub has_operator: bool,
    /// Fabrics and objects of upstream's kinds for which something is installed here, such as `Fabric east`: the operator would
    /// make it anew.
    pub fabrics: Vec<String>,
    /// What other namespaces have: while it is there, what all of them share stays.
    pub elsewhere: Elsewhere,
}

/// What namespaces have that nobody has asked to clear.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Elsewhere {
    /// Namespaces in which a member is installed: it needs the cluster-wide rights and the nodes' labels.
    pub members: Vec<String>,
    /// Namespaces with objects of upstream's kinds: those go with their definitions.
    pub users: Vec<String>,
}

impl Elsewhere {
    /// Whether there is nothing.
    pub fn is_nothing(&self) -> bool {
        self.members.is_empty() && self.users.is_empty()
    }

    /// Sorts objects by namespace, but for those of `own`.
    fn of(objects: &[Value], own: &[String]) -> Self {
        let mut elsewhere = Self::default();
        for object in objects {
            let namespace = object["metadata"]["namespace"].as_str().unwrap_or_default();
            if namespace.is_empty() || own.iter().any(|own| own == namespace) {
                continue;
            }
            let kind = object["kind"].as_str().unwrap_or_default();
            if ["Submariner", "DaemonSet"].contains(&kind) {
                elsewhere.members.push(namespace.to_owned());
            }
            if kind != "DaemonSet" {
                elsewhere.users.push(namespace.to_owned());
            }
        }
        for list in [&mut elsewhere.members, &mut elsewhere.users] {
            list.sort();
            list.dedup();
        }
        elsewhere
    }
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
        if !self.elsewhere.members.is_empty() {
            // The account is that of the member in another namespace.
            return Ok(());
        }
        let namespace = info.client_token.namespace.as_str();
        let own = server.find(&ObjectRef::cluster_wide("v1", "Namespace", "kube-system")).await?;
        let uid = own.map(|own| own["metadata"]["uid"].clone()).filter(Value::is_string);
        let accounts = broker.list("v1", "ServiceAccount", Some(namespace), "").await?;
        let is_own = |account: &&Value| Some(&account["metadata"]["annotations"][MADE_FOR]) == uid.as_ref();
        let name = accounts.iter().find(is_own).and_then(|account| account["metadata"]["name"].as_str());
        self.member = name.and_then(|name| name.strip_prefix("cluster-")).map(|id| Member {
            cluster_id: id.to_owned(),
            broker: BrokerAccess::bare_address(&info.broker_url).to_owned(),
            broker_namespace: namespace.to_owned(),
            is_insecure: false,
        });
        Ok(())
    }

    /// Whether the cluster has joined without checking the broker's certificate.
    pub fn is_insecure(&self) -> bool {
        self.member.as_ref().is_some_and(|member| member.is_insecure)
    }

    /// Whether an object belongs to the broker in this cluster.
    pub fn is_brokers(&self, place: &ObjectRef) -> bool {
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
pub async fn observe(server: &Server, options: &Uninstall) -> Result<Found, DeployError> {
    let mut found = Found { broker_namespace: options.broker_namespace.clone(), ..Found::default() };
    let submariner =
        ObjectRef::namespaced("submariner.io/v1alpha1", "Submariner", &options.namespace, SUBMARINER);
    found.member = server.find(&submariner).await?.as_ref().and_then(member);
    found.has_broker = has_broker(server, &options.broker_namespace).await?;
    if let Some(member) = &found.member {
        let name = crate::objects::names::cluster_account(&member.cluster_id);
        let account = ObjectRef::namespaced("v1", "ServiceAccount", &options.broker_namespace, &name);
        found.knows_member = server.find(&account).await?.is_some();
    }
    let operator = ObjectRef::namespaced("apps/v1", "Deployment", &options.namespace, "submariner-operator");
    found.has_operator =
        server.find(&operator).await?.is_some_and(|operator| operator["spec"]["replicas"] != 0);
    let fabrics = carried_out(server, &Fabric::FINALIZERS).await?;
    found.fabrics = fabrics.iter().map(ToString::to_string).collect();
    let scope = options.scope;
    if scope.member {
        found.objects = inside(server, &options.namespace).await?;
        found.objects.extend(inside(server, &paths_namespace(&options.namespace)).await?);
    }
    found.elsewhere = elsewhere(server, options).await?;
    if found.elsewhere.members.is_empty() {
        found.objects.extend(pools(server, &submariner).await?);
        found.objects.extend(network_maps::roles(server).await?);
        for kind in ["ClusterRoleBinding", "ClusterRole"] {
            found.objects.extend(places(&server.list(RBAC, kind, None, &ours()).await?));
        }
    }
    if scope.member && scope.namespaces {
        let paths = paths_namespace(&options.namespace);
        found.objects.extend(namespace(server, &paths, &paths_namespace(NAMESPACE)).await?);
        found.objects.extend(namespace(server, &options.namespace, NAMESPACE).await?);
    }
    if scope.broker && found.has_broker {
        found.objects.extend(inside(server, &options.broker_namespace).await?);
        for kind in ["ValidatingAdmissionPolicyBinding", "ValidatingAdmissionPolicy"] {
            let policy = ObjectRef::cluster_wide(POLICIES, kind, &policy_name(&options.broker_namespace));
            found.objects.extend(server.find(&policy).await?.map(|_| policy));
        }
        if scope.namespaces {
            found.objects.extend(namespace(server, &options.broker_namespace, BROKER_NAMESPACE).await?);
        }
    }
    found.objects.retain(|place| !options.keeps.contains(place));
    if found.elsewhere.is_nothing() && options.keeps.is_empty() {
        found.definitions = definitions(server).await?;
    }
    Ok(found)
}

/// The namespace in which this cluster is a broker, where nobody says it: that of the member's broker if it is here,
/// else the usual one.
///
/// # Errors
/// [`DeployError`] if the server does not answer.
pub async fn broker_namespace(server: &Server, namespace: &str) -> Result<String, DeployError> {
    let submariner = ObjectRef::namespaced("submariner.io/v1alpha1", "Submariner", namespace, SUBMARINER);
    if let Some(member) = server.find(&submariner).await?.as_ref().and_then(member) {
        let is_here =
            !member.broker_namespace.is_empty() && has_broker(server, &member.broker_namespace).await?;
        if is_here {
            return Ok(member.broker_namespace);
        }
    }
    Ok(BROKER_NAMESPACE.to_owned())
}

/// What namespaces other than the two have.
pub(super) async fn elsewhere(server: &Server, options: &Uninstall) -> Result<Elsewhere, DeployError> {
    let mut objects = Vec::new();
    for (version, kind) in USERS {
        objects.extend(server.list(version, kind, None, "").await?);
    }
    let sets = server.list("apps/v1", "DaemonSet", None, "").await?;
    objects.extend(sets.into_iter().filter(is_program));
    Ok(Elsewhere::of(&objects, &options.namespaces()))
}

/// Whether a DaemonSet is a program of a member, ours or upstream's, or cleans up after one.
fn is_program(set: &Value) -> bool {
    let name = set["metadata"]["name"].as_str().unwrap_or_default();
    let name = name.strip_suffix("-uninstall").unwrap_or(name);
    [GATEWAY, ROUTE_AGENT, PLUGIN_SYNC].contains(&name)
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

/// Returns the clusters that are registered with the broker in this cluster.
///
/// # Errors
/// [`DeployError`] if the server does not answer.
pub async fn registered_members(server: &Server, broker_namespace: &str) -> Result<Vec<String>, DeployError> {
    registered(server, broker_namespace, None).await
}

/// Definitions of upstream's kinds.
pub(super) async fn definitions(server: &Server) -> Result<Vec<ObjectRef>, DeployError> {
    let all = server.list(DEFINITIONS, "CustomResourceDefinition", None, "").await?;
    let is_made = |object: &Value| object["metadata"]["annotations"][DEFINITION] == TRIESTE;
    let made: Vec<Value> = all.iter().filter(|object| is_made(object)).cloned().collect();
    let of_upstream = places(&all).into_iter().filter(|place| place.name.ends_with(".submariner.io"));
    Ok(of_upstream.chain(places(&made)).collect())
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
    let account = ObjectRef::namespaced("v1", "ServiceAccount", namespace, BROKER_ADMIN);
    let resource = ObjectRef::namespaced("submariner.io/v1alpha1", "Broker", namespace, BROKER);
    let namespace = ObjectRef::cluster_wide("v1", "Namespace", namespace);
    Ok(server.find(&account).await?.is_some()
        || server.find(&resource).await?.is_some()
        || server.find(&namespace).await?.is_some())
}

/// What is in a namespace of ours, in the order in which it goes.
async fn inside(server: &Server, namespace: &str) -> Result<Vec<ObjectRef>, DeployError> {
    let mut all = Vec::new();
    for (version, kind) in WRITTEN {
        all.extend(places(&server.list(version, kind, Some(namespace), "").await?));
    }
    for (version, kind) in IN_NAMESPACE {
        all.extend(places(&server.list(version, kind, Some(namespace), &ours()).await?));
    }
    let leases = server.list("coordination.k8s.io/v1", "Lease", Some(namespace), "").await?;
    all.extend(places(&leases).into_iter().filter(|lease| is_our_lease(&lease.name)));
    Ok(all)
}

/// Says whether a Lease of this name in a namespace of ours is one of a program's.
fn is_our_lease(name: &str) -> bool {
    name.starts_with("submariner-")
        || name.starts_with(SLOT_PREFIX)
        || [PLUGIN_SYNC_LOCK, SPIDERPOOL_SYNC_LOCK].contains(&name)
}

/// Returns Calico's IPPools of remote networks, where the member's plugin is Calico. The workers remove them; these are what stays if
/// somebody has removed those.
async fn pools(server: &Server, submariner: &ObjectRef) -> Result<Vec<ObjectRef>, DeployError> {
    let member = server.find(submariner).await?.unwrap_or_default();
    if !is_calico(member["status"]["networkPlugin"].as_str().unwrap_or_default()) {
        return Ok(Vec::new());
    }
    let all = server.list_served(&POOLS, "IPPool", None).await?;
    let is_remote = |pool: &&Value| pool["metadata"]["labels"][label::REMOTE_POOL] == "true";
    Ok(all.iter().filter(is_remote).filter_map(ObjectRef::of).collect())
}

/// Returns the query for everything that we have applied.
fn ours() -> String {
    format!("labelSelector={}%3D{TRIESTE}", MANAGED_BY_LABEL.replace('/', "%2F"))
}

/// The namespace itself, if it has its usual name or we have made it.
async fn namespace(server: &Server, name: &str, usual: &str) -> Result<Option<ObjectRef>, DeployError> {
    let place = ObjectRef::cluster_wide("v1", "Namespace", name);
    let Some(found) = server.find(&place).await? else { return Ok(None) };
    let is_ours = name == usual || found["metadata"]["labels"][MANAGED_BY_LABEL] == TRIESTE;
    Ok(is_ours.then_some(place))
}

fn places(objects: &[Value]) -> Vec<ObjectRef> {
    objects.iter().filter_map(ObjectRef::of).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server::fake::Fake;
    use serde_json::json;
    use trieste_control::api::{Fabric, OWN_API_VERSION};

    fn options(namespace: &str) -> Uninstall {
        Uninstall {
            namespace: namespace.to_owned(),
            broker_namespace: BROKER_NAMESPACE.to_owned(),
            patience: std::time::Duration::ZERO,
            force: false,
            scope: Scope::ALL,
            keeps: Vec::new(),
        }
    }

    /// A member, and a broker in a namespace of another name.
    fn cluster() -> Fake {
        let fake = Fake::default();
        let named = |version: &str, kind: &str, namespace: &str, name: &str| {
            json!({"apiVersion": version, "kind": kind, "metadata": {"namespace": namespace, "name": name,
                "labels": {"app.kubernetes.io/managed-by": "trieste"}}})
        };
        let mut submariner = named("submariner.io/v1alpha1", "Submariner", NAMESPACE, SUBMARINER);
        submariner["spec"] =
            json!({"clusterID": "east", "brokerK8sApiServer": "b:1", "brokerK8sRemoteNamespace": "meet"});
        fake.put(submariner);
        fake.put(named("apps/v1", "DaemonSet", NAMESPACE, GATEWAY));
        fake.put(named("submariner.io/v1alpha1", "Broker", "meet", BROKER));
        fake.put(named("submariner.io/v1", "Cluster", "meet", "west"));
        fake.put(named(RBAC, "ClusterRole", "", GATEWAY));
        fake.put(named(DEFINITIONS, "CustomResourceDefinition", "", "clusters.submariner.io"));
        fake.put(named(POLICIES, "ValidatingAdmissionPolicy", "", &policy_name("meet")));
        fake.put(named(POLICIES, "ValidatingAdmissionPolicy", "", &policy_name("other")));
        fake
    }

    fn kinds(found: &Found) -> Vec<&str> {
        found.objects.iter().map(|place| place.kind.as_str()).collect()
    }

    #[tokio::test]
    async fn a_broker_in_another_namespace_keeps_its_definitions_and_its_policy() {
        let server = cluster().server();
        let found = observe(&server, &options(NAMESPACE)).await.unwrap();
        assert_eq!(found.elsewhere, Elsewhere { members: vec![], users: vec!["meet".to_owned()] });
        assert_eq!(found.definitions, []);
        assert_eq!(kinds(&found), ["Submariner", "DaemonSet", "ClusterRole"]);
    }

    #[tokio::test]
    async fn a_namespace_that_was_mistyped_leaves_a_members_rights_and_the_definitions() {
        let server = cluster().server();
        let found = observe(&server, &options("submariner-operaotr")).await.unwrap();
        assert_eq!(found.elsewhere.members, [NAMESPACE]);
        assert!(found.is_nothing(), "{found:?}");
    }

    #[tokio::test]
    async fn a_fabric_for_which_something_is_installed_is_named() {
        let fake = cluster();
        for (name, finalizers) in [("east", json!(["x", Fabric::MEMBER_FINALIZER])), ("other", json!(["x"]))]
        {
            fake.put(json!({"apiVersion": OWN_API_VERSION, "kind": "Fabric",
                "metadata": {"name": name, "finalizers": finalizers}}));
        }
        let found = observe(&fake.server(), &options(NAMESPACE)).await.unwrap();
        assert_eq!(found.fabrics, ["Fabric east"]);
    }

    #[tokio::test]
    async fn a_part_that_stays_keeps_its_objects_the_definitions_and_what_both_need() {
        let server = cluster().server();
        let of = |scope| Uninstall { broker_namespace: "meet".to_owned(), scope, ..options(NAMESPACE) };
        let member = observe(&server, &of(Scope::MEMBER)).await.unwrap();
        assert_eq!(kinds(&member), ["Submariner", "DaemonSet", "ClusterRole"]);
        assert_eq!(
            (member.elsewhere.users.as_slice(), member.definitions.len()),
            (&["meet".to_owned()][..], 0)
        );
        let broker = observe(&server, &of(Scope::BROKER)).await.unwrap();
        assert_eq!(kinds(&broker), ["Cluster", "Broker", "ValidatingAdmissionPolicy"]);
        assert_eq!(
            (broker.elsewhere.members.as_slice(), broker.definitions.len()),
            (&[NAMESPACE.to_owned()][..], 0)
        );
        let all = observe(&server, &of(Scope::ALL)).await.unwrap();
        assert_eq!((all.objects.len(), all.definitions.len()), (6, 1));
    }

    #[tokio::test]
    async fn a_broker_goes_with_its_own_policy_where_the_members_object_names_it() {
        let server = cluster().server();
        let namespace = broker_namespace(&server, NAMESPACE).await.unwrap();
        assert_eq!(namespace, "meet");
        let options = Uninstall { broker_namespace: namespace, ..options(NAMESPACE) };
        let found = observe(&server, &options).await.unwrap();
        assert_eq!((found.elsewhere.is_nothing(), found.definitions.len()), (true, 1));
        let policies: Vec<&str> = found
            .objects
            .iter()
            .filter(|place| place.kind.starts_with("Validating"))
            .map(|place| place.name.as_str())
            .collect();
        assert_eq!(policies, [policy_name("meet")]);
        assert_eq!(broker_namespace(&server, "nowhere").await.unwrap(), BROKER_NAMESPACE);
    }
}
