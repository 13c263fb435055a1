//! From any state: a preparation ends, a second one changes nothing, and the end gives back what was before.

use std::collections::BTreeSet;

use proptest::prelude::*;
use serde_json::Value;

use super::world::{Machine, World, settings};
use crate::provider::Goal;
use crate::rules::{From, Ports, Rule, To, Traffic, Wanted};

const ZONES: [&str; 3] = ["us-east1-b", "us-east1-c", "us-east1-d"];

#[derive(Debug, Clone)]
struct Start {
    is_openshift: bool,
    machines: Vec<Machine>,
    /// Those that upstream's tool has given the tag of gateways.
    tagged: Vec<bool>,
    has_upstream: bool,
    polls: u32,
    busy_every: usize,
}

fn machine(index: usize) -> impl Strategy<Value = Machine> {
    (0..ZONES.len(), any::<[bool; 4]>()).prop_map(move |(zone, [external, forward, gateway, more])| {
        let mut machine = Machine::worker(&format!("node-{index}"), ZONES[zone], &["east-x1-worker"]);
        machine.has_external_ip = external;
        machine.can_ip_forward = forward;
        machine.is_gateway = gateway && more;
        if more {
            machine.tags.push("web".to_owned());
        }
        machine
    })
}

fn start() -> impl Strategy<Value = Start> {
    let machines = (1_usize..5).prop_flat_map(|count| (0..count).map(machine).collect::<Vec<_>>());
    let rest =
        (any::<bool>(), proptest::collection::vec(any::<bool>(), 5), any::<bool>(), 0_u32..3, 0_usize..9);
    (machines, rest).prop_map(|(machines, (is_openshift, tagged, has_upstream, polls, busy))| Start {
        is_openshift,
        machines,
        tagged,
        has_upstream,
        polls,
        // Busy for every second request, it would be for every repetition.
        busy_every: if busy < 3 { 0 } else { busy },
    })
}

fn wanted() -> impl Strategy<Value = Wanted> {
    let sources = prop_oneof![
        Just(vec!["0.0.0.0/0", "::/0"]),
        Just(vec!["198.51.100.0/24", "203.0.113.9/32"]),
        Just(vec!["2001:db8::/32"]),
        Just(vec![]),
    ];
    let ports = (prop_oneof![Just(0_u16), Just(500)], prop_oneof![Just(0_u16), Just(4800)]);
    let instance =
        proptest::option::of(prop_oneof![Just("n2-standard-4".to_owned()), Just("n2-standard-8".to_owned())]);
    (sources, 0_usize..5, any::<bool>(), ports, instance).prop_map(
        |(sources, gateways, load_balancer, (ike, vxlan), instance)| Wanted {
            ports: Ports { ike, vxlan, ..Ports::default() },
            sources: sources.into_iter().map(|source| source.parse().unwrap()).collect(),
            gateways,
            instance,
            load_balancer,
        },
    )
}

/// Returns what the cluster's rules let pass, read without the code that makes them.
fn passing(world: &World) -> BTreeSet<Rule> {
    let inner = world.cloud.0.lock().unwrap();
    let rules =
        inner.firewalls.values().filter(|rule| rule["name"].as_str().unwrap().starts_with("east-x1-"));
    let mut all = BTreeSet::new();
    for rule in rules {
        assert_eq!(rule["direction"], "INGRESS");
        let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
        let is_node = |tag: &Value| tag.as_str().unwrap().starts_with("east-x1-");
        let targets = list(&rule["targetTags"]);
        let to = if targets == ["submariner-io-gateway-node"] { To::Gateways } else { To::Nodes };
        assert!(to == To::Gateways || (!targets.is_empty() && targets.iter().all(is_node)));
        let tags = list(&rule["sourceTags"]);
        assert!(tags.iter().all(is_node));
        let networks = list(&rule["sourceRanges"]).into_iter();
        let networks = networks.map(|range| From::Network(range.as_str().unwrap().parse().unwrap()));
        let sources: Vec<From> = networks.chain((!tags.is_empty()).then_some(From::Nodes)).collect();
        for entry in list(&rule["allowed"]) {
            let port = |port: &Value| Traffic::Udp(port.as_str().unwrap().parse().unwrap());
            let traffic: Vec<Traffic> = match entry["IPProtocol"].as_str().unwrap() {
                "udp" => list(&entry["ports"]).iter().map(port).collect(),
                "esp" => vec![Traffic::Esp],
                other => panic!("{other}"),
            };
            let pairs = traffic.iter().flat_map(|traffic| sources.iter().map(move |from| (*traffic, *from)));
            all.extend(pairs.map(|(traffic, from)| Rule { traffic, from, to }));
        }
    }
    all
}

/// There are as many gateways as are wanted and there is room for, and their machines have the tag.
fn assert_gateways(world: &World, wanted: usize) {
    let objects = world.cluster.objects.lock().unwrap().clone();
    let nodes = objects.values().filter(|object| object["kind"] == "Node");
    let names: Vec<String> = nodes
        .clone()
        .filter(|node| node["metadata"]["labels"]["submariner.io/gateway"] == "true")
        .map(|node| node["metadata"]["name"].as_str().unwrap().to_owned())
        .collect();
    for name in &names {
        assert!(world.tags(name).iter().any(|tag| tag == "submariner-io-gateway-node"), "{name}");
    }
    let sets = objects.keys().filter(|path| path.contains("-submariner-gw-")).count();
    let room = if world.cluster.is_openshift { ZONES.len() } else { nodes.count() };
    assert!(names.len() + sets >= wanted.min(room), "{names:?} and {sets} sets, {wanted} wanted");
}

async fn holds(start: &Start, wanted: &[Wanted]) {
    let world = World::new(start.is_openshift, &start.machines);
    let before = world.all();
    if start.has_upstream {
        world.put_upstream(start.is_openshift);
        for (machine, _) in start.machines.iter().zip(&start.tagged).filter(|(_, tagged)| **tagged) {
            let mut machine = machine.clone();
            machine.tags.push("submariner-io-gateway-node".to_owned());
            world.put(&machine);
        }
    }
    {
        let mut inner = world.cloud.0.lock().unwrap();
        (inner.polls, inner.busy_every) = (start.polls, start.busy_every);
    }
    let settings = settings(Some("east-x1"));
    for wanted in wanted {
        let goal = Goal::Prepare(wanted.clone());
        world.reach(&goal, &settings).await.unwrap();
        let prepared = world.all();
        assert_eq!(passing(&world), wanted.cables().into_iter().chain(wanted.inside()).collect());
        assert_gateways(&world, wanted.gateways);
        assert_eq!(world.reach(&goal, &settings).await.unwrap().0, 0);
        assert_eq!(world.all(), prepared);
    }
    world.reach(&Goal::CleanUp, &settings).await.unwrap();
    assert_eq!(world.all(), before);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]

    #[test]
    fn preparations_end_and_are_taken_back(
        start in start(),
        wanted in proptest::collection::vec(wanted(), 1..3),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
        runtime.unwrap().block_on(holds(&start, &wanted));
    }
}
