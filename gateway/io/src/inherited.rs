//! Descriptors that the process was started with, by systemd's convention (`sd_listen_fds(3)`): `LISTEN_PID` names
//! the process, `LISTEN_FDS` says how many there are from 3 on, `LISTEN_FDNAMES` what they are for.
#![expect(unsafe_code, reason = "a descriptor's number says nothing of its owner; the environment does")]

use std::env;
use std::os::fd::{FromRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicBool, Ordering};

/// The first descriptor that is passed on.
const FIRST: RawFd = 3;
/// More than any supervisor passes on; a larger number is a mistake.
const MOST: usize = 1024;

/// What the environment says: a name for every descriptor.
fn announced(pid: u32, variable: impl Fn(&str) -> Option<String>) -> Vec<String> {
    let number = |name: &str| variable(name).and_then(|text| text.parse::<usize>().ok());
    let is_ours = number("LISTEN_PID").is_some_and(|for_pid| u32::try_from(for_pid) == Ok(pid));
    let count = number("LISTEN_FDS").filter(|count| is_ours && *count <= MOST).unwrap_or(0);
    let names = variable("LISTEN_FDNAMES").unwrap_or_default();
    let mut names = names.split(':');
    (0..count).map(|_| names.next().unwrap_or_default().to_owned()).collect()
}

/// The descriptors that were passed to this process, with their names, in order; all of them the first time, none
/// after that. Numbers behind which nothing is open are left out; programs that we start do not inherit the others.
#[must_use]
pub fn take() -> Vec<(String, OwnedFd)> {
    static TAKEN: AtomicBool = AtomicBool::new(false);
    if TAKEN.swap(true, Ordering::SeqCst) {
        return Vec::new();
    }
    let names = announced(std::process::id(), |name| env::var(name).ok());
    (FIRST..)
        .zip(names)
        .filter(|&(number, _)| close_on_exec(number))
        .map(|(number, name)| {
            // SAFETY: the descriptor is open, or it would have been left out. Whoever set `LISTEN_PID` to our process has
            // left it to us alone, and `TAKEN` keeps it from being given out twice.
            (name, unsafe { OwnedFd::from_raw_fd(number) })
        })
        .collect()
}

/// Keeps a descriptor from our children. `false` when there is none of that number.
fn close_on_exec(number: RawFd) -> bool {
    // SAFETY: the call takes integers only, and changes a flag at most.
    unsafe { libc::fcntl(number, libc::F_SETFD, libc::FD_CLOEXEC) >= 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(pid: u32, count: &str, names: &str) -> Vec<String> {
        announced(pid, |name| {
            Some(match name {
                "LISTEN_PID" => "42".to_owned(),
                "LISTEN_FDS" => count.to_owned(),
                _ => names.to_owned(),
            })
        })
    }

    #[test]
    fn only_descriptors_for_this_process_are_counted() {
        assert_eq!(names(42, "2", "tun:udp"), ["tun", "udp"]);
        assert_eq!(names(42, "3", "tun"), ["tun", "", ""]);
        assert!(names(43, "2", "tun:udp").is_empty());
        assert!(names(42, "many", "").is_empty());
        assert!(names(42, "99999999", "").is_empty());
    }
}
