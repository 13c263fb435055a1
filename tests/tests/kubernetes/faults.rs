//! Everything that can happen between gateways and API servers, and what an operator sees of it: who leads, what is
//! explained, which objects stay, how many requests it takes. That none of it costs a packet is for `outages`
//! (`several::broker`, `several::one_active`).
//!
//! One cluster of two gateways, each with a relay of its own before the cluster's server and before the broker; another
//! cluster is an Endpoint on the broker.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::{Value, json};
use trieste_control::admin::{BrokerLink, BrokerStatus, GatewayStatus};
use trieste_control::api::HaStatus;
use trieste_tests::clock;
use trieste_tests::cluster::BROKER_NAMESPACE;
use trieste_tests::guard::{self, root_test};
use trieste_tests::kubernetes::{
    ApiServer, BROKER_SECRET, Client, Faults, Fleet, GatewayPod, Mode, Place, objects,
};
use trieste_tests::wait::eventually;

/// How long anything may take: two busy cores, leases of 15 s, back-offs of up to 10 s.
const TIMEOUT: Duration = Duration::from_secs(60);

const LEASE: &str =
    "/apis/coordination.k8s.io/v1/namespaces/submariner-operator/leases/submariner-gateway-lock";

#[test]
fn broken_control_traffic_is_explained_and_everything_is_well_afterwards() {
    let Some(_turn) = root_test("broken_control_traffic_is_explained_and_everything_is_well_afterwards")
    else {
        return;
    };
    let mut scene = Scene::start_without_broker();

    scene.restart_without_broker();
    scene.lease_is_edited_while_the_broker_is_away();
    scene.second_gateway_with_a_clock_that_is_behind();
    scene.others_write_the_same_objects();
    scene.watches_are_cut();
    scene.connections_hang();
    scene.server_is_stopped();
    scene.token_expires();
    scene.authority_is_replaced();
    scene.gateway_label_is_removed_and_restored();
    scene.leader_alone_has_no_server();
    scene.leader_is_killed();
}

/// The lab, and its relays. The gateways end before the relays do.
struct Scene {
    fleet: Fleet,
    /// Before the cluster's own server, for each gateway.
    own: [Faults; 2],
    /// Before the broker, for both.
    broker: Faults,
    /// The Gateway objects' identities: one that was deleted and made again has another.
    gateway_uids: BTreeMap<String, Value>,
}

impl Scene {
    /// The first gateway starts while the broker is away, and with nothing remembered; then that comes.
    fn start_without_broker() -> Self {
        let fleet = Fleet::new(1).unwrap();
        let server = &fleet.lab.cluster("east").server;
        let own = [0, 1].map(|_| Faults::before(server).unwrap());
        let broker = Faults::before(&fleet.lab.broker).unwrap();
        let admin = fleet.lab.broker.client();
        for (plural, object) in [("clusters", far_cluster()), ("endpoints", far_endpoint())] {
            admin.post(&Place::Broker.path(plural), &object).unwrap();
        }
        let mut scene = Self { fleet, own, broker, gateway_uids: BTreeMap::new() };
        scene.refuse_broker();
        scene.start(0, None);
        scene.fleet.wait_active("east", 0).unwrap();
        scene.wait_broker_away(0);
        assert!(scene.seen(0).connections.is_empty());
        scene.fleet.wait_endpoint("east", 0, Place::Cluster("east")).unwrap();
        assert!(scene.fleet.endpoints("west", Place::Cluster("east")).unwrap().is_empty());

        scene.broker.set(Mode::Pass).unwrap();
        scene.wait_calm(0);
        scene.fleet.wait_endpoint("east", 0, Place::Broker).unwrap();
        scene
    }

    /// A gateway that comes back without a broker goes on with what its state directory says.
    fn restart_without_broker(&mut self) {
        self.refuse_broker();
        self.fleet.take("east", 0).kill().unwrap();
        self.start(0, None);
        self.wait_broker_away(0);
        self.wait(0, "what was known of the other cluster", |seen| {
            seen.ha_status == HaStatus::Active && seen.connections.len() == 1
        });
        self.broker.set(Mode::Pass).unwrap();
        self.wait_calm(0);
    }

