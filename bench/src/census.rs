//! What happens per packet besides time passing: allocations, system calls, locks, clock reads.
//!
//! The program runs a fixed piece of work under valgrind's callgrind, which executes every instruction one by one
//! and counts: once with few passes, once with twice as many. The difference, divided by the packets of the extra
//! passes, is exact, deterministic and free of whatever happens at the start.
//!
//! * Allocations are calls of `malloc`, `calloc`, `realloc`, `posix_memalign` and `aligned_alloc`.
//! * Clock reads are calls of `clock_gettime`, less the bench's own.
//! * System calls are callgrind's own count, less those that read the clock (under valgrind there is no vDSO).
//! * Locks have no calls to count, because taking a free one is a single inlined instruction. So executed
//!   instructions with a `lock` prefix (and `xchg` with memory, which locks by itself) are counted by the source
//!   file that they were compiled from: a mutex's (parking_lot's, std's) or anything else's (reference counts,
//!   queues).

mod instrument;

use std::path::Path;

use anyhow::Context;
use clap::Args;
use serde::Serialize;

use crate::pair::{Direction, Joint, Pair, Translated};
use crate::report::Table;
use crate::traffic::Shape;
use instrument::{Atomics, Owner};

/// Passes of the shorter run; the longer one has twice as many.
const PASSES: u32 = 4;
/// Clock reads of each pass that are the bench's own: before and after.
const TIMING_READS: u32 = 2;
/// Flows: all have been seen when the shorter run ends, so that the longer one adds no entry to any table.
pub(crate) const FLOWS: u32 = 32;
/// Packets of each pass.
const PACKETS: usize = 352;

/// The fixed piece of work.
#[derive(Debug, Clone, Copy, Args)]
pub(crate) struct Workload {
    /// What is done.
    #[arg(value_enum)]
    case: Case,
    /// How often.
    passes: u32,
}

/// What is counted: the whole line, 1420 bytes, as many flows as the shorter run sees all of.
#[derive(Debug, Clone, Copy, clap::ValueEnum, Serialize)]
#[serde(rename_all = "kebab-case")]
enum Case {
    OutboundTrain,
    OutboundSingle,
    InboundTrain,
    InboundSingle,
    EspOutboundTrain,
    EspOutboundSingle,
    EspInboundTrain,
    EspInboundSingle,
    GlobalnetOutboundTrain,
    GlobalnetOutboundSingle,
    GlobalnetInboundTrain,
    GlobalnetInboundSingle,
}

impl Case {
    const ALL: [Self; 12] = [
        Self::OutboundTrain,
        Self::OutboundSingle,
        Self::InboundTrain,
        Self::InboundSingle,
        Self::EspOutboundTrain,
        Self::EspOutboundSingle,
        Self::EspInboundTrain,
        Self::EspInboundSingle,
        Self::GlobalnetOutboundTrain,
        Self::GlobalnetOutboundSingle,
        Self::GlobalnetInboundTrain,
        Self::GlobalnetInboundSingle,
    ];

    fn name(self) -> &'static str {
        match self {
            Self::OutboundTrain => "outbound-train",
            Self::OutboundSingle => "outbound-single",
            Self::InboundTrain => "inbound-train",
            Self::InboundSingle => "inbound-single",
            Self::EspOutboundTrain => "esp-outbound-train",
            Self::EspOutboundSingle => "esp-outbound-single",
            Self::EspInboundTrain => "esp-inbound-train",
            Self::EspInboundSingle => "esp-inbound-single",
            Self::GlobalnetOutboundTrain => "globalnet-outbound-train",
            Self::GlobalnetOutboundSingle => "globalnet-outbound-single",
            Self::GlobalnetInboundTrain => "globalnet-inbound-train",
            Self::GlobalnetInboundSingle => "globalnet-inbound-single",
        }
    }

    fn direction(self) -> Direction {
        match self {
            Self::OutboundTrain
            | Self::OutboundSingle
            | Self::EspOutboundTrain
            | Self::EspOutboundSingle
            | Self::GlobalnetOutboundTrain
            | Self::GlobalnetOutboundSingle => Direction::Outbound,
            Self::InboundTrain
            | Self::InboundSingle
            | Self::EspInboundTrain
            | Self::EspInboundSingle
            | Self::GlobalnetInboundTrain
            | Self::GlobalnetInboundSingle => Direction::Inbound,
        }
    }

    fn shape(self) -> Shape {
        match self {
            Self::OutboundTrain
            | Self::InboundTrain
            | Self::EspOutboundTrain
            | Self::EspInboundTrain
            | Self::GlobalnetOutboundTrain
            | Self::GlobalnetInboundTrain => Shape::train(1420, FLOWS),
            Self::OutboundSingle
            | Self::InboundSingle
            | Self::EspOutboundSingle
            | Self::EspInboundSingle
            | Self::GlobalnetOutboundSingle
            | Self::GlobalnetInboundSingle => Shape::single(1420, FLOWS),
        }
    }

    fn joint(self) -> Joint {
        match self {
            Self::EspOutboundTrain
            | Self::EspOutboundSingle
            | Self::EspInboundTrain
            | Self::EspInboundSingle => Joint::Esp,
            Self::OutboundTrain
            | Self::OutboundSingle
            | Self::InboundTrain
            | Self::InboundSingle
            | Self::GlobalnetOutboundTrain
            | Self::GlobalnetOutboundSingle
            | Self::GlobalnetInboundTrain
            | Self::GlobalnetInboundSingle => Joint::Wireguard,
        }
    }

    fn translated(self) -> Translated {
        match self {
            Self::GlobalnetOutboundTrain | Self::GlobalnetOutboundSingle => Translated::East,
            Self::GlobalnetInboundTrain | Self::GlobalnetInboundSingle => Translated::West,
            Self::OutboundTrain
            | Self::OutboundSingle
            | Self::InboundTrain
            | Self::InboundSingle
            | Self::EspOutboundTrain
            | Self::EspOutboundSingle
            | Self::EspInboundTrain
            | Self::EspInboundSingle => Translated::No,
        }
    }

    /// The outbound case that a pass of this one begins with.
    fn begins_with(self) -> Option<Self> {
        match self {
            Self::InboundTrain | Self::GlobalnetInboundTrain => Some(Self::OutboundTrain),
            Self::InboundSingle | Self::GlobalnetInboundSingle => Some(Self::OutboundSingle),
            Self::EspInboundTrain => Some(Self::EspOutboundTrain),
            Self::EspInboundSingle => Some(Self::EspOutboundSingle),
            Self::OutboundTrain
            | Self::OutboundSingle
            | Self::EspOutboundTrain
            | Self::EspOutboundSingle
            | Self::GlobalnetOutboundTrain
            | Self::GlobalnetOutboundSingle => None,
        }
    }
}

