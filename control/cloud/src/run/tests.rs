//! Rounds on a played cloud: things by name, of which some need another one.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Mutex;

use trieste_control::steps::Record;

use super::*;
use crate::provider::Change;
use crate::rules::Wanted;

#[derive(Debug, Clone, PartialEq)]
struct Make {
    name: &'static str,
    waits: bool,
}

impl fmt::Display for Make {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "make {}", self.name)
    }
}

impl Change for Make {
    fn waits(&self) -> bool {
        self.waits
    }

    fn right(&self) -> Option<String> {
        Some("make".to_owned())
    }
}

/// A cloud that is to have a group, and rules in it.
#[derive(Default)]
struct Played {
    there: Mutex<BTreeSet<&'static str>>,
    denied: bool,
    /// Whether it takes changes and does nothing.
    ignores: bool,
    asked_for_rights: Mutex<usize>,
}

impl Provider for Played {
    type State = BTreeSet<&'static str>;
    type Change = Make;

    fn name(&self) -> String {
        "the cloud".to_owned()
    }

    async fn observe(&self) -> Result<Self::State, CloudError> {
        Ok(self.there.lock().unwrap().clone())
    }

    fn plan(&self, _: &Goal, state: &Self::State) -> Result<Plan<Make>, CloudError> {
        let missing = ["group", "other", "rule"].into_iter().filter(|name| !state.contains(name));
        let change = |name| Make { name, waits: name == "rule" && !state.contains("group") };
        Ok(Plan { changes: missing.map(change).collect(), remarks: vec!["see to it".to_owned()] })
    }

    async fn denies(&self, change: &Make) -> Result<Option<String>, CloudError> {
        *self.asked_for_rights.lock().unwrap() += 1;
        Ok(self.denied.then(|| change.to_string()))
    }

    async fn apply(&self, change: &Make) -> Result<(), CloudError> {
        if !self.ignores {
            self.there.lock().unwrap().insert(change.name);
        }
        Ok(())
    }
}

fn goal() -> Goal {
    Goal::Prepare(Wanted::default())
}

#[tokio::test(start_paused = true)]
async fn what_waits_is_made_in_a_later_round_and_rights_are_asked_for_once() {
    let played = Played::default();
    let mut steps = Record::default();
    assert_eq!(reach(&played, &goal(), &mut steps).await.unwrap(), 3);
    let titles: Vec<&str> = steps.steps.iter().map(|step| step.title.as_str()).collect();
    let reading = "Reading what the cloud has";
    assert_eq!(titles, [reading, "Make group", "Make other", reading, "Make rule", reading]);
    assert_eq!(steps.steps[0].remarks.len(), 1, "said once: {steps}");
    assert_eq!(*played.asked_for_rights.lock().unwrap(), 1);
    assert_eq!(reach(&played, &goal(), &mut Record::default()).await.unwrap(), 0);
}

#[tokio::test(start_paused = true)]
async fn nothing_is_changed_without_the_rights_for_all_of_it() {
    let played = Played { denied: true, ..Played::default() };
    let error = reach(&played, &goal(), &mut Record::default()).await.unwrap_err();
    assert_eq!(error.to_string(), "nothing was changed: the credentials may not make group");
    assert!(played.there.lock().unwrap().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_cloud_that_takes_changes_and_does_nothing_is_named() {
    let played = Played { ignores: true, ..Played::default() };
    let error = reach(&played, &goal(), &mut Record::default()).await.unwrap_err();
    assert!(matches!(error, CloudError::Unsettled { .. }), "{error}");
    assert!(error.to_string().contains("make group; make other; make rule"), "{error}");
}
