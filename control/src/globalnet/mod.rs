//! Globalnet's addresses: who has which, and what is written about it.
//!
//! ```text
//!   objects ──plan──▶ writes (status, GlobalIngressIPs, internal Services)      only the gateway that leads writes
//!        └──────────▶ GlobalnetState (who leaves and arrives under which address) every gateway reads
//! ```
//!
//! * [`GlobalnetState`] — what translation needs, as plain data.
//!
//! This module translates no packet: the gateway makes tables of the state.

mod state;

pub use state::{EgressKind, EgressRule, GlobalnetState, IngressKind, IngressPair, PoolFill, Problem};
