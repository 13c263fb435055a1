//! What a join reads before it decides.

use std::collections::BTreeSet;

use serde_json::{Value, json};
use trieste_control::api::{ClusterSpec, EndpointSpec, Fabric};

use super::register::registration;
use super::upstreams::upstream_operator;
use crate::apply::missing_rights;
use crate::deploy_broker::decoded;
use crate::error::DeployError;
use crate::object_ref::ObjectRef;
use crate::objects::names::{
    GATEWAY, GATEWAY_LABEL, MANAGED_BY_LABEL, MEMBER_ROLE, OVN_TLS_SECRET, PLUGIN_SYNC, PSK_SECRET,
    ROUTE_AGENT, SUBMARINER, TRIESTE, VERSION_LABEL, cluster_account,
};
use crate::objects::{Manifest, MemberOptions, Secret};
use crate::preflight::{self, Finding, GatewayNodes, Membership, Offer, Others, Registration};
use crate::server::Server;
use crate::shares::{self, Allocations, CLUSTERSET_IPS, CLUSTERSET_IPV6, GLOBALNET};

/// Most gateway nodes whose pods are looked at.
const MOST_NODES: usize = 16;

/// What the cluster itself says.
pub(super) struct Here {
    /// Kubernetes' version.
    pub(super) version: (u32, u32, String),
    /// The UID of `kube-system`: a cluster's identity for as long as it lives.
    pub(super) uid: String,
    pub(super) nodes: Vec<Value>,
    /// The versions of our gateways' pods.
    pub(super) versions: BTreeSet<String>,
    /// Pods of the nodes that run gateways, or may.
    pub(super) gateway_pods: Vec<Value>,
    pub(super) membership: Option<Membership>,
    /// The Submariner object of an earlier join.
    pub(super) settings: Option<Value>,
    /// What stands in the way.
    pub(super) obstacles: Vec<Finding>,
}

/// What the broker says.
pub(super) struct There {
    pub(super) registration: Registration,
    pub(super) others: Others,
    /// The other clusters' kinds of cable, each as its Endpoint offers them.
    pub(super) drivers: Vec<Offer>,
    /// Who has which global addresses; `None` without globalnet.
    pub(super) globalnet: Option<Allocations>,
    /// Who gives which clusterset IPs, IPv4 and IPv6; `None` where the broker has none.
    pub(super) clusterset_ips: [Option<Allocations>; 2],
    /// Whether members can get our Role: upstream's broker has only its own, and does not let anybody look.
    pub(super) has_our_role: bool,
    /// Whether our Role lets agents export services: one that an older version has made does not.
    pub(super) has_service_rights: bool,
}

pub(super) async fn from_broker(broker: &Server, member: &MemberOptions) -> Result<There, DeployError> {
    let (id, namespace) = (member.cluster_id.as_str(), member.broker.namespace.as_str());
    let (others, drivers) = members(broker, member).await?;
    let account = ObjectRef::namespaced("v1", "ServiceAccount", namespace, &cluster_account(id));
    let account = broker.find(&account).await?;
    let globalnet = shares::read(broker, namespace, &GLOBALNET).await?;
    let clusterset_ips = match member.has_service_discovery() {
        true => [
            shares::read(broker, namespace, &CLUSTERSET_IPS).await?,
            shares::read(broker, namespace, &CLUSTERSET_IPV6).await?,
        ],
        false => [None, None],
    };
    let role = ObjectRef::namespaced("rbac.authorization.k8s.io/v1", "Role", namespace, MEMBER_ROLE);
    let role = our_role(broker.find(&role).await)?;
    Ok(There {
        registration: registration(others.0.iter().any(|spec| spec.cluster_id == id), account.as_ref()),
        others,
        drivers,
        globalnet,
        clusterset_ips,
        has_our_role: role.is_some(),
        has_service_rights: role.is_none_or(|role| grants_services(&role)),
    })
}

