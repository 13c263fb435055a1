//! How far the work is, in the same form for every plugin.

use std::collections::BTreeSet;

use futures::{StreamExt as _, stream};
use tokio::sync::watch;
use tracing::{info, warn};
use trieste_control::runner::{self, Controller, Fence, Handle, Limits, QueueView, Watch, port};
use trieste_control::store::Store;

/// What there should be of ours in the plugin's database.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wish {
    /// What each remote network needs.
    Everything,
    /// Nothing.
    Nothing,
}

/// How far the work is.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Status {
    /// The number of objects or rows of ours in the plugin's database; `None` before it was read.
    pub count: Option<usize>,
    /// What is not as it should be, and why; for people.
    pub problems: BTreeSet<(String, String)>,
    /// Why nothing can be read or written at present.
    pub outage: Option<String>,
    /// Whether everything was read and nothing is left to write.
    pub is_done: bool,
}

/// Starts a controller on the API server's store; how far it is goes to `sender`.
///
/// # Panics
/// Outside a tokio runtime.
pub(crate) fn spawn<S: Store, C: Controller<Status = Status>>(
    controller: C,
    store: S,
    fence: Fence,
    limits: Limits,
    sender: watch::Sender<Status>,
) -> Handle {
    let publish = move |status: &Status| status.clone().publish(&sender);
    runner::spawn(controller, vec![port(store)], fence, stream::pending().boxed(), limits, publish)
}

impl Status {
    /// Returns the problems of objects that the API server does not take.
    pub(crate) fn refused(view: &QueueView<'_>) -> impl Iterator<Item = (String, String)> {
        view.refused.iter().map(|(key, reason)| (key.to_string(), (*reason).to_owned()))
    }

    /// Returns why nothing can be read or written at present; of watches those that are needed count.
    pub(crate) fn outage(view: &QueueView<'_>, is_needed: impl Fn(&Watch) -> bool) -> Option<String> {
        let mut outages = view.outages.iter().filter(|(watch, _)| is_needed(watch));
        let unreadable = outages.next().map(|(watch, reason)| format!("{}: {reason}", watch.kind));
        unreadable.or_else(|| view.unavailable.iter().flatten().next().map(|&reason| reason.to_owned()))
    }

    /// Returns why the work cannot be done at present.
    #[must_use]
    pub fn obstacle(&self) -> Option<String> {
        let unread = || self.count.is_none().then(|| "the plugin's database was not read yet".to_owned());
        self.outage.clone().or_else(unread)
    }

    /// Publishes it where it has changed, and logs the difference.
    pub fn publish(self, sender: &watch::Sender<Self>) {
        if *sender.borrow() != self {
            log(&sender.borrow(), &self);
            sender.send_replace(self);
        }
    }

    /// Returns everything that is wrong, in a line.
    #[must_use]
    pub fn text(&self) -> String {
        let problems = self.problems.iter().map(|(subject, problem)| format!("{subject}: {problem}"));
        let all: Vec<String> = self.outage.iter().cloned().chain(problems).collect();
        if all.is_empty() { "no reason is known".to_owned() } else { all.join("; ") }
    }
}

/// Logs what has changed.
fn log(before: &Status, after: &Status) {
    for (subject, problem) in after.problems.difference(&before.problems) {
        warn!(subject, problem, "not as it should be");
    }
    for (subject, problem) in before.problems.difference(&after.problems) {
        info!(subject, problem, "as it should be again");
    }
    match (&before.outage, &after.outage) {
        (None, Some(reason)) => {
            warn!(reason, "nothing can be read or written at present; what was written stays")
        }
        (Some(_), None) => info!("reading and writing again"),
        (None, None) | (Some(_), Some(_)) => {}
    }
    if let Some(count) = after.count.filter(|_| before.count != after.count) {
        info!(count, "of ours in the plugin's database");
    }
}
