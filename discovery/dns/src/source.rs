//! Where the addresses of an answer come from.

use std::net::IpAddr;
use std::sync::atomic::Ordering;

use crate::export::{Export, of_host};
use crate::family::Family;
use crate::node::Node;
use crate::pick;
use crate::service::{Need, Service, ServiceKind};

/// Where addresses come from.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Source<'s> {
    /// There are none.
    Nothing,
    /// These.
    Ips(&'s [IpAddr]),
    /// The clusterset IPs of a service.
    Virtual(&'s Service),
    /// All of a cluster's.
    Export(&'s Export),
    /// Those of one host.
    Host(&'s Export, u32),
    /// All of all clusters that can be reached; each answer begins with another one.
    All(&'s Service),
}

impl<'s> Source<'s> {
    /// Chooses where the addresses of a name come from.
    pub(crate) fn of(node: Node<'s>, need: Need, own: &'s [IpAddr]) -> Self {
        match node {
            Node::NameServer => Self::Ips(own),
            Node::Service(service) => Self::of_service(service, need),
            // A name with a cluster's id is answered whether the cluster can be reached or not.
            Node::Cluster(_, export) => Self::Export(export),
            Node::Host(_, export, host) => Self::Host(export, host),
            Node::Apex | Node::SchemaVersion | Node::Empty | Node::Absent | Node::Port(..) => Self::Nothing,
        }
    }

    /// Chooses where the addresses of a service come from.
    pub(crate) fn of_service(service: &'s Service, need: Need) -> Self {
        match service.kind {
            ServiceKind::Headless => Self::All(service),
            ServiceKind::ClusterSetIp if service.has_ip(need) => Self::Virtual(service),
            ServiceKind::ClusterSetIp => pick::pick(service, need).map_or(Self::Nothing, Self::Export),
        }
    }

    /// Counts an answer with these addresses, for whose they are.
    pub(crate) fn count(self) {
        match self {
            Self::Nothing | Self::Ips(_) => {}
            Self::Virtual(service) => drop(service.turns.answered.fetch_add(1, Ordering::Relaxed)),
            Self::Export(export) | Self::Host(export, _) => export.count(),
            Self::All(service) => pick::all(service).for_each(|export| export.count()),
        }
    }

    /// Calls a function with each address of a family, until it returns false. Returns whether it never did.
    pub(crate) fn each<F: Family>(self, mut call: impl FnMut(F::Ip) -> bool) -> bool {
        match self {
            Self::Nothing => true,
            Self::Ips(ips) => ips.iter().copied().filter_map(F::of).all(call),
            Self::Virtual(service) => service.ips.iter().copied().filter_map(F::of).all(call),
            Self::Export(export) => F::addresses(export).iter().all(|address| call(address.ip)),
            Self::Host(export, host) => {
                of_host(F::addresses(export), host).iter().all(|address| call(address.ip))
            }
            Self::All(service) => {
                let addresses =
                    pick::all(service).flat_map(|export| F::addresses(export)).map(|address| address.ip);
                let count = u64::try_from(addresses.clone().count()).unwrap_or(u64::MAX);
                if count == 0 {
                    return true;
                }
                let turn = service.turns.of(F::NEED).take() % count;
                let start = usize::try_from(turn).unwrap_or(0);
                addresses.clone().skip(start).chain(addresses.take(start)).all(call)
            }
        }
    }
}
