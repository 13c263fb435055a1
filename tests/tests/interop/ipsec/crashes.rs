//! kill -9 of either side, and how it recovers.

use std::time::{Duration, Instant};

use trieste_tests::guard::root_test;

use super::bed::{Bed, Initiator, TIMEOUT};

#[test]
fn a_crash_of_either_side_is_recovered_from() {
    let Some(_turn) = root_test("a_crash_of_either_side_is_recovered_from") else { return };
    let mut bed = Bed::in_udp(&["ipsec: {dpd-delay: 1, dpd-timeout: 3}"]);
    let connection = bed.connection();
    let count = connection.children.len();
    bed.connect(Initiator::Ours, &connection);
    bed.assert_pods_reach_each_other();

    // Ours comes back and begins anew; INITIAL_CONTACT makes strongSwan forget what it had.
    let start = Instant::now();
    bed.restart_ours(None);
    bed.wait_reachable(TIMEOUT);
    eprintln!("our gateway was killed: reachable again after {:?}", start.elapsed());
    bed.wait_up(count);

    // strongSwan comes back and begins anew.
    let start = Instant::now();
    bed.theirs.kill().unwrap();
    bed.theirs.restart().unwrap();
    bed.theirs.load(&connection).unwrap();
    for child in &connection.children {
        // Ours may begin at the same moment and have one refused: what counts is what is there in the end.
        if let Err(error) = bed.theirs.initiate(&child.name) {
            eprintln!("{}: {error}", child.name);
        }
    }
    bed.wait_reachable(TIMEOUT);
    eprintln!("strongSwan was killed and began anew: reachable again after {:?}", start.elapsed());
    bed.wait_up(count);

    // strongSwan comes back and waits: our gateway has to notice that it has forgotten everything.
    let start = Instant::now();
    bed.theirs.kill().unwrap();
    bed.theirs.restart().unwrap();
    bed.theirs.load(&connection).unwrap();
    bed.wait_reachable(Duration::from_secs(15));
    eprintln!("strongSwan was killed and waited: reachable again after {:?}", start.elapsed());
    bed.wait_up(count);
    bed.assert_pods_reach_each_other();
}
