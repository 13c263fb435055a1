//! Which seeds are run.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

/// Runs `scenario` with each of `count` seeds, or with those that the environment asks for. A seed that fails is named.
pub(crate) fn each(name: &str, count: u64, scenario: impl Fn(u64)) {
    let seeds = match (number("TRIESTE_SIM_SEED"), number("TRIESTE_SIM_SEEDS")) {
        (Some(first), more) => first..first + more.unwrap_or(1),
        (None, more) => 0..more.unwrap_or(count),
    };
    for seed in seeds {
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| scenario(seed))) {
            println!(
                "seed {seed} failed; again: \
                 TRIESTE_SIM_SEED={seed} cargo test -p {} --test {} {name} -- --nocapture",
                env!("CARGO_PKG_NAME"),
                env!("CARGO_CRATE_NAME")
            );
            resume_unwind(panic);
        }
    }
}

/// Whether every message and order is to be printed.
pub(crate) fn is_traced() -> bool {
    number("TRIESTE_SIM_TRACE").is_some_and(|value| value > 0)
}

#[expect(clippy::disallowed_methods, reason = "whoever runs the tests says how many")]
fn number(variable: &str) -> Option<u64> {
    std::env::var(variable).ok()?.parse().ok()
}
