//! Globalnet in the gateway: what the control plane knows becomes rules, and what workers remember outlives them.
//!
//! ```text
//!   objects ─▶ control's controllers ─▶ GlobalnetState ─▶ tables ─▶ workers
//!                                            │                        │ changes, exports
//!                                       status, metrics               ▼
//!                                                        sessions on disk ─▶ the next process
//! ```
//!
//! * [`key`] — which of a cluster's ports are whose is keyed; this is the key.
//! * [`sessions`] — sessions on disk.

pub mod key;
pub mod sessions;
