//! One worker's translation with packets as bytes: what tests by requirement share.

use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

use etherparse::PacketBuilder;
use trieste_nat::{
    Config, EgressKind, Facts, IngressKind, Nat, OwnerKey, Quote, Refusal, Rewrite, Rules, RulesBuilder,
};
use trieste_packet::checksum::{Sum, fill_ipv4_header, transport_is_valid};
use trieste_packet::wire::{Inner, be16, be32, put16};
use trieste_packet::{DropReason, Packet, Pool, PoolConfig};

/// A pod, and another one.
pub(crate) const POD: Ipv4Addr = Ipv4Addr::new(10, 1, 0, 7);
pub(crate) const OTHER_POD: Ipv4Addr = Ipv4Addr::new(10, 1, 0, 8);
/// A router between the pods and the gateway.
pub(crate) const INSIDE_ROUTER: Ipv4Addr = Ipv4Addr::new(10, 1, 255, 254);
/// The cluster's egress address.
pub(crate) const GLOBAL: Ipv4Addr = Ipv4Addr::new(242, 0, 0, 1);
/// A service and its global address.
pub(crate) const SERVICE: Ipv4Addr = Ipv4Addr::new(10, 96, 0, 5);
pub(crate) const SERVICE_GLOBAL: Ipv4Addr = Ipv4Addr::new(242, 0, 255, 254);
/// Addresses of another cluster.
pub(crate) const REMOTE: Ipv4Addr = Ipv4Addr::new(242, 1, 0, 9);
pub(crate) const OTHER_REMOTE: Ipv4Addr = Ipv4Addr::new(242, 1, 0, 10);
pub(crate) const REMOTE_ROUTER: Ipv4Addr = Ipv4Addr::new(242, 1, 0, 254);

/// Why a packet did not get through.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stop {
    /// The translation refused it.
    Refused(Refusal),
    /// It cannot be translated.
    Dropped(DropReason),
    /// An error about what is no session.
    Silent,
}

/// The translation, its rules and its time.
pub(crate) struct Bed {
    pub(crate) nat: Nat,
    pub(crate) rules: Rules,
    pub(crate) now: Instant,
    pool: Pool,
}

impl Bed {
    pub(crate) fn new() -> Self {
        Self::with(Config::default())
    }

    pub(crate) fn with(config: Config) -> Self {
        let owners = RulesBuilder::owners_among(1);
        let mut rules = RulesBuilder::new(1, OwnerKey([9; 16]), owners);
        let cluster = rules.egress(EgressKind::Cluster, "cluster-egress", &[GLOBAL]).unwrap();
        rules.member(cluster, "10.1.0.0/16".parse().unwrap());
        rules.ingress(IngressKind::Service, "shop/web", SERVICE_GLOBAL, SERVICE).unwrap();
        #[expect(
            clippy::disallowed_methods,
            reason = "a point to count from; the time itself does not matter"
        )]
        let now = Instant::now();
        let pool = Pool::new(PoolConfig { slots: 2, slot_bytes: 4096 });
        Self { nat: Nat::new(config, 5, now), rules: rules.build(), now, pool }
    }

    pub(crate) fn pass(&mut self, seconds: u64) {
        self.now += Duration::from_secs(seconds);
        while self.nat.expire(self.now, 1 << 16) > 0 {}
    }

    /// A packet from inside: what leaves.
    pub(crate) fn outbound(&mut self, bytes: &[u8]) -> Result<Vec<u8>, Stop> {
        self.carry(bytes, true)
    }

    /// A packet from another cluster: what is delivered.
    pub(crate) fn inbound(&mut self, bytes: &[u8]) -> Result<Vec<u8>, Stop> {
        self.carry(bytes, false)
    }

    /// A packet from inside to a global address of ours: out and in again.
    pub(crate) fn hairpin(&mut self, bytes: &[u8]) -> Result<Vec<u8>, Stop> {
        let out = self.outbound(bytes)?;
        assert!(self.rules.is_global(destination(&out)), "not a hairpin");
        self.inbound(&out)
    }

    fn carry(&mut self, bytes: &[u8], is_outbound: bool) -> Result<Vec<u8>, Stop> {
        let mut packet = Packet::new(self.pool.alloc_copy(bytes).unwrap());
        let result = self.translate(&mut packet, is_outbound);
        let after = packet.bytes().to_vec();
        self.pool.recycle(packet.buf);
        result.map(|()| after)
    }

    fn translate(&mut self, packet: &mut Packet, is_outbound: bool) -> Result<(), Stop> {
        let inner = Inner::parse(packet.bytes()).map_err(Stop::Dropped)?;
        if Quote::is_error(packet.bytes(), &inner) {
            let quote = Quote::read(packet, &inner).map_err(Stop::Dropped)?;
            let rewrite = self.peek(&quote.answer, is_outbound).ok_or(Stop::Silent)?;
            quote.apply(packet, &rewrite);
            return Ok(());
        }
        let flow = Facts::of(packet.bytes(), &inner).expect("a packet of its own");
        let translation = if is_outbound {
            self.nat.in2out(&flow, &self.rules, self.now)
        } else {
            self.nat.out2in(&flow, &self.rules, self.now)
        };
        let rewrite = translation.map_err(Stop::Refused)?.rewrite;
        rewrite.apply(packet, &inner).map_err(Stop::Dropped)
    }

    fn peek(&self, answer: &Facts, is_outbound: bool) -> Option<Rewrite> {
        if is_outbound {
            self.nat.peek_outbound(answer, &self.rules, self.now)
        } else {
            self.nat.peek_inbound(answer, &self.rules, self.now)
        }
    }

    /// Sessions there are.
    pub(crate) fn sessions(&self) -> u64 {
        self.nat.stats().sessions.into()
    }
}

