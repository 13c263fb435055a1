//! Sees probes go by, on every device of the node, and counts datagrams between gateways.
//!
//! One JSON line each: `ready` once it looks, one for each sight, one for each direction of datagrams, `end`.

use std::collections::BTreeMap;
use std::io;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use trieste_control::process::host_name;
use trieste_vxlan::VX_PORT;

use super::NodeError;
use super::capture::Capture;
use super::token::Run;
use super::wire::{self, Outer, Seen};

/// Ours: longest watch in seconds.
pub const MAX_SECONDS: u32 = 300;
/// Ours: most sights that are told. A run sends a few dozen probes, each seen at most six times on a node.
const MAX_SIGHTS: usize = 4096;
/// Ours: most pairs of addresses and ports whose datagrams are counted.
const MAX_PAIRS: usize = 512;
/// Ours: how often the end is looked for.
const TICK: Duration = Duration::from_millis(100);

/// What to watch.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WatchRequest {
    /// The run whose probes are meant.
    pub run: Run,
    /// For how long, in seconds.
    pub seconds: u32,
    /// UDP ports whose datagrams are counted and looked into for probes.
    pub ports: Vec<u16>,
}

/// Whether a packet comes or goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Direction {
    /// Into the node.
    In,
    /// Out of it.
    Out,
}

/// A probe that went by.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sighting {
    /// When, by the node's clock.
    pub time: Timestamp,
    /// On which device.
    pub device: String,
    /// Whether it came or went.
    pub way: Direction,
    /// The packet.
    #[serde(flatten)]
    pub seen: Seen,
}

/// Datagrams between two addresses.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OuterCount {
    /// On which device.
    pub device: String,
    /// Whether they came or went.
    pub way: Direction,
    /// Between whom.
    #[serde(flatten)]
    pub outer: Outer,
    /// How many.
    pub packets: u64,
}

/// A line of a watch.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum WatchLine {
    /// It looks from now on.
    Ready {
        /// Who looks.
        hostname: String,
    },
    /// A probe.
    Sight(Sighting),
    /// Datagrams; told at the end.
    Outer(OuterCount),
    /// It has ended.
    End {
        /// Sights and pairs that were not told, being too many.
        untold: u64,
    },
}

/// Everything that a watch said.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct WatchReport {
    /// Probes, in the order in which they went by.
    pub sights: Vec<Sighting>,
    /// Datagrams.
    pub outer: Vec<OuterCount>,
    /// Whether it told all until its end.
    pub complete: bool,
}

impl WatchReport {
    /// Takes a line in.
    pub fn take(&mut self, line: WatchLine) {
        match line {
            WatchLine::Ready { .. } => {}
            WatchLine::Sight(sight) => {
                if self.sights.len() < MAX_SIGHTS {
                    self.sights.push(sight);
                }
            }
            WatchLine::Outer(count) => {
                if self.outer.len() < MAX_PAIRS {
                    self.outer.push(count);
                }
            }
            WatchLine::End { untold } => self.complete = untold == 0,
        }
    }
}

/// Watches until its time is over or `is_over` says so, and tells line after line; blocks.
///
/// # Errors
/// [`NodeError::Socket`] without `NET_RAW`, [`NodeError::Output`] when nobody takes a line.
pub fn watch(
    request: &WatchRequest,
    is_over: &dyn Fn() -> bool,
    tell: &mut dyn FnMut(&WatchLine) -> io::Result<()>,
) -> Result<(), NodeError> {
    let mut ports = request.ports.clone();
    ports.push(VX_PORT);
    let mut capture = Capture::open(&ports)?;
    let mut pairs: BTreeMap<(String, Direction, Outer), u64> = BTreeMap::new();
    let (mut told, mut untold) = (0, 0);
    let mut say = |line: &WatchLine| tell(line).map_err(NodeError::Output);
    say(&WatchLine::Ready { hostname: hostname() })?;
    let end = Instant::now() + Duration::from_secs(request.seconds.min(MAX_SECONDS).into());
    while let Some(left) = end.checked_duration_since(Instant::now()).filter(|left| !left.is_zero()) {
        if is_over() {
            break;
        }
        let Some(packet) = capture.next(left.min(TICK))? else { continue };
        if let Some(outer) = wire::outer(packet.bytes).filter(|outer| counts(outer, &request.ports)) {
            let key = (packet.device.to_owned(), packet.way, outer);
            let has_room = pairs.len() < MAX_PAIRS;
            match pairs.get_mut(&key) {
                Some(count) => *count += 1,
                None if has_room => drop(pairs.insert(key, 1)),
                None => untold += 1,
            }
        }
        let Some(seen) = wire::seen(packet.bytes, request.run) else { continue };
        if told == MAX_SIGHTS {
            untold += 1;
            continue;
        }
        told += 1;
        let (device, way) = (packet.device.to_owned(), packet.way);
        say(&WatchLine::Sight(Sighting { time: Timestamp::now(), device, way, seen }))?;
    }
    for ((device, way, outer), packets) in pairs {
        say(&WatchLine::Outer(OuterCount { device, way, outer, packets }))?;
    }
    say(&WatchLine::End { untold })
}

fn counts(outer: &Outer, ports: &[u16]) -> bool {
    ports.contains(&outer.destination_port) || ports.contains(&outer.source_port)
}

/// The node's own name for itself.
pub(super) fn hostname() -> String {
    host_name().unwrap_or_default().chars().take(253).collect()
}
