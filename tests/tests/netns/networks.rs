//! A cluster's networks change while its gateway runs, under traffic of those that stay.
//!
//! ```text
//!   west pod ─▶ west gateway ══ WAN bridge ══ east gateway ─▶ cni0 ─▶ east pod: its own address, and one of a network
//!                                                                     that comes, goes, and is another one
//! ```

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use trieste_tests::capture::Capture;
use trieste_tests::flow::{Flow, Mark};
use trieste_tests::guard::{self, root_test};
use trieste_tests::pair::Pair;
use trieste_tests::topology::{Families, Topology};
use trieste_tests::traffic::{self, Responder};
use trieste_tests::wait::eventually;

const SOON: Duration = Duration::from_secs(30);
/// How often the flow that stays is probed.
const PACE: Duration = Duration::from_millis(10);
/// How soon a new network is reached (issue: 2 s), on a machine that does nothing else.
const REACHED: Duration = Duration::from_secs(2);
/// Networks that come, of both families, and addresses in them.
const EXTRA: &str = "10.77.0.0/24, fd77::/64";
const EXTRA_ADDRESSES: [&str; 2] = ["10.77.0.5", "fd77::5"];
const OTHERS: &str = "10.78.0.0/24, fd78::/64";
const OTHER_ADDRESSES: [&str; 2] = ["10.78.0.5", "fd78::5"];

/// Two clusters, one of which changes.
struct Bed {
    driver: &'static str,
    pair: Pair,
    responder: Responder,
    /// From a pod of west to one of east and back, all the time.
    flow: Flow,
}

impl Bed {
    fn start(driver: &'static str) -> Self {
        let topology = Topology::two_clusters().with_underlay(Families::V4);
        let pair = Pair::connected_with(&topology, &[&format!("cable-driver: {driver}")]).unwrap();
        let (east, west) = (pair.pod_namespace("east"), pair.pod_namespace("west"));
        let node = &pair.east.node().namespace;
        for address in EXTRA_ADDRESSES.iter().chain(&OTHER_ADDRESSES) {
            east.ip(&format!("address add {address} dev eth0 nodad")).unwrap();
            node.ip(&format!("route add {address} dev cni0")).unwrap();
        }
        let responder = Responder::start(east).unwrap();
        let flow = Flow::start(west, (east, pair.pod("east").v4().unwrap()), &[], PACE).unwrap();
        flow.wait_through(SOON).unwrap();
        Self { driver, pair, responder, flow }
    }

    /// Announces these networks beside east's own.
    fn announce(&self, extra: &str) {
        self.pair.east.announce(extra).unwrap();
    }

    /// Asks the pod of east from west's by an address.
    fn ask(&self, address: &str) -> anyhow::Result<()> {
        let to = SocketAddr::new(address.parse().unwrap(), self.responder.port());
        let bytes = traffic::pattern(1000);
        traffic::send_tcp(self.pair.pod_namespace("west"), to, &bytes, Duration::from_millis(500))?
            .check(&bytes)
    }

    /// Waits until all of these answer; returns when the last one did.
    fn wait_reached(&self, addresses: &[&str]) -> Duration {
        let start = Instant::now();
        for address in addresses {
            eventually(&format!("{address} to answer"), SOON, || self.ask(address)).unwrap();
        }
        start.elapsed()
    }

    /// Announces what cannot be, and waits until the gateway says why.
    fn wait_refused(&self, extra: &str, why: &str) {
        self.announce(extra);
        eventually(why, SOON, || {
            let conditions = self.pair.east.status()?.conditions;
            let found = conditions.iter().find(|condition| condition.name == "NetworksNotInForce");
            anyhow::ensure!(found.is_some_and(|found| found.message.contains(why)), "{conditions:?}");
            Ok(())
        })
        .unwrap();
    }

    fn wait_closed(&self, addresses: &[&str]) {
        for address in addresses {
            eventually(&format!("{address} to be closed"), SOON, || {
                anyhow::ensure!(self.ask(address).is_err(), "it answers");
                Ok(())
            })
            .unwrap();
        }
    }

