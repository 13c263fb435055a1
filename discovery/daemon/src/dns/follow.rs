//! Follows the store: each event becomes changes of the records, at once and one after another.
//!
//! While the store is away, the records stay as they are. Until imports, slices and gateways have been read once, no name is
//! said not to exist.

use std::collections::BTreeMap;
use std::time::Instant;

use futures::stream::{AbortHandle, BoxStream, SelectAll, abortable, select_all};
use futures::{Stream, StreamExt as _};
use tokio::sync::watch;
use tracing::{debug, info, warn};
use trieste_control::api::{Kind, label};
use trieste_control::store::{Store, StoreEvent};
use trieste_control::timer::sleep_until;
use trieste_dns::{Change, HealthConfig, Label, Writer};

use trieste_discovery_objects::index::{Index, LocalService, Source};
use trieste_discovery_objects::reach::Reach;
use trieste_discovery_objects::read::SERVICE_NAME;

/// How far the reading of the store is.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Progress {
    /// Kinds that have not been read once.
    pub missing: Vec<Kind>,
    /// Why kinds cannot be read at present.
    pub errors: BTreeMap<Kind, String>,
    /// Number of objects that cannot be used.
    pub unusable: usize,
    /// Number of changes that exceeded a bound.
    pub refused: u64,
    /// Number of changes applied.
    pub applied: u64,
}

/// What an event is about.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Topic {
    Objects(Source),
    Gateways,
}

impl Topic {
    fn kind(&self) -> Kind {
        match self {
            Self::Objects(Source::Imports) => Kind::ServiceImport,
            Self::Objects(Source::Exported | Source::Own(_)) => Kind::EndpointSlice,
            Self::Gateways => Kind::Gateway,
        }
    }
}

type Events = SelectAll<BoxStream<'static, (Topic, StoreEvent)>>;

/// What follows a store.
struct Watcher<'s, S> {
    store: &'s S,
    index: Index,
    reach: Reach,
    writer: Writer,
    events: Events,
    /// The watches of this cluster's own slices.
    own: BTreeMap<LocalService, AbortHandle>,
    progress: Progress,
    is_synced: bool,
}

/// Follows a store until its watches end. `namespace` is that of the Gateways, and of what stands there for want of its own; if it
/// is empty, Gateways of all namespaces count, and nothing else does.
pub async fn follow<S: Store>(
    store: &S,
    namespace: &str,
    local: Label,
    writer: Writer,
    progress: &watch::Sender<Progress>,
) {
    let managed = (label::MANAGED_BY, label::LIGHTHOUSE_AGENT);
    let events = select_all([
        named(Topic::Objects(Source::Imports), store.list_watch(Kind::ServiceImport, "")),
        named(Topic::Objects(Source::Exported), store.list_watch_labelled(Kind::EndpointSlice, "", managed)),
        named(Topic::Gateways, store.list_watch(Kind::Gateway, namespace)),
    ]);
    let mut watcher = Watcher {
        store,
        index: Index::new(local).with_displaced_in(namespace),
        reach: Reach::new(HealthConfig::default()),
        writer,
        events,
        own: BTreeMap::new(),
        progress: Progress::default(),
        is_synced: false,
    };
    loop {
        watcher.publish(progress);
        let timeout = watcher.reach.poll_timeout();
        tokio::select! {
            event = watcher.events.next() => match event {
                Some((topic, event)) => watcher.handle(&topic, event),
                None => return,
            },
            () = sleep_until(timeout) => {
                let changes = watcher.reach.handle_timeout(Instant::now());
                watcher.apply(changes);
            }
        }
    }
}

fn named(
    topic: Topic,
    events: impl Stream<Item = StoreEvent> + Send + 'static,
) -> BoxStream<'static, (Topic, StoreEvent)> {
    events.map(move |event| (topic.clone(), event)).boxed()
}

impl<S: Store> Watcher<'_, S> {
    fn handle(&mut self, topic: &Topic, event: StoreEvent) {
        self.note(topic.kind(), &event);
        let changes = match topic {
            Topic::Gateways if !self.reach.is_listed() && event.is_absence() => {
                self.reach.handle_absent(Instant::now())
            }
            Topic::Gateways => self.reach.handle(event, Instant::now()),
            Topic::Objects(source) => {
                let (changes, unusable) = self.index.handle(source, event);
                for (object, reason) in unusable {
                    warn!(object, %reason, "object cannot be used");
                }
                changes
            }
        };
        self.apply(changes);
        self.follow_own();
        if !self.is_synced && self.missing().is_empty() {
            self.is_synced = true;
            self.apply(vec![Change::Synced]);
            info!(changes = self.progress.applied, "records are complete");
        }
    }

    /// Notes whether a kind can be read.
    fn note(&mut self, kind: Kind, event: &StoreEvent) {
        if let StoreEvent::Unavailable(error) = event {
            let error = error.to_string();
            warn!(%kind, error, "objects cannot be read; answers are from memory");
            self.progress.errors.insert(kind, error);
        } else if self.progress.errors.remove(&kind).is_some() {
            info!(%kind, "objects are read again");
        }
    }

    fn apply(&mut self, changes: Vec<Change>) {
        for change in changes {
            debug!(?change, "change");
            self.progress.applied += 1;
            if let Err(error) = self.writer.apply(change) {
                self.progress.refused += 1;
                warn!(%error, "change exceeds a bound");
            }
        }
    }

    /// Begins and ends watches of this cluster's own slices, as far as they are wanted.
    fn follow_own(&mut self) {
        let Some(wanted) = self.index.take_wanted() else { return };
        let ended: Vec<LocalService> =
            self.own.keys().filter(|service| !wanted.contains(*service)).cloned().collect();
        for service in ended {
            if let Some(watch) = self.own.remove(&service) {
                watch.abort();
            }
            let changes = self.index.remove_own(&service);
            self.apply(changes);
        }
        for service in wanted {
            if self.own.contains_key(&service) {
                continue;
            }
            let of_service = (SERVICE_NAME, service.1.as_str());
            let events = self.store.list_watch_labelled(Kind::EndpointSlice, &service.0, of_service);
            let (events, handle) = abortable(events);
            self.events.push(named(Topic::Objects(Source::Own(service.clone())), events));
            self.own.insert(service, handle);
        }
    }

    /// Returns the kinds that have not been read once.
    fn missing(&self) -> Vec<Kind> {
        let of_index = |source: &Source| self.index.is_listed(source);
        let own = self.own.keys().all(|service| of_index(&Source::Own(service.clone())));
        [
            (Kind::ServiceImport, of_index(&Source::Imports)),
            (Kind::EndpointSlice, of_index(&Source::Exported) && own),
            (Kind::Gateway, self.reach.is_listed()),
        ]
        .into_iter()
        .filter_map(|(kind, is_listed)| (!is_listed).then_some(kind))
        .collect()
    }

    fn publish(&mut self, progress: &watch::Sender<Progress>) {
        self.progress.missing = if self.is_synced { Vec::new() } else { self.missing() };
        self.progress.unusable = self.index.unusable();
        progress.send_if_modified(|last| {
            let has_changed = *last != self.progress;
            last.clone_from(&self.progress);
            has_changed
        });
    }
}
