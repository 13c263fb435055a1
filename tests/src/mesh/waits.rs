//! How long threads had to wait for a processor: the machine's doing, not theirs.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::process::ProcessId;

/// How often they are looked at. Shorter waits than this are summed up over it.
const LOOK: Duration = Duration::from_millis(20);

/// Looks at the threads of some processes until it is dropped or finished.
#[derive(Debug)]
pub struct Waits {
    is_over: Arc<AtomicBool>,
    thread: Option<JoinHandle<Duration>>,
}

impl Waits {
    /// Begins to look at the threads that these processes have now and whose names begin with `name`. Those of a process
    /// that ends meanwhile are forgotten.
    pub fn watch(processes: &[ProcessId], name: &str) -> Self {
        let mut threads: Vec<Thread> =
            processes.iter().flat_map(|process| threads_of(process.pid, name)).collect();
        let is_over = Arc::new(AtomicBool::new(false));
        let over = Arc::clone(&is_over);
        let thread = std::thread::spawn(move || {
            let mut longest = Duration::ZERO;
            while !over.load(Ordering::Relaxed) {
                std::thread::sleep(LOOK);
                longest = threads.iter_mut().filter_map(Thread::look).fold(longest, Duration::max);
            }
            longest
        });
        Self { is_over, thread: Some(thread) }
    }

    /// The longest that one of them had to wait within 20 ms, or at once.
    ///
    /// # Panics
    /// If the thread that looks has panicked.
    pub fn finish(mut self) -> Duration {
        self.is_over.store(true, Ordering::Relaxed);
        let thread = self.thread.take().expect("it is there until the end");
        thread.join().expect("the thread does not panic")
    }
}

impl Drop for Waits {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

struct Thread {
    /// Its `schedstat` (proc(5)): nanoseconds on a processor, nanoseconds waited for one, turns.
    path: PathBuf,
    waited: Duration,
}

impl Thread {
    /// What it has waited since the last look.
    fn look(&mut self) -> Option<Duration> {
        let waited = waited(&self.path)?;
        let since = waited.saturating_sub(self.waited);
        self.waited = waited;
        Some(since)
    }
}

fn threads_of(pid: i32, name: &str) -> Vec<Thread> {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let named = tasks.filter(|task| {
        std::fs::read_to_string(task.path().join("comm")).is_ok_and(|comm| comm.starts_with(name))
    });
    let paths = named.map(|task| task.path().join("schedstat"));
    paths.filter_map(|path| waited(&path).map(|waited| Thread { path, waited })).collect()
}

fn waited(schedstat: &std::path::Path) -> Option<Duration> {
    let text = std::fs::read_to_string(schedstat).ok()?;
    Some(Duration::from_nanos(text.split_whitespace().nth(1)?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_that_shares_a_processor_with_another_has_waited() {
        use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
        use nix::unistd::Pid;

        let own = ProcessId::of(std::process::id().cast_signed()).unwrap();
        let allowed = sched_getaffinity(Pid::from_raw(0)).unwrap();
        let first = (0..CpuSet::count()).find(|cpu| allowed.is_set(*cpu).unwrap()).unwrap();
        let is_over = Arc::new(AtomicBool::new(false));
        let busy: Vec<_> = (0..2)
            .map(|_| {
                let over = Arc::clone(&is_over);
                let work = move || {
                    let mut one = CpuSet::new();
                    one.set(first).unwrap();
                    sched_setaffinity(Pid::from_raw(0), &one).unwrap();
                    while !over.load(Ordering::Relaxed) {
                        std::hint::spin_loop();
                    }
                };
                std::thread::Builder::new().name("waits-busy".to_owned()).spawn(work).unwrap()
            })
            .collect();
        std::thread::sleep(Duration::from_millis(20));

        let waits = Waits::watch(&[own], "waits-busy");
        std::thread::sleep(Duration::from_millis(300));
        let longest = waits.finish();
        is_over.store(true, Ordering::Relaxed);
        for thread in busy {
            thread.join().unwrap();
        }

        assert!(longest > Duration::from_millis(1), "{longest:?}");
        assert!(Waits::watch(&[own], "nobody").finish().is_zero());
    }
}
