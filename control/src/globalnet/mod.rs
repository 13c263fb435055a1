//! Globalnet's addresses: who has which, and what is written about it.
//!
//! ```text
//!   objects ──plan──▶ writes (status, GlobalIngressIPs, internal Services)      only the gateway that leads writes
//!        └──────────▶ GlobalnetState (who leaves and arrives under which address) every gateway reads
//! ```
//!
//! * [`Pool`] — the addresses of a CIDR: which are free, and which is given next.
//! * [`Objects`] — all that is known of the store.
//! * [`plan()`] — what follows from them: what to write, and the [`GlobalnetState`]. It is **level-driven**: the same view
//!   gives the same plan, and once all is written the plan is empty. An address given before counts first, by any implementation,
//!   so that a restart, a change of leader and a change from upstream's implementation move no address. A gateway keeps
//!   its plan, and plans anew what depends on what has changed.
//! * [`spawn`] — executes plans on a store, while the election says that this gateway leads, and publishes the state.
//! * [`GlobalnetState`] — what translation needs, as plain data.
//!
//! Names, labels, annotations, finalizers, conditions, reasons and messages are upstream's. Other than there, all keys are
//! namespace and name; a GlobalEgressIP's first selector is noted on it, and outlives the process; a pod that comes back
//! with another address keeps its global IP; and a service has its global IP also where its internal Service is refused.
//!
//! This module translates no packet: the gateway makes tables of the state.

mod allocation;
mod clusters;
mod compile;
mod conditions;
mod config;
mod controller;
mod egress;
mod exports;
mod facts;
mod gateways;
mod index;
mod ingress;
mod ledger;
mod objects;
mod plan;
mod planner;
mod pool;
mod services;
mod state;
mod units;
mod withdraw;
mod work;
mod writing;

pub use config::GlobalnetConfig;
pub use controller::{
    GlobalnetController, GlobalnetHandle, GlobalnetPhase, GlobalnetStatus, Snapshot, spawn,
};
pub use objects::{Objects, Scope};
pub use plan::{Outcome, View, plan};
pub use planner::Planner;
pub use pool::{Pool, PoolError};
pub use state::{EgressKind, EgressRule, GlobalnetState, IngressKind, IngressPair, PoolFill, Problem};
pub use withdraw::withdraw;
