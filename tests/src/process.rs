//! Naming a process beyond doubt: its ID and its start time, which together are never used twice.

use std::time::{Duration, Instant};

use anyhow::Context;
use nix::sys::signal::Signal;
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::process::PidfdFlags;
use serde::{Deserialize, Serialize};

/// One process, for as long as the machine runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessId {
    /// The kernel's process ID.
    pub pid: i32,
    /// Field 22 of `/proc/PID/stat`: clock ticks between boot and the start of the process.
    pub started: u64,
}

impl ProcessId {
    /// The process that has this ID at the moment.
    ///
    /// # Errors
    /// If there is none.
    pub fn of(pid: i32) -> anyhow::Result<Self> {
        let stat = Stat::read(pid)?;
        Ok(Self { pid, started: stat.started })
    }

    /// Whether it still runs; a zombie does not.
    pub fn is_running(self) -> bool {
        Stat::read(self.pid).is_ok_and(|stat| stat.started == self.started && !stat.is_dead())
    }

    /// Sends a signal; a process that is gone already is no error.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub fn signal(self, signal: Signal) -> anyhow::Result<()> {
        // The descriptor is taken first and the start time compared afterwards: the ID cannot change hands between.
        let Some(pid) = rustix::process::Pid::from_raw(self.pid) else { return Ok(()) };
        let Ok(descriptor) = rustix::process::pidfd_open(pid, PidfdFlags::empty()) else { return Ok(()) };
        if !self.is_running() {
            return Ok(());
        }
        let signal =
            rustix::process::Signal::from_named_raw(signal as i32).context("a signal without a name")?;
        match rustix::process::pidfd_send_signal(&descriptor, signal) {
            Ok(()) | Err(rustix::io::Errno::SRCH) => Ok(()),
            Err(error) => Err(error).with_context(|| format!("signalling process {}", self.pid)),
        }
    }

    /// Whether every thread of it has been stopped, or it has ended.
    pub fn stands_still(self) -> bool {
        self.is_every_thread(&['T', 't'])
    }

    /// Returns `true` if every thread of it sleeps until something happens, or it has ended.
    pub fn is_asleep(self) -> bool {
        self.is_every_thread(&['S'])
    }

    fn is_every_thread(self, states: &[char]) -> bool {
        let Ok(threads) = std::fs::read_dir(format!("/proc/{}/task", self.pid)) else { return true };
        let mut stats = threads.flatten().map(|thread| std::fs::read_to_string(thread.path().join("stat")));
        stats.all(|stat| {
            let stat = stat.ok().and_then(|text| Stat::parse(&text));
            stat.is_none_or(|stat| stat.is_dead() || states.contains(&stat.state))
        })
    }

    /// Waits until it has ended, at most `timeout`; says whether it has.
    pub fn wait_end(self, timeout: Duration) -> bool {
        let end = Instant::now() + timeout;
        let descriptor = rustix::process::Pid::from_raw(self.pid)
            .and_then(|pid| rustix::process::pidfd_open(pid, PidfdFlags::empty()).ok());
        let Some(descriptor) = descriptor else { return true };
        loop {
            if !self.is_running() {
                return true;
            }
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false;
            }
            let slice = Timespec::try_from(left.min(Duration::from_millis(100)));
            let mut polled = [PollFd::new(&descriptor, PollFlags::IN)];
            // An error here is an interrupted call: the loop looks again.
            let _ = rustix::event::poll(&mut polled, slice.ok().as_ref());
        }
    }

    /// SIGTERM, then SIGKILL for what does not listen within `grace`.
    pub fn end(self, grace: Duration) {
        let _ = self.signal(Signal::SIGTERM);
        if !self.wait_end(grace) {
            let _ = self.signal(Signal::SIGKILL);
            self.wait_end(Duration::from_secs(2));
        }
    }

    /// User and system CPU time used so far, in seconds.
    ///
    /// # Errors
    /// If the process is gone.
    pub fn cpu_seconds(self) -> anyhow::Result<f64> {
        let stat = Stat::read(self.pid)?;
        anyhow::ensure!(stat.started == self.started, "process {} is gone", self.pid);
        Ok(stat.cpu_ticks as f64 / rustix::param::clock_ticks_per_second() as f64)
    }

    /// Resident memory in bytes.
    ///
    /// # Errors
    /// If the process is gone.
    pub fn resident_bytes(self) -> anyhow::Result<u64> {
        let text = std::fs::read_to_string(format!("/proc/{}/status", self.pid))
            .with_context(|| format!("process {} is gone", self.pid))?;
        let kibibytes = text.lines().find_map(|line| {
            let (_, value) = line.split_once("VmRSS:")?;
            value.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()
        });
        Ok(kibibytes.context("no VmRSS")? * 1024)
    }
}

/// What is needed of `/proc/PID/stat`.
struct Stat {
    state: char,
    started: u64,
    cpu_ticks: u64,
}

impl Stat {
    fn read(pid: i32) -> anyhow::Result<Self> {
        let text = std::fs::read_to_string(format!("/proc/{pid}/stat"))
            .with_context(|| format!("there is no process {pid}"))?;
        Self::parse(&text).with_context(|| format!("reading /proc/{pid}/stat"))
    }

    /// The second field is a name that may hold blanks and brackets: fields count from its closing one.
    fn parse(text: &str) -> Option<Self> {
        let (_, rest) = text.rsplit_once(')')?;
        let fields: Vec<&str> = rest.split_whitespace().collect();
        let number = |field: usize| fields.get(field - 3)?.parse::<u64>().ok();
        Some(Self {
            state: fields.first()?.chars().next()?,
            started: number(22)?,
            cpu_ticks: number(14)? + number(15)?,
        })
    }

    fn is_dead(&self) -> bool {
        matches!(self.state, 'Z' | 'X' | 'x')
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_brackets_does_not_shift_the_fields() {
        let text = "77 (a) b (c) S 1 77 77 0 -1 4194560 1 2 3 4 50 60 7 8 20 0 1 0 12345 9 9";

        let stat = Stat::parse(text).unwrap();

        assert_eq!((stat.state, stat.cpu_ticks, stat.started), ('S', 110, 12345));
    }

    #[test]
    fn a_stopped_process_stands_still() {
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let id = ProcessId::of(child.id().cast_signed()).unwrap();
        assert!(!id.stands_still());
        id.signal(Signal::SIGSTOP).unwrap();
        crate::wait::eventually("it stands still", Duration::from_secs(10), || {
            anyhow::ensure!(id.stands_still(), "it goes on");
            Ok(())
        })
        .unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(id.stands_still());
    }

    #[test]
    fn a_reused_process_id_is_another_process() {
        let own = ProcessId::of(std::process::id().cast_signed()).unwrap();
        let earlier = ProcessId { started: own.started - 1, ..own };

        assert!(own.is_running());
        assert!(!earlier.is_running());
        earlier.signal(Signal::SIGKILL).unwrap();
    }
}
