//! Two engines and a network between them.

use std::cell::Cell;
use std::net::SocketAddr;
use std::rc::Rc;

use trieste_cables::ipsec::crypto::{Group, IkeAead};
use trieste_cables::ipsec::ike::{EngineConfig, IkeEvent, Input, PeerConfig};
use trieste_cables::ipsec::wire::{Exchange, Header, NotifyKind, Payload, emit, parse};
use trieste_cables::ipsec::{EspSuite, LaneNews, PREFERRED_SERVER};
use trieste_packet::{LaneId, Outer};
use trieste_simulator::Link;

use crate::ike::two::*;
use crate::ike::{Net, config, peer, site};

#[test]
fn two_trieste_gateways_connect_within_three_round_trips() {
    let mut net = net(1, TRIESTE, config("secret"), config("secret"));
    net.run(millis(500));
    assert_connected(&net);
    for (node, lane) in [A, B] {
        let report = net.nodes[node].report(net.now());
        assert_eq!(report.ikes.len(), 1, "{report:#?}");
        assert_eq!(report.children.len(), 1, "{report:#?}");
        assert_eq!(report.children[0].algorithms, "aes128gcm16-esn");
        assert_eq!(report.ikes[0].algorithms, "aes256gcm16-prfsha256-x25519");
        assert_eq!((report.encapsulation, report.error), (Some("udp"), None));
        assert!(net.nodes[node].events.contains(&IkeEvent::Up { lane }));
    }
}

#[test]
fn towards_upstream_every_pair_of_subnets_has_a_child_sa_of_its_own() {
    let mut net = net(2, &[], config("secret"), config("secret"));
    net.run(seconds(3));
    assert_connected(&net);
    for node in &net.nodes {
        let report = node.report(net.now());
        assert_eq!((report.ikes.len(), report.children.len()), (1, 4), "{report:#?}");
        assert_eq!(report.encapsulation, Some("esp"));
        assert_eq!(node.lane().path.unwrap().outer.peer.port(), 0);
    }
}

#[test]
fn both_may_begin_at_the_same_moment_and_one_ike_sa_stays() {
    for seed in 0..30 {
        let mut net = net(seed, TRIESTE, eager("secret"), eager("secret"));
        net.link = Link::millis(5, 25);
        traffic(&mut net, seconds(15));
        assert_single(&net);
        assert_eq!(lost(&net), 0, "seed {seed}");
    }
}

#[test]
fn a_wrong_psk_is_named_on_both_sides() {
    let mut net = net(3, TRIESTE, config("secret"), config("other"));
    net.run(seconds(3));
    let reports = [net.nodes[0].report(net.now()), net.nodes[1].report(net.now())];
    let errors: Vec<_> = reports.iter().map(|report| report.error.clone().unwrap_or_default()).collect();
    assert!(errors.iter().all(|error| error.contains("AUTHENTICATION_FAILED")), "{errors:?}");
    assert!(
        reports.iter().all(|report| !report.is_up && report.children.iter().all(|c| c.inbound.is_none()))
    );
}

#[test]
fn no_common_proposal_is_named() {
    let b = EngineConfig { ike_aeads: vec![IkeAead::ChaCha20Poly1305], ..config("secret") };
    let a = EngineConfig { ike_aeads: vec![IkeAead::Aes256Gcm16], ..config("secret") };
    let mut net = net(4, TRIESTE, a, b);
    net.run(seconds(1));
    assert_eq!(net.nodes[0].report(net.now()).error.as_deref(), Some("NO_PROPOSAL_CHOSEN (peer)"));
    // Nobody vouches for it: the attempt goes on.
    assert_eq!(net.nodes[0].report(net.now()).ikes.len(), 1);
}

