//! Runs a simulation's schedules, and says how to run one of them again.

use std::sync::atomic::{AtomicU64, Ordering};

/// Runs the schedules of `count` seeds on all cores, or those that the environment asks for: `TRIESTE_SIM_SEED` is the
/// first, `TRIESTE_SIM_SEEDS` how many. `module` is where the test stands.
pub(crate) fn each(module: &str, count: u64, schedule: impl Fn(u64) -> Result<(), String> + Sync) {
    let (first, end) = match (number("TRIESTE_SIM_SEED"), number("TRIESTE_SIM_SEEDS")) {
        (Some(first), more) => (first, first + more.unwrap_or(1)),
        (None, more) => (0, more.unwrap_or(count)),
    };
    let next = AtomicU64::new(first);
    let workers = std::thread::available_parallelism().map_or(2, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..workers {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= end {
                        return;
                    }
                    let failed = FailedSeed { module, seed };
                    assert_eq!(schedule(seed), Ok(()));
                    std::mem::forget(failed);
                }
            });
        }
    });
}

/// Names the seed whatever panics.
struct FailedSeed<'a> {
    module: &'a str,
    seed: u64,
}

impl Drop for FailedSeed<'_> {
    fn drop(&mut self) {
        eprintln!(
            "the schedule of seed {seed} failed; again: \
             TRIESTE_SIM_SEED={seed} cargo test -p trieste-control --test control {module}::",
            seed = self.seed,
            module = self.module,
        );
    }
}

fn number(variable: &str) -> Option<u64> {
    std::env::var(variable).ok()?.parse().ok()
}
