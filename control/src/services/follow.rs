//! The two watches behind the index.

use std::collections::{BTreeMap, BTreeSet};
use std::pin::Pin;
use std::time::Duration;

use futures::stream::select;
use futures::{FutureExt as _, Stream, StreamExt as _};
use tokio::time::{Instant, sleep_until};

use super::{Frontend, ServiceIndex};
use crate::api::{Kind, Object, ObjectKey};
use crate::store::{Store, StoreError, StoreEvent};

/// Ours: what changes in quick succession is one change.
const AT_LEAST: Duration = Duration::from_millis(20);
/// Ours: how much longer than the work the rest after it is, so that a large cluster that changes all the time takes a
/// fifth of a core and no more.
const REST: u32 = 4;

/// Follows the services of all namespaces.
pub struct ServiceWatch {
    events: Pin<Box<dyn Stream<Item = (Kind, StoreEvent)> + Send>>,
    index: ServiceIndex,
    unavailable: BTreeMap<Kind, String>,
    withheld: Withheld,
    /// Kinds that may not be read.
    forbidden: BTreeSet<Kind>,
    /// Why they, or some of them, cannot be read.
    error: Option<String>,
    is_due: bool,
    /// When the last change was handed over, until the next one is asked for.
    handed_over: Option<Instant>,
    rests_until: Option<Instant>,
}

impl ServiceWatch {
    /// Begins to.
    pub fn start(store: &impl Store) -> Self {
        let services = store.list_watch(Kind::Service, "").map(|event| (Kind::Service, event));
        let slices = store.list_watch(Kind::EndpointSlice, "").map(|event| (Kind::EndpointSlice, event));
        Self {
            events: Box::pin(select(services, slices)),
            index: ServiceIndex::default(),
            unavailable: BTreeMap::new(),
            withheld: Withheld::default(),
            forbidden: BTreeSet::new(),
            error: None,
            is_due: false,
            handed_over: None,
            rests_until: None,
        }
    }

    /// Waits until something has changed, and returns the addresses and ports whose back ends may be others: all at the first
    /// time. After that it rests in proportion to what the caller had to do. Nothing is lost if it is dropped while it waits.
    /// `None` if the store has ended.
    pub async fn next(&mut self) -> Option<BTreeSet<Frontend>> {
        if let Some(handed_over) = self.handed_over.take() {
            self.rests_until = Some(Instant::now() + (handed_over.elapsed() * REST).max(AT_LEAST));
        }
        loop {
            if let Some(until) = self.rests_until {
                sleep_until(until).await;
                self.rests_until = None;
            }
            if !self.is_due {
                let (kind, event) = self.events.next().await?;
                self.take(kind, &event);
            }
            while let Some(Some((kind, event))) = self.events.next().now_or_never() {
                self.take(kind, &event);
            }
            if std::mem::take(&mut self.is_due) {
                self.handed_over = Some(Instant::now());
                return Some(if self.index.is_complete() {
                    self.index.take_changed()
                } else {
                    BTreeSet::new()
                });
            }
        }
    }

    /// Returns the services; `None` until all of them were listed for the first time.
    pub fn services(&self) -> Option<&ServiceIndex> {
        self.index.is_complete().then_some(&self.index)
    }

    /// Returns why they, or some of them, cannot be read at present. The others stay as they were.
    pub fn unavailable(&self) -> Option<&str> {
        self.error.as_deref()
    }

    /// Returns `true` if they may not be read.
    pub fn is_forbidden(&self) -> bool {
        !self.forbidden.is_empty()
    }

    fn take(&mut self, kind: Kind, event: &StoreEvent) {
        self.withheld.take(kind, event);
        if matches!(event, StoreEvent::Unavailable(StoreError::Forbidden { .. })) {
            self.forbidden.insert(kind);
        } else {
            self.forbidden.remove(&kind);
        }
        match event {
            StoreEvent::Unavailable(error) => drop(self.unavailable.insert(kind, error.to_string())),
            StoreEvent::Listed(_) | StoreEvent::Applied(_) | StoreEvent::Deleted(_) => {
                drop(self.unavailable.remove(&kind));
            }
        }
        let was_complete = self.index.is_complete();
        let is_changed = self.index.take(kind, event);
        let error = self.unavailable.values().next().cloned().or_else(|| self.withheld.message());
        let is_known = self.index.is_complete() && (is_changed || !was_complete);
        self.is_due |= is_known || self.error != error;
        self.error = error;
    }
}

/// The services and slices that the store does not give whole, and why.
#[derive(Debug, Default)]
struct Withheld(BTreeMap<ObjectKey, String>);

impl Withheld {
    fn take(&mut self, kind: Kind, event: &StoreEvent) {
        match event {
            StoreEvent::Listed(objects) => {
                self.0.retain(|key, _| key.kind != kind);
                objects.iter().for_each(|object| self.put(object));
            }
            StoreEvent::Applied(object) => self.put(object),
            StoreEvent::Deleted(object) => drop(self.0.remove(&object.key())),
            StoreEvent::Unavailable(_) => {}
        }
    }

    fn put(&mut self, object: &Object) {
        match &object.withheld {
            Some(reason) => drop(self.0.insert(object.key(), reason.clone())),
            None if self.0.is_empty() => {}
            None => drop(self.0.remove(&object.key())),
        }
    }

    /// Names the first, and counts the others.
    fn message(&self) -> Option<String> {
        let (key, reason) = self.0.first_key_value()?;
        let others = self.0.len() - 1;
        Some(if others == 0 {
            format!("{key}: {reason}")
        } else {
            format!("{key}: {reason}; and {others} more")
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::ObjectMeta;

    #[test]
    fn what_the_store_withholds_is_named_until_it_is_whole_or_gone() {
        let object = |kind, name: &str| Object::new(kind, ObjectMeta::new("ns", name));
        let bad = |kind, name: &str| object(kind, name).withhold("field `spec`: is too large");
        let mut withheld = Withheld::default();
        withheld.take(
            Kind::Service,
            &StoreEvent::Listed(vec![bad(Kind::Service, "a"), object(Kind::Service, "b")]),
        );
        assert_eq!(withheld.message().unwrap(), "Service ns/a: field `spec`: is too large");
        withheld.take(Kind::EndpointSlice, &StoreEvent::Applied(bad(Kind::EndpointSlice, "a")));
        assert!(withheld.message().unwrap().ends_with("; and 1 more"));
        withheld.take(Kind::Service, &StoreEvent::Applied(object(Kind::Service, "a")));
        assert_eq!(withheld.message().unwrap(), "EndpointSlice ns/a: field `spec`: is too large");
        withheld.take(Kind::EndpointSlice, &StoreEvent::Deleted(bad(Kind::EndpointSlice, "a")));
        assert_eq!(withheld.message(), None);
        withheld.take(Kind::Service, &StoreEvent::Listed(vec![bad(Kind::Service, "a")]));
        withheld.take(Kind::Service, &StoreEvent::Listed(Vec::new()));
        assert_eq!(withheld.message(), None);
    }
}