#[test]
fn no_common_esp_proposal_leaves_the_ike_sa_and_is_named_at_the_child_sa() {
    let a = EngineConfig { esp_suites: vec![EspSuite::Aes128Gcm16], ..config("secret") };
    let b = EngineConfig { esp_suites: vec![EspSuite::ChaCha20Poly1305], ..config("secret") };
    let mut net = net(5, TRIESTE, a, b);
    net.run(seconds(1));
    let report = net.nodes[0].report(net.now());
    assert_eq!(report.ikes[0].state, "established");
    let failed = &report.children[0];
    assert_eq!((failed.state, failed.error.as_deref()), ("failed", Some("NO_PROPOSAL_CHOSEN (peer)")));
}

#[test]
fn wrong_selectors_concern_the_child_sa_that_has_them_alone() {
    let mut net = Net::new(6);
    net.add("10.0.0.1", config("secret"));
    net.add("10.0.0.2", config("secret"));
    let (here, there) = sites(&[]);
    let odd = site("b", "10.0.0.2", &["10.2.0.0/16", "10.99.0.0/16"], &[]);
    net.connect(0, peer(A.1.0, &here, &odd));
    net.connect(1, peer(B.1.0, &there, &here));
    net.run(seconds(5));
    assert!(net.check(A, B, &everything()).is_ok());
    let report = net.nodes[0].report(net.now());
    let failed: Vec<_> = report.children.iter().filter(|child| child.error.is_some()).collect();
    assert_eq!(failed.len(), 2, "{report:#?}");
    assert!(failed.iter().all(|child| child.error.as_deref() == Some("TS_UNACCEPTABLE (peer)")));
    assert_eq!(failed[0].selectors, "10.1.0.0/16 === 10.99.0.0/16");
    let told = |event: &IkeEvent| matches!(event, IkeEvent::ChildFailed { reason, .. } if reason == "TS_UNACCEPTABLE (peer)");
    assert_eq!(net.nodes[0].events.iter().filter(|event| told(event)).count(), 2);
}

#[test]
fn another_group_is_tried_when_the_peer_asks_for_it() {
    for (group, word) in [(Group::Ecp256, "ecp256"), (Group::Ecp384, "ecp384"), (Group::Modp2048, "modp2048")]
    {
        let b = EngineConfig { groups: vec![group], ..config("secret") };
        let mut net = net(7, TRIESTE, config("secret"), b);
        net.run(seconds(1));
        assert_single(&net);
        assert!(net.nodes[0].report(net.now()).ikes[0].algorithms.ends_with(word));
        net.input(0, Input::Rekey(A.1));
        net.run(seconds(12));
        assert_single(&net);
        let report = net.nodes[0].report(net.now());
        assert_eq!(report.children[0].algorithms, format!("aes128gcm16-{word}-esn"));
    }
}

#[test]
fn everything_is_renewed_by_either_side_and_by_both_at_once_without_loss() {
    for seed in 0..8 {
        let mut net = net(seed, TRIESTE, config("secret"), config("secret"));
        net.link = Link::millis(5, 15);
        traffic(&mut net, seconds(3));
        for who in [&[A][..], &[B], &[A, B]] {
            for _ in 0..3 {
                let before: Vec<_> = net.nodes[0].lane().live().map(|pair| pair.sa.inbound).collect();
                who.iter().for_each(|(node, lane)| net.input(*node, Input::Rekey(*lane)));
                traffic(&mut net, seconds(20));
                assert_single(&net);
                let after: Vec<_> = net.nodes[0].lane().live().map(|pair| pair.sa.inbound).collect();
                assert_ne!(before, after, "seed {seed}");
            }
        }
        assert_eq!(lost(&net), 0, "seed {seed}");
        assert!(!net.nodes.iter().any(|node| node.events.iter().any(|e| matches!(e, IkeEvent::Down { .. }))));
    }
}

