//! Every fault under every controller: in the end the store says what it should, nothing was written without a right,
//! and the requests are counted.

mod bed;

use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::task::JoinSet;
use trieste_control::api::{
    Cluster, ClusterNetworks, ClusterSpec, Endpoint, EndpointSpec, HaStatus, Kind, Object, ObjectMeta,
    Resource as _, cable_name, label,
};
use trieste_control::conditions::Conditions;
use trieste_control::election::{self, ElectionConfig, Timings};
use trieste_control::globalnet::{self, GlobalnetConfig};
use trieste_control::leader::{self, LeaderConfig};
use trieste_control::live_networks::{self, Source, TrackedLists};
use trieste_control::members::{Member, conformance, further_name, paths_namespace, plan_own};
use trieste_control::publish::{OwnPod, STATUS_LABEL, keep_pod_label};
use trieste_control::runner::{ControllerRegistry, Write};
use trieste_control::settings::{self, Seen};
use trieste_control::sync::{SyncConfig, SyncHandle, Syncer};

use self::bed::{Stores, Subject};
use super::{NS, copy, service, start};
use crate::globalnet::world::{self, GATEWAY, World, addresses, export};
use crate::memory_store::MemoryStore;

bed::fault_rows!(SUBJECTS);

const SUBJECTS: [Subject; 10] = [
    Subject {
        name: "SettingsController",
        seed: |Stores { faulty: store, .. }| store.put(config_map(settings::OBJECT, "0")),
        candidate: None,
        start: |stores, _| {
            // It writes nothing: what it has seen is written down beside.
            let beside = stores.well.clone();
            let publish = move |seen: &Seen| {
                if let Seen::Data(data) = seen {
                    beside.put(config_map("seen", data.get("weight").map_or("", String::as_str)));
                }
            };
            Box::new(settings::spawn(stores.faulty.clone(), NS, publish))
        },
        disturb: |Stores { faulty: store, .. }, number| {
            store.edit(Kind::ConfigMap, settings::OBJECT, |object| {
                object.body["data"]["weight"] = json!(format!("{}", number + 1));
            });
        },
        is_settled: |Stores { well, .. }, disturbed| {
            let seen = well.peek(Kind::ConfigMap, "seen");
            seen.is_some_and(|seen| seen.body["data"]["weight"] == json!(format!("{disturbed}")))
        },
        most_writes: 0,
    },
    Subject {
        name: "CopyLabel",
        seed: |Stores { faulty: store, .. }| {
            (0..4).for_each(|number| store.put(service(&format!("s{number}"), "red")))
        },
        candidate: None,
        start: |stores, _| Box::new(start(stores.faulty.clone())),
        disturb: |Stores { faulty: store, .. }, number| {
            let color = format!("color-{number}");
            store.edit(Kind::Service, "s1", |service| {
                drop(service.metadata.labels.insert("color".to_owned(), color.clone()));
            });
        },
        is_settled: |Stores { faulty: store, .. }, disturbed| {
            let expected =
                disturbed.checked_sub(1).map_or_else(|| "red".to_owned(), |last| format!("color-{last}"));
            copy(store, "s1") == Some(expected) && copy(store, "s2").as_deref() == Some("red")
        },
        most_writes: 100,
    },
    Subject {
        name: "EndpointController",
        seed: |_| {},
        candidate: Some(|store, host| {
            election::spawn(store.clone(), ElectionConfig::gateway(NS, host, Timings::default()))
        }),
        start: |Stores { faulty: store, .. }, candidate| {
            let config = LeaderConfig {
                namespace: NS.to_owned(),
                cluster_id: "a".to_owned(),
                networks: watch::channel(ClusterNetworks::default()).1,
            };
            let endpoint = EndpointSpec {
                cluster_id: "a".to_owned(),
                cable_name: cable_name("a", "192.0.2.1".parse().unwrap()),
                hostname: "gw1".to_owned(),
                private_ip: "192.0.2.1".to_owned(),
                backend: "wireguard".to_owned(),
                ..EndpointSpec::default()
            };
            let (sender, endpoint) = watch::channel(endpoint);
            Box::new((leader::spawn(store.clone(), config, candidate.unwrap().clone(), endpoint), sender))
        },
        disturb: |Stores { faulty: store, .. }, number| {
            if store.peek(Kind::Cluster, "a").is_some() {
                store.edit(Kind::Cluster, "a", |cluster| {
                    cluster.body["spec"]["cluster_cidr"] = json!([format!("10.{number}.0.0/16")]);
                });
            }
        },
        is_settled: |Stores { faulty: store, .. }, _| {
            let cluster = store.peek(Kind::Cluster, "a");
            cluster.is_some_and(|cluster| cluster.body["spec"]["cluster_cidr"] == json!([]))
                && store.names(Kind::Endpoint) == ["a-submariner-cable-a-192-0-2-1"]
        },
        most_writes: 100,
    },
    Subject {
        name: "GlobalnetController",
        seed: |Stores { faulty: store, .. }| {
            let mut world = World::new("242.1.0.0/16");
            world.put(world::service("demo", "web", "100.1.0.7", "web"));
            world.put(export("demo", "web"));
            world.objects.into_values().for_each(|object| store.put(object));
        },
        candidate: Some(|store, host| election::spawn(store.clone(), ElectionConfig::globalnet(NS, host))),
        start: |Stores { faulty: store, .. }, candidate| {
            let config = GlobalnetConfig {
                namespace: NS.to_owned(),
                cluster_id: "cluster-a".to_owned(),
                gateway: Some(GATEWAY.to_owned()),
            };
            Box::new(globalnet::spawn(store.clone(), config, candidate.unwrap().clone()))
        },
        disturb: |Stores { faulty: store, .. }, number| {
            let name = format!("late-{number}");
            let put = |value| store.put(Object::from_value(value).unwrap());
            put(world::service("demo", &name, &format!("100.1.1.{}", number + 1), "x"));
            put(export("demo", &name));
        },
        is_settled: |Stores { faulty: store, .. }, disturbed| {
            let has_address = |name: &str| {
                let found = store.peek(Kind::GlobalIngressIp, name);
                found.is_some_and(|ingress| addresses(&ingress).len() == 1)
            };
            has_address("web") && (0..disturbed).all(|number| has_address(&format!("late-{number}")))
        },
        most_writes: 200,
    },
    Subject {
        name: "SyncController, faults in the local store",
        seed: |stores| seed_sync(&stores.faulty, &stores.well),
        candidate: None,
        start: |stores, _| Box::new(start_sync(&stores.faulty, &stores.well)),
        disturb: |stores, number| disturb_sync(&stores.faulty, &stores.well, number),
        is_settled: |stores, disturbed| is_synced(&stores.faulty, &stores.well, disturbed),
        most_writes: 100,
    },
    Subject {
        name: "SyncController, faults in the broker",
        seed: |stores| seed_sync(&stores.well, &stores.faulty),
        candidate: None,
        start: |stores, _| Box::new(start_sync(&stores.well, &stores.faulty)),
        disturb: |stores, number| disturb_sync(&stores.well, &stores.faulty, number),
        is_settled: |stores, disturbed| is_synced(&stores.well, &stores.faulty, disturbed),
        most_writes: 100,
    },
    Subject {
        name: "LocalController, faults in the own store",
        seed: |stores| seed_members(&stores.faulty, &stores.well),
        candidate: None,
        start: |stores, _| Box::new(start_members(&stores.faulty, &stores.well)),
        disturb: |stores, number| disturb_members(&stores.faulty, &stores.well, number),
        is_settled: |stores, _| is_published(&stores.faulty, &stores.well),
        most_writes: 100,
    },
    Subject {
        name: "BrokerController, faults in the broker",
        seed: |stores| seed_members(&stores.well, &stores.faulty),
        candidate: None,
        start: |stores, _| Box::new(start_members(&stores.well, &stores.faulty)),
        disturb: |stores, number| disturb_members(&stores.well, &stores.faulty, number),
        is_settled: |stores, _| is_published(&stores.well, &stores.faulty),
        most_writes: 100,
    },
    Subject {
        name: "NetworksController",
        seed: |stores| seed_networks(&stores.faulty),
        candidate: Some(|store, host| {
            election::spawn(store.clone(), ElectionConfig::gateway(NS, host, Timings::default()))
        }),
        start: |stores, candidate| {
            Box::new(live_networks::spawn(stores.faulty.clone(), NS, candidate.unwrap().clone(), |_| {}))
        },
        disturb: |stores, number| {
            stores.faulty.edit(Kind::ServiceCidr, "kubernetes", |range| {
                range.body["spec"]["cidrs"] = json!(["10.96.0.0/16", format!("10.{}.0.0/16", 100 + number)]);
            });
            stores.faulty.edit(Kind::ConfigMap, FLANNEL, |map| {
                map.body.insert("data".to_owned(), flannels(&format!("10.{}.0.0/16", 1 + number)));
            });
        },
        is_settled: |stores, disturbed| {
            let further = disturbed.checked_sub(1).map(|last| format!(",10.{}.0.0/16", 100 + last));
            let services = format!("10.96.0.0/16{}", further.unwrap_or_default());
            let pods = format!("10.{}.0.0/16", disturbed.max(1));
            let lists = stores.faulty.peek(Kind::ConfigMap, ClusterNetworks::OBJECT);
            lists.is_some_and(|lists| {
                let data = &lists.body["data"];
                (&data["services"], &data["pods"]) == (&json!(services), &json!(pods))
            })
        },
        most_writes: 100,
    },
    Subject {
        name: "PodLabelController",
        seed: |stores| stores.faulty.put(Object::new(Kind::Pod, ObjectMeta::new(NS, "gw"))),
        candidate: None,
        start: |stores, _| Box::new(start_labels(&stores.faulty)),
        disturb: |stores, number| {
            stores.faulty.edit(Kind::Pod, "gw", |pod| {
                pod.metadata.labels = [("number".to_owned(), number.to_string())].into();
            });
        },
        is_settled: |stores, disturbed| {
            let expected = disturbed.checked_sub(1).map(|last| last.to_string());
            let found = stores.faulty.peek(Kind::Pod, "gw").map(|pod| pod.metadata.labels);
            found.is_some_and(|labels| {
                labels.get("number") == expected.as_ref()
                    && labels.get(STATUS_LABEL).is_some_and(|status| status == "active")
            })
        },
        most_writes: 100,
    },
];

