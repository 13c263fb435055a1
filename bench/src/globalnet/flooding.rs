//! Flows that somebody has chosen so that a simple hash would put them together: with a secret key they cost what random
//! flows cost.

use std::net::Ipv4Addr;
use std::time::Instant;

use anyhow::ensure;
use serde::Serialize;
use trieste_nat::Facts;

use super::{facts, nat};
use crate::measure::Sample;

/// Flows of each set.
const FLOWS: u32 = 50_000;

/// A set of flows, looked up one after the other.
#[derive(Debug, Serialize)]
pub(crate) struct Flooding {
    set: &'static str,
    /// ns for the first packet of a flow, and for a later one that is looked up by its addresses and ports.
    begin: f64,
    lookup: f64,
}

/// Makes the flow with a number.
type Make = fn(u32) -> Facts;

/// Measures each set with a translation of its own.
///
/// # Errors
/// When flows are refused.
pub(crate) fn measure() -> anyhow::Result<Vec<Flooding>> {
    let sets: [(&'static str, Make); 4] = [
        ("one after the other", facts),
        ("random", random),
        ("same sum of address and port", same_sum),
        ("same low bits", same_low_bits),
    ];
    sets.into_iter().map(|(name, make)| one(name, make)).collect()
}

fn one(set: &'static str, make: Make) -> anyhow::Result<Flooding> {
    let now = Instant::now();
    let (mut nat, rules) = nat(now)?;
    let all: Vec<Facts> = (0..FLOWS).map(make).collect();
    let pass = |nat: &mut trieste_nat::Nat| {
        Sample::of(|| all.iter().filter(|facts| nat.in2out(facts, &rules, now).is_ok()).count() as u64)
    };
    let begin = pass(&mut nat);
    ensure!(begin.packets == u64::from(FLOWS), "{set}: {} of {FLOWS} flows began", begin.packets);
    let mut lookups: Vec<f64> = (0..11).map(|_| ns(&pass(&mut nat))).collect();
    lookups.sort_by(f64::total_cmp);
    Ok(Flooding { set, begin: ns(&begin), lookup: lookups[lookups.len() / 2] })
}

fn ns(sample: &Sample) -> f64 {
    sample.elapsed.as_nanos() as f64 / f64::from(FLOWS)
}

/// As `facts`, with the numbers shuffled (an odd factor permutes 20 bits).
fn random(number: u32) -> Facts {
    facts(number.wrapping_mul(0x9_e375) & 0xf_ffff)
}

/// Addresses that grow by what ports shrink: a hash that adds sees one flow.
fn same_sum(number: u32) -> Facts {
    let step = u16::try_from(number % 60_000).unwrap_or(0);
    let [high, low] = step.to_be_bytes();
    Facts { source: Ipv4Addr::new(10, 1, high, low), source_port: 65_000 - step, ..facts(0) }
}

/// Ports and addresses that differ in high bits alone: a hash that masks sees few.
fn same_low_bits(number: u32) -> Facts {
    let [_, _, c, d] = number.to_be_bytes();
    Facts {
        source: Ipv4Addr::new(10, 1, d, 7),
        source_port: u16::from_be_bytes([4 + c % 251, 0]),
        ..facts(0)
    }
}

/// For people.
pub(crate) fn text(sets: &[Flooding]) -> String {
    let mut text =
        format!("\n{FLOWS} chosen flows, ns each: first packet, later packet without the flow cache\n");
    for Flooding { set, begin, lookup } in sets {
        text += &format!("  {set}: {begin:.0}, {lookup:.0}\n");
    }
    text
}
