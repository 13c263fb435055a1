//! The controller that follows the ConfigMap. Pure; [`spawn`] starts it. It writes nothing.

use std::collections::BTreeSet;
use std::convert::Infallible;
use std::time::{Duration, Instant};

use futures::StreamExt as _;
use futures::stream;

use super::read::{Data, OBJECT, data_of};
use crate::api::{Kind, Object, ObjectKey};
use crate::runner::{self, Context, Controller, Fence, Handle, Limits, QueueView, Reconciled, Watch, port};
use crate::store::{Store, StoreError, StoreEvent};

/// The controller's name in metrics and logs.
pub const NAME: &str = "settings";
/// Ours: who edits several entries one after the other makes one change of them.
const LIMITS: Limits = Limits { settle: Duration::from_millis(100), ..Limits::DEFAULT };

/// What is known of the ConfigMap.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Seen {
    /// Nothing: the store has not answered yet.
    #[default]
    Nothing,
    /// Its entries; none without it.
    Data(Data),
    /// Why it cannot be read.
    Unread(String),
}

/// Starts to follow the ConfigMap of a namespace. What is known of it is given to `publish` whenever that changes.
///
/// # Panics
/// Outside a tokio runtime.
pub fn spawn<S: Store>(store: S, namespace: &str, publish: impl FnMut(&Seen) + Send + 'static) -> Handle {
    let controller = SettingsController::new(namespace);
    runner::spawn(controller, vec![port(store)], Fence::Open, stream::pending().boxed(), LIMITS, publish)
}

/// Follows the ConfigMap.
#[derive(Debug)]
pub struct SettingsController {
    watch: Watch,
    newest: Seen,
    /// Whether it was listed since a request was refused last.
    is_listed: bool,
    /// What is published: the newest after a burst has ended.
    seen: Seen,
}

impl SettingsController {
    /// Returns a controller that has observed nothing.
    #[must_use]
    pub fn new(namespace: &str) -> Self {
        let watch = Watch::one(0, &ObjectKey::new(Kind::ConfigMap, namespace, OBJECT));
        Self { watch, newest: Seen::Nothing, is_listed: false, seen: Seen::Nothing }
    }

    /// Returns what was observed last.
    #[must_use]
    pub fn newest(&self) -> &Seen {
        &self.newest
    }
}

/// Returns the entries of an object that may have been too large to be read.
fn read(object: Option<&Object>) -> Seen {
    match object {
        None => Seen::Data(Data::new()),
        Some(object) => match &object.withheld {
            Some(reason) => Seen::Unread(reason.clone()),
            None => Seen::Data(data_of(object)),
        },
    }
}

impl Controller for SettingsController {
    type Key = ();
    type Status = Seen;
    type Input = Infallible;

    fn name(&self) -> &'static str {
        NAME
    }

    fn watches(&self) -> BTreeSet<Watch> {
        [self.watch.clone()].into()
    }

    fn does_without(&self, _: &Watch, error: &StoreError) -> bool {
        // Upstream's accounts have no right to read it.
        matches!(error, StoreError::Forbidden { .. })
    }

    fn observe(&mut self, _: &Watch, event: StoreEvent, _: Instant) -> Vec<()> {
        // Upstream's accounts may list it and not watch it: it is read at each attempt then, and nothing is missing.
        let was_listed = std::mem::replace(&mut self.is_listed, matches!(event, StoreEvent::Listed(_)));
        self.newest = match event {
            StoreEvent::Unavailable(StoreError::Forbidden { .. }) if was_listed => return Vec::new(),
            StoreEvent::Applied(object) => read(Some(&object)),
            StoreEvent::Listed(objects) => read(objects.first()),
            StoreEvent::Deleted(_) => read(None),
            StoreEvent::Unavailable(error @ StoreError::Forbidden { .. }) => Seen::Unread(error.to_string()),
            // What was read stays: an outage changes no setting.
            StoreEvent::Unavailable(_) => return Vec::new(),
        };
        vec![()]
    }

    fn reconcile(&mut self, (): &(), _: &Context) -> Reconciled {
        self.seen.clone_from(&self.newest);
        Reconciled::await_change()
    }

    fn status(&self, _: &QueueView<'_>) -> Seen {
        self.seen.clone()
    }
}