    /// The Lease is deleted and given away, and all the while the broker is stopped.
    fn lease_is_edited_while_the_broker_is_away(&mut self) {
        self.fleet.lab.broker.kill().unwrap();
        self.wait_broker_away(0);
        let before = self.seen(0);
        assert!(self.east().delete(LEASE).unwrap());
        let identity = &before.election.as_ref().unwrap().identity;
        let lease =
            self.east().wait(LEASE, TIMEOUT, |lease| lease["spec"]["holderIdentity"] == identity.as_str());
        assert_eq!(lease.unwrap()["spec"]["leaseTransitions"], term(&before));
        assert_eq!(led(&self.seen(0)), led(&before), "whoever led goes on in the same term");

        let before = term(&before);
        let somebody = json!({"spec": {"holderIdentity": "somebody", "leaseTransitions": before + 1}});
        self.east().patch(LEASE, &somebody).unwrap();
        self.wait(0, "the leader to step down", |seen| {
            seen.ha_status == HaStatus::Passive
                && seen.election.as_ref().is_some_and(|election| election.holder == "somebody")
                && seen.broker.state == BrokerLink::Standby
        });
        self.wait(0, "the holder who does not renew to be followed", |seen| {
            seen.ha_status == HaStatus::Active && term(seen) > before + 1
        });
        self.wait_broker_away(0);
        self.fleet.lab.broker.restart().unwrap();
        self.wait_calm(0);
    }

    fn second_gateway_with_a_clock_that_is_behind(&mut self) {
        self.start(1, Some(30));
        self.fleet.wait_gateway("east", 1, |status| status["haStatus"] == "passive").unwrap();
        let behind = self.stamp(0) - self.stamp(1);
        assert!((20..=40).contains(&behind), "the clock is {behind} s behind");
        self.gateway_uids = self.uids();
        assert_eq!(self.gateway_uids.len(), 2);
    }

    /// Again and again somebody else writes the objects that our leader writes.
    fn others_write_the_same_objects(&mut self) {
        let endpoint = self.fleet.wait_endpoint("east", 0, Place::Cluster("east")).unwrap();
        let path = |plural: &str, name: &str| format!("{}/{name}", Place::Cluster("east").path(plural));
        let gateway = &self.fleet.lab.gateway_node("east", 0).name;
        let endpoint = endpoint["metadata"]["name"].as_str().unwrap();
        let paths = [path("endpoints", endpoint), path("gateways", gateway), LEASE.to_owned()];
        let (before, requests) = (self.seen(0), self.requests());
        let stamp = self.stamp(0);
        let mut round = 0;
        // Until the leader has written its Gateway object twice, whatever the machine is busy with.
        eventually("two heartbeats between others' writes", TIMEOUT, || {
            round += 1;
            let note = json!({"metadata": {"annotations": {"example.com/round": round.to_string()}}});
            for path in &paths {
                self.east().patch(path, &note)?;
            }
            anyhow::ensure!(self.stamp(0) >= stamp + 10, "the last is of {}, was of {stamp}", self.stamp(0));
            Ok(())
        })
        .unwrap();
        let after = self.seen(0);
        assert_eq!(led(&after), led(&before), "{:#?}", after.election);
        // Renewals and heartbeats, each of which somebody may have been faster than; an Endpoint that has a foreign
        // annotation is as good as before.
        let (writes, seconds) = (self.writes_since(&requests), u64::try_from(self.stamp(0) - stamp).unwrap());
        assert!(writes <= 6 * (seconds + 2), "{writes} writes in {seconds} s against {round} rounds");
        for path in &paths {
            let object = self.east().get(path).unwrap();
            assert_eq!(
                object["metadata"]["annotations"]["example.com/round"],
                round.to_string(),
                "{object:#}"
            );
        }
    }

    fn watches_are_cut(&mut self) {
        let (before, requests) = (self.seen(0), self.requests());
        for _ in 0..6 {
            for relay in self.own.iter().chain([&self.broker]) {
                let accepted = relay.accepted();
                relay.cut();
                eventually("a new connection", TIMEOUT, || {
                    anyhow::ensure!(relay.accepted() > accepted, "there were {accepted}, and none since");
                    Ok(())
                })
                .unwrap();
            }
        }
        self.changes_are_seen(0);
        self.wait_calm(0);
        assert_eq!(led(&self.seen(0)), led(&before));
        // Two gateways, each with a dozen watches that are opened again, listed again at worst; and what they do anyway.
        let asked = self.requests_since(&requests);
        assert!(asked < 600, "{asked} requests");
    }

