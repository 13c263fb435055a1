//! The gateway's DaemonSet.

use serde_json::{Value, json};

use super::names::{BROKER_SECRET, GATEWAY, GATEWAY_LABEL, PSK_SECRET};
use super::pod::{Daemon, Volume, common_variables, node_selector, path, variable};
use super::{Manifest, MemberOptions};

/// A planned handover takes up to 3 s until a successor has taken over, and some more to say good-bye; what is slower
/// is killed, and its successor waits for the Lease to expire.
const GRACE_SECONDS: u32 = 15;

/// One gateway on each node that has the label.
pub(super) fn daemon_set(options: &MemberOptions) -> Manifest {
    let container = json!({
        "command": [path("trieste-gateway")],
        "env": variables(options),
        "ports": ports(options),
        "livenessProbe": probe(options, "/healthz", 10, 6),
        "readinessProbe": probe(options, "/readyz", 2, 2),
        "resources": {"requests": {"cpu": "100m", "memory": "64Mi"}},
    });
    let daemon = Daemon {
        options,
        name: GATEWAY,
        component: "gateway",
        init_containers: Vec::new(),
        container,
        volumes: volumes(),
        node_selector: node_selector(options, &[(GATEWAY_LABEL, "true")]),
        // One after the other: where there is a passive gateway, it is active before the next one goes.
        max_unavailable: json!(1),
        grace_seconds: GRACE_SECONDS,
    };
    daemon.manifest()
}

fn variables(options: &MemberOptions) -> Vec<Value> {
    let mut variables = common_variables(options);
    variables.extend([
        variable("SUBMARINER_CABLEDRIVER", &options.cable_driver),
        variable("SUBMARINER_NATENABLED", options.nat_enabled.to_string()),
        variable("SUBMARINER_BROKER", "k8s"),
        variable("SUBMARINER_COLORCODES", "blue"),
        variable("SUBMARINER_METRICSPORT", options.metrics_port.to_string()),
        variable("SUBMARINER_HALT_ON_CERT_ERROR", options.halt_on_certificate_error.to_string()),
        variable("AIR_GAPPED_DEPLOYMENT", options.air_gapped.to_string()),
        variable("BROKER_K8S_APISERVER", &options.broker.api_server),
        variable("BROKER_K8S_REMOTENAMESPACE", &options.broker.namespace),
        variable("BROKER_K8S_INSECURE", options.broker.insecure.to_string()),
        variable("BROKER_K8S_SECRET", BROKER_SECRET),
        variable("CE_IPSEC_PSKSECRET", PSK_SECRET),
        variable("CE_IPSEC_DEBUG", options.ipsec_debug.to_string()),
        variable("CE_IPSEC_NATTPORT", options.natt_port.to_string()),
        variable("CE_IPSEC_PREFERREDSERVER", options.preferred_server.to_string()),
        variable("CE_IPSEC_FORCEENCAPS", options.force_udp_encaps.to_string()),
        variable("TRIESTE_NAT_DISCOVERY_PORT", options.nat_discovery_port.to_string()),
    ]);
    if options.load_balancer {
        variables.push(variable("SUBMARINER_PUBLICIP", format!("lb:{GATEWAY}")));
    }
    variables
}

/// Declared so that the scheduler puts nobody else on a node where these are taken.
fn ports(options: &MemberOptions) -> Value {
    let port = |name: &str, protocol: &str, port: u16| json!({"name": name, "protocol": protocol, "containerPort": port, "hostPort": port});
    let mut ports = vec![port("cable-encaps", "UDP", options.natt_port)];
    if options.nat_discovery_port != 0 {
        ports.push(port("natt-discovery", "UDP", options.nat_discovery_port));
    }
    ports.push(port("metrics", "TCP", options.metrics_port));
    json!(ports)
}

fn probe(options: &MemberOptions, path: &str, period: u32, failures: u32) -> Value {
    json!({
        "httpGet": {"path": path, "port": options.metrics_port, "scheme": "HTTP"},
        "periodSeconds": period,
        "timeoutSeconds": 3,
        "successThreshold": 1,
        "failureThreshold": failures,
    })
}

fn volumes() -> Vec<Volume> {
    vec![
        Volume::host("state", "/var/lib/trieste", "DirectoryOrCreate"),
        Volume::host("run", "/run/trieste", "DirectoryOrCreate"),
        Volume::host("tun", "/dev/net/tun", "CharDevice"),
        Volume::sysctls(),
        Volume::secret("broker-secret", BROKER_SECRET, format!("/run/secrets/submariner.io/{BROKER_SECRET}")),
        Volume::secret("psk-secret", PSK_SECRET, format!("/var/run/secrets/submariner.io/{PSK_SECRET}")),
    ]
}
