//! Gateways as pods of clusters with an API server each, and one broker: their objects are upstream's, field by field and
//! in upstream's order.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};
use trieste_control::admin::Condition;
use trieste_control::api::GoDuration;
use trieste_control::live_networks::Source;
use trieste_deploy::objects::names::NETWORK_MAPS;
use trieste_deploy::objects::rbac::network_map_namespaces;
use trieste_deploy::objects::{example, member};
use trieste_tests::cluster::NAMESPACE;
use trieste_tests::command::Run;
use trieste_tests::guard::root_test;
use trieste_tests::kubernetes::{Client, Entry, Fleet, GatewayPod, Journal, Place, objects, rbac};
use trieste_tests::programs;
use trieste_tests::wait::eventually;

const TIMEOUT: Duration = Duration::from_secs(90);
const EVERYWHERE: [Place<'_>; 3] = [Place::Cluster("east"), Place::Cluster("west"), Place::Broker];
const KINDS: [&str; 5] = ["pods", "gateways", "leases", "clusters", "endpoints"];

#[test]
fn a_cluster_with_two_gateways_is_what_upstreams_would_be() {
    let Some(_turn) = root_test("a_cluster_with_two_gateways_is_what_upstreams_would_be") else { return };
    let mut fleet = Fleet::new(2).unwrap();
    let east = fleet.lab.cluster("east").server.client().clone();
    let journal = Journal::open(&east, Place::Cluster("east"), &KINDS).unwrap();
    for cluster in ["east", "west"] {
        fleet.start(cluster, 0).unwrap();
    }
    for cluster in ["east", "west"] {
        fleet.wait_active(cluster, 0).unwrap();
    }
    fleet.start("east", 1).unwrap();
    fleet.wait_gateway("east", 1, |status| status["haStatus"] == "passive").unwrap();
    // Without them nobody answers a health check.
    let _agents = ["east", "west"].map(|cluster| {
        let node = fleet.lab.gateway_node(cluster, 0);
        fleet.lab.route_agent(cluster, node).unwrap().start(&[]).unwrap()
    });

    // The watches of the kinds tell each in its own time.
    eventually("the writes of a start", TIMEOUT, || writes_of_a_start_are_in_order(&journal.entries()))
        .unwrap();
    objects_are_as_upstreams(&fleet);
    commands_show_all(&fleet);
    metrics_have_upstreams_names(&fleet);
    only_rights_are_missing(&fleet);

    let journal = Journal::open(&east, Place::Cluster("east"), &KINDS).unwrap();
    let broker = Journal::open(fleet.lab.broker.client(), Place::Broker, &["endpoints"]).unwrap();
    assert!(fleet.take("east", 0).stop().unwrap());
    fleet.wait_gateway("east", 1, |status| status["haStatus"] == "active").unwrap();
    fleet.wait_endpoint("east", 1, Place::Cluster("west")).unwrap();
    eventually("the writes of a takeover", TIMEOUT, || {
        writes_of_a_takeover_are_in_order(&journal.entries(), &broker.entries())
    })
    .unwrap();

    assert!(fleet.take("east", 1).stop().unwrap());
    uninstalled_clusters_leave_nothing(&fleet);
}

/// The parts of an installation that upstream cannot do without: known annotations, a state directory, an address of
/// the network plugin's.
#[test]
fn what_a_node_lacks_is_said_and_the_gateway_works() {
    let Some(_turn) = root_test("what_a_node_lacks_is_said_and_the_gateway_works") else { return };
    let mut fleet = Fleet::new(1).unwrap();
    let unknown = json!({"metadata": {"annotations": {"gateway.submariner.io/udp-prot": "4501"}}});
    let node = objects::node_path(&fleet.lab.gateway_node("east", 0).name);
    fleet.lab.cluster("east").server.client().patch(&node, &unknown).unwrap();

    // It keeps its state where a container without a volume would: on the root's own mount.
    let settings = fleet.lab.settings("east", 0).unwrap();
    let (mut lost, mut none) = (settings.clone(), settings);
    let state = fleet.lab.lab.directory().join("lost-with-the-container");
    lost.insert("TRIESTE_STATE_DIR".to_owned(), state.display().to_string());
    fleet.start_with("east", 0, &lost).unwrap();
    fleet.wait_active("east", 0).unwrap();
    let said = condition(fleet.gateway("east", 0), "UnknownNodeSetting");
    assert!(said.subject.contains("east-gw1") && said.message.contains("udp-prot"), "{said:?}");
    condition(fleet.gateway("east", 0), "StateNotOnVolume");

    // Made anew with nothing kept, it has another key, which the others learn.
    let key = |endpoint: Value| endpoint["spec"]["backend_config"]["publicKey"].clone();
    let before = key(fleet.wait_endpoint("east", 0, Place::Broker).unwrap());
    assert!(fleet.take("east", 0).stop().unwrap());
    std::fs::remove_dir_all(&state).unwrap();
    // From now on it can keep nothing at all, and only the worker has an address inside of the cluster's CIDR.
    let worker = fleet.lab.cluster("east").plan.workers()[0].bridge[0].trunc().to_string();
    none.insert("TRIESTE_STATE_DIR".to_owned(), "/proc/trieste".to_owned());
    none.insert("SUBMARINER_CLUSTERCIDR".to_owned(), worker.clone());
    fleet.start_with("east", 0, &none).unwrap();
    fleet.wait_active("east", 0).unwrap();
    condition(fleet.gateway("east", 0), "StateNotKept");
    let said = condition(fleet.gateway("east", 0), "NoHealthCheckAddress");
    assert!(said.message.contains(&worker), "{said:?}");
    eventually("an Endpoint with another key and nothing to check", TIMEOUT, || {
        let endpoint = fleet.wait_endpoint("east", 0, Place::Broker)?;
        anyhow::ensure!(endpoint["spec"].get("healthCheckIP").is_none(), "{endpoint:#}");
        anyhow::ensure!(key(endpoint) != before, "the key is {before}");
        Ok(())
    })
    .unwrap();
}

/// Defines Cilium's pools and OpenShift's Network, but for their schemas.
fn define_networks_of_plugins(client: &Client) {
    for (group, version, kind, singular) in [
        ("cilium.io", "v2alpha1", "CiliumPodIPPool", "ciliumpodippool"),
        ("config.openshift.io", "v1", "Network", "network"),
    ] {
        let schema = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
        let definition = json!({
            "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {"name": format!("{singular}s.{group}")},
            "spec": {"group": group, "scope": "Cluster",
                "names": {"kind": kind, "listKind": format!("{kind}List"), "plural": format!("{singular}s"), "singular": singular},
                "versions": [{"name": version, "served": true, "storage": true, "schema": {"openAPIV3Schema": schema}}]}
        });
        client.apply(&definition).unwrap();
        let path = format!("/apis/{group}/{version}/{singular}s");
        eventually("the kind to be served", TIMEOUT, || client.list(&path).map(drop)).unwrap();
    }
}

/// Gives gateways the rights that `join` gives where all sources are followed.
fn give_rights_to_follow(client: &Client) {
    let mut options = example();
    NAMESPACE.clone_into(&mut options.namespace);
    options.followed.0 = Source::ALL.into_iter().map(|source| (source, BTreeSet::new())).collect();
    for namespace in network_map_namespaces() {
        // The cluster has one of them already.
        drop(client.create_namespace(namespace));
    }
    for manifest in member(&options) {
        let is_here = manifest.namespace().is_none_or(|namespace| namespace == NAMESPACE);
        let is_gateways = is_here && manifest.name() == rbac::GATEWAY || manifest.name() == NETWORK_MAPS;
        if manifest.kind().contains("Role") && is_gateways {
            client.apply(manifest.as_value()).unwrap();
        }
    }
}

/// With the rights that `join` gives; upstream's gateways may not read these objects.
#[test]
fn a_network_that_appears_in_an_object_is_announced_and_one_that_goes_is_withdrawn() {
    let name = "a_network_that_appears_in_an_object_is_announced_and_one_that_goes_is_withdrawn";
    let Some(_turn) = root_test(name) else { return };
    let mut fleet = Fleet::new(1).unwrap();
    let client = fleet.lab.cluster("east").server.client().clone();
    define_networks_of_plugins(&client);
    give_rights_to_follow(&client);
    let pods: Vec<String> =
        fleet.lab.cluster("east").plan.pod_cidrs.iter().map(ToString::to_string).collect();
    let ranges = "/apis/networking.k8s.io/v1/servicecidrs";
    let found: Vec<Value> = client.list(ranges).unwrap();
    let found = found.iter().filter_map(|range| range["spec"]["cidrs"].as_array()).flatten();
    let found: Vec<&str> = found.filter_map(Value::as_str).collect();
    let services = found.join(",");
    let pool = |name: &str, cidrs: &[&str]| {
        json!({"apiVersion": "cilium.io/v2alpha1", "kind": "CiliumPodIPPool", "metadata": {"name": name},
            "spec": {"ipv4": {"cidrs": cidrs, "maskSize": 27}}})
    };
    let network = |more: &[&str]| {
        let networks: Vec<Value> = more.iter().map(|cidr| json!({"cidr": cidr, "hostPrefix": 28})).collect();
        json!({"apiVersion": "config.openshift.io/v1", "kind": "Network", "metadata": {"name": "cluster"},
            "spec": {"clusterNetwork": networks}})
    };
    let default = "10.211.64.0/24";
    let pods = format!("{},{default}", pods.join(","));
    let flannel = |conf: &str| {
        json!({"apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": "kube-flannel-cfg", "namespace": "kube-flannel"}, "data": {"net-conf.json": conf}})
    };
    let net_conf = |more: &str| json!({"Network": default, "IPv6Network": more}).to_string();
    for object in [pool("default", &[default]), network(&[default]), flannel(&net_conf(""))] {
        client.apply(&object).unwrap();
    }
    let followed =
        json!({"services": found, "cilium-pods": [default], "openshift-pods": [default], "flannel-map": [default]})
            .to_string();
    client
        .apply(&json!({"apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": "trieste-networks", "namespace": NAMESPACE,
                "annotations": {"trieste.io/networks-followed": followed}},
            "data": {"pods": pods, "services": services}}))
        .unwrap();
    fleet.start("east", 0).unwrap();
    fleet.wait_active("east", 0).unwrap();
    let more = |range: &str| {
        json!({"apiVersion": "networking.k8s.io/v1", "kind": "ServiceCIDR",
            "metadata": {"name": "more"}, "spec": {"cidrs": [range]}})
    };
    let until = |what: &str, network: &str, is_there: bool| {
        eventually(what, TIMEOUT, || {
            let endpoint = fleet.wait_endpoint("east", 0, Place::Broker)?;
            let has_it = endpoint["spec"]["subnets"].to_string().contains(network);
            anyhow::ensure!(has_it == is_there, "{endpoint:#}");
            Ok(())
        })
        .unwrap();
    };
    client.post(ranges, &more("10.211.77.0/24")).unwrap();
    until("the network to be announced", "10.211.77.0/24", true);
    client.delete(&format!("{ranges}/more")).unwrap();
    until("the network to be withdrawn", "10.211.77.0/24", false);
    client.apply(&pool("mars", &["10.211.65.0/24"])).unwrap();
    until("a pool of pods to be announced", "10.211.65.0/24", true);
    client.apply(&network(&[default, "10.211.66.0/24"])).unwrap();
    until("a network of pods to be announced", "10.211.66.0/24", true);
    client.delete("/apis/cilium.io/v2alpha1/ciliumpodippools/mars").unwrap();
    until("a pool of pods to be withdrawn", "10.211.65.0/24", false);
    client.apply(&network(&[default])).unwrap();
    until("a network of pods to be withdrawn", "10.211.66.0/24", false);
    client.apply(&flannel(&net_conf("10.211.67.0/24"))).unwrap();
    until("flannel's to be announced", "10.211.67.0/24", true);
    client.apply(&flannel("{")).unwrap();
    eventually("what makes no sense to be named", TIMEOUT, || {
        let log = fleet.gateway("east", 0).log();
        anyhow::ensure!(log.contains("ConfigMap kube-flannel/kube-flannel-cfg has an entry"), "{log}");
        Ok(())
    })
    .unwrap();
    until("flannel's to stay", "10.211.67.0/24", true);
    client.apply(&flannel(&net_conf(""))).unwrap();
    until("flannel's to be withdrawn", "10.211.67.0/24", false);
    let object = format!("/api/v1/namespaces/{NAMESPACE}/configmaps/trieste-networks");
    let left = client.get(&object).unwrap();
    let sorted = |text: &str| text.split(',').map(str::to_owned).collect::<BTreeSet<String>>();
    for (list, before) in [("pods", &pods), ("services", &services)] {
        assert_eq!(sorted(left["data"][list].as_str().unwrap()), sorted(before), "{left}");
    }
    let log = fleet.gateway("east", 0).log();
    let is_other = |line: &&str| line.contains("condition set") && !line.contains("kube-flannel-cfg");
    let others: Vec<&str> =
        log.lines().filter(|line| line.contains("NetworksNotFollowed")).filter(is_other).collect();
    assert!(others.is_empty(), "{others:?}");
}

