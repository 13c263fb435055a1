//! Agents of ours take the place of Lighthouse's, and give it back, over the objects that Lighthouse's leave on API servers: none
//! is made anew or removed, no slice is written, and a DNS server answers the same all the time. In the place of Lighthouse's
//! agents, of which there is no program here, stands what they write: that which is theirs in conditions, and nothing else.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;
use serde_json::{Value, json};
use tokio::runtime::Runtime;
use trieste_control::api::annotation;
use trieste_control::store::KubeStore;
use trieste_discovery_agent::AgentHandle;
use trieste_tests::guard::root_test;
use trieste_tests::kubernetes::{ApiServer, Client, Faults, Options};
use trieste_tests::lab::Lab;
use trieste_tests::wait::eventually;

use super::asker::{Asker, ask, client, serve};
use super::bed::{PATIENCE, install_as_upstream, spawn_agent, store};
use super::differences::differences;

/// What Lighthouse's agents leave, by store. The broker is in east.
const LEFT: &str = include_str!("../../../../discovery/agent/tests/data/lighthouse.json");
/// How long nothing more is written before agents have done what they do.
const QUIET: Duration = Duration::from_secs(3);
/// Ours write it on each import; Lighthouse's agents not on the cluster's own where the export has none, nor on a headless one.
const USES_IP: &str = "/metadata/annotations/lighthouse.submariner.io/use-clusterset-ip";
/// What ours write otherwise: conditions have reasons.
const REASONS: [&str; 2] = ["/status/conditions/0/reason", "/status/conditions/1/reason"];

#[test]
fn the_place_of_lighthouses_agents_is_taken_and_given_back_without_a_wrong_answer() {
    let name = "the_place_of_lighthouses_agents_is_taken_and_given_back_without_a_wrong_answer";
    let Some(_turn) = root_test(name) else { return };
    let bed = Bed::new();
    let dns = serve(&bed.runtime, &bed.stores[1]);
    for service in ["web", "db"] {
        eventually("an answer", PATIENCE, || {
            ask(&client(dns.address()), service).map(drop).map_err(anyhow::Error::msg)
        })
        .unwrap();
    }
    // West exports `web` itself, which comes first.
    let askers = [("web", &["10.111.0.7"][..]), ("db", &["10.1.0.1", "10.1.0.2"])]
        .map(|(service, right)| Asker::start(dns.address(), service, right));
    let left = bed.objects();
    for round in 0..2 {
        let agents = bed.start_agents();
        bed.wait_settled(&agents);
        bed.have_written();
        bed.compare(&left, &format!("ours, round {round}"));
        drop(agents);
        std::thread::sleep(QUIET);
        bed.compare(&left, &format!("Lighthouse's, round {round}"));
        bed.write_conditions();
    }
    for asker in askers {
        let (asked, failed) = asker.stop();
        assert_eq!(failed, [""; 0], "of {asked} queries");
        assert!(asked > 500, "{asked} queries");
        eprintln!("{asked} queries, none wrong");
    }
}

/// Two API servers with the objects, and relays to them.
struct Bed {
    stores: [KubeStore; 2],
    broker: KubeStore,
    _relays: [Faults; 3],
    runtime: Runtime,
    servers: [ApiServer; 2],
    _lab: Lab,
}

impl Bed {
    fn new() -> Self {
        let lab = Lab::new().unwrap();
        let servers = [("east", "10.110.0.0/16"), ("west", "10.111.0.0/16")].map(|(name, services)| {
            let options = Options { services: services.parse().unwrap(), ..Options::default() };
            ApiServer::alone_with(&lab, name, options).unwrap()
        });
        servers.iter().for_each(|server| install_as_upstream(server.client()));
        let relays = [0, 1, 0].map(|of| Faults::on_loopback(&servers[of]).unwrap());
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        let (stores, broker) = {
            let _inside = runtime.enter();
            let stores = [0, 1].map(|of| store(&servers[of], &relays[of]));
            (stores, store(&servers[0], &relays[2]))
        };
        let bed = Self { stores, broker, _relays: relays, runtime, servers, _lab: lab };
        bed.put_services();
        bed.put_left();
        bed
    }

