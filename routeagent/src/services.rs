//! What a node does with packets of remote clusters for services that have a back end here: an nftables table of its
//! own, as it should be, as it is, and the difference. Pure.
//!
//! ```text
//! table inet trieste-services
//!   set inlets             devices by which gateways send them: the VXLAN between nodes, and on a gateway's node its own
//!   set remote4, remote6   networks of remote clusters
//!   set own4, own6         service networks of the own cluster, and with several gateways its pod networks
//!   set away4, away6       with several gateways: pods of other nodes, which this node's gateway sends to over the VXLAN
//!   set served4, served6   service networks of the own cluster
//!   map frontends4, …6     cluster IP, protocol and port of each service with a back end here ▸ its chain
//!   chain untracked        prerouting, priority raw: what only passes through this node is not tracked; drops what comes
//!                          from another node in this one's name
//!   chain deliver          prerouting, before kube-proxy: translates the destination to a back end of this node
//!   chain b-…              one for each list of back ends: picks by client address and port
//!   chain unserved         forward, after others' filters: drops or refuses, and counts, what nobody has translated
//!   chain host-udp         input: translates the source of UDP for a back end in the host's network
//! ```
//!
//! The gateway has picked this node; here one of its back ends is picked, and this node's connection tracking turns the
//! answers round, whichever gateway they leave by. Source addresses stay: nothing here translates them, and what would
//! (the network plugin, kube-proxy) is kept from it by the chain `keep-source` of the packet filter (`guard.rs`). The
//! exception is UDP for the host's network: a server there that binds any address answers from the one by which the client
//! is reached, which is another than it was asked at, and nobody would turn that round. It sees the node as its client.
//!
//! What is sent here for a cluster IP and translated by nobody would follow the default route out of the cluster, in clear.
//!
//! A gateway's node sees the answers alone of what was sent to other nodes, and where there are several gateways, one half
//! of most flows: connection tracking would call them invalid and kube-proxy drop them. So answers of services that come
//! from other nodes, and with several gateways all that comes from there for remote clusters, or from remote clusters for
//! pods of other nodes, is not tracked there.

pub mod read;
pub mod render;
pub(crate) mod structure;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use ipnet::IpNet;
use trieste_control::hash::fnv1a;
use trieste_control::services::{Frontend, Protocol, Service};

use crate::family::Family;
use crate::nft::{Element, Elements, SERVICES_TABLE, TABLE_FAMILY, by_family};

/// Ours: places of a list from which one is drawn. More than back ends, so that they have about the same share.
const PLACES: usize = 64;
/// Ours: most back ends of one service on one node. A node has 110 pods, of all services together.
const MOST_BACKENDS: usize = 256;
/// Ours: the largest weight of a back end; greater ones are scaled down together.
const MOST_WEIGHT: u32 = 16;

/// The desired state of the table.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum DesiredServices {
    /// There is to be none.
    #[default]
    Absent,
    /// Its content is not known yet; it stays as it is.
    AsItIs,
    /// This.
    Rules {
        /// The address at which the node takes packets for services.
        at: IpAddr,
        /// The content.
        rules: ServiceRules,
    },
}