/// With the rights that `join` gives.
#[test]
fn settings_of_the_configmap_take_effect_and_a_bad_value_keeps_the_one_before() {
    let name = "settings_of_the_configmap_take_effect_and_a_bad_value_keeps_the_one_before";
    let Some(_turn) = root_test(name) else { return };
    let mut fleet = Fleet::new(1).unwrap();
    let client = fleet.lab.cluster("east").server.client().clone();
    let mut options = example();
    NAMESPACE.clone_into(&mut options.namespace);
    options.set("path-probe-interval", "30").unwrap();
    for manifest in member(&options) {
        let is_here = manifest.namespace().is_none_or(|namespace| namespace == NAMESPACE);
        let is_role = manifest.kind().contains("Role") && manifest.name() == rbac::GATEWAY;
        if is_here && (is_role || manifest.name() == "trieste-settings") {
            client.apply(manifest.as_value()).unwrap();
        }
    }
    let mut environment = fleet.lab.settings("east", 0).unwrap();
    environment.insert("TRIESTE_PATH_PROBE_INTERVAL".to_owned(), "25".to_owned());
    fleet.start_with("east", 0, &environment).unwrap();
    fleet.wait_active("east", 0).unwrap();
    let object = format!("/api/v1/namespaces/{NAMESPACE}/configmaps/trieste-settings");
    let set = |data: Value| client.patch(&object, &json!({"data": data})).unwrap();
    let log_has = |fleet: &Fleet, what: &str| {
        eventually(what, TIMEOUT, || {
            let log = fleet.gateway("east", 0).log();
            anyhow::ensure!(log.contains(what), "{log}");
            Ok(())
        })
        .unwrap();
    };
    let waits = |fleet: &Fleet, name: &str, part: &str| {
        eventually(part, TIMEOUT, || {
            let found = fleet.gateway("east", 0).status()?.conditions;
            let is_it = |one: &Condition| one.name == name && one.message.contains(part);
            anyhow::ensure!(found.iter().any(is_it), "{found:?}");
            Ok(())
        })
        .unwrap();
    };

    // The ConfigMap goes before the environment, and a change takes effect in the same process.
    set(json!({"path-probe-interval": "50", "log-level": "info,trieste_gateway=trace"}));
    log_has(&fleet, "interval: 50ms");
    // What cannot be is named, with what there is and what stays.
    set(json!({"path-probe-interval": "4", "wrokers": "2", "workers": "2"}));
    waits(
        &fleet,
        "SettingRefused",
        "path-probe-interval: `4` is not a number of milliseconds from 5 to 1000; `50` stays",
    );
    waits(&fleet, "UnknownSetting", "wrokers: is no setting");
    waits(&fleet, "RestartPending", "rollout restart daemonset/submariner-gateway");
    assert!(!fleet.gateway("east", 0).log().contains("interval: 4ms"));

    // The next process begins with what was in force, and with what waited.
    assert!(fleet.take("east", 0).stop().unwrap());
    set(json!({"path-probe-interval": "60"}));
    fleet.start_with("east", 0, &environment).unwrap();
    fleet.wait_active("east", 0).unwrap();
    log_has(&fleet, "workers=2");
    let conditions = fleet.gateway("east", 0).status().unwrap().conditions;
    assert!(conditions.iter().all(|condition| condition.name != "RestartPending"), "{conditions:?}");
}

