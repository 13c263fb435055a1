//! Globalnet's plans on a world that behaves as an API server does: from upstream's recorded objects, and from others.

mod cost;
mod egress;
mod exports;
mod kept;
mod properties;
mod quarrels;
mod recorded;
mod run;
pub(crate) mod world;
