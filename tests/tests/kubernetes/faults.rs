//! Everything that can happen to control traffic, with packets passing all the while: what each fault costs, and what
//! an operator sees of it.
//!
//! One lab for all of it: `east` with two gateways, `west` with one, a relay before every API server. A table is printed
//! at the end. `TRIESTE_LONG_FAULTS=1` lets the broker be away for ten minutes instead of one.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use trieste_control::admin::{BrokerLink, BrokerStatus, GatewayStatus};
use trieste_control::api::HaStatus;
use trieste_tests::cluster::BROKER_NAMESPACE;
use trieste_tests::guard::root_test;
use trieste_tests::kubernetes::{
    ApiServer, BROKER_SECRET, Client, Cost, Flow, GatewayPod, Mark, Mode, Place, RelayedFleet, objects,
};
use trieste_tests::wait::eventually;

/// How long anything may take that is not measured.
const TIMEOUT: Duration = Duration::from_secs(45);

/// How often a packet is sent.
const INTERVAL: Duration = Duration::from_millis(10);

/// How long API servers are away.
const OUTAGE: Duration = Duration::from_secs(60);

/// Ours: the slower of the two back-offs towards a broker ends at ten seconds.
const RETURN: Duration = Duration::from_secs(25);

const LEASE: &str =
    "/apis/coordination.k8s.io/v1/namespaces/submariner-operator/leases/submariner-gateway-lock";

#[test]
fn no_packet_is_lost_on_a_healthy_path_while_control_traffic_is_broken() {
    let Some(_turn) = root_test("no_packet_is_lost_on_a_healthy_path_while_control_traffic_is_broken") else {
        return;
    };
    let mut scene = Scene::start_without_broker();

    scene.restart_without_broker();
    scene.broker_is_away_while_the_server_is_slow_and_the_lease_is_edited();
    scene.second_gateway_with_a_clock_that_is_behind();
    scene.others_write_the_same_objects();
    scene.watches_are_cut();
    scene.server_is_stopped_while_the_others_connections_hang_and_a_token_expires();
    scene.authority_is_replaced();
    scene.gateway_label_is_removed_and_restored();
    scene.leader_is_killed();

    scene.finish();
}

/// What a fault may cost.
#[derive(Clone, Copy)]
enum Allowed {
    /// Nothing: only control traffic is broken.
    Nothing,
    /// The path is another one afterwards: no longer than this without a packet.
    Gap(Duration),
}

/// A line of the table.
struct Row {
    fault: String,
    cost: Option<Cost>,
    note: String,
}

/// The lab, the flow through it, and what was found out.
struct Scene {
    flow: Flow,
    bed: RelayedFleet,
    rows: Vec<Row>,
    violations: Vec<String>,
    /// The Gateway objects' identities: one that was deleted and made again has another.
    gateway_uids: BTreeMap<String, Value>,
}

impl Scene {
    /// Both clusters' first gateways start while the broker is away, and with nothing remembered; then it comes.
    fn start_without_broker() -> Self {
        let mut bed = RelayedFleet::new().unwrap();
        bed.refuse_broker().unwrap();
        for cluster in ["east", "west"] {
            bed.start(cluster, 0).unwrap();
        }
        for cluster in ["east", "west"] {
            bed.fleet.wait_active(cluster, 0).unwrap();
            wait_seen(bed.fleet.gateway(cluster, 0), "the broker to be away", |seen| {
                is_explained(&seen.broker)
                    && seen.broker.next_try.is_some()
                    && has_condition(seen, "BrokerAway")
                    && seen.connections.is_empty()
            });
            bed.fleet.wait_endpoint(cluster, 0, Place::Cluster(cluster)).unwrap();
        }
        assert!(bed.fleet.endpoints("west", Place::Cluster("east")).unwrap().is_empty());

        bed.broker.set(Mode::Pass).unwrap();
        let start = Instant::now();
        let (from, to) = (bed.fleet.worker_pod("east").clone(), bed.fleet.worker_pod("west").clone());
        let flow = Flow::start(&from, &to, INTERVAL, TIMEOUT).unwrap();
        let note = format!("packets pass {:.1} s after the broker came", start.elapsed().as_secs_f64());
        let rows = vec![Row { fault: "broker away before the start".to_owned(), cost: None, note }];
        let scene = Self { flow, bed, rows, violations: Vec::new(), gateway_uids: BTreeMap::new() };
        scene.wait_calm(&[("east", 0), ("west", 0)]);
        scene
    }

