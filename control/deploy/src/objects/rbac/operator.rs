//! The operator's own rights. It holds those that it hands out, too (`objects/operator.rs`), and may neither escalate nor impersonate, so that Kubernetes
//! refuses whatever is beyond.

use super::right::{MULTI_CLUSTER, Right, SUBMARINER};
use crate::objects::names::NETWORK_MAPS;

const GROUP: &str = "rbac.authorization.k8s.io";
const ALL: &[&str] = &["get", "list", "watch", "create", "update", "patch", "delete"];

/// What the operator may do in its own namespace.
pub const OPERATOR_OWN: &[Right] = &[
    Right {
        group: "coordination.k8s.io",
        resources: &["leases"],
        names: &[],
        verbs: &["get", "list", "watch", "create", "update", "delete"],
        reason: "operators elect the one that works",
    },
    Right {
        group: "",
        resources: &["secrets", "configmaps"],
        names: &[],
        verbs: &["get"],
        reason: "a member joins with the broker's join data, and a cloud is asked with credentials, which somebody has put there",
    },
];

/// What the operator may do in each of the namespaces of a member and of a broker.
pub const OPERATOR_INSIDE: &[Right] = &[
    Right {
        group: "",
        resources: &["configmaps", "pods", "secrets", "serviceaccounts", "services"],
        names: &[],
        verbs: ALL,
        reason: "the operator makes what join and deploy-broker make, and removes it",
    },
    Right {
        group: "apps",
        resources: &["daemonsets", "deployments"],
        names: &[],
        verbs: ALL,
        reason: "likewise: gateways, route agents, workers, service discovery, and what cleans nodes",
    },
    Right {
        group: "apps",
        resources: &["controllerrevisions"],
        names: &[],
        verbs: &["list"],
        reason: "gateways' pods are replaced one by one: of which template each is",
    },
    Right {
        group: "batch",
        resources: &["jobs"],
        names: &[],
        verbs: ALL,
        reason: "exported services are withdrawn by a Job",
    },
    Right {
        group: "policy",
        resources: &["poddisruptionbudgets"],
        names: &[],
        verbs: ALL,
        reason: "one DNS server stays while nodes are emptied",
    },
    Right {
        group: GROUP,
        resources: &["roles", "rolebindings"],
        names: &[],
        verbs: ALL,
        reason: "the programs' rights, none of which is more than the operator's own",
    },
    Right {
        group: "coordination.k8s.io",
        resources: &["leases"],
        names: &[],
        verbs: ALL,
        reason: "an uninstall removes what elections have left",
    },
    Right {
        group: SUBMARINER,
        resources: &[
            "brokers",
            "clusters",
            "endpoints",
            "gatewayroutes",
            "gateways",
            "nongatewayroutes",
            "routeagents",
            "servicediscoveries",
            "submariners",
        ],
        names: &[],
        verbs: ALL,
        reason: "the operator says there what was chosen, or carries out what others have chosen; an uninstall removes what programs have written",
    },
    Right {
        group: SUBMARINER,
        resources: &["brokers/status", "servicediscoveries/status", "submariners/status"],
        names: &[],
        verbs: &["patch", "update"],
        reason: "what was found out of the cluster's networks, and what became of what such an object says",
    },
];

