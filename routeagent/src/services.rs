//! What a node does with packets of remote clusters for services that have a back end here: an nftables table of its
//! own, as it should be, as it is, and the difference. Pure.
//!
//! ```text
//! table inet trieste-services
//!   set inlets             devices by which gateways send them: the VXLAN between nodes, and on a gateway's node its own
//!   set remote4, remote6   networks of remote clusters
//!   set own4, own6         pod and service networks of the own cluster
//!   set away4, away6       pods of other nodes, which this node's gateway sends to over the VXLAN; none without one
//!   map frontends4, …6     cluster IP, protocol and port of each service with a back end here ▸ its chain
//!   chain untracked        prerouting, priority raw: what only passes through this node is not tracked
//!   chain deliver          prerouting, before kube-proxy: translates the destination to a back end of this node
//!   chain b-…              one for each list of back ends: picks by client address and port
//! ```
//!
//! The gateway has picked this node; here one of its back ends is picked, and this node's connection tracking turns the
//! answers round, whichever gateway they leave by. Source addresses stay: nothing here translates them, and what would
//! (the network plugin, kube-proxy) is kept from it by the chain `keep-source` of the packet filter (`guard.rs`).
//!
//! A gateway's node sees one half of most flows, which connection tracking would call invalid and kube-proxy drop. So what
//! comes from other nodes for remote clusters, and from remote clusters for pods of other nodes, is not tracked there.

pub mod read;
pub mod render;
mod structure;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::IpAddr;

use ipnet::IpNet;
use trieste_control::hash::fnv1a;
use trieste_control::services::{Frontend, Protocol, Service};

use crate::family::Family;
use crate::nft::{Element, Elements, SERVICES_TABLE, TABLE_FAMILY, by_family};

/// Ours: places of a list from which one is drawn. More than back ends, so that they have about the same share.
const PLACES: usize = 64;
/// Ours: most back ends of one service on one node. A node has 110 pods, of all services together.
const MOST_BACKENDS: usize = 256;

/// The desired state of the table.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum DesiredServices {
    /// There is to be none.
    #[default]
    Absent,
    /// Its content is not known yet; it stays as it is.
    AsItIs,
    /// This.
    Rules(ServiceRules),
}

/// The desired content of the table.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ServiceRules {
    /// Devices by which gateways send packets for services.
    pub inlets: BTreeSet<String>,
    /// Networks of remote clusters, disjoint.
    pub remote: BTreeSet<IpNet>,
    /// Networks of the own cluster, disjoint: what comes from them over the VXLAN for a remote cluster only passes through.
    pub own: BTreeSet<IpNet>,
    /// Pods of other nodes, disjoint: what remote clusters send to them only passes through. Empty where this node
    /// has no gateway.
    pub relayed: BTreeSet<IpNet>,
    /// The services that have back ends on this node, and these.
    pub services: BTreeMap<Frontend, Service>,
}

/// The back ends from which one is drawn.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Pick {
    /// The protocol.
    pub protocol: Protocol,
    /// Whether a client's port has a say.
    pub by_port: bool,
    /// Address and port for each number drawn; a single one is taken without drawing.
    pub places: Vec<(IpAddr, u16)>,
}

impl Pick {
    fn of(frontend: &Frontend, service: &Service) -> Option<Self> {
        let backends = service.backends.iter().map(|backend| (backend.address, backend.port));
        let backends: Vec<_> = backends
            .filter(|backend| backend.0.is_ipv4() == frontend.address.is_ipv4())
            .take(MOST_BACKENDS)
            .collect();
        let (protocol, by_port) = (frontend.protocol, !service.keeps_clients);
        match &*backends {
            [] => None,
            [only] => Some(Self { protocol, by_port: false, places: vec![*only] }),
            several => {
                let count = if several.len() > PLACES / 4 { PLACES * 16 } else { PLACES };
                // Rendezvous: a back end that comes or goes moves only its own share.
                let of_place =
                    |place: usize| several.iter().copied().max_by_key(|backend| draw(place, *backend));
                Some(Self { protocol, by_port, places: (0..count).filter_map(of_place).collect() })
            }
        }
    }

    /// Returns the chain's name, a hash of its content.
    fn chain(&self) -> String {
        let text = format!("{self:?}");
        format!("b-{:016x}", fnv1a(text.bytes()))
    }

