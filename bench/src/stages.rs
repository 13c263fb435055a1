//! Nanoseconds per packet of each stage and of the whole line, in memory; and what happens per packet besides.
//!
//! | stage | outbound | inbound |
//! |---|---|---|
//! | `parse` | one pass over the headers | |
//! | `line without lane` | parse, look the flow up, clamp, fit, group by lane | demultiplex and group by lane |
//! | `segment` | cut trains, finish checksums | |
//! | `coalesce` | | check checksums, build trains |
//! | `lane` | segment and seal into trains of datagrams | open side by side |
//! | `line, plain` | everything, with a cable that does no cryptography | the same |
//! | `line` | everything, with WireGuard | the same |
//!
//! Figures are per packet on the wire: what is done once for a train is divided by its packets.

use clap::Args;
use serde::Serialize;
use trieste_packet::coalesce::coalesce;
use trieste_packet::pool::TRAIN_SLOT_BYTES;
use trieste_packet::segment::Segmenter;
use trieste_packet::wire::Inner;
use trieste_packet::{Layout, LayoutKind, MAX_BATCH, Packet, Pool, PoolConfig};

use crate::cables::lane::{self, Feed};
use crate::census::{self, Counts};
use crate::flood;
use crate::globalnet;
use crate::machine::Circumstances;
use crate::measure::{Candidate, Rounds, Sample, Spread};
use crate::pair::{Direction, Joint, Pair};
use crate::paths;
use crate::report::{self, Table};
use crate::traffic::{Shape, Source};

/// Options of `stages`.
#[derive(Debug, Args)]
pub(crate) struct Options {
    #[command(flatten)]
    rounds: Rounds,
    /// Bytes of the inner packets.
    #[arg(long, value_delimiter = ',', default_values_t = [64, 512, 1420, 9000], value_parser = clap::value_parser!(u16).range(64..=9000))]
    sizes: Vec<u16>,
    /// Numbers of flows that take turns.
    #[arg(long, value_delimiter = ',', default_values_t = [1, 1_000, 100_000], value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    flows: Vec<u32>,
    /// Packets in the ring of buffers.
    #[arg(long, default_value_t = 1024, value_parser = clap::value_parser!(u16).range(64..=16384))]
    ring: u16,
    /// Numbers of flows that globalnet translates; none leaves it out.
    #[arg(long, value_delimiter = ',', default_values_t = [1_000, 1_000_000], value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    globalnet_flows: Vec<u32>,
    /// Leaves all but globalnet out.
    #[arg(long)]
    only_globalnet: bool,
    /// Leaves all but the watching of paths out.
    #[arg(long, conflicts_with = "only_globalnet")]
    only_paths: bool,
    /// Leaves all but one flow beside a flood of others out.
    #[arg(long, conflicts_with_all = ["only_globalnet", "only_paths"])]
    only_flood: bool,
    /// Leaves the counts out; they need valgrind and take half a minute.
    #[arg(long)]
    no_counts: bool,
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
    stages: Vec<Row>,
    /// Per packet, in steady state. Missing when they were not counted.
    counts: Vec<Counts>,
    #[serde(skip_serializing_if = "Option::is_none")]
    counts_missing: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    globalnet: Option<globalnet::Report>,
    paths: Vec<paths::Cost>,
    flood: Vec<flood::Cost>,
}

#[derive(Debug, Serialize)]
struct Row {
    direction: Direction,
    bytes: u16,
    /// Packets per train; 1 for single packets.
    segments: u16,
    flows: u32,
    stage: String,
    ns: Spread,
}

