//! Globalnet's translation: any mix of packets, fragments, errors and time, as bytes through the real one, and each verdict
//! and each byte judged by a model that is slow and obvious; and bytes of strangers, which may do anything but break it.

mod model;
mod spec;

use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

use trieste_nat::{Config, EgressKind, IngressKind, Limits, OwnerKey, Rules, RulesBuilder, Timers};
use trieste_packet::checksum::{Sum, fill_ipv4_header};
use trieste_packet::wire::{Inner, be16, put16};

use self::model::{Ends, Model};
use self::spec::Spec;
use super::Reader;
use crate::translator::packets::{ICMP, TCP, UDP, cut, error, reassembled};
use crate::translator::{Fate, Translator, Way};

const SERVICE: (Ipv4Addr, Ipv4Addr) = (Ipv4Addr::new(10, 96, 0, 1), Ipv4Addr::new(242, 0, 255, 254));
const GATEWAY: (Ipv4Addr, Ipv4Addr) = (Ipv4Addr::new(10, 1, 255, 1), Ipv4Addr::new(242, 0, 255, 253));
const HEADLESS: (Ipv4Addr, Ipv4Addr) = (Ipv4Addr::new(10, 1, 2, 1), Ipv4Addr::new(242, 0, 255, 252));
const SELECTED: (Ipv4Addr, Ipv4Addr) = (Ipv4Addr::new(10, 1, 3, 1), Ipv4Addr::new(242, 0, 0, 9));
const EGRESS: [Ipv4Addr; 2] = [Ipv4Addr::new(242, 0, 0, 1), Ipv4Addr::new(242, 0, 0, 2)];
const NOBODY: Ipv4Addr = Ipv4Addr::new(242, 0, 0, 77);
/// No rule has it.
const STRANGER: Ipv4Addr = Ipv4Addr::new(10, 9, 9, 9);
const ROUTER: Ipv4Addr = Ipv4Addr::new(242, 1, 255, 254);
const INSIDE: [Ipv4Addr; 8] = [
    Ipv4Addr::new(10, 1, 0, 1),
    Ipv4Addr::new(10, 1, 0, 2),
    Ipv4Addr::new(10, 1, 0, 3),
    SELECTED.0,
    HEADLESS.0,
    SERVICE.0,
    GATEWAY.0,
    STRANGER,
];
const REMOTE: [Ipv4Addr; 3] =
    [Ipv4Addr::new(242, 1, 0, 1), Ipv4Addr::new(242, 1, 0, 2), Ipv4Addr::new(242, 2, 0, 1)];
/// Both classes, their borders, and a few that meet one another.
const PORTS: [u16; 8] = [0, 53, 1023, 1024, 1025, 4000, 40_000, 65_535];

/// Some five hundred steps: what breaks after more breaks after these.
const INPUT_BYTES: usize = 4096;
/// Small, so that inputs reach them.
const LIMITS: Limits = Limits {
    sessions: 48,
    mappings_per_source: 12,
    sessions_per_source: 20,
    share_tcp_above_percent: 100,
    changes: 16,
    unsolicited: 4,
};
const UDP_TIMER: Duration = Duration::from_secs(10);
const TCP_TIMER: Duration = Duration::from_secs(20);
const ICMP_TIMER: Duration = Duration::from_secs(5);

/// Carries out what the input says, step by step.
pub(super) fn target(data: &[u8]) {
    let mut reader = Reader::new(&data[..data.len().min(INPUT_BYTES)]);
    let mut bed = Bed::new(reader.byte());
    while !reader.is_empty() {
        match reader.byte() % 16 {
            0..=4 => bed.outbound(&mut reader),
            5..=8 => bed.inbound(&mut reader),
            9 | 10 => bed.error(&mut reader),
            11 => bed.fragments(&mut reader),
            12 | 13 => bed.pass(reader.byte()),
            _ => bed.stranger(&mut reader),
        }
        bed.model.compare(&bed.translator.nat.stats(), bed.now);
    }
}

fn rules() -> Rules {
    let mut rules = RulesBuilder::new(1, OwnerKey([9; 16]), RulesBuilder::owners_among(1));
    let cluster = rules.egress(EgressKind::Cluster, "cluster", &EGRESS).expect("free addresses");
    rules.member(cluster, "10.1.0.0/16".parse().expect("a network"));
    let pods = rules.egress(EgressKind::Pods, "shop/some", &[SELECTED.1]).expect("a free address");
    rules.member(pods, SELECTED.0.into());
    let pairs = [
        (IngressKind::Service, "shop/web", SERVICE),
        (IngressKind::Gateway, "gw", GATEWAY),
        (IngressKind::HeadlessPod, "shop/db-0", HEADLESS),
    ];
    for (kind, name, (inside, global)) in pairs {
        rules.ingress(kind, name, global, inside).expect("a free address");
    }
    rules.build()
}

struct Bed {
    translator: Translator,
    /// The same again, for packets that the model does not see.
    strangers: Translator,
    model: Model,
    now: Instant,
    identification: u16,
}

