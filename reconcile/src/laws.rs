//! What holds for every plan, tested on a model of the host. For property tests of those who use this crate.

use std::fmt::Debug;

use crate::pass::{Host, Pass, pass, uninstall};

/// A host in memory.
pub trait Model: Host<Change: Debug, Error: Debug> + Clone {
    /// Everything that is not ours.
    type Foreign: PartialEq + Debug;

    /// Most passes until nothing is planned: more than one only where something cannot be planned before something else is there.
    const PASSES: usize = 1;

    /// Returns everything that is not ours.
    fn foreign(&self) -> Self::Foreign;

    /// Returns what is ours and still there, for the message of a failed test.
    fn ours(&self) -> Vec<String>;
}

/// What goes wrong while a plan is applied.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fault {
    /// This change fails, and the pass goes on.
    Fails,
    /// This change and all later ones are not made: the process ended.
    Ends,
}

/// Checks all laws for a host in some state and what is wanted of it. Of the changes of a plan the one of this number is hit by a
/// fault, counted from the beginning again after the last one, so that a test may choose any number.
///
/// # Errors
/// The law that is broken, and how.
pub fn check<M: Model>(host: &M, wanted: &M::Wanted, number: usize) -> Result<(), String> {
    let mut after = host.clone();
    settle(&mut after, wanted, "a plan applied")?;
    if let Some(at) = number.checked_rem(plan(host, wanted)?.len()) {
        for fault in [Fault::Fails, Fault::Ends] {
            let mut disturbed = host.clone();
            apply_with(&mut disturbed, wanted, fault, at)?;
            same(host, &disturbed, "a disturbed pass")?;
            settle(&mut disturbed, wanted, &format!("change {at} {fault:?}, and the pass after it"))?;
        }
    }
    for mut installed in [host.clone(), after] {
        settle(&mut installed, &M::Wanted::default(), "an uninstallation")?;
        let rest = uninstall(&mut installed).map_err(|error| format!("{error:?}"))?;
        let left = installed.ours();
        if !(rest.is_settled() && left.is_empty()) {
            return Err(format!("an uninstallation leaves {left:?}"));
        }
    }
    Ok(())
}

fn plan<M: Model>(host: &M, wanted: &M::Wanted) -> Result<Vec<M::Change>, String> {
    let observed = host.observe().map_err(|error| format!("cannot observe the host: {error:?}"))?;
    Ok(M::plan(wanted, &observed))
}

/// Makes as many passes as the model allows; then nothing may be planned, and what is not ours be as before.
fn settle<M: Model>(host: &mut M, wanted: &M::Wanted, what: &str) -> Result<(), String> {
    let before = host.clone();
    for _ in 0..M::PASSES {
        let pass = pass(host, wanted).map_err(|error| format!("cannot observe the host: {error:?}"))?;
        if !(pass.failed.is_empty() && pass.waiting.is_empty()) {
            return Err(format!("{what}: {:?} cannot be made: {:?}", pass.failed, pass.errors));
        }
    }
    same(&before, host, what)?;
    let rest = plan(host, wanted)?;
    if rest.is_empty() { Ok(()) } else { Err(format!("{what} leaves to plan: {rest:?}")) }
}

fn apply_with<M: Model>(host: &mut M, wanted: &M::Wanted, fault: Fault, at: usize) -> Result<(), String> {
    let mut plan = plan(host, wanted)?;
    if fault == Fault::Ends {
        plan.truncate(at);
    }
    let mut pass: Pass<M::Change, ()> = Pass::new(plan);
    let mut number = 0..;
    while let Some(change) = pass.next_change(M::waits) {
        let is_hit = number.next() == Some(at) && fault == Fault::Fails;
        let outcome = if is_hit { Err(()) } else { host.apply(&change).map_err(drop) };
        pass.record(change, outcome);
    }
    Ok(())
}

fn same<M: Model>(before: &M, after: &M, what: &str) -> Result<(), String> {
    let (before, after) = (before.foreign(), after.foreign());
    if before == after {
        return Ok(());
    }
    Err(format!("{what} changes what is not ours: {before:?} to {after:?}"))
}
