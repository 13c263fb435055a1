//! The law: from any state, a preparation ends, the second one changes nothing, and its end gives back exactly what was there.

use std::collections::BTreeMap;

use proptest::prelude::*;
use serde_json::{Value, json};

use super::cloud::{add_rule, id};
use super::{Bed, NIC, NSG, upstreams_set};
use crate::provider::Goal;
use crate::{Ports, Wanted};

/// One node.
#[derive(Debug, Clone)]
struct Machine {
    is_instance: bool,
    is_gateway: bool,
    has_group: bool,
    forwards: bool,
    has_address: bool,
    has_tags: bool,
}

/// A cloud before any preparation, and what upstream's tool does in it.
#[derive(Debug, Clone)]
struct Start {
    is_openshift: bool,
    is_air_gapped: bool,
    machines: Vec<Machine>,
    priorities: Vec<u64>,
    is_prepared_by_upstream: bool,
    busy_every: u32,
    /// After how many requests of each run the connection breaks.
    breaks: [u32; 3],
}

fn machine() -> impl Strategy<Value = Machine> {
    any::<[bool; 6]>().prop_map(|[is_instance, is_gateway, has_group, forwards, has_address, has_tags]| {
        Machine { is_instance, is_gateway, has_group, forwards, has_address, has_tags }
    })
}

fn start() -> impl Strategy<Value = Start> {
    let priorities = prop::collection::vec(prop_oneof![2498..2504_u64, 3498..3506_u64, 100..4097_u64], 0..12);
    let machines = prop::collection::vec(machine(), 1..5);
    let breaks = prop::array::uniform3(prop_oneof![Just(0), 1..120_u32]);
    (any::<[bool; 3]>(), machines, priorities, prop_oneof![Just(0), 5..9_u32], breaks).prop_map(
        |(
            [is_openshift, is_air_gapped, is_prepared_by_upstream],
            machines,
            priorities,
            busy_every,
            breaks,
        )| Start {
            is_openshift,
            is_air_gapped,
            machines,
            priorities,
            is_prepared_by_upstream,
            busy_every,
            breaks,
        },
    )
}

fn wanted() -> impl Strategy<Value = Wanted> {
    let sources = prop_oneof![
        Just(vec!["0.0.0.0/0", "::/0"]),
        Just(vec!["192.0.2.0/24", "192.0.2.7/32", "2001:db8::/32"]),
        Just(vec!["198.51.100.1/32"]),
    ];
    (0..4_usize, any::<bool>(), sources, prop_oneof![Just(0), Just(4800_u16)]).prop_map(
        |(gateways, load_balancer, sources, vxlan)| Wanted {
            ports: Ports { vxlan, ..Ports::default() },
            sources: sources.iter().map(|source| source.parse().unwrap()).collect(),
            gateways,
            instance: None,
            load_balancer,
        },
    )
}

/// Builds the state before any preparation.
fn built(start: &Start) -> Bed {
    let mut bed = Bed::new(start.is_openshift);
    bed.air_gapped = start.is_air_gapped;
    bed.cloud.0.lock().unwrap().busy_every = start.busy_every;
    let other = bed.group("other-nsg");
    for (at, machine) in start.machines.iter().enumerate() {
        let (name, last) = (format!("n{at}"), u8::try_from(at).unwrap() + 4);
        if machine.is_instance {
            bed.instance(&name, last, machine.is_gateway);
            continue;
        }
        let nic = bed.node(&name, last, machine.is_gateway);
        let address = machine.has_address.then(|| {
            bed.cloud.put(
                super::ADDRESS,
                &format!("own-{at}"),
                json!({"location": "westeurope", "properties": {}}),
            )
        });
        bed.change(&nic, |nic| {
            nic["properties"]["enableIPForwarding"] = json!(machine.forwards);
            if machine.has_group {
                nic["properties"]["networkSecurityGroup"] = json!({"id": other});
            }
            if machine.has_tags {
                nic["tags"] = json!({"owner": "somebody"});
            }
            if let Some(address) = address {
                nic["properties"]["ipConfigurations"][0]["properties"]["publicIPAddress"] =
                    json!({"id": address});
            }
        });
    }
    for (at, priority) in start.priorities.iter().enumerate() {
        let direction = if at % 2 == 0 { "Inbound" } else { "Outbound" };
        let rule = json!({"name": format!("other-{at}"), "properties": {
            "protocol": "Tcp", "sourcePortRange": "*", "destinationPortRange": "80", "access": "Allow",
            "sourceAddressPrefix": "*", "destinationAddressPrefix": "*", "direction": direction, "priority": priority,
        }});
        // One whose priority is taken is left out.
        bed.change(&id(NSG, "east-nsg"), |group| drop(add_rule(group, &rule)));
    }
    bed
}

