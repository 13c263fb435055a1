//! Events, by upstream's names.

use std::collections::BTreeSet;
use std::fmt;

use ipnet::IpNet;

use crate::state::{ClusterNode, Endpoint};

/// What a handler is called for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event<'a> {
    /// The agent starts.
    Init,
    /// The agent stops.
    Stop,
    /// Everything of the agent's is removed from the node.
    Uninstall,
    /// This node has become an active gateway.
    TransitionToGateway,
    /// This node is no active gateway any more.
    TransitionToNonGateway,
    /// The own cluster has another active gateway.
    LocalEndpointCreated(&'a Endpoint),
    /// An active gateway of the own cluster has changed.
    LocalEndpointUpdated(&'a Endpoint),
    /// The own cluster has this active gateway no more.
    LocalEndpointRemoved(&'a Endpoint),
    /// A remote cluster has an active gateway, in the place of the one that it had.
    RemoteEndpointCreated(&'a Endpoint),
    /// The active gateway of a remote cluster has changed.
    RemoteEndpointUpdated(&'a Endpoint),
    /// A remote cluster has this active gateway no more.
    RemoteEndpointRemoved(&'a Endpoint),
    /// The own cluster has another node.
    NodeCreated(&'a ClusterNode),
    /// A node of the own cluster has changed.
    NodeUpdated(&'a ClusterNode),
    /// The own cluster has this node no more.
    NodeRemoved(&'a ClusterNode),
    /// The pod networks of the own cluster are these now.
    PodNetworksUpdated(&'a BTreeSet<IpNet>),
    /// The service networks of the own cluster are these now.
    ServiceNetworksUpdated(&'a BTreeSet<IpNet>),
}

impl Event<'_> {
    /// Returns its name.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Init => "Init",
            Self::Stop => "Stop",
            Self::Uninstall => "Uninstall",
            Self::TransitionToGateway => "TransitionToGateway",
            Self::TransitionToNonGateway => "TransitionToNonGateway",
            Self::LocalEndpointCreated(_) => "LocalEndpointCreated",
            Self::LocalEndpointUpdated(_) => "LocalEndpointUpdated",
            Self::LocalEndpointRemoved(_) => "LocalEndpointRemoved",
            Self::RemoteEndpointCreated(_) => "RemoteEndpointCreated",
            Self::RemoteEndpointUpdated(_) => "RemoteEndpointUpdated",
            Self::RemoteEndpointRemoved(_) => "RemoteEndpointRemoved",
            Self::NodeCreated(_) => "NodeCreated",
            Self::NodeUpdated(_) => "NodeUpdated",
            Self::NodeRemoved(_) => "NodeRemoved",
            Self::PodNetworksUpdated(_) => "PodNetworksUpdated",
            Self::ServiceNetworksUpdated(_) => "ServiceNetworksUpdated",
        }
    }

    /// Returns the name of the object that it is about, if it is about one.
    #[must_use]
    pub fn object(&self) -> Option<&str> {
        match self {
            Self::LocalEndpointCreated(endpoint)
            | Self::LocalEndpointUpdated(endpoint)
            | Self::LocalEndpointRemoved(endpoint)
            | Self::RemoteEndpointCreated(endpoint)
            | Self::RemoteEndpointUpdated(endpoint)
            | Self::RemoteEndpointRemoved(endpoint) => Some(&endpoint.name),
            Self::NodeCreated(node) | Self::NodeUpdated(node) | Self::NodeRemoved(node) => Some(&node.name),
            Self::Init
            | Self::Stop
            | Self::Uninstall
            | Self::TransitionToGateway
            | Self::TransitionToNonGateway
            | Self::PodNetworksUpdated(_)
            | Self::ServiceNetworksUpdated(_) => None,
        }
    }
}

impl fmt::Display for Event<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())?;
        self.object().map_or(Ok(()), |object| write!(f, " {object}"))
    }
}
