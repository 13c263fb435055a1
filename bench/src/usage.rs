//! What processes use of processor and memory.

use std::time::Instant;

use serde::{Serialize, Serializer};
use trieste_tests::process::ProcessId;

/// Processor and memory of so many processes.
#[derive(Debug, Clone, Copy, Serialize)]
pub(crate) struct Usage<const N: usize> {
    #[serde(skip)]
    at: Option<Instant>,
    /// Percent of one core in that time; seconds used so far, before [`Usage::since`].
    #[serde(serialize_with = "list")]
    pub(crate) cpu: [f64; N],
    /// MiB of resident memory.
    #[serde(serialize_with = "list")]
    pub(crate) memory_mib: [f64; N],
}

impl<const N: usize> Usage<N> {
    /// Reads what these processes have used so far.
    ///
    /// # Errors
    /// If one of them is gone.
    pub(crate) fn of(processes: [ProcessId; N]) -> anyhow::Result<Self> {
        let (mut cpu, mut memory_mib) = ([0.0; N], [0.0; N]);
        for (number, process) in processes.into_iter().enumerate() {
            cpu[number] = process.cpu_seconds()?;
            memory_mib[number] = process.resident_bytes()? as f64 / f64::from(1 << 20);
        }
        Ok(Self { at: Some(Instant::now()), cpu, memory_mib })
    }

    /// Returns what was used from then to now, in percent of one core.
    pub(crate) fn since(&self, before: &Self) -> Self {
        let between = |(now, then): (Instant, Instant)| now.duration_since(then).as_secs_f64();
        let seconds = self.at.zip(before.at).map_or(f64::NAN, between);
        let mut cpu = self.cpu;
        for (now, then) in cpu.iter_mut().zip(before.cpu) {
            *now = (*now - then) / seconds * 100.0;
        }
        Self { cpu, ..*self }
    }
}

/// Returns the percentage of a core that one of the kernel's clock ticks is, of a time so long.
pub(crate) fn cpu_step(seconds: f64) -> f64 {
    let tick_s = 1.0 / rustix::param::clock_ticks_per_second() as f64;
    tick_s / seconds * 100.0
}

/// Serde derives no array of a length that is a parameter.
fn list<const N: usize, S: Serializer>(values: &[f64; N], serializer: S) -> Result<S::Ok, S::Error> {
    values.as_slice().serialize(serializer)
}
