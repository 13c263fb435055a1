//! Which gateways there are and what there is to be between them.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use trieste_cables::Site;
use trieste_cables::ipsec::crypto::Group;
use trieste_cables::ipsec::ike::EngineConfig;

/// Subnets behind every gateway.
const SUBNETS: usize = 2;

/// How gateways see one another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Shape {
    /// Trieste gateways: one child SA with all subnets.
    Trieste,
    /// As upstream's: both begin, and each pair of subnets has a child SA.
    Foreign,
    /// As upstream's, with the last gateway as server: each pair of subnets has an IKE SA, too.
    Server,
}

impl Shape {
    pub(crate) const ALL: [Self; 3] = [Self::Trieste, Self::Foreign, Self::Server];

    /// Child SAs between two gateways.
    pub(crate) fn children(self) -> usize {
        if self == Self::Trieste { 1 } else { SUBNETS * SUBNETS }
    }

    /// IKE SAs between two gateways. Those that are no server have one as foreign gateways do.
    pub(crate) fn ikes(self, ends: (usize, usize), count: usize) -> usize {
        let is_with_server = ends.0.max(ends.1) + 1 == count;
        if self == Self::Server && is_with_server { SUBNETS * SUBNETS } else { 1 }
    }

    /// What the Endpoint of gateway `index` of `count` says.
    pub(crate) fn site(self, index: usize, count: usize) -> Site {
        let setting = match self {
            Self::Trieste => Some(("trieste.ipsec", "1")),
            Self::Foreign => None,
            Self::Server if index + 1 == count => Some(("preferred-server", "true")),
            Self::Server => Some(("preferred-server", "false")),
        };
        let setting = setting.map(|(key, value)| (key.to_owned(), value.to_owned()));
        Site {
            cable_name: format!("cable-{index}"),
            private_ip: own_address(index).ip(),
            public_ip: None,
            subnets: (0..SUBNETS)
                .map(|subnet| format!("10.{}.0.0/16", octet(index, subnet)).parse().unwrap())
                .collect(),
            driver: String::new(),
            backend_config: setting.into_iter().collect::<BTreeMap<_, _>>(),
        }
    }
}

/// A gateway's own address.
pub(crate) fn own_address(index: usize) -> SocketAddr {
    SocketAddr::new(IpAddr::V4(Ipv4Addr::new(192, 168, 7, byte(index) + 1)), 4500)
}

/// The outside of the NAT that a gateway may be behind.
pub(crate) fn nat_address(index: usize, ip: u8, port: u16) -> SocketAddr {
    SocketAddr::new(IpAddr::V4(Ipv4Addr::new(203, 0, ip, byte(index) + 1)), port)
}

/// A host in a subnet of a gateway.
pub(crate) fn host(index: usize, subnet: usize, number: u8) -> Ipv4Addr {
    Ipv4Addr::new(10, octet(index, subnet), 3, number)
}

/// All pairs of subnets: number of the near one, of the far one.
pub(crate) fn subnet_pairs() -> impl Iterator<Item = (usize, usize)> {
    (0..SUBNETS).flat_map(|near| (0..SUBNETS).map(move |far| (near, far)))
}

fn octet(index: usize, subnet: usize) -> u8 {
    byte(index) + 1 + 100 * byte(subnet)
}

fn byte(number: usize) -> u8 {
    u8::try_from(number).unwrap()
}

/// Settings of an engine: ours, with a secret and the cheapest group.
pub(crate) fn config() -> EngineConfig {
    EngineConfig {
        psk: b"the text that the whole cluster set shares".to_vec().into(),
        groups: vec![Group::Curve25519],
        ..EngineConfig::default()
    }
}
