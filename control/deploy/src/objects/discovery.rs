//! Service discovery in a member's cluster: the agent that exports and imports services, and the servers that answer their
//! names.
//!
//! Neither is on the path of packets or has anything to do with a node: no network of the host, no capability, no root.

use serde_json::{Value, json};

use super::deployment::Deployment;
use super::names::{BROKER_SECRET, CLUSTERSET_IP_RANGE, DISCOVERY_AGENT, DISCOVERY_DNS};
use super::options::joined;
use super::pod::{Volume, clusterset_ip_ranges, field, path, proxy_variables, variable};
use super::{Manifest, MemberOptions, MemoryLimit};

/// Where a DNS server answers: a port that needs no right. The Service's is 53.
const DNS_PORT: u16 = 8053;
/// Where the DNS server tells that it is alive and that it is ready, and where its metrics are (env-metrics §4).
const DNS_HEALTH: u16 = 8080;
const DNS_READY: u16 = 8181;
const DNS_METRICS: u16 = 9153;
/// Where the agent does all of these.
const AGENT_METRICS: u16 = 8082;

/// How long a DNS server goes on answering while no new queries are sent to it, in seconds; then it ends.
const DNS_DRAIN: u32 = 5;

/// Returns everything of service discovery but its rights.
pub(super) fn member(options: &MemberOptions) -> Vec<Manifest> {
    vec![agent(options), dns(options), dns_service(options), dns_disruptions(options)]
}

/// Returns one agent: another one takes over where it is elected, and names are answered without it meanwhile.
fn agent(options: &MemberOptions) -> Manifest {
    let broker = &options.broker;
    let mut variables = vec![
        variable("SUBMARINER_NAMESPACE", &options.namespace),
        variable("SUBMARINER_CLUSTERID", &options.cluster_id),
        variable("SUBMARINER_GLOBALNET_ENABLED", options.has_global_services().to_string()),
        variable("SUBMARINER_DEBUG", options.debug.to_string()),
        variable("BROKER_K8S_APISERVER", &broker.api_server),
        variable("BROKER_K8S_REMOTENAMESPACE", &broker.namespace),
        variable("BROKER_K8S_INSECURE", broker.insecure.to_string()),
        variable("BROKER_K8S_SECRET", BROKER_SECRET),
        variable("TRIESTE_LEADER_ELECTION", "true"),
        field("POD_NAME", "metadata.name"),
    ];
    if options.answers_missing_namespaces {
        variables.push(variable("TRIESTE_MISSING_NAMESPACES", "true"));
    }
    if !options.clusterset_ip_cidrs.is_empty() {
        variables.extend([
            variable("SUBMARINER_CLUSTERSET_IP_CIDR", joined(&options.clusterset_ip_cidrs)),
            variable("SUBMARINER_CLUSTERSET_IP_ENABLED", options.clusterset_ips_by_default.to_string()),
        ]);
    }
    variables.extend(clusterset_ip_ranges(CLUSTERSET_IP_RANGE, options));
    variables.extend(proxy_variables(options));
    let container = json!({
        "command": [path("trieste-discovery"), "agent"],
        "env": variables,
        "ports": [{"name": "metrics", "containerPort": AGENT_METRICS}],
        "livenessProbe": probe("/health", AGENT_METRICS, 10, 6),
        "readinessProbe": probe("/ready", AGENT_METRICS, 2, 3),
        "resources": MemoryLimit::DISCOVERY.resources("20m", "32Mi"),
    });
    let secret =
        Volume::group_secret("broker", BROKER_SECRET, format!("/run/secrets/submariner.io/{BROKER_SECRET}"));
    let deployment = Deployment {
        options,
        name: DISCOVERY_AGENT,
        component: DISCOVERY_AGENT,
        replicas: 1,
        container,
        volumes: vec![secret],
        grace_seconds: 10,
    };
    deployment.manifest()
}