/// As measured of upstream: passive at first, then the Lease, then the pod is the active one; the Cluster before the
/// Endpoint, and the Gateway object active when there is one.
fn writes_of_a_start_are_in_order(written: &[Entry]) -> anyhow::Result<()> {
    let gateway = |status: &str| {
        position(written, &format!("Gateway east-gw1 {status}"), |entry| {
            of(entry, "Gateway", "east-gw1") && entry.object["status"]["haStatus"] == status
        })
    };
    let pod = |status: &str| {
        position(written, &format!("pod {status}"), |entry| {
            of(entry, "Pod", "submariner-gateway-east-gw1")
                && entry.object["metadata"]["labels"]["gateway.submariner.io/status"] == status
        })
    };
    let lease = position(written, "Lease", |entry| entry.object["kind"] == "Lease")?;
    let cluster = position(written, "Cluster east", |entry| of(entry, "Cluster", "east"))?;
    let endpoint = position(written, "Endpoint", |entry| {
        entry.object["kind"] == "Endpoint" && entry.object["spec"]["cluster_id"] == "east"
    })?;

    anyhow::ensure!(lease < pod("active")? && lease < cluster, "{}", titles(written));
    anyhow::ensure!(cluster < endpoint && endpoint < gateway("active")?, "{}", titles(written));
    let others = written.iter().filter(|entry| {
        entry.verb == "DELETED"
            || of(entry, "Gateway", "east-gw2") && entry.object["status"]["haStatus"] == "active"
    });
    anyhow::ensure!(others.count() == 0, "{}", titles(written));
    Ok(())
}

