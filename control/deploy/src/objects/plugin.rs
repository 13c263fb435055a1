//! The workers that write a network plugin's database, where the plugin has one: OVN-Kubernetes, Calico. And those that keep the
//! lists of Spiderpool, which may be beside any plugin.
//!
//! ```text
//!   route agents ──GatewayRoute, NonGatewayRoute──▶ DaemonSet ──rows──▶ OVN's northbound database, one or one per node
//!                ──GatewayRoute──▶ Deployment ──IPPools──▶ Calico, by the API server
//!                ──GatewayRoute──▶ Deployment ──hijackCIDR lists──▶ Spiderpool, by the API server
//! ```

use serde_json::{Value, json};

use super::deployment::Deployment;
use super::names::{OVN_TLS_SECRET, PLUGIN_SYNC, SPIDERPOOL_SYNC};
use super::options::joined;
use super::pod::{Daemon, Volume, check, daemon_selector, field, path, variable};
use super::{Manifest, MemberOptions, MemoryLimit};

/// The program.
const PROGRAM: &str = "trieste-plugin-sync";
/// The `component` label of its pods.
const COMPONENT: &str = "plugin-sync";
/// Likewise of those that keep Spiderpool's lists.
const SPIDERPOOL_COMPONENT: &str = "spiderpool-sync";
/// The program's word for Spiderpool, where it has a network plugin's name else.
const SPIDERPOOL: &str = "spiderpool";

/// What a worker has written stays when it ends; its last writes are given two seconds, and its term is handed over.
const GRACE_SECONDS: u32 = 5;

/// Where a worker has the Secret for TLS. The variables that name its files are OVN-Kubernetes' own; files that do not exist
/// are not given.
const TLS: &str = "/etc/trieste/ovn";

/// Folders of a node in which a northbound database may have its socket, and the names of their volumes: with interconnect, and
/// without it in two generations of OVN.
const SOCKETS: [(&str, &str); 3] =
    [("ovn-ic", "/var/run/ovn-ic"), ("openvswitch", "/var/run/openvswitch"), ("ovn", "/var/run/ovn")];

/// Returns the workers that a member needs: on its plugin's database, if it has one, and on Spiderpool's lists, if it has that.
pub(super) fn workers(options: &MemberOptions) -> Vec<Manifest> {
    let of_ovn = options.has_ovn().then(|| daemon_set(options));
    let of_calico =
        options.has_calico().then(|| deployment(options, PLUGIN_SYNC, COMPONENT, options.plugin()));
    let of_spiderpool = options
        .has_spiderpool
        .then(|| deployment(options, SPIDERPOOL_SYNC, SPIDERPOOL_COMPONENT, SPIDERPOOL));
    of_ovn.into_iter().chain(of_calico).chain(of_spiderpool).collect()
}

/// Returns `true` if the plugin has a database that a worker writes.
pub(super) fn has_worker(options: &MemberOptions) -> bool {
    options.has_ovn() || options.has_calico()
}

/// Returns one worker on every node. It has no capability: OVN's sockets are root's, and that is all it needs.
fn daemon_set(options: &MemberOptions) -> Manifest {
    let variables = vec![
        variable("SUBMARINER_NAMESPACE", &options.namespace),
        variable("SUBMARINER_CLUSTERID", &options.cluster_id),
        variable("SUBMARINER_CLUSTERCIDR", joined(&options.cluster_cidrs)),
        variable("SUBMARINER_SERVICECIDR", joined(&options.service_cidrs)),
        variable("SUBMARINER_NETWORKPLUGIN", options.plugin()),
        variable("SUBMARINER_DEBUG", options.debug.to_string()),
        variable("TRIESTE_OVN_NB", &options.ovn.northbound),
        variable("OVN_PK", format!("{TLS}/tls.key")),
        variable("OVN_CERT", format!("{TLS}/tls.crt")),
        variable("OVN_CA", format!("{TLS}/ca.crt")),
        field("NODE_NAME", "spec.nodeName"),
        field("POD_NAME", "metadata.name"),
    ];
    // A node has one of them. What kind of file it is, is said, so that every runtime makes the others alike.
    let sockets = SOCKETS.map(|(name, at)| Volume::host(name, at, "DirectoryOrCreate").read_only());
    let tls = Volume::optional_secret("ovn-tls", OVN_TLS_SECRET, TLS.to_owned());
    let daemon = Daemon {
        options,
        name: PLUGIN_SYNC,
        component: COMPONENT,
        init_containers: Vec::new(),
        container: container(&variables),
        volumes: sockets.into_iter().chain([tls, run_folder()]).collect(),
        node_selector: daemon_selector(options, &[]),
        max_unavailable: json!("100%"),
        grace_seconds: GRACE_SECONDS,
        capabilities: &[],
        annotations: Vec::new(),
    };
    daemon.manifest()
}

/// Returns two workers, on two nodes where there are two, of which one is elected to write: pools and lists belong to no node, and
/// what a worker needs is the API server.
fn deployment(
    options: &MemberOptions,
    name: &'static str,
    component: &'static str,
    plugin: &str,
) -> Manifest {
    let variables = [
        variable("SUBMARINER_NAMESPACE", &options.namespace),
        variable("SUBMARINER_NETWORKPLUGIN", plugin),
        variable("SUBMARINER_DEBUG", options.debug.to_string()),
        field("POD_NAME", "metadata.name"),
    ];
    let deployment = Deployment {
        options,
        name,
        component,
        replicas: 2,
        container: container(&variables),
        volumes: vec![run_folder()],
        grace_seconds: GRACE_SECONDS,
    };
    deployment.manifest()
}

/// Returns what the containers of all have in common.
fn container(variables: &[Value]) -> Value {
    json!({
        "command": [path(PROGRAM)],
        "env": variables,
        "readinessProbe": check(PROGRAM, 10, 3),
        "resources": MemoryLimit::PLUGIN_SYNC.resources("10m", "16Mi"),
    })
}

/// Returns the folder with the file that says how a worker's work goes, which `--check` reads. It is the pod's own: workers have
/// nothing to do with the node's.
fn run_folder() -> Volume {
    Volume::scratch("run", "/run/trieste")
}

#[cfg(test)]
mod tests;
