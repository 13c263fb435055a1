//! Several active gateways: the path matrix with kube-proxy around it, in both of its modes, and what the loss of a
//! gateway's node does to connections.
//!
//! ```text
//!  east-1 worker ─┬─ east-2 gateway ─┬──╲ ╱──┬─ west-2 gateway ─┬─ west-1 worker
//!                 └─ east-3 gateway ─┴───╳───┴─ west-3 gateway ─┘
//! ```
//!
//! Flows spread by themselves; the nodes of the gateways note who carried what, there and back. All pairs of gateways there
//! have to be seen with all pairs back, with pods and with services, and the server has to see the client's own address:
//! whatever kube-proxy and connection tracking on the nodes think of a connection of which they see one half.

pub(crate) mod diagnosis;
pub(crate) mod flows;
pub(crate) mod losses;
pub(crate) mod matrix;
mod traces;
