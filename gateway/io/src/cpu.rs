//! Which processors a thread runs on.

use std::io;

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// The processors that this thread may run on, in ascending order (a container or `taskset` may leave us only some).
///
/// # Errors
/// When the kernel does not say, which it does only on machines with more processors than we can name.
pub fn allowed() -> io::Result<Vec<usize>> {
    let set = sched_getaffinity(None)?;
    Ok((0..CpuSet::MAX_CPU).filter(|&cpu| set.is_set(cpu)).collect())
}

/// Ties the current thread to processor `cpu`.
///
/// # Errors
/// When there is no such processor, or we may not use it.
pub fn pin_current_thread(cpu: usize) -> io::Result<()> {
    if cpu >= CpuSet::MAX_CPU {
        return Err(io::Error::from_raw_os_error(libc::EINVAL));
    }
    let mut set = CpuSet::new();
    set.set(cpu);
    Ok(sched_setaffinity(None, &set)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pinned_thread_has_one_processor_left() {
        let all = allowed().unwrap();
        assert!(!all.is_empty());
        let last = *all.last().unwrap();
        let left = std::thread::spawn(move || {
            pin_current_thread(last).unwrap();
            allowed().unwrap()
        });
        assert_eq!(left.join().unwrap(), [last]);
        assert!(pin_current_thread(1 << 20).is_err());
    }
}