/// As measured of upstream, but for the Lease, which is given back: Lease, the old Endpoint is deleted, the new one
/// made, and no other after it; the new one's Gateway is active when its Endpoint is there.
fn writes_of_a_takeover_are_in_order(local: &[Entry], broker: &[Entry]) -> anyhow::Result<()> {
    let is_endpoint = |entry: &Entry, verb: &str, hostname: &str| {
        entry.verb == verb
            && entry.object["kind"] == "Endpoint"
            && entry.object["spec"]["hostname"] == hostname
    };
    let lease = position(local, "the Lease of east-gw2", |entry| {
        entry.object["kind"] == "Lease"
            && entry.object["spec"]["holderIdentity"] == "east-gw2-submariner-gateway"
    })?;
    let deleted = position(local, "deletion", |entry| is_endpoint(entry, "DELETED", "east-gw1"))?;
    let added = position(local, "addition", |entry| is_endpoint(entry, "ADDED", "east-gw2"))?;
    let active = position(local, "Gateway east-gw2 active", |entry| {
        of(entry, "Gateway", "east-gw2") && entry.object["status"]["haStatus"] == "active"
    })?;
    let label = position(local, "pod label active", |entry| {
        of(entry, "Pod", "submariner-gateway-east-gw2")
            && entry.object["metadata"]["labels"]["gateway.submariner.io/status"] == "active"
    })?;
    let gone = position(local, "deletion of Gateway east-gw1", |entry| {
        entry.verb == "DELETED" && of(entry, "Gateway", "east-gw1")
    })?;

    anyhow::ensure!(lease < deleted && deleted < added && added < active, "{}", titles(local));
    anyhow::ensure!(lease < label && gone < active, "{}", titles(local));
    for (verb, hostname) in [("DELETED", "east-gw1"), ("ADDED", "east-gw2")] {
        let count = broker.iter().filter(|entry| is_endpoint(entry, verb, hostname)).count();
        anyhow::ensure!(count == 1, "{}", titles(broker));
    }
    Ok(())
}

