//! The IPsec cable in a bad network, under a virtual clock: whole gateways (an IKE engine and real ESP lanes), real inner
//! packets, and a checker that reads every frame. Everything follows from a seed ([`trieste_simulator::seeds`]);
//! `TRIESTE_SIM_TRACE=1` prints every message and order.
//!
//! ```text
//!   inner packets ─▶ EspCable::seal ─▶ checker ─▶ network: loss, delay, copies, NAT ─▶ EspCable::open ─▶ checker
//!                        ▲ orders, read on the way                │
//!                    IkeEngine ◀──────────── IKE ─────────────────┘
//! ```
#![expect(clippy::print_stdout, reason = "figures, failing seeds and traces are said aloud")]

mod checker;
mod convergence;
mod gateway;
mod impostor;
mod inner;
mod limits;
mod network;
mod rekeys;
mod restarts;
mod settled;
mod shape;
mod trace;
mod traffic;
mod world;