impl Bed {
    fn new(seed: u8) -> Self {
        let timers = Timers {
            udp: UDP_TIMER,
            tcp_established: TCP_TIMER,
            tcp_opening: TCP_TIMER,
            tcp_closing: TCP_TIMER,
            icmp: ICMP_TIMER,
            ..Timers::default()
        };
        let config = Config { timers, limits: LIMITS };
        let now = Instant::now();
        let translator = |seed| Translator::new(config, rules(), seed, now);
        let (translator, strangers) = (translator(seed.into()), translator(7));
        Self { translator, strangers, model: Model::default(), now, identification: 0 }
    }

    /// Up to 25 seconds.
    fn pass(&mut self, tenths: u8) {
        self.now += Duration::from_millis(u64::from(tenths) * 100);
        for translator in [&mut self.translator, &mut self.strangers] {
            translator.expire(self.now, 1 << 20);
        }
        self.model.forget(self.now);
    }

    fn outbound(&mut self, reader: &mut Reader<'_>) {
        let spec = outbound_spec(reader);
        let out = self.carry(Way::Outbound, &spec);
        self.model.judge_outbound(self.translator.rules(), &spec, &out, self.now);
    }

    fn inbound(&mut self, reader: &mut Reader<'_>) {
        let spec = self.inbound_spec(reader);
        let out = self.carry(Way::Inbound, &spec);
        self.model.judge_inbound(&spec, &out, self.now);
    }

    /// What comes out for a packet: its ends afterwards. Every byte of it is what the packet with those ends would be.
    fn carry(&mut self, way: Way, spec: &Spec) -> Result<Ends, Fate> {
        let (bytes, checksum) = spec.bytes();
        let out = self.translator.carry_as(way, &bytes, checksum, self.now)?;
        let [out] = &out[..] else { panic!("one packet makes one: {out:?}") };
        let ends = Ends::of(out);
        spec.assert_translated(out, ends);
        Ok(ends)
    }

    /// To a port that is known, or to any.
    fn inbound_spec(&self, reader: &mut Reader<'_>) -> Spec {
        let mut spec = Spec::read(reader);
        let choice = reader.byte();
        let port = PORTS[usize::from(reader.byte()) % PORTS.len()];
        let remote = REMOTE[usize::from(reader.byte()) % REMOTE.len()];
        spec.from =
            (remote, if spec.is_query() { 0 } else { PORTS[usize::from(reader.byte()) % PORTS.len()] });
        let known = self.model.nth(choice);
        spec.to = match (choice % 8, known) {
            (0, _) => (SERVICE.1, port),
            (1, _) => (HEADLESS.1, port),
            (2, _) => (GATEWAY.1, port),
            (3, _) => (NOBODY, port),
            (4, _) | (_, None) => (EGRESS[usize::from(choice >> 3) % 2], port),
            (choice, Some(known)) => {
                spec.protocol = known.protocol;
                if choice > 5 {
                    spec.from = known.remote;
                }
                known.outside
            }
        };
        spec.settle_ports();
        spec
    }

    /// An error about a packet of a session, intact or damaged: translated with what it quotes, or dropped, and no
    /// session is made, refreshed or ended by it.
    fn error(&mut self, reader: &mut Reader<'_>) {
        let Some(known) = self.model.nth(reader.byte()) else { return };
        let choice = reader.byte();
        let kind = [(3, 1), (3, 4), (11, 0), (12, 0), (3, 3)][usize::from(choice >> 4) % 5];
        // Half a checksum cannot be translated.
        let quoted = 28 + usize::from(reader.byte() & !1);
        let way = if choice & 1 == 0 { Way::Inbound } else { Way::Outbound };
        let mut spec = Spec::of(known.protocol, reader);
        if known.inside.0 == GATEWAY.0 && way == Way::Outbound && spec.asks() {
            // A question to the gateway comes by its own address, and not by the session.
            return;
        }
        // What the inside sent or got, and how it looks outside.
        let pair = match way {
            Way::Inbound => [known.inside, known.outside].map(|near| (near, known.remote)),
            Way::Outbound => [known.inside, known.outside].map(|near| (known.remote, near)),
        };
        let [inside, outside] = pair.map(|(from, to)| {
            (spec.from, spec.to) = (from, to);
            spec.settle_ports();
            spec.whole_bytes()
        });
        let (before, after) = match way {
            Way::Inbound => (error(ROUTER, kind, &outside, quoted), error(ROUTER, kind, &inside, quoted)),
            Way::Outbound => {
                (error(STRANGER, kind, &inside, quoted), error(known.outside.0, kind, &outside, quoted))
            }
        };
        let before = damaged(before, choice >> 1 & 7);
        let sessions = self.translator.nat.stats().sessions;
        let out = self.translator.carry(way, &before.bytes, self.now);
        assert_eq!(self.translator.nat.stats().sessions, sessions, "an error changes no session");
        match out {
            Ok(out) => {
                assert!(before.is_intact, "a damaged error went through: {:02x?}", before.bytes);
                assert_eq!(out, [after], "the error with the packet as it was sent");
            }
            Err(fate) => {
                let must = before.is_intact && known.is_alive(self.now);
                assert!(!must, "an error about a live session was lost: {fate:?}");
            }
        }
    }

