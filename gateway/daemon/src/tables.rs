//! Where API objects become data-plane tables; the one place where they do. Globalnet's are in `globalnet.rs`.
//!
//! Which remote Endpoints are connected to, and in which order clusters come first where their subnets overlap, is a
//! function of the objects alone, so that every gateway of a cluster decides alike.
//!
//! ```text
//!   targets, siblings ─▶ Reader (each version read once) ─▶ Admitted ─┬▶ cables ─▶ build ─▶ Tables
//!   NAT discovery ─▶ Choice by cable name ───────────────────────────┘
//! ```
//!
//! All gateways of a cluster that supports several are paths to it; of another cluster the newest Endpoint alone is.
//! The other gateways of our own cluster are siblings.
//!
//! Everything here costs n log n for n Endpoints.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;

use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use jiff::Timestamp;
use trieste_cables::{Site, drivers};
use trieste_control::api::{Endpoint, EndpointFacts, EndpointSpec};
use trieste_control::claims::Allowed;
use trieste_packet::GatewayKey;
use trieste_vxlan::{VTEP_GATEWAYS, vtep};

mod build;
mod globalnet;
mod reader;
mod services;
mod watch;

pub use build::{Far, Lane, Networks, Row, Rows, build, carrier, carriers, clusters};
pub use globalnet::{Own, Owners, Translation, compile, owner_of};
pub use reader::{Admitted, Reader, site};
pub use services::{backends, delivery, frontend};
pub use watch::Before;

/// Upstream's cable port, for Endpoints that do not name theirs.
const DEFAULT_PORT: u16 = 4500;

/// Facts about this gateway.
#[derive(Debug, Clone)]
pub struct Local {
    /// Our cluster's ID.
    pub cluster_id: String,
    /// Our end of all cables.
    pub site: Site,
    /// Our addresses inside them, for ICMP errors and for probes: at most one of each family.
    pub icmp_sources: Vec<IpAddr>,
    /// Largest inner packet of a path, in bytes.
    pub path_mtu: u16,
    /// The rules of translation; `None` without Globalnet.
    pub translation: Option<Arc<Translation>>,
    /// Networks that remote clusters may claim.
    pub allowed: Allowed,
    /// Every address of this node outside of tunnels: no cable ends there.
    pub node_addresses: BTreeSet<IpAddr>,
}

/// Which of a peer's addresses its cable is to use, as NAT discovery found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Choice {
    /// The address.
    pub ip: IpAddr,
    /// Whether there is NAT on the way.
    pub use_nat: bool,
}

/// Choices by cable name. An Endpoint whose cable has none is not connected to yet.
pub type Choices = BTreeMap<String, Choice>;

/// Returns the choice for a peer that does not answer NAT discovery, by its Endpoint (wireformat §1.5): the public address if
/// NAT is enabled or it is behind a load balancer, else the private one.
#[must_use]
pub fn fallback_choice(facts: &EndpointFacts, spec: &EndpointSpec) -> Choice {
    match facts.public_ip {
        Some(public) if spec.nat_enabled || spec.uses_load_balancer() => Choice { ip: public, use_nat: true },
        _ => Choice { ip: facts.private_ip, use_nat: false },
    }
}

/// Returns [`fallback_choice`] for all Endpoints that parse, where NAT discovery does not run.
#[must_use]
pub fn fallback_choices(endpoints: &[Endpoint]) -> Choices {
    let choice = |endpoint: &Endpoint| {
        let facts = endpoint.spec.parse().ok()?;
        let choice = fallback_choice(&facts, &endpoint.spec);
        Some((facts.cable_name, choice))
    };
    endpoints.iter().filter_map(choice).collect()
}

/// A gateway's relation to us.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Role {
    /// Another gateway of our own cluster.
    Sibling,
    /// One of a remote cluster that supports several gateways: all of ours have a cable to it.
    Member,
    /// The one of a remote cluster that supports one gateway of ours: only the leader has a cable to it.
    Sole,
}

/// A gateway that may be connected to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Peer {
    /// Its relation to us.
    pub role: Role,
    /// The object's name.
    pub name: String,
    /// The object's spec.
    pub spec: EndpointSpec,
    /// The spec's values, checked.
    pub facts: EndpointFacts,
    /// The driver of its cable: one that it offers, and we do.
    pub driver: String,
    /// Its identity on the wire.
    pub identity: [u8; 32],
    /// When the object was made.
    pub created: Option<Timestamp>,
}

impl Peer {
    /// Returns its end of the cable. Between siblings a cable carries any packet that one passes on to the other.
    #[must_use]
    pub fn site(&self) -> Site {
        ends(self.role, site(&self.facts, &self.spec, &self.driver))
    }

    /// Returns what its Endpoint says of the driver of its cable.
    #[must_use]
    pub fn spec_by_driver(&self) -> EndpointSpec {
        let mut spec = self.spec.clone();
        spec.backend.clone_from(&self.driver);
        spec.backend_config = drivers::settings(&self.driver, &self.facts.backend, spec.backend_config);
        spec
    }

    /// Returns our end of the cable to it.
    #[must_use]
    pub fn near(&self, local: &Site) -> Site {
        ends(self.role, local.clone())
    }

    /// Returns its key for steering.
    #[must_use]
    pub fn key(&self) -> GatewayKey {
        GatewayKey::of(&self.facts.cable_name)
    }

    /// Returns the addresses of its health checks.
    pub fn health_check_ips(&self) -> impl Iterator<Item = IpAddr> {
        let others = self.spec.health_check_ips.iter().filter_map(|text| text.parse::<IpAddr>().ok());
        self.facts.health_check_ip.into_iter().chain(others)
    }

    /// Returns the choice for a gateway that needs no NAT discovery: siblings reach each other at their private addresses.
    #[must_use]
    pub fn own_choice(&self) -> Option<Choice> {
        (self.role == Role::Sibling).then_some(Choice { ip: self.facts.private_ip, use_nat: false })
    }

    /// Returns the address at which its cable ends.
    #[must_use]
    pub fn address(&self, choice: Choice) -> SocketAddr {
        SocketAddr::new(choice.ip, self.facts.udp_port.unwrap_or(DEFAULT_PORT))
    }

    /// Returns addresses of the tunnel's far end that are outside of its subnets: those of the node, and that of upstream's
    /// VXLAN device.
    pub fn tunnel_addresses(&self) -> impl Iterator<Item = IpAddr> {
        let vtep = match self.facts.private_ip {
            IpAddr::V4(v4) => Some(IpAddr::V4(vtep(VTEP_GATEWAYS, v4))),
            IpAddr::V6(_) => None,
        };
        let others = self.spec.private_ips.iter().chain(&self.spec.public_ips);
        let others = others.filter_map(|text| text.parse::<IpAddr>().ok());
        let own = [Some(self.facts.private_ip), self.facts.public_ip, vtep];
        let all: BTreeSet<IpAddr> = own.into_iter().flatten().chain(others).collect();
        all.into_iter()
    }
}

/// Returns a site as an end of a cable to a gateway of this role.
fn ends(role: Role, site: Site) -> Site {
    if role != Role::Sibling {
        return site;
    }
    let everything = [
        IpNet::V4(Ipv4Net::new_assert(Ipv4Addr::UNSPECIFIED, 0)),
        IpNet::V6(Ipv6Net::new_assert(Ipv6Addr::UNSPECIFIED, 0)),
    ];
    Site { subnets: everything.to_vec(), ..site }
}

#[cfg(test)]
mod tests;
