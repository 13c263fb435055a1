//! The route agent on a real API server, with upstream's rights and environment: its RouteAgent object, what it costs
//! the server, and what is left of it.
//!
//! ```text
//!  east-gw1 ─────┐                  far (10.2.1.1, a remote gateway's health-check address)
//!  east-worker3 ─┼─ underlay ─ east-api        │
//!        └───────┼─────── vx-submariner ───────┘   (a veth pair, in the first test alone)
//! ```

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::sync::watch;
use trieste_control::health::PingerConfig;
use trieste_control::store::{AnyStore, Location};
use trieste_routeagent::agent::Report;
use trieste_routeagent::publish::{Inputs, Publisher};
use trieste_routeagent::source::{self, Channels, Reader};
use trieste_routeagent::state::{DeviceAddress, Node};
use trieste_tests::cluster::NAMESPACE;
use trieste_tests::guard::root_test;
use trieste_tests::kubernetes::{KubernetesCluster, KubernetesLab, objects, rbac};
use trieste_tests::topology::NodePlan;
use trieste_tests::wait::{eventually, steady};

/// Longer than anything takes that works at all.
const PATIENCE: Duration = Duration::from_secs(90);
/// Long enough for a write that ought not to be made.
const QUIET: Duration = Duration::from_secs(4);

/// What upstream's route agents wrote on a gateway node and on a worker.
const RECORDED: &str = include_str!("../../../control/tests/golden/plain/a-routeagents.yaml");

#[test]
fn the_object_is_upstreams_for_the_same_endpoints_on_workers_and_gateway_nodes() {
    let name = "the_object_is_upstreams_for_the_same_endpoints_on_workers_and_gateway_nodes";
    let Some(_turn) = root_test(name) else { return };
    let lab = KubernetesLab::start(1).unwrap();
    let east = lab.cluster("east");
    let client = east.server.client();
    let worker = &east.plan.workers()[0];
    let far = lab.lab.namespace("far").unwrap();
    let device = format!(
        "link add vx-submariner type veth peer name near netns {}\nlink set vx-submariner up\n\
         route add 10.2.0.0/16 dev vx-submariner",
        far.name()
    );
    worker.namespace.ip(&device).unwrap();
    let answering = "addr add 10.2.1.1/16 dev near\nlink set near up\nroute add 10.1.0.0/16 dev near";
    far.ip(answering).unwrap();
    client.apply(&endpoint("west", &remote_spec())).unwrap();

    let location =
        format!("kube:{}", east.server.kubeconfig_of(NAMESPACE, rbac::ROUTE_AGENT).unwrap().display());
    std::thread::scope(|scope| {
        let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
        let agent = scope.spawn(|| keep_object(worker, &location.parse().unwrap(), stopped));
        let becomes = |what: &str, is_good: &dyn Fn(&Value) -> bool| {
            let object = east.wait_object("routeagents", &worker.name, PATIENCE, is_good);
            object.unwrap_or_else(|error| panic!("{what}: {error:#}"))
        };
        let status_is = |word: &'static str| move |object: &Value| remote(object)["status"] == word;

        let connected = becomes("connected", &status_is("connected"));
        assert_eq!(shape(&connected), shape(&recorded("a-w1")));

        // The node becomes a gateway's, and is one no longer.
        client.apply(&endpoint("own", &own_spec(&worker.name))).unwrap();
        let gateway = becomes("a gateway node", &status_is("none"));
        assert_eq!(shape(&gateway), shape(&recorded("a-gw1")));
        client.delete(&format!("{ENDPOINTS}/own")).unwrap();
        becomes("a worker again", &status_is("connected"));

        // The remote gateway falls silent, and answers again.
        far.ip("link set near down").unwrap();
        let silent = becomes("silent", &status_is("error"));
        let words = "Failed to successfully ping the remote endpoint IP \"10.2.1.1\"";
        assert_eq!(remote(&silent)["statusMessage"], words, "{silent}");
        assert!(remote(&silent).get("latencyRTT").is_none());
        far.ip("link set near up\nroute replace 10.1.0.0/16 dev near").unwrap();
        becomes("connected again", &status_is("connected"));

        // A newer Endpoint of the same cluster takes the place of the old one, also before that is deleted.
        let mut newer = remote_spec();
        newer["hostname"] = json!("b-gw2");
        newer["cable_name"] = json!("submariner-cable-cluster-b-172-31-2-12");
        std::thread::sleep(Duration::from_millis(1100)); // creation times are whole seconds
        client.apply(&endpoint("west-2", &newer)).unwrap();
        becomes("the newer one", &|object| remote(object)["spec"]["hostname"] == "b-gw2");
        client.delete(&format!("{ENDPOINTS}/west")).unwrap();
        client.delete(&format!("{ENDPOINTS}/west-2")).unwrap();
        becomes("nobody", &|object| object["status"]["remoteEndpoints"] == json!([]));

        stop.send(()).unwrap();
        agent.join().unwrap();
    });
    assert_eq!(east.objects("routeagents").unwrap(), Vec::<Value>::new());
}

