//! The control plane's shared ground: API types, object store, broker sync, admin API, and the `trieste` command.
//!
//! ```text
//!   daemon ──publish──▶ local Store ◀──sync──▶ broker's Store ◀──sync──▶ other clusters' local Stores
//!                          │
//!                          └──list_watch──▶ daemon (tables), route agent (routes), CLI (tables)
//! ```
//!
//! * [`api`] — the objects of `submariner.io/v1`: names, labels, equality, unknown fields kept.
//! * [`store`] — where objects live: the [`store::Store`] trait and its directory implementation.
//! * [`sync`] — the broker, seen as a syncer between two stores.
//! * [`runner`] — the one loop of every controller: watches, queues, fences, writes, retries.
//! * [`election`] — which of a cluster's gateways is the active one.
//! * [`leader`] — what that one writes: it is its cluster's one Endpoint.
//! * [`members`] — the other gateways: of this cluster, and all of the remote ones.
//! * [`publish`] — what a gateway writes about itself, and when.
//! * [`connection_status`] — how counters and handshakes become `connecting`, `connected`, `error`.
//! * [`health`] — whether remote gateways answer, and what `Gateway.status` says of it.
//! * [`publicip`] — under which address the world sees a gateway.
//! * [`command_line`] — how programs in pods read flags and environment.
//! * [`backoff`] — how long to wait before the next try.
//! * [`privileges`] — which capabilities a program misses, and giving up the others.
//! * [`cause`] — what an error is really about.
//! * [`devices`] — what network devices are called.
//! * [`conditions`], [`recorder`] — what is wrong at present, and what happened.
//! * [`globalnet`] — who has which global address, and what is written about it.
//! * [`claims`] — which networks a member of the set may claim.
//! * [`hash`] — names and draws that are the same everywhere.
//! * [`natdiscovery`] — which of a peer's addresses reaches it, and whether there is NAT on the way.
//! * [`notice`] — how gateways tell their cluster's route agents which of them live.
//! * [`requirements`] — which Kubernetes and network plugins this version gets on with.
//! * [`services`] — which back ends a cluster IP has, and on which nodes.
//! * [`steps`] — where long work says what it is doing.
//! * [`udp`] — sockets of what is said outside of cables.
//! * [`version`], [`logging`] — how a program says its version, and where it logs to.
//! * [`words`] — how values in the environment are read.
//! * [`admin`] — the documents of the gateway's admin socket, shared by the gateway and the command.
//!
//! This crate is not the packet path and programs no kernel.

#![forbid(unsafe_code)]

pub mod admin;
pub mod api;
pub mod backoff;
pub mod cause;
pub mod claims;
pub mod command_line;
pub mod conditions;
pub mod connection_status;
pub mod devices;
pub mod election;
pub mod globalnet;
pub mod hash;
pub mod health;
pub mod leader;
pub mod logging;
pub mod members;
pub mod natdiscovery;
pub mod notice;
pub mod privileges;
pub mod publicip;
pub mod publish;
pub mod recorder;
pub mod requirements;
pub mod runner;
pub mod services;
pub mod steps;
pub mod store;
pub mod sync;
mod timer;
pub mod udp;
pub mod version;
pub mod words;
