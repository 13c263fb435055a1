//! Agents that die, and servers that are away, while somebody asks for a name all the time: no query goes wrong, and soon
//! afterwards everything is as it should be. An agent dies here by being dropped wherever it is; as a process it does in
//! `clusters/plain/names.rs`.

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tokio::runtime::Runtime;
use trieste_control::store::KubeStore;
use trieste_discovery::dns::udp;
use trieste_discovery_agent::AgentHandle;
use trieste_tests::guard::root_test;
use trieste_tests::kubernetes::{ApiServer, Faults, Mode};
use trieste_tests::lab::Lab;
use trieste_tests::wait::eventually;

use super::asker::{Asker, ask, client, serve};
use super::bed::{PATIENCE, install, spawn_agent, store};

/// How long a server is away, and at night (`./dev test --nightly`): the one of a cluster, and the broker.
const AWAY: [Duration; 2] = [Duration::from_secs(3), Duration::from_secs(60)];
const BROKER_AWAY: [Duration; 2] = [Duration::from_secs(3), Duration::from_secs(600)];
/// How soon everything has to be caught up with after a short time. A server that is away is asked ever less, so that it takes
/// half a minute more after a long one.
const CAUGHT_UP: [Duration; 2] = [Duration::from_secs(60), Duration::from_secs(90)];
/// Changes of a service's back ends, and the time between them.
const FLAPS: u64 = 200;
const FLAP: Duration = Duration::from_millis(20);
/// What an agent writes about a service to a store at once, and then in each second; and stores in which one is written of: the slice
/// of the exporting cluster, that on the broker, and the copy. A write that comes too late is refused and counted as well, which
/// happens to a few.
const BURST: u64 = 30;
const SLICES: u64 = 3;
const REFUSED: u64 = 10;

#[test]
fn agents_that_die_and_servers_that_are_away_cost_no_answer_and_are_caught_up_with() {
    let name = "agents_that_die_and_servers_that_are_away_cost_no_answer_and_are_caught_up_with";
    let Some(_turn) = root_test(name) else { return };
    let mut bed = Bed::new();
    for service in ["web", "old", "late"] {
        bed.export(EAST, service, "ClusterIP");
    }
    bed.becomes("web", true, PATIENCE);
    bed.becomes("late", true, PATIENCE);
    let asker = Asker::start(bed.dns.address(), "web", &[]);
    bed.agents_die();
    bed.server_is_away();
    bed.broker_is_away();
    bed.back_ends_flap();
    bed.one_gives_in();
    let (asked, failed) = asker.stop();
    assert_eq!(failed, [""; 0], "of {asked} queries");
    assert!(asked > 1_000, "{asked} queries");
    eprintln!("{asked} queries, none failed");
}

const EAST: usize = 0;
const WEST: usize = 1;

/// Two clusters, the broker in east, and a DNS server of west. West reaches its own server and the broker through relays.
struct Bed {
    agents: [Option<AgentHandle>; 2],
    stores: [KubeStore; 2],
    brokers: [KubeStore; 2],
    dns: udp::Worker,
    to_own: Faults,
    to_broker: Faults,
    _to_east: Faults,
    runtime: Runtime,
    servers: [ApiServer; 2],
    _lab: Lab,
}

impl Bed {
    fn new() -> Self {
        let lab = Lab::new().unwrap();
        let servers = ["east", "west"].map(|name| ApiServer::alone(&lab, name).unwrap());
        servers.iter().for_each(|server| install(server.client(), "v1alpha1"));
        let relay = |of: usize| Faults::on_loopback(&servers[of]).unwrap();
        let (to_east, to_own, to_broker) = (relay(EAST), relay(WEST), relay(EAST));
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        let (stores, brokers) = {
            let _inside = runtime.enter();
            let east = store(&servers[EAST], &to_east);
            ([east.clone(), store(&servers[WEST], &to_own)], [east, store(&servers[EAST], &to_broker)])
        };
        let dns = serve(&runtime, &stores[WEST]);
        let mut bed = Self {
            agents: [None, None],
            stores,
            brokers,
            dns,
            to_own,
            to_broker,
            _to_east: to_east,
            runtime,
            servers,
            _lab: lab,
        };
        bed.start_agents();
        bed
    }

    fn start_agents(&mut self) {
        let _inside = self.runtime.enter();
        for (of, name) in ["east", "west"].into_iter().enumerate() {
            self.agents[of] = Some(spawn_agent(name, &self.stores[of], &self.brokers[of]));
        }
    }

