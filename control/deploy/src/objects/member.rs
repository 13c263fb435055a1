//! A member: all of its objects, in the order in which they are applied.

use super::{Manifest, MemberOptions};
use super::{crds, custom, discovery, gateway, namespaces, plugin, rbac, routeagent, secrets, services};

/// Every object of a member, in the order in which they are applied: what others refer to comes first.
pub fn member(options: &MemberOptions) -> Vec<Manifest> {
    let namespace = options.namespace.as_str();
    let mut manifests = vec![namespaces::member(namespace), namespaces::paths(namespace)];
    manifests.extend(crds::definitions());
    manifests.extend(rbac::member(options));
    manifests.extend(secrets::member(options));
    manifests.push(custom::submariner_resource(options));
    manifests.push(gateway::daemon_set(options));
    manifests.push(routeagent::daemon_set(options));
    if options.has_ovn() {
        manifests.push(plugin::daemon_set(options));
    }
    manifests.extend(services::member(options));
    if options.has_service_discovery() {
        manifests.extend(discovery::member(options));
    }
    manifests
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::super::names::{
        GATEWAY, MANAGED_BY_LABEL, PART_OF_LABEL, PLUGIN_SYNC, TRIESTE, VERSION_LABEL,
    };
    use super::super::{Secret, example, to_yaml};
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

    /// Returns the example with a network plugin.
    fn example_with(plugin: &str) -> MemberOptions {
        MemberOptions { network_plugin: plugin.to_owned(), ..example() }
    }

    fn worker(options: &MemberOptions) -> Option<Value> {
        let manifests = member(options);
        let set = manifests.iter().find(|set| set.kind() == "DaemonSet" && set.name() == PLUGIN_SYNC)?;
        Some(set.as_value()["spec"]["template"]["spec"].clone())
    }

    #[test]
    fn plugin_ovn_worker_is_there_with_ovn_kubernetes_alone() {
        for plugin in ["", "generic", "calico", "weave-net", "flannel", "OpenShiftSDN"] {
            let manifests = member(&example_with(plugin));
            assert!(!to_yaml(&manifests).contains("trieste-plugin-"), "{plugin}");
        }
        for plugin in ["OVNKubernetes", "ovnkubernetes"] {
            assert!(worker(&example_with(plugin)).is_some(), "{plugin}");
        }
    }

    #[test]
    fn plugin_ovn_worker_sees_the_sockets_and_may_do_nothing_else() {
        let options = example_with("OVNKubernetes");
        let pod = worker(&options).unwrap();
        let container = &pod["containers"][0];
        let security = json!({
            "privileged": false, "allowPrivilegeEscalation": false, "readOnlyRootFilesystem": true, "runAsUser": 0,
            "capabilities": {"drop": ["ALL"]}, "seccompProfile": {"type": "RuntimeDefault"},
        });
        assert_eq!(container["securityContext"], security);
        let mounts: Vec<&Value> = container["volumeMounts"].as_array().unwrap().iter().collect();
        let (read_only, writable): (Vec<&Value>, Vec<&Value>) =
            mounts.into_iter().partition(|mount| mount["readOnly"] == true);
        let paths: Vec<&str> = read_only.iter().filter_map(|mount| mount["mountPath"].as_str()).collect();
        assert_eq!(paths, ["/var/run/ovn-ic", "/var/run/openvswitch", "/var/run/ovn", "/etc/trieste/ovn"]);
        assert_eq!(writable, [&json!({"name": "run", "mountPath": "/run/trieste"})], "the file for --check");
        let volumes = pod["volumes"].as_array().unwrap();
        for volume in &volumes[..3] {
            assert_eq!(volume["hostPath"]["type"], "DirectoryOrCreate", "a node has one of the folders");
        }
        assert_eq!(volumes[3]["secret"]["optional"], true);
        assert_eq!(volumes[4], json!({"name": "run", "emptyDir": {"sizeLimit": "1Mi"}}));
        let check = json!(["/usr/local/bin/trieste-plugin-sync", "--check"]);
        assert_eq!(container["readinessProbe"]["exec"]["command"], check);
        assert_eq!(
            (&pod["hostNetwork"], &pod["dnsPolicy"]),
            (&json!(true), &json!("ClusterFirstWithHostNet"))
        );
        assert_eq!(container["resources"]["limits"]["memory"], "256Mi");
        // Wherever a route agent is, a worker is as well.
        let agent = &pods(&options)[1];
        for field in ["nodeSelector", "affinity", "tolerations", "priorityClassName"] {
            assert_eq!(pod[field], agent[field], "{field}");
        }
    }

    #[test]
    fn plugin_ovn_worker_is_told_the_networks_and_the_database() {
        let mut options = example_with("OVNKubernetes");
        let told = |options: &MemberOptions, name: &str| -> Value {
            let pod = worker(options).unwrap();
            let variables = pod["containers"][0]["env"].as_array().unwrap().clone();
            let found = variables.into_iter().find(|variable| variable["name"] == name);
            found.map(|found| found["value"].clone()).unwrap_or_default()
        };
        assert_eq!(told(&options, "TRIESTE_OVN_NB"), "", "each worker looks for sockets");
        assert_eq!(told(&options, "OVN_CA"), "/etc/trieste/ovn/ca.crt");
        options.ovn.northbound = "tcp:ovnkube-db.ovn-kubernetes:6641".to_owned();
        options.cluster_cidrs = ["10.128.0.0/14", "fd01::/48"].map(|cidr| cidr.parse().unwrap()).into();
        options.service_cidrs = ["172.30.0.0/16", "fd02::/112"].map(|cidr| cidr.parse().unwrap()).into();
        for (name, value) in [
            ("TRIESTE_OVN_NB", "tcp:ovnkube-db.ovn-kubernetes:6641"),
            ("SUBMARINER_NETWORKPLUGIN", "OVNKubernetes"),
            ("SUBMARINER_CLUSTERID", "example"),
            ("SUBMARINER_CLUSTERCIDR", "10.128.0.0/14,fd01::/48"),
            ("SUBMARINER_SERVICECIDR", "172.30.0.0/16,fd02::/112"),
            ("OVN_PK", "/etc/trieste/ovn/tls.key"),
            ("OVN_CERT", "/etc/trieste/ovn/tls.crt"),
        ] {
            assert_eq!(told(&options, name), value, "{name}");
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

    fn pods(options: &MemberOptions) -> Vec<Value> {
        let manifests = member(options);
        let sets = manifests.iter().filter(|manifest| manifest.kind() == "DaemonSet");
        sets.map(|manifest| manifest.as_value()["spec"]["template"]["spec"].clone()).collect()
    }
}