    /// A gateway that comes back without a broker carries traffic with what its state directory says.
    fn restart_without_broker(&mut self) {
        let mark = self.flow.mark();
        self.bed.refuse_broker().unwrap();
        self.bed.fleet.take("west", 0).kill().unwrap();
        self.bed.start("west", 0).unwrap();
        self.flow.wait_through(TIMEOUT).unwrap();
        self.wait("west", 0, "the broker to be away", |seen| {
            seen.ha_status == HaStatus::Active && is_explained(&seen.broker)
        });
        // A second in which another one is started and reads a kilobyte; the rest is the machine's.
        self.close("killed and started again, broker away", mark, Allowed::Gap(Duration::from_secs(4)));
        self.bed.broker.set(Mode::Pass).unwrap();
        self.wait_calm(&[("east", 0), ("west", 0)]);
    }

    /// One cluster's own server answers after five seconds, its Lease is deleted and given away, and all the while the
    /// broker is away.
    fn broker_is_away_while_the_server_is_slow_and_the_lease_is_edited(&mut self) {
        let is_long = std::env::var_os("TRIESTE_LONG_FAULTS").is_some_and(|value| value == "1");
        let outage = if is_long { Duration::from_secs(600) } else { OUTAGE };
        let (mark, start) = (self.flow.mark(), Instant::now());
        self.bed.fleet.lab.broker.kill().unwrap();
        for cluster in ["east", "west"] {
            self.wait(cluster, 0, "the broker to be away", |seen| {
                is_explained(&seen.broker)
                    && seen.broker.next_try.is_some()
                    && has_condition(seen, "BrokerAway")
            });
        }

        self.server_is_slow();
        self.lease_is_deleted();
        self.lease_is_given_away();

        std::thread::sleep(outage.saturating_sub(start.elapsed()));
        self.wait("east", 0, "the broker to be away still", |seen| is_explained(&seen.broker));
        self.bed.fleet.lab.broker.restart().unwrap();
        let back = Instant::now();
        self.wait_calm(&[("east", 0), ("west", 0)]);
        self.note(&format!("broker stopped for {} s", outage.as_secs()), back, mark);
    }

    fn server_is_slow(&mut self) {
        let before = self.seen("east", 0);
        let mark = self.flow.mark();
        self.bed.east.set(Mode::Delay(Duration::from_secs(5))).unwrap();
        std::thread::sleep(Duration::from_secs(22));
        let during = self.seen("east", 0);
        self.bed.east.set(Mode::Pass).unwrap();
        assert_eq!(led(&during), led(&before), "{:#?}", during.election);
        assert_eq!(during.store.state, BrokerLink::Synced, "{:?}", during.store);
        self.close("API server answers after 5 s (broker away)", mark, Allowed::Nothing);
    }

    fn lease_is_deleted(&mut self) {
        let before = self.seen("east", 0);
        let mark = self.flow.mark();
        assert!(self.east().delete(LEASE).unwrap());
        let identity = &before.election.as_ref().unwrap().identity;
        let lease =
            self.east().wait(LEASE, TIMEOUT, |lease| lease["spec"]["holderIdentity"] == identity.as_str());
        assert_eq!(lease.unwrap()["spec"]["leaseTransitions"], term(&before));
        std::thread::sleep(Duration::from_secs(3));
        assert_eq!(led(&self.seen("east", 0)), led(&before), "whoever led goes on in the same term");
        self.close("Lease deleted by hand (broker away)", mark, Allowed::Nothing);
    }

    fn lease_is_given_away(&mut self) {
        let before = term(&self.seen("east", 0));
        let mark = self.flow.mark();
        let somebody = json!({"spec": {"holderIdentity": "somebody", "leaseTransitions": before + 1}});
        self.east().patch(LEASE, &somebody).unwrap();
        self.wait("east", 0, "the leader to step down", |seen| {
            seen.ha_status == HaStatus::Passive
                && seen.election.as_ref().is_some_and(|election| election.holder == "somebody")
                && seen.broker.state == BrokerLink::Standby
        });
        self.wait("east", 0, "the holder who does not renew to be followed", |seen| {
            seen.ha_status == HaStatus::Active && term(seen) > before + 1
        });
        self.close("Lease given away by hand (broker away)", mark, Allowed::Nothing);
    }

