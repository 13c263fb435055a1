//! New keys under traffic: by either side, of child SAs and of the IKE SA, with and without a key agreement of their own.

use std::time::Duration;

use trieste_tests::guard::root_test;
use trieste_tests::traffic::{self, Ping};

use super::bed::{Bed, Initiator};

/// Pings, one every two milliseconds.
const PINGS: u32 = 6000;

#[test]
fn rekeying_by_either_side_loses_no_packet() {
    let Some(_turn) = root_test("rekeying_by_either_side_loses_no_packet") else { return };
    let ours = |pfs: bool| format!("ipsec: {{pfs: {pfs}, esp-rekey-time: 5, ike-rekey-time: 6}}");
    for (index, (pfs, esp)) in [(true, "aes128gcm16-x25519"), (false, "aes128gcm16")].into_iter().enumerate()
    {
        let mut bed = Bed::in_udp(&[&ours(pfs)]);
        let mut connection = bed.connection();
        for child in &mut connection.children {
            child.proposals = esp.to_owned();
        }
        let initiator = if index == 0 { Initiator::Ours } else { Initiator::Theirs };
        bed.connect(initiator, &connection);

        let ping = ping_while(&bed, || {
            // strongSwan first; ours five seconds after whatever was renewed last.
            for is_ike in [false, true, false] {
                std::thread::sleep(Duration::from_millis(900));
                if is_ike {
                    bed.theirs.rekey_ike().unwrap()
                } else {
                    bed.theirs.rekey_child("pods-v4").unwrap()
                }
            }
        });

        let drops = || bed.ours.status().map(|status| status.drops);
        assert_eq!(ping.received, ping.sent, "PFS {pfs}: {ping:?}; {:?}; {:?}", drops(), bed.theirs.sas());
        let log = bed.theirs.log_text();
        let count =
            |words: &[&str]| log.lines().filter(|line| words.iter().all(|word| line.contains(word))).count();
        for (who, verb) in [("strongSwan", "generating"), ("our gateway", "parsed")] {
            let request = format!("{verb} CREATE_CHILD_SA request");
            let children = count(&[&request, "N(REKEY_SA)"]);
            let ikes = count(&[&request, "[ SA No KE ]"]);
            assert!(children >= 1 && ikes >= 1, "{who} asked for {children} child SAs and {ikes} IKE SAs");
        }
        assert_eq!(count(&["CREATE_CHILD_SA request", "N(REKEY_SA)", " KE "]) > 0, pfs);
        bed.theirs.wait_children(connection.children.len(), Duration::from_secs(10)).unwrap();
    }
}

/// Pings from our pod to theirs for twelve seconds while `work` is done.
fn ping_while(bed: &Bed, work: impl FnOnce() + Send) -> Ping {
    let (east, west) = bed.pods();
    std::thread::scope(|scope| {
        let pings = scope.spawn(|| {
            let extra = ["-i", "0.002", "-s", "200", "-W", "5"];
            traffic::ping_many(&east.namespace, west.v4().unwrap(), PINGS, &extra).unwrap()
        });
        work();
        pings.join().unwrap()
    })
}
