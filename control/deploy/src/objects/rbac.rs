//! Who may do what, and why: every right of every account, each with what it is needed for.
//!
//! Nothing is granted by a wildcard, and nothing in the whole cluster that is needed in one namespace only. What the
//! programs ask for is in `control/src/{election,leader,members,publish,recorder}`, `gateway/daemon/src/{control,run,uninstall}`
//! and `routeagent/src/source*`; a right that none of them uses does not belong here.

use serde_json::{Value, json};
use trieste_control::members::paths_namespace;
use trieste_control::settings;

use super::names::{
    BROKER_ADMIN, CLUSTERSET_IP, CLUSTERSET_IP_INFO, CLUSTERSET_IPV6_INFO, DISCOVERY_AGENT, GATEWAY,
    GLOBALNET, GLOBALNET_INFO, MEMBER_ROLE, PLUGIN_ROUTES, ROUTE_AGENT, UPSTREAM_MEMBER_ROLE,
};
use super::{Manifest, MemberOptions, names};

mod clusterset;
mod discovery;
mod gateway;
mod globalnet;
mod network_maps;
mod operator;
mod plugin;
mod right;

pub use clusterset::{CLUSTERSET_EVERYWHERE, CLUSTERSET_HERE};
pub use discovery::{DISCOVERY_ACCOUNTS, DISCOVERY_GLOBALNET};
use gateway::{GATEWAY_BESIDE, GATEWAY_EVERYWHERE, GATEWAY_HERE};
pub use globalnet::{GLOBALNET_EVERYWHERE, GLOBALNET_HERE};
pub use network_maps::{NETWORK_MAPS, network_map_namespaces};
pub use operator::{OPERATOR_DNS, OPERATOR_EVERYWHERE, OPERATOR_INSIDE, OPERATOR_OWN};
pub use plugin::{
    CALICO_ACCOUNT, CALICO_POOLS, CILIUM_NODES, CILIUM_POOLS, OPENSHIFT_NETWORK, OVN_ACCOUNT,
    PLUGIN_ROUTES_HERE, SPIDERPOOL_ACCOUNT,
};
pub use right::{Account, Right};
use right::{MULTI_CLUSTER, SUBMARINER};

const GROUP: &str = "rbac.authorization.k8s.io";
const API_VERSION: &str = "rbac.authorization.k8s.io/v1";

/// The accounts of a member's cluster.
pub const ACCOUNTS: [Account; 2] = [
    Account { name: GATEWAY, here: GATEWAY_HERE, beside: GATEWAY_BESIDE, everywhere: GATEWAY_EVERYWHERE },
    Account {
        name: ROUTE_AGENT,
        here: ROUTE_AGENT_HERE,
        beside: ROUTE_AGENT_BESIDE,
        everywhere: ROUTE_AGENT_EVERYWHERE,
    },
];

const ROUTE_AGENT_HERE: &[Right] = &[
    Right {
        group: SUBMARINER,
        resources: &["clusters", "endpoints"],
        names: &[],
        verbs: &["list", "watch"],
        reason: "routes follow the endpoints; networks without one are refused",
    },
    Right {
        group: SUBMARINER,
        resources: &["routeagents"],
        names: &[],
        verbs: &["get", "create", "update", "delete"],
        reason: "each route agent publishes what it sees of remote gateways",
    },
    Right {
        group: "",
        resources: &["configmaps"],
        names: &[settings::OBJECT],
        verbs: &["get", "list", "watch"],
        reason: "route agents follow the settings of the cluster's programs, which may change while they run",
    },
];

const ROUTE_AGENT_BESIDE: &[Right] = &[Right {
    group: SUBMARINER,
    resources: &["endpoints"],
    names: &[],
    verbs: &["list", "watch"],
    reason: "routes lead to all gateways of the cluster, and their keys tell whose notices are believed",
}];