    fn connections_hang(&mut self) {
        let before = self.seen(0);
        self.own[0].freeze();
        self.broker.freeze();
        self.changes_are_seen(0);
        self.wait_calm(0);
        let after = self.seen(0);
        // A request gets six seconds, and after ten without a renewal a gateway gives up leading: what is left for a new connection
        // is too little where other tests keep the machine busy. Nobody else has led then: the term is the same.
        let since = |led: Option<(bool, i64, Option<String>)>| {
            led.map(|(is_leader, term, since)| (is_leader, term, since.filter(|_| guard::is_alone())))
        };
        assert_eq!(since(led(&after)), since(led(&before)), "{:#?}", after.events);
    }

    fn server_is_stopped(&mut self) {
        self.fleet.lab.cluster_mut("east").server.kill().unwrap();
        for index in [0, 1] {
            self.wait(index, "nobody to lead without a server", |seen| {
                seen.ha_status == HaStatus::Passive
                    && is_explained(&seen.store)
                    && has_condition(seen, "StoreAway")
                    && seen.election.as_ref().is_some_and(|election| election.error.is_some())
            });
        }
        // The server comes with an empty watch cache: watches that resume hear 410 Gone.
        self.fleet.lab.cluster_mut("east").server.restart().unwrap();
        let leader = self.leader();
        self.wait_calm(leader);
        self.fleet.wait_gateway("east", leader, |status| status["haStatus"] == "active").unwrap();
        // The server counts from its start.
        let asked = self.requests_since(&BTreeMap::new());
        assert!(asked < 600, "{asked} requests");
        // Every timestamp is old after an outage, and every object is still the one that it was.
        for index in [0, 1] {
            let before = self.stamp(index);
            eventually("another heartbeat", TIMEOUT, || {
                anyhow::ensure!(self.stamp(index) > before, "it is of {before}");
                Ok(())
            })
            .unwrap();
        }
        assert_eq!(self.uids(), self.gateway_uids, "Gateway objects have been deleted");
    }

    fn token_expires(&mut self) {
        let leader = self.leader();
        let pid = self.seen(leader).pid;
        self.fleet.lab.revoke_broker_tokens("east").unwrap();
        // Requests that are under way are not asked again: a new connection is.
        eventually("the token to be refused", TIMEOUT, || {
            self.broker.cut();
            let seen = self.seen(leader);
            let text = seen.broker.error.clone().unwrap_or_default();
            anyhow::ensure!(is_explained(&seen.broker) && text.contains("credentials"), "{:?}", seen.broker);
            Ok(())
        })
        .unwrap();
        self.write_broker_secrets();
        self.wait_calm(leader);
        assert_eq!(self.seen(leader).pid, pid);
    }

    fn authority_is_replaced(&mut self) {
        let leader = self.leader();
        self.fleet.lab.broker.replace_authority().unwrap();
        self.wait(leader, "the authority to be unknown", |seen| {
            is_explained(&seen.broker)
                && seen.broker.error.as_ref().is_some_and(|error| error.contains("authority"))
        });
        self.write_broker_secrets();
        self.wait_calm(leader);
    }

    /// Back and forth between a clock that is right and one that is 30 s behind; one process leads twice.
    fn gateway_label_is_removed_and_restored(&mut self) {
        for _ in 0..2 {
            let leader = self.leader();
            let other = 1 - leader;
            let node = self.fleet.lab.gateway_node("east", leader).name.clone();
            objects::label_gateway(self.east(), &node, None).unwrap();
            self.wait(other, "the other to lead", |seen| seen.ha_status == HaStatus::Active);
            self.wait(leader, "the node's gateway to stand back", |seen| {
                seen.ha_status == HaStatus::Passive && has_condition(seen, "NotAGatewayNode")
            });
            self.fleet.wait_endpoint("east", other, Place::Broker).unwrap();
            self.wait_calm(other);
            objects::label_gateway(self.east(), &node, Some("true")).unwrap();
            self.wait(leader, "the label to count again", |seen| !has_condition(seen, "NotAGatewayNode"));
        }
        assert_eq!(self.uids(), self.gateway_uids, "Gateway objects have been deleted");
    }

    /// The leader cannot reach the server and everybody else can.
    fn leader_alone_has_no_server(&mut self) {
        let leader = self.leader();
        self.own[leader].set(Mode::Refuse).unwrap();
        self.own[leader].cut();
        self.wait(1 - leader, "the other to lead", |seen| seen.ha_status == HaStatus::Active);
        self.wait(leader, "the leader to step down", |seen| seen.ha_status == HaStatus::Passive);
        self.fleet.wait_endpoint("east", 1 - leader, Place::Broker).unwrap();
        self.own[leader].set(Mode::Pass).unwrap();
        self.fleet.wait_gateway("east", leader, |status| status["haStatus"] == "passive").unwrap();
    }

