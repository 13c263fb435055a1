//! What happens to Fabrics, as Kubernetes Events; and who writes the operator's objects again and again.

use std::collections::BTreeMap;
use std::time::Duration;

use tokio::time::Instant;
use trieste_control::admin::Severity;
use trieste_control::recorder::{About, Recorder};
use trieste_deploy::{Applied, Change, ObjectRef};

use crate::order::{Order, Outcome, Reason};

/// An object that was repaired so often within so long has another writer.
const CONTESTED: (usize, Duration) = (3, Duration::from_secs(600));
/// The most repairs, and changes in the cloud, of one pass that get an Event each.
const MOST: usize = 16;

/// The objects that were repaired lately.
#[derive(Debug, Default)]
pub(super) struct Repairs {
    lately: BTreeMap<String, (Vec<Instant>, String)>,
    /// What was wanted of each object the last time, as a digest.
    wanted: BTreeMap<ObjectRef, u64>,
}

impl Repairs {
    /// Takes in what became of the objects of a pass. Returns a text for each that somebody else had changed: those whose fields
    /// were taken over, and, where the same was carried out before, all that were not as they should be. One of which something else
    /// is wanted than before, such as a Secret with a new token, was changed by nobody else.
    pub(super) fn take(&mut self, changes: &[Change], has_settled: bool) -> Vec<String> {
        let now = Instant::now();
        let mut texts = Vec::new();
        for change in changes {
            let before = self.wanted.insert(change.place.clone(), change.wanted);
            let is_same = before.is_none_or(|before| before == change.wanted);
            let is_changed = has_settled && is_same && change.applied != Applied::Unchanged;
            if change.conflicts.is_empty() && !is_changed {
                continue;
            }
            let place = &change.place;
            let text = match (change.applied, change.conflicts.is_empty()) {
                (Applied::Created, _) => format!("{place} was gone, and is there again"),
                (_, true) => format!("{place} was changed, and is as it should be again"),
                (_, false) => {
                    format!(
                        "{place} was changed, and is as it should be again: {}",
                        change.conflicts.join("; ")
                    )
                }
            };
            let (times, last) = self.lately.entry(place.to_string()).or_default();
            times.push(now);
            last.clone_from(&text);
            texts.push(text);
        }
        self.lately.retain(|_, (times, _)| {
            times.retain(|time| now.duration_since(*time) < CONTESTED.1);
            !times.is_empty()
        });
        texts.truncate(MOST);
        texts
    }

    /// Returns the objects that were repaired too often.
    pub(super) fn contested(&self) -> Vec<String> {
        let often = self.lately.values().filter(|(times, _)| times.len() >= CONTESTED.0);
        often.map(|(_, text)| text.clone()).collect()
    }
}

/// Records that an object was repaired.
pub(super) fn repaired(recorder: &Recorder, order: &Order, text: &str) {
    recorder.record_about(about(order), Severity::Warning, "Repaired", text);
}

/// Records that somebody should see to something.
pub(super) fn warning(recorder: &Recorder, order: &Order, text: &str) {
    recorder.record_about(
        about(order),
        Severity::Warning,
        "Warning",
        format!("{}: {text}", order.part.as_str()),
    );
}

/// Records what was changed in the cloud, also by a pass that came to no good end.
pub(super) fn changed(recorder: &Recorder, order: &Order, changes: &[String]) {
    for text in changes.iter().take(MOST) {
        recorder.record_about(about(order), Severity::Info, "CloudChanged", text.clone());
    }
    if let Some(more) = changes.len().checked_sub(MOST).filter(|more| *more > 0) {
        let text = format!("{more} more changes were made in the cloud");
        recorder.record_about(about(order), Severity::Info, "CloudChanged", text);
    }
}

/// Records what became of a part.
pub(super) fn outcome(recorder: &Recorder, order: &Order, outcome: &Outcome) {
    let part = order.part.noun();
    match outcome {
        Outcome::Installed(_) => {
            recorder.record_about(
                about(order),
                Severity::Info,
                "Installed",
                format!("the {part} is as the spec says"),
            );
        }
        Outcome::Removed => {
            recorder.record_about(
                about(order),
                Severity::Info,
                "Removed",
                format!("nothing is left of the {part}"),
            );
        }
        Outcome::Free | Outcome::Chosen(_) => {}
        Outcome::Waiting(why) if why.reason == Reason::UPSTREAM_OPERATOR => {
            recorder.record_about(about(order), Severity::Info, why.reason, why.message.clone());
        }
        Outcome::Waiting(why) | Outcome::Failed(why) => {
            let text = format!("{part}: {}", why.message);
            recorder.record_about(about(order), Severity::Warning, why.reason, text);
        }
    }
}

fn about(order: &Order) -> About {
    About { key: order.source.clone(), uid: Some(order.uid.clone()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn change(name: &str, applied: Applied, conflicts: &[&str]) -> Change {
        let place = ObjectRef::namespaced("apps/v1", "DaemonSet", "n", name);
        Change {
            place,
            applied,
            conflicts: conflicts.iter().map(|conflict| (*conflict).to_owned()).collect(),
            wanted: 1,
        }
    }

    #[tokio::test(start_paused = true)]
    async fn an_object_of_which_something_else_is_wanted_was_changed_by_nobody_else() {
        let mut repairs = Repairs::default();
        let rotated = |wanted: u64| [Change { wanted, ..change("a", Applied::Changed, &[]) }];
        assert!(repairs.take(&rotated(1), false).is_empty());
        assert!(repairs.take(&rotated(2), true).is_empty(), "the operator has a new token for it");
        assert_eq!(repairs.take(&rotated(2), true).len(), 1, "somebody has edited it");
        let taken = [Change { wanted: 3, ..change("a", Applied::Changed, &[".data.x (kubectl-edit)"]) }];
        assert_eq!(repairs.take(&taken, true).len(), 1, "fields of somebody else's were taken over");
    }

    #[tokio::test(start_paused = true)]
    async fn what_others_change_is_reported_and_who_does_so_again_and_again_is_named() {
        let mut repairs = Repairs::default();
        let first = [change("a", Applied::Created, &[]), change("b", Applied::Changed, &[])];
        assert!(repairs.take(&first, false).is_empty(), "the operator's own work");
        let edited = [
            change("a", Applied::Unchanged, &[]),
            change("b", Applied::Changed, &[".spec.x (kubectl-edit)"]),
            change("c", Applied::Created, &[]),
        ];
        let texts = repairs.take(&edited, true);
        assert_eq!(texts.len(), 2);
        assert!(texts[0].contains("DaemonSet n/b") && texts[0].contains("kubectl-edit"), "{texts:?}");
        assert!(texts[1].contains("was gone"), "{texts:?}");
        assert!(repairs.contested().is_empty());
        for _ in 0..2 {
            repairs.take(&edited[1..2], true);
        }
        assert_eq!(repairs.contested().len(), 1);
        tokio::time::advance(CONTESTED.1).await;
        assert!(repairs.take(&[], true).is_empty() && repairs.contested().is_empty());
    }
}
