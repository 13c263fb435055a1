//! The route agent's DaemonSet.

use serde_json::{Value, json};
use trieste_control::settings::Program;

use super::names::{CLUSTERSET_IP_RANGE, ROUTE_AGENT};
use super::pod::{
    Daemon, NETWORK, Volume, check, clusterset_ip_ranges, common_variables, daemon_selector, field,
    init_container, path, variable,
};
use super::{Manifest, MemberOptions, networks, plugin, settings};

const PROGRAM: &str = "trieste-routeagent";

/// It leaves everything in place when it ends, so that there is nothing to wait for.
const GRACE_SECONDS: u32 = 5;

/// One route agent on every node.
pub(super) fn daemon_set(options: &MemberOptions) -> Manifest {
    let mut variables = common_variables(options);
    variables.push(variable("SUBMARINER_NETWORKPLUGIN", options.plugin()));
    variables.push(match options.broker.address() {
        Some(broker) => variable("TRIESTE_PROTECTED_ADDRESSES", broker.to_string()),
        None => variable("TRIESTE_BROKER_NAMES", options.broker.host()),
    });
    variables.extend(clusterset_ip_ranges(CLUSTERSET_IP_RANGE, options));
    if options.node_taint {
        variables.push(variable("TRIESTE_NODE_TAINT", "true"));
    }
    if plugin::has_worker(options) {
        variables.push(variable("TRIESTE_PLUGIN_SYNC", "true"));
    }
    if options.has_spiderpool {
        variables.push(variable("TRIESTE_SPIDERPOOL", "true"));
    }
    let container = json!({
        "command": [path(PROGRAM)],
        "env": variables,
        // A first pass takes a second or two, and `join` waits for it. It is asked for however long that takes: where the API
        // server is away or a program is missing, starting anew does not help.
        "startupProbe": check(PROGRAM, 2, i32::MAX.unsigned_abs()),
        "readinessProbe": check(PROGRAM, 10, 3),
        "resources": options.route_agent_memory.resources(&options.route_agent_cpu.to_string(), "32Mi"),
    });
    let daemon = Daemon {
        options,
        name: ROUTE_AGENT,
        component: "routeagent",
        init_containers: vec![wait_for_node(options)],
        container,
        volumes: vec![
            Volume::host("xtables-lock", "/run/xtables.lock", "FileOrCreate"),
            state(),
            Volume::host("run", "/run/trieste", "DirectoryOrCreate"),
            Volume::sysctls(),
        ],
        node_selector: daemon_selector(options, &[]),
        // A node's routes stay while its agent is replaced.
        max_unavailable: json!("100%"),
        grace_seconds: GRACE_SECONDS,
        capabilities: NETWORK,
        annotations: settings::restarts_for(options, Program::RouteAgent).into_iter().collect(),
    };
    daemon.manifest()
}

/// Network plugins set nodes up before they are ready; routes are not put in between.
fn wait_for_node(options: &MemberOptions) -> Value {
    let [pods, services] = networks::variables();
    let variables = [
        variable("SUBMARINER_WAITFORNODE", "true"),
        variable("SUBMARINER_CLUSTERID", &options.cluster_id),
        pods,
        services,
        field("NODE_NAME", "spec.nodeName"),
    ];
    let mut container = init_container(options, &format!("{ROUTE_AGENT}-init"), PROGRAM, &variables);
    // Before it waits it closes what was closed before the last boot.
    container["securityContext"]["capabilities"]["add"] = json!(["NET_ADMIN"]);
    container["volumeMounts"] = json!([state().mount()]);
    container
}

/// What a node has to close after a reboot.
fn state() -> Volume {
    Volume::host("state", "/var/lib/trieste", "DirectoryOrCreate")
}
