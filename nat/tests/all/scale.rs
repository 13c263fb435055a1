//! A million sessions, each with a mapping of its own: memory, and what expiry does.

use std::process::Command;

use trieste_nat::EgressKind;

use crate::support::*;

/// Resident memory of this process in bytes.
fn resident() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").expect("Linux says how much memory there is");
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).expect("in this line");
    let kibibytes = line.split_whitespace().nth(1).and_then(|number| number.parse::<usize>().ok());
    kibibytes.expect("in KiB") * 1024
}

/// The name of the test below, and what tells it that it has a process of its own.
const TEST: &str = "scale::a_million_sessions_and_mappings_take_less_than_256_mebibytes";
const ALONE: &str = "TRIESTE_TEST_ALONE";

#[test]
#[expect(clippy::disallowed_methods, reason = "memory is measured where no other test takes any")]
fn a_million_sessions_and_mappings_take_less_than_256_mebibytes() {
    if std::env::var(ALONE).is_err() {
        let mut own = Command::new(std::env::current_exe().unwrap());
        let output = own.args(["--exact", TEST, "--nocapture"]).env(ALONE, "1").output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout);
        print!("{text}{}", String::from_utf8_lossy(&output.stderr));
        assert!(output.status.success() && text.contains("1 passed"), "the test fails in its own process");
        return;
    }
    let globals: Vec<_> = (1..=40).map(|last| [242, 1, 0, last].into()).collect();
    let mut builder = builder(1);
    let cluster = builder.egress(EgressKind::Cluster, "cluster", &globals).unwrap();
    builder.member(cluster, "10.0.0.0/8".parse().unwrap());
    let before = resident();
    let mut lab = Lab::with(builder.build(), |config| config.limits.sessions = 1 << 20);
    let empty = resident() - before;
    let mut number = 0_u32;
    while lab.nat.stats().sessions < 1 << 20 {
        for _ in 0..10_000 {
            let [low, high, third, _] = (number >> 4).to_le_bytes();
            let port = 20_000 + u16::try_from(number & 15).unwrap();
            let pod = [10, 1 + third, high, low].into();
            let _ = lab.leave(&tcp(2, (pod, port), (REMOTE, 80)));
            number += 1;
        }
    }
    let full = resident() - before;
    let stats = lab.nat.stats();
    assert_eq!((stats.sessions, stats.mappings), (1 << 20, 1 << 20));
    let mebibytes = full >> 20;
    println!("empty {} MiB, with 1048576 sessions and mappings {mebibytes} MiB", empty >> 20);
    assert!(mebibytes <= 256, "{mebibytes} MiB");
    lab.wait(1000);
    let mut calls = 0;
    while lab.nat.expire(lab.now, 256) > 0 {
        calls += 1;
    }
    assert_eq!(calls, (1 << 20) / 256);
    assert_eq!(lab.nat.stats().mappings, 0);
}
