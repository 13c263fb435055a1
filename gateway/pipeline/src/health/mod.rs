//! Health of paths: probes inside a cable, between two Trieste gateways, that find a path lost in well under 100 ms.
//!
//! ```text
//!   opened packets ─▶ handle_arrival ─┐                                    ┌─▶ state, MTU, RTT ─▶ Board
//!   probes of the far end ─▶ handle_probe ├─▶ Watcher ─▶ handle_timeout ───┤
//!   sealed packets ─▶ handle_traffic ─┘      (one for each path)           └─▶ poll_transmit ─▶ probes ─▶ seal
//! ```
//!
//! As in BFD (RFC 5880), each end sends of its own accord and says how long the other may have to wait for its next
//! probe. Everything that a cable has authenticated proves life, so that probes that wait behind data do no harm. A
//! path is up while we hear the far end and it says that it hears us: what is lost one way only is seen by both.
//!
//! What keeps a disturbance from becoming a failover is in `jitter` (time-outs follow what was measured), `awake`
//! (time that this worker has not had is nobody's silence) and `hold` (what came back has to stay for a while).
//! Everything here is a function of state, input and time.

pub mod awake;
mod config;
mod hold;
mod jitter;
mod loss;
mod mtu;
mod probe;
mod report;
mod watcher;

pub(crate) use config::idle_interval;
pub use config::{Config, IDLE_INTERVAL, Watch};
pub use probe::{BODY_BYTES, Probe};
pub use report::Report;
pub use watcher::{Outgoing, Watcher};