/// Field by field what upstream's gateways wrote with the WireGuard driver, in the lab's names and addresses.
fn objects_are_as_upstreams(fleet: &Fleet) {
    for cluster in ["east", "west"] {
        for place in EVERYWHERE {
            let is_original = matches!(place, Place::Cluster(id) if id == cluster);
            let endpoint = fleet.wait_endpoint(cluster, 0, place).unwrap();
            let spec = endpoint_spec(fleet, cluster, 0, &endpoint["spec"]["backend_config"]["publicKey"]);
            assert_eq!(endpoint["spec"], spec);
            let name = format!("{cluster}-{}", spec["cable_name"].as_str().unwrap());
            assert_eq!(endpoint["metadata"]["name"], name.as_str());
            check_labels(&endpoint, cluster, is_original);
            let path = format!("{}/{cluster}", place.path("clusters"));
            let object = place.client(&fleet.lab).wait(&path, TIMEOUT, |_| true).unwrap();
            let plan = &fleet.lab.cluster(cluster).plan;
            assert_eq!(
                object["spec"],
                json!({"cluster_id": cluster, "color_codes": ["blue"], "cluster_cidr": plan.pod_cidrs,
                    "service_cidr": plan.service_cidrs, "global_cidr": []})
            );
            check_labels(&object, cluster, is_original);
        }
    }
    let east = fleet.lab.cluster("east");
    let lease = east.wait_object("leases", "submariner-gateway-lock", TIMEOUT, |_| true).unwrap();
    let spec = lease["spec"].as_object().unwrap();
    assert_eq!(spec["holderIdentity"], "east-gw1-submariner-gateway");
    assert_eq!((&spec["leaseDurationSeconds"], &spec["leaseTransitions"]), (&json!(15), &json!(0)));
    let keys: Vec<_> = spec.keys().map(String::as_str).collect();
    assert_eq!(
        keys,
        ["acquireTime", "holderIdentity", "leaseDurationSeconds", "leaseTransitions", "renewTime"]
    );
    for (index, status) in ["active", "passive"].into_iter().enumerate() {
        let pod = objects::gateway_pod(&fleet.lab.gateway_node("east", index).name);
        let pod = east.server.client().get(&objects::pod_path(&pod)).unwrap();
        let labels = json!({"app": "submariner-gateway", "gateway.submariner.io/status": status,
            "gateway.submariner.io/node": fleet.lab.gateway_node("east", index).name});
        assert_eq!(pod["metadata"]["labels"], labels);
    }
    gateways_are_as_upstreams(fleet);
}

