//! Sealing and opening: the line, the lane, and the bare libraries below, in the same loop.
//!
//! The base of every ratio is the library below the cable, over contiguous buffers that are as long as needed, one call
//! after the other: no checksum, no segmentation, no tables, no counters. For WireGuard that is
//! `boringtun::noise::Tunn`, for ESP it is ring's AES-128-GCM, for VXLAN a copy with a checksum.

mod bare;
pub(crate) mod lane;

use anyhow::Context as _;
use clap::Args;
use serde::Serialize;

use crate::machine::Circumstances;
use crate::measure::{Candidate, Rounds, Spread};
use crate::pair::{Direction, Joint, Pair};
use crate::report::{self, Table};
use crate::traffic::Shape;
use lane::Feed;
use trieste_packet::MAX_BATCH;

/// Options of `cables`.
#[derive(Debug, Args)]
pub(crate) struct Options {
    #[command(flatten)]
    rounds: Rounds,
    /// Bytes of the inner packets.
    #[arg(long, value_delimiter = ',', default_values_t = [64, 512, 1420, 9000], value_parser = clap::value_parser!(u16).range(64..=9000))]
    sizes: Vec<u16>,
    /// Packets in the ring of buffers that every candidate goes over.
    #[arg(long, default_value_t = 1024, value_parser = clap::value_parser!(u16).range(64..=16384))]
    ring: u16,
    /// Only candidates whose name has this text, besides the base of their cable.
    #[arg(long, default_value = "")]
    only: String,
    /// Prints JSON.
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Serialize)]
struct Report {
    #[serde(flatten)]
    circumstances: Circumstances,
    rounds: u32,
    ring: u16,
    pinned_to: usize,
    results: Vec<Row>,
}

#[derive(Debug, Serialize)]
struct Row {
    direction: &'static str,
    bytes: u16,
    name: String,
    ns: Spread,
    gbit_s: f64,
    /// Median of the ratios of time to the base's, round by round: 1.1 is ten per cent slower.
    to_base: f64,
}

/// Measures and prints.
///
/// # Errors
/// When a candidate cannot be set up.
pub(crate) fn run(options: &Options) -> anyhow::Result<()> {
    let circumstances = Circumstances::read();
    let pinned_to = options.rounds.pin()?;
    let mut results = Vec::new();
    for &bytes in &options.sizes {
        for direction in [Direction::Outbound, Direction::Inbound] {
            let families = families(direction, bytes, usize::from(options.ring))
                .with_context(|| format!("setting up {direction:?} at {bytes} bytes"))?;
            for family in families {
                results.extend(measure(options, direction, bytes, family));
            }
        }
    }
    let rounds = options.rounds.rounds;
    let report = Report { circumstances, rounds, ring: options.ring, pinned_to, results };
    if options.json { report::print_json(&report) } else { report::print(&table(&report)) }
}

/// Measures the base and those whose names are asked for; nothing when there are none.
fn measure(
    options: &Options,
    direction: Direction,
    bytes: u16,
    mut candidates: Vec<Candidate<'static>>,
) -> Vec<Row> {
    let mut is_base = true;
    candidates.retain(|candidate| std::mem::take(&mut is_base) || candidate.name.contains(&options.only));
    if candidates.len() < 2 {
        return Vec::new();
    }
    let samples = options.rounds.interleave(&mut candidates);
    let row = |(candidate, ns): (&Candidate<'_>, &Vec<f64>)| {
        let spread = Spread::of(ns);
        Row {
            direction: if direction == Direction::Outbound { "seal" } else { "open" },
            bytes,
            name: candidate.name.clone(),
            ns: spread,
            gbit_s: f64::from(bytes) * 8.0 / spread.median,
            to_base: Spread::ratio(ns, &samples[0]),
        }
    };
    candidates.iter().zip(&samples).map(row).collect()
}

/// Everything to compare, by cable; the first of each is the base of the others.
fn families(direction: Direction, bytes: u16, ring: usize) -> anyhow::Result<[Vec<Candidate<'static>>; 3]> {
    let mut wireguard = bare::wireguard(direction, bytes, ring)?;
    wireguard.extend(ours(Joint::Wireguard, "", direction, bytes, ring)?);
    let mut esp = bare::esp(direction, bytes, ring)?;
    esp.extend(ours(Joint::Esp, "ESP ", direction, bytes, ring)?);
    let feed = Feed { shape: Shape::single(bytes, 1), batch: 1, ring };
    esp.push(Candidate::new("ESP lane, packets one by one", lane::pass(Joint::Esp, direction, feed)?));
    let mut vxlan = vec![Candidate::new("copy and checksum", bare::copy(usize::from(bytes), ring))];
    vxlan.extend(ours(Joint::Vxlan, "VXLAN ", direction, bytes, ring)?);
    Ok([wireguard, esp, vxlan])
}

fn ours(
    joint: Joint,
    cable: &str,
    direction: Direction,
    bytes: u16,
    ring: usize,
) -> anyhow::Result<Vec<Candidate<'static>>> {
    let (single, train) = (Shape::single(bytes, 1), Shape::train(bytes, 1));
    let shapes = [(train, format!("train of {}", train.segments)), (single, "single packets".to_owned())];
    let mut all = Vec::new();
    for (shape, how) in &shapes {
        let feed = Feed { shape: *shape, batch: MAX_BATCH, ring };
        all.push(Candidate::new(&format!("{cable}lane, {how}"), lane::pass(joint, direction, feed)?));
    }
    for (shape, how) in &shapes {
        let pair = Pair::new(joint, *shape, ring)?;
        all.push(Candidate::new(&format!("{cable}line, {how}"), pair.into_pass(direction)));
    }
    Ok(all)
}

fn table(report: &Report) -> String {
    let mut table =
        Table::new(&["direction", "bytes", "what", "ns/packet", "min", "max", "Gbit/s", "time to base"]);
    for row in &report.results {
        table.row(vec![
            row.direction.to_owned(),
            row.bytes.to_string(),
            row.name.clone(),
            format!("{:.0}", row.ns.median),
            format!("{:.0}", row.ns.min),
            format!("{:.0}", row.ns.max),
            format!("{:.1}", row.gbit_s),
            format!("{:.2}", row.to_base),
        ]);
    }
    format!(
        "{}\n{} rounds, ring of {} packets, CPU {}; ns of thread CPU time, median of the rounds\n\n{}",
        report.circumstances.line(),
        report.rounds,
        report.ring,
        report.pinned_to,
        table.text()
    )
}
