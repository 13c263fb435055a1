//! Inputs of controllers that others publish.

use futures::stream::{self, Stream};
use tokio::sync::watch;

/// Returns the present value and each later one; those between two that are asked for are left out.
pub(crate) fn values<T: Clone + Send + Sync + 'static>(
    receiver: watch::Receiver<T>,
) -> impl Stream<Item = T> + Send {
    stream::unfold((receiver, true), |(mut receiver, is_first)| async move {
        if !is_first {
            receiver.changed().await.ok()?;
        }
        let value = receiver.borrow_and_update().clone();
        Some((value, (receiver, false)))
    })
}
