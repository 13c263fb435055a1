use super::*;
use crate::services::pins::Pins;

fn node(index: u8) -> ServiceNode {
    let address = IpAddr::from([172, 31, 9, index]);
    ServiceNode { address, mac: Mac::of_node(address) }
}

fn front(port: u16) -> Frontend {
    Frontend { address: "10.96.0.10".parse().unwrap(), protocol: 6, port }
}

fn flow(client: u8, source_port: u16, port: u16) -> FlowKey {
    FlowKey::new([10, 2, 0, client].into(), "10.96.0.10".parse().unwrap(), 6, source_port, port)
}

fn backends(used: &[(u8, u32)], others: &[u8]) -> Backends {
    Backends {
        used: used.iter().map(|(index, weight)| (node(*index).address, *weight)).collect(),
        others: others.iter().map(|index| node(*index).address).collect(),
        keeps_clients: false,
    }
}

/// A snapshot with one service at port 80; nodes 1 to 4 take packets, 1 is the gateway's own.
fn services(generation: u64, backends: &Backends) -> Services {
    let networks = ["10.96.0.0/16".parse().unwrap()];
    let mut builder = ServicesBuilder::new(&networks, node(1), (1..=4).map(node), 4800);
    builder.set(front(80), backends);
    builder.build(generation)
}

#[test]
fn flows_are_spread_over_nodes_by_their_back_ends_and_every_gateway_picks_alike() {
    let (first, second) =
        (services(1, &backends(&[(1, 1), (2, 3)], &[])), services(7, &backends(&[(1, 1), (2, 3)], &[])));
    let mut counts = [0u32; 2];
    for port in 0..4000 {
        let picked = first.node_of(&flow(9, port, 80)).unwrap();
        assert_eq!(second.node_of(&flow(9, port, 80)), Some(picked));
        counts[usize::from(picked == node(2).address)] += 1;
    }
    assert!((900..1100).contains(&counts[0]), "{counts:?}");
    assert_eq!(first.node_of(&flow(9, 1, 81)), None, "another port is nobody's");
}

#[test]
fn with_affinity_the_port_of_a_client_has_no_say() {
    let kept = Backends { keeps_clients: true, ..backends(&[(1, 1), (2, 1), (3, 1)], &[]) };
    let services = services(1, &kept);
    let mut seen = BTreeSet::new();
    for client in 0..=255 {
        let picked = services.node_of(&flow(client, 1, 80));
        assert!((2..50).all(|port| services.node_of(&flow(client, port, 80)) == picked));
        seen.insert(picked);
    }
    assert_eq!(seen.len(), 3);
}

#[test]
fn nodes_that_take_no_packets_are_left_out_and_a_service_without_any_is_the_kernels() {
    let one = services(1, &backends(&[(2, 1), (9, 5)], &[]));
    assert!((0..50).all(|port| one.node_of(&flow(1, port, 80)) == Some(node(2).address)));
    assert!(services(1, &backends(&[(8, 1), (9, 5)], &[])).is_empty());
    assert!(one.covers("10.96.7.7".parse().unwrap()) && !one.covers("10.1.0.1".parse().unwrap()));
    assert!(one.is_own(one.find(node(1).address).unwrap()));
}

#[test]
fn a_flow_stays_at_its_node_while_a_back_end_is_there_and_no_longer() {
    let mut pins = Pins::new(1);
    let all = services(1, &backends(&[(2, 1), (3, 1)], &[]));
    let address = |services: &Services, node: Option<NodeId>| node.map(|node| services.node(node).address);
    let at_two: Vec<FlowKey> = (0..200)
        .map(|port| flow(1, port, 80))
        .filter(|flow| address(&all, pins.node(flow, &all)) == Some(node(2).address))
        .collect();
    assert!(at_two.len() > 50);
    let ending = services(2, &backends(&[(3, 1)], &[2]));
    for flow in &at_two {
        assert_eq!(address(&ending, pins.peek(flow, &ending)), Some(node(2).address));
        assert_eq!(address(&ending, pins.node(flow, &ending)), Some(node(2).address));
    }
    assert_eq!(address(&ending, pins.node(&flow(2, 7, 80), &ending)), Some(node(3).address), "a new flow");
    let gone = services(3, &backends(&[(3, 1)], &[]));
    assert!(at_two.iter().all(|flow| address(&gone, pins.node(flow, &gone)) == Some(node(3).address)));
}

