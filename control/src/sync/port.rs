//! A store of either side, as the syncer uses it: without its type, and with a bound on the time of each request.

use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use futures::future::{BoxFuture, FutureExt};
use futures::stream::BoxStream;

use super::plan::Action;
use crate::api::{Kind, Object};
use crate::store::{Store, StoreError, StoreEvent};

/// What came of a write.
#[derive(Debug)]
pub(super) enum Answer {
    /// It is done; the object as stored, unless it was deleted.
    Done(Option<Object>),
    /// The store said no, or nothing sensible.
    Failed(StoreError),
    /// The store said nothing for this long.
    Silence(Duration),
}

/// A store.
pub(super) trait Port: Send + Sync {
    fn follow(&self, kind: Kind, namespace: &str) -> BoxStream<'static, StoreEvent>;
    fn write(&self, action: Action, within: Duration) -> BoxFuture<'static, Answer>;
}

/// The port to a store.
pub(super) fn port<S: Store>(store: S) -> Box<dyn Port> {
    Box::new(Typed(Arc::new(store)))
}

struct Typed<S>(Arc<S>);

impl<S: Store> Port for Typed<S> {
    fn follow(&self, kind: Kind, namespace: &str) -> BoxStream<'static, StoreEvent> {
        self.0.list_watch(kind, namespace).boxed()
    }

    fn write(&self, action: Action, within: Duration) -> BoxFuture<'static, Answer> {
        let store = Arc::clone(&self.0);
        let request = async move {
            match action {
                Action::Create(_, object) => store.create(object).await.map(Some),
                Action::Update(_, object) => store.update(object).await.map(Some),
                Action::Delete(_, object) => store.delete_version(&object).await.map(|()| None),
            }
        };
        async move {
            match tokio::time::timeout(within, request).await {
                Ok(Ok(stored)) => Answer::Done(stored),
                Ok(Err(error)) => Answer::Failed(error),
                Err(_) => Answer::Silence(within),
            }
        }
        .boxed()
    }
}
