//! What globalnet costs: the line with translation against the line without, new flows, memory, expiry, and flows that
//! somebody has chosen.

mod expiry;
mod flooding;

use std::net::Ipv4Addr;
use std::time::Instant;

use anyhow::{Context, ensure};
use serde::Serialize;
use trieste_nat::{Facts, Kind, Nat, Rules};

use crate::measure::{Candidate, Rounds, Sample, Spread};
use crate::pair::{Direction, Joint, Pair, Translated, nat_config, rules};
use crate::report::Table;
use crate::traffic::Shape;
use expiry::Expiry;
use flooding::Flooding;

/// Sessions of the figures about memory, new flows and expiry.
const SESSIONS: u32 = 1_000_000;
/// Bytes of the packets.
const BYTES: u16 = 1420;

/// All figures.
#[derive(Debug, Serialize)]
pub(crate) struct Report {
    lines: Vec<Line>,
    sessions: Sessions,
    expiry: Expiry,
    flooding: Vec<Flooding>,
}

/// A line with translation and without.
#[derive(Debug, Serialize)]
struct Line {
    direction: Direction,
    /// Packets per train; 1 for single packets.
    segments: u16,
    flows: u32,
    /// ns per train (or single packet) of the line whose lane does nothing.
    without: Spread,
    with: Spread,
    /// What translation adds, ns per train: the median of the rounds' differences.
    added: f64,
}

/// A million sessions that begin.
#[derive(Debug, Serialize)]
struct Sessions {
    count: u32,
    /// Resident bytes that they added, all told.
    bytes: u64,
    bytes_per_session: f64,
    /// ns for each, mapping, port, session, filter and timer.
    ns_per_new_flow: f64,
    new_flows_per_second: f64,
}

/// Measures everything.
///
/// # Errors
/// When something cannot be set up, or a bound does not hold.
pub(crate) fn measure(flows: &[u32], rounds: Rounds, ring: usize) -> anyhow::Result<Report> {
    let sessions = begin_sessions()?;
    let expiry = expiry::measure()?;
    let flooding = flooding::measure()?;
    let mut lines = Vec::new();
    for direction in [Direction::Outbound, Direction::Inbound] {
        for &flows in flows {
            for shape in [Shape::train(BYTES, flows), Shape::single(BYTES, flows)] {
                lines.push(line(direction, shape, rounds, ring)?);
            }
        }
    }
    Ok(Report { lines, sessions, expiry, flooding })
}

fn line(direction: Direction, shape: Shape, rounds: Rounds, ring: usize) -> anyhow::Result<Line> {
    let trains = u32::try_from(shape.trains(ring))?;
    let candidate = |name: &str, translated| -> anyhow::Result<Candidate<'static>> {
        let mut pass = Pair::translated(joint(direction), shape, ring, translated)?.into_pass(direction);
        // Every flow has been seen before anything counts.
        for _ in 0..shape.flows.div_ceil(trains) {
            pass();
        }
        Ok(Candidate::new(name, pass))
    };
    let mut candidates =
        [candidate("without", Translated::No)?, candidate("with", Translated::in_direction(direction))?];
    let samples = rounds.interleave(&mut candidates);
    let per_train =
        |at: usize| -> Vec<f64> { samples[at].iter().map(|ns| ns * f64::from(shape.segments)).collect() };
    let (without, with) = (per_train(0), per_train(1));
    let added: Vec<f64> = with.iter().zip(&without).map(|(with, without)| with - without).collect();
    Ok(Line {
        direction,
        segments: shape.segments,
        flows: shape.flows,
        without: Spread::of(&without),
        with: Spread::of(&with),
        added: Spread::of(&added).median,
    })
}

/// Outbound a lane that swallows everything; inbound packets have to be opened to be translated.
fn joint(direction: Direction) -> Joint {
    match direction {
        Direction::Outbound => Joint::Sink,
        Direction::Inbound => Joint::Plain,
    }
}

/// The facts of the flow with a number: 65,536 sources, one destination.
pub(crate) fn facts(number: u32) -> Facts {
    let [_, _, c, d] = number.to_be_bytes();
    Facts {
        source: Ipv4Addr::new(10, 1, c, d),
        destination: Ipv4Addr::new(10, 2, 0, 1),
        source_port: 1024 + u16::try_from(number >> 16).unwrap_or(0),
        destination_port: 80,
        protocol: 17,
        kind: Kind::Udp,
    }
}

/// A translation and the rules for it.
pub(crate) fn nat(now: Instant) -> anyhow::Result<(Nat, Rules)> {
    Ok((Nat::new(nat_config(), 1, now), rules(1, "10.1.0.0/16".parse()?)?))
}

fn begin_sessions() -> anyhow::Result<Sessions> {
    let now = Instant::now();
    let before = resident_bytes()?;
    let (mut nat, rules) = nat(now)?;
    let sample = Sample::of(|| {
        (0..SESSIONS).filter(|&number| nat.in2out(&facts(number), &rules, now).is_ok()).count() as u64
    });
    ensure!(sample.packets == u64::from(SESSIONS), "only {} sessions began", sample.packets);
    let bytes = resident_bytes()?.saturating_sub(before);
    ensure!(nat.session_count() == SESSIONS, "sessions are lost");
    let ns = sample.elapsed.as_nanos() as f64 / f64::from(SESSIONS);
    Ok(Sessions {
        count: SESSIONS,
        bytes,
        bytes_per_session: bytes as f64 / f64::from(SESSIONS),
        ns_per_new_flow: ns,
        new_flows_per_second: 1e9 / ns,
    })
}

/// Memory of this process that is there.
fn resident_bytes() -> anyhow::Result<u64> {
    let text = std::fs::read_to_string("/proc/self/statm").context("reading /proc/self/statm")?;
    let pages: u64 = text.split(' ').nth(1).context("/proc/self/statm has another form")?.parse()?;
    Ok(pages * rustix::param::page_size() as u64)
}

impl Report {
    /// The figures for people.
    pub(crate) fn text(&self) -> String {
        let mut text = "\nGlobalnet, ns per train (1420 bytes), the lane left out:\n\n".to_owned();
        let mut table =
            Table::new(&["direction", "train", "flows", "without", "with", "added", "min", "max"]);
        for line in &self.lines {
            table.row(vec![
                line.direction.as_str().to_owned(),
                line.segments.to_string(),
                line.flows.to_string(),
                format!("{:.0}", line.without.median),
                format!("{:.0}", line.with.median),
                format!("{:.1}", line.added),
                format!("{:.0}", line.with.min),
                format!("{:.0}", line.with.max),
            ]);
        }
        text += &table.text();
        let Sessions { count, bytes, bytes_per_session, ns_per_new_flow, new_flows_per_second } =
            &self.sessions;
        text += &format!(
            "\n{count} sessions: {:.1} MiB resident, {bytes_per_session:.0} bytes each; {ns_per_new_flow:.0} ns for each that begins, {:.2} million per second\n",
            *bytes as f64 / f64::from(1 << 20),
            new_flows_per_second / 1e6,
        );
        text += &self.expiry.text();
        text += &flooding::text(&self.flooding);
        text
    }
}
