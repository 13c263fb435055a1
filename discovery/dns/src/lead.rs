//! Where connections to a clusterset IP are led: to where a name without one would send clients at present. Nothing is counted
//! and no turn taken.

use std::net::IpAddr;

use crate::export::Export;
use crate::label::{Label, ServiceName};
use crate::pick;
use crate::records::Records;
use crate::service::{Need, Service};
use crate::slice::Port;

/// A cluster that new connections are led to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lead {
    /// Its id.
    pub cluster: Label,
    /// Whether it is the one that asks.
    pub is_local: bool,
    /// Its share of connections; at least 1.
    pub weight: u32,
    /// Its addresses of the family.
    pub addresses: Vec<IpAddr>,
    /// Its number of the port.
    pub port: u16,
}

impl Records {
    /// Returns the clusters that new connections to a port of a service are led to, IPv4 or IPv6: of those that serve the port
    /// on an address of the family, one, or those that have turns. Clusterset IPs of the service do not count.
    ///
    /// A cluster's port is the one of the same name and protocol, whatever its number (KEP-1645: ports are merged by name);
    /// without names on both sides the one of the same number.
    pub fn leads(&self, name: &ServiceName, port: &Port, is_ipv4: bool) -> Vec<Lead> {
        let shard = self.service(name.wire());
        let Some(service) = shard.get(name.wire()) else { return Vec::new() };
        let need = if is_ipv4 { Need::V4 } else { Need::V6 };
        let serves = |export: &Export| export.has(need) && number(export, port).is_some();
        let part = Service {
            name: service.name.clone(),
            kind: service.kind,
            ips: Box::default(),
            ports: Box::default(),
            exports: service.exports.iter().filter(|export| serves(export)).cloned().collect(),
            routing: service.routing.clone(),
            turns: service.turns.clone(),
        };
        let lead = |export: &Export| {
            let v4 = export.v4.iter().filter(|_| is_ipv4).map(|address| IpAddr::V4(address.ip));
            let v6 = export.v6.iter().filter(|_| !is_ipv4).map(|address| IpAddr::V6(address.ip));
            Some(Lead {
                cluster: export.cluster.id().clone(),
                is_local: export.cluster.is_local(),
                weight: export.weight.max(1),
                addresses: v4.chain(v6).collect(),
                port: number(export, port)?,
            })
        };
        pick::candidates(&part, need).into_iter().filter_map(lead).collect()
    }
}

/// Returns a cluster's number of a port.
fn number(export: &Export, port: &Port) -> Option<u16> {
    let mut ports = export.ports.iter().filter(|own| own.protocol == port.protocol);
    let is_it = |own: &&Port| match (&own.name, &port.name) {
        (Some(own), Some(name)) => own == name,
        (None, _) | (_, None) => own.number == port.number,
    };
    ports.find(is_it).map(|own| own.number)
}