/// Returns all members, and the other ones' kinds of cable: what each member's own account may read.
async fn members(broker: &Server, member: &MemberOptions) -> Result<(Others, Vec<Offer>), DeployError> {
    let (id, namespace) = (member.cluster_id.as_str(), Some(member.broker.namespace.as_str()));
    let version = "submariner.io/v1";
    let clusters = broker.list(version, "Cluster", namespace, "").await.map_err(explained)?;
    let endpoints = broker.list(version, "Endpoint", namespace, "").await?;
    let specs: Vec<ClusterSpec> = clusters
        .into_iter()
        .filter_map(|mut cluster| serde_json::from_value(cluster["spec"].take()).ok())
        .collect();
    let offers = endpoints.into_iter().filter_map(|mut endpoint| {
        let spec: EndpointSpec = serde_json::from_value(endpoint["spec"].take()).ok()?;
        let drivers = spec.drivers().map(|driver| preflight::canonical(&driver)).collect();
        Some(Offer { cluster: spec.cluster_id, drivers })
    });
    let mut drivers: Vec<Offer> = offers.filter(|offer| offer.cluster != id).collect();
    drivers.sort();
    drivers.dedup();
    Ok((Others(specs), drivers))
}

/// Returns what the broker lets a member read that is registered already. A broker that does not answer keeps nobody: the
/// member runs, and is compared with the others at the next occasion.
pub(super) async fn from_own_broker(broker: &Server, member: &MemberOptions) -> (There, Option<Finding>) {
    let read = members(broker, member).await;
    let unread = read.as_ref().err().map(|error| {
        Finding::suspect(
            format!("networks and cables were not compared with the other clusters': {error}"),
            error.next(),
        )
    });
    let (others, drivers) = read.unwrap_or_else(|_| (Others(Vec::new()), Vec::new()));
    let there = There {
        registration: Registration::default(),
        others,
        drivers,
        globalnet: None,
        clusterset_ips: [None, None],
        has_our_role: true,
        has_service_rights: true,
    };
    (there, unread)
}

/// Returns the Role, if members can get it. Upstream's broker does not have it, and does not let anybody look. Any other refusal
/// says nothing about it: a member must not get upstream's Role, which is wider, because a server was busy.
fn our_role(answer: Result<Option<Value>, DeployError>) -> Result<Option<Value>, DeployError> {
    match answer {
        Err(DeployError::Api { code: Some(403), .. }) => Ok(None),
        answer => answer,
    }
}

/// Returns `true` if a Role lets agents export services.
fn grants_services(role: &Value) -> bool {
    let rules = role["rules"].as_array().into_iter().flatten();
    let resources = rules.filter_map(|rule| rule["resources"].as_array()).flatten();
    resources.into_iter().any(|resource| resource == "serviceimports")
}

/// Returns what is wrong with the Role that a member gets: upstream's, or an old one of ours.
pub(super) fn role(has_our_role: bool, lacks_service_rights: bool) -> Vec<Finding> {
    if has_our_role && lacks_service_rights {
        return vec![Finding::suspect(
            "the broker was made by an older version: its Role does not let this cluster export services",
            "run trieste deploy-broker there again",
        )];
    }
    if has_our_role {
        return Vec::new();
    }
    vec![Finding::suspect(
        "the broker was made by upstream's tool: members get its Role, and with it may read one another's tokens",
        "run trieste deploy-broker there, then join again",
    )]
}

/// Settings of an earlier join that stay since nothing else was said.
pub(super) fn kept(settings: &[String]) -> Vec<Finding> {
    if settings.is_empty() {
        return Vec::new();
    }
    let text = format!("Kept from the earlier join: {} (--reset takes the defaults)", settings.join(", "));
    vec![Finding::good(text)]
}

/// A key other than that of an earlier join parts this cluster from those that have not changed theirs.
pub(super) async fn key(
    local: &Server,
    member: &MemberOptions,
    may_change: bool,
) -> Result<Vec<Finding>, DeployError> {
    let place = ObjectRef::namespaced("v1", "Secret", &member.namespace, PSK_SECRET);
    let before = local.find(&place).await?.and_then(|secret| decoded(&secret, "psk"));
    if before.is_none_or(|before| Secret::new(before) == member.psk) {
        return Ok(Vec::new());
    }
    let text = "the file's pre-shared key is another one than this cluster has joined with";
    Ok(vec![match may_change {
        true => {
            Finding::suspect(format!("{text}: clusters that do not take it too are not reached any more"), "")
        }
        false => Finding::bad(
            text,
            "is this the set's present broker-info.subm? if the key was replaced, join again with --replace-psk",
        ),
    }])
}