/// Measures and prints.
///
/// # Errors
/// When a stage cannot be set up.
pub(crate) fn run(options: &Options) -> anyhow::Result<()> {
    let circumstances = Circumstances::read();
    let (counts, counts_missing) = if options.no_counts || options.only_paths || options.only_flood {
        (Vec::new(), Some("not asked for".to_owned()))
    } else {
        match census::count() {
            Ok(counts) => (counts, None),
            Err(error) => (Vec::new(), Some(format!("{error:#}"))),
        }
    };
    let pinned_to = options.rounds.pin()?;
    // First, while nothing else has grown or shrunk the memory.
    let globalnet = match &options.globalnet_flows[..] {
        [] => None,
        _ if options.only_paths || options.only_flood => None,
        flows => Some(globalnet::measure(flows, options.rounds, usize::from(options.ring))?),
    };
    let mut stages = Vec::new();
    let has_all = !(options.only_globalnet || options.only_paths || options.only_flood);
    let paths = if has_all || options.only_paths { paths::measure()? } else { Vec::new() };
    let flood = if has_all || options.only_flood { flood::measure(options.rounds)? } else { Vec::new() };
    let sizes = if has_all { &options.sizes[..] } else { &[] };
    for direction in [Direction::Outbound, Direction::Inbound] {
        for &bytes in sizes {
            for is_train in [true, false] {
                for &flows in &options.flows {
                    let shape =
                        if is_train { Shape::train(bytes, flows) } else { Shape::single(bytes, flows) };
                    stages.extend(measure(options, direction, shape)?);
                }
            }
        }
    }
    let (rounds, ring) = (options.rounds.rounds, options.ring);
    let report = Report {
        circumstances,
        rounds,
        ring,
        pinned_to,
        stages,
        counts,
        counts_missing,
        globalnet,
        paths,
        flood,
    };
    if options.json { report::print_json(&report) } else { report::print(&text(&report)) }
}

fn measure(options: &Options, direction: Direction, shape: Shape) -> anyhow::Result<Vec<Row>> {
    let mut candidates =
        candidates(direction, shape, usize::from(options.ring), shape.flows == options.flows[0])?;
    let samples = options.rounds.interleave(&mut candidates);
    let rows = candidates.iter().zip(&samples).map(|(candidate, ns)| Row {
        direction,
        bytes: shape.bytes,
        segments: shape.segments,
        flows: shape.flows,
        stage: candidate.name.clone(),
        ns: Spread::of(ns),
    });
    Ok(rows.collect())
}

/// The stages of one direction. Those that know no flows are measured `with_single_stages` only.
fn candidates(
    direction: Direction,
    shape: Shape,
    ring: usize,
    with_single_stages: bool,
) -> anyhow::Result<Vec<Candidate<'static>>> {
    let mut all = Vec::new();
    if with_single_stages {
        match direction {
            Direction::Outbound => {
                all.push(Candidate::new("parse", in_place(shape, ring, parse)));
                all.push(Candidate::new("segment", in_place(shape, ring, segment)));
            }
            Direction::Inbound => all.push(Candidate::new("coalesce", coalescing(shape, ring))),
        }
        let feed = Feed { shape, batch: MAX_BATCH, ring };
        all.push(Candidate::new("lane", lane::pass(Joint::Wireguard, direction, feed)?));
    }
    for (name, joint) in
        [("line without lane", Joint::Sink), ("line, plain", Joint::Plain), ("line", Joint::Wireguard)]
    {
        all.push(Candidate::new(name, Pair::new(joint, shape, ring)?.into_pass(direction)));
    }
    Ok(all)
}

/// A ring of packets and a pool that they come from.
struct Bench {
    pool: Pool,
    source: Source,
    packets: Vec<Packet>,
    trains: usize,
}

impl Bench {
    fn new(shape: Shape, ring: usize) -> Self {
        let trains = shape.trains(ring);
        let pool = Pool::new(PoolConfig { slots: trains, slot_bytes: TRAIN_SLOT_BYTES });
        Self { pool, source: Source::new(shape), packets: Vec::with_capacity(trains), trains }
    }

    /// Fresh packets in all buffers.
    fn fill(&mut self) {
        for _ in 0..self.trains {
            self.packets.push(self.source.packet(&mut self.pool).expect("the pool has a slot for each"));
        }
    }
}

/// A pass over packets that does something to each.
fn in_place(shape: Shape, ring: usize, mut work: impl FnMut(&mut Packet) -> u64) -> impl FnMut() -> Sample {
    let mut bench = Bench::new(shape, ring);
    move || {
        bench.fill();
        let sample = Sample::of(|| bench.packets.iter_mut().map(&mut work).sum());
        bench.packets.drain(..).for_each(|packet| bench.pool.recycle(packet.buf));
        sample
    }
}

