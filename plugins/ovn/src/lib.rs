#![forbid(unsafe_code)]
//! Remote clusters in the northbound database of OVN-Kubernetes, without IO.
//!
//! ```text
//!  GatewayRoutes, NonGatewayRoutes ─▶ Wanted ─┐
//!  replica of OVN_Northbound ───────▶ Rows ───┼─▶ plan() ─▶ transactions ─▶ Controller ─▶ one at a time
//!  replica of OVN_Southbound ───────▶ Chassis ┘       └───▶ conditions
//! ```
//!
//! What a database should have is a function of the whole state; nothing depends on what happened before. A row is ours by
//! a mark in its `external_ids`, and no other is ever touched: upstream's matching by next hop once removed routes of
//! OVN-Kubernetes. When nothing differs, a plan is empty.
//!
//! Packets for a remote network never leave in clear: a policy that drops them is the first row of a network to come and the
//! last to go, and stands behind those that lead to the gateway.
//!
//! * [`wanted`] — objects and facts, parsed. * [`rows`] — the database, indexed. * `desired` — the rows of both topologies,
//!   and what each is for. * [`plan()`] — the difference. * `change` — transactions. * [`controller`] — when to send which.

mod change;
mod chassis;
pub mod condition;
pub mod constants;
pub mod controller;
mod desired;
mod family;
mod plan;
pub mod rows;
mod spec;
mod table;
pub mod wanted;

pub use change::Transaction;
pub use chassis::{CHASSIS_COLUMNS, CHASSIS_TABLE, Chassis};
pub use plan::{Plan, plan, uninstall};
pub use rows::Rows;
pub use spec::{check_schema, northbound_spec, southbound_spec};
pub use table::Table;
pub use wanted::Wanted;
