use serde_json::{Value, json};
use trieste_control::requirements::{PLUGINS, promise};

use super::super::names::{PLUGIN_ROUTES, PLUGIN_SYNC, ROUTE_AGENT, SPIDERPOOL_SYNC};
use super::super::{example, member, to_yaml};
use super::*;

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
fn plugin_workers_are_there_with_the_plugins_that_have_a_database() {
    for (plugin, wanted) in [
        ("", None),
        ("generic", None),
        ("weave-net", None),
        ("flannel", None),
        ("canal-flannel", None),
        ("OpenShiftSDN", None),
        ("calico", Some("Deployment")),
        ("Calico", Some("Deployment")),
        ("OVNKubernetes", Some("DaemonSet")),
        ("ovnkubernetes", Some("DaemonSet")),
    ] {
        let manifests = member(&example_with(plugin));
        let workloads: Vec<&str> = manifests
            .iter()
            .filter(|manifest| manifest.name() == PLUGIN_SYNC && !manifest.as_value()["spec"].is_null())
            .map(Manifest::kind)
            .collect();
        assert_eq!(workloads, Vec::from_iter(wanted), "{plugin}");
        assert_eq!(to_yaml(&manifests).contains("trieste-plugin-"), wanted.is_some(), "{plugin}");
    }
}

#[test]
fn plugin_promises_are_what_installs_workers_with_each_plugin() {
    for (plugin, _) in PLUGINS {
        let manifests = member(&example_with(plugin));
        let has_workers = manifests.iter().any(|manifest| manifest.name() == PLUGIN_SYNC);
        assert_eq!(has_workers, promise(plugin).needs_synchronizer, "{plugin}");
    }
}

#[test]
fn plugin_spiderpool_workers_are_beside_those_of_any_plugin() {
    let (calico, ovn) = (("Deployment", PLUGIN_SYNC), ("DaemonSet", PLUGIN_SYNC));
    let spiderpool = ("Deployment", SPIDERPOOL_SYNC);
    for (plugin, has_spiderpool, wanted) in [
        ("generic", false, vec![]),
        ("generic", true, vec![spiderpool]),
        ("cilium", true, vec![spiderpool]),
        ("calico", false, vec![calico]),
        ("calico", true, vec![calico, spiderpool]),
        ("OVNKubernetes", false, vec![ovn]),
        ("OVNKubernetes", true, vec![ovn, spiderpool]),
    ] {
        let manifests = member(&MemberOptions { has_spiderpool, ..example_with(plugin) });
        let workers: Vec<(&str, &str)> = manifests
            .iter()
            .map(|manifest| (manifest.kind(), manifest.name()))
            .filter(|found| [calico, ovn, spiderpool].contains(found))
            .collect();
        assert_eq!(workers, wanted, "{plugin}, {has_spiderpool}");
        let count = |kind: &str, name: &str| {
            manifests.iter().filter(|manifest| (manifest.kind(), manifest.name()) == (kind, name)).count()
        };
        let once = usize::from(!wanted.is_empty());
        for (kind, name, times) in [
            ("Role", PLUGIN_ROUTES, once),
            ("RoleBinding", PLUGIN_ROUTES, once),
            ("ServiceAccount", SPIDERPOOL_SYNC, usize::from(has_spiderpool)),
        ] {
            assert_eq!(count(kind, name), times, "{plugin}, {has_spiderpool}: {kind} {name}");
        }
        let agent = manifests.iter().find(|one| (one.kind(), one.name()) == ("DaemonSet", ROUTE_AGENT));
        let variables = &agent.unwrap().as_value()["spec"]["template"]["spec"]["containers"][0]["env"];
        let variable = json!({"name": "TRIESTE_SPIDERPOOL", "value": "true"});
        assert_eq!(variables.as_array().unwrap().contains(&variable), has_spiderpool, "{plugin}");
        let variable = json!({"name": "TRIESTE_PLUGIN_SYNC", "value": "true"});
        let has_worker = wanted.iter().any(|(_, name)| *name == PLUGIN_SYNC);
        assert_eq!(variables.as_array().unwrap().contains(&variable), has_worker, "{plugin}");
    }
}

