//! Globalnet's plans on a world that behaves as an API server does: from upstream's recorded objects, and from others.

mod egress;
mod exports;
mod properties;
mod quarrels;
mod recorded;
mod run;
pub(crate) mod world;