    /// Makes a service with a ready back end, and exports it.
    fn export(&self, of: usize, name: &str, cluster_ip: &str) {
        let mut spec = json!({"ports": [{"name": "http", "port": 80}]});
        if cluster_ip == "None" {
            spec["clusterIP"] = json!("None");
        }
        self.apply(
            of,
            &json!({"apiVersion": "v1", "kind": "Service", "metadata": metadata(name), "spec": spec}),
        );
        self.put_slice(of, name, true);
        self.apply(
            of,
            &json!({"apiVersion": "multicluster.x-k8s.io/v1alpha1", "kind": "ServiceExport", "metadata": metadata(name)}),
        );
    }

    fn put_slice(&self, of: usize, name: &str, is_ready: bool) {
        let mut metadata = metadata(name);
        metadata["labels"] = json!({"kubernetes.io/service-name": name});
        self.apply(
            of,
            &json!({"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "metadata": metadata,
                "addressType": "IPv4", "ports": [{"name": "http", "port": 8080}],
                "endpoints": [{"addresses": ["10.1.0.1"], "conditions": {"ready": is_ready}}]}),
        );
    }

    /// Changes a cluster past all relays.
    fn apply(&self, of: usize, object: &Value) {
        self.servers[of].client().apply(object).unwrap();
    }

    /// Removes a service with its back ends and its export, in the order in which they are named, or the export alone.
    fn remove(&self, of: usize, name: &str, kinds: &[&str]) {
        for kind in kinds {
            self.servers[of].client().delete(&path(kind, name)).unwrap();
        }
    }

    /// Waits until a name of west has an answer, or none any more. Returns how long that took.
    fn becomes(&self, service: &str, is_answered: bool, within: Duration) -> Duration {
        let begun = Instant::now();
        let client = client(self.dns.address());
        eventually(&format!("{service} to be answered: {is_answered}"), within, || {
            let found = ask(&client, service);
            anyhow::ensure!(found.is_ok() == is_answered, "{found:?}");
            Ok(())
        })
        .unwrap();
        begun.elapsed()
    }

    /// Waits until nothing of a service is left in either cluster, or on the broker.
    fn is_gone(&self, service: &str, within: Duration) {
        eventually(&format!("nothing of {service} to be left"), within, || {
            for server in &self.servers {
                for kind in
                    ["multicluster.x-k8s.io/v1alpha1/serviceimports", "discovery.k8s.io/v1/endpointslices"]
                {
                    let left = server.client().list(&format!("/apis/{kind}"))?.into_iter().find(|object| {
                        let name = object["metadata"]["name"].as_str().unwrap_or_default();
                        name == service || name.starts_with(&format!("{service}-"))
                    });
                    anyhow::ensure!(left.is_none(), "{left:?}");
                }
            }
            Ok(())
        })
        .unwrap();
    }

    /// Returns a condition of an export, as status and reason.
    fn said(&self, of: usize, name: &str, condition: &str) -> anyhow::Result<String> {
        let export = self.servers[of].client().get(&path("serviceexports", name))?;
        let conditions = export["status"]["conditions"].as_array().cloned().unwrap_or_default();
        let found = conditions.into_iter().find(|found| found["type"] == condition).unwrap_or_default();
        let text = |field: &str| found[field].as_str().unwrap_or("none").to_owned();
        Ok(format!("{}/{}", text("status"), text("reason")))
    }

    /// Both agents end in the middle of their work; a service is removed and one is exported before they are back.
    fn agents_die(&mut self) {
        self.put_slice(EAST, "late", false);
        self.agents = [None, None];
        self.remove(EAST, "old", &["services", "endpointslices", "serviceexports"]);
        self.export(EAST, "first", "ClusterIP");
        std::thread::sleep(Duration::from_millis(500));
        self.start_agents();
        let took = self.becomes("first", true, CAUGHT_UP[0]);
        self.becomes("late", false, CAUGHT_UP[0]);
        self.is_gone("old", CAUGHT_UP[0]);
        eprintln!("agents: {took:.1?} after they were started");
    }

