//! ESP without UDP, which strongSwan's own ESP can do from its version 6 on.

use trieste_tests::capture::Capture;
use trieste_tests::guard::root_test;
use trieste_tests::strongswan::{Encapsulation, Release};
use trieste_tests::topology::Families;

use super::algorithms::assert_bytes_arrive;
use super::bed::{Bed, Initiator};

#[test]
fn raw_esp_with_strongswan_6_in_both_roles() {
    let Some(_turn) = root_test("raw_esp_with_strongswan_6_in_both_roles") else { return };
    for underlay in [Families::V4, Families::V6] {
        let mut bed = Bed::new(underlay, Families::V4, Release::Trixie, &[]);
        let wire = Capture::start(&bed.lab, &bed.plan.wan, "br0", "").unwrap();
        for initiator in [Initiator::Ours, Initiator::Theirs] {
            let mut connection = bed.connection();
            connection.encapsulation = Encapsulation::AsDetected;

            bed.connect(initiator, &connection);

            bed.assert_pods_reach_each_other();
            assert_bytes_arrive(&bed);
            assert_eq!(bed.try_ipsec().unwrap().encapsulation.as_deref(), Some("esp"));
        }
        let frames = wire.finish().unwrap();
        let protocol = if underlay == Families::V4 { "ip proto 50" } else { "ip6 proto 50" };
        let raw = frames.count(protocol).unwrap();
        let marker = if underlay == Families::V4 { "udp[8:4]" } else { "ip6[48:4]" };
        let in_udp = frames.count(&format!("udp port 4500 and {marker} != 0")).unwrap();
        assert!(raw > 500 && in_udp == 0, "{raw} frames of raw ESP, {in_udp} in UDP");
    }
}