    fn leader_is_killed(&mut self) {
        let leader = self.leader();
        self.fleet.take("east", leader).kill().unwrap();
        self.wait(1 - leader, "the other to lead", |seen| seen.ha_status == HaStatus::Active);
        self.fleet.wait_endpoint("east", 1 - leader, Place::Broker).unwrap();
    }
}

/// Questions and tools.
impl Scene {
    /// Starts a gateway that reaches both servers through relays, on a node whose clock may be behind by so many seconds.
    /// Timers are not: only what the clock shows.
    fn start(&mut self, index: usize, behind: Option<u32>) {
        let mut settings = self.fleet.lab.settings("east", index).unwrap();
        let mut set = |name: &str, value: String| drop(settings.insert(name.to_owned(), value));
        set("KUBERNETES_SERVICE_PORT", self.own[index].address().port().to_string());
        set("BROKER_K8S_APISERVER", self.broker.server());
        if let Some(seconds) = behind {
            set("LD_PRELOAD", clock::library().unwrap());
            set("FAKETIME", format!("-{seconds}s"));
            set("FAKETIME_DONT_FAKE_MONOTONIC", "1".to_owned());
        }
        self.fleet.start_with("east", index, &settings).unwrap();
    }

    /// Takes the broker away, old connections included.
    fn refuse_broker(&mut self) {
        self.broker.set(Mode::Refuse).unwrap();
        self.broker.cut();
    }

    fn east(&self) -> &Client {
        self.fleet.lab.cluster("east").server.client()
    }

    fn seen(&self, index: usize) -> GatewayStatus {
        seen(self.fleet.gateway("east", index)).unwrap()
    }

    fn wait(&self, index: usize, what: &str, is_good: impl Fn(&GatewayStatus) -> bool) {
        let pod = self.fleet.gateway("east", index);
        eventually(what, TIMEOUT, || {
            let seen = seen(pod)?;
            anyhow::ensure!(is_good(&seen), "{}", shown(&seen));
            Ok(())
        })
        .unwrap();
    }

    fn wait_broker_away(&self, index: usize) {
        self.wait(index, "the broker to be away", |seen| {
            is_explained(&seen.broker) && seen.broker.next_try.is_some() && has_condition(seen, "BrokerAway")
        });
    }

    /// Waits until this gateway leads, everything is in step, and nothing is wrong any more.
    fn wait_calm(&self, leader: usize) {
        self.wait(leader, "the leader to be calm", |seen| {
            seen.ha_status == HaStatus::Active
                && seen.store.state == BrokerLink::Synced
                && seen.broker.state == BrokerLink::Synced
                && !["StoreAway", "BrokerAway", "NotAnnounced"].iter().any(|name| has_condition(seen, name))
                && seen.connections.len() == 1
        });
    }

    /// A change from now on arrives, whatever became of the watches.
    fn changes_are_seen(&self, index: usize) {
        let node = objects::node_path(&self.fleet.lab.gateway_node("east", index).name);
        for (value, is_wrong) in [(Some("4501"), true), (None, false)] {
            let change = json!({"metadata": {"annotations": {"gateway.submariner.io/udp-porto": value}}});
            self.east().patch(&node, &change).unwrap();
            self.wait(index, "the Node's change to be seen", |seen| {
                has_condition(seen, "UnknownNodeSetting") == is_wrong
            });
        }
    }

    /// Which of the gateways leads; there is exactly one.
    fn leader(&self) -> usize {
        eventually("one gateway of two to lead", TIMEOUT, || {
            let leaders = [0, 1].map(|index| self.seen(index).ha_status == HaStatus::Active);
            anyhow::ensure!(leaders[0] != leaders[1], "{leaders:?}");
            Ok(usize::from(leaders[1]))
        })
        .unwrap()
    }

    fn uids(&self) -> BTreeMap<String, Value> {
        let gateways = self.fleet.lab.cluster("east").objects("gateways").unwrap();
        let name = |gateway: &Value| gateway["metadata"]["name"].as_str().unwrap().to_owned();
        gateways.iter().map(|gateway| (name(gateway), gateway["metadata"]["uid"].clone())).collect()
    }

    /// When a gateway says that it has written its Gateway object, in seconds by its own clock.
    fn stamp(&self, index: usize) -> i64 {
        let name = &self.fleet.lab.gateway_node("east", index).name;
        let object = self.east().get(&format!("{}/{name}", Place::Cluster("east").path("gateways"))).unwrap();
        object["metadata"]["annotations"]["update-timestamp"].as_str().unwrap().parse().unwrap()
    }

