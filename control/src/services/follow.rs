//! The two watches behind the catalogue.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures::stream::select;
use futures::{FutureExt as _, StreamExt as _};
use tokio::sync::watch;
use tokio::time::{Instant, sleep};

use super::{Book, Catalogue};
use crate::api::Kind;
use crate::store::{Store, StoreEvent};

/// Ours: what changes in quick succession is one change.
const AT_LEAST: Duration = Duration::from_millis(20);
/// Ours: how much longer than the work the rest after it is, so that a large cluster that changes all the time takes a
/// fifth of a core and no more.
const REST: u32 = 4;

/// What is known at present.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Followed {
    /// All services; `None` until they were listed for the first time.
    pub catalogue: Option<Arc<Catalogue>>,
    /// Why they cannot be read at present. What was known stays.
    pub away: Option<String>,
}

/// Follows the services of all namespaces for ever and publishes what is new.
pub async fn follow(store: &impl Store, known: &watch::Sender<Followed>) {
    let services = store.list_watch(Kind::Service, "").map(|event| (Kind::Service, event));
    let slices = store.list_watch(Kind::EndpointSlice, "").map(|event| (Kind::EndpointSlice, event));
    let mut events = select(services, slices);
    let mut book = Book::default();
    let mut away = BTreeMap::new();
    while let Some((kind, event)) = events.next().await {
        let mut is_news = take(&mut book, &mut away, kind, &event);
        while let Some(Some((kind, event))) = events.next().now_or_never() {
            is_news |= take(&mut book, &mut away, kind, &event);
        }
        let error = away.values().next().cloned();
        let started = Instant::now();
        let catalogue = (is_news && book.is_complete()).then(|| Arc::new(book.catalogue()));
        known.send_if_modified(|known| {
            let is_other = catalogue.is_some() && known.catalogue != catalogue;
            let is_news = is_other || known.away != error;
            if is_other {
                known.catalogue = catalogue;
            }
            known.away = error;
            is_news
        });
        sleep((started.elapsed() * REST).max(AT_LEAST)).await;
    }
}

fn take(book: &mut Book, away: &mut BTreeMap<Kind, String>, kind: Kind, event: &StoreEvent) -> bool {
    match event {
        StoreEvent::Unavailable(error) => drop(away.insert(kind, error.to_string())),
        StoreEvent::Listed(_) | StoreEvent::Applied(_) | StoreEvent::Deleted(_) => drop(away.remove(&kind)),
    }
    book.take(kind, event)
}