const ROUTE_AGENT_EVERYWHERE: &[Right] = &[
    Right {
        group: "",
        resources: &["nodes"],
        names: &[],
        verbs: &["get", "list", "watch"],
        reason: "a route agent waits until its own Node is ready, and sends to the others over vx-submariner",
    },
    Right {
        group: "",
        resources: &["services"],
        names: &[],
        verbs: &["list", "watch"],
        reason: "a route agent serves what gateways send for services to its node",
    },
    Right {
        group: "discovery.k8s.io",
        resources: &["endpointslices"],
        names: &[],
        verbs: &["list", "watch"],
        reason: "which back ends are on its node",
    },
];

/// What a route agent may do besides where it takes the taint from its node.
pub const NODE_TAINT: &[Right] = &[Right {
    group: "",
    resources: &["nodes"],
    names: &[],
    verbs: &["update"],
    reason: "with `--node-taint` only: a route agent takes the taint from its own Node; to that one a ClusterRole cannot restrict it",
}];

const SYNC: &[&str] = &["create", "get", "list", "watch", "patch", "update", "delete"];

/// What a member that Trieste lets join may do in the broker's namespace. Which objects it may write is told by the
/// admission policy.
pub const MEMBER: &[Right] = &[
    Right {
        group: SUBMARINER,
        resources: &["clusters", "endpoints"],
        names: &[],
        verbs: &["list", "watch", "create", "update", "delete"],
        reason: "the leader publishes its own, follows everybody's, and removes its own when uninstalled",
    },
    Right {
        group: MULTI_CLUSTER,
        resources: &["serviceimports"],
        names: &[],
        verbs: &["list", "watch", "create", "update", "delete"],
        reason: "the agent says which services it exports, and follows what all do",
    },
    Right {
        group: MULTI_CLUSTER,
        resources: &["serviceimports/status"],
        names: &[],
        verbs: &["update"],
        reason: "the agent adds its cluster to those that export a service",
    },
    Right {
        group: "discovery.k8s.io",
        resources: &["endpointslices"],
        names: &[],
        verbs: &["list", "watch", "create", "update", "delete"],
        reason: "the agent publishes the addresses of exported services, and follows everybody's",
    },
    Right {
        group: "discovery.k8s.io",
        resources: &["endpointslices/restricted"],
        names: &[],
        verbs: &["create"],
        reason: "OpenShift asks for it of whoever writes slices with addresses of pods",
    },
];

/// What a member that upstream's tool lets join may do in the broker's namespace: what its programs ask for. To list
/// Secrets is among it, so that such a member can read the tokens of all others; nobody has this Role until upstream's
/// tool gives it to somebody.
pub const UPSTREAM_MEMBER: &[Right] = &[
    Right {
        group: SUBMARINER,
        resources: &["clusters", "endpoints"],
        names: &[],
        verbs: SYNC,
        reason: "upstream's gateways publish their own and read everybody's",
    },
    Right {
        group: SUBMARINER,
        resources: &["brokers"],
        names: &[],
        verbs: &["get", "list"],
        reason: "upstream's operator learns what the broker offers",
    },
    Right {
        group: MULTI_CLUSTER,
        resources: &["serviceimports", "serviceimports/status"],
        names: &[],
        verbs: SYNC,
        reason: "upstream's agents publish exported services",
    },
    Right {
        group: "discovery.k8s.io",
        resources: &["endpointslices", "endpointslices/restricted"],
        names: &[],
        verbs: SYNC,
        reason: "upstream's agents publish the addresses of exported services",
    },
    Right {
        group: "",
        resources: &["secrets"],
        names: &[],
        verbs: &["get", "list", "watch"],
        reason: "upstream's operator waits for a new token of its account, among all Secrets",
    },
    Right {
        group: "",
        resources: &["serviceaccounts"],
        names: &[],
        verbs: &["get", "list"],
        reason: "upstream's operator looks for the Secret of its account",
    },
];

