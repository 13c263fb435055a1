use super::*;
use crate::tables::{PathConfig, TablesBuilder};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Instant;
use trieste_packet::{ClusterId, LaneId};

const FLOWS: u32 = 100_000;

/// Flows of pods: both addresses and both ports differ.
fn flows() -> impl Iterator<Item = FlowKey> {
    let mut state = 42u64;
    let mut random = move || {
        // SplitMix64.
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let value = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (value ^ (value >> 31)).to_le_bytes()
    };
    (0..FLOWS).map(move |_| {
        let [a, b, c, d, e, f, g, h] = random();
        let port = |low, high| u16::from_le_bytes([low, high]);
        let protocol = if a & 1 == 0 { 6 } else { 17 };
        FlowKey::new([10, 1, a, b].into(), [10, 2, c, d].into(), protocol, port(e, f), port(g, h))
    })
}

/// Paths with these weights, by cable: 1, 2, ...
fn paths(weights: &[u16]) -> Vec<Candidate> {
    let path = |(number, &weight): (u16, &u16)| Candidate {
        path: PathId(number),
        cable: CableId(number),
        key: GatewayKey::of(&format!("submariner-cable-b-192-0-2-{number}")),
        weight,
    };
    (1u16..).zip(weights).map(path).collect()
}

fn counts(all: &[Candidate]) -> Vec<u32> {
    let mut counts = vec![0; all.len()];
    for flow in flows() {
        let path = decide(&flow, all.iter().copied(), |_| true).unwrap();
        counts[usize::from(path.0) - 1] += 1;
    }
    counts
}

#[test]
fn a_hundred_thousand_flows_are_within_five_percent_of_the_weights() {
    for number in 2usize..=16 {
        let weights: Vec<u16> = match number % 3 {
            0 => vec![100; number],
            1 => (0..number).map(|index| [100, 200, 300, 400][index % 4]).collect(),
            _ => (0..number).map(|index| [150, 50][index % 2]).collect(),
        };
        let total: u32 = weights.iter().map(|&weight| u32::from(weight)).sum();
        let counts = counts(&paths(&weights));
        let mut worst: f64 = 0.0;
        for (count, weight) in counts.iter().zip(&weights) {
            let expected = f64::from(FLOWS) * f64::from(*weight) / f64::from(total);
            worst = worst.max((f64::from(*count) / expected - 1.0).abs());
        }
        println!("{number:2} paths: worst {:.2} % off, weights {weights:?}", worst * 100.0);
        assert!(worst < 0.05, "{number} paths of {weights:?}: {counts:?}");
    }
}

#[test]
fn a_path_that_goes_moves_its_own_flows_and_one_that_comes_takes_its_share() {
    for weights in [vec![100; 2], vec![400, 100, 200, 100], vec![100; 8]] {
        let all = paths(&weights);
        let lost = CableId(2);
        let (mut before, mut moved, mut others) = (0u32, 0u32, 0u32);
        let mut taken = vec![0u32; all.len()];
        for flow in flows() {
            let with = decide(&flow, all.iter().copied(), |_| true).unwrap();
            let without = decide(&flow, all.iter().copied(), |cable| cable != lost).unwrap();
            before += u32::from(with.0 == lost.0);
            if with != without {
                moved += 1;
                taken[usize::from(without.0) - 1] += 1;
                // Back again, it is the path that came which takes it, and nobody else.
                others += u32::from(with.0 != lost.0);
            }
        }
        println!(
            "{weights:?}: of {FLOWS} flows path 2 had {before}; {moved} moved, of others {others}; to {taken:?}"
        );
        assert_eq!((moved, others), (before, 0));
        let total: u32 = weights.iter().map(|&weight| u32::from(weight)).sum();
        let share = f64::from(FLOWS) * f64::from(weights[1]) / f64::from(total);
        assert!(f64::from(before) < share * 1.05, "a path that comes takes its share");
        // What moves is spread by weight as well.
        for (index, (&count, &weight)) in
            taken.iter().zip(&weights).enumerate().filter(|(index, _)| *index != 1)
        {
            let expected = f64::from(before) * f64::from(weight) / f64::from(total - u32::from(weights[1]));
            let off = (f64::from(count) / expected - 1.0).abs();
            assert!(off < 0.25, "path {} got {count}, not {expected:.0}", index + 1);
        }
    }
}

