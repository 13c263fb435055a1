//! The control plane's shared ground: API types, object store, broker sync, admin API, and the `trieste` command.
//!
//! ```text
//!   daemon ──publish──▶ local Store ◀──sync──▶ broker's Store ◀──sync──▶ other clusters' local Stores
//!                          │
//!                          └──list_watch──▶ daemon (tables), route agent (routes), CLI (tables)
//! ```
//!
//! * [`api`] — the objects of `submariner.io/v1`: names, labels, equality, unknown fields kept.
//! * [`store`] — the [`store::Store`] trait for objects, and its implementations: a directory and an API server.
//! * [`sync`] — the syncer between the cluster's own store and the broker's.
//! * [`runner`] — the one loop of every controller: watches, queues, fences, writes, retries.
//! * [`election`] — the election of a cluster's active gateway.
//! * [`leader`] — the active gateway's writes: its cluster's one Endpoint.
//! * [`live_networks`] — the cluster's networks, as its own objects say them while everything runs.
//! * [`members`] — the other gateways: of this cluster, and all of the remote ones.
//! * [`publish`] — a gateway's own objects, and when they are written.
//! * [`connection_status`] — the status of a connection (`connecting`, `connected`, `error`) from counters and handshakes.
//! * [`health`] — health checks of remote gateways, and their part in `Gateway.status`.
//! * [`https`] — single HTTPS requests, through proxies.
//! * [`publicip`] — the discovery of a gateway's public address.
//! * [`command_line`] — flags and environment of programs in pods.
//! * [`backoff`] — waits between tries, with jitter.
//! * [`privileges`] — the capabilities that a program misses, and giving up the others.
//! * [`cause`] — the innermost cause of an error.
//! * [`devices`] — the names of network devices.
//! * [`conditions`], [`recorder`] — the present problems, and the latest events.
//! * [`globalnet`] — the allocation of global addresses, and the objects that record it.
//! * [`claims`] — the networks that a member of the set may claim.
//! * [`hash`] — names and draws that are the same everywhere.
//! * [`natdiscovery`] — the choice among a peer's addresses, and the detection of NAT on the way.
//! * [`notice`] — gateways' reports of their state to the route agents of their cluster.
//! * [`remote_pool`], [`spiderpool`] — what several programs write and read of Calico's and of Spiderpool's objects.
//! * [`requirements`] — the Kubernetes and network plugins that this version supports.
//! * [`settings`] — the settings of a cluster's programs, which one ConfigMap says while they run.
//! * [`services`] — the back ends of each cluster IP, and their nodes.
//! * [`steps`] — progress reports of long work.
//! * [`udp`], [`tcp`], [`sockets`] — sockets for datagrams outside of cables, sockets that listen, and both without IPv6.
//! * [`signals`] — what asks a program to end.
//! * [`version`], [`logging`] — a program's version, and its log.
//! * [`exposition`], [`process`] — Prometheus' text format, and the metrics of a process.
//! * [`pages`], [`controller_pages`], [`slots`] — the pages for kubelets and Prometheus, those of controllers alone, and limits of
//!   connections.
//! * [`parse`] — the forms of values in the environment.
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
pub mod controller_pages;
mod deadlines;
pub mod devices;
pub mod election;
pub mod exposition;
pub mod globalnet;
pub mod hash;
pub mod health;
pub mod https;
pub mod leader;
pub mod live_networks;
pub mod liveness;
pub mod logging;
pub mod members;
pub mod natdiscovery;
pub mod network_map;
pub mod notice;
pub mod pages;
pub mod parse;
pub mod privileges;
pub mod process;
pub mod publicip;
pub mod publish;
pub mod recorder;
pub mod remote_pool;
pub mod requirements;
pub mod runner;
pub mod services;
pub mod sets;
pub mod settings;
pub mod signals;
pub mod slots;
pub mod sockets;
pub mod spiderpool;
pub mod steps;
pub mod store;
pub mod sync;
pub mod tcp;
pub mod timer;
pub mod udp;
pub mod version;