/// What who lets members join may do in the broker's namespace. The token in the join file is this account's.
pub const BROKER_ADMINISTRATOR: &[Right] = &[
    Right {
        group: SUBMARINER,
        resources: &["clusters", "endpoints"],
        names: &[],
        verbs: &["list", "delete"],
        reason: "join looks whether an ID is taken; uninstall removes what a member has left",
    },
    Right {
        group: "discovery.k8s.io",
        resources: &["endpointslices"],
        names: &[],
        verbs: &["list", "delete"],
        reason: "uninstall and remove-member remove what a cluster exports",
    },
    Right {
        group: "multicluster.x-k8s.io",
        resources: &["serviceimports"],
        names: &[],
        verbs: &["list", "update", "delete"],
        reason: "likewise: an import goes with its last cluster, and else loses that cluster's part",
    },
    Right {
        group: "multicluster.x-k8s.io",
        resources: &["serviceimports/status"],
        names: &[],
        verbs: &["update"],
        reason: "the clusters of an import stand there",
    },
    Right {
        group: "",
        resources: &["serviceaccounts", "secrets"],
        names: &[],
        verbs: &["create", "get", "list", "patch", "update", "delete"],
        reason: "join makes the member's account and reads its token; uninstall removes both",
    },
    Right {
        group: "",
        resources: &["configmaps"],
        names: &[GLOBALNET_INFO, CLUSTERSET_IP_INFO, CLUSTERSET_IPV6_INFO],
        verbs: &["get", "update"],
        reason: "join takes a share of global addresses and of clusterset IPs, if there are any",
    },
    Right {
        group: GROUP,
        resources: &["rolebindings"],
        names: &[],
        verbs: &["create", "get", "delete"],
        reason: "join gives the member's account its Role; uninstall takes it away",
    },
    Right {
        group: GROUP,
        resources: &["roles"],
        names: &[MEMBER_ROLE],
        verbs: &["get"],
        reason: "join looks whether the broker has the Role, or upstream's alone",
    },
    Right {
        group: GROUP,
        resources: &["roles"],
        names: &[MEMBER_ROLE, UPSTREAM_MEMBER_ROLE],
        verbs: &["bind"],
        reason: "whoever binds a Role must hold its rights, or be allowed to bind it",
    },
];

/// Accounts, Roles and bindings of a member's cluster.
pub(super) fn member(options: &MemberOptions) -> Vec<Manifest> {
    let namespace = options.namespace.as_str();
    let taint = if options.node_taint { NODE_TAINT } else { &[] };
    let nodes = if options.has_cilium() { CILIUM_NODES } else { &[] };
    let more = [(ROUTE_AGENT, [taint, nodes].concat()), (GATEWAY, plugin::of_networks(options))];
    let mut manifests = of_accounts(namespace, &ACCOUNTS, &more);
    if !options.global_cidrs.is_empty() {
        for (scope, rights) in [(namespace, GLOBALNET_HERE), ("", GLOBALNET_EVERYWHERE)] {
            manifests.push(role(scope, GLOBALNET, rights));
            manifests.push(binding(scope, GLOBALNET, GLOBALNET, (namespace, GATEWAY)));
        }
    }
    if !options.clusterset_ip_ranges.is_empty() {
        for (scope, rights) in [(namespace, CLUSTERSET_HERE), ("", CLUSTERSET_EVERYWHERE)] {
            manifests.push(role(scope, CLUSTERSET_IP, rights));
            manifests.push(binding(scope, CLUSTERSET_IP, CLUSTERSET_IP, (namespace, ROUTE_AGENT)));
        }
    }
    let workers = plugin::accounts(options);
    if !workers.is_empty() {
        manifests.extend(of_accounts(namespace, &workers, &[]));
        manifests.push(role(namespace, PLUGIN_ROUTES, PLUGIN_ROUTES_HERE));
        manifests.push(binding(namespace, PLUGIN_ROUTES, PLUGIN_ROUTES, (namespace, ROUTE_AGENT)));
    }
    for (theirs, rights) in network_maps::rights(&options.followed) {
        manifests.push(role(theirs, names::NETWORK_MAPS, &rights));
        manifests.push(binding(theirs, names::NETWORK_MAPS, names::NETWORK_MAPS, (namespace, GATEWAY)));
    }
    if options.has_service_discovery() {
        manifests.extend(service_discovery(options));
    }
    manifests
}

