//! What upstream's gateways put on the wire, as far as strongSwan can say it: libreswan itself has no ESP of its own, and
//! the kernel here has none either.
//!
//! Of libreswan 4: AES-GCM-256 and 128 with PRF SHA2-512 and 256, MODP 2048 first; no fragments, no MOBIKE, no key agreement
//! for child SAs, one for each pair of subnets and exactly that; identities are private addresses, whatever address is on
//! the wire. What strongSwan cannot leave out of a proposal is the transform "no ESN".

use trieste_tests::fault::Fault;
use trieste_tests::guard::root_test;
use trieste_tests::strongswan::Start;
use trieste_tests::topology::ClusterPlan;
use trieste_tests::wait::eventually;

use super::bed::{Bed, Initiator, TIMEOUT};

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
    let before = bed.theirs.wait_children(connection.children.len(), TIMEOUT).unwrap();
    bed.theirs.wait_renewed(&before, TIMEOUT).unwrap();
    bed.assert_pods_reach_each_other();
}

/// A gateway that prefers to be a server has an IKE SA for each pair of subnets, named by their numbers. strongSwan knows
/// one pair here: the other one is refused, and that is visible.
#[test]
fn with_a_preferred_server_on_either_side() {
    let Some(_turn) = root_test("with_a_preferred_server_on_either_side") else { return };
    for initiator in [Initiator::Ours, Initiator::Theirs] {
        let are_we_server = initiator == Initiator::Theirs;
        let bed = Bed::in_udp(&[&format!("preferred-server: {are_we_server}")]);
        let mut endpoint = bed.endpoint();
        endpoint.backend_config.insert("preferred-server".to_owned(), (!are_we_server).to_string());
        let mut connection = bed.connection();
        // Our subnets are published services first; strongSwan's are the pods alone.
        connection.children.retain(|child| child.name == "pods-v4");
        let (own, other) = (connection.local_id, connection.remote_id);
        (connection.local_id, connection.remote_id) = (format!("@{own}-0-1"), format!("@{other}-1-0"));
        bed.theirs.load(&connection).unwrap();
        bed.publish(&endpoint);

        if are_we_server {
            bed.wait_known();
            bed.theirs.initiate("pods-v4").unwrap();
        }

        let ipsec = bed.wait_up(1);
        assert_eq!(ipsec.mode, if are_we_server { "server" } else { "client" });
        let ids: Vec<_> = ipsec.ike_sas.iter().map(|ike| ike.remote_id.as_str()).collect();
        assert!(ids.contains(&connection.local_id.trim_start_matches('@')), "{ids:?}");
        bed.assert_pods_reach_each_other();
        if !are_we_server {
            bed.wait_error("AUTHENTICATION_FAILED");
        }
    }
}

/// Upstream's gateways both begin, each as soon as it knows of the other.
#[test]
fn both_begin_at_once() {
    let Some(_turn) = root_test("both_begin_at_once") else { return };
    let bed = Bed::in_udp(&[]);
    let mut connection = bed.connection();
    connection.remembers_all = true;
    for child in &mut connection.children {
        child.start = Start::Now;
    }
    // Whatever is sent to strongSwan is lost until both are at it.
    let lost = Fault::partition(&bed.plan.cluster("west").gateway().namespace, "eth0").unwrap();
    bed.theirs.load(&connection).unwrap();
    bed.publish(&bed.endpoint());
    eventually("both to have begun", TIMEOUT, || {
        let theirs = bed.theirs.sas()?.len();
        let ours = bed.try_ipsec()?.ike_sas.iter().filter(|ike| ike.is_initiator).count();
        anyhow::ensure!(theirs > 0 && ours > 0, "{theirs} of theirs, {ours} of ours");
        Ok(())
    })
    .unwrap();
    drop(lost);

    bed.wait_reachable(TIMEOUT);
    eventually("one child SA that seals for each pair of subnets", TIMEOUT, || {
        let ipsec = bed.try_ipsec()?;
        let mut sealing: Vec<_> =
            ipsec.child_sas.iter().filter(|child| child.is_sealing).map(|child| &child.selectors).collect();
        let count = sealing.len();
        sealing.sort_unstable();
        sealing.dedup();
        anyhow::ensure!(
            ipsec.is_up && count == connection.children.len() && sealing.len() == count,
            "{ipsec:#?}"
        );
        Ok(())
    })
    .unwrap();
    bed.assert_pods_reach_each_other();
}
