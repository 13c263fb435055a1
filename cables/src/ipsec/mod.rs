//! The IPsec cable: ESP (RFC 4303) keyed by IKEv2 (RFC 7296), both ours.
//!
//! ```text
//!   datagram ─▶ Gate ─┬─ ESP, SPI names the lane ─▶ EspCable::open ─▶ packets      fast half: one per peer,
//!                     └─ IKE ─▶ Input ─▶ IkeEngine                                 owned by one worker
//!   IkeEngine ─ LaneOrder (keys, addresses) ─▶ EspCable ─ LaneNews, ChildMeter ─▶ IkeEngine
//!   packets ─▶ EspCable::seal ─▶ datagrams                                         slow half: one per gateway
//! ```
//!
//! The slow half is one object for all peers, because the first message of an exchange does not say who sent it, and
//! because key agreement must not hold up packets: it runs on a thread of its own.

mod announced;
pub mod crypto;
pub mod esp;
pub mod gate;
pub mod ike;
mod kind;
pub mod link;
mod pair_key;
pub mod selector;
pub mod spi;
pub mod suite;
pub mod wire;

pub use announced::{PREFERRED_SERVER, TRIESTE};
pub use esp::{EspCable, EspCableConfig};
pub use kind::{IpsecKind, KindSettings, NAME, SlowHalf};
pub use link::{
    ChildMeter, ChildSa, EspKeys, EspPath, LaneLink, LaneNews, LaneOrder, LanePort, Limits, Outbound,
};
pub use pair_key::{IPSEC_PUBLIC_KEY, PairKey};
pub use selector::{Selector, Selectors};
pub use spi::Spi;
pub use suite::EspSuite;