#[test]
fn another_weight_moves_no_more_than_it_has_to() {
    let (before, after) = (paths(&[100, 100, 100, 100]), paths(&[100, 100, 200, 100]));
    let (mut moved, mut elsewhere) = (0u32, 0u32);
    for flow in flows() {
        let then = decide(&flow, before.iter().copied(), |_| true).unwrap();
        let now = decide(&flow, after.iter().copied(), |_| true).unwrap();
        moved += u32::from(then != now);
        elsewhere += u32::from(then != now && now != PathId(3));
    }
    println!("weight 100 to 200 of one in four: {moved} of {FLOWS} flows moved");
    assert_eq!(elsewhere, 0);
    // From a quarter to two fifths.
    assert!((14_000..16_000).contains(&moved), "{moved}");
}

#[test]
fn both_directions_and_every_order_of_the_paths_choose_alike() {
    let all = paths(&[100, 7, 1000, 100, 50]);
    for flow in flows().take(2000) {
        let chosen = decide(&flow, all.iter().copied(), |_| true);
        assert_eq!(decide(&flow.reversed(), all.iter().copied(), |_| true), chosen);
        assert_eq!(decide(&flow, all.iter().rev().copied(), |_| true), chosen);
    }
    assert_eq!(decide(&flows().next().unwrap(), all, |_| false), None);
}

/// Three paths, cables 1 to 3, to one cluster, and two siblings, cables 11 and 12.
fn tables() -> (Tables, Vec<PathId>, ClusterId) {
    let mut builder = TablesBuilder::new(1, &["10.1.0.0/16".parse().unwrap()], &[]);
    let cluster = builder.cluster("b", &["10.2.0.0/16".parse().unwrap()]).unwrap();
    let config = |number: u16| PathConfig {
        lane: LaneId(u32::from(number) << 8),
        cable: CableId(number),
        mtu_bytes: 1420,
        key: GatewayKey::of(&format!("cable-{number}")),
        weight: 100,
    };
    let paths = [1, 2, 3].map(|number| builder.path_among(cluster, &config(number)).unwrap()).to_vec();
    let [first, _] = [11, 12].map(|number| builder.sibling(&format!("s{number}"), &config(number)).unwrap());
    builder.pin("10.2.0.1".parse().unwrap(), paths[1]);
    // Another cluster's gateway claims an address that is not its own.
    let other = builder.cluster("c", &["10.3.0.0/16".parse().unwrap()]).unwrap();
    let path = builder.path_among(other, &config(4)).unwrap();
    builder.pin("10.2.0.2".parse().unwrap(), path);
    builder.leader(first);
    (builder.build(), paths, cluster)
}

fn chosen(
    tables: &Tables,
    board: &Arc<Board>,
    flow: &FlowKey,
    paths: &[PathId],
    origin: Origin,
) -> Option<(u16, Why)> {
    let steered = Steering { tables, board }.choose(flow, paths, origin).ok()?;
    Some((steered.path.cable.0, steered.why))
}

fn some_flow(last: u8) -> FlowKey {
    FlowKey::new([10, 1, 0, 9].into(), [10, 2, 0, last].into(), 17, 5000 + u16::from(last), 53)
}

#[test]
fn a_gateways_own_address_is_reached_by_its_path_alone() {
    let (tables, paths, _) = tables();
    let board = Board::new();
    board.set_state(CableId(2), PathState::Down);
    let chosen = |last| chosen(&tables, &board, &some_flow(last), &paths, Origin::Inside).unwrap();
    assert_eq!(chosen(1), (2, Why::Pinned));
    assert_eq!(chosen(2).1, Why::Up, "what another cluster claims does not count");
}

