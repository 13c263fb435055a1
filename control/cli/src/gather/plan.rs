//! What is gathered, by module: lists of objects, and the pods whose logs are read.

/// A kind of objects, at its place in the API.
#[derive(Debug, Clone, Copy)]
pub(super) struct Objects {
    /// Group and version below `/api` or `/apis`.
    pub(super) api: &'static str,
    pub(super) plural: &'static str,
    pub(super) scope: Scope,
}

/// Where objects are looked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Scope {
    /// In the namespace of Submariner's pods.
    Own,
    /// In the broker's namespace.
    Broker,
    /// In every namespace, or outside of them.
    All,
    /// As [`Scope::All`], but only those whose name or labels say that they are part of an installation.
    Related,
}

/// Pods, by a label.
#[derive(Debug, Clone, Copy)]
pub(super) struct Pods {
    /// The namespace; empty for that of Submariner's pods.
    pub(super) namespace: &'static str,
    pub(super) selector: &'static str,
}

/// What belongs to a module.
#[derive(Debug, Clone, Copy)]
pub(super) struct Content {
    pub(super) objects: &'static [Objects],
    pub(super) pods: &'static [Pods],
}

impl Content {
    /// Returns `true` if objects of the broker's namespace belong to it.
    pub(super) fn reads_broker(&self) -> bool {
        self.objects.iter().any(|objects| objects.scope == Scope::Broker)
    }
}

const fn of(api: &'static str, plural: &'static str, scope: Scope) -> Objects {
    Objects { api, plural, scope }
}

const fn labelled(selector: &'static str) -> Pods {
    Pods { namespace: "", selector }
}

const fn system(selector: &'static str) -> Pods {
    Pods { namespace: "kube-system", selector }
}

const CORE: &str = "api/v1";
const APPS: &str = "apis/apps/v1";
const RBAC: &str = "apis/rbac.authorization.k8s.io/v1";
const SUBMARINER: &str = "apis/submariner.io/v1";
const OPERATOR: &str = "apis/submariner.io/v1alpha1";
const MULTI_CLUSTER: &str = "apis/multicluster.x-k8s.io/v1alpha1";
const NEWER_MULTI_CLUSTER: &str = "apis/multicluster.x-k8s.io/v1beta1";
const SLICES: &str = "apis/discovery.k8s.io/v1";

pub(super) const CONNECTIVITY: Content = Content {
    objects: &[
        of(SUBMARINER, "clusters", Scope::Own),
        of(SUBMARINER, "endpoints", Scope::Own),
        of(SUBMARINER, "gateways", Scope::Own),
        of(SUBMARINER, "routeagents", Scope::Own),
        of(SUBMARINER, "gatewayroutes", Scope::Own),
        of(SUBMARINER, "nongatewayroutes", Scope::Own),
        of(SUBMARINER, "clusterglobalegressips", Scope::All),
        of(SUBMARINER, "globalegressips", Scope::All),
        of(SUBMARINER, "globalingressips", Scope::All),
        of("apis/coordination.k8s.io/v1", "leases", Scope::Own),
        of(CORE, "nodes", Scope::All),
        of("apis/crd.projectcalico.org/v1", "ippools", Scope::All),
    ],
    pods: &[
        labelled("app=submariner-gateway"),
        labelled("app=submariner-routeagent"),
        labelled("app=submariner-globalnet"),
        labelled("app=submariner-metrics-proxy"),
        labelled("app=trieste-plugin-sync"),
        system("k8s-app=kube-proxy"),
    ],
};

pub(super) const SERVICE_DISCOVERY: Content = Content {
    objects: &[
        of(MULTI_CLUSTER, "serviceexports", Scope::All),
        of(MULTI_CLUSTER, "serviceimports", Scope::All),
        of(SLICES, "endpointslices", Scope::Related),
    ],
    pods: &[
        labelled("app=submariner-lighthouse-agent"),
        labelled("app=submariner-lighthouse-coredns"),
        system("k8s-app=kube-dns"),
    ],
};

pub(super) const BROKER: Content = Content {
    objects: &[
        of(OPERATOR, "brokers", Scope::All),
        of(SUBMARINER, "clusters", Scope::Broker),
        of(SUBMARINER, "endpoints", Scope::Broker),
        of(MULTI_CLUSTER, "serviceimports", Scope::Broker),
        of(SLICES, "endpointslices", Scope::Broker),
        of(CORE, "configmaps", Scope::Broker),
        of(CORE, "secrets", Scope::Broker),
        of(CORE, "serviceaccounts", Scope::Broker),
        of(CORE, "events", Scope::Broker),
        of(RBAC, "roles", Scope::Broker),
        of(RBAC, "rolebindings", Scope::Broker),
        of("apis/admissionregistration.k8s.io/v1", "validatingadmissionpolicies", Scope::Related),
        of("apis/admissionregistration.k8s.io/v1", "validatingadmissionpolicybindings", Scope::Related),
    ],
    pods: &[],
};

