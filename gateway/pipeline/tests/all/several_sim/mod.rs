//! Two clusters of several gateways in a bad network, under a virtual clock: whole packet paths with VXLAN cables, the real
//! machines of path health and of shared translation, and schedules of several faults at once. Everything follows from a
//! seed ([`trieste_simulator::seeds`]); `TRIESTE_SIM_TRACE=1` prints the faults of each, and where packets were lost.
//!
//! A third member is hostile: it sends what it sees of the others as its own.
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
mod run;
mod schedule;
mod world;

/// Schedules without and with translation.
const SCHEDULES: u64 = 60;

#[test]
fn every_packet_is_delivered_or_lost_to_a_fault() {
    run::schedules("every_packet_is_delivered_or_lost_to_a_fault", SCHEDULES, false);
}

#[test]
fn with_translation_too_and_no_port_is_two_insiders() {
    run::schedules("with_translation_too_and_no_port_is_two_insiders", SCHEDULES, true);
}