#[test]
fn an_agent_needs_upstreams_rights_alone_and_heartbeats_of_nodes_cost_nothing() {
    let name = "an_agent_needs_upstreams_rights_alone_and_heartbeats_of_nodes_cost_nothing";
    let Some(_turn) = root_test(name) else { return };
    let lab = KubernetesLab::start(1).unwrap();
    let east = lab.cluster("east");
    let client = east.server.client();
    let node = lab.gateway_node("east", 0);
    let pod = lab.route_agent("east", node).unwrap();
    let ready = |status: &str, beat: u32| {
        let condition = json!({"type": "Ready", "status": status, "reason": format!("beat{beat}")});
        let path = format!("{}/status", objects::node_path(&node.name));
        client.patch(&path, &json!({"status": {"conditions": [condition]}})).unwrap();
    };

    // The init container waits for the node.
    ready("False", 0);
    let waiting = pod.start(&[("SUBMARINER_WAITFORNODE", "true")]).unwrap();
    waiting.wait_log("waiting for the Node to be Ready", PATIENCE).unwrap();
    ready("True", 0);
    waiting.wait_log("is Ready", PATIENCE).unwrap();
    eventually("the init container's end", PATIENCE, || {
        anyhow::ensure!(!waiting.id().is_running());
        Ok(())
    })
    .unwrap();
    assert!(pod.check().unwrap_err().to_string().contains("--pass-file"));

    client.apply(&endpoint("west", &remote_spec())).unwrap();
    client.apply(&endpoint("own", &own_spec(&node.name))).unwrap();
    // The recorded cluster has a public network, as upstream's test clusters do.
    let agent = pod.start(&[("TRIESTE_ALLOW_REMOTE_CIDRS", "10.0.0.0/8,100.2.0.0/16")]).unwrap();
    let is_gateway = |object: &Value| remote(object)["status"] == "none";
    let object = east.wait_object("routeagents", &node.name, PATIENCE, is_gateway).unwrap();
    assert_eq!(remote(&object)["spec"], remote_spec());
    let owner = &object["metadata"]["ownerReferences"][0];
    let own = client.get(&objects::node_path(&node.name)).unwrap();
    assert_eq!((&owner["kind"], &owner["uid"]), (&json!("Node"), &own["metadata"]["uid"]), "{object}");
    eventually("the check to pass", PATIENCE, || pod.check()).unwrap();
    // There is no gateway process, and that is what keeps the node from working.
    let failure = object["status"]["statusFailure"].as_str().unwrap();
    assert!(failure.contains("device submariner does not exist"), "{object}");
    let conditions: Value =
        serde_json::from_str(object["metadata"]["annotations"]["trieste.io/conditions"].as_str().unwrap())
            .unwrap();
    assert_eq!((&conditions[0]["name"], &conditions[0]["severity"]), (&json!("NoDevice"), &json!("error")));

    // Heartbeats: neither passes (but for the periodic one) nor requests.
    let count = || agent.log_text().matches("took_ms").count();
    let pause = Duration::from_millis(1500);
    steady("the passes after the start to be over", PATIENCE, pause, || Ok(count())).unwrap();
    // Upstream's account may read neither services nor their back ends; that is in the object some time later.
    let says_so = |object: &Value| {
        object["metadata"]["annotations"]["trieste.io/conditions"].to_string().contains("ServicesAway")
    };
    east.wait_object("routeagents", &node.name, PATIENCE, says_so).unwrap();
    // A server counts a request when it has answered it, and what was written can be read before.
    let pause = Duration::from_secs(1);
    let before = steady("the last write to be counted", PATIENCE, pause, || Ok(writes(east))).unwrap();
    let passes = count();
    // Two of them because of that.
    assert!(passes <= 8, "{passes} passes for one start");
    for beat in 1..=20 {
        ready("True", beat);
    }
    std::thread::sleep(QUIET);
    let more = count() - passes;
    assert!(more <= 1, "{more} passes within {QUIET:?}");
    assert_eq!(writes(east), before);
    // A new node is news.
    let other = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "other"}, "spec": {}});
    client.apply(&other).unwrap();
    eventually("a pass", PATIENCE, || {
        anyhow::ensure!(count() > passes + more);
        Ok(())
    })
    .unwrap();

    // Killed: the object stays, and is the next one's. Stopped: it is gone.
    agent.kill().unwrap();
    let uid = |object: &Value| object["metadata"]["uid"].clone();
    let path = format!("/apis/submariner.io/v1/namespaces/{NAMESPACE}/routeagents/{}", node.name);
    assert_eq!(uid(&client.get(&path).unwrap()), uid(&object));
    client.delete(&format!("{ENDPOINTS}/west")).unwrap();
    let agent = pod.start(&[]).unwrap();
    let nobody = |object: &Value| object["status"]["remoteEndpoints"] == json!([]);
    assert_eq!(uid(&east.wait_object("routeagents", &node.name, PATIENCE, nobody).unwrap()), uid(&object));
    let log = agent.log().to_owned();
    assert!(agent.stop().unwrap());
    client.wait_gone(&path, PATIENCE).unwrap();
    assert!(pod.check().is_err());

    // Killed and uninstalled: nothing is left.
    let agent = pod.start(&[]).unwrap();
    east.wait_object("routeagents", &node.name, PATIENCE, nobody).unwrap();
    agent.kill().unwrap();
    let uninstall = pod.start(&[("SUBMARINER_UNINSTALL", "true")]).unwrap();
    client.wait_gone(&path, PATIENCE).unwrap();
    eventually("the end", PATIENCE, || {
        anyhow::ensure!(!uninstall.id().is_running());
        Ok(())
    })
    .unwrap();

    // Of everything that was asked of the server only Clusters were refused: upstream's rights have none, and the
    // agent does without.
    let log = std::fs::read_to_string(log).unwrap();
    let refused: Vec<&str> = log
        .lines()
        .filter(|line| {
            line.contains("does not allow") || line.contains("may not") || line.contains("not shown")
        })
        .filter(|line| !line.contains("clusters") && !line.contains("Cluster"))
        .collect();
    assert_eq!(refused, Vec::<&str>::new());
}

