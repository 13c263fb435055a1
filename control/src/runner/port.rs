//! A store without its type, so that a runner has a list of them.

use std::sync::Arc;
use std::time::Duration;

use futures::future::{BoxFuture, FutureExt as _};
use futures::stream::{BoxStream, StreamExt as _};

use super::{Fence, Watch, Write};
use crate::api::ObjectKey;
use crate::store::{Store, StoreError, StoreEvent};
use crate::timer::clock;

/// A store as the runner uses it.
pub trait StorePort: Send + Sync {
    /// Watches, for ever: [`Store::list_watch`], or [`Store::watch_one`].
    fn watch(&self, watch: &Watch) -> BoxStream<'static, StoreEvent>;

    /// Writes within this time. Returns what a watch would report of it.
    fn write(
        &self,
        write: Write,
        within: Duration,
        fence: Fence,
    ) -> BoxFuture<'static, Result<StoreEvent, StoreError>>;
}

/// Returns the port of a store.
pub fn port<S: Store>(store: S) -> Box<dyn StorePort> {
    Box::new(Typed(Arc::new(store)))
}

struct Typed<S>(Arc<S>);

impl<S: Store> StorePort for Typed<S> {
    fn watch(&self, watch: &Watch) -> BoxStream<'static, StoreEvent> {
        let Watch { kind, namespace, name, .. } = watch;
        match name.is_empty() {
            true => self.0.list_watch(*kind, namespace).boxed(),
            false => self.0.watch_one(&ObjectKey::new(*kind, namespace, name)).boxed(),
        }
    }

    fn write(
        &self,
        write: Write,
        within: Duration,
        fence: Fence,
    ) -> BoxFuture<'static, Result<StoreEvent, StoreError>> {
        let store = Arc::clone(&self.0);
        let permit = fence.permit(clock());
        async move {
            let may_write = || permit.is_some() && fence.permit(clock()) == permit;
            write.execute_fenced(&*store, within, &may_write).await
        }
        .boxed()
    }
}