/// Counts per packet.
#[derive(Debug, Serialize)]
pub(crate) struct Counts {
    case: Case,
    allocations: f64,
    system_calls: f64,
    clock_reads: f64,
    /// Locks taken by our own code and by libraries other than boringtun.
    locks: f64,
    /// Locks that boringtun takes around its replay window.
    boringtun_locks: f64,
    /// Other atomic read-modify-write instructions.
    other_atomics: f64,
    instructions: f64,
}

/// Does the work, within a function that the instrument can tell from what is around it.
///
/// # Errors
/// When it cannot be set up.
pub(crate) fn work(workload: &Workload) -> anyhow::Result<()> {
    let case = workload.case;
    let pair = Pair::translated(case.joint(), case.shape(), PACKETS, case.translated())?;
    let mut pass = pair.into_pass(workload.case.direction());
    for _ in 0..workload.passes {
        pass();
    }
    Ok(())
}

/// Counts for all cases.
///
/// # Errors
/// When valgrind or objdump is missing, or says what is not understood.
pub(crate) fn count() -> anyhow::Result<Vec<Counts>> {
    let program = std::env::current_exe().context("finding this program")?;
    let atomics = instrument::atomic_instructions(&program)?;
    Case::ALL.into_iter().map(|case| count_case(case, &program, &atomics)).collect()
}

/// A line's share: the longer run less the shorter one; and, because an inbound pass begins with an outbound one that
/// makes its datagrams, less that one's for inbound.
fn count_case(case: Case, program: &Path, atomics: &Atomics) -> anyhow::Result<Counts> {
    let counts = difference(case, program, atomics)?;
    match case.begins_with() {
        None => Ok(counts),
        Some(outbound) => Ok(counts.less(&difference(outbound, program, atomics)?)),
    }
}

fn difference(case: Case, program: &Path, atomics: &Atomics) -> anyhow::Result<Counts> {
    let run = |passes| instrument::run(program, &Workload { case, passes }, atomics);
    let (short, long) = (run(PASSES)?, run(2 * PASSES)?);
    let shape = case.shape();
    let packets = shape.trains(PACKETS) as f64 * f64::from(shape.segments) * f64::from(PASSES);
    let per_packet = |long: u64, short: u64| (long as f64 - short as f64) / packets;
    let mut counts = Counts {
        case,
        allocations: per_packet(long.allocations, short.allocations),
        system_calls: per_packet(long.system_calls, short.system_calls),
        clock_reads: per_packet(long.clock_reads, short.clock_reads + u64::from(TIMING_READS * PASSES)),
        locks: 0.0,
        boringtun_locks: 0.0,
        other_atomics: 0.0,
        instructions: per_packet(long.instructions, short.instructions),
    };
    let addresses: Vec<u64> = long.atomics.keys().copied().collect();
    for (address, owner) in addresses.iter().zip(instrument::owners(program, &addresses)?) {
        let before = short.atomics.get(address).copied().unwrap_or(0);
        let executed = per_packet(long.atomics[address], before);
        // A lock is taken by one such instruction and given back by another.
        match owner {
            Owner::BoringtunLock => counts.boringtun_locks += executed / 2.0,
            Owner::Lock => counts.locks += executed / 2.0,
            Owner::Other => counts.other_atomics += executed,
        }
    }
    Ok(counts)
}

impl Counts {
    fn less(self, other: &Self) -> Self {
        Self {
            case: self.case,
            allocations: self.allocations - other.allocations,
            system_calls: self.system_calls - other.system_calls,
            clock_reads: self.clock_reads - other.clock_reads,
            locks: self.locks - other.locks,
            boringtun_locks: self.boringtun_locks - other.boringtun_locks,
            other_atomics: self.other_atomics - other.other_atomics,
            instructions: self.instructions - other.instructions,
        }
    }
}

/// The counts for people.
pub(crate) fn table(counts: &[Counts]) -> String {
    let mut table = Table::new(&[
        "line",
        "allocations",
        "system calls",
        "clock reads",
        "locks",
        "boringtun's locks",
        "other atomics",
        "instructions",
    ]);
    // Minus zero is what rounding leaves of a difference.
    let cell = |value: f64| format!("{:.3}", if value.abs() < 0.0005 { 0.0 } else { value });
    for count in counts {
        table.row(vec![
            count.case.name().to_owned(),
            cell(count.allocations),
            cell(count.system_calls),
            cell(count.clock_reads),
            cell(count.locks),
            cell(count.boringtun_locks),
            cell(count.other_atomics),
            format!("{:.0}", count.instructions),
        ]);
    }
    table.text()
}
