//! Two clusters of several gateways in a bad network, under a virtual clock: whole packet paths with VXLAN cables, the real
//! machines of path health and of shared translation, and schedules of several faults at once. Everything follows from a
//! seed; one that fails is printed, and
//!
//! ```text
//! TRIESTE_SIM_SEED=17 cargo test -p trieste-pipeline --test pipeline several_sim:: -- --nocapture
//! ```
//!
//! runs it again. `TRIESTE_SIM_SEEDS=10000` says how many are run, from that one or from 0 on; a test's own number is what
//! continuous integration has time for. `TRIESTE_SIM_TRACE=1` prints the faults of each, and where packets were lost.
//!
//! ```text
//!   pods ─▶ node: who of the gateways ─▶ Pipeline ─▶ network: cuts, delay ─▶ Pipeline ─▶ pods ─▶ answer, the same way back
//!                                          ▲ stall, kill, drain                │
//!   ledger: every packet is delivered once, or lost where a fault is that steering could not know of yet
//! ```
#![expect(clippy::print_stdout, reason = "figures and failing seeds are said aloud")]

mod gateway;
mod laws;
mod ledger;
mod network;
mod random;
mod run;
mod schedule;
#[path = "../../../../../cables/tests/all/ipsec_sim/seeds.rs"]
mod seeds;
mod world;

/// Schedules in continuous integration, without and with translation: 18 seconds each where nothing is optimised.
const SCHEDULES: u64 = 40;

#[test]
fn every_packet_is_delivered_or_lost_to_a_fault() {
    run::schedules("every_packet_is_delivered_or_lost_to_a_fault", SCHEDULES, false);
}

#[test]
fn with_translation_too_and_no_port_is_two_insiders() {
    run::schedules("with_translation_too_and_no_port_is_two_insiders", SCHEDULES, true);
}
