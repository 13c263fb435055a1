//! The operator: what a cluster needs so that `Fabric` resources are carried out, and what it publishes of a broker.
//!
//! Its objects do not have the label by which an uninstall finds what is to go: they outlast what the operator installs. The
//! namespaces of member and broker are among them, since its rights to read Secrets are in these alone.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::json;

use trieste_control::api::{BrokerConfig, ObjectKey};
use trieste_control::members::paths_namespace;

use super::names::{BROKER_INFO, BROKER_INFO_KEY, BROKER_NAMESPACE, MANAGED_BY_LABEL, NAMESPACE, OPERATOR};
use super::rbac::{
    ACCOUNTS, Account, BROKER_ADMINISTRATOR, CALICO_ACCOUNT, CALICO_POOLS, CILIUM_NODES, CILIUM_POOLS,
    CLUSTERSET_EVERYWHERE, CLUSTERSET_HERE, DISCOVERY_ACCOUNTS, DISCOVERY_GLOBALNET, GLOBALNET_EVERYWHERE,
    GLOBALNET_HERE, MEMBER, NETWORK_MAPS, NODE_TAINT, OPENSHIFT_NETWORK, OPERATOR_DNS, OPERATOR_EVERYWHERE,
    OPERATOR_INSIDE, OPERATOR_OWN, OVN_ACCOUNT, PLUGIN_ROUTES_HERE, Right, SPIDERPOOL_ACCOUNT,
    UPSTREAM_MEMBER,
};
use super::{Image, Manifest, MemoryLimit, namespaces, rbac};
use crate::broker_info::BrokerInfo;

/// Where kubelets ask, and Prometheus.
const METRICS: u16 = 8083;
/// The user of that name.
const NOBODY: u32 = 65534;

/// Returns the Secret in which a broker's join data is published: what `broker-info.subm` says.
pub fn broker_info_secret(namespace: &str, info: &BrokerInfo) -> Manifest {
    let data = json!({BROKER_INFO_KEY: STANDARD.encode(info.emit())});
    Manifest::make("v1", "Secret", namespace, BROKER_INFO).with("type", json!("Opaque")).with("data", data)
}

/// Returns the ConfigMap in which operators of group `operator.tkestack.io` publish a broker's join data, made for one of their resources.
pub fn broker_info_config_map(info: &BrokerInfo, config: &BrokerConfig, resource: &ObjectKey) -> Manifest {
    let content = info.emit_for_tkestack(&config.globalnet_cidr_range, config.default_globalnet_cluster_size);
    let kind = resource.kind.as_str().to_lowercase();
    let labels = [("name", &resource.name), ("namespace", &resource.namespace)];
    // Names may be longer than values of labels.
    let labels = labels.into_iter().filter(|(_, value)| value.len() <= 63);
    let manifest = Manifest::make("v1", "ConfigMap", BROKER_NAMESPACE, BROKER_INFO)
        .with("data", json!({BROKER_INFO_KEY: content}));
    labels.fold(manifest, |manifest, (part, value)| {
        manifest.labelled(&format!("{}/{kind}-{part}", resource.kind.group()), value)
    })
}

/// Returns the namespaces that the operator works in, and its own.
pub fn operator_namespaces() -> Vec<Manifest> {
    vec![
        namespaces::broker(OPERATOR),
        namespaces::member(NAMESPACE),
        namespaces::paths(NAMESPACE),
        namespaces::broker(BROKER_NAMESPACE),
    ]
}

/// Returns every object of an operator that runs this image, in the order in which they are applied.
pub fn operator(image: &Image) -> Vec<Manifest> {
    let mut manifests = operator_namespaces();
    let definition = Manifest::new(trieste_control::api::crd::fabric());
    let apart = [definition].into_iter().chain(rights()).chain([deployment(image)]);
    manifests.extend(apart.map(|manifest| manifest.labelled(MANAGED_BY_LABEL, OPERATOR)));
    manifests
}

/// Returns what the operator hands out in a member's namespace and the one beside it.
fn handed_out_here() -> Vec<Right> {
    let accounts = accounts();
    let here = accounts.iter().flat_map(|account| account.here.iter().chain(account.beside));
    here.chain(PLUGIN_ROUTES_HERE).chain(GLOBALNET_HERE).chain(CLUSTERSET_HERE).copied().collect()
}

/// Returns what it hands out in the whole cluster.
fn handed_out_everywhere() -> Vec<Right> {
    let accounts = accounts();
    let everywhere = accounts.iter().flat_map(|account| account.everywhere);
    everywhere
        .chain(DISCOVERY_GLOBALNET)
        .chain(CILIUM_NODES)
        .chain(CALICO_POOLS)
        .chain(CILIUM_POOLS)
        .chain(OPENSHIFT_NETWORK)
        // In namespaces that may not be there yet.
        .chain(NETWORK_MAPS.iter().map(|(_, right)| right))
        .chain(NODE_TAINT)
        .chain(GLOBALNET_EVERYWHERE)
        .chain(CLUSTERSET_EVERYWHERE)
        .copied()
        .collect()
}

