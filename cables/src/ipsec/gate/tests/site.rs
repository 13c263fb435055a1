//! A flood from a /48 that answers every cookie, beside a cable that renews all its keys every minute.

use rand_chacha::ChaCha20Rng;
use rand_chacha::rand_core::SeedableRng as _;

use super::flood::{SUITE, site};
use super::*;
use crate::boundary::{Site, Transmit};
use crate::ipsec::crypto::{Group, IkeSuite};
use crate::ipsec::ike::{EngineConfig, IkeEngine, IkeEvent, Lifetime, PeerConfig};
use crate::ipsec::{LanePort, link};

/// How long it lasts, in seconds.
const SPAN: u64 = 300;
const PER_SECOND: u64 = 2000;
const STEP: Duration = Duration::from_millis(10);
const VICTIM: &str = "[2001:db8:1::1]:4500";
const GOOD: &str = "[2001:db8:2::1]:4500";
/// A peer that begins in the midst of it.
const LATE: &str = "[2001:db8:3::1]:4500";
/// Messages that the slow half of a small machine gets done in a step, at a millisecond each.
const BUDGET: u32 = 10;

/// A gateway without lanes.
struct End {
    engine: IkeEngine,
    _ports: Vec<LanePort>,
    ups: usize,
    downs: usize,
}

impl End {
    fn new(seed: u64, now: Instant) -> Self {
        let minute = Lifetime { soft: Duration::from_secs(60), hard: Duration::from_secs(75) };
        let config = EngineConfig {
            psk: b"a secret".to_vec().into(),
            ike_lifetime: minute,
            child_lifetime: minute,
            ..EngineConfig::default()
        };
        let engine = IkeEngine::new(config, Box::new(ChaCha20Rng::seed_from_u64(seed)), now);
        Self { engine, _ports: Vec::new(), ups: 0, downs: 0 }
    }

    fn connect(mut self, lane: u32, local: &Site, remote: &Site, now: Instant) -> Self {
        let (link, port, news) = link::link(LaneId(lane));
        let address = Some(SocketAddr::new(remote.private_ip, 4500));
        let peer = PeerConfig { address, ..PeerConfig::new(LaneId(lane), local.clone(), remote.clone()) };
        self.engine.handle_input(Input::Connect(Box::new(peer), link, news), now);
        self._ports.push(port);
        self
    }

    /// What it sends, once all that is due is done.
    fn transmits(&mut self, now: Instant) -> Vec<Transmit> {
        if self.engine.poll_timeout().is_some_and(|due| due <= now) {
            self.engine.handle_timeout(now);
        }
        while let Some(event) = self.engine.poll_event() {
            self.ups += usize::from(matches!(event, IkeEvent::Up { .. }));
            self.downs += usize::from(matches!(event, IkeEvent::Down { .. }));
        }
        std::iter::from_fn(|| self.engine.poll_transmit()).collect()
    }

    fn receive(&mut self, datagram: &[u8], now: Instant) {
        let message = datagram[MARKER.len()..].to_vec();
        self.engine.handle_input(Input::Datagram { message, from: outer(VICTIM) }, now);
    }

    fn count(&self, name: &str) -> u64 {
        let counts = self.engine.load().counts();
        counts.into_iter().find(|(other, _)| *other == name).expect("there is such a counter").1
    }
}

/// The flood.
struct Flood {
    /// Requests without cookie, one for a curve and one for the MODP group.
    templates: [wire::Message; 2],
    sent: u64,
    /// Answers to requests that were let in.
    answered: u64,
}

impl Flood {
    fn new() -> Self {
        let template = |group: Group| {
            let mut message = wire::parse(&request(1, None)[MARKER.len()..]).unwrap();
            let suite = IkeSuite { group, ..SUITE };
            message.payloads = vec![
                Payload::Sa(vec![suite.proposal(1, None)]),
                Payload::Ke(KeyExchange { group: group.number(), data: vec![9; group.public_bytes()] }),
                Payload::Nonce(vec![3; 32]),
            ];
            message
        };
        Self { templates: [Group::Curve25519, Group::Modp2048].map(template), sent: 0, answered: 0 }
    }

    fn request(&self, number: u64, cookie: Option<Vec<u8>>) -> Vec<u8> {
        let template = &self.templates[usize::from(number % 4 == 3)];
        let header = Header { spi_i: number, ..template.header };
        let cookie = cookie.map(|cookie| Payload::notify(NotifyKind::Cookie, cookie));
        let payloads: Vec<Payload> = cookie.into_iter().chain(template.payloads.iter().cloned()).collect();
        [&MARKER, wire::emit(&header, &payloads).as_slice()].concat()
    }

    /// Sends one request, and again with the cookie that is asked for.
    fn send(&mut self, setting: &mut Setting) {
        self.sent += 1;
        let number = self.sent;
        let from = format!("[2001:db8:bad:{:x}::{:x}]:4500", number % 65_536, number / 65_536);
        if let Admission::Reply(answer) = setting.admit(&self.request(number, None), &from) {
            let again = self.request(number, Some(cookie(&answer, number)));
            setting.admit(&again, &from);
        }
    }

