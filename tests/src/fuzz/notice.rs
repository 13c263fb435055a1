//! Notices: a route agent's view of three gateways and a gateway's list of agents, and datagrams from anybody.
//!
//! Input: steps of a kind byte each. What the fuzzer makes up is never believed, since it has no key, and tells nobody:
//! it cannot know a cookie. Datagrams that can be read are the same after writing.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::{Duration, Instant};

use trieste_control::notice::message::{Datagram, MAX_DATAGRAM, challenge, hello, parse};
use trieste_control::notice::{Answer, GatewayIdentity, GatewayKey, Refusal, SigningKey, Subscribers, View};

use super::Reader;

pub(super) fn target(data: &[u8]) {
    let mut reader = Reader::new(data);
    let mut now = Instant::now();
    let mut view = View::new(now);
    let mut subscribers = Subscribers::new([7; 32].into());
    view.set_gateways(&gateways(7), now);
    let mut taken = 0_u64;
    while !reader.is_empty() {
        match reader.byte() % 4 {
            0 => now += Duration::from_millis(reader.u16().into()),
            1 => view.set_gateways(&gateways(reader.byte() & 7), now),
            _ => {
                let from = address(reader.byte());
                let length = usize::from(reader.u16()) % (MAX_DATAGRAM + 2);
                let datagram = reader.take(length);
                round_trip(datagram);
                assert!(view.take(datagram, from, now).is_err(), "a signature was guessed");
                let answer = subscribers.take(datagram, SocketAddr::new(from, 9), now);
                assert!(matches!(answer, Answer::Nothing | Answer::Challenge(_)), "a cookie was guessed");
                taken += 1;
            }
        }
        let live = view.live(now);
        assert_eq!(live, view.standings(now).into_keys().collect(), "nobody has said anything");
        assert!(view.poll_timeout(now).is_none_or(|at| at > now));
    }
    assert!(subscribers.is_empty());
    assert_eq!(Refusal::ALL.iter().map(|why| view.refused(*why)).sum::<u64>(), taken, "each has one reason");
}

fn round_trip(datagram: &[u8]) {
    match parse(datagram) {
        None => {}
        Some(Datagram::Hello(cookie)) => assert_eq!(hello(cookie), datagram),
        Some(Datagram::Challenge(cookie)) => assert_eq!(challenge(cookie), datagram),
        Some(Datagram::Notice(signed)) => {
            let again = signed.notice.emit(&SigningKey::from_seed(&[3; 32].into()));
            let unsigned = again.len() - 64;
            assert_eq!((again.len(), &again[..unsigned]), (datagram.len(), &datagram[..unsigned]));
        }
    }
}

/// Those of the gateways 1 to 3 whose bit is set.
fn gateways(bits: u8) -> BTreeMap<GatewayKey, GatewayIdentity> {
    let known = |number: u8| {
        let key = SigningKey::from_seed(&[number; 32].into()).public();
        (GatewayKey(number.into()), GatewayIdentity { address: address(number), key: Some(key) })
    };
    (1..=3).filter(|number| bits & (1 << (number - 1)) != 0).map(known).collect()
}

fn address(number: u8) -> IpAddr {
    Ipv4Addr::new(10, 0, 0, number).into()
}
