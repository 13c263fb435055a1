//! The client against real servers: `ovsdb-server` with OVN's northbound schema, written to with `ovn-nbctl`.
//!
//! Needs the Debian packages `openvswitch-switch`, `ovn-central` and `ovn-host`; servers listen in temporary directories and on
//! loopback.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod cluster;
mod follower;
mod monitor;
mod schemas;
mod server;
mod tls;
mod transactions;
mod transports;
mod wandering;
