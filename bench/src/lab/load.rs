//! Who used the CPUs: the candidate's daemons, the whole machine, and whoever has nothing to do with the run.
//!
//! Others are found by subtraction, so that processes which come and go between two readings count as well: what
//! the machine spent in processes, less the daemons, both ends of iperf3, the bench itself and the kernel's threads.
//! Time in interrupts belongs to nobody and is taken to be the run's.

use std::time::Instant;

use trieste_tests::process::ProcessId;

use crate::stat::{Busy, seconds};

/// CPU time so far, in seconds.
pub(super) struct Load {
    at: Instant,
    daemons: f64,
    machine: f64,
    others: f64,
}

/// CPU time between two readings.
pub(super) struct Spent {
    /// Seconds of the candidate's daemons.
    pub(super) daemons: f64,
    /// Seconds of everything on the machine.
    pub(super) machine: f64,
    /// Share of all CPUs that went to other processes, or to other machines on the same host.
    pub(super) other_load: f64,
}

impl Load {
    /// Reads all of it; `server` is the receiver, where it is not this process. iperf3's client is a child that has been waited
    /// for, or not started yet.
    ///
    /// # Errors
    /// When a daemon has ended.
    pub(super) fn read(daemons: &[ProcessId], server: Option<ProcessId>) -> anyhow::Result<Self> {
        let busy = Busy::read()?;
        let mut spent = 0.0;
        for daemon in daemons {
            spent += daemon.cpu_seconds()?;
        }
        let own = Usage::read("self").map_or(0.0, |usage| usage.own + usage.children);
        let run = spent
            + server.and_then(|server| server.cpu_seconds().ok()).unwrap_or(0.0)
            + own
            + kernel_threads()?;
        Ok(Self {
            at: Instant::now(),
            daemons: spent,
            machine: busy.processes + busy.interrupts,
            others: busy.processes - run + busy.stolen,
        })
    }

    /// What was used since `before`.
    pub(super) fn since(&self, before: &Self) -> Spent {
        let cpus = std::thread::available_parallelism().map_or(1.0, |count| count.get() as f64);
        let wall = self.at.duration_since(before.at).as_secs_f64() * cpus;
        Spent {
            daemons: self.daemons - before.daemons,
            machine: self.machine - before.machine,
            other_load: ((self.others - before.others) / wall.max(f64::MIN_POSITIVE)).max(0.0),
        }
    }
}

/// What one process has used.
struct Usage {
    parent: i32,
    own: f64,
    /// By children that it has waited for.
    children: f64,
}

impl Usage {
    fn read(pid: &str) -> Option<Self> {
        let text = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        // Fields count from the bracket that closes the second one, a name that may hold anything.
        let (_, rest) = text.rsplit_once(')')?;
        let fields: Vec<&str> = rest.split_whitespace().collect();
        let time = |field: usize| fields.get(field - 3)?.parse().ok().map(seconds);
        Some(Self {
            parent: fields.get(1)?.parse().ok()?,
            own: time(14)? + time(15)?,
            children: time(16)? + time(17)?,
        })
    }
}

fn kernel_threads() -> anyhow::Result<f64> {
    let mut sum = 0.0;
    for entry in std::fs::read_dir("/proc")? {
        let name = entry?.file_name();
        let pid = name.to_str().filter(|name| name.bytes().all(|byte| byte.is_ascii_digit()));
        if let Some(usage) = pid.and_then(Usage::read).filter(|usage| usage.parent == 2) {
            sum += usage.own;
        }
    }
    Ok(sum)
}
