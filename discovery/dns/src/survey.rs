//! What is answered for a service at present, for people who ask who answers and why. No turn is taken and nothing counted.

use std::net::IpAddr;

use crate::export::Export;
use crate::label::{Label, ServiceName};
use crate::pick;
use crate::records::Records;
use crate::service::{Need, Service, ServiceKind};
use crate::slice::Port;

/// A service as it is answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Survey {
    /// What kind of addresses it has.
    pub kind: ServiceKind,
    /// Its clusterset IPs, which are answered instead of a cluster's addresses.
    pub ips: Vec<IpAddr>,
    /// Its ports in names without a cluster.
    pub ports: Vec<Port>,
    /// The clusters that export it, by their ids.
    pub clusters: Vec<ClusterSurvey>,
    /// The clusters whose addresses are answered to questions of type A: one, those that have turns, or with a headless
    /// service all of them. None with clusterset IPs.
    pub v4: Vec<Label>,
    /// Likewise of type AAAA.
    pub v6: Vec<Label>,
}

/// What a cluster serves of a service.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClusterSurvey {
    /// Its id.
    pub id: Label,
    /// Whether it is the one that asks.
    pub is_local: bool,
    /// Whether it can be reached.
    pub is_up: bool,
    /// Whether something serves there.
    pub is_ready: bool,
    /// Its addresses that may be answered, IPv4 first.
    pub addresses: Vec<IpAddr>,
}

impl Records {
    /// Returns a service as it is answered at present; `None` if there is none of this name.
    pub fn survey(&self, name: &ServiceName) -> Option<Survey> {
        let shard = self.service(name.wire());
        shard.get(name.wire()).map(|service| Survey::of(service))
    }
}

impl Survey {
    fn of(service: &Service) -> Self {
        let ids = |need| match (service.kind, service.has_ips()) {
            (ServiceKind::ClusterSetIp, true) => Vec::new(),
            (ServiceKind::ClusterSetIp, false) => {
                let candidates = pick::candidates(service, need);
                candidates.into_iter().filter(|export| export.has(need)).map(id).collect()
            }
            (ServiceKind::Headless, _) => {
                pick::all(service).map(AsRef::as_ref).filter(|export| export.has(need)).map(id).collect()
            }
        };
        Self {
            kind: service.kind,
            ips: if service.has_ips() { service.ips.to_vec() } else { Vec::new() },
            ports: service.ports.to_vec(),
            clusters: service.exports.iter().map(|export| ClusterSurvey::of(export)).collect(),
            v4: ids(Need::V4),
            v6: ids(Need::V6),
        }
    }
}

impl ClusterSurvey {
    fn of(export: &Export) -> Self {
        let v4 = export.v4.iter().map(|address| IpAddr::V4(address.ip));
        let v6 = export.v6.iter().map(|address| IpAddr::V6(address.ip));
        Self {
            id: id(export),
            is_local: export.cluster.is_local(),
            is_up: export.cluster.is_up(),
            is_ready: export.is_ready,
            addresses: v4.chain(v6).collect(),
        }
    }
}

fn id(export: &Export) -> Label {
    export.cluster.id().clone()
}
