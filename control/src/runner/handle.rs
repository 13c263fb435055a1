//! Starting and ending a controller.

use std::time::Duration;

use futures::stream::BoxStream;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use super::publisher::Publisher;
use super::run::Runner;
use super::{Controller, ControllerMetrics, Fence, Limits, StorePort};

/// A running controller. Dropping it ends it; what it has written stays.
#[derive(Debug)]
pub struct Handle {
    /// Its counters.
    pub metrics: ControllerMetrics,
    stop: Option<oneshot::Sender<Duration>>,
    task: JoinHandle<()>,
}

impl Handle {
    /// Ends the controller: no new write is started, and those under way are waited for at most `within`.
    pub async fn stop(mut self, within: Duration) {
        // One that has ended by itself has nobody who listens.
        let _ = self.stop.take().map(|stop| stop.send(within));
        if tokio::time::timeout(within, &mut self.task).await.is_err() {
            self.task.abort();
        }
    }

    /// Returns `true` if the controller has ended by itself, because its guard did not let it write.
    pub fn has_ended(&self) -> bool {
        self.task.is_finished()
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Starts a controller on these stores, in the background. `inputs` come from elsewhere; when they end, what was last
/// stays so. `publish` gets the status whenever it has changed.
///
/// # Panics
/// Outside a tokio runtime.
pub fn spawn<C: Controller>(
    controller: C,
    stores: Vec<Box<dyn StorePort>>,
    fence: Fence,
    inputs: BoxStream<'static, C::Input>,
    limits: Limits,
    publish: impl FnMut(&C::Status) + Send + 'static,
) -> Handle {
    let metrics = ControllerMetrics::default();
    let (stop, stopped) = oneshot::channel();
    let runner = Runner::new(controller, stores, fence, limits, metrics.clone());
    let publisher = Publisher::new(publish);
    Handle { metrics, stop: Some(stop), task: tokio::spawn(runner.run(inputs, stopped, publisher)) }
}