/// Returns a ConfigMap with a weight.
fn config_map(name: &str, weight: &str) -> Object {
    let mut object = Object::new(Kind::ConfigMap, ObjectMeta::new(NS, name));
    object.body.insert("data".to_owned(), json!({"weight": weight}));
    object
}

/// Starts to label a pod as the active gateway's.
fn start_labels(store: &MemoryStore) -> (watch::Sender<HaStatus>, JoinSet<()>) {
    let own = OwnPod { namespace: NS.to_owned(), name: Some("gw".to_owned()), node: "gw1".to_owned() };
    let (sender, status) = watch::channel(HaStatus::Active);
    let mut tasks = JoinSet::new();
    tasks.spawn(keep_pod_label(store.clone(), own, status, Conditions::new(), ControllerRegistry::default()));
    (sender, tasks)
}

/// The name of flannel's ConfigMap.
const FLANNEL: &str = "kube-flannel-cfg";

/// Returns what it has.
fn flannels(network: &str) -> Value {
    json!({"net-conf.json": json!({"Network": network}).to_string()})
}

/// Puts a range of services, flannel's ConfigMap, and the lists as `join` writes them.
fn seed_networks(store: &MemoryStore) {
    let mut range = Object::new(Kind::ServiceCidr, ObjectMeta::new("", "kubernetes"));
    range.body.insert("spec".to_owned(), json!({"cidrs": ["10.96.0.0/16"]}));
    let mut lists = Object::new(Kind::ConfigMap, ObjectMeta::new(NS, ClusterNetworks::OBJECT));
    lists.body.insert("data".to_owned(), json!({"pods": "10.1.0.0/16", "services": "10.96.0.0/16"}));
    let mut flannel = Object::new(Kind::ConfigMap, ObjectMeta::new("kube-flannel", FLANNEL));
    flannel.body.insert("data".to_owned(), flannels("10.1.0.0/16"));
    let followed = [(Source::ServiceCidrs, "10.96.0.0/16"), (Source::FlannelMap, "10.1.0.0/16")];
    let followed = followed.map(|(source, network)| (source, [network.parse().unwrap()].into()));
    let followed = TrackedLists(followed.into());
    lists.metadata.annotations.insert(TrackedLists::ANNOTATION.to_owned(), followed.value());
    [range, flannel, lists].into_iter().for_each(|object| store.put(object));
}