fn gateways_are_as_upstreams(fleet: &Fleet) {
    let east = fleet.lab.cluster("east");
    let is_measured = |gateway: &Value| {
        let connection = &gateway["status"]["connections"][0];
        connection["status"] == "connected" && connection.get("latencyRTT").is_some()
    };
    let active = east.wait_object("gateways", "east-gw1", TIMEOUT, is_measured).unwrap();
    let passive = east.wait_object("gateways", "east-gw2", TIMEOUT, |_| true).unwrap();
    let timestamp = active["metadata"]["annotations"]["update-timestamp"].as_str().unwrap();
    assert!(timestamp.parse::<u64>().unwrap() > 1_700_000_000, "{timestamp}");
    let key = |gateway: &Value| gateway["status"]["localEndpoint"]["backend_config"]["publicKey"].clone();
    let mut status = active["status"].clone();
    let connection = status["connections"][0].take();
    assert_eq!(
        status,
        json!({"version": status["version"], "haStatus": "active", "statusFailure": "", "connections": [null],
            "localEndpoint": endpoint_spec(fleet, "east", 0, &key(&active))})
    );
    assert_eq!(
        passive["status"],
        json!({"version": status["version"], "haStatus": "passive", "statusFailure": "", "connections": [],
            "localEndpoint": endpoint_spec(fleet, "east", 1, &key(&passive))})
    );
    assert_ne!(key(&active), key(&passive));

    let west = fleet.lab.gateway_node("west", 0);
    assert_eq!(connection["status"], "connected");
    assert_eq!((&connection["statusMessage"], connection.get("usingNAT")), (&json!(""), None));
    assert_eq!(connection["usingIP"], json!(west.underlay_address()));
    for which in ["last", "min", "average", "max", "stdDev"] {
        let text = connection["latencyRTT"][which].as_str().unwrap();
        text.parse::<GoDuration>().unwrap();
    }
    // The driver's own counters leak into upstream's copy of the Endpoint, and so they do here.
    let mut endpoint = connection["endpoint"].clone();
    let settings = endpoint["backend_config"].as_object_mut().unwrap();
    for counter in ["LastChecked", "ReceiveBytes", "TransmitBytes"] {
        let value = settings.remove(counter).unwrap();
        value.as_str().unwrap().parse::<u64>().unwrap();
    }
    let remote = fleet.wait_endpoint("west", 0, Place::Cluster("east")).unwrap();
    assert_eq!(endpoint, remote["spec"]);
}

