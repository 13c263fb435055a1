//! Under which address the world sees this gateway: the resolvers of the setting `public-ip`, and their watcher.
//!
//! ```text
//!   setting ──Resolvers──▶ resolve() ──HTTPS, DNS, Service──▶ first success, or every failure
//!                             ▲                                        │
//!                             └──when to try── WatchState ◀────────────┘──▶ PublicIp ──▶ Endpoint, status
//! ```
//!
//! A gateway works without a public address, so nothing here ends a process: a failure is an error in [`PublicIp`]
//! with the time of the next try, and the last good address stays.

mod error;
mod lookup;
mod resolve;
mod spec;
mod state;
mod watcher;

pub use error::LookupError;
pub use lookup::{Ingress, Lookup, MAX_BODY_BYTES, NetworkLookup};
pub use resolve::{Failures, Resolution, first_host_in, resolve};
pub use spec::{METHODS, Resolver, Resolvers, SpecError, is_host};
pub use state::{PublicIp, Remembered, WatchState};
pub use watcher::PublicIpWatcher;
