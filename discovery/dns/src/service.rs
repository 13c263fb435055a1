//! A service of the set as it is answered: an immutable record that replaces the one before.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use arc_swap::ArcSwapOption;

use crate::export::Export;
use crate::label::ServiceName;
use crate::routing::Routing;
use crate::schedule::Schedule;
use crate::slice::Port;

/// What kind of addresses a service has.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum ServiceKind {
    /// A virtual IP in each cluster, or one for the set.
    #[default]
    ClusterSetIp,
    /// The addresses of its pods.
    Headless,
}

/// Whose turn it is; kept when a service changes. A family of addresses has its own count: clients ask for both at once,
/// and with one count of two clusters, every A would go to one of them and every AAAA to the other.
#[derive(Debug, Default)]
pub(crate) struct Turns {
    v4: Turn,
    v6: Turn,
    any: Turn,
    /// Number of answers with clusterset IPs.
    pub(crate) answered: AtomicU64,
}

/// A count of turns. It is all that threads share, so that the distribution is exact over all of them.
#[derive(Debug, Default)]
pub(crate) struct Turn {
    count: AtomicU64,
    /// The period of the weighted round robin for the clusters that were eligible last.
    pub(crate) schedule: ArcSwapOption<Schedule>,
}

/// What a cluster has to have to be chosen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Need {
    /// An IPv4 address.
    V4,
    /// An IPv6 address.
    V6,
    /// An address.
    Any,
}

impl Turns {
    /// Returns the count for what a client asks for.
    pub(crate) fn of(&self, need: Need) -> &Turn {
        match need {
            Need::V4 => &self.v4,
            Need::V6 => &self.v6,
            Need::Any => &self.any,
        }
    }
}

impl Turn {
    /// Takes a turn.
    pub(crate) fn take(&self) -> u64 {
        self.count.fetch_add(1, Ordering::Relaxed)
    }
}

/// A service.
#[derive(Debug)]
pub(crate) struct Service {
    pub(crate) name: ServiceName,
    pub(crate) kind: ServiceKind,
    /// Clusterset IPs, if it has some: they are answered instead of a cluster's.
    pub(crate) ips: Box<[IpAddr]>,
    /// Ports that names without a cluster have: the import's with clusterset IPs, else those that all clusters have.
    pub(crate) ports: Box<[Port]>,
    /// By the clusters' ids, in order.
    pub(crate) exports: Box<[Arc<Export>]>,
    pub(crate) routing: Routing,
    pub(crate) turns: Arc<Turns>,
}

impl Service {
    /// Finds a cluster's part.
    pub(crate) fn export(&self, cluster: &[u8]) -> Option<&Arc<Export>> {
        let found = self.exports.binary_search_by(|export| export.cluster.id().as_bytes().cmp(cluster));
        self.exports.get(found.ok()?)
    }

    /// Returns whether clusterset IPs stand for it.
    pub(crate) fn has_ips(&self) -> bool {
        self.has_ip(Need::Any)
    }

    /// Returns whether a clusterset IP stands for its addresses of a family.
    pub(crate) fn has_ip(&self, need: Need) -> bool {
        let mut ips = self.ips.iter();
        self.kind == ServiceKind::ClusterSetIp
            && match need {
                Need::V4 => ips.any(IpAddr::is_ipv4),
                Need::V6 => ips.any(IpAddr::is_ipv6),
                Need::Any => ips.next().is_some(),
            }
    }
}

impl Export {
    /// Returns whether it has what is needed.
    pub(crate) fn has(&self, need: Need) -> bool {
        match need {
            Need::V4 => !self.v4.is_empty(),
            Need::V6 => !self.v6.is_empty(),
            Need::Any => !self.v4.is_empty() || !self.v6.is_empty(),
        }
    }
}