    fn second_gateway_with_a_clock_that_is_behind(&mut self) {
        let mark = self.flow.mark();
        self.bed.start_behind("east", 1, 30).unwrap();
        let is_passive = |status: &Value| status["haStatus"] == "passive";
        self.bed.fleet.wait_gateway("east", 1, is_passive).unwrap();
        let stamp = |index| {
            let name = &self.bed.fleet.lab.gateway_node("east", index).name;
            let object =
                self.east().get(&format!("{}/{name}", Place::Cluster("east").path("gateways"))).unwrap();
            let text = object["metadata"]["annotations"]["update-timestamp"].as_str().unwrap().to_owned();
            text.parse::<i64>().unwrap()
        };
        let behind = stamp(0) - stamp(1);
        assert!((20..=40).contains(&behind), "the clock is {behind} s behind");
        self.gateway_uids = self.uids();
        self.close("second gateway, its clock 30 s behind", mark, Allowed::Nothing);
    }

    /// Every tenth of a second somebody else writes the objects that our leader writes.
    fn others_write_the_same_objects(&mut self) {
        let endpoint = self.bed.fleet.wait_endpoint("east", 0, Place::Cluster("east")).unwrap();
        let path = |plural: &str, name: &str| format!("{}/{name}", Place::Cluster("east").path(plural));
        let gateway = &self.bed.fleet.lab.gateway_node("east", 0).name;
        let endpoint = endpoint["metadata"]["name"].as_str().unwrap();
        let paths = [path("endpoints", endpoint), path("gateways", gateway), LEASE.to_owned()];
        let before = self.seen("east", 0);
        let requests = self.requests();
        let (mark, start) = (self.flow.mark(), Instant::now());
        let mut round = 0;
        while start.elapsed() < Duration::from_secs(10) {
            round += 1;
            let note = json!({"metadata": {"annotations": {"example.com/round": round.to_string()}}});
            for path in &paths {
                self.east().patch(path, &note).unwrap();
            }
            std::thread::sleep(Duration::from_millis(70));
        }
        let after = self.seen("east", 0);
        assert_eq!(led(&after), led(&before), "{:#?}", after.election);
        let writes = self.writes_since(&requests);
        // In ten seconds: five renewals, four heartbeats, each of which somebody may have been faster than; an Endpoint that
        // has a foreign annotation is as good as before.
        assert!(writes <= 60, "{writes} writes in 10 s against {round} rounds");
        for path in &paths {
            let object = self.east().get(path).unwrap();
            assert_eq!(
                object["metadata"]["annotations"]["example.com/round"],
                round.to_string(),
                "{object:#}"
            );
        }
        let fault = format!("{round} rounds of conflicting writes");
        self.close(&fault, mark, Allowed::Nothing);
        self.last_note(format!("{writes} writes of ours"));
    }

    fn watches_are_cut(&mut self) {
        let before = self.seen("east", 0);
        let requests = self.requests();
        let (mark, start) = (self.flow.mark(), Instant::now());
        for _ in 0..6 {
            for relay in [&self.bed.east, &self.bed.west, &self.bed.broker] {
                relay.cut();
            }
            std::thread::sleep(Duration::from_secs(1));
        }
        // A change from now on arrives, whatever became of the watches.
        let node = objects::node_path(&self.bed.fleet.lab.gateway_node("east", 0).name);
        let annotation = |value: Option<&str>| json!({"metadata": {"annotations": {"gateway.submariner.io/udp-porto": value}}});
        self.east().patch(&node, &annotation(Some("4501"))).unwrap();
        self.wait("east", 0, "the Node's change to be seen", |seen| {
            has_condition(seen, "UnknownNodeSetting")
        });
        self.east().patch(&node, &annotation(None)).unwrap();
        self.wait("east", 0, "the Node's change back to be seen", |seen| {
            !has_condition(seen, "UnknownNodeSetting")
        });
        self.wait_calm(&[("east", 0), ("west", 0)]);
        assert_eq!(led(&self.seen("east", 0)), led(&before));
        let asked = self.requests_since(&requests);
        // Two gateways, each with a dozen watches that are opened again, listed again at worst; and what they do anyway.
        assert!(asked < 400, "{asked} requests in {:?}", start.elapsed());
        self.close("all connections cut, 6 times", mark, Allowed::Nothing);
        self.last_note(format!("{asked} requests"));
    }