/// As Cilium 1.15 defines it, but for the schema.
fn cilium_definition() -> Value {
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "ciliumnodes.cilium.io"},
        "spec": {
            "group": "cilium.io", "scope": "Cluster",
            "names": {"kind": "CiliumNode", "listKind": "CiliumNodeList", "plural": "ciliumnodes", "singular": "ciliumnode",
                      "shortNames": ["cn", "ciliumn"]},
            "versions": [{"name": "v2", "served": true, "storage": true, "subresources": {"status": {}},
                "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}}],
        },
    })
}

#[test]
fn plugin_cilium_its_nodes_are_read_once_that_is_allowed_and_followed() {
    let name = "plugin_cilium_its_nodes_are_read_once_that_is_allowed_and_followed";
    let Some(_turn) = root_test(name) else { return };
    let lab = KubernetesLab::start(1).unwrap();
    let east = lab.cluster("east");
    let client = east.server.client();
    let node = lab.gateway_node("east", 0);
    let worker = &east.plan.workers()[0];
    let ciliums = "/apis/cilium.io/v2/ciliumnodes";
    client.post("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", &cilium_definition()).unwrap();
    let networks = |third: u8| json!({"ipam": {"podCIDRs": [format!("10.1.{third}.0/24")], "pools": {}}});
    let cilium = |name: &str, third: u8| {
        let addresses = json!([{"ip": "192.0.2.7", "type": "InternalIP"}, {"ip": format!("10.1.{third}.9"), "type": "CiliumInternalIP"}]);
        let mut spec = networks(third);
        spec["addresses"] = addresses;
        spec["health"] = json!({"ipv4": format!("10.1.{third}.8")});
        json!({"apiVersion": "cilium.io/v2", "kind": "CiliumNode", "metadata": {"name": name}, "spec": spec})
    };
    eventually("the kind to be served", PATIENCE, || client.post(ciliums, &cilium(&node.name, 71)).map(drop))
        .unwrap();
    client.post(ciliums, &cilium(&worker.name, 77)).unwrap();
    client.apply(&endpoint("west", &remote_spec())).unwrap();
    client.apply(&endpoint("own", &own_spec(&node.name))).unwrap();

    let pod = lab.route_agent("east", node).unwrap();
    let variables =
        [("TRIESTE_ALLOW_REMOTE_CIDRS", "10.0.0.0/8,100.2.0.0/16"), ("SUBMARINER_NETWORKPLUGIN", "cilium")];
    let agent = pod.start(&variables).unwrap();
    let says = |object: &Value, word: &str| {
        object["metadata"]["annotations"]["trieste.io/conditions"].to_string().contains(word)
    };
    east.wait_object("routeagents", &node.name, PATIENCE, |object: &Value| says(object, "CiliumNodesAway"))
        .unwrap();
    let delivery = || {
        let table = node.namespace.run("ip").args(["route", "show", "table", "149"]);
        table.output().map(|output| output.stdout)
    };
    assert!(!delivery().unwrap().contains("10.1."), "Cilium delivers");

    // As join gives it.
    rbac::may_read_ciliums(client).unwrap();
    let leads = |third: u8| {
        eventually("the way to the worker's pods", PATIENCE, || {
            let table = delivery()?;
            let is_alone = table.lines().filter(|line| line.starts_with("10.1.")).count() == 1;
            anyhow::ensure!(is_alone && table.contains(&format!("10.1.{third}.0/24 via")), "{table}");
            Ok(())
        })
        .unwrap();
    };
    leads(77);
    let is_quiet = |object: &Value| !says(object, "CiliumNodesAway");
    east.wait_object("routeagents", &node.name, PATIENCE, is_quiet).unwrap();
    // A pool that is full gets another network, and one that is empty gives its own back.
    client.patch(&format!("{ciliums}/{}", worker.name), &json!({"spec": networks(78)})).unwrap();
    leads(78);
    assert!(agent.stop().unwrap());
}

