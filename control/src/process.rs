//! The host's name, and the process metrics of every Prometheus client, so that the usual dashboards work.

use std::fs;
use std::io;
use std::time::Duration;

use jiff::Timestamp;

use crate::exposition::{Family, Kind, Page};

/// Where the kernel says the host's name, which is the pod's in a pod of its own network.
const HOST_NAME: &str = "/proc/sys/kernel/hostname";

/// Returns the host's name.
///
/// # Errors
/// The kernel's file cannot be read.
pub fn host_name() -> io::Result<String> {
    Ok(fs::read_to_string(HOST_NAME)?.trim().to_owned())
}

/// The process at a moment.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ProcessStats {
    /// CPU time of all threads, user and system.
    pub cpu: Duration,
    /// Bytes of memory that are resident.
    pub resident_bytes: u64,
    /// Bytes of address space.
    pub virtual_bytes: u64,
    /// Open file descriptors.
    pub open_fds: u64,
    /// Most file descriptors that may be open.
    pub max_fds: u64,
    /// Threads.
    pub threads: u64,
    /// Most bytes of address space that it may have.
    pub max_virtual_bytes: u64,
    /// Bytes that this network namespace has received and sent in IP packets, all processes together.
    pub network_bytes: (u64, u64),
}

impl ProcessStats {
    /// Reads `/proc/self`; `None` where it cannot be read.
    #[must_use]
    pub fn read() -> Option<Self> {
        let status = fs::read_to_string("/proc/self/status").ok()?;
        let limits = fs::read_to_string("/proc/self/limits").ok()?;
        let stat = fs::read_to_string("/proc/self/stat").ok()?;
        Some(Self {
            cpu: cpu_time(&stat)?,
            resident_bytes: status_field(&status, "VmRSS:")? * 1024,
            virtual_bytes: status_field(&status, "VmSize:")? * 1024,
            open_fds: u64::try_from(fs::read_dir("/proc/self/fd").ok()?.count()).ok()?,
            max_fds: limit(&limits, "Max open files")?,
            threads: status_field(&status, "Threads:")?,
            max_virtual_bytes: limit(&limits, "Max address space")?,
            network_bytes: network_bytes(&fs::read_to_string("/proc/self/net/netstat").ok()?)?,
        })
    }
}

/// Parses a field of `/proc/self/status`; sizes there are in KiB.
fn status_field(status: &str, name: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix(name))?;
    line.split_whitespace().next()?.parse().ok()
}

/// Parses user and system time, fields 14 and 15. The second field, the name, may contain anything, but ends with the last
/// parenthesis.
fn cpu_time(stat: &str) -> Option<Duration> {
    /// The unit of these fields towards programs, on every architecture that we build for.
    const TICKS_PER_SECOND: u64 = 100;
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace().skip(11);
    let user: u64 = fields.next()?.parse().ok()?;
    let system: u64 = fields.next()?.parse().ok()?;
    Some(Duration::from_millis((user + system) * (1000 / TICKS_PER_SECOND)))
}

/// Parses `InOctets` and `OutOctets` of `IpExt`: one line has the names, the next one the values.
fn network_bytes(netstat: &str) -> Option<(u64, u64)> {
    let mut lines = netstat.lines().filter_map(|line| line.strip_prefix("IpExt:"));
    let (names, values) = (lines.next()?, lines.next()?);
    let value = |name| {
        let at = names.split_whitespace().position(|other| other == name)?;
        values.split_whitespace().nth(at)?.parse().ok()
    };
    Some((value("InOctets")?, value("OutOctets")?))
}

/// Parses the soft limit of this name.
fn limit(limits: &str, name: &str) -> Option<u64> {
    let line = limits.lines().find_map(|line| line.strip_prefix(name))?;
    let soft = line.split_whitespace().next()?;
    if soft == "unlimited" { Some(u64::MAX) } else { soft.parse().ok() }
}

/// Writes them, with when the process started.
pub fn render(page: &mut Page, process: &ProcessStats, started: Timestamp) {
    let gauge = |name, help| Family::new(Kind::Gauge, name, help);
    let cpu = Family::new(
        Kind::Counter,
        "process_cpu_seconds_total",
        "Total user and system CPU time spent in seconds.",
    );
    page.add(cpu.with(process.cpu.as_secs_f64()));
    page.add(gauge("process_max_fds", "Maximum number of open file descriptors.").with(process.max_fds));
    let octets = |name, help, bytes| Family::new(Kind::Counter, name, help).with(bytes);
    let (received, sent) = process.network_bytes;
    page.add(octets(
        "process_network_receive_bytes_total",
        "Number of bytes received by the process over the network.",
        received,
    ));
    page.add(octets(
        "process_network_transmit_bytes_total",
        "Number of bytes sent by the process over the network.",
        sent,
    ));
    page.add(gauge("process_open_fds", "Number of open file descriptors.").with(process.open_fds));
    page.add(
        gauge("process_resident_memory_bytes", "Resident memory size in bytes.").with(process.resident_bytes),
    );
    page.add(
        gauge("process_start_time_seconds", "Start time of the process since unix epoch in seconds.")
            .with(started.as_duration().as_secs_f64()),
    );
    page.add(gauge("process_threads", "Number of OS threads.").with(process.threads));
    page.add(
        gauge("process_virtual_memory_bytes", "Virtual memory size in bytes.").with(process.virtual_bytes),
    );
    page.add(
        gauge("process_virtual_memory_max_bytes", "Maximum amount of virtual memory available in bytes.")
            .with(process.max_virtual_bytes),
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_has_memory_threads_and_files() {
        let stats = ProcessStats::read().unwrap();
        assert!(stats.resident_bytes > 1 << 20 && stats.virtual_bytes >= stats.resident_bytes, "{stats:?}");
        assert!(stats.threads >= 1 && stats.open_fds >= 3 && stats.max_fds >= stats.open_fds, "{stats:?}");
    }

    #[test]
    fn bytes_are_found_by_their_columns_names() {
        let netstat = "TcpExt: InOctets\nTcpExt: 9\nIpExt: InNoRoutes InOctets OutOctets\nIpExt: 1 20 30\n";
        assert_eq!(network_bytes(netstat), Some((20, 30)));
        assert_eq!(network_bytes("IpExt: InOctets\n"), None);
    }

    #[test]
    fn a_name_with_parentheses_and_spaces_does_not_shift_the_fields() {
        let stat = "7 (a) b (c) S 1 7 7 0 -1 4194560 1 0 0 0 150 25 0 0 20 0 1 0";
        assert_eq!(cpu_time(stat), Some(Duration::from_millis(1750)));
    }
}
