//! Globalnet in the gateway: the control plane's state becomes rules, and workers' sessions outlive the process.
//!
//! ```text
//!   objects ─▶ control's controllers ─▶ GlobalnetState ─▶ tables ─▶ workers
//!                                            │                        │ changes, exports
//!                                       status, metrics               ▼
//!                                                        sessions on disk ─▶ the next process
//! ```
//!
//! * [`view`] — what is known, in one place. * [`key`] — which of a cluster's ports are whose is keyed; this is the key.
//! * `controllers` — who allocates. * [`process`] — Globalnet under an account of its own. * `trace` — what becomes of
//!   a packet.
//! * [`sessions`] — sessions on disk.

mod controllers;
pub mod key;
pub mod process;
pub mod sessions;
mod trace;
pub mod view;

pub(crate) use controllers::Controllers;