#[test]
fn lifetimes_bring_new_keys_by_themselves() {
    let mut net = net(8, TRIESTE, config("secret"), config("secret"));
    net.run(seconds(1));
    let first = net.nodes[0].report(net.now());
    net.run(seconds(6 * 3600));
    assert_single(&net);
    let later = net.nodes[0].report(net.now());
    assert_ne!(first.ikes[0].initiator_spi, later.ikes[0].initiator_spi);
    assert!(later.children[0].age.is_some_and(|age| age <= seconds(3600)), "{later:#?}");
    assert_eq!(lost(&net), 0);
}

#[test]
fn a_worn_child_sa_is_renewed() {
    let mut net = net(9, TRIESTE, config("secret"), config("secret"));
    net.run(seconds(1));
    let worn = net.nodes[0].lane().pairs[0].sa.inbound;
    net.nodes[0].lane().tell(LaneNews::Worn { child: worn });
    net.run(seconds(2));
    assert_single(&net);
    assert_ne!(net.nodes[0].lane().live().next().map(|pair| pair.sa.inbound), Some(worn));
}

#[test]
fn a_dead_peer_is_noticed_and_found_again() {
    let mut net = net(10, TRIESTE, config("secret"), config("secret"));
    net.run(seconds(1));
    net.nodes[1].is_dead = true;
    net.run(seconds(95));
    let report = net.nodes[0].report(net.now());
    assert_eq!((report.is_up, report.error.as_deref()), (false, Some("the peer does not answer")));
    assert!(net.nodes[0].events.iter().any(|event| matches!(event, IkeEvent::Down { .. })));
    assert!(net.nodes[0].lane().downs > 0);
    assert_eq!(net.nodes[0].lane().pairs.len(), 0);
    net.restart(1, config("secret"));
    let (here, there) = sites(TRIESTE);
    net.connect(1, peer(B.1.0, &there, &here));
    net.run(seconds(40));
    assert_single(&net);
}

#[test]
fn a_peer_that_restarts_is_taken_back_at_once() {
    for node in [0, 1] {
        let mut net = net(11, TRIESTE, config("secret"), config("secret"));
        net.run(seconds(5));
        net.restart(node, config("secret"));
        let (here, there) = sites(TRIESTE);
        let config = if node == 0 { peer(A.1.0, &here, &there) } else { peer(B.1.0, &there, &here) };
        // The peer does not know of it, so that nobody else would begin.
        net.connect(node, PeerConfig { begins: true, ..config });
        net.run(millis(500));
        assert_connected(&net);
        net.run(seconds(2));
        assert_single(&net);
    }
}

#[test]
fn a_closed_cable_is_told_to_the_peer() {
    let mut net = net(12, TRIESTE, config("secret"), config("secret"));
    net.run(seconds(1));
    net.input(1, Input::Disconnect(B.1));
    net.run(millis(100));
    assert!(net.nodes[0].events.iter().any(|event| matches!(event, IkeEvent::Down { .. })));
    assert!(net.nodes[1].lane().pairs.is_empty());
    net.run(seconds(20));
    assert!(net.nodes[0].lane().pairs.is_empty());
}

#[test]
fn servers_wait_and_clients_begin_with_an_ike_sa_for_each_pair() {
    let mut net = Net::new(13);
    net.add("10.0.0.1", config("secret"));
    net.add("10.0.0.2", config("secret"));
    let (mut here, mut there) = sites(&[]);
    here.backend_config.insert(PREFERRED_SERVER.to_owned(), "true".to_owned());
    there.backend_config.insert(PREFERRED_SERVER.to_owned(), "false".to_owned());
    net.connect(0, peer(A.1.0, &here, &there));
    net.run(seconds(2));
    assert!(net.log.is_empty(), "a server begins nothing");
    net.connect(1, peer(B.1.0, &there, &here));
    net.run(seconds(2));
    assert_connected(&net);
    let report = net.nodes[0].report(net.now());
    assert_eq!((report.mode, report.ikes.len(), report.children.len()), ("server", 4, 4), "{report:#?}");
    let mut ids: Vec<_> =
        report.ikes.iter().map(|ike| format!("{} {}", ike.local_id, ike.remote_id)).collect();
    ids.sort();
    assert_eq!(ids[1], "10.0.0.1-0-1 10.0.0.2-1-0");
    net.restart(0, config("secret"));
    net.connect(0, peer(A.1.0, &here, &there));
    net.run(seconds(100));
    assert_connected(&net);
}

