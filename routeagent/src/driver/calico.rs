//! The driver for Calico: nodes are as kube-proxy's driver makes them, and Calico has to be told of remote networks, towards
//! which it would masquerade pods.
//!
//! It does so for every address that is in none of its IPPools. A pool that is switched off and does not masquerade, for each
//! remote network, is what its manual says of Submariner; `trieste-plugin-sync` makes them from the GatewayRoute objects that
//! the leading gateway's node writes. Which node has which pods, Calico alone knows: it delivers what comes from remote
//! clusters, and one gateway carries traffic unless all are asked for (`trieste_control::requirements`).

use super::kubeproxy::KubeProxy;
use super::{Desired, Driver, Memory, Plugins};
use crate::state::ClusterState;

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

    fn device_to_gateway(&self) -> &'static str {
        KubeProxy.device_to_gateway()
    }

    fn desired(&self, state: &ClusterState) -> Desired {
        KubeProxy.desired(state)
    }

    fn remember(&self, state: ClusterState, desired: Desired) -> Box<dyn Memory> {
        KubeProxy.remember(state, desired)
    }
}
