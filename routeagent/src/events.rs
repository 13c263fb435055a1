//! Events, for drivers of network plugins with an imperative interface: what has to be created, changed and removed by calls.
//!
//! None of the built-in drivers needs them: those are functions of the whole state, and the reconciler finds the difference. A
//! driver that does names its [`Handler`] in `Driver::handler`; after each pass it is sent what it lacks. What it fails to do is a
//! condition of the node (`EventRefused`).
//!
//! Events are derived from the difference between the last state that a handler has taken in, event by event, and the one there
//! is. So a state that was never seen does no harm, nor does one that is seen twice; and after a restart, everything there is
//! comes as created. What is gone meanwhile does not come: `init` clears what a former process has left.
//!
//! ```text
//!   ClusterState ─▶ Wanted ─┬─▶ Turn: difference with Taken ─▶ Event ─▶ Handler ─▶ taken in, or refused
//!                           └─▶ Turn of the next handler
//! ```
//!
//! The order in a turn is: nodes; the own cluster's networks; its gateways, each change of this node's own with the transition
//! that follows; remote clusters' gateways. Removals come before creations of their kind. The rules are upstream's:
//!
//! * Of a remote cluster the newest Endpoint counts. A newer one is created in the place of an older one that is still there,
//!   whose removal is no event any more; if the newer one is removed first, the older one is created again. Handlers therefore
//!   identify what they make by the cluster.
//! * Of the own cluster the Endpoints of active gateways count, as for drivers: the newest, and further ones where several are.
//! * An event that fails holds up those of its handler that follow, and no other handler's. It comes again at the next call, in
//!   what form it then has. After [`MAX_ATTEMPTS`] failures of the same event it is dropped, until its object changes. An attempt
//!   is a pass: passes come ten seconds apart where nothing changes, and many in a second where much does.
//!
//! # Example
//!
//! A handler for a network plugin whose agent has to be told which networks are remote:
//!
//! ```
//! use std::collections::BTreeMap;
//!
//! use ipnet::IpNet;
//! use trieste_routeagent::driver::Plugins;
//! use trieste_routeagent::events::{Dispatcher, Handled, Handler, Taken};
//! use trieste_routeagent::state::{ClusterState, Endpoint, Node};
//!
//! /// Sends networks to the plugin's agent. Here it only notes them.
//! #[derive(Default)]
//! struct RemoteNetworks(BTreeMap<String, Vec<IpNet>>);
//!
//! impl Handler for RemoteNetworks {
//!     fn name(&self) -> &'static str {
//!         "remote-networks"
//!     }
//!
//!     fn plugins(&self) -> Plugins {
//!         Plugins::Named(&["example-cni"])
//!     }
//!
//!     fn remote_endpoint_created(&mut self, endpoint: &Endpoint, taken: &Taken) -> Handled {
//!         if taken.pod_networks().iter().any(|own| endpoint.subnets.contains(own)) {
//!             return Err(format!("cluster {} has a network of this one", endpoint.cluster).into());
//!         }
//!         self.0.insert(endpoint.cluster.clone(), endpoint.subnets.clone());
//!         Ok(())
//!     }
//!
//!     fn remote_endpoint_updated(&mut self, endpoint: &Endpoint, taken: &Taken) -> Handled {
//!         self.remote_endpoint_created(endpoint, taken)
//!     }
//!
//!     fn remote_endpoint_removed(&mut self, endpoint: &Endpoint, _: &Taken) -> Handled {
//!         self.0.remove(&endpoint.cluster);
//!         Ok(())
//!     }
//! }
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let mut dispatcher = Dispatcher::new("example-cni");
//! assert!(dispatcher.register(Box::new(RemoteNetworks::default())));
//! dispatcher.start()?;
//!
//! let node = Node { cluster: "west".into(), pod_networks: vec!["10.1.0.0/16".parse()?], ..Node::default() };
//! let mut east = Endpoint::new("east-cable", "east", "east-gw1");
//! east.subnets = vec!["10.2.0.0/16".parse()?, "10.1.0.0/16".parse()?];
//! let mut state = ClusterState { node, endpoints: vec![east], ..ClusterState::default() };
//! let refused = dispatcher.follow(&state).refused;
//! assert_eq!(refused[0].event, "RemoteEndpointCreated east-cable");
//! assert_eq!(refused[0].error, "cluster east has a network of this one");
//!
//! state.endpoints[0].subnets.pop();
//! assert!(dispatcher.follow(&state).refused.is_empty());
//! # Ok(())
//! # }
//! ```

mod dispatcher;
mod entry;
mod event;
mod handler;
mod kind;
mod taken;
mod turn;
mod wanted;

pub use dispatcher::{Dispatcher, Outcome, StartError};
pub use entry::MAX_ATTEMPTS;
pub use event::Event;
pub use handler::{Handled, Handler};
pub use taken::Taken;
pub use turn::Refusal;

#[cfg(test)]
mod tests;
