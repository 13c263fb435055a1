//! `trieste-ovn` against a model of the database, and against a real OVN: ovsdb-server, ovn-northd, ovn-trace.

mod broken_off;
mod chaos;
mod client;
mod cluster_router;
mod model;
pub(crate) mod ovn;
mod packets;
mod properties;
mod scale;
mod submariner_router;
mod support;
