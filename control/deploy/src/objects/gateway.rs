//! The gateway's DaemonSet.

use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use trieste_control::settings::Program;

use super::names::{BROKER_SECRET, FORMER_CABLE_DRIVER, GATEWAY, GATEWAY_LABEL, PSK_CHECKSUM, PSK_SECRET};
use super::pod::{
    Daemon, NETWORK, RINGS, Volume, checksum, common_variables, daemon_selector, path, variable,
};
use super::{Manifest, MemberOptions, OuterIo, Secret, settings};

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
        "resources": options.gateway_memory.resources(&options.gateway_cpu.to_string(), "64Mi"),
    });
    let daemon = Daemon {
        options,
        name: GATEWAY,
        component: "gateway",
        init_containers: Vec::new(),
        container,
        volumes: volumes(),
        node_selector: daemon_selector(options, &[(GATEWAY_LABEL, "true")]),
        // One after the other: where there is a passive gateway, it is active before the next one goes.
        max_unavailable: json!(1),
        grace_seconds: GRACE_SECONDS,
        capabilities: capabilities(options),
        annotations: [
            key_checksum(&options.psk).map(|sum| (PSK_CHECKSUM, sum)),
            settings::restarts_for(options, Program::Gateway),
        ]
        .into_iter()
        .flatten()
        .collect(),
    };
    daemon.manifest()
}

/// Returns the gateway's capabilities: more only where outer packets are to pass the kernel's stack.
fn capabilities(options: &MemberOptions) -> &'static [&'static str] {
    match options.outer_io {
        Some(OuterIo::AfXdp | OuterIo::Auto) => RINGS,
        Some(OuterIo::Sockets) | None => NETWORK,
    }
}

/// Tells one key from another and says no more of it: half of a hash that nothing else uses. The broker's token needs
/// none: a gateway reads that file again when it changes.
fn key_checksum(key: &Secret) -> Option<String> {
    let hash = Sha256::new().chain_update("trieste gateway restarts for ").chain_update(key.expose());
    (!key.is_empty()).then(|| checksum(hash))
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
        variable("CE_IPSEC_NATTPORT", options.natt_port.to_string()),
        variable("CE_IPSEC_PREFERREDSERVER", options.preferred_server.to_string()),
        variable("CE_IPSEC_FORCEENCAPS", options.force_udp_encaps.to_string()),
        variable("TRIESTE_NAT_DISCOVERY_PORT", options.nat_discovery_port.to_string()),
    ]);
    variables.push(variable("SUBMARINER_NETWORKPLUGIN", options.plugin()));
    if let Some(chosen) = options.active_gateways {
        variables.push(variable("TRIESTE_ACTIVE_GATEWAYS", chosen.as_str()));
    }
    if let Some(chosen) = options.outer_io {
        variables.push(variable("TRIESTE_IO", chosen.as_str()));
    }
    if let Some(former) = &options.former_cable_driver {
        variables.push(variable(FORMER_CABLE_DRIVER, former));
    }
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::objects::BrokerAccess;

    #[test]
    fn more_rights_go_with_af_xdp_alone_and_to_gateways_alone() {
        for (chosen, is_more) in [
            (None, false),
            (Some(OuterIo::Sockets), false),
            (Some(OuterIo::AfXdp), true),
            (Some(OuterIo::Auto), true),
        ] {
            let options = MemberOptions { outer_io: chosen, ..crate::objects::example() };
            let container =
                |set: Manifest| set.as_value()["spec"]["template"]["spec"]["containers"][0].clone();
            let gateway = container(daemon_set(&options));
            let security = &gateway["securityContext"];
            let wanted = if is_more {
                json!(["NET_ADMIN", "NET_RAW", "BPF", "IPC_LOCK"])
            } else {
                json!(["NET_ADMIN", "NET_RAW"])
            };
            assert_eq!(security["capabilities"], json!({"drop": ["ALL"], "add": wanted}), "{chosen:?}");
            assert_eq!(
                (&security["privileged"], &security["allowPrivilegeEscalation"]),
                (&json!(false), &json!(false))
            );
            let word = chosen.map(|chosen| json!({"name": "TRIESTE_IO", "value": chosen.as_str()}));
            let env = gateway["env"].as_array().unwrap();
            assert_eq!(env.iter().find(|variable| variable["name"] == "TRIESTE_IO"), word.as_ref());
            let agent = container(crate::objects::routeagent::daemon_set(&options));
            assert_eq!(agent["securityContext"]["capabilities"]["add"], json!(["NET_ADMIN", "NET_RAW"]));
        }
    }

    #[test]
    fn another_key_makes_other_pods_and_another_token_does_not() {
        let template = |key: &str, token: &str| {
            let access = BrokerAccess::new("b:6443", None, Secret::new(token));
            let options = MemberOptions::new("east", access, Secret::new(key));
            daemon_set(&options).as_value()["spec"]["template"].clone()
        };
        let first = template("a key of some length", "t");
        assert_eq!(first, template("a key of some length", "another"));
        assert_ne!(first, template("another key", "t"));
        assert_eq!(first["metadata"]["annotations"][PSK_CHECKSUM].as_str().unwrap().len(), 16);
        assert!(template("", "t")["metadata"]["annotations"].is_null());
    }
}
