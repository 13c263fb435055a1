//! What the server would answer from the objects of one moment, for commands that read a store once.

use std::collections::BTreeSet;
use std::time::Instant;

use trieste_control::api::{Object, label};
use trieste_control::store::StoreEvent;
use trieste_dns::{Change, HealthConfig, Label, Records, Writer};

use trieste_discovery_objects::index::{Index, LocalService, Source};
use trieste_discovery_objects::reach::Reach;
use trieste_discovery_objects::read::Unusable;

/// Records made of lists of objects.
#[derive(Debug)]
pub struct Snapshot {
    index: Index,
    writer: Writer,
    records: Records,
    unusable: Vec<(String, Unusable)>,
}

impl Snapshot {
    /// Reads the objects as the server of cluster `local` does; of the slices those of exported services.
    #[must_use]
    pub fn new(local: Label, imports: &[Object], slices: &[Object], gateways: &[Object]) -> Self {
        let (writer, records) = Writer::new(local.clone());
        let mut snapshot = Self { index: Index::new(local), writer, records, unusable: Vec::new() };
        let mut reach = Reach::new(HealthConfig::default());
        snapshot.apply(reach.handle(StoreEvent::Listed(gateways.to_vec()), Instant::now()));
        snapshot.handle(&Source::Imports, imports.to_vec());
        let is_exported = |slice: &&Object| {
            slice.metadata.labels.get(label::MANAGED_BY).is_some_and(|by| by == label::LIGHTHOUSE_AGENT)
        };
        snapshot.handle(&Source::Exported, slices.iter().filter(is_exported).cloned().collect());
        snapshot.apply(vec![Change::Synced]);
        snapshot
    }

    /// Returns the services of this cluster whose own slices are wanted, for [`Snapshot::add_own`].
    pub fn wanted(&mut self) -> BTreeSet<LocalService> {
        self.index.take_wanted().unwrap_or_default()
    }

    /// Adds Kubernetes' own slices of a service of this cluster.
    pub fn add_own(&mut self, service: &LocalService, slices: Vec<Object>) {
        self.handle(&Source::Own(service.clone()), slices);
    }

    /// Returns the records.
    #[must_use]
    pub const fn records(&self) -> &Records {
        &self.records
    }

    /// Returns the objects that cannot be used, with the reason.
    #[must_use]
    pub fn unusable(&self) -> &[(String, Unusable)] {
        &self.unusable
    }

    fn handle(&mut self, source: &Source, objects: Vec<Object>) {
        let (changes, unusable) = self.index.handle(source, StoreEvent::Listed(objects));
        self.unusable.extend(unusable);
        self.apply(changes);
    }

    fn apply(&mut self, changes: Vec<Change>) {
        for change in changes {
            if let Err(error) = self.writer.apply(change) {
                self.unusable.push(("records".to_owned(), Unusable(error.to_string())));
            }
        }
    }
}