pub(crate) fn udp(from: (Ipv4Addr, u16), to: (Ipv4Addr, u16)) -> Vec<u8> {
    let mut bytes = Vec::new();
    let builder = PacketBuilder::ipv4(from.0.octets(), to.0.octets(), 64).udp(from.1, to.1);
    builder.write(&mut bytes, b"some words of a datagram").unwrap();
    bytes
}

pub(crate) fn tcp(from: (Ipv4Addr, u16), to: (Ipv4Addr, u16), flags: u8) -> Vec<u8> {
    let mut bytes = Vec::new();
    let builder = PacketBuilder::ipv4(from.0.octets(), to.0.octets(), 64).tcp(from.1, to.1, 1000, 500);
    builder.write(&mut bytes, &[]).unwrap();
    bytes[33] = flags;
    put16(&mut bytes, 36, 0);
    let sum = trieste_packet::checksum::pseudo_sum(&bytes, 6, 20).bytes(&bytes[20..]).checksum();
    put16(&mut bytes, 36, sum);
    bytes
}

/// An ICMP query: type 8 asks and 0 answers; 13 and 14 for timestamps.
pub(crate) fn query(icmp_type: u8, from: Ipv4Addr, to: Ipv4Addr, id: u16) -> Vec<u8> {
    let mut bytes = Vec::new();
    let [high, low] = id.to_be_bytes();
    let builder =
        PacketBuilder::ipv4(from.octets(), to.octets(), 64).icmpv4_raw(icmp_type, 0, [high, low, 0, 1]);
    builder.write(&mut bytes, b"twelve bytes").unwrap();
    bytes
}

/// The ICMP error of `from` about a packet, as far as `quoted_bytes` of it, to whoever sent that.
pub(crate) fn error(
    from: Ipv4Addr,
    (icmp_type, code): (u8, u8),
    about: &[u8],
    quoted_bytes: usize,
) -> Vec<u8> {
    let mut bytes = Vec::new();
    let to = source(about);
    let builder = PacketBuilder::ipv4(from.octets(), to.octets(), 60).icmpv4_raw(icmp_type, code, [0; 4]);
    builder.write(&mut bytes, &about[..quoted_bytes.min(about.len())]).unwrap();
    bytes
}

/// Repairs the checksums of an ICMP message that was changed by hand.
pub(crate) fn mend(bytes: &mut [u8]) {
    fill_ipv4_header(bytes);
    let start = usize::from(bytes[0] & 15) * 4;
    put16(bytes, start + 2, 0);
    let sum = Sum::ZERO.bytes(&bytes[start..]).checksum();
    put16(bytes, start + 2, sum);
}

pub(crate) fn source(bytes: &[u8]) -> Ipv4Addr {
    be32(bytes, 12).into()
}

pub(crate) fn destination(bytes: &[u8]) -> Ipv4Addr {
    be32(bytes, 16).into()
}

/// Source port, or an ICMP query's identifier.
pub(crate) fn source_port(bytes: &[u8]) -> u16 {
    Inner::parse(bytes).unwrap().flow.source_port
}

/// The packet that an ICMP error quotes.
pub(crate) fn quoted(bytes: &[u8]) -> &[u8] {
    &bytes[usize::from(bytes[0] & 15) * 4 + 8..]
}

/// Asserts that the checksums of header and transport are right.
pub(crate) fn assert_right(bytes: &[u8]) {
    let start = usize::from(bytes[0] & 15) * 4;
    assert_eq!(Sum::ZERO.bytes(&bytes[..start]).folded(), u16::MAX, "the header's checksum");
    assert!(transport_is_valid(bytes, start), "the transport's checksum");
}

/// The second 16-bit word of an ICMP header's rest: the MTU of "fragmentation needed".
pub(crate) fn mtu_of(bytes: &[u8]) -> u16 {
    be16(bytes, 26)
}
