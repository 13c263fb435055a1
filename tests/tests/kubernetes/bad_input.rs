//! A broken peer writes whatever it likes to the broker, with the rights that every cluster has there. What makes no
//! sense is refused, with object and field; everybody else is unaffected. That it costs no packet is for `outages`
//! (`several::broker`).
//!
//! The broker's definition of Endpoints is one that checks nothing, as an old or a careless one would be.

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use trieste_control::admin::GatewayStatus;
use trieste_control::api::HaStatus;
use trieste_tests::cluster::BROKER_NAMESPACE;
use trieste_tests::guard::root_test;
use trieste_tests::kubernetes::{Client, Fleet, Place, rbac};
use trieste_tests::process::ProcessId;
use trieste_tests::wait::eventually;

const TIMEOUT: Duration = Duration::from_secs(90);

const ENDPOINTS: &str = "/apis/submariner.io/v1/namespaces/submariner-k8s-broker/endpoints";

const LABEL: &str = "submariner-io/clusterID";

/// Most junk of one cluster that is imported.
const MOST_OF_ONE: usize = 64;

/// Most refused objects that are listed: the syncer's own bound, and what the engine makes of the imported ones.
const MOST_LISTED: usize = 256 + MOST_OF_ONE;

/// Ours: what a thousand refused objects may cost a gateway. Each is remembered by its name and a reason.
const MEMORY: u64 = 32 << 20;

#[test]
fn what_a_broken_peer_writes_is_refused_by_field_and_nobody_else_is_affected() {
    let Some(_turn) = root_test("what_a_broken_peer_writes_is_refused_by_field_and_nobody_else_is_affected")
    else {
        return;
    };
    let bed = Bed::new();

    bed.nonsense_is_refused_by_object_and_field();
    bed.claims_of_others_addresses_and_identities_are_refused();
    bed.objects_in_our_name_do_not_last();
    bed.a_flood_costs_nobody_anything();

    bed.assert_unaffected();
}

/// A cluster that knows another one, and the broken peer.
struct Bed {
    peer: Client,
    fleet: Fleet,
    pid: u32,
    /// What is known of the other.
    west: Value,
}

impl Bed {
    fn new() -> Self {
        let mut fleet = Fleet::new(1).unwrap();
        let admin = fleet.lab.broker.client();
        let cluster = json!({"apiVersion": "submariner.io/v1", "kind": "Cluster",
            "metadata": {"name": "west", "namespace": BROKER_NAMESPACE, "labels": {LABEL: "west"}},
            "spec": {"cluster_id": "west", "color_codes": ["blue"], "cluster_cidr": ["10.2.0.0/16"],
                "service_cidr": ["10.102.0.0/16"], "global_cidr": []}});
        admin.post(&Place::Broker.path("clusters"), &cluster).unwrap();
        let good = json!({"subnets": ["10.102.0.0/16", "10.2.0.0/16"], "private_ip": "172.31.2.1",
            "backend_config": {"udp-port": "4500", "natt-discovery-port": "0",
                "publicKey": "QkJCQkJCQkJCQkJCQkJCQkJCQkJCQkJCQkJCQkJCQkI="}});
        admin.post(ENDPOINTS, &object("west-gw", "west", good)).unwrap();
        fleet.start("east", 0).unwrap();
        fleet.wait_active("east", 0).unwrap();
        let pid = seen(&fleet).pid;
        let west = fleet.lab.cluster("east").wait_object("endpoints", "west-gw", TIMEOUT, |_| true).unwrap();
        let broker = &fleet.lab.broker;
        rbac::join_broker(broker.client(), "north").unwrap();
        let kubeconfig = broker.kubeconfig_of(BROKER_NAMESPACE, &rbac::cluster_account("north")).unwrap();
        let peer = Client::new(Some(broker.namespace()), &kubeconfig).unwrap();
        let bed = Self { peer, fleet, pid, west };
        bed.check_nothing_on_the_broker();
        bed
    }