/// Accounts, Roles and bindings of service discovery.
pub(super) fn service_discovery(options: &MemberOptions) -> Vec<Manifest> {
    let global = if options.has_global_services() { DISCOVERY_GLOBALNET } else { &[] };
    of_accounts(&options.namespace, &DISCOVERY_ACCOUNTS, &[(DISCOVERY_AGENT, global.to_vec())])
}

/// Makes accounts, Roles and bindings; some accounts have `more` rights in the whole cluster than usual.
fn of_accounts(namespace: &str, accounts: &[Account], more: &[(&str, Vec<Right>)]) -> Vec<Manifest> {
    let paths = paths_namespace(namespace);
    let of = |account: &Account| {
        [(namespace, account.here), (paths.as_str(), account.beside), ("", account.everywhere)]
    };
    let [mut roles, mut bindings] = [const { Vec::new() }; 2];
    for place in 0..3 {
        for account in accounts {
            let (scope, rights) = of(account)[place];
            let besides = more.iter().filter(|(who, _)| scope.is_empty() && account.name == *who);
            let rights: Vec<Right> =
                rights.iter().chain(besides.flat_map(|(_, rights)| rights)).copied().collect();
            if !rights.is_empty() {
                roles.push(role(scope, account.name, &rights));
                bindings.push(binding(scope, account.name, account.name, (namespace, account.name)));
            }
        }
    }
    let accounts = accounts.iter().map(|account| service_account(namespace, account.name));
    accounts.chain(roles).chain(bindings).collect()
}

/// The administrator's account, and the Roles of a broker.
pub(super) fn broker(namespace: &str) -> Vec<Manifest> {
    vec![
        service_account(namespace, BROKER_ADMIN),
        role(namespace, BROKER_ADMIN, BROKER_ADMINISTRATOR),
        binding(namespace, BROKER_ADMIN, BROKER_ADMIN, (namespace, BROKER_ADMIN)),
        role(namespace, MEMBER_ROLE, MEMBER),
        role(namespace, UPSTREAM_MEMBER_ROLE, UPSTREAM_MEMBER),
    ]
}

/// An account. Pods that need its token get it by their own specification.
pub(super) fn service_account(namespace: &str, name: &str) -> Manifest {
    Manifest::make("v1", "ServiceAccount", namespace, name)
}

/// A Role, or without a namespace a ClusterRole.
pub(super) fn role(namespace: &str, name: &str, rights: &[Right]) -> Manifest {
    let kind = if namespace.is_empty() { "ClusterRole" } else { "Role" };
    let rules: Vec<Value> = rights.iter().map(Right::rule).collect();
    Manifest::make(API_VERSION, kind, namespace, name).with("rules", json!(rules))
}

/// A RoleBinding, or without a namespace a ClusterRoleBinding.
pub(super) fn binding(namespace: &str, name: &str, role: &str, account: (&str, &str)) -> Manifest {
    let prefix = if namespace.is_empty() { "Cluster" } else { "" };
    let role = json!({"apiGroup": GROUP, "kind": format!("{prefix}Role"), "name": role});
    let subject = json!({"kind": "ServiceAccount", "namespace": account.0, "name": account.1});
    Manifest::make(API_VERSION, &format!("{prefix}RoleBinding"), namespace, name)
        .with("roleRef", role)
        .with("subjects", json!([subject]))
}

impl Right {
    fn rule(&self) -> Value {
        let mut rule = json!({"apiGroups": [self.group], "resources": self.resources, "verbs": self.verbs});
        if !self.names.is_empty() {
            rule["resourceNames"] = json!(self.names);
        }
        rule
    }
}

#[cfg(test)]
mod tests;
