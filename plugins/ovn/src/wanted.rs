//! What is wanted of a zone's database: objects and facts of the cluster, parsed once into types that cannot be wrong.
//!
//! Whatever a remote cluster publishes ends up here. A network that is malformed or not the cluster's to have is left out
//! with a condition, and changes nothing else; one without a usable next hop is closed.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::LazyLock;

use ipnet::IpNet;
use trieste_control::network_map::NetworkMap;

use crate::condition::{Condition, Conditions, Refusal};
use crate::constants::{MAX_NETWORKS, MAX_NETWORKS_PER_OBJECT, MAX_NEXT_HOPS};
use crate::family::Family;

/// Networks that are never behind a gateway, whoever claims them: those of the route agent, and our join network. Global
/// networks are above multicast, in 242.0.0.0/8.
const RESERVED: [&str; 11] = [
    "0.0.0.0/8",
    "127.0.0.0/8",
    "169.254.0.0/16",
    "224.0.0.0/4",
    "240.0.0.0/8",
    "255.255.255.255/32",
    "::/96",
    "::ffff:0:0/96",
    "fd53:7562:6d34::/125",
    "fe80::/10",
    "ff00::/8",
];

/// The same, parsed.
static RESERVED_NETWORKS: LazyLock<NetworkMap<()>> = LazyLock::new(|| {
    RESERVED.iter().map(|text| text.parse::<IpNet>().expect("the networks above are well-formed")).collect()
});

/// Where packets to remote clusters are led.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Topology {
    /// By policies on OVN-Kubernetes' own router, to the next hops of GatewayRoutes and NonGatewayRoutes: current upstream's.
    ClusterRouter,
    /// By a router of our own to the gateway node's external switch: the original proposal's.
    SubmarinerRouter,
}

/// Which part of a cluster the database describes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Zone {
    /// The active gateway is in it.
    Gateway,
    /// It is in another.
    Other,
}

/// Which of the two objects a [`RouteObject`] is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum RouteKind {
    /// For the gateway's zone.
    Gateway,
    /// For all other zones.
    NonGateway,
}

/// A GatewayRoute or NonGatewayRoute, as it is written.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct RouteObject {
    /// Its name: the remote cluster.
    pub cluster: String,
    /// Which object.
    pub kind: RouteKind,
    /// `spec.nextHops`.
    pub next_hops: Vec<String>,
    /// `spec.remoteCIDRs`.
    pub remote_cidrs: Vec<String>,
}

/// Everything that decides what is wanted.
#[derive(Debug, Clone)]
pub struct Input<'a> {
    /// The topology.
    pub topology: Topology,
    /// The zone that the database is of.
    pub zone: Zone,
    /// The objects, in any order.
    pub routes: &'a [RouteObject],
    /// Whether all objects have been listed. Until then nothing of upstream's is taken for stale.
    pub is_complete: bool,
    /// Networks that packets may not leave for, whatever objects say: claimed and refused, or just vanished.
    pub closed: &'a [IpNet],
    /// The own cluster's pod and service networks.
    pub own: &'a [IpNet],
    /// Networks of which no remote cluster may have a part: addresses of nodes, API servers, resolvers.
    pub protected: &'a [IpNet],
    /// The node of the active gateway.
    pub gateway_node: Option<&'a str>,
    /// Addresses of the gateway node's management port, in the gateway's zone.
    pub management_port: &'a [IpAddr],
    /// What stands for the version in rows that are marked for upstream's eyes.
    pub version: &'a str,
}

/// What is done with packets to a remote network.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reach {
    /// They are dropped.
    Closed,
    /// They are led to a gateway; in the topology of OVN-Kubernetes' router to this next hop, if there is one.
    Open(Option<IpAddr>),
}

/// What is wanted of a zone's database.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wanted {
    pub(crate) topology: Topology,
    pub(crate) zone: Zone,
    pub(crate) networks: BTreeMap<IpNet, Reach>,
    pub(crate) own: BTreeSet<IpNet>,
    pub(crate) gateway_node: Option<String>,
    pub(crate) version: String,
    pub(crate) is_complete: bool,
    pub(crate) conditions: Conditions,
}

impl Wanted {
    /// Reads what decides, and says what of it cannot be used ([`Wanted::conditions`]).
    #[must_use]
    pub fn new(input: &Input<'_>) -> Self {
        let mut reader = Reader::new(input);
        let mut objects: Vec<&RouteObject> = input.routes.iter().collect();
        // The first cluster by name has what several name, whatever the order of the list.
        objects.sort_unstable();
        for object in objects {
            reader.read(object);
        }
        for network in input.closed {
            let network = network.trunc();
            if reader.admit(&network).is_ok() {
                reader.put(network, Reach::Closed, true);
            }
        }
        reader.finish()
    }

    /// Returns what of the input cannot be used.
    #[must_use]
    pub fn conditions(&self) -> &Conditions {
        &self.conditions
    }

    /// Returns how many remote networks there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.networks.len()
    }

    /// Returns `true` if there is no remote network.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.networks.is_empty()
    }
}

/// Reads one input.
struct Reader<'a> {
    input: &'a Input<'a>,
    own: NetworkMap<()>,
    management_port: BTreeMap<Family, IpAddr>,
    networks: BTreeMap<IpNet, Reach>,
    owners: BTreeMap<IpNet, &'a str>,
    left_out: usize,
    conditions: Conditions,
}