/// What the operator may do in the whole cluster.
pub const OPERATOR_EVERYWHERE: &[Right] = &[
    Right {
        group: "trieste.io",
        resources: &["fabrics"],
        names: &[],
        verbs: &["get", "list", "watch", "update"],
        reason: "what is to be carried out; finalizers",
    },
    Right {
        group: "trieste.io",
        resources: &["fabrics/status"],
        names: &[],
        verbs: &["update"],
        reason: "the operator says what became of it",
    },
    Right {
        group: "operator.tkestack.io",
        resources: &["fabrics", "knitnets"],
        names: &[],
        verbs: &["get", "list", "watch", "update"],
        reason: "likewise, with --tkestack-objects: the resource of another operator",
    },
    Right {
        group: "operator.tkestack.io",
        resources: &["fabrics/status", "knitnets/status"],
        names: &[],
        verbs: &["update"],
        reason: "likewise: the operator says what became of it",
    },
    Right {
        group: "",
        resources: &["events"],
        names: &[],
        verbs: &["create"],
        reason: "the operator tells what happened to a Fabric, or to an object of Submariner's operator",
    },
    Right {
        group: "",
        resources: &["nodes"],
        names: &[],
        verbs: &["get", "list", "watch", "patch"],
        reason: "gateways' nodes are chosen and labelled",
    },
    Right {
        group: "",
        resources: &["namespaces"],
        names: &[],
        verbs: &["get", "create", "patch"],
        reason: "the namespaces' labels are kept as they should be; join looks whether it may make them",
    },
    Right {
        group: "",
        resources: &["pods"],
        names: &[],
        verbs: &["list"],
        reason: "the network plugin is recognised by its pods, and ports that are taken",
    },
    Right {
        group: "",
        resources: &["services"],
        names: &[],
        verbs: &["list"],
        reason: "OVN-Kubernetes' database is found by its Service",
    },
    Right {
        group: "",
        resources: &["configmaps"],
        names: &[],
        verbs: &["get"],
        reason: "network plugins and kubeadm say the cluster's networks there, and the cluster's DNS what it imports",
    },
    Right {
        group: "apps",
        resources: &["daemonsets", "deployments"],
        names: &[],
        verbs: &["list"],
        reason: "other installations and Submariner's operator would be in the way",
    },
    Right {
        group: SUBMARINER,
        resources: &["brokers", "clusters", "endpoints", "servicediscoveries", "submariners"],
        names: &[],
        verbs: &["list"],
        reason: "another installation keeps the definitions",
    },
    Right {
        group: MULTI_CLUSTER,
        resources: &["serviceexports", "serviceimports"],
        names: &[],
        verbs: &["list"],
        reason: "users' exports keep their definition",
    },
    Right {
        group: "apiextensions.k8s.io",
        resources: &["customresourcedefinitions"],
        names: &[],
        verbs: &["get", "list", "create", "patch", "delete"],
        reason: "the definitions come with a part, and go with the last one",
    },
    Right {
        group: GROUP,
        resources: &["clusterroles", "clusterrolebindings"],
        names: &[],
        verbs: &["get", "list", "create", "patch", "delete"],
        reason: "the programs' rights in the whole cluster, none of which is more than the operator's own",
    },
    Right {
        group: GROUP,
        resources: &["roles", "rolebindings"],
        names: &[],
        verbs: &["list", "create"],
        reason: "gateways read network plugins' ConfigMaps in the plugins' own namespaces, which may come later; likewise",
    },
    Right {
        group: GROUP,
        resources: &["roles", "rolebindings"],
        names: &[NETWORK_MAPS],
        verbs: &["get", "patch", "delete"],
        reason: "of that name alone",
    },
    Right {
        group: "admissionregistration.k8s.io",
        resources: &["validatingadmissionpolicies", "validatingadmissionpolicybindings"],
        names: &[],
        verbs: &["get", "create", "patch", "delete"],
        reason: "by a policy members write only what is theirs on a broker",
    },
    Right {
        group: "networking.k8s.io",
        resources: &["servicecidrs"],
        names: &[],
        verbs: &["list"],
        reason: "the networks of services",
    },
    Right {
        group: "config.openshift.io",
        resources: &["networks"],
        names: &[],
        verbs: &["list"],
        reason: "the networks of an OpenShift cluster",
    },
    Right {
        group: "operator.openshift.io",
        resources: &["dnses"],
        names: &[],
        verbs: &["get", "update", "patch"],
        reason: "OpenShift's DNS forwards the set's names",
    },
    Right {
        group: "machine.openshift.io",
        resources: &["machinesets"],
        names: &[],
        verbs: &["get", "list", "create", "patch", "delete"],
        reason: "where a cloud is prepared, OpenShift makes machines for gateways; their namespace is OpenShift's own",
    },
    Right {
        group: "config.openshift.io",
        resources: &["infrastructures"],
        names: &["cluster"],
        verbs: &["get"],
        reason: "what a cloud that is prepared calls an OpenShift cluster's resources",
    },
    Right {
        group: "crd.projectcalico.org",
        resources: &["ippools"],
        names: &[],
        verbs: &["list", "delete"],
        reason: "Calico's networks, and what is left of pools for other clusters",
    },
];

/// What the operator may do in `kube-system`.
pub const OPERATOR_DNS: &[Right] = &[
    Right {
        group: "",
        resources: &["configmaps"],
        names: &[],
        verbs: &["create", "list", "update", "patch"],
        reason: "the cluster's DNS forwards the set's names: a section of the Corefile, or a ConfigMap that it imports",
    },
    Right {
        group: "",
        resources: &["configmaps"],
        names: &["coredns-custom"],
        verbs: &["delete"],
        reason: "the ConfigMap that k3s's DNS imports, where it was made for the set's names alone",
    },
];
