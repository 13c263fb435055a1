//! What the network plugin's own database has to say of remote clusters, as objects: GatewayRoute for the gateway's own zone,
//! NonGatewayRoute for all others (`control/src/api/routes.rs`). The leading gateway's node writes them, from what its driver
//! accepts; `trieste-plugin-sync`, and upstream's route agents on other nodes, carry them out. Spiderpool, which may be beside
//! any plugin, is served by the networks in them.
//!
//! ```text
//!   pass ─▶ Memory::zone ─▶ Zone ─▶ RoutesController ─▶ objects ─▶ trieste-plugin-sync ─▶ OVN's northbound database
//! ```
//!
//! Networks that are refused or that no gateway offers are in them too, so that the plugin drops what is for them or leads it to
//! the gateway's node, which refuses it. Nothing of them may leave the plugin's network in clear.

pub mod controller;

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use ipnet::IpNet;
use trieste_control::api::limits::MAX_CIDRS;
use trieste_control::api::{
    ApiError, GatewayRoute, Kind, NonGatewayRoute, Object, Resource as _, RouteSpec, closed_routes_name,
};

/// The networks of remote clusters, and the way to them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Zone {
    /// The way to the gateway.
    pub hops: Hops,
    /// Networks by the cluster that they were accepted from.
    pub accepted: BTreeMap<String, BTreeSet<IpNet>>,
    /// Networks that stay closed and belong to no cluster.
    pub closed: BTreeSet<IpNet>,
}

/// The next hops to the gateway's node, of each family at most one.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Hops {
    /// In the gateway's own zone: its management port's addresses.
    pub own: Vec<IpAddr>,
    /// In other zones: its addresses on the switch between them; none where all nodes are in one zone.
    pub others: Vec<IpAddr>,
}

/// A kind of object and its name.
pub type RouteKey = (Kind, String);

impl Zone {
    /// Returns the networks that objects have to name, by the objects' names.
    #[must_use]
    pub fn by_name(&self) -> BTreeMap<String, Vec<IpNet>> {
        let accepted = self.accepted.iter().map(|(cluster, networks)| {
            let networks: Vec<IpNet> = networks.iter().copied().collect();
            (cluster.clone(), networks)
        });
        let closed: Vec<IpNet> = self.closed.iter().copied().collect();
        let closed = closed.chunks(MAX_CIDRS).enumerate();
        accepted.chain(closed.map(|(index, part)| (closed_routes_name(index), part.to_vec()))).collect()
    }
}

/// Returns an object.
///
/// # Errors
/// [`ApiError::Field`] where the name cannot be an object's.
fn object(namespace: &str, (kind, name): &RouteKey, spec: RouteSpec) -> Result<Object, ApiError> {
    match kind {
        Kind::NonGatewayRoute => Ok(NonGatewayRoute::new(namespace, name, spec)?.to_object()),
        Kind::GatewayRoute | _ => Ok(GatewayRoute::new(namespace, name, spec)?.to_object()),
    }
}
