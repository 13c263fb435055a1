//! Which seeds are run, and how one that failed is run again.
//!
//! * `TRIESTE_SIM_SEEDS=10000`: so many schedules of each simulation instead of 1,000; one that costs more runs its share.
//! * `TRIESTE_SIM_SEED=17`: this one alone (with `TRIESTE_SIM_SEEDS`: so many from this one on).
//! * `TRIESTE_SIM_BASE=TEXT`: where seeds start. `./dev test --nightly` sets it to the commit, so that every night tries
//!   others and is repeatable; without it they start at 0, and a run that fails has found what the change did.
//! * `TRIESTE_SIM_TRACE=1`: a simulation that can tells its story.

use std::sync::atomic::{AtomicU64, Ordering};

/// How many schedules a simulation runs that costs little.
const USUAL: u64 = 1000;

/// Runs `schedule` with `count` seeds, or what the environment makes of that, on all cores. Prints the seed that panics
/// and the command that repeats it, `test` being the test's name.
pub fn each(test: &str, count: u64, schedule: impl Fn(u64) + Sync) {
    let variable = |name: &str| std::env::var(name).ok();
    let (first, count) = Environment {
        base: variable("TRIESTE_SIM_BASE").filter(|base| !base.is_empty()),
        seed: variable("TRIESTE_SIM_SEED").map(|seed| number("TRIESTE_SIM_SEED", &seed)),
        seeds: variable("TRIESTE_SIM_SEEDS").map(|seeds| number("TRIESTE_SIM_SEEDS", &seeds)),
    }
    .seeds(count);
    let next = AtomicU64::new(0);
    let workers = std::thread::available_parallelism().map_or(2, usize::from);
    std::thread::scope(|scope| {
        let work = || {
            while let index = next.fetch_add(1, Ordering::Relaxed)
                && index < count
            {
                let running = Running { test, seed: first + index, next: &next, end: count };
                schedule(running.seed);
                std::mem::forget(running);
            }
        };
        (1..workers.min(usize::try_from(count).unwrap_or(workers))).for_each(|_| drop(scope.spawn(work)));
        work();
    });
}

/// Returns `true` if a simulation is to tell its story.
#[must_use]
pub fn is_traced() -> bool {
    std::env::var_os("TRIESTE_SIM_TRACE").is_some_and(|value| value != "0" && !value.is_empty())
}

/// What the environment says about seeds.
#[derive(Debug, Default)]
struct Environment {
    base: Option<String>,
    seed: Option<u64>,
    seeds: Option<u64>,
}

impl Environment {
    /// Returns the first seed and how many are run, of a simulation that usually runs `count`.
    fn seeds(&self, count: u64) -> (u64, u64) {
        match (self.seed, self.seeds) {
            (Some(seed), seeds) => (seed, seeds.unwrap_or(1)),
            (None, seeds) => {
                (self.base.as_deref().map_or(0, start), (count * seeds.unwrap_or(USUAL) / USUAL).max(1))
            }
        }
    }
}

/// Where seeds start for a base: anywhere below 2^48 (FNV-1a, folded).
fn start(base: &str) -> u64 {
    let hash = base.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    });
    (hash ^ hash >> 48) & 0xffff_ffff_ffff
}

fn number(variable: &str, text: &str) -> u64 {
    text.parse().unwrap_or_else(|_| panic!("{variable} is not a number: {text}"))
}

/// A schedule that runs; dropped by a panic alone.
struct Running<'a> {
    test: &'a str,
    seed: u64,
    next: &'a AtomicU64,
    end: u64,
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        // The others stop after what they are at.
        self.next.store(self.end, Ordering::Relaxed);
        eprintln!(
            "seed {seed} failed; again: TRIESTE_SIM_SEED={seed} ./dev test {}",
            self.test,
            seed = self.seed
        );
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    #[test]
    fn a_simulation_runs_its_share_of_what_is_asked_for() {
        let asked = |seeds| Environment { seeds, ..Environment::default() };
        assert_eq!(asked(None).seeds(40), (0, 40));
        assert_eq!(asked(Some(10_000)).seeds(40), (0, 400));
        assert_eq!(asked(Some(10_000)).seeds(1000), (0, 10_000));
        assert_eq!(asked(Some(10)).seeds(1), (0, 1));
    }

    #[test]
    fn one_seed_is_repeated_whatever_the_commit() {
        let environment = Environment { base: Some("2557899".to_owned()), seed: Some(17), seeds: None };
        assert_eq!(environment.seeds(1000), (17, 1));
        assert_eq!(Environment { seeds: Some(5), ..environment }.seeds(1000), (17, 5));
    }

    #[test]
    fn seeds_follow_the_commit_and_nothing_else() {
        let first =
            |base: &str| Environment { base: Some(base.to_owned()), ..Environment::default() }.seeds(1).0;
        assert_eq!(first("2557899"), first("2557899"));
        assert_ne!(first("2557899"), first("0db15c4"));
        assert!(first("2557899") < 1 << 48);
    }

    #[test]
    fn each_runs_every_seed_once() {
        let seen = Mutex::new(Vec::new());
        each("each_runs_every_seed_once", 50, |seed| seen.lock().unwrap().push(seed));
        let mut seen = seen.into_inner().unwrap();
        seen.sort_unstable();
        seen.dedup();
        assert!(!seen.is_empty());
        assert!(seen.windows(2).all(|pair| pair[1] == pair[0] + 1), "{seen:?}");
    }

    #[test]
    #[should_panic(expected = "this one")]
    fn a_schedule_that_panics_fails_the_test() {
        each("a_schedule_that_panics_fails_the_test", 1, |_| panic!("this one"));
    }
}
