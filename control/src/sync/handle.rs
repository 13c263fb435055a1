//! Starting and ending a syncer, and what it says meanwhile.

use std::sync::Arc;
use std::time::Duration;

use futures::stream::{self, StreamExt as _};
use tokio::sync::watch;

use super::controller::{SyncController, limits};
use super::status::{Outputs, Snapshot, first_state};
use super::{BrokerState, OwnRefusal, Refused, SyncConfig, SyncStats};
use crate::runner::{self, Fence, Handle, port};
use crate::store::Store;

/// How long writes that are under way are waited for at the end. They take effect or not; no new one is sent.
const LAST_ANSWERS: Duration = Duration::from_secs(1);

/// The syncer.
#[derive(Debug)]
pub struct Syncer;

impl Syncer {
    /// Starts syncing in the background, on the current tokio runtime. Ends when the handle is dropped, or when the
    /// [guard](super::WriteGuard) does not let it write. It can be started again, as often as this gateway leads.
    ///
    /// Publish your own objects first: what is on the broker under our ID and not in the local store is stale, and is
    /// removed. The broker need not be there.
    ///
    /// # Panics
    /// Outside a tokio runtime.
    pub fn spawn<L: Store, B: Store>(local: L, broker: B, config: SyncConfig) -> SyncHandle {
        let (state_sender, state) = watch::channel(first_state());
        let (refused_sender, refused) = watch::channel(Vec::new());
        let (own_refusal_sender, own_refusal) = watch::channel(None);
        let (stats_sender, stats) = watch::channel(SyncStats::default());
        let outputs = Outputs {
            state: state_sender,
            refused: refused_sender,
            own_refusal: own_refusal_sender,
            stats: stats_sender,
        };
        let guard = config.guard.clone();
        let fence = Fence::Guard(Arc::new(move || guard.may_write()));
        // In the order of `Side::store`.
        let stores = vec![port(broker), port(local)];
        let publish = move |snapshot: &Snapshot| outputs.publish(snapshot);
        let limits = limits(&config);
        let controller = SyncController::new(config);
        let runner = runner::spawn(controller, stores, fence, stream::pending().boxed(), limits, publish);
        SyncHandle { state, refused, own_refusal, stats, runner }
    }
}

/// A running syncer. Dropping it ends it.
#[derive(Debug)]
pub struct SyncHandle {
    /// Whether the broker answers; since when, why not, and when it is tried next.
    pub state: watch::Receiver<BrokerState>,
    /// Objects that are not copied, and why; by cluster and name: foreign ones that are not imported, and our own that the
    /// broker does not take. At most 256, and one that says how many more there are.
    pub refused: watch::Receiver<Vec<Refused>>,
    /// Why the other members refuse our Endpoints, if they do.
    pub own_refusal: watch::Receiver<Option<OwnRefusal>>,
    /// Its counters so far.
    pub stats: watch::Receiver<SyncStats>,
    /// The runner.
    pub runner: Handle,
}

impl SyncHandle {
    /// Ends the syncer and waits until it has: no new write is started, and those under way have a second to be
    /// answered. Takes a second at most, whatever the stores do.
    pub async fn stop(self) {
        self.runner.stop(LAST_ANSWERS).await;
    }

    /// Returns `true` if it has ended by itself, because its guard did not let it write.
    pub fn has_ended(&self) -> bool {
        self.runner.has_ended()
    }
}
