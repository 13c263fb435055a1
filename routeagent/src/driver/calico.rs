//! The driver for Calico: nodes are as kube-proxy's driver makes them, and Calico has to be told of remote networks, towards
//! which it would masquerade pods.
//!
//! It does so for every address that is in none of its IPPools. A pool that is switched off and does not masquerade, for each
//! remote network, is what its manual says of Submariner; `trieste-plugin-sync` makes them from the GatewayRoute objects that
//! the leading gateway's node writes. Which node has which pods, Calico alone knows: it delivers what comes from remote
//! clusters, and one gateway carries traffic unless all are asked for (`trieste_control::requirements`).

use std::net::IpAddr;

use super::kubeproxy::{self, KubeProxy};
use super::memory::{Parts, Remembered};
use super::{Deliverer, Desired, Driver, Memory, Plugins, Promise};
use crate::state::{ClusterState, Endpoint};
use crate::zone::Hops;

/// What a change of remote clusters concerns.
const PARTS: Parts = Parts { hops, ..kubeproxy::PARTS };

/// See the module.
#[derive(Debug, Clone, Copy, Default)]
pub struct Calico;

impl Driver for Calico {
    fn name(&self) -> &'static str {
        "calico"
    }

    fn plugins(&self) -> Plugins {
        Plugins::Named(&["calico"])
    }

    fn promise(&self) -> Promise {
        Promise {
            delivery: Deliverer::Plugin,
            has_several_gateways: false,
            needs_synchronizer: true,
            ..KubeProxy.promise()
        }
    }

    fn device_to_gateway(&self) -> &'static str {
        KubeProxy.device_to_gateway()
    }

    fn desired(&self, state: &ClusterState) -> Desired {
        KubeProxy.desired(state)
    }

    fn remember(&self, state: ClusterState, desired: Desired) -> Box<dyn Memory> {
        Box::new(Remembered::new(PARTS, state, desired))
    }
}

/// Returns the gateway's address, where this node has the leading one; Calico is told of the networks alone.
fn hops(state: &ClusterState) -> Option<Hops> {
    let leader = state.active_endpoint().filter(|leader| leader.hostname == state.node.hostname)?;
    let own: Vec<IpAddr> = Endpoint::private_address(leader).into_iter().collect();
    Some(Hops { own, others: Vec::new() })
}
