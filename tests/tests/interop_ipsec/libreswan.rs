//! What upstream's gateways put on the wire, as far as strongSwan can say it: libreswan itself has no ESP of its own, and
//! the kernel here has none either.
//!
//! Of libreswan 4: AES-GCM-256 and 128 with PRF SHA2-512 and 256, MODP 2048 first; no fragments, no MOBIKE, no key agreement
//! for child SAs, one for each pair of subnets and exactly that; identities are private addresses, whatever address is on
//! the wire. What strongSwan cannot leave out of a proposal is the transform "no ESN".

use trieste_tests::guard::root_test;
use trieste_tests::topology::ClusterPlan;

use super::bed::{Bed, Initiator};

/// As `ipsec whack` makes them without further words.
const IKE_4: &str =
    "aes256gcm16-prfsha512-modp2048,aes256gcm16-prfsha512-ecp256,aes128gcm16-prfsha512-modp2048";
/// Those of libreswan 5 begin with a curve.
const IKE_5: &str = "aes256gcm16-prfsha512-ecp256,aes256gcm16-prfsha512-modp2048";
const ESP: &str = "aes256gcm16,aes128gcm16";

#[test]
fn as_upstream_speaks() {
    let Some(_turn) = root_test("as_upstream_speaks") else { return };
    // Rekeying by us, whose default is a key agreement for each child SA.
    let mut bed = Bed::in_udp(&["ipsec: {esp-rekey-time: 5}"]);
    let private = |cluster: &ClusterPlan| cluster.gateway().underlay_address().to_string();
    let west_private = "192.168.7.7";
    let mut endpoint = bed.endpoint();
    endpoint.private_ip = west_private.to_owned();
    endpoint.public_ip = private(bed.plan.cluster("west"));
    endpoint.nat_enabled = true;
    let mut connection = bed.connection();
    connection.local_id = west_private.to_owned();
    connection.fragments = false;
    connection.dpd_s = 30;
    for child in &mut connection.children {
        child.proposals = ESP.to_owned();
    }
    for (initiator, proposals) in
        [(Initiator::Ours, IKE_4), (Initiator::Theirs, IKE_4), (Initiator::Theirs, IKE_5)]
    {
        connection.proposals = proposals.to_owned();
        bed.connect_to(&endpoint, initiator, &connection);

        bed.assert_pods_reach_each_other();
        let ipsec = bed.wait_up(connection.children.len());
        assert_eq!(ipsec.mode, "bidirectional");
        assert_eq!(ipsec.ike_sas[0].remote_id, west_private);
    }
    let before = bed.theirs.wait_children(connection.children.len(), super::bed::TIMEOUT).unwrap();
    bed.theirs.wait_renewed(&before, super::bed::TIMEOUT).unwrap();
    bed.assert_pods_reach_each_other();
}