#[test]
fn plugin_spiderpool_workers_are_as_calicos_but_for_their_names() {
    let of = |name: &str| -> Value {
        let manifests = member(&MemberOptions { has_spiderpool: true, ..example_with("calico") });
        let is_it = |one: &&Manifest| one.kind() == "Deployment" && one.name() == name;
        manifests.iter().find(is_it).unwrap().as_value().clone()
    };
    let expected = of(PLUGIN_SYNC)
        .to_string()
        .replace("/trieste-plugin-sync", "/PROGRAM")
        .replace("plugin-sync", "spiderpool-sync")
        .replace("PROGRAM", "trieste-plugin-sync")
        .replace(r#""value":"calico""#, r#""value":"spiderpool""#);
    assert_eq!(of(SPIDERPOOL_SYNC).to_string(), expected);
}

#[test]
fn plugin_calico_workers_have_nothing_of_their_nodes_and_a_file_for_the_probe() {
    let mut options = example_with("calico");
    let deployment = |options: &MemberOptions| -> Value {
        let manifests = member(options);
        let is_it = |one: &&Manifest| one.kind() == "Deployment" && one.name() == PLUGIN_SYNC;
        manifests.iter().find(is_it).unwrap().as_value().clone()
    };
    let spec = deployment(&options)["spec"].clone();
    assert_eq!(spec["replicas"], 2);
    let strategy = json!({"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 0, "maxSurge": 1}});
    assert_eq!(spec["strategy"], strategy);
    let pod = &spec["template"]["spec"];
    assert!(pod["hostNetwork"].is_null());
    assert_eq!(
        (&pod["securityContext"]["runAsNonRoot"], &pod["serviceAccountName"]),
        (&json!(true), &json!(PLUGIN_SYNC))
    );
    let apart = &pod["affinity"]["podAntiAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"][0];
    assert_eq!(apart["podAffinityTerm"]["labelSelector"], spec["selector"]);
    assert_eq!(pod["volumes"], json!([{"name": "run", "emptyDir": {"sizeLimit": "1Mi"}}]));
    let container = &pod["containers"][0];
    assert_eq!(container["volumeMounts"], json!([{"name": "run", "mountPath": "/run/trieste"}]));
    let security = json!({
        "privileged": false, "allowPrivilegeEscalation": false, "readOnlyRootFilesystem": true,
        "capabilities": {"drop": ["ALL"]}, "seccompProfile": {"type": "RuntimeDefault"},
    });
    assert_eq!(container["securityContext"], security);
    let check = json!(["/usr/local/bin/trieste-plugin-sync", "--check"]);
    assert_eq!(container["readinessProbe"]["exec"]["command"], check);
    assert_eq!(container["resources"]["limits"]["memory"], "256Mi");
    let variables = json!([
        {"name": "SUBMARINER_NAMESPACE", "value": "submariner-operator"},
        {"name": "SUBMARINER_NETWORKPLUGIN", "value": "calico"},
        {"name": "SUBMARINER_DEBUG", "value": "false"},
        {"name": "POD_NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
    ]);
    assert_eq!(container["env"], variables);
    options.tolerations = vec![json!({"key": "a", "operator": "Exists"})];
    assert_eq!(deployment(&options)["spec"]["template"]["spec"]["tolerations"], json!(options.tolerations));
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
    assert_eq!((&pod["hostNetwork"], &pod["dnsPolicy"]), (&json!(true), &json!("ClusterFirstWithHostNet")));
    assert_eq!(container["resources"]["limits"]["memory"], "256Mi");
    // Wherever a route agent is, a worker is as well.
    let manifests = member(&options);
    let is_agent = |one: &&Manifest| one.kind() == "DaemonSet" && one.name() == ROUTE_AGENT;
    let agent = &manifests.iter().find(is_agent).unwrap().as_value()["spec"]["template"]["spec"];
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
