//! Spiderpool's `hijackCIDR` lists: networks that pods with a macvlan, ipvlan or SR-IOV device reach by way of their node.
//!
//! ```text
//!   GatewayRoutes ─▶ remote networks ─┬─▶ SpiderCoordinator.spec.hijackCIDR
//!   SpiderIPPools ─▶ pods' networks ──┴─▶ SpiderMultusConfig.spec.coordinator.hijackCIDR, where it has a list of its own
//! ```
//!
//! Spiderpool's `coordinator` makes a pod's routes when the pod's network is made, and never again. A list of a
//! SpiderMultusConfig takes the place of the SpiderCoordinator's; an empty one leaves it in force (Spiderpool's manual,
//! SpiderCoordinator and SpiderMultusConfig), so that it has to stay empty.
//!
//! Networks of closed objects are in the lists too: what a pod sends to them has to reach its node, which refuses it, and must
//! not leave by the pod's own device in clear.

mod controller;
mod list;

use std::time::Duration;

use tokio::sync::watch;
use trieste_control::runner::{Fence, Handle, Limits};
use trieste_control::store::Store;

use crate::status::{self, Status, Wish};

pub use controller::{HijackController, NAME};

/// One object has the networks of all clusters: changes come in bursts, of which it is written once, and a new cluster must not wait
/// for others'. The controller bounds what it repeats.
const LIMITS: Limits =
    Limits { settle: Duration::from_millis(100), limits_objects: false, ..Limits::DEFAULT };

/// Starts to keep the lists. `namespace` is that of the GatewayRoute objects; how far it is goes to `sender`.
///
/// # Panics
/// Outside a tokio runtime.
pub fn spawn<S: Store>(
    store: S,
    namespace: &str,
    wish: Wish,
    fence: Fence,
    sender: watch::Sender<Status>,
) -> Handle {
    status::spawn(HijackController::new(namespace, wish), store, fence, LIMITS, sender)
}
