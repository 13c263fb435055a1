//! Network-plugin drivers: what a node needs for the CNI that it runs.
//!
//! A driver is a function of the whole state, so that an event that is lost or seen twice does no harm; the
//! reconciler (`reconcile.rs`) turns its [`HostNet`] into changes. There is one driver so far.

pub mod kubeproxy;

use std::collections::BTreeSet;

use crate::condition::Condition;
use crate::hostnet::HostNet;
use crate::state::ClusterState;

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
    /// Returns the driver's name, for the log.
    fn name(&self) -> &'static str;

    /// Computes what this node's network should look like.
    fn desired(&self, state: &ClusterState) -> Desired;
}