/// The desired content of the table.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ServiceRules {
    /// Devices by which gateways send packets for services.
    pub inlets: BTreeSet<String>,
    /// Networks of remote clusters, disjoint.
    pub remote: BTreeSet<IpNet>,
    /// Service networks of the own cluster, disjoint.
    pub served: BTreeSet<IpNet>,
    /// Networks of the own cluster, disjoint: what comes from them over the VXLAN for a remote cluster only passes through,
    /// and this node sees the answers alone. Those of services always, those of pods where there are several gateways.
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
        let backends = service.backends.iter().map(|backend| ((backend.address, backend.port), 1));
        let backends: Vec<_> =
            backends.filter(|(backend, _)| backend.0.is_ipv4() == frontend.address.is_ipv4()).collect();
        Self::weighted(frontend.protocol, !service.keeps_clients, &backends)
    }

    /// Returns how one of some back ends is drawn, each in proportion to its weight; `None` if there is none. Back ends
    /// beyond 256 do not count.
    #[must_use]
    pub fn weighted(protocol: Protocol, by_port: bool, backends: &[((IpAddr, u16), u32)]) -> Option<Self> {
        match &backends[..backends.len().min(MOST_BACKENDS)] {
            [] => None,
            [(only, _)] => Some(Self { protocol, by_port: false, places: vec![*only] }),
            several => {
                let count = if several.len() > PLACES / 4 { PLACES * 16 } else { PLACES };
                let heaviest = several.iter().map(|(_, weight)| *weight).max().unwrap_or(1);
                let draws =
                    |weight: u32| weight.saturating_mul(MOST_WEIGHT).div_ceil(heaviest.max(MOST_WEIGHT));
                // Rendezvous: a back end that comes or goes moves only its own share. One of a greater weight draws more often.
                let best = |place, (backend, weight): ((IpAddr, u16), u32)| {
                    (0..draws(weight).max(1)).map(|nth| draw(place, nth, backend)).max()
                };
                let of_place = |place: usize| {
                    let chosen = several.iter().copied().max_by_key(|backend| best(place, *backend));
                    chosen.map(|(backend, _)| backend)
                };
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

fn draw(place: usize, nth: u32, (address, port): (IpAddr, u16)) -> u64 {
    let address = match address {
        IpAddr::V4(v4) => v4.to_ipv6_mapped().octets(),
        IpAddr::V6(v6) => v6.octets(),
    };
    let bytes = address.into_iter().chain(port.to_be_bytes()).chain(place.to_be_bytes());
    // The first draw of a place is as it always was: a new release sends no client elsewhere.
    let bytes = bytes.chain((nth > 0).then(|| nth.to_be_bytes()).into_iter().flatten());
    // A finaliser, because FNV's upper bits know little of the last bytes.
    let mut value = fnv1a(bytes);
    value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}

/// The content of a table, without handles and counts: of this one, or of another that translates destinations alike.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Table {
    /// The table's name.
    name: &'static str,
    /// Sets, maps, base chains and their rules, as nftables lists them.
    structure: Vec<serde_json::Value>,
    /// The sets' elements.
    sets: Elements,
    /// The chain of each service.
    frontends: BTreeMap<Frontend, String>,
    /// The other chains; `None` for one that cannot be ours.
    picks: BTreeMap<String, Option<Arc<Pick>>>,
}

impl Table {
    /// Returns the table for these rules.
    #[must_use]
    pub fn of(rules: &ServiceRules) -> Self {
        let picks = rules
            .services
            .iter()
            .filter_map(|(frontend, service)| Some((*frontend, Pick::of(frontend, service)?.into())));
        Self::new(SERVICES_TABLE, structure::structure(), sets(rules), picks)
    }

    /// Returns a table of a name, structure and elements of sets that translates by these picks.
    pub(crate) fn new(
        name: &'static str,
        structure: Vec<serde_json::Value>,
        sets: Elements,
        picks: impl Iterator<Item = (Frontend, Arc<Pick>)>,
    ) -> Self {
        let mut table = Self { name, structure, sets, ..Self::default() };
        for (frontend, pick) in picks {
            let chain = pick.chain();
            table.frontends.insert(frontend, chain.clone());
            table.picks.insert(chain, Some(pick));
        }
        table
    }

    /// Returns `true` if packets from a network, by which nodes with back ends answer, are not tracked.
    #[must_use]
    pub fn leaves_untracked(&self, network: &IpNet) -> bool {
        let mut own = self.sets.get(by_family("own", network).as_str()).into_iter().flatten();
        own.any(|element| matches!(element, Element::Net(own) if own.contains(network)))
    }
}

/// Returns the elements of each set.
fn sets(rules: &ServiceRules) -> Elements {
    let mut sets = Elements::new();
    let mut put = |set: String, element| sets.entry(set).or_default().insert(element);
    for device in &rules.inlets {
        put("inlets".to_owned(), Element::Device(device.clone()));
    }
    let named =
        [("remote", &rules.remote), ("served", &rules.served), ("own", &rules.own), ("away", &rules.relayed)];
    for (name, networks) in named {
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
    /// Removes the table of this name.
    Remove(&'static str),
}

impl ServicesChange {
    /// Returns the addresses and ports of UDP whose targets the change takes away, and these.
    pub(crate) fn lost_udp(&self) -> BTreeMap<SocketAddr, BTreeSet<SocketAddr>> {
        let Self::Update { from, to } = self else { return BTreeMap::new() };
        let targets = |table: &Table, chain: Option<&String>| -> BTreeSet<SocketAddr> {
            let pick = chain.and_then(|chain| table.picks.get(chain)?.as_ref());
            pick.into_iter().flat_map(|pick| &pick.places).map(|place| SocketAddr::from(*place)).collect()
        };
        let changed = from
            .frontends
            .iter()
            .filter(|(at, chain)| at.protocol == Protocol::Udp && to.frontends.get(at) != Some(chain));
        let lost = changed.map(|(at, chain)| {
            let kept = targets(to, to.frontends.get(at));
            let lost = targets(from, Some(chain)).difference(&kept).copied().collect::<BTreeSet<_>>();
            (SocketAddr::new(at.address, at.port), lost)
        });
        lost.filter(|(_, lost)| !lost.is_empty()).collect()
    }

    /// Returns the table after the change.
    pub(crate) fn result(&self) -> ObservedServices {
        match self {
            Self::Build(table) | Self::Update { to: table, .. } => {
                ObservedServices::Present((**table).clone())
            }
            Self::Remove(_) => ObservedServices::Absent,
        }
    }
}

impl fmt::Display for ServicesChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = |name: &str| format!("nftables table {TABLE_FAMILY} {name}");
        match self {
            Self::Build(table) => {
                let name = name(table.name);
                write!(f, "build {name} for {} addresses and ports of services", table.frontends.len())
            }
            Self::Update { from, to } => {
                let is_kept = |entry: &(&Frontend, &String)| to.frontends.get(entry.0) == Some(entry.1);
                let kept = from.frontends.iter().filter(is_kept).count();
                let (added, removed) = (to.frontends.len() - kept, from.frontends.len() - kept);
                let name = name(to.name);
                write!(f, "update {name}: {added} addresses and ports of services added, {removed} removed")
            }
            Self::Remove(table) => write!(f, "remove {}", name(table)),
        }
    }
}

/// Returns the change to make; `None` if there is none, or if the present state could not be read.
#[must_use]
pub fn services_change(desired: &DesiredServices, observed: &ObservedServices) -> Option<ServicesChange> {
    match desired {
        DesiredServices::AsItIs => None,
        DesiredServices::Absent => removal(SERVICES_TABLE, observed),
        DesiredServices::Rules { rules, .. } => change(|| Table::of(rules), observed),
    }
}

/// Returns the removal of a table, if it is there.
pub(crate) fn removal(name: &'static str, observed: &ObservedServices) -> Option<ServicesChange> {
    match observed {
        ObservedServices::Unknown | ObservedServices::Absent => None,
        ObservedServices::Present(_) => Some(ServicesChange::Remove(name)),
    }
}

/// Returns the change that makes a table what is wanted.
pub(crate) fn change(wanted: impl FnOnce() -> Table, observed: &ObservedServices) -> Option<ServicesChange> {
    match observed {
        ObservedServices::Unknown => None,
        ObservedServices::Absent => Some(ServicesChange::Build(wanted().into())),
        ObservedServices::Present(there) => {
            let wanted = wanted();
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