    /// `east` is without its server; `west` meanwhile has connections that hang, and a token that dies.
    fn server_is_stopped_while_the_others_connections_hang_and_a_token_expires(&mut self) {
        let (mark, start) = (self.flow.mark(), Instant::now());
        self.bed.fleet.lab.cluster_mut("east").server.kill().unwrap();
        for index in [0, 1] {
            self.wait("east", index, "nobody to lead without a server", |seen| {
                seen.ha_status == HaStatus::Passive
                    && is_explained(&seen.store)
                    && has_condition(seen, "StoreAway")
                    && seen.election.as_ref().is_some_and(|election| election.error.is_some())
            });
        }
        let stepped_down = start.elapsed();
        assert!(stepped_down < Duration::from_secs(20), "after {stepped_down:?}");

        self.connections_hang();
        self.token_expires();

        std::thread::sleep(OUTAGE.saturating_sub(start.elapsed()));
        for index in [0, 1] {
            self.wait("east", index, "the store to be away still", |seen| is_explained(&seen.store));
        }
        // The server comes with an empty watch cache: watches that resume hear 410 Gone.
        self.bed.fleet.lab.cluster_mut("east").server.restart().unwrap();
        let back = Instant::now();
        self.wait_one_leader();
        let leader = self.leader();
        self.wait_calm(&[("east", leader), ("west", 0)]);
        self.bed
            .fleet
            .wait_gateway("east", leader, |status| {
                status["haStatus"] == "active" && status["connections"][0]["status"] == "connected"
            })
            .unwrap();
        let calm = back.elapsed();
        // The server counts from its start.
        let asked = self.requests_since(&BTreeMap::new());
        assert!(asked < 400, "{asked} requests in the first {calm:?}");
        self.close("API server stopped for 60 s, then 410 Gone", mark, Allowed::Nothing);
        self.last_note(format!("well again after {:.1} s, {asked} requests", calm.as_secs_f64()));
        // Every timestamp is old after an outage, and every object is still the one that it was.
        std::thread::sleep(Duration::from_secs(6));
        assert_eq!(self.uids(), self.gateway_uids, "Gateway objects have been deleted");
    }

    fn connections_hang(&mut self) {
        let before = self.seen("west", 0);
        let mark = self.flow.mark();
        self.bed.west.freeze();
        self.bed.broker.freeze();
        let node = objects::node_path(&self.bed.fleet.lab.gateway_node("west", 0).name);
        let change = json!({"metadata": {"annotations": {"gateway.submariner.io/udp-porto": "1"}}});
        self.bed.fleet.lab.cluster("west").server.client().patch(&node, &change).unwrap();
        self.wait("west", 0, "what happened meanwhile to be seen", |seen| {
            has_condition(seen, "UnknownNodeSetting")
        });
        self.wait_calm(&[("west", 0)]);
        let after = self.seen("west", 0);
        assert_eq!(led(&after), led(&before), "{:#?}", after.events);
        self.close("connections hang for good (other cluster)", mark, Allowed::Nothing);
    }

    fn token_expires(&mut self) {
        let mark = self.flow.mark();
        let pid = self.seen("west", 0).pid;
        self.bed.fleet.lab.revoke_broker_tokens("west").unwrap();
        // Requests that are under way are not asked again: a new connection is.
        eventually("the token to be refused", TIMEOUT, || {
            self.bed.broker.cut();
            std::thread::sleep(Duration::from_secs(1));
            let seen = self.seen("west", 0);
            let text = seen.broker.error.clone().unwrap_or_default();
            anyhow::ensure!(is_explained(&seen.broker) && text.contains("credentials"), "{:?}", seen.broker);
            Ok(())
        })
        .unwrap();
        let token = self.bed.fleet.lab.broker_token("west").unwrap();
        let back = Instant::now();
        self.write_broker_secret("west", 0, &token);
        self.wait_calm(&[("west", 0)]);
        assert_eq!(self.seen("west", 0).pid, pid);
        self.note("token of the broker expired and replaced", back, mark);
    }

    fn authority_is_replaced(&mut self) {
        let mark = self.flow.mark();
        let leader = self.leader();
        self.bed.fleet.lab.broker.replace_authority().unwrap();
        for (cluster, index) in [("east", leader), ("west", 0)] {
            self.wait(cluster, index, "the authority to be unknown", |seen| {
                is_explained(&seen.broker)
                    && seen.broker.error.as_ref().is_some_and(|error| error.contains("authority"))
            });
        }
        let back = Instant::now();
        for (cluster, index) in [("east", 0), ("east", 1), ("west", 0)] {
            let token = self.bed.fleet.lab.broker_token(cluster).unwrap();
            self.write_broker_secret(cluster, index, &token);
        }
        self.wait_calm(&[("east", leader), ("west", 0)]);
        self.note("authority of the broker replaced", back, mark);
    }