/// Says what a database that is reached over TLS needs and nobody has made.
pub(super) async fn ovn_tls(local: &Server, member: &MemberOptions) -> Result<Vec<Finding>, DeployError> {
    let database = &member.ovn.northbound;
    if !database.starts_with("ssl:") {
        return Ok(Vec::new());
    }
    let place = ObjectRef::namespaced("v1", "Secret", &member.namespace, OVN_TLS_SECRET);
    if local.find(&place).await?.is_some() {
        return Ok(Vec::new());
    }
    let text =
        format!("OVN's database is reached over TLS ({database}), and there is no Secret {OVN_TLS_SECRET}");
    let next = format!(
        "make it in the namespace {}, of tls.key, tls.crt and ca.crt: docs/operations/install.md, \"OVN-Kubernetes\"",
        member.namespace
    );
    Ok(vec![Finding::suspect(text, next)])
}

/// Settings of an earlier join that this one changes.
pub(super) fn changes(before: Option<&Value>, after: &Value) -> Vec<Finding> {
    let Some(before) = before else { return Vec::new() };
    let wanted = after["spec"].as_object().into_iter().flatten();
    let is_same =
        |old: &Value, new: &Value| old == new || (old.is_null() && (new == "" || *new == json!(false)));
    wanted
        .filter(|(field, new)| *field != "brokerK8sCA" && !is_same(&before["spec"][field.as_str()], new))
        .map(|(field, new)| {
            let old = &before["spec"][field.as_str()];
            Finding::suspect(format!("setting {field} changes from {old} to {new}"), "")
        })
        .collect()
}

/// The first question to the broker is the one that tells whether the file is good.
fn explained(error: DeployError) -> DeployError {
    let DeployError::Api { server, doing, code, reason } = error else { return error };
    let next = match code {
        Some(401 | 403) => {
            "the token in broker-info.subm is not valid (any more): make the file anew with trieste \
             recover-broker-info on the broker's cluster"
        }
        Some(429 | 500..) => "the broker is busy or starting: repeat the command",
        Some(_) => "is this really a broker? trieste show brokers on its cluster tells",
        None => {
            "the broker must be reachable from here and from the gateways: check address and port, name another \
             way to it with --broker-url, or see --check-broker-certificate"
        }
    };
    let what = format!("{server}: {doing}: {reason}");
    match code {
        None | Some(429 | 500..) => DeployError::Unreachable { what, next: next.to_owned() },
        Some(_) => DeployError::refused(what, next),
    }
}

pub(super) async fn from_cluster(local: &Server, member: &MemberOptions) -> Result<Here, DeployError> {
    let kube_system = local.find(&ObjectRef::cluster_wide("v1", "Namespace", "kube-system")).await?;
    let uid = kube_system.as_ref().and_then(|namespace| namespace["metadata"]["uid"].as_str());
    let uid = uid.ok_or_else(|| {
        DeployError::refused(
            format!("{} has no namespace kube-system", local.name()),
            "is this a Kubernetes cluster? kubectl get namespaces",
        )
    })?;
    let nodes = local.list("v1", "Node", None, "").await?;
    let submariner =
        ObjectRef::namespaced("submariner.io/v1alpha1", "Submariner", &member.namespace, SUBMARINER);
    let submariner = local.find(&submariner).await?;
    let of_gateways = format!("labelSelector=app%3D{GATEWAY}");
    let pods = local.list("v1", "Pod", Some(&member.namespace), &of_gateways).await?;
    let labels = pods.iter().map(|pod| &pod["metadata"]["labels"]);
    let ours = labels.filter(|labels| labels[MANAGED_BY_LABEL] == TRIESTE);
    Ok(Here {
        versions: ours.filter_map(|labels| labels[VERSION_LABEL].as_str().map(str::to_owned)).collect(),
        version: local.version().await?,
        uid: uid.to_owned(),
        gateway_pods: gateway_pods(local, &nodes).await?,
        nodes,
        membership: submariner.as_ref().and_then(membership),
        settings: submariner,
        obstacles: [operator(local).await?, elsewhere(local, &member.namespace).await?].concat(),
    })
}

