//! What the pods on nodes have in common.

use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use super::names::{
    ALLOW_REMOTE_CIDRS, MANAGED_BY_LABEL, NODE_TAINT_KEY, PART_OF_LABEL, TRIESTE, VERSION_LABEL,
};
use super::{Manifest, MemberOptions, MemoryLimit, networks};
use crate::preflight::VIRTUAL;

/// Where the image has its programs.
const PROGRAMS: &str = "/usr/local/bin";
/// Where the host's `/proc/sys/net` is mounted: a container's own `/proc/sys` cannot be written.
const PROC_SYS: &str = "/host/proc/sys";

/// A DaemonSet and what its pods are made of.
pub(super) struct Daemon<'a> {
    pub(super) options: &'a MemberOptions,
    /// The name of the DaemonSet, its container and its ServiceAccount.
    pub(super) name: &'static str,
    /// The `component` label.
    pub(super) component: &'static str,
    pub(super) init_containers: Vec<Value>,
    /// The container, but for what all of them have.
    pub(super) container: Value,
    pub(super) volumes: Vec<Volume>,
    pub(super) node_selector: Value,
    /// How many pods may be down at once during an update.
    pub(super) max_unavailable: Value,
    pub(super) grace_seconds: u32,
    /// What the container may do beside what everybody may.
    pub(super) capabilities: &'static [&'static str],
    /// Annotations of the pods: when one changes, pods are made anew.
    pub(super) annotations: Vec<(&'static str, String)>,
}

/// A file, directory or Secret that a container sees.
pub(super) struct Volume {
    pub(super) name: &'static str,
    pub(super) source: Value,
    pub(super) at: String,
    pub(super) is_read_only: bool,
}

impl Volume {
    /// A file or directory of the node, at the same place in the container.
    pub(super) fn host(name: &'static str, path: &str, kind: &str) -> Self {
        let source = json!({"hostPath": {"path": path, "type": kind}});
        Self { name, source, at: path.to_owned(), is_read_only: false }
    }

    /// Returns an empty folder of the pod's own, for a few small files.
    pub(super) fn scratch(name: &'static str, at: &str) -> Self {
        let source = json!({"emptyDir": {"sizeLimit": "1Mi"}});
        Self { name, source, at: at.to_owned(), is_read_only: false }
    }

    /// A Secret that only root in the container can read.
    pub(super) fn secret(name: &'static str, secret: &str, at: String) -> Self {
        let source = json!({"secret": {"secretName": secret, "defaultMode": 0o400}});
        Self { name, source, at, is_read_only: true }
    }

    /// A Secret that the pod's group can read, for programs that do not run as root.
    pub(super) fn group_secret(name: &'static str, secret: &str, at: String) -> Self {
        let source = json!({"secret": {"secretName": secret, "defaultMode": 0o440}});
        Self { name, source, at, is_read_only: true }
    }

    /// Returns a Secret that may be missing: the folder is empty then.
    pub(super) fn optional_secret(name: &'static str, secret: &str, at: String) -> Self {
        let mut volume = Self::secret(name, secret, at);
        volume.source["secret"]["optional"] = json!(true);
        volume
    }

    /// Makes it one in which the container changes nothing. Unix sockets in it can be connected to all the same.
    pub(super) fn read_only(self) -> Self {
        Self { is_read_only: true, ..self }
    }

    /// The node's network settings.
    pub(super) fn sysctls() -> Self {
        let mut volume = Self::host("host-proc-sys-net", "/proc/sys/net", "Directory");
        volume.at = format!("{PROC_SYS}/net");
        volume
    }

    pub(super) fn mount(&self) -> Value {
        let mut mount = json!({"name": self.name, "mountPath": self.at});
        if self.is_read_only {
            mount["readOnly"] = json!(true);
        }
        mount
    }

    /// Returns it as a pod's specification has it.
    pub(super) fn object(self) -> Value {
        let mut object = self.source;
        object["name"] = json!(self.name);
        object
    }
}