    /// Back and forth between a clock that is right and one that is 30 s behind.
    fn gateway_label_is_removed_and_restored(&mut self) {
        for _ in 0..2 {
            let (leader, other) = (self.leader(), 1 - self.leader());
            let node = self.bed.fleet.lab.gateway_node("east", leader).name.clone();
            let (mark, start) = (self.flow.mark(), Instant::now());
            objects::label_gateway(self.east(), &node, None).unwrap();
            self.wait("east", other, "the other to lead", |seen| seen.ha_status == HaStatus::Active);
            let took = start.elapsed();
            self.wait("east", leader, "the node's gateway to stand back", |seen| {
                seen.ha_status == HaStatus::Passive && has_condition(seen, "NotAGatewayNode")
            });
            self.bed.fleet.wait_endpoint("east", other, Place::Cluster("west")).unwrap();
            self.wait_calm(&[("east", other), ("west", 0)]);
            objects::label_gateway(self.east(), &node, Some("true")).unwrap();
            self.wait("east", leader, "the label to count again", |seen| {
                !has_condition(seen, "NotAGatewayNode")
            });
            let calm = start.elapsed();
            let clocks = if leader == 0 { "to the late clock" } else { "from the late clock" };
            self.close(
                &format!("gateway label removed, {clocks}"),
                mark,
                Allowed::Gap(Duration::from_secs(1)),
            );
            self.last_note(format!(
                "the other led after {:.1} s, all calm after {:.1} s",
                took.as_secs_f64(),
                calm.as_secs_f64()
            ));
        }
        assert_eq!(self.uids(), self.gateway_uids, "Gateway objects have been deleted");
    }

    fn leader_is_killed(&mut self) {
        let (leader, other) = (self.leader(), 1 - self.leader());
        let (mark, start) = (self.flow.mark(), Instant::now());
        self.bed.fleet.take("east", leader).kill().unwrap();
        self.wait("east", other, "the other to lead", |seen| seen.ha_status == HaStatus::Active);
        let took = start.elapsed();
        self.flow.wait_through(TIMEOUT).unwrap();
        // The lease duration and a second, and the tick in which it is noticed.
        self.close("leader killed, another standing by", mark, Allowed::Gap(Duration::from_secs(17)));
        self.last_note(format!("the other led after {:.1} s", took.as_secs_f64()));
    }

    fn finish(self) {
        eprintln!(
            "{:<52} {:>8} {:>7} {:>6} {:>12}  remarks",
            "fault", "seconds", "sent", "lost", "longest gap"
        );
        for Row { fault, cost, note } in &self.rows {
            let figures = cost.map_or_else(
                || format!("{:>8} {:>7} {:>6} {:>12}", "-", "-", "-", "-"),
                |cost| {
                    let Cost { took, sent, lost, longest_gap, .. } = cost;
                    format!(
                        "{:>8.1} {sent:>7} {lost:>6} {:>9} ms",
                        took.as_secs_f64(),
                        longest_gap.as_millis()
                    )
                },
            );
            eprintln!("{fault:<52} {figures}  {note}");
        }
        assert!(self.violations.is_empty(), "{}", self.violations.join("\n"));
    }
}

/// Questions and bookkeeping.
impl Scene {
    fn east(&self) -> &Client {
        self.bed.fleet.lab.cluster("east").server.client()
    }

    fn seen(&self, cluster: &str, index: usize) -> GatewayStatus {
        seen(self.bed.fleet.gateway(cluster, index)).unwrap()
    }

    fn wait(&self, cluster: &str, index: usize, what: &str, is_good: impl Fn(&GatewayStatus) -> bool) {
        wait_seen(self.bed.fleet.gateway(cluster, index), what, is_good);
    }

