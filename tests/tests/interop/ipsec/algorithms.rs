//! Every cipher and every group, both roles, both families outside.

use std::net::SocketAddr;

use trieste_tests::capture::Capture;
use trieste_tests::guard::root_test;
use trieste_tests::strongswan::Release;
use trieste_tests::topology::Families;
use trieste_tests::traffic::{self, Responder};

use super::bed::{Bed, Initiator, PORT, TIMEOUT};

/// Each ESP cipher and each group once in each role.
const SUITES: [(Initiator, &str, &str); 8] = [
    (Initiator::Ours, "aes256gcm16-prfsha256-x25519", "aes128gcm16"),
    (Initiator::Theirs, "aes256gcm16-prfsha256-x25519", "aes128gcm16"),
    (Initiator::Ours, "aes128gcm16-prfsha256-ecp256", "aes256gcm16"),
    (Initiator::Theirs, "aes128gcm16-prfsha256-ecp256", "aes256gcm16"),
    (Initiator::Ours, "chacha20poly1305-prfsha512-ecp384", "chacha20poly1305"),
    (Initiator::Theirs, "chacha20poly1305-prfsha512-ecp384", "chacha20poly1305"),
    (Initiator::Ours, "aes256gcm16-prfsha384-modp2048", "aes128gcm16"),
    (Initiator::Theirs, "aes256gcm16-prfsha384-modp2048", "aes128gcm16"),
];

#[test]
fn ciphers_and_groups_in_both_roles() {
    let Some(_turn) = root_test("ciphers_and_groups_in_both_roles") else { return };
    let mut bed = Bed::in_udp(&[]);
    let wire = Capture::start(&bed.lab, &bed.plan.wan, "br0", "").unwrap();
    for (initiator, ike, esp) in SUITES {
        let mut connection = bed.connection();
        connection.proposals = ike.to_owned();
        for child in &mut connection.children {
            child.proposals = esp.to_owned();
        }

        bed.connect(initiator, &connection);

        bed.assert_pods_reach_each_other();
        let ipsec = bed.wait_up(connection.children.len());
        // An attempt of our own that nobody hears may be there as well.
        let ours = ipsec.ike_sas.iter().find(|ike| ike.state == "established").unwrap();
        assert_eq!((ours.algorithms.as_str(), ours.is_initiator), (ike, initiator == Initiator::Ours));
        assert!(ipsec.child_sas.iter().all(|child| child.algorithms == esp), "{ipsec:#?}");
        assert_eq!(ipsec.encapsulation.as_deref(), Some("udp"));
    }
    let frames = wire.finish().unwrap();
    let esp = frames.count(&format!("udp port {PORT} and udp[8:4] != 0")).unwrap();
    // strongSwan's routes go while it connects anew: what its pods still say then leaves in clear, by its default route.
    let theirs = "src net 10.2.0.0/16";
    let ours = frames.count(&format!("net 10.0.0.0/8 and not {theirs}")).unwrap();
    let theirs = frames.count(theirs).unwrap();
    assert!(esp > 90 && ours == 0, "{esp} frames of ESP; in clear {ours} of ours, {theirs} of strongSwan's");
}

#[test]
fn over_ipv6_with_both_families_inside() {
    let Some(_turn) = root_test("over_ipv6_with_both_families_inside") else { return };
    let lines = ["force-udp-encaps: true"];
    let mut bed = Bed::new(Families::V6, Families::Dual, Release::Installed, &lines);
    for initiator in [Initiator::Ours, Initiator::Theirs] {
        let connection = bed.connection();

        bed.connect(initiator, &connection);

        assert_eq!(connection.children.len(), 4);
        bed.assert_pods_reach_each_other();
        assert_bytes_arrive(&bed);
    }
}

/// TCP and UDP in both directions and families, addresses preserved, datagrams that do not fit the cable among them.
pub(crate) fn assert_bytes_arrive(bed: &Bed) {
    let bytes: Vec<u8> = (0..500_000_u32).map(|n| n.wrapping_mul(2_654_435_761).to_be_bytes()[0]).collect();
    let (east, west) = bed.pods();
    for (from, to) in [(east, west), (west, east)] {
        let responder = Responder::start(&to.namespace).unwrap();
        for address in to.ips() {
            let target = SocketAddr::new(address, responder.port());
            traffic::send_tcp(&from.namespace, target, &bytes, TIMEOUT).unwrap().check(&bytes).unwrap();
            for size in [1, 1200, 3000] {
                let receipt = traffic::send_udp(&from.namespace, target, &bytes[..size], TIMEOUT).unwrap();
                receipt.check(&bytes[..size]).unwrap();
            }
        }
    }
}
