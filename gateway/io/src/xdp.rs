//! AF_XDP for the outer side: frames between a queue of an interface and our memory, past the kernel's stack.
//!
//! ```text
//!  queue ─▶ filter ─ ours ─▶ receive ring ─▶ in place, or copied to a train ─▶ Batch
//!             └─ not ours ─▶ the kernel, and its sockets ───────────────────────▶
//!  Batch ─▶ resolved? ─ yes ─▶ headers in front, cut into frames ─▶ transmit ring ─▶ queue
//!             └─ no, or too large ─▶ the sockets ─▶ the kernel
//! ```
//!
//! Frames are a pool of their own, whose memory the kernel shares (`frames`), so that a received one is opened where it is.
//! The program is made here and attached by a link that ends with the process (`filter`, `attach`); where frames go is a
//! snapshot of what the kernel answers (`routes`). See docs/adr/0043-af-xdp-rings.md.

mod assembler;
mod attach;
mod bpf;
mod channels;
mod config;
mod filter;
mod frame;
mod frames;
mod io;
mod netlink;
mod open;
mod plan;
mod policies;
mod receive;
mod resolver;
mod ring;
mod routes;
mod send;
mod socket;
mod umem;

pub use crate::rings::{XdpCounters, XdpMode};
pub use config::XdpConfig;
pub use io::XdpIo;
