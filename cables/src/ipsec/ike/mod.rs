//! The slow half of the IPsec cable: IKEv2 (RFC 7296), sans-IO, one object for all peers.

mod config;
mod engine;
mod event;
mod input;
mod load;
mod report;
mod secrets;

pub use config::{EngineConfig, Lifetime};
pub use engine::IkeEngine;
pub use event::IkeEvent;
pub use input::{Input, PeerConfig};
pub use load::EngineLoad;
pub use report::{ChildReport, IkeReport, PeerReport};
pub use secrets::SaSecrets;
