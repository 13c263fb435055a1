//! The two watches behind the catalogue.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures::stream::select;
use futures::{FutureExt as _, StreamExt as _};
use tokio::sync::watch;
use tokio::time::{Instant, sleep};

use super::{Catalogue, ServiceIndex};
use crate::api::{Kind, Object, ObjectKey};
use crate::store::{Store, StoreEvent};

/// Ours: what changes in quick succession is one change.
const AT_LEAST: Duration = Duration::from_millis(20);
/// Ours: how much longer than the work the rest after it is, so that a large cluster that changes all the time takes a
/// fifth of a core and no more.
const REST: u32 = 4;

/// The present catalogue of services.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Watched {
    /// All services; `None` until they were listed for the first time.
    pub catalogue: Option<Arc<Catalogue>>,
    /// Why they, or some of them, cannot be read at present. The others stay as they were.
    pub unavailable: Option<String>,
}

/// Follows the services of all namespaces for ever and publishes what is new.
pub async fn follow(store: &impl Store, known: &watch::Sender<Watched>) {
    let services = store.list_watch(Kind::Service, "").map(|event| (Kind::Service, event));
    let slices = store.list_watch(Kind::EndpointSlice, "").map(|event| (Kind::EndpointSlice, event));
    let mut events = select(services, slices);
    let mut index = ServiceIndex::default();
    let mut unavailable = BTreeMap::new();
    let mut withheld = Withheld::default();
    while let Some((kind, event)) = events.next().await {
        let mut is_changed = take(&mut index, &mut unavailable, &mut withheld, kind, &event);
        while let Some(Some((kind, event))) = events.next().now_or_never() {
            is_changed |= take(&mut index, &mut unavailable, &mut withheld, kind, &event);
        }
        let error = unavailable.values().next().cloned().or_else(|| withheld.message());
        let started = Instant::now();
        let catalogue = (is_changed && index.is_complete()).then(|| Arc::new(index.catalogue()));
        known.send_if_modified(|known| {
            let is_other = catalogue.is_some() && known.catalogue != catalogue;
            let is_changed = is_other || known.unavailable != error;
            if is_other {
                known.catalogue = catalogue;
            }
            known.unavailable = error;
            is_changed
        });
        sleep((started.elapsed() * REST).max(AT_LEAST)).await;
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

fn take(
    index: &mut ServiceIndex,
    unavailable: &mut BTreeMap<Kind, String>,
    withheld: &mut Withheld,
    kind: Kind,
    event: &StoreEvent,
) -> bool {
    withheld.take(kind, event);
    match event {
        StoreEvent::Unavailable(error) => drop(unavailable.insert(kind, error.to_string())),
        StoreEvent::Listed(_) | StoreEvent::Applied(_) | StoreEvent::Deleted(_) => {
            drop(unavailable.remove(&kind))
        }
    }
    index.take(kind, event)
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