    /// Waits until these gateways lead, everything is in step, and nothing is wrong any more.
    fn wait_calm(&self, leaders: &[(&str, usize)]) {
        for (cluster, index) in leaders {
            let pod = self.bed.fleet.gateway(cluster, *index);
            eventually(&format!("{cluster}'s gateway {index} to be calm"), RETURN, || {
                let seen = seen(pod)?;
                let is_calm = seen.ha_status == HaStatus::Active
                    && seen.store.state == BrokerLink::Synced
                    && seen.broker.state == BrokerLink::Synced
                    && !["StoreAway", "BrokerAway", "NotAnnounced"]
                        .iter()
                        .any(|name| has_condition(&seen, name))
                    && seen.connections.len() == 1
                    && seen.connections[0].connection.status.as_str() == "connected";
                anyhow::ensure!(is_calm, "{}", shown(&seen));
                Ok(())
            })
            .unwrap();
        }
    }

    fn wait_one_leader(&self) {
        eventually("one gateway of two to lead", TIMEOUT, || {
            let leaders = [0, 1].map(|index| self.seen("east", index).ha_status == HaStatus::Active);
            anyhow::ensure!(leaders[0] != leaders[1], "{leaders:?}");
            Ok(())
        })
        .unwrap();
    }

    /// Which of the gateways of `east` leads; there is exactly one.
    fn leader(&self) -> usize {
        self.wait_one_leader();
        usize::from(self.seen("east", 1).ha_status == HaStatus::Active)
    }

    fn uids(&self) -> BTreeMap<String, Value> {
        let gateways = self.bed.fleet.lab.cluster("east").objects("gateways").unwrap();
        let name = |gateway: &Value| gateway["metadata"]["name"].as_str().unwrap().to_owned();
        gateways.iter().map(|gateway| (name(gateway), gateway["metadata"]["uid"].clone())).collect()
    }

    fn requests(&self) -> BTreeMap<(String, String), u64> {
        requests(&self.bed.fleet.lab.cluster("east").server)
    }

    /// What the gateways have written: the test itself patches.
    fn writes_since(&self, before: &BTreeMap<(String, String), u64>) -> u64 {
        let writes = ["PUT", "POST", "DELETE"];
        since(&self.requests(), before, |verb| writes.contains(&verb))
    }

    fn requests_since(&self, before: &BTreeMap<(String, String), u64>) -> u64 {
        since(&self.requests(), before, |verb| verb != "PATCH")
    }

    fn write_broker_secret(&self, cluster: &str, index: usize, token: &str) {
        let files = self.bed.fleet.lab.gateway_files(cluster, index).unwrap();
        let broker = &self.bed.fleet.lab.broker;
        broker.write_credentials(&files.secret(BROKER_SECRET), BROKER_NAMESPACE, token).unwrap();
    }

    /// A line of the table, with the time that it took until everything was well again.
    fn note(&mut self, fault: &str, back: Instant, mark: Mark) {
        let note = format!("well again after {:.1} s", back.elapsed().as_secs_f64());
        self.close(fault, mark, Allowed::Nothing);
        self.last_note(note);
    }

    fn last_note(&mut self, note: String) {
        if let Some(row) = self.rows.last_mut() {
            row.note = note;
        }
    }

    /// Ends a fault: a line of the table, and a complaint if it cost more than it may.
    fn close(&mut self, fault: &str, mark: Mark, allowed: Allowed) {
        let cost = self.flow.since(mark).unwrap();
        let is_fine = match allowed {
            Allowed::Nothing => cost.lost == 0,
            Allowed::Gap(longest) => cost.longest_gap <= longest,
        };
        eprintln!("{fault}: {cost:?}");
        if !is_fine {
            let drops = [("east", 0), ("east", 1), ("west", 0)].map(|(cluster, index)| {
                let path = format!("{cluster} {index}");
                let seen = self.bed.fleet.find(cluster, index).and_then(|pod| seen(pod).ok());
                (path, seen.map(|seen| (seen.drops, seen.conservation)))
            });
            self.violations.push(format!("{fault}: {cost:?}; the gateways say {drops:?}"));
        }
        self.rows.push(Row { fault: fault.to_owned(), cost: Some(cost), note: String::new() });
    }
}

/// What `trieste status` says.
fn seen(pod: &GatewayPod) -> anyhow::Result<GatewayStatus> {
    Ok(serde_json::from_str(&pod.trieste(&["status", "--output", "json"])?.stdout()?)?)
}

fn wait_seen(pod: &GatewayPod, what: &str, is_good: impl Fn(&GatewayStatus) -> bool) {
    eventually(what, TIMEOUT, || {
        let seen = seen(pod)?;
        anyhow::ensure!(is_good(&seen), "{}", shown(&seen));
        Ok(())
    })
    .unwrap();
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