#[test]
fn messages_go_in_fragments_where_they_are_long() {
    let small = || EngineConfig { fragment_bytes: 200, ..config("secret") };
    let mut net = net(14, TRIESTE, small(), small());
    net.link = Link { copies: 300, ..Link::millis(1, 40) };
    net.run(seconds(5));
    assert_single(&net);
    let longest = net
        .log
        .iter()
        .filter(|(_, _, message)| {
            Header::parse(message).is_ok_and(|(h, ..)| h.exchange != Exchange::IkeSaInit)
        })
        .map(|(_, _, message)| message.len())
        .max();
    assert!(longest.is_some_and(|bytes| bytes <= 196), "{longest:?}");
}

#[test]
fn a_cookie_is_sent_back_with_the_same_request() {
    let mut net = Net::new(15);
    net.add("10.0.0.1", config("secret"));
    let (here, there) = sites(TRIESTE);
    net.connect(0, peer(A.1.0, &here, &there));
    let first = parse(&net.log[0].2).expect("a request");
    let header = Header { is_initiator: false, is_response: true, ..first.header };
    let cookie = Payload::notify(NotifyKind::Cookie, vec![7; 20]);
    let answer = emit(&header, std::slice::from_ref(&cookie));
    let from = Outer { peer: SocketAddr::new(there.private_ip, 4500), local: Some(here.private_ip), tos: 0 };
    net.input(0, Input::Datagram { message: answer, from });
    let second = parse(&net.log[1].2).expect("a request");
    assert_eq!(second.header, first.header);
    assert_eq!(second.payloads[0], cookie);
    assert_eq!(second.payloads[1..], first.payloads[..]);
}

#[test]
fn requests_are_repeated_bit_for_bit_and_so_are_answers() {
    let mut net = net(16, TRIESTE, config("secret"), config("secret"));
    net.link.loss = 400;
    net.run(seconds(60));
    net.link.loss = 0;
    net.run(seconds(60));
    assert_single(&net);
    let mut seen = std::collections::BTreeMap::new();
    for (_, from, message) in &net.log {
        let (header, ..) = Header::parse(message).expect("a message of ours");
        let key =
            (*from, header.spi_i, header.is_response, header.is_initiator, header.message_id, header.spi_r);
        let before = seen.insert(key, message.clone());
        assert!(before.is_none_or(|before| before == *message), "{header:?} was not repeated bit for bit");
    }
}

#[test]
fn a_peer_that_moves_behind_its_nat_is_followed() {
    let mut net = Net::new(17);
    net.add("10.0.0.1", config("secret"));
    net.add("192.0.2.2", config("secret"));
    let (here, mut there) = sites(TRIESTE);
    there.private_ip = "192.0.2.2".parse().expect("an address");
    let outside: SocketAddr = "198.51.100.1:30001".parse().expect("an address");
    net.nat.push((net.nodes[0].address, outside));
    net.connect(0, peer(A.1.0, &here, &there));
    let mut from_there = peer(B.1.0, &there, &here);
    from_there.address = Some(outside);
    net.connect(1, from_there);
    net.run(seconds(3));
    assert_single(&net);
    let (a, b) = (net.nodes[0].report(net.now()), net.nodes[1].report(net.now()));
    assert!(a.ikes[0].is_local_nat && b.ikes[0].is_remote_nat && !a.ikes[0].is_remote_nat, "{a:#?} {b:#?}");
    assert_eq!(net.nodes[1].lane().path.map(|path| (path.outer.peer, path.may_move)), Some((outside, true)));
    let keepalives = Rc::new(Cell::new(0));
    let counter = Rc::clone(&keepalives);
    let inside = net.nodes[0].address;
    net.filter = Some(Box::new(move |from, payload| {
        if payload == [0xff] {
            assert_eq!(from, inside, "only who is behind the NAT keeps its mapping");
            counter.set(counter.get() + 1);
        }
        false
    }));
    let moved: SocketAddr = "198.51.100.1:40002".parse().expect("an address");
    net.nat[0].1 = moved;
    net.run(seconds(120));
    assert_single(&net);
    assert_eq!(net.nodes[1].lane().path.map(|path| path.outer.peer), Some(moved));
    assert!((2..=6).contains(&keepalives.get()), "{} in two minutes", keepalives.get());
}