impl<'a> Reader<'a> {
    fn new(input: &'a Input<'a>) -> Self {
        let mut management_port = BTreeMap::new();
        for address in input.management_port {
            management_port.entry(Family::of_address(address)).or_insert(*address);
        }
        Self {
            input,
            own: input.own.iter().chain(input.protected).map(IpNet::trunc).collect(),
            management_port,
            networks: BTreeMap::new(),
            owners: BTreeMap::new(),
            left_out: 0,
            conditions: Conditions::default(),
        }
    }

    /// Reads an object. Of what its zone does not use, only that its networks are remote.
    fn read(&mut self, object: &'a RouteObject) {
        let next_hops = self.next_hops(object);
        let mut without: Option<(IpNet, usize)> = None;
        for text in object.remote_cidrs.iter().take(MAX_NETWORKS_PER_OBJECT) {
            let network = match self.parse(text) {
                Ok(network) => network,
                Err(why) => {
                    let (cluster, network) = (object.cluster.clone(), text.clone());
                    self.conditions.add(Condition::Refused { cluster, network, why });
                    continue;
                }
            };
            let reach = match next_hops.get(&Family::of(&network)) {
                Some(next_hop) => Reach::Open(Some(*next_hop)),
                None if self.input.topology == Topology::SubmarinerRouter => Reach::Open(None),
                None => Reach::Closed,
            };
            if reach == Reach::Closed && self.is_for_this_zone(object) {
                without.get_or_insert((network, 0)).1 += 1;
            }
            self.claim(network, reach, &object.cluster);
        }
        if let Some((network, count)) = without {
            self.conditions.add(Condition::NoNextHop { cluster: object.cluster.clone(), network, count });
        }
        self.left_out += object.remote_cidrs.len().saturating_sub(MAX_NETWORKS_PER_OBJECT);
    }

    fn is_for_this_zone(&self, object: &RouteObject) -> bool {
        self.input.topology == Topology::ClusterRouter
            && object.kind
                == match self.input.zone {
                    Zone::Gateway => RouteKind::Gateway,
                    Zone::Other => RouteKind::NonGateway,
                }
    }

    /// Returns the object's first next hop of each family, as upstream takes the first. In the gateway's zone that has to be
    /// the management port: any other is of a gateway that was.
    fn next_hops(&mut self, object: &RouteObject) -> BTreeMap<Family, IpAddr> {
        let mut next_hops = BTreeMap::new();
        if !self.is_for_this_zone(object) {
            return next_hops;
        }
        for text in object.next_hops.iter().take(MAX_NEXT_HOPS) {
            let cluster = object.cluster.clone();
            let Ok(next_hop) = text.parse::<IpAddr>() else {
                self.conditions.add(Condition::BadNextHop { cluster, text: text.clone() });
                continue;
            };
            let family = Family::of_address(&next_hop);
            if self.input.zone == Zone::Other {
                next_hops.entry(family).or_insert(next_hop);
                continue;
            }
            match self.management_port.get(&family) {
                Some(own) if *own == next_hop => {
                    next_hops.insert(family, next_hop);
                }
                Some(_) => self.conditions.add(Condition::NextHopElsewhere { cluster, next_hop }),
                None => self.conditions.add(Condition::NoManagementPort { family: family.name() }),
            }
        }
        next_hops
    }

    /// Reads a network; host bits are cleared, as everywhere in this project.
    fn parse(&self, text: &str) -> Result<IpNet, Refusal> {
        let network = text.parse::<IpNet>().map_err(|_| Refusal::Malformed)?.trunc();
        self.admit(&network)?;
        Ok(network)
    }

    /// Checks that a network may be remote. Our policies come before those by which OVN-Kubernetes reaches its own pods, so
    /// that none may match them.
    fn admit(&self, network: &IpNet) -> Result<(), Refusal> {
        if network.prefix_len() == 0 {
            return Err(Refusal::Everything);
        }
        if let Some((own, ())) = self.own.overlapping(*network).next() {
            return Err(Refusal::Own(own));
        }
        match RESERVED_NETWORKS.overlapping(*network).next() {
            Some((reserved, ())) => Err(Refusal::Reserved(reserved)),
            None => Ok(()),
        }
    }

    /// Gives a cluster a network, unless another has it.
    fn claim(&mut self, network: IpNet, reach: Reach, cluster: &'a str) {
        let owner = *self.owners.entry(network).or_insert(cluster);
        if owner == cluster {
            self.put(network, reach, reach != Reach::Closed);
        } else if reach != Reach::Closed && self.networks.get(&network) != Some(&reach) {
            let (owner, claimant) = (owner.to_owned(), cluster.to_owned());
            self.conditions.add(Condition::Disputed { network, owner, claimant });
        }
    }

    /// Adds a network, and replaces what is there already if this `prevails`: the object that the zone uses before the
    /// cluster's other one, and what is closed before both.
    fn put(&mut self, network: IpNet, reach: Reach, prevails: bool) {
        if self.networks.len() >= MAX_NETWORKS && !self.networks.contains_key(&network) {
            self.left_out += 1;
            return;
        }
        let kept = self.networks.entry(network).or_insert(reach);
        if prevails {
            *kept = reach;
        }
    }

    fn finish(mut self) -> Wanted {
        if self.left_out > 0 {
            self.conditions.add(Condition::TooManyNetworks { left_out: self.left_out });
        }
        let input = self.input;
        Wanted {
            topology: input.topology,
            zone: input.zone,
            networks: self.networks,
            own: input.own.iter().map(|network| network.trunc()).collect(),
            gateway_node: input.gateway_node.map(str::to_owned),
            version: input.version.to_owned(),
            is_complete: input.is_complete,
            conditions: self.conditions,
        }
    }
}

#[cfg(test)]
mod tests;