    /// What may not change: the gateway's process, its key and its cable's session.
    fn identity(&self) -> (String, String) {
        let process = self.pair.east.gateway().unwrap().id().pid.to_string();
        let endpoints = self.pair.east.store().join("submariner-operator/endpoints");
        let own = std::fs::read_dir(endpoints)
            .unwrap()
            .filter_map(|entry| std::fs::read_to_string(entry.unwrap().path()).ok());
        let own: Vec<String> = own.filter(|text| text.contains("cluster_id: east")).collect();
        let key =
            own[0].lines().find(|line| line.contains("publicKey")).unwrap_or_default().trim().to_owned();
        (process, key)
    }

    /// Checks what became of the flow that stays.
    fn check(&self, what: &str, since: Mark) {
        let seen = self.flow.since(since).unwrap();
        eprintln!(
            "{what}: {} of {} datagrams lost, longest silence {:?}",
            seen.lost,
            seen.sent,
            seen.longest()
        );
        assert_eq!(seen.lost, 0, "{}, {what}: {seen:?}", self.driver);
    }
}

#[test]
fn networks_come_go_and_are_replaced_under_traffic_without_a_new_process_or_key() {
    let name = "networks_come_go_and_are_replaced_under_traffic_without_a_new_process_or_key";
    let Some(_turn) = root_test(name) else { return };
    for driver in ["wireguard", "libreswan", "vxlan"] {
        change(&mut Bed::start(driver));
    }
}

fn change(bed: &mut Bed) {
    let before = bed.identity();

    // One comes.
    bed.wait_closed(&EXTRA_ADDRESSES);
    let mark = bed.flow.now();
    bed.announce(EXTRA);
    let reached = bed.wait_reached(&EXTRA_ADDRESSES);
    eprintln!("{}: new networks reached after {reached:?}", bed.driver);
    assert!(reached < REACHED + guard::slack(), "{reached:?}");
    bed.check("networks added", mark);

    // It is replaced by another one.
    let mark = bed.flow.now();
    bed.announce(OTHERS);
    bed.wait_reached(&OTHER_ADDRESSES);
    let filter = "net 10.77.0.0/16 or net 10.78.0.0/16 or net fd77::/32 or net fd78::/32";
    let wire = Capture::start(&bed.pair.lab, &bed.pair.plan.wan, "br0", filter).unwrap();
    bed.wait_closed(&EXTRA_ADDRESSES);
    bed.check("networks replaced", mark);

    // Objects that make no sense, or take what is another cluster's, change nothing and say why.
    let mark = bed.flow.now();
    bed.wait_refused("10.77.0.0/24, 10.77.0.128/25", "10.77.0.0/24 overlaps 10.77.0.128/25");
    bed.wait_refused("10.2.9.0/24", "10.2.9.0/24 overlaps 10.2.0.0/16 of cluster west");
    bed.wait_reached(&OTHER_ADDRESSES);
    bed.check("networks refused", mark);

    // A gateway that starts again has them, and its key.
    bed.pair.east.kill_gateway().unwrap();
    bed.pair.east.start_gateway().unwrap();
    bed.flow.wait_through(SOON).unwrap();
    bed.wait_reached(&OTHER_ADDRESSES);
    let (_, key) = bed.identity();
    assert_eq!(key, before.1, "key after a restart");
    let (before, mark) = (bed.identity(), bed.flow.now());

    // It goes.
    bed.announce("");
    bed.wait_closed(&OTHER_ADDRESSES);
    bed.check("networks removed", mark);

    assert_eq!(bed.identity(), before, "process and key");
    if bed.driver != "vxlan" {
        assert_eq!(wire.finish().unwrap().count(filter).unwrap(), 0, "in clear");
    }
    let own: Vec<String> = bed.pair.pod("east").ips().iter().map(ToString::to_string).collect();
    bed.wait_reached(&own.iter().map(String::as_str).collect::<Vec<_>>());
}
