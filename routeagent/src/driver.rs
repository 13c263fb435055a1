//! Network-plugin drivers: what a node needs for the CNI that it runs.
//!
//! A driver is a function of the whole state, so that an event that is lost or seen twice does no harm; the
//! reconciler (`reconcile.rs`) turns its [`HostNet`] into changes. There is one driver so far.
//!
//! In a large cluster set that function costs too much for every change of one member. So a driver has a [`Memory`] of its
//! last answer besides, which follows changes of remote clusters; for all others the function is asked again.

pub mod kubeproxy;

use std::collections::BTreeSet;

use ipnet::IpNet;

use crate::condition::Condition;
use crate::grace::Turnover;
use crate::hostnet::HostNet;
use crate::state::ClusterState;
use crate::view::ClusterView;

/// The desired state of a driver, and its conditions.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Desired {
    /// The node's network as it should be.
    pub hostnet: HostNet,
    /// Conditions: parts that could not be desired, and why.
    pub conditions: BTreeSet<Condition>,
}

/// A network-plugin driver. Pure: same state, same answer.
pub trait Driver {
    /// Its memory of an answer.
    type Memory: Memory;

    /// Returns the driver's name, for the log.
    fn name(&self) -> &'static str;

    /// Computes what this node's network should look like.
    fn desired(&self, state: &ClusterState) -> Desired;

    /// Remembers the answer to a state.
    fn remember(&self, state: ClusterState, desired: Desired) -> Self::Memory;
}

/// A driver's last answer, and what it takes to change it as remote clusters change. After both steps the answer is what
/// [`Driver::desired`] computes; tests compare the two. After a step that gave `None` it is of no use any more.
pub trait Memory {
    /// Returns the answer.
    fn desired(&self) -> &Desired;

    /// Returns the networks that are closed although nobody claims them, and were not among those of this node's pods.
    fn vanished(&self) -> &BTreeSet<IpNet>;

    /// Takes over the claims of a view, without regard to networks that nobody claims; returns those that came and went.
    /// `state` is the whole state but for remote clusters. `None` where more may change than what is claimed.
    fn follow(&mut self, state: &ClusterState, view: &ClusterView) -> Option<Turnover>;

    /// Closes networks that nobody claims, and no others of that kind; returns all destinations of routes that may have
    /// changed in both steps. `None` where more may have changed.
    fn close(&mut self, lingering: &BTreeSet<IpNet>) -> Option<BTreeSet<IpNet>>;
}
