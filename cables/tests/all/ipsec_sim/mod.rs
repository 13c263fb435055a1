//! The IPsec cable in a bad network, under a virtual clock: whole gateways (an IKE engine and real ESP lanes), real inner
//! packets, and a checker that reads every frame. Everything follows from a seed; a test that fails prints it, and
//!
//! ```text
//! TRIESTE_SIM_SEED=17 cargo test -p trieste-cables --test cables NAME -- --nocapture
//! ```
//!
//! runs that one again. `TRIESTE_SIM_SEEDS` says how many are run, from that one or from 0 on (a test's own number is what
//! continuous integration has time for), `TRIESTE_SIM_TRACE=1` prints every message and order.
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
mod inner;
mod limits;
mod network;
mod random;
mod rekeys;
mod restarts;
mod seeds;
mod settled;
mod shape;
mod trace;
mod traffic;
mod world;