/// What the gateway of a node publishes, by upstream's rules.
fn endpoint_spec(fleet: &Fleet, cluster: &str, index: usize, key: &Value) -> Value {
    let (plan, node) = (&fleet.lab.cluster(cluster).plan, fleet.lab.gateway_node(cluster, index));
    let address = node.underlay_address().to_string();
    let subnets: Vec<_> = plan.service_cidrs.iter().chain(&plan.pod_cidrs).collect();
    assert_eq!(key.as_str().map(str::len), Some(44));
    json!({
        "backend": "wireguard",
        "backend_config": {"interface-name": "submariner", "natt-discovery-port": "4490",
            "public-ip": format!("ipv4:{address}"), "publicKey": key, "udp-port": "4500"},
        "cable_name": format!("submariner-cable-{cluster}-{}", address.replace('.', "-")),
        "cluster_id": cluster,
        "healthCheckIP": node.bridge[0].addr(),
        "hostname": node.name,
        "nat_enabled": false,
        "private_ip": address,
        "public_ip": address,
        "subnets": subnets,
    })
}

fn check_labels(object: &Value, cluster: &str, is_original: bool) {
    let label = object["metadata"]["labels"].get("submariner-io/clusterID");
    let wanted = json!(cluster);
    assert_eq!(label, (!is_original).then_some(&wanted), "{object}");
    assert_eq!(object["metadata"].get("finalizers"), None, "{object}");
}

/// From the socket, and with an administrator's kubeconfig from the API server.
fn commands_show_all(fleet: &Fleet) {
    let by_socket = fleet.gateway("east", 0).trieste(&["show", "all"]).unwrap().stdout().unwrap();
    let server = &fleet.lab.cluster("east").server;
    let by_store = server
        .namespace()
        .run(&programs::path("trieste").unwrap().to_string_lossy())
        .args(["show", "all", "--store", &format!("kube:{}", server.kubeconfig().display())])
        .stdout()
        .unwrap();
    let west = fleet.lab.gateway_node("west", 0);
    for shown in [&by_socket, &by_store] {
        assert!(shown.starts_with("Cluster \"east\"\n"), "{shown}");
        let line = |words: &[&str]| shown.lines().any(|line| words.iter().all(|word| line.contains(word)));
        let address = west.underlay_address().to_string();
        assert!(line(&["west-gw1", "west", &address, "no", "wireguard", "connected"]), "{shown}");
        assert!(line(&["west", &address, "wireguard", "remote"]), "{shown}");
        assert!(line(&["east-gw1", "active", "All connections (1) are established"]), "{shown}");
    }
    assert!(by_store.contains("east-gw2   passive"), "{by_store}");
    eprintln!("{by_store}");
}

fn metrics_have_upstreams_names(fleet: &Fleet) {
    let node = fleet.lab.gateway_node("east", 0);
    let address = format!("http://{}:32780/metrics", node.underlay_address());
    let fetch =
        |extra: &[&str]| -> Run { node.namespace.run("curl").args(["-s", "-f"]).args(extra).arg(&address) };
    let page = fetch(&[]).stdout().unwrap();
    let (local, remote) = (node.underlay_address(), fleet.lab.gateway_node("west", 0).underlay_address());
    let cable = format!(
        "cable_driver=\"wireguard\",local_cluster=\"east\",local_endpoint_ip=\"{local}\",local_hostname=\"east-gw1\",\
         remote_cluster=\"west\",remote_endpoint_ip=\"{remote}\",remote_hostname=\"west-gw1\""
    );
    for series in [
        format!("submariner_connection_established_timestamp{{{cable}}} "),
        format!("submariner_connection_latency_seconds{{{cable}}} "),
        format!("submariner_connections{{{cable},status=\"connected\"}} 1"),
        "submariner_connections_short{cable_driver=\"wireguard\",status=\"connected\"} 1".to_owned(),
        format!("submariner_gateway_rx_bytes{{{cable}}} "),
        "submariner_gateway_sync_iterations ".to_owned(),
        format!("submariner_gateway_tx_bytes{{{cable}}} "),
    ] {
        assert!(page.lines().any(|line| line.starts_with(&series)), "{series} is not in\n{page}");
    }
    let head = fetch(&["--head"]).stdout().unwrap();
    assert!(head.starts_with("HTTP/1.1 200"), "{head}");
}

