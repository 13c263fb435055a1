//! Whatever states come, and however a handler fails, it ends with the picture of the last one.

use std::sync::{Arc, Mutex};

use ipnet::IpNet;
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::{select, subsequence};

use super::model::{Luck, Model, Picture, Work};
use super::*;

const NETWORKS: [&str; 3] = ["10.1.0.0/16", "10.2.0.0/16", "fd00:1::/48"];

fn networks() -> impl Strategy<Value = Vec<IpNet>> {
    subsequence(NETWORKS.to_vec(), 0..=2)
        .prop_map(|texts| texts.into_iter().map(|text| text.parse().unwrap()).collect())
}

/// Endpoints of the own cluster and of two others, of few names and ages, so that the same ones come and go.
fn endpoints() -> impl Strategy<Value = Vec<Endpoint>> {
    let names = vec!["a-gw1", "a-gw2", "b-gw1", "b-gw2", "b-gw3", "c-gw1", "c-gw2"];
    subsequence(names, 0..=7).prop_flat_map(|names| {
        let each = names.into_iter().map(|name| {
            (0..3_i128, networks(), select(vec!["a-gw1", "a-gw2"])).prop_map(
                move |(created, subnets, host)| {
                    let mut endpoint = Endpoint { created, subnets, ..endpoint(name) };
                    if endpoint.cluster == "a" {
                        // A node may get another name, and its cable keep its own.
                        endpoint.hostname = host.into();
                    }
                    endpoint
                },
            )
        });
        each.collect::<Vec<_>>()
    })
}

fn states() -> impl Strategy<Value = ClusterState> {
    let members = subsequence(vec!["a-gw1", "a-gw2", "a-gw3"], 0..=3);
    let nodes = subsequence(vec!["a-gw1", "a-gw2", "a-w1"], 0..=3);
    let clamps = select(vec![None, Some(1400)]);
    (endpoints(), members, nodes, clamps, networks(), networks()).prop_map(
        |(endpoints, members, nodes, clamp_mss, pod_networks, service_networks)| {
            let mut state = state("a-gw1", &[]);
            (state.node.pod_networks, state.node.service_networks) = (pod_networks, service_networks);
            // A further Endpoint has the host name of the gateway's other one.
            let members = members.into_iter().map(|name| {
                let further = endpoint(name);
                let hostname = endpoints.iter().find(|own| own.name == name).map(|own| own.hostname.clone());
                Endpoint { hostname: hostname.unwrap_or_else(|| further.hostname.clone()), ..further }
            });
            let members = members.collect();
            let nodes = nodes.into_iter().map(|name| ClusterNode { clamp_mss, ..node(name) });
            ClusterState { endpoints, members, nodes: nodes.collect(), ..state }
        },
    )
}

fn lucks() -> impl Strategy<Value = Vec<Luck>> {
    let failing = prop::bool::weighted(0.3).prop_map(|is_rare| if is_rare { 1_u32 } else { 8 });
    failing.prop_flat_map(|weight| {
        let one = prop_oneof![
            2 => Just(Luck::Succeeds),
            weight => Just(Luck::FailsBefore),
            weight => Just(Luck::FailsAfter),
        ];
        vec(one, 0..120)
    })
}

fn model(luck: Vec<Luck>) -> (Dispatcher, Arc<Mutex<Work>>) {
    let work = Arc::new(Mutex::new(Work { luck, ..Work::default() }));
    let mut dispatcher = Dispatcher::new("generic");
    dispatcher.register(Box::new(Model(work.clone())));
    (dispatcher, work)
}

/// Follows a state until nothing is refused any more.
fn settle(dispatcher: &mut Dispatcher, state: &ClusterState) {
    let is_settled = (0..1_000).any(|_| dispatcher.follow(state).refused.is_empty());
    assert!(is_settled, "it is refused for ever");
}

proptest! {
    #[test]
    fn plugin_events_a_handlers_picture_is_the_last_state(
        states in vec((states(), 0..4_usize), 1..8),
        luck in lucks(),
    ) {
        let (mut dispatcher, work) = model(luck);
        for (state, times) in &states {
            for _ in 0..*times {
                dispatcher.follow(state);
            }
        }
        let (last, _) = states.last().unwrap();
        settle(&mut dispatcher, last);
        prop_assert_eq!(&work.lock().unwrap().picture, &Picture::of(last));
        prop_assert_eq!(dispatcher.dropped(), 0);

        let calls = work.lock().unwrap().calls;
        prop_assert_eq!(dispatcher.follow(last), Outcome::default());
        prop_assert_eq!(work.lock().unwrap().calls, calls, "the same state again");
    }

    #[test]
    fn plugin_events_states_that_are_lost_do_no_harm(states in vec(states(), 1..6), luck in lucks()) {
        let (mut of_all, seen) = model(luck);
        states.iter().for_each(|state| settle(&mut of_all, state));
        let (mut of_ends, missed) = model(Vec::new());
        [&states[0], &states[states.len() - 1]].iter().for_each(|state| settle(&mut of_ends, state));
        prop_assert_eq!(&seen.lock().unwrap().picture, &missed.lock().unwrap().picture);
    }
}
