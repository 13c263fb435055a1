//! Real clusters of two active gateways and a worker each, installed the way users install them, with strict reverse path
//! filters on every node: the path matrix with kube-proxy around it, in both of its modes, without and with Globalnet, and
//! what the loss of a gateway's node does to connections.
//!
//! ```text
//!  east (kube-proxy on iptables)                        west (kube-proxy on nftables)
//!  east-1 worker ─┬─ east-2 gateway ─┬──╲ ╱──┬─ west-2 gateway ─┬─ west-1 worker
//!                 └─ east-3 gateway ─┴───╳───┴─ west-3 gateway ─┘
//! ```
//!
//! Flows spread by themselves; the nodes of the gateways note who carried what, there and back. All pairs of gateways there
//! have to be seen with all pairs back, with pods and with services, and the server has to see the client's own address:
//! whatever kube-proxy and connection tracking on the nodes think of a connection of which they see one half.

mod bed;
mod flows;
mod losses;
mod matrix;
mod traces;

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use trieste_tests::clusters::{ClusterShape, ProxyMode, globalnet_site};
use trieste_tests::globalnet::{hairpins, rows};
use trieste_tests::guard::root_test;
use trieste_tests::lab::Lab;
use trieste_tests::table::Table;
use trieste_tests::topology::Families;

use bed::{Bed, Side};

/// Two such sets at once would need more inotify instances than kernels give one user by default (128).
static ONE_SET: Mutex<()> = Mutex::new(());

/// Rows that are gone through at the same time: they mostly wait for pings.
const AT_ONCE: usize = 5;

/// How long anything may take until it is well.
pub(crate) const SOON: Duration = Duration::from_secs(90);

#[test]
fn every_way_there_goes_with_every_way_back_and_kube_proxy_does_not_mind() {
    let name = "every_way_there_goes_with_every_way_back_and_kube_proxy_does_not_mind";
    let _one = ONE_SET.lock().unwrap_or_else(PoisonError::into_inner);
    let Some(_turn) = root_test(name) else { return };
    let clock = Instant::now();
    let lab = Lab::new().unwrap();
    let east = ClusterShape::new("east", 1).with_nodes(3).with_proxy(ProxyMode::Iptables);
    let bed = Bed::joined(&lab, &[east, ClusterShape::new("west", 2).with_nodes(3)], &[]);
    let sides: [Side<'_>; 2] = bed.sides();
    bed.settle().unwrap();
    eprintln!("joined, two gateways each, after {:.1?}", clock.elapsed());

    let table = Table::default();
    let carriers = bed.carriers();
    matrix::between_pods(&bed, &sides, &carriers, &table);
    eprintln!("matrix after {:.1?}", clock.elapsed());
    flows::run(&sides, &table);
    eprintln!("flows after {:.1?}", clock.elapsed());
    losses::of_services(&bed, &sides, &table);

    eprintln!("all checked after {:.1?}:\n{table}", clock.elapsed());
    table.assert_no_failure();
}

#[test]
fn with_globalnet_too_and_translated_connections_outlive_the_gateway_that_owns_them() {
    let name = "with_globalnet_too_and_translated_connections_outlive_the_gateway_that_owns_them";
    let _one = ONE_SET.lock().unwrap_or_else(PoisonError::into_inner);
    let Some(_turn) = root_test(name) else { return };
    let clock = Instant::now();
    let lab = Lab::new().unwrap();
    let shape = |name: &str| ClusterShape::new(name, 1).with_nodes(3).with_families(Families::V4);
    let shapes = [shape("east").with_proxy(ProxyMode::Iptables), shape("west")];
    let bed = Bed::joined(&lab, &shapes, &["--globalnet"]);
    let clusters = bed.set.clusters.all();
    let (east, west) = std::thread::scope(|scope| {
        let east = scope.spawn(|| globalnet_site(&clusters[0]).unwrap());
        let west = globalnet_site(&clusters[1]).unwrap();
        (east.join().unwrap(), west)
    });
    bed.inhabit_all();
    bed.settle().unwrap();
    eprintln!("joined, two gateways each, after {:.1?}", clock.elapsed());

    let table = Table::default();
    let carriers = bed.carriers();
    matrix::between_sites(&[&east, &west], &carriers, &table);
    eprintln!("matrix after {:.1?}", clock.elapsed());
    // A service of the own cluster is kube-proxy's by its global IP too, which is its external one.
    let own = hairpins(&east).into_iter().filter(|row| row.is_headless);
    let rows: Vec<_> = rows(&east, &west).into_iter().chain(own).collect();
    for some in rows.chunks(AT_ONCE) {
        std::thread::scope(|scope| {
            for row in some {
                scope.spawn(|| table.row(row.id, row.what, || Ok(format!("seen as {}", row.check(&lab)?))));
            }
        });
    }
    eprintln!("flows after {:.1?}", clock.elapsed());
    losses::of_translations(&bed, &east, &west, &table);

    eprintln!("all checked after {:.1?}:\n{table}", clock.elapsed());
    table.assert_no_failure();
}