/// Upstream's role lacks the right to write Events, that to the namespace in which gateways tell one another of
/// themselves, and those to read RouteAgent objects and the ConfigMap with networks: each is said once, one gateway is active,
/// and nothing else is wrong.
fn only_rights_are_missing(fleet: &Fleet) {
    const MISSING: [&str; 5] = [
        "EventsNotWritten",
        "NetworksNotInForce",
        "OneActiveGateway",
        "RouteAgentsNotKnown",
        "SettingsNotRead",
    ];
    eventually("a condition for each right", TIMEOUT, || {
        for (cluster, index) in [("east", 0), ("west", 0)] {
            let found = fleet.gateway(cluster, index).status()?.conditions;
            let names: Vec<_> = found.iter().map(|condition| condition.name.as_str()).collect();
            anyhow::ensure!(names == MISSING, "{found:?}");
        }
        Ok(())
    })
    .unwrap();
}

/// East's gateways have ended; on both nodes its uninstall job runs, as upstream's operator would start it.
fn uninstalled_clusters_leave_nothing(fleet: &Fleet) {
    for index in [0, 1] {
        let node = fleet.lab.gateway_node("east", index);
        let files = fleet.lab.gateway_files("east", index).unwrap();
        assert!(has_device(fleet, index), "the TUN device outlives its process");
        let mut environment = fleet.lab.settings("east", index).unwrap();
        environment.insert("SUBMARINER_UNINSTALL".to_owned(), "true".to_owned());
        let run = files.command(node, programs::path("trieste-gateway").unwrap(), &environment);
        let output = run.timeout(TIMEOUT).output().unwrap();
        assert!(output.status.success(), "{}{}", output.stdout, output.stderr);

        assert!(!has_device(fleet, index));
        assert_eq!(left_in(&files.outside("var/lib")), [""; 0]);
    }
    let east = fleet.lab.cluster("east");
    for kind in ["endpoints", "clusters", "gateways", "leases"] {
        assert_eq!(east.objects(kind).unwrap(), [json!(null); 0], "{kind}");
    }
    assert_eq!(fleet.endpoints("east", Place::Broker).unwrap(), [json!(null); 0]);
    let clusters = fleet.lab.broker.client().list(&Place::Broker.path("clusters")).unwrap();
    let ids: Vec<_> = clusters.iter().map(|cluster| &cluster["spec"]["cluster_id"]).collect();
    assert_eq!(ids, ["west"]);
    // West hears of it, believes it after a minute, since nobody else is left, and keeps its own.
    fleet.wait_endpoint("west", 0, Place::Cluster("west")).unwrap();
}

fn has_device(fleet: &Fleet, index: usize) -> bool {
    let node = fleet.lab.gateway_node("east", index);
    node.namespace.run("ip").args(["-o", "link"]).stdout().unwrap().contains(": submariner:")
}

fn left_in(directory: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(directory).unwrap();
    entries.map(|entry| entry.unwrap().path().display().to_string()).collect()
}

fn condition(gateway: &GatewayPod, name: &str) -> Condition {
    eventually(&format!("condition {name}"), TIMEOUT, || {
        let found = gateway.status()?.conditions;
        let wanted = found.iter().find(|condition| condition.name == name).cloned();
        wanted.ok_or_else(|| anyhow::anyhow!("there are {found:?}"))
    })
    .unwrap()
}

fn of(entry: &Entry, kind: &str, name: &str) -> bool {
    entry.object["kind"] == kind && entry.object["metadata"]["name"] == name
}

fn position(entries: &[Entry], what: &str, is_it: impl Fn(&Entry) -> bool) -> anyhow::Result<usize> {
    let found = entries.iter().position(is_it);
    found.ok_or_else(|| anyhow::anyhow!("there is no {what} in\n{}", titles(entries)))
}

fn titles(entries: &[Entry]) -> String {
    let titles: Vec<_> = entries.iter().map(Entry::title).collect();
    titles.join("\n")
}
