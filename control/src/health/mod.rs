//! Whether remote gateways answer: ICMP echo through the tunnels, and what becomes of it in `Gateway.status` (and, from
//! other nodes, in `RouteAgent.status`).
//!
//! ```text
//!   Endpoints ──▶ Checker ──poll_transmit──▶ raw sockets ──▶ tunnel ──▶ remote health-check IP
//!                   │  ▲ ◀─handle_reply──── parse_v4, parse_v6 ◀─────────────┘
//!                   │  one Pinger per cable, each with its Statistics
//!                   └──views──▶ merge() ◀── the driver's Connection ──▶ Gateway.status.connections
//! ```
//!
//! Times, messages, statistics and rules are upstream's, since people and dashboards know them. The checker opens no
//! socket and reads no clock; [`Probes`] does both for it, in the gateway and in the route agent.

mod checker;
mod echo;
mod merge;
mod pinger;
mod probes;
mod sockets;
mod statistics;

pub use checker::{Checker, HealthEvent, Probe};
pub use echo::{EchoReply, EchoRequest, MESSAGE_LEN, TRACKER_LEN, Tracker, parse_v4, parse_v6};
pub use merge::{merge, merged};
pub use pinger::{Identity, Pinger, PingerConfig, PingerStatus, PingerView};
pub use probes::{PingResults, ProbeOptions, Probes, TOO_MANY};
pub use sockets::NOT_PROBING;
pub use statistics::{Latency, Statistics};