/// The namespace of all clusters' objects on the broker.
const BROKER: &str = "submariner-k8s-broker";

/// Puts our cluster into our store, and another one into the broker.
fn seed_sync(local: &MemoryStore, broker: &MemoryStore) {
    for object in originals("a", "192.0.2.1", NS) {
        local.put(object);
    }
    for mut object in originals("b", "192.0.2.2", BROKER) {
        object.metadata.labels.insert(label::CLUSTER_ID.to_owned(), "b".to_owned());
        object.metadata.labels.insert(label::ORIGINATING_NAMESPACE.to_owned(), NS.to_owned());
        broker.put(object);
    }
}

fn originals(cluster: &str, address: &str, namespace: &str) -> [Object; 2] {
    let spec = EndpointSpec {
        cluster_id: cluster.to_owned(),
        cable_name: cable_name(cluster, address.parse().unwrap()),
        hostname: format!("{cluster}-gw1"),
        subnets: vec![format!("10.{}.0.0/16", cluster.as_bytes()[0])],
        private_ip: address.to_owned(),
        backend: "wireguard".to_owned(),
        ..EndpointSpec::default()
    };
    let endpoint = Endpoint::new(namespace, spec).unwrap().to_object();
    [Cluster::new(namespace, ClusterSpec::new(cluster, &[], &[])).unwrap().to_object(), endpoint]
}

