//! An engine with one peer, and that peer.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use rand_chacha::ChaCha20Rng;
use rand_chacha::rand_core::SeedableRng as _;
use trieste_cables::Site;
use trieste_cables::ipsec::crypto::{
    EspOffer, Group, IkeAead, IkeKeys, IkeSuite, KeyAgreement, MessageKey, Prf, Reassembly, protect,
};
use trieste_cables::ipsec::ike::{EngineConfig, IkeEngine, IkeEvent, Input, Lifetime, PeerConfig};
use trieste_cables::ipsec::link::{LanePort, link};
use trieste_cables::ipsec::wire::{
    self, Auth, AuthMethod, Exchange, Header, Id, KeyExchange, Payload, PayloadKind, parse_payloads,
};
use trieste_cables::ipsec::{EspSuite, LaneOrder, Selector, Spi, TRIESTE};
use trieste_packet::{LaneId, Outer};

const PSK: &[u8] = b"a secret of the cluster set";
const OURS: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1));
const THEIRS: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 2));
const LANE: LaneId = LaneId(0x100);
const MARKER: [u8; 4] = [0; 4];
const SUITE: IkeSuite =
    IkeSuite { aead: IkeAead::Aes128Gcm16, prf: Prf::HmacSha256, group: Group::Curve25519 };

/// The engine, and what came of what it was told.
pub(super) struct Setting {
    engine: IkeEngine,
    port: LanePort,
    now: Instant,
    /// How often the lane came up.
    pub(super) ups: usize,
    /// Child SAs that the lane has.
    pub(super) children: usize,
}

fn site(name: &str, private_ip: IpAddr, subnet: &str) -> Site {
    let backend_config = [(TRIESTE.to_owned(), "1".to_owned())].into();
    let subnets = vec![subnet.parse().expect("a subnet")];
    Site {
        cable_name: name.to_owned(),
        private_ip,
        public_ip: None,
        subnets,
        driver: String::new(),
        backend_config,
    }
}

/// Shorter than ours by far: what time brings is to be reached in few steps.
fn lifetime(seconds: u64) -> Lifetime {
    Lifetime { soft: Duration::from_secs(seconds), hard: Duration::from_secs(seconds * 5 / 4) }
}

impl Setting {
    pub(super) fn new() -> Self {
        let now = Instant::now();
        let config = EngineConfig {
            psk: PSK.to_vec().into(),
            ike_lifetime: lifetime(240),
            child_lifetime: lifetime(60),
            ..EngineConfig::default()
        };
        let mut engine = IkeEngine::new(config, Box::new(ChaCha20Rng::seed_from_u64(1)), now);
        let (link, port, news) = link(LANE);
        let (local, remote) = (site("ours", OURS, "10.1.0.0/16"), site("theirs", THEIRS, "10.2.0.0/16"));
        let address = Some(SocketAddr::new(THEIRS, 4500));
        let peer = PeerConfig { address, ..PeerConfig::new(LANE, local, remote) };
        engine.handle_input(Input::Connect(Box::new(peer), link, news), now);
        Self { engine, port, now, ups: 0, children: 0 }
    }

    /// Lets time pass, doing what is due at its time.
    pub(super) fn pass(&mut self, time: Duration) {
        let end = self.now + time;
        for _ in 0..1000 {
            match self.engine.poll_timeout() {
                Some(due) if due <= end => self.now = self.now.max(due),
                _ => break,
            }
            self.engine.handle_timeout(self.now);
        }
        self.now = end;
        self.engine.handle_timeout(self.now);
    }

    /// Gives a message without marker to the engine.
    pub(super) fn receive(&mut self, message: Vec<u8>) {
        let from = Outer { peer: SocketAddr::new(THEIRS, 4500), local: Some(OURS), tos: 0 };
        self.engine.handle_input(Input::Datagram { message, from }, self.now);
        self.take_orders();
    }

    /// What the engine sends, without marker; nothing else leaves it, and nothing large.
    pub(super) fn transmits(&mut self) -> Vec<Vec<u8>> {
        let mut found = Vec::new();
        while let Some(transmit) = self.engine.poll_transmit() {
            assert!(transmit.payload.len() <= 1280, "{} bytes", transmit.payload.len());
            match transmit.payload.strip_prefix(&MARKER) {
                Some(message) => found.push(message.to_vec()),
                None => assert_eq!(transmit.payload, [0xff], "a keepalive"),
            }
        }
        while let Some(event) = self.engine.poll_event() {
            self.ups += usize::from(matches!(event, IkeEvent::Up { .. }));
        }
        found
    }