    /// Makes the services, with the slices that Kubernetes has of them.
    fn put_services(&self) {
        for (of, name, address, port) in [
            (0, "web", "10.110.0.7", json!({"name": "http", "protocol": "TCP", "port": 80})),
            (1, "web", "10.111.0.7", json!({"name": "http", "protocol": "TCP", "port": 80})),
            (0, "db", "None", json!({"name": "sql", "protocol": "TCP", "port": 5432})),
        ] {
            let client = self.servers[of].client();
            let labels = json!({"app": name});
            let service = json!({"apiVersion": "v1", "kind": "Service",
                "metadata": {"name": name, "namespace": "shop", "labels": labels},
                "spec": {"clusterIP": address, "ports": [port]}});
            client.apply(&service).unwrap();
            let endpoints = match address {
                "None" => pods(),
                _ => json!([{"addresses": ["10.1.0.9"], "conditions": {"ready": true}}]),
            };
            let slice = json!({"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
                "metadata": {"name": format!("{name}-abcde"), "namespace": "shop",
                    "labels": {"kubernetes.io/service-name": name}},
                "endpoints": endpoints, "ports": [port]});
            client.apply(&slice).unwrap();
        }
    }

    /// Puts what Lighthouse's agents leave: exports first, whose times imports have.
    fn put_left(&self) {
        let mut left = left();
        let since = |server: usize, service: &str| -> String {
            let export = self.servers[server]
                .client()
                .get(&path(&json!({"kind": "ServiceExport",
                "metadata": {"name": service, "namespace": "shop"}})))
                .unwrap();
            let time: Timestamp = export["metadata"]["creationTimestamp"].as_str().unwrap().parse().unwrap();
            time.as_nanosecond().to_string()
        };
        for (server, of) in [(0, "east"), (1, "west")] {
            let exports = left[of].iter().filter(|object| object["kind"] == "ServiceExport");
            exports.for_each(|export| put(self.servers[server].client(), export));
        }
        for (of, objects) in &mut left {
            let client = self.servers[usize::from(of == "west")].client();
            for object in objects.iter_mut().filter(|object| object["kind"] != "ServiceExport") {
                let service = if describe(object).contains("web") { "web" } else { "db" };
                if let Some(annotations) = object["metadata"]["annotations"].as_object_mut() {
                    for (server, cluster) in [(0, "east"), (1, "west")] {
                        let key = format!("{}{cluster}", annotation::TIMESTAMP_PREFIX);
                        if let Some(time) = annotations.get_mut(&key) {
                            *time = Value::from(since(server, service));
                        }
                    }
                }
                put(client, object);
            }
        }
    }

    /// Writes conditions as Lighthouse's agents do.
    fn write_conditions(&self) {
        for (server, of) in [(0, "east"), (1, "west")] {
            for export in left()[of].iter().filter(|object| object["kind"] == "ServiceExport") {
                let status = json!({"status": export["status"]});
                self.servers[server].client().patch(&format!("{}/status", path(export)), &status).unwrap();
            }
        }
    }

    fn start_agents(&self) -> [AgentHandle; 2] {
        let _inside = self.runtime.enter();
        [
            spawn_agent("east", &self.stores[0], &self.stores[0]),
            spawn_agent("west", &self.stores[1], &self.broker),
        ]
    }

    /// Waits until agents have written what they write.
    fn wait_settled(&self, agents: &[AgentHandle; 2]) {
        let mut before = None;
        eventually("agents to be settled", PATIENCE, || {
            let is_settled = agents.iter().all(|agent| agent.status.borrow().is_settled);
            let now = is_settled.then(|| self.objects());
            let is_quiet = now.is_some() && now == before;
            before = now;
            std::thread::sleep(QUIET);
            anyhow::ensure!(is_quiet, "they write");
            Ok(())
        })
        .unwrap();
    }