    /// A packet in pieces, in some order: together what the whole one would be.
    fn fragments(&mut self, reader: &mut Reader<'_>) {
        let way = if reader.byte() & 1 == 0 { Way::Outbound } else { Way::Inbound };
        let mut spec = match way {
            Way::Outbound => outbound_spec(reader),
            Way::Inbound => self.inbound_spec(reader),
        };
        spec.body = 300;
        spec.is_partial = false;
        self.identification = self.identification.wrapping_add(1);
        let mut whole = spec.whole_bytes();
        put16(&mut whole, 4, self.identification);
        fill_ipv4_header(&mut whole);
        let mut pieces = cut(&whole, 100 + u16::from(reader.byte() % 100));
        let turn = usize::from(reader.byte()) % pieces.len();
        pieces.rotate_left(turn);
        if reader.byte() & 1 == 1 {
            pieces.reverse();
        }
        let (mut out, mut fate) = (Vec::new(), None);
        for piece in &pieces {
            match self.translator.carry(way, piece, self.now) {
                Ok(packets) => out.extend(packets),
                Err(Fate::Waits) => {}
                Err(refused) => fate = Some(refused),
            }
        }
        let result = match fate {
            Some(fate) => {
                assert!(out.is_empty(), "a packet that is refused leaves no pieces");
                Err(fate)
            }
            None => {
                assert_eq!(out.len(), pieces.len(), "as many pieces as before");
                let mut whole = reassembled(out).remove(0);
                let ends = Ends::of(&whole);
                put16(&mut whole, 4, spec::IDENTIFICATION);
                fill_ipv4_header(&mut whole);
                spec.assert_translated(&whole, ends);
                Ok(ends)
            }
        };
        match way {
            Way::Outbound => self.model.judge_outbound(self.translator.rules(), &spec, &result, self.now),
            Way::Inbound => self.model.judge_inbound(&spec, &result, self.now),
        }
    }

    /// Bytes as they come, made a little more likely to get somewhere.
    fn stranger(&mut self, reader: &mut Reader<'_>) {
        let choice = reader.byte();
        let length = usize::from(reader.byte());
        let mut bytes = reader.take(length).to_vec();
        if choice & 1 == 1 && bytes.len() >= 20 {
            bytes[0] = 0x40 | (bytes[0] & 15).max(5);
            let total = u16::try_from(bytes.len()).unwrap_or(u16::MAX);
            put16(&mut bytes, 2, total);
            bytes[9] = [ICMP, TCP, UDP, bytes[9]][usize::from(choice >> 1 & 3)];
            bytes[12..16].copy_from_slice(&INSIDE[usize::from(choice >> 3 & 7)].octets());
            bytes[16..20].copy_from_slice(&REMOTE[usize::from(choice >> 6 & 1)].octets());
        }
        let way = if choice & 0x80 == 0 { Way::Outbound } else { Way::Inbound };
        let Ok(before) = Inner::parse(&bytes) else { return };
        let Ok(packets) = self.strangers.carry(way, &bytes, self.now) else { return };
        for out in packets {
            let after = Inner::parse(&out).expect("what comes out is a packet");
            assert!(out.len() <= usize::from(u16::MAX) && after.flow.protocol == before.flow.protocol);
        }
    }
}

fn outbound_spec(reader: &mut Reader<'_>) -> Spec {
    let mut spec = Spec::read(reader);
    let mut pick = |from: usize| usize::from(reader.byte()) % from;
    spec.from = (INSIDE[pick(INSIDE.len())], PORTS[pick(PORTS.len())]);
    spec.to = (REMOTE[pick(REMOTE.len())], PORTS[pick(PORTS.len())]);
    spec.settle_ports();
    spec
}

/// An error, and whether it still is what it should be.
struct Damaged {
    bytes: Vec<u8>,
    is_intact: bool,
}

fn damaged(mut bytes: Vec<u8>, how: u8) -> Damaged {
    let mend = |bytes: &mut Vec<u8>| {
        put16(bytes, 22, 0);
        let sum = Sum::ZERO.bytes(&bytes[20..]).checksum();
        put16(bytes, 22, sum);
    };
    match how {
        0 => bytes[23] ^= 1,
        1 => {
            // The quoted header's checksum, with the message's own right again.
            bytes[39] ^= 1;
            mend(&mut bytes);
        }
        2 => {
            // To somebody else.
            bytes[19] ^= 1;
            fill_ipv4_header(&mut bytes);
        }
        3 => {
            // Of a later fragment.
            bytes[35] = 1;
            let sum = be16(&bytes, 38);
            put16(&mut bytes, 38, trieste_packet::checksum::update16(sum, 0, 1));
            mend(&mut bytes);
        }
        _ => return Damaged { bytes, is_intact: true },
    }
    Damaged { bytes, is_intact: false }
}
