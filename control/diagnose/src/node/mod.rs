//! What runs on a node, as `trieste node …` in a pod of the route agent: says what is there, watches probes go by,
//! sends them.
//!
//! ```text
//!   report   links, routes, rules, neighbours, filters, settings, the gateway's status   one document
//!   watch    AF_PACKET on every device, one line for each sight of a probe               lines
//!   send     ICMP echo, UDP, TCP; in the name of any source                              one document
//!   listen   a UDP port, as an application has it                                        one document
//!   head     an HTTP server's first line                                                one document
//! ```
//!
//! It needs what the route agent's container has: the host's network, `NET_ADMIN` and `NET_RAW`. It changes nothing.

pub mod admin;
mod capture;
pub mod counters;
pub mod document;
mod filter;
mod head;
mod listen;
mod report;
mod ruleset;
mod send;
mod sysctl;
pub mod token;
mod tools;
mod watch;
pub mod wire;

pub use head::{HeadReport, head};
pub use listen::{Heard, ListenRequest, listen};
pub use report::{ReportRequest, report};
pub use ruleset::{ClosedChain, DropRule, Filters, Match, PacketFacts, Takes};
pub use send::{SendError, SendReport, SendRequest, SentPacket, Transport, send};
pub use watch::{Direction, MAX_SECONDS, OuterCount, Sighting, WatchLine, WatchReport, WatchRequest, watch};

/// Why a node cannot do what it is asked for.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NodeError {
    /// The kernel refuses a socket.
    #[error("cannot {what}: {source}{hint}", hint = hint(source))]
    Socket {
        /// What was to be done.
        what: &'static str,
        /// The kernel's word.
        source: std::io::Error,
    },
    /// A request that makes no sense.
    #[error("{0}")]
    Request(String),
    /// Nobody takes the answer.
    #[error("the answer cannot be written: {0}")]
    Output(#[source] std::io::Error),
}

impl NodeError {
    fn socket(what: &'static str) -> impl FnOnce(std::io::Error) -> Self {
        move |source| Self::Socket { what, source }
    }
}

fn hint(error: &std::io::Error) -> &'static str {
    let is_denied = error.kind() == std::io::ErrorKind::PermissionDenied;
    if is_denied { " (the container needs the capability NET_RAW)" } else { "" }
}