    /// What the lane is told: no child SA is for more than both gateways have.
    pub(super) fn take_orders(&mut self) {
        let whole = |text: &str| Selector::subnet(text.parse().expect("a subnet"));
        while let Some(order) = self.port.take() {
            match order {
                LaneOrder::Add(child) => {
                    self.children += 1;
                    let sides =
                        [(&child.selectors.local, "10.1.0.0/16"), (&child.selectors.remote, "10.2.0.0/16")];
                    for (selectors, subnet) in sides {
                        let is_inside =
                            |selector: &Selector| selector.intersection(&whole(subnet)) == Some(*selector);
                        assert!(
                            !selectors.is_empty() && selectors.iter().all(is_inside),
                            "{}",
                            child.selectors
                        );
                    }
                }
                LaneOrder::Remove(_) => self.children = self.children.saturating_sub(1),
                LaneOrder::Expect(_)
                | LaneOrder::Abandon(_)
                | LaneOrder::Seal(_)
                | LaneOrder::Retire(_)
                | LaneOrder::Path(_)
                | LaneOrder::Down => {}
            }
        }
        assert!(self.children <= 64, "{} child SAs", self.children);
    }

    /// Half-open IKE SAs, as the gates see them.
    pub(super) fn half_open(&self) -> u64 {
        self.engine.load().half_open.load(Ordering::Relaxed)
    }

    /// A handshake that the peer begins, as far as the engine lets it.
    pub(super) fn handshake(&mut self) -> Peer {
        self.transmits();
        let mut rng = ChaCha20Rng::seed_from_u64(2);
        let key = KeyAgreement::generate(SUITE.group, &mut rng);
        let (spi_i, nonce) = (0x1122_3344_5566_7788, vec![9; 32]);
        let header = Header {
            spi_i,
            spi_r: 0,
            exchange: Exchange::IkeSaInit,
            is_initiator: true,
            is_response: false,
            message_id: 0,
        };
        let payloads = [
            Payload::Sa(vec![SUITE.proposal(1, None)]),
            Payload::Ke(KeyExchange { group: SUITE.group.number(), data: key.public().to_vec() }),
            Payload::Nonce(nonce.clone()),
            Payload::notify(wire::NotifyKind::FragmentationSupported, Vec::new()),
        ];
        let request = wire::emit(&header, &payloads);
        self.receive(request.clone());
        let response = self.transmits().into_iter().find_map(|message| {
            let parsed = wire::parse(&message).expect("what the engine sends in clear can be read");
            (parsed.header.is_response && parsed.header.spi_i == spi_i).then_some(parsed)
        });
        let response = response.expect("a good request is answered");
        let mut peer = Peer::new(&response, &key, &nonce);
        let id = Id::from(THEIRS);
        let other_nonce = nonce_of(&response.payloads);
        let auth = peer.keys.psk_auth(PSK, true, &request, &other_nonce, &id);
        let offer = EspOffer { suite: EspSuite::Aes128Gcm16, esn: Some(true), group: None };
        let subnet = |text: &str| vec![Selector::subnet(text.parse().expect("a subnet"))];
        let payloads = [
            Payload::IdI(id),
            Payload::Auth(Auth { method: AuthMethod::SharedKey, data: auth }),
            Payload::Sa(vec![offer.proposal(1, Spi(0x0102_0304))]),
            Payload::TsI(subnet("10.2.0.0/16")),
            Payload::TsR(subnet("10.1.0.0/16")),
        ];
        let body = wire::emit_payloads(&payloads);
        let sealed = peer.seal(Exchange::IkeAuth.code(), false, false, PayloadKind::IdI, &body);
        self.receive(sealed.expect("a small message"));
        self.transmits().iter().for_each(|answer| peer.read(answer));
        assert!(self.ups > 0 && self.children > 0, "a gateway of the cluster set comes up");
        peer
    }
}

