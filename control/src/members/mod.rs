//! The gateways that are known beside this one: siblings of this cluster, and all gateways of remote clusters.
//!
//! Upstream knows one Endpoint per cluster, the leader's: the *sole* one. Beside it every gateway, leader or not,
//! publishes a *further* Endpoint about itself, named `trieste-<cable name>` and labelled `trieste.io/clusterID`:
//!
//! ```text
//!   every gateway ──┬─▶ own store, namespace `<namespace>-paths`   ──▶ its siblings, route agents
//!                   └─▶ broker, beside the sole ones               ──▶ all gateways of remote clusters
//! ```
//!
//! * [`targets`] — which remote gateways there are cables to.
//! * [`plan_own`] — what a gateway publishes of itself; [`GarbageCollector`] — who has vanished; [`Slots`] — whose ports are
//!   whose. None of them has a clock or a store.
//! * [`LocalController`], [`BrokerController`] — plan for one store each, and are run by the [runner](crate::runner).
//! * [`spawn`] — starts them, and a driver of the [`Slots`].
//!
//! Upstream's agents do not look into the first, and neither import nor remove what they find in the second: they never
//! see more than one Endpoint per cluster. Nobody has to lead for any of this.

mod broker;
mod config;
pub mod conformance;
mod failures;
mod garbage_collector;
mod handle;
mod heartbeats;
mod local;
mod member_cache;
mod own;
mod remove;
mod shares;
mod shutdown;
mod slots;
mod target;
mod types;

pub use broker::{BrokerController, BrokerInput, BrokerStatus, LocalView};
pub use config::MembersConfig;
pub use garbage_collector::GarbageCollector;
pub use handle::{Inputs, MembersHandle, NOT_ON_BROKER, ONE_GATEWAY, spawn};
pub use heartbeats::Heartbeats;
pub use local::{LocalController, LocalInput, LocalKey, LocalStatus};
pub use own::plan_own;
pub use remove::withdraw;
pub use shutdown::Shutdown;
pub use slots::{SLOT_PREFIX, SlotTimes, Slots};
pub use target::{MOST_PATHS, Target, targets};
pub use types::{FURTHER_PREFIX, Member, Members, NatSlots, Publication, further_name, paths_namespace};
