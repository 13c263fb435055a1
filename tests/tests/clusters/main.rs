//! Whole Kubernetes clusters, installed the way users install them. Need root.
//!
//! Tests of one shape share its clusters and run one after the other, in the order of their names: [`shared`] has the
//! shapes, and what a test finds. Those that need clusters of their own are in `demo` and `families`. `./dev test` runs this
//! program twice side by side, with the tests of `plain` and with the others.
//!
//! | clusters | tests |
//! |---|---|
//! | two of three nodes, dual-stack, kube-proxy on iptables and on nftables | `plain` |
//! | two of three nodes with the same networks, IPv4, with Globalnet | `globalnet` |
//! | four of one node: three with IPv6 alone, one with IPv4 | `families` |
//! | the demo's own | `demo` |
#![expect(clippy::unwrap_used, reason = "helpers of tests: what cannot go on has failed")]

mod demo;
mod families;
mod globalnet;
mod lookups;
mod named;
mod outside;
mod plain;
mod several;
mod shared;
mod sides;
mod steady;
