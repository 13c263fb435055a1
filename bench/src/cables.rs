//! Sealing and opening: the line, the lane, and the bare libraries below, in the same loop.
//!
//! The base of every ratio is bare `boringtun::noise::Tunn` over contiguous buffers that are as long as needed, one
//! call after the other: no checksum, no segmentation, no tables, no counters.

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
    /// Only candidates whose name has this text, besides the base.
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
            let mut candidates = candidates(direction, bytes, usize::from(options.ring))
                .with_context(|| format!("setting up {direction:?} at {bytes} bytes"))?;
            let mut is_base = true;
            candidates
                .retain(|candidate| std::mem::take(&mut is_base) || candidate.name.contains(&options.only));
            let samples = options.rounds.interleave(&mut candidates);
            for (candidate, ns) in candidates.iter().zip(&samples) {
                let spread = Spread::of(ns);
                results.push(Row {
                    direction: if direction == Direction::Outbound { "seal" } else { "open" },
                    bytes,
                    name: candidate.name.clone(),
                    ns: spread,
                    gbit_s: f64::from(bytes) * 8.0 / spread.median,
                    to_base: Spread::ratio(ns, &samples[0]),
                });
            }
        }
    }
    let rounds = options.rounds.rounds;
    let report = Report { circumstances, rounds, ring: options.ring, pinned_to, results };
    if options.json { report::print_json(&report) } else { report::print(&table(&report)) }
}

/// Everything to compare; the first one is the base.
fn candidates(direction: Direction, bytes: u16, ring: usize) -> anyhow::Result<Vec<Candidate<'static>>> {
    let (single, train) = (Shape::single(bytes, 1), Shape::train(bytes, 1));
    let trains = format!("train of {}", train.segments);
    let of = |what: &str, how: &str| format!("{what}, {how}");
    let mut all = bare::candidates(direction, bytes, ring)?;
    for (shape, how) in [(train, trains.as_str()), (single, "single packets")] {
        all.push(Candidate::new(&of("lane", how), lane::pass(direction, shape, ring)?));
    }
    for (shape, how) in [(train, trains.as_str()), (single, "single packets")] {
        let pair = Pair::new(Joint::Wireguard, shape, ring)?;
        all.push(Candidate::new(&of("line", how), pair.into_pass(direction)));
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
