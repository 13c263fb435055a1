//! What a cluster needs to become a member of a cluster set, as objects, and the steps that put them there.
//!
//! Used by the command `trieste`; nothing here prints or asks.

#![forbid(unsafe_code)]

mod apply;
pub mod broker_info;
mod carried_out;
mod cluster_dns;
pub mod cluster_id;
mod connect;
pub mod deploy_broker;
pub mod discover;
mod error;
pub mod join;
mod network_maps;
mod object_ref;
pub mod objects;
mod pods;
pub mod preflight;
pub mod psk;
pub mod recover;
pub mod remove_member;
mod roll;
mod server;
mod service_discovery;
mod services;
pub mod shares;
pub mod uninstall;
pub mod upgrade;

pub use apply::{Tally, apply_all};
pub use cluster_dns::{ServerBlock, server_blocks};
pub use connect::{BrokerLogin, connect};
pub use error::DeployError;
pub use object_ref::ObjectRef;
pub use server::{Applied, Change, FIELD_MANAGER, Journal, OPERATOR_MANAGER, Server};
