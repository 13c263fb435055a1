//! What is not as it should be: what it is, where, and what to do.
//!
//! Conditions are computed anew with every plan. Texts from outside are quoted, and cut after
//! [`crate::constants::MAX_QUOTED`] characters.

mod text;

use std::collections::BTreeSet;
use std::fmt;
use std::net::IpAddr;

use ipnet::IpNet;

use crate::constants::MAX_CONDITIONS;

/// Why a network of an object is left out.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Refusal {
    /// It is no network.
    Malformed,
    /// It is a default route.
    Everything,
    /// It overlaps addresses with a meaning of their own.
    Reserved(IpNet),
    /// It overlaps a network of the own cluster.
    Own(IpNet),
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Malformed => f.write_str("it is no network in CIDR notation; correct the object"),
            Self::Everything => f.write_str("it covers every address; name the cluster's real networks"),
            Self::Reserved(network) => {
                write!(f, "it overlaps the reserved {network}; name the cluster's real networks")
            }
            Self::Own(network) => write!(
                f,
                "it overlaps {network} of this cluster; give the clusters different networks or use globalnet"
            ),
        }
    }
}

/// One thing that is not as it should be.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Condition {
    /// The router of OVN-Kubernetes is not in the database.
    RouterMissing {
        /// Its name.
        router: String,
    },
    /// A row of OVN-Kubernetes that the proposal's topology is built on is not in the database.
    RowMissing {
        /// Its table.
        table: &'static str,
        /// Its name.
        name: String,
    },
    /// The database's schema lacks what is needed.
    SchemaTooOld {
        /// Its version.
        version: String,
    },
    /// No node is the active gateway.
    NoGatewayNode,
    /// The southbound database has no chassis of the gateway node.
    ChassisMissing {
        /// The node.
        node: String,
    },
    /// The southbound database has several chassis of the gateway node.
    ChassisAmbiguous {
        /// The node.
        node: String,
        /// How many.
        count: usize,
    },
    /// The node's external network has no address of a family, so that the proposal's topology cannot carry it.
    NoExternalNetwork {
        /// `IPv4` or `IPv6`.
        family: &'static str,
        /// The port that has none.
        port: String,
    },
    /// The management port has no address of a family, in the gateway's zone.
    NoManagementPort {
        /// `IPv4` or `IPv6`.
        family: &'static str,
    },
    /// Networks of a cluster have no next hop of their family: packets for them are dropped.
    NoNextHop {
        /// The cluster.
        cluster: String,
        /// The first of them.
        network: IpNet,
        /// How many.
        count: usize,
    },
    /// A GatewayRoute names a next hop that is not this zone's management port.
    NextHopElsewhere {
        /// The cluster.
        cluster: String,
        /// The next hop.
        next_hop: IpAddr,
    },
    /// A text of an object is no address.
    BadNextHop {
        /// The cluster.
        cluster: String,
        /// The text.
        text: String,
    },
    /// A network of an object is left out.
    Refused {
        /// The cluster.
        cluster: String,
        /// The network, as it is written.
        network: String,
        /// The reason.
        why: Refusal,
    },
    /// A remote network is left out, since a port of the cluster's router is on it.
    Connected {
        /// The remote network.
        network: IpNet,
        /// The port's network.
        own: IpNet,
    },
    /// Two clusters name the same network with different next hops.
    Disputed {
        /// The network.
        network: IpNet,
        /// The cluster that has it.
        owner: String,
        /// The cluster that does not get it.
        claimant: String,
    },
    /// There are more networks than are followed.
    TooManyNetworks {
        /// How many are left out.
        left_out: usize,
    },
    /// A row that is not ours stands where one of ours should be.
    ForeignRow {
        /// Its table.
        table: &'static str,
        /// What it is known by.
        key: String,
        /// What follows.
        effect: Effect,
    },
    /// The server refused a transaction.
    TransactionRefused {
        /// Its words.
        error: String,
    },
    /// There are more conditions than these.
    More {
        /// How many.
        count: usize,
    },
}

/// What follows from a row in the way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Effect {
    /// It does what ours would.
    Same,
    /// It contradicts ours.
    Contradicts,
    /// Ours cannot be made.
    Blocks,
    /// It is on a router or switch of ours, which therefore stays.
    Keeps,
}

/// A bounded set of conditions.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Conditions {
    kept: BTreeSet<Condition>,
    left_out: usize,
}

impl Conditions {
    /// Adds one, unless there are [`MAX_CONDITIONS`].
    pub fn add(&mut self, condition: Condition) {
        if self.kept.len() < MAX_CONDITIONS || self.kept.contains(&condition) {
            self.kept.insert(condition);
        } else {
            self.left_out += 1;
        }
    }

    /// Adds all of another set.
    pub fn extend(&mut self, other: Self) {
        self.left_out += other.left_out;
        other.kept.into_iter().for_each(|condition| self.add(condition));
    }

    /// Returns them in a fixed order; the last says how many are left out.
    pub fn iter(&self) -> impl Iterator<Item = Condition> {
        let more = (self.left_out > 0).then_some(Condition::More { count: self.left_out });
        self.kept.iter().cloned().chain(more)
    }

    /// Returns `true` if there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.kept.is_empty()
    }
}
