//! A third cluster joins while the other two talk; and sets of one family.

use std::time::Duration;

use trieste_tests::cables;
use trieste_tests::guard::root_test;
use trieste_tests::lab::Lab;
use trieste_tests::mesh::Mesh;
use trieste_tests::mesh::scenario::Scenario;
use trieste_tests::topology::{Families, Topology};
use trieste_tests::wait::eventually;

use super::{Bed, lost, probe, slow, topology};

/// How long gateways may take to notice what has changed.
const SOON: Duration = Duration::from_secs(20);

#[test]
fn a_cluster_that_joins_and_leaves_and_joins_again_costs_the_others_no_packet() {
    let name = "a_cluster_that_joins_and_leaves_and_joins_again_costs_the_others_no_packet";
    let Some(_turn) = root_test(name) else { return };
    let lab = Lab::new().unwrap();
    let three = Topology::two_clusters().with_underlay(Families::V4).with_nodes(1, 1).with_north();
    let mut bed = Bed::around(Mesh::start_some(&lab, &three, &[], &["east", "west"]).unwrap());
    let flows = bed.flows_of(&[(0, 0), (1, 1), (0, 1)]);

    let failed = bed.undisturbed(|bed| {
        let probing = probe(&flows);
        // The second time its ID is one that was used before.
        for _ in 0..2 {
            bed.mesh.join("north", &[]).unwrap();
            bed.mesh.settle().unwrap();
            bed.mesh.wait_traffic().unwrap();
            bed.mesh.leave("north").unwrap();
            eventually("north to be gone", SOON, || {
                let left = bed.mesh.side("east").status(0)?.connections;
                anyhow::ensure!(left.len() == 1, "{left:?}");
                Ok(())
            })
            .unwrap();
        }
        let outages = probing.finish();
        eprintln!("a third cluster joins and leaves: {}", outages.line());
        lost(&outages, None)
    });
    assert!(failed.is_empty(), "{failed:#?}");
}

/// Nodes, pods and what is between have IPv6 alone. A VXLAN cable goes from one IPv4 address to another: there is none then,
/// and the gateway says so.
#[test]
fn a_set_of_ipv6_alone_has_all_paths_and_survives_the_loss_of_a_gateway() {
    let name = "a_set_of_ipv6_alone_has_all_paths_and_survives_the_loss_of_a_gateway";
    let Some(_turn) = root_test(name) else { return };
    let lab = Lab::new().unwrap();
    let mesh = Mesh::start(&lab, &topology().of_family(Families::V6), &[]).unwrap();
    if cables::driver() == "vxlan" {
        let says_so = || {
            let status = mesh.side("east").status(0)?;
            let why = status.refused.iter().map(|refused| refused.reason.as_str()).collect::<Vec<_>>();
            anyhow::ensure!(why.iter().any(|why| why.contains("is not IPv4")), "{why:?}");
            Ok(())
        };
        return eventually("a gateway to say so", SOON, says_so).unwrap();
    }
    let mut bed = Bed::around(mesh);
    let talks = bed.converse(4);
    let slow = bed.undisturbed(|bed| slow(&bed.trial(Scenario::Kill, "west", 0).outages));
    assert!(slow.is_empty(), "{slow:#?}");
    talks.finish().unwrap();
}
