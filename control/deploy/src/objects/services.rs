//! A member's Services.

use serde_json::json;

use super::names::{GATEWAY, GATEWAY_METRICS, STATUS_LABEL};
use super::{Manifest, MemberOptions};

/// Where upstream's users find a gateway's metrics.
const METRICS_SERVICE_PORT: u16 = 8080;

/// The metrics of gateway pods and, when asked for, the way from outside to the active one.
pub(super) fn member(options: &MemberOptions) -> Vec<Manifest> {
    let mut services = vec![metrics(options)];
    if options.load_balancer {
        services.push(load_balancer(options));
    }
    services
}

fn metrics(options: &MemberOptions) -> Manifest {
    let port = json!({
        "name": "metrics",
        "protocol": "TCP",
        "port": METRICS_SERVICE_PORT,
        "targetPort": options.metrics_port,
    });
    Manifest::make("v1", "Service", &options.namespace, GATEWAY_METRICS)
        .labelled("name", GATEWAY_METRICS)
        .with("spec", json!({"type": "ClusterIP", "selector": {"app": GATEWAY}, "ports": [port]}))
}

/// Packets reach the active gateway's node alone, and with the source that they had: cables check it.
fn load_balancer(options: &MemberOptions) -> Manifest {
    let udp =
        |name: &str, port: u16| json!({"name": name, "protocol": "UDP", "port": port, "targetPort": port});
    let mut ports = vec![udp("cable-encaps", options.natt_port)];
    if options.nat_discovery_port != 0 {
        ports.push(udp("natt-discovery", options.nat_discovery_port));
    }
    let spec = json!({
        "type": "LoadBalancer",
        "externalTrafficPolicy": "Local",
        "selector": {"app": GATEWAY, STATUS_LABEL: "active"},
        "ports": ports,
    });
    Manifest::make("v1", "Service", &options.namespace, GATEWAY).with("spec", spec)
}
