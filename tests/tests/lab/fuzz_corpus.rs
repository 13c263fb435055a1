//! Every fuzz target over its corpus, and over seeded mutations of it for a bounded time. A failure prints the input
//! in hexadecimal: put it into `tests/fuzz/corpus/TARGET/` with the fix.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::time::{Duration, Instant};

use trieste_tests::fuzz::{Mutator, TARGETS};

/// Per target, in seconds: `./dev test` stays quick. `TRIESTE_FUZZ_SECONDS` and `TRIESTE_FUZZ_SEED` (decimal) explore for
/// longer and elsewhere, `TRIESTE_FUZZ_TARGET` only one target, libFuzzer (`tests/fuzz`) with coverage.
const EXPLORE_SECONDS: u64 = 3;
const SEED: u64 = 0x7472_6965_7374_6500;

#[test]
fn no_input_of_the_corpus_breaks_a_law() {
    for (name, target) in TARGETS {
        let inputs = corpus(name);
        assert!(!inputs.is_empty(), "target {name} has no corpus");
        for input in inputs.iter().chain([&Vec::new()]) {
            run(name, *target, input);
        }
    }
}

#[test]
fn no_mutation_of_the_corpus_breaks_a_law() {
    let explore = Duration::from_secs(number("TRIESTE_FUZZ_SECONDS").unwrap_or(EXPLORE_SECONDS));
    let seed = number("TRIESTE_FUZZ_SEED").unwrap_or(SEED);
    let only = std::env::var("TRIESTE_FUZZ_TARGET").ok();
    for (name, target) in TARGETS.iter().filter(|(name, _)| only.as_deref().is_none_or(|only| only == *name))
    {
        let mut inputs = corpus(name);
        let mut mutator = Mutator::new(seed);
        let (start, mut count) = (Instant::now(), 0_usize);
        while start.elapsed() < explore {
            let (input, other) = (&inputs[count % inputs.len()], &inputs[(count / 7) % inputs.len()]);
            let mutated = mutator.mutate(input, other);
            run(name, *target, &mutated);
            count += 1;
            // Some mutations live on, so that changes add up.
            if count.is_multiple_of(64) && inputs.len() < 512 {
                inputs.push(mutated);
            }
        }
        eprintln!("{name}: {count} mutations, seed {seed}");
    }
}

fn number(variable: &str) -> Option<u64> {
    std::env::var(variable).ok()?.parse().ok()
}

fn corpus(name: &str) -> Vec<Vec<u8>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/corpus").join(name);
    let Ok(entries) = std::fs::read_dir(&folder) else { return Vec::new() };
    let mut paths: Vec<_> = entries.filter_map(|entry| Some(entry.ok()?.path())).collect();
    paths.sort();
    paths.iter().filter_map(|path| std::fs::read(path).ok()).collect()
}

fn run(name: &str, target: fn(&[u8]), input: &[u8]) {
    if catch_unwind(AssertUnwindSafe(|| target(input))).is_err() {
        let hex: String = input.iter().map(|byte| format!("{byte:02x}")).collect();
        panic!("target {name} fails for this input: {hex}");
    }
}
