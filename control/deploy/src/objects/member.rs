//! A member: all of its objects, in the order in which they are applied.

use super::names::BROKER_SECRET;
use super::{Manifest, MemberOptions};
use super::{
    crds, custom, discovery, gateway, namespaces, networks, plugin, rbac, routeagent, secrets, services,
    settings,
};

/// Every object of a member, in the order in which they are applied: what others refer to comes first.
pub fn member(options: &MemberOptions) -> Vec<Manifest> {
    let namespace = options.namespace.as_str();
    let mut manifests = vec![namespaces::member(namespace), namespaces::paths(namespace)];
    manifests.extend(crds::definitions());
    manifests.extend(rbac::member(options));
    manifests.extend(secrets::member(options));
    manifests.push(custom::submariner_resource(options));
    manifests.push(networks::config_map(options));
    manifests.push(settings::config_map(options));
    manifests.push(gateway::daemon_set(options));
    manifests.push(routeagent::daemon_set(options));
    manifests.extend(plugin::workers(options));
    manifests.extend(services::member(options));
    if options.has_service_discovery() {
        manifests.extend(discovery::member(options));
    }
    manifests
}

/// Returns every object of service discovery by itself, in a cluster that is connected otherwise, in the order in which they are
/// applied.
pub fn service_discovery(options: &MemberOptions) -> Vec<Manifest> {
    let namespace = options.namespace.as_str();
    let mut manifests = vec![namespaces::member(namespace), namespaces::paths(namespace)];
    manifests.extend(crds::definitions());
    manifests.extend(rbac::service_discovery(options));
    manifests.extend(secrets::member(options).into_iter().filter(|secret| secret.name() == BROKER_SECRET));
    manifests.extend(discovery::member(options));
    manifests
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::super::names::{GATEWAY, MANAGED_BY_LABEL, PART_OF_LABEL, TRIESTE, VERSION_LABEL};
    use super::super::{Secret, example};
    use super::*;

    #[test]
    fn everything_carries_our_labels_and_no_two_objects_are_the_same() {
        let manifests = member(&example());
        for manifest in &manifests {
            let labels = &manifest.as_value()["metadata"]["labels"];
            assert_eq!(
                (&labels[PART_OF_LABEL], &labels[MANAGED_BY_LABEL]),
                (&json!(TRIESTE), &json!(TRIESTE))
            );
            assert_eq!(labels[VERSION_LABEL], env!("CARGO_PKG_VERSION"), "{manifest}");
        }
        let mut shown: Vec<String> = manifests.iter().map(ToString::to_string).collect();
        shown.sort();
        shown.dedup();
        assert_eq!(shown.len(), manifests.len());
    }

    #[test]
    fn pods_have_two_capabilities_and_write_nowhere_but_to_their_own_places() {
        for pod in pods(&example()) {
            let containers = |key: &str| pod[key].as_array().cloned().unwrap_or_default();
            for (container, wanted) in containers("containers")
                .into_iter()
                .map(|container| (container, json!(["NET_ADMIN", "NET_RAW"])))
                .chain(
                    containers("initContainers")
                        .into_iter()
                        .map(|container| (container, json!(["NET_ADMIN"]))),
                )
            {
                let security = &container["securityContext"];
                assert_eq!(security["capabilities"]["drop"], json!(["ALL"]));
                assert_eq!(security["capabilities"]["add"], wanted);
                assert_eq!(security["privileged"], false);
                assert_eq!(security["allowPrivilegeEscalation"], false);
                assert_eq!(security["readOnlyRootFilesystem"], true);
                assert_eq!(security["seccompProfile"]["type"], "RuntimeDefault");
            }
            let paths: Vec<&str> = containers("volumes")
                .iter()
                .filter_map(|volume| volume["hostPath"]["path"].as_str())
                .map(|path| {
                    let known = [
                        "/var/lib/trieste",
                        "/run/trieste",
                        "/dev/net/tun",
                        "/proc/sys/net",
                        "/run/xtables.lock",
                    ];
                    *known.iter().find(|known| **known == path).unwrap_or_else(|| panic!("{path}"))
                })
                .collect();
            assert!(!paths.is_empty());
        }
    }

    #[test]
    fn every_container_has_a_limit_of_memory_and_the_programs_a_chosen_one() {
        let mut options = example();
        let limits = |options: &MemberOptions| -> Vec<Value> {
            let all = |pod: &Value| {
                ["initContainers", "containers"].map(|key| pod[key].as_array().cloned().unwrap_or_default())
            };
            let containers = pods(options).iter().flat_map(all).flatten().collect::<Vec<_>>();
            containers.iter().map(|container| container["resources"]["limits"]["memory"].clone()).collect()
        };
        assert_eq!(limits(&options), ["1Gi", "128Mi", "512Mi"]);
        options.gateway_memory = "3Gi".parse().unwrap();
        options.route_agent_memory = "0".parse().unwrap();
        assert_eq!(limits(&options), [json!("3Gi"), json!("128Mi"), Value::Null]);
    }

    #[test]
    fn with_the_taint_route_agents_are_told_may_write_nodes_and_all_pods_bear_it() {
        let told = |options: &MemberOptions| {
            let variables = pods(options)[1]["containers"][0]["env"].as_array().unwrap().clone();
            variables.iter().any(|variable| variable["name"] == "TRIESTE_NODE_TAINT")
        };
        let writers = |options: &MemberOptions| -> Vec<String> {
            let manifests = member(options);
            let may_write = |rule: &Value| {
                rule["resources"] == json!(["nodes"])
                    && !rule["verbs"]
                        .as_array()
                        .unwrap()
                        .iter()
                        .all(|verb| matches!(verb.as_str(), Some("get" | "list" | "watch")))
            };
            let roles = manifests.iter().filter(|manifest| {
                manifest.as_value()["rules"].as_array().into_iter().flatten().any(may_write)
            });
            roles.map(|role| format!("{} {}", role.kind(), role.name())).collect()
        };
        let mut options = example();
        assert!(!told(&options) && writers(&options).is_empty());
        options.node_taint = true;
        options.tolerations = vec![json!({"key": "a", "operator": "Exists"})];
        assert!(told(&options));
        assert_eq!(writers(&options), ["ClusterRole submariner-routeagent"]);
        for pod in pods(&options) {
            let wanted =
                json!([options.tolerations[0], {"key": "trieste.io/not-ready", "operator": "Exists"}]);
            assert_eq!(pod["tolerations"], wanted);
        }
        options.tolerations.clear();
        assert!(pods(&options).iter().all(|pod| pod["tolerations"] == json!([{"operator": "Exists"}])));
    }

    #[test]
    fn a_load_balancer_comes_with_its_resolver() {
        let mut options = MemberOptions { service_discovery: false, ..example() };
        let services = |options: &MemberOptions| {
            member(options).iter().filter(|manifest| manifest.kind() == "Service").count()
        };
        let resolver = |options: &MemberOptions| {
            let pods = pods(options);
            let variables = pods[0]["containers"][0]["env"].as_array().unwrap().clone();
            variables
                .into_iter()
                .find(|variable| variable["name"] == "SUBMARINER_PUBLICIP")
                .map(|found| found["value"].clone())
        };
        assert_eq!((services(&options), resolver(&options)), (1, None));
        options.load_balancer = true;
        assert_eq!((services(&options), resolver(&options)), (2, Some(json!(format!("lb:{GATEWAY}")))));
    }

    #[test]
    fn secrets_are_in_secrets_alone_and_do_not_print() {
        let mut options = example();
        options.psk = Secret::new(*b"hush hush");
        options.broker.token = Secret::new(*b"hush token");
        for manifest in member(&options).iter().filter(|manifest| !manifest.is_secret()) {
            let text = manifest.to_yaml();
            for secret in [&options.psk, &options.broker.token] {
                assert!(!text.contains("hush") && !text.contains(&secret.to_base64()), "{manifest}");
            }
        }
        assert!(!format!("{options:?}").contains("hush"));
        assert!(!format!("{:?}", member(&options)).contains("hush"));
    }

    #[test]
    fn service_discovery_by_itself_has_no_gateways_and_no_key() {
        let mut options = example();
        options.service_discovery = true;
        let all = service_discovery(&options);
        let of = |kind: &str| -> Vec<String> {
            let found = all.iter().filter(|manifest| manifest.kind() == kind);
            found.map(|manifest| manifest.name().to_owned()).collect()
        };
        assert_eq!(of("Deployment"), ["submariner-lighthouse-agent", "submariner-lighthouse-coredns"]);
        assert_eq!((of("DaemonSet"), of("Secret")), (Vec::new(), vec![BROKER_SECRET.to_owned()]));
        // Whatever is in it is in the whole member, too.
        let whole: Vec<String> = member(&options).iter().map(ToString::to_string).collect();
        assert!(all.iter().all(|manifest| whole.contains(&manifest.to_string())));
    }

    #[test]
    fn choices_of_upstreams_nodes_are_about_deployments_alone() {
        let mut options = example();
        options.node_selector.insert("zone".to_owned(), "one".to_owned());
        options.tolerations = vec![json!({"key": "a", "operator": "Exists"})];
        options.deployments_alone = true;
        for pod in pods(&options) {
            assert_eq!(pod["tolerations"], json!([{"operator": "Exists"}]));
            assert!(pod["nodeSelector"]["zone"].is_null(), "{pod}");
        }
        options.deployments_alone = false;
        assert!(pods(&options).iter().all(|pod| pod["nodeSelector"]["zone"] == "one"));
    }

    fn pods(options: &MemberOptions) -> Vec<Value> {
        let manifests = member(options);
        let sets = manifests.iter().filter(|manifest| manifest.kind() == "DaemonSet");
        sets.map(|manifest| manifest.as_value()["spec"]["template"]["spec"].clone()).collect()
    }
}
