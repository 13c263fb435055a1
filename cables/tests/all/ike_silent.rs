//! Peers that answer nobody: how often they are tried, and how soon they are up when they do.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use trieste_cables::ipsec::PREFERRED_SERVER;
use trieste_cables::ipsec::wire::{Exchange, Header};

use crate::ike::two::{A, B, TRIESTE, assert_connected, net, seconds, sites};
use crate::ike::{Net, config, peer, site};

const LONG: Duration = Duration::from_secs(600);

/// Attempts that an engine has begun since `from`, and datagrams of them.
fn inits(net: &Net, from: Instant) -> (usize, usize) {
    let is_init = |message: &[u8]| {
        let (header, ..) = Header::parse(message).ok()?;
        (header.exchange == Exchange::IkeSaInit && !header.is_response).then_some(header.spi_i)
    };
    let sent = net.log.iter().filter(|(at, ..)| *at > from);
    let spis: Vec<u64> = sent.filter_map(|(.., message)| is_init(message)).collect();
    (spis.iter().copied().collect::<BTreeSet<_>>().len(), spis.len())
}

/// A gateway with so many peers that are not there.
fn alone(peers: u32) -> Net {
    let mut net = Net::new(u64::from(peers));
    net.add("10.0.0.1", config("psk"));
    let here = site("a", "10.0.0.1", &["10.1.0.0/16"], TRIESTE);
    for number in 0..peers {
        let name = format!("z{number:04}");
        let address = format!("10.9.{}.{}", number >> 8, number & 0xff);
        let there = site(&name, &address, &["10.2.0.0/16"], TRIESTE);
        net.connect(0, peer((number + 1) << 8, &here, &there));
    }
    net
}

#[test]
fn silent_peers_share_a_rate_of_attempts_that_does_not_grow_with_them() {
    let per_minute = [10, 100, 1000].map(|peers| {
        let mut net = alone(peers);
        net.run(seconds(300));
        net.log.clear();
        let from = net.now();
        net.run(seconds(300));
        let (attempts, datagrams) = inits(&net, from);
        assert!(datagrams <= attempts * 4 + 4 * 80, "{peers}: {datagrams} of {attempts}");
        attempts.div_ceil(5)
    });
    // Every twenty to twenty-two seconds; of a thousand sixteen a second, and those that are still repeated.
    assert!((25..=30).contains(&per_minute[0]), "{per_minute:?}");
    assert!((260..=300).contains(&per_minute[1]), "{per_minute:?}");
    assert!((900..=961 + 80 / 5).contains(&per_minute[2]), "{per_minute:?}");
}

#[test]
fn a_thousand_new_peers_are_begun_with_a_hundred_times_a_second() {
    let mut net = alone(1000);
    let start = net.now();
    net.run(seconds(15));
    for second in 0..15 {
        let (from, to) = (start + seconds(second), start + seconds(second + 1));
        let begun: BTreeSet<&[u8]> =
            net.log.iter().filter(|(at, ..)| *at <= to).map(|(.., message)| &message[..8]).collect();
        let before: BTreeSet<&[u8]> =
            net.log.iter().filter(|(at, ..)| *at <= from).map(|(.., message)| &message[..8]).collect();
        assert!(begun.len() - before.len() <= 150, "second {second}");
    }
    assert_eq!(inits(&net, start).0, 1000, "everybody had a turn");
}

#[test]
fn a_peer_that_starts_after_ten_minutes_is_up_when_it_speaks() {
    let mut net = net(5, TRIESTE, config("psk"), config("psk"));
    net.nodes[1].is_dead = true;
    net.run(LONG);
    let begun = net.now();
    net.restart(1, config("psk"));
    let (here, there) = sites(TRIESTE);
    net.connect(1, peer(B.1.0, &there, &here));
    // The greater name leaves the first word to the other for one and a half seconds.
    net.run(seconds(2) + Duration::from_millis(50));
    assert_connected(&net);
    // And when that is lost it is tried as quickly as any.
    net.nodes[1].is_dead = true;
    net.run(seconds(100));
    let from = net.now();
    net.run(seconds(60));
    assert!(inits(&net, from).1 >= 4, "since {:?}", from - begun);
}

#[test]
fn a_peer_that_only_answers_is_up_within_the_longest_interval() {
    let server = [TRIESTE, &[(PREFERRED_SERVER, "true")]].concat();
    let mut net = net(6, TRIESTE, config("psk"), config("psk"));
    let (here, there) = (sites(TRIESTE).0, sites(&server).1);
    net.connect(0, peer(A.1.0, &here, &there));
    net.nodes[1].is_dead = true;
    net.run(LONG);
    net.restart(1, config("psk"));
    net.connect(1, peer(B.1.0, &there, &here));
    net.run(seconds(22));
    assert_connected(&net);
}