    /// Checks that agents of ours were at work: conditions have their reasons.
    fn have_written(&self) {
        let exports = self.objects().into_values().filter(|object| object["kind"] == "ServiceExport");
        let reasons: Vec<Value> =
            exports.map(|export| export["status"]["conditions"][1]["reason"].clone()).collect();
        assert_eq!(reasons, [json!("Exported"), json!("Exported"), json!("Exported")]);
    }

    /// Returns everything of service discovery on both servers.
    fn objects(&self) -> BTreeMap<String, Value> {
        let mut all = BTreeMap::new();
        for server in &self.servers {
            for kind in [
                "multicluster.x-k8s.io/v1alpha1/serviceexports",
                "multicluster.x-k8s.io/v1alpha1/serviceimports",
                "discovery.k8s.io/v1/endpointslices",
            ] {
                for mut object in server.client().list(&format!("/apis/{kind}")).unwrap() {
                    // Items of lists do not say it.
                    object["kind"] = match kind.rsplit('/').next() {
                        Some("serviceexports") => json!("ServiceExport"),
                        Some("serviceimports") => json!("ServiceImport"),
                        _ => json!("EndpointSlice"),
                    };
                    all.insert(format!("{}: {}", server.name(), describe(&object)), object);
                }
            }
        }
        all
    }

    /// Checks that all objects are the ones that were left, with what was in them but for what is named.
    fn compare(&self, left: &BTreeMap<String, Value>, when: &str) {
        let now = self.objects();
        assert_eq!(left.keys().collect::<Vec<_>>(), now.keys().collect::<Vec<_>>(), "{when}");
        for (name, before) in left {
            let after = &now[name];
            assert_eq!(before["metadata"]["uid"], after["metadata"]["uid"], "{when}: {name} was made anew");
            let is_named = |path: &String| match before["kind"].as_str() {
                Some("ServiceExport") => REASONS.contains(&path.as_str()),
                Some("ServiceImport") => path == USES_IP,
                _ => false,
            };
            let differ: Vec<String> =
                differences(before, after).into_iter().filter(|path| !is_named(path)).collect();
            assert_eq!(differ, [""; 0], "{when}: {name}: {before}\n{after}");
            if before["kind"] == "EndpointSlice" {
                let versions = [before, after].map(|object| &object["metadata"]["resourceVersion"]);
                assert_eq!(versions[0], versions[1], "{when}: {name} was written");
            }
        }
    }
}

/// Returns what Lighthouse's agents leave, with the addresses that these servers' services have.
fn left() -> BTreeMap<String, Vec<Value>> {
    let text = LEFT.replace("10.96.0.7", "10.110.0.7").replace("10.97.0.7", "10.111.0.7");
    serde_json::from_str(&text).unwrap()
}

/// Returns the endpoints of the headless service.
fn pods() -> Value {
    let is_its = |object: &&Value| object["metadata"]["name"] == "db-m2v8s";
    left()["east"].iter().find(is_its).unwrap()["endpoints"].clone()
}

/// Makes an object, and writes its status where that is apart.
fn put(client: &Client, object: &Value) {
    let mut made = object.clone();
    made["metadata"].as_object_mut().unwrap().remove("creationTimestamp");
    client.apply(&made).unwrap();
    if let Some(status) = object.get("status") {
        client.patch(&format!("{}/status", path(object)), &json!({"status": status})).unwrap();
    }
}

fn describe(object: &Value) -> String {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let metadata = &object["metadata"];
    format!("{} {}/{}", text(&object["kind"]), text(&metadata["namespace"]), text(&metadata["name"]))
}

fn path(object: &Value) -> String {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let kind = text(&object["kind"]).to_lowercase();
    let group =
        if kind == "endpointslice" { "discovery.k8s.io/v1" } else { "multicluster.x-k8s.io/v1alpha1" };
    let metadata = &object["metadata"];
    format!("/apis/{group}/namespaces/{}/{kind}s/{}", text(&metadata["namespace"]), text(&metadata["name"]))
}