    /// The definition that takes everything; it counts once the server has taken it in.
    fn check_nothing_on_the_broker(&self) {
        let path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/endpoints.submariner.io";
        let admin = self.fleet.lab.broker.client();
        let mut definition = admin.get(path).unwrap();
        definition["spec"]["versions"][0]["schema"] =
            json!({"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}});
        admin.put(path, &definition).unwrap();
        eventually("the definition to take everything", TIMEOUT, || {
            self.peer.post(ENDPOINTS, &object("probe", "north", json!({"subnets": 7})))?;
            self.peer.delete(&format!("{ENDPOINTS}/probe"))
        })
        .unwrap();
    }

    fn nonsense_is_refused_by_object_and_field(&self) {
        let many: Value = (0..2000)
            .map(|index| (format!("key-{index}"), json!("value")))
            .collect::<serde_json::Map<_, _>>()
            .into();
        let nets: Vec<String> =
            (0..300).map(|index| format!("10.77.{}.{}/32", index / 250, index % 250)).collect();
        let cases: Vec<(&str, Value, &str)> = vec![
            ("cidr", json!({"subnets": ["10.300.0.0/16"]}), "spec.subnets"),
            ("cidr-empty", json!({"subnets": [""]}), "spec.subnets"),
            ("cidr-many", json!({"subnets": nets}), "spec.subnets"),
            ("address", json!({"private_ip": "172.31.9.999"}), "spec.private_ip"),
            ("address-none", json!({"private_ip": ""}), "spec.private_ip"),
            ("public", json!({"public_ip": "somewhere"}), "spec.public_ip"),
            ("health", json!({"healthCheckIP": "10.9.1"}), "spec.healthCheckIP"),
            ("port", json!({"backend_config": {"udp-port": "70000"}}), "spec.backend_config.udp-port"),
            ("cable-none", json!({"cable_name": ""}), "spec.cable_name"),
            ("cable-long", json!({"cable_name": "c".repeat(5000)}), "spec.cable_name"),
            ("host-none", json!({"hostname": ""}), "spec.hostname"),
            ("map", json!({"backend_config": many}), "spec"),
            (
                "value",
                json!({"backend_config": {"publicKey": "k".repeat(20_000)}}),
                "spec.backend_config.publicKey",
            ),
            ("size", json!({"backend_config": {"publicKey": "k".repeat(500_000)}}), "spec"),
            ("type-list", json!({"subnets": "10.9.0.0/16"}), "spec.subnets"),
            ("type-text", json!({"private_ip": 7}), "spec.private_ip"),
            ("type-map", json!({"backend_config": ["a", "b"]}), "spec.backend_config"),
            ("type-deep", json!({"backend_config": {"udp-port": {"a": {"b": 1}}}}), "spec.backend_config"),
            ("type-id", json!({"cluster_id": ["north"]}), "spec.cluster_id"),
            ("id-none", json!({"cluster_id": ""}), "spec.cluster_id"),
            ("spec-none", Value::Null, "spec"),
        ];
        for (name, change, _) in &cases {
            self.peer.post(ENDPOINTS, &object(name, "north", change.clone())).unwrap();
        }
        let mut labelled = object("labels", "north", json!({}));
        for index in 0..500 {
            labelled["metadata"]["annotations"][format!("example.com/{index}")] = json!("x");
        }
        self.peer.post(ENDPOINTS, &labelled).unwrap();

        let wanted =
            cases.iter().map(|(name, _, field)| (*name, *field)).chain([("labels", "metadata.annotations")]);
        for (name, field) in wanted {
            self.wait_refused(name, "north", field);
        }
        // A good one of the same cluster is taken, whatever the others are.
        self.peer.post(ENDPOINTS, &object("good", "north", json!({}))).unwrap();
        self.wait_names("north", |names| names == ["good"]);
        for (name, ..) in &cases {
            self.peer.delete(&format!("{ENDPOINTS}/{name}")).unwrap();
        }
        self.peer.delete(&format!("{ENDPOINTS}/labels")).unwrap();
        self.peer.delete(&format!("{ENDPOINTS}/good")).unwrap();
        self.wait_nothing_refused();
    }

    fn claims_of_others_addresses_and_identities_are_refused(&self) {
        let cases = [
            ("ours", json!({"subnets": ["10.1.2.0/24"]}), "10.1.2.0/24"),
            ("theirs", json!({"subnets": ["10.9.0.0/16", "10.2.0.0/15"]}), "10.2.0.0/15"),
            ("everything", json!({"subnets": ["0.0.0.0/0"]}), "0.0.0.0/0"),
            ("posing", json!({"cluster_id": "west"}), "spec.cluster_id"),
        ];
        for (name, change, _) in &cases {
            self.peer.post(ENDPOINTS, &object(name, "north", change.clone())).unwrap();
        }
        for (name, _, word) in &cases {
            self.wait_refused(name, "north", word);
            self.peer.delete(&format!("{ENDPOINTS}/{name}")).unwrap();
        }
        self.wait_nothing_refused();
    }

    /// What is labelled with our ID and is not ours is removed by us; what is ours and was changed is put right.
    fn objects_in_our_name_do_not_last(&self) {
        let own = self.fleet.wait_endpoint("east", 0, Place::Broker).unwrap();
        let path = format!("{ENDPOINTS}/{}", own["metadata"]["name"].as_str().unwrap());
        let change = json!({"cluster_id": "east", "subnets": ["10.1.0.0/16"], "private_ip": "172.31.77.77"});
        self.peer.post(ENDPOINTS, &object("in-our-name", "east", change)).unwrap();
        self.peer.wait_gone(&format!("{ENDPOINTS}/in-our-name"), TIMEOUT).unwrap();
        self.peer.patch(&path, &json!({"spec": {"subnets": ["10.99.0.0/16"]}})).unwrap();
        self.peer.wait(&path, TIMEOUT, |endpoint| endpoint["spec"] == own["spec"]).unwrap();
        // What a member may write in another's name cannot be told from its own by anybody but that other one: until it is
        // put right, others have believed it. Only an admission policy on the broker prevents that.
    }

    fn a_flood_costs_nobody_anything(&self) {
        let before = self.memory();
        let start = Instant::now();
        std::thread::scope(|scope| {
            for part in 0..4_u32 {
                let peer = &self.peer;
                scope.spawn(move || {
                    for index in 0..250 {
                        let number = part * 250 + index;
                        let net = format!("10.{}.{}.0/24", 128 + number / 250, number % 250);
                        let change = json!({"cluster_id": "junk", "subnets": [net]});
                        let name = format!("junk-{number:04}");
                        peer.post(ENDPOINTS, &object(&name, "junk", change)).unwrap();
                    }
                });
            }
        });
        eprintln!("1,000 junk Endpoints written in {:?}", start.elapsed());
        self.wait_names("junk", |names| names.len() <= MOST_OF_ONE && !names.is_empty());
        eventually("the rest to be refused", TIMEOUT, || {
            let seen = seen(&self.fleet);
            let refused = seen.refused.iter().filter(|refused| refused.cluster == "junk").count();
            anyhow::ensure!((200..=1000).contains(&refused), "{refused} are");
            anyhow::ensure!(seen.refused.len() <= MOST_LISTED, "{} are listed", seen.refused.len());
            Ok(())
        })
        .unwrap();
        let after = self.memory();
        eprintln!("memory of the gateway: {} KiB, with junk {} KiB", before >> 10, after >> 10);
        assert!(after < before + MEMORY, "{before} before, {after} after");

        let admin = self.fleet.lab.broker.client();
        admin.delete(&format!("{ENDPOINTS}?labelSelector={}%3Djunk", LABEL.replace('/', "%2F"))).unwrap();
        self.wait_names("junk", <[String]>::is_empty);
        self.wait_nothing_refused();
    }

    fn assert_unaffected(&self) {
        let seen = seen(&self.fleet);
        assert_eq!(seen.pid, self.pid, "the gateway has been restarted");
        assert_eq!(seen.ha_status, HaStatus::Active);
        assert!(seen.workers.iter().all(|worker| worker.restarts == 0), "{:?}", seen.workers);
        let cables: Vec<_> =
            seen.connections.iter().map(|cable| &cable.connection.endpoint.cluster_id).collect();
        assert_eq!(cables, ["west"], "{:?}", seen.connections);
        let west = self.fleet.lab.cluster("east").wait_object("endpoints", "west-gw", TIMEOUT, |_| true);
        assert_eq!(west.unwrap(), self.west, "another's has changed");
    }

    /// Waits until the gateway refuses this object with these words.
    fn wait_refused(&self, name: &str, of: &str, words: &str) {
        eventually(&format!("{name} to be refused for {words}"), TIMEOUT, || {
            let refused = seen(&self.fleet).refused;
            let found = refused.iter().find(|refused| refused.endpoint.as_deref() == Some(name));
            let is_told =
                found.is_some_and(|refused| refused.cluster == of && refused.reason.contains(words));
            anyhow::ensure!(is_told, "{found:?} of {}", refused.len());
            Ok(())
        })
        .unwrap();
        assert!(!self.names(of).contains(&name.to_owned()), "{name} is imported");
    }

    fn wait_nothing_refused(&self) {
        eventually("nothing to be refused", TIMEOUT, || {
            let refused = seen(&self.fleet).refused;
            anyhow::ensure!(refused.is_empty(), "{refused:?}");
            Ok(())
        })
        .unwrap();
    }

    fn wait_names(&self, of: &str, is_good: impl Fn(&[String]) -> bool) {
        eventually(&format!("the right Endpoints of {of}"), TIMEOUT, || {
            let names = self.names(of);
            anyhow::ensure!(is_good(&names), "{} names: {names:?}", names.len());
            Ok(())
        })
        .unwrap();
    }

    /// The Endpoints of a cluster that have been imported.
    fn names(&self, of: &str) -> Vec<String> {
        let found = self.fleet.endpoints(of, Place::Cluster("east")).unwrap();
        found.iter().map(|endpoint| endpoint["metadata"]["name"].as_str().unwrap().to_owned()).collect()
    }

    /// What the gateway's process holds in memory, in bytes.
    fn memory(&self) -> u64 {
        ProcessId::of(self.pid.cast_signed()).unwrap().resident_bytes().unwrap()
    }
}

/// An Endpoint of cluster `label`, good but for the changes; none at all for null.
fn object(name: &str, label: &str, changes: Value) -> Value {
    let mut object = json!({
        "apiVersion": "submariner.io/v1",
        "kind": "Endpoint",
        "metadata": {"name": name, "namespace": BROKER_NAMESPACE, "labels": {LABEL: label}},
    });
    let Value::Object(changes) = changes else { return object };
    let mut spec = json!({
        "cluster_id": label, "cable_name": format!("submariner-cable-{label}-{name}"), "hostname": format!("{name}-gw"),
        "subnets": ["10.9.0.0/16"], "private_ip": "172.31.9.1", "public_ip": "", "nat_enabled": false,
        "healthCheckIP": "", "backend": "wireguard",
        "backend_config": {"udp-port": "4500", "natt-discovery-port": "0",
            "publicKey": "QUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUE="},
    });
    for (key, value) in changes {
        spec[key] = value;
    }
    object["spec"] = spec;
    object
}

/// What `trieste status` says.
fn seen(fleet: &Fleet) -> GatewayStatus {
    let shown = fleet.gateway("east", 0).trieste(&["status", "--output", "json"]).unwrap().stdout().unwrap();
    serde_json::from_str(&shown).unwrap()
}