fn nonce_of(payloads: &[Payload]) -> Vec<u8> {
    let nonce = payloads.iter().find_map(|payload| match payload {
        Payload::Nonce(nonce) => Some(nonce.clone()),
        Payload::Sa(_)
        | Payload::Ke(_)
        | Payload::IdI(_)
        | Payload::IdR(_)
        | Payload::Auth(_)
        | Payload::Notify(_)
        | Payload::Delete(_)
        | Payload::VendorId(_)
        | Payload::TsI(_)
        | Payload::TsR(_)
        | Payload::Other(_) => None,
    });
    nonce.expect("a response to a good request has a nonce")
}

/// The other end of the IKE SA, which obeys no rule but that of sealing.
pub(super) struct Peer {
    keys: IkeKeys,
    ours: MessageKey,
    theirs: MessageKey,
    spi_r: u64,
    spi_i: u64,
    iv: u64,
    /// Of our next request.
    next_id: u32,
    /// Of the engine's newest request.
    asked_id: u32,
    /// What that is about, until it is answered.
    asked: Option<Exchange>,
    pieces: Reassembly,
    /// Whether the engine has ended the IKE SA.
    pub(super) is_gone: bool,
}

impl Peer {
    fn new(response: &wire::Message, key: &KeyAgreement, nonce: &[u8]) -> Self {
        let Header { spi_i, spi_r, .. } = response.header;
        let public = response.payloads.iter().find_map(|payload| {
            if let Payload::Ke(exchange) = payload { Some(exchange.data.clone()) } else { None }
        });
        let shared = key.agree(&public.expect("a key")).expect("a good key");
        let nonces = (nonce, nonce_of(&response.payloads));
        let keys = IkeKeys::derive(SUITE, &shared, (nonces.0, &nonces.1), (spi_i, spi_r));
        let (ours, theirs) = (keys.message_key(true), keys.message_key(false));
        let pieces = Reassembly::default();
        Self {
            keys,
            ours,
            theirs,
            spi_r,
            spi_i,
            iv: 0,
            next_id: 1,
            asked_id: 0,
            asked: None,
            pieces,
            is_gone: false,
        }
    }

    /// Seals a request with the next message ID, or a response to the engine's newest request; `again` with the ID before.
    pub(super) fn seal(
        &mut self,
        exchange: u8,
        is_response: bool,
        again: bool,
        first: PayloadKind,
        body: &[u8],
    ) -> Option<Vec<u8>> {
        let next = if is_response { self.asked_id } else { self.next_id };
        let message_id = if again { next.wrapping_sub(1) } else { next };
        if !again && !is_response {
            self.next_id = self.next_id.wrapping_add(1);
        }
        if is_response {
            self.asked = None;
        }
        let header = Header {
            spi_i: self.spi_i,
            spi_r: self.spi_r,
            exchange: Exchange::from_code(exchange),
            is_initiator: true,
            is_response,
            message_id,
        };
        protect::seal_body(&header, first, body, &self.ours, &mut self.iv)
    }

    /// Lets time pass and says that it is there whenever it is asked, up to the first request of more.
    pub(super) fn live(&mut self, setting: &mut Setting, time: Duration) {
        const STEP: Duration = Duration::from_secs(5);
        let mut left = time;
        while !left.is_zero() && !self.is_gone && self.asked != Some(Exchange::CreateChildSa) {
            if self.asked == Some(Exchange::Informational) {
                let exchange = Exchange::Informational.code();
                let answer = self.seal(exchange, true, false, PayloadKind::None, &[]);
                setting.receive(answer.expect("an empty message"));
            }
            let step = left.min(STEP);
            left -= step;
            setting.pass(step);
            setting.transmits().iter().for_each(|message| self.read(message));
        }
    }

    /// Reads what the engine sends in this IKE SA: it is authentic and well-formed.
    pub(super) fn read(&mut self, datagram: &[u8]) {
        let (header, ..) = Header::parse(datagram).expect("what the engine sends has a header");
        if (header.spi_i, header.spi_r) != (self.spi_i, self.spi_r) {
            return;
        }
        assert!(!header.is_initiator);
        let opened = protect::open(datagram, &self.theirs).expect("the engine seals with the IKE SA's key");
        if !header.is_response {
            self.asked_id = header.message_id;
            self.asked = Some(header.exchange);
        }
        let Some(whole) = self.pieces.add(opened) else { return };
        let payloads = parse_payloads(whole.first, &whole.body).expect("what the engine sends can be read");
        let is_delete = |payload: &Payload| *payload == Payload::Delete(wire::Delete::ike());
        self.is_gone |= payloads.iter().any(is_delete);
    }
}
