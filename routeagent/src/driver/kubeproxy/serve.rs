//! Packets for services, which gateways send to the nodes that have back ends.

use crate::admit::Admission;
use crate::constants::{TABLE_DELIVERY, VX_DEVICE};
use crate::driver::Desired;
use crate::networks::disjoint;
use crate::services::{DesiredServices, ServiceRules};
use crate::state::ClusterState;

/// Adds the table for them. Before the services are known it stays as it is.
pub(super) fn add(desired: &mut Desired, state: &ClusterState, admission: &Admission) {
    if !state.services.is_wanted {
        return;
    }
    let Some(services) = state.services.here.as_ref().filter(|_| desired.hostnet.vxlan.is_some()) else {
        desired.hostnet.services = DesiredServices::AsItIs;
        return;
    };
    let tun = state.own_endpoint().and_then(|_| state.tun());
    let relayed = desired.hostnet.routes.iter().filter(|route| route.table == TABLE_DELIVERY);
    desired.hostnet.services = DesiredServices::Rules(ServiceRules {
        inlets: tun.into_iter().chain([VX_DEVICE]).map(str::to_owned).collect(),
        remote: disjoint(admission.remote()),
        own: disjoint(state.local_networks()),
        relayed: disjoint(relayed.map(|route| &route.destination)),
        services: (**services).clone(),
    });
}