fn parse(packet: &mut Packet) -> u64 {
    if std::hint::black_box(Inner::parse(packet.bytes())).is_ok() { packet.segments() } else { 0 }
}

fn segment(packet: &mut Packet) -> u64 {
    let Ok(mut segmenter) = Segmenter::new(packet) else { return 0 };
    let mut count = 0;
    while let Some(segment) = segmenter.next_segment() {
        std::hint::black_box(segment);
        count += 1;
    }
    count
}

/// A pass that builds trains of packets that lie side by side, as a lane leaves them.
fn coalescing(shape: Shape, ring: usize) -> impl FnMut() -> Sample {
    let mut bench = Bench::new(shape, ring);
    let mut rows = Vec::with_capacity(bench.trains);
    let mut outputs = Vec::with_capacity(ring);
    let stride = (shape.bytes + 32).next_multiple_of(16);
    move || {
        bench.fill();
        let mut trains = std::mem::take(&mut bench.packets);
        // A row lies in the slot that its train came from, so that the memory is that of the other stages.
        rows.extend(trains.drain(..).map(|train| side_by_side(train, stride, &mut bench.pool)));
        bench.packets = trains;
        let sample = Sample::of(|| {
            for row in rows.drain(..) {
                coalesce(row, |packet| outputs.push(packet));
            }
            outputs.iter().map(Packet::segments).sum()
        });
        outputs.drain(..).for_each(|packet| bench.pool.recycle(packet.buf));
        sample
    }
}

/// Cuts a train into packets, one every `stride` bytes of a fresh buffer.
fn side_by_side(mut train: Packet, stride: u16, pool: &mut Pool) -> Packet {
    let mut bytes = Vec::new();
    let mut count = 0;
    if let Ok(mut segmenter) = Segmenter::new(&mut train) {
        while let Some(segment) = segmenter.next_segment() {
            bytes.resize(usize::from(count) * usize::from(stride), 0);
            bytes.extend_from_slice(segment);
            count += 1;
        }
    }
    pool.recycle(train.buf);
    let mut row = Packet::new(pool.alloc_copy(&bytes).expect("a slot has just come back"));
    let present = u64::MAX >> (64 - count);
    row.layout = Layout {
        kind: LayoutKind::Packets,
        header_bytes: 0,
        segment_bytes: stride,
        stride_bytes: stride,
        count,
        present,
    };
    row
}

fn text(report: &Report) -> String {
    let mut text = format!(
        "{}\n{} rounds, ring of {} packets, CPU {}; ns of thread CPU time per packet on the wire, median of the rounds\n\n",
        report.circumstances.line(),
        report.rounds,
        report.ring,
        report.pinned_to,
    );
    let mut table = Table::new(&["direction", "bytes", "train", "flows", "stage", "ns/packet", "min", "max"]);
    for row in &report.stages {
        table.row(vec![
            row.direction.as_str().to_owned(),
            row.bytes.to_string(),
            row.segments.to_string(),
            row.flows.to_string(),
            row.stage.clone(),
            format!("{:.1}", row.ns.median),
            format!("{:.1}", row.ns.min),
            format!("{:.1}", row.ns.max),
        ]);
    }
    text += &table.text();
    if let Some(globalnet) = &report.globalnet {
        text += &globalnet.text();
    }
    text += &paths::text(&report.paths);
    if !report.flood.is_empty() {
        text += &flood::text(&report.flood);
    }
    text += &format!(
        "\nPer packet on the wire, in steady state (1420 bytes, {} flows; what is done once per batch is a fraction):\n\n",
        census::FLOWS
    );
    match &report.counts_missing {
        Some(why) => text += &format!("not counted: {why}\n"),
        None => text += &census::table(&report.counts),
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_stage_does_all_of_its_work() {
        for direction in [Direction::Outbound, Direction::Inbound] {
            for shape in [Shape::train(1420, 10), Shape::single(512, 10), Shape::train(9000, 1)] {
                for mut candidate in candidates(direction, shape, 100, true).unwrap() {
                    let expected = shape.trains(100) as u64 * u64::from(shape.segments);
                    for _ in 0..2 {
                        assert_eq!((candidate.pass)().packets, expected, "{direction:?} {}", candidate.name);
                    }
                }
            }
        }
    }
}