impl Daemon<'_> {
    pub(super) fn manifest(self) -> Manifest {
        let options = self.options;
        let mut pod_metadata = json!({"labels": pod_labels(self.name, self.component)});
        for (key, value) in &self.annotations {
            pod_metadata["annotations"][*key] = json!(value);
        }
        let update =
            json!({"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": self.max_unavailable}});
        let (name, component, namespace) = (self.name, self.component, options.namespace.clone());
        let spec = json!({
            "selector": {"matchLabels": {"app": name}},
            "updateStrategy": update,
            "template": {"metadata": pod_metadata, "spec": self.pod_spec()},
        });
        Manifest::make("apps/v1", "DaemonSet", &namespace, name)
            .labelled("app", name)
            .labelled("component", component)
            .with("spec", spec)
    }

    fn pod_spec(self) -> Value {
        let options = self.options;
        let mut container = self.container;
        container["name"] = json!(self.name);
        dress(&mut container, options, with_capabilities(self.capabilities));
        container["volumeMounts"] = self.volumes.iter().map(Volume::mount).collect();
        let volumes = self.volumes.into_iter().map(Volume::object);
        let tolerations = if options.tolerations.is_empty() || options.deployments_alone {
            json!([{"operator": "Exists"}])
        } else {
            // Until the route agent runs the node has it.
            let not_ready = json!({"key": NODE_TAINT_KEY, "operator": "Exists"});
            options.tolerations.iter().cloned().chain(options.node_taint.then_some(not_ready)).collect()
        };
        let mut spec = json!({
            "serviceAccountName": self.name,
            "hostNetwork": true,
            "dnsPolicy": "ClusterFirstWithHostNet",
            "priorityClassName": options.priority_class.as_deref().unwrap_or("system-node-critical"),
            "terminationGracePeriodSeconds": self.grace_seconds,
            "nodeSelector": self.node_selector,
            "affinity": on_machines(),
            "tolerations": tolerations,
            "containers": [container],
            "volumes": volumes.collect::<Value>(),
        });
        if !self.init_containers.is_empty() {
            spec["initContainers"] = json!(self.init_containers);
        }
        add_pull_secrets(&mut spec, options);
        spec
    }
}

/// Returns half of a hash as text: enough to tell one value from another, for annotations by which pods are replaced.
pub(super) fn checksum(hash: Sha256) -> String {
    hash.finalize().iter().take(8).map(|byte| format!("{byte:02x}")).collect()
}

/// Returns the labels of a pod.
pub(super) fn pod_labels(name: &str, component: &str) -> Value {
    json!({
        "app": name,
        "component": component,
        PART_OF_LABEL: TRIESTE,
        MANAGED_BY_LABEL: TRIESTE,
        VERSION_LABEL: env!("CARGO_PKG_VERSION"),
    })
}

/// Adds to a pod's specification by which Secrets its image is pulled.
pub(super) fn add_pull_secrets(spec: &mut Value, options: &MemberOptions) {
    if !options.pull_secrets.is_empty() {
        spec["imagePullSecrets"] = options.pull_secrets.iter().map(|name| json!({"name": name})).collect();
    }
}

/// A container without any right, for work before the program starts.
pub(super) fn init_container(options: &MemberOptions, name: &str, program: &str, env: &[Value]) -> Value {
    let mut container = json!({"name": name, "command": [path(program)], "env": env});
    dress(&mut container, options, root_security());
    container["resources"] = MemoryLimit::BESIDE.resources("10m", "16Mi");
    container
}

/// Adds what all containers have to one that needs no right, and not to be root.
pub(super) fn unprivileged(container: &mut Value, options: &MemberOptions) {
    dress(container, options, bare_security());
}

fn dress(container: &mut Value, options: &MemberOptions, security: Value) {
    container["image"] = json!(options.image.reference);
    container["imagePullPolicy"] = json!(options.image.pull_policy.as_str());
    container["securityContext"] = security;
    // What a program said last, where it could not write a log.
    container["terminationMessagePolicy"] = json!("FallbackToLogsOnError");
}

/// Devices, routes and rules need NET_ADMIN; pings, marks and binding to devices need NET_RAW. Nothing needs more.
pub(super) const NETWORK: &[&str] = &["NET_ADMIN", "NET_RAW"];

/// AF_XDP needs its program loaded (BPF), and memory that the kernel shares, of which a container's limit may be too low
/// (IPC_LOCK; a pod cannot raise that limit).
pub(super) const RINGS: &[&str] = &["NET_ADMIN", "NET_RAW", "BPF", "IPC_LOCK"];

/// Returns root with these capabilities and no other.
fn with_capabilities(capabilities: &[&str]) -> Value {
    let mut security = root_security();
    if !capabilities.is_empty() {
        security["capabilities"]["add"] = json!(capabilities);
    }
    security
}

