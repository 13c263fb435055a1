//! Somebody who has the set's key says that it is another member.

use std::net::SocketAddr;
use std::time::Duration;

use trieste_cables::Site;
use trieste_cables::ipsec::ike::{EngineConfig, PeerConfig};
use trieste_packet::LaneId;

use crate::ike::two::{TRIESTE, assert_connected, seconds, sites};
use crate::ike::{Net, config, peer};

const LANE: LaneId = LaneId(0x0b00);

/// `b` as `a` says it knows it, at this address; and `a` as it is, or as somebody else is who says that it is `a`.
fn begins(net: &mut Net, node: usize, to: &str, settings: &[(&str, &str)], key: Option<&[u8]>) {
    let (here, there) = sites(settings);
    let mut to_b = peer(0x0a00, &here, &there);
    to_b.address = Some(SocketAddr::new(to.parse().unwrap(), 4500));
    to_b.pair_key = key.map(|key| key.to_vec().into());
    net.connect(node, to_b);
}

/// `a`, `b` and a member with `a`'s site and the set's key, elsewhere. `b` has a cable to `a`; it is not begun.
fn net(settings: &[(&str, &str)], change: impl Fn(&mut PeerConfig), b: EngineConfig) -> Net {
    let mut net = Net::new(7);
    net.add("10.0.0.1", config("secret"));
    net.add("10.0.0.2", b);
    net.add("10.0.0.66", config("secret"));
    let (here, there) = sites(settings);
    let mut to_a = peer(LANE.0, &there, &here);
    change(&mut to_a);
    net.connect(1, to_a);
    net
}

/// How many pairs `b` has for packets of `a`, and what it says of it.
fn state(net: &Net) -> (usize, String) {
    let error = net.nodes[1].report(net.now()).error.unwrap_or_default();
    (net.nodes[1].lanes[&LANE].live().count(), error)
}

#[test]
fn who_has_the_sets_key_alone_is_no_member_that_has_a_key_of_its_own() {
    let key = Some(b"of the two".as_slice());
    // It begins, and from the very address of `a`, too.
    for place in ["10.0.0.66", "10.0.0.1"] {
        let mut net =
            net(TRIESTE, |to_a| to_a.pair_key = Some(b"of the two".to_vec().into()), config("secret"));
        net.nodes[0].is_dead = true;
        net.nat = vec![(net.nodes[2].address, SocketAddr::new(place.parse().unwrap(), 4500))];
        begins(&mut net, 2, "10.0.0.2", TRIESTE, None);
        net.run(seconds(20));
        let (pairs, error) = state(&net);
        assert_eq!(pairs, 0, "from {place}");
        assert!(place == "10.0.0.1" || error.contains("another PSK"), "{error}");

        // The real one comes, from wherever.
        net.nat = vec![(net.nodes[0].address, "192.0.2.9:4500".parse().unwrap())];
        net.nodes[0].is_dead = false;
        begins(&mut net, 0, "10.0.0.2", TRIESTE, key);
        net.run(seconds(60));
        assert_eq!(state(&net).0, 1, "{:?}", state(&net));
    }
}

#[test]
fn two_with_a_key_of_their_own_connect_and_stay_connected() {
    let with_key = |local: &Site, remote: &Site, lane| {
        let mut to = peer(lane, local, remote);
        to.pair_key = Some(b"of the two".to_vec().into());
        to
    };
    let mut net = Net::new(3);
    net.add("10.0.0.1", config("one"));
    net.add("10.0.0.2", config("another"));
    let (here, there) = sites(TRIESTE);
    net.connect(0, with_key(&here, &there, crate::ike::two::A.1.0));
    net.connect(1, with_key(&there, &here, crate::ike::two::B.1.0));
    net.run(seconds(10));
    assert_connected(&net);
}

#[test]
fn a_peer_without_a_key_of_its_own_is_taken_at_its_endpoints_addresses_alone() {
    let mut net = net(&[], |_| {}, config("secret"));
    net.nodes[0].is_dead = true;
    begins(&mut net, 2, "10.0.0.2", &[], None);
    net.run(seconds(20));
    let (pairs, error) = state(&net);
    assert_eq!(pairs, 0);
    assert!(error.contains("it comes from 10.0.0.66") && error.contains("ipsec.any-address"), "{error}");

    // Its public address, and where it is said not to matter.
    for (public_ip, takes_any_address) in [(Some("10.0.0.66"), false), (None, true)] {
        let public_ip = public_ip.map(|text| text.parse().unwrap());
        let b = EngineConfig { takes_any_address, ..config("secret") };
        let mut net = self::net(&[], |to_a| to_a.remote.public_ip = public_ip, b);
        net.nodes[0].is_dead = true;
        begins(&mut net, 2, "10.0.0.2", &[], None);
        net.run(seconds(20));
        assert_eq!(state(&net).0, 4, "{:?}", state(&net));
    }
}

#[test]
fn while_the_peer_answers_nobody_else_takes_its_place_and_when_it_is_gone_it_may_come_from_elsewhere() {
    // The other one even is where the Endpoint says that the peer can be.
    let public = |to_a: &mut PeerConfig| to_a.remote.public_ip = Some("10.0.0.66".parse().unwrap());
    let mut net = net(&[], public, config("secret"));
    begins(&mut net, 0, "10.0.0.2", &[], None);
    net.run(seconds(20));
    let path = net.nodes[1].lanes[&LANE].path;
    assert!(path.is_some_and(|path| path.outer.peer.ip().to_string() == "10.0.0.1"), "{path:?}");

    begins(&mut net, 2, "10.0.0.2", &[], None);
    net.run(Duration::from_secs(300));
    assert_eq!(net.nodes[1].lanes[&LANE].path, path);
    assert!(state(&net).1.contains("it answers from another address"), "{:?}", state(&net));

    net.nodes[0].is_dead = true;
    net.run(Duration::from_secs(120));
    let path = net.nodes[1].lanes[&LANE].path;
    assert!(path.is_some_and(|path| path.outer.peer.ip().to_string() == "10.0.0.66"), "{path:?}");
}
