//! Liveness of the route agent: a good pass within 30 seconds (`trieste_control::liveness`).

use std::collections::BTreeSet;
use std::path::PathBuf;

use tokio::sync::watch;
use trieste_control::liveness::LivenessFile;

use crate::agent::Report;
use crate::condition::Condition;

/// Default path of the file.
pub const DEFAULT_FILE: &str = "/run/trieste/routeagent.json";

/// Keeps the file up to date until a sender is dropped. `reports` has the results of passes, `store_error` why the store
/// cannot be read.
pub async fn maintain(
    path: PathBuf,
    mut reports: watch::Receiver<Report>,
    mut store_error: watch::Receiver<Option<String>>,
) {
    let mut file = LivenessFile::new(path);
    loop {
        let problem = problem(&reports.borrow_and_update(), store_error.borrow_and_update().as_deref());
        file.record(problem.as_deref());
        tokio::select! {
            changed = reports.changed() => if changed.is_err() { return },
            changed = store_error.changed() => if changed.is_err() { return },
        }
    }
}

/// Returns why the work was not done by the last pass; `error` is why the store cannot be read.
#[must_use]
pub fn problem(report: &Report, error: Option<&str>) -> Option<String> {
    match (report, error) {
        (Report { passes: 0, .. }, None) => Some("the store has not been read yet".to_owned()),
        (Report { passes: 0, .. }, Some(error)) => Some(format!("the store cannot be read: {error}")),
        (Report { is_good: true, .. }, _) => None,
        (Report { is_good: false, conditions, .. }, _) => Some(worst(conditions)),
    }
}

fn worst(conditions: &BTreeSet<Condition>) -> String {
    let worst = conditions.iter().max_by_key(|condition| condition.severity());
    worst.map_or_else(|| "the last pass failed".to_owned(), ToString::to_string)
}