/// Upstream's tool gives a group and an address to whatever gateway; what those replace cannot be given back.
fn prepare_as_upstream(bed: &Bed, start: &Start) {
    let taken = |priority: u64| start.priorities.contains(&priority);
    if !start.is_prepared_by_upstream || taken(2500) {
        return;
    }
    let gateways = start.machines.iter().enumerate().filter(|(_, machine)| {
        machine.is_gateway && !machine.is_instance && !machine.has_group && !machine.has_address
    });
    let names: Vec<String> = gateways.map(|(at, _)| format!("n{at}")).collect();
    bed.prepare_as_upstream(&names.iter().map(String::as_str).collect::<Vec<_>>());
    if start.is_openshift {
        bed.cluster.put_set(upstreams_set());
    }
}

type Snapshot = (BTreeMap<String, Value>, BTreeMap<String, Value>);

fn snapshot(bed: &Bed) -> Snapshot {
    (bed.cloud.snapshot(), bed.cluster.objects.lock().unwrap().clone())
}

/// Reaches a goal in the second run where the first one was interrupted.
async fn reach(bed: &Bed, goal: &Goal, breaks_after: u32) {
    bed.cloud.0.lock().unwrap().breaks_after = breaks_after;
    let outcome = bed.reach(goal).await;
    let left = std::mem::take(&mut bed.cloud.0.lock().unwrap().breaks_after);
    assert!(outcome.is_ok() || breaks_after > 0 && left == 0, "{outcome:?}");
    if outcome.is_err() {
        bed.reach(goal).await.unwrap();
    }
}

async fn check(start: Start, wanted: [Wanted; 2]) {
    let bed = built(&start);
    let before = snapshot(&bed);
    prepare_as_upstream(&bed, &start);
    for (wanted, breaks_after) in wanted.into_iter().zip(start.breaks) {
        let goal = Goal::Prepare(wanted);
        reach(&bed, &goal, breaks_after).await;
        assert_eq!(bed.plan(&goal).await.unwrap().changes, Vec::<String>::new());
        assert!(start.machines.iter().enumerate().all(|(at, machine)| {
            let nic = bed.cloud.get(&id(NIC, &format!("n{at}-nic")));
            machine.is_instance || !machine.is_gateway || nic["properties"]["enableIPForwarding"] == true
        }));
    }
    reach(&bed, &Goal::CleanUp, start.breaks[2]).await;
    assert_eq!(bed.plan(&Goal::CleanUp).await.unwrap().changes, Vec::<String>::new());
    let after = snapshot(&bed);
    let all = |snapshot: &Snapshot| -> Vec<String> {
        snapshot.0.iter().chain(&snapshot.1).map(|(id, object)| format!("{id}: {object}")).collect()
    };
    let (before, after) = (all(&before), all(&after));
    let missing: Vec<&String> = before.iter().filter(|one| !after.contains(one)).collect();
    let left: Vec<&String> = after.iter().filter(|one| !before.contains(one)).collect();
    assert!(missing.is_empty() && left.is_empty(), "before: {missing:#?} after: {left:#?}");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn preparation_ends_and_is_taken_back(start in start(), first in wanted(), second in wanted()) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
        runtime.block_on(check(start, [first, second]));
    }
}
