//! Spiderpool's `hijackCIDR` lists: networks that pods with a macvlan, ipvlan or SR-IOV device reach by way of their node. Pure.
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

pub use controller::HijackController;
