//! A cluster's rules, packets as facts, and a clock for the tests of translation.

use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

use trieste_nat::{
    Config, EgressKind, Facts, IngressKind, Kind, Nat, OwnerKey, Refusal, Rewrite, Rules, RulesBuilder, Side,
    Translation,
};
use trieste_packet::wire::tcp::{ACK, FIN, RST, SYN};

pub(crate) const SYN_ACK: u8 = SYN | ACK;
pub(crate) const FIN_ACK: u8 = FIN | ACK;
pub(crate) const RST_ACK: u8 = RST | ACK;

/// Inside.
pub(crate) const POD: Ipv4Addr = Ipv4Addr::new(10, 1, 0, 5);
pub(crate) const OTHER_POD: Ipv4Addr = Ipv4Addr::new(10, 1, 0, 6);
pub(crate) const SELECTED_POD: Ipv4Addr = Ipv4Addr::new(10, 1, 0, 7);
pub(crate) const NAMESPACE_POD: Ipv4Addr = Ipv4Addr::new(10, 1, 0, 8);
pub(crate) const HEADLESS_POD: Ipv4Addr = Ipv4Addr::new(10, 1, 0, 9);
pub(crate) const GATEWAY: Ipv4Addr = Ipv4Addr::new(10, 1, 0, 1);
pub(crate) const CLUSTER_IP: Ipv4Addr = Ipv4Addr::new(10, 96, 0, 10);

/// Outside, ours.
pub(crate) const SELECTED_GLOBAL: Ipv4Addr = Ipv4Addr::new(242, 1, 0, 20);
pub(crate) const NAMESPACE_GLOBAL: Ipv4Addr = Ipv4Addr::new(242, 1, 0, 30);
pub(crate) const HEADLESS_GLOBAL: Ipv4Addr = Ipv4Addr::new(242, 1, 255, 253);
pub(crate) const SERVICE_GLOBAL: Ipv4Addr = Ipv4Addr::new(242, 1, 255, 252);
pub(crate) const GATEWAY_GLOBAL: Ipv4Addr = Ipv4Addr::new(242, 1, 255, 254);

/// Outside, another cluster's.
pub(crate) const REMOTE: Ipv4Addr = Ipv4Addr::new(242, 2, 255, 252);
pub(crate) const OTHER_REMOTE: Ipv4Addr = Ipv4Addr::new(242, 2, 0, 1);

pub(crate) const TCP: u8 = 6;
pub(crate) const UDP: u8 = 17;
pub(crate) const ICMP: u8 = 1;
pub(crate) const SCTP: u8 = 132;

/// The eight addresses of the cluster's egress.
pub(crate) fn cluster_globals() -> Vec<Ipv4Addr> {
    (1..=8).map(|last| Ipv4Addr::new(242, 1, 0, last)).collect()
}

pub(crate) fn builder(epoch: u64) -> RulesBuilder {
    RulesBuilder::new(epoch, OwnerKey([7; 16]), RulesBuilder::owners_among(4))
}

/// Rules of every kind.
pub(crate) fn rules() -> Rules {
    let mut builder = builder(1);
    let cluster =
        builder.egress(EgressKind::Cluster, "cluster-egress.submariner.io", &cluster_globals()).unwrap();
    builder.member(cluster, "10.1.0.0/16".parse().unwrap());
    builder.member(cluster, "10.96.0.0/16".parse().unwrap());
    let namespace = builder.egress(EgressKind::Namespace, "shop/all", &[NAMESPACE_GLOBAL]).unwrap();
    for pod in [SELECTED_POD, NAMESPACE_POD, HEADLESS_POD] {
        builder.member(namespace, pod.into());
    }
    let pods = builder.egress(EgressKind::Pods, "shop/some", &[SELECTED_GLOBAL]).unwrap();
    builder.member(pods, SELECTED_POD.into());
    builder.ingress(IngressKind::HeadlessPod, "shop/pod-db-0", HEADLESS_GLOBAL, HEADLESS_POD).unwrap();
    builder.ingress(IngressKind::Service, "shop/web", SERVICE_GLOBAL, CLUSTER_IP).unwrap();
    builder.ingress(IngressKind::Gateway, "gw-1", GATEWAY_GLOBAL, GATEWAY).unwrap();
    builder.build()
}

