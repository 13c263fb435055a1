//! Network-plugin drivers: what a node needs for the CNI that it runs.
//!
//! A driver is a function of the whole state, so that an event that is lost or seen twice does no harm; the
//! reconciler (`reconcile.rs`) turns its [`HostNet`] into changes. A new driver is one file and a line in `registry.rs`.
//!
//! In a large cluster set that function costs too much for every change of one member. So a driver may have a [`Memory`] of
//! its last answer besides, which follows changes of remote clusters; for all others the function is asked again.
//! `memory.rs` has one for drivers whose routes are a function of each network.
//!
//! A plugin that has to be called, once for each change, has a handler of events besides (`events.rs`); none of these needs one.
//!
//! ```text
//!   registry ─┬─▶ calico ─▶ kubeproxy ──┐
//!             └─▶ ovn ──────────────────┴─▶ outlet (out of the gateway), filter, memory ──▶ refusals, claimants
//! ```

pub mod calico;
mod claimants;
mod filter;
pub mod kubeproxy;
mod memory;
mod outlet;
pub mod ovn;
mod plugins;
mod refusals;
pub mod registry;

use std::collections::BTreeSet;
use std::fmt;
use std::net::IpAddr;

use ipnet::IpNet;
use trieste_control::requirements::{Deliverer, promise};

use crate::condition::Condition;
use crate::events::Handler;
use crate::grace::Turnover;
use crate::hostnet::HostNet;
use crate::state::ClusterState;
use crate::view::ClusterView;
use crate::zone::Zone;
pub use plugins::Plugins;

/// Returns the condition that nothing shows the worker that a driver needs, on the node of the leading gateway.
#[must_use]
pub fn missing_synchronizer(driver: &dyn Driver, state: &ClusterState) -> Option<Condition> {
    let promise = promise(&state.node.plugin);
    let leads = state.active_endpoint().is_some_and(|leader| leader.hostname == state.node.hostname);
    let is_missing = leads && promise.needs_synchronizer && !state.node.has_synchronizer;
    let is_plugins_way = promise.services == Deliverer::Plugin;
    is_missing.then(|| Condition::NoSynchronizer { driver: driver.name(), is_plugins_way })
}

/// The desired state of a driver, and its conditions.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Desired {
    /// The node's network as it should be.
    pub hostnet: HostNet,
    /// Conditions: parts that could not be desired, and why.
    pub conditions: BTreeSet<Condition>,
}

/// A network-plugin driver. Pure: same state, same answer. What it does and what it leaves to its plugins is what gateways and
/// commands go by as well: [`trieste_control::requirements::promise`].
pub trait Driver: fmt::Debug + Send + Sync {
    /// Returns the driver's name, for the log.
    fn name(&self) -> &'static str;

    /// Returns the network plugins that it serves.
    fn plugins(&self) -> Plugins;

    /// Returns the device by which packets for remote clusters leave nodes without a gateway.
    fn device_to_gateway(&self) -> &'static str;

    /// Returns the addresses whose routes it needs, beside those of [`ClusterState::lookup_addresses`].
    fn lookups(&self, _: &ClusterState) -> BTreeSet<IpAddr> {
        BTreeSet::new()
    }

    /// Computes what this node's network should look like.
    fn desired(&self, state: &ClusterState) -> Desired;

    /// Remembers the answer to a state; without a memory of its own a driver is asked again about every change.
    fn remember(&self, state: ClusterState, desired: Desired) -> Box<dyn Memory> {
        drop(state);
        Box::new(Answer(desired, BTreeSet::new()))
    }

    /// Returns a new handler of events, for plugins with an imperative interface; what it fails to do is a condition.
    fn handler(&self) -> Option<Box<dyn Handler>> {
        None
    }
}

/// A driver's last answer, and what it takes to change it as remote clusters change. After both steps the answer is what
/// [`Driver::desired`] computes; tests compare the two. After a step that gave `None` it is of no use any more.
pub trait Memory: Send {
    /// Returns the answer.
    fn desired(&self) -> &Desired;

    /// Returns the networks that are closed although nobody claims them, and were not among those of this node's pods.
    fn vanished(&self) -> &BTreeSet<IpNet>;

    /// Returns what the plugin's database has to say of remote clusters, if this node is to write it.
    fn zone(&self) -> Option<Zone> {
        None
    }

    /// Takes over the claims of a view, without regard to networks that nobody claims; returns those that came and went.
    /// `state` is the whole state but for remote clusters. `None` where more may change than what is claimed.
    fn follow(&mut self, state: &ClusterState, view: &ClusterView) -> Option<Turnover>;

    /// Closes networks that nobody claims, and no others of that kind; returns all destinations of routes that may have
    /// changed in both steps. `None` where more may have changed.
    fn close(&mut self, lingering: &BTreeSet<IpNet>) -> Option<BTreeSet<IpNet>>;
}

/// The answer alone, which follows nothing.
struct Answer(Desired, BTreeSet<IpNet>);

impl Memory for Answer {
    fn desired(&self) -> &Desired {
        &self.0
    }

    fn vanished(&self) -> &BTreeSet<IpNet> {
        &self.1
    }

    fn follow(&mut self, _: &ClusterState, _: &ClusterView) -> Option<Turnover> {
        None
    }

    fn close(&mut self, _: &BTreeSet<IpNet>) -> Option<BTreeSet<IpNet>> {
        None
    }
}

#[cfg(test)]
mod tests;
