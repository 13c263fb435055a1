//! The controller of docs/development/controllers.md, whose blocks are taken from here.

use std::collections::BTreeSet;
use std::convert::Infallible;
use std::time::Instant;

use trieste_control::api::{Kind, Object};
use trieste_control::runner::{Context, Controller, QueueView, Reconciled, Watch, Write};
use trieste_control::store::{Cache, StoreEvent};

/// Copies the label `color` of every Service in a namespace to its label `colour`.
pub(crate) struct CopyLabel {
    namespace: String,
    services: Cache,
}

impl CopyLabel {
    pub(crate) fn new(namespace: &str) -> Self {
        Self { namespace: namespace.to_owned(), services: Cache::new() }
    }
}

impl Controller for CopyLabel {
    type Key = String;
    type Status = CopyLabelStatus;
    type Input = Infallible;

    fn name(&self) -> &'static str {
        "copy-label"
    }

    fn watches(&self) -> BTreeSet<Watch> {
        [Watch::new(0, Kind::Service, &*self.namespace)].into()
    }

    fn observe(&mut self, _: &Watch, event: StoreEvent, _: Instant) -> Vec<String> {
        self.services.changes(event)
    }

    fn reconcile(&mut self, name: &String, _: &Context) -> Reconciled {
        let Some(service) = self.services.get(name) else { return Reconciled::await_change() };
        match with_copy(service) {
            Some(wanted) => Reconciled::write(vec![Write::Update(wanted)]),
            None => Reconciled::await_change(),
        }
    }

    fn status(&self, queue: &QueueView<'_>) -> CopyLabelStatus {
        CopyLabelStatus {
            is_done: self.services.is_complete() && queue.is_idle,
            problem: queue.problem().map(str::to_owned),
        }
    }
}

/// Returns the Service with the copy; `None` if it has it.
fn with_copy(service: &Object) -> Option<Object> {
    let labels = &service.metadata.labels;
    if labels.get("colour") == labels.get("color") {
        return None;
    }
    let mut wanted = service.clone();
    match labels.get("color") {
        Some(color) => drop(wanted.metadata.labels.insert("colour".to_owned(), color.clone())),
        None => drop(wanted.metadata.labels.remove("colour")),
    }
    Some(wanted)
}

/// How far the copies are.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct CopyLabelStatus {
    /// Whether every Service has its copy.
    pub(crate) is_done: bool,
    /// What is in the way.
    pub(crate) problem: Option<String>,
}