fn start_sync(local: &MemoryStore, broker: &MemoryStore) -> SyncHandle {
    Syncer::spawn(local.clone(), broker.clone(), SyncConfig::new("a", vec!["10.97.0.0/16".parse().unwrap()]))
}

/// The names of both clusters' Endpoints.
const ENDPOINTS: [&str; 2] = ["a-submariner-cable-a-192-0-2-1", "b-submariner-cable-b-192-0-2-2"];

fn disturb_sync(local: &MemoryStore, broker: &MemoryStore, number: usize) {
    let edit = |store: &MemoryStore, name: &str| {
        store.edit(Kind::Endpoint, name, |endpoint| {
            endpoint.body["spec"]["public_ip"] = json!(format!("198.51.100.{number}"));
        });
    };
    edit(local, ENDPOINTS[0]);
    edit(broker, ENDPOINTS[1]);
}

fn is_synced(local: &MemoryStore, broker: &MemoryStore, disturbed: usize) -> bool {
    let expected = disturbed.checked_sub(1).map(|last| format!("198.51.100.{last}")).unwrap_or_default();
    [local, broker].iter().all(|store| {
        ENDPOINTS.iter().all(|name| {
            let found = store.peek(Kind::Endpoint, name);
            found.is_some_and(|found| found.body["spec"]["public_ip"] == json!(expected))
        }) && store.names(Kind::Cluster).len() == 2
    })
}

/// Puts a sibling into both stores, and a gateway of another cluster into the broker.
fn seed_members(local: &MemoryStore, broker: &MemoryStore) {
    let further = |namespace: &str, cluster: &str, number| {
        let writes = plan_own(namespace, &conformance::spec(cluster, number), true, &[]).unwrap();
        let [Write::Create(object)] = &writes[..] else { panic!("{writes:?}") };
        object.clone()
    };
    local.put(further(&paths_namespace(conformance::LOCAL), "a", 2));
    broker.put(further(conformance::BROKER, "a", 2));
    broker.put(further(conformance::BROKER, "b", 1));
}

fn start_members(local: &MemoryStore, broker: &MemoryStore) -> conformance::Gateway {
    conformance::Gateway::start(local, broker.clone(), &conformance::config("a", 1), 1)
}

/// Somebody else writes over what the gateway publishes of itself; its sibling and the other cluster change, too.
fn disturb_members(local: &MemoryStore, broker: &MemoryStore, number: usize) {
    for (store, cluster, gateway) in
        [(local, "a", 1), (local, "a", 2), (broker, "a", 1), (broker, "a", 2), (broker, "b", 1)]
    {
        let name = further_name(&conformance::spec(cluster, gateway).cable_name).unwrap();
        if store.peek(Kind::Endpoint, &name).is_some() {
            store.edit(Kind::Endpoint, &name, |endpoint| {
                endpoint.body["spec"]["public_ip"] = json!(format!("198.51.100.{number}"));
            });
        }
    }
}

/// Whether both stores have the gateway as it is, and the others still.
fn is_published(local: &MemoryStore, broker: &MemoryStore) -> bool {
    let spec = conformance::spec("a", 1);
    let name = further_name(&spec.cable_name).unwrap();
    let is_own = |store: &MemoryStore| {
        let found = store.peek(Kind::Endpoint, &name).and_then(|object| Member::read(&object));
        found.is_some_and(|member| member.endpoint.spec.public_ip == spec.public_ip)
    };
    [local, broker].into_iter().all(is_own)
        && [local.names(Kind::Endpoint).len(), broker.names(Kind::Endpoint).len()] == [2, 3]
}