pub(super) const INSTALLATION: Content = Content {
    objects: &[
        of(OPERATOR, "submariners", Scope::Own),
        of(OPERATOR, "servicediscoveries", Scope::Own),
        of(APPS, "daemonsets", Scope::Own),
        of(APPS, "deployments", Scope::Own),
        of(APPS, "replicasets", Scope::Own),
        of(APPS, "controllerrevisions", Scope::Own),
        of(CORE, "pods", Scope::Own),
        of(CORE, "services", Scope::Own),
        of(CORE, "configmaps", Scope::Own),
        of(CORE, "secrets", Scope::Own),
        of(CORE, "serviceaccounts", Scope::Own),
        of(CORE, "events", Scope::Own),
        of(RBAC, "roles", Scope::Own),
        of(RBAC, "rolebindings", Scope::Own),
        of(RBAC, "clusterroles", Scope::Related),
        of(RBAC, "clusterrolebindings", Scope::Related),
        of("apis/apiextensions.k8s.io/v1", "customresourcedefinitions", Scope::Related),
    ],
    pods: &[labelled("name=submariner-operator")],
};

impl Objects {
    /// The path of their list.
    pub(super) fn path(&self, own: &str, broker: &str) -> String {
        self.path_in(self.api, own, broker)
    }

    /// Returns the path in the other version in which a cluster may serve the kind; `None` if there is one alone.
    pub(super) fn newer_path(&self, own: &str, broker: &str) -> Option<String> {
        (self.api == MULTI_CLUSTER).then(|| self.path_in(NEWER_MULTI_CLUSTER, own, broker))
    }

    fn path_in(&self, api: &str, own: &str, broker: &str) -> String {
        let Self { plural, scope, .. } = self;
        match scope {
            Scope::Own => format!("/{api}/namespaces/{own}/{plural}"),
            Scope::Broker => format!("/{api}/namespaces/{broker}/{plural}"),
            Scope::All | Scope::Related => format!("/{api}/{plural}"),
        }
    }
}

/// The commands that show a node's network, run in the route agent's pod: a name for the file, and the words.
pub(super) const NODE_COMMANDS: [(&str, &[&str]); 21] = [
    ("node-report", &["trieste", "node", "report"]),
    ("ip-d-a", &["ip", "-d", "a"]),
    ("ip-d-l", &["ip", "-d", "-s", "l"]),
    ("ip-route-show", &["ip", "route", "show"]),
    ("ip-route-show-table-all", &["ip", "route", "show", "table", "all"]),
    ("ip-6-route-show-table-all", &["ip", "-6", "route", "show", "table", "all"]),
    ("ip-rule-list", &["ip", "rule", "list"]),
    ("ip-6-rule-list", &["ip", "-6", "rule", "list"]),
    ("ip-rule-show-table-150", &["ip", "rule", "show", "table", "150"]),
    ("ip-neigh", &["ip", "neigh"]),
    ("bridge-fdb", &["bridge", "fdb", "show"]),
    ("sysctl-a", &["sysctl", "-a"]),
    ("nft-ruleset", &["nft", "list", "ruleset"]),
    ("ipset-list", &["ipset", "list"]),
    ("iptables", &["iptables", "-L", "-n", "-v", "--line-numbers"]),
    ("iptables-nat", &["iptables", "-L", "-n", "-v", "--line-numbers", "-t", "nat"]),
    ("iptables-mangle", &["iptables", "-L", "-n", "-v", "--line-numbers", "-t", "mangle"]),
    ("iptables-save", &["iptables-save"]),
    ("ip6tables-save", &["ip6tables-save"]),
    // What somebody filters by in the older half of the kernel, which the commands above do not show; nothing otherwise.
    ("iptables-legacy-save", &["iptables-legacy-save"]),
    ("ip6tables-legacy-save", &["ip6tables-legacy-save"]),
];

/// The commands that show a gateway, run in its pod. Those of upstream's cable drivers are there for upstream's image.
pub(super) const GATEWAY_COMMANDS: [(&str, &[&str]); 9] = [
    ("trieste-status.json", &["trieste", "status", "--output", "json"]),
    ("trieste-status", &["trieste", "status", "--verbose"]),
    ("ip-route-show-table-150", &["ip", "route", "show", "table", "150"]),
    ("ip-route-show-table-100", &["ip", "route", "show", "table", "100"]),
    ("ss-u", &["ss", "-u", "-a", "-n"]),
    ("ip-xfrm-policy", &["ip", "xfrm", "policy"]),
    ("ip-xfrm-state", &["ip", "xfrm", "state"]),
    ("ipsec-status", &["ipsec", "status"]),
    ("ipsec-trafficstatus", &["ipsec", "--trafficstatus"]),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_with_two_versions_have_two_paths() {
        let find = |plural| BROKER.objects.iter().find(|objects| objects.plural == plural).unwrap();
        let (imports, slices) = (find("serviceimports"), find("endpointslices"));
        assert_eq!(
            [Some(imports.path("own", "broker")), imports.newer_path("own", "broker")],
            ["v1alpha1", "v1beta1"].map(|version| Some(format!(
                "/apis/multicluster.x-k8s.io/{version}/namespaces/broker/serviceimports"
            )))
        );
        assert_eq!(slices.newer_path("own", "broker"), None);
    }
}
