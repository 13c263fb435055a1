//! A flood of spoofed requests, and a gateway that wants to talk in its midst.

use rand_chacha::ChaCha20Rng;
use rand_chacha::rand_core::SeedableRng as _;

use super::*;
use crate::boundary::{Site, Transmit};
use crate::ipsec::crypto::{Group, IkeAead, IkeSuite, Prf};
use crate::ipsec::ike::{EngineConfig, IkeEngine, IkeEvent, PeerConfig};
use crate::ipsec::{LanePort, TRIESTE, link};

const PER_SECOND: u32 = 100_000;
const VICTIM: &str = "192.0.2.1:4500";
/// A request that costs the most: it is well-formed, and an answer to it takes a key agreement.
pub(super) const SUITE: IkeSuite =
    IkeSuite { aead: IkeAead::Aes128Gcm16, prf: Prf::HmacSha256, group: Group::Curve25519 };

/// A gateway of which only the slow half is there, with one peer.
struct Gateway {
    engine: IkeEngine,
    _port: LanePort,
    ups: usize,
}

pub(super) fn site(address: &str, subnet: &str) -> Site {
    let address: SocketAddr = address.parse().unwrap();
    Site {
        cable_name: format!("cable-{}", address.ip()),
        private_ip: address.ip(),
        public_ip: None,
        subnets: vec![subnet.parse().unwrap()],
        driver: String::new(),
        backend_config: [(TRIESTE.to_owned(), "1".to_owned())].into(),
    }
}

impl Gateway {
    /// `peer` is where the peer is, if it is known.
    fn new(local: Site, remote: Site, peer: Option<&str>, seed: u64, now: Instant) -> Self {
        let config = EngineConfig { psk: b"a secret".to_vec().into(), ..EngineConfig::default() };
        let mut engine = IkeEngine::new(config, Box::new(ChaCha20Rng::seed_from_u64(seed)), now);
        let (link, port, news) = link::link(LaneId(0x100));
        let address = peer.map(|peer| peer.parse().unwrap());
        let peer = PeerConfig { address, uses_nat: true, ..PeerConfig::new(LaneId(0x100), local, remote) };
        engine.handle_input(Input::Connect(Box::new(peer), link, news), now);
        Self { engine, _port: port, ups: 0 }
    }

    /// What it sends, once all that is due is done.
    fn transmits(&mut self, now: Instant) -> Vec<Transmit> {
        if self.engine.poll_timeout().is_some_and(|due| due <= now) {
            self.engine.handle_timeout(now);
        }
        while let Some(event) = self.engine.poll_event() {
            self.ups += usize::from(matches!(event, IkeEvent::Up { .. }));
        }
        std::iter::from_fn(|| self.engine.poll_transmit()).collect()
    }

    fn receive(&mut self, datagram: &[u8], from: &str, now: Instant) {
        let message = datagram[MARKER.len()..].to_vec();
        self.engine.handle_input(Input::Datagram { message, from: outer(from) }, now);
    }
}

fn spoofed(spi_i: u64) -> Vec<u8> {
    let mut message = wire::parse(&request(spi_i, None)[4..]).unwrap();
    message.payloads.insert(0, Payload::Sa(vec![SUITE.proposal(1, None)]));
    [&MARKER, wire::emit(&message.header, &message.payloads).as_slice()].concat()
}

/// 100,000 per second of virtual time, each from another address, all answerable. The honest gateway begins when the flood
/// has lasted two seconds.
#[test]
fn a_flood_leaves_little_behind_and_an_honest_gateway_comes_through() {
    let mut setting = Setting::new();
    let start = setting.now;
    let (ours, theirs) = (site(VICTIM, "10.1.0.0/16"), site(HONEST, "10.2.0.0/16"));
    let mut victim = Gateway::new(ours.clone(), theirs.clone(), None, 1, start);
    setting.load = victim.engine.load();
    setting.gate.shared.load = victim.engine.load();
    let mut honest: Option<Gateway> = None;
    let (mut requests, mut passed, mut most_half_open) = (0, 0, 0);
    let mut template = spoofed(1);

    while setting.now < start + Duration::from_secs(4) {
        setting.now += Duration::from_micros(10);
        let now = setting.now;
        requests += 1;
        template[4..12].copy_from_slice(&u64::to_be_bytes(requests));
        let number = u32::try_from(requests).unwrap();
        let from = SocketAddr::from((Ipv4Addr::from(number.wrapping_mul(0x9e37_79b9)), 4500));
        let admission = setting.gate.admit(&template, &Outer { peer: from, ..Outer::NONE }, now);
        passed += u64::from(admission == Admission::Taken);
        if !requests.is_multiple_of(100) {
            continue;
        }
        // A millisecond has passed: the slow halves have their turn.
        if now >= start + Duration::from_secs(2) && honest.is_none() {
            honest = Some(Gateway::new(theirs.clone(), ours.clone(), Some(VICTIM), 2, now));
        }
        for transmit in honest.iter_mut().flat_map(|gateway| gateway.transmits(now)).collect::<Vec<_>>() {
            if let Admission::Reply(answer) = setting.admit(&transmit.payload, HONEST) {
                honest.as_mut().unwrap().receive(&answer, VICTIM, now);
            }
        }
        for input in setting.inbox.try_iter() {
            victim.engine.handle_input(input, now);
        }
        for transmit in victim.transmits(now) {
            if let Some(gateway) = honest.as_mut().filter(|_| transmit.outer.peer == outer(HONEST).peer) {
                gateway.receive(&transmit.payload, VICTIM, now);
            }
        }
        most_half_open = most_half_open.max(setting.load.half_open.load(Ordering::Relaxed));
    }

    assert_eq!(requests, 4 * u64::from(PER_SECOND));
    assert!(passed <= 5 * LIMIT_PER_SECOND, "{passed} of {requests} reached the slow half");
    assert!(most_half_open <= HALF_OPEN_LIMIT + 2, "{most_half_open} half-open");
    let honest = honest.unwrap();
    assert_eq!((victim.ups, honest.ups), (1, 1), "the honest handshake is complete on both sides");
    assert!(
        setting.load.cookies_sent.load(Ordering::Relaxed) > requests - passed,
        "it was asked for a cookie too"
    );
    println!("{passed} of {requests} passed, at most {most_half_open} half-open");
}
