//! Deployments: pods that have nothing to do with the node that they run on.

use serde_json::{Value, json};
use trieste_control::api::label::HOSTNAME;

use super::pod::{Volume, add_pull_secrets, node_selector, pod_labels, unprivileged};
use super::{Manifest, MemberOptions};

/// The user of that name.
const NOBODY: u32 = 65534;

/// A Deployment and what its pods are made of. They have no right on their node and are not root.
pub(super) struct Deployment<'a> {
    pub(super) options: &'a MemberOptions,
    /// The name of the Deployment, its container and its ServiceAccount.
    pub(super) name: &'static str,
    /// The `component` label.
    pub(super) component: &'static str,
    pub(super) replicas: u32,
    /// The container, but for what all of them have.
    pub(super) container: Value,
    pub(super) volumes: Vec<Volume>,
    pub(super) grace_seconds: u32,
}

impl Deployment<'_> {
    pub(super) fn manifest(self) -> Manifest {
        let (name, component, namespace) = (self.name, self.component, self.options.namespace.clone());
        let spec = json!({
            "replicas": self.replicas,
            "selector": {"matchLabels": {"app": name}},
            // A new pod is ready before an old one goes.
            "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 0, "maxSurge": 1}},
            "template": {"metadata": {"labels": pod_labels(name, component)}, "spec": self.pod_spec()},
        });
        Manifest::make("apps/v1", "Deployment", &namespace, name)
            .labelled("app", name)
            .labelled("component", component)
            .with("spec", spec)
    }

    fn pod_spec(self) -> Value {
        let options = self.options;
        let mut container = self.container;
        container["name"] = json!(self.name);
        unprivileged(&mut container, options);
        container["volumeMounts"] = self.volumes.iter().map(Volume::mount).collect();
        let apart = json!([{"weight": 100, "podAffinityTerm": {
            "labelSelector": {"matchLabels": {"app": self.name}}, "topologyKey": HOSTNAME,
        }}]);
        let mut spec = json!({
            "serviceAccountName": self.name,
            "priorityClassName": "system-cluster-critical",
            "terminationGracePeriodSeconds": self.grace_seconds,
            "nodeSelector": node_selector(options, &[]),
            "affinity": {"podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": apart}},
            "securityContext": {"runAsNonRoot": true, "runAsUser": NOBODY, "runAsGroup": NOBODY, "fsGroup": NOBODY},
            "containers": [container],
            "volumes": self.volumes.into_iter().map(Volume::object).collect::<Value>(),
        });
        if !options.tolerations.is_empty() {
            spec["tolerations"] = json!(options.tolerations);
        }
        add_pull_secrets(&mut spec, options);
        spec
    }
}
