//! What all CPUs together have done since boot, as `/proc/stat` says.

use anyhow::Context;

/// CPU seconds since boot that were neither idle nor waiting. What guests used is among the processes' already.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Busy {
    /// In processes, user and kernel.
    pub(crate) processes: f64,
    /// In interrupts, hard and soft.
    pub(crate) interrupts: f64,
    /// Stolen by other machines on the same host.
    pub(crate) stolen: f64,
}

impl Busy {
    /// Reads it.
    ///
    /// # Errors
    /// When the kernel does not say.
    pub(crate) fn read() -> anyhow::Result<Self> {
        let stat = std::fs::read_to_string("/proc/stat").context("reading /proc/stat")?;
        let ticks = stat.lines().next().and_then(Self::ticks).context("/proc/stat has another form")?;
        Ok(Self {
            processes: seconds(ticks.processes),
            interrupts: seconds(ticks.interrupts),
            stolen: seconds(ticks.stolen),
        })
    }

    /// `cpu USER NICE SYSTEM IDLE WAITING IRQ SOFTIRQ STOLEN ...`, in ticks.
    fn ticks(line: &str) -> Option<Self> {
        let fields: Vec<f64> =
            line.split_whitespace().skip(1).map_while(|field| field.parse().ok()).collect();
        let [user, nice, system, _idle, _waiting, hard, soft, stolen, ..] = fields[..] else { return None };
        Some(Self { processes: user + nice + system, interrupts: hard + soft, stolen })
    }

    /// All of it.
    pub(crate) fn total(&self) -> f64 {
        self.processes + self.interrupts + self.stolen
    }
}

/// The kernel's ticks as seconds.
pub(crate) fn seconds(ticks: f64) -> f64 {
    ticks / rustix::param::clock_ticks_per_second() as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn idle_and_waiting_are_not_busy() {
        let total = |line| Busy::ticks(line).map(|busy| busy.total());
        assert_eq!(total("cpu  1 2 4 1000 2000 8 16 32 64 128"), Some(63.0));
        assert_eq!(total("cpu  1 2"), None);
    }
}