fn membership(submariner: &Value) -> Option<Membership> {
    let text = |field: &str| submariner["spec"][field].as_str().unwrap_or_default().to_owned();
    let cluster_id = Some(text("clusterID")).filter(|id| !id.is_empty())?;
    let broker = text("brokerK8sApiServer");
    Some(Membership { cluster_id, broker: broker.trim_start_matches("https://").to_owned() })
}

/// Returns that the operator carries out the Submariner object, which says itself what is wanted: a command would change it below the
/// hands of who wrote it.
pub(super) fn carried_out(settings: Option<&Value>) -> Vec<Finding> {
    let mut finalizers =
        settings.and_then(|object| object["metadata"]["finalizers"].as_array()).into_iter().flatten();
    if !finalizers.any(|finalizer| finalizer == Fabric::MEMBER_FINALIZER) {
        return Vec::new();
    }
    vec![Finding::bad(
        "trieste-operator carries out this cluster's Submariner object",
        format!("change what that says: kubectl -n submariner-operator edit submariner {SUBMARINER}"),
    )]
}

/// Upstream's operator would undo what we apply: the same names are its own.
async fn operator(local: &Server) -> Result<Vec<Finding>, DeployError> {
    if upstream_operator(local).await?.is_none() {
        return Ok(Vec::new());
    }
    Ok(vec![Finding::bad(
        "Submariner's operator runs in this cluster and would undo what trieste does",
        "see docs/operations/install.md, \"Coming from Submariner\": subctl uninstall on a member, or on a cluster \
         that is only the broker: kubectl -n submariner-operator delete deployment submariner-operator",
    )])
}