#[test]
fn a_connection_that_is_tried_again_goes_to_a_node_with_a_back_end_for_new_ones() {
    let mut pins = Pins::new(1);
    let address = |services: &Services, node: Option<NodeId>| node.map(|node| services.node(node).address);
    let first = services(1, &backends(&[(2, 1)], &[]));
    let tried = flow(1, 7, 80);
    assert_eq!(address(&first, pins.open(&tried, &first)), Some(node(2).address));
    let more = services(2, &backends(&[(2, 1), (3, 5)], &[]));
    assert!((0..50).all(|_| address(&more, pins.open(&tried, &more)) == Some(node(2).address)), "it stays");
    let ending = services(3, &backends(&[(3, 1)], &[2]));
    assert_eq!(address(&ending, pins.node(&tried, &ending)), Some(node(2).address), "what it has begun");
    assert_eq!(address(&ending, pins.open(&tried, &ending)), Some(node(3).address));
    assert_eq!(address(&ending, pins.node(&tried, &ending)), Some(node(3).address));
}

#[test]
fn while_nobody_takes_new_flows_old_ones_stay() {
    let mut pins = Pins::new(1);
    let (ready, flap) = (services(1, &backends(&[(2, 1)], &[])), services(2, &backends(&[], &[2])));
    let (old, new) = (flow(1, 7, 80), flow(1, 8, 80));
    assert!(pins.node(&old, &ready).is_some());
    let stays = pins.node(&old, &flap).map(|node| flap.node(node).address);
    assert_eq!(stays, Some(node(2).address));
    assert_eq!((pins.node(&new, &flap), pins.open(&old, &flap)), (None, None));
    assert_eq!(flap.all().collect::<Vec<_>>(), [(front(80), backends(&[], &[2]))]);
}

#[test]
fn tables_over_the_same_nodes_are_one_and_are_taken_over() {
    let networks = ["10.96.0.0/16".parse().unwrap()];
    let begin = || ServicesBuilder::new(&networks, node(1), (1..=4).map(node), 4800);
    let fill = |mut builder: ServicesBuilder| {
        for port in 80..90 {
            builder.set(front(port), &backends(&[(1, 1), (2, 1)], &[]));
        }
        builder
    };
    let mut first = fill(begin());
    assert_eq!((first.build(1).len(), first.tables.len(), first.left_out()), (10, 1, 0));
    let table = Arc::clone(&first.tables.values().next().unwrap().0);
    let mut second = fill(begin().with_tables_of(first));
    assert!(Arc::ptr_eq(&table, &second.tables.values().next().unwrap().0));
    let uses = |builder: &ServicesBuilder| builder.tables.values().map(|(_, uses)| *uses).sum::<usize>();
    assert_eq!(uses(&second), 10);
    (80..85).for_each(|port| second.remove(front(port)));
    second.set(front(85), &backends(&[(1, 1)], &[]));
    assert_eq!(uses(&second), 4);
    (86..90).for_each(|port| second.remove(front(port)));
    assert_eq!((second.tables.len(), second.entries, second.unused.len()), (0, 0, 1), "none uses it");
    assert!(Arc::ptr_eq(&table, &fill(second).tables.values().next().unwrap().0), "it is wanted again");
}

#[test]
fn a_snapshot_differs_from_the_one_before_by_what_was_set_and_shares_the_rest() {
    let networks = ["10.96.0.0/16".parse().unwrap()];
    let mut builder = ServicesBuilder::new(&networks, node(1), (1..=4).map(node), 4800);
    let wanted: BTreeMap<Frontend, Backends> =
        (1..2000).map(|port| (front(port), backends(&[(2, 1), (3, u32::from(port % 3))], &[4]))).collect();
    wanted.iter().for_each(|(at, backends)| builder.set(*at, backends));
    let first = builder.build(1);
    assert_eq!(first.all().collect::<BTreeMap<_, _>>(), wanted);

    builder.set(front(7), &backends(&[(4, 2)], &[]));
    builder.remove(front(8));
    builder.remove(front(5000));
    builder.set(front(9), &backends(&[(9, 2)], &[]));
    let second = builder.build(2);
    let shared = first.shards.iter().zip(&second.shards).filter(|(a, b)| Arc::ptr_eq(a, b)).count();
    assert!(shared >= SHARDS - 3, "{shared}");
    let mut changed = wanted.clone();
    changed.insert(front(7), backends(&[(4, 2)], &[]));
    changed.remove(&front(8));
    changed.remove(&front(9));
    assert_eq!((second.all().collect::<BTreeMap<_, _>>(), second.len()), (changed, 1997));
    assert_eq!(first.all().collect::<BTreeMap<_, _>>(), wanted, "what workers still have");
    assert_eq!((builder.stays, builder.left_out()), (1 + 1996 * 3, 0));
}