#[test]
fn a_tainted_node_is_closed_before_the_taint_goes_and_other_taints_stay() {
    let name = "a_tainted_node_is_closed_before_the_taint_goes_and_other_taints_stay";
    let Some(_turn) = root_test(name) else { return };
    let lab = KubernetesLab::start(1).unwrap();
    let east = lab.cluster("east");
    let client = east.server.client();
    let node = lab.gateway_node("east", 0);
    let path = objects::node_path(&node.name);
    let other = json!({"key": "example.com/mine", "value": "x", "effect": "NoSchedule"});
    let ours = json!({"key": "trieste.io/not-ready", "effect": "NoSchedule"});
    let taint = |taints: &[&Value]| client.patch(&path, &json!({"spec": {"taints": taints}})).unwrap();
    let taints = || client.get(&path).unwrap()["spec"]["taints"].clone();
    let guard_is_there = || {
        let tables = node.namespace.run("nft").args(["list", "tables"]).stdout().unwrap();
        tables.contains("inet trieste")
    };
    client.apply(&endpoint("west", &remote_spec())).unwrap();
    client.apply(&endpoint("own", &own_spec(&node.name))).unwrap();
    let before = taint(&[&other, &ours]);
    let pod = lab.route_agent("east", node).unwrap();

    // Nobody asked for it: the taint stays, and nothing is said of it.
    let agent = pod.start(&[]).unwrap();
    eventually("the check to pass", PATIENCE, || pod.check()).unwrap();
    assert_eq!(taints(), json!([other, ours]));
    assert!(!agent.log_text().contains("taint"), "{}", agent.log_text());
    assert!(agent.stop().unwrap());

    // Without the right it is said once, naming verb, kind and account.
    let agent = pod.start(&[("TRIESTE_NODE_TAINT", "true")]).unwrap();
    agent.wait_log("taint not removed", PATIENCE).unwrap();
    std::thread::sleep(QUIET);
    let log = agent.log_text();
    let told: Vec<&str> = log.lines().filter(|line| line.contains("taint not removed")).collect();
    let account = format!("system:serviceaccount:{NAMESPACE}:{}", rbac::ROUTE_AGENT);
    assert!(
        told.len() == 1 && [&*account, "cannot update resource", "nodes"].iter().all(|w| told[0].contains(w)),
        "{told:?}"
    );
    assert_eq!(taints(), json!([other, ours]));

    // With it the taint goes, and everything else of the Node stays.
    rbac::may_update_nodes(client).unwrap();
    let without = eventually("the taint's end", PATIENCE, || {
        let there = client.get(&path)?;
        anyhow::ensure!(there["spec"]["taints"] == json!([other]), "{}", there["spec"]);
        Ok(there)
    })
    .unwrap();
    assert!(guard_is_there());
    for kept in ["labels", "annotations", "uid", "creationTimestamp", "finalizers"] {
        assert_eq!(without["metadata"][kept], before["metadata"][kept], "{kept}");
    }
    assert_eq!(without["spec"]["podCIDRs"], before["spec"]["podCIDRs"]);
    assert_eq!(without["status"], client.get(&path).unwrap()["status"]);

    // It comes again, and goes; after a start as well, and not before the node is closed.
    taint(&[&ours, &other]);
    eventually("the taint's end", PATIENCE, || {
        anyhow::ensure!(taints() == json!([other]));
        Ok(())
    })
    .unwrap();
    agent.kill().unwrap();
    let fresh =
        ["-c", "nft delete table inet trieste; for f in -4 -6; do ip $f route flush type unreachable; done"];
    node.namespace.run("sh").args(fresh).stdout().unwrap();
    taint(&[&ours]);
    let _agent = pod.start(&[("TRIESTE_NODE_TAINT", "true")]).unwrap();
    eventually("the taint's end", PATIENCE, || {
        let there = taints();
        anyhow::ensure!(there != json!([ours]));
        assert!(guard_is_there(), "the taint went before the node was closed");
        Ok(())
    })
    .unwrap();
}