/// Returns two servers, on two nodes where there are two: while one is exchanged the other answers.
fn dns(options: &MemberOptions) -> Manifest {
    let mut variables = vec![
        variable("SUBMARINER_NAMESPACE", &options.namespace),
        variable("SUBMARINER_CLUSTERID", &options.cluster_id),
        variable("SUBMARINER_DEBUG", options.debug.to_string()),
        variable("TRIESTE_DNS_ZONES", options.zones().join(",")),
        variable("TRIESTE_DNS_PORT", DNS_PORT.to_string()),
        variable("TRIESTE_DNS_DRAIN", DNS_DRAIN.to_string()),
    ];
    // Addresses of all clusters have names here.
    variables.extend(clusterset_ip_ranges("SUBMARINER_CLUSTERSET_IP_CIDR", options));
    let port = |name: &str, protocol: &str, port: u16| json!({"name": name, "protocol": protocol, "containerPort": port});
    let container = json!({
        "command": [path("trieste-discovery"), "dns"],
        "env": variables,
        "ports": [
            port("dns", "UDP", DNS_PORT), port("dns-tcp", "TCP", DNS_PORT), port("metrics", "TCP", DNS_METRICS),
        ],
        "livenessProbe": probe("/health", DNS_HEALTH, 10, 6),
        "readinessProbe": probe("/ready", DNS_READY, 1, 2),
        "resources": MemoryLimit::DISCOVERY.resources("20m", "32Mi"),
    });
    let deployment = Deployment {
        options,
        name: DISCOVERY_DNS,
        component: DISCOVERY_DNS,
        replicas: 2,
        container,
        volumes: Vec::new(),
        grace_seconds: DNS_DRAIN + 5,
    };
    deployment.manifest()
}

/// Returns the address to which the cluster's own DNS forwards.
fn dns_service(options: &MemberOptions) -> Manifest {
    let port = |name: &str, protocol: &str, target: &str| json!({"name": name, "protocol": protocol, "port": 53, "targetPort": target});
    let spec = json!({
        "type": "ClusterIP",
        "selector": {"app": DISCOVERY_DNS},
        "ports": [port("udp", "UDP", "dns"), port("tcp", "TCP", "dns-tcp")],
    });
    Manifest::make("v1", "Service", &options.namespace, DISCOVERY_DNS)
        .labelled("app", DISCOVERY_DNS)
        .with("spec", spec)
}

/// Returns the budget by which nodes that are emptied one after the other leave one server.
fn dns_disruptions(options: &MemberOptions) -> Manifest {
    let spec = json!({"minAvailable": 1, "selector": {"matchLabels": {"app": DISCOVERY_DNS}}});
    Manifest::make("policy/v1", "PodDisruptionBudget", &options.namespace, DISCOVERY_DNS).with("spec", spec)
}

fn probe(path: &str, port: u16, period: u32, failures: u32) -> Value {
    json!({
        "httpGet": {"path": path, "port": port},
        "periodSeconds": period,
        "timeoutSeconds": 5,
        "successThreshold": 1,
        "failureThreshold": failures,
    })
}

#[cfg(test)]
mod tests {
    use super::super::{example, member};
    use super::*;

    fn find(options: &MemberOptions, kind: &str, name: &str) -> Value {
        let manifests: Vec<Manifest> = member(options);
        let found = manifests.into_iter().find(|manifest| manifest.kind() == kind && manifest.name() == name);
        found.map(Manifest::into_value).unwrap_or_default()
    }

    #[test]
    fn pods_have_no_right_on_their_node_and_are_not_root() {
        for name in [DISCOVERY_AGENT, DISCOVERY_DNS] {
            let pod = find(&example(), "Deployment", name)["spec"]["template"]["spec"].clone();
            assert!(pod["hostNetwork"].is_null());
            assert_eq!(
                (&pod["securityContext"]["runAsNonRoot"], &pod["serviceAccountName"]),
                (&json!(true), &json!(name))
            );
            let volumes = pod["volumes"].as_array().unwrap();
            assert!(volumes.iter().all(|volume| volume["hostPath"].is_null()));
            let security = &pod["containers"][0]["securityContext"];
            assert_eq!(security["capabilities"], json!({"drop": ["ALL"]}));
            assert!(security["runAsUser"].is_null());
            assert_eq!(security["allowPrivilegeEscalation"], false);
            assert_eq!(security["readOnlyRootFilesystem"], true);
            assert!(!pod["containers"][0]["resources"]["limits"]["memory"].is_null());
        }
    }

