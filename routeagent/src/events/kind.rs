//! The kinds of objects whose coming and going are events.

use std::collections::BTreeMap;

use super::entry::Entry;
use super::event::Event;
use super::taken::Taken;
use super::wanted::Wanted;
use crate::state::{ClusterNode, Endpoint};

/// Entries by their key.
pub(super) type Entries<V> = BTreeMap<String, Entry<V>>;

/// What a wanted object of a key is to the one that was taken in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Succession {
    /// The same object.
    Same,
    /// Another one, which counts in its place while it is still there.
    Instead,
    /// Another one, after it has gone.
    After,
}

/// A kind of objects.
pub(super) trait Kind {
    type Object: Clone + PartialEq;

    /// Whether it decides if this node is a gateway.
    const IS_LOCAL: bool = false;

    fn taken(taken: &mut Taken) -> &mut Entries<Self::Object>;

    fn wanted<'w, 'a>(wanted: &'w Wanted<'a>) -> &'w BTreeMap<&'a str, &'a Self::Object>;

    fn succession(wanted: &Wanted<'_>, old: &Self::Object, new: &Self::Object) -> Succession;

    fn created(object: &Self::Object) -> Event<'_>;

    fn updated(object: &Self::Object) -> Event<'_>;

    fn removed(object: &Self::Object) -> Event<'_>;
}

/// Nodes of the own cluster.
pub(super) struct Nodes;

impl Kind for Nodes {
    type Object = ClusterNode;

    fn taken(taken: &mut Taken) -> &mut Entries<ClusterNode> {
        &mut taken.nodes
    }

    fn wanted<'w, 'a>(wanted: &'w Wanted<'a>) -> &'w BTreeMap<&'a str, &'a ClusterNode> {
        &wanted.nodes
    }

    fn succession(_: &Wanted<'_>, _: &ClusterNode, _: &ClusterNode) -> Succession {
        Succession::Same
    }

    fn created(node: &ClusterNode) -> Event<'_> {
        Event::NodeCreated(node)
    }

    fn updated(node: &ClusterNode) -> Event<'_> {
        Event::NodeUpdated(node)
    }

    fn removed(node: &ClusterNode) -> Event<'_> {
        Event::NodeRemoved(node)
    }
}

/// Active gateways of the own cluster.
pub(super) struct LocalEndpoints;

impl Kind for LocalEndpoints {
    type Object = Endpoint;

    const IS_LOCAL: bool = true;

    fn taken(taken: &mut Taken) -> &mut Entries<Endpoint> {
        &mut taken.locals
    }

    fn wanted<'w, 'a>(wanted: &'w Wanted<'a>) -> &'w BTreeMap<&'a str, &'a Endpoint> {
        &wanted.locals
    }

    fn succession(_: &Wanted<'_>, old: &Endpoint, new: &Endpoint) -> Succession {
        // Objects of several names and ages are one gateway: it gets a further one when it is joined by others.
        if old.hostname == new.hostname { Succession::Same } else { Succession::After }
    }

    fn created(endpoint: &Endpoint) -> Event<'_> {
        Event::LocalEndpointCreated(endpoint)
    }

    fn updated(endpoint: &Endpoint) -> Event<'_> {
        Event::LocalEndpointUpdated(endpoint)
    }

    fn removed(endpoint: &Endpoint) -> Event<'_> {
        Event::LocalEndpointRemoved(endpoint)
    }
}

/// The active gateways of remote clusters.
pub(super) struct RemoteEndpoints;

impl Kind for RemoteEndpoints {
    type Object = Endpoint;

    fn taken(taken: &mut Taken) -> &mut Entries<Endpoint> {
        &mut taken.remotes
    }

    fn wanted<'w, 'a>(wanted: &'w Wanted<'a>) -> &'w BTreeMap<&'a str, &'a Endpoint> {
        &wanted.remotes
    }

    fn succession(wanted: &Wanted<'_>, old: &Endpoint, new: &Endpoint) -> Succession {
        if (&old.name, old.created) == (&new.name, new.created) {
            Succession::Same
        } else if wanted.older.contains(&(old.name.as_str(), old.created)) {
            Succession::Instead
        } else {
            Succession::After
        }
    }

    fn created(endpoint: &Endpoint) -> Event<'_> {
        Event::RemoteEndpointCreated(endpoint)
    }

    fn updated(endpoint: &Endpoint) -> Event<'_> {
        Event::RemoteEndpointUpdated(endpoint)
    }

    fn removed(endpoint: &Endpoint) -> Event<'_> {
        Event::RemoteEndpointRemoved(endpoint)
    }
}