const ENDPOINTS: &str = "/apis/submariner.io/v1/namespaces/submariner-operator/endpoints";

/// Follows the store and keeps the object on a node whose kernel others look after, until `stop`.
fn keep_object(node: &NodePlan, location: &Location, stop: tokio::sync::oneshot::Receiver<()>) {
    let run = || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let networks = vec!["10.1.0.0/16".parse()?];
        let own = Node {
            cluster: "east".to_owned(),
            hostname: node.name.clone(),
            pod_networks: networks,
            tun: "submariner".to_owned(),
            ..Node::default()
        };
        let address = DeviceAddress { device: "cni0".to_owned(), network: node.bridge[0] };
        let report = Report { passes: 1, is_good: true, addresses: [address].into(), ..Report::default() };
        let reader = Reader {
            namespace: NAMESPACE.to_owned(),
            cluster: own.cluster.clone(),
            hostname: own.hostname.clone(),
            node_name: Some(node.name.clone()),
            ..Reader::default()
        };
        runtime.block_on(async {
            let store = AnyStore::attach(location);
            let (views, remotes, store_error) =
                (watch::channel(None), watch::channel(Vec::new()), watch::channel(None));
            let (_reports, reports) = watch::channel(report);
            let inputs = Inputs { views: views.1, remotes: remotes.1, reports: reports.clone() };
            let pinger = PingerConfig::new(Duration::from_millis(200), 3);
            let publisher = Publisher::new(store.clone(), NAMESPACE, &node.name, own, Some(pinger));
            let channels =
                Channels { views: views.0, remotes: remotes.0, store_error: store_error.0, reports };
            tokio::select! {
                () = source::follow(&store, &reader, channels) => {}
                () = publisher.run(inputs, async { drop(stop.await) }) => {}
            }
        });
        Ok(())
    };
    node.namespace.enter(run).unwrap();
}

