//! From a goal to a cloud that has it.

use std::collections::BTreeSet;
use std::time::Duration;

use trieste_control::steps::{Outcome, Steps};

use crate::CloudError;
use crate::provider::{Change as _, Goal, Plan, Provider};

/// Ours: how often a cloud is read again until nothing is left to be done. What one round makes the next one builds on; a cloud's
/// own answers may lag behind what it has taken.
const ROUNDS: u32 = 8;
/// Ours: how long to wait between two rounds, times the round.
const PAUSE: Duration = Duration::from_secs(1);

/// Reads what there is, and returns what would be done.
///
/// # Errors
/// [`CloudError`].
pub async fn plan<P: Provider>(provider: &P, goal: &Goal) -> Result<Plan<P::Change>, CloudError> {
    let state = provider.observe().await?;
    provider.plan(goal, &state)
}

/// Brings a cloud to a goal. Returns how many changes were made: none if everything was as it should be.
///
/// # Errors
/// [`CloudError::Denied`] before anything is changed if the credentials may not make a change that is planned; another
/// [`CloudError`] if a change fails, after which the same call goes on from there.
pub async fn reach<P: Provider>(
    provider: &P,
    goal: &Goal,
    steps: &mut dyn Steps,
) -> Result<usize, CloudError> {
    let mut done = 0;
    let mut changes = Vec::new();
    for round in 0..=ROUNDS {
        if round > 1 {
            tokio::time::sleep(PAUSE * (round - 1)).await;
        }
        steps.begin(&format!("Reading what {} has", provider.name()));
        let plan = plan(provider, goal).await?;
        let shown = if round == 0 { &plan.remarks[..] } else { &[] };
        steps.end(if shown.is_empty() { Outcome::Success } else { Outcome::Warning });
        shown.iter().for_each(|remark| steps.remark(Outcome::Warning, remark));
        changes = plan.changes;
        if changes.is_empty() {
            return Ok(done);
        }
        if round == 0 {
            check_rights(provider, &changes).await?;
        }
        if round == ROUNDS {
            break;
        }
        for change in changes.iter().filter(|change| !change.waits()) {
            steps.begin(&sentence(&change.to_string()));
            provider.apply(change).await?;
            steps.end(Outcome::Success);
            done += 1;
        }
    }
    let changes = changes.iter().map(ToString::to_string).collect();
    Err(CloudError::Unsettled { service: provider.name(), changes })
}

/// Asks for all rights before the first change, so that a run ends where it began rather than in the middle.
async fn check_rights<P: Provider>(provider: &P, changes: &[P::Change]) -> Result<(), CloudError> {
    let (mut denied, mut asked) = (Vec::new(), BTreeSet::new());
    let is_new = |change: &&P::Change| change.right().is_none_or(|right| asked.insert(right));
    for change in changes.iter().filter(is_new).collect::<Vec<_>>() {
        if let Some(what) = provider.denies(change).await?
            && !denied.contains(&what)
        {
            denied.push(what);
        }
    }
    if denied.is_empty() { Ok(()) } else { Err(CloudError::Denied(denied)) }
}

fn sentence(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map_or_else(String::new, |first| first.to_uppercase().chain(letters).collect())
}

#[cfg(test)]
mod tests;
