//! The lines that `./dev demo --kubernetes --keep` prints at its end, on clusters such as it leaves them.

use std::time::Duration;

use trieste_tests::clusters::PodShape;
use trieste_tests::command::Run;
use trieste_tests::demo::things_to_try;

use super::dataplane::connect;
use crate::shared::{PLAIN, lease};

#[test]
fn what_the_demo_says_can_be_tried_can_be() {
    let Some(mut two) = lease(&PLAIN, "plain::demo::what_the_demo_says_can_be_tried_can_be") else { return };
    two.joined();
    two.inhabit_all();
    let client = two.east().start_pod(PodShape::on(two.east().node(1), "client")).unwrap();
    let server = two.west().start_pod(PodShape::on(two.west().node(1), "server")).unwrap();
    let service = two.west().start_service("web", "server").unwrap();
    // Gateways that have just moved to other nodes carry traffic before the objects of both clusters say so.
    connect(two.east(), two.west()).unwrap();

    let lines = things_to_try(&two.set, &client, &server, &service);

    let mut lines = lines.iter().filter(|line| !line.is_empty() && !line.starts_with('#'));
    let shell: Vec<_> = lines.next().unwrap().split(' ').collect();
    // The way in, the names of the programs, and every line up to the one that uninstalls.
    let script = lines.take_while(|line| !line.starts_with("trieste uninstall"));
    // A connection is in progress in its first ten seconds, which is a finding.
    let script = script.filter(|line| !line.starts_with("trieste diagnose all")).cloned();
    let script: Vec<_> = ["shopt -s expand_aliases".to_owned()].into_iter().chain(script).collect();
    assert!(script.len() > 5, "{script:?}");
    let run = Run::new(shell[0]).args(&shell[1..]).args(["-e", "-s"]).input(script.join("\n") + "\n");
    let answered = run.timeout(Duration::from_secs(300)).stdout().unwrap();

    for part in ["submariner-gateway", "seen as ", "established"] {
        assert!(answered.contains(part), "\"{part}\" is missing in:\n{answered}");
    }
}
