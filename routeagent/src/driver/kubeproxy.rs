//! The driver for clusters whose service traffic is handled by kube-proxy (every plugin but OVN-Kubernetes).
//!
//! Every node fails closed and filters. An active gateway's node has rules and routes into the gateway's device, and
//! hands what comes from remote clusters to the other nodes; those send what is for remote clusters to it, or to all
//! active gateways alike. Between them is the VXLAN `vx-submariner`.

mod claimants;
mod filter;
mod gateway;
mod intra;
mod memory;
mod nexthop_groups;
mod refusals;
mod serve;
mod worker;

use crate::admit::admit;
use crate::driver::{Desired, Driver};
use crate::family::Family;
use crate::state::ClusterState;

pub use memory::Remembered;
use refusals::{close_bridges, fail_closed, gateways_inside};

/// See the module.
#[derive(Debug, Clone, Copy, Default)]
pub struct KubeProxy;

impl Driver for KubeProxy {
    type Memory = Remembered;

    fn name(&self) -> &'static str {
        "kubeproxy"
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

    fn remember(&self, state: ClusterState, desired: Desired) -> Remembered {
        Remembered::new(state, desired)
    }
}

#[cfg(test)]
mod tests;
