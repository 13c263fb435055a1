//! Cables: the tunnels between gateways.
//!
//! A cable has two halves. The slow one ([`Cable`]) does handshakes, timers and keepalives; the fast one
//! ([`Lane`]) seals and opens packets. The slow half makes lanes and the fast half uses them up. Where one object
//! is both (WireGuard over boringtun, whose `Tunn` keeps its keys to itself) it implements [`Tunnel`].
//!
//! ```text
//!   datagram ─▶ Gate ──┬─ data for lane n ──▶ Lane::open ──▶ packets
//!                      ├─ control for lane n ▶ Cable::handle_datagram ─▶ poll_transmit, poll_event
//!                      └─ greeting of a peer ▶ (who is it?) ▶ Cable::handle_datagram
//!   packets ─▶ Lane::seal ─▶ datagrams
//! ```
//!
//! Nothing here opens a socket; time comes in as a parameter (boringtun, which reads its own clock and
//! randomness, is the exception, behind its boundary).

#![forbid(unsafe_code)]

mod attempts;
mod boundary;
pub mod drivers;
mod held;
pub mod ipsec;
pub mod keys;
mod opening;
mod prefetch;
pub mod replay;
pub mod seal_train;
mod shares;
pub mod vxlan;
pub mod wireguard;

pub use boundary::{
    Admission, Cable, CableError, CableEvent, CableKind, CableStats, Gate, Jobs, Lane, LaneConfig, Message,
    Overhead, Site, Transmit, Tunnel,
};
pub use held::{HELD_AGE, HELD_BYTES, HELD_PACKETS, Held};
