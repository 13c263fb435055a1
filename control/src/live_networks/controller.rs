//! The controller of the ConfigMap. Pure; [`spawn`] starts it.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use futures::StreamExt as _;
use ipnet::IpNet;
use serde_json::json;

use super::tracked::{List, TrackedLists};
use crate::api::{ClusterNetworks, Kind, Object, ObjectKey};
use crate::election::Candidate;
use crate::parse::words;
use crate::runner::{
    self, Context, Controller, Fence, Handle, Limits, QueueView, Reconciled, Watch, Write, port,
};
use crate::store::{Cache, Store, StoreError, StoreEvent};

/// The controller's name in metrics and logs.
pub const NAME: &str = "live-networks";
/// How long a new leader observes before it writes: what its predecessor wrote last may still be on its way here.
const TAKE_OVER: Duration = Duration::from_millis(500);
/// Ours: changes of several objects at once are one write.
const LIMITS: Limits = Limits { settle: Duration::from_millis(100), ..Limits::DEFAULT };

/// Starts to keep the lists of the ConfigMap that follow the cluster's objects, for as long as `candidate` leads. What stands in
/// the way is given to `publish`.
///
/// # Panics
/// Outside a tokio runtime.
pub fn spawn<S: Store>(
    store: S,
    namespace: &str,
    candidate: Candidate,
    publish: impl FnMut(&Option<String>) + Send + 'static,
) -> Handle {
    let key = ObjectKey::new(Kind::ConfigMap, namespace, ClusterNetworks::OBJECT);
    let events = store.watch_one(&key).boxed();
    let fence = Fence::Term { candidate, settle: TAKE_OVER };
    runner::spawn(NetworksController::default(), vec![port(store)], fence, events, LIMITS, publish)
}

/// Keeps the lists that follow the cluster's objects.
#[derive(Debug, Default)]
pub struct NetworksController {
    /// The ConfigMap, if there is one that may be read.
    object: Option<Object>,
    /// Which of its lists are kept.
    followed: TrackedLists,
    caches: BTreeMap<List, Cache>,
    /// Why objects cannot be read.
    unread: BTreeMap<List, String>,
    problem: Option<String>,
}

impl NetworksController {
    fn take(&mut self, object: Option<Object>) {
        self.object = object;
        let read = self.object.as_ref().map_or_else(|| Ok(TrackedLists::default()), TrackedLists::of);
        self.problem = read.as_ref().err().map(|error| {
            format!(
                "the annotation {} of ConfigMap {} cannot be read: {error}; join again, which writes it anew",
                TrackedLists::ANNOTATION,
                ClusterNetworks::OBJECT
            )
        });
        self.followed = read.unwrap_or_default();
        let followed = &self.followed.0;
        self.caches.retain(|list, _| followed.contains_key(list));
        self.unread.retain(|list, _| followed.contains_key(list));
    }

    /// Returns a list as it should be, and which of its entries come from the cluster's objects; `None` if that cannot be said.
    fn corrected(&self, list: List, recorded: &BTreeSet<IpNet>) -> Option<[BTreeSet<IpNet>; 2]> {
        let cache = self.caches.get(&list).filter(|cache| cache.is_complete())?;
        let found = list.found(cache.objects());
        // Every cluster has some: where there are none, they are somewhere else by now.
        if found.is_empty() {
            return None;
        }
        let there = entries(self.object.as_ref()?, list)?;
        let theirs: BTreeSet<IpNet> = there.difference(recorded).copied().collect();
        let is_covered = |network: &IpNet| theirs.iter().any(|theirs| theirs.contains(network));
        let ours: BTreeSet<IpNet> = found.into_iter().filter(|network| !is_covered(network)).collect();
        Some([theirs.union(&ours).copied().collect(), ours])
    }
}

/// Returns the entries of a list; `None` if one is no network, which the gateways say.
fn entries(object: &Object, list: List) -> Option<BTreeSet<IpNet>> {
    let text = object.body.get("data").and_then(|data| data.get(list.key())?.as_str()).unwrap_or_default();
    words(text).map(|word| word.parse().ok().map(|network: IpNet| network.trunc())).collect()
}

impl Controller for NetworksController {
    type Key = ();
    type Status = Option<String>;
    type Input = StoreEvent;

    fn name(&self) -> &'static str {
        NAME
    }

    fn watches(&self) -> BTreeSet<Watch> {
        self.followed.0.keys().map(|list| Watch::new(0, list.kind(), "")).collect()
    }

    /// Returns `true` for all of them: a gateway has other things to do than this.
    fn does_without(&self, _: &Watch, error: &StoreError) -> bool {
        error.is_unserved() || matches!(error, StoreError::Forbidden { .. })
    }

    fn observe(&mut self, watch: &Watch, event: StoreEvent, _: Instant) -> Vec<()> {
        let Some(list) = List::ALL.into_iter().find(|list| list.kind() == watch.kind) else {
            return Vec::new();
        };
        let unread = match &event {
            StoreEvent::Unavailable(error) => Some(format!("{}: {error}", list.kind())),
            StoreEvent::Listed(_) | StoreEvent::Applied(_) | StoreEvent::Deleted(_) => None,
        };
        self.unread.remove(&list);
        self.unread.extend(unread.map(|reason| (list, reason)));
        let is_changed = self.caches.entry(list).or_default().apply(&event);
        if is_changed { vec![()] } else { Vec::new() }
    }

    fn handle_input(&mut self, event: StoreEvent, _: Instant) -> Vec<()> {
        match event {
            StoreEvent::Applied(object) => self.take(Some(object)),
            StoreEvent::Listed(objects) => self.take(objects.into_iter().next()),
            StoreEvent::Deleted(_) => self.take(None),
            StoreEvent::Unavailable(_) => return Vec::new(),
        }
        vec![()]
    }

    fn reconcile(&mut self, (): &(), _: &Context) -> Reconciled {
        let Some(object) = self.object.as_ref().filter(|object| object.withheld.is_none()) else {
            return Reconciled::await_change();
        };
        let (mut new, mut followed) = (object.clone(), self.followed.clone());
        for (list, recorded) in &self.followed.0 {
            let Some([networks, ours]) = self.corrected(*list, recorded) else { continue };
            if entries(object, *list).as_ref() != Some(&networks) {
                let text = networks.iter().map(IpNet::to_string).collect::<Vec<_>>().join(",");
                let data = new.body.entry("data").or_insert_with(|| json!({}));
                data[list.key()] = json!(text);
            }
            followed.0.insert(*list, ours);
        }
        if followed != self.followed {
            let value = followed.value().map(|value| (TrackedLists::ANNOTATION.to_owned(), value));
            new.metadata.annotations.extend(value);
        }
        if new == *object { Reconciled::await_change() } else { Reconciled::write(vec![Write::Update(new)]) }
    }

    fn written(&mut self, (): &(), _: &Write, outcome: Result<&StoreEvent, &StoreError>, _: Instant) {
        if let Ok(StoreEvent::Applied(object)) = outcome {
            self.take(Some(object.clone()));
        }
    }

    fn status(&self, view: &QueueView<'_>) -> Option<String> {
        let refused = view.refused.first().map(|(key, reason)| format!("{key}: {reason}"));
        self.problem.clone().or_else(|| self.unread.values().next().cloned()).or(refused)
    }
}

#[cfg(test)]
mod tests;
