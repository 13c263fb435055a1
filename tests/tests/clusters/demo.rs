//! `trieste-lab demo --kubernetes` from outside: it works, and it leaves nothing behind. What it leaves up on request is in
//! `families`, what it says can be tried there in `plain::demo`.

use std::time::Duration;

use trieste_tests::command::Run;
use trieste_tests::programs;

use super::families::nothing_is_left;
use super::shared::own;

const LONG: Duration = Duration::from_secs(900);

/// What both say.
const CLAIMS: [&str; 9] = [
    "5 of 5 answered",
    "arrived unchanged",
    "TCP client → Service web",
    "web.shop.svc.clusterset.local: 1",
    "web.shop.svc.clusterset.local: no address",
    "west is back",
    "All connections (1) are established",
    "none differs",
    "nothing left behind",
];

fn demo(flags: &[&str], claims: &[&str]) {
    let program = programs::path("trieste-lab").unwrap();
    let told = Run::new(program).args(["demo", "--kubernetes"]).args(flags).timeout(LONG).stdout().unwrap();
    for claim in CLAIMS.iter().chain(claims) {
        assert!(told.contains(claim), "\"{claim}\" is missing in:\n{told}");
    }
    nothing_is_left(told.split_once("(lab ").unwrap().1.split_once(')').unwrap().0);
    eprintln!("{told}");
}

#[test]
fn the_demo_of_real_clusters_shows_what_it_claims_and_leaves_nothing() {
    let Some(_own) = own("the_demo_of_real_clusters_shows_what_it_claims_and_leaves_nothing") else { return };
    demo(&[], &["trieste deploy-broker", "Cluster \"west\" has joined", "has been uninstalled"]);
}

#[test]
fn the_demo_by_the_operators_pods_shows_what_it_claims_and_leaves_nothing() {
    let Some(_own) = own("the_demo_by_the_operators_pods_shows_what_it_claims_and_leaves_nothing") else {
        return;
    };
    demo(
        &["--operator"],
        &[
            "both clusters are ready",
            "path-probe-interval 50",
            "DaemonSet submariner-operator/submariner-gateway was changed",
            "kubectl delete fabric east",
        ],
    );
}