#[test]
fn half_open_ike_sas_are_few_whoever_asks() {
    let small = EngineConfig { half_open: (50, 10), ..config("secret") };
    let mut net = Net::new(18);
    net.add("10.0.0.1", config("secret"));
    net.add("10.0.0.2", small);
    let (here, there) = sites(TRIESTE);
    net.connect(0, peer(A.1.0, &here, &there));
    net.connect(1, peer(B.1.0, &there, &here));
    let request = parse(&net.log[0].2).expect("a request");
    for index in 0..500u64 {
        let header = Header { spi_i: index + 1, ..request.header };
        let source = SocketAddr::new(
            std::net::Ipv4Addr::from(0x0a09_0000 + u32::try_from(index % 7).unwrap_or(0)).into(),
            4500,
        );
        let from = Outer { peer: source, local: Some(there.private_ip), tos: 0 };
        net.input(1, Input::Datagram { message: emit(&header, &request.payloads), from });
    }
    let load = net.nodes[1].engine.load();
    assert_eq!(load.half_open.load(std::sync::atomic::Ordering::Relaxed), 50);
    net.run(seconds(60));
    assert_eq!(load.half_open.load(std::sync::atomic::Ordering::Relaxed), 0);
    assert_single(&net);
}

/// Two clusters of two gateways each: every gateway has a cable to each of the others.
fn mesh(settings: &[(&str, &str)]) -> Net {
    let mut net = Net::new(11);
    let all = ["10.0.0.1", "10.0.0.2", "10.0.0.3", "10.0.0.4"];
    for ip in all {
        net.add(ip, config("secret"));
    }
    let cluster = |node: usize| node / 2;
    let end = |node: usize, to: usize| {
        let subnets: &[&str] = match cluster(node) {
            _ if cluster(node) == cluster(to) => &["0.0.0.0/0", "::/0"],
            0 => &["10.1.0.0/16", "fd01::/48"],
            _ => &["10.2.0.0/16", "fd02::/48"],
        };
        site(&format!("gateway-{node}"), all[node], subnets, settings)
    };
    for node in 0..4 {
        for to in (0..4).filter(|to| *to != node) {
            net.connect(node, peer(lane_between(node, to).0, &end(node, to), &end(to, node)));
        }
    }
    net
}

fn lane_between(node: usize, to: usize) -> LaneId {
    LaneId(u32::try_from(node * 16 + to + 1).expect("four gateways") << 8)
}

