//! The workers that write a network plugin's database, where the plugin is OVN-Kubernetes.
//!
//! ```text
//!   route agents ──GatewayRoute, NonGatewayRoute──▶ workers ──rows──▶ OVN's northbound database, one or one per node
//! ```

use serde_json::json;

use super::names::{OVN_TLS_SECRET, PLUGIN_SYNC};
use super::options::joined;
use super::pod::{Daemon, Volume, field, node_selector, path, variable};
use super::{Manifest, MemberOptions, MemoryLimit};

/// Rows stay when a worker ends, so that there is nothing to wait for.
const GRACE_SECONDS: u32 = 5;

/// Where a worker has the Secret for TLS. The variables that name its files are OVN-Kubernetes' own; files that do not exist
/// are not given.
const TLS: &str = "/etc/trieste/ovn";

/// Folders of a node in which a northbound database may have its socket, and the names of their volumes: with interconnect, and
/// without it in two generations of OVN.
const SOCKETS: [(&str, &str); 3] =
    [("ovn-ic", "/var/run/ovn-ic"), ("openvswitch", "/var/run/openvswitch"), ("ovn", "/var/run/ovn")];

/// Returns one worker on every node. It has no capability: OVN's sockets are root's, and that is all it needs.
pub(super) fn daemon_set(options: &MemberOptions) -> Manifest {
    let program = path("trieste-plugin-sync");
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
    let container = json!({
        "command": [program],
        "env": variables,
        "readinessProbe": {
            "exec": {"command": [program, "--check"]},
            "periodSeconds": 10,
            "timeoutSeconds": 5,
            "successThreshold": 1,
            "failureThreshold": 3,
        },
        "resources": MemoryLimit::PLUGIN_SYNC.resources("10m", "16Mi"),
    });
    // A node has one of them. What kind of file it is, is said, so that every runtime makes the others alike.
    let sockets = SOCKETS.map(|(name, at)| Volume::host(name, at, "DirectoryOrCreate").read_only());
    let tls = Volume::optional_secret("ovn-tls", OVN_TLS_SECRET, TLS.to_owned());
    let daemon = Daemon {
        options,
        name: PLUGIN_SYNC,
        component: "plugin-sync",
        init_containers: Vec::new(),
        container,
        volumes: sockets.into_iter().chain([tls, run_folder()]).collect(),
        node_selector: node_selector(options, &[]),
        max_unavailable: json!("100%"),
        grace_seconds: GRACE_SECONDS,
        capabilities: &[],
        annotations: Vec::new(),
    };
    daemon.manifest()
}

/// Returns the folder with the file that says how a worker's work goes, which `--check` reads. It is the pod's own: workers have
/// nothing to do with the node's.
fn run_folder() -> Volume {
    Volume::scratch("run", "/run/trieste")
}
