//! A handler that records its calls, with what it sees in them.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

use ipnet::IpNet;

use super::super::{Event, Handled, Handler, Taken};
use super::{ClusterNode, Endpoint, Plugins};

/// What handlers are called for, and which events they refuse, by how their text begins.
#[derive(Debug, Clone, Default)]
pub(super) struct Script(Arc<Mutex<(Vec<String>, Vec<&'static str>)>>);

impl Script {
    /// Returns the calls since the last time.
    pub(super) fn take(&self) -> Vec<String> {
        std::mem::take(&mut self.0.lock().unwrap().0)
    }

    /// Has these events refused from now on, and no others.
    pub(super) fn refuse(&self, events: &[&'static str]) {
        self.0.lock().unwrap().1 = events.to_vec();
    }
}

pub(super) struct Recorder {
    pub(super) name: &'static str,
    pub(super) plugins: Plugins,
    pub(super) wants_nodes: bool,
    pub(super) script: Script,
}

impl Recorder {
    pub(super) fn new(name: &'static str, script: &Script) -> Self {
        Self { name, plugins: Plugins::Others, wants_nodes: true, script: script.clone() }
    }

    /// Records a call as text: the event, `on` if the node is a gateway, and names of the remote Endpoints.
    fn record(&self, event: Event<'_>, taken: Option<&Taken>) -> Handled {
        let mut text = event.to_string();
        if taken.is_some_and(Taken::is_on_gateway) {
            text.push_str(" on");
        }
        let remote =
            taken.into_iter().flat_map(Taken::remote_endpoints).map(|endpoint| endpoint.name.as_str());
        let remote: Vec<&str> = remote.collect();
        if !remote.is_empty() {
            text.push_str(&format!(" [{}]", remote.join(" ")));
        }
        let (calls, refused) = &mut *self.script.0.lock().unwrap();
        if self.name != "one" {
            text.insert_str(0, &format!("{}: ", self.name));
        }
        let is_refused = refused.iter().any(|refused| text.starts_with(refused));
        calls.push(text);
        if is_refused { Err("refused".into()) } else { Ok(()) }
    }
}

impl Handler for Recorder {
    fn name(&self) -> &'static str {
        self.name
    }

    fn plugins(&self) -> Plugins {
        self.plugins
    }

    fn wants_nodes(&self) -> bool {
        self.wants_nodes
    }

    fn init(&mut self) -> Handled {
        self.record(Event::Init, None)
    }

    fn stop(&mut self) -> Handled {
        self.record(Event::Stop, None)
    }

    fn uninstall(&mut self) -> Handled {
        self.record(Event::Uninstall, None)
    }

    fn transition_to_gateway(&mut self, taken: &Taken) -> Handled {
        self.record(Event::TransitionToGateway, Some(taken))
    }

    fn transition_to_non_gateway(&mut self, taken: &Taken) -> Handled {
        self.record(Event::TransitionToNonGateway, Some(taken))
    }

    fn local_endpoint_created(&mut self, endpoint: &Endpoint, taken: &Taken) -> Handled {
        self.record(Event::LocalEndpointCreated(endpoint), Some(taken))
    }

    fn local_endpoint_updated(&mut self, endpoint: &Endpoint, taken: &Taken) -> Handled {
        self.record(Event::LocalEndpointUpdated(endpoint), Some(taken))
    }

    fn local_endpoint_removed(&mut self, endpoint: &Endpoint, taken: &Taken) -> Handled {
        self.record(Event::LocalEndpointRemoved(endpoint), Some(taken))
    }

    fn remote_endpoint_created(&mut self, endpoint: &Endpoint, taken: &Taken) -> Handled {
        self.record(Event::RemoteEndpointCreated(endpoint), Some(taken))
    }

    fn remote_endpoint_updated(&mut self, endpoint: &Endpoint, taken: &Taken) -> Handled {
        self.record(Event::RemoteEndpointUpdated(endpoint), Some(taken))
    }

    fn remote_endpoint_removed(&mut self, endpoint: &Endpoint, taken: &Taken) -> Handled {
        self.record(Event::RemoteEndpointRemoved(endpoint), Some(taken))
    }

    fn node_created(&mut self, node: &ClusterNode, taken: &Taken) -> Handled {
        self.record(Event::NodeCreated(node), Some(taken))
    }

    fn node_updated(&mut self, node: &ClusterNode, taken: &Taken) -> Handled {
        self.record(Event::NodeUpdated(node), Some(taken))
    }

    fn node_removed(&mut self, node: &ClusterNode, taken: &Taken) -> Handled {
        self.record(Event::NodeRemoved(node), Some(taken))
    }

    fn pod_networks_updated(&mut self, networks: &BTreeSet<IpNet>, taken: &Taken) -> Handled {
        self.record(Event::PodNetworksUpdated(networks), Some(taken))
    }

    fn service_networks_updated(&mut self, networks: &BTreeSet<IpNet>, taken: &Taken) -> Handled {
        self.record(Event::ServiceNetworksUpdated(networks), Some(taken))
    }
}