fn accounts() -> Vec<Account> {
    let workers = [OVN_ACCOUNT, CALICO_ACCOUNT, SPIDERPOOL_ACCOUNT];
    ACCOUNTS.into_iter().chain(workers).chain(DISCOVERY_ACCOUNTS).collect()
}

/// Returns the operator's account, Roles and bindings.
fn rights() -> Vec<Manifest> {
    let inside = |handed_out: Vec<Right>| [OPERATOR_INSIDE, &handed_out].concat();
    let broker = [MEMBER, UPSTREAM_MEMBER, BROKER_ADMINISTRATOR].concat();
    let paths = paths_namespace(NAMESPACE);
    let scopes = [
        (OPERATOR, OPERATOR_OWN.to_vec()),
        (NAMESPACE, inside(handed_out_here())),
        (paths.as_str(), inside(handed_out_here())),
        (BROKER_NAMESPACE, inside(broker)),
        ("kube-system", OPERATOR_DNS.to_vec()),
        ("", [OPERATOR_EVERYWHERE, &handed_out_everywhere()].concat()),
    ];
    let mut manifests = vec![rbac::service_account(OPERATOR, OPERATOR)];
    for (scope, rights) in scopes {
        manifests.push(rbac::role(scope, OPERATOR, &rights));
        manifests.push(rbac::binding(scope, OPERATOR, OPERATOR, (OPERATOR, OPERATOR)));
    }
    manifests
}

fn deployment(image: &Image) -> Manifest {
    let field = |path: &str| json!({"fieldRef": {"fieldPath": path}});
    let probe = |path: &str| json!({"httpGet": {"path": path, "port": METRICS}, "periodSeconds": 10, "timeoutSeconds": 5});
    let container = json!({
        "name": OPERATOR,
        "image": image.reference,
        "imagePullPolicy": image.pull_policy.as_str(),
        "command": ["trieste-operator"],
        "env": [
            {"name": "POD_NAME", "valueFrom": field("metadata.name")},
            {"name": "POD_NAMESPACE", "valueFrom": field("metadata.namespace")},
            {"name": "TRIESTE_IMAGE", "value": image.reference},
        ],
        "ports": [{"name": "metrics", "protocol": "TCP", "containerPort": METRICS}],
        "livenessProbe": probe("/health"),
        "readinessProbe": probe("/ready"),
        "resources": MemoryLimit::PLUGIN_SYNC.resources("20m", "32Mi"),
        "securityContext": {
            "allowPrivilegeEscalation": false, "privileged": false, "readOnlyRootFilesystem": true,
            "capabilities": {"drop": ["ALL"]}, "seccompProfile": {"type": "RuntimeDefault"},
        },
        "terminationMessagePolicy": "FallbackToLogsOnError",
    });
    let spec = json!({
        "replicas": 1,
        "selector": {"matchLabels": {"app": OPERATOR}},
        "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 0, "maxSurge": 1}},
        "template": {
            "metadata": {"labels": {"app": OPERATOR}},
            "spec": {
                "serviceAccountName": OPERATOR,
                "priorityClassName": "system-cluster-critical",
                "terminationGracePeriodSeconds": 10,
                "securityContext": {"runAsNonRoot": true, "runAsUser": NOBODY, "runAsGroup": NOBODY},
                "nodeSelector": {"kubernetes.io/os": "linux"},
                "containers": [container],
            },
        },
    });
    Manifest::make("apps/v1", "Deployment", OPERATOR, OPERATOR).labelled("app", OPERATOR).with("spec", spec)
}

#[cfg(test)]
mod tests {
    use super::super::names::TRIESTE;
    use super::*;

    #[test]
    fn an_uninstall_does_not_find_what_the_operator_consists_of() {
        let all = operator(&Image::default());
        let namespaces = operator_namespaces().len();
        for manifest in &all[namespaces..] {
            assert_ne!(manifest.as_value()["metadata"]["labels"][MANAGED_BY_LABEL], TRIESTE, "{manifest}");
        }
        let kinds: Vec<&str> = all.iter().map(Manifest::kind).collect();
        assert_eq!(kinds.iter().filter(|kind| **kind == "Role").count(), 5);
        assert_eq!(kinds.last(), Some(&"Deployment"));
    }

    #[test]
    fn secrets_are_read_in_the_operators_namespaces_alone_and_no_right_is_beyond_its_own() {
        for manifest in operator(&Image::default()) {
            let rules = manifest.as_value()["rules"].to_string();
            assert!(!rules.contains("escalate") && !rules.contains("impersonate") && !rules.contains('*'));
            let is_everywhere = manifest.kind() == "ClusterRole";
            assert!(!is_everywhere || !rules.contains("secrets"), "{rules}");
        }
    }
}
