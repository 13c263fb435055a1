//! Globalnet as a process of its own, beside the gateway on the same node: where the gateway's account may not read
//! Globalnet's objects and another one may, as where upstream's operator has made both.
//!
//! ```text
//!   API server ◀── objects, Lease ──▶ `submariner-globalnet`            its own account
//!        ▲  annotation: public key         │ signature, then reports
//!        └───────── own Gateway object ──▶ │ socket in the node's network namespace
//!                                          ▼
//!                                     gateway: rules, sessions         its own account
//! ```
//!
//! * Both run the same controllers ([`trieste_control::globalnet`]); whichever account has the rights does the work. A gateway
//!   that is connected to a process releases Globalnet's Lease.
//! * **Authentication.** The process makes a key pair when it starts, and writes the public key as an annotation onto this
//!   node's Gateway object, which its account may do. A valid signature proves the right to write there:
//!   nobody else on the node, root in another pod of the host's network included. Who has the socket's name before the gateway
//!   learns addresses, and nothing that the gateway would accept.
//! * **Either may be killed at any moment.** The gateway continues with the last state, also after a restart where it has
//!   a state directory; the process comes back with another key, and is accepted again.
//! * **Frames** are four bytes of length, most significant first, and JSON. The gateway's first has something to sign, the
//!   process's first the signature, which is answered; what follows are whole reports, when something has changed. Another
//!   version is refused with a sentence.

mod protocol;
pub mod run;
mod serve;

pub use protocol::ANNOTATION;
pub(crate) use protocol::Work;
pub(crate) use serve::{Received, Server};

#[cfg(test)]
mod tests;
