//! The gateway's two HTTP servers: the admin socket, a unix socket for the operator of this node, and the metrics
//! port, for Prometheus and the kubelet. What they say is `trieste_control::admin` and [`crate::metrics`].
//!
//! * [`health`] — whether the process works, and whether it can carry traffic.
//! * [`listen`] — binding, with errors that say what to do.
//! * [`trieste_control::slots`] — who may have how many connections to the metrics port.
//! * [`routes`] — what is answered. * `state` — from what.
//! * [`secrets`] — the answer that holds keys.
//! * `translation` — what is answered about Globalnet.
//! * [`serve`] — connections: bounded in number and in time, and how they end.

pub mod health;
pub mod listen;
pub mod routes;
pub mod secrets;
pub mod serve;
mod state;
mod translation;

pub use health::Health;
pub use listen::{AdminSocket, ListenError, bind_admin, bind_metrics};
pub use serve::{serve_admin, serve_metrics};
pub use state::AdminState;
pub use trieste_control::slots::Slots;

#[cfg(test)]
mod tests;
