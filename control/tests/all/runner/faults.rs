//! Every fault under every controller: in the end the store says what it should, nothing was written without a right,
//! and the requests are counted.

use std::any::Any;
use std::time::Duration;

use serde_json::json;
use tokio::sync::watch;
use tokio::time::sleep;
use trieste_control::api::{
    Cluster, ClusterSpec, Endpoint, EndpointSpec, Kind, Object, Resource as _, cable_name, label,
};
use trieste_control::election::{self, Candidate, ElectionConfig, Timings};
use trieste_control::globalnet::{self, GlobalnetConfig};
use trieste_control::leader::{self, LeaderConfig};
use trieste_control::members::{Member, conformance, further_name, paths_namespace, plan_own};
use trieste_control::runner::Write;
use trieste_control::sync::{SyncConfig, SyncHandle, Syncer};

use super::{NS, copy, service, start};
use crate::globalnet::world::{self, GATEWAY, World, addresses, export};
use crate::memory_store::{Fault, MemoryStore};

/// A controller as the table needs it. One with two stores is in it twice, with the faults in either.
#[derive(Clone, Copy)]
struct Subject {
    name: &'static str,
    /// Puts the objects there that it works on.
    seed: fn(&Stores),
    /// Returns its candidate, where it has a fence.
    candidate: Option<fn(&MemoryStore, &str) -> Candidate>,
    /// Starts it; what is returned ends it when dropped.
    start: fn(&Stores, Option<&Candidate>) -> Box<dyn Any + Send>,
    /// Changes something, so that there is something to write; each number changes something else.
    disturb: fn(&Stores, usize),
    /// Returns `true` if the store says what it should after that many changes.
    is_settled: fn(&Stores, usize) -> bool,
    /// The most requests that write in a minute of a store that flaps ten times a second.
    most_writes: usize,
}

/// The store that has the faults, and another one that is well.
#[derive(Clone, Default)]
struct Stores {
    faulty: MemoryStore,
    well: MemoryStore,
}