    /// West's API server is away: its DNS server goes on with what it knows, and what others do meanwhile follows.
    fn server_is_away(&mut self) {
        self.to_own.set(Mode::Refuse).unwrap();
        self.to_own.cut();
        self.remove(EAST, "first", &["serviceexports"]);
        self.export(EAST, "second", "ClusterIP");
        std::thread::sleep(long_or_short(AWAY));
        self.becomes("first", true, Duration::ZERO);
        self.to_own.set(Mode::Pass).unwrap();
        let took = self.becomes("second", true, long_or_short(CAUGHT_UP));
        self.becomes("first", false, CAUGHT_UP[0]);
        eprintln!("API server: {took:.1?} after it was back");
    }

    /// The broker hangs for west: nothing goes there; what both clusters do meanwhile follows, late deletions too.
    fn broker_is_away(&mut self) {
        self.to_broker.set(Mode::Hang).unwrap();
        self.remove(EAST, "second", &["serviceexports"]);
        self.export(EAST, "third", "ClusterIP");
        self.export(WEST, "of-west", "ClusterIP");
        std::thread::sleep(long_or_short(BROKER_AWAY));
        self.becomes("second", true, Duration::ZERO);
        self.to_broker.set(Mode::Pass).unwrap();
        self.to_broker.cut();
        let took = self.becomes("third", true, long_or_short(CAUGHT_UP));
        self.becomes("second", false, CAUGHT_UP[0]);
        self.becomes("of-west", true, CAUGHT_UP[0]);
        eventually("the export of west", CAUGHT_UP[0], || {
            let ready = self.said(WEST, "of-west", "Ready")?;
            anyhow::ensure!(ready == "True/Exported", "{ready}");
            Ok(())
        })
        .unwrap();
        eprintln!("broker: {took:.1?} after it was back");
    }

    /// Back ends come and go all the time, and writes do not.
    fn back_ends_flap(&self) {
        let (before, begun) = (self.writes(), Instant::now());
        for flap in 0..FLAPS {
            self.put_slice(EAST, "third", flap % 2 == 1);
            std::thread::sleep(FLAP);
        }
        self.put_slice(EAST, "third", false);
        self.becomes("third", false, PATIENCE);
        let writes = self.writes() - before - FLAPS - 1;
        let most = SLICES * (BURST + begun.elapsed().as_secs() + REFUSED);
        eprintln!("{writes} writes because of {FLAPS} changes, {most} are allowed");
        assert!((SLICES..=most).contains(&writes), "{writes} writes because of {FLAPS} changes");
    }

    /// Returns the number of writes about services that both servers have answered.
    fn writes(&self) -> u64 {
        let kinds = ["endpointslices", "serviceimports", "serviceimports/status", "serviceexports/status"];
        let is_write = |verb: &str| !["GET", "LIST", "WATCH"].contains(&verb);
        let requests = self.servers.iter().flat_map(|server| server.requests().unwrap());
        let counted = requests.filter(|((verb, kind), _)| is_write(verb) && kinds.contains(&kind.as_str()));
        counted.map(|(_, count)| count).sum()
    }

    /// West exports the service with another type, is told, and gives in.
    fn one_gives_in(&self) {
        let say = |of: usize, wanted: [&str; 2]| {
            eventually("the conditions", CAUGHT_UP[0], || {
                let said = [self.said(of, "web", "Ready")?, self.said(of, "web", "Conflict")?];
                anyhow::ensure!(said == wanted, "{said:?} and not {wanted:?}");
                Ok(())
            })
            .unwrap();
        };
        self.export(WEST, "web", "None");
        say(WEST, ["False/Failed", "True/TypeConflict,ConflictingType"]);
        say(EAST, ["True/Exported", "True/TypeConflict,ConflictingType"]);
        self.remove(WEST, "web", &["services"]);
        self.export(WEST, "web", "ClusterIP");
        for of in [WEST, EAST] {
            say(of, ["True/Exported", "False/NoConflicts"]);
        }
    }
}

fn long_or_short(times: [Duration; 2]) -> Duration {
    times[usize::from(std::env::var_os("TRIESTE_NIGHTLY").is_some())]
}

fn metadata(name: &str) -> Value {
    json!({"name": name, "namespace": "shop"})
}

fn path(kind: &str, name: &str) -> String {
    let group = match kind {
        "services" => "/api/v1",
        "endpointslices" => "/apis/discovery.k8s.io/v1",
        _ => "/apis/multicluster.x-k8s.io/v1alpha1",
    };
    format!("{group}/namespaces/shop/{kind}/{name}")
}
