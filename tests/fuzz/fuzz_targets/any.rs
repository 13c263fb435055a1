//! libFuzzer's door to every target; `TRIESTE_FUZZ_TARGET` names the one to run.
#![no_main]

use std::sync::OnceLock;

use libfuzzer_sys::fuzz_target;
use trieste_tests::fuzz::TARGETS;

static TARGET: OnceLock<fn(&[u8])> = OnceLock::new();

fuzz_target!(|data: &[u8]| {
    let target = TARGET.get_or_init(|| {
        let name = std::env::var("TRIESTE_FUZZ_TARGET").unwrap_or_default();
        let known: Vec<_> = TARGETS.iter().map(|(name, _)| *name).collect();
        let found = TARGETS.iter().find(|(other, _)| *other == name);
        found.unwrap_or_else(|| panic!("set TRIESTE_FUZZ_TARGET to one of {known:?}")).1
    });
    target(data);
});