/// How often RouteAgents and Nodes were asked for or written, by verb.
fn writes(cluster: &KubernetesCluster) -> BTreeMap<String, u64> {
    let requests = cluster.server.requests().unwrap();
    let verbs = ["GET", "POST", "PUT", "DELETE", "LIST"];
    let is_ours = |verb: &str, resource: &str| {
        verbs.contains(&verb) && (resource == "routeagents" || (resource == "nodes" && verb != "GET"))
    };
    let ours = requests.into_iter().filter(|((verb, resource), _)| is_ours(verb, resource));
    ours.map(|((verb, resource), count)| (format!("{verb} {resource}"), count)).collect()
}

pub(crate) fn endpoint(name: &str, spec: &Value) -> Value {
    json!({"apiVersion": "submariner.io/v1", "kind": "Endpoint",
        "metadata": {"name": name, "namespace": NAMESPACE}, "spec": spec})
}

/// The remote Endpoint of the recorded cluster.
pub(crate) fn remote_spec() -> Value {
    recorded("a-w1")["status"]["remoteEndpoints"][0]["spec"].clone()
}

pub(crate) fn own_spec(hostname: &str) -> Value {
    let mut spec = remote_spec();
    spec["cluster_id"] = json!("east");
    spec["hostname"] = json!(hostname);
    spec["backend"] = json!("wireguard");
    spec["backend_config"]["interface-name"] = json!("submariner");
    spec["cable_name"] = json!("submariner-cable-east-172-31-1-1");
    spec["private_ip"] = json!("172.31.1.1");
    spec["public_ip"] = json!("172.31.1.1");
    spec["healthCheckIP"] = json!("10.1.1.1");
    spec["subnets"] = json!(["10.101.0.0/16", "10.1.0.0/16"]);
    spec
}

fn recorded(name: &str) -> Value {
    let list: Value = serde_saphyr::from_str(RECORDED).unwrap();
    let items = list["items"].as_array().unwrap();
    items.iter().find(|item| item["metadata"]["name"] == name).unwrap().clone()
}

fn remote(object: &Value) -> &Value {
    &object["status"]["remoteEndpoints"][0]
}

/// The status, without what differs by nature: version and times.
fn shape(object: &Value) -> Value {
    let mut status = object["status"].clone();
    status["version"] = json!("v…");
    for remote in status["remoteEndpoints"].as_array_mut().unwrap() {
        if let Some(latency) = remote.get_mut("latencyRTT") {
            latency.as_object_mut().unwrap().values_mut().for_each(|time| *time = json!("1µs"));
        }
    }
    status
}
