//! The driver for clusters whose service traffic is handled by kube-proxy (every plugin but OVN-Kubernetes).
//!
//! Every node fails closed and filters. An active gateway's node has rules and routes into the gateway's device, and
//! hands what comes from remote clusters to the other nodes; those send what is for remote clusters to it, or to all
//! active gateways alike. Between them is the VXLAN `vx-submariner`.

mod filter;
mod gateway;
mod intra;
mod nexthop_groups;
mod serve;
mod worker;

use std::net::IpAddr;

use crate::admit::{Admission, admit};
use crate::constants::VX_DEVICE;
use crate::driver::memory::{Parts, Remembered, Routes};
use crate::driver::refusals::{close_bridges, fail_closed, gateways_inside};
use crate::driver::{Desired, Driver, Memory, Plugins};
use crate::family::Family;
use crate::state::{ClusterState, Endpoint};
use crate::zone::Hops;

/// What a change of remote clusters concerns.
pub(super) const PARTS: Parts =
    Parts { routes, has_table: |state| state.own_endpoint().is_some(), onward: filter::onward, hops };

/// See the module.
#[derive(Debug, Clone, Copy, Default)]
pub struct KubeProxy;

impl Driver for KubeProxy {
    fn name(&self) -> &'static str {
        "kubeproxy"
    }

    fn plugins(&self) -> Plugins {
        Plugins::Others
    }

    fn device_to_gateway(&self) -> &'static str {
        VX_DEVICE
    }

    fn desired(&self, state: &ClusterState) -> Desired {
        let admission = admit(state);
        let gateways = gateways_inside(state, &admission);
        let mut desired = Desired { conditions: admission.refused.clone(), ..Desired::default() };
        let own = state.own_endpoint();
        fail_closed(&mut desired.hostnet, &admission, own.is_some(), &gateways);
        close_bridges(&mut desired.hostnet, state);
        intra::add(&mut desired, state, &admission);
        nexthop_groups::add(&mut desired, state, &admission);
        match own {
            Some(own) => gateway::add(&mut desired, state, own, &admission),
            None => worker::add(&mut desired, state, &admission),
        }
        if intra::plugin_delivers_here(state).is_some() {
            // Packets of remote clusters come by a device that the way back does not lead out of.
            let plugins = state.plugin_address(Family::V4);
            desired.hostnet.loose_rp_filter = plugins.map(|own| own.device.clone()).into_iter().collect();
        }
        filter::add(&mut desired, state, &admission, &gateways);
        serve::add(&mut desired, state, &admission);
        desired
    }

    fn remember(&self, state: ClusterState, desired: Desired) -> Box<dyn Memory> {
        Box::new(Remembered::new(PARTS, state, desired))
    }
}

fn routes(desired: &Desired, state: &ClusterState, admission: &Admission) -> Routes {
    match state.own_endpoint() {
        Some(own) => (gateway::routes(desired, state, own, admission), None),
        None => worker::routes(desired, state, admission),
    }
}

/// Returns the gateway's address, where this node has the leading one.
fn hops(state: &ClusterState) -> Option<Hops> {
    let leader = state.active_endpoint().filter(|leader| leader.hostname == state.node.hostname)?;
    let own: Vec<IpAddr> = Endpoint::private_address(leader).into_iter().collect();
    Some(Hops { own, others: Vec::new() })
}

#[cfg(test)]
mod tests;