/// Returns root without any right: capabilities of other users are not handed on to containers.
fn root_security() -> Value {
    let mut security = bare_security();
    security["runAsUser"] = json!(0);
    security
}

fn bare_security() -> Value {
    json!({
        "privileged": false,
        "allowPrivilegeEscalation": false,
        "readOnlyRootFilesystem": true,
        "capabilities": {"drop": ["ALL"]},
        "seccompProfile": {"type": "RuntimeDefault"},
    })
}

/// Where a program is.
pub(super) fn path(program: &str) -> String {
    format!("{PROGRAMS}/{program}")
}

/// Returns a probe that runs a program of the image with `--check`, every `period` seconds.
pub(super) fn check(program: &str, period: u32, failures: u32) -> Value {
    json!({
        "exec": {"command": [path(program), "--check"]},
        "periodSeconds": period,
        "timeoutSeconds": 5,
        "successThreshold": 1,
        "failureThreshold": failures,
    })
}

/// A variable of a container.
pub(super) fn variable(name: &str, value: impl Into<String>) -> Value {
    json!({"name": name, "value": value.into()})
}

/// A variable that holds a field of the pod.
pub(super) fn field(name: &str, path: &str) -> Value {
    json!({"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}})
}

/// Returns the variable with the ranges of the set's clusterset IPs, if there are any.
pub(super) fn clusterset_ip_ranges(name: &str, options: &MemberOptions) -> Option<Value> {
    let ranges = &options.clusterset_ip_ranges;
    (!ranges.is_empty()).then(|| variable(name, super::options::joined(ranges)))
}

/// Returns the variables that both programs read, in upstream's names. What can change while they run is in the ConfigMap of settings, so
/// that no pod is replaced for it.
pub(super) fn common_variables(options: &MemberOptions) -> Vec<Value> {
    use super::options::joined;
    let mut variables = vec![
        variable("SUBMARINER_NAMESPACE", &options.namespace),
        variable("SUBMARINER_CLUSTERID", &options.cluster_id),
        variable("SUBMARINER_GLOBALCIDR", joined(&options.global_cidrs)),
        variable("SUBMARINER_HEALTHCHECKENABLED", options.health_check.enabled.to_string()),
        variable("TRIESTE_PROC_SYS", PROC_SYS),
        field("NODE_NAME", "spec.nodeName"),
        field("POD_NAME", "metadata.name"),
    ];
    variables.extend(networks::variables());
    if !options.allow_remote_cidrs.is_empty() {
        variables.push(variable(ALLOW_REMOTE_CIDRS, joined(&options.allow_remote_cidrs)));
    }
    variables.extend(proxy_variables(options));
    variables
}

/// The variables that say how the world is reached.
pub(super) fn proxy_variables(options: &MemberOptions) -> impl Iterator<Item = Value> {
    let proxy = &options.proxy;
    let named = [("HTTP_PROXY", &proxy.http), ("HTTPS_PROXY", &proxy.https), ("NO_PROXY", &proxy.no_proxy)];
    let said = named.into_iter().filter(|(_, value)| !value.is_empty());
    said.map(|(name, value)| variable(name, value))
}

/// Not on virtual nodes, where such pods never start.
fn on_machines() -> Value {
    let others = VIRTUAL.map(|(key, value)| json!({"key": key, "operator": "NotIn", "values": [value]}));
    json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {
        "nodeSelectorTerms": [{"matchExpressions": others}],
    }}})
}

/// Returns the labels that nodes of a DaemonSet must have: as [`node_selector`], unless choices are about Deployments alone.
pub(super) fn daemon_selector(options: &MemberOptions, needed: &[(&str, &str)]) -> Value {
    if !options.deployments_alone {
        return node_selector(options, needed);
    }
    let bare = needed.iter().map(|(key, value)| ((*key).to_owned(), json!(value)));
    bare.chain([("kubernetes.io/os".to_owned(), json!("linux"))]).collect()
}

/// The labels that nodes must have: those that the program needs, and those that were chosen.
pub(super) fn node_selector(options: &MemberOptions, needed: &[(&str, &str)]) -> Value {
    let mut selector = json!({"kubernetes.io/os": "linux"});
    let chosen = options.node_selector.iter().map(|(key, value)| (key.as_str(), value.as_str()));
    for (key, value) in chosen.chain(needed.iter().copied()) {
        selector[key] = json!(value);
    }
    selector
}
