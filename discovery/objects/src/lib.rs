#![forbid(unsafe_code)]
//! Objects of service discovery as changes of the records: which follow from an event of a store. No IO.
//!
//! ```text
//!  ServiceImports, EndpointSlices ─▶ Index ─┐
//!                                           ├─▶ Change ─▶ trieste_dns::Writer
//!  Gateways ───────────────────────▶ Reach ─┘
//! ```
//!
//! The DNS server answers from the records; a node's route agent leads clusterset IPs by them, to where a name would lead.
//!
//! * [`read`] — one object as the records need it. * [`index`] — which changes follow from an event.
//! * [`reach`] — which clusters the gateways reach.

pub mod index;
pub mod reach;
pub mod read;