    #[test]
    fn the_service_leads_to_the_ports_at_which_the_dns_servers_answer_the_sets_domains() {
        let mut options = example();
        options.custom_domains = vec!["Set.Example.".to_owned(), "clusterset.local".to_owned()];
        let (service, dns) =
            (find(&options, "Service", DISCOVERY_DNS), find(&options, "Deployment", DISCOVERY_DNS));
        let container = &dns["spec"]["template"]["spec"]["containers"][0];
        let ports = container["ports"].as_array().unwrap();
        for port in service["spec"]["ports"].as_array().unwrap() {
            let target = ports.iter().find(|there| there["name"] == port["targetPort"]).unwrap();
            assert_eq!(
                (&target["protocol"], &target["containerPort"]),
                (&port["protocol"], &json!(DNS_PORT))
            );
            assert_eq!(port["port"], 53);
        }
        let zones = json!({"name": "TRIESTE_DNS_ZONES", "value": "clusterset.local,set.example"});
        assert!(container["env"].as_array().unwrap().contains(&zones));
        assert_eq!(service["spec"]["selector"], dns["spec"]["selector"]["matchLabels"]);
        let budget = find(&options, "PodDisruptionBudget", DISCOVERY_DNS);
        assert_eq!(budget["spec"]["selector"], dns["spec"]["selector"]);
    }

    #[test]
    fn the_agent_is_told_its_block_and_the_dns_servers_the_range() {
        let mut options = example();
        let variables = |options: &MemberOptions, name: &str| -> Vec<String> {
            let container =
                find(options, "Deployment", name)["spec"]["template"]["spec"]["containers"][0].clone();
            let all = container["env"].as_array().unwrap().clone();
            let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
            let of_ips = all.iter().filter(|one| text(&one["name"]).contains("CLUSTERSET_IP"));
            of_ips.map(|one| format!("{}={}", text(&one["name"]), text(&one["value"]))).collect()
        };
        let none = [DISCOVERY_AGENT, DISCOVERY_DNS].map(|name| variables(&options, name));
        assert_eq!(none.concat(), Vec::<String>::new());
        let networks = |texts: [&str; 2]| texts.map(|text| text.parse().unwrap()).to_vec();
        options.clusterset_ip_cidrs = networks(["243.0.16.0/20", "fd00:243::1:0/112"]);
        options.clusterset_ip_ranges = networks(["243.0.0.0/8", "fd00:243::/48"]);
        options.clusterset_ips_by_default = true;
        assert_eq!(
            variables(&options, DISCOVERY_AGENT),
            [
                "SUBMARINER_CLUSTERSET_IP_CIDR=243.0.16.0/20,fd00:243::1:0/112",
                "SUBMARINER_CLUSTERSET_IP_ENABLED=true",
                "TRIESTE_CLUSTERSET_IP_RANGE=243.0.0.0/8,fd00:243::/48"
            ]
        );
        assert_eq!(
            variables(&options, DISCOVERY_DNS),
            ["SUBMARINER_CLUSTERSET_IP_CIDR=243.0.0.0/8,fd00:243::/48"]
        );
        let settings = find(&options, "Submariner", "submariner");
        assert_eq!(
            (&settings["spec"]["clustersetIPCIDR"], &settings["spec"]["clustersetIPEnabled"]),
            (&json!("243.0.16.0/20,fd00:243::1:0/112"), &json!(true))
        );
    }

    #[test]
    fn the_agent_imports_services_of_missing_namespaces_where_that_is_chosen() {
        let mut options = example();
        let chosen = json!({"name": "TRIESTE_MISSING_NAMESPACES", "value": "true"});
        let mut is_told = |answers_missing_namespaces| {
            options.answers_missing_namespaces = answers_missing_namespaces;
            let agent = find(&options, "Deployment", DISCOVERY_AGENT);
            agent["spec"]["template"]["spec"]["containers"][0]["env"].as_array().unwrap().contains(&chosen)
        };
        assert_eq!([is_told(false), is_told(true)], [false, true]);
    }

    #[test]
    fn a_cluster_that_declines_has_none_of_it() {
        let mut options = example();
        let count = |options: &MemberOptions| member(options).len();
        let with = count(&options);
        options.declines_service_discovery = true;
        assert_eq!(with - count(&options), 4 + 8);
        let settings = find(&options, "Submariner", "submariner");
        assert_eq!(settings["spec"]["serviceDiscoveryEnabled"], false);
        assert_eq!(settings["metadata"]["annotations"]["trieste.io/no-service-discovery"], "true");
    }
}
