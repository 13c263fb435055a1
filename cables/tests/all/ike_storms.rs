//! Two engines while everything goes wrong at once, and after.

use rand_chacha::rand_core::RngCore;
use trieste_cables::ipsec::ike::{EngineConfig, Input};

use crate::ike::two::*;
use crate::ike::{Faults, Net, peer};

/// Everything happens at random; when it stops, both ends agree.
fn storm(seed: u64, settings: &[(&str, &str)], configs: &[EngineConfig; 2]) -> Net {
    let [a, b] = configs.clone();
    let mut net = net(seed, settings, a, b);
    net.faults = Faults { loss: 150, repetition: 100, delay: (1, 400) };
    let (here, there) = sites(settings);
    for _ in 0..40 {
        let span = net.rng.next_u64() % 4000;
        traffic(&mut net, millis(span));
        match net.rng.next_u64() % 12 {
            0..4 => net.input(A.0, Input::Rekey(A.1)),
            4..8 => net.input(B.0, Input::Rekey(B.1)),
            8..10 => {
                net.input(A.0, Input::Rekey(A.1));
                net.input(B.0, Input::Rekey(B.1));
            }
            10 => {
                net.restart(A.0, configs[0].clone());
                net.connect(A.0, peer(A.1.0, &here, &there));
            }
            _ => {
                net.restart(B.0, configs[1].clone());
                net.connect(B.0, peer(B.1.0, &there, &here));
            }
        }
    }
    net.faults = Faults { loss: 0, repetition: 0, delay: (1, 20) };
    net
}

#[test]
fn after_any_storm_two_trieste_gateways_have_exactly_one_pair() {
    for seed in 0..25 {
        let mut net = storm(seed, TRIESTE, &[eager("secret"), eager("secret")]);
        // What waits for a dead peer takes a minute and the time until it is asked.
        net.run(seconds(200));
        println!("seed {seed}");
        assert_single(&net);
        let before = lost(&net);
        traffic(&mut net, seconds(5));
        assert_eq!(lost(&net), before);
    }
}

#[test]
fn after_any_storm_every_pair_of_subnets_has_its_child_sa() {
    for seed in 100..112 {
        let mut net = storm(seed, &[], &[eager("secret"), eager("secret")]);
        net.run(seconds(200));
        println!("seed {seed}");
        assert_connected(&net);
        for node in &net.nodes {
            let report = node.report(net.now);
            assert_eq!((report.ikes.len(), report.children.len()), (1, 4), "{report:#?}");
        }
    }
}