    fn requests(&self) -> BTreeMap<(String, String), u64> {
        requests(&self.fleet.lab.cluster("east").server)
    }

    /// What the gateways have written: the test itself patches.
    fn writes_since(&self, before: &BTreeMap<(String, String), u64>) -> u64 {
        let writes = ["PUT", "POST", "DELETE"];
        since(&self.requests(), before, |verb| writes.contains(&verb))
    }

    fn requests_since(&self, before: &BTreeMap<(String, String), u64>) -> u64 {
        since(&self.requests(), before, |verb| verb != "PATCH")
    }

    /// Both gateways' access to the broker, with a token that is good.
    fn write_broker_secrets(&self) {
        let token = self.fleet.lab.broker_token("east").unwrap();
        for index in [0, 1] {
            let files = self.fleet.lab.gateway_files("east", index).unwrap();
            let broker = &self.fleet.lab.broker;
            broker.write_credentials(&files.secret(BROKER_SECRET), BROKER_NAMESPACE, &token).unwrap();
        }
    }
}

fn metadata(name: &str) -> Value {
    json!({"name": name, "namespace": BROKER_NAMESPACE, "labels": {"submariner-io/clusterID": "west"}})
}

fn far_cluster() -> Value {
    json!({"apiVersion": "submariner.io/v1", "kind": "Cluster", "metadata": metadata("west"),
        "spec": {"cluster_id": "west", "color_codes": ["blue"], "cluster_cidr": ["10.2.0.0/16"],
            "service_cidr": ["10.102.0.0/16"], "global_cidr": []}})
}

fn far_endpoint() -> Value {
    json!({"apiVersion": "submariner.io/v1", "kind": "Endpoint", "metadata": metadata("west-gw1"),
        "spec": {"cluster_id": "west", "cable_name": "submariner-cable-west-172-31-2-1", "hostname": "west-gw1",
            "subnets": ["10.102.0.0/16", "10.2.0.0/16"], "private_ip": "172.31.2.1", "public_ip": "",
            "nat_enabled": false, "healthCheckIP": "", "backend": "wireguard",
            "backend_config": {"udp-port": "4500", "natt-discovery-port": "0",
                "publicKey": "QUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUE="}}})
}

/// What `trieste status` says.
fn seen(pod: &GatewayPod) -> anyhow::Result<GatewayStatus> {
    Ok(serde_json::from_str(&pod.trieste(&["status", "--output", "json"])?.stdout()?)?)
}

/// What matters here of what is seen.
fn shown(seen: &GatewayStatus) -> String {
    let GatewayStatus { ha_status, broker, store, election, conditions, events, connections, .. } = seen;
    let cables: Vec<_> = connections.iter().map(|cable| &cable.connection.status).collect();
    format!(
        "{ha_status:?}, {cables:?}, broker {broker:#?}, store {store:#?}, {election:#?}, {conditions:#?}, {events:#?}"
    )
}

/// Whether it is said that a store is away, since when and why.
fn is_explained(store: &BrokerStatus) -> bool {
    store.state == BrokerLink::Away
        && store.since.is_some()
        && store.error.as_ref().is_some_and(|error| !error.is_empty())
}

fn has_condition(seen: &GatewayStatus, name: &str) -> bool {
    seen.conditions.iter().any(|condition| condition.name == name)
}

fn term(seen: &GatewayStatus) -> i64 {
    seen.election.as_ref().map_or(0, |election| election.term)
}

/// Whether a gateway leads, in which term, and since when: any flap changes it.
fn led(seen: &GatewayStatus) -> Option<(bool, i64, Option<String>)> {
    let election = seen.election.as_ref()?;
    Some((election.is_leader, election.term, election.since.map(|since| since.to_string())))
}

fn requests(server: &ApiServer) -> BTreeMap<(String, String), u64> {
    server.requests().unwrap()
}

/// Requests about what gateways read and write.
fn since(
    now: &BTreeMap<(String, String), u64>,
    before: &BTreeMap<(String, String), u64>,
    counts: impl Fn(&str) -> bool,
) -> u64 {
    let kinds = ["leases", "gateways", "endpoints", "clusters", "nodes", "pods", "events"];
    let asked = now.iter().filter(|((verb, kind), _)| counts(verb) && kinds.contains(&kind.as_str()));
    asked.map(|(key, count)| count - before.get(key).copied().unwrap_or_default()).sum()
}