    /// Goes on with what it has begun, by an IKE_AUTH that has to be opened to be found wrong.
    fn receive(&mut self, setting: &mut Setting, transmit: &Transmit) {
        let header = Header::parse(&transmit.payload[MARKER.len()..]).unwrap().0;
        if header.spi_r == 0 {
            return;
        }
        self.answered += 1;
        let header = Header {
            exchange: Exchange::IkeAuth,
            is_response: false,
            is_initiator: true,
            message_id: 1,
            ..header
        };
        let encrypted = [&[0, 0, 0, 60], [7; 56].as_slice()].concat();
        let mut message = wire::emit(&header, &[]);
        message[16] = 46;
        let length = u32::try_from(message.len() + encrypted.len()).unwrap();
        message[24..28].copy_from_slice(&length.to_be_bytes());
        let from = transmit.outer.peer.to_string();
        setting.admit(&[&MARKER, message.as_slice(), &encrypted].concat(), &from);
    }
}

#[test]
fn a_flood_of_right_cookies_from_a_site_costs_no_cable_and_little_work() {
    let mut setting = Setting::new();
    let start = setting.now;
    let [here, good, late] = [(VICTIM, "fd01::/48"), (GOOD, "fd02::/48"), (LATE, "fd03::/48")]
        .map(|(address, subnet)| site(address, subnet));
    let mut victim =
        End::new(1, start).connect(0x100, &here, &good, start).connect(0x200, &here, &late, start);
    (setting.load, setting.gate.shared.load) = (victim.engine.load(), victim.engine.load());
    let mut others = vec![(GOOD, End::new(2, start).connect(0x100, &good, &here, start))];
    let mut flood = Flood::new();
    let mut on_the_way: Vec<Transmit> = Vec::new();

    while setting.now < start + Duration::from_secs(SPAN) {
        setting.now += STEP;
        let now = setting.now;
        if now >= start + Duration::from_secs(SPAN / 2) && others.len() == 1 {
            others.push((LATE, End::new(3, now).connect(0x100, &late, &here, now)));
        }
        // The cable is there first: what it is like to come in the midst of it the other one shows.
        if now >= start + Duration::from_secs(2) {
            (0..PER_SECOND / 100).for_each(|_| flood.send(&mut setting));
        }
        for transmit in std::mem::take(&mut on_the_way) {
            match others.iter_mut().find(|(address, _)| outer(address).peer == transmit.outer.peer) {
                Some((_, end)) => end.receive(&transmit.payload, now),
                None => flood.receive(&mut setting, &transmit),
            }
        }
        for (address, end) in &mut others {
            for transmit in end.transmits(now) {
                if let Admission::Reply(answer) = setting.admit(&transmit.payload, address) {
                    end.receive(&answer, now);
                }
            }
        }
        for _ in 0..BUDGET {
            let next = setting.peers.try_recv().or_else(|_| setting.inbox.try_recv());
            let Ok(input) = next else { break };
            victim.engine.handle_input(input, now);
        }
        on_the_way = victim.transmits(now);
    }

    let looked_at = victim.count("init_requests");
    println!(
        "{} requests sent, {looked_at} looked at, {} answered, MODP refused {} times",
        flood.sent,
        flood.answered,
        victim.count("modp_refused")
    );
    assert!(flood.sent >= PER_SECOND * (SPAN - 2));
    let most = LIMIT_PER_SECOND + u64::from(GREETINGS_PER_SECOND * crate::shares::SITE_SHARES);
    assert!(looked_at <= most * SPAN, "{looked_at} requests looked at");
    assert!(victim.count("modp_refused") > SPAN);
    let events = |end: &End| (end.ups, end.downs);
    assert_eq!((events(&victim), events(&others[0].1), events(&others[1].1)), ((2, 0), (1, 0), (1, 0)));
    let good = &others[0].1;
    // Every exchange of the good cable was answered before it had to be repeated; its keys are all new each minute.
    assert_eq!(good.count("retransmitted"), 0);
    assert!(good.count("established") > SPAN / 60 && good.count("children") > SPAN / 60);
}

#[test]
fn under_load_a_stranger_gets_a_curve_and_a_peer_the_group_that_it_wants() {
    let start = Setting::new().now;
    let [here, good] =
        [(VICTIM, "fd01::/48"), (GOOD, "fd02::/48")].map(|(address, subnet)| site(address, subnet));
    let mut victim = End::new(1, start).connect(0x100, &here, &good, start);
    victim.transmits(start);
    let mut answer = |number: u64, cookie: bool, from: &str| {
        let mut message = Flood::new().templates[1].clone();
        let Payload::Sa(proposals) = &mut message.payloads[0] else { panic!("an SA comes first") };
        proposals[0].transforms.push(Group::Curve25519.transform());
        if cookie {
            message.payloads.insert(0, Payload::notify(NotifyKind::Cookie, vec![1; 33]));
        }
        let header = Header { spi_i: number, ..message.header };
        let input = Input::Datagram { message: wire::emit(&header, &message.payloads), from: outer(from) };
        victim.engine.handle_input(input, start);
        let answers = victim.transmits(start);
        wire::parse(&answers[0].payload[MARKER.len()..]).unwrap()
    };
    let strangers = "[2001:db8:4::1]:4500";
    assert_ne!(answer(1, false, strangers).header.spi_r, 0, "while there is little to do");
    let refusal = answer(2, true, strangers);
    assert_eq!(refusal.header.spi_r, 0);
    let [Payload::Notify(notify)] = &refusal.payloads[..] else { panic!("{refusal:?}") };
    assert_eq!((notify.kind, notify.data.as_slice()), (NotifyKind::InvalidKePayload, [0, 31].as_slice()));
    assert_ne!(answer(3, true, GOOD).header.spi_r, 0, "a peer");
}
