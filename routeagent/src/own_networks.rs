//! The networks of the own cluster, which may change while the agent runs.

use ipnet::IpNet;
use trieste_control::api::ClusterNetworks;

use crate::state::Node;

impl Node {
    /// Returns the own cluster's networks: of pods, of services, and others.
    pub fn local_networks(&self) -> impl Iterator<Item = &IpNet> {
        self.pod_networks.iter().chain(&self.service_networks).chain(&self.extra_networks)
    }

    /// Takes over the own cluster's networks, which may change at any time, where they are known; returns `true` if they have
    /// changed.
    pub fn follow(&mut self, networks: Option<&ClusterNetworks>) -> bool {
        let Some(ClusterNetworks { pods, services, extra, .. }) = networks else { return false };
        if (&self.pod_networks, &self.service_networks, &self.extra_networks) == (pods, services, extra) {
            return false;
        }
        self.pod_networks.clone_from(pods);
        self.service_networks.clone_from(services);
        self.extra_networks.clone_from(extra);
        true
    }
}