    fn family(&self) -> Family {
        self.places.first().map_or(Family::V4, |place| Family::of(place.0))
    }
}

fn draw(place: usize, (address, port): (IpAddr, u16)) -> u64 {
    let address = match address {
        IpAddr::V4(v4) => v4.to_ipv6_mapped().octets(),
        IpAddr::V6(v6) => v6.octets(),
    };
    let bytes = address.into_iter().chain(port.to_be_bytes()).chain(place.to_be_bytes());
    // A finaliser, because FNV's upper bits know little of the last bytes.
    let mut value = fnv1a(bytes);
    value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}

/// The content of the table, without handles and counts.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Table {
    /// Sets, maps, base chains and their rules, as nftables lists them.
    structure: Vec<serde_json::Value>,
    /// The sets' elements.
    sets: Elements,
    /// The chain of each service.
    frontends: BTreeMap<Frontend, String>,
    /// The other chains; `None` for one that cannot be ours.
    picks: BTreeMap<String, Option<Pick>>,
}

impl Table {
    /// Returns the table for these rules.
    #[must_use]
    pub fn of(rules: &ServiceRules) -> Self {
        let mut table = Self { structure: structure::structure(), sets: sets(rules), ..Self::default() };
        for (frontend, service) in &rules.services {
            let Some(pick) = Pick::of(frontend, service) else { continue };
            let chain = pick.chain();
            table.frontends.insert(*frontend, chain.clone());
            table.picks.insert(chain, Some(pick));
        }
        table
    }
}

/// Returns the elements of each set.
fn sets(rules: &ServiceRules) -> Elements {
    let mut sets = Elements::new();
    let mut put = |set: String, element| sets.entry(set).or_default().insert(element);
    for device in &rules.inlets {
        put("inlets".to_owned(), Element::Device(device.clone()));
    }
    for (name, networks) in [("remote", &rules.remote), ("own", &rules.own), ("away", &rules.relayed)] {
        for network in networks {
            put(by_family(name, network), Element::Net(*network));
        }
    }
    sets
}

/// The table as the kernel reports it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum ObservedServices {
    /// Not known: `nft` is missing or failed.
    #[default]
    Unknown,
    /// There is none.
    Absent,
    /// This one.
    Present(Table),
}

/// A change of the table, applied as one transaction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ServicesChange {
    /// Replaces the table, whatever it was before.
    Build(Box<Table>),
    /// Changes what differs.
    Update {
        /// As it is.
        from: Box<Table>,
        /// As it is to be.
        to: Box<Table>,
    },
    /// Removes the table.
    Remove,
}

impl fmt::Display for ServicesChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = format_args!("nftables table {TABLE_FAMILY} {SERVICES_TABLE}");
        match self {
            Self::Build(table) => {
                write!(f, "build {name} for {} addresses and ports of services", table.frontends.len())
            }
            Self::Update { from, to } => {
                let is_kept = |entry: &(&Frontend, &String)| to.frontends.get(entry.0) == Some(entry.1);
                let kept = from.frontends.iter().filter(is_kept).count();
                let (added, removed) = (to.frontends.len() - kept, from.frontends.len() - kept);
                write!(f, "update {name}: {added} addresses and ports of services added, {removed} removed")
            }
            Self::Remove => write!(f, "remove {name}"),
        }
    }
}

/// Returns the change to make; `None` if there is none, or if the present state could not be read.
#[must_use]
pub fn services_change(desired: &DesiredServices, observed: &ObservedServices) -> Option<ServicesChange> {
    match (desired, observed) {
        (DesiredServices::AsItIs, _)
        | (_, ObservedServices::Unknown)
        | (DesiredServices::Absent, ObservedServices::Absent) => None,
        (DesiredServices::Absent, ObservedServices::Present(_)) => Some(ServicesChange::Remove),
        (DesiredServices::Rules(rules), ObservedServices::Absent) => {
            Some(ServicesChange::Build(Table::of(rules).into()))
        }
        (DesiredServices::Rules(rules), ObservedServices::Present(there)) => {
            let wanted = Table::of(rules);
            if wanted == *there {
                None
            } else if wanted.structure != there.structure || there.picks.values().any(Option::is_none) {
                Some(ServicesChange::Build(wanted.into()))
            } else {
                Some(ServicesChange::Update { from: there.clone().into(), to: wanted.into() })
            }
        }
    }
}

#[cfg(test)]
mod tests;