const SUBJECTS: [Subject; 7] = [
    Subject {
        name: "copy-label",
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
        name: "endpoint",
        seed: |_| {},
        candidate: Some(|store, host| {
            election::spawn(store.clone(), ElectionConfig::gateway(NS, host, Timings::default()))
        }),
        start: |Stores { faulty: store, .. }, candidate| {
            let config = LeaderConfig { namespace: NS.to_owned(), cluster: ClusterSpec::new("a", &[], &[]) };
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
        name: "globalnet",
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
        name: "broker-sync, faults in the local store",
        seed: |stores| seed_sync(&stores.faulty, &stores.well),
        candidate: None,
        start: |stores, _| Box::new(start_sync(&stores.faulty, &stores.well)),
        disturb: |stores, number| disturb_sync(&stores.faulty, &stores.well, number),
        is_settled: |stores, disturbed| is_synced(&stores.faulty, &stores.well, disturbed),
        most_writes: 100,
    },
    Subject {
        name: "broker-sync, faults in the broker",
        seed: |stores| seed_sync(&stores.well, &stores.faulty),
        candidate: None,
        start: |stores, _| Box::new(start_sync(&stores.well, &stores.faulty)),
        disturb: |stores, number| disturb_sync(&stores.well, &stores.faulty, number),
        is_settled: |stores, disturbed| is_synced(&stores.well, &stores.faulty, disturbed),
        most_writes: 100,
    },
    Subject {
        name: "members, faults in the own store",
        seed: |stores| seed_members(&stores.faulty, &stores.well),
        candidate: None,
        start: |stores, _| Box::new(start_members(&stores.faulty, &stores.well)),
        disturb: |stores, number| disturb_members(&stores.faulty, &stores.well, number),
        is_settled: |stores, _| is_published(&stores.faulty, &stores.well),
        most_writes: 100,
    },
    Subject {
        name: "broker-members, faults in the broker",
        seed: |stores| seed_members(&stores.well, &stores.faulty),
        candidate: None,
        start: |stores, _| Box::new(start_members(&stores.well, &stores.faulty)),
        disturb: |stores, number| disturb_members(&stores.well, &stores.faulty, number),
        is_settled: |stores, _| is_published(&stores.well, &stores.faulty),
        most_writes: 100,
    },
];

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

/// A subject that runs on a store.
struct Bed {
    subject: Subject,
    stores: Stores,
    /// The store that has the faults.
    store: MemoryStore,
    candidate: Option<Candidate>,
    running: Box<dyn Any + Send>,
    disturbed: usize,
}

impl Bed {
    async fn new(subject: Subject) -> Self {
        let stores = Stores::default();
        let store = stores.faulty.clone();
        (subject.seed)(&stores);
        let candidate = subject.candidate.map(|candidate| candidate(&store, GATEWAY));
        let running = (subject.start)(&stores, candidate.as_ref());
        let bed = Self { subject, stores, store, candidate, running, disturbed: 0 };
        bed.settles("at the start").await;
        bed
    }

    fn disturb(&mut self) {
        (self.subject.disturb)(&self.stores, self.disturbed);
        self.disturbed += 1;
    }

    async fn settles(&self, when: &str) {
        for _ in 0..1_200 {
            if (self.subject.is_settled)(&self.stores, self.disturbed) {
                return;
            }
            sleep(Duration::from_millis(100)).await;
        }
        panic!("{} does not settle {when}", self.subject.name);
    }

    /// Waits until it settles, and sees that nothing is written after that.
    async fn settles_and_rests(&self, when: &str) {
        self.settles(when).await;
        sleep(Duration::from_secs(70)).await;
        assert!((self.subject.is_settled)(&self.stores, self.disturbed), "{} {when}", self.subject.name);
        self.writes();
        sleep(Duration::from_secs(600)).await;
        assert_eq!(self.writes(), Vec::<String>::new(), "{} at rest {when}", self.subject.name);
    }

    /// Returns the requests that write, but for Leases, since the last time.
    fn writes(&self) -> Vec<String> {
        let mut log = self.stores.faulty.take_log();
        log.extend(self.stores.well.take_log());
        let is_write = |line: &String| {
            ["create", "update", "delete"].iter().any(|verb| line.starts_with(verb))
                && !line.contains("Lease")
        };
        log.retain(is_write);
        log
    }
}

/// Runs a row of the table for every subject.
async fn each(when: &str, row: impl AsyncFn(&mut Bed)) {
    for subject in SUBJECTS {
        let mut bed = Bed::new(subject).await;
        row(&mut bed).await;
        bed.settles_and_rests(when).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_store_that_fails_forbids_hangs_is_slow_or_drops_replies() {
    let faults = [
        Fault::Fails,
        Fault::Forbids,
        Fault::Hangs,
        Fault::Slow(Duration::from_secs(2)),
        Fault::LosesReplies,
    ];
    for fault in faults {
        each(&format!("after {fault:?}"), async |bed: &mut Bed| {
            bed.store.set_fault(fault);
            for _ in 0..5 {
                bed.disturb();
                sleep(Duration::from_secs(2)).await;
            }
            bed.store.set_fault(Fault::None);
            bed.store.break_watches();
        })
        .await;
    }
}

#[tokio::test(start_paused = true)]
async fn somebody_else_is_faster() {
    each("after lost races", async |bed: &mut Bed| {
        for _ in 0..5 {
            // Slow enough for a change between the plan and its write.
            bed.store.set_fault(Fault::Slow(Duration::from_millis(100)));
            bed.disturb();
            sleep(Duration::from_millis(50)).await;
            bed.disturb();
            sleep(Duration::from_secs(2)).await;
        }
        bed.store.set_fault(Fault::None);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn the_echo_of_a_write_does_not_come() {
    each("after silent watches", async |bed: &mut Bed| {
        bed.disturb();
        sleep(Duration::from_millis(10)).await;
        bed.store.set_silent(true);
        sleep(Duration::from_secs(10)).await;
        bed.disturb();
        sleep(Duration::from_secs(10)).await;
        bed.store.set_silent(false);
        bed.store.break_watches();
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_watch_reports_old_states_after_newer_ones() {
    each("after stale events", async |bed: &mut Bed| {
        for _ in 0..3 {
            let before = bed.store.snapshot();
            bed.disturb();
            bed.settles("after a change").await;
            let after = bed.store.snapshot();
            bed.writes();
            bed.store.report(before);
            bed.store.report(after);
            sleep(Duration::from_secs(5)).await;
            let writes = bed.writes();
            assert!(writes.len() <= 1, "{}: {writes:?}", bed.subject.name);
        }
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn the_fence_is_lost_between_plan_and_write() {
    each("after it is back", async |bed: &mut Bed| {
        let Some(candidate) = bed.candidate.clone() else { return };
        bed.store.set_fault(Fault::Slow(Duration::from_millis(200)));
        bed.disturb();
        sleep(Duration::from_millis(100)).await;
        candidate.set_eligible(false);
        sleep(Duration::from_secs(2)).await;
        assert!(!candidate.is_leader(std::time::Instant::now()));
        bed.writes();
        bed.disturb();
        sleep(Duration::from_secs(60)).await;
        assert_eq!(bed.writes(), Vec::<String>::new(), "{} without the right", bed.subject.name);
        bed.store.set_fault(Fault::None);
        candidate.set_eligible(true);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn the_process_is_killed_between_two_writes() {
    for after in [1, 30, 60, 90, 120, 200, 400] {
        each("after a kill", async |bed: &mut Bed| {
            bed.store.set_fault(Fault::Slow(Duration::from_millis(50)));
            (0..3).for_each(|_| bed.disturb());
            sleep(Duration::from_millis(after)).await;
            bed.running = Box::new(());
            sleep(Duration::from_millis(500)).await;
            bed.store.set_fault(Fault::None);
            bed.running = (bed.subject.start)(&bed.stores, bed.candidate.as_ref());
        })
        .await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_store_that_flaps_ten_times_a_second_is_not_stormed() {
    each("after flapping", async |bed: &mut Bed| {
        bed.writes();
        bed.disturb();
        for flap in 0..600 {
            bed.store.set_fault(if flap % 2 == 0 { Fault::Fails } else { Fault::None });
            bed.store.break_watches();
            if flap % 100 == 0 {
                bed.disturb();
            }
            sleep(Duration::from_millis(100)).await;
        }
        let writes = bed.writes().len();
        println!("{}: {writes} writes in a minute of a store that flaps", bed.subject.name);
        assert!(writes <= bed.subject.most_writes, "{}: {writes} writes", bed.subject.name);
        bed.store.set_fault(Fault::None);
    })
    .await;
}