#[test]
fn cables_with_the_same_selectors_and_siblings_cables_for_everything_stand_side_by_side() {
    let mut net = mesh(TRIESTE);
    net.run(seconds(3));
    let between = |a: usize, b: usize| ((a, lane_between(a, b)), (b, lane_between(b, a)));
    let check = |net: &Net, a: usize, b: usize, texts: (&str, &str)| {
        let (here, there) = between(a, b);
        if let Err(problem) = net.check(here, there, &pair(texts.0, texts.1)) {
            panic!("{a} and {b}: {problem}");
        }
    };
    for round in 0..2 {
        for a in 0..2 {
            for b in 2..4 {
                check(&net, a, b, ("10.1.0.0/16", "10.2.0.0/16"));
                check(&net, a, b, ("fd01::/48", "fd02::/48"));
            }
        }
        // What one passes on to the other: for a remote cluster, from one, between themselves.
        for texts in
            [("10.1.0.0/16", "10.2.0.0/16"), ("10.2.0.0/16", "10.1.0.0/16"), ("10.0.0.1/32", "10.0.0.2/32")]
        {
            check(&net, 0, 1, texts);
        }
        check(&net, 2, 3, ("fd02::/48", "fd01::/48"));
        for node in &net.nodes {
            assert!(node.lanes.values().all(|lane| lane.live().count() == 1), "round {round}");
        }
        // All keys of one gateway are renewed.
        for to in 1..4 {
            net.input(0, Input::Rekey(lane_between(0, to)));
        }
        net.run(seconds(30));
    }
}

#[test]
fn a_sibling_with_the_private_address_of_a_remote_gateway_does_not_take_its_place() {
    // Seen from 10.0.0.1 both are 10.0.0.2: the sibling next to it, and the remote one behind NAT.
    let everything = ["0.0.0.0/0", "::/0"];
    let local = site("a1", "10.0.0.1", &["10.1.0.0/16"], TRIESTE);
    let mut remote = site("b1", "10.0.0.2", &["10.2.0.0/16"], TRIESTE);
    remote.public_ip = Some("192.0.2.2".parse().unwrap());
    for sibling_lane in [0x100, 0x900] {
        let mut net = Net::new(12);
        net.add("10.0.0.1", config("secret"));
        net.add("192.0.2.2", config("secret"));
        let own = site("a1", "10.0.0.1", &everything, TRIESTE);
        net.connect(0, peer(sibling_lane, &own, &site("a2", "10.0.0.2", &everything, TRIESTE)));
        let mut to_remote = peer(0x500, &local, &remote);
        // Where it is has not been found out here: it begins.
        to_remote.address = None;
        net.connect(0, to_remote);
        net.connect(1, peer(0x600, &remote, &local));
        net.run(seconds(5));
        let lane = LaneId;
        let checked = net.check((1, lane(0x600)), (0, lane(0x500)), &pair("10.2.0.0/16", "10.1.0.0/16"));
        assert_eq!(checked, Ok(()), "sibling's lane {sibling_lane:#x}");
        assert_eq!(net.nodes[0].lanes[&lane(sibling_lane)].live().count(), 0);
    }
}

/// As foreign peers do, which seal with a new pair as soon as they have answered.
#[test]
fn a_lane_expects_what_the_peer_may_seal_with_before_its_answer_is_there() {
    let mut net = net(11, TRIESTE, config("secret"), config("secret"));
    net.run(seconds(5));
    assert_single(&net);
    let theirs = net.nodes[1].address;
    net.filter = Some(Box::new(move |from, payload| from == theirs && payload.starts_with(&[0; 4])));
    let child = net.nodes[0].lane().live().next().map(|pair| pair.sa.inbound).unwrap();
    net.nodes[0].lane().tell(LaneNews::Worn { child });
    net.run(millis(800));
    let new = net.nodes[1].lane().live().find(|pair| pair.sa.outbound != child).expect("it has answered");
    assert_eq!(net.nodes[0].lane().expected, [new.sa.outbound], "its answer is lost");
    net.filter = None;
    net.run(seconds(5));
    assert_single(&net);
    assert_eq!(net.nodes[0].lane().expected, []);
    // The same at the very beginning, and when nothing comes of it.
    let mut net = self::net(12, TRIESTE, config("secret"), config("other"));
    net.run(seconds(3));
    assert_eq!(net.nodes.iter().map(|node| node.lane().expected.len()).sum::<usize>(), 0);
}
