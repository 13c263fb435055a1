//! `trieste diagnose path` names the hop that is broken, and why: breakages of real clusters, one by one. The other
//! commands that look for what is wrong are run on the same clusters.

mod bed;
mod faults;
mod others;

use bed::Bed;
use faults::Fault;
use serde_json::Value;
use trieste_tests::cables;
use trieste_tests::wait::eventually;

use crate::shared::{PLAIN, SOON, lease};

/// Only breakages whose name has this in it are tried; for those who work on one of them.
const FILTER: &str = "TRIESTE_FAULT";

#[test]
fn the_broken_hop_is_named() {
    let Some(mut two) = lease(&PLAIN, "plain::diagnose::the_broken_hop_is_named") else { return };
    two.joined();
    let bed = Bed::new(&two).unwrap();
    bed.healthy().unwrap();
    let filter = std::env::var(FILTER).unwrap_or_default();
    let mut wrong = if filter.is_empty() { others::all(&bed) } else { Vec::new() };
    bed.two.say("the other commands");
    for ends in faults::ENDS.iter().filter(|ends| ends.verdict.name.contains(&filter)) {
        let told = bed.diagnose(ends.source, ends.destination, &["--no-probe-pod"]);
        let told = told.and_then(|told| check(&told, &ends.verdict));
        note(&bed, &ends.verdict, told, &mut wrong);
    }
    for fault in
        [faults::ON_THE_WAY, faults::BEHIND_THE_AGENT, faults::BETWEEN_CLUSTERS].into_iter().flatten()
    {
        if fault.needs_key && !cables::is_encrypted() {
            bed.two.say(&format!("– {}: this cable has no keys", fault.name));
        } else if fault.name.contains(&filter) {
            note(&bed, fault, break_and_ask(&bed, fault), &mut wrong);
        }
    }
    wrong.extend(bed.healthy().err().map(|error| format!("not healthy again: {error:#}")));
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
}

#[test]
fn every_breakage_is_in_the_documentation_and_no_other() {
    let page = include_str!("../../../../../docs/operations/diagnosis.md");
    let (_, rest) = page.split_once("## Breakages that are tried\n").unwrap();
    let section = rest.split("\n## ").next().unwrap();
    let rows: Vec<&str> = section.lines().filter(|line| line.starts_with("| ")).skip(1).collect();
    let expected: Vec<String> = faults::all()
        .map(|fault| {
            format!("| {} | `{}` | `{}` | … {} … |", fault.name, fault.hop, fault.cause, fault.remedy)
        })
        .collect();
    assert_eq!(rows, expected, "the table must be:\n{}", expected.join("\n"));
}

fn note(bed: &Bed<'_>, fault: &Fault, told: anyhow::Result<()>, wrong: &mut Vec<String>) {
    match told {
        Ok(()) => bed.two.say(&format!("✓ {}", fault.name)),
        Err(error) => {
            bed.two.say(&format!("✗ {}", fault.name));
            wrong.push(format!("{}: {error:#}", fault.name));
        }
    }
}

/// Breaks something, asks, and puts it right.
fn break_and_ask(bed: &Bed<'_>, fault: &Fault) -> anyhow::Result<()> {
    let flags: &[&str] = if fault.needs_pod { &[] } else { &["--no-probe-pod"] };
    let ask = || check(&bed.diagnose("far", "far", flags)?, fault);
    let states = bed.states(fault)?;
    let told = fault
        .inject
        .iter()
        .try_for_each(|(place, script)| bed.run(*place, script))
        .and_then(|()| if fault.is_slow { eventually("the verdict", SOON, ask) } else { ask() });
    for (place, script) in fault.undo {
        bed.run(*place, script)?;
    }
    told.and(bed.as_before(&states))
}

fn check(diagnosis: &Value, fault: &Fault) -> anyhow::Result<()> {
    let verdict = &diagnosis["verdict"];
    let health = if fault.is_broken { "broken" } else { "impaired" };
    let Fault { cause, hop, remedy, .. } = fault;
    let is_right = verdict["cause"] == *cause && verdict["hop"] == *hop && diagnosis["health"] == health;
    anyhow::ensure!(is_right, "wanted {cause} at {hop}, {health}, got {diagnosis:#}");
    let has_remedy = verdict["remedy"].as_str().is_some_and(|words| words.contains(remedy));
    anyhow::ensure!(has_remedy, "wanted a remedy with {remedy:?}, got {}", verdict["remedy"]);
    anyhow::ensure!(verdict["reason"].as_str().is_some_and(|words| !words.is_empty()), "no reason");
    Ok(())
}