/// A second installation would share the nodes, the cluster-wide rights and the admin sockets with the first.
async fn elsewhere(local: &Server, namespace: &str) -> Result<Vec<Finding>, DeployError> {
    let mut all = local.list("submariner.io/v1alpha1", "Submariner", None, "").await?;
    let sets = local.list("apps/v1", "DaemonSet", None, "").await?;
    let is_program =
        |set: &Value| [GATEWAY, ROUTE_AGENT, PLUGIN_SYNC].iter().any(|name| set["metadata"]["name"] == *name);
    all.extend(sets.into_iter().filter(is_program));
    let mut found: Vec<&str> = all
        .iter()
        .filter_map(|object| object["metadata"]["namespace"].as_str())
        .filter(|other| *other != namespace)
        .collect();
    found.sort_unstable();
    found.dedup();
    Ok(found
        .into_iter()
        .take(8)
        .map(|other| {
            Finding::bad(
                format!("this cluster is a member already, installed in the namespace {other}"),
                format!("join with --namespace {other} to change it, or trieste uninstall --namespace {other} first"),
            )
        })
        .collect())
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
) -> Result<Vec<(&'static str, ObjectRef, String)>, DeployError> {
    let node = ObjectRef::cluster_wide("v1", "Node", GATEWAY_LABEL);
    let mut others = vec![("patch", node)];
    // What replacing gateways one by one takes.
    let namespace = manifests
        .iter()
        .find(|manifest| manifest.name() == GATEWAY)
        .and_then(|manifest| ObjectRef::of(manifest.as_value())?.namespace);
    for (verb, version, kind) in [
        ("delete", "v1", "Pod"),
        ("patch", "submariner.io/v1", "Gateway"),
        ("list", "apps/v1", "ControllerRevision"),
    ] {
        others.extend(
            namespace
                .as_ref()
                .map(|namespace| (verb, ObjectRef::namespaced(version, kind, namespace, GATEWAY))),
        );
    }
    missing_rights(local, manifests, &others).await
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server::fake::Fake;
    use trieste_control::steps::Outcome;

    fn failed(code: u16) -> DeployError {
        DeployError::Api {
            server: "s".to_owned(),
            doing: "d".to_owned(),
            code: Some(code),
            reason: "r".to_owned(),
        }
    }

    #[test]
    fn only_a_broker_that_says_no_is_upstreams() {
        assert!(our_role(Ok(Some(json!({})))).unwrap().is_some());
        assert!(our_role(Ok(None)).unwrap().is_none() && our_role(Err(failed(403))).unwrap().is_none());
        for code in [401, 429, 500, 503] {
            assert!(our_role(Err(failed(code))).is_err(), "{code}");
        }
        assert!(role(true, false).is_empty());
        assert_eq!(role(false, false)[0].outcome, Outcome::Warning);
        assert!(role(true, true)[0].next.contains("deploy-broker"));
        let rules =
            |resource: &str| json!({"rules": [{"resources": ["clusters"]}, {"resources": [resource]}]});
        assert!(grants_services(&rules("serviceimports")) && !grants_services(&rules("endpoints")));
    }

    #[test]
    fn a_broker_that_does_not_answer_is_unreachable_and_one_that_says_no_has_refused() {
        for (code, is_unreachable) in
            [(None, true), (Some(503), true), (Some(429), true), (Some(401), false), (Some(404), false)]
        {
            let (server, doing, reason) = ("s".to_owned(), "d".to_owned(), "r".to_owned());
            let error = explained(DeployError::Api { server, doing, code, reason });
            assert_eq!(matches!(error, DeployError::Unreachable { .. }), is_unreachable, "{code:?}");
            assert_eq!(error.to_string(), "s: d: r");
            assert!(!error.next().is_empty());
        }
    }

    #[test]
    fn an_object_that_the_operator_carries_out_is_not_changed_by_a_command() {
        let object = |finalizer: &str| json!({"metadata": {"finalizers": [finalizer]}});
        assert_eq!(carried_out(Some(&object(Fabric::MEMBER_FINALIZER)))[0].outcome, Outcome::Failure);
        assert!(carried_out(Some(&object("other"))).is_empty() && carried_out(None).is_empty());
    }

    #[tokio::test]
    async fn a_second_installation_and_an_operator_are_found_in_any_namespace() {
        let fake = Fake::default();
        let put = |version: &str, kind: &str, namespace: &str, name: &str| {
            fake.put(json!({"apiVersion": version, "kind": kind, "metadata": {"namespace": namespace, "name": name}}));
        };
        put("submariner.io/v1alpha1", "Submariner", "one", SUBMARINER);
        put("apps/v1", "DaemonSet", "two", ROUTE_AGENT);
        put("apps/v1", "DaemonSet", "two", "somebody-elses");
        let server = fake.server();
        let found = elsewhere(&server, "one").await.unwrap();
        assert_eq!(found.len(), 1);
        assert!(
            found[0].outcome == Outcome::Failure && found[0].text.ends_with("the namespace two"),
            "{found:?}"
        );
        assert_eq!(elsewhere(&server, "new").await.unwrap().len(), 2);
        assert!(operator(&server).await.unwrap().is_empty());
        fake.put(json!({"apiVersion": "apps/v1", "kind": "Deployment",
            "metadata": {"namespace": "submariner-operator", "name": "submariner-operator"}}));
        assert_eq!(operator(&server).await.unwrap().len(), 1);
    }

    #[tokio::test]
    async fn plugin_ovn_database_over_tls_asks_for_its_secret() {
        let fake = Fake::default();
        let mut member = crate::objects::example();
        let found = async |member: &MemberOptions| ovn_tls(&fake.server(), member).await.unwrap();
        for database in ["", "tcp:ovnkube-db.ovn-kubernetes:6641"] {
            member.ovn.northbound = database.to_owned();
            assert_eq!(found(&member).await, [], "{database}");
        }
        member.ovn.northbound = "ssl:ovnkube-db.ovn-kubernetes:6641".to_owned();
        let warned = found(&member).await;
        assert!(
            warned[0].outcome == Outcome::Warning && warned[0].text.contains(OVN_TLS_SECRET),
            "{warned:?}"
        );
        fake.put(json!({"apiVersion": "v1", "kind": "Secret",
            "metadata": {"namespace": member.namespace, "name": OVN_TLS_SECRET}}));
        assert_eq!(found(&member).await, []);
    }

    #[test]
    fn a_join_that_changes_settings_names_each() {
        let before = json!({"spec": {"natEnabled": false, "cableDriver": "wireguard", "debug": true}});
        let after = json!({"spec": {"natEnabled": true, "cableDriver": "wireguard", "debug": true, "globalCIDR": ""}});
        let texts: Vec<String> =
            changes(Some(&before), &after).into_iter().map(|finding| finding.text).collect();
        assert_eq!(texts, ["setting natEnabled changes from false to true"]);
        assert!(changes(None, &after).is_empty());
    }
}
