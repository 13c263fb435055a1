//! NAT discovery: a machine with one peer, and datagrams from anybody at any time.
//!
//! Input: steps of a kind byte each. What the fuzzer makes up never selects an address: our own requests' numbers are
//! beyond it. Bytes that are a message are the same after writing and reading.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::{Duration, Instant};

use trieste_control::natdiscovery::message::{self, Body};
use trieste_control::natdiscovery::{How, Local, MAX_DATAGRAM, Machine, Memory, Outcome, Remote};

use super::Reader;

const OWN: IpAddr = IpAddr::V4(Ipv4Addr::new(172, 31, 1, 11));
const PEER: IpAddr = IpAddr::V4(Ipv4Addr::new(172, 31, 2, 11));
const PORT: u16 = 4490;
const CABLE: &str = "submariner-cable-cluster-b-172-31-2-11";

pub(super) fn target(data: &[u8]) {
    let mut reader = Reader::new(data);
    let start = Instant::now();
    let mut now = start;
    let local = Local {
        cluster_id: "cluster-a".to_owned(),
        cable_name: "submariner-cable-cluster-a-172-31-1-11".to_owned(),
        private_ips: vec![OWN],
        port: PORT,
    };
    let mut machine = Machine::new(local, [7; 32], Memory::default());
    let mut handled = 0_u64;
    while !reader.is_empty() {
        match reader.byte() % 8 {
            0 => now += Duration::from_millis(reader.u16().into()),
            1 => machine.rediscover(CABLE, now),
            2 => machine.remove(CABLE),
            3 => {
                let flags = reader.byte();
                machine.add(remote(flags), now).expect("there is room for one");
            }
            _ => {
                let from = if reader.byte().is_multiple_of(2) {
                    PEER
                } else {
                    IpAddr::V4(u32::from(reader.u16()).into())
                };
                let length = usize::from(reader.u16()) % (MAX_DATAGRAM + 2);
                let datagram = reader.take(length);
                round_trip(datagram);
                let outcome = machine.handle_datagram(datagram, SocketAddr::new(from, PORT), Some(OWN), now);
                assert!(outcome != Outcome::Accepted, "a number was guessed");
                handled += 1;
            }
        }
        machine.handle_timeout(now);
        while let Some(transmit) = machine.poll_transmit(|_| Some(OWN)) {
            assert!(transmit.payload.len() <= 1024, "nothing that we send is large");
            message::parse(&transmit.payload).expect("what we send can be read");
        }
        while let Some(event) = machine.poll_event() {
            assert!(!matches!(event.selection.how, How::Private | How::Public), "nobody has answered");
        }
        assert!(machine.poll_timeout().is_none_or(|next| next > now), "what was due is done");
    }
    let counted: u64 = Outcome::ALL.iter().map(|outcome| machine.counters().received(*outcome)).sum();
    assert_eq!(counted, handled, "every datagram has one outcome");
    let _ = std::str::from_utf8(data).is_ok_and(|text| Memory::parse(text).is_ok());
}

fn remote(flags: u8) -> Remote {
    let has = |bit: u8| flags & (1 << bit) != 0;
    Remote {
        cluster_id: "cluster-b".to_owned(),
        cable_name: CABLE.to_owned(),
        private_ip: (!has(0)).then_some(PEER),
        public_ip: (!has(1)).then_some(IpAddr::V4(Ipv4Addr::new(198, 51, 100, 2))),
        port: (!has(2)).then_some(PORT),
        nat_enabled: has(3),
        uses_load_balancer: has(4),
    }
}

fn round_trip(datagram: &[u8]) {
    let Ok(body) = message::parse(datagram) else { return };
    let bytes = message::emit(body.clone());
    // Unknown fields are gone, and nothing else.
    let is_small = bytes.len() <= MAX_DATAGRAM;
    assert!(!is_small || message::parse(&bytes).expect("what was read can be read again") == body);
    let is_request = matches!(body, Body::Request(_));
    assert_eq!(is_request, bytes.first() == Some(&8), "requests carry a version, responses do not");
}