#[test]
fn paths_are_tried_by_what_is_known_of_them_and_siblings_before_what_seems_dead() {
    let (tables, paths, _) = tables();
    let board = Board::new();
    let set = |cables: &[u16], state| {
        cables.iter().for_each(|&cable| board.set_state(CableId(cable), state));
    };
    let of = |origin| {
        let mut all: Vec<(u16, Why)> =
            (10..=250).filter_map(|last| chosen(&tables, &board, &some_flow(last), &paths, origin)).collect();
        all.sort_by_key(|(cable, _)| *cable);
        all.dedup();
        all
    };
    let why = |cables: &[u16], why| cables.iter().map(|&cable| (cable, why)).collect::<Vec<_>>();
    assert_eq!(of(Origin::Inside), why(&[1, 2, 3], Why::Up), "nobody probes: all are trusted");
    set(&[1, 2, 3, 11, 12], PathState::Up);
    set(&[2], PathState::Held);
    assert_eq!(of(Origin::Inside), why(&[1, 3], Why::Up));
    set(&[1], PathState::Draining);
    assert_eq!(of(Origin::Inside), why(&[3], Why::Up));
    set(&[3], PathState::Down);
    assert_eq!(of(Origin::Inside), why(&[2], Why::Held), "what drains is left for what came back");
    set(&[2], PathState::Down);
    assert_eq!(of(Origin::Inside), why(&[1], Why::Draining), "what drains still works");
    set(&[2], PathState::Held);
    set(&[1], PathState::Down);
    assert_eq!(of(Origin::Inside), why(&[11, 12], Why::Relay));
    assert_eq!(of(Origin::Sibling), why(&[2], Why::Held), "never back to a sibling");
    set(&[12], PathState::Draining);
    assert_eq!(of(Origin::Inside), why(&[11], Why::Relay));
    set(&[11], PathState::Down);
    assert_eq!(of(Origin::Inside), why(&[12], Why::Relay));
    set(&[12], PathState::Held);
    assert_eq!(of(Origin::Inside), why(&[2], Why::Held));
    set(&[2], PathState::Down);
    assert_eq!(
        of(Origin::Inside),
        why(&[12], Why::Relay),
        "what came back a moment ago is better than what is down"
    );
    assert_eq!(of(Origin::Sibling), why(&[1, 2, 3], Why::NothingUp));
    set(&[1, 2, 3, 11, 12], PathState::Down);
    assert_eq!(of(Origin::Inside), why(&[1, 2, 3], Why::NothingUp), "where all is lost steering stays");
    assert_eq!(of(Origin::Sibling), why(&[1, 2, 3], Why::NothingUp));
}

#[test]
#[expect(clippy::disallowed_methods, reason = "an arbitrary start, from which the test counts")]
fn where_nothing_works_flows_stay_on_what_worked_last_and_not_on_what_is_long_gone() {
    let (tables, paths, _) = tables();
    let board = Board::new();
    let start = Instant::now();
    let used = || {
        let flows = (10..=250).map(some_flow);
        let used = flows.filter_map(|flow| chosen(&tables, &board, &flow, &paths, Origin::Sibling));
        used.map(|(cable, why)| (cable, why == Why::NothingUp)).collect::<BTreeSet<_>>()
    };
    for cable in [1, 2, 3].map(CableId) {
        board.set_down(cable, start);
    }
    assert_eq!(used(), [(1, true), (2, true), (3, true)].into(), "none of them was ever up");
    for cable in [1, 2].map(CableId) {
        board.set_state(cable, PathState::Up);
    }
    board.set_down(CableId(1), start);
    assert_eq!(used(), [(2, false)].into());
    board.set_down(CableId(2), start + AT_ONCE);
    assert_eq!(used(), [(1, true), (2, true)].into(), "at once");
    board.set_state(CableId(2), PathState::Held);
    board.set_down(CableId(2), start + AT_ONCE + Duration::from_millis(1));
    board.set_down(CableId(1), start + Duration::from_secs(10)); // as it has been
    assert_eq!(used(), [(2, true)].into());
    board.reset(CableId(2));
    board.set_down(CableId(2), start + Duration::from_secs(20));
    assert_eq!(used(), [(1, true)].into(), "the number is another path's now");
}

#[test]
fn a_cluster_without_a_path_here_is_reached_by_the_sibling_that_leads() {
    let (tables, _, _) = tables();
    let board = Board::new();
    for last in 10..=50 {
        let chosen = |origin| chosen(&tables, &board, &some_flow(last), &[], origin);
        assert_eq!(chosen(Origin::Inside), Some((11, Why::Relay)));
        assert_eq!(chosen(Origin::Sibling), None);
    }
    let refused = Steering { tables: &tables, board: &board }.take(&some_flow(10), &[], Origin::Sibling);
    assert_eq!(refused, Err(DropReason::NoOwnPath));
}

#[test]
fn packets_may_be_as_large_as_the_path_was_found_to_be() {
    let (tables, paths, _) = tables();
    let board = Board::new();
    let mtu = |board: &Arc<Board>| {
        let path = tables.path(paths[0]).unwrap();
        Steering { tables: &tables, board }.decision(path).mtu_bytes
    };
    assert_eq!(mtu(&board), 1420);
    board.set_mtu(CableId(1), Some(1280));
    assert_eq!(mtu(&board), 1280);
    board.set_mtu(CableId(1), Some(9000));
    assert_eq!(mtu(&board), 1420, "not more than the devices take");
}