/// The cluster's egress alone, with these addresses.
pub(crate) fn plain_rules(epoch: u64, globals: &[Ipv4Addr]) -> Rules {
    let mut builder = builder(epoch);
    let cluster = builder.egress(EgressKind::Cluster, "cluster", globals).unwrap();
    builder.member(cluster, "10.0.0.0/8".parse().unwrap());
    builder.build()
}

/// A translation with its rules and its time.
pub(crate) struct Lab {
    pub(crate) nat: Nat,
    pub(crate) rules: Rules,
    pub(crate) now: Instant,
}

#[expect(clippy::disallowed_methods, reason = "a beginning is needed; from there on time is counted")]
pub(crate) fn beginning() -> Instant {
    Instant::now()
}

impl Lab {
    pub(crate) fn new(rules: Rules) -> Self {
        Self::with(rules, |_| {})
    }

    pub(crate) fn with(rules: Rules, change: impl FnOnce(&mut Config)) -> Self {
        let mut config = Config::default();
        // Small enough that a hundred of them cost nothing.
        config.limits.sessions = 1 << 17;
        change(&mut config);
        let now = beginning();
        Self { nat: Nat::new(config, 42, now), rules, now }
    }

    pub(crate) fn wait(&mut self, seconds: u64) {
        self.now += Duration::from_secs(seconds);
    }

    /// Removes everything whose time is over.
    pub(crate) fn expire(&mut self) -> usize {
        self.nat.expire(self.now, usize::MAX)
    }

    pub(crate) fn in2out(&mut self, flow: &Facts) -> Result<Translation, Refusal> {
        self.nat.in2out(flow, &self.rules, self.now)
    }

    pub(crate) fn out2in(&mut self, flow: &Facts) -> Result<Translation, Refusal> {
        self.nat.out2in(flow, &self.rules, self.now)
    }

    /// Sends a packet out and returns what leaves.
    pub(crate) fn leave(&mut self, flow: &Facts) -> Result<Facts, Refusal> {
        Ok(applied(flow, &self.in2out(flow)?.rewrite))
    }

    /// Lets a packet in and returns what arrives.
    pub(crate) fn enter(&mut self, flow: &Facts) -> Result<Facts, Refusal> {
        Ok(applied(flow, &self.out2in(flow)?.rewrite))
    }
}

/// A packet after its rewrite.
pub(crate) fn applied(flow: &Facts, rewrite: &Rewrite) -> Facts {
    let mut after = *flow;
    let is_query = matches!(flow.kind, Kind::Request | Kind::Reply);
    match rewrite.side {
        Side::Source => {
            assert_eq!((flow.source, flow.source_port), (rewrite.old_address, rewrite.old_port));
            (after.source, after.source_port) = (rewrite.address, rewrite.port);
        }
        Side::Destination => {
            assert_eq!((flow.destination, flow.destination_port), (rewrite.old_address, rewrite.old_port));
            (after.destination, after.destination_port) = (rewrite.address, rewrite.port);
        }
    }
    if is_query {
        (after.source_port, after.destination_port) = (rewrite.port, rewrite.port);
    }
    after
}

fn facts(protocol: u8, kind: Kind, from: (Ipv4Addr, u16), to: (Ipv4Addr, u16)) -> Facts {
    Facts { source: from.0, destination: to.0, source_port: from.1, destination_port: to.1, protocol, kind }
}

pub(crate) fn udp(from: (Ipv4Addr, u16), to: (Ipv4Addr, u16)) -> Facts {
    facts(UDP, Kind::Udp, from, to)
}

pub(crate) fn tcp(flags: u8, from: (Ipv4Addr, u16), to: (Ipv4Addr, u16)) -> Facts {
    facts(TCP, Kind::Tcp(flags), from, to)
}

pub(crate) fn ping(from: Ipv4Addr, to: Ipv4Addr, id: u16) -> Facts {
    facts(ICMP, Kind::Request, (from, id), (to, id))
}

pub(crate) fn sctp(from: Ipv4Addr, to: Ipv4Addr) -> Facts {
    facts(SCTP, Kind::Other, (from, 0), (to, 0))
}

/// The answer to a packet, with these flags if it is TCP.
pub(crate) fn answer(flow: &Facts, flags: u8) -> Facts {
    let mut answer = flow.reversed();
    if matches!(answer.kind, Kind::Tcp(_)) {
        answer.kind = Kind::Tcp(flags);
    }
    answer
}
