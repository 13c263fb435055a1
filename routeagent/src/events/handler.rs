//! What is called for events: the interface for a network plugin's own driver.

use std::collections::BTreeSet;
use std::error::Error;

use ipnet::IpNet;

use super::event::Event;
use super::taken::Taken;
use crate::driver::Plugins;
use crate::state::{ClusterNode, Endpoint};

/// What a handler returns: an error means that the event has to come again.
pub type Handled = Result<(), Box<dyn Error + Send + Sync>>;

/// A handler of events. All of them do nothing unless a handler says what they do.
///
/// Each comes with what the handler has taken in so far, the event itself included: [`Taken::is_on_gateway`] is `true` in the
/// creation of this node's Endpoint, and `false` in its removal.
///
/// An event that failed may have been carried out in part. What follows makes up for it: it comes again, or, if the object is
/// gone, a removal comes.
///
/// Calls are made on the agent's only thread, which waits for them. What takes long belongs into a task of the handler's own.
pub trait Handler: Send {
    /// Returns its name, for the log and conditions.
    fn name(&self) -> &'static str;

    /// Returns the network plugins with which it is used.
    fn plugins(&self) -> Plugins;

    /// Returns `true` if it is called for nodes; always the same.
    fn wants_nodes(&self) -> bool {
        false
    }

    /// Begins, before every other event. It has to expect what a former process has left. Its failure aborts the agent's start.
    fn init(&mut self) -> Handled {
        Ok(())
    }

    /// Ends, when the agent does; what was made stays, as everything on the node.
    fn stop(&mut self) -> Handled {
        Ok(())
    }

    /// Removes everything that was made, also by a former process: no other event but [`Handler::stop`] may have come before.
    fn uninstall(&mut self) -> Handled {
        Ok(())
    }

    /// Handles that this node has become an active gateway; comes after the creation of its Endpoint.
    fn transition_to_gateway(&mut self, _: &Taken) -> Handled {
        Ok(())
    }

    /// Handles that this node is no active gateway any more; comes after the removal of its Endpoint.
    fn transition_to_non_gateway(&mut self, _: &Taken) -> Handled {
        Ok(())
    }

    /// Handles an active gateway of the own cluster that is new.
    fn local_endpoint_created(&mut self, _: &Endpoint, _: &Taken) -> Handled {
        Ok(())
    }

    /// Handles an active gateway of the own cluster that has changed.
    fn local_endpoint_updated(&mut self, _: &Endpoint, _: &Taken) -> Handled {
        Ok(())
    }

    /// Handles an active gateway of the own cluster that is gone, or active no more.
    fn local_endpoint_removed(&mut self, _: &Endpoint, _: &Taken) -> Handled {
        Ok(())
    }

    /// Handles the active gateway of a remote cluster; it takes the place of the one that the cluster had.
    fn remote_endpoint_created(&mut self, _: &Endpoint, _: &Taken) -> Handled {
        Ok(())
    }

    /// Handles that the active gateway of a remote cluster has changed.
    fn remote_endpoint_updated(&mut self, _: &Endpoint, _: &Taken) -> Handled {
        Ok(())
    }

    /// Handles that the active gateway of a remote cluster is gone.
    fn remote_endpoint_removed(&mut self, _: &Endpoint, _: &Taken) -> Handled {
        Ok(())
    }

    /// Handles a node of the own cluster that is new.
    fn node_created(&mut self, _: &ClusterNode, _: &Taken) -> Handled {
        Ok(())
    }

    /// Handles a node of the own cluster that has changed.
    fn node_updated(&mut self, _: &ClusterNode, _: &Taken) -> Handled {
        Ok(())
    }

    /// Handles a node of the own cluster that is gone.
    fn node_removed(&mut self, _: &ClusterNode, _: &Taken) -> Handled {
        Ok(())
    }

    /// Handles that the own cluster's pod networks are others, or the first ones.
    fn pod_networks_updated(&mut self, _: &BTreeSet<IpNet>, _: &Taken) -> Handled {
        Ok(())
    }

    /// Handles that the own cluster's service networks are others, or the first ones.
    fn service_networks_updated(&mut self, _: &BTreeSet<IpNet>, _: &Taken) -> Handled {
        Ok(())
    }
}

/// Calls a handler for an event.
pub(super) fn call(handler: &mut dyn Handler, event: Event<'_>, taken: &Taken) -> Handled {
    match event {
        Event::Init => handler.init(),
        Event::Stop => handler.stop(),
        Event::Uninstall => handler.uninstall(),
        Event::TransitionToGateway => handler.transition_to_gateway(taken),
        Event::TransitionToNonGateway => handler.transition_to_non_gateway(taken),
        Event::LocalEndpointCreated(endpoint) => handler.local_endpoint_created(endpoint, taken),
        Event::LocalEndpointUpdated(endpoint) => handler.local_endpoint_updated(endpoint, taken),
        Event::LocalEndpointRemoved(endpoint) => handler.local_endpoint_removed(endpoint, taken),
        Event::RemoteEndpointCreated(endpoint) => handler.remote_endpoint_created(endpoint, taken),
        Event::RemoteEndpointUpdated(endpoint) => handler.remote_endpoint_updated(endpoint, taken),
        Event::RemoteEndpointRemoved(endpoint) => handler.remote_endpoint_removed(endpoint, taken),
        Event::NodeCreated(node) => handler.node_created(node, taken),
        Event::NodeUpdated(node) => handler.node_updated(node, taken),
        Event::NodeRemoved(node) => handler.node_removed(node, taken),
        Event::PodNetworksUpdated(networks) => handler.pod_networks_updated(networks, taken),
        Event::ServiceNetworksUpdated(networks) => handler.service_networks_updated(networks, taken),
    }
}
