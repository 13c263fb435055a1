//! NAT discovery between clusters of several gateways, all of them behind NATs: every pair has its own result.
//!
//! ```text
//!   east-gw1 .2 ─┐            ┌───── WAN ─────┐            ┌─ .2 west-gw1      outside:
//!   east-gw2 .3 ─┼─ NAT east ─┤               ├─ NAT west ─┼─ .3 west-gw2      172.31.{1,2}.{200,201}
//!   worker   .4 ─┘            └─ direct link ─┘            └─ .4 worker
//! ```

use std::time::{Duration, Instant};

use trieste_control::admin::CableStatus;
use trieste_tests::cluster::Settings;
use trieste_tests::guard::root_test;
use trieste_tests::lab::Lab;
use trieste_tests::mesh::Mesh;
use trieste_tests::nat::{Nat, Style};
use trieste_tests::wait::eventually;

use super::{Bed, probe, topology};

/// The longest that a flow may miss its path here.
const BAR: Duration = Duration::from_secs(2);
/// An answer and its second of grace, on a busy machine.
const FOUND: Duration = Duration::from_secs(20);
/// What a cable that does not work may take to be found in error, and its peer to be asked anew.
const IN_ERROR: Duration = Duration::from_secs(60);

/// What a pair of gateways knows of the way to one another: state, and the two addresses in use.
#[derive(Debug, Clone, Copy)]
struct Way<'a> {
    state: &'static str,
    to_west: &'a str,
    to_east: &'a str,
}

const fn way<'a>(state: &'static str, to_west: &'a str, to_east: &'a str) -> Way<'a> {
    Way { state, to_west, to_east }
}

#[test]
fn every_pair_of_gateways_has_its_own_result_and_follows_its_own_nat() {
    let name = "every_pair_of_gateways_has_its_own_result_and_follows_its_own_nat";
    let Some(_turn) = root_test(name) else { return };
    let lab = Lab::new().unwrap();
    let mut plan = lab.build(&topology()).unwrap();
    let mut east = Nat::put(&lab, &mut plan, "east", Style::FORWARDED, 1).unwrap();
    let mut west = Nat::put(&lab, &mut plan, "west", Style::FORWARDED, 2).unwrap();
    east.join(&mut west).unwrap();
    east.part_pair(0, &west, 0).unwrap();
    let mut settings = Settings::of(&lab);
    settings.extra = ["nat-enabled: true", "health-check-max-loss: 1"].map(str::to_owned).into();
    for (cluster, nat) in [("east", &east), ("west", &west)] {
        for (gateway, node) in plan.cluster(cluster).gateways().iter().enumerate() {
            let line = format!("public-ip: \"ipv4:{}\"", nat.outside(gateway));
            settings.of_node.push((node.name.clone(), line));
        }
    }
    let mut bed = Bed::around(Mesh::start_in(&lab, plan, &settings).unwrap());

    // The first gateways reach each other through the NATs alone, all other pairs directly.
    let mut ways = [
        [way("public", "172.31.2.200", "172.31.1.200"), way("private", "192.168.2.3", "192.168.1.2")],
        [way("private", "192.168.2.2", "192.168.1.3"), way("private", "192.168.2.3", "192.168.1.3")],
    ];
    expect(&bed.mesh, &ways, FOUND);

    // What was found is used at once by the next process, though nobody answers.
    let node = bed.mesh.side("east").gateway_node(0).namespace.clone();
    let deaf = "table inet deaf {\n chain in {\n  type filter hook input priority 0;\n  udp dport 4490 drop\n }\n}\n";
    node.nft(deaf).unwrap();
    let start = Instant::now();
    let side = bed.mesh.side_mut("east");
    side.kill_gateway(0).unwrap();
    side.start_gateway(0).unwrap();
    bed.mesh.settle().unwrap();
    eprintln!("restarted with discovery blocked: all paths used {} ms after", start.elapsed().as_millis());
    for (to, expected) in ways[0].iter().enumerate() {
        check(&bed.mesh, ("east", 0), ("west", to), "remembered", expected.to_west).unwrap();
    }
    node.nft("delete table inet deaf\n").unwrap();
    expect(&bed.mesh, &ways, FOUND);

    // One more pair loses its direct way: flows leave it, and it comes back through the NATs; the others stay.
    let outages = during(&mut bed, || east.part_pair(1, &west, 1).unwrap());
    eprintln!("the direct way of one pair is cut: {outages}");
    ways[1][1] = way("public", "172.31.2.201", "172.31.1.201");
    expect(&bed.mesh, &ways, IN_ERROR);
    bed.mesh.settle().unwrap();

    // A NAT gives one gateway another address: its pair through the NATs follows, the others do not notice.
    let outages = during(&mut bed, || west.move_to(0, "172.31.2.210".parse().unwrap()).unwrap());
    eprintln!("a gateway has another address outside: {outages}");
    ways[0][0] = way("public", "172.31.2.210", "172.31.1.200");
    expect(&bed.mesh, &ways, FOUND);
    bed.mesh.settle().unwrap();
}

/// Does something while flows are probed, none of which may miss its path for long; tells what they saw.
fn during(bed: &mut Bed, change: impl FnOnce()) -> String {
    let flows = bed.flows();
    let probing = probe(&flows);
    change();
    std::thread::sleep(BAR);
    let outages = probing.finish();
    assert!(outages.longest() < BAR, "{outages:#?}");
    outages.line()
}

/// Waits until every pair knows its way, at both ends.
fn expect(mesh: &Mesh, ways: &[[Way<'_>; 2]; 2], timeout: Duration) {
    eventually("every pair's way", timeout, || {
        for (east, row) in ways.iter().enumerate() {
            for (west, way) in row.iter().enumerate() {
                check(mesh, ("east", east), ("west", west), way.state, way.to_west)?;
                check(mesh, ("west", west), ("east", east), way.state, way.to_east)?;
            }
        }
        Ok(())
    })
    .unwrap();
}

/// Checks what one gateway knows of another: cluster and number of each.
fn check(mesh: &Mesh, at: (&str, usize), of: (&str, usize), state: &str, ip: &str) -> anyhow::Result<()> {
    let far = &mesh.side(of.0).gateway_node(of.1).name;
    let cables = mesh.side(at.0).status(at.1)?.connections;
    let is_it = |cable: &CableStatus| cable.connection.endpoint.hostname == *far;
    let cable = cables.into_iter().find(is_it).ok_or_else(|| anyhow::anyhow!("{at:?}: no cable to {far}"))?;
    let found = cable.discovery.clone().unwrap_or_default();
    anyhow::ensure!(
        (found.state.as_str(), cable.connection.using_ip.as_str()) == (state, ip),
        "{at:?} to {far}: {found:?}, using {}, expected {state} {ip}",
        cable.connection.using_ip
    );
    Ok(())
}
